"""The cluster engine with its schedulers, on Clockwork's grid and on the Azure-like load.

Every benchmark asserts that all requests were answered or dropped, and most of them in time, so
that speed cannot come from serving fewer.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim.cluster import ClusterEngine, ClusterRun, scheduler
from tests.bench.ledger import Ledger
from tests.bench.timing import repeated

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "clockwork.py"
PER_SECOND = 100_000


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clockwork_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["clockwork_script"] = module
    spec.loader.exec_module(module)
    return module


def served(scenario: Scenario, requests: Requests, name: str) -> ClusterRun:
    return ClusterEngine(scenario, requests=requests).serve(scheduler(name))


@pytest.mark.parametrize(("name", "load", "least"), [
    ("clockwork", "grid", 0.95), ("planned", "grid", 0.98), ("clockwork", "azure", 0.99),
    ("planned", "azure", 0.99),
])
def test_the_plain_engine_on_clusters(
    benchmark: Any, ledger: Ledger, script: ModuleType, name: str, load: str, least: float
) -> None:
    scenario = script.grid(2400, 12, 12, 20.0) if load == "grid" else script.azure(4, 5.0)
    requests = draw_requests(scenario, 0)
    run, timing = repeated(benchmark, partial(served, scenario, requests, name), rounds=3)
    assert run.requests == len(requests) > 45_000
    assert run.size.sum() + len(run.drop_request) == run.requests
    assert run.in_time.mean() > least
    ledger.time(f"cluster engine, {name}, {load}: {run.requests / 1e3:.0f} k requests", timing,
                run.requests / PER_SECOND)
