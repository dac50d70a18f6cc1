"""The lines that promises are held to: their settings, what breaks them, and resumption."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))

from acceptance import command, few_workers, headroom, random_settings  # noqa: E402
from acceptance.line import Line, Row, Verdict, spread  # noqa: E402
from acceptance.setting import Effort, Setting, capacity_qps  # noqa: E402

from ramsis.errors import InfeasibleError  # noqa: E402
from ramsis.policy import DISPATCHES  # noqa: E402

SETTING = Setting("digits-cpu", 25.0, 1, 400.0, 0.2, "central-queue")


def row(setting: Setting = SETTING, **found: Any) -> Row:
    return {**setting.as_dict(), **found, "seconds": 1.0}


def rates(effective: float, late: float, error: float = 1e-5) -> Row:
    return {"effective_accuracy": effective, "violation_rate": late, "gain": effective - late,
            "effective_error": error, "violation_error": error, "gain_error": error}


def test_the_settings_are_those_that_are_said():
    robust = headroom.LINE.settings(1)
    assert len(robust) == 20
    assert all(0.4 <= one.share <= 0.9 for one in robust[5:])
    assert len({one.profile for one in robust}) == 3
    few = few_workers.LINE.settings(1)
    assert len(few) == 240
    assert {one.workers for one in few} == {1, 2, 3, 4}
    assert {one.share for one in few} == {round(0.05 + 0.9 * i / 19, 4) for i in range(20)}


def test_random_settings_are_of_all_kinds_and_the_same_for_a_seed(monkeypatch):
    monkeypatch.setattr(random_settings, "SETTINGS", 60)
    drawn = random_settings.LINE.settings(3)
    assert drawn == random_settings.LINE.settings(3) != random_settings.LINE.settings(4)
    assert {one.dispatch for one in drawn} == set(DISPATCHES)
    assert {one.options.get("batching") for one in drawn} == {None, "variable"}
    assert all(0.2 <= one.share <= 1.1 and 1 <= one.workers <= 200 for one in drawn)


@pytest.mark.parametrize("service", ["p95", "distribution"])
def test_the_capacity_is_that_of_policies(service):
    options = {"service": service, "grid": "fixed:10", "headroom": 0.0}
    known = capacity_qps("digits-cpu", 3.0, 2, "round-robin", **options)
    setting = Setting("digits-cpu", 3.0, 2, 0.5 * known, 0.5, "round-robin", options)
    assert setting.policy().expectations.capacity_qps == pytest.approx(known, rel=1e-4)


def pair(lost: float, slower: float, spells: float, off: float = 0.0) -> Row:
    """A setting of headroom, the violations as shares of those without.

    The file states ``off`` too few violations at longer times.
    """
    pure = {name: rates(0.9, 0.01) for name in ("usual", "slower", "spells")}
    own = {"usual": rates(0.9 - lost, 0.0), "slower": rates(0.9, 0.01 * slower),
           "spells": rates(0.9, 0.01 * spells)}
    return row(robust={"promised": 0.9 - lost, "factor": 1.1, **own},
               pure={"promised": 0.9, "factor": 1.0, **pure},
               stated=0.01 * slower - off)


@pytest.mark.parametrize(("lost", "slower", "spells", "off", "holds"), [
    (0.0005, 0.2, 0.8, 0.0, True), (0.0005, 0.3, 0.8, 0.0, False),
    (0.0005, 0.2, 1.1, 0.0, False), (0.002, 0.2, 0.8, 0.0, False),
    (0.0005, 0.2, 0.8, 0.005, False)])
def test_headroom_has_to_be_cheap_to_help_and_to_be_stated(lost, slower, spells, off, holds):
    assert headroom.LINE.verdict([pair(lost, slower, spells, off)] * 3).holds == holds


def test_a_single_setting_may_not_lose_more_than_the_headroom():
    verdict = headroom.LINE.verdict([pair(0.0, 0.2, 0.8)] * 9 + [pair(0.004, 0.2, 0.8)])
    assert not verdict.holds
    assert [one["why"] for one in verdict.misses] == ["loss as promised"]


@pytest.mark.parametrize(("share", "off", "holds"), [
    (0.9, 0.0025, True), (0.9, 0.0035, False), (0.9, -0.0035, False), (1.0, 0.02, True)])
def test_promises_are_held_to_simulation_below_capacity(share, off, holds):
    one = {**row(promised=0.9, promised_violations=0.0, promised_error=0.0, measured=False,
                 simulated=rates(0.9 + off, 0.0)), "share": share}
    usual = {**one, "simulated": rates(0.9, 0.0), "share": 0.5}
    verdict = random_settings.LINE.verdict([usual, one])
    assert verdict.holds == holds
    assert len(verdict.misses) == (0 if holds else 1)
    assert verdict.shown[0]["difference"] == f"{off:+.4f} ± 0.0000"


@pytest.mark.parametrize(("central", "seconds", "holds"), [
    (0.9, 1.0, True), (0.8997, 1.0, True), (0.8990, 1.0, False), (0.9, 3.5, False)])
def test_a_central_queue_is_no_worse_than_the_others(central, seconds, holds):
    found = row(central=rates(central, 0.0), per_worker=rates(0.9, 0.0), greedy=rates(0.8, 0.0),
                synthesis_s=seconds)
    assert few_workers.LINE.verdict([found]).holds == holds


def test_results_are_kept_and_failures_are_misses(tmp_path, monkeypatch, capsys):
    made: list[Setting] = []

    def measure(setting: Setting, effort: Effort) -> Row:
        made.append(setting)
        if setting.workers == 2:
            raise InfeasibleError("no policy")
        return {"value": effort.queries(1000)}

    def judge(rows: Sequence[Row]) -> Verdict:
        wrong = [one for one in rows if "error" in one]
        return Verdict(not wrong, wrong, [{"figure": "misses", "value": len(wrong)}])

    settings = [Setting("digits-cpu", 25.0, k, 100.0, 0.1, "round-robin") for k in (1, 2, 3)]
    line = Line("A line", lambda seed: list(settings), measure, judge)
    monkeypatch.setattr(command, "LINES", {"headroom": line})
    out = tmp_path / "deep" / "rows.jsonl"
    arguments = ["headroom", "--out", str(out), "--quick"]
    assert command.main([*arguments, "--only", "2"], "") == 0
    assert [one.workers for one in made] == [1, 3]
    with out.open("a", encoding="utf-8") as stream:
        stream.write('{"key": "cut o')
    assert command.main(arguments, "") == 1
    assert [one.workers for one in made] == [1, 3, 2]
    assert "DOES NOT HOLD" in capsys.readouterr().out
    assert command.main([*arguments, "--match", "3 workers"], "") == 0
    assert len(made) == 3
    first = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert (first["workers"], first["value"]) == (1, 100)


def test_a_part_of_the_settings_is_spread_over_all():
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread(range(3), 7) == [0, 1, 2]
    assert spread(range(3), 1) == [0]
