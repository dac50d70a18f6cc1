"""Compilation of kernels, kept from run to run where there is a place to keep it.

Numba keeps compiled code beside the source, or in the user's cache folder. Where neither can be
written (a read-only installation of a user without a home), kernels are compiled in each process.
That takes up to 45 s for a policy, so the first compilation of a process is logged (INFO).
Of processes that need a kernel at once one compiles it, and the others wait for what it keeps.

A kernel whose name begins with an underscore is called by kernels only. So the code that turns
Python objects into its arguments is not compiled, which for a named tuple of many arrays takes
longer than a short kernel itself. Kernels hand each other numbers by type, not by value: numba
would compile a kernel once more for a number that is written in the call.

Numba makes the arrays and named tuples that a kernel returns with the help of Python code. There
Python runs the handlers of signals that came while the kernel ran. Numba does not look whether
they raised, so Ctrl-C would end the process with a segmentation fault. So the handler of an
interrupt is put off until the kernel has returned.

Settings of numba are those of the environment alone. It would also take a file of the current
folder, which may name another place of the cache, and code from a cache is run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` looks handlers up in an enumeration
import logging
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numba.core import config, event, types
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numpy.typing import NDArray

config._config_fname = os.devnull
config.reload_config()  # type: ignore[no-untyped-call,unused-ignore]

index = np.uint64
"""Of an array, in a compiled loop: the sign of an unsigned one is not looked at each time."""

_LONGEST_WAIT_S, _LOOKS_AGAIN_S = 60.0, 0.02
"""For other processes that compile, in all; one may have been stopped."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=NamedTuple)


class _Kernel(CPUDispatcher):  # type: ignore[misc,unused-ignore]
    """A compiled function in which no interrupt is handled."""

    gives_numbers = False  # which are made without Python code; known once it is compiled

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(  # type: ignore[no-untyped-call,unused-ignore]
            tuple(map(types.unliteral, args)), kws)

    def add_overload(self, compiled: Any) -> None:
        super().add_overload(compiled)
        self.gives_numbers = all(_is_of_numbers(signature.return_type)
                                 for signature in self.nopython_signatures)

    def compile(self, signature: Any) -> Any:
        kept, target = cast(Any, self)._cache, self.targetctx
        with _one_process(kept, self.py_func,
                          lambda: kept.load_overload(signature, target) is not None):
            return super().compile(signature)  # type: ignore[no-untyped-call,unused-ignore]

    def __call__(self, *arguments: Any) -> Any:
        if self.gives_numbers or not _in_main_thread():
            return super().__call__(*arguments)
        handler: Any = _signal.getsignal(signal.SIGINT)
        if not callable(handler):  # no Python code
            return super().__call__(*arguments)
        came: list[tuple[int, FrameType | None]] = []

        def put_off(number: int, frame: FrameType | None) -> None:
            if _COMPILATIONS.running:  # Python code of numba's that takes seconds, and may raise
                handler(number, frame)
            else:
                came.append((number, frame))

        _signal.signal(signal.SIGINT, put_off)
        try:
            return super().__call__(*arguments)
        finally:
            _signal.signal(signal.SIGINT, handler)
            if came:
                handler(*came[0])


class _InnerKernel(_Kernel):
    """A compiled function for other ones alone: called from Python, it would end the process."""

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} begins with an underscore, so kernels alone "
                        "call it")


class _Kept(FunctionCache):  # type: ignore[misc,unused-ignore]
    """Compiled code beside the source.

    Its index has the classes of named tuples that kernels took. A version of before may have had
    them in other modules, and files of a cache outlive an upgrade. Then the index begins anew.
    """

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)  # type: ignore[no-untyped-call,unused-ignore]
        except (ImportError, AttributeError):
            self.flush()  # type: ignore[no-untyped-call,unused-ignore]
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)  # type: ignore[no-untyped-call,unused-ignore]
        except (ImportError, AttributeError):
            self.flush()  # type: ignore[no-untyped-call,unused-ignore]
            super().save_overload(signature, data)  # type: ignore[no-untyped-call,unused-ignore]


@contextmanager
def _one_process(kept: Any, function: Callable[..., Any], is_kept: Callable[[], bool]
                 ) -> Iterator[None]:
    """Hold a kernel for one process at a time, until it is kept, where the system has such locks.

    A kernel waits for those that it calls while it is held. A process that never lets go, as one
    that was stopped, costs another the longest wait once, whatever it has to compile.
    """
    lock = _lock_file(kept.cache_path) if isinstance(kept, FunctionCache) else None
    if lock is None:
        yield
        return
    import fcntl

    # One file for a folder: each kernel has a byte of it.
    place = zlib.crc32(f"{function.__module__}.{function.__qualname__}".encode())
    try:
        with _COMPILATIONS.in_python():  # Ctrl-C ends the wait, too
            while True:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                    break
                except BlockingIOError:
                    if _COMPILATIONS.waited_s >= _LONGEST_WAIT_S or is_kept():
                        break
                    time.sleep(_LOOKS_AGAIN_S)
                    _COMPILATIONS.waited_s += _LOOKS_AGAIN_S
                except OSError:  # some network file systems have none
                    break
        yield
    finally:
        with suppress(OSError):
            fcntl.lockf(lock, fcntl.LOCK_UN, 1, place)


@cache
def _lock_file(folder: str) -> int | None:
    """Open the lock file beside the compiled code, once for the process; None if impossible.

    It is never closed: a process loses all its locks of a file with the first handle it closes.
    """
    try:
        import fcntl  # noqa: F401 - not on every system

        return os.open(os.path.join(folder, ".compiling"), os.O_RDWR | os.O_CREAT, 0o666)
    except (ImportError, OSError):
        return None


def _is_of_numbers(result: types.Type) -> bool:
    """Return whether a kernel's result is None, a number, or a plain tuple of numbers."""
    if isinstance(result, types.UniTuple | types.Tuple):
        return all(map(_is_of_numbers, result))
    return isinstance(result, types.Number | types.Boolean | types.NoneType)


def njit(**options: Any) -> Callable[[F], F]:
    """Compile with :func:`numba.njit`; ``cache`` is a preference."""
    def compiled(function: F) -> F:
        inner = function.__name__.startswith("_")
        chosen = {**options, "no_cpython_wrapper": inner, "no_cfunc_wrapper": True}
        try:
            kernel = numba.njit(**chosen)(function)
        except RuntimeError:  # no place for a cache
            kernel = numba.njit(**{**chosen, "cache": False})(function)
        kernel.__class__ = _InnerKernel if inner else _Kernel
        if isinstance(kernel._cache, FunctionCache):
            kernel._cache.__class__ = _Kept
        return kernel  # type: ignore[no-any-return]

    return compiled


def is_kept(kernel: Callable[..., Any]) -> bool:
    """Return whether a kernel has no need of compilation, or no place where it could be kept."""
    cache = getattr(kernel, "_cache", None)
    if not isinstance(cache, FunctionCache) or cast(Any, kernel).signatures:
        return True
    try:
        return bool(cast(Any, cache)._cache_file._load_index())
    except Exception:  # of another version, or not readable: pickle raises what it likes
        return False


@njit(cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator,unused-ignore]
def dot(vector: NDArray[np.float64], other: NDArray[np.float64], first: int, stop: int) -> float:
    """Return Σ vector(i)·other(i) over 0 <= first <= i < stop, summed in any order."""
    total = 0.0
    for i in range(index(first), index(stop)):
        total += vector[i] * other[i]
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def put(values: NDArray[Any], to: NDArray[Any]) -> None:
    """Write values, (n,), to the first places of an array, (≥ n,).

    For ``to[:n] = values`` numba compiles the text of an error, which takes two seconds in each
    process that compiles such a kernel.
    """
    for i in range(values.size):
        to[i] = values[i]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count_upto(values: NDArray[np.float64], value: float) -> int:
    """Return the number of rising values, (n,), that are at most a value.

    For ``np.searchsorted`` numba compiles comparisons of complex numbers, too.
    """
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def of_types(kernel: F, *arguments: Any) -> F:
    """Compile a kernel that returns numbers for positional arguments of these types alone.

    A call looks at no types, which takes most of the time of a short one with named tuples; an
    array of another type or layout would be misread.
    """
    if isinstance(kernel, _InnerKernel):
        raise TypeError("a kernel that begins with an underscore is called by kernels alone")
    compiled: F = cast(Any, kernel).compile(tuple(map(numba.typeof, arguments)))
    if not cast(Any, kernel).gives_numbers:
        raise TypeError("a kernel that gives more than numbers has to put interrupts off")
    return compiled


def uniform(arguments: T) -> T:
    """Return a named tuple with contiguous, writable arrays; copy those that are not.

    Numba compiles a kernel once more, for seconds, for arrays of another layout, and for arrays
    that are read-only.
    """
    return arguments._replace(**{
        name: np.require(value, requirements=("C", "W"))
        for name, value in zip(arguments._fields, arguments, strict=True)
        if isinstance(value, np.ndarray) and not value.flags.carray})


class _Compilations(event.Listener):  # type: ignore[misc,unused-ignore]
    """Logs the first compilation, and knows whether the main thread compiles."""

    def __init__(self) -> None:
        self.logged = False
        self.running = 0
        self.waited_s = 0.0  # for other processes

    @contextmanager
    def in_python(self) -> Iterator[None]:
        """Let code within the block take interrupts at once."""
        main = _in_main_thread()
        self.running += main
        try:
            yield
        finally:
            self.running -= main

    def on_start(self, event: Any) -> None:
        self.running += _in_main_thread()
        if not self.logged:
            self.logged = True
            logging.getLogger(__name__).info(
                "compiling, which takes up to 45 s and is kept for the next time")

    def on_end(self, event: Any) -> None:
        self.running -= _in_main_thread()


def log_no_compilation() -> None:
    """Leave the log of the first compilation out, in a process that says nothing."""
    _COMPILATIONS.logged = True


def _in_main_thread() -> bool:
    """Return whether this is the main thread, which runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)  # type: ignore[no-untyped-call,unused-ignore]
