"""Runners of jobs in this process, or in a pool of processes that end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ramsis.errors import InputFileError, OutputError, RamsisError
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.memory import share_memory
from ramsis.plugins import trust, trusted

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.process import BaseProcess


class Job(Protocol):
    """A computation that writes a file, or returns a value."""

    @property
    def path(self) -> Path:
        """File that the job writes."""
        ...

    @property
    def needs(self) -> Sequence[Job]:
        """Jobs whose files this job reads; none by default."""
        return ()

    def done(self) -> bool:
        """Return whether the result of the job exists; by default whether its file exists."""
        return self.path.exists()

    def run(self) -> dict[str, Any] | None:
        """Write the job's file; a job without a file returns its value."""
        ...


def file_of(inputs: Mapping[str, Any]) -> str:
    """Return the name of a file by its inputs."""
    return f"{fingerprint(inputs).partition(':')[2][:32]}.json"


def whole_file(path: Path, format_: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of a file of this format and inputs; None if missing or incomplete."""
    try:
        document = read_json(path)
    except InputFileError:
        return None
    good = document.get("format") == format_ and document.get("inputs") == inputs
    return document if good else None


class ResultJob(Job):
    """A job whose file holds all inputs of its result, by which it is named."""

    folder: Path  # of all results
    kind: ClassVar[str]  # folder of results of this kind
    format_: ClassVar[str]  # of the file

    @property
    def inputs(self) -> dict[str, Any]:
        """All inputs that the result depends on, as JSON values."""
        raise NotImplementedError

    @cached_property
    def path(self) -> Path:
        """File of the result, named by a fingerprint of the inputs."""
        return self.folder / self.kind / file_of(self.inputs)

    def result(self) -> dict[str, Any] | None:
        """Return the result; None without a complete file of these inputs."""
        return whole_file(self.path, self.format_, self.inputs)

    def done(self) -> bool:
        """Return whether a complete file of these inputs exists."""
        return self.result() is not None

    def write(self, **result: Any) -> None:
        """Write the file of the result, with all inputs."""
        write_atomic(self.path, canonical_json(
            {"format": self.format_, "inputs": self.inputs, **result}))


_SAFE_PATH = "PYTHONSAFEPATH"


class JobOutcome(NamedTuple):
    """Outcome of a job: success, or an error message with an exit code.

    With ``store`` the place of the results could not be written; ``value`` is the value of a job
    without a file.
    """

    error: str | None = None
    exit_code: int = 0
    store: bool = False
    value: dict[str, Any] | None = None


# Runs jobs; yields the index and the outcome of each as it ends, in any order.
Runner = Callable[[Sequence[Job]], Iterator[tuple[int, JobOutcome]]]


@contextlib.contextmanager
def process_runner(processes: int) -> Iterator[Runner]:
    """Return a runner with a number of processes; leaving the block early ends them at once."""
    if processes == 1:
        yield _in_this_process
        return
    import multiprocessing  # not needed for a single process
    from concurrent.futures import ProcessPoolExecutor

    before = set(multiprocessing.active_children())
    with safe_path():  # the tracker of its semaphores is a process that starts here
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin,
                                   (trusted(), processes))
    try:
        yield lambda jobs: _in_pool(pool, jobs)
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _in_this_process(jobs: Sequence[Job]) -> Iterator[tuple[int, JobOutcome]]:
    for index, job in enumerate(jobs):
        yield index, outcome_of(job)


def _in_pool(pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> Iterator[tuple[int, JobOutcome]]:
    from concurrent.futures import as_completed  # loaded by now
    from concurrent.futures.process import BrokenProcessPool

    try:
        with safe_path(), _interrupts_held():  # processes start when jobs are submitted
            futures: dict[Future[JobOutcome], int] = {
                pool.submit(outcome_of, job): index for index, job in enumerate(jobs)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise RamsisError(
            "one of the processes was ended from outside, perhaps for want of memory",
            where="sweep", allowed="finished cells stay; run again with fewer "
            "--processes") from None


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Keep Python from importing from the current folder, in processes that start meanwhile."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def outcome_of(job: Job) -> JobOutcome:
    """Run a job; return an error as its outcome instead of raising it."""
    try:
        return JobOutcome(value=job.run())
    except RamsisError as error:
        return JobOutcome(_line(str(error)), error.exit_code, isinstance(error, OutputError))
    except Exception as error:
        return JobOutcome(_line(f"{type(error).__name__}: {error}"), 1)


def _line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block SIGINT; processes that start meanwhile inherit that and never receive it."""
    if not hasattr(signal, "pthread_sigmask"):  # no such masks on this system
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(words: Sequence[str], processes: int) -> None:
    """Set up one of several processes, which ends with its parent."""
    import multiprocessing  # loaded by now

    trust(*words)
    share_memory(processes)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
