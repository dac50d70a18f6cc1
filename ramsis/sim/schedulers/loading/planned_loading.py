"""Loading planned from the rates seen so far, and each request run as late as can be decided.

*Loading.* Every ``every_ms`` the demand for each model is estimated from the requests that have
arrived (:class:`~ramsis.sim.schedulers.loading.replanning.Demand`), with a margin of ``margin``
times its square root, in workers. As long as one change of what workers hold saves more waiting
than it costs (:func:`~ramsis.sim.schedulers.loading.replanning.next_change`), it is made: a worker
that is chosen starts nothing more, and loads when it is idle. A model that no worker holds is
loaded as soon as a request waits for it, in the place of what fewest requests wait for and, of
equal ones, has the lowest rate; not of what has not run since it was loaded and is waited for. At
the start, when nothing is known, all models are taken to be wanted alike, so that each place holds
one. ``hindsight`` takes the requests of the next ``lasts_s`` from the future in the place of the
estimate: not a scheduler that could run, but a measure of what the estimate costs.

*Inference.* Nothing is given to a worker before it is idle. It then runs the request, for any of
the models that it holds, whose last moment to start comes first; those that can no longer be in
time are put off until nothing else waits
(:class:`~ramsis.sim.schedulers.loading.waiting.WaitingRequests`). A request that finds several
idle workers takes the one that other models can best do without. Requests run one at a time.

Each model is weighed on each worker, so that both have to be few: their product at most
``_MOST_PAIRS``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError
from ramsis.sim.engine import ClusterEngine, Scheduler, check_at_least
from ramsis.sim.schedulers.loading.replanning import (
    Change,
    Demand,
    FleetHoldings,
    next_change,
    overloaded,
    set_work,
)
from ramsis.sim.schedulers.loading.waiting import WaitingRequests

_MOST_PAIRS = 10_000  # the search for a change takes steps in the square of it: some seconds


class PlannedLoading(Scheduler[ClusterEngine]):
    """See the module.

    Parameters
    ----------
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
        check_at_least(1e-3, "planned-loading", every_ms=every_ms, lasts_s=lasts_s)
        check_at_least(0, "planned-loading", margin=margin, enough=enough)
        self.every_ms, self.lasts_s, self.margin = every_ms, lasts_s, margin
        self.enough = enough
        arrays, workers, state = engine.arrays, engine.workers, engine.requests
        models = len(arrays.models)
        if len(workers) * models > _MOST_PAIRS:
            raise InputFileError(
                "more models and workers than planned-loading can weigh against each other",
                where=f"scenario {engine.scenario.name}",
                value=f"{models} models, {len(workers)} workers",
                allowed=f"a product of at most {_MOST_PAIRS}; the scheduler planned takes more")
        self.model_of = state.model
        self.demand = Demand(models)
        self.future = self._future() if hindsight else None
        self.each_ms = [[rows[m][0] for m in range(models)] for rows in
                        (engine.times.rows[t] for t in workers.type)]
        self.waiting = WaitingRequests(state.deadline_ms, state.arrival_ms, self.each_ms, models)
        self.coming = [0] * models  # workers that load each model
        self.nowhere: set[int] = set()  # models that wait and that no worker held when looked at
        self.pending: dict[int, Change] = {}
        self.used: list[set[int]] = [set() for _ in workers.type]  # since they were loaded
        self.clear = [False] * len(workers)  # nothing waits for the worker, if it is free
        self.awake = False
        shape = len(workers), models
        self.loaded = np.zeros(shape, dtype=bool)
        self.free_now = np.zeros(len(workers), dtype=bool)
        self.free: Any = self.free_now.data  # much quicker to read and write
        self.each = np.array(self.each_ms)
        self.holding = FleetHoldings(
            np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool), np.zeros(shape),
            arrays.load_ms[arrays.worker_type] / 1000.0, np.array(workers.model_mb, dtype=float),
            np.array(workers.memory_mb, dtype=float), np.array(workers.max_models, dtype=float),
            np.zeros(len(workers), dtype=bool))
        self.by_size = sorted(range(models), key=workers.model_mb.__getitem__)
        self.roomy: set[int] = set()  # workers with room for one more model
        for worker, held in enumerate(workers.loaded):
            for model in held:
                self.waiting.hold(worker, model)
            self.look_at(worker)

    def _future(self) -> list[list[float]]:
        """When the requests for each model arrive."""
        found: list[list[float]] = [[] for _ in self.engine.arrays.models]
        state = self.engine.requests
        for at_ms, model in zip(state.arrival_ms, state.model, strict=True):
            found[model].append(at_ms)
        return found

    # Inference.

    def on_arrival(self, request: int) -> None:
        """Serve the request, or let it wait."""
        model = self.model_of[request]
        self.demand.seen(model, self.engine.now_ms)
        worker = self.free_holder(model)
        if worker is None:
            self.waiting.add(model, request)
            if not self.waiting.holders[model]:
                self.nowhere.add(model)
                self.load_missing((model,))
        elif self.clear[worker]:
            self.start(worker, model, request)
        else:
            self.waiting.add(model, request)
            self.serve(worker)
        if not self.awake:
            self.stay_awake()

    def free_holder(self, model: int) -> int | None:
        """Return the free holder of a model that other models need least."""
        free = self.free
        found = [worker for worker in self.waiting.holders[model] if free[worker]]
        if len(found) < 2:
            return found[0] if found else None
        return self.demand.least_missed(model, self.free_now, self.loaded, self.engine.now_ms)

    def on_end(self, worker: int, batch: int) -> None:
        """Serve requests that wait for the worker, or start its planned load."""
        self.proceed(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve what waits for the model."""
        self.coming[model] -= 1
        self.waiting.hold(worker, model)
        self.look_at(worker)
        self.proceed(worker)
        self.stay_awake()

    def proceed(self, worker: int) -> None:
        """Let a worker load, if it should, or serve."""
        if worker not in self.pending:
            self.free[worker] = self.engine.workers.free_lanes[worker] > 0
            self.serve(worker)
        elif not self.engine.workers.running[worker]:
            change = self.pending.pop(worker)
            for other in change.given_up:
                self.engine.unload(worker, other)
                self.waiting.give_up(worker, other)
                if not self.waiting.holders[other] and self.waiting.count(other):
                    self.nowhere.add(other)
            self.load(worker, change.model)

    def load(self, worker: int, model: int) -> None:
        """Begin a load."""
        self.engine.load(worker, model)
        self.coming[model] += 1
        self.used[worker].discard(model)
        self.clear[worker] = False
        self.look_at(worker)

    def serve(self, worker: int) -> None:
        """Run requests on a worker, as it has free lanes."""
        while self.free[worker]:
            found = self.waiting.take(worker, self.engine.now_ms)
            if found is None:
                self.clear[worker] = True
                return
            self.start(worker, *found)

    def start(self, worker: int, model: int, request: int) -> None:
        """Run a request on a free worker."""
        self.used[worker].add(model)
        self.engine.run(worker, model, (request,))
        self.free[worker] = self.engine.workers.free_lanes[worker] > 0

    # Loading.

    def on_start(self) -> None:
        """Every place holds a model."""
        self.fill()
        self.stay_awake()

    def on_scaled(self, worker: int) -> None:
        """A worker has come."""
        self.look_at(worker)
        self.stay_awake()

    def look_at(self, worker: int) -> None:
        """Update the state derived from what a worker holds, loads or is to load."""
        workers, holding = self.engine.workers, self.holding
        held, loading = workers.loaded[worker], workers.loading[worker]
        change = self.pending.get(worker)
        self.loaded[worker] = False
        self.loaded[worker, list(held)] = True
        holding.held[worker] = self.loaded[worker]
        holding.held[worker, list(loading)] = True
        holding.serving[worker] = self.loaded[worker] & (not loading)
        holding.movable[worker] = workers.status[worker] == "active" and not loading
        if change is not None:
            holding.make(change)
        self.free[worker] = change is None and workers.free_lanes[worker] > 0
        self.roomy.discard(worker)
        for model in self.by_size:
            if not workers.fits(worker, model):
                break
            if model not in held and model not in loading and self.each_ms[worker][model] < inf:
                self.roomy.add(worker)
                break

    def fill(self) -> None:
        """Load, on each idle worker with room, the model with the fewest copies."""
        workers, holders = self.engine.workers, self.waiting.holders
        for worker in sorted(self.roomy):
            if (not workers.may_load(worker) or workers.running[worker]
                    or any(len(holders[m]) < 2 for m in workers.loaded[worker])):
                continue
            for model in sorted(range(len(holders)),
                                key=lambda m: len(holders[m]) + self.coming[m]):
                if (model not in workers.loaded[worker] and model not in workers.loading[worker]
                        and workers.fits(worker, model) and self.each_ms[worker][model] < inf):
                    self.load(worker, model)
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
        if self.roomy:
            self.fill()
        if self.nowhere:
            self.nowhere = {m for m in self.nowhere
                            if self.waiting.count(m) and not self.waiting.holders[m]}
            self.load_missing(sorted(self.nowhere))
        active = sum(status == "active" for status in self.engine.workers.status)
        set_work(self.holding, self.rates(), self.each, active, self.margin)
        for _ in self.coming:
            wanted = overloaded(self.holding, self.enough)
            change = None if wanted is None else next_change(self.holding, wanted, self.lasts_s)
            if change is None:
                return
            self.begin(change)

    def begin(self, change: Change) -> None:
        """Schedule a change of holdings for when the worker is idle."""
        self.pending[change.worker] = change
        self.look_at(change.worker)
        self.proceed(change.worker)

    def load_missing(self, models: Iterable[int]) -> None:
        """Load models that no worker holds in place of the least needed ones."""
        workers = self.engine.workers
        for model in models:
            if (self.waiting.holders[model] or self.coming[model]
                    or any(change.model == model for change in self.pending.values())):
                continue
            ways = [(way[0], len(workers.running[worker]), worker, way[1])
                    for worker in range(len(workers))
                    if (way := self._way(worker, model)) is not None]
            if ways:
                _, _, worker, given_up = min(ways)
                self.begin(Change(worker, model, given_up))

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
        for held in sorted((self.waiting.count(m), self.demand.per_ms(m, now_ms), m)
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

    def rates(self) -> FloatArray:
        """The rate of requests for each model, per ms."""
        now_ms = self.engine.now_ms
        if self.future is None:
            return self.demand.rates(now_ms)
        ahead_ms = 1000.0 * self.lasts_s
        return np.array([(bisect_left(times, now_ms + ahead_ms) - bisect_left(times, now_ms))
                         / ahead_ms for times in self.future])
