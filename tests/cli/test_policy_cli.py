"""``ramsis policy show``: the grid says what the lookup answers."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from ramsis import policy, runtime
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from tests.cli.command import Ran
from tests.policy.samples import large_policy, small_policy, tables, with_table


@pytest.fixture
def show(run, monkeypatch):
    """Runs ``policy show`` on a file, on a terminal or not."""
    def call(path: Path, *options: str, colour: bool = False) -> Ran:
        monkeypatch.setenv("TERM", "xterm-256color")
        if colour:
            monkeypatch.setenv("FORCE_COLOR", "1")
        return run("policy", "show", path, *options)

    return call


def grid(text: str) -> dict[str, str]:
    """Row label → symbols of a printed grid."""
    body = text.partition("  queued ")[2].partition("\n\n")[0]
    rows = re.findall(r"^ *(>?\d+(?:-\d+)?) ([0-9a-zA-Z*]+)", body, re.M)
    return dict(rows)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.json"
    policy.write(small_policy(), path)
    return path


def test_the_grid_shows_the_model_of_every_queue_and_slack(show, small):
    ran = show(small, "--width", "100")
    assert ran.code == 0
    assert grid(ran.out) == {"1": "11123", "2": "11223", "3": "11122", ">3": "1"}
    assert re.search(r"^1 +small +60\.00 % +53\.33 % +25\.00 %$", ran.out, re.M)
    for said in ("SLO 100 ms", "80 QPS (poisson)", "4 workers", "accuracy 75.00 %",
                 "violations 20.00 %", "upper bound 65.00 %", "in batches of 4"):
        assert said in ran.out
    assert "\x1b" not in ran.out


def test_drops_have_a_sign_of_their_own(show, tmp_path):
    sample = small_policy()
    model, batch = tables(sample)
    batch[:, 0] = 0
    dropping = with_table(dataclasses.replace(sample, late="drop"), model, batch, (0, 0))
    policy.write(dropping, tmp_path / "drop.json")
    ran = show(tmp_path / "drop.json", "--width", "100")
    assert ran.code == 0
    assert re.findall(r"^ *(?:>?\d+) (\.[1-9]*)$", ran.out, re.M) == [".1123", ".1223", ".1122",
                                                                       "."]
    assert "late: drop" in " ".join(ran.out.split())
    assert re.search(r"^\. +\(drop the earliest\) +20\.00 % *$", ran.out, re.M)
    rows = json.loads(show(tmp_path / "drop.json", "--json").out)
    assert rows["rows"][0]["model"] is None
    assert (rows["rows"][0]["batch"], rows["overflow"]["model"]) == (0, None)


def test_a_terminal_gets_one_colour_for_each_model(show, small):
    ran = show(small, "--width", "100", colour=True)
    coloured = re.findall(r"\x1b\[(\d+)m([123]+)\x1b\[0m", ran.out)
    assert {symbols[0]: colour for colour, symbols in coloured}.keys() == {"1", "2", "3"}
    assert len({(colour, symbols[0]) for colour, symbols in coloured}) == 3


def test_equal_rows_are_merged(show, tmp_path):
    path = tmp_path / "even.json"
    batch = [[1] * 5, [2, 1, 1, 2, 1], [3, 1, 2, 3, 1]]
    policy.write(with_table(small_policy(), [[0, 0, 0, 0, 2]] * 3, batch, (0, 4)), path)
    assert grid(show(path).out) == {"1-3": "11112"} | {">3": "1"}


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_wide_tables_are_condensed_to_the_width_and_say_so(show, tmp_path, width):
    path = tmp_path / "large.json"
    policy.write(large_policy(), path)
    ran = show(path, "--width", str(width))
    lengths = {len(symbols) for label, symbols in grid(ran.out).items() if label != ">32"}
    assert lengths == {min(width - 9, 101)}
    note = " ".join(ran.out.split())
    assert (f"of which {width - 9} are shown" in note) == (width < 110)


def test_equal_columns_are_merged_where_the_width_asks_for_it(show, tmp_path):
    sample = large_policy()
    steps = np.minimum(np.arange(101)[None, :] // np.arange(20, 52)[:, None], 8)
    path = tmp_path / "steps.json"
    policy.write(with_table(sample, steps, tables(sample)[1], (0, 33)), path)
    ran = show(path, "--width", "80")
    distinct = len(np.unique(steps, axis=1).T)
    assert f"101 slack bins, equal neighbours merged into {distinct}." in " ".join(
        ran.out.split())
    assert {len(row) for label, row in grid(ran.out).items() if label != ">32"} == {distinct}


def test_the_json_rows_cover_every_slack_once_and_agree_with_the_lookup(show, tmp_path):
    path = tmp_path / "large.json"
    policy.write(large_policy(), path)
    document = json.loads(show(path, "--json").out)
    selector = runtime.load_selector(path)
    for n in range(1, 33):
        rows = [row for row in document["rows"] if row["queued"] == n]
        assert [row["slack_from_ms"] for row in rows] == [0.0] + [
            row["slack_below_ms"] for row in rows[:-1]]
        assert rows[-1]["slack_below_ms"] is None
        for row in rows:
            assert selector(n, row["slack_from_ms"]) == (row["model"], row["batch"])
            if row["slack_below_ms"] is not None:
                below = row["slack_below_ms"] - 2 * SLACK_TOLERANCE_MS
                assert selector(n, below) == (row["model"], row["batch"])
    overflow = document["overflow"]
    assert selector(overflow["queued_above"] + 1, 0.0) == (overflow["model"], overflow["batch"])


def test_an_overloaded_policy_says_so_and_an_undefined_accuracy_is_no_number(show, tmp_path):
    expected = dataclasses.replace(small_policy().expectations, overloaded=True, accuracy=None,
                                   violation_rate=1.0, effective_accuracy=0.0)
    path = tmp_path / "over.json"
    policy.write(small_policy(expectations=expected), path)
    ran = show(path)
    assert "overloaded" in ran.out
    assert "expected accuracy n/a" in ran.out
    assert json.loads(show(path, "--json").out)["expected_accuracy"] is None


def test_seventy_models_still_print(show, tmp_path):
    model = small_policy().models[0]
    models = tuple(dataclasses.replace(model, name=f"m{i}") for i in range(70))
    share = {"m0": 1.0}
    table = (np.arange(15).reshape(3, 5) * 5) % 70
    expected = dataclasses.replace(small_policy().expectations, model_share=share)
    path = tmp_path / "many.json"
    sample = small_policy(models=models, expectations=expected)
    policy.write(with_table(sample, table, tables(small_policy())[1], (0, 4)), path)
    assert len("".join(grid(show(path).out).values())) == 16
