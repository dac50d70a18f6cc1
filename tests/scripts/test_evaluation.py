"""The evaluation's rules, its arithmetic, and that every experiment runs."""

import csv
import doctest
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from evaluation import case as rules
from evaluation import fleets, savings, specs, tables
from evaluation.case import Case
from evaluation.experiments import EXPERIMENTS

from ramsis.arrivals.load_table import read_rates
from ramsis.errors import InvalidValueError
from ramsis.sim import Fleet
from ramsis.sweep import SweepSpec

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FLEETS = ("fleets", "fleet_promises", "robustness")
ENTRIES = sorted({*EXPERIMENTS, "table2"} - {*FLEETS})


@pytest.mark.parametrize("module", [rules, savings, specs])
def test_examples_in_the_modules_hold(module):
    tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried.attempted
    assert not tried.failed


def test_slos_are_half_once_and_one_and_a_half_times_the_slowest(tiny_file):
    assert Case(str(tiny_file)).slos_ms == (10.0, 20.0, 30.0)  # the slowest takes 20 ms


def test_loads_go_from_the_best_model_s_to_the_capacity(tiny_file):
    case = Case(str(tiny_file))
    fleet = Fleet.of(case.profile, workers=60, slo_ms=10.0)
    assert case.load_range[1] == pytest.approx(0.9 * fleet.capacity_qps)
    assert case.load_range[0] == pytest.approx(0.8 * 60_000 / 9)  # medium, one at a time
    assert len(case.loads_qps) == 10
    ratios = np.diff(np.log(case.loads_qps))
    assert ratios == pytest.approx(ratios.mean(), abs=0.06)  # two digits


def test_the_trace_is_scaled_to_the_middle_of_the_range(tiny_file):
    case = Case(str(tiny_file))
    low, high = case.load_range
    mean = read_rates("day").load_qps * case.trace_scale
    assert mean == pytest.approx((low * high) ** 0.5, rel=0.005)


def test_given_numbers_replace_the_rules(tiny_file):
    case = Case(str(tiny_file), given_slos=(50.0,), given_loads=(1.0, 2.0), given_scale=3.0)
    assert (case.slos_ms, case.loads_qps, case.trace_scale) == ((50.0,), (1.0, 2.0), 3.0)


def cells_of(name: str, tiny_file: Path, **given: Any) -> list[Any]:
    return list(SweepSpec.of(EXPERIMENTS[name].spec(Case(str(tiny_file), **given))).cells)


def test_workers_that_are_given_have_as_many_requests_each(tiny_file):
    given = {"given_slos": (50.0,), "given_loads": (600.0, 900.0), "given_workers": (30, 60)}
    loads = {(cell.workers, cell.load_qps) for cell in cells_of("fig6", tiny_file, **given)}
    assert loads == {(30, 300.0), (30, 450.0), (60, 600.0), (60, 900.0)}
    assert {cell.workers for cell in cells_of("fig5", tiny_file, **given)} == {30, 60}
    assert {cell.workers for cell in cells_of("fig7", tiny_file, **given)} == {30, 60}
    headline = cells_of("headline", tiny_file, **given)
    assert {cell.workers for cell in headline if cell.trace} == {30, 60}
    assert {cell.workers for cell in headline if not cell.trace} == {60}


def test_the_trace_that_is_given_is_scaled_as_the_rule_says(tiny_file, tmp_path):
    trace = tmp_path / "steps.txt"
    trace.write_text("0 100\n1 300\n")
    case = Case(str(tiny_file), trace=str(trace))
    low, high = case.load_range
    assert 200.0 * case.trace_scale == pytest.approx((low * high) ** 0.5, rel=0.005)
    assert {cell.trace for cell in cells_of("fig5", tiny_file, trace=str(trace))} == {str(trace)}


@pytest.mark.parametrize("name", ["fig5", "fig6", "fig8", "fig12", "headline"])
def test_schemes_and_the_slack_grid_that_are_given_are_compared(tiny_file, name):
    found = {cell.scheduler for cell in cells_of(
        name, tiny_file, given_schedulers=("round-robin:headroom=0",
                                           "jellyfish-plus:headroom=1.05"),
        given_grids=("model",))}
    assert found == {"round-robin:headroom=0,grid=model", "jellyfish-plus:headroom=1.05"}


def test_grids_and_batchings_are_of_the_policies_that_are_given(tiny_file):
    given: dict[str, Any] = {"given_schedulers": ("round-robin:headroom=0", "greedy"),
                             "given_grids": ("fixed:7", "model")}
    assert {cell.scheduler for cell in cells_of("fig10", tiny_file, **given)} == {
        "round-robin:headroom=0,grid=fixed:7", "round-robin:headroom=0,grid=model"}
    given["given_grids"] = ("fixed:7",)
    assert {cell.scheduler for cell in cells_of("fig11", tiny_file, **given)} == {
        f"round-robin:headroom=0,batching={name},grid=fixed:7" for name in ("maximal", "variable")}
    assert {cell.scheduler for cell in cells_of("fig7", tiny_file, **given)} == {
        "round-robin:headroom=0,grid=fixed:7"}


@pytest.mark.parametrize("name", ["fig7", "fig8", "fig10"])
def test_figures_of_the_smallest_slo_are_made_at_each_that_is_given(tiny_file, name):
    assert {cell.slo_ms for cell in cells_of(name, tiny_file)} == {Case(str(tiny_file)).slo_ms}
    given = {"given_slos": (50.0, 20.0)}
    assert {cell.slo_ms for cell in cells_of(name, tiny_file, **given)} == {50.0, 20.0}


def test_the_three_models_are_those_given(tiny_file):
    names = [model.name for model in Case(str(tiny_file)).profile.models]
    case = Case(str(tiny_file), given_three=(names[0], names[-1]))
    assert EXPERIMENTS["fig12"].spec(case)["model_sets"] == {"three": [names[0], names[-1]]}


@pytest.mark.parametrize(("name", "given", "says"), [
    ("fig12", {"given_three": ("best",)}, "--three: not a model of the front: got 'best'"),
    ("fig6", {"given_grids": ("fixed:7", "model")}, "--grid: several slack grids"),
    ("fig10", {"given_schedulers": ("greedy",)},
     "--schedulers: none of them has policies: got 'greedy"),
    ("fig7", {"given_schedulers": ("greedy",)}, "--schedulers: none of them has policies"),
])
def test_what_a_figure_cannot_compare_is_refused(tiny_file, name, given, says):
    with pytest.raises(InvalidValueError, match=f"^{says}"):
        cells_of(name, tiny_file, **given)


@pytest.mark.parametrize(("option", "says"), [
    (("--workers", "1.5"), "not numbers of workers: got '1.5'; allowed: whole numbers >= 1"),
    (("--workers", "0"), "--workers: "), (("--schedulers", "best"),
                                          "unknown scheduler: got 'best'"),
    (("--grid", "fixed:0"), "--grid: "), (("--trace", "none"), "none: ")])
def test_options_out_of_range_are_refused(option, says, tiny_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["evaluate", "fig5", "--profiles", str(tiny_file), "--out",
                                      str(tmp_path / "out"), *option])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / "evaluate.py"), run_name="__main__")
    assert says in capsys.readouterr().err + str(ended.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_sweep_of_bounded_length(tiny_file, name, quick):
    case = Case(str(tiny_file), quick)
    cells = SweepSpec.of(EXPERIMENTS[name].spec(case)).cells
    mean_qps = read_rates("day").load_qps * case.trace_scale
    for cell in cells:  # 80 workers have 80/60 of the loads
        assert (cell.duration_s or 0.0) * (cell.load_qps or mean_qps) <= 1.5 * case.most_queries
    if name == "fig5" and not quick:
        assert {cell.workers for cell in cells} == set(range(20, 101, 10))
        assert len({cell.slo_ms for cell in cells}) == 3
    if name == "fig6" and not quick:
        assert len(cells) == 10 * 3 * 5


def test_workers_saved_are_read_off_the_curve():
    def row(scheduler: str, workers: int, accuracy: float) -> dict[str, object]:
        return {"slo_ms": 1.0, "scheduler": scheduler, "workers": workers, "trace": "day",
                "load_qps": None, "effective_accuracy": accuracy, "violation_rate": 0.0}

    rows = [row("own", 20, 0.5), row("own", 40, 0.7), row("own", 60, 0.69),
            row("other", 20, 0.4), row("other", 40, 0.6), row("other", 60, 0.8)]
    saved = savings.savings(rows, ["own"])
    assert [one["enough"] for one in saved] == [20, 30, None]
    assert [one["at_least"] for one in saved] == [True, False, None]
    assert [one["saved"] for one in saved[:2]] == [0.0, 0.25]
    (by_slo, overall) = savings.summary(saved, "saved")
    assert by_slo["average"] == overall["average"] == 0.125
    assert (overall["largest"], overall["cases"], overall["without"]) == (0.25, 2, 1)
    gained = [one["gained"] for one in savings.gains(rows, ["own"])]
    assert gained == pytest.approx([0.1, 0.1, -0.11])
    late = [{**one, "violation_rate": 0.06} if one["scheduler"] == "other" else one
            for one in rows]
    assert not savings.gains(late, ["own"])


def test_needing_more_workers_counts_below_zero():
    rows = [{"slo_ms": 1.0, "scheduler": scheduler, "workers": workers, "trace": "day",
             "effective_accuracy": accuracy}
            for scheduler, workers, accuracy in (("own", 20, 0.5), ("own", 40, 0.7),
                                              ("other", 20, 0.6))]
    assert savings.savings(rows, ["own"])[0]["saved"] == pytest.approx(-0.5)


def test_each_kind_of_policies_is_compared_with_the_baselines():
    rows = [{"slo_ms": 1.0, "scheduler": scheduler, "workers": workers, "trace": "day",
             "load_qps": None, "effective_accuracy": accuracy, "violation_rate": 0.0,
             "accuracy": accuracy}
            for scheduler, accuracy in (("round-robin", 0.6), ("central-queue", 0.7),
                                     ("jellyfish-plus", 0.5))
            for workers in (20, 40)]
    pairs = {(row["scheduler"], row["baseline"]) for row in tables.savings(rows)}
    assert pairs == {("per-worker policies", "Jellyfish+"),
                     ("central-queue policies", "Jellyfish+")}
    assert ("| accuracy gained on the trace | per-worker policies | Jellyfish+ | 1.0 | 2 | 10.00 "
            "| 10.00 |") in tables.savings_table(rows)


def test_tables_have_a_line_for_each_case_and_name_what_differs():
    case = dict.fromkeys(tables._CASES)
    row = {**case, "slo_ms": 25.0, "scheduler": "central-queue:levels=8", "told": 0.8,
           "load_qps": 1200.0, "effective_accuracy": 0.9, "violation_rate": 0.0123,
           "expected_effective_accuracy": 0.9012}
    other = {**row, "scheduler": "greedy:late=drop", "expected_effective_accuracy": None}
    later = {**row, "load_qps": None, "trace": "day", "violation_rate": 0.0}
    assert tables.table([row, other, later]).splitlines() == [
        "| load_qps | trace | central-queue policies | greedy |", "|---|---|---|---|",
        "| 1,200 | – | 0.9012, 0.9000 (1.2 %) | 0.9000 (1.2 %) |",
        "| – | day | 0.9012, 0.9000 | – |"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder that the scripts share, so that later ones reuse cells of earlier ones."""
    return tmp_path_factory.mktemp("evaluation")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_each_script_writes_a_table_and_a_figure(name, tiny_file, results, monkeypatch, capsys):
    monkeypatch.setattr(rules, "MOST_QUERIES_QUICK", 2000.0)
    script, *names = ["table2"] if name == "table2" else ["evaluate", name]
    monkeypatch.setattr(sys, "argv", [script, *names, "--profiles", str(tiny_file), "--out",
                                      str(results), "--quick"])
    runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    assert "failed" not in capsys.readouterr().err
    with (results / "tiny" / f"{name}-quick.csv").open(newline="") as stream:
        assert list(csv.DictReader(stream))
    if name != "table2":
        for suffix in ("png", "svg"):
            assert (results / "tiny" / f"{name}-quick.{suffix}").stat().st_size > 1000


@pytest.mark.slow
def test_several_experiments_make_all_figures_for_pages(tiny_file, results, monkeypatch, capsys):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(rules, "MOST_QUERIES_QUICK", 2000.0)
    monkeypatch.setattr(sys, "argv", ["evaluate", *FLEETS, "--profiles", str(tiny_file), "--quick",
                                      "--out", str(results), "--docs", str(results / "docs")])
    runpy.run_path(str(SCRIPTS / "evaluate.py"), run_name="__main__")
    printed = capsys.readouterr()
    assert "failed" not in printed.err
    for name in FLEETS:
        with (Image.open(results / "tiny" / f"{name}-quick.png") as full,
              Image.open(results / "docs" / f"tiny-{name}.png") as small):
            assert small.width == 2 * full.width // 3
        assert EXPERIMENTS[name].title in printed.out


def test_the_cases_of_robustness_are_told_apart_by_their_settings(tiny_file):
    cells = SweepSpec.of(fleets.robustness(Case(str(tiny_file)))).cells
    asked = {(c.told, c.cv, c.trace, c.monitor, c.monitor_ms) for c in cells}
    assert len(asked) == 8
    assert {c.scheduler.partition(":")[0] for c in cells} == {
        "central-queue", "round-robin", "jellyfish-plus", "model-switching", "greedy"}
    for trace in (c for c in cells if c.trace):
        assert trace.trace_scale in {c.load_qps / 1000.0 for c in cells if c.load_qps}


def test_a_profile_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evaluate", "fig6", "--profiles", "none", "--out",
                                      str(tmp_path)])
    with pytest.raises(SystemExit, match="error: none: no such profile"):
        runpy.run_path(str(SCRIPTS / "evaluate.py"), run_name="__main__")
    assert not list(tmp_path.iterdir())
