"""The requests of a run, those included that come when others have been answered."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappush

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.sampling import check_amount
from ramsis.cluster.quantiles import quantile
from ramsis.scenario import Requests, Scenario
from ramsis.scenario.requests import draw_stream, stream_generator
from ramsis.sim.run import DROPPED, NEVER_ANSWERED
from ramsis.sim.workload import ClosedLoop

__all__ = ["AT_MACHINE", "DROPPED", "NOT_COME", "TO_PROCESS", "WAITING", "ClusterRequests",
           "FleetRequests", "RequestState"]

WAITING = NEVER_ANSWERED
"""In ``batch``: the request waits for inference; in a record it was never answered."""
NOT_COME = -3
"""In ``batch``: the request has not arrived."""
TO_PROCESS = -4
"""In ``batch``: the request waits for a machine."""
AT_MACHINE = -5
"""In ``batch``: a machine prepares the request, or the network carries it."""

_BLOCK = 4096
_BYTES_EACH = 400.0
_LOOKS_EACH = 1 << 16  # requests, at how much memory there is


class RequestState:
    """State of the requests of a run, as lists by request; schedulers do not write to them.

    Those that come by themselves are numbered in the order of their arrival. Those that a run
    makes follow, in the order in which it makes them.

    Parameters
    ----------
    arrival_ms, deadline_ms : ndarrays, shape (n,)
        Of those that come by themselves.
    draws : Generator
        Of the numbers that service times are drawn by.

    Attributes
    ----------
    arrival_ms, deadline_ms : list of float
    earliest_ms : list of float, or empty
    model, stream : list of int, or empty
        The model that each asks for, and its stream; empty where any model may answer.
    batch : list of int
        The batch that a request is in or was answered by, or why it is in none.
    drawn : list of float
        Numbers that service times are drawn by, as far as they were needed (:meth:`uniform`).
    coming : list
        A heap of the requests that the run has made, by arrival.
    """

    processed: list[bool]  # of each stream, whether its requests need a machine
    reacts: bool  # whether requests come when others are answered

    def __init__(
        self, arrival_ms: FloatArray, deadline_ms: FloatArray, draws: np.random.Generator
    ) -> None:
        self.arrival_ms: list[float] = arrival_ms.tolist()
        self.deadline_ms: list[float] = deadline_ms.tolist()
        self.earliest_ms: list[float] = []
        self.model: list[int] = []
        self.stream: list[int] = []
        self.batch = [NOT_COME] * len(arrival_ms)
        self.coming: list[tuple[float, int]] = []
        self._draws = draws
        self.drawn: list[float] = []

    def __len__(self) -> int:
        return len(self.arrival_ms)

    def uniform(self, request: int) -> float:
        """The number that draws the service time of a batch whose first request this is."""
        while request >= len(self.drawn):
            self.drawn += self._draws.random(_BLOCK).tolist()
        return self.drawn[request]

    def tokens(self, request: int, quantiles: list[float]) -> float:
        """Draw the tokens that a request generates; requests of fleets have one."""
        return 1.0

    def answered(self, request: int, now_ms: float) -> None:
        """A request has been answered or dropped: others may come."""

    def slos_ms(self) -> FloatArray:
        """Deadlines after arrival, for the record."""
        found: FloatArray = np.array(self.deadline_ms) - np.array(self.arrival_ms)
        return found

    def _come(self, at_ms: float, slo_ms: float) -> None:
        """A request of the run's own will arrive."""
        if len(self.arrival_ms) % _LOOKS_EACH == 0:  # nobody knew how many there would be
            check_amount(len(self.arrival_ms), where="streams")
            check_amount(_LOOKS_EACH, where="streams", bytes_each=_BYTES_EACH)
        heappush(self.coming, (at_ms, len(self.arrival_ms)))
        self.arrival_ms.append(at_ms)
        self.deadline_ms.append(at_ms + slo_ms)
        self.batch.append(NOT_COME)


class FleetRequests(RequestState):
    """Requests that any model may answer, with one SLO or one of each.

    Parameters
    ----------
    slo_ms : ndarray, shape (n,) or (1,)
    """

    def __init__(
        self, arrivals: FloatArray | ClosedLoop, slo_ms: FloatArray, draws: np.random.Generator
    ) -> None:
        self.loop = None if isinstance(arrivals, np.ndarray) else arrivals
        given = arrivals if isinstance(arrivals, np.ndarray) else np.empty(0)
        self._asked: int | None = None
        super().__init__(given, given + slo_ms if len(given) else given, draws)
        self.slo_ms = slo_ms
        self.processed, self.reacts = [], self.loop is not None
        if self.loop is not None:
            for _ in range(self.loop.users):
                self._come(0.0, float(slo_ms[0]))

    def ask_for(self, model: int) -> None:
        """Have all requests ask for a model, which another may answer all the same.

        Those of one SLO are a stream, the shortest first.
        """
        self._asked = model
        self.model = [model] * len(self)
        values, stream = np.unique(self.slo_ms, return_inverse=True)
        self.stream = stream.tolist() if len(stream) > 1 else [0] * len(self)
        self.processed = [False] * max(len(values), 1)

    def _come(self, at_ms: float, slo_ms: float) -> None:
        super()._come(at_ms, slo_ms)
        if self._asked is not None:
            self.model.append(self._asked)
            self.stream.append(0)

    def answered(self, request: int, now_ms: float) -> None:
        """The user of a closed loop thinks, and comes back."""
        assert self.loop is not None
        back_ms = now_ms + self.loop.think_ms
        if back_ms < self.loop.duration_ms:
            self._come(back_ms, float(self.slo_ms[0]))

    def slos_ms(self) -> FloatArray:
        """As they were given."""
        return self.slo_ms


class ClusterRequests(RequestState):
    """State of the requests of the streams of a scenario.

    Parameters
    ----------
    given : Requests
        Those that come by themselves.
    seed : int
        Of the draws, and of those that the run makes.
    """

    def __init__(self, scenario: Scenario, given: Requests, seed: int) -> None:
        self._scenario, self._seed = scenario, seed
        check_amount(len(given), where="streams", bytes_each=_BYTES_EACH)
        super().__init__(given.arrival_ms, given.deadline_ms, np.random.default_rng(
            np.random.SeedSequence(seed, spawn_key=(0,))))
        self.model = given.model.tolist()
        self.stream = given.stream.tolist()
        self.earliest_ms = given.earliest_ms.tolist()
        self.processed = [stream.processed for stream in scenario.streams]
        self.reacts = any(stream.after is not None or stream.workload.loop is not None
                          for stream in scenario.streams)
        self._output = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self._uniform_output: list[float] = []
        self._left = [0] * len(scenario.streams)
        if self.reacts:
            self._begin(given)

    def tokens(self, request: int, quantiles: list[float]) -> float:
        """Tokens that a request makes, of a distribution."""
        if len(quantiles) == 1:
            return quantiles[0]
        while request >= len(self._uniform_output):
            self._uniform_output += self._output.random(_BLOCK).tolist()
        levels = [(i + 0.5) / len(quantiles) for i in range(len(quantiles))]
        return float(quantile(quantiles, levels, self._uniform_output[request]))

    def answered(self, request: int, now_ms: float) -> None:
        """A request has been answered or dropped: others may come."""
        stream = self.stream[request]
        loop = self._scenario.streams[stream].workload.loop
        if loop is not None:
            back_ms = now_ms + loop.think_ms
            if back_ms < self._scenario.duration_ms and self._asked_left[stream] > 0:
                self._ask(stream, back_ms)
                return
        self._left[stream] -= 1
        if self._left[stream] == 0:
            self._ended(stream, now_ms)

    def _begin(self, given: Requests) -> None:
        """Closed loops begin; so do streams after one that has no requests."""
        streams = self._scenario.streams
        numbers = {one.name: i for i, one in enumerate(streams)}
        self._after: dict[int, list[int]] = defaultdict(list)
        self._rng: dict[int, np.random.Generator] = {}
        self._asked_left: dict[int, float] = {}
        counts = np.bincount(given.stream, minlength=len(streams)).tolist()
        for i, stream in enumerate(streams):
            if stream.after is not None:
                self._after[numbers[stream.after]].append(i)
        for i, stream in enumerate(streams):
            if stream.after is None:
                self._open(i, 0.0, counts[i])

    def _open(self, stream: int, now_ms: float, known: int) -> None:
        """Begin a stream that already has some requests."""
        self._left[stream] = known
        loop = self._scenario.streams[stream].workload.loop
        if loop is not None:
            begin_ms = now_ms + loop.start_ms
            self._asked_left[stream] = np.inf if loop.requests is None else loop.requests
            self._rng[stream] = stream_generator(stream, self._seed)
            if begin_ms < self._scenario.duration_ms:
                users = int(min(loop.users, self._asked_left[stream]))
                self._left[stream] = users
                for _ in range(users):
                    self._ask(stream, begin_ms)
        if self._left[stream] == 0:
            self._ended(stream, now_ms)

    def _ended(self, stream: int, now_ms: float) -> None:
        """All requests of a stream have been answered: those after it begin."""
        for after in self._after.pop(stream, ()):
            drawn = draw_stream(self._scenario, after, stream_generator(after, self._seed), now_ms)
            for at_ms, model in zip(drawn.arrival_ms.tolist(), drawn.model.tolist(), strict=True):
                self._add(after, at_ms, model)
            self._open(after, now_ms, len(drawn))

    def _ask(self, stream: int, at_ms: float) -> None:
        """A user of a closed loop sends the next request."""
        self._asked_left[stream] -= 1
        arrays = self._scenario.arrays
        models = arrays.stream_models[stream]
        if len(models) == 1:
            model = int(models[0])
        else:
            model = int(self._rng[stream].choice(models, p=arrays.stream_shares[stream]))
        self._add(stream, at_ms, model)

    def _add(self, stream: int, at_ms: float, model: int) -> None:
        spec = self._scenario.streams[stream]
        self._come(at_ms, spec.slo_ms)
        self.model.append(model)
        self.stream.append(stream)
        self.earliest_ms.append(at_ms + spec.earliest_ms)
