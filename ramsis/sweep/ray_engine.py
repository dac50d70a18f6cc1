"""Runner of jobs on Ray: a cluster, or processes that Ray starts on this machine.

Jobs are sent in chunks, since sending a task takes some milliseconds and a cell may take only
twenty. A chunk has one job at first, then as many as take about half a second, by the mean of
finished jobs. At most ``AHEAD`` chunks per CPU are in progress, so that memory is bounded, the
last jobs are spread evenly, and new nodes are used.

Ray runs the chunk of a lost process or node again elsewhere, and jobs whose files exist are
skipped. The jobs of a chunk that is lost repeatedly run one by one, so that only the job that
crashes its process fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ramsis.errors import InvalidValueError, RamsisError, install
from ramsis.plugins import trust, trusted
from ramsis.sweep.pool import Job, JobOutcome, Runner, outcome_of, safe_path

AHEAD = 2  # chunks under way for each CPU
RETRIES = 2  # runs of a chunk after its process was lost
_CHUNK_S = 0.5  # time of a chunk; longer ones hide progress, shorter ones cost more sending
_LARGEST = 64  # jobs of a chunk
_CONNECT_S = 5.0


class _Ended(NamedTuple):
    """Outcomes of the jobs of a chunk, and their mean time."""

    outcomes: list[JobOutcome]
    job_s: float


@contextlib.contextmanager
def ray_runner(workers: int, address: str | None = None) -> Iterator[Runner]:
    """Return a runner on a Ray cluster, or on processes of this machine without an address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise InvalidValueError("Ray is not installed", where="engine", value="ray",
                                allowed=install("ray")) from error
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        _start(ray, {"num_cpus": workers, "include_dashboard": False, **quiet})
    else:
        _check_reachable(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise _no_cluster(address, str(error)) from None
    with contextlib.redirect_stdout(sys.stderr):  # Ray's lines on lost processes
        try:
            yield _Cluster(ray).run
        finally:
            ray.shutdown()


def _start(ray: Any, settings: dict[str, Any]) -> None:
    """Start Ray on this machine."""
    try:
        with safe_path():  # its processes inherit it
            ray.init(**settings)
    except Exception as error:  # Ray raises plain exceptions, too
        ray.shutdown()
        raise RamsisError(f"Ray cannot be started here ({' '.join(str(error).split())[:200]})",
                          where="engine", value="ray",
                          allowed="--engine processes, or the --address of a cluster") from None


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens, for which Ray would wait."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        if address in ("auto", "local"):
            return
        raise InvalidValueError("not the address of a cluster", where="address", value=address,
                                allowed="HOST:PORT, ray://HOST:PORT, "
                                "auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, str(getattr(error, "strerror", None) or error)) from None


def _no_cluster(address: str, why: str) -> InvalidValueError:
    return InvalidValueError(f"no Ray cluster there ({' '.join(why.split())[:200]})",
                             where="address", value=address,
                             allowed="the address of a cluster that runs")


class _Cluster:
    """Jobs that are in progress on a Ray cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(_run_chunk).options(max_retries=RETRIES)
        self._job_s: float | None = None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, JobOutcome]]:
        """Run jobs; yield the index and the outcome of each as it ends."""
        waiting, alone = deque(range(len(jobs))), deque[int]()
        under: dict[Any, list[int]] = {}
        while waiting or alone or under:
            cpus = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            while (waiting or alone) and len(under) < AHEAD * cpus:
                chunk = [alone.popleft()] if alone else self._next(waiting, cpus)
                under[self._task.remote([jobs[i] for i in chunk], trusted())] = chunk
            done, _ = self._ray.wait(list(under), num_returns=1)
            for ref in done:
                chunk = under.pop(ref)
                ended = self._ended(ref, chunk)
                if ended is None:
                    alone.extend(chunk)
                    continue
                yield from zip(chunk, ended, strict=True)

    def _next(self, waiting: deque[int], cpus: int) -> list[int]:
        """Return the jobs of the next chunk, which is smaller at the end to use all CPUs."""
        size = 1
        if self._job_s is not None:
            fair = len(waiting) // (AHEAD * cpus) + 1
            size = max(1, min(_LARGEST, fair, int(_CHUNK_S / max(self._job_s, 1e-6))))
        return [waiting.popleft() for _ in range(min(size, len(waiting)))]

    def _ended(self, ref: Any, chunk: Sequence[int]) -> list[JobOutcome] | None:
        """Return the outcomes of a chunk; None if its jobs must run one by one."""
        errors = self._ray.exceptions
        try:
            ended: _Ended = self._ray.get(ref)
        except errors.RayTaskError as error:  # not of a job, which could not even be read
            raise RamsisError(
                "a node cannot run the jobs (" + " ".join(str(error.cause).split())[:200] + ")",
                where="ray", allowed="the same ramsis and its modules on every node") from None
        except errors.RayError as error:
            if len(chunk) > 1:
                return None
            why = type(error).__name__
            return [JobOutcome(f"the process that computed it was ended {RETRIES + 1} times, "
                               f"perhaps for want of memory ({why})", 1)]
        last = self._job_s
        self._job_s = ended.job_s if last is None else 0.7 * last + 0.3 * ended.job_s
        return ended.outcomes


def _run_chunk(jobs: Sequence[Job], words: Sequence[str]) -> _Ended:
    """Run jobs in sequence, except those that a lost process had finished."""
    trust(*words)
    begun = time.perf_counter()
    outcomes = [JobOutcome() if job.done() else outcome_of(job) for job in jobs]
    return _Ended(outcomes, (time.perf_counter() - begun) / len(jobs))
