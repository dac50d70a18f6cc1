"""State of the requests of a run, including those that a run creates as others are answered."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappush
from typing import TYPE_CHECKING

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import check_amount
from ramsis.cluster.service_times import quantile
from ramsis.scenario import Requests
from ramsis.scenario.scenario import draw_stream, stream_generator
from ramsis.sim.run import DROPPED, NEVER_ANSWERED

if TYPE_CHECKING:
    from ramsis.sim.engine.world import World

__all__ = ["AT_MACHINE", "DROPPED", "NOT_COME", "TO_PROCESS", "WAITING", "RequestState"]

WAITING = NEVER_ANSWERED
"""In ``batch``: the request waits for inference; in a record it was never answered."""
NOT_COME = -3
"""In ``batch``: the request has not arrived."""
TO_PROCESS = -4
"""In ``batch``: the request waits for a machine."""
AT_MACHINE = -5
"""In ``batch``: a machine prepares the request, or the network carries it."""

_BLOCK = 4096  # random numbers drawn at a time
_LOOKS_EACH = 1 << 16  # created requests after which the free memory is checked again
BYTES_EACH = 400.0
"""Memory that a request takes."""


class RequestState:
    """State of the requests of a run, as lists by request; schedulers do not write to them.

    Requests whose arrivals are given are numbered in the order of arrival. Requests that the run
    creates (closed loops, and streams that begin after another has ended) have higher numbers, in
    the order of their creation; ``seed`` draws them, and ``draws`` the service times.
    """

    def __init__(
        self, requests: Requests, world: World, seed: int, draws: np.random.Generator
    ) -> None:
        self._world, self._seed, self._draws = world, seed, draws
        self._slo_ms = requests.slo_ms
        self._slos_made_ms: list[float] = []
        self.arrival_ms: list[float] = requests.arrival_ms.tolist()
        self.deadline_ms: list[float] = requests.deadline_ms.tolist()
        self.earliest_ms: list[float] = requests.earliest_ms.tolist()  # may be empty
        self.model: list[int] = requests.model.tolist()  # that each request asks for
        self.stream: list[int] = requests.stream.tolist()
        # the batch that a request is in or was answered by, or one of the constants above
        self.batch = [NOT_COME] * len(self.arrival_ms)
        self.coming: list[tuple[float, int]] = []  # heap of created requests that have not arrived
        # uniform numbers that draw service times, for the first requests so far (:meth:`uniform`)
        self.drawn: list[float] = []
        # whether the requests of each stream need a machine
        self.processed = [stream.processed for stream in world.streams]
        # whether the run creates requests as others are answered
        self.reacts = any(stream.after is not None or stream.workload.loop is not None
                          for stream in world.streams)
        self._output = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self._uniform_output: list[float] = []
        self._unanswered = [0] * len(world.streams)  # requests of each stream
        self._after: dict[int, list[int]] = defaultdict(list)  # streams that begin after each one
        self._rng: dict[int, np.random.Generator] = {}  # of each closed loop
        self._to_ask: dict[int, float] = {}  # requests of each closed loop that are still to come
        if self.reacts:
            self._begin()

    def __len__(self) -> int:
        return len(self.arrival_ms)

    def uniform(self, request: int) -> float:
        """Return the number that draws the service time of a batch whose first request this is."""
        while request >= len(self.drawn):
            self.drawn += self._draws.random(_BLOCK).tolist()
        return self.drawn[request]

    def tokens(self, request: int, quantiles: list[float]) -> float:
        """Return the tokens that a request generates, drawn from a distribution."""
        if len(quantiles) == 1:
            return quantiles[0]
        while request >= len(self._uniform_output):
            self._uniform_output += self._output.random(_BLOCK).tolist()
        levels = [(i + 0.5) / len(quantiles) for i in range(len(quantiles))]
        return float(quantile(quantiles, levels, self._uniform_output[request]))

    def slos_ms(self) -> FloatArray:
        """Return the deadlines after arrival, of each request or of all."""
        if not self._slos_made_ms:
            return self._slo_ms
        first = np.broadcast_to(self._slo_ms, len(self) - len(self._slos_made_ms))
        return np.concatenate([first, self._slos_made_ms])

    def answered(self, request: int, now_ms: float) -> None:
        """Create a user's next request, or begin the next streams, after a request's end."""
        stream = self.stream[request]
        loop = self._world.streams[stream].workload.loop
        if loop is not None:
            back_ms = now_ms + loop.think_ms
            if back_ms < self._world.duration_ms and self._to_ask[stream] > 0:
                self._ask(stream, back_ms)
                return
        self._unanswered[stream] -= 1
        if self._unanswered[stream] == 0:
            self._ended(stream, now_ms)

    def _begin(self) -> None:
        """Begin all streams that do not wait for others."""
        streams = self._world.streams
        numbers = {stream.name: i for i, stream in enumerate(streams)}
        counts = np.bincount(self.stream, minlength=len(streams)).tolist()
        for i, stream in enumerate(streams):
            if stream.after is not None:
                self._after[numbers[stream.after]].append(i)
        for i, stream in enumerate(streams):
            if stream.after is None:
                self._open(i, 0.0, counts[i])

    def _open(self, stream: int, now_ms: float, count: int) -> None:
        """Begin a stream with ``count`` known requests, and its closed loop."""
        self._unanswered[stream] = count
        loop = self._world.streams[stream].workload.loop
        if loop is not None:
            begin_ms = now_ms + loop.start_ms
            self._to_ask[stream] = np.inf if loop.requests is None else loop.requests
            self._rng[stream] = stream_generator(stream, self._seed)
            if begin_ms < self._world.duration_ms:
                users = int(min(loop.users, self._to_ask[stream]))
                self._unanswered[stream] = users
                for _ in range(users):
                    self._ask(stream, begin_ms)
        if self._unanswered[stream] == 0:
            self._ended(stream, now_ms)

    def _ended(self, stream: int, now_ms: float) -> None:
        """Begin the streams after one whose requests have all been answered."""
        world = self._world
        for after in self._after.pop(stream, ()):
            drawn_ms, models = draw_stream(
                world.streams[after], world.stream_models[after], world.stream_shares[after],
                world.duration_ms - now_ms, stream_generator(after, self._seed))
            for at_ms, model in zip((now_ms + drawn_ms).tolist(), models.tolist(), strict=True):
                self._add(after, at_ms, model)
            self._open(after, now_ms, len(models))

    def _ask(self, stream: int, at_ms: float) -> None:
        """Create the next request of a user of a closed loop."""
        self._to_ask[stream] -= 1
        models = self._world.stream_models[stream]
        if len(models) == 1:
            model = int(models[0])
        else:
            model = int(self._rng[stream].choice(models, p=self._world.stream_shares[stream]))
        self._add(stream, at_ms, model)

    def _add(self, stream: int, at_ms: float, model: int) -> None:
        """Add a request that arrives at a time of the future."""
        if len(self.arrival_ms) % _LOOKS_EACH == 0:  # the number was not known beforehand
            check_amount(len(self.arrival_ms), where="streams")
            check_amount(_LOOKS_EACH, where="streams", bytes_each=BYTES_EACH)
        spec = self._world.streams[stream]
        heappush(self.coming, (at_ms, len(self.arrival_ms)))
        self.arrival_ms.append(at_ms)
        self.deadline_ms.append(at_ms + spec.slo_ms)
        self.earliest_ms.append(at_ms + spec.earliest_ms)
        self._slos_made_ms.append(spec.slo_ms)
        self.model.append(model)
        self.stream.append(stream)
        self.batch.append(NOT_COME)
