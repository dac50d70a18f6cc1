"""The shipped profile sets are valid and give policies at the paper's three kinds of SLO."""

import math
from pathlib import Path

import pytest

from ramsis import profiles
from ramsis.bounds import fluid_bound
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.recipes.recipe import latency_table
from tests.slow import slow_after

ROOT = Path(__file__).resolve().parents[2]
SETS = sorted(path.stem for path in (ROOT / "profiles").glob("*.json"))


def slos_ms(profile: profiles.ProfileSet) -> list[float]:
    """Half, equal to and 1.5 times the slowest model's p95 latency, up to full 5 ms."""
    slowest = max(model.batches[0].p95_ms for model in profile.models)
    return [5.0 * math.ceil(share * slowest / 5.0) for share in (0.5, 1.0, 1.5)]


def test_there_are_an_image_a_text_and_a_small_set():
    assert set(SETS) >= {"digits-cpu", "image-cpu", "text-cpu", "image-h100", "text-h100",
                         "minilm-cpu"}
    assert len(profiles.load("image-cpu").models) >= 9
    assert len(profiles.load("text-cpu").models) == 5


@pytest.mark.parametrize("name", SETS)
def test_a_shipped_set_says_how_it_was_measured(name):
    profile = profiles.load(name)
    assert profile.name == name
    assert {"cpu", "threads", "system"} <= set(profile.hardware)
    assert {"date", "accuracy", "latency", "versions"} <= set(profile.measurement)
    for model in profile.models:
        assert [batch.batch for batch in model.batches][:2] == [1, 2]
        for batch in model.batches:
            assert batch.n >= 100
            assert len(batch.quantiles_ms) >= 64


# A single model, whose latencies by batch size are those of its longest texts, leaves no choice.
@pytest.mark.parametrize(("name", "kind"), slow_after(2, [
    (name, kind) for kind in range(3) for name in SETS if name != "minilm-cpu"]))
def test_a_shipped_set_gives_policies(name, kind):
    profile = profiles.load(name)
    chosen = SynthesisSettings(slo_ms=slos_ms(profile)[kind], workers=20)
    # The machine of the GPU paused at times, for longer than an SLO of a few ms has slack.
    late = 0.03 if "gpu" in profile.hardware else 0.01
    table = latency_table(profile, chosen)
    capacity = fluid_bound(table, slo_ms=chosen.slo_ms, workers=20, load_qps=1.0,
                           max_batch=chosen.max_queue).capacity_qps
    effective = []
    for share in (0.2, 0.5):
        policy = generate_policy(profile, share * capacity, chosen)
        expected = policy.expectations
        assert expected.violation_rate < late
        assert expected.effective_accuracy <= expected.upper_bound + 1e-9
        effective.append(expected.effective_accuracy)
    assert effective[0] >= effective[1] - late / 2
    assert effective[1] >= min(table.accuracy) * (1 - late)


@pytest.mark.parametrize(("slo_ms", "load_qps"), [(5000.0, 3000.0), (60_000.0, 1000.0)])
def test_a_loose_slo_costs_no_accuracy_where_times_are_drawn(slo_ms, load_qps):
    profile = profiles.load("digits-cpu")
    drawn, fixed = (
        generate_policy(profile, load_qps, SynthesisSettings(
            slo_ms=slo_ms, workers=2, service=service)).expectations.effective_accuracy
        for service in ("distribution", "p95"))
    assert drawn > fixed - 0.002
