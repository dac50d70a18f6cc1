"""Killed sweeps lose no finished cell and end with the tables of an undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ramsis.sweep import SweepSpec, run_sweep
from tests.sweep.samples import WORKER, tables

SPEC = """
profiles = {profile}
workers = [2, 3, 4]
slo_ms = 100
load_qps = "100:500:100"
scheduler = [{worker}, "greedy"]
duration_s = 0.5
"""


@pytest.fixture
def spec_file(tiny_file, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(profile=json.dumps(str(tiny_file)), worker=json.dumps(WORKER)))
    return path


STARTED = """
import os, sys
from ramsis.cli.main import main
import ramsis.cli.simulation.sweep, ramsis.sweep.jobs, ramsis.worker.solve
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        main(line.rstrip("\\n").split("\\t"))
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""
"""A program that has loaded all that a sweep needs, and starts one for each line it reads."""


class Forked:
    """Sweeps in one process each, started by :data:`STARTED`."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen([sys.executable, "-c", STARTED], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *problem: object) -> None:
        self._parent.communicate(timeout=60)

    def start(self, spec: Path, out: Path) -> int:
        assert self._parent.stdin
        assert self._parent.stdout
        print("sweep", spec, "--out", out, "--processes", 1, sep="\t", file=self._parent.stdin,
              flush=True)
        return int(self._parent.stdout.readline())

    def ended(self) -> bool:
        """Whether the sweep has ended; until then the pipe holds nothing."""
        assert self._parent.stdout
        return bool(select.select([self._parent.stdout], [], [], 0)[0])

    def kill(self, child: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        assert self._parent.stdout
        assert self._parent.stdout.readline() == "ended\n"


def start(spec: Path, out: Path, processes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ramsis", "sweep", str(spec), "--out", str(out), "--processes",
         str(processes)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "cells").glob("[!.]*.json")}


def wait_for(more: int, out: Path, ended: Callable[[], object]) -> None:
    """Until so many cells more are finished, or the sweep is."""
    wanted = len(finished(out)) + more
    while len(finished(out)) < wanted and not ended():
        time.sleep(0.0005)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")
def test_five_random_kills_end_with_the_tables_of_an_undisturbed_run(spec_file, tmp_path):
    rng = random.Random()
    out = tmp_path / "killed"
    run_sweep(SweepSpec.load(spec_file), tmp_path / "undisturbed")  # compiles what it runs, too
    sweep = start(spec_file, out, processes=2)
    wait_for(1, out, lambda: sweep.poll() is not None)
    sweep.kill()
    # The pipe ends when the last process that holds it does: the workers of a killed sweep
    # end with it.
    sweep.communicate(timeout=60)
    with Forked() as sweeps:
        for _ in range(4):
            before = finished(out)
            child = sweeps.start(spec_file, out)
            wait_for(rng.choice((1, 1, 2, 3)), out, sweeps.ended)
            time.sleep(rng.uniform(0, 0.01))
            sweeps.kill(child)
            after = finished(out)
            assert before.items() <= after.items()
    last = start(spec_file, out, processes=2)
    told, _ = last.communicate(timeout=240)
    assert last.returncode == 0
    assert f"reused {len(after)}" in told
    assert tables(out) == tables(tmp_path / "undisturbed")
    assert finished(out) == finished(tmp_path / "undisturbed")
