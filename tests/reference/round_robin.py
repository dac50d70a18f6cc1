"""Replay of a policy table: K workers in round robin, each with a queue of its own.

A worker that is idle with a queue serves all of it, with the model that the table names for the
queue's length and the earliest query's slack, rounded down; more than N queued are served N at a
time by the fastest model. Service takes l(m, n). Nothing here is shared with the analysis.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Replay:
    """Shares of all queries; ``by_head`` counts a batch as late with its earliest query."""

    queries: int
    violation_rate: float
    effective_accuracy: float
    violation_rate_by_head: float


def replay(
    arrivals_ms: NDArray[np.float64],
    *,
    workers: int,
    slo_ms: float,
    slack_ms: list[float],
    table: list[list[int]],
    latency_ms: list[list[float]],
    accuracy: list[float],
    fastest: int,
) -> Replay:
    """Serve every query; the table is indexed [n - 1][slack bin], latencies [model][n - 1]."""
    late = late_by_head = 0
    earned = 0.0
    for worker in range(workers):
        times = arrivals_ms[worker::workers].tolist()
        now, first, last, count = 0.0, 0, 0, len(times)
        while first < count:
            now = max(now, times[first])
            while last < count and times[last] <= now:
                last += 1
            slack = times[first] + slo_ms - now
            if last - first <= len(table):
                batch = last - first
                model = table[batch - 1][max(0, bisect_right(slack_ms, slack + 1e-9) - 1)]
            else:
                batch, model = len(table), fastest
            now += latency_ms[model][batch - 1]
            missed = bisect_right(times, now - slo_ms - 1e-9, first, first + batch) - first
            late += missed
            late_by_head += batch if missed else 0
            earned += accuracy[model] * (batch - missed)
            first += batch
    total = len(arrivals_ms)
    return Replay(total, late / total, earned / total, late_by_head / total)
