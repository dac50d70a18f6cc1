"""Loads of the planned scheduler: copies by a plan from past windows, and cold models at once.

*The plan.* Arrivals are counted by model and window. At the end of each window the number and
placement of the copies of each model is planned (:mod:`ramsis.sim.schedulers.loading.copies`) from
the last ``windows`` windows: first copies by the mean of the windows, further copies by the
busiest one. Future arrivals are unknown; a model that was loaded at the start counts as half a
request. Or the plan is given, and does not change.

*Loads for the plan.* A worker loads the models that it lacks: first those that no worker holds,
even one that the plan wants elsewhere, if the copy that is due here still fits beside it; then
copies with the most work. To make room it unloads models that the plan does not want on it, those
of least rate per MB first. Two rules limit loads that block their worker. A load into free memory
waits until no request waits for the worker's models, as several loads in a row would make requests
late that need the first of them. A further copy whose load takes longer than requests can wait is
not loaded while all holders of the model are calm, that is, have time to spare if they run the
largest batches that leave requests time.

*Cold models.* A cold model, for which requests wait but which no worker holds, is loaded if this
gains more requests than it costs (:func:`~ramsis.sim.schedulers.loading._load_kernels.best_load`).
The gain is the requests that wait and can be in time after the load, and those that arrive during
the load. The cost is the requests for the evicted models that arrive until these could be loaded
again and cannot wait that long, or that the models' other holders have no time for. If loads
block, the cost includes the requests that the worker would have answered in the time of both
loads. The load with the largest net gain per ms is made. Models with waiting requests are never
evicted. So models take turns if requests have time to wait, and stay if not. When a load has
ended, the plan for the worker comes first.

*Overloaded models.* A model whose holders cannot serve all waiting requests in time competes with
cold models for one more worker, by the same rule; its gain is the requests that they cannot serve.
The time of the holders is judged by the largest batches that leave requests time, which they run
if more requests wait.

A batch *leaves requests time* if two such batches fit into the time from arrival to deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import exp, inf

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.compiling import of_types
from ramsis.sim.engine import Engine, Scheduler, check_at_least
from ramsis.sim.engine.workers import ACTIVE
from ramsis.sim.schedulers.loading._load_kernels import (
    AskedFor,
    Places,
    Room,
    best_load,
    least_each,
    set_shares,
)
from ramsis.sim.schedulers.loading.copies import (
    CopyLoad,
    CopyProblem,
    choose_copies,
    gap_of,
    place_copies,
)

_AT_START = 0.5  # requests
_CALM = 0.95  # share of a worker's time up to which its models need no further copy
_FIRST = 0.25  # of a window, until the first plan


class LoadsByPlan(Scheduler[Engine]):
    """Scheduler that plans which models are loaded where; subclasses decide about batches.

    Parameters are as of :class:`~ramsis.sim.schedulers.loading.planned.Planned`. :meth:`look`,
    every ``every_ms``, updates rates and starts loads.
    """

    def __init__(
        self, engine: Engine, every_ms: float, window_ms: float, windows: int,
        worth: float, load_weight: float,
    ) -> None:
        super().__init__(engine)
        check_at_least(1e-3, "planned", every_ms=every_ms, window_ms=window_ms, windows=windows)
        check_at_least(0, "planned", worth=worth, load_weight=load_weight)
        workers, models = engine.workers, len(engine.site.models)
        count = len(workers)
        self.every_ms, self.window_ms, self.worth = every_ms, float(window_ms), worth
        self.waiting: list[deque[int]] = [deque() for _ in range(models)]
        self.arrival_ms = engine.requests.arrival_ms
        self.deadline_ms = engine.requests.deadline_ms
        self.rows = [engine.times.rows[kind] for kind in workers.type]
        self.holders: list[list[int]] = [workers.holders(model) for model in range(models)]
        self.copies = np.array([len(holder) for holder in self.holders], dtype=np.int64)
        self.held = [np.array(sorted(held), dtype=np.int64) for held in workers.loaded]
        self.coming = np.zeros(models, dtype=np.int64)
        self.cold: dict[int, None] = {}
        self.queued: set[int] = set()  # models that requests wait for
        self.length = np.zeros(models, dtype=np.int64)
        self.due_ms, self.last_ms = np.zeros(models), np.zeros(models)
        load_ms = np.array(engine.times.loads)  # by worker type and model
        # How long a request for the model can wait; until one has arrived, its load time.
        self.slack_ms = load_ms.min(axis=0)
        self.slack_ms[~np.isfinite(self.slack_ms)] = 0.0
        self.seen: list[int] = []  # models of the arrivals of this window
        self.look_ms, self.looked_ms = 0.0, 0.0
        # Times per request at the last look; None once the busy shares follow from them.
        self.looked_cost_ms: FloatArray | None = None
        self.loading_ms = np.zeros(count)  # time of recent blocking loads, decaying by window
        self.window_begin_ms = 0.0
        self.recent: deque[FloatArray] = deque(maxlen=int(windows))
        self.rate = np.zeros(models)  # per ms
        self.batch_ms, self.batch_each_ms = _batches(engine)
        self.cost_ms = self.batch_ms[:, 0].copy()
        self.taken = np.zeros(count)  # share of each worker's time, with loads that block
        self.least_ms, self.least_busy = self.least_each(), np.zeros(count)
        self.space = Room(np.zeros(count, dtype=bool), np.zeros((count, models), dtype=bool),
                          np.zeros(count), np.zeros(count))
        self.gone = np.zeros(models, dtype=bool)
        self.cluster = _cluster(engine, load_weight)
        self.target: BoolArray = self.now_held()
        self.places = Places(
            self.now_held(), self.cluster.runs, self.cluster.memory_mb,
            load_ms[workers.type], np.array(workers.blocking),
            np.array(workers.lanes, dtype=float))
        self.demand = AskedFor(self.rate, self.slack_ms, self.cost_ms, self.copies, self.length,
                               self.due_ms, self.last_ms, self.coming, self.taken, self.least_ms,
                               self.least_busy)
        self.set_shares_of = of_types(
            set_shares, self.cost_ms, self.loading_ms, self.window_ms, self.batch_ms,
            self.batch_each_ms, self.places, self.demand)
        self.best_load = of_types(
            best_load, 0.0, self.held[0], self.space, self.places, self.demand, self.gone, True)
        self.fixed = False
        self.to_load: list[list[int]] = [[] for _ in range(count)]
        self.gaps: list[float] = []
        self.plan_ms = _FIRST * window_ms
        self.at_start = np.zeros(models)  # requests
        self.at_start[[model for held in engine.site.start for model in held]] = _AT_START
        self.mean_lanes = float(self.places.lanes.mean())
        self.blocks = any(workers.blocking)
        self.soonest_ms = np.full(models, inf)  # least time of a load and a batch of one after it
        for kind in set(workers.type):
            runs = self.cluster.runs[workers.type.index(kind)]
            ready_ms = load_ms[kind] + [row[0] for row in engine.times.rows[kind]]
            np.minimum(self.soonest_ms, ready_ms, out=self.soonest_ms, where=runs)

    def now_held(self) -> BoolArray:
        """Return the models that workers hold, (W, M)."""
        held = np.zeros((len(self.held), len(self.holders)), dtype=bool)
        for worker, models in enumerate(self.held):
            held[worker, models] = True
        return held

    def follow(self, held: Mapping[int, Collection[int]]) -> None:
        """Adopt a given placement, and plan no further changes."""
        self.fixed = True
        self.target = np.zeros_like(self.target)
        for worker, models in held.items():
            self.target[worker, sorted(models)] = True
        self.note_missing(self.cost_ms)

    def figures(self) -> dict[str, float]:
        """Return the largest gap between a plan and the bound on all plans."""
        return {"placement_gap": max(self.gaps)} if self.gaps else {}

    # What subclasses do.

    def requeue(self, model: int) -> None:
        """Update what a subclass derives from a model's queue after requests were dropped."""

    def held_changed(self, worker: int, model: int) -> None:
        """Update what a subclass derives from holdings after a worker's have changed."""

    # Rates and plans.

    def count_arrival(self, model: int) -> bool:
        """Count an arrival; return whether a worker holds the model, and try to load it if not."""
        self.seen.append(model)
        if self.engine.now_ms >= self.look_ms:
            self.look()
        if self.holders[model]:
            return True
        if not self.coming[model]:
            self.cold[model] = None
            self.load_more()
        return False

    def look(self) -> None:
        """Do the periodic work: update rates, plan at the end of a window, and start loads."""
        now_ms = self.engine.now_ms
        self.look_ms = now_ms + self.every_ms
        if now_ms >= self.plan_ms:
            self.recent.append(self.count() * (self.window_ms / (now_ms - self.window_begin_ms)))
            self.seen.clear()
            self.window_begin_ms, self.plan_ms = now_ms, now_ms + self.window_ms
            self.plan()
        elif not self.recent and now_ms > 0.0:
            self.rate[:] = self.count() / now_ms
        if self.blocks:
            self.loading_ms *= exp((self.looked_ms - now_ms) / self.window_ms)
        self.looked_ms = now_ms
        self.looked_cost_ms = self.cost_ms.copy()
        if any(self.to_load):
            for worker in range(len(self.to_load)):
                self.load_planned(worker)
        if any(len(self.waiting[model]) > 1 for model in self.queued):
            self.load_more()

    def count(self) -> FloatArray:
        """Return the arrivals of this window, by model, (M,)."""
        return np.bincount(self.seen, minlength=len(self.rate)).astype(float)

    def set_shares(self) -> None:
        """Update the workers' busy shares; call it before holdings change, as these enter it."""
        if self.looked_cost_ms is None:
            return
        self.set_shares_of(
            self.looked_cost_ms, self.loading_ms, self.window_ms, self.batch_ms,
            self.batch_each_ms, self.places, self.demand)
        self.looked_cost_ms = None

    def plan_soon(self) -> None:
        """Have the next look plan anew, since the active workers have changed."""
        self.plan_ms = min(self.plan_ms, self.window_begin_ms + _FIRST * self.window_ms)

    def plan(self) -> None:
        """Plan the holdings of all workers by the arrivals of the last windows."""
        counts, held = np.array(self.recent), self.places.held
        self.rate[:] = counts.sum(axis=0) / len(counts) / self.window_ms
        if self.fixed:
            self.note_missing(self.rate * self.cost_ms)
            return
        rate = self.rate + self.at_start / (len(counts) * self.window_ms)
        most = counts.max(axis=0)
        work = most * self.cost_ms / self.window_ms
        cluster = self.active()
        least_ms, lanes = self.least_each(), self.mean_lanes
        crowd = most * least_ms / (self.window_ms * lanes)
        copies = choose_copies(cluster, CopyLoad(
            rate, work, crowd, self.slack_ms, least_ms / lanes), held, self.worth)
        self.target = place_copies(cluster, copies, work, held)
        self.gaps.append(gap_of(cluster, self.target, counts, self.cost_ms, self.window_ms))
        self.note_missing(work / np.maximum(copies, 1))

    def least_each(self) -> FloatArray:
        """Return the least time per request of each model in batches that can be in time, (M,)."""
        least_ms = np.empty(len(self.slack_ms))
        least_each(self.batch_ms, self.batch_each_ms, self.slack_ms, least_ms)
        return least_ms

    def active(self) -> CopyProblem:
        """Return the copy problem restricted to workers that are active now."""
        active = [status == ACTIVE for status in self.engine.workers.status]
        return self.cluster if all(active) else self.cluster.of(np.array(active))

    def note_missing(self, worth: FloatArray) -> None:
        """List the loads that each worker needs for the plan, the most valuable last."""
        missing = self.target & ~self.places.held
        self.to_load = [[] for _ in missing]
        pairs = zip(*(each.tolist() for each in missing.nonzero()), strict=True)
        for worker, model in sorted(pairs, key=lambda pair: worth.item(pair[1])):
            self.to_load[worker].append(model)

    def on_stopped(self, worker: int) -> None:
        """Forget the holdings of a stopped worker."""
        self.to_load[worker].clear()
        for model in self.held[worker].tolist():
            self.note_held(worker, model)

    # Loads.

    def load_planned(self, worker: int) -> None:
        """Start the loads of the plan that the worker can begin, models without a holder first."""
        workers, to_load = self.engine.workers, self.to_load[worker]
        while to_load and workers.may_load(worker):
            first = [at for at, model in enumerate(to_load)
                     if not self.holders[model] and not self.coming[model]]
            if not first and (cold := self.cold_beside(worker, to_load[-1])) >= 0:
                to_load.append(cold)
            model = to_load.pop(first[-1] if first else -1)
            if (self.places.blocking[worker] and self.length[self.held[worker]].any()
                    and workers.fits(worker, model)):
                to_load.append(model)  # until nothing waits for what the worker holds
                return
            present = model in workers.loaded[worker] or model in workers.loading[worker]
            if not present and self.spare(worker, model):
                continue
            if not present and self.room(worker, model):
                self.load(worker, model)

    def cold_beside(self, worker: int, further: int) -> int:
        """Return the most demanded cold model that fits on the worker beside ``further``, or -1.

        ``further`` is the next model of the worker's plan. Return -1 if it would not be loaded.
        """
        workers, memory_mb = self.engine.workers, self.cluster.memory_mb
        if self.fixed or workers.places(worker) < 2 or self.spare(worker, further):
            return -1
        room_mb = workers.free_mb[worker] - memory_mb[further]
        return max((model for model in self.cold if not self.coming[model]
                    and self.cluster.runs[worker, model] and memory_mb[model] <= room_mb),
                   key=self.rate.__getitem__, default=-1)

    def spare(self, worker: int, model: int) -> bool:
        """Return whether to skip a further copy of a model, as loading it would only do harm.

        That is so if the load blocks the worker for longer than some model on it can wait, and no
        holder of the model is busy (:data:`_CALM`).
        """
        if not self.places.blocking[worker] or not self.holders[model]:
            return False
        held = self.held[worker]
        load_ms = self.places.load_ms[worker, model]
        if not (self.slack_ms[held] < load_ms).any():
            return False
        each = self.rate * self.least_each() / np.maximum(self.copies, 1)
        return all(each[self.held[other]].sum() < _CALM * self.places.lanes[other]
                   for other in self.holders[model])

    def load_more(self) -> None:
        """Load cold and overloaded models, largest net gain first, while a load has one."""
        workers = self.engine.workers
        while (self.cold or self.queued) and (
                able := [w for w in range(len(self.held)) if workers.may_load(w)]):
            cold = self.could_wait()
            self.set_shares()
            if not cold and (self.fixed or max(
                    (len(self.waiting[model]) for model in self.queued), default=0) < 2):
                return
            self.note_space(able)
            engine = self.engine
            model, worker = self.best_load(
                engine.now_ms, np.array(cold, dtype=np.int64), self.space, self.places,
                self.demand, self.gone, not self.fixed)
            if model < 0:
                return
            for other in self.gone.nonzero()[0].tolist():
                engine.unload(worker, other)
                self.note_held(worker, other)
            self.load(worker, model)
            self.cold.pop(model, None)

    def note_space(self, with_space: list[int]) -> None:
        """Update ``space``: the workers that can begin a load, and what fits on each."""
        engine, workers, (able, at_work, free_mb, free_places) = (
            self.engine, self.engine.workers, self.space)
        able[:] = at_work[:] = False
        for worker in with_space:
            able[worker] = True
            free_mb[worker] = workers.free_mb[worker]
            free_places[worker] = workers.places(worker)
            for batch in workers.running[worker]:
                at_work[worker, engine.requests.model[engine.members(batch)[0]]] = True

    def could_wait(self) -> list[int]:
        """Return the models that no worker holds or loads; drop requests too late for a load."""
        engine, models = self.engine, []
        for model in self.cold:
            if self.coming[model]:
                continue
            queue = self.waiting[model]
            ready_ms = engine.now_ms + self.soonest_ms[model]
            first = -1
            while queue and self.deadline_ms[first := queue[0]] < ready_ms:
                engine.drop(queue.popleft())
                self.requeue(model)
            if first >= 0:
                self.note_slack(model, first)
            models.append(model)
        return models

    def note_slack(self, model: int, request: int) -> None:
        """Update how long a request for a model can wait from its arrival."""
        self.slack_ms[model] = (self.deadline_ms[request] - self.arrival_ms[request]
                                - self.cost_ms.item(model))

    def load(self, worker: int, model: int) -> None:
        """Begin to load a model where there is room."""
        ready_ms = self.engine.load(worker, model)
        if self.engine.workers.blocking[worker]:
            self.set_shares()
            self.loading_ms[worker] += ready_ms - self.engine.now_ms
        self.coming[model] += 1

    def loaded(self, worker: int, model: int) -> None:
        """Record a load that has ended, and begin the next."""
        self.coming[model] -= 1
        self.cold.pop(model, None)
        self.note_held(worker, model)
        self.load_planned(worker)
        if self.cold:
            self.load_more()

    def room(self, worker: int, model: int) -> bool:
        """Make room for a planned model; return False, and change nothing, if that is impossible.

        Models that the plan does not want on the worker are unloaded, least rate per MB first.
        """
        workers, engine = self.engine.workers, self.engine
        if not engine.times.runs(workers.type[worker], model):
            return False
        others = self.held[worker][~self.target[worker, self.held[worker]]].tolist()
        gone = workers.to_give_up(worker, model, (
            other for other in sorted(
                others, key=lambda other: self.rate[other] / self.cluster.memory_mb[other])
            if not self.waiting[other] and not engine.runs_now(worker, other)))
        if gone is None:
            return False
        for evicted in gone:
            engine.unload(worker, evicted)
            self.note_held(worker, evicted)
        return True

    def note_held(self, worker: int, model: int) -> None:
        """Record that a worker holds a model from now on, or no longer."""
        self.set_shares()
        held = model in self.engine.workers.loaded[worker]
        self.places.held[worker, model] = held
        self.held[worker] = self.places.held[worker].nonzero()[0]
        if held:
            self.holders[model].append(worker)
        else:
            self.holders[model].remove(worker)
        self.copies[model] = len(self.holders[model])
        self.held_changed(worker, model)


def _batches(engine: Engine) -> tuple[FloatArray, FloatArray]:
    """Return the shortest batch time, and the mean time per request over workers, (M, B)."""
    rows = [engine.times.rows[kind] for kind in engine.workers.type]
    most = max(len(row) for rows_of_model in rows for row in rows_of_model)
    took_ms = np.array([[[*row, *[inf] * (most - len(row))] for row in rows_of_model]
                        for rows_of_model in rows])
    size, able = np.arange(1, most + 1), np.isfinite(took_ms).sum(axis=0)
    per_ms = (size / took_ms).sum(axis=0)
    each_ms = np.divide(able, per_ms, out=np.full(able.shape, inf), where=per_ms > 0.0)
    return took_ms.min(axis=0), each_ms


def _cluster(engine: Engine, load_weight: float) -> CopyProblem:
    """Return workers and models in the form for which copies are chosen."""
    workers, models = engine.workers, len(engine.site.models)
    runs = {kind: np.array([engine.times.runs(kind, model) for model in range(models)])
            for kind in sorted(set(workers.type))}
    load_ms = np.array(engine.times.loads)[sorted(runs)].min(axis=0)
    memory_mb = np.maximum(np.array(workers.model_mb), 1e-9)
    return CopyProblem(
        memory_mb, np.minimum(np.array(workers.memory_mb), float(memory_mb.sum())),
        np.minimum(np.array(workers.max_models, dtype=float), float(models)),
        np.stack([runs[kind] for kind in workers.type]),
        np.where(load_ms < inf, load_ms, 0.0), load_weight)
