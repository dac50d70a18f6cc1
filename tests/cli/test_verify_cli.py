"""``ramsis verify``: exit code 6 and the claims that fail, or how many hold."""

import json
import shutil
from pathlib import Path

import pytest

from ramsis.synthesis import generate_set
from tests.cli.command import refused
from tests.synthesis import samples


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "set"
    generate_set(tiny, (50.0, 900.0), samples.settings(grid="fixed:6", max_queue=4), folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """The same, a test's own to change."""
    return Path(shutil.copytree(made, tmp_path / "set"))


def tamper(path: Path, name: str, value: object) -> None:
    """Change an expectation in a policy file."""
    document = json.loads(path.read_text())
    document["expectations"][name] = value
    path.write_text(json.dumps(document))


def test_generated_sets_and_files_hold(run, folder):
    file = folder / "round-robin-00050qps.json"
    for paths, files in (((folder,), 2), ((folder / "manifest.json", file), 3)):
        ran = run("verify", *paths)
        assert (ran.code, ran.err) == (0, "")
        *gaps, last = ran.out.splitlines()
        count, words = last.split(maxsplit=1)
        assert words == f"claims hold in {files} file(s)"
        assert int(count) >= 20 * files
        assert len(gaps) == files
        for line in gaps:
            assert 0.0 <= float(line.partition("qps.json: certified_gap ")[2]) < 0.1


def test_the_certified_gap_is_at_the_price_of_the_policy(run, tiny_file, tmp_path):
    """And to the bound for Poisson arrivals: what `bound` prints at that price."""
    given = ("--profiles", tiny_file, "--slo-ms", "20", "--workers", "4", "--load", "1400")
    run("generate", *given, "--max-queue", "8", "--violation-price", "2", "--out", tmp_path)
    ran = run("bound", *given, "--max-batch", "8", "--violation-price", "2", "--json")
    bound = ran.rows[0]
    path = tmp_path / "round-robin-01400qps.json"
    expected = json.loads(path.read_text())["expectations"]
    value = expected["effective_accuracy"] - 2.0 * expected["violation_rate"]
    rows = run("verify", path, "--json").rows
    (gap,) = [row["derived"] for row in rows if row["claim"] == "certified_gap"]
    assert bound["poisson_upper_bound"] < bound["upper_bound"]
    assert gap == pytest.approx(1.0 - value / bound["poisson_upper_bound"], abs=1e-9)


def test_a_failing_claim_is_shown_with_both_figures_and_exits_with_6(run, folder):
    path = folder / "round-robin-00900qps.json"
    bound = json.loads(path.read_text())["expectations"]["upper_bound"]
    tamper(path, "upper_bound", bound + 0.01)
    ran = run("verify", folder / "round-robin-00050qps.json", path)
    assert ran.code == 6
    header, *failed = ran.out.splitlines()
    assert header.split() == ["file", "claim", "stated", "derived", "result"]
    assert len(failed) == 1
    assert failed[0].split() == [path.name, "upper", "bound", f"{bound + 0.01:.6f}",
                                 f"{bound:.6f}", "FAILS"]
    (line,) = ran.err.splitlines()
    assert line.startswith(f"error: 1 of {ran.err.split()[3]} claims do not hold: ")
    assert "ramsis generate --overwrite" in line
    assert run("verify", path, "--tolerance", "0.02").code == 0


def test_all_shows_the_claims_that_hold_too(run, folder):
    ran = run("verify", folder / "round-robin-00050qps.json", "--all", "--wide")
    _, *rows, gap, last = ran.out.splitlines()
    assert "certified_gap" in gap
    assert len(rows) == int(last.split()[0])
    assert all(row.endswith("  ok") for row in rows)
    for claim in ("expected accuracy", "gain against the optimum", "upper bound",
                  "capacity (QPS)", "table entries"):
        assert sum(f"  {claim}" in row for row in rows) >= 1


def test_json_rows_carry_every_claim(run, folder):
    tamper(folder / "round-robin-00900qps.json", "accuracy", None)
    ran = run("verify", folder, "--json")
    assert ran.code == 6
    rows = json.loads(ran.out)["rows"]
    failed = [row for row in rows if not row["holds"]]
    assert [(row["claim"], row["stated"]) for row in failed] == [("expected accuracy", None)]
    assert {row["file"] for row in rows} == {
        str(folder / f"round-robin-{load}qps.json") for load in ("00050", "00900")}
    assert ran.err.startswith(f"error: 1 of {len(rows)} claims do not hold: ")


def test_a_process_that_cannot_be_imported_is_a_bad_file(run, folder):
    path = folder / "round-robin-00050qps.json"
    document = json.loads(path.read_text()) | {"arrivals": {"process": "no_such_module:X"}}
    path.write_text(json.dumps(document))
    refused(run("verify", path), 3, str(path), "no_such_module:X")


def test_a_bad_tolerance_is_refused(run, folder):
    refused(run("verify", folder, "--tolerance", "nan"), 2, "tolerance")
