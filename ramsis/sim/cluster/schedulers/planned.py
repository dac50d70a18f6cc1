"""Late decisions: batches by latest start, with those put off that cost most; loads by rates.

*When.* A batch is decided on only when a worker is free, so that what has arrived until then can
still join it.

*Which.* The *batch of a model* is that of its oldest requests with least time per request among
the sizes that can still be in time; its latest start is the oldest one's deadline less what it
takes. A worker looks at the batches of the models that it holds by their latest starts, and plans
each on the worker that is free first. Where that is too late for one, of all batches up to it the
one with most time per request is put off (Moore 1968, Hodgson's rule, for weights): it stays, and
may have more requests by the time that it is looked at again. The first that is not put off is
run. No more than ``look_ahead`` batches are looked at. Where workers hold different models, each
plans for itself, and counts a batch of a model with h holders for 1/√h of its time: alone it would
have to run all of it, with the others' help an h-th. A request that no batch can answer in time is
dropped.

*Loads.* A waiting model that no worker holds is loaded at once, onto the worker with least work by
the rates seen so far. Every ``every_ms``, the models of most work by holder, of at least a share
``worth`` of a worker's time, are loaded onto workers with less work too. Work is the rate times
what a request took of its worker in the last batches. Room is made by the models of least rate per
MB that have nothing to do, the only copies last. What is given up costs, as a share of the time:
of an only copy the loads when it is asked for again, rate times load time; of others the work that
they leave to others. A further copy of a model makes room only while that is less than ``reload``
of the work that it takes over. Rates are means of exponential weight over ``memory_ms``: nothing
that is yet to come is known.

An event costs a search in sorted lists (logarithmic, but for moving what follows in memory) and
``look_ahead`` steps where a worker is free.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import nlargest
from math import exp, inf

from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.scheduler import Scheduler

__all__ = ["Planned"]

_EPSILON_MS = 1e-9
_MOST_LOADS = 8  # on the way for copies
_FORGOTTEN = 0.05  # arrivals, weighted by age
_NEW = 0.2  # weight of the last batch in the time per request

Batch = tuple[float, int, int, float, int]
"""Latest start, model, size, what it takes, and the version of the model's queue."""


class Planned(Scheduler):
    """See the module.

    Parameters
    ----------
    engine : ClusterEngine
    look_ahead : int
        Most batches that are looked at.
    every_ms : float
        Time between two looks at the work of the workers.
    memory_ms : float
        Mean age of the arrivals that rates are computed from.
    worth : float
        Least share of a worker's time that a model with one more copy takes of each holder.
    reload : float
        Most that a further copy may cost, as a share of the work that it takes over.
    """

    def __init__(
        self, engine: ClusterEngine, look_ahead: int = 12, every_ms: float = 20.0,
        memory_ms: float = 1000.0, worth: float = 0.005, reload: float = 0.2,
    ) -> None:
        super().__init__(engine)
        self.look_ahead, self.every_ms = look_ahead, every_ms
        self.memory_ms, self.worth, self.reload = memory_ms, worth, reload
        workers, models = engine.workers, len(engine.arrays.models)
        count = len(workers)
        self.queues: list[deque[int]] = [deque() for _ in range(models)]
        self.version = [0] * models
        self.deadline_ms, self.model_of = engine.requests.deadline_ms, engine.requests.model
        self.rows = [engine.times.rows[kind] for kind in workers.type]
        self.best: list[list[list[int]]] = _efficient_sizes(engine)
        self.alike = len(set(workers.type)) == 1
        self.holders: list[list[int]] = [workers.holders(model) for model in range(models)]
        self.common: list[Batch] = []
        self.own: list[list[Batch]] = [[] for _ in range(count)]
        self.free: list[int] = [worker for worker in range(count)
                                if workers.free_lanes[worker] > 0]
        self.settled = self.alike and all(len(held) == count for held in self.holders)
        self.coming = [0] * models
        self.cold: dict[int, None] = {}
        self.wanted: dict[int, None] = {}  # models with a rate
        self.rate, self.seen_ms = [0.0] * models, [0.0] * models
        self.cost_ms = [min(rows[model][0] for rows in self.rows) for model in range(models)]
        self.busy = [0.0] * count  # share of each worker's time, by the rates
        self.look_ms = 0.0

    # Events.

    def on_arrival(self, request: int) -> None:
        """Queue it, and run it where a worker is free."""
        model = self.model_of[request]
        queue = self.queues[model]
        if queue and self.deadline_ms[queue[-1]] > self.deadline_ms[request]:
            self.insert(queue, request)
        else:
            queue.append(request)
        if not self.settled and not self.known(model):
            return
        self.enter(model)
        if self.free:
            for worker in self.free:
                if self.settled or model in self.engine.workers.loaded[worker]:
                    self.serve(worker)
                    return

    def on_ready(self, request: int) -> None:
        """As an arrival."""
        self.on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """The worker is free."""
        if self.engine.workers.free_lanes[worker] == 1:
            self.free.append(worker)
        if self.cold:
            self.load_cold()
        self.serve(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Use the model, and load the next."""
        self.coming[model] -= 1
        everywhere = self.everywhere(model)
        self.holders[model].append(worker)
        if self.queues[model]:
            if everywhere != self.everywhere(model):
                self.enter(model)
            else:
                self.enter(model, (worker,))
        if self.engine.workers.free_lanes[worker] > 0 and worker not in self.free:
            self.free.append(worker)
        if self.cold:
            self.load_cold()
        self.serve(worker)

    def on_scaled(self, worker: int) -> None:
        """One more worker."""
        self.free.append(worker)
        self.load_cold()

    def on_timer(self, token: object) -> None:
        """Look at the loads again."""
        self.load_cold()

    # Batches.

    def insert(self, queue: deque[int], request: int) -> None:
        """Put a request before those that are due later."""
        place, due_ms = len(queue), self.deadline_ms[request]
        while place and self.deadline_ms[queue[place - 1]] > due_ms:
            place -= 1
        queue.insert(place, request)

    def everywhere(self, model: int) -> bool:
        """Whether all workers hold the model, and are alike."""
        return self.alike and len(self.holders[model]) == len(self.own)

    def enter(self, model: int, holders: tuple[int, ...] | None = None) -> None:
        """Enter the batch of a model for its holders; the one entered before is void."""
        queue = self.queues[model]
        if holders is None:
            self.version[model] += 1
        if not queue:
            return
        due_ms, now_ms = self.deadline_ms[queue[0]], self.engine.now_ms
        version = self.version[model]
        shared = self.settled or (holders is None and self.everywhere(model))
        places = (-1,) if shared else self.holders[model] if holders is None else holders
        batch = None
        for worker in places:
            if batch is None or not self.alike:
                batch = self.batch(max(worker, 0), model, len(queue), due_ms, now_ms, version)
            if batch is not None:
                insort(self.common if worker < 0 else self.own[worker], batch)

    def batch(
        self, worker: int, model: int, most: int, due_ms: float, now_ms: float, version: int
    ) -> Batch | None:
        """The batch of a model on a worker; too late already where even a batch of one is."""
        row, best = self.rows[worker][model], self.best[worker][model]
        size = best[min(most, len(best) - 1)]
        if not size:
            return None
        latest_ms = due_ms - row[size - 1]
        while latest_ms < now_ms - _EPSILON_MS and size > 1:
            size = best[size - 1] or 1
            latest_ms = due_ms - row[size - 1]
        return latest_ms, model, size, row[size - 1], version

    def serve(self, worker: int) -> None:
        """Start batches on a worker as long as it is free."""
        engine = self.engine
        free_lanes = engine.workers.free_lanes
        while free_lanes[worker] > 0:
            batch = self.choose(worker)
            if batch is None:
                return
            _, model, size, took_ms, _ = batch
            self.cost_ms[model] += _NEW * (took_ms / size - self.cost_ms[model])
            queue = self.queues[model]
            requests = [queue.popleft() for _ in range(size)]
            engine.run(worker, model, requests)
            self.version[model] += 1
            if queue:
                self.enter(model)
        if worker in self.free:
            self.free.remove(worker)

    def choose(self, worker: int) -> Batch | None:
        """The batch to run now; see the module."""
        if self.settled:
            return self.first_of_all(worker)
        return self.first_of_own(worker)

    def first_of_all(self, worker: int) -> Batch | None:
        """Where all workers hold all models: batches are planned on the workers one by one."""
        now_ms, version, entries = self.engine.now_ms, self.version, self.common
        if not entries:
            return None
        busy_ms = [at_ms if at_ms > now_ms else now_ms
                   for at_ms in self.engine.workers.busy_until_ms]
        free_ms = busy_ms.copy()
        accepted: list[Batch] = []
        costs: list[float] = []
        cheapest: Batch | None = None
        lowest, place = inf, 0
        while place < self.look_ahead and place < len(entries):
            batch = entries[place]
            latest_ms, model, size, took_ms, made = batch
            if version[model] != made:
                del entries[place]
                continue
            if latest_ms < now_ms - _EPSILON_MS:
                del entries[place]
                self.smaller(worker, batch, entries)
                continue
            place += 1
            accepted.append(batch)
            costs.append(took_ms / size)
            start_ms = min(free_ms)
            if start_ms <= latest_ms:
                free_ms[free_ms.index(start_ms)] = start_ms + took_ms
                continue
            worst = max(costs)
            at = costs.index(worst)
            del costs[at]
            out = accepted.pop(at)
            if worst < lowest:
                lowest, cheapest = worst, out
            if out is not batch:
                free_ms = busy_ms.copy()
                for one in accepted:
                    start_ms = min(free_ms)
                    free_ms[free_ms.index(start_ms)] = start_ms + one[3]
        return accepted[0] if accepted else cheapest

    def first_of_own(self, worker: int) -> Batch | None:
        """Where workers hold different models: batches are planned on this worker."""
        now_ms, version = self.engine.now_ms, self.version
        common, own = self.common, self.own[worker]
        accepted: list[Batch] = []
        costs: list[float] = []
        shares_ms: list[float] = []
        cheapest: Batch | None = None
        lowest, left_ms = inf, 0.0  # until the batches before are done
        at = own_at = 0
        while at + own_at < self.look_ahead:
            if own_at < len(own) and (at >= len(common) or own[own_at] < common[at]):
                entries, place = own, own_at
            elif at < len(common):
                entries, place = common, at
            else:
                break
            batch = entries[place]
            latest_ms, model, size, took_ms, made = batch
            if version[model] != made:
                del entries[place]
                continue
            if latest_ms < now_ms - _EPSILON_MS:
                del entries[place]
                self.smaller(worker, batch, entries)
                continue
            if entries is own:
                own_at += 1
            else:
                at += 1
            share_ms = took_ms / len(self.holders[model]) ** 0.5
            accepted.append(batch)
            costs.append(took_ms / size)
            shares_ms.append(share_ms)
            late = left_ms > latest_ms - now_ms
            left_ms += share_ms
            if late:
                worst = max(costs)
                gone = costs.index(worst)
                del costs[gone]
                left_ms -= shares_ms.pop(gone)
                out = accepted.pop(gone)
                if worst < lowest:
                    lowest, cheapest = worst, out
        return accepted[0] if accepted else cheapest

    def smaller(self, worker: int, batch: Batch, entries: list[Batch]) -> None:
        """Enter what can still be in time in the place of a batch that cannot."""
        model, now_ms = batch[1], self.engine.now_ms
        queue = self.queues[model]
        shortest_ms = self.rows[worker][model][0]
        if not self.alike:
            shortest_ms = min(self.rows[holder][model][0] for holder in self.holders[model])
        dropped = False
        while queue and self.deadline_ms[queue[0]] < now_ms + shortest_ms - _EPSILON_MS:
            self.engine.drop(queue.popleft())
            dropped = True
        if dropped:
            self.enter(model)
            return
        found = self.batch(worker, model, len(queue), self.deadline_ms[queue[0]], now_ms,
                           self.version[model])
        if found is not None and found[0] >= now_ms - _EPSILON_MS:
            insort(entries, found)

    # Loads.

    def known(self, model: int) -> bool:
        """Count an arrival; whether a worker holds the model."""
        now_ms = self.engine.now_ms
        gone_ms = now_ms - self.seen_ms[model]
        self.rate[model] = self.rate[model] * exp(-gone_ms / self.memory_ms) + 1 / self.memory_ms
        self.seen_ms[model] = now_ms
        self.wanted[model] = None
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + self.every_ms
            self.even_out()
        if self.holders[model]:
            return True
        if not self.coming[model]:
            self.cold[model] = None
            self.load_cold()
        return False

    def rate_now(self, model: int) -> float:
        """Arrivals per ms, as seen so far."""
        gone_ms = self.engine.now_ms - self.seen_ms[model]
        return self.rate[model] * exp(-gone_ms / self.memory_ms)

    def load_cold(self) -> None:
        """Load models that no worker holds and requests wait for, the most urgent first."""
        engine, workers = self.engine, self.engine.workers
        for model in sorted(self.cold, key=lambda one: self.deadline_ms[self.queues[one][-1]]
                            if self.queues[one] else 0.0):
            able = sorted((worker for worker in range(len(workers)) if workers.may_load(worker)),
                          key=self.busy.__getitem__)
            if not able:
                return
            queue = self.queues[model]
            worker = next((one for one in able if self.room(one, model)), None)
            if worker is None:
                continue
            ready_ms = (engine.now_ms + engine.load_ms(worker, model)
                        + self.rows[worker][model][0])
            while queue and self.deadline_ms[queue[0]] < ready_ms:
                engine.drop(queue.popleft())
            del self.cold[model]
            if queue:
                self.load(worker, model)

    def load(self, worker: int, model: int) -> None:
        """Begin to load a model where there is room."""
        self.engine.load(worker, model)
        self.coming[model] += 1
        if self.engine.workers.free_lanes[worker] <= 0 and worker in self.free:
            self.free.remove(worker)

    def room(self, worker: int, model: int, budget: float = inf) -> bool:
        """Make room for a model; whether that could be done, nothing is unloaded if not.

        Models are given up only while what this costs is within a budget, as a share of the
        time: of only copies the loads that follow, of others the work that they leave to others.
        """
        workers, engine = self.engine.workers, self.engine
        if not engine.times.runs(workers.type[worker], model):
            return False
        if workers.fits(worker, model):
            return True
        gone: list[int] = []
        for other in sorted(workers.loaded[worker], key=self.value):
            if self.queues[other] or engine.runs_now(worker, other):
                continue
            copies = len(self.holders[other])
            took_ms = engine.load_ms(worker, other) if copies == 1 else (
                self.cost_ms[other] / copies)
            budget -= self.rate_now(other) * took_ms
            if budget < 0.0:
                return False
            gone.append(other)
            if workers.fits(worker, model, gone):
                for one in gone:
                    self.unload(worker, one)
                return True
        return False

    def value(self, model: int) -> float:
        """Rate per MB; a copy beside others counts less."""
        of_copy = self.rate_now(model) / max(self.engine.workers.model_mb[model], 1e-9)
        return of_copy * (0.01 if len(self.holders[model]) > 1 else 1.0)

    def unload(self, worker: int, model: int) -> None:
        """Give a model up."""
        self.engine.unload(worker, model)
        everywhere = self.everywhere(model)
        self.holders[model].remove(worker)
        if everywhere or self.settled:
            self.settled = False
            self.enter(model)

    def even_out(self) -> None:
        """Work out how busy workers are by the rates, and load models onto more of them."""
        workers = self.engine.workers
        work: dict[int, float] = {}
        self.busy = busy = [0.0] * len(workers)
        for model in list(self.wanted):
            holders, rate = self.holders[model], self.rate_now(model)
            if rate * self.memory_ms < _FORGOTTEN:
                del self.wanted[model]
            elif holders:
                work[model] = rate * self.cost_ms[model]
                share = work[model] / len(holders)
                for worker in holders:
                    busy[worker] += share
        self.spread(work)

    def spread(self, work: dict[int, float]) -> None:
        """Load the models of most work for each of their holders onto more workers."""
        workers, busy = self.engine.workers, self.busy
        wanted = [(one / len(self.holders[model]), model) for model, one in work.items()
                  if len(self.holders[model]) < len(workers) and not self.coming[model]
                  and one > self.worth * len(self.holders[model])]
        for share, model in nlargest(_MOST_LOADS, wanted):
            able = [worker for worker in range(len(workers))
                    if workers.may_load(worker) and model not in workers.loaded[worker]]
            holders = self.holders[model]  # none any more, where it had to make room
            most = max((busy[one] for one in holders), default=0.0)
            for worker in sorted(able, key=busy.__getitem__)[:2]:
                gained = min(most - busy[worker], share)
                if gained > 0.0 and self.room(worker, model, self.reload * gained):
                    self.load(worker, model)
                    for one in holders:
                        busy[one] -= share / (len(holders) + 1)
                    busy[worker] += work[model] / (len(holders) + 1)
                    break


def _efficient_sizes(engine: ClusterEngine) -> list[list[list[int]]]:
    """For each worker, model and number of requests, the size of least time per request."""
    found: dict[int, list[list[int]]] = {}
    for kind in set(engine.workers.type):
        known: dict[int, list[int]] = {}
        found[kind] = []
        for model, row in enumerate(engine.times.rows[kind]):
            kept = known.get(engine.times.kind[model])
            if kept is None:
                kept = [0]
                for size, took_ms in enumerate(row, start=1):
                    before = kept[-1]
                    better = took_ms < float("inf") and (
                        not before or took_ms / size <= row[before - 1] / before)
                    kept.append(size if better else before)
                known[engine.times.kind[model]] = kept
            found[kind].append(kept)
    return [found[kind] for kind in engine.workers.type]
