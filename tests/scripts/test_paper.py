"""The paper's figures beside ours: the page is what the kept rows say."""

import re
import sys

import pandas as pd
import paper
import pytest

ROWS = pd.read_csv(paper.ROWS)


@pytest.mark.parametrize("name", paper.PARTS)
def test_the_page_is_what_the_rows_say(name):
    text = paper.PARTS[name](ROWS)
    assert f"<!-- {name}:begin -->\n{text}\n<!-- {name}:end -->" in paper.PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", paper.OTHERS)
def test_the_page_names_tables_that_are_only_printed(name):
    assert re.search(rf"\([^)]*`{name}`\)", paper.PAGE.read_text("utf-8"))
    assert len(paper.OTHERS[name](ROWS).splitlines()) >= 5


def test_every_run_has_its_rows():
    assert set(ROWS["run"]) == set(paper.RUNS) - {"table2"}


def test_only_per_worker_policies_are_ever_below_a_baseline():
    assert paper.below_baselines(ROWS, paper.CENTRAL).empty
    assert len(paper.below_baselines(ROWS, paper.DEFAULT)) == 4  # as the page says


def test_violations_of_texts_are_as_the_page_says():
    printed = paper.printed_percent("text")
    simulated = ROWS[(ROWS["run"] == "fig5-text") & (ROWS["scheduler"] != "round-robin")]
    assert len(printed) == 81
    assert round(printed.max(), 2) == 0.76
    assert not simulated["violation_rate"].any()


def test_gains_leave_overloaded_cells_out():
    rows = pd.DataFrame([("fig", 150.0, 60, load_qps, name, accuracy, late, accuracy * (1 - late))
                         for name, load_qps, accuracy, late in (
                             ("a", 400, 0.8, 0.0), ("b", 400, 0.7, 0.0),
                             ("a", 800, 0.75, 0.0), ("b", 800, 0.74, 0.0),
                             ("a", 1200, 0.7, 0.0), ("b", 1200, 0.6, 0.06))],
                        columns=paper.COLUMNS)
    table = paper.cells(rows, "fig")
    assert list(paper.gains(table, "a", "b", 0.05)) == pytest.approx([10.0, 1.0])
    assert list(paper.gains(table, "a", "b", 1.0)) == pytest.approx([10.0, 1.0, 10.0])
    assert paper.mean_and_largest(paper.gains(table, "a", "b", 0.05)) == "5.50 (10.00)"


@pytest.mark.parametrize(("words", "says"), [
    (["--image", "image.json", "--only", "fig5-image"], "fig5-image needs --trace"),
    (["--trace", "twitter.txt", "--only", "fig12"], "fig12 needs --image")])
def test_a_run_without_its_files_is_refused(words, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paper.py", *words])
    with pytest.raises(SystemExit) as ended:
        paper.main()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
