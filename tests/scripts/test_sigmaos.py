"""The experiments of the σOS thesis: printed times are met, and each scheduler wins its own."""

import json
import sys
from typing import Any

import jsonschema
import pytest
import sigmaos
from sigmaos import PRINTED_S, TABLES

from ramsis.scenario import schema


@pytest.fixture(scope="module")
def tables():
    found: dict[str, dict[str, Any]] = {}
    for row in sigmaos.of_tables(seeds=50):
        found.setdefault(row["table"], {})[row["scheduler"]] = row
    return found


@pytest.mark.parametrize("table", PRINTED_S)
def test_totals_are_those_printed(tables, table):
    printed = PRINTED_S[table]
    simulated = {name: tables[table][name]["simulated_s"] for name in printed}
    assert simulated == pytest.approx(printed, rel=0.08)
    assert sorted(simulated, key=simulated.__getitem__) == sorted(printed, key=printed.__getitem__)
    assert {name: tables[table][name]["printed_s"] for name in printed} == printed


@pytest.mark.parametrize("table", PRINTED_S)
def test_dynamic_is_as_fast_as_the_winner(tables, table):
    winner = min(PRINTED_S[table], key=PRINTED_S[table].__getitem__)
    assert tables[table]["dynamic"]["printed_s"] is None
    assert (tables[table]["dynamic"]["simulated_s"] <= tables[table][winner]["simulated_s"] + 1e-9)
    assert tables[table]["dynamic"]["cold_starts"] == tables[table][winner]["cold_starts"]


def test_ten_requests_after_each_other():
    times_s, loads = sigmaos.totals(sigmaos.sequential(10), "default", 200)
    assert times_s[loads == 5].mean() == pytest.approx(29.43, rel=0.02)
    assert loads.mean() == pytest.approx(8 * (1 - (7 / 8) ** 10), abs=0.25)
    times_s, loads = sigmaos.totals(sigmaos.sequential(10), "colocation", 2)
    assert times_s == pytest.approx(16.64)
    assert (loads == 1).all()


def test_cold_starts_are_made_up_for_after_as_many_requests_as_they_cost():
    extra_s = 7 * 0.3
    assert sigmaos.break_even(0.3, 500) == pytest.approx(extra_s / sigmaos.CLOSE_S, abs=1)


def test_rows_and_scenarios_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sigmaos, "of_break_even", lambda: iter(()))
    monkeypatch.setattr(sigmaos, "MANY", 20)
    monkeypatch.setattr(sys, "argv", ["sigmaos.py", "--seeds", "15", "--json",
                                      str(tmp_path / "rows.json"), "--scenarios",
                                      str(tmp_path / "made")])
    assert sigmaos.main() == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["scheduler"] for row in rows if row["table"] == "6.2"} == {
        "colocation", "colocation-queue", "registry", "dynamic"}
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1
    written = sorted((tmp_path / "made").glob("*.json"))
    assert len(written) == len(TABLES) + 3
    for path in written:
        jsonschema.validate(json.loads(path.read_text()), schema())


def test_each_stage_of_a_request_is_part_of_its_time():
    for scenario in TABLES.values():
        for name in ("colocation", "colocation-queue", "registry"):
            stages = sigmaos.stages_s(scenario, name, 3)
            run = sigmaos.served(scenario, name, 3)
            whole_s = (run.answered_ms - run.arrival_ms) / 1e3
            way_s = sigmaos.ENQUEUE_MS / 1e3  # to the scheduler, in the stages only
            assert stages[:, 0] + stages[:, 2] == pytest.approx(whole_s + way_s)
            assert (stages[:, 1] <= stages[:, 2]).all()


def test_stages_are_in_the_order_that_the_figures_show():
    """Queueing waits in the scheduler and runs shortest; the registry waits in its call."""
    rows = {(row["figure"], row["scheduler"]): row for row in sigmaos.of_stages(20)}
    default, colocation = rows["6.3", "default"], rows["6.3", "colocation"]
    assert default["runtime_s"] > 1.5 * colocation["runtime_s"]
    for figure in ("6.4", "6.5", "6.6"):
        plain, queue, registry = (rows[figure, name] for name in PRINTED_S["6.1"])
        assert queue["scheduler_s"] > plain["scheduler_s"] == registry["scheduler_s"] == 0.002
        assert queue["runtime_s"] < min(plain["runtime_s"], registry["runtime_s"])
        assert registry["call_s"] > max(plain["call_s"], queue["call_s"])


def test_requests_of_figure_62_are_cold_where_they_are_printed():
    default, colocation = sigmaos.of_each_request(5)
    assert default["cold_at"] == "1, 2, 3, 5, 6"
    assert colocation["cold_at"] == "1"
    slower = [place for place in range(1, 11)
              if default[f"request_{place}_s"] > colocation[f"request_{place}_s"]]
    assert slower == [2, 3, 5, 6]


def test_replicas_of_rayserve_begin_after_forty_answers():
    first, *others = sigmaos.of_replicas()
    assert first["first_s"] == pytest.approx(3.711)  # section 3.1
    for row in others:
        assert row["answered_before"] == 40
        assert row["first_s"] == pytest.approx(2.0, abs=0.01)
        assert row["later_s"] == pytest.approx(0.923)
    assert first["requests"] + sum(row["requests"] for row in others) == 100


def test_a_cold_start_takes_longer_in_proportion_to_the_size_of_the_model():
    for row in sigmaos.of_initialisation():
        assert row["line_s"] == pytest.approx(row["printed_s"], rel=0.07)


def test_latency_is_about_half():
    *rows, large, larger = sigmaos.of_models(30)
    for last in (large, larger):
        assert sum(row["lower"] for row in (*rows, last)) / 3 == pytest.approx(0.5, abs=0.05)
    assert large["default_s"] - large["colocation_s"] == pytest.approx(6 * 17)


def test_formulas_meet_simulation_or_exceed_it():
    """Colocation without queueing never waits here, so its second term does not apply."""
    for row in sigmaos.of_formulas(40):
        if row["scheduler"] == "colocation":
            assert row["simulated_s"] <= row["formula_s"] + 1e-9
            if row["waiting"] == 1:
                assert row["simulated_s"] == pytest.approx(row["formula_s"])
        else:
            assert row["simulated_s"] == pytest.approx(row["formula_s"], rel=0.07)


@pytest.mark.slow
def test_best_effort_fills_the_gaps_and_critical_requests_hardly_wait():
    alone, late, alike = sigmaos.of_classes(20)
    assert late["cores_used"] > 1.4 * alone["cores_used"]
    assert late["critical_wait_s"] < 0.1 * alike["critical_wait_s"]
    assert late["other_wait_s"] > alike["other_wait_s"]


def test_constants_are_those_of_the_extract(reference_dir):
    extract = json.loads((reference_dir / "cluster" / "sigmaos_printed.json").read_text())
    seconds = extract["seconds"]
    names = {"colocation": "no_queue", "colocation-queue": "queue", "registry": "registry"}
    for table, printed in PRINTED_S.items():
        for name, value in printed.items():
            assert seconds[f"table_{table}"][names[name]] == value
    assert seconds["ten_sequential"] == sigmaos.TEN_S
    assert seconds["2100_sequential"] == sigmaos.MANY_S
    assert extract["cold_starts_of_default_in_ten"] == sigmaos.TEN_COLD_STARTS
    assert extract["break_even_requests_for_0.01_s"] == sigmaos.BREAK_EVEN
    assert extract["fitted_s"] == {
        "warm": sigmaos.WARM_S, "first_load_extra": sigmaos.FIRST_LOAD_S,
        "later_load_extra": sigmaos.LATER_LOAD_S}
    assert extract["machines"] == {"count": sigmaos.MACHINES, "cores": sigmaos.CORES}
