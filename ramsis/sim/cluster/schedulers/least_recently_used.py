"""Power of two choices over the replicas, and least recently used models make room.

As Ray Serve routes requests for multiplexed models: of the workers that hold a request's model,
or else of all, two are drawn, and the one with the shorter queue takes it, unless it has
``max_ongoing`` requests already; then any worker that has fewer is taken by the same rule, and if
none has, the request waits for one. Each worker serves its queue in order, a request at a time;
it loads the model of the next request if it does not hold it, and unloads those that it has not
run for longest to make room.

Source: Ray's documentation of model multiplexing and of its router (power of two choices; the
default of ``max_ongoing_requests`` is 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.scheduler import Scheduler, check_at_least

__all__ = ["LeastRecentlyUsed"]


class LeastRecentlyUsed(Scheduler):
    """See the module.

    Parameters
    ----------
    engine : ClusterEngine
    max_ongoing : int
        Most requests that a worker has, queued and running.
    """

    def __init__(self, engine: ClusterEngine, max_ongoing: int = 5) -> None:
        super().__init__(engine)
        check_at_least(1, "lru", max_ongoing=max_ongoing)
        self.max_ongoing = max_ongoing
        self.rng = np.random.default_rng(engine.seed)
        count = len(engine.workers)
        self.queues: list[deque[int]] = [deque() for _ in range(count)]
        self.ongoing = [0] * count
        self.used_ms: list[dict[int, float]] = [{} for _ in range(count)]
        self.unrouted: deque[int] = deque()

    def on_arrival(self, request: int) -> None:
        """Route the request, or let it wait."""
        if self.unrouted or not self.route(request):
            self.unrouted.append(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Take requests that wait for a worker with room."""
        self.ongoing[worker] -= 1
        while self.unrouted and self.route(self.unrouted[0]):
            self.unrouted.popleft()
        self.serve(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve on."""
        self.serve(worker)

    def route(self, request: int) -> bool:
        """Give a request to a worker with room."""
        workers, model = self.engine.workers, self.engine.requests.model[request]
        able = [worker for worker in range(len(workers)) if workers.status[worker] == "active"
                and self.engine.times.runs(workers.type[worker], model)
                and workers.model_mb[model] <= workers.memory_mb[worker]]
        holders = [worker for worker in able if model in workers.loaded[worker]
                   or model in workers.loading[worker]]
        for among in (holders, able):
            room = [worker for worker in among if self.ongoing[worker] < self.max_ongoing]
            if room:
                worker = self.shorter_of_two(room)
                self.queues[worker].append(request)
                self.ongoing[worker] += 1
                self.serve(worker)
                return True
        return False

    def shorter_of_two(self, among: Sequence[int]) -> int:
        """Of two workers drawn at random, the one with fewer requests."""
        if len(among) == 1:
            return among[0]
        drawn = self.rng.choice(len(among), 2, replace=False)
        first, second = among[int(drawn[0])], among[int(drawn[1])]
        return second if self.ongoing[second] < self.ongoing[first] else first

    def serve(self, worker: int) -> None:
        """Run the next requests of a worker's queue, or load the model of the next."""
        engine, queue = self.engine, self.queues[worker]
        workers = engine.workers
        while queue:
            model = engine.requests.model[queue[0]]
            if model not in workers.loaded[worker]:
                if model not in workers.loading[worker] and workers.may_load(worker):
                    self.make_room(worker, model)
                    if workers.fits(worker, model):
                        engine.load(worker, model)
                return
            if workers.free_lanes[worker] <= 0:
                return
            self.used_ms[worker][model] = engine.now_ms
            engine.run(worker, model, [queue.popleft()])

    def make_room(self, worker: int, model: int) -> None:
        """Unload what has not run for longest and does not run now."""
        engine, used = self.engine, self.used_ms[worker]
        held = engine.workers.loaded[worker]
        for other in sorted(held, key=lambda one: (used.get(one, -1.0), one)):
            if engine.workers.fits(worker, model):
                return
            if not engine.runs_now(worker, other):
                engine.unload(worker, other)
