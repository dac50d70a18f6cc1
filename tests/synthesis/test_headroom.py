"""Headroom: what it costs, what it saves, what the file says of it, and that it is checked."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy, read, write
from ramsis.sim import ConstantLoad, Policies, SimulationSettings, SlowSpells, simulate
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.headroom import FACTORS, PlayedFigures, most_robust, replayed_at
from ramsis.synthesis.recipes import RECIPES
from ramsis.synthesis.recipes.worker_headroom import PlannedTables, WorkerPlan
from ramsis.synthesis.simulated import simulated
from ramsis.verify import verify_policy
from ramsis.worker.solve import WorkerModel

PROFILE = profiles.load("digits-cpu")
GIVEN: dict[str, Any] = {"slo_ms": 25.0, "workers": 4, "grid": "fixed:40", "max_queue": 16}
LOAD_QPS = 1600.0


@cache
def made(headroom: float) -> Policy:
    return generate_policy(PROFILE, LOAD_QPS, SynthesisSettings(**GIVEN, headroom=headroom))


def rates(policy: Policy, slower: float = 1.0, spells: SlowSpells | None = None) -> Any:
    models = [replace(model, batches=tuple(
        replace(one, **{name: tuple(x * slower for x in value) if isinstance(value, tuple)
                        else value * slower
                        for name, value in vars(one).items()
                        if name.endswith("_ms") and value is not None})
        for one in model.batches)) for model in PROFILE.models]
    cluster = Cluster.of(replace(PROFILE, models=tuple(models)), workers=4, slo_ms=25.0)
    return simulate(cluster, Policies((policy,)), ConstantLoad(LOAD_QPS, 60_000.0),
                    SimulationSettings(service="distribution", slow_spells=spells))


def test_it_costs_no_more_than_allowed_and_saves_most_violations() -> None:
    pure, robust = made(0.0), made(0.003)
    assert pure.headroom is None
    record = robust.headroom
    assert record is not None
    assert record.factor in FACTORS
    lost = pure.expectations.effective_accuracy - robust.expectations.effective_accuracy
    assert record.loss == pytest.approx(lost, abs=3e-4)  # both are measured
    assert 0.0 < record.loss <= 0.003
    assert record.violation_rate < record.violation_rate_without / 4
    assert robust.certificate.gain < pure.certificate.gain
    assert robust.certificate.gain_upper == pytest.approx(pure.certificate.gain_upper, abs=1e-9)


@pytest.mark.slow
def test_simulation_agrees_when_service_takes_longer_and_in_spells() -> None:
    pure, robust = made(0.0), made(0.003)
    record = robust.headroom
    assert record is not None
    for policy, slower, effective in (
        (robust, 1.0, robust.expectations.effective_accuracy),
        (robust, 1.1, record.effective_accuracy),
        (pure, 1.1, record.effective_accuracy_without),
    ):
        found = rates(policy, slower).estimate("effective_accuracy").mean
        assert found == pytest.approx(effective, abs=0.004)
    late = {policy: rates(policy, 1.1).estimate("violation_rate").mean
            for policy in (pure, robust)}
    assert late[robust] < late[pure] / 4
    spells = SlowSpells(0.05, 3.0, 100.0)
    late = {policy: rates(policy, 1.0, spells).estimate("violation_rate").mean
            for policy in (pure, robust)}
    assert late[robust] < late[pure]


@pytest.mark.slow
def test_the_file_says_so_and_every_number_of_it_is_checked(tmp_path: Path) -> None:
    path, policy = tmp_path / "policy.json", generate_policy(
        PROFILE, LOAD_QPS, SynthesisSettings(**{**GIVEN, "grid": "fixed:15", "max_queue": 6}))
    write(policy, path)
    assert read(path).to_document() == policy.to_document()
    assert all(check.holds for check in verify_policy(path))
    record = policy.headroom
    assert record is not None
    for change in ({"loss": record.loss + 0.001}, {"factor": 1.05},
                   {"slower": 1.2}, {"violation_rate": record.violation_rate + 0.001},
                   {"effective_accuracy_without": record.effective_accuracy_without - 0.001}):
        write(replace(policy, headroom=replace(record, **change)), path)
        assert not all(check.holds for check in verify_policy(path)), change


def test_planned_tables_are_those_that_the_solver_proves() -> None:
    problem = RECIPES["round-robin"].problem(PROFILE, LOAD_QPS, SynthesisSettings(**GIVEN))
    worker = WorkerModel(problem)
    tables = PlannedTables(worker, "policy-iteration", GIVEN["grid"], made(0.0))
    optimum = WorkerPlan(worker.solve().policy, 1.0, problem.slack_ms)
    for factor in FACTORS:
        plan = tables.planned(factor, optimum)
        assert plan is not None
        proven = WorkerModel(problem.planned(factor, GIVEN["grid"])).solve()
        assert proven.certificate.converged
        assert_array_equal(plan.table, proven.policy)


def test_the_largest_factor_within_the_headroom_is_found() -> None:
    loss = {1.0: 0.0, 1.025: 0.0005, 1.05: 0.002, 1.075: 0.004, 1.1: 0.01}
    for headroom, factor in ((0.02, 1.1), (0.005, 1.075), (0.003, 1.05), (0.001, 1.025),
                             (1e-4, 1.0)):
        chosen = most_robust(
            1.0, lambda f: f,
            lambda f, slower: PlayedFigures(0.9 - loss[f], 0.0, 0.9 - loss[f]), headroom)
        assert (chosen.plan, chosen.record.factor) == (factor, factor)
        assert chosen.record.loss == pytest.approx(loss[factor])


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("most", [1.03, 1.06, 1.2])
def test_it_is_found_whatever_the_loss_rises_like(power: float, most: float) -> None:
    """Also where nothing can be planned for the longest times; few are tried."""
    for lost in (0.0, 1e-4, 0.0029, 0.0041, 0.01, 0.1):
        tried = list[float]()

        def planned(factor: float, tried: list[float] = tried) -> float | None:
            tried.append(factor)
            return factor if factor < most else None

        def played(factor: float, slower: float, lost: float = lost) -> PlayedFigures:
            value = 0.9 - lost * ((factor - 1.0) / 0.1) ** power
            return PlayedFigures(value, 0.0, value)

        known = max([1.0, *(f for f in FACTORS if f < most
                            and lost * ((f - 1.0) / 0.1) ** power <= 0.003)])
        assert most_robust(1.0, planned, played, 0.003).record.factor == known
        assert len(tried) == len(set(tried)) <= len(FACTORS)


def test_there_is_none_per_decision_unless_it_is_asked_for() -> None:
    assert SynthesisSettings(slo_ms=25, workers=4, objective="per-decision").headroom == 0.0
    asked = SynthesisSettings(slo_ms=25, workers=4, objective="per-decision", headroom=0.01)
    assert asked.headroom == 0.01
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(InvalidValueError, match="headroom: not a loss of accuracy"):
            SynthesisSettings(slo_ms=25, workers=4, headroom=value)


def test_replays_under_bursts_hold_many_of_them() -> None:
    """Runs of a burst or none differ by far more."""
    policy = made(0.0)
    bursty = replace(policy, arrivals={"process": "mmpp", "ratio": 4.0, "burst_ms": 10_000.0,
                                       "share": 0.2})
    found = replayed_at(bursty, 1.1)
    assert found is not None
    long = simulated(bursty, queries=20_000_000, runs=20, seed=5, slower=1.1)
    assert found.half_width < 0.002
    assert abs(found.effective_accuracy - long.effective_accuracy) < (
        found.half_width + long.effective_half_width)
    slow = replace(bursty, arrivals={**bursty.arrivals, "burst_ms": 400_000.0})
    assert replayed_at(slow, 1.1) is None
