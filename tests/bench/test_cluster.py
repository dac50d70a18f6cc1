"""The cluster engine with each of its schedulers, on Clockwork's grid and on the Azure-like load.

Every benchmark asserts that all requests were answered or dropped, and of schedulers that can
cope with the load that most were in time, so that speed cannot come from serving fewer. The
schedulers that run a request at a time cannot: the grid asks for 8 % more than that serves.
"""

from functools import partial
from typing import Any

import clockwork
import pytest

from ramsis.bounds import scenario_bound
from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim import Engine, Run, scheduler
from ramsis.sim.registry import SCHEDULERS
from ramsis.sim.schedulers import FLEET_SCHEDULERS
from tests.bench.ledger import Ledger
from tests.bench.timing import repeated

PER_SECOND = 100_000


def served(scenario: Scenario, requests: Requests, name: str) -> Run:
    return Engine.of_scenario(scenario, requests=requests).serve(scheduler(name))


LEAST_IN_TIME = {
    ("clockwork", "grid"): 0.95, ("planned", "grid"): 0.98, ("clockwork-adjusted", "grid"): 0.98,
    ("autoscale:of=planned", "grid"): 0.95, ("clockwork", "azure"): 0.99,
    ("planned", "azure"): 0.99, ("clockwork-adjusted", "azure"): 0.95,
}
NOT_HERE = {
    "rl": "a network decides, which takes its time",
    **dict.fromkeys((*FLEET_SCHEDULERS, "policies"), "serves variants of one task; see below"),
}
NOT_ON_AZURE = {
    "round-robin": "ends with a line: a large model has no room in the place of a small one, so "
                   "that the last requests wait for ever",
}
NAMES = (*(name for name in SCHEDULERS if name not in NOT_HERE),
         "modified-baseline:load_when=no-idle", "round-robin:variant=d", "autoscale:of=planned")


@pytest.mark.parametrize(("name", "load"), [
    (name, load) for load in ("grid", "azure") for name in NAMES
    if load == "grid" or name not in NOT_ON_AZURE])
def test_the_plain_engine_on_clusters(benchmark, ledger, name, load):
    scenario = clockwork.grid(2400, 12, 12, 10.0) if load == "grid" else clockwork.azure(4, 2.5)
    requests = draw_requests(scenario, 0)
    assert len(requests) > 22_000
    compare(benchmark, ledger, scenario, requests, name, load)


@pytest.mark.parametrize(("load", "memory", "share"), [
    ("grid", 1.0, 1.0), ("azure", 1.0, 0.9862), ("azure", 0.25, 0.9862)])
def test_the_bound(benchmark, ledger, monkeypatch, load, memory, share):
    monkeypatch.setattr(clockwork, "GPU_MEMORY_MB", memory * clockwork.GPU_MEMORY_MB)
    scenario = clockwork.grid(2400, 12, 12, 10.0) if load == "grid" else clockwork.azure(5, 2.5)
    requests = draw_requests(scenario, 0)
    bound, timing = repeated(benchmark, partial(scenario_bound, scenario, requests), rounds=3)
    assert bound.share == pytest.approx(share, abs=1e-3)
    ledger.time(f"bound, {load}, {memory:.0%} of the memory: {len(requests) / 1e3:.0f} k", timing,
                5.0)


def test_a_scheme_of_simulate(benchmark, ledger):
    scenario = clockwork.grid(2400, 1, 12, 10.0)
    compare(benchmark, ledger, scenario, draw_requests(scenario, 0), "greedy", "grid")


def compare(
    benchmark: Any, ledger: Ledger, scenario: Scenario, requests: Requests, name: str, load: str
) -> None:
    """Time a scheduler, and enter it against the target."""
    run, timing = repeated(benchmark, partial(served, scenario, requests, name), rounds=3)
    assert run.requests == len(requests)
    assert run.size.sum() + len(run.drop_request) == run.requests
    assert run.in_time.mean() > LEAST_IN_TIME.get((name, load), 0.0)
    ledger.time(f"cluster, {name}, {load}: {run.requests / 1e3:.0f} k", timing,
                run.requests / PER_SECOND)
