r"""Dynamic scheduler for σOS: takes the fastest of a cold start, waiting, and a remote copy.

The source compares its three schedulers by what a request takes, with the time of a cold start
:math:`T_{CS}`, of inference :math:`T_I`, of processing :math:`T_P` and of the network
:math:`T_N`, where n requests are before it at a copy, and concludes that one should choose among
them by it; it has no such scheduler. This one does so for each request and each copy:

- cold start on a machine without the model: :math:`T_{CS} + T_I + T_P`, and :math:`T_N` more from
  another machine where its cores are taken;
- at the machine of a copy: :math:`(n + 1) T_I + T_P` if its cores are free; if not, and w
  requests wait already, :math:`(n + w + 1) T_I + (w / s + 2) T_P`, where the cores are enough
  for s requests. If each takes the whole machine, and all before it are its own, that is the
  source's :math:`(n + 1)(T_I + T_P)`, n with those that wait;
- at a copy from another machine: :math:`T_N + T_I + T_P + n T_I`.

The remaining load time of a copy is added to the times there. A request whose least time is at a
machine without free cores waits; the choice is made anew at each event. The source's time of
colocation includes the processing of the requests before it, which does not delay the request, and
is left out.

Source: see :mod:`~ramsis.studies.sigmaos.scheduler`, section 6.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import inf

from ramsis.sim.engine import Engine
from ramsis.sim.engine.workers import ACTIVE
from ramsis.studies.sigmaos.scheduler import Place, SigmaOS

_ANOTHER = -1  # stands for any machine other than the copy's


class SigmaOSDynamic(SigmaOS):
    """Scheduler that takes the fastest of cold start, waiting and remote copy per request.

    Parameters
    ----------
    enqueue_ms : float
        Time from the arrival of a request until it is in its queue, >= 0.
    """

    def __init__(self, engine: Engine, enqueue_ms: float = 0.0) -> None:
        super().__init__(engine, enqueue_ms)
        self.processing_ms = [stream.pre_ms + stream.post_ms for stream in self.streams]
        self.far_ms = [stream.network_ms + stream.network_back_ms for stream in self.streams]
        models, types = range(len(engine.site.models)), engine.workers.type
        self.inference_ms = [[engine.times.rows[kind][model][0] for kind in types]
                             for model in models]
        self.least_cold_ms = [
            min(min(engine.times.load_ms(kind, model, first) for first in (False, True))
                + engine.times.rows[kind][model][0] for kind in set(types))
            for model in models]

    def choose(self, queue: Sequence[int]) -> tuple[int, Place] | None:
        """Choose the first request whose fastest option can begin now."""
        request = queue[0]
        state, workers = self.engine.requests, self.engine.workers
        stream, model = state.stream[request], state.model[request]
        if self.processed[stream]:
            free = self.free(request)
        else:
            free = [-1] if ACTIVE in workers.status else []  # requests without cores: any machine
        if not free:
            return None
        best = _Best()
        wait = self.at_copies(best, stream, model, len(free))
        if (self.least_cold_ms[model] + self.processing_ms[stream] <= best.took_ms
                and len(self.registered.get(model, ())) < len(workers)):
            self.cold(best, stream, model)
        if best.took_ms == inf:
            return None
        which = _waiting(wait, best.took_ms, len(queue)) if wait else 0
        if which == len(queue):
            return None
        machine, worker = best.places[self.any_of(range(len(best.places)))]
        if machine == _ANOTHER:
            machine = self.any_of([other for other in free if other != worker])
        return which, (machine, worker)

    def at_copies(
        self, best: _Best, stream: int, model: int, free: int
    ) -> list[tuple[float, float]]:
        """Offer free copies of a model to ``best``; return the response times at busy copies.

        Each is a pair: the time after waiting for one request, and its increase per further one.
        """
        workers, each_ms = self.engine.workers, self.inference_ms[model]
        loaded, free_cores = workers.loaded, workers.free_cores
        cores, processing_ms = self.streams[stream].cores, self.processing_ms[stream]
        far_ms = self.far_ms[stream]
        wait = []
        for copy in self.registered.get(model, ()):
            worker = copy.worker
            took_ms = (copy.ahead + 1) * each_ms[worker] + processing_ms
            if model not in loaded[worker]:
                took_ms += self.load_left_ms(worker, model)
            here = free_cores[worker] >= cores
            if here:
                if took_ms <= best.took_ms:
                    best.offer(took_ms, (worker, worker))
            elif workers.cores[worker] >= cores:
                share_ms = processing_ms / (workers.cores[worker] // cores)
                wait.append((took_ms + processing_ms, each_ms[worker] + share_ms))
            if cores and free > here:
                best.offer(took_ms + far_ms, (_ANOTHER, worker))
        return wait

    def cold(self, best: _Best, stream: int, model: int) -> None:
        """Offer a cold start at each proxy without the model to ``best``."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        types, copies, loading = workers.type, self.copies, workers.loading
        cores, processing_ms = self.streams[stream].cores, self.processing_ms[stream]
        far_ms = self.far_ms[stream]
        load_ms: dict[int, float] = {}
        for worker, inference_ms in enumerate(self.inference_ms[model]):
            if model in copies[worker] or inference_ms == inf:
                continue
            kind = types[worker]
            if kind not in load_ms:
                load_ms[kind] = self.engine.load_ms(worker, model)
            left_ms = load_ms[kind]
            if len(loading[worker]) >= workers.loads_at_a_time[worker]:
                left_ms += min(loading[worker].values()) - now_ms
            here = workers.free_cores[worker] >= cores
            took_ms = left_ms + inference_ms + processing_ms + (0.0 if here else far_ms)
            if took_ms <= best.took_ms and self.hosts(worker, model):
                best.offer(took_ms, (worker if here else _ANOTHER, worker))

    def load_left_ms(self, worker: int, model: int) -> float:
        """Return the remaining load time of a model, including loads queued before it."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        loading = workers.loading[worker]
        if model in loading:
            return loading[model] - now_ms
        full = len(loading) >= workers.loads_at_a_time[worker]
        wait_ms = min(loading.values()) - now_ms if full else 0.0
        return wait_ms + self.engine.load_ms(worker, model)


class _Best:
    """Collector of the machines on which a request would take the least time."""

    __slots__ = ("places", "took_ms")

    def __init__(self) -> None:
        self.took_ms = inf
        self.places: list[Place] = []

    def offer(self, took_ms: float, place: Place) -> None:
        """Record a place, unless its time is above the least so far."""
        if took_ms < self.took_ms:
            self.took_ms, self.places = took_ms, [place]
        elif took_ms == self.took_ms:
            self.places.append(place)


def _waiting(wait: list[tuple[float, float]], least_ms: float, most: int) -> int:
    """Return the number of requests of a queue for which waiting is fastest.

    ``wait`` has the time of the first waiting request at each copy, and the increment of each
    further one. Each waiting request makes waiting longer, until ``least_ms`` is as fast.
    """
    heapify(wait)
    which = 0
    while which < most and wait and wait[0][0] < least_ms:
        took_ms, more_ms = wait[0]
        heapreplace(wait, (took_ms + more_ms, more_ms))
        which += 1
    return which
