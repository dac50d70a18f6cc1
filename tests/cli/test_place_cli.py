"""``ramsis place``: placements from the command line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from placement_milp import Limits, place, problem_from_document, read_problem, schema
from ramsis.errors import NotConvergedError
from tests.cli.command import refused
from tests.placement.samples import document
from tests.slow import slow_after

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def problem_file(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document()))
    return path


def test_the_json_document_has_the_promised_keys(run, problem_file, tmp_path):
    out = tmp_path / "out" / "placement.json"
    ran = run("place", problem_file, "--out", out, "--json")
    assert (ran.code, ran.err) == (0, "")
    printed = json.loads(ran.out)
    assert {"status", "objective", "dual_bound", "gap", "seconds", "rows"} <= set(printed)
    assert printed["status"] == "optimal"
    assert printed["gap"] <= 1e-6
    expected = place(read_problem(problem_file))
    assert printed["objective"] == pytest.approx(expected.objective)
    assert printed["rows"] == expected.rows()
    written = json.loads(out.read_text())
    assert Draft202012Validator(schema("placement-1")).is_valid(written)
    assert written["objective"] == printed["objective"]
    assert sum(len(group["workers"]) for group in written["groups"]) == len(written["moves"])


@pytest.mark.parametrize("solver", slow_after(1, ["highs", "cbc"]))
def test_a_solver_prints_nothing_of_its_own(solver, tmp_path):
    """In a process of its own, since a solver in C++ writes past Python's ``sys.stdout``."""
    ran = subprocess.run(
        [sys.executable, "-m", "ramsis", "place", "digits", "--out", tmp_path / "placement.json",
         "--solver", solver, "--json"], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["status"] == "optimal"


def test_the_tables_say_what_runs_where_and_what_families_get(run, tmp_path):
    out = tmp_path / "placement.json"
    ran = run("place", "digits", "--out", out, "--wide")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split()[:4] == ["worker", "type", "workers", "models"]
    assert any(line.startswith("cheques") and "100.00%" in line for line in lines)
    assert "  same workers" in ran.out  # two variants on one worker
    assert "optimal: effective-accuracy 0.953043 (at most 0.953043)" in ran.out
    assert "workers to change: " in ran.out
    assert "one more worker is worth: core 0.0" in ran.out
    assert ran.out.endswith(f"\nplacement in {out}\n")


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_front_is_printed(run, tmp_path, solver):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document(objective={"kind": "pareto", "points": 4})))
    ran = run("place", path, "--out", tmp_path / "o.json", "--solver", solver)
    assert ran.code == 0
    front = ran.out.partition("cost per hour")[2].partition("\n\n")[0].splitlines()[1:]
    costs = [float(line.split()[0]) for line in front]
    assert len(costs) >= 2
    assert costs == sorted(costs)


def test_the_file_is_the_same_each_time_but_for_the_time(run, problem_file, tmp_path):
    def written(name: str) -> dict[str, Any]:
        run("place", problem_file, "--out", tmp_path / name)
        found: dict[str, Any] = json.loads((tmp_path / name).read_text())
        del found["seconds"]
        assert name in found.pop("command")
        return found

    assert written("one.json") == written("two.json")


@pytest.mark.parametrize(("more", "code", "words"), [
    (("--gap", "-1"), 2, ("gap", "got -1.0", "0 <= gap < 1")),
    (("--gap", "nan"), 2, ("gap", "got nan")),
    (("--time-limit", "inf"), 2, ("time limit", "got inf")),
    (("--time-limit", "0"), 2, ("time limit", "got 0.0")),
    (("--solver", "simplex"), 2, ("--solver", "simplex")),
], ids=str)
def test_bad_options_get_one_line(run, problem_file, tmp_path, more, code, words):
    refused(run("place", problem_file, "--out", tmp_path / "o.json", *more), code, *words)
    assert not (tmp_path / "o.json").exists()


def test_bad_files_get_one_line_and_leave_nothing(run, tmp_path):
    bad = tmp_path / "bad.json"
    out = tmp_path / "o.json"
    bad.write_text(json.dumps(document(families=[])))
    refused(run("place", bad, "--out", out), 3, "bad.json: families: not a list")
    bad.write_text('{"format": "ramsis.placement-problem/1", "name": NaN}')
    refused(run("place", bad, "--out", out), 3, "not valid JSON")
    refused(run("place", tmp_path / "none.json", "--out", out), 3, "none.json")
    found = document()
    found["variants"][0]["latency"][0]["latency_ms"] = 7
    bad.write_text(json.dumps(found).replace('"latency_ms": 7', '"latency_ms": 1e999'))
    refused(run("place", bad, "--out", out), 3, "latency_ms: not a valid number: got inf")
    found = document()
    found["families"][0].update(min_served=1, demand_qps=10000)
    bad.write_text(json.dumps(found))
    refused(run("place", bad, "--out", out), 4, "family vision serves", "what binds")
    assert not out.exists()
    bad.write_text(json.dumps(document()))
    refused(run("place", bad, "--out", tmp_path), 2, "is a folder")


def hard_problem() -> dict[str, Any]:
    """One that takes long to prove: many alike families and types, to no gap at all."""
    import random

    dice = random.Random(5)
    families = [f"f{i}" for i in range(16)]
    types = [f"t{i}" for i in range(4)]
    return document(
        families=[{"name": f, "demand_qps": dice.uniform(50, 150), "slo_ms": 300}
                  for f in families],
        worker_types=[{"name": t, "count": 4, "memory_mb": 1000} for t in types],
        variants=[{"name": f"{f}v{i}", "family": f, "accuracy": dice.uniform(0.6, 0.99),
                   "memory_mb": 400, "latency": [
                       {"worker_type": t, "batch": b, "latency_ms": dice.uniform(8, 30) * b}
                       for t in types for b in (1, 2, 4)]}
                  for f in families for i in range(4)],
        rules={"variants_per_worker": 2})


@pytest.mark.slow
def test_a_time_limit_gives_the_best_so_far_with_its_gap():
    placement = None
    for seconds in (2.0, 8.0, 32.0):  # until there is something to return
        with contextlib.suppress(NotConvergedError):
            placement = place(problem_from_document(hard_problem()), Limits(0.0, seconds))
            break
    assert placement.status == "time-limit"
    assert placement.gap is not None
    assert placement.dual_bound is not None
    assert placement.gap > 0
    assert placement.objective < placement.dual_bound


@pytest.mark.slow
def test_ctrl_c_writes_the_best_so_far(tmp_path):
    """As the terminal does, the signal goes to all processes of the group."""
    path, out = tmp_path / "problem.json", tmp_path / "placement.json"
    path.write_text(json.dumps(hard_problem()))
    command = [sys.executable, "-m", "ramsis", "place", str(path), "--out", str(out), "--gap", "0"]
    for wait_s in (4.0, 8.0, 16.0, 32.0):  # until there is something to return
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, cwd=ROOT, start_new_session=True,
                                 env={**os.environ, "PYTHONPATH": str(ROOT)})
        time.sleep(wait_s)
        os.killpg(child.pid, signal.SIGINT)
        printed, errors = child.communicate(timeout=120)
        if printed:
            break
    assert child.returncode == 130, errors
    assert "interrupted: effective-accuracy" in printed
    assert errors == ""
    written = json.loads(out.read_text())
    assert written["status"] == "interrupted"
    assert written["gap"] > 0
    assert written["groups"]


def test_no_solution_in_time_exits_with_5(run, tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(hard_problem()))
    refused(run("place", path, "--out", tmp_path / "o.json", "--time-limit", "0.0001"), 5,
            "no solution was found", "more time")
    assert not (tmp_path / "o.json").exists()


def test_odd_names_and_no_workers_at_all(run, tmp_path):
    """Names that an LP file cannot tell apart, and a placement that uses nothing."""
    path = tmp_path / "problem.json"
    text = json.dumps(document())
    path.write_text(text.replace('"vision"', '"a b/é"').replace('"text"', '"a_b/é"')
                    .replace('"gpu"', '"g-1"').replace('"cpu"', '"g_1"'))
    for solver in ("highs", "cbc"):
        ran = run("place", path, "--out", tmp_path / "o.json", "--solver", solver)
        assert (ran.code, ran.err) == (0, "")
        assert "a b/é" in ran.out
    path.write_text(json.dumps(document(rules={"max_workers": 0})))
    ran = run("place", path, "--out", tmp_path / "o.json", "--plot", tmp_path / "o.png")
    assert (ran.code, ran.err) == (0, "")
    assert "optimal: effective-accuracy -1 " in ran.out
    assert json.loads((tmp_path / "o.json").read_text())["groups"] == []
