"""Brute force of what a batch of part of the queue leaves behind, in loops and exact binomials.

k_A central arrivals came since the earliest request, (n - 1)·K <= k_A < n·K, with Poisson
weights; the new earliest request is the bK-th of them, whose instant is below a share y of that
time when at least bK of k_A uniform instants are. ``sample`` draws the same from exponential
gaps, without any of these laws.
"""

import math
import random
from bisect import bisect_right

from tests.reference.four_intervals import Row, phases, poisson


def at_least(order: int, count: int, y: float) -> float:
    """P(at least ``order`` of ``count`` uniform instants lie below y)."""
    if y <= 0.0 or y >= 1.0:
        return float(y >= 1.0)
    return math.fsum(
        math.comb(count, i) * y**i * (1.0 - y) ** (count - i) for i in range(order, count + 1)
    )


def partial_row(
    n: int, j: int, batch: int, latency: float,
    *, now: float, slack: list[float], rate: float, workers: int, most: int,
) -> Row:
    """Probability of each (n', j') after ``batch`` < n requests are served; the slack is ``now``.

    ``most`` bounds the arrivals that are counted during the service.
    """
    waited = slack[-1] - now
    row: Row = {}
    during = poisson(most, rate * latency)
    for phase, share in enumerate(phases(n, j, slack=slack, rate=rate, workers=workers)):
        count = (n - 1) * workers + phase
        below = [at_least(batch * workers, count, (edge + latency - now) / waited)
                 for edge in slack[1:]]
        law = [high - low for low, high in zip([0.0, *below], [*below, 1.0], strict=True)]
        for more, probability in enumerate(during):
            queued = n - batch + (phase + more) // workers
            for target, mass in enumerate(law):
                key = (queued, target)
                row[key] = row.get(key, 0.0) + share * probability * mass
    return row


def sample(
    rng: random.Random, n: int, batch: int, latency: float,
    *, now: float, slack: list[float], rate: float, workers: int,
) -> tuple[int, int] | None:
    """One (n', j') from a Poisson stream, or None where not n were queued."""
    waited = slack[-1] - now
    clock, instants = rng.expovariate(rate), [0.0]
    while clock <= waited + latency:
        instants.append(clock)
        clock += rng.expovariate(rate)
    own = instants[::workers]
    if bisect_right(own, waited) != n:
        return None
    after = own[batch] + slack[-1] - waited - latency
    return len(own) - batch, max(0, bisect_right(slack, after) - 1)
