"""Upper bound on what a scheduler could have achieved on observed requests and batch times.

It holds for every scheduler that answers each request once, by one model.

*The problem.* n_c requests of class c came within T ms and wanted an answer within SLO_c; K like
workers served them. The log states the time of each batch. Let y_{c,m,b} be how many requests
of class c are answered in time by model m in batches of b, each of which takes t_c(m, b) / b of a
worker's time:

    max  Σ accuracy(m)·y_{c,m,b}
    s.t. Σ t_c(m, b)/b·y_{c,m,b} <= K·(T + max SLO),    Σ_{m,b} y_{c,m,b} <= n_c.

*Its times.* t_c(m, b) = ψ·f·E[L | f·L <= SLO_c], with L the service time of the profile. The
factor f is the measured time of all batches over the time that the profile states for them. The
factor ψ, near 1, is chosen such that the t_c(m, b)/b of all answers in time add up to the worker
time measured for them. A batch that can be late costs at least that much for each answer in time,
so the program bounds every scheduler whose batches take L·f·ψ on average.

*Why no log is above it.* Give each request of a batch of b the b-th part of the batch's time.
All batches with an answer in time run between the first arrival and max SLO after the last one,
so the parts of the answers in time add up to at most K·(T + max SLO); by the choice of ψ so do the
t_c(m, b)/b of the same answers. So what was done is a point of the program.

*Windows.* All this holds for the requests of any window of the log, with the ψ of the window. The
log is cut into 1, 2, 4, ... windows, and the lowest of these bounds is taken: narrow windows
follow a load that varies, but each of them adds an SLO of worker time.

The same rows also give the largest number of answers in time, and the fewest workers for what was
achieved. All programs are solved by HiGHS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds.columns import solved
from ramsis.cluster.service_times import ServiceTimes

_LEVELS = 256  # of the quantile function, for means of times within an SLO
_SHORTEST = 20.0  # windows in units of the longest SLO
_MOST_WINDOWS = 32


@dataclass(frozen=True, eq=False)
class Observed:
    """Log of requests that arrived; arrays of shape (n,), by rising arrival."""

    arrival_ms: FloatArray
    slo_class: IntArray  # index of each request's class
    # model, batch: index of the model and size of the batch that answered it in time; -1 and 0
    # for others
    model: IntArray
    batch: IntArray
    share_ms: FloatArray  # its part of the time that its batch took; NaN where that is not known

    def part(self, low_ms: float, high_ms: float) -> Observed:
        """Return the observed requests that arrive in [low, high)."""
        first, last = np.searchsorted(self.arrival_ms, [low_ms, high_ms])
        return Observed(*(getattr(self, name)[first:last] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class WaysToAnswer:
    """Accuracies and mean times of the batches that can be in time, by class, model and size."""

    slo_ms: FloatArray  # longest deadline of each class, shape (C,)
    accuracy: FloatArray  # shape (M,)
    # mean of the service times within the deadline, shape (C, M, B); infinite where none is
    time_ms: FloatArray

    @classmethod
    def of(
        cls, times: ServiceTimes, slo_ms: FloatArray, factor: float,
        shortest_ms: FloatArray | None = None,
    ) -> WaysToAnswer:
        """Return the batches that can be in time, with service times scaled by ``factor``.

        Parameters
        ----------
        slo_ms : ndarray, shape (C,)
        shortest_ms : ndarray, shape (C,), optional
            Shortest deadline of each class, if they differ; times are means of those below it.
        """
        levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        each = factor * np.stack([times.quantile(level) for level in levels])
        limits = slo_ms if shortest_ms is None else shortest_ms
        mean = np.full((len(slo_ms), *each.shape[1:]), np.inf)
        for c, (limit, longest) in enumerate(zip(limits, slo_ms, strict=True)):
            count = (each <= limit).sum(axis=0)
            total = np.where(each <= limit, each, 0.0).sum(axis=0)
            least = np.where(each[0] <= longest, each[0], np.inf)
            mean[c] = np.where(count > 0, total / np.maximum(count, 1), least)
        return cls(np.asarray(slo_ms, dtype=float), times.accuracy, mean)

    def with_observed(self, seen: Observed) -> WaysToAnswer:
        """Return these batches and the observed ones that the profile excludes as late.

        Such a batch is taken to last for the SLO.
        """
        time_ms, done = self.time_ms.copy(), seen.batch > 0
        place = (seen.slo_class[done], seen.model[done], seen.batch[done] - 1)
        at = np.where(np.isfinite(time_ms[place]), time_ms[place], self.slo_ms[place[0]])
        time_ms[place] = at
        return replace(self, time_ms=time_ms)


@dataclass(frozen=True)
class ObservedBound:
    """Upper bound on logged requests, for schedulers that ask one model for each request."""

    effective_accuracy: float
    in_time: float  # largest share of the requests that could be answered in time
    windows: int  # into which the log was cut for the first


def observed_bound(seen: Observed, ways: WaysToAnswer, workers: int) -> ObservedBound:
    """Return an upper bound for every scheduler on ``workers`` workers of one type."""
    ways, requests = ways.with_observed(seen), len(seen.arrival_ms)
    reached = [(sum(_Program(part, ways).best(workers, span_ms)
                    for part, span_ms in parts) / requests, len(parts))
               for parts in _windowings(seen, ways)]
    effective, windows = min(reached)
    even = replace(ways, accuracy=np.ones(len(ways.accuracy)))
    in_time = min(sum(_Program(part, even).best(workers, span_ms) for part, span_ms in parts)
                  for parts in _windowings(seen, ways))
    return ObservedBound(min(effective, float(ways.accuracy.max())), min(in_time / requests, 1.0),
                         windows)


def observed_workers(
    seen: Observed, ways: WaysToAnswer, *, effective_accuracy: float, in_time: float
) -> float:
    """Bound from below the busy workers that an effective accuracy and a share in time require.

    Both are fractions of all requests; NaN where no number of workers reaches them.
    """
    ways = ways.with_observed(seen)
    (only,) = next(_windowings(seen, ways))
    return _Program(only[0], ways).fewest(effective_accuracy, in_time, only[1])


def _windowings(
    seen: Observed, ways: WaysToAnswer
) -> Iterator[list[tuple[Observed, float]]]:
    """Yield the log cut into 1, 2, 4, … windows, each with its requests and time span."""
    first, last = float(seen.arrival_ms[0]), float(seen.arrival_ms[-1])
    longest, number = float(ways.slo_ms.max()), 1
    while number == 1 or (number <= _MOST_WINDOWS
                          and (last - first) / number >= _SHORTEST * longest):
        edges = np.linspace(first, last, number + 1)
        edges[-1] = np.inf
        parts = [seen.part(low, high) for low, high in pairwise(edges.tolist())]
        yield [(part, float(part.arrival_ms[-1] - part.arrival_ms[0]) + longest)
               for part in parts if len(part.arrival_ms)]
        number *= 2


class _Program:
    """The linear program of the requests of a window."""

    def __init__(self, seen: Observed, ways: WaysToAnswer) -> None:
        self.counts = np.bincount(seen.slo_class, minlength=len(ways.slo_ms)).astype(float)
        each_ms = ways.time_ms / np.arange(1, ways.time_ms.shape[2] + 1)  # of an answer
        self.where = np.nonzero(np.isfinite(each_ms))
        self.time_ms = each_ms[self.where] * _ratio(seen, each_ms)
        self.accuracy = ways.accuracy[self.where[1]]
        self.classes = (self.where[0] == np.arange(len(self.counts))[:, None]).astype(float)

    def best(self, workers: int, span_ms: float) -> float:
        """Return the largest sum of accuracies in time on ``workers`` workers in ``span_ms``."""
        if not len(self.accuracy):  # every model takes longer than every SLO
            return 0.0
        solution = solved("observed bound", c=-self.accuracy,
                          A_ub=np.vstack([self.time_ms / span_ms, self.classes]),
                          b_ub=np.append(float(workers), self.counts))
        return -float(solution.fun)

    def fewest(self, effective_accuracy: float, in_time: float, span_ms: float) -> float:
        """Minimise the busy workers for an effective accuracy and a share in time.

        Both are fractions of all requests; NaN where no number of workers reaches them.
        """
        total = float(self.counts.sum())
        if not len(self.accuracy):
            return float("nan") if max(effective_accuracy, in_time) > 0.0 else 0.0
        solution = linprog(self.time_ms / span_ms, A_ub=np.vstack([
            self.classes, -self.accuracy, -np.ones(len(self.accuracy))]), b_ub=np.concatenate([
                self.counts, [-effective_accuracy * total, -in_time * total]]), method="highs")
        return float(solution.fun or 0.0) if solution.success else float("nan")


def _ratio(seen: Observed, each_ms: FloatArray) -> float:
    """Return measured over expected worker time of the answers; 1 if it was not measured."""
    measured = (seen.batch > 0) & np.isfinite(seen.share_ms)
    expected = each_ms[seen.slo_class[measured], seen.model[measured],
                       seen.batch[measured] - 1].sum()
    return float(seen.share_ms[measured].sum() / expected) if expected > 0 else 1.0
