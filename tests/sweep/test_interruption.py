"""Killed sweeps lose no finished cell and end with the tables of an undisturbed run."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ramsis.sweep import SweepSpec, run_sweep
from tests.sweep.samples import WORKER, tables

SPEC = """
profiles = {profile}
workers = [2, 3, 4]
slo_ms = 100
load_qps = "100:500:100"
scheme = [{worker}, "greedy"]
duration_s = 0.5
"""


@pytest.fixture
def spec_file(tiny_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(profile=json.dumps(str(tiny_file)), worker=json.dumps(WORKER)))
    return path


def start(spec: Path, out: Path, processes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ramsis", "sweep", str(spec), "--out", str(out), "--processes",
         str(processes)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "cells").glob("[!.]*.json")}


def wait_for(more: int, out: Path, sweep: subprocess.Popen[str]) -> None:
    """Until so many cells more are finished, or the sweep is."""
    wanted = len(finished(out)) + more
    while len(finished(out)) < wanted and sweep.poll() is None:
        time.sleep(0.0005)


@pytest.mark.slow
def test_ten_random_kills_end_with_the_tables_of_an_undisturbed_run(
    spec_file: Path, tmp_path: Path
) -> None:
    rng = random.Random()
    out = tmp_path / "killed"
    for kill in range(10):
        before = finished(out)
        sweep = start(spec_file, out, processes=2 if kill == 0 else 1)
        wait_for(rng.choice((1, 1, 2, 3)), out, sweep)
        time.sleep(rng.uniform(0, 0.01))
        sweep.kill()
        # The pipe ends when the last process that holds it does: the workers of a killed sweep
        # end with it.
        sweep.communicate(timeout=30)
        after = finished(out)
        assert before.items() <= after.items()
    last = start(spec_file, out, processes=2)
    told, _ = last.communicate(timeout=120)
    assert last.returncode == 0
    assert f"reused {len(after)}" in told
    run_sweep(SweepSpec.load(spec_file), tmp_path / "undisturbed")
    assert tables(out) == tables(tmp_path / "undisturbed")
    assert finished(out) == finished(tmp_path / "undisturbed")
