"""Power of two choices over the replicas, and least recently used models make room.

Ray Serve routes requests for multiplexed models in this way. Workers with ``max_ongoing`` requests
get no further ones; if no worker has fewer, a request waits. Of the workers with fewer requests
that hold or load the request's model (or of all workers with fewer requests if none of them does),
two are drawn, and the one with the shorter queue takes the request. Each worker serves its queue
in order, one request at a time. It loads the model of the next request if necessary, and unloads
the least recently run models to make room.

Source: Ray's documentation of model multiplexing and of its router (power of two choices; the
default of ``max_ongoing_requests`` is 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from ramsis.sim.engine import Engine, Scheduler, check_at_least


class LeastRecentlyUsed(Scheduler[Engine]):
    """Scheduler by power of two choices; least recently used models make room.

    Parameters
    ----------
    max_ongoing : int
        Most requests that a worker has, queued and running.
    """

    def __init__(self, engine: Engine, max_ongoing: int = 5) -> None:
        super().__init__(engine)
        check_at_least(1, "lru", max_ongoing=max_ongoing)
        self.max_ongoing = max_ongoing
        self.rng = Random(engine.seed)
        workers, kinds = engine.workers, range(len(engine.site.models))
        self.able = [[worker for worker in range(len(workers))
                      if engine.times.runs(workers.type[worker], model)
                      and workers.model_mb[model] <= workers.memory_mb[worker]]
                     for model in kinds]
        count = len(engine.workers)
        self.queues: list[deque[int]] = [deque() for _ in range(count)]
        self.ongoing = [0] * count
        # The models of each worker, the least recently used first.
        self.used = [dict.fromkeys(sorted(held)) for held in workers.loaded]
        self.unrouted: deque[int] = deque()

    def on_arrival(self, request: int) -> None:
        """Route a request, or let it wait."""
        if self.unrouted or not self.route(request):
            self.unrouted.append(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Take requests that wait for a worker with room."""
        self.ongoing[worker] -= 1
        while self.unrouted and self.route(self.unrouted[0]):
            self.unrouted.popleft()
        self.serve(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Serve the queue of a worker that has loaded a model."""
        self.used[worker][model] = None
        self.serve(worker)

    def route(self, request: int) -> bool:
        """Assign a request to a worker with room; return False if no worker has room."""
        workers, model = self.engine.workers, self.engine.requests.model[request]
        ongoing, most, status = self.ongoing, self.max_ongoing, workers.status
        room = [worker for worker in self.able[model]
                if ongoing[worker] < most and status[worker] == "active"]
        if not room:
            return False
        loaded, loading = workers.loaded, workers.loading
        holders = [worker for worker in room
                   if model in loaded[worker] or model in loading[worker]]
        worker = self.shorter_of_two(holders or room)
        self.queues[worker].append(request)
        ongoing[worker] += 1
        self.serve(worker)
        return True

    def shorter_of_two(self, among: Sequence[int]) -> int:
        """Return, of two workers drawn at random, the one with fewer requests."""
        if len(among) == 1:
            return among[0]
        i = int(self.rng.random() * len(among))
        j = int(self.rng.random() * (len(among) - 1))
        first, second = among[i], among[j + (j >= i)]
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
            self.used[worker].pop(model, None)
            self.used[worker][model] = None
            engine.run(worker, model, [queue.popleft()])

    def make_room(self, worker: int, model: int) -> None:
        """Unload the least recently used models that do not run now."""
        engine, used = self.engine, self.used[worker]
        for other in list(used):
            if engine.workers.fits(worker, model):
                return
            if not engine.runs_now(worker, other):
                engine.unload(worker, other)
                del used[other]
