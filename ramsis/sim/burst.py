"""A burst of requests on top of a load, and the time to recover from it.

All requests of the burst arrive at one moment, in the middle of the run. Let N(t) be the number
of requests in the system, from arrival until answer or drop, and n its mean over the quarter of
the run before the burst. The workers have recovered at the first moment after the burst with
N(t) <= n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import check_number_of
from ramsis.sim.run import Run
from ramsis.sim.workload import Workload

MOST_REQUESTS = 1_000_000  # of a burst, as many as fit into memory with their times


@dataclass(frozen=True)
class Burst:
    """A workload with a burst in the middle that schedulers do not know of."""

    workload: Workload
    requests: int  # that arrive at one moment, from 1 to MOST_REQUESTS

    def __post_init__(self) -> None:
        check_number_of("requests", self.requests, most=MOST_REQUESTS)

    @property
    def duration_ms(self) -> float:
        """Time when arrivals stop."""
        return self.workload.duration_ms

    @property
    def load_qps(self) -> float | None:
        """Mean load without the burst."""
        return self.workload.load_qps

    @property
    def varies(self) -> bool:
        """Whether the load without the burst changes over time."""
        return self.workload.varies

    @property
    def at_ms(self) -> float:
        """Time of the burst, half of the duration."""
        return self.duration_ms / 2.0

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms, of load and burst."""
        times = self.workload.arrivals_ms(rng)
        place = np.searchsorted(times, self.at_ms)
        return np.insert(times, np.repeat(place, self.requests), self.at_ms)


def recovery_ms(run: Run, at_ms: float) -> float | None:
    """Return the ms from a burst at ``at_ms`` to recovery; None if there is none in the run.

    Recovered means: no more requests are present than on average in the second half of the time
    before the burst.
    """
    left_ms = run.answered_ms.copy()
    left_ms[run.drop_request] = run.drop_ms
    since_ms = at_ms / 2.0
    stayed_ms = np.minimum(left_ms, at_ms) - np.maximum(run.arrival_ms, since_ms)
    usual = float(np.maximum(stayed_ms, 0.0).sum()) / (at_ms - since_ms)
    arrived, left = (np.sort(times[times <= run.duration_ms])
                     for times in (run.arrival_ms, left_ms))
    moments = left[left > at_ms]  # the number of requests present falls only at these
    present = (np.searchsorted(arrived, moments, side="right")
               - np.searchsorted(left, moments, side="right"))
    back = np.flatnonzero(present <= usual)
    return float(moments[back[0]]) - at_ms if len(back) else None
