"""Kernels are compiled once for the same numbers, and interrupts wait until they have returned."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher

from ramsis.compiling import _one_process, njit, of_types, uniform
from tests.cli.command import shown_on
from tests.slow import slow_after


class Arguments(NamedTuple):
    """Of a kernel."""

    values: Any
    scale: float


def _kernel() -> CPUDispatcher:
    @njit()
    def scaled_sum(arguments: Arguments) -> float:
        return arguments.values.sum() * arguments.scale  # type: ignore[no-any-return]

    return scaled_sum  # type: ignore[return-value]


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


MADE = {
    "fresh": lambda: np.arange(4.0),
    "a column": lambda: np.arange(12.0).reshape(4, 3)[:, 0],
    "read-only": lambda: _read_only(np.arange(4.0)),
    "repeated": lambda: np.broadcast_to(1.5, 4),
}


def test_one_compilation():
    kernel = _kernel()
    found = [kernel(uniform(Arguments(make(), 2.0))) for make in MADE.values()]
    assert found == [12.0, 36.0, 12.0, 12.0]
    assert len(kernel.signatures) == 1


def test_what_fits_is_not_copied():
    values = np.arange(4.0)
    assert uniform(Arguments(values, 1.0)).values is values


def test_what_does_not_is_left_alone():
    values = _read_only(np.arange(4.0))
    uniform(Arguments(values, 1.0)).values[0] = 5.0
    assert values[0] == 0.0


def test_a_number_that_is_written_in_a_call_compiles_nothing_anew():
    @njit()
    def _shifted(value: float, by: int) -> float:
        return value + by

    @njit()
    def both(value: float, by: int) -> float:
        return _shifted(value, 1) + _shifted(value, by)

    assert both(1.5, 2) == 6.0
    assert len(cast(CPUDispatcher, _shifted).signatures) == 1


def test_a_kernel_for_kernels_is_refused_elsewhere():
    @njit()
    def _doubled(value: float) -> float:
        return 2 * value

    @njit()
    def quadrupled(value: float) -> float:
        return _doubled(_doubled(value))

    assert quadrupled(1.5) == 6.0  # for which it is compiled
    for call in (lambda: _doubled(1.5), lambda: of_types(_doubled, 1.5)):
        with pytest.raises(TypeError, match="kernels alone"):
            call()


COMPILES_TWO = """
from ramsis.cli.output.rows import progress
with progress("loads", 2) as advance:
    from ramsis.compiling import njit
    for function in (lambda x: x + 1, lambda x: x * 2):
        njit()(function)(1.0)
        advance()
"""


def _shown_by(code: str, terminal: bool) -> str:
    """What a process writes to stderr, a terminal or not."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs,
                          cwd=Path(__file__).parents[1]):
        os.close(theirs)
        return shown_on(ours)


def test_a_terminal_is_told_once_that_kernels_are_compiled():
    assert _shown_by(COMPILES_TWO, terminal=True).count("compiling") == 1


def test_others_are_not():
    assert _shown_by(COMPILES_TWO, terminal=False) == ""


INTERRUPTED_WITHIN = """
import ctypes
from typing import NamedTuple
import numpy as np
from ramsis.compiling import njit

interrupt = ctypes.CDLL(None)["raise"]
interrupt.argtypes, interrupt.restype = [ctypes.c_int], ctypes.c_int

class Made(NamedTuple):
    number: float
    array: np.ndarray

@njit()
def kernel(array, now):
    if now:
        interrupt(2)
    return {result}

kernel(np.ones(2), False)
for _ in range(20):
    try:
        kernel(np.ones(2), True)
    except KeyboardInterrupt:
        continue
    raise SystemExit("not interrupted")
print(kernel(np.ones(2), False))
"""


@pytest.mark.parametrize("result", slow_after(1, [
    "Made(1.0, 2.0 * array)", "2.0 * array", "(1.0, array)", "(1, 2.5)", "None"]))
def test_an_interrupt_within_a_kernel_waits_for_its_end(result):
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_WITHIN.replace("{result}", result)],
                           capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_no_kernel_is_compiled_otherwise():
    root = Path(__file__).parents[1]
    others = [str(file.relative_to(root)) for package in ("ramsis", "placement_milp")
              for file in sorted((root / package).rglob("*.py"))
              if re.search(r"^ *(import numba|from numba)", file.read_text(), re.MULTILINE)]
    # numba also names the symbols of LAPACK that kernels call.
    assert others == ["ramsis/central/chain/_lapack.py", "ramsis/compiling.py"]


ASKS = """
import sys
sys.path.insert(0, {folder!r})
from kernel import twice
try:
    print("asks", flush=True)
    print(twice(1.5), sum(twice.stats.cache_hits.values()))
except KeyboardInterrupt:
    print("interrupted")
"""


@contextmanager
def _asked_for_while_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[CPUDispatcher, subprocess.Popen[str]]]:
    """A kernel that this process holds, and another process that needs it."""
    (folder / "kernel.py").write_text(
        "from ramsis.compiling import njit\n"
        "@njit(cache=True)\n"
        "def twice(value):\n    return 2 * value\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setattr(config, "CACHE_DIR", str(folder / "cache"))
    monkeypatch.delitem(sys.modules, "kernel", raising=False)
    from kernel import twice  # type: ignore[import-not-found]

    with subprocess.Popen([sys.executable, "-c", ASKS.format(folder=str(folder))], text=True,
                          stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as other:
        assert other.stdout is not None
        with _one_process(twice._cache, twice.py_func, lambda: False):
            assert other.stdout.readline() == "asks\n"
            time.sleep(0.3)
            yield twice, other
        del sys.modules["kernel"]


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path, monkeypatch):
    with _asked_for_while_compiled(tmp_path, monkeypatch) as (twice, other):
        assert other.poll() is None
        assert twice(1.5) == 3.0  # which lets go of it
        assert other.stdout.read() == "3.0 1\n"  # of the cache


@pytest.mark.slow
def test_waiting_for_a_kernel_is_interrupted(tmp_path, monkeypatch):
    with _asked_for_while_compiled(tmp_path, monkeypatch) as (_, other):
        other.send_signal(signal.SIGINT)
        assert other.stdout.read() == "interrupted\n"


@pytest.mark.slow
def test_a_cache_that_names_a_class_of_before_is_made_anew(tmp_path):
    """A class has moved, as between two versions; the kernel's file is the same."""
    (tmp_path / "kernel.py").write_text(
        "from ramsis.compiling import njit\n"
        "@njit(cache=True)\n"
        "def total(given):\n    return given.one + given.other\n")
    for place in ("before", "after", "after"):
        (tmp_path / f"{place}.py").write_text(
            "from typing import NamedTuple\n"
            "class Given(NamedTuple):\n    one: float\n    other: float\n")
        done = subprocess.run(
            [sys.executable, "-c", f"import kernel, {place}\n"
             f"print(kernel.total({place}.Given(1.0, 2.0)), sum(kernel.total.stats.cache_hits"
             ".values()))"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
                 "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
        assert done.returncode == 0, done.stderr
        (tmp_path / "before.py").unlink(missing_ok=True)
        hits = done.stdout.split()[1]
    assert hits == "1"


def test_a_cache_that_another_version_wrote_meanwhile_is_made_anew(tmp_path, monkeypatch):
    """Between the look into the cache and the writing another process may have written."""
    written: Any = FunctionCache.save_overload
    refused: list[Any] = []

    def after_another(self: FunctionCache, signature: Any, data: Any) -> None:
        if not refused:
            refused.append(signature)
            raise AttributeError("no such class here")
        written(self, signature, data)

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FunctionCache, "save_overload", after_another)

    @njit(cache=True)
    def twice(value: float) -> float:
        return 2 * value

    assert twice(1.5) == 3.0
    assert refused
    assert list(tmp_path.rglob("*.nbc"))
