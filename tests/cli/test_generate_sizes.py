"""``ramsis generate``, ``validate`` and ``simulate`` with policies for requests with a size."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ramsis import profiles
from ramsis.fields import Fields
from ramsis.runtime.sized import SizedTables
from ramsis.sized import search
from ramsis.sized.policy import read_sized
from ramsis.sized.rule import RuleNumbers
from scripts.sized import CELLS
from tests.cli.command import refused
from tests.sized.short import short_search


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A profile, and files of sizes."""
    folder = tmp_path_factory.mktemp("sized")
    profiles.save(CELLS["gpu"].profile(), folder / "gpu.json")
    sizes = CELLS["gpu"].sizes().sample(2000, np.random.default_rng(0))
    (folder / "sizes.csv").write_text("\n".join(["size", *map(str, sizes)]) + "\n")
    (folder / "beyond.csv").write_text("size\n5\n513\n")
    return folder


def size_classes(page: Path) -> list[list[str]]:
    """Size, share, share in time and accuracy in the rows of a page's first table by size."""
    (table, *_) = re.findall(r"<caption>In time by size.*?</table>", page.read_text(), re.S)
    heads = re.findall(r"<th[^>]*>(.*?)</th>", table)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    return [[row[heads.index(head)] for head in (
        "size", "share of the requests", "in time", "accuracy of these")] for row in cells]


@pytest.fixture
def generate(folder, monkeypatch):
    """The command, with short simulations."""
    short_search(monkeypatch)
    return ["generate", "--profiles", folder / "gpu.json", "--slo-ms", 60, "--workers", 1,
            "--sizes", folder / "sizes.csv"]


def test_policies_are_written_validated_and_simulated(run, generate, folder, tmp_path):
    """A folder of two loads has what rows promise; simulation takes the level of its load."""
    out = tmp_path / "out"
    rows = run(*generate, "--load", "3600,4800", "--dispatch", "central-queue",
               "--out", out, "--json").rows
    assert [row["load_qps"] for row in rows] == [3600, 4800]
    read = read_sized(out)
    for row, level in zip(rows, read, strict=True):
        expected = level.expectations
        assert row["expected_effective_accuracy"] == expected["effective_accuracy"]
        assert sum(entry["share"] for entry in row["by_class"]) == pytest.approx(1.0)
        assert SizedTables.from_fields(Fields(level.document, "file")) == level.tables
    assert "2 policies for requests with a size, 3600 to 4800 QPS" in run("validate", out).out
    printed = run(
        "simulate", "--profiles", folder / "gpu.json", "--slo-ms", 60, "--workers", 1, "--load",
        4800, "--duration-s", 5, "--sizes", folder / "sizes.csv", "--policy", out, "--scheduler",
        "replanned-dp", "--json").out
    played = json.loads(printed)["rows"]
    (tmp_path / "played.json").write_text(printed)
    for source, shown in ((out, rows), (tmp_path / "played.json", played)):
        assert run("report", source, "--out", tmp_path / "page.html").code == 0
        assert "probability" not in (tmp_path / "page.html").read_text()
        assert size_classes(tmp_path / "page.html") == [
            ["–".join(map(str, entry["sizes"])) + " tokens", f"{entry['share']:.1%}",
             f"{entry['in_time_rate']:.2%}", f"{entry['accuracy']:.4f}"]
            for row in shown for entry in row["by_class"]]
    assert played[0]["policy"] == str(out)
    assert played[0]["violation_rate"] < played[1]["violation_rate"]
    assert played[0]["expected_violation_rate"] == read[1].expectations["violation_rate"]
    assert [entry["expected_in_time_rate"] for entry in played[0]["by_class"]] == [
        entry["in_time_rate"] for entry in read[1].expectations["by_class"]]
    assert played[1]["expected_violation_rate"] is None
    assert played[0]["effective_accuracy"] <= played[0]["upper_bound"]
    refused(run("simulate", "--profiles", folder / "gpu.json", "--slo-ms", 60, "--workers", 1,
                "--load", 4800, "--sizes", folder / "sizes.csv", "--policy",
                "policies_out/example"), 3, "policies that know no sizes", "generate --sizes")
    assert played[0]["violation_rate"] == pytest.approx(
        read[1].expectations["violation_rate"], abs=0.02)


def test_the_replanned_program_decides_where_no_rule_is_better(
    run, generate, folder, tmp_path, monkeypatch
):
    """Its file plays, is verified, and says so; its promise is that of the program."""
    out = tmp_path / "out"
    monkeypatch.setattr(search, "RuleNumbers", lambda *_: RuleNumbers(price=9.0))
    result = run(*generate, "--load", 2400, "--out", out, "--json")
    assert "at 2400 QPS no rule was better than replanned-dp" in result.err
    row = result.rows[0]
    assert row["decides"] == "replanned-dp"
    assert row["rule_gain"] < 0.0
    assert 0.0 <= row["certified_gap"] < 0.1
    played = run(
        "simulate", "--profiles", folder / "gpu.json", "--slo-ms", 60, "--workers", 1, "--load",
        2400, "--duration-s", 2, "--sizes", folder / "sizes.csv", "--policy", out, "--scheduler",
        "replanned-dp", "--json").rows
    assert played[0]["violation_rate"] == played[1]["violation_rate"]
    assert "1 policy for requests with a size" in run("validate", out).out
    assert "certified_gap" in run("verify", out).out
    assert "its rule is" in run("export", "c", out, "--out", tmp_path / "policy.h").err


def test_the_same_command_writes_the_same_file(run, generate, tmp_path):
    for name in ("a", "b"):
        run(*generate, "--load", 4800, "--min-in-time-by-class", ".5", "--out", tmp_path / name)
    texts = [(tmp_path / name / "sized-04800qps.json").read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert document["classes"]["weights"][-1] > 1.0
    assert document["inputs"]["min_in_time_by_class"] == [0.5] * 5
    refused(run(*generate, "--load", 4800, "--out", tmp_path / "a"), 2,
            "the folder has policies already")


@pytest.mark.parametrize(("options", "words"), [
    (["--dispatch", "round-robin"], "--dispatch central-queue"),
    (["--workers", 2], "--dispatch central-queue"),
    (["--cascades"], "--cascades is not for requests with a size"),
    (["--slowness", "1,1.2"], "--slowness is not for requests with a size"),
    (["--min-in-time-by-class", "2"], "numbers from 0 to 1"),
    (["--min-in-time-by-class", ".9,.8"], "1 or 5 shares"),
    (["--slo-ms", "60:.5,90:.5"], "one SLO"),
])
def test_options_that_do_not_go_with_sizes_are_refused(run, generate, tmp_path, options, words):
    refused(run(*generate, "--load", 4800, "--out", tmp_path / "out", *options), 2, words)


def test_sizes_beyond_the_profile_are_refused(run, generate, folder, tmp_path):
    generate[-1] = folder / "beyond.csv"
    refused(run(*generate, "--load", 4800, "--out", tmp_path / "out"), 2,
            "a size beyond those of the profile: got 513")


def test_a_file_that_breaks_the_format_is_refused(run, generate, tmp_path):
    """Tables that do not fit together, or a file that has changed, are one line."""
    out = tmp_path / "out"
    run(*generate, "--load", 4800, "--out", out)
    path = out / "sized-04800qps.json"
    document = json.loads(path.read_text())
    document["rule"]["values"][0][0].pop()
    path.write_text(json.dumps(document))
    refused(run("validate", path), 3, "rule.values[0][0]")
    document["rule"]["values"][0][0].append(0)
    path.write_text(json.dumps(document))
    refused(run("validate", out), 3, "has changed since the manifest")
