"""Brute force of the fluid bound: every vertex of the program, one by one.

With two constraints (worker time, queries) a vertex uses at most two columns (m, b): none; one,
up to the tighter constraint; or two, with both constraints tight.
"""

from __future__ import annotations

from itertools import combinations


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
