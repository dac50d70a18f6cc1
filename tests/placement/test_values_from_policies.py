"""Placements from what policies deliver, joined through a value table only."""

import itertools
import json
from dataclasses import asdict

import pytest

import ramsis
from placement_milp import (
    Family,
    Limits,
    Placement,
    Problem,
    ValueRow,
    Values,
    WorkerType,
    check_placement,
    place,
    read_values,
    variants_from_profile,
)
from ramsis.errors import InvalidValueError
from ramsis.policy import Expectations
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet

FAMILIES = (Family("urgent", 60.0, 60.0), Family("patient", 150.0, 120.0))
MODEL_SETS = (("small",), ("large",), ("small", "large"))
WORKERS = 4


@pytest.fixture(scope="module")
def profile():
    def model(name: str, accuracy: float, first_ms: float, step_ms: float) -> ModelProfile:
        return ModelProfile(name, accuracy, tuple(
            BatchProfile(b, p95_ms=first_ms + step_ms * (b - 1)) for b in range(1, 11)),
            memory_mb=100.0, load_ms=500.0)

    return ProfileSet("two", (model("small", 0.7, 6.0, 2.0), model("large", 0.9, 20.0, 8.0)))


def promise(
    profile: ProfileSet, models: tuple[str, ...], workers: int, load_qps: float, slo_ms: float
) -> Expectations:
    settings = ramsis.SynthesisSettings(
        slo_ms=slo_ms, workers=workers, grid="fixed:8", max_queue=8, headroom=0.0)
    policy = ramsis.generate_policy(profile.subset(models), load_qps, settings)
    expected: Expectations = policy.expectations
    return expected


@pytest.fixture(scope="module")
def tables(profile):
    """What policies make of 1 to 3 workers at a third and at all of each demand."""
    found = []
    for family in FAMILIES:
        rows = []
        for models, workers, thirds in itertools.product(MODEL_SETS, (1, 2, 3), (1, 3)):
            load_qps = family.demand_qps * thirds / 3
            expected = promise(profile, models, workers, load_qps, family.slo_ms)
            rows.append(ValueRow(
                "cpu", tuple(f"{family.name}/{model}" for model in models), workers, load_qps,
                family.slo_ms, expected.effective_accuracy, expected.violation_rate))
        found.append(Values(family.name, tuple(rows)))
    return tuple(found)


def problem(profile: ProfileSet, values: tuple[Values, ...] = ()) -> Problem:
    variants = itertools.chain.from_iterable(
        variants_from_profile(profile, family.name, "cpu", batches=range(1, 9))
        for family in FAMILIES)
    return Problem("two", FAMILIES, (WorkerType("cpu", WORKERS, 250.0),), tuple(variants),
                   values=values)


def delivered(profile: ProfileSet, placement: Placement) -> float:
    """Effective accuracy that policies give on the workers, models and loads of a placement."""
    right = 0.0
    for group in placement.groups:
        (use,) = group.uses
        family = next(family for family in FAMILIES if family.name == use.family)
        fleets = len(group.workers) // group.together
        workers = group.together if use.batch is None else len(group.workers)
        load_qps = use.load_qps * (1 if use.batch is None else fleets)
        models = tuple(name.partition("/")[2] for name in use.variants)
        expected = promise(profile, models, workers, load_qps, family.slo_ms)
        right += expected.effective_accuracy * load_qps * (fleets if use.batch is None else 1)
    return right / sum(family.demand_qps for family in FAMILIES)


@pytest.mark.slow
def test_the_joint_placement_delivers_what_it_promises_and_more_than_rates_do(profile, tables):
    by_rate, joint = place(problem(profile)), place(problem(profile, tables))
    assert delivered(profile, by_rate) < by_rate.objective - 0.02  # rates promise too much
    assert delivered(profile, joint) >= joint.objective - 1e-6
    assert joint.objective > delivered(profile, by_rate) + 0.01
    assert joint.status == "optimal"
    assert all(use.batch is None for group in joint.groups for use in group.uses)


def test_a_sub_fleet_is_named_checked_and_sent_no_more_than_its_row(profile, tables):
    asked = problem(profile, tables)
    joint = place(asked, Limits(solver="cbc"))
    check_placement(asked, joint)
    assert joint.objective == pytest.approx(place(asked).objective, abs=1e-6)
    assert sum(len(group.workers) for group in joint.groups) <= WORKERS
    assert all(group.memory_mb == 100.0 * len(group.uses[0].variants) for group in joint.groups)


def test_tables_survive_a_file(tables, tmp_path):
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"format": "ramsis.value-table/1",
                                "rows": [asdict(row) for row in tables[0].rows]}))
    assert read_values(path) == tables[0].rows


def test_variants_need_memory(profile):
    bare = ProfileSet("bare", (ModelProfile("m", 0.5, profile.models[0].batches),))
    with pytest.raises(InvalidValueError, match="m: model has no memory_mb"):
        variants_from_profile(bare, "f", "cpu")
