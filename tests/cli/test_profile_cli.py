"""``ramsis profile``: check, show, import."""

import json

import pytest

from ramsis.profiles import load, save
from tests.cli.command import refused
from tests.profiles.samples import model, profile_set, write_sources


@pytest.fixture
def marked(tmp_path):
    """A file whose table holds a value of each origin."""
    path = tmp_path / "marked.json"
    save(profile_set(model("steady", 0.7, {1: 10.0, 2: 20.0, 4: 40.0}),
                     model("uneven", 0.8, {1: 30.0, 2: 90.0, 3: 60.0})), path)
    return str(path)


def test_show_prints_every_entry_with_the_mark_of_its_origin(run, marked):
    lines = run("profile", "show", marked, "--max-batch", "5").out.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["model", "accuracy", "1", "2", "3", "4", "5"],
        ["steady", "0.7000", "10.00", "20.00", "30.00~", "40.00", "50.00+"],
        ["uneven", "0.8000", "30.00", "60.00*", "60.00", "75.00+", "90.00+"],
    ]
    assert [line[0] for line in lines[4:]] == ["*", "~", "+"]


def test_show_explains_only_the_marks_that_occur(run, marked):
    lines = run("profile", "show", marked, "--max-batch", "2").out.splitlines()
    assert [line[0] for line in lines[4:]] == ["*"]


def test_show_json_holds_every_entry_in_full(run, marked):
    document = json.loads(run("profile", "show", marked, "--max-batch", "4", "--json").out)
    assert (document["name"], document["statistic"]) == ("a-set", "p95")
    assert len(document["rows"]) == 8
    assert document["rows"][5] == {"model": "uneven", "accuracy": 0.8, "batch": 2,
                                   "latency_ms": 60.0, "origin": "padded", "run_as": 3}


def test_check_lists_findings_and_still_succeeds(run, marked):
    lines = run("profile", "check", marked).out.splitlines()
    assert any(line.startswith("uneven, batch 2: ") for line in lines)
    assert lines[-1] == f"a-set: valid; models: 2, batch profiles: 6, warnings: {len(lines) - 1}"
    rows = run("profile", "check", marked, "--json").rows
    assert {(row["kind"], row["model"], row["batch"]) for row in rows} >= {
        ("not-monotone", "uneven", 2), ("gap", "steady", None)}


def test_import_writes_a_file_and_warns_on_stderr(run, tmp_path):
    write_sources(tmp_path)
    out = tmp_path / "new" / "set.json"
    result = run("profile", "import", str(tmp_path / "statistics.csv"), "--out", str(out),
                     "--models", "large, small", "--name", "mine")
    assert result.out == f"{out}: written; models: 2, batch profiles: 4, warnings: 1\n"
    assert result.err.startswith("warning: large: batch sizes not measured: 2, 3")
    found = load(out)
    assert found.name == "mine"
    assert [item.name for item in found.models] == ["large", "small"]


@pytest.mark.parametrize("command", ["show", "check"])
def test_an_unknown_profile_is_a_bad_input_file(run, command):
    refused(run("profile", command, "no-such-profile"), 3, "no such profile")
