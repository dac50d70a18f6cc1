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

The first passage of a service is linear in the distribution of its time, so a distribution enters
the structured form as weights on a grid of latencies. A fixed time is a point of the grid. A
random one has Q quantiles with weights; each is divided between its two neighbours in the grid
such that the mean is kept. The grid of random times has a step of SLO/200 below the SLO and of a
32nd of the time beyond it. It reaches the largest quantile. Where so many requests arrive within
SLO/200 that a service of that length overflows the queue, a short service must not be divided
between nearly 0 and SLO/200: steps are then the time of N/4 arrivals, or a 32nd of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, eye_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess
from ramsis.errors import InvalidValueError, check_positive
from ramsis.profiles import LatencyTable
from ramsis.profiles.sketch import hat_weights, midpoint_levels
from ramsis.profiles.tails import Tails
from ramsis.reprs import brief, dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS

_STEPS_PER_SLO = 200
_BEYOND = 32  # steps per unit of the logarithm, beyond the SLO
_FILLS = 4  # steps in which a queue fills, at least

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
    workers : int
        K: the worker gets every K-th central arrival.
    arrivals : ArrivalProcess
        The central arrivals.
    slack_ms : ndarray, shape (D+1,)
        T_0 = 0 < … < T_D = SLO.
    max_queue : int
        N: the longest queue that the table tells apart.
    quantiles_ms, levels, samples, tails
        Random service times, as in :class:`RandomTimes`; ``quantiles_ms`` is None where they are
        fixed.
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
        arrivals_per_ms = self.arrivals.rate_per_ms / self.workers
        return random_services(pairs, self.quantiles_ms, weights, self.slo_ms,
                               self.max_queue / (_FILLS * arrivals_per_ms))

    @property
    def quantile_levels(self) -> FloatArray:
        """Levels of the quantiles, where service times are random, shape (Q,)."""
        if self.levels is not None:
            return self.levels
        return midpoint_levels(1 if self.quantiles_ms is None else self.quantiles_ms.shape[2])

    @cached_property
    def in_time_probability(self) -> FloatArray:
        """P(L(m, b) <= T_j) by m, b − 1 and j; random times are linear between quantiles."""
        if self.quantiles_ms is None:
            latency_ms = self.latency.latency_ms[:, :, None]
            return np.asarray(latency_ms <= self.slack_ms + SLACK_TOLERANCE_MS, dtype=float)
        finite = np.isfinite(self.quantiles_ms[:, :, -1])
        quantiles = self.quantiles_ms[finite]
        levels, size = self.quantile_levels, quantiles.shape[1]
        below = np.stack([np.searchsorted(times_ms, self.slack_ms, side="right")
                          for times_ms in quantiles])
        at = np.clip(below, 1, size - 1)
        low, high = (np.take_along_axis(quantiles, i, axis=1) for i in (at - 1, at))
        share = (self.slack_ms - low) / np.where(high > low, high - low, 1.0)
        inner = levels[at - 1] + np.clip(share, 0.0, 1.0) * (levels[at] - levels[at - 1])
        result: FloatArray = np.zeros((*finite.shape, len(self.slack_ms)))
        result[finite] = np.where(below == 0, 0.0, np.where(below == size, 1.0, inner))
        return result


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


class RandomTimes(NamedTuple):
    """Random service times by model and batch.

    Attributes
    ----------
    quantiles_ms : ndarray, shape (M, B, Q)
        Quantiles, for at least two models and batches; infinite for a batch that is not to be
        run.
    levels : ndarray, shape (Q,), optional
        Their levels; by default the midpoints of Q equal parts.
    samples : ndarray of int, shape (M, B), optional
        How many samples each distribution rests on; 0 where it is not known.
    tails : Tails, optional
        Pooled tails of the profile's service times.
    """

    quantiles_ms: FloatArray
    levels: FloatArray | None = None
    samples: IntArray | None = None
    tails: Tails | None = None

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, eq=False)
class ServiceDistributions:
    """The distributions of the service times of some pairs of a model and a batch."""

    row: dict[tuple[int, int], int]  # which distribution a model and a batch have
    latency_ms: FloatArray  # the grid, rising, shape (G,)
    # shape (S, G): probabilities of the latencies under each distribution
    weights: csr_array[np.float64]
    mean_ms: FloatArray  # shape (S,)

    def terms(self, service: int) -> list[tuple[int, float]]:
        """Return grid indices and probabilities of one service-time distribution."""
        part = slice(self.weights.indptr[service], self.weights.indptr[service + 1])
        return list(zip(self.weights.indices[part].tolist(), self.weights.data[part].tolist(),
                        strict=True))


def fixed_services(
    pairs: Sequence[tuple[int, int]], latency_ms: FloatArray
) -> ServiceDistributions:
    """Return fixed times, one per distinct latency of the pairs; ``latency_ms``: (M, B)."""
    model, batch = np.array(sorted(set(pairs))).T
    values, row = np.unique(latency_ms[model, batch - 1], return_inverse=True)
    weights = eye_array(len(values), format="csr")
    rows = dict(zip(zip(model.tolist(), batch.tolist(), strict=True), row.tolist(), strict=True))
    return ServiceDistributions(rows, values, weights, values)


def random_services(
    pairs: Sequence[tuple[int, int]], quantiles_ms: FloatArray, share_of: FloatArray,
    slo_ms: float, longest_step_ms: float,
) -> ServiceDistributions:
    """Return the distribution of service times of each pair (model, batch size), on one grid.

    Parameters
    ----------
    pairs : sequence of (int, int)
        Index of the model, and batch size from 1.
    quantiles_ms : ndarray, shape (M, B, Q)
        Service-time quantiles by model and batch size.
    share_of : ndarray, shape (Q,)
        Probability that each quantile stands for.
    longest_step_ms : float
        Longest step between short times of the grid.
    """
    listed = sorted(set(pairs))
    model, batch = np.array(listed).T
    quantiles = quantiles_ms[model, batch - 1]
    grid = _grid(float(quantiles.min()), float(quantiles.max()), slo_ms, longest_step_ms)
    high = np.clip(np.searchsorted(grid, quantiles), 1, len(grid) - 1)
    share = np.clip((quantiles - grid[high - 1]) / (grid[high] - grid[high - 1]), 0.0, 1.0)
    indices = np.broadcast_to(np.arange(len(listed))[:, None], quantiles.shape)
    weights = csr_array(
        (np.concatenate([(1.0 - share) * share_of, share * share_of], axis=None),
         (np.concatenate([indices, indices], axis=None),
          np.concatenate([high - 1, high], axis=None))),
        shape=(len(listed), len(grid)),
    )
    weights.sum_duplicates()
    weights.eliminate_zeros()
    rows = {pair: row for row, pair in enumerate(listed)}
    return ServiceDistributions(rows, grid, weights, quantiles @ share_of)


def _grid(
    low_ms: float, high_ms: float, slo_ms: float, longest_step_ms: float
) -> FloatArray:
    """Return a grid of at least two latencies that covers all quantiles."""
    step = slo_ms / _STEPS_PER_SLO
    if longest_step_ms < step:
        times = [low_ms]
        while len(times) < 2 or times[-1] < min(high_ms, slo_ms):
            times.append(times[-1] + min(step, max(longest_step_ms, times[-1] / _BEYOND)))
        grid = np.array(times)
    else:
        first, last = math.floor(low_ms / step), math.ceil(min(high_ms, slo_ms) / step)
        grid = step * np.arange(max(first, 1), max(first, 1, last) + 2)
        if low_ms < grid[0]:
            grid = np.append(low_ms / 2, grid)
    beyond = math.ceil(_BEYOND * math.log(max(high_ms / grid[-1], 1.0)))
    return np.append(grid, grid[-1] * np.exp(np.arange(1, beyond + 1) / _BEYOND))
