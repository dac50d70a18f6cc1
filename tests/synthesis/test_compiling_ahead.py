"""Kernels that a forked process compiles ahead of the first one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow import slow_after

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="no second process")

FORKS = """
import sys, time
sys.path.insert(0, {folder!r})
from kernels import first, last
from ramsis.synthesis.recipes.central import compile_ahead
{before}
def run():
    print("not shown", file=sys.stderr, flush=True)
    last(1.5)
    {then}
compile_ahead(first, run)
for _ in range(2000):
    if last._cache._cache_file._load_index():
        break
    time.sleep(0.02)
print(last(1.5), sum(last.stats.cache_hits.values()))
"""


def _printed(
    tmp_path: Path, before: str = "", then: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Run a process that forks, which waits up to 40 s for the kernel of the copy."""
    (tmp_path / "kernels.py").write_text(
        "from ramsis.compiling import njit\n"
        "@njit(cache=True)\ndef first(value):\n    return value\n"
        "@njit(cache=True)\ndef last(value):\n    return 2 * value\n")
    return subprocess.run(
        [sys.executable, "-c", FORKS.format(folder=str(tmp_path), before=before, then=then)],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
             "OPENBLAS_NUM_THREADS": "1"})


@pytest.mark.parametrize("then", slow_after(1, ["raise SystemError", "time.sleep(100)"]))
def test_the_copy_compiles_says_nothing_and_does_not_outlive_the_first_one(tmp_path, then):
    done = _printed(tmp_path, then=then)  # whose pipes end with the last process
    assert (done.stdout, done.stderr, done.returncode) == ("3.0 1\n", "", 0)


@pytest.mark.slow
def test_kept_kernels_need_no_copy(tmp_path):
    assert _printed(tmp_path, before="first(1.5)\nlast(1)").stdout == "3.0 0\n"


FORK_IS_OF_USE = """
import os, threading, time
from ramsis.synthesis.recipes.central import _can_fork
print(_can_fork())
several, os.sched_getaffinity = os.sched_getaffinity, lambda _: {0}
print(_can_fork())  # on one processor
os.sched_getaffinity = several
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print(_can_fork())  # beside another thread
"""


def test_no_copy_where_it_does_not_help_or_is_not_safe():
    done = subprocess.run([sys.executable, "-c", FORK_IS_OF_USE], capture_output=True, text=True,
                          check=True,
                          cwd=Path(__file__).parents[2],
                          env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    assert done.stdout.split() == ["True", "False", "False"]
