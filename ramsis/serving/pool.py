"""The worker processes, as the front end sees them: started, watched, started again.

A worker is *loading*, *ready* or *gone*. One that crashes, or runs a batch for longer than the
limit, is killed and started anew, after a pause that grows while it fails before it is ready. Its
memory and its place keep; the batch that it ran has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from ramsis.errors import InputFileError, RamsisError
from ramsis.plugins import trusted
from ramsis.serving.memory import Block, Slots, arrays_in, size_of
from ramsis.serving.messages import Ended, RunBatch, Unframed, framed, send_json
from ramsis.serving.tensors import TensorSpec, specs_from_json, specs_to_json
from ramsis.serving.variants import VariantsFile

_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 10.0
_READ = 65536
_HEARD_EACH_S = 0.001


@dataclass(frozen=True)
class PoolSettings:
    """How workers are run.

    Parameters
    ----------
    workers
        How many, at most.
    max_batch
        Largest batch that they run.
    warm_up
        Batch sizes that each variant runs before a worker is ready.
    slots
        Queries that can be held at once.
    timeout_s
        A batch that takes longer is given up, and its worker started anew.
    pin
        Whether each worker gets a core of its own where there are more cores than workers, and
        the front end the others.
    memory_mb
        Limit on the address space of a worker; None for none.
    at_first
        How many are started, >= 1; None for all. Others are started by :meth:`WorkerPool.begin`.
    """

    workers: int
    max_batch: int
    warm_up: tuple[int, ...] = (1,)
    slots: int = 2048
    timeout_s: float = 10.0
    pin: bool = True
    memory_mb: float | None = None
    at_first: int | None = None


class WorkerEvents(NamedTuple):
    """What is called when something happens to a worker, each with its number.

    Attributes
    ----------
    ready
        It can take batches, for the first time or again.
    ended
        Its batch has ended; with the outputs of all rows of its memory.
    gone
        It has crashed or hung; with what is known of it.
    """

    ready: Callable[[int], object]
    ended: Callable[[int, Ended, dict[str, NDArray[Any]]], object]
    gone: Callable[[int, str], object]


class Pool(Protocol):
    """What a server wants of its workers: :class:`WorkerPool`, or others' machinery."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    slots: Slots | None

    async def start(self) -> None:
        """Return when the tensors are known and workers take batches."""
        ...

    def run(self, worker: int, batch: RunBatch) -> None:
        """Start a batch on a worker that is ready and idle; its end is an event."""
        ...

    def process(self, worker: int) -> int | None:
        """Number of a worker's process, where it is one of this machine."""
        ...

    async def stop(self) -> None:
        """End all workers."""
        ...


class WorkerPool:
    """All workers, which load the variants; to be used in the thread of the event loop.

    Attributes
    ----------
    inputs, outputs
        The tensors of the variants, once :meth:`start` has returned.
    slots
        Where inputs of queries go.
    """

    def __init__(
        self, variants: VariantsFile, settings: PoolSettings, events: WorkerEvents
    ) -> None:
        self.variants, self.settings, self.events = variants, settings, events
        self.inputs, self.outputs = tuple[TensorSpec, ...](), tuple[TensorSpec, ...]()
        self.slots: Slots | None = None
        self.closing, self.heard_s = False, 0.0
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._workers = [_Worker(self, number) for number in range(settings.workers)]
        self._cores = _cores() if settings.pin else []

    async def start(self) -> None:
        """Start the first workers, and wait until they are ready.

        This process leaves all workers their cores.
        """
        if self.core(0) is not None:
            _use([self._cores[0], *self._cores[len(self._workers) + 1:]])
        first = self._workers[:self.settings.at_first]
        for worker in first:
            worker.begin()
        try:
            await self._started
        except RamsisError:
            await self.stop()
            raise

    def run(self, worker: int, batch: RunBatch) -> None:
        """Start a batch on a worker that is ready and idle."""
        self._workers[worker].run(batch)

    def hear(self) -> None:
        """Hear which batches have ended, if nothing was heard for a millisecond.

        The event loop reads a flood of requests before it turns to the workers, which would stand
        idle meanwhile.
        """
        if time.monotonic() - self.heard_s > _HEARD_EACH_S:
            self.heard_s = time.monotonic()
            for worker in self._workers:
                worker.hear()

    def begin(self, worker: int) -> None:
        """Start another worker; once it can take batches, that is an event."""
        self._workers[worker].begin()

    def end(self, worker: int) -> None:
        """End a worker that runs no batch, or that has not answered yet."""
        self._workers[worker].stop()
        process = self._workers[worker].process
        if process is not None:
            asyncio.get_running_loop().run_in_executor(None, process.wait)

    def takes_batches(self, worker: int) -> bool:
        """Whether a worker runs and has answered."""
        return self._workers[worker].is_ready

    def process(self, worker: int) -> int | None:
        """Number of a worker's process."""
        process = self._workers[worker].process
        return None if process is None else process.pid

    async def stop(self) -> None:
        """End all workers."""
        self.closing = True
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            if worker.process is not None:
                await asyncio.get_running_loop().run_in_executor(None, worker.process.wait)
        if self.core(0) is not None:
            _use(self._cores)

    def loaded(self, worker: _Worker, document: dict[str, Any]) -> None:
        """A worker says what tensors its variants have: give it its memory."""
        self.inputs = specs_from_json(document["inputs"])
        self.outputs = specs_from_json(document["outputs"])
        if self.slots is None:
            self.slots = Slots(self.inputs, self.settings.slots)
        worker.attach(self.slots, self.outputs)

    def ready(self, worker: _Worker) -> None:
        """A worker can take batches."""
        if not self._started.done():
            if all(one.is_ready for one in self._workers if one.wanted):
                self._started.set_result(None)
        else:
            self.events.ready(worker.number)

    def lost(self, worker: _Worker, reason: str) -> None:
        """A worker is gone: start it again, or end the start of all."""
        if self.closing:
            return
        if not self._started.done():
            self._started.set_exception(InputFileError(
                reason, where=f"{self.variants.path}: worker {worker.number}"))
            return
        if worker.is_ready:
            worker.is_ready = False
            self.events.gone(worker.number, reason)
        if worker.wanted:
            worker.start_later()

    def core(self, worker: int) -> int | None:
        """The core of a worker; the first, and what is left over, are this process's."""
        return self._cores[worker + 1] if len(self._cores) > self.settings.workers else None

    def config(self, worker: int) -> dict[str, Any]:
        """What a worker is told at its start."""
        variants = variants_as_json(self.variants)
        return {"variants": variants, "inputs": specs_to_json(self.variants.inputs),
                "folder": str(self.variants.folder), "trusted": trusted(),
                "core": self.core(worker),
                "memory_mb": self.settings.memory_mb,
                "warm_up": [[v, b] for v in range(len(variants)) for b in self.settings.warm_up]}


class _Worker:
    """One worker process."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.pool, self.number = pool, number
        self.process: subprocess.Popen[bytes] | None = None
        self.is_ready = self.wanted = False
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._channel: socket.socket | None = None
        self._outputs: Block | None = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._ends_s = math.inf  # when the batch that runs has to have ended
        self._looks: asyncio.TimerHandle | None = None
        self._pause_s = _PAUSE_S
        self._said = ""
        self._messages = Unframed()

    def begin(self) -> None:
        """Start the process, which is to run until :meth:`stop`."""
        self.wanted, self._pause_s = True, _PAUSE_S
        self.start()

    def start(self) -> None:
        """Start the process."""
        if self.pool.closing:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ramsis.serving.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()
                if _is_file(sys.stderr) else subprocess.DEVNULL,
                process_group=0)  # Ctrl-C is for the front end
        self._channel, self._messages, self._said = ours, Unframed(), ""
        send_json(ours, self.pool.config(self.number))
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._read)

    def start_later(self) -> None:
        """Start the process again, after a pause."""
        self._later = self._loop.call_later(self._pause_s, self.start)
        self._pause_s = min(2.0 * self._pause_s, _LONGEST_PAUSE_S)

    def attach(self, slots: Slots, outputs: Sequence[TensorSpec]) -> None:
        """Give it the shared memory."""
        assert self._channel is not None
        most = self.pool.settings.max_batch
        if self._outputs is None:
            self._outputs = Block(size_of(outputs, most))
            self._arrays = arrays_in(self._outputs, outputs, most)
        send_json(self._channel, {"slots": slots.count, "max_batch": most},
                  [slots.block.file, self._outputs.file])

    def run(self, batch: RunBatch) -> None:
        """Send it a batch."""
        assert self._channel is not None
        self._ends_s = self._loop.time() + self.pool.settings.timeout_s
        if self._looks is None:
            self._look_at(self._ends_s)
        try:
            self._channel.send(framed(batch.packed()))
        except OSError:
            return  # it is gone, as reading will say

    def hear(self) -> None:
        """Hear the end of a batch if it runs one."""
        if self._ends_s < math.inf:
            self._read()

    def stop(self) -> None:
        """End the process."""
        self._close()
        self.is_ready = self.wanted = False
        if self._later is not None:
            self._later.cancel()
        if self.process is not None:
            self.process.kill()

    def _look_at(self, time_s: float) -> None:
        self._looks = self._loop.call_at(time_s, self._look)

    def _look(self) -> None:
        """End the process if its batch takes too long; one timer serves many batches."""
        self._looks = None
        if self._loop.time() < self._ends_s:
            if self._ends_s < math.inf:
                self._look_at(self._ends_s)
            return
        self._said = f"a batch took longer than {self.pool.settings.timeout_s:g} s"
        assert self.process is not None
        self.process.kill()

    def _read(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone()
            return
        for message in self._messages.add(data):
            if self.is_ready:
                self._ended(Ended.unpacked(message))
            else:
                self._hear(json.loads(message))

    def _hear(self, document: dict[str, Any]) -> None:
        """What it says while it starts."""
        if "failed" in document:
            self._said = document["failed"]
        elif "ready" in document:
            self.is_ready, self._pause_s = True, _PAUSE_S
            self.pool.ready(self)
        else:
            self.pool.loaded(self, document)

    def _ended(self, ended: Ended) -> None:
        self._ends_s = math.inf
        self.pool.heard_s = time.monotonic()
        self.pool.events.ended(self.number, ended, self._arrays)

    def _gone(self) -> None:
        self._close()
        assert self.process is not None
        self.process.kill()
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self.pool.lost(self, self._said or f"the worker process ended ({how})")

    def _close(self) -> None:
        self._ends_s = math.inf
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None
        if self._channel is not None:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None


def _cores() -> list[int]:
    """The cores that this process may use; none where the system does not say (Linux does)."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _use(cores: Sequence[int]) -> None:
    """Keep this thread to some cores, where the system allows it."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)


def variants_as_json(variants: VariantsFile) -> list[dict[str, Any]]:
    """The variants as plain values, as workers take them."""
    return [{**asdict(one), "options": {**asdict(one.options),
                                        "dimensions": dict(one.options.dimensions)}}
            for one in variants.variants]


def _is_file(stream: Any) -> bool:
    """Whether a stream is an open file of the system."""
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


async def checked(
    variants: VariantsFile, max_batch: int
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Load the variants in a worker, and run each as a batch of 1 and as the largest.

    Returns
    -------
    tuple
        The inputs and the outputs of all of them.
    """
    pool = WorkerPool(variants, PoolSettings(1, max_batch, (1, max_batch), slots=1),
                      WorkerEvents(_nothing, _nothing, _nothing))
    await pool.start()
    await pool.stop()
    return pool.inputs, pool.outputs


def _nothing(*_: object) -> None:
    """Do nothing."""
