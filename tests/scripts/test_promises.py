"""The checks that promises are held to: their settings, what breaks them, and resumption."""

import json
from argparse import Namespace

import pandas as pd
import promises
import promises_from_samples as samples
import promises_on_profiles as profiles
import pytest
from promises_on_profiles import Setting, capacity_qps
from study import spread

from ramsis.errors import InfeasibleError
from ramsis.policy import DISPATCHES

FIRST = Namespace(seed=1)


def holds(judge, *rows, **terms):
    figures, _ = judge(pd.json_normalize(list(rows)), **terms)
    return all(figure.holds for figure in figures)


def rates(effective, late=0.0, error=1e-5):
    means = {"effective_accuracy": effective, "violation_rate": late, "gain": effective - late}
    return {**means, **{f"{name}_error": error for name in means}}


def test_settings_are_those_that_are_said(monkeypatch):
    robust = profiles.headroom_settings(FIRST)
    assert len({one.profile for one in robust}) == 3
    assert all(0.4 <= one.share <= 0.9 for one in robust)
    few = profiles.few_workers(FIRST)
    assert len(few) == 240
    assert {one.workers for one in few} == {1, 2, 3, 4}
    monkeypatch.setattr(profiles, "DRAWN", 60)
    drawn = profiles.random_settings(Namespace(seed=3))
    assert drawn == profiles.random_settings(Namespace(seed=3)) != profiles.random_settings(FIRST)
    assert {one.dispatch for one in drawn} == set(DISPATCHES)
    assert {one.options.get("batching") for one in drawn} == {None, "variable"}
    assert all(0.2 <= one.share <= 1.1 and 1 <= one.workers <= 200 for one in drawn)


@pytest.mark.parametrize("service", ["p95", "distribution"])
def test_the_capacity_is_that_of_policies(service):
    options = {"service": service, "grid": "fixed:10", "headroom": 0.0}
    known = capacity_qps("digits-cpu", 3.0, 2, "round-robin", **options)
    setting = Setting("digits-cpu", 3.0, 2, 0.5 * known, 0.5, "round-robin", options)
    assert setting.policy().expectations.capacity_qps == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("lost", "slower", "spells", "stated", "says"), [
    (0.0005, 0.2, 0.8, 0.002, True), (0.0005, 0.3, 0.8, 0.003, False),
    (0.0005, 0.2, 1.1, 0.002, False), (0.002, 0.2, 0.8, 0.002, False),
    (0.0005, 0.2, 0.8, 0.0, False)])
def test_headroom_has_to_be_cheap_to_help_and_to_be_stated(lost, slower, spells, stated, says):
    row = {"robust": {"promised": 0.9 - lost, "usual": rates(0.9), "stated": stated,
                      "slower": rates(0.9, 0.01 * slower), "spells": rates(0.9, 0.01 * spells)},
           "pure": {"promised": 0.9, **dict.fromkeys(profiles.TIMES, rates(0.9, 0.01))},
           "stated": stated}
    assert holds(profiles.judge_headroom, row, row) == says


@pytest.mark.parametrize(("share", "off", "says"), [
    (0.9, 0.0025, True), (0.9, 0.0035, False), (0.9, -0.0035, False), (1.0, 0.02, True)])
def test_promises_are_held_to_simulation_below_capacity(share, off, says):
    row = {"promised": 0.9, "promised_error": 0.0, "share": share, "simulated": rates(0.9 + off)}
    assert holds(profiles.judge_promises, row, upto=0.95) == says


@pytest.mark.parametrize(("central", "seconds", "says"), [
    (0.8997, 1.0, True), (0.8990, 1.0, False), (0.9, 3.5, False)])
def test_a_central_queue_is_no_worse_than_the_others(central, seconds, says):
    row = {"central": rates(central), "per_worker": rates(0.9), "greedy": rates(0.8),
           "synthesis_s": seconds}
    assert holds(profiles.judge_others, row) == says


@pytest.mark.parametrize(("promised", "says"), [(0.502, True), (0.51, False), (None, False)])
def test_each_figure_is_held_to_its_tolerance(promised, says):
    figure = {"name": "utilisation", "simulated": 0.5, "error": 0.0}
    rows = [{"replayed": True, "figures": [{**figure, "promised": 0.5}]},
            {"replayed": True, "figures": [{**figure, "promised": promised}]}]
    assert holds(profiles.judge_figures, *rows) == says


@pytest.mark.slow
def test_a_promise_of_rare_outliers_holds():
    case = samples.RawCase("outlier", "round-robin", 1, 60.0, 60.0, 2000, None, 1)
    found = samples.replayed_promise(case, 50)
    assert found["holds"]
    assert found["replayed_violation_rate"] > 0.002


def test_a_budget_that_samples_cannot_support_is_refused_with_a_number():
    found = samples.replayed_promise(
        samples.RawCase("log-normal", "round-robin", 1, 60.0, 60.0, 200, 0.0005, 1), 3000)
    assert found["holds"]
    assert "samples or more" in found["refused"]


def test_budgets_that_are_refused_or_broken_are_misses():
    few = {"upper_end": 0.02, "violation_rate": 0.01, "error": 0.0}
    row = {"few": few, "many": few, "budget": {"violation_rate": 0.009, "error": 0.0}}
    refused = {"few": few, "many": few, "refused": "too few samples"}
    broken = {**row, "budget": {"violation_rate": 0.012, "error": 0.0}}
    assert [holds(samples.judge_few, row, one) for one in (row, refused, broken)] == [
        True, False, False]


def test_results_are_kept_and_failures_are_misses(tmp_path, monkeypatch, capsys):
    made = []

    def measure(setting, shorter):
        made.append(setting.workers)
        if setting.workers == 2:
            raise InfeasibleError("no policy")
        return {"value": 1000 // shorter}

    check = promises.Check(lambda given: [
        Setting("digits-cpu", 25.0, workers, 100.0, 0.1, "round-robin") for workers in (1, 2, 3)],
        measure, lambda rows: ([], {}))
    monkeypatch.setattr(promises, "checks", lambda: {"headroom": check})
    out = tmp_path / "deep" / "rows.jsonl"
    arguments = ["headroom", "--out", str(out), "--quick"]
    assert promises.main([*arguments, "--only", "2"]) == 0
    assert made == [1, 3]
    with out.open("a", encoding="utf-8") as stream:
        stream.write('{"key": "cut o')
    assert promises.main(arguments) == 1
    assert made == [1, 3, 2]
    assert "DOES NOT HOLD" in capsys.readouterr().out
    assert promises.main([*arguments, "--match", "workers 3"]) == 0
    assert len(made) == 3
    first = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert (first["workers"], first["value"]) == (1, 100)


def test_a_part_of_the_settings_is_spread_over_all():
    assert [spread(range(10), 4), spread(range(3), 7), spread(range(3), 1)] == [
        [0, 3, 6, 9], [0, 1, 2], [0]]
