"""Workloads: when queries arrive.

A workload is any object with

- ``duration_ms``: when arrivals stop,
- ``load_qps``: the mean load, or ``None`` where it is not known beforehand,
- ``varies``: whether the load changes over time, so that schemes anticipate it by the monitor,
- ``arrivals_ms(rng)``: sorted arrival times in [0, duration_ms).

A closed loop is the exception: when its queries arrive depends on when they are answered, so the
plain engine makes its arrivals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, check_number_of, check_positive, describe

__all__ = ["MAX_ARRIVALS", "ClosedLoop", "FixedRate", "PoissonLoad", "Renewal", "Sampled",
           "Sampler", "Workload", "check_amount", "renewal"]

FloatArray = NDArray[np.float64]

MAX_ARRIVALS = 500_000_000
"""Most arrivals that one run is asked for."""


@runtime_checkable
class Workload(Protocol):
    """See the module's description."""

    @property
    def duration_ms(self) -> float:
        """When arrivals stop."""
        ...

    @property
    def load_qps(self) -> float | None:
        """Mean load in queries per second, where it is known."""
        ...

    @property
    def varies(self) -> bool:
        """Whether the load changes over time."""
        ...

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sorted arrival times in ms, in [0, duration_ms)."""
        ...


@dataclass(frozen=True)
class _Constant:
    """A constant load.

    Parameters
    ----------
    load_qps : float
        Mean arrivals per second, finite and > 0.
    duration_ms : float
        Finite and > 0.

    Raises
    ------
    InvalidValueError
        A number out of range.
    """

    load_qps: float
    duration_ms: float

    def __post_init__(self) -> None:
        check_positive(load_qps=self.load_qps)
        check_positive(duration_ms=self.duration_ms)

    @property
    def varies(self) -> bool:
        """A constant load does not."""
        return False


@dataclass(frozen=True)
class PoissonLoad(_Constant):
    """Poisson arrivals of constant load.

    >>> arrivals = PoissonLoad(load_qps=100.0, duration_ms=1000.0).arrivals_ms(
    ...     np.random.default_rng(0))
    >>> bool((np.diff(arrivals) >= 0).all() and arrivals[-1] < 1000.0)
    True
    """

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sorted arrival times in ms."""
        return renewal(rng, self.load_qps / 1000.0, self.duration_ms, 1.0)


@dataclass(frozen=True)
class FixedRate(_Constant):
    """One query every 1000 / load_qps ms, the first at 0."""

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Arrival times in ms."""
        check_amount(self.load_qps / 1000.0 * self.duration_ms)
        gap_ms = 1000.0 / self.load_qps
        times: FloatArray = np.arange(float(math.ceil(self.duration_ms / gap_ms))) * gap_ms
        return times[times < self.duration_ms]


@dataclass(frozen=True)
class Renewal(_Constant):
    """Independent gamma-distributed gaps with a given coefficient of variation.

    Parameters
    ----------
    cv : float
        Standard deviation of a gap over its mean, > 0; 1 is Poisson. The first gap is one like
        the others.
    """

    cv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(cv=self.cv)

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sorted arrival times in ms."""
        return renewal(rng, self.load_qps / 1000.0, self.duration_ms, self.cv)


class Sampler(Protocol):
    """An arrival process that can be drawn from."""

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        ...

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sorted arrival times in [0, duration_ms)."""
        ...


@dataclass(frozen=True)
class Sampled:
    """Arrivals of a process of :mod:`ramsis.arrivals` that has ``sample``."""

    process: Sampler
    duration_ms: float

    def __post_init__(self) -> None:
        check_positive(duration_ms=self.duration_ms)

    @property
    def load_qps(self) -> float:
        """Mean load."""
        return 1000.0 * self.process.rate_per_ms

    @property
    def varies(self) -> bool:
        """A stationary process does not."""
        return False

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sorted arrival times in ms."""
        check_amount(self.process.rate_per_ms * self.duration_ms)
        return self.process.sample(self.duration_ms, rng)


@dataclass(frozen=True)
class ClosedLoop:
    """Users who each wait for an answer, think, and ask again, until ``duration_ms``.

    All ask at time 0; a user whose query is dropped thinks and asks again, one who is never
    answered is lost.

    Parameters
    ----------
    users : int
        >= 1.
    think_ms : float
        >= 0.
    duration_ms : float
        > 0.

    Raises
    ------
    InvalidValueError
        A number out of range.
    """

    users: int
    think_ms: float
    duration_ms: float

    def __post_init__(self) -> None:
        check_number_of("users", self.users)
        if not (math.isfinite(self.think_ms) and self.think_ms >= 0):
            raise InvalidValueError(describe("not a length of time", where="think_ms",
                                             value=self.think_ms,
                                             allowed="a finite number >= 0"))
        check_positive(duration_ms=self.duration_ms)

    @property
    def load_qps(self) -> None:
        """Depends on the answers."""

    @property
    def varies(self) -> bool:
        """With the answers."""
        return True


def renewal(
    rng: np.random.Generator, rate: float, length: float, cv: float
) -> FloatArray:
    """Renewal times in [0, length), with gamma gaps of mean 1/rate, the first one included."""
    check_amount(rate * length)
    shape = cv**-2.0
    pieces, reached = [], 0.0
    mean = rate * length
    while reached < length:
        count = int(mean + 6.0 * max(cv, 1.0) * math.sqrt(mean + 1.0)) + 8
        gaps = (rng.exponential(1.0 / rate, count) if cv == 1.0
                else rng.gamma(shape, 1.0 / (rate * shape), count))
        times = np.cumsum(gaps)
        times += reached
        pieces.append(times)
        reached = float(times[-1])
        mean = rate * max(length - reached, 0.0)
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return whole[: int(np.searchsorted(whole, length))]


def check_amount(arrivals: float) -> None:
    """Refuse more arrivals than a run can hold."""
    if not arrivals <= MAX_ARRIVALS:
        raise InvalidValueError(describe("too many arrivals for one run", where="workload",
                                         value=f"{arrivals:.3g}",
                                         allowed=f"at most {MAX_ARRIVALS}"))
