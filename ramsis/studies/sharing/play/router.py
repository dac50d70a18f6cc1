"""Router and workers of a simulated cluster whose models share GPUs.

The router gathers one batch of a model at a time, for the next replica in turn. It sends the batch
when it is full, or when the waiting limit has passed since its first request: at that moment, or,
if ``lazy``, with the next request, at the latest with the last request of the run. So a replica
gets the part batch / sum of batches of its model's requests. A batch travels for its network time.
Each replica runs its batches one by one in order of arrival, without regrouping; replicas of a GPU
run concurrently. With overlapping copies a batch is copied while the preceding one runs.

Each batch in transit occupies a coroutine. If their number is limited and all are busy, the router
takes no requests and sends no due batches until one is free.

Requests of a model without replicas are dropped. A changed plan takes effect at once: replicas of
both plans keep their queues and their turn, removed ones finish their batches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from ramsis.sim.engine import Engine, Scheduler
from ramsis.studies.sharing.gpu.shared_gpu import RouterSettings


class Placed(NamedTuple):
    """Replica with indices of its model and GPU, and its times by batch size."""

    model: int
    worker: int
    batch: int
    mps_share: float | None
    work_ms: tuple[float, ...]


class Batch(NamedTuple):
    """Batch in transit: its requests, and the times of sending and of arrival at the GPU."""

    requests: list[int]
    sent_ms: float
    at_gpu_ms: float


class SentBatch(NamedTuple):
    """Batch that has run, with its replica and its number in the engine."""

    batch: int
    replica: Placed
    sent_ms: float
    at_gpu_ms: float


class _Replica:
    """Replica of a model on a GPU, with the batches that wait for it."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.queue: deque[Batch] = deque()
        self.running: int | None = None
        self.copied_ms = 0.0


class Router(Scheduler[Engine]):
    """Router that batches requests, and sends the batches to replicas in turn.

    Parameters
    ----------
    changes : sequence of (time in ms, replicas)
        Plans that take effect later.

    Attributes
    ----------
    sent : list of SentBatch
        The batches that ran, in the order of their start.
    """

    def __init__(
        self, engine: Engine, settings: RouterSettings, replicas: Sequence[Placed],
        changes: Sequence[tuple[float, Sequence[Placed]]] = (),
    ) -> None:
        super().__init__(engine)
        self.settings, self.changes = settings, changes
        sizes = range(1 + max((part.batch for plan in (replicas, *(plan for _, plan in changes))
                               for part in plan), default=0))
        self.copy_ms = [settings.copies_ms(size) for size in sizes]
        self.network_ms = [[settings.network_of(name).ms(size) for size in sizes]
                           for name in engine.site.models]
        self.sent: list[SentBatch] = []
        self.open: dict[int, list[int]] = {}
        self.due_ms: dict[int, float] = {}
        self.serial: dict[int, int] = {}
        self.turn: dict[int, int] = {}
        self.of: dict[int, list[_Replica]] = {}
        self.by_batch: dict[int, _Replica] = {}
        self.busy = 0  # number of busy coroutines
        self.backlog: deque[int] = deque()  # requests that the router has not taken yet
        self.last = len(engine.requests) - 1
        self.use(replicas)

    def on_start(self) -> None:
        """Set timers for the changes of the plan."""
        for at_ms, replicas in self.changes:
            self.engine.wake_at(at_ms, ("plan", replicas))

    def use(self, replicas: Sequence[Placed]) -> None:
        """Replace the plan by which requests are sent from now on."""
        replicas_of = {model: list(candidates) for model, candidates in self.of.items()}
        next_of: dict[int, list[_Replica]] = {}
        for placed in replicas:
            candidates = replicas_of.get(placed.model, [])
            same = next((replica for replica in candidates if replica.placed == placed), None)
            if same is not None:
                candidates.remove(same)
            next_of.setdefault(placed.model, []).append(same or _Replica(placed))
        for model, candidates in next_of.items():
            if candidates != self.of.get(model):
                self.turn[model] = 0
        self.of = next_of

    @property
    def stalled(self) -> bool:
        """Whether all coroutines are busy."""
        return self.busy >= (self.settings.coroutines or math.inf)

    def on_arrival(self, request: int) -> None:
        """Take the request, unless all coroutines are busy."""
        if self.stalled or self.backlog:
            self.backlog.append(request)
        else:
            self.take(request)

    def take(self, request: int) -> None:
        """Add the request to the open batch of its model, and send that if it is due."""
        engine = self.engine
        model = engine.requests.model[request]
        if model not in self.of:
            engine.drop(request)
        else:
            batch = self.open.get(model)
            if batch is None:
                batch = self.open[model] = []
                due_ms = self.due_ms[model] = engine.now_ms + self.settings.waiting_ms
                # The serial number tells this batch's timer from that of the next batch.
                serial = self.serial[model] = self.serial.get(model, 0) + 1
                if not self.settings.lazy:
                    engine.wake_at(due_ms, ("due", model, serial))
            batch.append(request)
            target = self.of[model][self.turn[model]].placed.batch
            late = self.settings.lazy and engine.now_ms >= self.due_ms[model]
            if len(batch) >= target or late:
                self.send(model)
        if request == self.last and self.settings.lazy:
            for waiting in list(self.open):
                self.send(waiting)

    def send(self, model: int) -> None:
        """Send the open batch of a model to the next replica in turn.

        After a change to smaller batches it is divided among the next replicas.
        """
        engine = self.engine
        requests = self.open.pop(model)
        if model not in self.of:
            for request in requests:
                engine.drop(request)
            return
        replicas = self.of[model]
        while requests:
            replica = replicas[self.turn[model]]
            self.turn[model] = (self.turn[model] + 1) % len(replicas)
            part, requests = (requests[:replica.placed.batch], requests[replica.placed.batch:])
            self.busy += 1
            at_gpu_ms = engine.now_ms + self.network_ms[model][len(part)]
            engine.wake_at(at_gpu_ms, ("there", replica, Batch(part, engine.now_ms, at_gpu_ms)))

    def on_timer(self, token: Any) -> None:
        """Handle a due batch, an arrival at a GPU, a finished copy, or a change of the plan."""
        kind, *arguments = token
        if kind == "due":
            model, serial = arguments
            if model in self.open and self.serial[model] == serial and not self.stalled:
                self.send(model)
        elif kind == "there":
            self.arrived(*arguments)
            self.release()
        elif kind == "copied":
            replica, batch = arguments
            replica.queue.append(batch)
            self.start(replica)
        else:
            self.use(arguments[0])

    def release(self) -> None:
        """Free a coroutine; send due batches, then take requests, while coroutines are free."""
        self.busy -= 1
        overdue = [] if self.settings.lazy else [
            model for model in self.open if self.due_ms[model] <= self.engine.now_ms]
        for model in overdue:
            if not self.stalled:
                self.send(model)
        while self.backlog and not self.stalled:
            self.take(self.backlog.popleft())

    def arrived(self, replica: _Replica, batch: Batch) -> None:
        """Copy or queue a batch that has reached its GPU."""
        copy_ms = self.copy_ms[len(batch.requests)]
        if copy_ms > 0:
            replica.copied_ms = max(replica.copied_ms, self.engine.now_ms) + copy_ms
            self.engine.wake_at(replica.copied_ms, ("copied", replica, batch))
            return
        replica.queue.append(batch)
        self.start(replica)

    def start(self, replica: _Replica) -> None:
        """Start the next batch of a replica that runs none."""
        if replica.running is not None or not replica.queue:
            return
        batch = replica.queue.popleft()
        placed = replica.placed
        size = len(batch.requests)
        number = self.engine.run(
            placed.worker, placed.model, batch.requests,
            work_ms=placed.work_ms[size] - self.copy_ms[size], share=placed.mps_share)
        replica.running = number
        self.by_batch[number] = replica
        self.sent.append(SentBatch(number, placed, batch.sent_ms, batch.at_gpu_ms))

    def on_end(self, worker: int, batch: int) -> None:
        """Start the next batch of the same replica."""
        replica = self.by_batch.pop(batch)
        replica.running = None
        self.start(replica)
