"""Protocols of arrival processes, and the base class of the built-in ones.

A process has a rate, and one or both of two capabilities:

- *counts*: PF(k, T), the probability that k requests reach the central controller in an interval
  of T ms (EuroSys '24, §4.2), for stationary, independent increments. Policies are made for such
  processes. Probabilities are logarithms, so that K = 1000 workers and λT = 1e5 do not underflow.
- *samples*: arrival times are drawn. Such processes are simulated.

Users may define a process: any object with ``rate_per_ms``, and ``log_pf`` or ``sample``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import InvalidValueError, Rule, check_not_negative, check_positive
from ramsis.memory import check_memory

MAX_ARRIVALS = 500_000_000
"""Most arrivals of a run."""
_BYTES_EACH = 64.0  # memory per request of a compiled run, the smallest of all engines

_BATCHED = 1e-3  # P(2 in h) / P(1 in h) above which arrivals are batched; Poisson: 5e-7


class ProcessWithRate(Protocol):
    """Arrival process with a mean rate; the part that all processes have."""

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond, > 0."""
        ...


@runtime_checkable
class ArrivalProcess(ProcessWithRate, Protocol):
    """Process with stationary, independent increments, for which policies can be made.

    Three methods are optional. :mod:`ramsis.arrivals.counts` is faster with ``integrated_tail``
    (a closed form) and ``count_probabilities`` (PF for all small counts). ``describe`` returns
    the process's entry of a policy file.
    """

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return log PF(k, T), broadcast over both arguments.

        Parameters
        ----------
        count : array of whole numbers >= 0
        interval_ms : array of lengths >= 0 in ms; PF(0, 0) = 1
        """
        ...


@runtime_checkable
class Sampler(ProcessWithRate, Protocol):
    """Process whose arrival times can be sampled, for simulations."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sample non-decreasing arrival times in ms within [0, duration_ms)."""
        ...


@dataclass(frozen=True)
class Parameter:
    """Parameter of a built-in arrival process, besides its load."""

    name: str  # in Python and in policy files; ends in its unit, such as ``burst_ms``
    symbol: str  # placeholder of its value in help texts
    meaning: str  # short description for messages
    rule: Rule  # allowed range

    @property
    def word(self) -> str:
        """Name of the parameter on the command line, with hyphens."""
        return self.name.replace("_", "-")


class ShippedProcess:
    """Base class of built-in arrival processes: name, parameters and their validation.

    A subclass is a frozen dataclass with the fields ``load_qps`` and its parameters, in the order
    of ``parameters``. It has ``log_pf``, ``sample`` or both.
    """

    name: ClassVar[str]  # on the command line and in policy files
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    # reason for having no ``log_pf``, for messages
    why_no_counts: ClassVar[str] = ""
    load_qps: float  # mean requests per second

    def __post_init__(self) -> None:
        check_positive("load is not positive", load_qps=self.load_qps)
        for parameter in self.parameters:
            parameter.rule.required(f"arrivals {self.name}", getattr(self, parameter.name),
                                    f"{parameter.meaning} out of range")

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        return self.load_qps / 1000.0

    @property
    def poisson_rate_per_ms(self) -> float | None:
        """Rate per ms of a Poisson process, which has faster compiled loops; else None."""
        return None

    @property
    def gap_cv(self) -> float | None:
        """Coefficient of variation of the gaps; None if they are not independent."""
        return None

    def simplest(self) -> ShippedProcess:
        """Return the process itself, or the same process as an object of a simpler class."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return name and parameters of the process for a policy file, without the load."""
        same = self.simplest()
        return {"process": same.name,
                **{parameter.name: float(getattr(same, parameter.name))
                   for parameter in same.parameters}}

    @classmethod
    def pattern(cls) -> str:
        """Return the syntax of ``--arrivals`` for help texts, such as ``negative-binomial:I``."""
        if len(cls.parameters) == 1:
            return f"{cls.name}:{cls.parameters[0].symbol}"
        words = ",".join(f"{parameter.word}={parameter.symbol}" for parameter in cls.parameters)
        return f"{cls.name}:{words}" if words else cls.name


def is_orderly(process: ArrivalProcess) -> bool:
    """Return whether requests arrive one at a time: P(2 in h) / P(1 in h) → 0 as h → 0.

    A process with stationary, independent increments is either Poisson or arrives in batches,
    several requests at one instant.

    >>> from ramsis.arrivals import Poisson
    >>> is_orderly(Poisson(100.0))
    True
    """
    instant = np.array([1e-6 / process.rate_per_ms])
    single, two = process.log_pf(np.array([1, 2]), instant)
    return bool(two - single < math.log(_BATCHED))


def poisson_rate(process: ArrivalProcess) -> float | None:
    """Return the rate per ms of a Poisson process, for compiled loops; None for any other."""
    rate: float | None = getattr(process, "poisson_rate_per_ms", None)
    return rate


def poisson_instants(
    rate_per_ms: float, duration_ms: float, rng: np.random.Generator
) -> FloatArray:
    """Sample sorted instants of a Poisson process within [0, duration_ms)."""
    check_sample(rate_per_ms, duration_ms)
    count = rng.poisson(rate_per_ms * duration_ms)
    return np.sort(rng.uniform(0.0, duration_ms, size=count))


def renewal_times(
    rng: np.random.Generator, rate_per_ms: float, duration_ms: float, cv: float
) -> FloatArray:
    """Sample times in [0, duration_ms) with independent gamma gaps, the first gap included.

    Parameters
    ----------
    rate_per_ms : float
        Inverse of the mean gap. A rate of 0, to which tiny loads underflow, has no arrivals.
    cv : float
        Standard deviation over mean of a gap, > 0; exponential gaps at 1.
    """
    check_sample(rate_per_ms, duration_ms)
    if rate_per_ms == 0.0:
        return np.empty(0)
    shape = cv**-2.0
    pieces, reached = [np.empty(0)], 0.0
    mean = rate_per_ms * duration_ms
    while reached < duration_ms:
        count = int(mean + 6.0 * max(cv, 1.0) * math.sqrt(mean + 1.0)) + 8
        if cv == 1.0:
            gaps = rng.standard_exponential(count)  # same numbers as rng.gamma, but faster
            gaps *= 1.0 / rate_per_ms
        else:
            gaps = rng.gamma(shape, 1.0 / (rate_per_ms * shape), count)
        times = np.cumsum(gaps, out=gaps)
        if reached:
            times += reached
        pieces.append(times)
        reached = float(times[-1])
        mean = rate_per_ms * max(duration_ms - reached, 0.0)
    times = pieces[-1] if len(pieces) <= 2 else np.concatenate(pieces)
    return times[: int(np.searchsorted(times, duration_ms))]


def check_amount(
    arrivals: float, *, where: str = "workload", bytes_each: float = _BYTES_EACH
) -> None:
    """Refuse more arrivals than a run can hold.

    Parameters
    ----------
    where : str
        Option or field that sets their number, for messages.
    bytes_each : float
        Memory of the run per arrival.
    """
    if not arrivals <= MAX_ARRIVALS:
        raise InvalidValueError("too many arrivals for one run", where=where,
                                value=f"{arrivals:.3g}", allowed=f"at most {MAX_ARRIVALS}")
    check_memory("arrivals for one run", where, arrivals, bytes_each)


def check_sample(rate_per_ms: float, duration_ms: float) -> None:
    """Refuse an invalid duration, and more arrivals than :func:`check_amount` allows."""
    check_not_negative("not a duration", duration_ms=duration_ms)
    check_amount(rate_per_ms * duration_ms)
