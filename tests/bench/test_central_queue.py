"""Central-queue policies: synthesis, the size of the file, and the lookup."""

from typing import Any

import numpy as np
import pytest

from ramsis import profiles, runtime
from ramsis.policy import Policy, write
from ramsis.profiles import ProfileSet
from ramsis.runtime import Drop, Wait
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.bench.cases import SLO_MS, WORKERS
from tests.bench.ledger import Ledger
from tests.bench.timing import repeated, several

LOADS_QPS = (400.0, 2000.0, 4000.0)
SYNTHESIS_S, LARGE_S, LOOKUP_S, FILE_KB = 1.0, 10.0, 2e-6, 200.0
FEW_S = 3.0
LOOKUPS = 20_000


@pytest.fixture(scope="module")
def image(profile_file):
    """The nine image models."""
    return profiles.load(str(profile_file))


def _made(profile: ProfileSet, load_qps: float, workers: int, **options: Any) -> Policy:
    settings = SynthesisSettings(
        **{"dispatch": "central-queue", "slo_ms": SLO_MS, "workers": workers, **options})
    return generate_policy(profile, load_qps, settings)


def _enter(
    ledger: Ledger, benchmark: Any, profile: ProfileSet, load_qps: float, workers: int,
    target_s: float,
) -> None:
    policy, timing = repeated(benchmark, lambda: _made(profile, load_qps, workers), rounds=5)
    assert policy.certificate.converged
    assert policy.certificate.bellman_residual is not None
    assert policy.certificate.bellman_residual <= 1e-6
    assert policy.codes.size >= min(workers, WORKERS) * 30 * 20
    assert policy.expectations.upper_bound is not None
    assert policy.expectations.effective_accuracy > 0.9 * policy.expectations.upper_bound
    ledger.time(f"{profile.name}, {workers} workers, {load_qps:g} QPS, {policy.service}", timing,
                target_s)


@pytest.mark.parametrize("load_qps", LOADS_QPS)
def test_synthesis(benchmark, ledger, image, load_qps):
    _enter(ledger, benchmark, image, load_qps, WORKERS, SYNTHESIS_S)


@pytest.mark.parametrize("load_qps", LOADS_QPS)
def test_synthesis_with_drawn_service(benchmark, ledger, load_qps):
    _enter(ledger, benchmark, profiles.load("image-cpu"), load_qps, WORKERS, SYNTHESIS_S)


@pytest.mark.parametrize("workers", [4, 1000, 10_000])
def test_synthesis_of_other_sizes(benchmark, ledger, workers):
    _enter(ledger, benchmark, profiles.load("image-cpu"), 120.0 * workers, workers, LARGE_S)


@pytest.mark.parametrize(("name", "slo_ms", "load_qps"), [
    ("digits-cpu", 25.0, 250.0), ("text-cpu", 95.0, 100.0), ("image-cpu", 350.0, 100.0),
])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_few_workers(benchmark, ledger, name, slo_ms, load_qps, workers):
    profile, load_qps = profiles.load(name), load_qps * workers
    policy, timing = repeated(
        benchmark, lambda: _made(profile, load_qps, workers, slo_ms=slo_ms), rounds=3)
    assert policy.headroom is not None
    assert policy.replay is not None
    ledger.time(f"{name}, {workers} workers, {load_qps:g} QPS", timing, FEW_S)
    pure = several(lambda: _made(profile, load_qps, workers, slo_ms=slo_ms, headroom=0.0), 3)
    ledger.ratio(timing, pure, "the same without headroom")


def test_lookup_and_file(benchmark, ledger, image, tmp_path):
    policy, path = _made(image, LOADS_QPS[-1], WORKERS), tmp_path / "policy.json"
    write(policy, path)
    ledger.size("its file", path.stat().st_size / 1000, FILE_KB)
    selector = runtime.load_selector(path)
    rng = np.random.default_rng(0)
    asked = list(zip(rng.integers(0, WORKERS + 5, LOOKUPS).tolist(),
                     rng.integers(1, int(policy.queue_levels[-1]) + 5, LOOKUPS).tolist(),
                     rng.uniform(-20.0, 1.1 * SLO_MS, LOOKUPS).tolist(), strict=True))

    def ask() -> list[Any]:
        return [selector(queued, slack, idle) for idle, queued, slack in asked]

    answers, timing = repeated(benchmark, ask, rounds=30, warmup=2)
    assert sum(isinstance(answer, Drop) for answer in answers) > 0
    assert sum(isinstance(answer, Wait) for answer in answers) > 0
    ledger.time("one lookup of a fleet", timing.scaled(1 / LOOKUPS), LOOKUP_S)
