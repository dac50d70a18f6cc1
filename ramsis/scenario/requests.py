"""Requests of a scenario, sampled stream by stream with a seed.

Each stream has its own random generator, so its requests depend neither on other streams nor on
the scheduler. Requests of closed loops, and of streams that begin after another has ended, depend
on the answers: the simulator creates them.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import whole
from ramsis.reprs import dataclass
from ramsis.scenario.records import Stream
from ramsis.scenario.scenario import Scenario

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order of their arrival, arrays of shape (n,)."""

    arrival_ms: FloatArray  # non-decreasing
    slo_ms: FloatArray  # deadline after arrival, of each request or of all, shape (n,) or (1,)
    # model, stream: as numbered in :class:`~ramsis.scenario.arrays.ScenarioArrays`; empty where
    # nothing depends on them
    model: IntArray = field(default_factory=_NONE.copy)
    stream: IntArray = field(default_factory=_NONE.copy)
    # an answer before is too early; empty where none is
    earliest_ms: FloatArray = field(default_factory=lambda: np.empty(0))
    # the number that draws the service time of a batch whose first request it is; empty where
    # service times are fixed, or the numbers are drawn as a run needs them
    uniform: FloatArray = field(default_factory=lambda: np.empty(0))
    # rank of the confidence in the first answer, in [0, 1); empty where none gets a second opinion
    sureness: FloatArray = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.arrival_ms)

    def part(self, chosen: IntArray) -> Requests:
        """Return some of the requests, without models and streams."""
        return Requests(
            self.arrival_ms[chosen],
            self.slo_ms[chosen] if len(self.slo_ms) == len(self) else self.slo_ms,
            uniform=self.uniform[chosen] if len(self.uniform) else self.uniform)

    @property
    def deadline_ms(self) -> FloatArray:
        """Deadline of each request, shape (n,)."""
        return self.arrival_ms + self.slo_ms


def stream_generator(stream: int, seed: int) -> np.random.Generator:
    """Return the random generator of a stream; a seed below 0 is refused."""
    whole(0).check("not a seed", seed=seed)
    return np.random.default_rng(np.random.SeedSequence((seed, stream)))


def draw_requests(scenario: Scenario, seed: int) -> Requests:
    """Sample the requests of all streams whose arrivals do not depend on answers.

    Parameters
    ----------
    seed : int
        >= 0.
    """
    arrays = scenario.arrays
    parts = [(np.empty(0), _NONE, _NONE)]
    for i, stream in enumerate(scenario.streams):
        if stream.after is None and stream.workload.loop is None:
            arrival_ms, model = draw_stream(stream, arrays.stream_models[i],
                                            arrays.stream_shares[i], scenario.duration_ms,
                                            stream_generator(i, seed))
            parts.append((arrival_ms, model, np.full(len(model), i)))
    arrival_ms, model, number = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(arrival_ms, kind="stable")
    arrival_ms, model, number = arrival_ms[order], model[order], number[order]
    slo_ms, earliest_ms = np.array(
        [(stream.slo_ms, stream.earliest_ms) for stream in scenario.streams])[number].T
    return Requests(arrival_ms, slo_ms, model, number, arrival_ms + earliest_ms)


def draw_stream(
    stream: Stream, models: IntArray, shares: FloatArray, duration_ms: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, IntArray]:
    """Sample the arrival times of a stream's requests, and their models.

    Parameters
    ----------
    models, shares : ndarrays
        Models of the stream, and the probability of each.
    duration_ms : float
        Time in which requests arrive, from the start of the stream.
    """
    arrivals, choice = rng.spawn(2)
    drawn = stream.workload.draw(duration_ms, len(models), arrivals)
    if drawn.copy is not None:
        return drawn.times_ms, models[drawn.copy]
    if len(models) == 1:
        return drawn.times_ms, np.full(len(drawn.times_ms), models[0])
    upto = np.cumsum(shares)
    place = np.searchsorted(upto, choice.random(len(drawn.times_ms)) * upto[-1], side="right")
    return drawn.times_ms, models[np.minimum(place, len(models) - 1)]
