"""Application for Ray Serve that serves by policies.

Two deployments: *Worker* has all variants loaded and runs one batch at a time, one replica for
each worker; *Dispatcher* receives requests of the Open Inference Protocol over HTTP, and forms the
batches by table and deadline. It is the server of ``ramsis serve`` with Ray's workers instead of
its own processes. Ray routes a batch to any free replica, as all workers are equal.

``ramsis export ray-serve`` writes the file for ``serve run``, which calls :func:`application`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from ramsis.plugins import trust
from ramsis.runtime.dispatcher import DispatchSettings
from ramsis.runtime.scaling_table import ScalingTable
from ramsis.serving.app import application as http_application
from ramsis.serving.policies import read_policies
from ramsis.serving.ray_scaling import LOAD_METRIC
from ramsis.serving.scaling.fleet import read_fleet, scaling_file
from ramsis.serving.server import Server, ServerSettings
from ramsis.serving.tensors import TensorSpec, specs_from_json, specs_to_json
from ramsis.serving.variants import VariantsFile, read_variants
from ramsis.serving.workers.messages import Ended, RunBatch, Slots
from ramsis.serving.workers.pool import PoolSettings, WorkerEvents, variants_as_json
from ramsis.serving.workers.worker import Runner

_PAUSE_S = 1.0  # pause after a failed batch, and interval of checks for running replicas
_WORKERS = "Worker"
_WARM_UPS = (1, 2)  # batch sizes of warm-up calls: first calls and new shapes may be slow
_SILENCE_S = 5.0  # time without batches after which a replica reports no load

Arrays = dict[str, NDArray[Any]]


class Worker:
    """Ray replica with all variants loaded, which runs the dispatcher's batches."""

    def __init__(self, variants: str, code: Sequence[str] = ()) -> None:
        trust(*code)
        read = read_variants(variants)
        read.refuse_sizes("Ray Serve")
        sys.path.insert(0, str(read.folder))  # folder of user-defined functions
        self._load_qps, self._loaded_s = 0.0, time.monotonic()
        self._runner = Runner(variants_as_json(read), read.inputs)
        blank = {spec.name: np.zeros((max(_WARM_UPS), *spec.shape), spec.dtype)
                 for spec in self._runner.inputs}
        for variant in range(len(read.variants)):
            for size in _WARM_UPS:
                self._run(variant, size, {name: rows[:size] for name, rows in blank.items()})

    async def tensors(self) -> tuple[list[Any], list[Any]]:
        """Return the inputs and outputs of all variants, as JSON-serialisable values."""
        return specs_to_json(self._runner.inputs), specs_to_json(self._runner.outputs)

    def run(
        self, variant: int, run_as: int, inputs: Arrays, load_qps: float
    ) -> tuple[Arrays, float]:
        """Run a batch, and return its outputs and its time in ms."""
        self._load_qps, self._loaded_s = load_qps, time.monotonic()
        begun = time.perf_counter()
        return self._run(variant, run_as, inputs), 1000.0 * (time.perf_counter() - begun)

    def _run(self, variant: int, run_as: int, inputs: Arrays) -> Arrays:
        count = len(next(iter(inputs.values())))
        outputs = {spec.name: np.empty((count, *spec.shape), spec.dtype)
                   for spec in self._runner.outputs}
        self._runner.run(RunBatch(0, variant, run_as, range(count)), inputs, outputs)
        return outputs

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the statistics for the autoscaling policy."""
        silent = time.monotonic() - self._loaded_s > _SILENCE_S
        return {LOAD_METRIC: 0.0 if silent else self._load_qps}


class RayPool:
    """Pool of Ray's replicas, in place of a server's own worker processes.

    ``settings`` and ``events`` are those of :class:`ramsis.serving.workers.pool.WorkerPool`,
    ``workers`` is the handle of the deployment, and ``load_qps`` returns the load that the
    dispatcher anticipates.
    """

    def __init__(
        self, settings: PoolSettings, events: WorkerEvents, workers: Any, load_qps: Any
    ) -> None:
        self.settings, self.events = settings, events
        self.inputs, self.outputs = tuple[TensorSpec, ...](), tuple[TensorSpec, ...]()
        self.slots: Slots | None = None
        self._workers, self._load_qps = workers, load_qps
        self._tasks = set[asyncio.Task[None]]()
        self._busy, self._away = set[int](), set[int]()

    async def start(self) -> None:
        """Wait until a replica answers."""
        inputs, outputs = await self._workers.tensors.remote()
        self.inputs, self.outputs = specs_from_json(inputs), specs_from_json(outputs)
        self.slots = Slots(self.inputs, self.settings.slots)

    def run(self, worker: int, batch: RunBatch) -> None:
        """Send a batch to a free replica."""
        task = asyncio.get_running_loop().create_task(self._run(worker, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, worker: int, batch: RunBatch) -> None:
        assert self.slots is not None
        self._busy.add(worker)
        inputs = {name: rows[list(batch.slots)] for name, rows in self.slots.arrays.items()}
        try:
            outputs, service_ms = await asyncio.wait_for(
                self._workers.run.remote(batch.variant, batch.run_as, inputs, self._load_qps()),
                self.settings.timeout_s)
        except Exception as error:  # a replica that is lost, or a model that raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._busy.discard(worker)
            self.events.gone(worker, reason)
            await asyncio.sleep(_PAUSE_S)
            if worker not in self._away:
                self.events.ready(worker)
            return
        self._busy.discard(worker)
        self.events.ended(worker, Ended(batch.number, service_ms), outputs)

    def scaled(self, replicas: int) -> None:
        """Adapt the number of workers to the running replicas.

        A surplus worker that is busy is removed later.
        """
        for worker in range(self.settings.workers):
            if worker >= replicas and worker not in self._away | self._busy:
                self._away.add(worker)
                self.events.gone(worker, "scaled down")
            elif worker < replicas and worker in self._away:
                self._away.discard(worker)
                self.events.ready(worker)

    def process(self, worker: int) -> None:
        """Return None, as Ray's processes may be on other machines."""

    async def stop(self) -> None:
        """Cancel the running batches."""
        for task in self._tasks:
            task.cancel()


class Ingress:
    """Front-end replica, which dispatches for all workers.

    ``workers`` is the handle of their deployment. ``policies`` and ``variants`` are paths, of
    which the former may be a scaling policy, and ``dispatch`` has fields of
    :class:`~ramsis.runtime.dispatcher.DispatchSettings`.
    """

    def __init__(
        self, workers: Any, policies: str, variants: str, dispatch: Mapping[str, Any]
    ) -> None:
        settings = ServerSettings(dispatch=DispatchSettings(**{"timer_ms": 1.0, **dispatch}))
        scaling = scaling_file(policies)
        self._fleet = None if scaling is None else read_fleet(scaling)
        interval_s = _PAUSE_S if self._fleet is None else self._fleet.table.interval_s
        self._arrived: deque[tuple[float, int]] = deque(  # each second of an interval
            maxlen=max(round(interval_s / _PAUSE_S), 1) + 1)
        self._server = Server(
            read_policies(policies) if self._fleet is None
            else self._fleet.policies(self._fleet.table.most),
            read_variants(variants), settings, make_pool=self._pool, fleet=self._fleet)
        self._workers, self._started = workers, asyncio.Lock()
        self._application = http_application(self._server)

    def _pool(
        self, variants: VariantsFile, settings: PoolSettings, events: WorkerEvents
    ) -> RayPool:
        return RayPool(settings, events, self._workers, self._load_qps)

    def _load_qps(self) -> float:
        """Return the load for the autoscaler: arrivals of an interval, or the anticipated load."""
        front = self._server.front
        if self._fleet is None or len(self._arrived) < 2:
            return front.dispatcher.load_qps(front.now_ms())
        (before_s, before), (now_s, now) = self._arrived[0], self._arrived[-1]
        return (now - before) / (now_s - before_s)

    async def __call__(self, request: Request) -> Response:
        """Answer an HTTP request."""
        await self._start()
        messages: list[Mapping[str, Any]] = []

        async def send(message: Any) -> None:
            messages.append(message)

        # Starlette takes the path within the application from both.
        scope = {**request.scope, "path": request.scope["path"], "root_path": ""}
        await self._application(scope, request.receive, send)
        body = b"".join(part.get("body", b"") for part in messages[1:])
        headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        return Response(body, messages[0]["status"], headers)

    async def _start(self) -> None:
        async with self._started:
            if not self._server.ready:
                await self._server.start()
                self._watch = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Count the workers' running replicas every second."""
        pool = self._server.pool
        assert isinstance(pool, RayPool)
        while True:
            self._arrived.append((time.monotonic(), self._server.arrived))
            with contextlib.suppress(Exception):  # the controller is busy or restarts
                pool.scaled(await asyncio.to_thread(_running_workers))
            await asyncio.sleep(_PAUSE_S)


def _running_workers() -> int:
    """Count the replicas of this application's workers that run."""
    from ray import serve

    name = serve.get_replica_context().app_name
    states = serve.status().applications[name].deployments[_WORKERS].replica_states
    return int(sum(count for state, count in states.items() if str(state) == "RUNNING"))


def application(arguments: Mapping[str, Any]) -> Any:
    """Return the application for a configuration file of Ray Serve.

    Its arguments are ``policies`` (or a scaling policy) and ``variants``, paths on every node;
    optional are ``code``, functions that the variants may use, and ``dispatch``, dispatcher
    settings.
    """
    from ray import serve

    scaling = scaling_file(arguments["policies"])
    replicas = (sum(read_policies(arguments["policies"]).worker_types.values())
                if scaling is None else ScalingTable.load(scaling).least)
    deployment: Any = serve.deployment
    workers = deployment(Worker, name=_WORKERS).options(
        num_replicas=replicas, max_ongoing_requests=1)
    front = deployment(Ingress, name="Dispatcher").options(
        num_replicas=1, max_ongoing_requests=10_000)
    bound: Any = front.bind(workers.bind(arguments["variants"], arguments.get("code", ())),
                            arguments["policies"], arguments["variants"],
                            arguments.get("dispatch", {}))
    return bound
