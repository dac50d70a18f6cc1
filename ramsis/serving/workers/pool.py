"""Pool of worker processes, with the state machine of a worker.

A worker is *off*, *starting*, *ready* or *pausing*::

    off ──begin──► starting ──loaded and warm──► ready
                    ▲    │                         │
              pause over └──fails──► pausing ◄─────┘ dies

In any state, :meth:`WorkerPool.end` turns it off. A worker dies when it crashes, or when it is
killed after the time limit of a batch; its batch then fails. It counts as dead when the kernel
reports its exit. The pause doubles while starts fail, up to a limit, and attempts continue without
end. A restarted worker keeps its memory and number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from ramsis.errors import InputFileError, RamsisError
from ramsis.plugins import trusted
from ramsis.serving.tensors import TensorSpec, specs_from_json, specs_to_json
from ramsis.serving.variants import VariantsFile
from ramsis.serving.workers.messages import Block, Ended, RunBatch, Slots, arrays_in, size_of
from ramsis.serving.workers.process import START_ERRORS, WorkerProcess

# Pause before a restart, doubled up to the longest while starts fail: most causes are transient,
# but a worker that cannot start must not keep a core busy.
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_HEARD_EACH_S = 0.001  # least time between polls, each a system call per busy worker


@dataclass(frozen=True)
class PoolSettings:
    """Settings of a pool of workers."""

    workers: int  # largest number of workers
    max_batch: int  # largest batch
    warm_up: tuple[int, ...] = (1,)  # batch sizes that each variant runs before a worker is ready
    slots: int = 2048  # largest number of waiting and running queries
    timeout_s: float = 10.0  # time limit of a batch, after which its worker is restarted
    # whether each worker is pinned to its own core, and the front end to the others, if there are
    # more cores than workers
    pin: bool = True
    memory_mb: float | None = None  # limit on the address space of a worker; None for none
    # number of initial workers, >= 1; None for all. :meth:`WorkerPool.begin` starts others.
    at_first: int | None = None


def _nothing(*_: object) -> None:
    pass


class WorkerEvents(NamedTuple):
    """Callbacks of a pool; each is called with the number of a worker."""

    ready: Callable[[int], object]  # the worker can run batches, also after a restart
    # its batch has ended; with the outputs of all rows of its memory
    ended: Callable[[int, Ended, dict[str, NDArray[Any]]], object]
    # it was ready and has died, with the cause; it is restarted
    gone: Callable[[int, str], object]
    # it could not be started, with the cause and the seconds until the next attempt
    failed: Callable[[int, str, float], object] = _nothing


class Pool(Protocol):
    """Interface of a pool of workers: :class:`WorkerPool`, or one of another framework."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    slots: Slots | None

    async def start(self) -> None:
        """Start; return when the tensors are known and workers are ready."""
        ...

    def run(self, worker: int, batch: RunBatch) -> None:
        """Start a batch on a ready, idle worker; its end is an event."""
        ...

    def process(self, worker: int) -> int | None:
        """Return the process id of a worker; None if it is not on this machine."""
        ...

    async def stop(self) -> None:
        """End all workers."""
        ...


class WorkerPool:
    """Pool of worker processes on this machine; call its methods in the event loop's thread.

    ``launch`` starts a process, with the parameters, methods and errors of :class:`WorkerProcess`.
    """

    def __init__(
        self, variants: VariantsFile, settings: PoolSettings, events: WorkerEvents,
        launch: Callable[..., WorkerProcess] = WorkerProcess,
    ) -> None:
        self.variants, self.settings, self.events = variants, settings, events
        self.launch = launch
        # Tensors of the variants, and memory for inputs, after the start.
        self.inputs, self.outputs = tuple[TensorSpec, ...](), tuple[TensorSpec, ...]()
        self.slots: Slots | None = None
        self.heard_s = 0.0
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._workers = [_Worker(self, number) for number in range(settings.workers)]
        self._ending = set[asyncio.Future[None]]()
        self._cores = _cores() if settings.pin else []

    async def start(self) -> None:
        """Start the first workers, and wait until they are ready.

        This process moves off the workers' cores.
        """
        if self.core(0) is not None:
            _use([self._cores[0], *self._cores[len(self._workers) + 1:]])
        for worker in self._workers[:self.settings.at_first]:
            worker.begin()
        try:
            await self._started
        except RamsisError:
            await self.stop()
            raise

    def run(self, worker: int, batch: RunBatch) -> None:
        """Start a batch on a ready, idle worker."""
        self._workers[worker].run(batch)

    def hear(self) -> None:
        """Poll workers for ended batches, at most once a millisecond.

        Otherwise workers would be idle while the event loop reads a flood of requests first.
        """
        if time.monotonic() - self.heard_s > _HEARD_EACH_S:
            self.heard_s = time.monotonic()
            for worker in self._workers:
                worker.hear()

    def begin(self, worker: int) -> None:
        """Start another worker; ``events.ready`` follows when it can run batches."""
        self._workers[worker].begin()

    def end(self, worker: int) -> None:
        """End a worker that runs no batch, or that has not answered yet."""
        self._workers[worker].end()

    def takes_batches(self, worker: int) -> bool:
        """Return whether any worker is ready to run a batch."""
        return self._workers[worker].state is State.READY

    def process(self, worker: int) -> int | None:
        """Return the process id of a worker; None if it has no process."""
        process = self._workers[worker].process
        return None if process is None else process.pid

    async def stop(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
        while self._ending:
            await asyncio.wait(self._ending)
        if self.core(0) is not None:
            _use(self._cores)

    def ending(self, dead: asyncio.Future[None]) -> None:
        """Register a killed process, for which :meth:`stop` waits."""
        self._ending.add(dead)
        dead.add_done_callback(self._ending.discard)

    def loaded(self, worker: _Worker, document: Mapping[str, Any]) -> None:
        """Give a worker its memory, after it has reported the tensors of its variants."""
        self.inputs = specs_from_json(document["inputs"])
        self.outputs = specs_from_json(document["outputs"])
        if self.slots is None:
            self.slots = Slots([spec.at(self.variants.max_size) for spec in self.inputs],
                               self.settings.slots)
        worker.attach(self.slots, self.outputs)

    def ready(self, worker: _Worker) -> None:
        """Report that a worker can take batches; while starting, note when all can."""
        if self._started.done():
            self.events.ready(worker.number)
        elif all(other.state in (State.OFF, State.READY) for other in self._workers):
            self._started.set_result(None)

    def lost(self, worker: _Worker, reason: str, was_ready: bool) -> None:
        """Report that a worker died or did not start; during the pool's start, fail that."""
        if not self._started.done():
            self._started.set_exception(InputFileError(
                reason, where=f"{self.variants.path}: worker {worker.number}"))
        elif was_ready:
            self.events.gone(worker.number, reason)
        else:
            self.events.failed(worker.number, reason, worker.pause_s)

    def core(self, worker: int) -> int | None:
        """Return the core of a worker; None if workers are not pinned.

        This process uses the first core and the remaining ones.
        """
        return self._cores[worker + 1] if len(self._cores) > self.settings.workers else None

    def config(self, worker: int) -> dict[str, Any]:
        """Return the configuration that a worker receives at its start."""
        variants = variants_as_json(self.variants)
        for variant in variants:
            variant["options"]["timeout_s"] = self.settings.timeout_s
        return {"variants": variants, "inputs": specs_to_json(self.variants.inputs),
                "max_size": self.variants.max_size,
                "folder": str(self.variants.folder), "trusted": trusted(),
                "core": self.core(worker),
                "memory_mb": self.settings.memory_mb,
                "warm_up": [[v, b] for v in range(len(variants)) for b in self.settings.warm_up]}


class State(Enum):
    """Life-cycle state of a worker; ``PAUSING`` waits to start again after a failure."""

    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"


class _Worker:
    """Worker over all its processes; only its last five methods change the state."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.pool, self.number = pool, number
        self.state = State.OFF
        self.process: WorkerProcess | None = None
        self.pause_s = _PAUSE_S
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._outputs: Block | None = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._ends_s = math.inf  # time limit of the running batch
        self._looks: asyncio.TimerHandle | None = None

    def attach(self, slots: Slots, outputs: Sequence[TensorSpec]) -> None:
        """Send the shared memory to the process."""
        assert self.process is not None
        most = self.pool.settings.max_batch
        if self._outputs is None:
            block = Block(size_of(outputs, most))
            self._arrays, self._outputs = arrays_in(block, outputs, most), block
        self.process.send_files({"slots": slots.count, "max_batch": most},
                                [slots.block.file, self._outputs.file])

    def run(self, batch: RunBatch) -> None:
        """Send a batch to the worker's process."""
        assert self.process is not None
        self._ends_s = self._loop.time() + self.pool.settings.timeout_s
        if self._looks is None:
            self._looks = self._loop.call_at(self._ends_s, self._look)
        self.process.send(batch.packed())

    def hear(self) -> None:
        """Poll for the end of the running batch, if any."""
        if self._ends_s < math.inf and self.process is not None:
            self.process.read()

    def _look(self) -> None:
        """Kill the process after its batch's time limit; one timer serves many batches."""
        self._looks = None
        if self._loop.time() < self._ends_s:
            if self._ends_s < math.inf:
                self._looks = self._loop.call_at(self._ends_s, self._look)
            return
        assert self.process is not None
        self.process.kill(f"a batch took longer than {self.pool.settings.timeout_s:g} s")

    def _runs_nothing(self) -> None:
        self._ends_s = math.inf
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None

    def _heard(self, message: bytes) -> None:
        """Handle a message of the worker: the end of a batch, or progress of its start."""
        if self.state is State.READY:
            self._ends_s = math.inf
            self.pool.heard_s = time.monotonic()
            ended = Ended.unpacked(message)
            if ended.lost:  # the restarted worker waits until its models can be reached
                assert self.process is not None
                self.process.kill(ended.error)
            else:
                self.pool.events.ended(self.number, ended, self._arrays)
            return
        assert self.process is not None
        document: dict[str, Any] = json.loads(message)
        if "ready" in document:
            self._ready()
        elif "failed" in document:
            self.process.kill(document["failed"])
        else:
            try:
                self.pool.loaded(self, document)
            except START_ERRORS as error:
                self.process.kill(f"no memory can be shared with it ({_in_words(error)})")

    def begin(self) -> None:
        """Start the worker, and restart it whenever it dies, until :meth:`end`."""
        self.pause_s = _PAUSE_S
        self._start()

    def _start(self) -> None:
        self.state = State.STARTING
        try:
            self.process = self.pool.launch(self.pool.config(self.number), self._heard, self._lost)
        except START_ERRORS as error:
            self._lost(f"it cannot be started ({_in_words(error)})")

    def _ready(self) -> None:
        self.state, self.pause_s = State.READY, _PAUSE_S
        self.pool.ready(self)

    def _lost(self, reason: str) -> None:
        """Restart the worker after a pause, as its process died or could not be started."""
        if self.state is State.OFF:
            return
        was_ready = self.state is State.READY
        self.state, self.process = State.PAUSING, None
        self._runs_nothing()
        self._again = self._loop.call_later(self.pause_s, self._start)
        self.pool.lost(self, reason, was_ready)
        self.pause_s = min(2.0 * self.pause_s, _LONGEST_PAUSE_S)

    def end(self) -> None:
        """End the worker's process, without a restart."""
        self.state = State.OFF
        self._runs_nothing()
        if self._again is not None:
            self._again.cancel()
        if self.process is not None:
            self.pool.ending(self.process.dead)
            self.process.end()
            self.process = None


def _cores() -> list[int]:
    """Return the cores that this process may use; empty if the system does not report them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _use(cores: Sequence[int]) -> None:
    """Restrict this thread to cores, if the system supports it."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)


def variants_as_json(variants: VariantsFile) -> list[dict[str, Any]]:
    """Convert the variants to JSON-serialisable values for workers."""
    return [{**asdict(variant), "options": {**asdict(variant.options),
                                            "dimensions": dict(variant.options.dimensions)}}
            for variant in variants.variants]


def _in_words(error: BaseException) -> str:
    """Return the operating system's text of an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def checked(
    variants: VariantsFile, max_batch: int
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Run each variant once as a batch of 1 and of the largest size; return their tensors."""
    pool = WorkerPool(variants, PoolSettings(1, max_batch, (1, max_batch), slots=1),
                      WorkerEvents(ready=_nothing, ended=_nothing, gone=_nothing))
    await pool.start()
    await pool.stop()
    return pool.inputs, pool.outputs
