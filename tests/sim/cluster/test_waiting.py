"""Requests that wait, and their rates, against what is plainly so."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ramsis.sim.schedulers.loading.replanning import Demand
from ramsis.sim.schedulers.loading.waiting import WaitingRequests


@pytest.mark.parametrize("seed", range(20))
def test_the_next_request_is_the_first_that_can_be_in_time(seed: int) -> None:
    """Against a search through all requests that wait."""
    rng = random.Random(seed)
    workers, models, count = 3, 4, 200
    each_ms = [[rng.choice((5.0, 9.0)) for _ in range(models)] for _ in range(workers)]
    arrival_ms = [float(i) for i in range(count)]
    deadline_ms = [at + rng.choice((12.0, 30.0, 80.0)) for at in arrival_ms]
    waiting = WaitingRequests(deadline_ms, arrival_ms, each_ms, models)
    held: list[set[int]] = [set() for _ in range(workers)]
    plain: list[list[int]] = [[] for _ in range(models)]
    late: list[list[int]] = [[] for _ in range(models)]

    def expected(worker: int, now_ms: float) -> tuple[int, int] | None:
        for m in held[worker]:
            for one in sorted(plain[m], key=lambda r: (deadline_ms[r], r)):
                if deadline_ms[one] - each_ms[worker][m] < now_ms:
                    plain[m].remove(one)
                    late[m].append(one)
        first = [(deadline_ms[r] - each_ms[worker][m], m, deadline_ms[r], r)
                 for m in held[worker] for r in plain[m]]
        if first:
            _, m, _, r = min(first)
            plain[m].remove(r)
            return m, r
        waits = [(arrival_ms[late[m][0]], m) for m in held[worker] if late[m]]
        return (min(waits)[1], late[min(waits)[1]].pop(0)) if waits else None

    taken = 0
    for request in range(count):
        model = rng.randrange(models)
        waiting.add(model, request)
        plain[model].append(request)
        worker, other = rng.randrange(workers), rng.randrange(models)
        if rng.random() < 0.3:
            if other in held[worker]:
                waiting.give_up(worker, other)
                held[worker].remove(other)
            else:
                waiting.hold(worker, other)
                held[worker].add(other)
        if rng.random() < 0.7:
            worker = rng.randrange(workers)
            found = waiting.take(worker, arrival_ms[request])
            assert found == expected(worker, arrival_ms[request])
            taken += found is not None
        assert [waiting.count(m) for m in range(models)] == [
            len(plain[m]) + len(late[m]) for m in range(models)]
    assert taken > 40


def test_rates_are_those_of_all_arrivals_that_were_seen() -> None:
    """However often the room for them was too small."""
    rng = np.random.default_rng(1)
    demand = Demand(3)
    seen: list[list[float]] = [[], [], []]
    at_ms = 0.0
    for i in range(6000):
        at_ms += float(rng.exponential(0.5 if 2000 < i < 3000 else 12.0))
        model = int(rng.choice(3, p=(0.9, 0.09, 0.01)))
        demand.seen(model, at_ms)
        seen[model].append(at_ms)
        if i % 37 == 0:
            rates = demand.rates(at_ms)
            for m, times in enumerate(seen):
                long_ms = min(30_000.0, max(at_ms, 1000.0))
                wanted = sum(one >= at_ms - long_ms for one in times) / long_ms
                for window_ms in (500.0, 1000.0, 3000.0):
                    n = sum(one >= at_ms - window_ms for one in times)
                    wanted = max(wanted, (n - 1.5 * math.sqrt(n)) / window_ms)
                assert rates[m] == wanted == demand.per_ms(m, at_ms)


def test_the_worker_that_others_need_least_is_free_and_holds_the_model() -> None:
    demand = Demand(3)
    for at_ms in np.arange(0.0, 1000.0, 10.0).tolist():
        demand.seen(1, at_ms)
        if at_ms % 50 == 0:
            demand.seen(2, at_ms)
    loaded = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 1]], dtype=bool)
    free = np.array([1, 1, 1, 1], dtype=bool)
    assert demand.least_missed(0, free, loaded, 1000.0) == 1
    free[1] = False
    assert demand.least_missed(0, free, loaded, 1000.0) == 2
    free[2] = False
    assert demand.least_missed(0, free, loaded, 1000.0) == 0
