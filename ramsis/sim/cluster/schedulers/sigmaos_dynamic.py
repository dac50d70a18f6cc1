r"""σOS: of a cold start, waiting and a remote copy, what is expected to take least time.

The source compares its three schedulers by what a request takes, with the time of a cold start
:math:`T_{CS}`, of inference :math:`T_I`, of processing :math:`T_P` and of the network
:math:`T_N`, where n requests are before it at a copy, and concludes that one should choose among
them by it; it has no such scheduler. This one does so for each request and each copy:

- cold start on a machine without the model: :math:`T_{CS} + T_I + T_P`;
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

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heapreplace
from math import inf

from ramsis.scenario import Stream
from ramsis.sim.cluster.schedulers.sigmaos import Copy, Place, SigmaOS

__all__ = ["SigmaOSDynamic"]


class SigmaOSDynamic(SigmaOS):
    """See the module."""

    def choose(self, queue: Sequence[int]) -> tuple[int, Place] | None:
        """The first request for which nothing is faster than what can begin now."""
        request = queue[0]
        state, workers = self.engine.requests, self.engine.workers
        stream, model = self.streams[state.stream[request]], state.model[request]
        free = self.free(request)
        copies = self.registered.get(model, ())
        begin = [*self.cold(free, model, stream), *self.remote(free, copies, stream)]
        begin += [(self.at_home_ms(copy, stream), (copy.worker, copy.worker)) for copy in copies
                  if copy.worker in free]
        least_ms = min((took_ms for took_ms, _ in begin), default=inf)
        if least_ms == inf:
            return None
        # Each that waits makes waiting longer for the next, until what can begin now is as fast.
        wait = [(self.at_home_ms(copy, stream), self.next_ms(copy, stream)) for copy in copies
                if copy.worker not in free and workers.cores[copy.worker] >= stream.cores]
        heapify(wait)
        which = 0
        while wait and wait[0][0] < least_ms:
            which += 1
            if which == len(queue):
                return None
            took_ms, more_ms = wait[0]
            heapreplace(wait, (took_ms + more_ms, more_ms))
        fastest = [place for took_ms, place in begin if took_ms == least_ms]
        return which, fastest[0 if len(fastest) == 1 else int(self.rng.integers(len(fastest)))]

    def cold(
        self, free: Collection[int], model: int, stream: Stream
    ) -> Iterator[tuple[float, Place]]:
        """What a cold start would take on each machine."""
        for worker in free:
            if model not in self.copies[worker] and self.hosts(worker, model):
                yield (self.load_left_ms(worker, model) + self.inference_ms(worker, model)
                       + stream.pre_ms + stream.post_ms), (worker, worker)

    def remote(
        self, free: Collection[int], copies: Sequence[Copy], stream: Stream
    ) -> Iterator[tuple[float, Place]]:
        """What it would take with a copy on another machine."""
        for copy in copies if stream.processed else ():
            others = [worker for worker in free if worker != copy.worker]
            if others:
                yield (stream.network_ms + stream.network_back_ms + stream.pre_ms + stream.post_ms
                       + self.at_copy_ms(copy)), (self.any_of(others), copy.worker)

    def at_home_ms(self, copy: Copy, stream: Stream) -> float:
        """What it would take at a copy's own machine, the wait for it included."""
        rounds = 1 if self.engine.workers.free_cores[copy.worker] >= stream.cores else 2
        return self.at_copy_ms(copy) + rounds * (stream.pre_ms + stream.post_ms)

    def next_ms(self, copy: Copy, stream: Stream) -> float:
        """How much longer each that waits makes it."""
        share_ms = (stream.pre_ms + stream.post_ms) / self.at_a_time(copy.worker, stream)
        return self.inference_ms(copy.worker, copy.model) + share_ms

    def at_copy_ms(self, copy: Copy) -> float:
        """Inference, after what is left of the load and of those before."""
        return (self.load_left_ms(copy.worker, copy.model)
                + (copy.ahead + 1) * self.inference_ms(copy.worker, copy.model))

    def inference_ms(self, worker: int, model: int) -> float:
        """Mean time of a request alone."""
        engine = self.engine
        return engine.times.rows[engine.workers.type[worker]][model][0]

    def load_left_ms(self, worker: int, model: int) -> float:
        """What is left of a model's load, those before it included."""
        workers, now_ms = self.engine.workers, self.engine.now_ms
        if model in workers.loaded[worker]:
            return 0.0
        loading = workers.loading[worker]
        if model in loading:
            return loading[model] - now_ms
        full = len(loading) >= workers.loads_at_a_time[worker]
        wait_ms = min(loading.values()) - now_ms if full else 0.0
        return wait_ms + self.engine.load_ms(worker, model)

    def at_a_time(self, worker: int, stream: Stream) -> int:
        """Requests of a stream that a machine's cores are enough for."""
        return max(self.engine.workers.cores[worker] // stream.cores, 1) if stream.cores else 1
