"""``ramsis simulate --placement``: a placement by its file alone."""

import csv
import json

import pytest

from placement_milp import place, read_problem, write_placement
from tests.cli.command import refused
from tests.placement.samples import document, problem


@pytest.fixture
def placement_file(tmp_path):
    path = tmp_path / "placement.json"
    write_placement(place(problem()), path)
    return path


def test_rows_are_of_families_with_their_stations(run, placement_file, tmp_path):
    files = {name: tmp_path / name for name in ("rows.csv", "figure.svg", "timeline.json")}
    ran = run("simulate", "--placement", placement_file, "--duration-s", 2, "--seeds", 2, "--json",
              "--csv", files["rows.csv"], "--plot", files["figure.svg"],
              "--timeline", files["timeline.json"])
    assert (ran.code, ran.err) == (0, "")
    printed = json.loads(ran.out)
    assert printed["fixed"] is False
    assert [row["family"] for row in printed["rows"]] == ["vision", "text"]
    for row in printed["rows"]:
        assert row["effective_accuracy"] <= row["upper_bound"] + 0.02
        assert row["expected_effective_accuracy"] == pytest.approx(sum(
            one["expected_effective_accuracy"] * one["load_qps"] for one in row["stations"])
            / row["load_qps"])
        assert row["queries"] - row["not_sent"] == sum(one["queries"] for one in row["stations"])
        assert {one["dispatch"] for one in row["stations"]} <= {"central-queue", "round-robin"}
    with files["rows.csv"].open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == sum(1 + len(row["stations"]) for row in printed["rows"])
    assert all(path.stat().st_size > 0 for path in files.values())


def test_the_difference_to_the_placement_is_explained(run, tmp_path):
    path = tmp_path / "placement.json"
    write_placement(place(problem(families=[
        {"name": "vision", "demand_qps": 4000, "slo_ms": 100},
        {"name": "text", "demand_qps": 40, "slo_ms": 200}])), path)
    ran = run("simulate", "--placement", path, "--duration-s", 2, "--fixed")
    assert ran.code == 0
    assert "note: vision, 4000 QPS: OVERLOAD" in ran.err
    assert "counts batch / latency as a rate" in ran.out
    assert "here vision 100.0%" in ran.out
    assert "not sent to any worker" in ran.out


def test_a_placement_that_counts_on_queues_says_so(run, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(document(
        objective={"kind": "fewest-workers"}, rules={"in_time_quantile": 0.9})))
    path = tmp_path / "placement.json"
    ran = run("place", tmp_path / "p.json", "--out", path)
    assert (ran.code, ran.err) == (0, "")
    assert "90.00%" in ran.out
    assert "not served in time" not in ran.out  # it is what was asked for
    ran = run("simulate", "--placement", path, "--duration-s", 2, "--fixed")
    assert (ran.code, ran.err) == (0, "")
    assert "promises that 0.9 of the requests are in time" in ran.out
    assert "full batches" not in ran.out


def test_a_duty_cycle_is_played_with_and_without_policies(run, tmp_path):
    path = tmp_path / "placement.json"
    write_placement(place(read_problem("digits")), path)
    ran = run("simulate", "--placement", path, "--duration-s", 0.2, "--fixed", "--json")
    stations = [one for row in ran.rows for one in row["stations"]]
    assert {one["dispatch"] for one in stations} == {"fixed", "duty-cycle"}


@pytest.mark.parametrize("option", [
    ("--workers", "4"), ("--load", "100"), ("--scheduler", "greedy"), ("--monitor", "on")])
def test_options_that_the_file_answers_are_refused(run, placement_file, option):
    ran = run("simulate", "--placement", placement_file, *option)
    refused(ran, 2, f"{option[0]} is not for a placement")


def test_options_of_how_to_print_are_not_the_files(run, placement_file):
    played = ("simulate", "--placement", placement_file, "--duration-s", 1, "--fixed")
    assert run(*played, "--wide").code == 0
    ran = run(*played, "--wide", "--strict")
    assert ran.code in (0, 4)
    assert "is not for a placement" not in ran.err


def test_without_a_placement_the_workers_have_to_be_named(run):
    refused(run("simulate", "--load", 100, "--scheduler", "greedy"), 2,
            "Missing option '--profiles'")
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", 100, "--workers", 2,
                "--load", 100, "--scheduler", "greedy", "--fixed"), 2, "--fixed is for")


def test_a_file_without_its_problem_is_refused(run, placement_file, tmp_path):
    found = json.loads(placement_file.read_text())
    del found["problem"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(found))
    refused(run("simulate", "--placement", other), 3, "does not say what problem")
    refused(run("simulate", "--placement", tmp_path / "none.json"), 3, "cannot read file")
