"""Base of the Warsaw thesis' cluster schedulers: inference in phases.

Waiting requests are served in order, in three phases: those that *starve*, to idle workers
that hold their model; those that can join a continuous batch that runs; all others, to idle
workers that hold their model. Workers take turns. The order is that of arrivals, or of deadlines.
Requests run one at a time, but for continuous batches.

After each event the phases apply to all waiting requests. Requests that waited before the event
have no idle worker, so only the new request or the newly idle worker matters: each worker has
heaps of the requests for its models, with lazy deletion of requests served elsewhere. Workers that
have held the same models from the start share their heaps.

Source: P. Blinowski, S. Mrozicki, S. Potrzebowski, K. Wąsowski: *Measuring and improving resource
utilization in a Kubernetes cluster serving AI inference tasks*, BSc thesis, University of Warsaw,
2024, section 4.2.1. When a request starves is not stated for its Baseline; 60 % of the time to
its deadline is what its section 4.2.3 counts by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ramsis.sim.engine import Engine, Scheduler
from ramsis.sim.engine.requests import WAITING


class PhasedScheduler(Scheduler[Engine]):
    """Scheduler with inference in phases; subclasses decide which models are loaded.

    Parameters
    ----------
    starved : float
        Share of the time to its deadline after which a request starves, > 0.
    by_deadline : bool
        Whether requests are ordered by deadline instead of arrival.

    Attributes
    ----------
    waiting : list of dict
        Waiting requests by model, in order of arrival.
    busy : set of int
        Models with waiting requests.
    """

    def __init__(
        self, engine: Engine, starved: float = 0.6, by_deadline: bool = False
    ) -> None:
        super().__init__(engine)
        state, workers = engine.requests, engine.workers
        self.starved_share = starved
        self.order = state.deadline_ms if by_deadline else state.arrival_ms
        # With equal SLOs the requests that starve come first in any order.
        self._alike = len({stream.slo_ms for stream in engine.world.streams}) == 1
        self.waiting: list[dict[int, None]] = [{} for _ in engine.site.models]
        self.busy: set[int] = set()
        self.turn = -1  # the worker that served last
        self._joins = [engine.times.continuous[kind] for kind in engine.times.kind]
        alike: defaultdict[frozenset[int], _Queue] = defaultdict(_Queue)
        self._queues = [alike[frozenset(held)] for held in workers.loaded]
        for queue in self._queues:
            queue.workers += 1
        self._group: list[dict[int, int]] = [{} for _ in workers.type]
        self._holders: list[dict[int, None]] = [{} for _ in engine.site.models]
        for worker, held in enumerate(workers.loaded):
            for model in sorted(held):
                self._holders[model][worker] = None

    # Events.

    def on_start(self) -> None:
        """Load models onto the workers before the first request."""
        self.settle(range(len(self.engine.workers)))

    def on_arrival(self, request: int) -> None:
        """Serve the request if a worker can; otherwise it waits."""
        model = self.engine.requests.model[request]
        self.waiting[model][request] = None
        self.busy.add(model)
        if not self.join(request):  # none starves as it comes: the second phase is the first
            worker = self.idle_holder(model)
            if worker is not None:
                self.infer(worker, request)
            else:
                for queue in {self._queues[holder] for holder in self._holders[model]}:
                    self._queue(queue, request)
        self.settle(())

    def on_end(self, worker: int, batch: int) -> None:
        """Serve waiting requests on the worker that has become idle."""
        self.serve(worker)
        self.settle((worker,))

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve requests that waited for the loaded model."""
        self._holders[model][worker] = None
        queue = self._apart(worker)
        for request in self.waiting[model]:
            self._queue(queue, request)
        self.serve(worker)
        self.settle((worker,))

    def on_scaled(self, worker: int) -> None:
        """Use an added worker."""
        self.settle((worker,))

    def on_timer(self, token: object) -> None:
        """Review which models the workers hold, at a regular time."""
        self.settle(range(len(self.engine.workers)))

    def on_stopped(self, worker: int) -> None:
        """Remove a stopped worker."""
        self._apart(worker)
        for holders in self._holders:
            holders.pop(worker, None)

    # Hooks of subclasses.

    def settle(self, freed: Sequence[int]) -> None:
        """Load and unload; called after each event, with workers that it may have freed."""

    def inferred(self, worker: int, model: int) -> None:
        """Record a started batch."""

    # Helpers of subclasses.

    def unload(self, worker: int, model: int) -> None:
        """Unload a model."""
        self.engine.unload(worker, model)
        self._apart(worker)
        self._holders[model].pop(worker, None)

    # The phases.

    def idle_holder(self, model: int) -> int | None:
        """Return the next worker in turn that holds a model and has a free lane."""
        free = self.engine.workers.free_lanes
        count, turn = len(free), self.turn
        idle = [((worker - turn - 1) % count, worker) for worker in self._holders[model]
                if free[worker] > 0]
        return min(idle)[1] if idle else None

    def infer(self, worker: int, request: int) -> None:
        """Start the inference of a request on a worker."""
        engine = self.engine
        model = engine.requests.model[request]
        self._leave(model, request)
        self.turn = worker
        batch = engine.run(worker, model, [request])
        if self._joins[model]:
            self._group[worker][model] = batch
            for other in list(self.waiting[model]):
                if not self.join(other):
                    break
        self.inferred(worker, model)

    def join(self, request: int) -> bool:
        """Let a request join a continuous batch of its model that has room, if there is one."""
        engine = self.engine
        model = engine.requests.model[request]
        if not self._joins[model] or engine.progress is None:
            return False
        for worker in self._holders[model]:
            batch = self._group[worker].get(model)
            room = engine.times.sizes[engine.workers.type[worker]][model][-1]
            if batch is not None and 0 < engine.progress.groups.get(batch, 0) < room:
                self._leave(model, request)
                engine.join(batch, [request])
                self.inferred(worker, model)
                return True
        return False

    def serve(self, worker: int) -> None:
        """Run waiting requests on a worker while it has free lanes."""
        free = self.engine.workers.free_lanes
        for model in sorted(self._group[worker]):
            while self.waiting[model] and self.join(next(iter(self.waiting[model]))):
                pass
        while free[worker] > 0:
            request = self._next(worker)
            if request is None:
                return
            self.infer(worker, request)

    def _leave(self, model: int, request: int) -> None:
        """Remove a request that waits no longer."""
        queue = self.waiting[model]
        del queue[request]
        if not queue:
            self.busy.discard(model)

    def _apart(self, worker: int) -> _Queue:
        """Return the queue of a worker whose models change, separated from other workers'."""
        queue = self._queues[worker]
        if queue.workers > 1:
            queue.workers -= 1
            queue = self._queues[worker] = _Queue(
                1, queue.ready.copy(), queue.starving.copy(), queue.starved.copy())
        return queue

    def _queue(self, queue: _Queue, request: int) -> None:
        heappush(queue.ready, (self.order[request], request))
        if self._alike:
            return
        state = self.engine.requests
        arrival_ms = state.arrival_ms[request]
        wait_ms = state.deadline_ms[request] - arrival_ms
        heappush(queue.starving, (arrival_ms + self.starved_share * wait_ms, request))

    def _next(self, worker: int) -> int | None:
        """Return the request that a worker should run next."""
        state, held = self.engine.requests, self.engine.workers.loaded[worker]
        now_ms, queue = self.engine.now_ms, self._queues[worker]
        starving = queue.starving
        while starving and starving[0][0] <= now_ms:
            request = heappop(starving)[1]
            heappush(queue.starved, (self.order[request], request))
        for heap in (queue.starved, queue.ready):
            while heap:
                request = heappop(heap)[1]
                if state.batch[request] == WAITING and state.model[request] in held:
                    return request
        return None



@dataclass(slots=True, eq=False)
class _Queue:
    """Heaps of requests that wait for workers with the same set of models."""

    workers: int = 0  # number of workers that share it
    # all requests, and those that starve, in serving order
    ready: list[tuple[float, int]] = field(default_factory=list)
    starving: list[tuple[float, int]] = field(default_factory=list)  # when each will starve
    starved: list[tuple[float, int]] = field(default_factory=list)
