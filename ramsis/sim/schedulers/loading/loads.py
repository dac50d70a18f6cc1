"""Loads of the planned scheduler: copies by the windows seen, and what nobody holds at once.

*The plan.* Arrivals are counted by model and window. At the end of each window it is worked out
how many copies of each model there should be, and where
(:mod:`ramsis.sim.schedulers.loading.copies`): by the last ``windows`` windows, the mean for what
is loaded at all, the busiest one for what is loaded more than once. Nothing that is yet to come is
known; a model that was loaded at the start counts as half a request. Workers load what they lack,
the copies of most work first; models that the plan does not want there make room, those of least
rate per MB first. Or the plan is given, and does not change.

*Cold models.* A model that requests wait for and no worker holds is loaded at once, onto the
worker with least work by the rates, whatever the plan; what the plan wants makes room last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.engine import ClusterEngine, Scheduler, check_at_least
from ramsis.sim.engine.workers import ACTIVE
from ramsis.sim.schedulers.loading.copies import CopyProblem, choose_copies, gap_of, place_copies

__all__ = ["LoadsByPlan"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_UNWANTED = 0.01  # of its worth
_AT_START = 0.5  # requests
_FIRST = 0.25  # of a window, until the first plan


class LoadsByPlan(Scheduler[ClusterEngine]):
    """What is loaded where; which batches run is up to the subclass, which has the queues.

    Parameters
    ----------
    engine : ClusterEngine
    every_ms : float
        Time between two looks at the work of the workers.
    window_ms : float
    windows : int
        As many of the last ones are planned by.
    worth : float
        Least share of a worker's time that a further copy takes off each other one.
    load_weight : float
        What a ms of loading is worth, in ms of work.
    """

    def __init__(
        self, engine: ClusterEngine, every_ms: float, window_ms: float, windows: int,
        worth: float, load_weight: float,
    ) -> None:
        super().__init__(engine)
        check_at_least(1e-3, "planned", every_ms=every_ms, window_ms=window_ms, windows=windows)
        check_at_least(0, "planned", worth=worth, load_weight=load_weight)
        workers, models = engine.workers, len(engine.arrays.models)
        count = len(workers)
        self.every_ms, self.window_ms, self.worth = every_ms, window_ms, worth
        self.waiting: list[deque[int]] = [deque() for _ in range(models)]
        self.deadline_ms = engine.requests.deadline_ms
        self.rows = [engine.times.rows[kind] for kind in workers.type]
        self.holders: list[list[int]] = [workers.holders(model) for model in range(models)]
        self.copies = np.array([len(one) for one in self.holders], dtype=np.int64)
        self.held = [np.array(sorted(held), dtype=np.int64) for held in workers.loaded]
        self.coming = [0] * models
        self.cold: dict[int, None] = {}
        self.seen: list[int] = []  # models of the arrivals since the last look
        self.look_ms = 0.0
        self.window_begin_ms = 0.0
        self.count = np.zeros(models)
        self.recent: deque[FloatArray] = deque(maxlen=int(windows))
        self.rate = np.zeros(models)  # per ms
        self.cost_ms = np.array([min(rows[model][0] for rows in self.rows)
                                 for model in range(models)])
        self.busy = [0.0] * count  # share of each worker's time, by the rates
        self.cluster = _cluster(engine, load_weight)
        self.target: BoolArray = self.now_held()
        self.fixed = False
        self.to_load: list[list[int]] = [[] for _ in range(count)]
        self.gaps: list[float] = []
        self.plan_ms = _FIRST * window_ms

    def now_held(self) -> BoolArray:
        """What the workers hold, (W, M)."""
        found = np.zeros((len(self.held), len(self.holders)), dtype=bool)
        for worker, models in enumerate(self.held):
            found[worker, models] = True
        return found

    def follow(self, held: Mapping[int, Collection[int]]) -> None:
        """Hold what is given, by worker, and plan nothing."""
        self.fixed = True
        self.target = np.zeros_like(self.target)
        for worker, models in held.items():
            self.target[worker, sorted(models)] = True
        self.note_missing(self.cost_ms)

    def figures(self) -> dict[str, float]:
        """The largest gap of a plan to the bound on all."""
        return {"placement_gap": max(self.gaps)} if self.gaps else {}

    # What subclasses do.

    def requeue(self, model: int) -> None:
        """The queue of a model has become shorter, by requests that were dropped."""

    def held_changed(self, worker: int, model: int) -> None:
        """A worker holds a model from now on, or no more."""

    # Rates and plans.

    def known(self, model: int) -> bool:
        """Count an arrival; whether a worker holds the model."""
        self.seen.append(model)
        if self.engine.now_ms >= self.look_ms:
            self.look()
        if self.holders[model]:
            return True
        if not self.coming[model]:
            self.cold[model] = None
            self.load_cold()
        return False

    def look(self) -> None:
        """Count what has come, plan anew where it is time, and load."""
        now_ms = self.engine.now_ms
        self.look_ms = now_ms + self.every_ms
        self.count += np.bincount(self.seen, minlength=len(self.count))
        self.seen.clear()
        if now_ms >= self.plan_ms:
            self.recent.append(self.count * (self.window_ms / (now_ms - self.window_begin_ms)))
            self.count = np.zeros(len(self.count))
            self.window_begin_ms, self.plan_ms = now_ms, now_ms + self.window_ms
            self.plan()
        elif not self.recent and now_ms > 0.0:
            self.rate = self.count / now_ms
        each = self.rate * self.cost_ms / np.maximum(self.copies, 1)
        self.busy = [float(each[held].sum()) for held in self.held]
        for worker in range(len(self.to_load)):
            self.load_planned(worker)

    def plan_soon(self) -> None:
        """Plan at the next look, as there are other workers."""
        self.plan_ms = min(self.plan_ms, self.window_begin_ms + _FIRST * self.window_ms)

    def plan(self) -> None:
        """What workers are to hold from now on, by the windows seen."""
        counts, held = np.array(self.recent), self.now_held()
        self.rate = counts.mean(axis=0) / self.window_ms
        if self.fixed:
            self.note_missing(self.rate * self.cost_ms)
            return
        at_start = np.zeros(len(self.rate))
        at_start[[model for models in self.engine.arrays.start for model in models]] = _AT_START
        rate = self.rate + at_start / (len(counts) * self.window_ms)
        work = counts.max(axis=0) * self.cost_ms / self.window_ms
        cluster = self.active()
        copies = choose_copies(cluster, rate, work, held, self.worth)
        self.target = place_copies(cluster, copies, work, held)
        self.gaps.append(gap_of(cluster, self.target, counts, self.cost_ms, self.window_ms))
        self.note_missing(work / np.maximum(copies, 1))

    def active(self) -> CopyProblem:
        """The problem of the workers that are active now."""
        there = np.array([status == ACTIVE for status in self.engine.workers.status])
        return self.cluster if there.all() else self.cluster.of(there)

    def note_missing(self, worth: FloatArray) -> None:
        """What each worker is to load, that of most worth last."""
        missing = self.target & ~self.now_held()
        for worker, row in enumerate(missing):
            models = np.flatnonzero(row)
            self.to_load[worker] = models[np.argsort(worth[models], kind="stable")].tolist()

    def on_stopped(self, worker: int) -> None:
        """A worker has gone, with what it held."""
        self.to_load[worker].clear()
        for model in self.held[worker].tolist():
            self.note_held(worker, model)

    # Loads.

    def load_planned(self, worker: int) -> None:
        """Load the next models of the plan, as far as the worker can."""
        workers, to_load = self.engine.workers, self.to_load[worker]
        while to_load and workers.may_load(worker):
            model = to_load.pop()
            there = model in workers.loaded[worker] or model in workers.loading[worker]
            if not there and self.room(worker, model, of_plan=True):
                self.load(worker, model)

    def load_cold(self) -> None:
        """Load models that no worker holds and requests wait for, the most urgent first."""
        engine, workers = self.engine, self.engine.workers
        able = [worker for worker in range(len(workers)) if workers.may_load(worker)]
        if not able:
            return
        for model in sorted(self.cold, key=lambda one: self.deadline_ms[self.waiting[one][-1]]
                            if self.waiting[one] else 0.0):
            able = sorted((worker for worker in able if workers.may_load(worker)),
                          key=self.busy.__getitem__)
            if not able:
                return
            queue = self.waiting[model]
            worker = next((one for one in able if self.room(one, model)), None)
            if worker is None:
                continue
            ready_ms = (engine.now_ms + engine.load_ms(worker, model)
                        + self.rows[worker][model][0])
            while queue and self.deadline_ms[queue[0]] < ready_ms:
                engine.drop(queue.popleft())
            self.requeue(model)
            del self.cold[model]
            self.load(worker, model)

    def load(self, worker: int, model: int) -> None:
        """Begin to load a model where there is room."""
        self.engine.load(worker, model)
        self.coming[model] += 1

    def loaded(self, worker: int, model: int) -> None:
        """A load has ended; begin the next."""
        self.coming[model] -= 1
        self.cold.pop(model, None)
        self.note_held(worker, model)
        if self.cold:
            self.load_cold()
        self.load_planned(worker)

    def room(self, worker: int, model: int, of_plan: bool = False) -> bool:
        """Make room for a model; whether that could be done, nothing is unloaded if not.

        What the plan does not want goes first, by rising rate per MB; for a load of the plan,
        nothing else.
        """
        workers, engine = self.engine.workers, self.engine
        if not engine.times.runs(workers.type[worker], model):
            return False
        if workers.fits(worker, model):
            return True
        gone: list[int] = []
        held, wanted = self.held[worker], self.target[worker, self.held[worker]]
        value = self.rate[held] / self.cluster.memory_mb[held]
        if of_plan:
            held, value = held[~wanted], value[~wanted]
        else:
            value[~wanted] *= _UNWANTED
        for other in held[np.argsort(value, kind="stable")].tolist():
            if self.waiting[other] or engine.runs_now(worker, other):
                continue
            gone.append(other)
            if workers.fits(worker, model, gone):
                for one in gone:
                    engine.unload(worker, one)
                    self.note_held(worker, one)
                return True
        return False

    def note_held(self, worker: int, model: int) -> None:
        """A worker holds a model from now on, or no more."""
        held = self.held[worker]
        place = int(held.searchsorted(model))
        if model in self.engine.workers.loaded[worker]:
            self.held[worker] = np.concatenate((held[:place], (model,), held[place:]))
            self.holders[model].append(worker)
        else:
            self.held[worker] = np.concatenate((held[:place], held[place + 1 :]))
            self.holders[model].remove(worker)
        self.copies[model] = len(self.holders[model])
        self.held_changed(worker, model)


def _cluster(engine: ClusterEngine, load_weight: float) -> CopyProblem:
    """What copies are chosen for, by worker."""
    workers, models = engine.workers, len(engine.arrays.models)
    runs = {kind: np.array([engine.times.runs(kind, model) for model in range(models)])
            for kind in sorted(set(workers.type))}
    load_ms = engine.arrays.load_ms[sorted(runs)].min(axis=0)
    memory_mb = np.maximum(np.array(workers.model_mb), 1e-9)
    return CopyProblem(
        memory_mb, np.minimum(np.array(workers.memory_mb), float(memory_mb.sum())),
        np.minimum(np.array(workers.max_models, dtype=float), float(models)),
        np.stack([runs[kind] for kind in workers.type]),
        np.where(load_ms < inf, load_ms, 0.0), load_weight)
