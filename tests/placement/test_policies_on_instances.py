"""Policies on instances of a GPU that hold several variants: placed with proof, and played."""

import itertools
from dataclasses import replace

import pytest

import ramsis
from placement_milp import (
    Family,
    Problem,
    ValueRow,
    Values,
    WorkerType,
    check_placement,
    place,
    variants_from_profile,
)
from placement_milp.partitions import shipped_partitions
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis.placement.simulated import estimate, simulate_placement

FAMILIES = (Family("urgent", 173.0, 61.0), Family("patient", 127.0, 153.0))
SPEEDS = {"1g.10gb": 1.0, "2g.20gb": 1.9, "3g.40gb": 2.7}
MODEL_SETS = (("small",), ("large",), ("small", "large"))


def profile(speed: float) -> ProfileSet:
    def model(
        name: str, accuracy: float, first_ms: float, step_ms: float, memory_mb: float
    ) -> ModelProfile:
        batches = tuple(BatchProfile(b, p95_ms=(first_ms + step_ms * (b - 1)) / speed)
                        for b in range(1, 11))
        return ModelProfile(name, accuracy, batches, memory_mb=memory_mb, load_ms=500.0)

    return ProfileSet("two", (model("small", 0.7, 9.0, 3.0, 900.0),
                              model("large", 0.9, 31.0, 11.0, 3700.0)))


def value_table(family: Family) -> Values:
    """What policies make of one or two like instances, and of all sets of models."""
    rows = []
    for kind, models, workers in itertools.product(SPEEDS, MODEL_SETS, (1, 2)):
        settings = ramsis.SynthesisSettings(slo_ms=family.slo_ms, workers=workers,
                                            grid="fixed:12", max_queue=8, headroom=0.0)
        expected = ramsis.generate_policy(
            profile(SPEEDS[kind]).subset(models), family.demand_qps, settings).expectations
        rows.append(ValueRow(
            f"a100/{kind}", tuple(f"{family.name}/{model}" for model in models), workers,
            family.demand_qps, family.slo_ms, expected.effective_accuracy,
            expected.violation_rate))
    return Values(family.name, tuple(rows))


@pytest.fixture(scope="module")
def problem():
    variants = []
    for family in FAMILIES:
        of_kinds = [variants_from_profile(profile(speed), family.name, f"a100/{kind}",
                                          batches=range(1, 9)) for kind, speed in SPEEDS.items()]
        for first, *others in zip(*of_kinds, strict=True):
            latency = itertools.chain(first.latency, *(other.latency for other in others))
            variants.append(replace(first, latency=tuple(latency)))
    gpu = WorkerType("a100", 1, 80_000.0, partitions=shipped_partitions()["A100-80GB"])
    return Problem("cut", FAMILIES, (gpu,), tuple(variants),
                   values=tuple(map(value_table, FAMILIES)))


@pytest.mark.slow
def test_instances_that_hold_several_variants_deliver_what_their_policies_promise(problem):
    """In simulation with other arrivals, and more than one variant on each instance could."""
    placement = place(problem)
    check_placement(problem, placement)
    assert placement.status == "optimal"
    uses = [use for group in placement.groups for use in group.uses]
    assert max(len(use.variants) for use in uses) == 2
    played = simulate_placement(problem, placement.groups, duration_ms=60_000.0,
                                seeds=range(71, 76))
    total = sum(family.demand_qps for family in FAMILIES)
    found = [(one.family.demand_qps / total, estimate(one.simulated, "effective_accuracy"),
              one.policies_accuracy) for one in played.families]
    delivered = sum(share * simulated.mean for share, simulated, _ in found)
    promised = sum(share * (accuracy or 0.0) for share, _, accuracy in found)
    error = sum(share * (simulated.half_width or 0.0) for share, simulated, _ in found)
    assert delivered >= placement.objective - error
    assert delivered == pytest.approx(promised, abs=error + 0.001)
    alone = replace(problem, values=tuple(
        replace(values, rows=tuple(row for row in values.rows if len(row.model_set) == 1))
        for values in problem.values))
    assert placement.objective > place(alone).objective + 0.002
