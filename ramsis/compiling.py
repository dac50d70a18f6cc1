"""Compilation of kernels with numba, cached between processes where a cache can be written.

Numba caches compiled code beside the source, or in the user's cache folder. Where neither can be
written (a read-only installation of a user without a home), kernels are compiled in each process.
That takes up to 45 s for a policy, so the first compilation of a process is logged (INFO).
If several processes need a kernel at once, one compiles it and the others wait for the cache.

A kernel whose name begins with an underscore is called by kernels only. So numba need not compile
the code that turns Python objects into the kernel's arguments; for a named tuple of many arrays
that would take longer than compiling a short kernel. Kernels pass numbers to each other by type,
not by value: numba would compile a kernel once more for each literal number in a call.

Numba runs Python code to make the arrays and named tuples that a kernel returns. In that code
Python runs the handlers of signals that came while the kernel ran. Numba does not check whether a
handler raised, so Ctrl-C would end the process with a segmentation fault. Therefore the interrupt
handler is deferred until the kernel has returned.

Numba takes its settings from the environment alone. By default it also reads a configuration file
in the current folder. Such a file could name another cache, and numba runs the code in a cache.
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
"""Type of array indices in compiled loops: numba does not check the sign of an unsigned index."""

_LONGEST_WAIT_S, _LOOKS_AGAIN_S = 60.0, 0.02
"""Longest total wait for other processes that compile (one may be stopped); time between tries."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=NamedTuple)


class _Kernel(CPUDispatcher):  # type: ignore[misc,unused-ignore]
    """A compiled function in which no interrupt is handled."""

    # Whether the kernel returns only numbers, for which numba runs no Python code; set by the
    # compilation.
    gives_numbers = False

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
            # While numba compiles, for seconds in Python code, an interrupt may raise at once.
            if _COMPILATIONS.running:
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
    """A compiled function for kernels only; a call from Python would crash the process."""

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} begins with an underscore, so kernels alone "
                        "call it")


class _Kept(FunctionCache):  # type: ignore[misc,unused-ignore]
    """Cache of compiled code that survives an upgrade of the package.

    The index of the cache names the classes of the named tuples that kernels take. An earlier
    version may have defined these classes in other modules, so that the index cannot be read.
    Then the index is emptied.
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
    """Let one process at a time compile a kernel, where the system has file locks.

    The other processes wait until the compiled code ``is_kept``, in all for the longest wait at
    most. So a process that was stopped while it held the lock costs each other process the
    longest wait once, however many kernels that process has to compile. Locks nest: the kernels
    that a kernel calls are compiled while its lock is held.
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

    The file is never closed: a process loses all its locks on a file with the first handle of the
    file that it closes.
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
    """Compile a function with :func:`numba.njit`; ``cache`` is a preference."""
    def compiled(function: F) -> F:
        # Functions with an underscore are called by kernels alone, and need no Python wrapper.
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

    In place of ``to[:n] = values``, for which numba also compiles the text of an error: that takes
    two seconds in each process that compiles such a kernel.
    """
    for i in range(values.size):
        to[i] = values[i]


def of_types(kernel: F, *arguments: Any) -> F:
    """Return a kernel compiled for exactly the types of ``arguments``, without checks of types.

    With named tuples as arguments, checking types takes most of the time of a short call. The
    caller has to pass the same types each time: an array of another type or layout would be
    misread. The kernel must return numbers only.
    """
    if isinstance(kernel, _InnerKernel):
        raise TypeError("a kernel that begins with an underscore is called by kernels alone")
    compiled: F = cast(Any, kernel).compile(tuple(map(numba.typeof, arguments)))
    if not cast(Any, kernel).gives_numbers:
        raise TypeError("a kernel that gives more than numbers has to put interrupts off")
    return compiled


def uniform(arguments: T) -> T:
    """Return a named tuple with contiguous, writable arrays; copy all other arrays.

    For arrays of another layout, and for read-only arrays, numba would compile the kernel once
    more, which takes seconds.
    """
    return arguments._replace(**{
        name: np.require(value, requirements=("C", "W"))
        for name, value in zip(arguments._fields, arguments, strict=True)
        if isinstance(value, np.ndarray) and not value.flags.carray})


class _Compilations(event.Listener):  # type: ignore[misc,unused-ignore]
    """Listener that logs the first compilation and counts compilations in the main thread."""

    def __init__(self) -> None:
        self.logged = False
        self.running = 0  # nested compilations and waits of the main thread
        self.waited_s = 0.0  # total wait for other processes that compile

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


def _in_main_thread() -> bool:
    """Return whether this is the main thread, which runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)  # type: ignore[no-untyped-call,unused-ignore]
