"""Calibration: measures service times in the server's workers, and the overhead of dispatch.

The service time of a batch is measured in the event loop: it includes the message to the worker,
the reading of shared memory, the model, and the message back. All workers run concurrently, as
under load. In each round every variant runs every batch size once on each worker, in random order,
so that slow spells of the machine do not affect only one of them.

The *overhead* is the remaining latency of a request, measured by a client on this machine: reading
it, the decision, and the answer. It is stored in the profile, and used by
``generate --overhead-ms``.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError, RamsisError, describe
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.measure.environment import hardware, versions
from ramsis.serving.http_server import HttpSettings, bound_socket, serve
from ramsis.serving.server import Server
from ramsis.serving.variants import VariantsFile
from ramsis.serving.workers.messages import Ended, RunBatch
from ramsis.serving.workers.pool import PoolSettings, WorkerEvents, WorkerPool

Samples = dict[tuple[int, int], list[float]]


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of the measurement of service times."""

    # batch sizes, increasing, from 1
    batches: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    samples: int = 200  # number of samples per variant and batch size
    seconds: float = 60.0  # time after which no new round begins
    workers: int = 1  # number of concurrent workers
    seed: int = 0  # seed of the orders and the inputs


async def measure_service(
    variants: VariantsFile, settings: CalibrationSettings, *, pin: bool = True
) -> Samples:
    """Measure service times in ms, by the index of the variant and the batch size."""
    rng = np.random.default_rng(settings.seed)
    pairs = [(v, b) for v in range(len(variants.variants)) for b in settings.batches]
    samples: Samples = {pair: [] for pair in pairs}
    ended: list[asyncio.Future[str]] = []

    def end(worker: int, message: Ended, arrays: Mapping[str, NDArray[Any]]) -> None:
        ended[worker].set_result(message.error)

    def gone(worker: int, reason: str) -> None:
        ended[worker].set_result(reason)

    pool = WorkerPool(variants, PoolSettings(
        settings.workers, max(settings.batches), settings.batches, max(settings.batches), pin=pin),
        WorkerEvents(lambda worker: None, end, gone))
    loop = asyncio.get_running_loop()
    # Create the futures before the start, as a worker may be lost while it starts.
    ended += [loop.create_future() for _ in range(settings.workers)]
    await pool.start()
    _fill(pool, rng)
    until_s = time.monotonic() + settings.seconds

    async def run(worker: int) -> None:
        order = np.random.default_rng((settings.seed, worker))
        for turn in range(settings.samples):
            if turn and time.monotonic() > until_s:
                return
            for index in order.permutation(len(pairs)):
                variant, batch = pairs[index]
                ended[worker] = loop.create_future()
                begun = time.monotonic()
                pool.run(worker, RunBatch(turn, variant, batch, range(batch)))
                error = await ended[worker]
                samples[variant, batch].append(1000.0 * (time.monotonic() - begun))
                if error:
                    raise InputFileError(f"a batch does not run ({error})", value=batch,
                                         where=f"variant {variants.variants[variant].name}")

    try:
        await asyncio.gather(*(run(worker) for worker in range(settings.workers)))
    finally:
        await pool.stop()
    return samples


def _fill(pool: WorkerPool, rng: np.random.Generator) -> None:
    """Fill the slots with random inputs: normal numbers, and 0 or 1 for integers."""
    assert pool.slots is not None
    for array in pool.slots.arrays.values():
        drawn = (rng.standard_normal(array.shape) if array.dtype.kind == "f"
                 else rng.integers(0, 2, array.shape))
        array[...] = drawn.astype(array.dtype)


async def measure_overhead(server: Server, count: int) -> NDArray[np.float64]:
    """Measure the overhead of requests in ms, by a client on this machine.

    The server is started, and stopped afterwards.
    """
    http = HttpSettings(port=0)
    overheads_ms: list[float] = []
    url: list[str] = []
    ends: list[Callable[[], object]] = []

    async def probe() -> None:
        host, _, port = url[0].rpartition("/")[2].partition(":")
        # A client in this process would compete with the server for the interpreter.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "ramsis.serving.load.probe", host, port, server.name,
            str(count), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        printed, _ = await process.communicate()
        if process.returncode == 0:
            overheads_ms.extend(json.loads(printed))
        ends[0]()

    await serve(server, bound_socket(http), http, url.append, [probe], ends.append)
    if not overheads_ms:
        raise RamsisError(describe("the server did not answer its own requests"))
    return np.array(overheads_ms)


def profile_of(
    variants: VariantsFile, samples: Samples, accuracy: Mapping[str, float],
    overhead_ms: Sequence[float] | NDArray[np.float64], settings: CalibrationSettings,
) -> ProfileSet:
    """Return the profile of the measured samples.

    ``accuracy`` is that of each variant, ``overhead_ms`` the result of :func:`measure_overhead`.
    """
    models = tuple(
        ModelProfile(variant.name, accuracy[variant.name], tuple(
            BatchProfile.from_samples(batch, samples[v, batch]) for batch in settings.batches))
        for v, variant in enumerate(variants.variants))
    quantiles = np.quantile(np.asarray(overhead_ms), [0.5, 0.95, 0.99])
    return ProfileSet(variants.name, models, hardware(variants.variants[0].options.threads), {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "generator": "ramsis serve --calibrate",
        "latency": "from the order of the server's event loop to its hearing of the end, variants "
                   "and batch sizes in an order drawn anew in each round",
        "workers": settings.workers,
        "overhead_ms": {name: round(float(value), 4) for name, value
                        in zip(("p50", "p95", "p99"), quantiles, strict=True)},
        "versions": versions(("numpy", "onnxruntime", "uvicorn", "starlette")),
    })
