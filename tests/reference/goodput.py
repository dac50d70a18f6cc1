"""Most requests in time on tiny instances, by trying all schedules; all ways to form batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

__all__ = ["best_batches", "most_in_time"]

Request = tuple[float, float, int]
"""Release, deadline, model."""


def most_in_time(
    requests: Sequence[Request], batch_ms: Sequence[Sequence[Sequence[float]]],
    workers: Sequence[int],
) -> int:
    """The optimum: batches start one after the other, on any worker, as early as they can.

    Some optimal schedule is made that way, in the order of its starts.

    Parameters
    ----------
    batch_ms
        ``batch_ms[t][m][b - 1]``.
    workers
        The type of each worker.
    """
    best = 0

    def go_on(left: tuple[int, ...], free: list[float], done: int) -> None:
        nonlocal best
        best = max(best, done)
        if done + len(left) <= best:
            return
        for members in _subsets(left):
            models = {requests[i][2] for i in members}
            if len(models) > 1:
                continue
            m = models.pop()
            release = max(requests[i][0] for i in members)
            deadline = min(requests[i][1] for i in members)
            for w, t in enumerate(workers):
                if len(members) > len(batch_ms[t][m]):
                    continue
                end = max(release, free[w]) + batch_ms[t][m][len(members) - 1]
                if end <= deadline:
                    go_on(tuple(i for i in left if i not in members),
                          [*free[:w], end, *free[w + 1:]], done + len(members))

    go_on(tuple(range(len(requests))), [0.0] * len(workers), 0)
    return best


def _subsets(left: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(left), 0, -1):
        yield from combinations(left, size)


def best_batches(
    requests: Sequence[Request], cost: list[list[list[float]]], largest: int
) -> float:
    """Largest Σ (size − cost) over all sets of disjoint batches of one model's requests.

    ``cost[first][last][size - 1]`` is infinite where a batch does not fit.
    """
    def best(left: tuple[int, ...]) -> float:
        if not left:
            return 0.0
        first, rest = left[0], left[1:]
        top = best(rest)
        for more in range(min(largest, len(left))):
            for others in combinations(rest, more):
                last = others[-1] if others else first
                value = more + 1 - cost[first][last][more]
                if value > 0:
                    top = max(top, value + best(tuple(i for i in rest if i not in others)))
        return top

    return best(tuple(range(len(requests))))
