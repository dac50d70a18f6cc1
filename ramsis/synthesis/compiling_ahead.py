"""Compilation of kernels ahead of their use, in a forked process.

Numba compiles one kernel at a time in a process. A process that finds none of its kernels in the
cache is forked: the copy has the inputs in memory, runs the last steps of the task on a trivial
intermediate result, and keeps the compiled code in the cache. The first process reaches these
steps later and finds their kernels there, or waits for the one that is being compiled
(:mod:`ramsis.compiling`). What the copy computes is dropped, so results are the same without it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

from ramsis.compiling import is_kept, log_no_compilation

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def compile_ahead(kernel: Callable[..., object], run: Callable[[], object]) -> None:
    """Run a function in a forked process to compile its kernels, unless ``kernel`` is cached.

    Does nothing where a second process gains nothing or is not safe: with one processor, with
    other threads, in a process of a pool, on systems other than Linux, without a cache.

    Parameters
    ----------
    kernel : callable
        Kernel whose presence in the cache tells that of the others.
    """
    if is_kept(kernel) or not _can_fork():
        return
    from multiprocessing import get_context

    with suppress(OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are looked at
        # A daemon is ended with this process, which also collects its exit code.
        get_context("fork").Process(
            target=_run_silently, args=(run, os.getpid()), daemon=True).start()


def _can_fork() -> bool:
    """Return whether a fork is safe, and has a processor of its own."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return False
    from multiprocessing import parent_process

    # Another thread may hold a lock, which nobody would release in the copy. The progress bar's
    # has only locks of the bar, which the copy does not use.
    others = [thread for thread in threading.enumerate()
              if thread is not threading.main_thread()
              and not type(thread).__module__.startswith("rich.")]
    with suppress(OSError):
        return (parent_process() is None and not others
                and len(os.listdir("/proc/self/task")) == threading.active_count())
    return False


def _run_silently(run: Callable[[], object], parent: int) -> None:
    """Run a function without output, and end with the parent process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C comes to both
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # a reader of the first one's output does not wait for the copy
        os.dup2(null, stream)
    log_no_compilation()
    with suppress(Exception):
        if os.getppid() == parent:
            run()
    os._exit(0)
