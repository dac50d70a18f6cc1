"""Brute force of one transition row of the worker MDP: the sum over four intervals, in loops.

A: from the earliest request's arrival to now; B: now to the start of bin j'; C: bin j'; D: the
rest of the service. Equation numbers as in EuroSys '24, §4.3, with the three corrections that
the worker's MDP needs (the empty state counted once, negative slack in bin 0, full state n' > N).
"""

import math

Row = dict[tuple[int, int] | str, float]


def poisson(most: int, mean: float) -> list[float]:
    """Probabilities of 0 … most - 1 arrivals when ``mean`` are expected."""
    if mean == 0:
        return [1.0] + [0.0] * (most - 1)
    return [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most)]


def phases(n: int, j: int, *, slack: list[float], rate: float, workers: int) -> list[float]:
    """P(phase p | n, j): k_A = (n - 1)·K + p arrivals in A, given (n - 1)·K <= k_A < n·K."""
    weight = poisson(n * workers, rate * (slack[-1] - slack[j]))[(n - 1) * workers :]
    total = sum(weight)
    return [w / total for w in weight] if total else [1.0] + [0.0] * (workers - 1)


def transition_row(
    n: int, j: int, latency: float, *, slack: list[float], rate: float, workers: int, most: int
) -> Row:
    """Probability of every next state: "empty", or (n', j') with n' as large as it gets.

    ``most`` bounds the arrivals that are counted in one interval.
    """
    slo = slack[-1]
    row: Row = {}

    def add(key: tuple[int, int] | str, probability: float) -> None:
        row[key] = row.get(key, 0.0) + probability

    for phase, share in enumerate(phases(n, j, slack=slack, rate=rate, workers=workers)):
        missing = workers - phase
        add("empty", share * sum(poisson(missing, rate * latency)))
        for target in range(len(slack) - 1):
            end = latency - (slo - slack[target + 1])
            start = max(0.0, latency - (slo - slack[target])) if target else 0.0
            if end <= 0:
                continue
            before = poisson(missing, rate * start)
            within = poisson(most, rate * (end - start))
            after = poisson(most, rate * (latency - end))
            for b in range(missing):
                for c in range(missing - b, most):
                    here = share * before[b] * within[c]
                    if here < 1e-25:
                        continue
                    for d in range(most):
                        n_next = 1 + (b + c + d - missing) // workers
                        add((n_next, target), here * after[d])
    return row


def fold(row: Row, top: int) -> tuple[Row, float]:
    """The row with every n' > ``top`` as "full", and the mean of the requests beyond top + 1."""
    folded: Row = {}
    excess = 0.0
    for key, probability in row.items():
        target: tuple[int, int] | str = key
        if isinstance(key, tuple) and key[0] > top:
            target = "full"
            excess += probability * (key[0] - top - 1)
        folded[target] = folded.get(target, 0.0) + probability
    return folded, excess
