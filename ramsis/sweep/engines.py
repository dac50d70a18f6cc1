"""Engines of jobs: this process, several processes of this machine, or a Ray cluster.

Jobs run like the cells of a sweep, and their values are returned to the calling process. With a
place, values are also stored there under the fingerprints of their inputs, and reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ramsis import __version__
from ramsis.errors import InvalidValueError, check_known, check_number_of
from ramsis.files import canonical_json, write_atomic
from ramsis.sweep.pool import Job, JobOutcome, Runner, file_of, process_runner, whole_file
from ramsis.sweep.store import Place, store_at

# Of the file of a stored result: a new number where the same inputs give new results.
ANSWER_FORMAT = "ramsis.answer/2"


@dataclass(frozen=True)
class Engine:
    """Engine that runs jobs.

    Attributes
    ----------
    name : str
        One of :data:`ENGINES`.
    workers : int
        Processes, >= 1; with ``address`` the cluster's own.
    address : str or None
        Of a Ray cluster, as ``ray.init`` takes it; ``None`` starts one on this machine.

    Raises
    ------
    InvalidValueError
        No such engine, not a number of workers, or an address without Ray.
    """

    name: str = "processes"
    workers: int = 1
    address: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes than this one."""
        return self.workers > 1 or self.name != "processes"

    def __post_init__(self) -> None:
        check_known("unknown engine", self.name, ENGINES, "engine")
        check_number_of("processes", self.workers)
        if self.address is not None and self.name != "ray":
            raise InvalidValueError("an address is of a Ray cluster", where="address",
                                    value=self.address, allowed="engine ray")


def runner(engine: Engine, jobs: int) -> AbstractContextManager[Runner]:
    """Return a runner for a number of jobs; leaving the block early ends them at once."""
    return ENGINES[engine.name](replace(engine, workers=min(engine.workers, max(1, jobs))))


def _ray(engine: Engine) -> AbstractContextManager[Runner]:
    from ramsis.sweep.ray_engine import ray_runner

    return ray_runner(engine.workers, engine.address)


ENGINES: dict[str, Callable[[Engine], AbstractContextManager[Runner]]] = {
    "processes": lambda engine: process_runner(engine.workers), "ray": _ray,
}


@dataclass(frozen=True)
class Question(Job):
    """Job that calls a function and returns its result as plain JSON values."""

    # importable with its arguments, as a :func:`functools.partial` of a function of a module
    call: Callable[[], dict[str, Any]]
    # all that the result depends on, as plain JSON values
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """File of the stored result, below the place of results."""
        return Path("answers") / file_of({"code": f"{ANSWER_FORMAT} {__version__}", **self.inputs})

    def done(self) -> bool:
        """Return False: :func:`answers` looks for stored results."""
        return False

    def run(self) -> dict[str, Any]:
        """Call the function, and return its result."""
        return self.call()


def answers(
    questions: Sequence[Question], engine: Engine, place: Place | None = None
) -> Iterator[tuple[int, JobOutcome]]:
    """Run jobs, and yield index and outcome of each as it ends; stored results come first.

    Parameters
    ----------
    place : path or URL, optional
        Place where results are stored.
    """
    with ExitStack() as leaving:
        store = None if place is None else leaving.enter_context(store_at(place))
        stored: dict[int, dict[str, Any]] = {}
        if store is not None:
            paths = [store.folder / question.path for question in questions]
            store.fetch(path for path in paths if store.has(path))
            stored = {i: answer for i, path in enumerate(paths)
                      if (answer := _kept(path, questions[i])) is not None}
        yield from ((i, JobOutcome(value=answer)) for i, answer in stored.items())
        missing = [i for i in range(len(questions)) if i not in stored]
        if not missing:
            return
        run = leaving.enter_context(runner(engine, len(missing)))
        for k, outcome in run([questions[i] for i in missing]):
            if store is not None and outcome.value is not None:
                path = store.folder / questions[missing[k]].path
                write_atomic(path, canonical_json({
                    "format": ANSWER_FORMAT, "inputs": dict(questions[missing[k]].inputs),
                    "answer": outcome.value}))
                store.keep([path])
            yield missing[k], outcome


def _kept(path: Path, question: Question) -> dict[str, Any] | None:
    """Return the stored result of a job; None without a complete file for its inputs."""
    document = whole_file(path, ANSWER_FORMAT, dict(question.inputs))
    answer = None if document is None else document.get("answer")
    return answer if isinstance(answer, dict) else None
