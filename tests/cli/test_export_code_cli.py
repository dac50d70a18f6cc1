"""``ramsis export c`` and ``ramsis export go``: files that compile, and what is refused."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cli.command import refused, runner
from tests.codegen.programs import go, needs
from tests.policy.samples import document
from tests.reference import sized_lookup

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "policies_out" / "example"
NAMES = {"c": "--prefix", "go": "--package"}


@pytest.fixture
def run(capsys):
    return runner(capsys)


@pytest.fixture(params=NAMES)
def language(request):
    return str(request.param)


def test_a_folder_and_a_file_are_written_the_same_each_time(run, tmp_path, language):
    out, again = tmp_path / "one", tmp_path / "two"
    ran = run("export", language, EXAMPLE, "--out", out)
    assert (ran.code, ran.out) == (0, f"{out}: 3 levels, 3 policies, 8 models\n")
    run("export", language, EXAMPLE, "--out", again)
    assert out.read_bytes() == again.read_bytes()
    (tmp_path / "policy.json").write_text(json.dumps(document()))
    ran = run("export", language, tmp_path / "policy.json", "--out", out)
    assert (ran.code, ran.out) == (0, f"{out}: 1 levels, 1 policies, 3 models\n")


def sized_document() -> dict[str, Any]:
    """A small policy for requests with a size, as a file has it."""
    return sized_lookup.policy(Random(1), "padded", 1, 1) | {
        "load_qps": 10.0, "inputs": {}, "expectations": {
            "violation_rate": 0.1, "effective_accuracy": 0.8, "by_class": [{}]}}


def test_policies_for_requests_with_a_size_are_written(run, tmp_path, language):
    (tmp_path / "policy.json").write_text(json.dumps(sized_document()))
    out = tmp_path / "sized"
    ran = run("export", language, tmp_path / "policy.json", "--out", out, NAMES[language], "sizes")
    assert (ran.code, ran.out) == (0, f"{out}: 1 policies for requests with a size, 1 models\n")
    assert {"c": "sizes_next_batch(", "go": "package sizes"}[language] in out.read_text()


def test_an_axis_that_is_not_known_is_named(run, tmp_path, language):
    wrong = document()
    wrong["table"]["axes"]["tokens"] = [0, 1]
    (tmp_path / "policy.json").write_text(json.dumps(wrong))
    ran = run("export", language, tmp_path / "policy.json", "--out", tmp_path / "x")
    refused(ran, 3, "table.axes.tokens", "unknown axis", "idle, queued, slack_ms")
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_read_or_written_is_refused(run, tmp_path, language):
    refused(run("export", language, tmp_path / "none", "--out", tmp_path / "x"), 3, "none")
    (tmp_path / "file").write_text("")
    refused(run("export", language, EXAMPLE, "--out", tmp_path / "file" / "x"), 2, "x")
    folder = shutil.copytree(EXAMPLE, tmp_path / "changed")
    with (folder / "round-robin-00400qps.json").open("a") as stream:
        stream.write("\n")
    refused(run("export", language, folder, "--out", tmp_path / "x"), 3, "has changed since")


def test_a_name_that_is_none_is_refused(run, tmp_path, language):
    option = NAMES[language]
    for name in ("", "a-b", "9", "A", "if", "int\n"):
        ran = run("export", language, EXAMPLE, "--out", tmp_path / "x", option, name)
        refused(ran, 2, "not an identifier", "letters, digits and _")


@pytest.mark.slow
def test_the_example_in_go_prints_what_its_page_shows(run, tmp_path, monkeypatch):
    needs("go")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "serving" / "code.md").read_text()
    for command in re.findall(r"^\$ ramsis (.*)$", page, re.M):
        assert run(*command.split()).code == 0
    found = re.search(r"server\.go\n```.*?```text\n(.*?)```", page, re.S)
    assert found
    code, shown = (ROOT / "docs" / "deploy" / "server.go").read_text(), found[1]
    Path("go.mod").write_text("module example\n\ngo 1.21\n")
    Path("server.go").write_text(code)
    Path("ramsis").mkdir()
    Path("policies.go").rename("ramsis/policies.go")
    assert go("vet", "./...", folder=tmp_path) == ""
    go("build", "-o", "server", ".", folder=tmp_path)
    assert subprocess.run(["./server"], check=True, capture_output=True, text=True).stdout == shown


@pytest.mark.slow
def test_the_station_in_cpp_prints_what_its_page_shows(run, tmp_path, monkeypatch):
    needs("g++")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "howto" / "embed.md").read_text()
    for command in re.findall(r"^\$ ramsis (.*)$", page, re.M):
        assert run(*command.split()).code == 0
    found = re.search(r"station\.cpp\n```.*?```text\n(.*?)```", page, re.S)
    assert found
    code, shown = (ROOT / "docs" / "deploy" / "station.cpp").read_text(), found[1]
    assert code.count("\n") <= 80
    Path("station.cpp").write_text(code)
    subprocess.run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "station.cpp", "-o",
                    "station"], check=True)
    assert subprocess.run(["./station"], check=True, capture_output=True,
                          text=True).stdout == shown
