"""Brute force of one transition row of the worker MDP: the sum over four intervals, in loops.

A: from the earliest request's arrival to now; B: now to the start of bin j'; C: bin j'; D: the
rest of the service. Equation numbers as in EuroSys '24, §4.3, with the three corrections that
the worker's MDP needs (the empty state counted once, negative slack in bin 0, full state n' > N).
"""

from __future__ import annotations

import math
from itertools import product


def poisson(k: int, mean: float) -> float:
    if mean == 0:
        return 1.0 if k == 0 else 0.0
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


def transition_row(
    n: int, j: int, latency: float, *, slack: list[float], rate: float, workers: int, top: int,
    most: int,
) -> dict[tuple[int, int] | str, float]:
    """Probability of every next state; ``most`` bounds the arrivals counted per interval."""
    slo = slack[-1]
    waited = slo - slack[j]
    phases = range((n - 1) * workers, n * workers)
    weight = {k: poisson(k, rate * waited) for k in phases}
    scale = sum(weight.values())
    if scale == 0:
        weight, scale = {(n - 1) * workers: 1.0}, 1.0
    row: dict[tuple[int, int] | str, float] = {}

    def add(key: tuple[int, int] | str, probability: float) -> None:
        row[key] = row.get(key, 0.0) + probability

    for k_a, w in weight.items():
        missing = workers - k_a % workers
        share = w / scale
        add("empty", share * sum(poisson(k, rate * latency) for k in range(missing)))
        for target in range(len(slack) - 1):
            end = latency - (slo - slack[target + 1])
            start = max(0.0, latency - (slo - slack[target])) if target else 0.0
            if end <= 0:
                continue
            for b, c in product(range(missing), range(most)):
                if b + c < missing:
                    continue
                here = share * poisson(b, rate * start) * poisson(c, rate * (end - start))
                for d in range(most):
                    n_next = 1 + (b + c + d - missing) // workers
                    key = (n_next, target) if n_next <= top else "full"
                    add(key, here * poisson(d, rate * (latency - end)))
    return row
