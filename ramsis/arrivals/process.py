"""What the MDP needs to know of the arrivals, and the Poisson process.

An arrival process is described by PF(k, T), the probability that k requests reach the central
controller in an interval of T ms (EuroSys '24, §4.2). The counts of disjoint intervals are
independent and their law depends on the length alone. Everything works in log space, so that
K = 1000 workers and λT = 1e5 lose nothing to underflow.

A class of one's own plugs in: any object with ``rate_per_ms`` and ``log_pf`` will do.

>>> process = Poisson(load_qps=2000.0)
>>> round(float(np.exp(process.log_pf(np.array([3]), np.array([1.0]))[0])), 6)
0.180447
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ramsis.arrivals.sampling import poisson_instants
from ramsis.errors import InvalidValueError, describe

__all__ = [
    "ArrivalProcess",
    "Poisson",
    "ProcessFactory",
    "check_load",
    "is_orderly",
]

FloatArray = NDArray[np.float64]

_CLUMPED = 1e-3  # share of pairs among the arrivals of an instant; a Poisson process has 5e-7


@runtime_checkable
class ArrivalProcess(Protocol):
    """Counts with stationary, independent increments.

    Three optional methods: ``integrated_tail`` (see :mod:`ramsis.arrivals.counts`) gives a closed
    form where there is one, ``describe`` what a policy file says of the process, and ``sample``
    draws arrival times.
    """

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond, > 0."""
        ...

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Natural logarithm of PF(k, T), of the broadcast shape of both arguments.

        Parameters
        ----------
        count : array of whole numbers >= 0
        interval_ms : array of lengths >= 0 in ms; PF(0, 0) = 1
        """
        ...


ProcessFactory = Callable[[float], ArrivalProcess]
"""Makes the process of a load in queries per second."""


@dataclass(frozen=True)
class Poisson:
    """The Poisson process of a given load.

    Parameters
    ----------
    load_qps : float
        Queries per second, finite and > 0.

    Raises
    ------
    InvalidValueError
        When the load is not a finite number > 0.
    """

    load_qps: float

    def __post_init__(self) -> None:
        check_load(self.load_qps)

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        return self.load_qps / 1000.0

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Log PF(k, T) = k log(λT) − λT − log k!, within 1e-9 of the truth up to λT = 1e5."""
        # Logarithms of each argument by itself, before broadcasting makes them many.
        counts = np.asarray(count, dtype=float)
        mean = self.rate_per_ms * np.asarray(interval_ms, dtype=float)
        log_mean = np.log(np.where(mean > 0, mean, 1.0))
        result: FloatArray = counts * log_mean
        result -= mean
        result -= gammaln(counts + 1.0)
        if not mean.all():
            np.copyto(result, np.where(counts == 0, 0.0, -np.inf), where=mean == 0)
        return result

    def integrated_tail(self, tail: FloatArray, interval_ms: FloatArray) -> FloatArray:
        """∫₀ᵀ P(N(s) >= r) ds = T·P(N(T) >= r) − (r/λ)·P(N(T) >= r+1), for r = 1 … R.

        Parameters
        ----------
        tail : ndarray, shape (T, R+1)
            ``tail[i, r-1]`` = P(N(interval_ms[i]) >= r).
        interval_ms : ndarray, shape (T,)

        Returns
        -------
        ndarray, shape (T, R), in ms
        """
        order = np.arange(1, tail.shape[1])
        result: FloatArray = (
            interval_ms[:, None] * tail[:, :-1] - order / self.rate_per_ms * tail[:, 1:]
        )
        return result

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Arrival times in ms within ``duration_ms``, rising."""
        return poisson_instants(self.rate_per_ms, duration_ms, rng)

    def describe(self) -> dict[str, Any]:
        """What a policy file says of the process."""
        return {"process": "poisson"}


def check_load(load_qps: float) -> None:
    """Refuse a load that is not a finite number > 0."""
    if not (math.isfinite(load_qps) and load_qps > 0):
        raise InvalidValueError(
            describe("load is not positive", where="load_qps", value=load_qps,
                     allowed="a finite number > 0 (queries per second)")
        )


def is_orderly(process: ArrivalProcess) -> bool:
    """Whether requests arrive one at a time: P(2 in h) / P(1 in h) → 0 as h → 0.

    A process with stationary, independent increments is either Poisson or arrives in clumps,
    several requests at one instant.

    >>> is_orderly(Poisson(100.0))
    True
    """
    instant = np.array([1e-6 / process.rate_per_ms])
    one, two = process.log_pf(np.array([1, 2]), instant)
    return bool(two - one < math.log(_CLUMPED))
