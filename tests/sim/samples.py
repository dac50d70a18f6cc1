"""Small fleets, policies with any table, and schemes for tests of the simulator."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import LatencyTable
from ramsis.sim import ClosedLoop, Engine, Fleet, Plan, Run, Scheduler
from ramsis.sim.compiled import replay
from ramsis.sim.engine import WorkerGroup
from ramsis.synthesis.generate import modelled_policy
from tests.policy import samples
from tests.synthesis.samples import settings, tiny_profile

SLO_MS = 100.0
tiny = tiny_profile


def fleet(
    latency_ms: list[list[float]], accuracy: list[float] | None = None, *, workers: int = 1,
    slo_ms: float = SLO_MS, quantiles_ms: NDArray[np.float64] | None = None,
    network_ms: float = 0.0,
) -> Fleet:
    """A fleet with models m0, m1, … of these latencies."""
    names = [f"m{i}" for i in range(len(latency_ms))]
    table = LatencyTable.measured(names, accuracy or [0.5] * len(names), latency_ms)
    times = ServiceTimes.of_table(table)
    if quantiles_ms is not None:
        times = dataclasses.replace(times, quantiles_ms=quantiles_ms, levels=np.empty(0))
    return Fleet(table, times, workers, slo_ms, network_ms)


def tiny_policy(load_qps: float = 400.0, **changes: Any) -> Policy:
    """A real policy of the tiny profile, its promise not replayed: 4 workers, SLO 100 ms."""
    return modelled_policy(tiny_profile(), load_qps, settings(**changes))


def with_table(
    policy: Policy, load_qps: float, rng: np.random.Generator, *, variable: bool = False,
    drops: bool = False,
) -> Policy:
    """The same policy for another load, with any table."""
    shape = policy.codes.shape[1:]
    queued = np.arange(1, shape[0] + 1)[:, None]
    batch = rng.integers(1, queued + 1, shape) if variable else np.broadcast_to(queued, shape)
    if drops:
        batch = np.where(rng.random(shape) < 0.3, 0, batch)
    policy = dataclasses.replace(
        policy, load_qps=load_qps, late="drop" if drops else policy.late,
        batching="variable" if variable else "maximal")
    return samples.with_table(
        policy, rng.integers(0, len(policy.models), shape), batch,
        (int(rng.integers(len(policy.models))),
         int(rng.integers(0 if drops else 1, shape[0] + 2))))


def run(
    fleet: Fleet, start: Callable[[Engine], Scheduler], arrivals_ms: list[float] | ClosedLoop,
    duration_ms: float = 1000.0, load_qps: float | None = 10.0,
) -> Run:
    """One run of the plain engine."""
    requests = arrivals_ms if isinstance(arrivals_ms, ClosedLoop) else fleet.requests(
        np.array(arrivals_ms, dtype=float))
    return Engine.of_fleets((fleet,), requests, duration_ms, np.random.default_rng(0),
                            load_qps).serve(start)


def same(one: Run, two: Run) -> None:
    """Query by query: the same worker, model, batch, start and finish, to the last bit."""
    assert one.arrival_ms.tolist() == two.arrival_ms.tolist()
    answered = one.batch_of >= 0
    assert (two.batch_of[~answered] == one.batch_of[~answered]).all()
    assert dict(zip(one.drop_request.tolist(), one.drop_ms.tolist(), strict=True)) == dict(
        zip(two.drop_request.tolist(), two.drop_ms.tolist(), strict=True))
    assert len(one.size) == len(two.size)
    for name in ("start_ms", "finish_ms", "worker", "model", "size"):
        mine, other = (getattr(run, name)[run.batch_of[answered]] for run in (one, two))
        assert (mine == other).all(), name
    assert one.slo_ms.tolist() == two.slo_ms.tolist()
    assert one.reward.tolist() == two.reward.tolist()


def both_engines(
    fleet: Fleet, plan: Plan, arrivals_ms: NDArray[np.float64], load_qps: float | None
) -> tuple[Run, Run]:
    """Runs of the plain engine and of the compiled kernel on the same requests."""
    plain = run(fleet, plan.start, arrivals_ms, 1e6, load_qps)
    requests = fleet.requests(arrivals_ms, rng=np.random.default_rng(0))
    return plain, replay(fleet, plan.compiled, requests, 1e6, load_qps)


class Logged(Scheduler):
    """Notes every event with its time, and serves one query at a time on m0."""

    def __init__(self, engine: WorkerGroup, log: list[tuple[float, str, object]]) -> None:
        super().__init__(engine)
        self.log, self.queue = log, list[int]()

    def on_arrival(self, query: int) -> None:
        self.log.append((self.engine.now_ms, "arrival", query))
        self.queue.append(query)
        self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        self.log.append((self.engine.now_ms, "idle", worker))
        self.serve()

    def on_timer(self, token: object) -> None:
        self.log.append((self.engine.now_ms, "timer", token))

    def serve(self) -> None:
        for worker in self.engine.idle_workers():
            if self.queue:
                self.engine.run(worker, 0, [self.queue.pop(0)])


class Anything(Scheduler):
    """Does whatever chance says, as far as it is allowed: waits, drops, serves in any order."""

    def __init__(self, engine: WorkerGroup, seed: int) -> None:
        super().__init__(engine)
        self.rng = np.random.default_rng(seed)
        self.queue: list[int] = []

    def on_arrival(self, query: int) -> None:
        self.queue.append(query)
        self.act()

    def on_end(self, worker: int, batch: int) -> None:
        self.act()

    def on_timer(self, token: object) -> None:
        self.act()

    def act(self) -> None:
        engine, rng = self.engine, self.rng
        if rng.random() < 0.2:
            engine.wake_at(engine.now_ms + float(rng.integers(0, 5)))
        if self.queue and rng.random() < 0.2:
            engine.drop(self.queue.pop(int(rng.integers(len(self.queue)))))
        idle = engine.idle_workers()
        while self.queue and idle and rng.random() < 0.6:
            size = int(rng.integers(1, min(len(self.queue), engine.fleet.max_batch) + 1))
            chosen = [self.queue.pop(int(rng.integers(len(self.queue)))) for _ in range(size)]
            worker = idle.pop(int(rng.integers(len(idle))))
            engine.run(worker, int(rng.integers(len(engine.fleet.models))), chosen)


def anything(seed: int) -> Plan:
    """A random scheduler."""
    return Plan("anything", partial(Anything, seed=seed))


@st.composite
def lattice_arrivals(draw: st.DrawFn, most: int = 120) -> NDArray[np.float64]:
    """Arrival times on whole milliseconds, many at one instant: ties of every kind."""
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 20, 700]), max_size=most))
    return np.cumsum(np.array(gaps, dtype=float))
