"""Wall-clock and processor time of calls and of whole processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Timing:
    """Medians over the rounds, in seconds.

    ``cpu_s`` is the processor time, user and system: on one core and an idle machine it equals
    the wall-clock time, on a busy one it is the steadier of the two.
    """

    wall_s: float
    cpu_s: float

    @classmethod
    def of(cls, rounds: Sequence[Timing]) -> Timing:
        """The medians of single rounds."""
        return cls(median(r.wall_s for r in rounds), median(r.cpu_s for r in rounds))

    def plus(self, other: Timing) -> Timing:
        """Both sums."""
        return Timing(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def scaled(self, factor: float) -> Timing:
        """Both times multiplied."""
        return Timing(self.wall_s * factor, self.cpu_s * factor)

    def minus(self, other: Timing) -> Timing:
        """Both differences."""
        return Timing(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


def timed(function: Callable[[], _Result]) -> tuple[_Result, Timing]:
    """What one call returns, and its times."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, Timing(time.perf_counter() - wall, time.process_time() - cpu)


def several(function: Callable[[], object], rounds: int) -> Timing:
    """Median times of a few calls."""
    return Timing.of([timed(function)[1] for _ in range(rounds)])


def repeated(
    benchmark: Any, function: Callable[[], _Result], *, rounds: int, warmup: int = 1
) -> tuple[_Result, Timing]:
    """The last result and the median times, the warm-up left out; pytest-benchmark watches."""
    seen: list[Timing] = []

    def once() -> _Result:
        result, timing = timed(function)
        seen.append(timing)
        return result

    result: _Result = benchmark.pedantic(once, rounds=rounds, warmup_rounds=warmup)
    return result, Timing.of(seen[warmup:])


def process(*arguments: str) -> tuple[str, Timing]:
    """Run Python with these arguments to its end: what it prints, and its times."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as installed code is
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments], stdout=output, cwd=ROOT, env=environment
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, f"{arguments} ended with {child.returncode}"
        output.seek(0)
        return output.read(), Timing(wall_s, usage.ru_utime + usage.ru_stime)
