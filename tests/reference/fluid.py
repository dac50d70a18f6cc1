"""Brute force of the fluid bound: every vertex of the program, one by one.

With two constraints (worker time, queries) a vertex uses at most two columns (m, b): none; one,
up to the tighter constraint; or two, with both constraints tight.

With gathering windows, the program with all of them at once, in rates per ms and with what is not
answered as an unknown of its own. The same way for several worker types and SLO classes.

And what a clairvoyant scheduler reaches with one worker, which serves given arrivals in order.
"""

import math
from itertools import combinations, product

from scipy.optimize import linprog
from scipy.stats import poisson


def best_mix(
    accuracy: list[float], latency_ms: list[list[float]], *, slo_ms: float, workers: int,
    load_qps: float,
) -> tuple[float, float]:
    """Effective accuracy of the best mix, and the greatest share of the queries that a best one
    serves."""
    columns = [
        (a, latency / b * load_qps / 1000.0 / workers)  # worth and worker time of serving all
        for a, row in zip(accuracy, latency_ms, strict=True)
        for b, latency in enumerate(row, start=1)
        if latency <= slo_ms
    ]
    vertices = [(0.0, 0.0)]
    for a, busy in columns:
        share = min(1.0, 1.0 / busy)
        vertices.append((a * share, share))
    for (a, busy), (other_a, other_busy) in combinations(columns, 2):
        if busy != other_busy:
            share = (1.0 - other_busy) / (busy - other_busy)
            if 0.0 <= share <= 1.0:
                vertices.append((a * share + other_a * (1.0 - share), 1.0))
    worth = max(vertex[0] for vertex in vertices)
    return worth, max(share for value, share in vertices if value >= worth - 1e-12)


def gathered(
    accuracy: list[float], latency_ms: list[list[float]], *, slo_ms: float, workers: int,
    load_qps: float, price: float,
) -> float:
    """The most effective accuracy − price × violation rate within all gathering windows."""
    load = load_qps / 1000.0
    ways = [(a, b, row[b - 1]) for a, row in zip(accuracy, latency_ms, strict=True)
            for b in range(1, len(row) + 1) if row[b - 1] <= slo_ms]
    rows, most = [[length for _, _, length in ways] + [0.0]], [float(workers)]
    windows = {slo_ms - length for _, _, length in ways}
    for width, size in product(windows, range(2, max(b for _, b, _ in ways) + 1)):
        fits = 1.0 - poisson.cdf(size - 2, load * width)
        rows.append([float(b) if b >= size and slo_ms - length <= width else 0.0
                     for _, b, length in ways] + [0.0])
        most.append(load * -math.expm1(size * math.log1p(-min(fits, 1.0 - 1e-16))))
    found = linprog([-a * b for a, b, _ in ways] + [price], A_ub=rows, b_ub=most,
                    A_eq=[[float(b) for _, b, _ in ways] + [1.0]], b_eq=[load], method="highs")
    assert found.success
    return -float(found.fun) / load


def of_types_and_classes(
    types: list[tuple[list[float], list[list[float]], int]], classes: list[tuple[float, float]],
    *, load_qps: float, price: float, most_late: float,
) -> float | None:
    """The same maximum for types (accuracies, latencies, workers) and classes (SLO, share).

    None where no more than a share ``most_late`` is never late.
    """
    load, late = load_qps / 1000.0, len(classes)
    ways = [(t, c, a, b, row[b - 1])
            for t, (accuracy, latency_ms, _) in enumerate(types)
            for c, (slo_ms, _) in enumerate(classes)
            for a, row in zip(accuracy, latency_ms, strict=True)
            for b in range(1, len(row) + 1) if row[b - 1] <= slo_ms]
    busy = [[length if t == own else 0.0 for t, _, _, _, length in ways] + [0.0] * late
            for own in range(len(types))]
    every = [[float(b) if c == own else 0.0 for _, c, _, b, _ in ways]
             + [float(c == own) for c in range(late)] for own in range(late)]
    found = linprog([-a * b for _, _, a, b, _ in ways] + [price] * late,
                    A_ub=[*busy, [0.0] * len(ways) + [1.0] * late],
                    b_ub=[*(float(workers) for _, _, workers in types), most_late * load],
                    A_eq=every, b_eq=[share * load for _, share in classes], method="highs")
    return -float(found.fun) / load if found.success else None


def clairvoyant(
    arrivals_ms: list[float], accuracy: list[float], latency_ms: list[list[float]], *,
    slo_ms: float, price: float,
) -> float:
    """The most that one worker can reach which knows all arrivals: a dynamic programme.

    Deadlines rise with the arrivals, so that batches of successive requests are enough. After each
    request there is a front of when the worker is idle and what it has earned.
    """
    count = len(arrivals_ms)
    fronts: list[list[tuple[float, float]]] = [[] for _ in range(count + 1)]
    fronts[0] = [(0.0, 0.0)]
    for i, first_ms in enumerate(arrivals_ms):
        best = -math.inf
        for idle_ms, earned in sorted(fronts[i], key=lambda one: (one[0], -one[1])):
            if earned <= best:
                continue
            best = earned
            fronts[i + 1].append((idle_ms, earned - price))
            for a, row in zip(accuracy, latency_ms, strict=True):
                for b, length in enumerate(row[: count - i], start=1):
                    end_ms = max(idle_ms, arrivals_ms[i + b - 1]) + length
                    if end_ms <= first_ms + slo_ms:
                        fronts[i + b].append((end_ms, earned + b * a))
    return max(earned for _, earned in fronts[count]) / count
