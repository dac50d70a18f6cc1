"""The worker's decision problem: what a state, a choice and a reward are.

A worker holds a queue. Its state is (n, T_j): n queued requests and the slack T_j of the
earliest deadline, rounded down to the slack grid. Beside these there are the empty state and
the full state (more than N queued, slack 0). With maximal batching a choice is a model m that
serves all n requests at once, admissible when it may take no more than T_j: l(m, n) <= T_j where
service times are fixed, P(L <= T_j) > 0 where they are drawn. Where none is admissible the
earliest request is late, and a rule says what becomes of it (:class:`LateRule`; EuroSys '24,
§4.1-4.3). Round robin gives the worker every K-th central arrival.

With t of its n queries in time on average, and the earliest deadline met with probability P,
a choice earns, at a price p per violation,

    per query     t·accuracy(m) − p·(n − t)   cost n
    per decision  P·accuracy(m) − p·(1 − P)   cost 1

A drop is a choice with n = 1 and nothing in time. The wait in the empty state costs nothing; the
gain Σ reward / Σ cost is what a policy maximises. The full state is charged every request that
it holds, so that nothing is hidden by the size of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramsis.arrivals import ArrivalProcess, MarkovModulated, Poisson
from ramsis.cluster.checks import below_every_latency
from ramsis.errors import InvalidValueError, describe
from ramsis.profiles import LatencyTable
from ramsis.worker.actions import DROP, Batching, Choice, ChoiceSet, LateRule, Outcome
from ramsis.worker.behind import later_by_bin
from ramsis.worker.grid import DEFAULT_GRID, slack_grid
from ramsis.worker.remainder import later_in_parts
from ramsis.worker.services import Services, drawn_services, fixed_services

__all__ = ["MAX_NUMBERS", "MAX_QUEUE", "Objective", "WorkerProblem"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_Word = TypeVar("_Word", bound=StrEnum)

MAX_QUEUE = 10_000
"""Longest queue that a table may tell apart."""
MAX_NUMBERS = 1_000_000_000
"""Most numbers of 8 bytes that solving a problem may hold at once, by a rough count."""


class Objective(StrEnum):
    """What the gain counts."""

    PER_QUERY = "per-query"
    """Accuracy of the queries answered in time, over all queries."""
    PER_DECISION = "per-decision"
    """Accuracy of the decisions in time, over all decisions: the paper's reward."""


@dataclass(frozen=True, eq=False)
class WorkerProblem:
    """One worker's MDP; make it with :meth:`create`.

    Attributes
    ----------
    latency : LatencyTable
        Models, accuracies and l(m, b) for b = 1 … N+1; where times are drawn, their means.
    slo_ms : float
    workers : int
        K: the worker gets every K-th central arrival.
    arrivals : ArrivalProcess
        The central arrivals.
    slack_ms : ndarray, shape (D+1,)
        T_0 = 0 < … < T_D = SLO.
    max_queue : int
        N: the longest queue that the table tells apart.
    objective : Objective
    late : LateRule
    batching : Batching
    violation_price : float
        What a query (or decision) that is late or dropped costs, in units of accuracy.
    quantiles_ms : ndarray, shape (M, N+1, Q), or None
        Service times at equally likely midpoints, where they are drawn; infinite for a batch
        that is not to be run.
    """

    latency: LatencyTable
    slo_ms: float
    workers: int
    arrivals: ArrivalProcess
    slack_ms: FloatArray
    max_queue: int
    objective: Objective
    late: LateRule = LateRule.SERVE
    batching: Batching = Batching.MAXIMAL
    violation_price: float = 0.0
    quantiles_ms: FloatArray | None = None

    @classmethod
    def create(
        cls,
        latency: LatencyTable,
        *,
        slo_ms: float,
        workers: int,
        arrivals: ArrivalProcess,
        grid: str | FloatArray = DEFAULT_GRID,
        max_queue: int = 32,
        objective: Objective | str = Objective.PER_QUERY,
        late: LateRule | str = LateRule.SERVE,
        batching: Batching | str = Batching.MAXIMAL,
        violation_price: float = 0.0,
        quantiles_ms: FloatArray | None = None,
    ) -> WorkerProblem:
        """Check the parts and put them together.

        Parameters
        ----------
        latency : LatencyTable
            Must reach batch ``max_queue + 1``.
        grid : str or ndarray
            ``fixed:D``, ``model``, or the slack values themselves.
        quantiles_ms : ndarray, shape (M, B, Q), optional
            Service times at equally likely midpoints, for B >= N+1 and at least two; infinite
            for a batch that is not to be run. Every batch of ``latency.fastest`` is finite.

        Raises
        ------
        InvalidValueError
            When a number is out of range, the SLO is below every latency, the table is too
            short, or the problem is too large (:data:`MAX_NUMBERS`).
        """
        _check_whole("workers", workers)
        _check_whole("max_queue", max_queue, MAX_QUEUE)
        _check_rate(arrivals)
        if latency.max_batch < max_queue + 1:
            raise InvalidValueError(
                describe("latency table is too short", where="latency", value=latency.max_batch,
                         allowed=f"batches up to max_queue + 1 = {max_queue + 1}")
            )
        if isinstance(grid, str):
            slack_ms = slack_grid(grid, slo_ms, latency, max_queue)
        else:
            slack_ms = _checked_grid(grid, slo_ms)
        if quantiles_ms is not None:
            quantiles_ms = quantiles_ms[:, : max_queue + 1]
        first_ms = latency.latency_ms if quantiles_ms is None else quantiles_ms[:, :, 0]
        lowest = float(first_ms[:, 0].min())
        if slo_ms < lowest:
            raise below_every_latency(slo_ms, lowest)
        if not (math.isfinite(violation_price) and violation_price >= 0):
            raise InvalidValueError(describe("not a price", where="violation_price",
                                             value=violation_price,
                                             allowed="a finite number >= 0"))
        problem = cls(
            latency, float(slo_ms), workers, arrivals, slack_ms, max_queue,
            _word(Objective, "objective", objective), _word(LateRule, "late", late),
            _word(Batching, "batching", batching), float(violation_price), quantiles_ms,
        )
        _check_known(problem)
        _check_size(problem)
        return problem

    @property
    def bins(self) -> int:
        """D: the number of slack bins below the SLO."""
        return len(self.slack_ms) - 1

    @cached_property
    def choices(self) -> ChoiceSet:
        """What may be done in each state."""
        return ChoiceSet(
            tuple(self._choices(n) for n in range(1, self.max_queue + 2)), len(self.slack_ms)
        )

    @cached_property
    def services(self) -> Services:
        """Laws of the service times of all batches that may be run, late ones too."""
        pairs = [(self.latency.fastest, b) for b in range(1, self.max_queue + 2)]
        pairs += [(m, b) for b in range(1, self.max_queue + 1) for m in self._usable[b]]
        if self.quantiles_ms is None:
            return fixed_services(pairs, self.latency.latency_ms)
        return drawn_services(pairs, self.quantiles_ms, self.slo_ms)

    @cached_property
    def _usable(self) -> list[list[int]]:
        """At each batch b = 0 … N+1 the models that may be in time for some slack."""
        first = self.latency.latency_ms if self.quantiles_ms is None else self.quantiles_ms[..., 0]
        return [[], *([m for m in range(len(first)) if first[m, b] <= self.slo_ms]
                      for b in range(self.max_queue + 1))]

    @cached_property
    def _later(self) -> FloatArray | None:
        """Where queries behind the earliest one count by themselves, how many there are."""
        if self.quantiles_ms is None and self.late is not LateRule.FREE:
            return None
        return later_by_bin(self.arrivals, self.workers, self.slack_ms, self.max_queue)

    def met(self, model: int, batch: int) -> FloatArray:
        """P(a batch takes at most T_j), shape (D+1,); drawn times are linear between quantiles."""
        if self.quantiles_ms is None:
            latency_ms = float(self.latency.latency_ms[model, batch - 1])
            return (latency_ms <= self.slack_ms).astype(np.float64)
        quantiles = self.quantiles_ms[model, batch - 1]
        if not np.isfinite(quantiles[-1]):
            return np.zeros(len(self.slack_ms))
        size = len(quantiles)
        below = np.searchsorted(quantiles, self.slack_ms, side="right")
        at = np.clip(below, 1, size - 1)
        low, high = quantiles[at - 1], quantiles[at]
        share = (self.slack_ms - low) / np.where(high > low, high - low, 1.0)
        inner = (at - 0.5 + np.clip(share, 0.0, 1.0)) / size
        return np.where(below == 0, 0.0, np.where(below == size, 1.0, inner))

    def _choices(self, queued: int) -> tuple[Choice, ...]:
        """Admissible models, fastest first, then what may be done with a late request."""
        full = queued > self.max_queue
        order = sorted(self._usable[queued], key=lambda m: (
            self.latency.latency_ms[m, queued - 1], -self.latency.accuracy[m]))
        met = {m: self.met(m, queued) for m in order}
        starts = {m: int(np.count_nonzero(met[m] == 0.0)) for m in order if not full}
        top = len(self.slack_ms)
        found = [self._batch(queued, m, queued, first, top, met[m])
                 for m, first in starts.items() if first < top]
        late = min((choice.first_bin for choice in found), default=top)
        parts = self._parts(queued) if self.batching is Batching.VARIABLE and not full else ()
        if self.late is LateRule.DROP:
            none = np.zeros(top)
            return (*found, *parts, Choice(DROP, -1, 1, -1, 0, top, none, none))
        models = [self.latency.fastest]
        if self.late is LateRule.FREE and not full:
            models += [m for m in order if m != self.latency.fastest]
        nothing = np.zeros(top)
        return (*(self._batch(queued, m, queued, 0, late, met.get(m, nothing))
                  for m in models if late), *found, *parts)

    def _parts(self, queued: int) -> Iterator[Choice]:
        """Batches of less than the queue that may be in time, fastest first for each size.

        Where any model may serve late requests, a part may be late for its first one too.
        """
        top = len(self.slack_ms)
        for batch in range(1, queued):
            column = self.latency.latency_ms[:, batch - 1]
            for m in sorted(self._usable[batch], key=lambda m: column[m]):
                met = self.met(m, batch)
                first = int(np.count_nonzero(met == 0.0))
                if first < top:
                    free = self.late is LateRule.FREE
                    yield self._batch(queued, m, batch, 0 if free else first, top, met)

    @cached_property
    def _later_in_parts(self) -> list[csr_array[np.float64]]:
        """As ``_later``, for the first requests of a longer queue."""
        from ramsis.worker.phases import missing_arrivals

        largest = max(b for b in range(1, self.max_queue + 1) if self._usable[b])
        return later_in_parts(self, missing_arrivals(self), min(largest, self.max_queue - 1))

    def _batch(
        self, queued: int, model: int, batch: int, first: int, stop: int, met: FloatArray
    ) -> Choice:
        """The choice of a model and a batch at the bins first <= j < stop."""
        in_time = batch * met
        if queued > self.max_queue:
            in_time = np.zeros(len(met))
        elif self._later is not None and batch == queued > 1:
            in_time = met + self._later[batch - 1] @ met
        elif self._later is not None and batch > 1:
            own = slice((queued - 1) * len(met), queued * len(met))
            in_time = met + self._later_in_parts[batch - 1][own] @ met
        return Choice(model + len(self.latency.models) * (queued - batch), model, batch,
                      self.services.row[model, batch], first, stop, in_time[first:stop],
                      met[first:stop])

    def cost(self, batch: int) -> float:
        """Cost of a decision that takes ``batch`` requests from the queue."""
        return float(batch) if self.objective is Objective.PER_QUERY else 1.0

    def reward(self, choice: Choice) -> FloatArray:
        """What a choice earns, by bin from its first one on."""
        accuracy = 0.0 if choice.drops else float(self.latency.accuracy[choice.model])
        good = choice.in_time if self.objective is Objective.PER_QUERY else choice.met
        return accuracy * good - self.violation_price * (self.cost(choice.batch) - good)

    def earned(self, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
        """Reward and cost of each state under a policy, shape (N+1, D+1) each."""
        per_query = self.objective is Objective.PER_QUERY
        good = outcome.in_time if per_query else outcome.met
        cost = outcome.batch.astype(float) if per_query else np.ones_like(good)
        reward = self.latency.accuracy[outcome.model] * good
        return reward - self.violation_price * (cost - good), cost

    def fastest_policy(self) -> IntArray:
        """The admissible policy of least latency; where none is, the first late choice."""
        policy = np.full((self.max_queue, self.bins + 1), DROP, dtype=np.int64)
        for row, choices in zip(policy, self.choices.rows, strict=False):
            for choice in reversed(choices):
                row[choice.bins] = choice.code
        return policy

    def every_state(self, policy: IntArray) -> IntArray:
        """A policy's table with the full state as its last row, (N+1, D+1)."""
        full = self.choices.rows[-1][0].code
        return np.vstack([policy, np.full((1, self.bins + 1), full)])

    def outcome(self, policy: IntArray) -> Outcome:
        """What an admissible policy does in each state."""
        return self.choices.outcome(self.every_state(policy))

    def in_time(self, policy: IntArray) -> NDArray[np.bool_]:
        """Where a policy's choice may meet the earliest deadline; shape (N, D+1)."""
        result: NDArray[np.bool_] = self.outcome(policy).met[:-1] > 0.0
        return result

    def model_and_batch(self, policy: IntArray) -> tuple[IntArray, IntArray]:
        """The table's models and batches, (N, D+1) each; a batch of 0 stands for a drop."""
        models = len(self.latency.models)
        queued = np.arange(1, self.max_queue + 1)[:, None]
        drops = policy == DROP
        return (np.where(drops, 0, policy % models),
                np.where(drops, 0, queued - policy // models))

    def policy_of(self, model: IntArray, batch: IntArray) -> IntArray:
        """The inverse of :meth:`model_and_batch`."""
        queued = np.arange(1, self.max_queue + 1)[:, None]
        codes = model + len(self.latency.models) * (queued - batch)
        return np.where(batch == 0, DROP, codes)

    def check_policy(self, policy: IntArray) -> None:
        """Refuse a table that chooses what is not admissible.

        Raises
        ------
        InvalidValueError
            When the table is not of shape (N, D+1), or naming its first bad entry.
        """
        shape = (self.max_queue, self.bins + 1)
        if np.shape(policy) != shape:
            raise InvalidValueError(
                describe("table has the wrong shape", where="policy", value=np.shape(policy),
                         allowed=f"{shape}")
            )
        good = self.choices.place(self.every_state(policy)) >= 0
        if not good.all():
            n, j = (int(i) for i in np.argwhere(~good)[0])
            allowed = ("a model that is in time; the fastest where none is"
                       if self.late is LateRule.SERVE else "a choice of that state")
            raise InvalidValueError(
                describe("model is not admissible", where=f"policy, {n + 1} queued, slack bin {j}",
                         value=int(policy[n, j]), allowed=allowed)
            )


def _word(kind: type[_Word], name: str, value: str) -> _Word:
    try:
        return kind(value)
    except ValueError:
        raise InvalidValueError(describe(f"unknown {name}", where=name, value=str(value),
                                         allowed=" or ".join(kind))) from None


def _check_known(problem: WorkerProblem) -> None:
    """Refuse what no transitions are known for."""
    if problem.batching is Batching.VARIABLE:
        _check_variable(problem)
    if problem.late is LateRule.DROP and isinstance(problem.arrivals, MarkovModulated):
        raise InvalidValueError(describe("no drops under Markov-modulated arrivals", where="late",
                                         value="drop", allowed="serve or free"))


def _check_variable(problem: WorkerProblem) -> None:
    if not isinstance(problem.arrivals, Poisson):
        raise InvalidValueError(
            describe("variable batching is for Poisson arrivals only", where="batching",
                     value="variable", allowed="maximal")
        )


def _check_whole(name: str, value: int, most: float = math.inf) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not (whole and 1 <= value <= most):
        allowed = "a whole number >= 1" + (f" and <= {most}" if most < math.inf else "")
        raise InvalidValueError(
            describe("not a number in range", where=name, value=value, allowed=allowed)
        )


def _check_size(problem: WorkerProblem) -> None:
    """Refuse a problem that would fill the memory, by a count that is rather too high."""
    latencies = problem.services.latency_ms
    states = (problem.max_queue + 1) * (problem.bins + 1)
    nodes = 200 + 2 * (problem.bins + int((latencies < problem.slo_ms).sum()))
    longest_ms = max(problem.slo_ms, float(latencies[-1]))
    arrivals = problem.arrivals.rate_per_ms * longest_ms
    plain = problem.quantiles_ms is None and problem.late is LateRule.SERVE
    positions = 0 if plain else 4 * states * (problem.bins + 1)
    numbers = (states * (problem.workers + nodes) + len(latencies) * nodes * problem.workers
               + 250 * arrivals + positions)
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            describe("the problem is too large", where="worker problem",
                     value=f"{problem.workers} workers, {states:.3g} states, "
                           f"{arrivals:.3g} arrivals in {longest_ms:.3g} ms",
                     allowed="fewer workers, a coarser grid, a smaller max_queue or a lower load")
        )


def _check_rate(arrivals: ArrivalProcess) -> None:
    rate = arrivals.rate_per_ms
    if not (math.isfinite(rate) and rate > 0):
        raise InvalidValueError(
            describe("arrival rate is not positive", where="arrivals.rate_per_ms", value=rate,
                     allowed="a finite number > 0")
        )


def _checked_grid(grid: FloatArray, slo_ms: float) -> FloatArray:
    values = np.array(grid, dtype=float)
    good = values.ndim == 1 and len(values) >= 2 and bool(np.isfinite(values).all())
    if not good or values[0] != 0 or values[-1] != slo_ms or (np.diff(values) <= 0).any():
        raise InvalidValueError(
            describe("not a slack grid", where="grid", value=values.tolist(),
                     allowed="rising values from 0 to the SLO")
        )
    return values
