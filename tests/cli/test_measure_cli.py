"""``ramsis profile measure``: exit codes, what it prints, and what it leaves behind."""

import json
import os
import sys
from pathlib import Path

import pytest

from ramsis.profiles import load
from tests.cli.command import Ran, Run, refused, snapshot
from tests.profiles.samples import ACCURACY

FUNCTIONS = """
def small(batch): return sum(range(1000 * batch))
def large(batch):
    if batch > 2: raise MemoryError("too large")
    return sum(range(3000 * batch))
def stopped(batch): raise KeyboardInterrupt
def broken(batch): raise OSError("no such device")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with functions and their accuracies."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "to_measure.py").write_text(FUNCTIONS)
    more = {**ACCURACY["accuracy"], "stopped": 50.0, "broken": 50.0}  # type: ignore[dict-item]
    (tmp_path / "accuracy.json").write_text(json.dumps({**ACCURACY, "accuracy": more}))
    monkeypatch.delitem(sys.modules, "to_measure", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    return tmp_path


def measure(run: Run, *arguments: str, accuracy: str = "accuracy.json") -> Ran:
    return run("profile", "measure", *arguments, "--backend", "callable", "--out", "set.json",
               "--accuracy", accuracy, "--min-samples", "20", "--max-samples", "20",
               "--batches", "1:4")


def test_it_prints_a_row_for_each_batch_and_notes_on_stderr(run, here):
    ran = measure(run, "to_measure:small", "to_measure:large")
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["model", "batch", "samples", "mean", "ms", "p95", "ms", "±", "error"]
    assert [line[:3] for line in lines[1:7]] == [
        *(["small", str(batch), "20"] for batch in (1, 2, 3, 4)),
        ["large", "1", "20"], ["large", "2", "20"],
    ]
    assert ran.out.splitlines()[-1] == "set.json: written; models: 2, batch profiles: 6"
    assert ran.err.splitlines() == [
        "small: measured",
        "note: large: no batch sizes from 3 on, which failed (MemoryError: too large)",
    ]
    found = load("set.json")
    assert found.name == "set"
    assert [model.accuracy for model in found.models] == [0.7025, 0.815]


def test_json_is_one_document(run, here):
    ran = measure(run, "to_measure:small", "--json", "--percentile", "p50", "--name", "mine")
    document = json.loads(ran.out)
    assert (document["name"], document["percentile"], document["notes"]) == ("mine", "p50", {})
    assert [row["batch"] for row in document["rows"]] == [1, 2, 3, 4]
    assert set(document["rows"][0]) == {"model", "batch", "n", "mean_ms", "p50_ms",
                                        "relative_error"}


def test_an_interruption_exits_with_130_and_the_same_command_goes_on(run, here):
    ran = measure(run, "to_measure:small", "to_measure:stopped", "--order", "model")
    assert (ran.code, ran.out) == (130, "")
    assert not Path("set.json").exists()
    kept = load("set.json.partial")
    ran = measure(run, "to_measure:small", "to_measure:large", "--order", "model")
    assert ran.code == 0
    assert load("set.json").models[0] == kept.models[0]
    assert not Path("set.json.partial").exists()


def test_other_settings_are_refused_until_told_to_start_again(run, here):
    measure(run, "to_measure:small", "to_measure:stopped", "--order", "model")
    again = ("to_measure:small", "--order", "model", "--quantiles", "8")
    refused(measure(run, *again), 2, "set.json.partial", "settings.quantiles", "--restart")
    assert measure(run, *again, "--restart").code == 0


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["to_measure:small", "--batches", "1:x"], 2, ["--batches", "1:x"]),
    (["to_measure:small", "--max-samples", "5"], 2, ["--max-samples", "min_samples"]),
    (["to_measure:small", "--relative-error", "nan"], 2, ["--relative-error"]),
    (["to_measure:small", "--device", "cuda"], 2, ["device", "cpu"]),
    (["json:dumps", "to_measure:small"], 3, ["no accuracy for model 'dumps'", "--accuracy"]),
    (["to_measure:broken"], 3, ["no model could be measured", "no such device"]),
    (["to_measure:small", "--out", "accuracy.json/x.json"], 2, ["accuracy.json/x.json"]),
])
def test_bad_input_is_one_line_and_leaves_nothing_behind(run, here, arguments, code, words):
    before = {path for path in snapshot(here) if "__pycache__" not in path}
    ran = run("profile", "measure", "--backend", "callable", "--out", "set.json",
              "--accuracy", "accuracy.json", "--min-samples", "20", *arguments)
    errors = [line for line in ran.err.splitlines() if not line.startswith("note: ")]
    refused(Ran(ran.code, ran.out, "\n".join(errors)), code, *words)
    assert {path for path in snapshot(here) if "__pycache__" not in path} == before
