"""Stations in one run: each does what it would do alone on the requests that are routed to it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.cluster.slo_class import SloClass
from ramsis.sim.compiled import Given
from ramsis.sim.engine import Engine, Scheme, SchemeError, StationEngine
from ramsis.sim.fleet import Fleet
from ramsis.sim.metrics import measure
from ramsis.sim.routed import Routed, RoutedPlan, StationPlan, StationStart, replay_routed
from ramsis.sim.run import Run
from ramsis.sim.schemes import Greedy
from ramsis.sim.schemes.central import CentralQueue
from tests.sim.samples import Anything, fleet, lattice_arrivals


def whole_queue(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int]:
    return (0 if slack_ms < 12.0 else 1), min(queued, 2)


def central(engine: StationEngine) -> Scheme:
    return CentralQueue(engine, whole_queue)


FAST = fleet([[3.0, 4.0], [7.0, 9.0]], workers=2, slo_ms=20.0)
SLOW = fleet([[8.0, 10.0], [15.0, 18.0]], workers=3, slo_ms=20.0)


def routed(arrivals: NDArray[np.float64], stations: NDArray[np.int64], fleets: list[Fleet]) -> Run:
    def start(engine: Engine) -> Scheme:
        share = 1.0 / len(fleets)
        return Routed(engine, [StationStart(central, share)] * len(fleets),
                      lambda query: int(stations[query]))

    return Engine(fleets, arrivals, 1e4, np.random.default_rng(0), 100.0).run(start)


@given(lattice_arrivals(), st.integers(0, 2**20))
def test_each_station_does_what_it_does_alone(arrivals: NDArray[np.float64], seed: int) -> None:
    stations = np.random.default_rng(seed).integers(0, 2, len(arrivals))
    together = routed(arrivals, stations, [FAST, SLOW])
    first_worker, first_model = 0, 0
    for i, own in enumerate((FAST, SLOW)):
        mine = np.flatnonzero(stations == i)
        alone = Engine((own,), arrivals[mine], 1e4, np.random.default_rng(0), 100.0).run(central)
        np.testing.assert_array_equal(together.answered_ms[mine], alone.answered_ms)
        np.testing.assert_array_equal(together.model_of[mine], np.where(
            alone.model_of >= 0, alone.model_of + first_model, -1))
        np.testing.assert_array_equal(together.worker[together.batch_of[mine]],
                                      alone.worker[alone.batch_of] + first_worker)
        first_worker, first_model = first_worker + own.workers, first_model + len(own.models)


def test_one_station_is_the_engine_itself() -> None:
    arrivals = np.cumsum(np.random.default_rng(3).exponential(4.0, 500))
    one = routed(arrivals, np.zeros(500, dtype=np.int64), [FAST])
    bare = Engine((FAST,), arrivals, 1e4, np.random.default_rng(0), 100.0).run(central)
    for name in ("batch_of", "start_ms", "finish_ms", "worker", "model", "size"):
        np.testing.assert_array_equal(getattr(one, name), getattr(bare, name))


def test_figures_count_all_stations() -> None:
    arrivals = np.arange(0.0, 400.0, 5.0)
    run = routed(arrivals, np.arange(len(arrivals)) % 2, [FAST, SLOW])
    assert run.workers == 5
    assert run.models == (*FAST.models, *SLOW.models)
    found = measure(run)
    assert found.queries == len(arrivals)
    assert set(found.model_share) <= set(FAST.models)  # models of one name are one
    assert sum(found.model_share.values()) == pytest.approx(1.0)
    busy = (run.finish_ms - run.start_ms).sum()
    assert found.utilisation == pytest.approx(busy / (1e4 * 5))


def test_a_station_sees_its_part_of_the_load_and_of_the_workers() -> None:
    seen: list[tuple[float, int, int]] = []

    class Looks(Scheme):
        def on_arrival(self, query: int) -> None:
            seen.append((self.engine.load_qps(), len(self.engine.idle), sum(self.engine.idle)))
            self.engine.dispatch(0, [query], 0)

    def start(engine: Engine) -> Scheme:
        return Routed(engine, [StationStart(Looks, 0.25), StationStart(Looks, 0.75)],
                      lambda query: query)

    Engine([FAST, SLOW], np.array([0.0, 1.0]), 10.0, np.random.default_rng(0), 100.0).run(start)
    assert seen == [(25.0, 2, 2), (75.0, 3, 3)]


def test_a_station_cannot_use_a_worker_of_another() -> None:
    class Greedy(Scheme):
        def on_arrival(self, query: int) -> None:
            self.engine.dispatch(2, [query], 0)

    def start(engine: Engine) -> Scheme:
        return Routed(engine, [StationStart(Greedy, 1.0), StationStart(Greedy, 0.0)],
                      lambda query: 0)

    with pytest.raises(SchemeError, match="dispatch to a worker that is not idle"):
        Engine([FAST, SLOW], np.array([0.0]), 10.0, np.random.default_rng(0), 100.0).run(start)


@given(lattice_arrivals(), st.integers(0, 2**20))
def test_every_request_is_accounted_for(arrivals: NDArray[np.float64], seed: int) -> None:
    rng = np.random.default_rng(seed)
    stations = rng.integers(0, 2, len(arrivals))

    def start(engine: Engine) -> Scheme:
        return Routed(engine, [StationStart(partial(Anything, seed=seed), 0.5),
                               StationStart(partial(Anything, seed=seed + 1), 0.5)],
                      lambda query: int(stations[query]))

    run = Engine([FAST, SLOW], arrivals, 1e4, np.random.default_rng(0), 100.0).run(start)
    assert int(run.size.sum()) == int(run.answered.sum())
    assert int((run.batch_of == -2).sum()) == len(run.drop_query)
    for worker in range(run.workers):
        own = np.flatnonzero(run.worker == worker)
        order = own[np.argsort(run.start_ms[own])]
        assert (run.start_ms[order][1:] >= run.finish_ms[order][:-1]).all()


@pytest.mark.parametrize("service_draws", [False, True])
def test_kernels_of_stations_do_what_the_plain_engine_does(service_draws: bool) -> None:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1.5, 3000))
    fleets = [drawn(one) if service_draws else one for one in (FAST, SLOW)]
    plan = RoutedPlan("greedy", tuple(
        StationPlan(one, Greedy().prepare(one), {20.0: share})
        for one, share in zip(fleets, (0.6, 0.4), strict=True)), (SloClass(20.0),))
    slos = np.full(3000, 20.0)
    routes = plan.routes(slos, rng.random(3000))
    assert np.bincount(routes)[0] == pytest.approx(1800, abs=150)
    plain = Engine(fleets, arrivals, 1e4, np.random.default_rng(7), 600.0,
                   query_slo_ms=slos).run(plan.start(routes))
    given = Given.drawn(arrivals, 1e4, np.random.default_rng(7), slos)
    fast = replay_routed(plan, given, routes, 600.0)
    assert fast is not None
    for name in ("answered_ms", "served_ms", "model_of", "in_time", "reward"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))
    np.testing.assert_array_equal(fast.worker[fast.batch_of[fast.answered]],
                                  plain.worker[plain.batch_of[plain.answered]])


def drawn(one: Fleet) -> Fleet:
    """The same workers with service times that vary by a fifth."""
    spread = np.linspace(0.8, 1.2, 11)
    return replace(one, quantiles_ms=one.quantiles_ms * spread, service="distribution")


def test_classes_go_where_their_shares_say() -> None:
    plan = RoutedPlan("two", tuple(
        StationPlan(one, Greedy().prepare(one), share)
        for one, share in ((FAST, {10.0: 1.0, 20.0: 0.25}), (SLOW, {20.0: 0.75}))),
        (SloClass(10.0, 0.5), SloClass(20.0, 0.5)))
    slos = np.tile([10.0, 20.0], 20_000)
    routes = plan.routes(slos, np.random.default_rng(0).random(40_000))
    assert not routes[slos == 10.0].any()
    assert routes[slos == 20.0].mean() == pytest.approx(0.75, abs=0.01)
    assert [plan.load_share(one) for one in plan.stations] == pytest.approx([0.625, 0.375])
