"""The requests of a scenario's streams, drawn with a seed.

Each stream has random numbers of its own, so what it sends does not depend on the others, nor on
who serves. Requests of closed loops, and of streams that begin after another has ended, depend on
the answers: the engine makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import whole
from ramsis.scenario.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order of their arrival, arrays of shape (n,)."""

    arrival_ms: FloatArray  # rising or equal
    # model, stream: as numbered in :class:`~ramsis.scenario.arrays.ScenarioArrays`
    model: IntArray
    stream: IntArray
    # earliest_ms, deadline_ms: an answer is in time from the one to the other; times of the
    # clock, not lengths
    earliest_ms: FloatArray
    deadline_ms: FloatArray

    def __len__(self) -> int:
        return len(self.arrival_ms)


def stream_generator(stream: int, seed: int) -> np.random.Generator:
    """The random numbers of a stream; a seed below 0 is refused."""
    whole(0).check("not a seed", seed=seed)
    return np.random.default_rng(np.random.SeedSequence((seed, stream)))


def draw_requests(scenario: Scenario, seed: int) -> Requests:
    """The requests of all streams that come by themselves.

    Parameters
    ----------
    seed : int
        >= 0.
    """
    drawn = [draw_stream(scenario, i, stream_generator(i, seed))
             for i, stream in enumerate(scenario.streams)
             if stream.after is None and stream.workload.loop is None]
    return _together(drawn)


def draw_stream(
    scenario: Scenario, index: int, rng: np.random.Generator, begin_ms: float = 0.0
) -> Requests:
    """The requests of a stream whose time 0 is ``begin_ms``."""
    stream, arrays = scenario.streams[index], scenario.arrays
    models, shares = arrays.stream_models[index], arrays.stream_shares[index]
    arrivals, choice = rng.spawn(2)
    found = stream.workload.draw(scenario.duration_ms - begin_ms, len(models), arrivals)
    arrival_ms = begin_ms + found.times_ms
    if found.copy is not None:
        model = models[found.copy]
    elif len(models) == 1:
        model = np.full(len(arrival_ms), models[0])
    else:
        upto = np.cumsum(shares)
        place = np.searchsorted(upto, choice.random(len(arrival_ms)) * upto[-1], side="right")
        model = models[np.minimum(place, len(models) - 1)]
    return Requests(arrival_ms, model, np.full(len(arrival_ms), index, dtype=np.int64),
                    arrival_ms + stream.earliest_ms, arrival_ms + stream.slo_ms)


def _together(parts: Sequence[Requests]) -> Requests:
    names = ("arrival_ms", "model", "stream", "earliest_ms", "deadline_ms")
    kinds = (np.float64, np.int64, np.int64, np.float64, np.float64)
    joined = [np.concatenate([np.empty(0, dtype=kind), *(getattr(part, name) for part in parts)])
              for name, kind in zip(names, kinds, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return Requests(*(one[order] for one in joined))
