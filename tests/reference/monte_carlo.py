"""Monte Carlo of the worker MDP's chain, in plain Python and with arrivals drawn one by one.

At each decision the phase is drawn anew, given (n, T_j), as the model forgets it: k_A central
arrivals came since the earliest request, (n - 1)·K <= k_A < n·K, with Poisson weights. Then
exponential gaps give the central arrivals during the service; every K-th is the worker's, and
the slack of its first new one is rounded down to the grid (EuroSys '24, §4.1-4.3).
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass
class Tally:
    """Sums over one stretch of decisions."""

    decisions_by_queue: list[int]  # n = 1 … N, then the full state
    queries: int = 0
    queries_in_time: int = 0
    decisions_in_time: int = 0
    accuracy: float = 0.0  # summed over the queries in time
    seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def decisions(self) -> int:
        return sum(self.decisions_by_queue)


@dataclass(frozen=True)
class Chain:
    """A worker with a policy; ``latency[m][n - 1]`` and slack in ms, rate per ms."""

    latency: list[list[float]]
    accuracy: list[float]
    slack: list[float]
    rate: float
    workers: int
    policy: list[list[int]]
    fastest: int

    def simulate(self, stretches: int, decisions: int, seed: int) -> list[Tally]:
        """Walk the chain from the empty state, with one tally for each stretch."""
        rng, top, slo = random.Random(seed), len(self.policy), self.slack[-1]
        weights: dict[tuple[int, int], list[float]] = {}
        n, j = 1, len(self.slack) - 1
        tallies = []
        for _ in range(stretches):
            tally = Tally([0] * (top + 1))
            tallies.append(tally)
            for _ in range(decisions):
                row = min(n, top + 1)
                model = self.policy[n - 1][j] if n <= top else self.fastest
                service = self.latency[model][row - 1]
                in_time = n <= top and service <= self.slack[j]
                tally.seen.add((row, j))
                tally.decisions_by_queue[row - 1] += 1
                tally.queries += n
                if in_time:
                    tally.decisions_in_time += 1
                    tally.queries_in_time += n
                    tally.accuracy += n * self.accuracy[model]
                if (row, j) not in weights:
                    weights[row, j] = self._phase_weights(row, j)
                own = weights[row, j]
                missing = self.workers - bisect_right(own, rng.random() * own[-1])
                count, first, now = 0, math.nan, rng.expovariate(self.rate)
                while now <= service:
                    count += 1
                    if count == missing:
                        first = now
                    now += rng.expovariate(self.rate)
                if count < missing:
                    n, j = 1, len(self.slack) - 1
                else:
                    n = 1 + (count - missing) // self.workers
                    j = max(0, bisect_right(self.slack, slo - (service - first)) - 1)
                    j = j if n <= top else 0
        return tallies

    def _phase_weights(self, n: int, j: int) -> list[float]:
        """Running sums of the phases' weights, up to a common factor."""
        mean, weight, each = self.rate * (self.slack[-1] - self.slack[j]), 1.0, []
        for phase in range(self.workers):
            each.append(weight)
            weight *= mean / ((n - 1) * self.workers + phase + 1)
        return list(accumulate(each))


def estimate(
    tallies: Sequence[Tally], part: Callable[[Tally], float], whole: Callable[[Tally], float]
) -> tuple[float, float]:
    """Σ part / Σ whole and its standard error, by the method of batch means."""
    total = sum(map(whole, tallies))
    ratio = sum(map(part, tallies)) / total
    squares = sum((part(t) - ratio * whole(t)) ** 2 for t in tallies)
    count = len(tallies)
    return ratio, math.sqrt(squares * count / (count - 1)) / total
