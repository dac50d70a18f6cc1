"""Late decisions: batches by latest start, the costliest postponed; loads by a plan.

*When.* A batch is chosen only when a worker is free, so that requests that arrive until then can
still join it.

*Which.* The *batch of a model* consists of its oldest requests. Of the sizes with which the oldest
request can still be in time, it has the size of least time per request. Its latest start is the
deadline of the oldest request less the time of the batch. A free worker considers the batches of
the models that it holds in the order of their latest starts, at most ``look_ahead`` of them, and
plans each on the worker that is free first. When a batch would start too late, the batch with most
time per request among those considered so far is postponed (Hodgson's rule, Moore 1968, for
weights); it may have grown when it is considered again. The first batch that is not postponed
runs. A request that no batch can answer in time is dropped. Requests whose answers would come
before the ``earliest_ms`` of their stream are held back
(:mod:`~ramsis.sim.schedulers.loading.held_back`).

*Early drops.* If more requests wait than can be answered, the oldest one has little time left, so
only a small batch answers it in time. Small batches take most time per request, so the queue does
not recover. Then the scheduler drops as many of the oldest requests as needed for most of the
waiting requests to be in time, if the model's holders did nothing else (as in Nexus: Shen et al.,
SOSP 2019). It checks this when a model's batch is smaller than the number of waiting requests
would allow.

*If workers hold different models*, each worker plans for itself. For a model with h holders it
counts 1/√h of a batch's time: alone it would have to run every batch, with the other holders' help
every h-th. It orders batches by the middle between latest start and deadline: a long batch before
a short one could make the short one late, and perhaps no other worker can run that one. (With one
worker, an order by deadlines finds a feasible plan if there is one, but runs large batches less
often.)

*Continuous batches* are joined as long as they have room.

*Loads* follow a plan of copies: :mod:`ramsis.sim.schedulers.loading.loads`.

An event updates a few list entries. A decision is a compiled pass over the models of the worker,
and ``look_ahead`` steps.
"""

from __future__ import annotations

from collections import deque
from math import inf

import numpy as np

from ramsis.compiling import of_types
from ramsis.sim.engine import Engine, check_at_least
from ramsis.sim.schedulers.loading._planned_kernels import (
    EPSILON_MS,
    Waiting,
    WorkerTimes,
    first_batch,
    to_give_up,
)
from ramsis.sim.schedulers.loading.held_back import HeldBack, Release
from ramsis.sim.schedulers.loading.loads import LoadsByPlan

_NEW = 0.2  # weight of the last batch in the time per request


class Planned(LoadsByPlan):
    """Scheduler that starts batches as late as possible and loads models by a plan.

    Parameters
    ----------
    look_ahead : int
        Largest number of batches that a decision considers, >= 1.
    every_ms : float
        Time between two rounds of updating rates and starting loads.
    window_ms : float
        Length of a window in which arrivals are counted, and time between two plans of copies.
    windows : int
        Number of past windows from which a plan is made, >= 1.
    worth : float
        Least share of a worker's time that a further copy takes off each other copy.
    load_weight : float
        Value of a ms of loading in the choice of copies, in ms of work.
    """

    def __init__(
        self, engine: Engine, look_ahead: int = 12, every_ms: float = 20.0,
        window_ms: float = 1000.0, windows: int = 8, worth: float = 0.005,
        load_weight: float = 1.0,
    ) -> None:
        super().__init__(engine, every_ms, window_ms, windows, worth, load_weight)
        check_at_least(1, "planned", look_ahead=look_ahead)
        self.look_ahead = look_ahead
        self.held_back = HeldBack(engine)
        workers, models = engine.workers, len(engine.site.models)
        count = len(workers)
        self.model_of = engine.requests.model
        times = {kind: _times(engine, kind) for kind in set(workers.type)}
        self.times = [times[kind] for kind in workers.type]
        self.alike = len(times) == 1
        self.busy_ms = np.zeros(count)
        self.share = 1.0 / np.sqrt(np.maximum(self.copies, 1))
        self.shortest_ms = self.batch_ms[:, 0].copy() if self.alike else np.array(
            [self.shortest(model) for model in range(models)])
        self.heads = Waiting(self.length, self.due_ms, np.array(engine.times.kind, dtype=np.int64),
                             self.share, self.shortest_ms)
        self.first_batch = of_types(
            first_batch, 0.0, self.held[0], self.heads, self.times[0], self.busy_ms, look_ahead,
            True)
        self.free: list[int] = [worker for worker in range(count)
                                if workers.free_lanes[worker] > 0]
        # Workers are alike and hold all models, so any free worker may run any batch.
        self.settled = self.alike and bool((self.copies == count).all())
        # by model with continuous batches: its running batches, which requests may join
        self.groups: dict[int, list[int]] = {
            model: [] for model, kind in enumerate(engine.times.kind)
            if engine.times.continuous[kind]}

    # Events.

    def on_start(self) -> None:
        """Start the loads that a given plan still needs."""
        for worker in range(len(self.to_load)):
            self.load_planned(worker)

    def on_arrival(self, request: int) -> None:
        """Queue a request, and run it where a worker is free."""
        if self.held_back.needed and self.held_back.hold(request):
            return
        model = self.model_of[request]
        queue = self.waiting[model]
        if not queue:
            queue.append(request)
            self.queued.add(model)
            self.due_ms[model] = self.last_ms[model] = self.deadline_ms[request]
        # A model may have streams of several SLOs.
        elif self.deadline_ms[queue[-1]] > self.deadline_ms[request]:
            self.insert(queue, request)
            self.due_ms[model] = self.deadline_ms[queue[0]]
        else:
            queue.append(request)
            self.last_ms[model] = self.deadline_ms[request]
        self.length[model] = len(queue)
        if not self.settled and not self.count_arrival(model):
            return
        if model in self.groups:
            self.join(model)
        for worker in self.free:
            if self.settled or model in self.engine.workers.loaded[worker]:
                self.serve(worker)
                return

    def on_timer(self, token: object) -> None:
        """Schedule a request that was held back."""
        assert isinstance(token, Release)
        self.on_arrival(token.request)

    def on_ready(self, request: int) -> None:
        """Handle a request that has become ready as an arrival."""
        self.on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Start batches on the worker that has become free."""
        if self.engine.workers.free_lanes[worker] == 1:
            self.free.append(worker)
        if self.cold:
            self.load_more()
        for model in self.groups:
            self.join(model)
        self.serve(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Use a model that has been loaded, and load the next."""
        self.loaded(worker, model)
        if self.engine.workers.free_lanes[worker] > 0 and worker not in self.free:
            self.free.append(worker)
        self.serve(worker)

    def on_scaled(self, worker: int) -> None:
        """Add a worker that has started; the next look plans with it."""
        self.free.append(worker)
        self.plan_soon()
        self.load_more()

    def on_stopped(self, worker: int) -> None:
        """Forget the holdings of a stopped worker."""
        super().on_stopped(worker)
        if worker in self.free:
            self.free.remove(worker)

    # Batches.

    def insert(self, queue: deque[int], request: int) -> None:
        """Insert a request before those that are due later."""
        place, due_ms = len(queue), self.deadline_ms[request]
        while place and self.deadline_ms[queue[place - 1]] > due_ms:
            place -= 1
        queue.insert(place, request)

    def serve(self, worker: int) -> None:
        """Start batches on a worker as long as it is free."""
        engine = self.engine
        free_lanes = engine.workers.free_lanes
        while free_lanes[worker] > 0:
            if not self.queued:
                return
            model, size, small = self.first_batch(
                engine.now_ms, self.held[worker], self.heads, self.times[worker], self.busy_ms,
                self.look_ahead, self.settled)
            if model == -1:
                return
            if model < 0:
                self.drop_late(-2 - model)
                continue
            queue = self.waiting[model]
            # A batch that its oldest request keeps small: drop the oldest requests if that pays.
            if small and self.give_up(worker, model):
                continue
            took_ms = self.rows[worker][model][size - 1]
            cost_ms = self.cost_ms.item(model)
            self.cost_ms[model] = cost_ms + _NEW * (took_ms / size - cost_ms)
            requests = [queue.popleft() for _ in range(size)]
            if not self.settled:
                self.note_slack(model, requests[-1])
            self.requeue(model)
            batch = engine.run(worker, model, requests)
            self.busy_ms[worker] = engine.now_ms + took_ms
            if model in self.groups:
                self.groups[model].append(batch)
                self.join(model)
        if worker in self.free:
            self.free.remove(worker)

    def give_up(self, worker: int, model: int) -> bool:
        """Drop the oldest requests that keep batches too small; return whether any was dropped."""
        queue, (took_ms, best) = self.waiting[model], self.times[worker]
        kind = self.heads.kind[model]
        due_ms = np.array([self.deadline_ms[request] for request in queue])
        count = to_give_up(self.engine.now_ms, due_ms, took_ms[kind], best[kind],
                           self.mean_lanes * max(len(self.holders[model]), 1))
        for _ in range(count):
            self.engine.drop(queue.popleft())
        self.requeue(model)
        return count > 0

    def join(self, model: int) -> None:
        """Let waiting requests of a model join its running continuous batches that have room."""
        progress, queue, groups = self.engine.progress, self.waiting[model], self.groups[model]
        if progress is None or not groups:
            return
        groups[:] = [batch for batch in groups if batch in progress.groups]
        self.drop_late(model)
        for batch in groups:
            room = len(progress.held_by[batch].steps_ms or ()) - progress.groups[batch]
            joining = [queue.popleft() for _ in range(min(room, len(queue)))]
            if joining:
                self.engine.join(batch, joining)
        self.requeue(model)

    def drop_late(self, model: int) -> None:
        """Drop the requests of a model that can no longer be in time."""
        queue = self.waiting[model]
        limit_ms = self.engine.now_ms + self.shortest_ms[model] - EPSILON_MS
        while queue and self.deadline_ms[queue[0]] < limit_ms:
            self.engine.drop(queue.popleft())
        self.requeue(model)

    def requeue(self, model: int) -> None:
        """Update the figures of a queue that has become shorter."""
        queue = self.waiting[model]
        self.length[model] = len(queue)
        if queue:
            self.due_ms[model] = self.deadline_ms[queue[0]]
        else:
            self.queued.discard(model)

    # Loads.

    def load(self, worker: int, model: int) -> None:
        """Begin to load a model; where loading blocks, the worker is not free meanwhile."""
        super().load(worker, model)
        if self.engine.workers.free_lanes[worker] <= 0 and worker in self.free:
            self.free.remove(worker)

    def held_changed(self, worker: int, model: int) -> None:
        """Record that a worker holds a model from now on, or no longer."""
        self.share[model] = 1.0 / max(len(self.holders[model]), 1) ** 0.5
        if not self.alike:
            self.shortest_ms[model] = self.shortest(model)
        if self.settled:
            self.settled = False

    def shortest(self, model: int) -> float:
        """Return the shortest time of a batch of one on the model's holders, or on all workers."""
        places = self.holders[model] or range(len(self.rows))
        return min((self.rows[worker][model][0] for worker in places), default=inf)


def _times(engine: Engine, worker_type: int) -> WorkerTimes:
    """Return the batch times of a worker type."""
    kinds = engine.times.kind
    of_kind = dict(zip(kinds, engine.times.rows[worker_type], strict=True))
    most = max(len(row) for row in of_kind.values())
    took_ms = np.full((max(kinds) + 1, most + 1), inf)
    best = np.zeros((max(kinds) + 1, most + 1), dtype=np.int64)
    for kind, row in of_kind.items():
        took_ms[kind, 1 : len(row) + 1] = row
        for size in range(1, most + 1):
            before = int(best[kind, size - 1])
            better = took_ms[kind, size] < inf and (
                not before or took_ms[kind, size] / size <= took_ms[kind, before] / before)
            best[kind, size] = size if better else before
    return WorkerTimes(took_ms, best)
