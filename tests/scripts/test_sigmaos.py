"""The experiments of the σOS thesis: printed times are met, and each scheduler wins its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ramsis.scenario import schema

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import sigmaos
from sigmaos import PRINTED_S, TABLES


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in sigmaos.of_tables(seeds=50):
        found.setdefault(row["table"], {})[row["scheduler"]] = row
    return found


@pytest.mark.parametrize("table", PRINTED_S)
def test_totals_are_those_printed(tables: dict[str, dict[str, Any]], table: str) -> None:
    printed = PRINTED_S[table]
    simulated = {name: tables[table][name]["simulated_s"] for name in printed}
    assert simulated == pytest.approx(printed, rel=0.08)
    assert sorted(simulated, key=simulated.__getitem__) == sorted(printed, key=printed.__getitem__)
    assert {name: tables[table][name]["printed_s"] for name in printed} == printed


@pytest.mark.parametrize("table", PRINTED_S)
def test_dynamic_is_as_fast_as_the_winner(tables: dict[str, dict[str, Any]], table: str) -> None:
    winner = min(PRINTED_S[table], key=PRINTED_S[table].__getitem__)
    assert "printed_s" not in tables[table]["dynamic"]
    assert (tables[table]["dynamic"]["simulated_s"]
            <= tables[table][winner]["simulated_s"] + 1e-9)
    assert tables[table]["dynamic"]["cold_starts"] == tables[table][winner]["cold_starts"]


def test_ten_requests_after_each_other() -> None:
    times_s, loads = sigmaos.totals(sigmaos.sequential(10), "default", 200)
    assert times_s[loads == 5].mean() == pytest.approx(29.43, rel=0.02)
    assert loads.mean() == pytest.approx(8 * (1 - (7 / 8) ** 10), abs=0.25)
    times_s, loads = sigmaos.totals(sigmaos.sequential(10), "colocation", 2)
    assert times_s == pytest.approx(16.64)
    assert (loads == 1).all()


def test_cold_starts_are_made_up_for_after_as_many_requests_as_they_cost() -> None:
    extra_s = 7 * 0.3
    assert sigmaos.break_even(0.3, 500) == pytest.approx(extra_s / sigmaos.CLOSE_S, abs=1)


def test_rows_and_scenarios_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sigmaos, "of_break_even", lambda: [])
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
    assert len(written) == len(TABLES) + 2
    for path in written:
        jsonschema.validate(json.loads(path.read_text()),
                            schema())


def test_constants_are_those_of_the_extract(reference_dir: Path) -> None:
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
