"""``ramsis sweep`` as it is typed."""

import json
from pathlib import Path

from tests.cli.command import Ran, refused
from tests.sweep.samples import WORKER


def write_spec(path: Path, profile: Path, more: str = "", slo_ms: str = "100") -> Path:
    path.write_text(
        f"profiles = {json.dumps(str(profile))}\nworkers = 2\nslo_ms = {slo_ms}\n"
        f"load_qps = 100\nduration_s = 0.5\nscheduler = ['{WORKER}', 'greedy']\n{more}\n")
    return path


def test_it_prints_what_it_did_and_where_the_tables_are(run, tiny_file, tmp_path):
    spec, out = write_spec(tmp_path / "spec.toml", tiny_file), tmp_path / "out"
    first = run("sweep", spec, "--out", out, "--processes", 1)
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines()[0] == "computed 2, reused 0, failed 0"
    assert all(Path(line.strip()).is_file() for line in first.out.splitlines()[1:])
    again = run("sweep", spec, "--out", out, "--processes", 1, "--json")
    document = json.loads(again.out)
    assert (document["computed"], document["reused"], document["failed"]) == (0, 2, 0)
    assert [row["scheduler"] for row in document["rows"]] == [WORKER, "greedy"]
    valid = run("validate", out / "value-table.json")
    assert "value table, 1 row" in valid.out


def test_failed_cells_are_told_on_stderr_with_the_exit_code_of_the_first(run, tiny_file, tmp_path):
    spec = write_spec(tmp_path / "spec.toml", tiny_file, slo_ms="[1, 100]")
    ran = run("sweep", spec, "--out", tmp_path / "out", "--processes", 1)
    assert ran.code == 4
    assert ran.out.splitlines()[0] == "computed 2, reused 0, failed 2"
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("failed: ") and "SLO 1 ms" in line for line in lines)


def test_a_bad_specification_is_one_line_and_writes_nothing(run, tiny_file, tmp_path):
    spec = write_spec(tmp_path / "spec.toml", tiny_file, more="colour = 'red'")
    refused(run("sweep", spec, "--out", tmp_path / "out"), 3, "spec.toml", "colour")
    assert not (tmp_path / "out").exists()


def test_a_bad_value_table_is_refused(run, tmp_path):
    row = {"worker_type": "cpu", "model_set": ["a"], "workers": 1, "load_qps": 1.0,
           "slo_ms": 1.0, "expected_effective_accuracy": 0.9, "expected_violation_rate": 0.05}
    path = tmp_path / "values.json"

    def check(*rows: dict[str, object]) -> Ran:
        path.write_text(json.dumps({"format": "ramsis.value-table/1", "rows": rows}))
        return run("validate", path)

    assert check(row, {**row, "workers": 2}).code == 0
    refused(check(row, row), 3, "rows[1]", "twice")
    refused(check({**row, "expected_violation_rate": 0.2}), 3,
            "expected_effective_accuracy", "0.8")
    refused(check({**row, "model_set": []}), 3, "rows[0].model_set")
    refused(check(), 3, "rows")
