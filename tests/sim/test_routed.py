"""Stations in one run: each does what it would do alone on the requests that are routed to it."""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.policy import Level, PolicySet
from ramsis.runtime.policy_set import Station
from ramsis.sim import (
    ClosedLoop,
    ConstantLoad,
    Fixed,
    Fleets,
    JellyfishPlus,
    Policies,
    RateTrace,
    SimulationSettings,
    simulate,
)
from ramsis.sim.compiled import routes
from ramsis.sim.engine import Engine, Scheduler, SchedulerError, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.metrics import measure
from ramsis.sim.plan import Plan, StationPlan
from ramsis.sim.routed import Routed
from ramsis.sim.run import Run
from ramsis.sim.schedulers import Greedy
from ramsis.sim.schedulers.central import EarliestDeadlineFirst
from ramsis.synthesis.generate import modelled_policy
from tests.sim.samples import Anything, fleet, lattice_arrivals, same, tiny
from tests.sim.samples import run as run_engine
from tests.synthesis.samples import linear_profile, settings


def whole_queue(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int]:
    return (0 if slack_ms < 12.0 else 1), min(queued, 2)


def central(engine: WorkerGroup) -> Scheduler:
    return EarliestDeadlineFirst(engine, whole_queue)


FAST = fleet([[3.0, 4.0], [7.0, 9.0]], workers=2, slo_ms=20.0)
SLOW = fleet([[8.0, 10.0], [15.0, 18.0]], workers=3, slo_ms=20.0)


def routed(
    arrivals: Sequence[float] | NDArray[np.float64], route: Callable[[int], int],
    *starts: tuple[Callable[[WorkerGroup], Scheduler], float],
) -> Run:
    """A station on each fleet, with its scheduler and share of the load."""
    def start(engine: Engine) -> Scheduler:
        workers = range(2), range(2, 5)
        return Routed(engine, [
            StationPlan(i, own, workers[i], Plan(str(i), begin), share)
            for i, (own, (begin, share)) in enumerate(
                zip((FAST, SLOW), starts or [(central, 0.5)] * 2, strict=True))], route)

    return Engine.of_fleets([FAST, SLOW], FAST.requests(np.array(arrivals, dtype=float)), 1e4,
                            np.random.default_rng(0), 100.0).serve(start)


@given(lattice_arrivals(), st.integers(0, 2**20))
def test_each_station_does_what_it_does_alone(arrivals, seed):
    stations = np.random.default_rng(seed).integers(0, 2, len(arrivals))
    together = routed(arrivals, lambda query: int(stations[query]))
    first_worker, first_model = 0, 0
    for i, own in enumerate((FAST, SLOW)):
        mine = np.flatnonzero(stations == i)
        alone = run_engine(own, central, arrivals[mine], 1e4, 100.0)
        np.testing.assert_array_equal(together.answered_ms[mine], alone.answered_ms)
        np.testing.assert_array_equal(together.model_of[mine], np.where(
            alone.model_of >= 0, alone.model_of + first_model, -1))
        np.testing.assert_array_equal(together.worker[together.batch_of[mine]],
                                      alone.worker[alone.batch_of] + first_worker)
        first_worker, first_model = first_worker + own.workers, first_model + len(own.models)


def test_figures_count_all_stations():
    arrivals = np.arange(0.0, 400.0, 5.0)
    run = routed(arrivals, lambda query: query % 2)
    assert run.workers == 5
    assert run.models == (*FAST.models, *SLOW.models)
    found = measure(run)
    assert found.queries == len(arrivals)
    assert set(found.model_share) <= set(FAST.models)  # models of one name are one
    assert sum(found.model_share.values()) == pytest.approx(1.0)
    busy = (run.finish_ms - run.start_ms).sum()
    assert found.utilisation == pytest.approx(busy / (1e4 * 5))


def test_a_station_sees_its_part_of_the_load_and_of_the_workers():
    seen: list[tuple[float, int, int]] = []

    class Looks(Scheduler):
        def on_arrival(self, query: int) -> None:
            seen.append((self.engine.load_qps(), self.engine.fleet.workers,
                         len(self.engine.idle_workers())))
            self.engine.run(0, 0, [query])

    routed([0.0, 1.0], lambda query: query, (Looks, 0.25), (Looks, 0.75))
    assert seen == [(25.0, 2, 2), (75.0, 3, 3)]


def test_a_station_cannot_use_a_worker_of_another():
    class Greedy(Scheduler):
        def on_arrival(self, query: int) -> None:
            self.engine.run(2, 0, [query])

    with pytest.raises(SchedulerError, match="a batch on a worker that cannot start one"):
        routed([0.0], lambda query: 0, (Greedy, 1.0), (Greedy, 0.0))


@given(lattice_arrivals(), st.integers(0, 2**20))
def test_every_request_is_accounted_for(arrivals, seed):
    station = np.random.default_rng(seed).integers(0, 2, len(arrivals))
    run = routed(arrivals, lambda query: int(station[query]),
                 *((partial(Anything, seed=seed + i), 0.5) for i in range(2)))
    assert int(run.size.sum()) == int(run.answered.sum())
    assert int((run.batch_of == -2).sum()) == len(run.drop_request)
    for worker in range(run.workers):
        own = np.flatnonzero(run.worker == worker)
        order = own[np.argsort(run.start_ms[own])]
        assert (run.start_ms[order][1:] >= run.finish_ms[order][:-1]).all()


def two_types() -> Cluster:
    """A slow and a fast type, with workers for some 1000 queries per second."""
    fast = linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0), (0.92, 12.0, 9.0))
    return Cluster((WorkerType("old", tiny(), 4), WorkerType("new", fast, 6)), (SloClass(100.0),))


@pytest.mark.parametrize("service", ["p95", "distribution"])
@pytest.mark.parametrize("spec", [Greedy(), JellyfishPlus()])
def test_kernels_of_stations_do_what_the_plain_engine_does(service, spec):
    load = ConstantLoad(800.0, 3000.0)
    (fast,), (plain,) = (
        simulate(two_types(), spec, load, SimulationSettings(service=service, engine=engine,
                                                             seeds=[7]), keep_runs=True).runs
        for engine in ("compiled", "plain"))
    same(fast, plain)
    of_new = fast.worker[fast.batch_of[fast.answered]] >= 4
    assert 0.5 < of_new.mean() < 0.95


def test_requests_go_to_types_by_their_capacity():
    cluster = two_types()
    plan = Greedy().on_cluster(Fleets.of(cluster))
    capacity = [Fleet.of(one.profile, workers=one.count or 0, slo_ms=100.0).capacity_qps
                for one in cluster.worker_types]
    shares = [station.share[100.0] for station in plan.levels.levels[0].stations]
    assert shares == pytest.approx([own / sum(capacity) for own in capacity])
    uniform = np.random.default_rng(0).random(20_000)
    level = plan.levels.levels[0]
    found = routes(level, plan.fleets, None, uniform)
    assert found.mean() == pytest.approx(shares[1], abs=0.01)
    assert found.tolist() == [level.route(100.0, u).policy.number for u in uniform]


def test_types_that_run_alike_are_one_fleet():
    profile = tiny()
    one = Cluster.of(profile, workers=5, slo_ms=100.0)
    two = Cluster((WorkerType("a", profile, 2), WorkerType("b", profile, 3)), (SloClass(100.0),))
    runs = [simulate(own, Greedy(), ConstantLoad(300.0, 2000.0), keep_runs=True).runs[0]
            for own in (one, two)]
    same(*runs)


def policy_set(cluster: Cluster, loads: tuple[float, ...]) -> Policies:
    """Policies of both types: at odd levels one station of each, at even ones two of a type."""
    old, new = cluster.worker_types
    levels = []
    for place, load in enumerate(loads):
        parts = ((old, (2, 2)), (new, (6,))) if place % 2 else ((old, (4,)), (new, (6,)))
        stations = []
        for one, counts in parts:
            for number, workers in enumerate(counts):
                share = 0.4 / len(counts) if one is old else 0.6
                policy = modelled_policy(one.profile, share * load, settings(workers=workers))
                stations.append(Station(f"{one.name}-{number}", (one.name,), workers,
                                        share * load, {100.0: share}, policy))
        levels.append(Level(load, "poisson", tuple(stations), {}))
    return Policies(PolicySet(levels, {"old": 4, "new": 6}, {100.0: 1.0}))


@pytest.fixture(scope="module")
def policies():
    return policy_set(two_types(), (200.0, 500.0, 900.0))


@pytest.mark.parametrize("load_qps", [200.0, 450.0, 900.0])
def test_kernels_of_policies_do_what_the_plain_engine_does(policies, load_qps):
    (fast,), (plain,) = (
        simulate(two_types(), policies, ConstantLoad(load_qps, 3000.0),
                 SimulationSettings(engine=engine), keep_runs=True).runs
        for engine in ("compiled", "plain"))
    same(fast, plain)
    assert fast.answered.all()


def test_stations_change_with_the_anticipated_load(policies):
    """From one level to another, workers are divided anew, and no request is lost."""
    trace = RateTrace(np.array([0.0, 2000.0, 4000.0]), np.array([150.0, 450.0, 850.0]), 6000.0)
    (run,) = simulate(two_types(), policies, trace, keep_runs=True).runs
    assert int(run.size.sum()) == int(run.answered.sum())
    assert run.answered.sum() + len(run.drop_request) == run.requests
    assert set(run.worker.tolist()) == set(range(10))
    for worker in range(run.workers):
        own = np.flatnonzero(run.worker == worker)
        order = own[np.argsort(run.start_ms[own])]
        assert (run.start_ms[order][1:] >= run.finish_ms[order][:-1]).all()
    assert measure(run).violation_rate < 0.05


def test_a_load_that_is_anticipated_and_constant_is_served_by_its_level():
    """With one level it does not matter that the monitor is asked."""
    cluster = two_types()
    own = policy_set(cluster, (500.0,))
    (told,), (monitored,) = (
        simulate(cluster, own, ConstantLoad(450.0, 2000.0), SimulationSettings(monitor=monitor),
                 keep_runs=True).runs for monitor in (False, True))
    same(told, monitored)


def test_a_set_for_other_workers_is_refused(policies):
    cluster = two_types()
    other = Cluster(cluster.worker_types[::-1][:1], cluster.classes)
    for own in (other, Cluster.of(tiny(), workers=10, slo_ms=100.0)):
        with pytest.raises(InputFileError, match="made for other worker types") as raised:
            simulate(own, policies, ConstantLoad(100.0, 100.0))
    assert str(raised.value).endswith("allowed: 10")  # of workers alike the number alone
    with pytest.raises(InputFileError, match="made for other SLO classes"):
        simulate(Cluster(cluster.worker_types, (SloClass(90.0),)), policies,
                 ConstantLoad(100.0, 100.0))


def test_two_classes_are_served_by_deadline():
    """One worker, batches of one: at each start the query with the earliest deadline goes."""
    cluster = Cluster((WorkerType("all", tiny(), 1),), (SloClass(60.0, 0.5), SloClass(300.0, 0.5)))
    (run,) = simulate(cluster, Fixed("small", 1), ConstantLoad(150.0, 4000.0), keep_runs=True).runs
    (fleet,) = Fleets.of(cluster).fleets
    small_ms = float(fleet.table.latency_ms[fleet.models.index("small"), 0])
    deadline = run.arrival_ms + run.slo_ms
    start = run.start_ms[run.batch_of]
    reference, free, waiting, done = 0, 0.0, list[tuple[float, int]](), {}
    order = list(enumerate(run.arrival_ms.tolist()))
    while order or waiting:
        if not waiting:
            free = max(free, order[0][1])
        while order and order[0][1] <= free:
            query, _ = order.pop(0)
            heappush(waiting, (float(deadline[query]), query))
        _, query = heappop(waiting)
        done[query] = free
        free += small_ms
        reference += 1
    np.testing.assert_allclose(start, [done[query] for query in range(run.requests)])


def test_types_under_deterministic_service_wait_as_in_theory():
    """Poisson arrivals split at random: each type is an M/D/1 queue of its own."""
    slow, fast = linear_profile((0.9, 1.0, 9.0)), linear_profile((0.9, 1.0, 4.0))
    cluster = Cluster((WorkerType("slow", slow, 1), WorkerType("fast", fast, 1)),
                      (SloClass(100.0),))
    spec = Fixed(Fleets.of(cluster).fleets[0].models[0], 1)
    plan = spec.on_cluster(Fleets.of(cluster))
    load = 120.0
    (run,) = simulate(cluster, spec, ConstantLoad(load, 600_000.0), keep_runs=True).runs
    wait = run.start_ms[run.batch_of] - run.arrival_ms
    for number, station in enumerate(plan.levels.levels[0].stations):
        service_ms = float(plan.fleets.fleets[number].table.latency_ms[0, 0])
        busy = load * station.share[100.0] * service_ms / 1000.0
        expected = busy * service_ms / (2.0 * (1.0 - busy))
        mine = run.worker[run.batch_of] == number
        assert wait[mine].mean() == pytest.approx(expected, rel=0.08)


@given(st.integers(0, 2**20), st.floats(20.0, 3000.0), st.booleans())
def test_every_request_of_a_cluster_is_accounted_for(seed, load_qps, monitor):
    cluster = Cluster(two_types().worker_types, (SloClass(60.0, 0.3), SloClass(100.0, 0.7)))
    (run,) = simulate(cluster, Greedy("drop"), ConstantLoad(load_qps, 300.0),
                      SimulationSettings(monitor=monitor, seeds=[seed]), keep_runs=True).runs
    assert int(run.size.sum()) == int(run.answered.sum())
    assert int(run.answered.sum()) + len(run.drop_request) == run.requests


def test_a_closed_loop_has_no_classes():
    cluster = Cluster(two_types().worker_types, (SloClass(60.0, 0.3), SloClass(100.0, 0.7)))
    with pytest.raises(InvalidValueError, match="closed loop has no SLO classes"):
        simulate(cluster, Greedy(), ClosedLoop(4, 10.0, 100.0))
    run = simulate(two_types(), Greedy(), ClosedLoop(8, 10.0, 500.0)).metrics[0]
    assert run.queries == run.in_time + run.late
