"""The bound on requests in time where memory is scarce, against the optimum of tiny instances."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from ramsis.bounds import GoodputBound, ReleasedRequests, Servers, goodput_bound, scenario_bound
from ramsis.planning import SCHEDULERS, scheduler_named
from ramsis.scenario import Scenario, draw_requests, scenario_from_document
from ramsis.sim import Engine, SchedulerError, measure, scheduler
from ramsis.sim.schedulers import FLEET_SCHEDULERS
from tests.reference.cluster_program import SmallCluster, most_with_memory
from tests.slow import slow_after

_STEP_MS = 7.3


def tiny(rng: np.random.Generator, *, one_model: bool, requests: int) -> SmallCluster:
    """Two workers and three models: of a worker's memory all of it, or a quarter to three."""
    models = 3
    model = rng.choice(models, requests, p=rng.dirichlet(np.full(models, 3.0)))
    release = np.sort(rng.integers(0, int(requests * rng.uniform(1.2, 2.0)), requests))
    batch = np.cumsum(np.stack([rng.integers(1, 4, models), rng.integers(0, 2, models),
                                rng.integers(0, 2, models)], axis=1), axis=1)
    memory = np.ones(models, dtype=np.int64) if one_model else rng.permutation([1, 2, 3])
    return SmallCluster(
        release, release + rng.integers(4, 12, models)[model], model, batch,
        rng.integers(8, 25, models), memory, 1 if one_model else 4,
        (frozenset({0}), frozenset({1})))


def bound(one: SmallCluster, rounds: int = 30) -> GoodputBound:
    held = np.array([[float(sum(m in state for state in one.start))
                      for m in range(len(one.load))]])
    return goodput_bound(
        ReleasedRequests(_STEP_MS * one.release, _STEP_MS * one.deadline, one.model),
        Servers(_STEP_MS * one.batch[None], np.array([2.0]), load_ms=_STEP_MS * one.load[None],
                held=held, blocking=np.array([True]), room=one.memory[None] / one.room),
        rounds=rounds)


def gaps(seeds: Iterable[int], *, limit_s: float) -> list[float]:
    """By how much of the optimum the bound is above it; half the instances of each kind."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        one = tiny(rng, one_model=seed % 2 == 0, requests=int(rng.integers(40, 61)))
        best, _ = most_with_memory(one, limit_s=limit_s)
        most = bound(one).in_time
        assert best <= most <= len(one.release)
        found.append(most / best - 1.0)
    return found


@pytest.mark.slow
def test_the_bound_is_near_the_optimum():
    assert np.mean(gaps((2, 4, 5, 6), limit_s=60.0)) <= 0.1


@pytest.mark.parametrize("one_model", [True, False])
def test_the_program_needs_no_cuts(*, one_model):
    """The rows that shorten the search for the optimum take nothing away."""
    for seed in range(2):
        one = tiny(np.random.default_rng(seed), one_model=one_model, requests=12)
        best, most = most_with_memory(one, limit_s=60.0)
        assert best == most == most_with_memory(one, cuts=False, limit_s=60.0)[0]


@pytest.mark.parametrize(("at_a_time", "most"), [(2.0, 2), (1.0, 1)])
def test_loads_at_once_block_a_worker_once(at_a_time, most):
    """Both models can be loaded by 100 ms, and run one after the other, 40 ms each."""
    found = goodput_bound(
        ReleasedRequests(np.zeros(2), np.full(2, 185.0), np.array([0, 1])),
        Servers(np.full((1, 2, 1), 40.0), np.ones(1), load_ms=np.full((1, 2), 100.0),
                held=np.zeros((1, 2)), blocking=np.array([True]), room=np.full((1, 2), 0.5),
                loads_at_a_time=np.array([at_a_time])))
    assert found.in_time == most


def machines(cores: int, of_each: int) -> Scenario:
    """Requests that hold a core for 140 ms, 60 in a second, and three machines."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "cores", "duration_s": 10,
        "worker_types": [{"name": "m", "count": 3, "cores": cores, "lanes": 4}],
        "models": [{"name": "a", "latency": [
            {"worker_type": "m", "batch": 1, "latency_ms": 37.0}]}],
        "streams": [{"name": "s", "model": "a", "slo_ms": 700.0, "pre_ms": 90.0, "post_ms": 13.0,
                     "cores": of_each, "workload": {"load_qps": 60.0}}],
        "start": [{"worker": "m", "models": ["a"]}]})


@pytest.mark.parametrize(("cores", "of_each", "places"), [(2, 1, 6), (3, 2, 3), (4, 1, 12)])
def test_cores_limit_what_is_in_time(cores, of_each, places):
    """8.4 cores are asked for; on a machine with three, only one request that takes two fits."""
    scenario = machines(cores, of_each)
    requests = draw_requests(scenario, 3)
    found = scenario_bound(scenario, requests)
    in_time = places * (10_700.0 / 140.0)
    assert found.in_time <= in_time + 1
    assert found.in_time >= min(0.9 * in_time, len(requests))
    run = Engine.of_scenario(scenario, 3, requests=requests).serve(scheduler("sigmaos"))
    assert measure(run).in_time <= found.in_time


def drawn(seed: int) -> Scenario:
    """A second of a few models on workers that hold some; machines process every fourth."""
    rng = np.random.default_rng(seed)
    types: list[dict[str, Any]] = [{
        "name": name, "count": int(rng.integers(1, 3)), "memory_mb": float(rng.integers(100, 250)),
        "max_models": int(rng.integers(1, 4)), "lanes": int(rng.integers(1, 3)),
        "cores": int(rng.integers(1, 5)), "loading": str(rng.choice(["beside", "blocking"])),
        "loads_at_a_time": int(rng.integers(1, 3))} for name in ("a", "b")[:rng.integers(1, 3)]]
    models: list[dict[str, Any]] = [{
        "name": f"m{i}", "memory_mb": float(rng.integers(40, 100)),
        "load_ms": float(rng.uniform(5, 250)),
        **({"family": "f"} if rng.random() < 0.2 else {}),
        "latency": [{"worker_type": one["name"], "batch": b, "latency_ms": ms * b**0.6}
                    for one in types for ms in [float(rng.uniform(15, 40))] for b in (1, 2, 4)]}
        for i in range(int(rng.integers(3, 6)))]
    around = {"pre_ms": 9.0, "post_ms": 5.0, "cores": 1} if seed % 4 == 0 else {}
    streams = [{"name": f"s{i}", "model": f"m{i}", "slo_ms": float(rng.uniform(60, 160)), **around,
                "workload": {"load_qps": float(rng.uniform(3, 25))}}
               for i in range(len(models))]
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "drawn", "duration_s": 1, "worker_types": types,
        "models": models, "streams": streams,
        "start": [{"worker": "a", "models": ["m0"]}] if rng.random() < 0.5 else []})


def above(seed: int) -> list[str]:
    """Schedulers that are above the bound, of all that serve the scenario."""
    scenario = drawn(seed)
    requests = draw_requests(scenario, seed)
    found = scenario_bound(scenario, requests, rounds=10)
    assert found is not None
    names = [name for name in SCHEDULERS if name not in (*FLEET_SCHEDULERS, "policies")
             and name.startswith("sigmaos") == any(one.cores for one in scenario.streams)]
    assert len(names) > 4
    higher = []
    for name in names:
        with suppress(SchedulerError):  # round-robin may load without end
            run = scheduler_named(name).serve(
                Engine.of_scenario(scenario, seed, requests=requests))
            if measure(run).in_time > found.in_time:
                higher.append(name)
    return higher


@pytest.mark.parametrize("seed", slow_after(1, [0, 1, *range(5, 200, 10)]))
def test_no_scheduler_is_above(seed):
    assert not above(seed)
