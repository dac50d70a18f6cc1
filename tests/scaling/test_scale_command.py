"""``ramsis scale``: rows, files and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ramsis.cli.main import _run
from tests.cli.command import Run, refused

_SMALL = ["--profiles", "image-cpu", "--slo-ms", "350", "--trace", "day", "--scale", "0.03",
          "--stretch", "6", "--min-effective-accuracy", "0.79", "--max-workers", "4",
          "--levels", "6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scale") / "out"
    assert _run(["scale", *_SMALL, "--startup-s", "10", "--compare", "--json",
                 "--cost-per-worker-s", "0.002", "--out", str(out)]) == 0
    return out


def test_no_row_that_meets_the_target_is_below_the_bound(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    rows = results["rows"]
    assert [row["scheduler"] for row in rows][:3] == ["ramsis", "static", "static"]
    assert {row["tuned"] for row in rows if row["scheduler"] == "hpa"} == {True, False}
    meeting = [row for row in rows if row["meets_target"]]
    assert meeting
    for row in meeting:
        assert row["worker_s"] >= results["bound"]["worker_s"]
        assert row["violation_rate"] <= 0.001
        assert row["effective_accuracy"] >= 0.79 - 1e-9
    for row in rows:
        assert row["cost"] == pytest.approx(0.002 * row["worker_s"])


def test_the_folder_is_valid_and_its_tables_are_policy_sets(run: Run, folder: Path) -> None:
    sets = sorted(str(path) for path in (folder / "tables").iterdir())
    ran = run("validate", folder / "scaling.json", folder / "results.json", *sets)
    assert (ran.code, ran.err) == (0, "")
    assert "scaling policy, 1 to 4 workers" in ran.out
    document = json.loads((folder / "scaling.json").read_text())
    low, high = (document["promise"]["workers"][name] for name in ("low", "high"))
    assert 1 <= low <= document["promise"]["workers"]["mean"] <= high
    document["tables"][0]["folder"] = "tables/none"
    (folder / "damaged.json").write_text(json.dumps(document))
    refused(run("validate", folder / "damaged.json"), 3, "no such folder", "tables/none")


def test_a_folder_that_holds_a_policy_is_left_alone(run: Run, folder: Path) -> None:
    refused(run("scale", *_SMALL, "--startup-s", "10", "--out", folder), 2,
            "another scaling policy")


@pytest.mark.parametrize(("options", "code", "words"), [
    (["--startup-s", "4000"], 2, ("--startup-s", "longer than the trace")),
    (["--startup-s", "-1"], 2, ("--startup-s",)),
    (["--startup-s", "0", "--min-workers", "5"], 2, ("--min-workers", "--max-workers 4")),
    (["--startup-s", "0", "--interval-s", "600"], 2, ("--interval-s", "too short")),
    (["--startup-s", "0", "--scale", "0"], 2, ("--scale",)),
    (["--startup-s", "0", "--min-effective-accuracy", "0.99"], 4, ("0.99", "accuracy")),
])
def test_bad_input_is_one_line_and_nothing_is_written(
    run: Run, tmp_path: Path, options: list[str], code: int, words: tuple[str, ...]
) -> None:
    refused(run("scale", *_SMALL, *options, "--out", tmp_path / "out"), code, *words)
    assert not (tmp_path / "out").exists()


def test_a_trace_of_one_instant_is_refused(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "instant.txt"
    trace.write_text("5\n5\n5\n")
    refused(run("scale", "--profiles", "image-cpu", "--slo-ms", "350", "--trace", trace,
                "--unit", "s", "--startup-s", "0", "--out", tmp_path / "out"), 3, "one instant")


def test_most_workers_that_are_too_few_are_told_the_best(run: Run, tmp_path: Path) -> None:
    few = [*_SMALL[:-3], "1", "--levels", "4"]
    refused(run("scale", *few, "--startup-s", "10", "--out", tmp_path / "out"), 4,
            "up to 1 workers", "effective accuracy")
