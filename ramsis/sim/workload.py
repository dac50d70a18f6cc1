"""Workloads: when requests arrive.

A workload is any object with

- ``duration_ms``: when arrivals stop,
- ``load_qps``: the mean load, or ``None`` where it is not known beforehand,
- ``varies``: whether the load changes over time, so that schedulers anticipate it by the monitor,
- ``arrivals_ms(rng)``: sorted arrival times in [0, duration_ms).

A closed loop is the exception: its requests arrive after others have been answered, so the plain
engine makes its arrivals.

A :class:`Burst` adds requests that all arrive at one moment, in the middle of the run. Let N(t) be
the number of requests in the system, from arrival until answer or drop, and n its mean over the
quarter of the run before the burst. The workers have recovered at the first moment after the burst
with N(t) <= n (:func:`recovery_ms`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import Sampler, check_amount
from ramsis.arrivals.registry import AnyArrivals, arrivals_of
from ramsis.errors import NON_NEGATIVE, POSITIVE, whole
from ramsis.reprs import dataclass
from ramsis.settings import Checked, setting
from ramsis.sim.run import Run

MOST_REQUESTS = 1_000_000  # of a burst, as many as fit into memory with their times


@runtime_checkable
class Workload(Protocol):
    """A source of requests whose arrival times are known beforehand."""

    @property
    def duration_ms(self) -> float:
        """Time after which no request arrives, in ms."""
        ...

    @property
    def load_qps(self) -> float | None:
        """Mean load in requests per second, where it is known."""
        ...

    @property
    def varies(self) -> bool:
        """Whether the load changes over time."""
        ...

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms, in [0, duration_ms)."""
        ...


@dataclass(frozen=True)
class ConstantLoad(Checked):
    """Constant load of any arrival process.

    Examples
    --------
    >>> load = ConstantLoad(load_qps=100.0, duration_ms=1000.0)
    >>> arrivals = load.arrivals_ms(np.random.default_rng(0))
    >>> bool((np.diff(arrivals) >= 0).all() and arrivals[-1] < 1000.0)
    True
    """

    load_qps: float = setting(help="Mean arrivals per second.", rule=POSITIVE)
    duration_ms: float = setting(rule=POSITIVE)
    # the process: as the command line names it (``renewal:2``), or a callable that makes the
    # process of a load, which has ``sample(duration_ms, rng)``
    arrivals: AnyArrivals = "poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "arrivals", arrivals_of(self.arrivals))
        _ = self.process

    @cached_property
    def process(self) -> Sampler:
        """Arrival process at this load."""
        return arrivals_of(self.arrivals).drawn(self.load_qps)

    @property
    def varies(self) -> bool:
        """Whether the load changes over time: it does not."""
        return False

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms."""
        check_amount(self.process.rate_per_ms * self.duration_ms)
        return self.process.sample(self.duration_ms, rng)


@dataclass(frozen=True)
class ClosedLoop(Checked):
    """Users who each wait for an answer, think, and ask again, until ``duration_ms``.

    All ask at time 0; a user whose request is dropped thinks and asks again, one who is never
    answered is lost.
    """

    users: int = setting(rule=whole(1)._replace(wrong="not a number of users"))
    think_ms: float = setting(rule=NON_NEGATIVE._replace(wrong="not a length of time"))
    duration_ms: float = setting(rule=POSITIVE)

    @property
    def load_qps(self) -> None:
        """Mean load: not known beforehand, as it depends on the answers."""

    @property
    def varies(self) -> bool:
        """Whether the load changes over time: it does, with the answers."""
        return True


@dataclass(frozen=True)
class Burst(Checked):
    """A workload with a burst in the middle that schedulers do not know of."""

    workload: Workload
    requests: int = setting(help="Requests that arrive at one moment.", rule=whole(
        1, MOST_REQUESTS)._replace(wrong="not a number of requests"))

    @property
    def duration_ms(self) -> float:
        """Time after which no request arrives, in ms."""
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
    """Return the ms from a burst at ``at_ms`` to recovery; None if the run has no recovery.

    Workers have recovered when no more requests are present than on average in the second half of
    the time before the burst.
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
