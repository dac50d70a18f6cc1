"""Most requests in time on tiny instances, by trying all schedules; all ways to form batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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


@dataclass(frozen=True)
class Machine:
    """A worker with places for models: when it is free, when it may load, and what it holds."""

    free_ms: float
    loads_ms: float
    ready_ms: dict[int, float]
    """Models held, and since when."""
    used_ms: dict[int, float]
    """When they were last used."""


def most_with_loads(
    requests: Sequence[Request], batch_ms: Sequence[Sequence[float]], load_ms: Sequence[float],
    machines: Sequence[Sequence[int]], places: int, *, blocking: bool,
) -> int:
    """The optimum where a worker holds so many models, and loads those that it lacks.

    Parameters
    ----------
    batch_ms
        ``batch_ms[m][b - 1]``.
    machines
        The models that each holds at the start.
    """
    best = 0

    def go_on(left: tuple[int, ...], there: list[Machine], done: int) -> None:
        nonlocal best
        best = max(best, done)
        if done + len(left) <= best:
            return
        for w, one in enumerate(there):
            for members in _subsets(left):
                m = requests[members[0]][2]
                if (m not in one.ready_ms or len(members) > len(batch_ms[m])
                        or any(requests[i][2] != m for i in members)):
                    continue
                start = max(one.free_ms, one.ready_ms[m], *(requests[i][0] for i in members))
                end = start + batch_ms[m][len(members) - 1]
                if end <= min(requests[i][1] for i in members):
                    after = replace(one, free_ms=end, used_ms={**one.used_ms, m: end},
                                    loads_ms=end if blocking else one.loads_ms)
                    go_on(tuple(i for i in left if i not in members),
                          [*there[:w], after, *there[w + 1:]], done + len(members))
            for m in {requests[i][2] for i in left} - set(one.ready_ms):
                full = len(one.ready_ms) >= places
                for given_up in one.ready_ms if full else (None,):
                    if one.ready_ms.get(given_up, 0.0) > 0.0 and given_up not in one.used_ms:
                        continue  # its load was for nothing
                    after = _loaded(one, m, given_up, load_ms[m], blocking=blocking)
                    if after.ready_ms[m] < max(requests[i][1] for i in left):
                        go_on(left, [*there[:w], after, *there[w + 1:]], done)

    go_on(tuple(range(len(requests))),
          [Machine(0.0, 0.0, dict.fromkeys(held, 0.0), {}) for held in machines], 0)
    return best


def _loaded(
    one: Machine, model: int, given_up: int | None, load_ms: float, *, blocking: bool
) -> Machine:
    """After a load, which begins as soon as the model in its place is not needed any more."""
    begin = max(one.free_ms if blocking else 0.0, one.loads_ms,
                *(times.get(given_up, 0.0) for times in (one.used_ms, one.ready_ms)
                  if given_up is not None))
    ready = {m: at for m, at in one.ready_ms.items() if m != given_up}
    end = begin + load_ms
    return replace(one, free_ms=end if blocking else one.free_ms, loads_ms=end,
                   ready_ms={**ready, model: end},
                   used_ms={m: at for m, at in one.used_ms.items() if m != model})


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
