"""Fixed batches in turn: queueing theory, the capacity of a cycle, and what is dropped."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.sim.engine import Engine, Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import Run
from ramsis.sim.schedulers.duty_cycle import DutyCycle
from ramsis.synthesis.placement.streams import (
    QueryStream,
    RoutedRequests,
    StreamStation,
    Target,
    figures,
    requests_of,
    run_streams,
)
from tests.sim.samples import fleet, lattice_arrivals


def starts(batches: list[int], *, drop: bool = False) -> Callable[..., Scheduler]:
    def start(engine: WorkerGroup, use_of: Callable[[int], int]) -> Scheduler:
        return DutyCycle(engine, batches, use_of, drop=drop)

    return start


def served(
    one: Fleet, batches: list[int], arrivals: NDArray[np.float64], uses: NDArray[np.int64], *,
    drop: bool = False,
) -> Run:
    start = starts(batches, drop=drop)
    until_ms = float(arrivals[-1]) + 1.0 if len(arrivals) else 1.0
    engine = Engine.of_fleets((one,), one.requests(arrivals), until_ms, np.random.default_rng(0),
                              1.0)
    return engine.serve(lambda whole: start(whole, uses.tolist().__getitem__))


def test_a_batch_of_one_on_one_worker_waits_as_in_the_m_d_1_queue():
    service_ms, busy = 10.0, 0.8
    stream = QueryStream(1000.0 * busy / service_ms, 1e9, (Target(0, 0, 1.0),))
    requests = requests_of([stream], 1e6, 1)
    run = run_streams([StreamStation(fleet([[service_ms]]), starts([1]))], requests, 1e6)
    waited = float((run.answered_ms - run.arrival_ms).mean()) - service_ms
    assert waited == pytest.approx(busy * service_ms / (2 * (1 - busy)), rel=0.05)


def test_a_full_duty_cycle_answers_a_batch_of_each_use_in_the_sum_of_their_times():
    both = fleet([[4.0, 5.0, 6.0, 7.0], [10.0, 12.0, 12.0, 12.0]], workers=3, slo_ms=1e9)
    n = 30_000
    run = served(both, [4, 2], np.zeros(n), np.arange(n) % 2)
    cycle_ms = 7.0 + 12.0
    since_ms = 10 * cycle_ms + 0.5
    done = (run.answered_ms > since_ms) & (run.answered_ms <= since_ms + 1000 * cycle_ms)
    uses = np.arange(n) % 2
    assert (done & (uses == 0)).sum() == 3 * 4 * 1000
    assert (done & (uses == 1)).sum() == 3 * 2 * 1000


def test_an_empty_queue_is_passed_over_and_the_next_has_its_turn():
    both = fleet([[5.0, 5.0], [7.0, 7.0]], slo_ms=1e9)
    run = served(both, [2, 2], np.array([0.0, 1.0, 1.0, 1.0, 2.0]), np.array([0, 0, 0, 0, 1]))
    order = np.argsort(run.start_ms)
    assert run.model[order].tolist() == [0, 1, 0, 0]
    assert run.start_ms[order].tolist() == [0.0, 5.0, 12.0, 17.0]


@given(lattice_arrivals(), st.integers(0, 9), st.integers(1, 3), st.booleans())
def test_every_request_ends_once_and_what_is_dropped_would_be_late(arrivals, seed, workers, drop):
    both = fleet([[3.0, 4.0, 9.0], [6.0, 7.0, 7.0]], workers=workers, slo_ms=20.0)
    uses = np.random.default_rng(seed).integers(2, size=len(arrivals))
    run = served(both, [3, 2], arrivals, uses, drop=drop)
    ends = figures(run, np.ones(run.requests, dtype=bool))
    assert ends.never_answered == 0
    assert ends.in_time + ends.late + ends.dropped == ends.queries == len(arrivals)
    if drop:
        assert ends.late == 0
        slack = arrivals[run.drop_request] + 20.0 - run.drop_ms
        assert (slack < 9.0).all()  # the longest batch
    else:
        assert ends.dropped == 0
    for use in (0, 1):  # first come, first served
        answered = run.answered_ms[(uses == use) & run.answered]
        assert workers > 1 or (np.diff(answered) >= 0).all()


def test_streams_are_poisson_and_split_by_shares():
    streams = [QueryStream(300.0, 50.0, (Target(0, 0, 0.5), Target(1, 0, 0.3))),
               QueryStream(100.0, 80.0, (Target(1, 1, 1.0),))]
    found = requests_of(streams, 1e6, 3)
    assert (np.diff(found.arrival_ms) >= 0).all()
    count = Counter(zip(found.stream.tolist(), found.station.tolist(), found.use.tolist(),
                        strict=True))
    expected = {(0, 0, 0): 150e3, (0, 1, 0): 90e3, (0, -1, 0): 60e3, (1, 1, 1): 100e3}
    for key, mean in expected.items():
        assert abs(count[key] - mean) < 5 * mean**0.5
    assert sum(count.values()) == len(found.arrival_ms)
    assert set(found.slo_ms[found.stream == 1]) == {80.0}
    gaps = np.diff(found.arrival_ms[found.station == 0])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert (found.sent.station >= 0).all()


def test_stations_do_side_by_side_what_each_does_alone():
    one, two = fleet([[3.0, 4.0]], workers=2, slo_ms=20.0), fleet([[5.0, 6.0], [7.0, 8.0]])
    streams = [QueryStream(500.0, 20.0, (Target(0, 0, 0.7), Target(1, 0, 0.3))),
               QueryStream(60.0, 30.0, (Target(1, 1, 0.9),))]
    stations = [StreamStation(one, starts([2])), StreamStation(two, starts([2, 1], drop=True))]
    requests = requests_of(streams, 2e4, 0).sent
    together = run_streams(stations, requests, 2e4)
    for i, station in enumerate(stations):
        mine = requests.station == i
        some = requests.only(mine)
        alone = run_streams([station], RoutedRequests(some.arrival_ms, some.slo_ms, some.stream,
                                                      np.zeros_like(some.station), some.use), 2e4)
        assert (alone.answered_ms == together.answered_ms[mine]).all()
        assert (alone.reward == together.reward[mine]).all()
        assert figures(alone, np.ones(alone.requests, dtype=bool), 3) == figures(together, mine, 3)
