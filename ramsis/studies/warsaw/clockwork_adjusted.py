"""Clockwork's scheduler, adjusted to workers that hold few models at a time.

*Inference.* Requests of a model can run in batches of the listed sizes. Whenever a worker has a
free lane, it considers for each loaded model the largest batch that its requests fill and whose
first deadline can be met, and runs the batch with the earliest latest start. If no request can be
in time any more, it runs the oldest.

*Loading.* The demand d_m of a model is the work of its waiting requests on a worker. A worker's
load is Σ d_m / (copies of m) over its models. Within ``horizon_ms`` it serves the share
min(1, horizon / load) of each, so the priority of a model is

    p_m = d_m − Σ over its holders of d_m / copies · min(1, horizon / load).

Every ``every_ms`` the model with the highest priority above 0 is loaded onto an idle worker,
with loading models counted as held. If no idle worker has room, the models of idle workers are
compared by the priority that they would have with one copy less: the lowest one is unloaded, if it
is lower than the priority of the model to be loaded.

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), section 4.2.4; the
rule for unloading is its adjustment. Its horizon and period are not printed; Clockwork looks
100 ms ahead, which is its SLO.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ramsis.sim.engine import Engine, Scheduler


class ClockworkAdjusted(Scheduler[Engine]):
    """Clockwork's scheduler, adjusted to workers that hold few models at a time.

    Parameters
    ----------
    horizon_ms : float
        Time ahead over which a worker's load is compared, > 0.
    every_ms : float
        Time between two loads, > 0.
    """

    def __init__(
        self, engine: Engine, horizon_ms: float = 500.0, every_ms: float = 100.0
    ) -> None:
        super().__init__(engine)
        self.horizon_ms, self.every_ms = horizon_ms, every_ms
        models = len(engine.site.models)
        self.queues: list[deque[int]] = [deque() for _ in range(models)]
        self.late: list[deque[int]] = [deque() for _ in range(models)]
        self.busy_with: dict[int, None] = {}  # models with requests that wait
        self.each_ms = [min(float(np.mean(of_type[kind][0])) for of_type in engine.times.quantiles)
                        for kind in engine.times.kind]  # a request alone, of each model
        # By worker type and model: sizes and times of batches, the largest first.
        self.batches = [
            [[(size, row[size - 1]) for size in reversed(sizes)] or [(1, inf)]
             for row, sizes in zip(rows, of_type, strict=True)]
            for rows, of_type in zip(engine.times.rows, engine.times.sizes, strict=True)]
        self.awake = False

    # Inference.

    def on_arrival(self, request: int) -> None:
        """Serve the request if a worker has a free lane; otherwise it waits."""
        model = self.engine.requests.model[request]
        self.queues[model].append(request)
        self.busy_with[model] = None
        free = self.engine.workers.free_lanes
        for worker in self.engine.workers.holders(model):
            if free[worker] > 0:
                self.serve(worker)
                break
        self.stay_awake()

    def on_end(self, worker: int, batch: int) -> None:
        """Serve waiting requests on the worker that has become idle."""
        self.serve(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve requests that waited for the loaded model."""
        self.serve(worker)

    def serve(self, worker: int) -> None:
        """Start batches on a worker while it has free lanes."""
        held, free = self.engine.workers.loaded[worker], self.engine.workers.free_lanes
        while free[worker] > 0:
            here = self.busy_with.keys() & held
            strategy = self._first(worker, here) or self._oldest_late(here)
            if strategy is None:
                return
            _, model, size = strategy
            queue = self.queues[model] or self.late[model]
            batch = [queue.popleft() for _ in range(size)]
            if not self.queues[model] and not self.late[model]:
                del self.busy_with[model]
            self.engine.run(worker, model, batch)

    def _first(self, worker: int, models: Iterable[int]) -> tuple[float, int, int] | None:
        """Return the batch that must start first to be in time; None if none can be."""
        queues, deadline_ms = self.queues, self.engine.requests.deadline_ms
        batches = self.batches[self.engine.workers.type[worker]]
        best: tuple[float, int, int] | None = None
        for model in models:
            queue = queues[model]
            # Among batches of a model, the largest has the earliest latest start.
            if (best is not None and queue
                    and deadline_ms[queue[0]] - batches[model][0][1] > best[0]):
                continue
            strategy = self._strategy(worker, model)
            if strategy is not None and (best is None or strategy < best):
                best = strategy
        return best

    def _strategy(self, worker: int, model: int) -> tuple[float, int, int] | None:
        """Return latest start, model, and size of the largest batch that can be in time."""
        engine, queue = self.engine, self.queues[model]
        now_ms, deadline_ms = engine.now_ms, engine.requests.deadline_ms
        batches = self.batches[engine.workers.type[worker]][model]
        alone_ms = batches[-1][1]
        while queue and deadline_ms[queue[0]] - alone_ms < now_ms:
            self.late[model].append(queue.popleft())
        if not queue:
            return None
        due_ms, waiting = deadline_ms[queue[0]], len(queue)
        for size, took_ms in batches:
            if size <= waiting and due_ms - took_ms >= now_ms:
                return due_ms - took_ms, model, size
        return due_ms - alone_ms, model, 1

    def _oldest_late(self, models: Iterable[int]) -> tuple[float, int, int] | None:
        """Return the late request that has waited longest."""
        arrival_ms = self.engine.requests.arrival_ms
        return min(((arrival_ms[self.late[m][0]], m, 1) for m in models
                    if self.late[m] and not self.queues[m]), default=None)

    # Loading.

    def on_scaled(self, worker: int) -> None:
        """Consider which models to load on a worker that was added."""
        self.stay_awake()

    def on_timer(self, token: object) -> None:
        """Load the models with the highest priority."""
        self.awake = False
        if not self.busy_with:
            return
        priority, load_ms = self.priorities()
        workers = self.engine.workers
        idle = [worker for worker in range(len(workers))
                if workers.may_load(worker) and not workers.running[worker]]
        plan = _Plan(load_ms, idle)
        for model in sorted(self.busy_with, key=lambda m: -priority[m]) if idle else ():
            if priority[model] <= 0 or self.place(model, priority[model], plan):
                break
        self.stay_awake()

    def stay_awake(self) -> None:
        """Set a timer for the next loads, if none is set."""
        if not self.awake:
            self.awake = True
            self.engine.wake_at(self.engine.now_ms + self.every_ms)

    def demand_ms(self, model: int) -> float:
        """Return the work of a model's waiting requests."""
        return (len(self.queues[model]) + len(self.late[model])) * self.each_ms[model]

    def held(self, worker: int) -> list[int]:
        """Return the models with waiting requests that a worker holds or loads."""
        workers = self.engine.workers
        return [m for m in self.busy_with
                if m in workers.loaded[worker] or m in workers.loading[worker]]

    def priorities(self) -> tuple[dict[int, float], list[float]]:
        """Return the priority of models with waiting requests, and each worker's load in ms."""
        held = [self.held(worker) for worker in range(len(self.engine.workers))]
        copies = dict.fromkeys(self.busy_with, 0)
        for models in held:
            for model in models:
                copies[model] += 1
        load_ms = [sum(self.demand_ms(m) / copies[m] for m in models) for models in held]
        priority = {m: self.demand_ms(m) for m in self.busy_with}
        for models, load in zip(held, load_ms, strict=True):
            for model in models:
                part = self.demand_ms(model) / copies[model]
                priority[model] -= part * min(1.0, self.horizon_ms / load)
        return priority, load_ms

    def place(self, model: int, priority: float, plan: _Plan) -> bool:
        """Load a model, in place of less important ones if needed; return whether it loads."""
        engine, workers = self.engine, self.engine.workers
        able = [worker for worker in plan.idle
                if model not in workers.loaded[worker] and model not in workers.loading[worker]
                and engine.times.runs(workers.type[worker], model)]
        room = [worker for worker in able if workers.fits(worker, model)]
        if room:
            engine.load(min(room, key=lambda worker: (plan.load_ms[worker], worker)), model)
            return True
        least, best, given_up = inf, -1, []
        for worker in able:
            order = self.by_worth(worker, plan)
            evicted = workers.to_give_up(worker, model, (other for _, other in order))
            if evicted and order[len(evicted) - 1][0] < least:
                least, best, given_up = order[len(evicted) - 1][0], worker, evicted
        if least >= priority:
            return False
        for other in given_up:
            engine.unload(best, other)
        engine.load(best, model)
        return True

    def by_worth(self, worker: int, plan: _Plan) -> list[tuple[float, int]]:
        """Return the models of a worker by the priority that each would have after unloading."""
        if worker not in plan.by_worth:
            held = self.engine.workers.loaded[worker]
            wanted = self.busy_with.keys() & held
            plan.by_worth[worker] = sorted(
                [(self.without(m, plan.load_ms), m) for m in wanted]
                + [(0.0, m) for m in held - wanted])
        return plan.by_worth[worker]

    def without(self, model: int, load_ms: list[float]) -> float:
        """Return the priority that a model would have with one copy less."""
        demand_ms = self.demand_ms(model)
        holders = self.engine.workers.holders(model)
        left = sorted(load_ms[worker] for worker in holders)[:-1]
        part = demand_ms / len(left) if left else 0.0
        return demand_ms - sum(part * min(1.0, self.horizon_ms / max(load, part))
                               for load in left)


@dataclass(slots=True)
class _Plan:
    """State of one decision on loads: loads, idle workers, and their models by priority."""

    load_ms: list[float]
    idle: list[int]
    by_worth: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
