"""The dispatcher does what the simulator does, and loses no request whatever happens."""

import dataclasses
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.policy import PolicySet as PolicySetOf
from ramsis.runtime import DecisionTable, PolicySet, Selector, set_of_selectors
from ramsis.runtime.dispatcher import Dispatcher, DispatchSettings, Orders, Start, Ticket
from ramsis.runtime.fronts import AsyncFront, ThreadFront
from ramsis.runtime.policy_set import Level, Station
from ramsis.runtime.station_queues import StationQueues
from ramsis.sim import ConstantLoad, Fleet, Policies, RateTrace, Run
from ramsis.sim.experiment import SimulationSettings, simulate
from tests.clock import Clock
from tests.runs import run_plan
from tests.sim.samples import tiny, tiny_policy, with_table
from tests.slow import slow_after
from tests.synthesis.samples import settings

SLO_MS = 100.0


def rising(*rate_qps: float) -> RateTrace:
    """A second of each rate."""
    ends = 1000.0 * np.arange(len(rate_qps) + 1)
    return RateTrace(ends[:-1], rate_qps, end_ms=ends[-1])


def central(workers: int, load_qps: float, rng: np.random.Generator) -> Policy:
    """A central queue with a table drawn by chance: batches, waits and drops."""
    base, longest = tiny_policy(), 5
    actions = np.array([(m, b) for m in range(len(base.models)) for b in range(1, longest + 1)])
    queued = np.arange(1, longest + 1)[:, None]
    shape = (workers, longest, len(base.slack_ms))
    codes = (rng.integers(0, len(base.models), shape) * longest
             + rng.integers(0, np.broadcast_to(queued, shape)))
    draw = rng.random(shape)
    codes = np.where(draw < 0.3, -1, np.where(draw < 0.4, -2, codes))
    return dataclasses.replace(
        base, dispatch="central-queue", late="drop", batching="variable", workers=workers,
        load_qps=load_qps, idle_levels=np.arange(workers + 1),
        queue_levels=np.arange(longest + 1), actions=actions, codes=codes,
        longer_queue=int(rng.choice([-2, longest - 1])))


def selectors(policies: list[Policy]) -> PolicySet[Selector]:
    return set_of_selectors([Selector(policy.decision_table()) for policy in policies])


def driven(
    dispatcher: Dispatcher[int], run: Run, service_ms: Callable[[Start[int]], float],
) -> tuple[list[tuple[float, int, tuple[int, ...], str]], list[tuple[float, int]]]:
    """The batches that start and the queries that are dropped, on a run's arrivals.

    Events of one instant come in the simulator's order: ends of batches as they were started,
    arrivals, timers.
    """
    batches: list[tuple[float, int, tuple[int, ...], str]] = []
    drops: list[tuple[float, int]] = []
    running: list[tuple[float, int, int]] = []
    arrivals = run.arrival_ms.tolist()
    slos = np.broadcast_to(run.slo_ms, run.requests).tolist()
    coming = 0

    def obey(now: float, orders: Orders[int]) -> None:
        drops.extend((now, ticket.request) for ticket in orders.drops)
        for start in orders.starts:
            heappush(running, (now + service_ms(start), len(batches), start.worker))
            batches.append((now, start.worker, tuple(start.requests), start.model))

    while coming < len(arrivals) or running or dispatcher.wake_ms < inf:
        next_ms = arrivals[coming] if coming < len(arrivals) else inf
        ends_ms = running[0][0] if running else inf
        if dispatcher.wake_ms < min(next_ms, ends_ms):
            now = dispatcher.wake_ms
            obey(now, dispatcher.timer(now))
        elif ends_ms <= next_ms:
            now, _, worker = heappop(running)
            obey(now, dispatcher.finished(now, worker))
        else:
            slo_ms = slos[coming]
            obey(next_ms, dispatcher.arrive(next_ms, [coming], next_ms + slo_ms, slo_ms))
            coming += 1
    return batches, drops


def of_run(run: Run) -> tuple[set[Any], set[Any]]:
    """The same of a simulated run; queries of a batch in the order of their deadlines."""
    queries: dict[int, list[int]] = {}
    for query, batch in enumerate(run.batch_of.tolist()):
        if batch >= 0:
            queries.setdefault(batch, []).append(query)
    due = run.deadline_ms.tolist()
    batches = {(run.start_ms[b].item(), int(run.worker[b]),
                tuple(sorted(found, key=lambda q: (due[q], q))),
                run.models[run.model[b]]) for b, found in queries.items()}
    return batches, set(zip(run.drop_ms.tolist(), run.drop_request.tolist(), strict=True))


def assert_same(run: Run, found: tuple[list[Any], list[Any]]) -> None:
    batches, drops = of_run(run)
    assert batches  # something happened
    assert set(found[0]) == batches
    assert len(found[0]) == len(batches)
    assert set(found[1]) == drops


def table_latency(fleet: Fleet) -> Callable[[Start[int]], float]:
    index = {name: i for i, name in enumerate(fleet.models)}
    return lambda start: float(fleet.table.latency_ms[index[start.model], len(start.tickets) - 1])


@pytest.mark.parametrize("dispatch", ["round-robin", "shortest-queue"])
@pytest.mark.parametrize(("seed", "slowness"), [(0, 1.0), (1, 1.0), (2, 1.3)])
def test_per_worker_queues_start_the_simulators_batches(dispatch, seed, slowness):
    rng = np.random.default_rng(seed)
    base = tiny_policy()
    policies = [dataclasses.replace(with_table(base, load, rng, variable=True, drops=True),
                                    dispatch=dispatch) for load in (150.0, 300.0, 500.0)]
    fleet = Fleet.of(tiny(), workers=4, slo_ms=SLO_MS).slower(slowness, slowness)
    run = run_plan(fleet, Policies(policies).prepare(fleet),
                   rising(100.0, 600.0, 250.0), seed=seed,
                   monitored=True, engine="plain")
    dispatcher: Dispatcher[int] = Dispatcher(selectors(policies))
    dispatcher.take_slowness(float(run.arrival_ms[0]), slowness)
    assert_same(run, driven(dispatcher, run, table_latency(fleet)))


@pytest.mark.parametrize(("seed", "slowness"), [(0, 1.0), (1, 1.0), (2, 1.3)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_central_queue_starts_the_simulators_batches(workers, seed, slowness):
    rng = np.random.default_rng(seed)
    policies = [central(workers, load * workers, rng) for load in (50.0, 120.0, 200.0)]
    fleet = Fleet.of(tiny(), workers=workers, slo_ms=SLO_MS).slower(slowness, slowness)
    run = run_plan(fleet, Policies(policies).prepare(fleet),
                   rising(30.0 * workers, 220.0 * workers, 90.0 * workers), seed=seed,
                   monitored=True, engine="plain")
    dispatcher: Dispatcher[int] = Dispatcher(selectors(policies))
    dispatcher.take_slowness(float(run.arrival_ms[0]), slowness)
    assert_same(run, driven(dispatcher, run, table_latency(fleet)))


def test_a_known_load_needs_no_monitor():
    policies = [tiny_policy(load) for load in (100.0, 400.0)]
    fleet = Fleet.of(tiny(), workers=4, slo_ms=SLO_MS)
    run = run_plan(fleet, Policies(policies).prepare(fleet), ConstantLoad(90.0, 3000.0), seed=1,
                   engine="plain")
    dispatcher: Dispatcher[int] = Dispatcher(selectors(policies), DispatchSettings(load_qps=90.0))
    assert_same(run, driven(dispatcher, run, table_latency(fleet)))


def stations_policy(load_qps: float, workers: int, slo_ms: float) -> Policy:
    from ramsis.synthesis import generate_policy

    return generate_policy(tiny(), load_qps, settings(workers=workers, slo_ms=slo_ms))


def level_of_stations(load_qps: float, workers: tuple[int, int]) -> Level[Policy]:
    stations = tuple(
        Station(name, ("all",), count, load_qps / 2, {slo_ms: 1.0},
                stations_policy(load_qps / 2, count, slo_ms))
        for name, count, slo_ms in zip("ab", workers, (60.0, 100.0), strict=True))
    return Level(load_qps, "poisson", stations, {})


def test_stations_and_their_change_with_the_load_are_the_simulators():
    """Two classes apart; a level that divides the workers anew routes all that wait anew."""
    levels = [level_of_stations(100.0, (1, 3)), level_of_stations(400.0, (2, 2))]
    classes = {60.0: 0.5, 100.0: 0.5}
    policies = PolicySetOf(levels, {"all": 4}, classes)
    cluster = Cluster((WorkerType("all", tiny(), count=4),),
                      (SloClass(60.0, 0.5), SloClass(100.0, 0.5)))
    workload = rising(60.0, 500.0, 80.0)
    result = simulate(cluster, Policies(policies), workload,
                      SimulationSettings(engine="plain", seeds=(4,)), keep_runs=True)
    routing = np.random.default_rng(np.random.SeedSequence(4).spawn(4)[3])
    served = policies.map(lambda policy: Selector(policy.decision_table()))
    dispatcher: Dispatcher[int] = Dispatcher(
        served, DispatchSettings(uniform=iter(routing.random(10_000).tolist()).__next__))
    run = result.runs[0]
    fleet = Fleet.of(tiny(), workers=4, slo_ms=SLO_MS)
    assert_same(run, driven(dispatcher, run, table_latency(fleet)))


def single(workers: int = 1, **changes: Any) -> Selector:
    """A table of one model that serves whatever waits, and drops what is late."""
    fields: dict[str, Any] = {
        "models": ("small",), "slo_ms": SLO_MS, "load_qps": 50.0, "workers": workers,
        "dispatch": "central-queue", "arrivals": "poisson", "idle": tuple(range(workers + 1)),
        "queued": (0, 1, 2), "slack_ms": (0.0, 10.0, 50.0), "actions": [[0, 1], [0, 2]],
        "rows": [[0, -2, 1, 0, 2, -1], [0, -2, 1, 1]], "row_of": [[0, 1]] * workers,
        "longer_queue": 1, **changes}
    return Selector(DecisionTable(**fields))


def one(workers: int = 1, settings: DispatchSettings | None = None,
        **changes: Any) -> Dispatcher[str]:
    return Dispatcher(set_of_selectors([single(workers, **changes)]), settings)


def own_queues(dispatch: str = "round-robin") -> Dispatcher[str]:
    """Two workers with a queue of their own each, and batches as soon as they are idle."""
    return one(2, dispatch=dispatch, idle=(0, 1), row_of=[[0, 1]], rows=[[0, 0], [0, 1]])


def test_who_has_more_time_than_the_class_is_held_as_long_as_the_class():
    dispatcher = one()
    assert dispatcher.arrive(0.0, ["a"], 60_000.0) == ([], [], [])
    assert dispatcher.wake_ms == pytest.approx(50.0)
    (start,) = dispatcher.timer(dispatcher.wake_ms).starts
    assert start.requests == ["a"]
    dispatcher.arrive(60.0, ["b"], 60_000.0)  # while the worker is busy
    (start,) = [*dispatcher.finished(300.0, 0).starts, *dispatcher.timer(300.0).starts]
    assert start.requests == ["b"]  # its hold is long over, its deadline is not


def test_a_wait_ends_when_the_slack_has_fallen():
    dispatcher = one()
    assert dispatcher.arrive(0.0, ["a"], 100.0) == ([], [], [])
    assert dispatcher.wake_ms == pytest.approx(50.0)
    assert not dispatcher.timer(49.9).starts
    (start,) = dispatcher.timer(dispatcher.wake_ms).starts
    assert (start.requests, start.run_as, start.idle, start.queued) == (["a"], 1, 1, 1)
    assert start.slack_ms < 50.0
    assert dispatcher.wake_ms == inf


def test_a_timer_may_ring_early_by_its_resolution_and_slack_pays_the_overhead():
    dispatcher = one(settings=DispatchSettings(overhead_ms=5.0, timer_ms=1.0))
    dispatcher.arrive(0.0, ["a"], 100.0)
    assert dispatcher.wake_ms == pytest.approx(45.0)
    (start,) = dispatcher.timer(44.2).starts
    assert start.slack_ms < 50.0


def test_requests_that_come_together_are_one_batch():
    (start,) = one().arrive(0.0, ["a", "b"], 100.0).starts
    assert start.requests == ["a", "b"]


def test_earliest_deadlines_go_first():
    dispatcher = one(rows=[[0, 0], [0, 1]])
    dispatcher.arrive(0.0, ["running"], 100.0)
    dispatcher.arrive(1.0, ["late"], 300.0)
    dispatcher.arrive(2.0, ["soon"], 50.0)
    dispatcher.arrive(3.0, ["tie"], 300.0)
    assert dispatcher.finished(4.0, 0).starts[0].requests == ["soon", "late"]


def test_requests_that_nobody_wants_leave_the_queues():
    dispatcher = one(rows=[[0, 0], [0, 1]])
    running, first, second, late = ["running"], ["first"], ["second"], ["late"]
    dispatcher.arrive(0.0, running, 100.0)
    dispatcher.arrive(1.0, first, 100.0)
    dispatcher.arrive(1.0, second, 90.0)
    orders = dispatcher.leave(2.0, [*running, *second, *late])
    assert ([ticket.request for ticket in orders.drops], orders.starts) == (second, [])
    assert dispatcher.queued == 1
    assert dispatcher.finished(4.0, 0).starts[0].requests == first
    assert dispatcher.finished(9.0, 0) == ([], [], [])


def test_room_is_made_by_requests_that_are_due_last():
    dispatcher = one(2)
    dispatcher.arrive(0.0, ["x", "y"], 100.0)
    dispatcher.arrive(0.0, ["z", "w"], 100.0)
    for name, deadline_ms in (("soon", 50.0), ("far", 900.0), ("near", 400.0), ("last", 950.0)):
        dispatcher.arrive(1.0, [name], deadline_ms)

    def gone(count: int, deadline_ms: float) -> list[str]:
        return [one.request for one in dispatcher.make_room(2.0, count, deadline_ms).drops]

    assert gone(3, 500.0) == []  # there are two
    assert gone(1, 2000.0) == []
    assert set(gone(2, 400.0)) == {"far", "last"}
    assert gone(1, 400.0) == []
    assert dispatcher.queued == 2
    dispatcher.arrive(3.0, ["later"], 800.0)
    assert gone(1, 300.0) == ["later"]


def test_a_failed_workers_batch_waits_again_or_not():
    dispatcher = one(rows=[[0, 0], [0, 1]])
    (start,) = dispatcher.arrive(0.0, ["a", "b"], 100.0).starts
    assert dispatcher.down(1.0, 0, start) == ([], [], [])
    assert dispatcher.queued == 2
    assert dispatcher.wake_ms == 100.0
    (again,) = dispatcher.up(20.0, 0).starts
    assert again.requests == ["a", "b"]
    dispatcher.down(21.0, 0)
    assert dispatcher.queued == 0


def test_while_all_workers_are_down_requests_are_given_up_when_due():
    dispatcher = one(2)
    dispatcher.down(0.0, 0)
    dispatcher.down(0.0, 1)
    assert dispatcher.arrive(1.0, ["a"], 30.0) == ([], [], [])
    dispatcher.arrive(2.0, ["b"], 40.0)
    assert dispatcher.wake_ms == 30.0
    assert [ticket.request for ticket in dispatcher.timer(30.0).drops] == ["a"]
    (start,) = dispatcher.up(31.0, 1).drops
    assert start.request == "b"  # too little slack is left for it


@pytest.mark.parametrize("dispatch", ["round-robin", "shortest-queue"])
def test_what_waits_for_a_worker_that_is_down_goes_to_others(dispatch):
    dispatcher = own_queues(dispatch)
    for request in "abcd":
        dispatcher.arrive(0.0, [request], 100.0)
    assert dispatcher.down(1.0, 0).starts == []
    dispatcher.arrive(2.0, ["e"], 100.0)
    (start,) = dispatcher.finished(3.0, 1).starts
    assert start.requests == ["c", "d"]
    dispatcher.up(4.0, 0)
    assert dispatcher.finished(5.0, 1).starts[0].requests == ["e"]


def test_a_worker_leaves_in_the_middle_of_a_batch_which_waits_again_if_it_is_lost():
    dispatcher = own_queues()
    starts = [dispatcher.arrive(0.0, [request], 100.0).starts for request in "abc"]
    assert dispatcher.down(1.0, 0).starts == []  # it leaves; "a" runs, "c" goes to the other
    assert dispatcher.arrive(2.0, ["d"], 100.0).starts == []
    dispatcher.down(3.0, 0, starts[0][0])  # and then it is lost
    assert dispatcher.queued == 3
    (start,) = dispatcher.finished(4.0, 1).starts
    (last,) = dispatcher.finished(5.0, 1).starts
    assert sorted([*start.requests, *last.requests]) == ["a", "c", "d"]


@pytest.mark.parametrize("back", [0, 1])
def test_what_came_while_all_were_down_goes_to_the_first_that_is_back(back):
    dispatcher = own_queues()
    dispatcher.down(0.0, 0)
    dispatcher.down(0.0, 1)
    for request in "abcd":
        assert dispatcher.arrive(1.0, [request], 100.0) == ([], [], [])
    started = [*dispatcher.up(2.0, back).starts, *dispatcher.finished(3.0, back).starts]
    assert sorted(one for start in started for one in start.requests) == ["a", "b", "c", "d"]
    assert {start.worker for start in started} == {back}


def test_while_a_worker_is_down_the_rule_chooses_among_the_others():
    for dispatch in ("round-robin", "shortest-queue"):
        station: StationQueues[str] = StationQueues(
            dispatch, range(3), [1, 2], [0, 0, 0], [False, True, True], 0.0)
        joined = []
        for number in range(6):
            station.in_system[2] += 2 * (number == 4)  # not so long that it is passed over
            joined.append(station.join(100.0, number, "").number)
        assert joined == [1, 2, 1, 2, 1, 2]


def test_a_worker_that_did_not_start_cannot_finish():
    with pytest.raises(InvalidValueError, match="worker: the end of a batch that was not"):
        one().finished(0.0, 0)


def test_a_set_for_other_workers_is_refused_and_the_old_one_stays():
    dispatcher = one()
    before = dispatcher.policies
    with pytest.raises(InvalidValueError, match="other workers"):
        dispatcher.swap(0.0, set_of_selectors([single(2)]))
    assert dispatcher.policies is before


def test_a_new_set_may_come_with_a_slowness_of_its_own():
    dispatcher = one()
    dispatcher.take_slowness(0.0, 4.0)
    policies = dispatcher.policies
    assert dispatcher.swap(1.0, policies).drops == []
    assert dispatcher.slowness == 4.0
    dispatcher.swap(1.0, policies, 1.5)
    assert dispatcher.slowness == 1.5
    with pytest.raises(InvalidValueError, match="slowness"):
        dispatcher.swap(1.0, policies, 0.0)
    assert dispatcher.slowness == 1.5


def test_deadlines_must_be_numbers():
    with pytest.raises(InvalidValueError, match="deadline_ms"):
        one().arrive(0.0, ["a"], float("nan"))


def test_a_requests_class_is_the_longest_that_it_may_take():
    policies = PolicySet([Level(50.0, "poisson", tuple(
        Station(str(slo), ("all",), 1, 25.0, {slo: 1.0}, single()) for slo in (20.0, 100.0)),
        {})], {"all": 2}, {20.0: 0.5, 100.0: 0.5})
    dispatcher: Dispatcher[str] = Dispatcher(policies)
    assert [dispatcher.slo_class(slo) for slo in (5.0, 20.0, 99.0, 100.0, 1e9)] == [
        20.0, 20.0, 20.0, 100.0, 100.0]


@pytest.mark.parametrize("seed", slow_after(2, range(6)))
def test_whatever_happens_each_request_is_started_or_dropped_once(seed):
    """Chance decides on arrivals, ends, failures and swaps between dispatch rules."""
    rng = np.random.default_rng(seed)
    base = tiny_policy(workers=3)
    sets = [selectors([dataclasses.replace(with_table(base, 300.0, rng, variable=True, drops=True),
                                           dispatch=rule, workers=3)])
            for rule in ("round-robin", "shortest-queue")]
    sets.append(selectors([central(3, 300.0, rng)]))
    dispatcher: Dispatcher[int] = Dispatcher(sets[0])
    running: dict[int, Start[int]] = {}
    down: set[int] = set()
    done: list[int] = []
    now, sent = 0.0, 0

    def obey(orders: Orders[int]) -> None:
        done.extend(ticket.request for ticket in orders.drops)
        for start in orders.starts:
            assert start.worker not in running
            assert start.worker not in down
            running[start.worker] = start

    for _ in range(3000):
        now += float(rng.exponential(2.0))
        if dispatcher.wake_ms <= now:
            now = max(now, dispatcher.wake_ms)
            obey(dispatcher.timer(now))
        event = rng.random()
        if event < 0.45:
            count = int(rng.integers(1, 4))
            obey(dispatcher.arrive(now, range(sent, sent + count),
                                   now + float(rng.uniform(-5.0, 150.0)), SLO_MS))
            sent += count
        elif event < 0.85 and running:
            worker = int(rng.choice(sorted(running)))
            done.extend(running.pop(worker).requests)
            obey(dispatcher.finished(now, worker))
        elif event < 0.9:
            worker = int(rng.integers(3))
            start = running.pop(worker, None)
            down.add(worker)
            if start is not None and rng.random() < 0.5:
                done.extend(start.requests)
                start = None
            obey(dispatcher.down(now, worker, start))
        elif event < 0.96 and down:
            worker = down.pop()
            obey(dispatcher.up(now, worker))
        elif event > 0.98:
            obey(dispatcher.swap(now, sets[int(rng.integers(3))]))
    while down:
        obey(dispatcher.up(now, down.pop()))
    for _ in range(1000):
        now += 1.0
        if dispatcher.wake_ms <= now:
            obey(dispatcher.timer(now))
        for worker, start in list(running.items()):
            done.extend(start.requests)
            del running[worker]
            obey(dispatcher.finished(now, worker))
    done += [ticket.request for ticket in dispatcher.abandon().drops]  # a table may wait for ever
    assert sorted(done) == list(range(sent))
    assert all(total == 0 for station in dispatcher._stations for total in station.in_system)


def test_abandoned_queues_are_empty():
    dispatcher = one()
    dispatcher.arrive(0.0, ["a"], 100.0)
    assert [ticket.request for ticket in dispatcher.abandon().drops] == ["a"]
    assert (dispatcher.queued, dispatcher.wake_ms) == (0, inf)


def front(clock: Clock, started: list[Start[str]], dropped: list[str]) -> AsyncFront[str]:
    return AsyncFront(one(settings=DispatchSettings(timer_ms=1.0)), started.append,
                      lambda ticket: dropped.append(ticket.request), clock_s=clock.time)


def test_an_event_loop_drives_it():
    started, dropped, clock = list[Start[str]](), list[str](), Clock()
    driven = front(clock, started, dropped)
    clock.do(lambda: driven.arrive(["a"], 100.0))
    clock.do(lambda: driven.arrive(["late"], -5.0))
    assert dropped == ["late"]
    clock.advance(0.045)
    assert not started  # it is held while its slack is large
    clock.advance(0.01)
    assert [start.requests for start in started] == [["a"]]
    assert started[0].slack_ms == pytest.approx(50.0, abs=1.1)
    clock.do(lambda: driven.finished(0))
    clock.do(lambda: driven.arrive(["b"], 100.0))
    driven.close()
    clock.advance(1.0)
    assert len(started) == 1
    clock.close()


def test_what_an_event_loop_reads_in_one_turn_is_decided_on_together():
    started, clock = list[Start[str]](), Clock()
    driven = front(clock, started, [])

    def turn(request: str, other: str, *ends: int) -> None:
        driven.arrive([request], 45.0)  # alone it would start at once
        for worker in ends:
            driven.finished(worker)
        driven.arrive([other], 45.0)

    clock.do(lambda: turn("a", "b"))
    clock.do(lambda: turn("c", "d", 0))
    clock.close()
    assert [(start.worker, start.requests, start.queued) for start in started] == [
        (0, ["a", "b"], 2), (0, ["c", "d"], 2)]


def test_in_a_long_turn_of_an_event_loop_no_worker_waits_for_its_end():
    started, clock = list[Start[str]](), Clock()
    driven = front(clock, started, [])

    def turn() -> list[int]:
        counts = []
        for request in "abc":
            driven.arrive([request], 45.0)
            counts.append(len(started))
            clock.now_s += 0.0015
        return counts

    assert clock.do(turn) == [0, 0, 1]
    clock.close()
    assert started[0].requests == ["a", "b"]


def test_noted_events_are_acted_on_as_one_when_it_is_asked():
    dispatcher = one()
    assert dispatcher.arrive(0.0, ["a"], 45.0, ask=False) == ([], [], [])
    assert dispatcher.unasked
    assert dispatcher.queued == 1
    dispatcher.arrive(0.0, ["b"], 45.0, ask=False)
    (start,) = dispatcher.ask(0.0).starts
    assert (start.requests, start.queued) == (["a", "b"], 2)
    assert not dispatcher.unasked
    assert dispatcher.ask(0.0) == ([], [], [])
    dispatcher.arrive(1.0, ["c"], 45.0, ask=False)
    dispatcher.leave(1.0, ["c"])
    assert dispatcher.finished(1.0, 0, ask=False) == ([], [], [])
    assert dispatcher.ask(1.0) == ([], [], [])


def test_a_worker_for_which_the_largest_batch_waits_starts_it_at_once():
    dispatcher = one()
    largest = dispatcher.level.stations[0].policy.largest_batch
    dispatcher.arrive(0.0, ["first"], 45.0)
    dispatcher.arrive(1.0, [f"{n}" for n in range(largest)], 45.0, ask=False)
    (start,) = dispatcher.finished(1.0, 0, ask=False).starts
    assert len(start.requests) == largest
    dispatcher.arrive(2.0, [f"{n}" for n in range(largest - 1)], 45.0, ask=False)
    assert dispatcher.finished(2.0, 0, ask=False) == ([], [], [])
    assert dispatcher.unasked


def test_a_full_batch_for_one_worker_asks_about_no_other():
    dispatcher = own_queues()
    dispatcher.arrive(0.0, ["a"], 45.0)  # for the first worker
    dispatcher.arrive(0.0, ["b"], 45.0)
    dispatcher.finished(1.0, 1)
    dispatcher.arrive(2.0, ["c", "d", "e"], 45.0, ask=False)  # c and e for the first
    (start,) = dispatcher.finished(2.0, 0, ask=False).starts
    assert (start.worker, start.requests) == (0, ["c", "e"])
    dispatcher.arrive(2.0, ["f", "g"], 45.0, ask=False)  # f for the second
    (start,) = dispatcher.ask(2.0).starts
    assert (start.worker, start.requests) == (1, ["d", "f"])


def test_where_batches_are_slower_the_policies_for_that_serve():
    told: list[float] = []
    levels = [single(load_qps=load_qps, slowness=slowness)
              for slowness in (1.0, 1.2) for load_qps in (50.0, 80.0, 120.0)]
    dispatcher: Dispatcher[str] = Dispatcher(
        set_of_selectors(levels, on_above_highest=told.append), DispatchSettings(load_qps=75.0))
    dispatcher.arrive(0.0, ["a"], 45.0)
    for slowness, chosen in ((1.0, 1.0), (1.05, 1.2), (1.2, 1.2), (2.4, 1.2), (0.6, 1.0)):
        dispatcher.take_slowness(1.0, slowness)
        assert (dispatcher.level.load_qps, dispatcher.level.slowness) == (80.0, chosen)
    assert not told
    for wrong in (0.0, -1.0, inf, float("nan")):
        with pytest.raises(InvalidValueError, match="slowness"):
            dispatcher.take_slowness(2.0, wrong)


def test_where_batches_are_slower_every_slack_is_divided():
    dispatcher = one(settings=DispatchSettings(overhead_ms=4.0))
    dispatcher.take_slowness(0.0, 1.25)
    dispatcher.arrive(0.0, ["a"], 100.0)
    assert dispatcher.wake_ms == pytest.approx(96.0 - 1.25 * 50.0)
    (start,) = dispatcher.timer(dispatcher.wake_ms).starts
    assert start.slack_ms == pytest.approx(50.0)
    assert not dispatcher.finished(80.0, 0).starts
    dispatcher.arrive(80.0, ["b"], 180.0)
    (start,) = dispatcher.take_slowness(81.0, 2.0).starts  # what waits is looked at anew
    assert start.slack_ms == pytest.approx(95.0 / 2.0)


def test_threads_drive_it():
    batches: SimpleQueue[Start[str]] = SimpleQueue()
    dropped: list[Ticket[str]] = []
    with ThreadFront(one(), batches.put, dropped.append) as driven:
        driven.arrive(["a"], 60_000.0)
        start = batches.get(timeout=60.0)  # after its hold, in the thread of the timer
        driven.arrive(["b", "c"], 60_000.0)
        driven.finished(start.worker)
        again = batches.get(timeout=60.0)
    assert (start.requests, again.requests) == (["a"], ["b", "c"])
    assert not dropped
