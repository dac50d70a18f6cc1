"""Decision problem of a central queue by deadline, with several SLO classes.

Class c has the share p_c of a Poisson stream of rate λ and the deadline SLO_c. The queue is
ordered by deadline, and a batch of b takes the first b. All else is as in
:mod:`ramsis.central.problem`, with slack counted up to the longest SLO. What changes is the
distribution of the slack S of the head given n queued requests; with one class it is SLO less an
Erlang age.

*Requests left over.* Requests with slack s are a Poisson process in s of intensity
Σ_c λ_c·1[s <= SLO_c]. If earlier batches took all earlier deadlines, the n requests that they left
over are those with the latest deadlines, so

    P(S >= s) = P(Gamma(n) <= Λ(s)),        Λ(s) = Σ_c λ_c·(SLO_c − s)⁺.

*Requests since the last batch.* No batch has chosen among the u requests that came since the last
batch started. The oldest of them has the age τ, Erlang distributed as a sum of u gaps, the ages of
the others are uniform on [0, τ], and each has class c with probability p_c:

    P(S >= s | τ) = Σ_c p_c·1[SLO_c − τ >= s] · (Σ_c p_c·min((SLO_c − s)⁺/τ, 1))^(u−1).

So a new request with a short SLO can come before all requests that were left over. Of n requests
the u = min(n, B) youngest, B the largest batch, are taken to have come since the last batch
started. The others, all older than τ, were left over, which multiplies the probability by
P(Gamma(n−u) <= Λ(s+τ)). With one class the product is the Erlang distribution for any u. Just
after an arrival this holds for the other n − 1 requests, and the new one has all of its SLO.

*Requests behind the head* are placed by expected numbers: if H(x) requests are expected at a slack
of at least x, given the mean of τ, the k-th of n requests is at the slack x with
H(x) = (1 − k/n)·H(S).

The head's age is drawn anew at each event, however few the workers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from ramsis.arrays import FloatArray, IntArray
from ramsis.central.problem import CentralProblem
from ramsis.cluster.cluster import SloClass

_NODES = 200  # values of τ that stand for its probability
_PARTS = 4  # of a slack bin, for the mean slack in it
_BELOW = 64  # of the slacks below 0
_POINTS = 129  # of H
_UNLIKELY = 1e-12


@dataclass(frozen=True, eq=False)
class ClassesProblem(CentralProblem):
    """Decision problem of a central queue with several SLO classes, for one load."""

    classes: tuple[SloClass, ...] = ()  # two or more by rising SLO; ``slo_ms`` is the last one's

    _OF_THE_QUEUE: ClassVar[tuple[str, ...]] = (*CentralProblem._OF_THE_QUEUE, "_head")

    @classmethod
    def of(cls, problem: CentralProblem, classes: tuple[SloClass, ...]) -> ClassesProblem:
        """Build a problem for the longest SLO and its classes, with a bin edge at each SLO."""
        values = {item.name: getattr(problem, item.name) for item in fields(CentralProblem)}
        slos = [slo_class.slo_ms for slo_class in classes[:-1]]
        values["slack_ms"] = np.unique(np.append(problem.slack_ms, slos))
        return cls(**values, classes=classes)

    @property
    def carries_age(self) -> bool:
        """False: the age of the head is drawn anew at each event."""
        return False

    @cached_property
    def slack_distribution(self) -> FloatArray:
        """P(slack bin | n) just after an arrival and at an end of a batch, shape (2, N, J)."""
        result = np.zeros((2, len(self.queue), len(self.slack_ms)))
        fresh = sum((slo_class.share * (slo_class.slo_ms >= self.slack_ms)
                     for slo_class in self.classes),
                    np.zeros(len(self.slack_ms)))
        for n, queued in enumerate(self.queue.tolist()):
            if queued == 0:
                result[:, n, -1] = 1.0
                continue
            before = self._later(queued - 1, self.slack_ms).mean(axis=0) if queued > 1 else 1.0
            for after, upto in enumerate((fresh * before,
                                          self._later(queued, self.slack_ms).mean(axis=0))):
                upto[0] = 1.0
                probability = upto - np.append(upto[1:], 0.0)
                result[after, n] = np.where(probability < _UNLIKELY, 0.0, probability)
        result /= result.sum(axis=2, keepdims=True)
        return result

    @cached_property
    def mean_age_ms(self) -> FloatArray:
        """The longest SLO less the mean slack of the head in each bin and queue, (N, J)."""
        return self.slo_ms - self._head[0]

    @cached_property
    def slack_in_queue_ms(self) -> FloatArray:
        """Expected slack of request k = 0, 1, … of the queue, given the head's bin; (N, J, B)."""
        head = self._head[0]
        if self.quantiles_ms.shape[1] == 1:  # the head must be in time anywhere in its bin
            head = np.where(self.slack_ms > 0, self.slack_ms, head)
        behind = np.arange(int(self.action_batch.max()))
        return self._behind(head, np.broadcast_to(behind, (len(self.queue), len(behind))))

    @cached_property
    def after_drop(self) -> NDArray[np.int16]:
        """Bin of the head when the queue is dropped from a level to a lower one, (N, N, J)."""
        dropped = np.maximum(self.queue[:, None] - self.queue, 0)
        return self.bins_after_drop(np.moveaxis(self._behind(self._head[0], dropped), 2, 1))

    @cached_property
    def _newest(self) -> int:
        """Most requests that have arrived since the last batch started."""
        return int(self.action_batch.max())

    def _span_ms(self, queued: int) -> FloatArray:
        """Return equally likely values of τ with ``queued`` requests, shape (Q,)."""
        level = (np.arange(_NODES) + 0.5) / _NODES
        return np.asarray(gammaincinv(min(queued, self._newest), level) * (1.0 / self.load))

    def _visible(self, slack_ms: FloatArray) -> FloatArray:
        """Return Λ, the expected number of deadlines with at least this slack."""
        return sum((self.load * slo_class.share * np.maximum(slo_class.slo_ms - slack_ms, 0.0)
                    for slo_class in self.classes), np.zeros(np.shape(slack_ms)))

    def _later(self, queued: int, slack_ms: FloatArray) -> FloatArray:
        """Return P(S >= slack | τ) with ``queued`` >= 1 requests, shape (Q, slack)."""
        span = self._span_ms(queued)[:, None]
        since = min(queued, self._newest)
        oldest = other = np.zeros((len(span), len(slack_ms)))
        for slo_class in self.classes:
            oldest = oldest + slo_class.share * (slo_class.slo_ms - span >= slack_ms)
            other = other + slo_class.share * np.clip((slo_class.slo_ms - slack_ms) / span, 0.0,
                                                      1.0)
        result = oldest * other ** (since - 1)
        if queued > since:
            result = result * gammainc(queued - since, self._visible(slack_ms + span))
        return result

    @cached_property
    def _head(self) -> tuple[FloatArray, FloatArray]:
        """Mean slack of the head, and mean of τ, in each bin and queue, shapes (N, J)."""
        # Each bin is cut into parts, with the slacks below 0 before the first; means follow from
        # P(S in part | τ) for all τ.
        edges = np.append(self.slack_ms, self.slo_ms)
        below = np.linspace(-self.slo_ms, 0.0, _BELOW + 1)[:-1]  # bin 0 is also for these
        inner = edges[:-1, None] + np.diff(edges)[:, None] / _PARTS * np.arange(_PARTS)
        low = np.append(below, inner)
        middle = (low + np.append(low[1:], self.slo_ms)) / 2
        bins = np.searchsorted(self.slack_ms, middle, side="right") - 1
        place = np.arange(len(self.slack_ms)) == np.maximum(bins, 0)[:, None]
        centre = (edges[1:] + edges[:-1]) / 2
        shape = (len(self.queue), len(self.slack_ms))
        slack, span = np.broadcast_to(centre, shape).copy(), np.zeros(shape)
        for n, queued in enumerate(self.queue.tolist()):
            nodes = self._span_ms(max(queued, 1))
            upto = self._later(max(queued, 1), low)
            beyond = np.append(upto[:, 1:], np.zeros((len(upto), 1)), axis=1)
            probability = np.maximum(upto - beyond, 0)
            mass = (probability @ place).sum(axis=0)
            reached = mass > _UNLIKELY * _NODES
            safe = np.where(reached, mass, 1.0)
            slack[n] = np.where(reached, (probability * middle).sum(axis=0) @ place / safe, centre)
            span[n] = np.where(reached, nodes @ (probability @ place) / safe, nodes.mean())
        return slack, span

    def _behind(self, head_ms: FloatArray, behind: IntArray) -> FloatArray:
        """Return the slack of requests by position behind the head, shape (N, J, behind)."""
        # H(x) at points from the head's slack to the longest SLO, as a share of H at the head.
        span = self._head[1][:, :, None]
        left = np.maximum(self.queue - self._newest, 0)[:, None, None].astype(float)
        step = np.linspace(0.0, 1.0, _POINTS)
        x = head_ms[:, :, None] + (self.slo_ms - head_ms)[:, :, None] * step
        since = sum((self.load * slo_class.share * np.clip(slo_class.slo_ms - x, 0.0, span)
                     for slo_class in self.classes), np.zeros(x.shape))
        # If a head this old can only have a longer SLO, new requests may come before all that were
        # left over; else the head is one of those left over.
        old = head_ms[:, :, None] + span < self.classes[0].slo_ms
        over = self._visible(x + span)
        expected = since + np.where(left > 0, np.where(old, over, np.minimum(over, left)), 0.0)
        expected = expected / np.maximum(expected[:, :, :1], 1e-300)
        share = 1.0 - np.minimum(behind / np.maximum(self.queue, 1)[:, None], 1.0)
        result = np.empty((*head_ms.shape, behind.shape[1]))
        for n in range(len(head_ms)):
            for j in range(head_ms.shape[1]):
                result[n, j] = np.interp(-share[n], -expected[n, j], x[n, j])
        return np.where(behind[:, None, :] == 0, head_ms[:, :, None], result)
