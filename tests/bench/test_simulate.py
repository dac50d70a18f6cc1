"""The simulator: compiled kernels, the plain engine, and a figure's worth of runs.

60 workers and the image models, arrivals given. Every benchmark asserts that all queries were
answered, and that both engines come to the same figures, so that speed cannot come from
simulating less.
"""

from functools import partial
from heapq import heappop, heappush

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    FleetScheduler,
    JellyfishPlus,
    ModelSwitching,
    Plan,
    Policies,
    Run,
    simulate,
)
from ramsis.sim.engine import Engine
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.bench.cases import SLO_MS, WORKERS
from tests.bench.timing import Timing, repeated, several, timed
from tests.runs import run_plan, simulate_profile

LOAD_QPS = 1600.0
LOADS_QPS = tuple(400.0 * i for i in range(1, 11))
COMPILED, PLAIN = 2_000_000, 200_000
"""Queries in each benchmark."""
SETTINGS = SynthesisSettings(slo_ms=SLO_MS, workers=WORKERS, service="p95")


@pytest.fixture(scope="module")
def images(profile_file):
    return profiles.load(str(profile_file))


@pytest.fixture(scope="module")
def fleet(images):
    return Fleet.of(images, workers=WORKERS, slo_ms=SLO_MS)


@pytest.fixture(scope="module")
def plans(images, fleet):
    policy = generate_policy(images, LOAD_QPS, SETTINGS)
    return {"per-worker policies": Policies((policy,)).prepare(fleet),
            "a central queue": JellyfishPlus().prepare(fleet)}


def arrivals(queries: int) -> NDArray[np.float64]:
    """That many Poisson arrivals."""
    return np.cumsum(np.random.default_rng(0).exponential(1000.0 / LOAD_QPS, queries))


def compiled(fleet: Fleet, plan: Plan, times: NDArray[np.float64], load: float | None) -> Run:
    from ramsis.sim.compiled import replay

    assert plan.compiled is not None
    return replay(fleet, plan.compiled, fleet.requests(times, rng=np.random.default_rng(1)),
                  float(times[-1]), load)


def plain(fleet: Fleet, plan: Plan, times: NDArray[np.float64], load: float | None) -> Run:
    engine = Engine.of_fleets((fleet,), fleet.requests(times), float(times[-1]),
                              np.random.default_rng(1), load)
    return engine.serve(plan.start)


@pytest.mark.parametrize(("name", "load", "per_second"), [
    ("per-worker policies", LOAD_QPS, 20e6), ("per-worker policies", None, 5e6),
    ("a central queue", LOAD_QPS, 5e6), ("a central queue", None, 5e6)
])
def test_compiled_kernels(benchmark, ledger, fleet, plans, name, load, per_second):
    times, plan = arrivals(COMPILED), plans[name]
    done, timing = repeated(benchmark, partial(compiled, fleet, plan, times, load), rounds=7)
    assert done.requests == COMPILED == done.size.sum()
    assert done.in_time.mean() > 0.999
    monitored = " with the load monitor" if load is None else ""
    ledger.time(f"compiled, {name}{monitored}: {COMPILED / 1e6:g} M queries", timing,
                COMPILED / per_second)
    part = times[:PLAIN]
    slow, reference = timed(partial(plain, fleet, plan, part, load))
    fast = compiled(fleet, plan, part, load)
    assert (slow.answered_ms == fast.answered_ms).all()
    ledger.ratio(timing, reference.scaled(COMPILED / PLAIN), "the plain engine")


def test_simulate_from_arrivals_to_figures(benchmark, ledger, images, fleet, plans):
    """Half of the kernel's speed is wanted, arrivals drawn and figures taken."""
    policies = Policies((generate_policy(images, LOAD_QPS, SETTINGS),))
    load = ConstantLoad(LOAD_QPS, 1000.0 * COMPILED / LOAD_QPS)
    cluster = Cluster.of(images, workers=WORKERS, slo_ms=SLO_MS)
    done, timing = repeated(benchmark, lambda: simulate(cluster, policies, load), rounds=7)
    queries = done.metrics[0].queries
    assert queries == pytest.approx(COMPILED, rel=0.01)
    ledger.time(f"simulate, per-worker policies: {COMPILED / 1e6:g} M queries", timing,
                COMPILED / 20e6)
    times, plan = arrivals(COMPILED), plans["per-worker policies"]
    compiled(fleet, plan, times, LOAD_QPS)
    ledger.ratio(timing, several(partial(compiled, fleet, plan, times, LOAD_QPS), 7),
                 "the kernel alone")


@pytest.mark.parametrize("name", ["per-worker policies", "a central queue"])
def test_the_plain_engine(benchmark, ledger, fleet, plans, name):
    times = arrivals(PLAIN)
    done, timing = repeated(benchmark, partial(plain, fleet, plans[name], times, LOAD_QPS),
                            rounds=3)
    assert done.requests == PLAIN == done.size.sum()
    ledger.time(f"plain engine, {name}: {PLAIN / 1e3:g} k queries", timing, PLAIN / 200e3)
    ledger.ratio(timing, several(partial(_bare_heap, times.tolist()), 3),
                 "a heap of one event for each query alone")


def _bare_heap(times: list[float]) -> None:
    """The least that an event loop does: an event in and out for every query."""
    running: list[tuple[float, int]] = []
    for query, now in enumerate(times):
        while running and running[0][0] <= now:
            heappop(running)
        heappush(running, (now + 40.0, query))


def test_a_figure_of_constant_loads(benchmark, ledger, images):
    """Ten loads, three schedulers, five seeds, 30 s: policies made, simulated and measured."""

    def figure() -> list[float]:
        policies = tuple(generate_policy(images, load, SETTINGS) for load in LOADS_QPS)
        schedulers: list[FleetScheduler] = [Policies(policies), JellyfishPlus(1.05),
                                     ModelSwitching()]
        results = [simulate_profile(images, one, ConstantLoad(load, 30_000.0), workers=WORKERS,
                            slo_ms=SLO_MS, seeds=range(5))
                   for load in LOADS_QPS for one in schedulers]
        queries = sum(one.queries for result in results for one in result.metrics)
        assert queries == pytest.approx(30 * 5 * 3 * sum(LOADS_QPS), rel=0.01)
        return [result.effective_accuracy for result in results]

    effective, timing = repeated(benchmark, figure, rounds=2)
    assert len(effective) == 30
    ledger.time("10 loads, 3 schedulers, 5 seeds, 30 s, policies made", timing, 30.0)
    single = several(lambda: generate_policy(images, 2000.0, SETTINGS), 5)
    ledger.ratio(timing, Timing(10 * single.wall_s, 10 * single.cpu_s),
                 "making the ten policies alone")


def test_the_monitored_trace_of_five_minutes(benchmark, ledger, images, fleet):
    from ramsis.arrivals.load_table import read_rates

    policies = tuple(generate_policy(images, load, SETTINGS) for load in LOADS_QPS)
    plan, day = Policies(policies).prepare(fleet), read_rates("day")
    done, timing = repeated(
        benchmark, lambda: run_plan(fleet, plan, day, monitored=True), rounds=3)
    assert done.requests == pytest.approx(300 * day.load_qps, rel=0.01)
    ledger.time("the day, ten policies, load monitor; arrivals drawn", timing, 0.5)
