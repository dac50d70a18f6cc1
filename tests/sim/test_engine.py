"""The plain engine: order of events, accounting, what schemes may not do."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import RamsisError
from ramsis.sim import ClosedLoop, ConstantLoad, Run, Scheduler, SchedulerError
from ramsis.sim.metrics import measure
from ramsis.sim.run import DROPPED, NEVER_ANSWERED
from tests.runs import run_plan
from tests.sim.samples import Logged, anything, fleet, lattice_arrivals, run


def test_at_one_instant_batches_finish_then_queries_arrive_then_timers_ring():
    log: list[tuple[float, str, object]] = []

    class WithTimer(Logged):
        def on_arrival(self, query: int) -> None:
            if query == 0:
                self.engine.wake_at(10.0, "late set, same time")
                self.engine.wake_at(5.0, "first")
                self.engine.wake_at(10.0, "last")
            super().on_arrival(query)

    run(fleet([[10.0]], workers=2), partial(WithTimer, log=log), [0.0, 0.0, 10.0])
    assert log == [
        (0.0, "arrival", 0), (0.0, "arrival", 1), (5.0, "timer", "first"),
        (10.0, "idle", 0), (10.0, "idle", 1), (10.0, "arrival", 2),
        (10.0, "timer", "late set, same time"), (10.0, "timer", "last"), (20.0, "idle", 0),
    ]


def test_batches_that_finish_together_do_so_in_the_order_of_their_dispatch():
    log: list[tuple[float, str, object]] = []

    class Backwards(Logged):
        def serve(self) -> None:
            for worker in (2, 0, 1):
                if self.engine.is_idle(worker) and self.queue:
                    self.engine.run(worker, 0, [self.queue.pop(0)])

    run(fleet([[7.0]], workers=3), partial(Backwards, log=log), [0.0, 0.0, 0.0])
    assert [what for when, kind, what in log if kind == "idle"] == [2, 0, 1]


def test_a_timer_for_the_present_instant_rings_after_it():
    rings: list[float] = []

    class Now(Scheduler):
        def on_arrival(self, query: int) -> None:
            self.engine.wake_at(self.engine.now_ms)

        def on_timer(self, token: object) -> None:
            rings.append(self.engine.now_ms)

    done = run(fleet([[1.0]]), Now, [3.0, 3.0, 4.0])
    assert rings == [3.0, 3.0, 4.0]
    assert (done.batch_of == NEVER_ANSWERED).all()


def test_service_network_and_deadline_add_up():
    log: list[tuple[float, str, object]] = []
    done = run(fleet([[30.0]], network_ms=2.0, slo_ms=64.0), partial(Logged, log=log),
               [1.0, 1.0, 1.0])
    assert done.start_ms.tolist() == [1.0, 33.0, 65.0]
    assert done.finish_ms.tolist() == [33.0, 65.0, 97.0]
    assert done.in_time.tolist() == [True, True, False]
    assert done.requests == 3


def wrong(act: str) -> type[Scheduler]:
    """A scheduler that does one thing that cannot be done, at the third arrival."""

    class Wrong(Scheduler):
        def on_arrival(self, query: int) -> None:
            engine = self.engine
            if query == 1:
                engine.run(0, 0, [0])
            if query == 2:
                exec(act, {"engine": engine})

    return Wrong


@pytest.mark.parametrize(("act", "words"), [
    ("engine.run(0, 0, [1])", ["cannot start one", "worker 0"]),
    ("engine.run(9, 0, [1])", ["no such batch", "worker 9"]),
    ("engine.run(-1, 0, [1])", ["cannot start one", "worker -1"]),
    ("engine.run(1, 0, [0])", ["not waiting", "got 0"]),
    ("engine.run(1, 0, [1, 1])", ["not waiting", "got 1"]),
    ("engine.run(1, 0, [7])", ["not waiting", "got 7"]),
    ("engine.run(1, 0, [-1])", ["not waiting", "got -1"]),
    ("engine.run(1, 0, [])", ["no such batch", "0 requests"]),
    ("engine.run(1, 0, [1, 2, 2])", ["no such batch", "3 requests"]),
    ("engine.run(1, 1, [1])", ["model that is not loaded", "model 1"]),
    ("engine.drop(0)", ["drop", "not waiting"]),
    ("engine.drop(3)", ["drop", "not waiting"]),
    ("engine.wake_at(1.0)", ["timer", "got 1.0"]),
    ("engine.wake_at(float('nan'))", ["timer", "nan"]),
    ("engine.wake_at(float('inf'))", ["timer", "inf"]),
])
def test_what_cannot_be_done_stops_the_run_and_names_the_event(act, words):
    with pytest.raises(SchedulerError, match="at 3 ms, arrival of request 2") as stopped:
        run(fleet([[50.0, 60.0]], workers=2), wrong(act), [1.0, 2.0, 3.0])
    assert "\n" not in str(stopped.value)
    for word in words:
        assert word in str(stopped.value)


def test_a_mistake_when_a_worker_is_idle_or_a_timer_rings_is_named_too():
    class AtIdle(Logged):
        def on_end(self, worker: int, batch: int) -> None:
            self.engine.run(worker, 0, [0])

    class AtTimer(Scheduler):
        def on_arrival(self, query: int) -> None:
            self.engine.wake_at(4.0, "tick")

        def on_timer(self, token: object) -> None:
            self.engine.drop(5)

    with pytest.raises(SchedulerError, match="at 10 ms, end of batch 0"):
        run(fleet([[10.0]]), partial(AtIdle, log=[]), [0.0])
    with pytest.raises(SchedulerError, match="at 4 ms, timer tick"):
        run(fleet([[10.0]]), AtTimer, [0.0])
    with pytest.raises(SchedulerError, match="at 0 ms, start"):
        run(fleet([[10.0]]), lambda engine: engine.drop(0) or Scheduler(engine), [])
    assert issubclass(SchedulerError, RamsisError)


def test_timers_without_end_are_stopped():
    class Restless(Scheduler):
        def on_arrival(self, query: int) -> None:
            self.engine.wake_at(self.engine.now_ms)

        on_timer = on_arrival  # type: ignore[assignment]

    with pytest.raises(SchedulerError, match="without end"):
        run(fleet([[1.0]]), Restless, [0.0])


def test_users_who_do_not_think_and_are_always_dropped_are_stopped():
    class Refusing(Scheduler):
        def on_arrival(self, query: int) -> None:
            self.engine.drop(query)

    loop = ClosedLoop(1, 0.0, 10.0)
    with pytest.raises(SchedulerError, match="never stops dropping"):
        run(fleet([[1.0]]), Refusing, loop, 10.0)


def test_timers_alone_do_not_keep_a_run_going_when_no_query_waits():
    class Ticking(Logged):
        def on_arrival(self, query: int) -> None:
            super().on_arrival(query)
            self.engine.wake_at(self.engine.now_ms + 1.0)

        def on_timer(self, token: object) -> None:
            super().on_timer(token)
            self.engine.wake_at(self.engine.now_ms + 1.0)

    log: list[tuple[float, str, object]] = []
    run(fleet([[10.0]]), partial(Ticking, log=log), [0.0])
    assert log[-1][0] <= 11.0


def accounted(done: Run) -> None:
    """Every query has one fate, and batches hold what they say."""
    found = measure(done)
    assert found.queries == found.in_time + found.late + found.dropped + found.never_answered
    answered = done.batch_of >= 0
    assert found.in_time + found.late == answered.sum() == done.size.sum()
    counts = np.bincount(done.batch_of[answered], minlength=len(done.size))
    assert (counts == done.size).all()
    assert (done.size >= 1).all()
    assert found.dropped == len(done.drop_request) == (done.batch_of == DROPPED).sum()
    assert (done.served_ms[answered] >= done.arrival_ms[answered]).all()
    for worker in range(done.workers):
        own = done.worker == worker
        order = np.argsort(done.start_ms[own], kind="stable")
        assert (done.start_ms[own][order][1:] >= done.finish_ms[own][order][:-1]).all()


@settings(max_examples=60, deadline=None)
@given(lattice_arrivals(), st.integers(0, 2**32), st.integers(1, 4))
def test_every_query_is_accounted_for_whatever_a_scheme_does(arrivals, seed, workers):
    small = fleet([[3.0, 5.0], [8.0, 20.0]], workers=workers, slo_ms=15.0)
    done = run(small, anything(seed).start, arrivals.tolist())
    assert done.requests == len(arrivals)
    accounted(done)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.sampled_from([0.0, 1.0, 7.5]), st.integers(0, 2**32))
def test_every_query_of_a_closed_loop_is_accounted_for(users, think_ms, seed):
    small = fleet([[3.0, 5.0]], workers=2, slo_ms=15.0)
    done = run_plan(small, anything(seed), ClosedLoop(users, think_ms, 200.0), monitored=True)
    assert done.requests >= users
    assert (np.diff(done.arrival_ms) >= 0).all()
    assert (done.arrival_ms[users:] < 200.0).all()
    accounted(done)


def test_a_closed_loop_of_one_user_cycles_through_service_and_thinking():
    done = run(fleet([[10.0]]), partial(Logged, log=[]), ClosedLoop(1, 5.0, 60.0), 60.0)
    assert done.arrival_ms.tolist() == [0.0, 15.0, 30.0, 45.0]


def test_a_closed_loop_keeps_its_users_busy():
    """Six users, two workers, 10 ms each: throughput 200/s, response 30 ms."""
    done = run(fleet([[10.0]], workers=2), partial(Logged, log=[]), ClosedLoop(6, 0.0, 1000.0))
    assert done.requests == 6 + 2 * 99
    assert (done.answered_ms - done.arrival_ms)[6:].tolist() == [30.0] * 198


def test_the_same_seed_gives_every_scheme_the_same_arrivals_and_luck():
    rng = np.random.default_rng(5)
    drawn = np.sort(rng.uniform(5.0, 9.0, (1, 2, 64)), axis=2)
    small = fleet([[9.0, 9.0]], workers=2, quantiles_ms=drawn)
    workload = ConstantLoad(150.0, 1000.0)
    one, two, other = (run_plan(small, anything(scheduler), workload, seed=seed)
                       for scheduler, seed in ((1, 3), (2, 3), (1, 4)))
    assert one.arrival_ms.tolist() == two.arrival_ms.tolist() != other.arrival_ms.tolist()
    again = run_plan(small, anything(1), workload, seed=3)
    assert again.answered_ms.tolist() == one.answered_ms.tolist()


def test_drawn_service_times_follow_the_quantiles_of_the_batch():
    quantiles = np.sort(np.random.default_rng(1).gamma(3.0, 2.0, 50))
    small = fleet([[9.0]], quantiles_ms=quantiles[None, None, :])
    arrivals = 100.0 * np.arange(4000)
    done = run(small, partial(Logged, log=[]), arrivals.tolist(), 1e6)
    served = np.sort(done.finish_ms - done.start_ms)
    expected = np.interp((np.arange(4000) + 0.5) / 4000, (np.arange(50) + 0.5) / 50, quantiles)
    assert np.abs(served - expected).max() < 1.5  # Kolmogorov-Smirnov, in ms, at these densities
    assert served.mean() == pytest.approx(quantiles.mean(), abs=4 * quantiles.std() / 4000**0.5)
