"""Running jobs on Ray: a cluster, or processes that Ray starts on this machine.

Jobs go out in chunks. Handing over a task takes some milliseconds, which is much for a cell of
twenty; so a chunk is as many jobs as take about half a second, by the mean of those that have
ended, and one at first. No more than ``AHEAD`` chunks for each CPU are under way, so that memory
stays flat, the last jobs are spread evenly, and a cluster that grows is noticed.

A process or a node that is lost takes down its chunk. Ray runs that again elsewhere, and jobs
whose files are there are passed over. A chunk that is lost time and again is taken apart, so that
the job that ends its process is found: that one fails, and the others go on.
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
from ramsis.sweep.job import Job
from ramsis.sweep.pool import JobOutcome, Runner, outcome_of, safe_path

AHEAD = 2
"""Chunks under way for each CPU."""
RETRIES = 2
"""How often a chunk that was lost with its process is run again."""
_CHUNK_S = 0.5
_LARGEST = 64
_CONNECT_S = 5.0


class _Ended(NamedTuple):
    """How the jobs of a chunk ended, and how long each took on average."""

    outcomes: list[JobOutcome]
    job_s: float


@contextlib.contextmanager
def ray_runner(workers: int, address: str | None = None) -> Iterator[Runner]:
    """A runner on a Ray cluster, or on as many processes here where no address is given."""
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
    with contextlib.redirect_stdout(sys.stderr):  # what Ray says of lost processes, to its end
        try:
            yield _Cluster(ray).run
        finally:
            ray.shutdown()


def _start(ray: Any, settings: dict[str, Any]) -> None:
    """Start Ray on this machine."""
    try:
        with safe_path():  # its processes inherit it
            ray.init(**settings)
    except Exception as error:  # plain ones among them
        ray.shutdown()
        raise RamsisError(f"Ray cannot be started here ({' '.join(str(error).split())[:200]})",
                          where="engine", value="ray",
                          allowed="--engine processes, or the --address of a cluster") from None


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would wait for it."""
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
    """The jobs that are under way on a cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(_run_chunk).options(max_retries=RETRIES)
        self._job_s: float | None = None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, JobOutcome]]:
        """Run jobs; the index and the outcome of each as it ends."""
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
        """The jobs of the next chunk: fewer towards the end, so that all CPUs have some."""
        size = 1
        if self._job_s is not None:
            fair = len(waiting) // (AHEAD * cpus) + 1
            size = max(1, min(_LARGEST, fair, int(_CHUNK_S / max(self._job_s, 1e-6))))
        return [waiting.popleft() for _ in range(min(size, len(waiting)))]

    def _ended(self, ref: Any, chunk: Sequence[int]) -> list[JobOutcome] | None:
        """How the jobs of a chunk ended; None where they are to be run one by one."""
        errors = self._ray.exceptions
        try:
            ended: _Ended = self._ray.get(ref)
        except errors.RayTaskError as error:  # not of a job: it could not be read, say
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
    """Run jobs one after the other, but those that a lost process had finished."""
    trust(*words)
    begun = time.perf_counter()
    outcomes = [JobOutcome() if job.done() else outcome_of(job) for job in jobs]
    return _Ended(outcomes, (time.perf_counter() - begun) / len(jobs))
