"""Loading planned from the rates seen so far, and each request run as late as can be decided.

*Loading.* Every ``every_ms`` the demand for each model is estimated from the requests that have
arrived (:class:`~ramsis.sim.cluster.schedulers.replanning.Demand`), with a margin of ``margin``
times its square root, in workers. As long as one change of what workers hold saves more waiting
than it costs (:func:`~ramsis.sim.cluster.schedulers.replanning.next_change`), it is made: a worker
that is chosen starts nothing more, and loads when it is idle. A model that no worker holds is
loaded as soon as a request waits for it, in the place of what fewest requests wait for and, of
equal ones, has the lowest rate; not of what has not run since it was loaded and is waited for. At
the start, when nothing is known, all models are taken to be wanted alike, so that each place holds
one. ``hindsight`` takes the requests of the next ``lasts_s`` from the future in the place of the
estimate: not a scheduler that could run, but a measure of what the estimate costs.

*Inference.* Nothing is given to a worker before it is idle. It then runs the request, for any of
the models that it holds, whose last moment to start comes first; those that can no longer be in
time are put off until nothing else waits. A request that finds several idle workers takes the one
that other models can best do without. Requests run one at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.scheduler import Scheduler
from ramsis.sim.cluster.schedulers.replanning import (
    Change,
    Demand,
    Holding,
    loads_in_balance,
    next_change,
)

__all__ = ["PlannedLoading"]

FloatArray = NDArray[np.float64]


class PlannedLoading(Scheduler):
    """See the module.

    Parameters
    ----------
    engine : ClusterEngine
    every_ms : float
        Time between two plans, > 0.
    lasts_s : float
        For how long demand is taken to last, > 0.
    margin : float
        >= 0.
    enough : float
        Nothing is changed while no worker's load, with the margin, is above this.
    hindsight : bool
        Know the requests to come.
    """

    def __init__(
        self, engine: ClusterEngine, every_ms: float = 250.0, lasts_s: float = 10.0,
        margin: float = 0.5, enough: float = 0.9, hindsight: bool = False,
    ) -> None:
        super().__init__(engine)
        self.every_ms, self.lasts_s, self.margin = every_ms, lasts_s, margin
        self.enough = enough
        models, workers = len(engine.arrays.models), engine.workers
        self.queues: list[list[tuple[float, int]]] = [[] for _ in range(models)]
        self.late: list[deque[int]] = [deque() for _ in range(models)]
        self.demand = Demand(models)
        self.future = self._future() if hindsight else None
        self.pending: dict[int, Change] = {}
        self.each_ms = [[rows[m][0] for m in range(models)] for rows in
                        (engine.times.rows[t] for t in workers.type)]
        self.used: list[set[int]] = [set() for _ in workers.type]  # since they were loaded
        arrays = engine.arrays
        self.load_s = arrays.load_ms[arrays.worker_type] / 1000.0
        self.awake = False

    def _future(self) -> list[list[float]]:
        """When the requests for each model arrive."""
        found: list[list[float]] = [[] for _ in self.queues]
        state = self.engine.requests
        for at_ms, model in zip(state.arrival_ms, state.model, strict=True):
            found[model].append(at_ms)
        return found

    # Inference.

    def on_arrival(self, request: int) -> None:
        """Serve the request, or let it wait."""
        engine = self.engine
        model = engine.requests.model[request]
        self.demand.seen(model, engine.now_ms)
        heappush(self.queues[model], (engine.requests.deadline_ms[request], request))
        free = [worker for worker in engine.workers.holders(model) if self.free(worker)]
        if free:
            self.serve(min(free, key=lambda worker: (self._missed(worker, model), worker)))
        else:
            self.load_missing((model,))
        self.stay_awake()

    def free(self, worker: int) -> bool:
        """Whether a worker may start a request."""
        return self.engine.workers.free_lanes[worker] > 0 and worker not in self.pending

    def _missed(self, worker: int, model: int) -> float:
        """How much other models need an idle worker."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        return sum(
            self.demand.per_ms(other, now_ms) / sum(1 for w in workers.holders(other)
                                                    if self.free(w))
            for other in sorted(workers.loaded[worker]) if other != model)

    def on_end(self, worker: int, batch: int) -> None:
        """Serve what waits for the worker, or load what was planned."""
        self.proceed(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve what waits for the model."""
        self.proceed(worker)
        self.stay_awake()

    def proceed(self, worker: int) -> None:
        """Let a worker load, if it should, or serve."""
        change = self.pending.get(worker)
        if change is None:
            self.serve(worker)
        elif not self.engine.workers.running[worker]:
            del self.pending[worker]
            for other in change.given_up:
                self.engine.unload(worker, other)
            self.engine.load(worker, change.model)
            self.used[worker].discard(change.model)

    def serve(self, worker: int) -> None:
        """Run requests on a worker, as it has free lanes."""
        while self.free(worker):
            held = sorted(self.engine.workers.loaded[worker])
            found = min(((self._latest_ms(worker, m), m) for m in held), default=(inf, -1))
            if found[0] < inf:
                request = heappop(self.queues[found[1]])[1]
            else:
                late = [m for m in held if self.late[m]]
                if not late:
                    return
                arrival_ms = self.engine.requests.arrival_ms
                found = min((arrival_ms[self.late[m][0]], m) for m in late)
                request = self.late[found[1]].popleft()
            self.used[worker].add(found[1])
            self.engine.run(worker, found[1], [request])

    def _latest_ms(self, worker: int, model: int) -> float:
        """Last moment to start the first request that can be in time; infinite without any."""
        queue, took_ms = self.queues[model], self.each_ms[worker][model]
        while queue and queue[0][0] - took_ms < self.engine.now_ms:
            self.late[model].append(heappop(queue)[1])
        return queue[0][0] - took_ms if queue else inf

    # Loading.

    def on_start(self) -> None:
        """Every place holds a model."""
        self.fill()
        self.stay_awake()

    def on_scaled(self, worker: int) -> None:
        """A worker has come."""
        self.stay_awake()

    def fill(self) -> None:
        """Load, on each idle worker with room, the model of which there are fewest copies."""
        workers, engine = self.engine.workers, self.engine
        copies = [len(workers.holders(m)) for m in range(len(self.queues))]
        for loading in workers.loading:
            for model in loading:
                copies[model] += 1
        for worker in range(len(workers)):
            if not workers.may_load(worker) or workers.running[worker]:
                continue
            if any(len(workers.holders(m)) < 2 for m in workers.loaded[worker]):
                continue
            for model in sorted(range(len(copies)), key=lambda m: (copies[m], m)):
                if (model not in workers.loaded[worker] and workers.fits(worker, model)
                        and engine.times.runs(workers.type[worker], model)):
                    engine.load(worker, model)
                    copies[model] += 1
                    break

    def on_timer(self, token: object) -> None:
        """Plan."""
        self.awake = False
        self.plan()
        self.stay_awake()

    def stay_awake(self) -> None:
        """Plan again after a while."""
        if not self.awake:
            self.awake = True
            self.engine.wake_at(self.engine.now_ms + self.every_ms)

    def plan(self) -> None:
        """Make the changes that save more than they cost."""
        self.fill()
        self.load_missing([m for m, queue in enumerate(self.queues) if queue or self.late[m]])
        holding = self.holding()
        for _ in self.queues:
            loads = loads_in_balance(holding)
            least = np.where(holding.held, loads[:, None], inf).min(axis=0)
            wanted = (least >= self.enough) & (least < inf) & (holding.work > 0).any(axis=0)
            change = next_change(holding, wanted, self.lasts_s) if wanted.any() else None
            if change is None:
                return
            self.pending[change.worker] = change
            holding.make(change)
            self.proceed(change.worker)

    def load_missing(self, models: Sequence[int]) -> None:
        """Load models that no worker holds, in the place of what is least needed."""
        workers = self.engine.workers
        for model in models:
            if (any(model in held for held in workers.loaded)
                    or any(model in coming for coming in workers.loading)
                    or any(change.model == model for change in self.pending.values())):
                continue
            ways = [(way[0], len(workers.running[worker]), worker, way[1])
                    for worker in range(len(workers))
                    if (way := self._way(worker, model)) is not None]
            if ways:
                _, _, worker, given_up = min(ways)
                self.pending[worker] = Change(worker, model, given_up)
                self.proceed(worker)

    def _way(self, worker: int, model: int) -> tuple[tuple[int, float], tuple[int, ...]] | None:
        """What would give way to a model on a worker, and how much it is needed."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        if (workers.status[worker] != "active" or workers.loading[worker] or worker in self.pending
                or self.each_ms[worker][model] == inf):
            return None
        free_mb = workers.free_mb[worker]
        places = workers.max_models[worker] - len(workers.loaded[worker])
        given_up: list[int] = []
        waits, rate = 0, 0.0
        for held in sorted(
                (len(self.queues[m]) + len(self.late[m]), self.demand.per_ms(m, now_ms), m)
                for m in workers.loaded[worker]):
            if workers.model_mb[model] <= free_mb and places >= 1:
                break
            if held[0] and held[2] not in self.used[worker]:
                return None
            given_up.append(held[2])
            free_mb, places = free_mb + workers.model_mb[held[2]], places + 1
            waits, rate = waits + held[0], rate + held[1]
        if workers.model_mb[model] > free_mb or places < 1:
            return None
        return (waits, rate), tuple(given_up)

    def per_ms(self, model: int) -> float:
        """The rate of requests for a model."""
        now_ms = self.engine.now_ms
        if self.future is None:
            return self.demand.per_ms(model, now_ms)
        times, ahead_ms = self.future[model], 1000.0 * self.lasts_s
        return (bisect_left(times, now_ms + ahead_ms) - bisect_left(times, now_ms)) / ahead_ms

    def _margin(self, alone: FloatArray) -> float:
        """The margin, or what the active workers have left for one."""
        active = sum(status == "active" for status in self.engine.workers.status)
        least = alone.min(axis=0)
        roots = np.sqrt(least).sum()
        return float(np.clip((active - least.sum()) / roots, 0.0, self.margin)) if roots else 0.0

    def holding(self) -> Holding:
        """The state as the plan sees it."""
        workers, models = self.engine.workers, len(self.queues)
        rate = np.array([self.per_ms(model) for model in range(models)])
        each_ms = np.array(self.each_ms)
        alone = np.where(np.isfinite(each_ms), each_ms, 0.0) * rate
        work = np.where(np.isfinite(each_ms), alone + self._margin(alone) * np.sqrt(alone), inf)
        held = np.zeros(work.shape, dtype=bool)
        serving = held.copy()
        movable = np.zeros(len(workers), dtype=bool)
        for worker in range(len(workers)):
            held[worker, [*workers.loaded[worker], *workers.loading[worker]]] = True
            if not workers.loading[worker]:
                serving[worker, list(workers.loaded[worker])] = True
                movable[worker] = workers.status[worker] == "active"
        holding = Holding(held, serving, work, self.load_s, np.array(workers.model_mb),
                          np.array(workers.memory_mb), np.array(workers.max_models), movable)
        for change in self.pending.values():
            holding.make(change)
        return holding
