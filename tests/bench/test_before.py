"""The speeds that users notice, as ratios to the code before: ``BEFORE=REVISION make bench``.

The earlier code is taken from git into a folder of its own; a process of each is asked in turn,
and the least processor time of each counts, so that other work on the machine touches both alike.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.speeds import QUERIES
from tests.bench.timing import ROOT, Timing

ROUNDS = 7
NO_SLOWER = 1.1
"""Times what the earlier code takes; the rest is noise."""
TARGETS_S = {
    "pure": 0.010, "pure, late=serve": 0.010, "pure, drawn times": 0.050,
    "all that a file states": 0.060, "all, drawn times": 0.150, "central queue": 0.150,
    "simulate": QUERIES / 20e6,
}


class Asked:
    """A process of one code that runs tasks by name."""

    def __init__(self, code: Path, profile: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(code)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "bench" / "speeds.py"), str(profile)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=code, env=environment)

    def seconds(self, task: str) -> float:
        """Processor time of a task."""
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def both(profile_file, tmp_path_factory):
    """This code, and the code of the revision that BEFORE names."""
    revision = os.environ.get("BEFORE")
    if not revision:
        pytest.skip("BEFORE names no revision to compare with")
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", revision, "ramsis", "placement_milp",
                              "profiles"], cwd=ROOT,
                             check=True, capture_output=True).stdout
    subprocess.run(["tar", "xf", "-"], cwd=folder, check=True, input=archive)
    asked = Asked(ROOT, profile_file), Asked(folder, profile_file)
    yield asked
    for one in asked:
        one.close()


@pytest.mark.parametrize("task", list(TARGETS_S))
def test_speed(benchmark, ledger, both, task):
    found: list[tuple[float, float]] = []

    def once() -> None:
        found.append((both[0].seconds(task), both[1].seconds(task)))

    benchmark.pedantic(once, rounds=ROUNDS)
    now, before = (min(times) for times in zip(*found, strict=True))
    ledger.ratio(Timing(now, now), Timing(before, before),
                 f"{task}: before, {os.environ['BEFORE']}")
    ledger.time(f"now: {task}", Timing(now, now), TARGETS_S[task])
    assert now <= NO_SLOWER * before
