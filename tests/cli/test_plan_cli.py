"""``ramsis plan``: a recipe of other commands, and what it comes to."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ramsis.cli.planning import plan_run
from ramsis.policy import validate_set
from ramsis.profiles import ProfileSet, save
from tests.cli.command import refused, snapshot
from tests.profiles.samples import model


def options(profile: Path, out: Path, *more: object) -> list[str]:
    return ["plan", "--profiles", str(profile), "--slo-ms", "100", "--out", str(out),
            *map(str, more)]


def checked_verdict(plan: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a plan, which keeps to its bounds and is the cheapest of its rows."""
    verdict: dict[str, Any] = plan["verdict"]
    assert verdict["workers"] >= verdict["workers_bound"] >= 1
    assert verdict["cost"] == 1.5 * verdict["workers"]
    assert verdict["effective_accuracy"] <= verdict["upper_bound"]
    assert [row["dispatch"] for row in plan["rows"]] == ["central-queue", "round-robin"]
    assert verdict["workers"] == min(row["workers"] for row in plan["rows"])
    return verdict


def test_a_plan_is_made_by_its_commands_and_goes_on_where_it_was(
    run, tiny_file, tmp_path, in_one_process
):
    """Commands run in this process; among the slow tests each has one of its own."""
    out = tmp_path / "plan"
    asked = options(tiny_file, out, "--load", 300.5, "--duration-s", 2, "--min-accuracy", 0.7,
                    "--max-violation", 0.01, "--cost-per-worker", 1.5)
    made = run(*asked, "--json")
    assert made.code == 0, made.err
    plan = json.loads(made.out)
    verdict = checked_verdict(plan)
    assert verdict["accuracy"] >= 0.7
    assert verdict["violation_rate"] <= 0.01
    assert [shlex.split(one)[1] for one in plan["commands"]] == [
        "capacity", "generate", "simulate", "simulate", "report"]
    assert json.loads((out / "plan.json").read_text()).items() <= plan.items()
    (level,) = validate_set(out / verdict["policies"]).levels
    assert (level.load_qps, level.policy.workers) == (300.5, verdict["workers"])
    assert verdict["certain"] is True
    assert verdict["violation_rate"] == level.expected["expected_violation_rate"]
    assert verdict["effective_accuracy"] == level.expected["expected_effective_accuracy"]
    assert verdict["violation_rate_half_width"] > 0.0
    assert (out / "report.html").stat().st_size > 10_000

    more = out / f"simulation-{verdict['workers'] + 1}.json"
    known = more.read_bytes()
    more.unlink()
    went_on = run(*asked)
    assert went_on.code == 0, went_on.err
    printed = " ".join(went_on.out.split())  # lines are wrapped
    assert printed.startswith(" ".join(" ".join(plan["words"]).split()))
    assert [line.split()[2] for line in went_on.err.splitlines() if line.startswith("$ ")] == [
        "simulate", "report"]
    assert more.read_bytes() == known
    refused(run(*options(tiny_file, out, "--load", 301)), 2, "--out", "other inputs")


def test_a_plan_for_slow_services_is_what_its_policies_promise(run, tmp_path, in_one_process):
    """Of M/D/6 with requests dropped once late 1.6 % are, of which runs of 30 s show half."""
    profile, out = tmp_path / "slow.json", tmp_path / "plan"
    save(ProfileSet("slow", (model("slow", 0.9, {1: 1000.0}),)), profile)
    made = run("plan", "--profiles", profile, "--slo-ms", 2000, "--load", 5, "--max-violation",
               0.01, "--out", out, "--json")
    assert made.code == 0, made.err
    plan = json.loads(made.out)
    verdict = plan["verdict"]
    assert (verdict["workers"], verdict["certain"]) == (7, True)
    (level,) = validate_set(out / verdict["policies"]).levels
    assert level.expected["expected_violation_rate"] == verdict["violation_rate"] < 0.003
    (played,) = json.loads((out / "simulation-7.json").read_text())["rows"]
    assert played["queries"] > 5000
    assert abs(played["violation_rate"] - verdict["violation_rate"]) < (
        played["violation_rate_half_width"] + verdict["violation_rate_half_width"])


def test_policies_of_a_plan_promise_for_its_arrivals(run, tiny_file, tmp_path, in_one_process):
    out = tmp_path / "plan"
    made = run(*options(tiny_file, out, "--load", 30, "--duration-s", 4, "--arrivals",
                        "renewal:3", "--min-accuracy", 0.7, "--json"))
    assert made.code == 0, made.err
    (level,) = validate_set(out / json.loads(made.out)["verdict"]["policies"]).levels
    assert level.arrivals == "renewal:cv=3"


@pytest.mark.slow
def test_a_plan_holds_with_other_seeds_and_its_commands_can_be_run_again(run, tiny_file, tmp_path):
    out = tmp_path / "plan"
    asked = options(tiny_file, out, "--load", 300.5, "--duration-s", 4, "--min-accuracy", 0.7,
                    "--cost-per-worker", 1.5)
    made = run(*asked, "--json")
    assert made.code == 0, made.err
    plan = json.loads(made.out)
    verdict = checked_verdict(plan)
    assert (out / "report.html").stat().st_size > 10_000

    (row,) = run("simulate", "--profiles", tiny_file, "--slo-ms", 100, "--workers",
                 verdict["workers"], "--load", 300.5, "--duration-s", 20, "--seed", 77,
                 "--policy", out / verdict["policies"], "--json").rows
    assert row["violation_rate"] <= 0.001
    assert row["accuracy"] >= 0.7 - 0.002
    assert abs(row["effective_accuracy"] - verdict["effective_accuracy"]) < 0.01

    again = next(one for one in plan["commands"] if one.startswith("ramsis simulate"))
    words, _, file = again.partition(" > ")
    played = subprocess.run([sys.executable, "-m", *shlex.split(words)], cwd=out, check=True,
                            capture_output=True, text=True)
    assert played.stdout == (out / file).read_text()


def test_a_profile_by_size_counts_each_request_as_the_largest(run, tmp_path):
    said = run("plan", "--profiles", "minilm-cpu", "--slo-ms", 300, "--load", 20,
               "--max-violation", 0.01, "--out", tmp_path / "plan", "--dry-run")
    assert said.code == 0
    assert "largest, of 256 tokens; --sizes counts workers by size" in said.err


def test_a_dry_run_writes_nothing(run, tiny_file, tmp_path):
    said = run(*options(tiny_file, tmp_path / "plan", "--load", 300, "--dry-run"))
    assert said.code == 0, said.err
    assert "ramsis capacity" in said.out
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(("more", "code", "words"), [
    (["--load", "300", "--min-accuracy", "0.95"], 4, ["--min-accuracy", "at most"]),
    (["--load", "300", "--cost-per-worker", "-1"], 2, ["--cost-per-worker"]),
    (["--load", "300", "--max-violation", "1.5"], 2, ["--max-violation"]),
    (["--load", "300", "--slo-ms", "100:0.5"], 2, ["--slo-ms: shares of the SLO classes"]),
    (["--load", "300", "--duration-s", "-1"], 2, ["--duration-s: not positive: got -1.0"]),
    (["--trace", "day", "--scale", "1e-5"], 2, ["--trace: too few requests", "allowed"]),
    (["--load", "300", "--growth", "2,1e9"], 4, ["--growth 1e+09: workers: more workers"]),
    (["--trace", "day", "--growth", "1e12"], 2, ["--growth 1e+12: load_qps: peak load"]),
    (["--trace", "day", "--growth", "1e-5"], 2, ["--growth 1e-05: --trace: too few requests"]),
])
def test_what_cannot_be_planned_is_refused_before_anything_is_made(
    run, tiny_file, tmp_path, more, code, words
):
    refused(run(*options(tiny_file, tmp_path / "plan", *more)), code, *words)
    assert not (tmp_path / "plan").exists()


def test_one_load_or_a_trace(run, tiny_file, tmp_path):
    for more in ([], ["--load", "300,400"]):
        ran = run(*options(tiny_file, tmp_path / "plan", *more))
        assert ran.code == 2
        assert "--trace" in ran.err


@pytest.mark.slow
def test_a_plan_with_second_opinions_says_what_they_bring(
    run, tmp_path, monkeypatch, in_one_process
):
    monkeypatch.delitem(plan_run.QUEUES, "round-robin")
    out = tmp_path / "plan"
    made = run("plan", "--profiles", "digits-cpu", "--slo-ms", 60, "--load", 9600, "--service",
               "p95", "--min-effective-accuracy", 0.93, "--duration-s", 1, "--cascades", "--out",
               out, "--json")
    assert made.code == 0, made.err
    plan = json.loads(made.out)
    verdict = plan["verdict"]
    alone, cascades = plan["rows"]
    assert (alone["dispatch"], cascades["dispatch"]) == (
        "central-queue", "central-queue:cascades=true")
    assert verdict["dispatch"] == cascades["dispatch"]
    assert verdict["workers"] == cascades["workers"] < alone["workers"]
    assert verdict["upper_bound_one_model"] < verdict["upper_bound"]
    assert verdict["effective_accuracy"] <= verdict["upper_bound"]
    assert sum(verdict["model_share"].values()) == pytest.approx(1.0, abs=1e-3)
    words = " ".join(plan["words"])
    assert "with a common queue and second opinions" in words
    assert f"{verdict['second_opinions']:.1%} of the requests get a second opinion" in words
    assert "one model or a cascade per request" in words
    (level,) = validate_set(out / verdict["policies"]).levels
    assert verdict["gain"] == level.policy.cascade.promise.gain
    assert "central-queue with cascades" in (out / "report.html").read_text()


@pytest.mark.parametrize(("options", "words"), [
    (("--profiles", "image-cpu", "--load", "100"), ("--cascades", "no confidences")),
    (("--profiles", "digits-cpu", "--trace", "day"), ("--cascades", "a constant load")),
])
def test_a_plan_with_second_opinions_that_cannot_be_is_refused(run, tmp_path, options, words):
    refused(run("plan", *options, "--slo-ms", "200", "--cascades", "--out", tmp_path / "plan"),
            2, *words)
    assert not snapshot(tmp_path)
