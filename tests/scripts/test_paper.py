"""The paper's figures beside ours: the page is what the kept rows say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import paper

ROWS = paper.read_rows()


@pytest.mark.parametrize("name", paper.PARTS)
def test_the_page_is_what_the_rows_say(name):
    text = paper.PARTS[name](ROWS)
    assert f"<!-- {name}:begin -->\n{text}\n<!-- {name}:end -->" in paper.PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", paper.OTHERS)
def test_the_page_names_tables_that_are_only_printed(name):
    assert f"(`{name}`)" in paper.PAGE.read_text("utf-8")
    assert len(paper.OTHERS[name](ROWS).splitlines()) >= 5


def test_every_run_has_its_rows():
    assert {row.run for row in ROWS} == set(paper.RUNS) - {"table2"}


def test_only_per_worker_policies_are_ever_below_a_baseline():
    assert not paper.below_baselines(ROWS, paper.CENTRAL)
    assert len(paper.below_baselines(ROWS, paper.DEFAULT)) == 4  # as the page says


def test_violations_of_texts_are_as_the_page_says():
    printed, simulated = paper.printed_percent("text"), paper.cells(ROWS, "fig5-text")
    assert len(printed) == 81
    assert round(max(printed.values()), 2) == 0.76
    assert not any(cell[name].violation_rate for cell in simulated.values()
                   for name in (paper.PAPER, paper.JELLYFISH, paper.SWITCHING))


def row(scheduler: str, load_qps: float, accuracy: float, late: float = 0.0) -> paper.Row:
    return paper.Row("fig", 150.0, 60, load_qps, scheduler, accuracy, late, accuracy * (1 - late))


def test_gains_leave_overloaded_cells_out():
    rows = [row("a", 400, 0.8), row("b", 400, 0.7), row("a", 800, 0.75), row("b", 800, 0.74),
            row("a", 1200, 0.7), row("b", 1200, 0.6, 0.06)]
    by_cell = paper.cells(rows, "fig")
    assert paper.gains(by_cell, "a", "b", 0.05) == pytest.approx([10.0, 1.0])
    assert paper.gains(by_cell, "a", "b", 1.0) == pytest.approx([10.0, 1.0, 10.0])
    assert paper.mean_and_largest([10.0, 1.0]) == "5.50 (10.00)"


@pytest.mark.parametrize(("words", "says"), [
    (["--image", "image.json", "--only", "fig5-image"], "fig5-image needs --trace"),
    (["--trace", "twitter.txt", "--only", "fig12"], "fig12 needs --image")])
def test_a_run_without_its_files_is_refused(words, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paper.py", *words])
    with pytest.raises(SystemExit) as ended:
        paper.main()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
