"""Workers that are threads of this process, for servers that already run in one of their own.

A library such as ONNX Runtime lets go of Python's lock while it computes, so that threads run side
by side. Functions in Python run one at a time. A batch that hangs cannot be ended: its worker gets
nothing until it ends by itself.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError, describe
from ramsis.serving.memory import Slots
from ramsis.serving.messages import Ended, RunBatch
from ramsis.serving.pool import PoolSettings, WorkerEvents, variants_as_json
from ramsis.serving.tensors import TensorSpec
from ramsis.serving.variants import VariantsFile
from ramsis.serving.worker import Runner, run_timed

__all__ = ["ThreadPool"]


class ThreadPool:
    """A thread with all variants for each worker.

    Parameters
    ----------
    variants, settings, events
        As of :class:`ramsis.serving.pool.WorkerPool`; cores and memory are those of the process.
    """

    def __init__(
        self, variants: VariantsFile, settings: PoolSettings, events: WorkerEvents
    ) -> None:
        self.variants, self.settings, self.events = variants, settings, events
        self.inputs, self.outputs = tuple[TensorSpec, ...](), tuple[TensorSpec, ...]()
        self.slots: Slots | None = None
        self._threads = [ThreadPoolExecutor(1, f"ramsis-worker-{worker}")
                         for worker in range(settings.workers)]
        self._runners: list[Runner] = []
        self._arrays: list[dict[str, NDArray[Any]]] = []
        self._limits: dict[int, asyncio.TimerHandle] = {}
        self._hanging = set[int]()

    async def start(self) -> None:
        """Load the variants once for each worker, and run each a few times.

        Raises
        ------
        InputFileError
            A variant does not load or run.
        """
        self._loop = asyncio.get_running_loop()
        if str(self.variants.folder) not in sys.path:
            sys.path.append(str(self.variants.folder))  # where functions are looked for
        try:
            for thread in self._threads:
                self._runners.append(await self._loop.run_in_executor(thread, self._loaded))
        except InputFileError as error:
            raise InputFileError(f"{self.variants.path}: {error}") from None
        first = self._runners[0]
        self.inputs, self.outputs = first.inputs, first.outputs
        self.slots = Slots(self.inputs, self.settings.slots)

    def _loaded(self) -> Runner:
        """The variants of one worker, warm."""
        runner = Runner(variants_as_json(self.variants), self.variants.inputs)
        rows = self.settings.max_batch
        outputs: dict[str, NDArray[Any]] = {
            spec.name: np.empty((rows, *spec.shape), spec.dtype) for spec in runner.outputs}
        blank = {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in runner.inputs}
        for number, variant in enumerate(self.variants.variants):
            for size in self.settings.warm_up:
                ended = run_timed(runner, RunBatch(0, number, size, [0] * size), blank, outputs)
                if ended.error:
                    raise InputFileError(describe(
                        f"a batch of {size} does not run ({ended.error})",
                        where=f"variant {variant.name}"))
        self._arrays.append(outputs)
        return runner

    def run(self, worker: int, batch: RunBatch) -> None:
        """Start a batch on a worker that is idle."""
        assert self.slots is not None
        self._limits[worker] = self._loop.call_later(self.settings.timeout_s, self._hangs, worker)
        self._threads[worker].submit(
            run_timed, self._runners[worker], batch, self.slots.arrays, self._arrays[worker]
        ).add_done_callback(lambda done: self._loop.call_soon_threadsafe(
            partial(self._ended, worker, done.result())))

    def process(self, worker: int) -> None:
        """All are threads of this process."""

    async def stop(self) -> None:
        """End the threads, but for those whose batch hangs."""
        for worker, thread in enumerate(self._threads):
            thread.shutdown(wait=worker not in self._hanging, cancel_futures=True)

    def _hangs(self, worker: int) -> None:
        self._hanging.add(worker)
        self.events.gone(worker, f"a batch takes longer than {self.settings.timeout_s:g} s")

    def _ended(self, worker: int, ended: Ended) -> None:
        self._limits.pop(worker).cancel()
        if worker in self._hanging:
            self._hanging.discard(worker)
            self.events.ready(worker)
        else:
            self.events.ended(worker, ended, self._arrays[worker])
