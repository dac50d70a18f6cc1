"""Replanning while serving: a background process makes policies, which replace the served set.

It is needed if the anticipated load exceeds every level of a set (EuroSys '24, §3.2.2), or if the
models have a new profile. A separate process makes the policies, so that it does not hold the
serving process's interpreter lock; a thread waits for it, loads its output, and replaces the set
by a single assignment, so that a reader holds either the old or the new set. On a failure, the
error is reported and the served set is kept.

The process writes each policy file under a temporary name, moves it into place, and only then
does the same with the manifest, so that a folder holds a valid set at every moment, whenever the
process is killed.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from ramsis.errors import InvalidValueError, RamsisError, at_least, check_positive, describe
from ramsis.runtime import load_set
from ramsis.runtime.policy_set import Choice, PolicySet
from ramsis.runtime.selector import Selector

__all__ = ["GENERATE", "Replanner"]

GENERATE = (sys.executable, "-P", "-m", "ramsis", "generate")
"""Command that generates policies: ``ramsis generate`` of this interpreter."""


class _Source(NamedTuple):
    """Inputs of a policy set: its folder, and the options of ``ramsis generate``."""

    folder: Path
    options: tuple[str, ...]


class _Job(NamedTuple):
    source: _Source
    loads_qps: tuple[float, ...]


class Replanner:
    """Policy set that makes missing policies in the background while it serves.

    At most one process runs at a time. Of the requested loads that wait, the newest is kept, and
    likewise of new sets; a new set cancels all earlier requests. Methods are thread-safe. A folder
    must have only one replanner.

    Parameters
    ----------
    folder : path
        Folder of the initial policy set.
    options : sequence of str
        Options of ``ramsis generate`` that made it, without ``--load`` and ``--out``:
        ``--profiles``, ``--slo-ms``, ``--workers`` and others that differ from the defaults.
    on_error : callable
        Called in a background thread with a one-line error if a set cannot be made.
    on_change : callable, optional
        Called in a background thread with each new set once it is served.
    headroom : float
        For a load above every level, a policy is made at this multiple of it, 1 or more, rounded
        up to a whole number of requests per second.
    timeout_s : float
        Time after which the process is stopped and reported, > 0.
    rest_s : float
        Time after a failure in which only explicit requests are planned for, >= 0.
    program : sequence of str
        Command to run, followed by the options, ``--load`` and ``--out``. ``("nice", "-n", "10",
        *GENERATE)`` gives it a low priority on systems with ``nice``.

    Raises
    ------
    InputFileError
        When the folder holds no valid set.
    InvalidValueError
        When a number is out of range.

    Examples
    --------
    >>> options = ["--profiles", "digits-cpu", "--slo-ms", "100", "--workers", "4"]
    >>> with Replanner("policies", options, on_error=print) as replanner:   # doctest: +SKIP
    ...     model, batch = replanner.at(120.0).selector(queued=3, slack_ms=80.0)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        options: Sequence[str],
        *,
        on_error: Callable[[RamsisError], object],
        on_change: Callable[[PolicySet[Selector]], object] | None = None,
        headroom: float = 1.25,
        timeout_s: float = 600.0,
        rest_s: float = 60.0,
        program: Sequence[str] = GENERATE,
    ) -> None:
        at_least(1).check("not a number in range", headroom=headroom)
        at_least(1e-3).check("not a number in range", timeout_s=timeout_s)
        at_least(0).check("not a number in range", rest_s=rest_s)
        self._on_error, self._on_change = on_error, on_change
        self._headroom, self._timeout_s, self._rest_s = headroom, timeout_s, rest_s
        self._program = tuple(program)
        self._source = _Source(Path(folder), tuple(options))
        self._policies = self._load(self._source)
        self._wanted_set: _Job | None = None
        self._wanted_load: float | None = None
        self._running: _Job | None = None
        self._process: subprocess.Popen[str] | None = None
        self._rests_until_s = -math.inf
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ramsis-replan", daemon=True)
        self._thread.start()

    @property
    def policies(self) -> PolicySet[Selector]:
        """Policy set that is served now; later replacements do not change it."""
        return self._policies

    def at(
        self, load_qps: float, process: str | None = None, slowness: float = 1.0
    ) -> Choice[Selector]:
        """Choose a level of the current set without blocking; see :meth:`PolicySet.at`."""
        return self._policies.at(load_qps, process, slowness)

    def plan_load(self, load_qps: float) -> None:
        """Request a policy for a load in requests per second, > 0, to be added to the set.

        It is made in the background; until this begins, a newer request replaces it. Loads above
        every level are planned for automatically, with the headroom.
        """
        check_positive("not a load", load_qps=load_qps)
        with self._changed:
            self._wanted_load = load_qps
            self._changed.notify_all()

    def plan_set(
        self,
        folder: str | os.PathLike[str],
        options: Sequence[str],
        loads_qps: Sequence[float] | None = None,
    ) -> None:
        """Request a whole set in another folder, to be served once it is complete.

        It is generated in the background. A running job is stopped, and a requested load dropped.

        Parameters
        ----------
        folder : path
            Folder other than the served one: without a set, or with one of the same settings.
        options : sequence of str
            Options of ``ramsis generate``, for later loads, too.
        loads_qps : sequence of float, optional
            Loads of the set; by default the levels of the served set.

        Raises
        ------
        InvalidValueError
            The folder is the served one, or there are no loads.
        """
        policies = self._policies
        if loads_qps is None:
            loads_qps = sorted({level.load_qps for level in policies.levels})
        if not loads_qps:
            raise InvalidValueError("no loads", where="loads_qps", allowed="one or more")
        if Path(folder).resolve() == self._source.folder.resolve():
            raise InvalidValueError("the folder is the one that is served", where="folder",
                                    value=str(folder), allowed="another folder")
        with self._changed:
            self._wanted_set = _Job(_Source(Path(folder), tuple(options)), tuple(loads_qps))
            self._wanted_load = None
            self._stop_process()
            self._changed.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all jobs are served or reported; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(self._idle, timeout_s)

    def close(self) -> None:
        """Stop the process and the thread; the set stays readable, later requests are ignored."""
        with self._changed:
            self._closed = True
            self._stop_process()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, source: _Source) -> PolicySet[Selector]:
        return load_set(source.folder, on_above_highest=self._above_highest)

    def _above_highest(self, load_qps: float) -> None:
        """Queue a job from the serving thread; never raises."""
        if load_qps < math.inf and time.monotonic() >= self._rests_until_s:
            self.plan_load(float(math.ceil(load_qps * self._headroom)))

    def _idle(self) -> bool:
        wanted = self._wanted_set or self._wanted_load
        return self._closed or not (wanted or self._running)

    def _stop_process(self) -> None:
        if self._process is not None:
            _kill(self._process)

    def _superseded(self) -> bool:
        return self._closed or self._wanted_set is not None

    def _run(self) -> None:
        """Run jobs one by one until closed, in the background thread."""
        while (job := self._next()) is not None:
            try:
                self._make(job)
            except RamsisError as error:
                self._report(error)
            except Exception as error:
                self._report(RamsisError(describe(f"replanning failed ({error!r})")))
            finally:
                with self._changed:
                    self._running = None
                    self._changed.notify_all()

    def _next(self) -> _Job | None:
        """Wait for a request, and return it as the running job; None once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._wanted_set or self._wanted_load)
            if self._closed:
                return None
            if self._wanted_set:
                self._running, self._wanted_set = self._wanted_set, None
            elif self._wanted_load:
                self._running = _Job(self._source, (self._wanted_load,))
                self._wanted_load = None
            return self._running

    def _make(self, job: _Job) -> None:
        """Run the process, load its output, and serve it unless a newer job supersedes it."""
        loads = ",".join(repr(float(load_qps)) for load_qps in job.loads_qps)
        self._execute([*self._program, *job.source.options,
                       "--load", loads, "--out", str(job.source.folder)])
        policies = self._load(job.source)
        with self._changed:
            if self._superseded():
                return
            self._source, self._policies = job.source, policies
        if self._on_change is not None:
            self._on_change(policies)

    def _execute(self, command: list[str]) -> None:
        """Run the generator in a process that a newer request can stop; raise its error."""
        # A newer request takes this lock, so it finds the process that it has to stop.
        with self._changed:
            if self._superseded():
                return
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True, errors="replace",
                    start_new_session=True)
            except OSError as error:
                raise RamsisError(f"cannot run the generator ({error.strerror})",
                                  where=command[0]) from error
        process = self._process
        try:
            _, printed = process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise RamsisError("the generator took too long and was stopped",
                              value=f"{self._timeout_s:g} s") from None
        finally:
            with self._changed:
                self._process = None
        if process.returncode:
            lines = printed.strip().splitlines() or ["no message"]
            raise RamsisError("the generator failed", where=lines[-1],
                              value=f"exit code {process.returncode}")

    def _report(self, error: RamsisError) -> None:
        """Report a failure, unless the job was stopped for a newer one."""
        if self._superseded():
            return
        self._rests_until_s = time.monotonic() + self._rest_s
        try:
            self._on_error(error)
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its descendants, which may hold the pipe that is read."""
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the process leads its own session
    except (AttributeError, OSError):  # no process groups on this system, or it has ended
        process.kill()
