"""``ramsis plan`` for requests with a size: it makes the policies that it counts by."""

import json
import shlex

import numpy as np
import pytest

from ramsis import profiles
from ramsis.sized.policy import validate_sized
from scripts.sized import CELLS
from tests.cli.command import refused
from tests.sized.short import short_search


@pytest.fixture
def asked(tmp_path, monkeypatch, in_one_process):
    """The command, with short simulations, in this process."""
    short_search(monkeypatch)
    profiles.save(CELLS["gpu"].profile(), tmp_path / "gpu.json")
    rng = np.random.default_rng(0)
    sizes = CELLS["gpu"].sizes().sample(4_000, rng)
    (tmp_path / "sizes.csv").write_text("\n".join(["size", *map(str, sizes)]) + "\n")
    arrival_s = np.cumsum(rng.exponential(1 / 6000, 4_000)).tolist()
    (tmp_path / "trace.csv").write_text("arrival_s,size\n" + "".join(
        f"{at!r},{size}\n" for at, size in zip(arrival_s, sizes.tolist(), strict=True)))
    return ["plan", "--profiles", tmp_path / "gpu.json", "--slo-ms", 60, "--out",
            tmp_path / "plan"]


@pytest.mark.slow
def test_workers_at_a_load_are_those_that_policies_promise(run, asked, tmp_path):
    command = [*asked, "--load", 6000, "--sizes", tmp_path / "sizes.csv", "--duration-s", 1,
               "--max-violation", 0.02, "--min-in-time-by-class", "0.6", "--json"]
    made = run(*command)
    assert made.code == 0, made.err
    plan = json.loads(made.out)
    verdict = plan["verdict"]
    out = tmp_path / "plan"
    assert [shlex.split(line)[1] for line in plan["commands"]] == [
        "capacity", "generate", "simulate", "generate", "simulate", "report"]
    (level,) = validate_sized(out / verdict["policies"])
    assert level.tables.workers == verdict["workers"] >= verdict["workers_bound"]
    assert verdict["violation_rate"] == level.expectations["violation_rate"] <= 0.02
    assert verdict["by_class"] == level.expectations["by_class"]
    assert min(entry["in_time_rate"] for entry in verdict["by_class"]) >= 0.6
    assert level.document["inputs"]["min_in_time_by_class"] == [0.6] * 5
    assert verdict["effective_accuracy"] <= verdict["upper_bound"]
    page = (out / "report.html").read_text()
    assert page.count("<caption>In time by size") == 3
    assert "Answered in time by number of workers" in page
    assert "ffective accuracy by" not in page
    (row,) = json.loads((out / "capacity.json").read_text())["rows"]
    assert (row["workers"], row["clear"]) == (verdict["workers"], verdict["certain"])
    kept = (out / "plan.json").read_bytes()
    assert run(*command).code == 0
    assert (out / "plan.json").read_bytes() == kept
    refused(run(*command, "--min-in-time-by-class", "0.5"), 2, "--out", "other inputs")


def test_a_trace_with_sizes_needs_no_file_of_sizes(run, asked, tmp_path):
    made = run(*asked, "--trace", tmp_path / "trace.csv", "--max-violation", 0.02,
               "--duration-s", 0.5)
    assert made.code == 0, made.err
    assert "in time by size:" in made.out
    out = tmp_path / "plan"
    verdict = json.loads((out / "plan.json").read_text())["verdict"]
    (row,) = json.loads((out / f"simulation-{verdict['workers']}.json").read_text())["rows"]
    assert row["expected_violation_rate"] is None
    assert verdict["violation_rate"] == row["violation_rate"] <= 0.02
    assert verdict["certain"] is True  # nothing varies with the seed
    # Policies are made for arrivals that repeat the part of the trace that is played.
    rows = np.loadtxt(tmp_path / "trace.csv", delimiter=",", skiprows=1)
    rows[:, 0] -= rows[0, 0]
    rows = rows[rows[:, 0] < 0.5]
    assert row["queries"] == 10 * len(rows)
    written = np.loadtxt(out / "requests.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(written, rows)
    (level,) = validate_sized(out / verdict["policies"])
    arrivals = level.document["arrivals"]
    assert (arrivals["process"], arrivals["requests"]) == ("trace", len(rows))
    assert arrivals["file"] == str(out / "requests.csv")
    assert "size" in arrivals


def test_a_trace_as_arrivals_is_found_from_the_folder_of_the_plan(
    run, asked, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = run(*asked, "--load", 6000, "--arrivals", "trace:trace.csv", "--sizes", "trace.csv",
               "--max-violation", 0.02, "--dry-run")
    assert said.code == 0, said.err
    trace = tmp_path / "trace.csv"
    assert f"--arrivals trace:{trace} --sizes {trace}" in said.out
    assert "with their own sizes" in said.err


@pytest.mark.parametrize(("more", "code", "words"), [
    (["--cascades"], 2, "--cascades is not for requests with a size"),
    (["--min-in-time-by-class", "0.5,0.5"], 2, "1 or 5 shares"),
    (["--slo-ms", "5"], 4, "--slo-ms"),
    (["--growth", "1e9"], 2, "--growth 1e+09: load_qps: peak load"),
    (["--size-column", "words"], 3, "words"),
])
def test_what_cannot_be_planned_by_size_is_refused_before_anything_is_made(
    run, asked, tmp_path, more, code, words
):
    refused(run(*asked, "--load", 6000, "--sizes", tmp_path / "sizes.csv", *more), code, words)
    assert not (tmp_path / "plan").exists()


def test_shares_by_class_need_sizes(run, asked):
    refused(run(*asked, "--load", 600, "--min-in-time-by-class", "0.5"), 2,
            "--min-in-time-by-class needs requests with a size: --sizes")
