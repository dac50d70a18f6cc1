"""Promises of scaling policies against runs that are only counted."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ramsis import load_profile
from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError
from ramsis.profiles import ProfileSet, save
from ramsis.scaling.comparison import Study
from ramsis.scaling.fleet import FleetTerms, ScaledFleet, play
from ramsis.scaling.policy import TableRule, choose_policy
from ramsis.scaling.promise import CONFIDENCE, Promise, PromisedFigure, drawn_arrivals, promise
from ramsis.scaling.synthesis import FleetLoads, fleet_tables
from ramsis.synthesis import SynthesisSettings
from tests.cli.command import refused
from tests.profiles.samples import model
from tests.scaling.test_levels import _arrivals, _walk

_SLO_MS, _INTERVAL_S, _RUNS = 350.0, 15.0, 40


def test_the_mean_and_another_run_are_in_their_intervals():
    """Expected figures that are off by a mean, and scatter about it: skewed, as violations are."""
    rng = np.random.default_rng(0)
    repeats, mean_in, run_in = 400, 0, 0
    for _ in range(repeats):
        of = PromisedFigure.of(rng.gamma(2.0, 1.0, (150, 2)), 0.5 + 0.3 * rng.standard_normal(24))
        mean_in += abs(of.mean - 2.5) <= of.half_width
        run_in += of.low <= rng.gamma(2.0, 1.0) + 0.5 + 0.3 * rng.standard_normal() <= of.high
    assert mean_in >= (CONFIDENCE - 0.02) * repeats
    assert run_in >= (CONFIDENCE - 0.02) * repeats
    assert of.half_width < 0.5


def promising(late: float, half_width: float) -> Promise:
    """A promise of this violation rate, and of 0.8 in effective accuracy."""
    figures = [PromisedFigure(mean, half, 0.0, 1.0)
               for mean, half in ((5.0, 0.1), (late, half_width), (0.8, 0.01))]
    return Promise(*figures, runs=24, run_s=600.0)


def test_a_target_is_met_by_the_mean_and_clearly_by_the_interval():
    found = promising(0.018, 0.005)
    assert found.meets(Targets(0.02))
    assert not found.clear(Targets(0.02))
    assert found.clear(Targets(0.03))
    assert not found.meets(Targets(0.01))
    assert found.clear(Targets(0.01))
    assert not found.clear(Targets(0.015))
    assert not found.meets(Targets(0.03, None, 0.805))
    assert not found.clear(Targets(0.03, None, 0.795))


def test_policies_are_chosen_for_stricter_aims_until_the_promise_meets_the_target(monkeypatch):
    """What a policy promises is three times the violations that it was chosen for."""
    study = Study(load_profile("image-cpu"), 350.0, Targets(0.02), "round-robin", 0,
                  np.arange(0.0, 600e3, 100.0), 600.0, 15.0, 1, 4, 4)
    aims: list[float] = []
    floor = 0.0

    def chosen(self: Study, startup_s: float, on_play: Any, aim: Targets) -> float:
        aims.append(aim.max_violation)
        return aim.max_violation

    monkeypatch.setattr(Study, "chosen", chosen)
    monkeypatch.setattr(Study, "promised", lambda self, aim, startup_s, on_play: promising(
        max(3.0 * aim, floor), 0.001))
    monkeypatch.setitem(study.__dict__, "tables", SimpleNamespace(most=4))
    _, found = study.kept(10.0)
    assert found.violation_rate.mean == pytest.approx(0.02)
    assert aims == pytest.approx([0.02, 0.02 / 3.0])
    floor = 0.025
    with pytest.raises(InfeasibleError, match=r"at most 0.02 .*up to 4 workers.*0.025 ± 0.001"):
        study.kept(10.0)


@pytest.mark.slow
def test_a_target_that_one_kind_course_of_the_load_meets_is_refused(run, tmp_path):
    """Bursts of 5 requests/s for six workers of 1 s: the first half happens to lose few."""
    profile, trace = tmp_path / "slow.json", tmp_path / "bursts.txt"
    save(ProfileSet("slow", (model("slow", 0.9, {1: 1000.0}),)), profile)
    trace.write_text("".join(f"{60 * at} {5 if at // 5 % 2 else 1}\n" for at in range(41)))
    asked = ["scale", "--profiles", profile, "--trace", trace, "--slo-ms", 4000, "--startup-s", 15,
             "--levels", 4, "--max-violation", 0.02]
    refused(run(*asked, "--max-workers", 6, "--out", tmp_path / "few"), 4, "0.02", "6 workers",
            "promises")
    assert not (tmp_path / "few").exists()
    enough = run(*asked, "--max-workers", 8, "--out", tmp_path / "enough", "--json")
    assert enough.code == 0, enough.err
    promised = json.loads(enough.out)["promise"]["violation_rate"]
    assert promised["mean"] <= 0.02


@pytest.mark.slow
def test_runs_cost_and_deliver_what_is_promised():
    loads = _walk(120, 0.5, seed=3) / 8.0
    arrivals = _arrivals(loads)
    target, seconds = Targets(0.001, None, 0.79), 120 * _INTERVAL_S
    tables = fleet_tables(
        load_profile("image-cpu"),
        SynthesisSettings(slo_ms=_SLO_MS, workers=1, dispatch="round-robin", headroom=0.0),
        target, FleetLoads(float(loads.min()), 1.5 * float(loads.max()), 6, 1, 4))
    played = tables.for_fleet()
    fleet = ScaledFleet(_SLO_MS, 20.0, _INTERVAL_S, 1, 4)
    chosen = choose_policy(arrivals, tables, target, fleet, duration_s=seconds)
    promised = promise(chosen, tables, played, fleet, intervals=120, seed=1, target=target)
    runs = []
    for rng in np.random.default_rng(2).spawn(_RUNS):
        times, first_qps = drawn_arrivals(chosen.dynamics, 120, rng)
        runs.append(play(times, played, TableRule(chosen.table), FleetTerms(
            slo_ms=_SLO_MS, startup_s=20.0, interval_s=_INTERVAL_S, least=1, most=4,
            start=chosen.table.wanted(first_qps, 0, 0), duration_s=seconds)))
    for known, figures in ((promised.workers, [run.worker_s / seconds for run in runs]),
                           (promised.violation_rate, [run.violation_rate for run in runs]),
                           (promised.effective_accuracy,
                            [run.effective_accuracy for run in runs])):
        error = np.std(figures, ddof=1) / _RUNS ** 0.5
        assert abs(np.mean(figures) - known.mean) <= known.half_width + 3.0 * error
        assert np.mean([known.low <= one <= known.high for one in figures]) >= 0.95
    assert promised.workers.half_width <= 0.03 * promised.workers.mean
