"""The compiled runs of requests with a size are those of a plain program, to the last digit."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ramsis.sized import _kernels as kernels
from ramsis.sized.problem import BatchTimes
from tests.reference import sized_queue as plain

MOST = 8


def _times(rng: np.random.Generator, padded: bool) -> BatchTimes:
    """Times that rise with count and size by random steps, for sizes up to 40."""
    columns, step = (42, 1) if padded else (MOST * 40 // 7 + 2, 7)
    rises = rng.exponential(1.0, (1, MOST, columns))
    time_ms = 3.0 + np.cumsum(np.cumsum(rises, axis=1), axis=2) * (0.1 if padded else 0.05)
    return BatchTimes(padded, step, time_ms)


def _time_ms(times: BatchTimes) -> Callable[[int, int], float]:
    def time_ms(count: int, x: int) -> float:
        if count > MOST:
            return math.inf
        row = times.time_ms[0, count - 1]
        if x % times.step == 0:
            return float(row[x // times.step])
        low, high = row[x // times.step], row[x // times.step + 1]
        return float(low + (high - low) * (x % times.step / times.step))
    return time_ms


def _arrivals(rng: np.random.Generator, n: int, gap_ms: float) -> np.ndarray:
    """Single requests and bursts, one in four of which come together."""
    arrival_ms = np.cumsum(rng.exponential(gap_ms, n))
    return np.sort(np.where(rng.random(n) < 0.25, np.ceil(arrival_ms / 40) * 40, arrival_ms))


RULES: dict[str, tuple[Callable[..., None], tuple[Any, ...], plain.Rule]] = {
    "limit": (kernels.first_come, (MOST, 10**9, False, 0.0), plain.first_come(MOST, 1e9)),
    "budget": (kernels.first_come, (MOST, 60, False, 0.0), plain.first_come(MOST, 60)),
    "budget, dropping": (kernels.first_come, (5, 60, True, 0.0),
                         plain.first_come(5, 60, drop=True)),
    "delay": (kernels.first_come, (4, 80, False, 9.0), plain.first_come(4, 80, wait_ms=9.0)),
    "delay, dropping": (kernels.first_come, (4, 80, True, 30.0),
                        plain.first_come(4, 80, drop=True, wait_ms=30.0)),
    "shortest": (kernels.shortest_first, (6, 60), plain.first_come(
        6, 60, drop=True, by_size=True)),
    "window": (kernels.sorted_window, (4, 3), plain.sorted_window(4, 3)),
    "window of one": (kernels.sorted_window, (6, 1), plain.sorted_window(6, 1)),
    "plan": (kernels.planned, (MOST, False), plain.planned(MOST, drop=False)),
    "plan, dropping": (kernels.planned, (5, True), plain.planned(5, drop=True)),
    "urgent": (kernels.replanned, (MOST, kernels.URGENT, 0.9),
               plain.replanned(MOST, order="urgent", keep=0.9)),
    "dense": (kernels.replanned, (6, kernels.DENSE, 0.5),
              plain.replanned(6, order="dense", keep=0.5)),
    "any": (kernels.replanned, (MOST, kernels.URGENT, 0.0),
            plain.replanned(MOST, order="urgent", keep=0.0)),
}


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_runs_agree(rule, padded):
    kernel, parameters, plainly = RULES[rule]
    for seed, (workers, gap_ms, slower, inside) in enumerate((
            (1, 9.0, 1.0, 0), (1, 2.0, 1.0, 12), (3, 2.0, 1.25, 0), (2, 1.0, 1.0, 0))):
        rng = np.random.default_rng(seed)
        times, n = _times(rng, padded), 120
        arrival_ms, size = _arrivals(rng, n, gap_ms), rng.integers(1, 41, n)
        room = kernels.room_for(n, workers)
        kernel(kernels.Stream(arrival_ms, size), times,
               kernels.Terms(45.0, workers, slower, inside), room, 0, *parameters)
        played = plain.play(
            plain.Queue(arrival_ms.tolist(), size.tolist(), 45.0, padded, _time_ms(times)),
            plainly, workers=workers, slower=slower, most_inside=inside or math.inf)
        assert _batches(room) == played.batches
        dropped = np.flatnonzero(room.batch_of == kernels.DROPPED)
        assert {(int(r), float(room.drop_ms[r])) for r in dropped} == set(played.dropped)
        assert (room.batch_of != kernels.WAITS).all()
        assert len(played.dropped) == len(dropped)


def _batches(room: kernels.Room) -> list[tuple[int, float, float, tuple[int, ...]]]:
    """Batches as the plain program records them; both lists of members agree."""
    result = []
    for batch in range(room.at[kernels.BATCHES]):
        upto = room.upto[batch]
        members = tuple(room.member[upto - room.requests[batch]:upto].tolist())
        assert all(room.batch_of[request] == batch for request in members)
        result.append((int(room.worker[batch]), float(room.start_ms[batch]),
                       float(room.finish_ms[batch]), members))
    return result
