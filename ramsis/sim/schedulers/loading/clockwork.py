"""Clockwork's heuristic scheduler: work ahead, batches by their latest start, loads by demand.

*Batches.* A strategy is a model, a batch size, and the latest start of such a batch: the deadline
of the model's oldest request less the time of the batch. Whenever a worker has less than
``ahead_ms`` of work, it takes the strategies of its models in the order of their latest starts. It
runs the first one that it can still start in time and whose batch the waiting requests fill. As
larger batches take longer, their latest starts come first. Requests that even a batch of the
smallest size would answer late are dropped. Requests whose answers would come before the
``earliest_ms`` of their stream are held back
(:mod:`~ramsis.sim.schedulers.loading.held_back`).

*Loads.* The demand of a model is the time that its waiting requests take one by one. A worker
serves the demand of its models up to its capacity, which they share in proportion to their
demands. The unserved demand of a model is its priority. A worker that can load gets the model with
the highest priority that it does not hold and could still serve in time. To make room it unloads
models without waiting requests, the least recently used first.

Sources: Gujarati et al., "Serving DNNs like Clockwork", OSDI 2020; the description in the thesis
on reinforcement learning for it (Saarland, 2022), which works 5 ms ahead.

*Why one heap is enough.* A worker that takes a strategy has less than ``ahead_ms`` of work, so it
would start the batch before any worker with more work. A strategy that is too late for this worker
is too late for those, too. So the strategies of models that all workers hold are in one heap.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import inf, nextafter

from ramsis.sim.engine import Engine, Scheduler, check_at_least
from ramsis.sim.schedulers.loading.held_back import HeldBack, Release

_EPSILON_MS = 1e-9

Strategy = tuple[float, int, int, int]
"""Latest start, model, batch size, the model's oldest request when it was made."""


def _just_after(at_ms: float) -> float:
    """Return a time slightly after another, even where adding 1e-9 ms is lost to rounding."""
    return max(at_ms + _EPSILON_MS, nextafter(at_ms, inf))


class Clockwork(Scheduler[Engine]):
    """Clockwork's heuristic scheduler: workers get batches ahead, and models by demand.

    Parameters
    ----------
    ahead_ms : float
        Work that a worker has assigned in advance.
    margin_ms : float
        Time before the deadline at which a batch has to end.
    capacity_ms : float
        Work that a worker is assumed to serve in time, in the priority of loads.
    every_ms : float
        Time between two searches for models to load onto one more worker.
    """

    def __init__(
        self, engine: Engine, ahead_ms: float = 5.0, margin_ms: float = 0.0,
        capacity_ms: float = 100.0, every_ms: float = 20.0,
    ) -> None:
        super().__init__(engine)
        check_at_least(0, "clockwork", ahead_ms=ahead_ms, margin_ms=margin_ms)
        check_at_least(1e-3, "clockwork", capacity_ms=capacity_ms, every_ms=every_ms)
        self.ahead_ms, self.margin_ms, self.capacity_ms = ahead_ms, margin_ms, capacity_ms
        self.every_ms = every_ms
        workers, models = engine.workers, len(engine.site.models)
        count = len(workers)
        self.queues: list[deque[int]] = [deque() for _ in range(models)]
        self.deadline_ms = engine.requests.deadline_ms
        self.model_of = engine.requests.model
        self.free_ms = [0.0] * count  # when each worker is done with what it was given
        self.given: list[deque[tuple[int, list[int]]]] = [deque() for _ in range(count)]
        self.asleep = [True] * count  # whether no timer is set for the worker
        # The models of each worker, the least recently used first.
        self.used = [dict.fromkeys(sorted(held)) for held in workers.loaded]
        self.common: list[Strategy] = []
        self.own: list[list[Strategy]] = [[] for _ in range(count)]
        self.alike = len(set(workers.type)) == 1
        self.rows = [engine.times.rows[kind] for kind in workers.type]
        self.sizes = [engine.times.sizes[kind] for kind in workers.type]
        self.timer = False  # whether one is set for the common strategies
        self.holders: list[list[int]] = [workers.holders(model) for model in range(models)]
        self.coming = [0] * models  # loads on the way
        self.settled = self.alike and all(len(held) == count for held in self.holders)
        self.waiting: dict[int, None] = {}  # models with waiting requests
        self.cold: dict[int, None] = {}  # those of them that are neither held nor coming
        self.look_ms = 0.0  # when models are to be loaded a second time at the earliest
        self.held_back = HeldBack(engine)

    def on_arrival(self, request: int) -> None:
        """Enter the batches that the request makes possible, and fill workers short of work."""
        if self.held_back.needed and self.held_back.hold(request):
            return
        model = self.model_of[request]
        queue = self.queues[model]
        queue.append(request)
        holders = self.holders[model]
        size = len(queue)
        if not self.settled:
            self.waiting[model] = None
            if not holders:
                if not self.coming[model]:
                    self.cold[model] = None
                    self.load_cold()
                return
        # Workers of several types may differ in the sizes that they run.
        if size in self.sizes[holders[0]][model] or not self.alike:
            self.renew(model)
        free_ms = self.free_ms
        if self.settled:
            worker = free_ms.index(min(free_ms))
        else:
            worker = min(holders, key=free_ms.__getitem__)
        if free_ms[worker] < self.engine.now_ms + self.ahead_ms:
            self.fill(worker)
        if self.settled:
            if self.common and not self.timer:
                self.see_to_common()
        elif queue and self.engine.now_ms >= self.look_ms:
            self.load_more()

    def on_timer(self, token: object) -> None:
        """Schedule a request that was held back, or fill a worker that has little work left."""
        if isinstance(token, Release):
            self.on_arrival(token.request)
            return
        assert isinstance(token, int)
        if token < 0:
            self.timer = False
            self.fill(self.free_ms.index(min(self.free_ms)))
            if self.common and not self.timer:
                self.see_to_common()
            return
        self.asleep[token] = True
        self.fill(token)

    def see_to_common(self) -> None:
        """Set a timer for when the worker that is done first has too little work ahead."""
        self.timer = True
        at_ms, now_ms = _just_after(min(self.free_ms) - self.ahead_ms), self.engine.now_ms
        self.engine.wake_at(max(at_ms, now_ms) if at_ms != now_ms else _just_after(now_ms), -1)

    def on_end(self, worker: int, batch: int) -> None:
        """Start the next batch that the worker was given."""
        self.start(worker)
        if not self.engine.times.plain:
            self.foresee(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Use a model that has been loaded, and load the next."""
        self.holders[model].append(worker)
        self.coming[model] -= 1
        self.use(worker, model)
        if self.alike and len(self.holders[model]) == len(self.free_ms):
            self.note(model, ())
        else:
            self.note(model, (worker,))
        self.start(worker)
        self.fill(worker)
        self.load_cold()

    # Batches.

    def note(self, model: int, holders: tuple[int, ...] | list[int]) -> None:
        """Queue a model's best batch with its latest start, for some of its holders or for all."""
        queue = self.queues[model]
        if not queue:
            return
        due_ms = self.deadline_ms[queue[0]] - self.margin_ms
        for worker in holders or (-1,):
            size = self.largest(worker, model, len(queue))
            if size:
                latest_ms = due_ms - self.rows[worker][model][size - 1]
                heappush(self.common if worker < 0 else self.own[worker],
                         (latest_ms, model, size, queue[0]))

    def largest(self, worker: int, model: int, most: int) -> int:
        """Return the largest batch size up to a number of requests; 0 without any."""
        largest = 0
        for size in self.sizes[worker][model]:
            if size > most:
                break
            largest = size
        return largest

    def fill(self, worker: int) -> None:
        """Give a worker batches until it has enough work, and set a timer for the next time."""
        engine, free_ms, queued = self.engine, self.free_ms, self.given[worker]
        now_ms = engine.now_ms
        limit_ms = now_ms + self.ahead_ms
        if engine.workers.status[worker] != "active":
            return
        while (start_ms := max(free_ms[worker], now_ms)) < limit_ms:
            strategy = self.strategy(worker, start_ms)
            if strategy is None:
                return
            _, model, size, _ = strategy
            queue = self.queues[model]
            requests = [queue.popleft() for _ in range(size)]
            free_ms[worker] = start_ms + self.rows[worker][model][size - 1]
            if not self.settled:
                self.use(worker, model)
            if queue:
                self.renew(model)
            elif not self.settled:
                self.waiting.pop(model, None)
            if not queued and engine.workers.free_lanes[worker] > 0:
                engine.run(worker, model, requests)
            else:
                queued.append((model, requests))
        if not self.settled and self.asleep[worker]:  # wake when less than ``ahead_ms`` is left
            self.asleep[worker] = False
            engine.wake_at(_just_after(max(free_ms[worker] - self.ahead_ms, now_ms)), worker)

    def strategy(self, worker: int, start_ms: float) -> Strategy | None:
        """Remove and return the valid strategy of earliest latest start; None without any."""
        queues = self.queues
        held = self.engine.workers.loaded[worker]
        while True:
            heap = self.common
            if self.own[worker] and (not heap or self.own[worker][0] < heap[0]):
                heap = self.own[worker]
            if not heap:
                return None
            entry = heappop(heap)
            latest_ms, model, size, head = entry
            # Strategies that no longer hold stay in the heap until they come up here.
            queue = queues[model]
            if not queue or queue[0] != head or len(queue) < size or model not in held:
                continue
            if latest_ms >= start_ms - _EPSILON_MS:
                return entry
            smaller = self.largest(worker, model, size - 1)
            if smaller:
                row = self.rows[worker][model]
                heappush(heap, (latest_ms + row[size - 1] - row[smaller - 1], model, smaller,
                                head))
            elif self.alike or self.hopeless(model, head):
                self.engine.drop(queue.popleft())
                if queue:
                    self.renew(model)
                else:
                    self.waiting.pop(model, None)

    def hopeless(self, model: int, request: int) -> bool:
        """Return whether no holder would answer a request in time, if it began now."""
        fastest_ms = min(self.rows[worker][model][0] for worker in self.holders[model])
        return self.deadline_ms[request] < self.engine.now_ms + fastest_ms

    def renew(self, model: int) -> None:
        """Enter the strategies of a model whose queue has changed."""
        holders = self.holders[model]
        self.note(model, () if self.alike and len(holders) == len(self.free_ms) else holders)

    def use(self, worker: int, model: int) -> None:
        """Record that a worker has used a model last."""
        used = self.used[worker]
        used.pop(model, None)
        used[model] = None

    def start(self, worker: int) -> None:
        """Start the next batch that the worker was given."""
        queued = self.given[worker]
        while queued and self.engine.workers.free_lanes[worker] > 0:
            model, requests = queued.popleft()
            self.engine.run(worker, model, requests)

    def foresee(self, worker: int) -> None:
        """Estimate again when a worker will be done, where times are drawn."""
        engine, kind = self.engine, self.engine.workers.type[worker]
        ahead_ms = sum(engine.times.rows[kind][model][len(requests) - 1]
                       for model, requests in self.given[worker])
        running = engine.workers.running[worker]
        begin_ms = engine.workers.busy_until_ms[worker] if running else engine.now_ms
        self.free_ms[worker] = max(begin_ms, engine.now_ms) + ahead_ms

    # Loads.

    def able(self) -> list[int]:
        """Return the workers that can begin a load, the one with least work first."""
        workers = self.engine.workers
        able = [worker for worker in range(len(workers)) if workers.may_load(worker)
                and not (workers.blocking[worker] and self.given[worker])]
        return sorted(able, key=self.free_ms.__getitem__)

    def load_cold(self) -> None:
        """Load models that no worker holds, highest demand first."""
        able = self.able() if self.cold else []
        while able and (model := self.most_wanted_cold(able[0])) is not None:
            for worker in able:
                if self.load(worker, model):
                    able.remove(worker)
                    break
            else:
                return

    def most_wanted_cold(self, worker: int) -> int | None:
        """Return the model of highest demand that no worker holds; None if none is wanted.

        Requests that cannot wait for the load are dropped. They are demand only where a load takes
        longer than they may wait from the start: others will come, and find the model loaded.
        """
        engine, row = self.engine, self.rows[worker]
        arrival_ms, deadline_ms = engine.requests.arrival_ms, self.deadline_ms
        best, wanted = 0.0, None
        for model in list(self.cold):
            if row[model][0] == inf:
                continue
            queue, early = self.queues[model], 0
            takes_ms = engine.load_ms(worker, model) + row[model][0]
            while queue and deadline_ms[queue[0]] < engine.now_ms + takes_ms:
                early += deadline_ms[queue[0]] - arrival_ms[queue[0]] < takes_ms
                engine.drop(queue.popleft())
            demand_ms = (len(queue) + early) * row[model][0]
            if not queue:
                del self.cold[model], self.waiting[model]
            if demand_ms > best:
                best, wanted = demand_ms, model
        return wanted

    def load_more(self) -> None:
        """Load models whose holders cannot serve all of the demand onto further workers.

        The demand of a model is shared equally by its holders; ``unserved`` is the share of a
        worker's work beyond its capacity.
        """
        self.look_ms = self.engine.now_ms + self.every_ms
        able = self.able()
        if not able:
            return
        shares_ms: list[tuple[float, int, list[int]]] = []
        load_on = [0.0] * len(self.free_ms)
        for model in self.waiting:
            holders = self.holders[model]
            if holders:
                share_ms = len(self.queues[model]) * self.rows[holders[0]][model][0] / len(holders)
                shares_ms.append((share_ms, model, holders))
                for holder in holders:
                    load_on[holder] += share_ms
        unserved = [max(0.0, 1.0 - self.capacity_ms / max(load, _EPSILON_MS)) for load in load_on]
        if not any(unserved):
            return
        wanted = [(-share_ms * sum([unserved[holder] for holder in holders]), model)
                  for share_ms, model, holders in shares_ms if not self.coming[model]]
        heapify(wanted)
        while able and wanted and wanted[0][0] < -_EPSILON_MS:
            _, model = heappop(wanted)
            for worker in able:
                if self.useful(worker, model) and self.load(worker, model):
                    able.remove(worker)
                    break

    def useful(self, worker: int, model: int) -> bool:
        """Return whether a worker lacks a model and could load it in time for the last request.

        If even a new request could not wait for the load, it is useful for later requests.
        """
        engine, last = self.engine, self.queues[model][-1]
        takes_ms, deadline_ms = (engine.load_ms(worker, model) + self.rows[worker][model][0],
                                 self.deadline_ms[last])
        return (model not in engine.workers.loaded[worker]
                and (deadline_ms >= engine.now_ms + takes_ms
                     or deadline_ms - engine.requests.arrival_ms[last] < takes_ms))

    def load(self, worker: int, model: int) -> bool:
        """Begin a load if the worker runs the model and can make room; return whether it began.

        Idle models are unloaded even if that does not make enough room.
        """
        engine = self.engine
        if not engine.times.runs(engine.workers.type[worker], model) or not (
                self.make_room(worker, model)):
            return False
        ready_ms = engine.load(worker, model)
        if engine.workers.blocking[worker]:
            self.free_ms[worker] = ready_ms
        self.coming[model] += 1
        self.cold.pop(model, None)
        return True

    def make_room(self, worker: int, model: int) -> bool:
        """Unload idle models, least recently used first; return whether there is room then."""
        engine, workers = self.engine, self.engine.workers
        if workers.fits(worker, model):
            return True
        busy = {model for model, _ in self.given[worker]}
        for other in list(self.used[worker]):
            if self.queues[other] or other in busy or engine.runs_now(worker, other):
                continue
            engine.unload(worker, other)
            self.forget(worker, other)
            if workers.fits(worker, model):
                return True
        return False

    def forget(self, worker: int, model: int) -> None:
        """Record that a worker no longer holds a model."""
        everywhere = self.alike and len(self.holders[model]) == len(self.free_ms)
        self.holders[model].remove(worker)
        del self.used[worker][model]
        if everywhere:
            self.note(model, self.holders[model])
