r"""σOS: of a cold start, waiting and a remote copy, what is expected to take least time.

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

What is left of a load is added to the times at its copy. A request whose least time is at a
machine that has no free cores now waits; the choice is made anew at each event. The source's time
of colocation is at least that which the requests before it take; that is a time of theirs, not of
the request, and is left out.

Source: see :mod:`~ramsis.sim.cluster.schedulers.sigmaos`, section 6.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import inf

from ramsis.scenario import Stream
from ramsis.sim.cluster.schedulers.sigmaos import Place, SigmaOS

__all__ = ["SigmaOSDynamic"]


_ANOTHER = -1  # any machine but the copy's


class SigmaOSDynamic(SigmaOS):
    """See the module."""

    def choose(self, queue: Sequence[int]) -> tuple[int, Place] | None:
        """The first request for which nothing is faster than what can begin now."""
        request = queue[0]
        state = self.engine.requests
        stream, model = self.streams[state.stream[request]], state.model[request]
        free = self.free(request)
        if not free:
            return None
        best = _Best()
        wait = self.at_copies(best, stream, model, len(free))
        if len(self.registered.get(model, ())) < len(self.engine.workers):
            self.cold(best, stream, model)
        if best.took_ms == inf:
            return None
        which = _waiting(wait, best.took_ms, len(queue)) if wait else 0
        if which == len(queue):
            return None
        machine, worker = best.places[self.any_of(range(len(best.places)))]
        if machine == _ANOTHER:
            machine = self.any_of([one for one in free if one != worker])
        return which, (machine, worker)

    def at_copies(
        self, best: _Best, stream: Stream, model: int, free: int
    ) -> list[tuple[float, float]]:
        """What can begin at copies; of those to wait for, time, and more for each further one."""
        workers, rows = self.engine.workers, self.engine.times.rows
        processing_ms = stream.pre_ms + stream.post_ms
        far_ms = stream.network_ms + stream.network_back_ms
        wait = []
        for copy in self.registered.get(model, ()):
            worker = copy.worker
            inference_ms = rows[workers.type[worker]][model][0]
            took_ms = (copy.ahead + 1) * inference_ms + processing_ms
            if model not in workers.loaded[worker]:
                took_ms += self.load_left_ms(worker, model)
            here = workers.free_cores[worker] >= stream.cores
            if here:
                best.offer(took_ms, (worker, worker))
            elif workers.cores[worker] >= stream.cores:
                share_ms = processing_ms / (workers.cores[worker] // stream.cores)
                wait.append((took_ms + processing_ms, inference_ms + share_ms))
            if stream.processed and free > here:
                best.offer(took_ms + far_ms, (_ANOTHER, worker))
        return wait

    def cold(self, best: _Best, stream: Stream, model: int) -> None:
        """What a cold start would take at each proxy."""
        times, workers = self.engine.times, self.engine.workers
        processing_ms = stream.pre_ms + stream.post_ms
        far_ms = stream.network_ms + stream.network_back_ms
        for worker, kind in enumerate(workers.type):
            if model in self.copies[worker] or not times.runs(kind, model):
                continue
            here = workers.free_cores[worker] >= stream.cores
            took_ms = (self.load_left_ms(worker, model) + times.rows[kind][model][0]
                       + processing_ms + (0.0 if here else far_ms))
            if took_ms <= best.took_ms and self.hosts(worker, model):
                best.offer(took_ms, (worker if here else _ANOTHER, worker))

    def load_left_ms(self, worker: int, model: int) -> float:
        """What is left of the load of a model that is not loaded, those before it included."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        loading = workers.loading[worker]
        if model in loading:
            return loading[model] - now_ms
        full = len(loading) >= workers.loads_at_a_time[worker]
        wait_ms = min(loading.values()) - now_ms if full else 0.0
        return wait_ms + self.engine.load_ms(worker, model)


class _Best:
    """The places of least time."""

    def __init__(self) -> None:
        self.took_ms = inf
        self.places: list[Place] = []

    def offer(self, took_ms: float, place: Place) -> None:
        """One more place."""
        if took_ms < self.took_ms:
            self.took_ms, self.places = took_ms, [place]
        elif took_ms == self.took_ms:
            self.places.append(place)


def _waiting(wait: list[tuple[float, float]], least_ms: float, most: int) -> int:
    """How many of those in a queue do best to wait.

    ``wait`` has what the first would take at each copy, and how much longer the next. Each that
    waits makes waiting longer, until what can begin now is as fast.
    """
    heapify(wait)
    which = 0
    while which < most and wait and wait[0][0] < least_ms:
        took_ms, more_ms = wait[0]
        heapreplace(wait, (took_ms + more_ms, more_ms))
        which += 1
    return which
