"""What a policy promises is what its file delivers in simulation.

The promise comes from the policy's stationary distribution, the simulation replays the file: two
ways that share no code. Rounding slack down makes promises a little pessimistic, hence the margin
of 0.001 above the promise but none below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ramsis.profiles import ProfileSet
from ramsis.profiles.importers import import_profile
from ramsis.sim import PoissonLoad, WorkerPolicies, simulate
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.sim.samples import tiny, tiny_policy
from tests.synthesis.test_reference_agreement import MODELS


@pytest.fixture(scope="module")
def images(reference_dir: Path) -> ProfileSet:
    return import_profile(reference_dir / "ramsis_image_profiles.csv", models=MODELS)


@pytest.mark.parametrize("load_qps", [800.0, 1600.0, 2400.0, 2800.0])
@pytest.mark.parametrize("grid", ["fixed:100", "fixed:400"])
@pytest.mark.parametrize("objective", ["per-query", "per-decision"])
def test_image_policies_below_saturation(
    images: ProfileSet, objective: str, grid: str, load_qps: float
) -> None:
    chosen = SynthesisSettings(slo_ms=150.0, workers=60, objective=objective, grid=grid)
    policy = generate_policy(images, load_qps, chosen)
    found = simulate(images, WorkerPolicies((policy,)), PoissonLoad(load_qps, 60_000.0),
                     workers=60, slo_ms=150.0, seeds=range(10)).estimate("effective_accuracy")
    promised = policy.expectations.effective_accuracy
    assert found.half_width is not None
    assert found.half_width < 0.001
    assert abs(found.mean - promised) <= 0.001 + found.half_width
    assert found.mean >= promised - found.half_width


@pytest.mark.parametrize(
    ("workers", "load_qps"),
    [(60, 800.0), (60, 2000.0), (60, 3200.0), (20, 267.0), (20, 933.0)],
)
def test_image_policies_for_the_shortest_queue(
    images: ProfileSet, workers: int, load_qps: float
) -> None:
    """Their arrival rates are an approximation, so the margin is that of the documentation."""
    chosen = SynthesisSettings(slo_ms=150.0, workers=workers, dispatch="shortest-queue")
    policy = generate_policy(images, load_qps, chosen)
    found = simulate(images, WorkerPolicies((policy,)), PoissonLoad(load_qps, 30_000.0),
                     workers=workers, slo_ms=150.0, seeds=range(3)).estimate("effective_accuracy")
    assert abs(found.mean - policy.expectations.effective_accuracy) <= 0.006


@pytest.mark.parametrize("load_qps", [100.0, 300.0, 500.0])
@pytest.mark.parametrize("objective", ["per-query", "per-decision"])
def test_small_fleets_too(objective: str, load_qps: float) -> None:
    policy = tiny_policy(load_qps, objective=objective, grid="fixed:400", max_queue=32)
    found = simulate(tiny(), WorkerPolicies((policy,)), PoissonLoad(load_qps, 200_000.0),
                     workers=4, slo_ms=100.0, seeds=range(10)).estimate("effective_accuracy")
    promised = policy.expectations.effective_accuracy
    assert found.half_width is not None
    assert abs(found.mean - promised) <= 0.002 + found.half_width
    assert found.mean >= promised - found.half_width
