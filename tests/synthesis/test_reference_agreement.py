"""Agreement with the published artifact of the RAMSIS paper on its image task.

60 workers, an SLO of 150 ms, p95 latencies, the reward per decision; the expected accuracy is
stated per query.
"""

import csv

import numpy as np
import pytest

from ramsis.analysis import analyse_worker
from ramsis.arrivals import Poisson
from ramsis.bounds import fluid_bound
from ramsis.profiles import LatencyTable, pareto_front
from ramsis.profiles.importers import import_profile
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import solve_worker

MODELS = (
    "shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b2",
    "efficientnet_b3", "efficientnet_b4", "efficientnet_v2_s", "efficientnet_v2_m",
    "efficientnet_v2_l",
)
BOUNDS = {400: 0.8423, 800: 0.8246, 1200: 0.8034, 1600: 0.7776, 2000: 0.7588, 2400: 0.7461,
          2800: 0.7370, 3200: 0.7302, 3600: 0.6517, 4000: 0.5865}
"""Figures of the fluid bound, to four digits."""


@pytest.fixture(scope="module")
def images(reference_dir):
    return import_profile(reference_dir / "ramsis_image_profiles.csv", models=MODELS)


@pytest.fixture(scope="module")
def promised(reference_dir):
    """Load → expected accuracy and violation rate of the artifact."""
    with open(reference_dir / "ramsis_image_results.csv", newline="") as stream:
        return {
            float(row["load_qps"]): (float(row["expected_accuracy"]),
                                     float(row["expected_violation_rate"]))
            for row in csv.DictReader(stream) if row["expected_accuracy"]
        }


def test_the_models_are_the_front_of_all_that_were_measured(reference_dir):
    everything = import_profile(reference_dir / "ramsis_image_profiles.csv")
    assert pareto_front(everything.latency_table("p95", 32)) == MODELS


@pytest.mark.parametrize("load_qps", [400, 1600, 2400, 3200])
def test_promises_are_those_of_the_artifact(images, promised, load_qps):
    chosen = SynthesisSettings(slo_ms=150.0, workers=60, objective="per-decision")
    found = generate_policy(images, float(load_qps), chosen).expectations
    accuracy, violation_rate = promised[load_qps]
    allowed = 0.002 if load_qps <= 2800 else 0.008
    assert found.accuracy == pytest.approx(accuracy, abs=allowed)
    assert found.violation_rate == pytest.approx(violation_rate, abs=allowed)


@pytest.fixture(scope="module")
def artifact_table(images):
    """The artifact's own latencies: a straight line through the measured batches where one is
    missing, then the running minimum from the largest batch down."""
    rows = []
    for model in images.models:
        known = {item.batch: item.p95_ms for item in model.batches}
        slope, first = np.polyfit(list(known), list(known.values()), 1)
        row = [known.get(b, slope * b + first) for b in range(1, 34)]
        rows.append(np.minimum.accumulate(row[::-1])[::-1])
    return LatencyTable.measured(MODELS, [model.accuracy for model in images.models], rows)


@pytest.mark.parametrize("load_qps", [800, 2000, 2800, 3200])
def test_with_the_artifacts_latencies_accuracies_are_the_same(artifact_table, promised, load_qps):
    problem = WorkerProblem.create(artifact_table, slo_ms=150.0, workers=60,
                                   arrivals=Poisson(float(load_qps)), objective="per-decision")
    solved = solve_worker(problem)
    found = analyse_worker(problem, solved.policy, solved.frequency, solved.excess)
    accuracy, violation_rate = promised[load_qps]
    assert found.accuracy == pytest.approx(accuracy, abs=0.0005)
    assert found.violation_rate == pytest.approx(violation_rate, abs=0.0005)


@pytest.mark.parametrize("load_qps", [1600, 3200])
def test_per_query_policies_have_more_effective_accuracy(images, load_qps):
    by_query, by_decision = (
        generate_policy(images, float(load_qps), SynthesisSettings(
            slo_ms=150.0, workers=60, objective=objective, headroom=0.0, violation_price=0.0,
        )).expectations.effective_accuracy
        for objective in ("per-query", "per-decision")
    )
    assert by_query >= by_decision - 1e-9


@pytest.mark.parametrize(("load_qps", "figure"), BOUNDS.items())
def test_the_fluid_bound_has_the_known_figures(images, load_qps, figure):
    found = fluid_bound(images.latency_table("p95", 32), slo_ms=150.0, workers=60,
                        load_qps=float(load_qps), max_batch=32)
    assert found.effective_accuracy == pytest.approx(figure, abs=1e-4)
    assert found.capacity_qps == pytest.approx(3812, abs=1)
