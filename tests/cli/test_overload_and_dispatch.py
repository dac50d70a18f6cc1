"""Exit codes in overload, both kinds of dispatch where none is named, and missing extras."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InfeasibleError
from tests.cli.command import refused, snapshot

QUICK = ["--grid", "fixed:10", "--max-queue", "8"]


def served(tiny_file: Path, load: object) -> list[object]:
    return ["--profiles", tiny_file, "--slo-ms", 100, "--workers", 2, "--load", load]


def test_overload_is_written_named_and_an_error_only_if_strict(run, tiny_file, tmp_path):
    asked = ["generate", *served(tiny_file, "117,96000.5"), *QUICK]
    ran = run(*asked, "--out", tmp_path / "a", "--json")
    assert [row["overloaded"] for row in ran.rows] == [False, True]
    (note,) = [line for line in ran.err.splitlines() if "OVERLOAD" in line]
    capacity_qps = ran.rows[1]["capacity_qps"]
    assert re.fullmatch(
        r"note: 96000.5 QPS: OVERLOAD, [\d.]+% of the requests late or dropped; with batches up "
        rf"to --max-queue no scheduler answers more than {capacity_qps:g} QPS in time", note)
    strict = run(*asked, "--out", tmp_path / "b", "--strict")
    assert strict.code == 4
    assert note in strict.err
    assert strict.err.splitlines()[-1].startswith("error: overload in 1")
    assert "ramsis capacity" in strict.err.splitlines()[-1]
    assert len(list((tmp_path / "b").glob("round-robin-*.json"))) == 2
    calm = run("generate", *served(tiny_file, 117), *QUICK, "--out", tmp_path / "c", "--strict")
    assert calm.code == 0
    assert "OVERLOAD" not in calm.err


def test_queues_that_grow_without_end_are_named_and_how_to_mend_them(run, tiny_file, tmp_path):
    asked = ["--late", "serve", "--max-queue", 2]
    ran = run("generate", *served(tiny_file, 900), *asked, "--out", tmp_path, "--json")
    assert ran.code == 0
    assert ("note: 900 QPS: OVERLOAD, queues of more than 2 grow without end; a longer "
            "--max-queue has larger batches, --late drop gives up") in ran.err
    (row,) = ran.rows
    assert (row["expected_violation_rate"], row["expected_accuracy"]) == (1.0, None)
    (row,) = run("analyze", tmp_path, "--json").rows
    assert (row["queue_length"], row["slack_ms"]) == (None, None)
    assert "no end" in run("analyze", tmp_path, "--wide").out
    assert "more than 2 grow without end" in run(
        "policy", "show", next(tmp_path.glob("*qps*.json"))).out


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 4)])
def test_simulations_in_overload_end_with_0_unless_strict(run, tiny_file, tmp_path, strict, code):
    csv = tmp_path / "rows.csv"
    ran = run("simulate", *served(tiny_file, "117,96000.5"), "--duration-s", 1, "--scheduler",
              "jellyfish-plus", "--csv", csv, *strict)
    assert ran.code == code
    assert "note: jellyfish-plus, 96000.5 QPS: OVERLOAD" in ran.err
    assert len(csv.read_text().splitlines()) == 3
    spec = tmp_path / "sweep.toml"
    spec.write_text(f'profiles = "{tiny_file}"\nworkers = 2\nslo_ms = 100\n'
                    'load_qps = [117, 96000.5]\nduration_s = 1\nscheduler = ["greedy"]\n')
    swept = run("sweep", spec, "--out", tmp_path / "out", "--processes", 1, *strict)
    assert swept.code == code
    assert "note: greedy, 96000.5 QPS: OVERLOAD" in swept.err


ASKED = ["--slo-ms", 100, "--load", 300.5, "--arrivals", "renewal:2", "--duration-s", 2,
         "--seeds", 2]


@pytest.mark.slow
def test_capacity_has_both_kinds_of_dispatch_and_the_next_commands(
    run, tiny_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    asked = ["capacity", "--profiles", tiny_file, *ASKED, "--min-accuracy", 0.7]
    found = json.loads(run(*asked, "--json").out)
    assert [row["scheduler"] for row in found["rows"]] == ["round-robin", "central-queue"]
    for row, line in zip(found["rows"], found["next"], strict=True):
        words = shlex.split(line)
        assert words[:2] == ["ramsis", "generate"]
        assert words[words.index("--arrivals") + 1] == "renewal:2"
        (level,) = run(*words[1:], *QUICK, "--json").rows
        assert (level["workers"], level["load_qps"], level["scheduler"]) == (
            row["workers"], 300.5, row["scheduler"])
    printed = run(*asked).out
    block = printed.partition("next, one of:\n")[2].replace("\\\n", "")
    assert [shlex.split(line) for line in block.splitlines()] == [
        shlex.split(line) for line in found["next"]]
    for name in ("round-robin", "central-queue"):
        named = run(*asked, "--dispatch", name, "--json")
        alone = json.loads(named.out)
        assert "next" not in alone
        assert alone["rows"] == [row for row in found["rows"] if row["scheduler"] == name]
        assert run(*asked, "--scheduler", name, "--json").out == named.out.replace(
            "--dispatch", "--scheduler")


@pytest.mark.parametrize(("missing", "named", "code"), [
    ({"round-robin"}, (), 0), ({"round-robin", "central-queue"}, (), 4),
    ({"round-robin"}, ("--dispatch", "round-robin", "--dispatch", "central-queue"), 4)])
def test_one_kind_of_dispatch_that_meets_the_target_is_enough_unless_both_are_named(
    run, tiny_file, monkeypatch, missing, named, code
):
    from ramsis.cli import parallel_jobs

    search = parallel_jobs.fewest_workers

    def searched(*given: Any, scheduler: str, **terms: Any) -> Any:
        if scheduler in missing:
            raise InfeasibleError(f"{scheduler} does not reach this; allowed: at most 0.7")
        return search(*given, scheduler=scheduler, **terms)

    monkeypatch.setattr(parallel_jobs, "fewest_workers", searched)
    ran = run("capacity", "--profiles", tiny_file, *ASKED, "--min-accuracy", 0.7, "--json", *named)
    assert ran.code == code
    assert "round-robin does not reach this" in ran.err
    rows = json.loads(ran.out)["rows"] if ran.out else []
    assert {row["scheduler"] for row in rows} == {"round-robin", "central-queue"} - missing


def test_a_target_out_of_reach_exits_with_4_and_the_best_that_can_be_met(run, tiny_file):
    for words in (["capacity", "--profiles", tiny_file, *ASKED],
                  ["plan", "--profiles", tiny_file, "--slo-ms", 100, "--load", 300.5, "--out",
                   "nothing"]):
        ran = run(*words, "--min-accuracy", 0.95)
        refused(ran, 4, "at most 0.9")
    assert not Path("nothing").exists()


@pytest.mark.slow
def test_an_audit_has_both_kinds_of_dispatch_and_the_next_commands(run, tiny, tiny_file, tmp_path):
    log = tmp_path / "log.csv"
    name = tiny.models[0].name
    log.write_text(
        "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
        + "".join(f"{t:.3f},{t:.3f},{t + 0.006:.3f},100,served,{name},1,1,0,1\n"
                  for t in np.arange(0.0, 1.0, 0.01)))
    asked = ["audit", log, "--profiles", tiny_file, "--workers", 2, "--seeds", 1]
    found = json.loads(run(*asked, "--json").out)
    (row,) = found["rows"]
    each = {one["dispatch"]: one for one in row["dispatches"]}
    assert list(each) == ["round-robin", "central-queue"]
    assert row["best_policy"] in [one["best_policy"] for one in each.values()]
    assert row["best_policy"]["effective_accuracy"] == max(
        one["best_policy"]["effective_accuracy"] for one in each.values())
    for dispatch, one in each.items():
        (alone,) = run(*asked, "--dispatch", dispatch, "--json").rows
        assert "dispatches" not in alone
        assert alone["best_policy"] == one["best_policy"]
        assert alone["fewest_workers"] == one["fewest_workers"]
    printed = run(*asked).out
    for dispatch in each:
        assert re.search(rf"best policy: {dispatch} ", printed)
        assert f"--dispatch {dispatch} --out" in printed


@pytest.mark.parametrize(("library", "words", "extra"), [
    ("matplotlib", ["simulate", "--profiles", "none.json", "--slo-ms", 1, "--workers", 1,
                    "--load", 1, "--scheduler", "greedy", "--plot", "a.png"], "plot"),
    ("ray", ["sweep", "none.toml", "--out", "out", "--engine", "ray"], "ray"),
    ("fsspec", ["sweep", "none.toml", "--out", "s3://bucket/out"], "store"),
    ("httptools", ["load", "http://localhost:1", "--model", "x", "--slo-ms", 25, "--trace",
                   "day"], "serve"),
    ("uvicorn", ["serve", "none", "--variants", "none.toml"], "serve"),
])
def test_what_needs_an_extra_says_so_before_anything_is_read(
    run, tmp_path, monkeypatch, library, words, extra
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    refused(run(*words), 2, f"allowed: pip install 'ramsis[{extra}]'")
    assert snapshot(tmp_path) == {}
