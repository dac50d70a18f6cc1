"""Targets that hold in each window of a trace, and what a plan says of peaks and growth."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.sim import Estimate
from ramsis.synthesis.capacity import MeasuredRates, Targets
from ramsis.synthesis.capacity.trials import Windows
from tests.cli.command import Run, refused
from tests.sim.samples import Logged, fleet
from tests.sim.samples import run as serve


@pytest.fixture
def peak(tmp_path):
    """Timestamps of 40 s: a load of 20/s with a peak of 120/s for 4 s."""
    rng = np.random.default_rng(11)
    quiet = rng.uniform(0.0, 40.0, 800)
    busy = rng.uniform(18.0, 22.0, 400)
    path = tmp_path / "arrivals.csv"
    path.write_text("arrival_s\n" + "".join(
        f"{time:.6f}\n" for time in np.sort(np.concatenate([quiet, busy])).tolist()))
    return path


def searched(run: Run, profile: Path, peak: Path, *more: object) -> dict[str, Any]:
    (row,) = run("capacity", "--profiles", profile, "--slo-ms", 100, "--trace", peak,
                 "--scheduler", "greedy", "--min-accuracy", 0.7, "--max-violation", 0.05, "--json",
                 *more).rows
    return dict(row)


def test_a_peak_needs_more_workers_than_the_mean(run, tiny_file, peak, tmp_path):
    """What each window gets is counted again in the request log of a simulation."""
    mean = searched(run, tiny_file, peak)
    each = searched(run, tiny_file, peak, "--every", "2s")
    assert each["workers"] > mean["workers"]
    assert (each["windows"], each["windows_missed"], each["every_s"]) == (20, 0, 2.0)
    fewer = each["workers"] - 1
    log = tmp_path / "log.csv"
    (row,) = run("simulate", "--profiles", tiny_file, "--slo-ms", 100, "--trace", peak,
                 "--workers", fewer, "--scheduler", "greedy", "--min-accuracy", 0.7,
                 "--max-violation", 0.05, "--every", "2s", "--seeds", 1, "--request-log", log,
                 "--json").rows
    assert row["meets_target"] is False
    heads, *lines = (line.split(",") for line in log.read_text().splitlines())
    at = {name: place for place, name in enumerate(heads)}
    arrived = np.array([float(line[at["arrival_s"]]) for line in lines])
    finished = np.array([float(line[at["finish_s"]] or "inf") for line in lines])
    window = (arrived // 2.0).astype(int)
    late = np.array([np.mean((finished - arrived)[window == k] > 0.1 + 1e-8) for k in range(20)])
    assert row["windows_missed"] >= np.count_nonzero(late > 0.05) >= 1
    assert row["worst_window_violation_rate"] == pytest.approx(
        late[int(row["worst_window_s"] // 2)])


def test_a_plan_tells_of_its_peak_and_of_growth(
    run, tiny_file, peak, tmp_path, monkeypatch, in_one_process
):
    monkeypatch.setattr("ramsis.cli.planning.plan_run._LEVELS", 2)
    ran = run("plan", "--profiles", tiny_file, "--slo-ms", 100, "--trace", peak, "--min-accuracy",
              0.7, "--max-violation", 0.05, "--every", "2s", "--growth", "2.5,1",
              "--cost-per-worker", 3, "--out", tmp_path / "plan", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    verdict, words = plan["verdict"], plan["words"]
    assert verdict["windows_missed"] == 0
    assert 0.0 < verdict["busiest_tenth_effective_accuracy"] < verdict["effective_accuracy"]
    assert f"{verdict['busiest_tenth_effective_accuracy']:.4f} in the busiest tenth" in words[1]
    assert "ms of 100" in words[1]
    assert words[2].startswith("the target holds in each of 20 windows of 2 s")
    now, grown = plan["growth"]
    assert words[-1] == ("workers (and cost) as the load grows: "
                         f"{grown['workers']} at 2.5 times the load ({grown['cost']:g})")
    assert (now["growth"], now["workers"]) == (1.0, verdict["workers"])
    assert grown["load_qps"] == pytest.approx(2.5 * now["load_qps"])
    assert grown["workers"] > now["workers"]
    assert grown["cost"] == 3 * grown["workers"]
    assert any("--seed 1000" in command and "--scale 2.5" in command
               for command in plan["commands"])  # the same seeds as the first row's
    assert run("validate", tmp_path / "plan").code == 0
    page = (tmp_path / "plan" / "report.html").read_text()
    assert "Workers as the load grows" in page
    assert "<dt>cost per worker</dt><dd>3</dd>" in page
    assert "<dt>growth</dt><dd>2.5 times the load</dd>" in page
    assert f"{len(plan['commands'])} commands, in this order" in page
    assert "of requests in time by number of workers" in page


@pytest.mark.parametrize(("options", "words"), [
    (("--every", "2"), ("--every", "not a duration", "as 10s")),
    (("--every", "-2s"), ("--every", "not positive")),
    (("--every", "0s"), ("--every", "not positive")),
    (("--growth", "1,0"), ("--growth", "not positive")),
    (("--growth", "2,2"), ("--growth", "a number stands twice")),
])
def test_windows_and_growth_that_are_none(run, tiny_file, peak, tmp_path, options, words):
    refused(run("plan", "--profiles", tiny_file, "--slo-ms", 100, "--trace", peak, "--out",
                tmp_path / "plan", *options), 2, *words)


def test_a_constant_load_has_no_windows(run, tiny_file, tmp_path):
    for command in (("capacity",), ("plan", "--out", tmp_path / "plan"),
                    ("simulate", "--workers", 2, "--scheduler", "greedy", "--min-accuracy", 0.7)):
        refused(run(*command, "--profiles", tiny_file, "--slo-ms", 100, "--load", 20, "--every",
                    "2s"), 2, "--every", "--trace")


@pytest.mark.parametrize(("every_ms", "count", "missed"), [
    (1_000.0, 10, 1), (3_300.0, 3, 0), (4_000.0, 3, 0), (4_500.0, 2, 0), (20_000.0, 1, 0)])
def test_what_remains_belongs_to_the_last_window(every_ms, count, missed):
    """One of 101 requests is late, among the two in the last tenth of ten seconds."""
    arrivals = [*(100.0 * k for k in range(100)), 9901.0]
    served = serve(fleet([[10.0]], slo_ms=15.0), partial(Logged, log=[]), arrivals, 10_000.0)
    windows = Windows.of([served], Targets(0.05, every_ms=every_ms))
    assert (windows.count, windows.missed) == (count, missed)


def test_windows_that_are_too_many(run, tiny_file, peak):
    refused(run("simulate", "--profiles", tiny_file, "--slo-ms", 100, "--trace", peak, "--workers",
                1, "--scheduler", "greedy", "--min-accuracy", 0.7, "--every", "1us"),
            2, "--every", "too many windows", "0.039899 ms")


@pytest.mark.parametrize(("every_ms", "half", "cheaper", "certain"), [
    (None, 0.001, True, True), (None, 0.001, False, False), (None, 0.02, True, False),
    (2000.0, 0.001, True, None), (2000.0, 0.0, True, True), (None, None, True, None)])
def test_windows_that_vary_are_not_certain(every_ms, half, cheaper, certain):
    targets = Targets(0.05, min_effective_accuracy=0.7, every_ms=every_ms)
    rates = MeasuredRates(Estimate(0.0, half and 0.0), Estimate(0.71, half),
                          Estimate(0.71, half), 10_000, 10)
    assert (rates.clear(targets) and cheaper) is certain
