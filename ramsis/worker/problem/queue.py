"""Queue of one worker among K: arrivals, service times and observed state.

Central arrivals are dealt to the K workers in turn, so a worker gets every K-th of them. It sees
the number n of its queued requests and the slack of the head, the time to the earliest deadline,
rounded down to the slack grid 0 = T_0 < … < T_D = SLO. Up to N queued requests are told apart; a
longer queue is the full state. A batch of b requests on model m takes a time of the distribution
L(m, b), which may be a single value.

What the worker may do, and what that earns, is the decision problem of
:mod:`ramsis.worker.problem.worker_problem`. Everything that follows from the queue alone takes the
class of this module: the round-robin phase, the slack of the requests that wait behind the head,
the distributions of service times, and the transitions.

The fixed-length grid is SLO·i/D; the model-based grid holds 0, the SLO, and every distinct
profiled latency up to the SLO, so that no rounding crosses a latency.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess
from ramsis.errors import InvalidValueError, check_positive
from ramsis.profiles import LatencyTable
from ramsis.profiles.sketch import hat_weights, midpoint_levels
from ramsis.profiles.tails import Tails
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.worker.problem.service_distribution import (
    ServiceDistributions,
    fixed_services,
    random_services,
)

DEFAULT_GRID = "fixed:100"
MAX_DIVISIONS = 100_000
"""Most steps of a fixed-length grid."""
_ALLOWED = f"fixed:D with a whole number D from 1 to {MAX_DIVISIONS}, or model"


@dataclass(frozen=True, eq=False)
class WorkerQueue:
    """The queue of one worker.

    Attributes
    ----------
    latency : LatencyTable
        Models, accuracies and l(m, b) for b = 1 … N+1; where service times are random, their
        means.
    slo_ms : float
    workers : int
        K: the worker gets every K-th central arrival.
    arrivals : ArrivalProcess
        The central arrivals.
    slack_ms : ndarray, shape (D+1,)
        T_0 = 0 < … < T_D = SLO.
    max_queue : int
        N: the longest queue that the table tells apart.
    quantiles_ms : ndarray, shape (M, N+1, Q), or None
        Quantiles of service times, where they are random; infinite for a batch that is not to
        be run.
    levels : ndarray, shape (Q,), or None
        Their levels; None for the midpoints of Q equal parts.
    samples : ndarray of int, shape (M, N+1), or None
        Number of samples behind each distribution, 0 where unknown; None: all unknown.
    tails : Tails, or None
        Pooled tails of the profile's service times, where known.
    """

    latency: LatencyTable
    slo_ms: float
    workers: int
    arrivals: ArrivalProcess
    slack_ms: FloatArray
    max_queue: int
    quantiles_ms: FloatArray | None = field(default=None, kw_only=True)
    levels: FloatArray | None = field(default=None, kw_only=True)
    samples: IntArray | None = field(default=None, kw_only=True)
    tails: Tails | None = field(default=None, kw_only=True)
    _worked_out: dict[Any, Any] = field(default_factory=dict, kw_only=True, repr=False)

    def once(self, what: str, longest: int, work_out: Callable[[], FloatArray]) -> FloatArray:
        """Cache an array that depends on arrivals and slack grid only, up to a queue length.

        Problems that differ in service times only share the cache.
        """
        key = (what, longest, id(self.arrivals), self.workers, self.slack_ms.tobytes())
        if key not in self._worked_out:
            # The arrivals are kept, so that their id, which is in the key, is not reused.
            self._worked_out[key] = self.arrivals, work_out()
        value: FloatArray = self._worked_out[key][1]
        return value

    @property
    def bins(self) -> int:
        """D: the number of slack bins below the SLO."""
        return len(self.slack_ms) - 1

    @property
    def shortest_ms(self) -> FloatArray:
        """The shortest time of each batch, shape (M, N+1) or larger."""
        if self.quantiles_ms is None:
            return self.latency.latency_ms
        shortest: FloatArray = self.quantiles_ms[..., 0]
        return shortest

    @cached_property
    def possible_models(self) -> list[list[int]]:
        """Models that may be in time for some slack, for each batch size b = 0 … N+1."""
        first = self.shortest_ms
        return [[], *([m for m in range(len(first)) if first[m, b] <= self.slo_ms]
                      for b in range(self.max_queue + 1))]

    @cached_property
    def services(self) -> ServiceDistributions:
        """Distributions of the service times of all batches that may be run, late ones too."""
        pairs = [(self.latency.fastest, b) for b in range(1, self.max_queue + 2)]
        pairs += [(m, b) for b in range(1, self.max_queue + 1) for m in self.possible_models[b]]
        if self.quantiles_ms is None:
            return fixed_services(pairs, self.latency.latency_ms)
        weights = hat_weights(self.quantile_levels)
        return random_services(pairs, self.quantiles_ms, weights, self.slo_ms)

    @property
    def quantile_levels(self) -> FloatArray:
        """Levels of the quantiles, where service times are random, shape (Q,)."""
        if self.levels is not None:
            return self.levels
        return midpoint_levels(1 if self.quantiles_ms is None else self.quantiles_ms.shape[2])

    def first_bin(self, model: int, batch: int) -> int:
        """Return the first slack bin at which a batch may be in time."""
        return int(np.count_nonzero(self.in_time_probability(model, batch) == 0.0))

    def of_batch(
        self, what: str, model: int, batch: int, work_out: Callable[[], FloatArray]
    ) -> FloatArray:
        """Cache an array of one batch (model and size) that depends on its service time."""
        key = what, model, batch
        if key not in self._of_batches:
            self._of_batches[key] = work_out()
        return self._of_batches[key]

    @cached_property
    def _of_batches(self) -> dict[tuple[str, int, int], FloatArray]:
        return {}

    def in_time_probability(self, model: int, batch: int) -> FloatArray:
        """Return P(L(m, b) <= T_j), shape (D+1,); random times are linear between quantiles."""
        return self.of_batch("probability", model, batch,
                             lambda: self._in_time_probability(model, batch))

    def _in_time_probability(self, model: int, batch: int) -> FloatArray:
        """Compute :meth:`in_time_probability`, which caches it."""
        if self.quantiles_ms is None:
            latency_ms = float(self.latency.latency_ms[model, batch - 1])
            return (latency_ms <= self.slack_ms + SLACK_TOLERANCE_MS).astype(np.float64)
        quantiles = self.quantiles_ms[model, batch - 1]
        if not np.isfinite(quantiles[-1]):
            return np.zeros(len(self.slack_ms))
        levels, size = self.quantile_levels, len(quantiles)
        below = np.searchsorted(quantiles, self.slack_ms, side="right")
        at = np.clip(below, 1, size - 1)
        low, high = quantiles[at - 1], quantiles[at]
        share = (self.slack_ms - low) / np.where(high > low, high - low, 1.0)
        inner = levels[at - 1] + np.clip(share, 0.0, 1.0) * (levels[at] - levels[at - 1])
        return np.where(below == 0, 0.0, np.where(below == size, 1.0, inner))


def fixed_grid(slo_ms: float, divisions: int) -> FloatArray:
    """Return SLO·i/D for i = 0 … D, in ms.

    >>> fixed_grid(150.0, 3).tolist()
    [0.0, 50.0, 100.0, 150.0]
    """
    _check_divisions(divisions)
    grid = slo_ms * np.arange(divisions + 1) / divisions
    grid[-1] = slo_ms  # which rounding may miss
    return grid


def model_grid(slo_ms: float, latency: LatencyTable, max_batch: int) -> FloatArray:
    """Return 0, the SLO, and every distinct latency l(m, b) <= SLO with b <= max_batch, in ms."""
    values = latency.latency_ms[:, :max_batch]
    within = values[values <= slo_ms]
    return np.unique(np.concatenate([[0.0, slo_ms], within]))


def slack_grid(text: str, slo_ms: float, latency: LatencyTable, max_batch: int) -> FloatArray:
    """Return the grid for ``--grid TEXT``: ``fixed:100`` or ``model``."""
    check_positive("SLO is not positive", slo_ms=slo_ms)
    divisions = parse_grid(text)
    if divisions is None:
        return model_grid(slo_ms, latency, max_batch)
    return fixed_grid(slo_ms, divisions)


def parse_grid(text: str) -> int | None:
    """Return the number of steps D in ``fixed:D``, 100 for ``fixed``; None for ``model``."""
    if text == "model":
        return None
    kind, colon, count = text.partition(":")
    if kind != "fixed" or (colon and not re.fullmatch("-?[0-9]{1,100}", count)):
        raise InvalidValueError("unknown slack grid", where="grid", value=text, allowed=_ALLOWED)
    divisions = int(count) if colon else 100
    _check_divisions(divisions)
    return divisions


def _check_divisions(divisions: int) -> None:
    if not 1 <= divisions <= MAX_DIVISIONS:
        raise InvalidValueError("number of slack divisions out of range", where="grid",
                                value=divisions,
                                allowed=f"a whole number D from 1 to {MAX_DIVISIONS}")
