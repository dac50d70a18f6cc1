"""``ramsis generate --max-violation`` and ``ramsis frontier``."""

import csv

import pytest

from ramsis.policy import validate
from ramsis.profiles import save
from ramsis.synthesis import budget
from tests.cli.command import refused
from tests.synthesis.samples import linear_profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """Two models; dropping some queries gives the others the better one."""
    path = tmp_path_factory.mktemp("profiles") / "two.json"
    save(linear_profile((0.3, 10.0, 2.0), (0.9, 13.0, 3.0)), path)
    return str(path)


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch):
    monkeypatch.setattr(budget, "_FEWEST", 100_000)
    monkeypatch.setattr(budget, "_MOST", 100_000)
    monkeypatch.setattr(budget, "RUNS", 8)


FLEET = ("--slo-ms", "60", "--workers", "20", "--load", "4400", "--dispatch", "central-queue",
         "--max-queue", "4")


@pytest.mark.slow
def test_generate_keeps_to_a_budget_and_says_how(run, profile, tmp_path):
    (row,) = run("generate", "--profiles", profile, *FLEET, "--out", str(tmp_path / "set"),
                 "--max-violation", "0.03", "--json").rows
    assert row["max_violation_rate"] == 0.03
    assert row["expected_violation_rate"] + row["violation_half_width"] <= 0.03
    assert row["violation_price"] > 0
    assert row["queries"] == 100_000
    assert validate(row["file"]).budget is not None
    assert run("verify", row["file"]).code == 0
    assert "within a budget of 0.03" in run("policy", "show", row["file"]).out


@pytest.mark.slow
def test_a_budget_out_of_reach_ends_with_the_lowest_rate(run, profile, tmp_path):
    refused(run("generate", "--profiles", profile, *FLEET, "--out", tmp_path / "set",
                "--max-violation", "0.000001"), 4,
            "no policy keeps the violation rate within the budget", "at least")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("more", [("--max-violation", "0"), ("--max-violation", "2"),
                                  ("--max-violation", "0.1", "--violation-price", "1")])
def test_what_is_no_budget_is_refused(run, profile, tmp_path, more):
    refused(run("generate", "--profiles", profile, *FLEET, "--out", tmp_path / "set", *more), 2,
            "max")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("served", [FLEET, ("--slo-ms", "60", "--workers", "2", "--load",
                                            "300,400", "--late", "drop")])
def test_frontiers_are_printed_written_and_drawn(run, profile, tmp_path, served):
    out, plot = tmp_path / "rows.csv", tmp_path / "figure.png"
    rows = run("frontier", "--profiles", profile, *served, "--points", "4", "--queries", "16000",
               "--out", str(out), "--plot", str(plot), "--json").rows
    assert len(rows) <= 4 * len({row["load_qps"] for row in rows})
    for row in rows:
        assert row["queries"] == 16_000
        assert 0 <= row["violation_rate"] <= 1
    rates = [row["expected_violation_rate"] for row in rows if row["load_qps"] == 400.0]
    assert rates == sorted(rates)
    with out.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["violation_price"]) for row in written] == [
        row["violation_price"] for row in rows]
    assert plot.stat().st_size > 10_000


def test_a_frontier_without_simulation_has_the_models_figures_alone(run, profile):
    rows = run("frontier", "--profiles", profile, *FLEET, "--points", "3", "--queries", "0",
               "--json").rows
    assert len(rows) == 3
    assert "violation_rate" not in rows[0]
    assert rows[-1]["violation_price"] == 0.0


def test_a_frontier_is_not_simulated_with_next_to_no_queries(run, profile):
    refused(run("frontier", "--profiles", profile, *FLEET, "--queries", "3"), 2,
            "error: --queries")


def test_a_figure_that_cannot_be_is_refused_before_anything_is_written(run, profile, tmp_path):
    out = tmp_path / "rows.csv"
    refused(run("frontier", "--profiles", profile, *FLEET, "--points", "3", "--queries", "0",
                "--out", out, "--plot", tmp_path / "figure.txt"), 2, "figure.txt")
    assert not out.exists()


def test_a_central_queue_has_no_other_late_rule(run, profile):
    refused(run("frontier", "--profiles", profile, *FLEET, "--late", "serve"), 2,
            "error: --late: not allowed with dispatch central-queue")


@pytest.mark.parametrize("words", [("--slo-ms", "15:0.3,25:0.7", "--workers", 2),
                                   ("--slo-ms", 25, "--workers", "a=1,b=1")])
def test_a_frontier_of_several_stations_is_refused_with_the_reason(run, words):
    refused(run("frontier", "--profiles", "digits-cpu", *words, "--load", 900), 2,
            "a frontier is of one station")
