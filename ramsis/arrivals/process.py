"""Protocols of arrival processes, the base class of the built-in ones, and tails of counts.

A process has a rate, and one or both of two capabilities:

- *counts*: PF(k, T), the probability that k requests reach the central controller in an interval
  of T ms (EuroSys '24, §4.2), for stationary, independent increments. Policies are made for such
  processes. Probabilities are logarithms, so that K = 1000 workers and λT = 1e5 do not underflow.
- *samples*: arrival times are drawn. Such processes are simulated.

Users may define a process: any object with ``rate_per_ms``, and ``log_pf`` or ``sample``.

Tail probabilities follow from PF for any such process:

    tail(r, T)            = P(N(T) >= r) = 1 − Σ_{k<r} PF(k, T)
    integrated_tail(r, T) = ∫₀ᵀ P(N(s) >= r) ds

With U_r the time of the r-th arrival, P(U_r <= T) = tail(r, T). Together the two give the
probability that U_r lies in an interval, and its mean there:

    E[U_r; a < U_r <= b] = b·tail(r, b) − a·tail(r, a) − (integrated_tail(r, b) − … (r, a)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import InvalidValueError, Rule, check_not_negative, check_positive
from ramsis.memory import check_memory

_QUADRATURE_POINTS = 5
_MOST_COUNTS = 1_000_000
_TOTAL_TOLERANCE = 1e-6

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

    Three methods are optional. The functions of this module are faster with ``integrated_tail``
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
        return cls.written({parameter.name: parameter.symbol for parameter in cls.parameters})

    @classmethod
    def written(cls, values: Mapping[str, str]) -> str:
        """Return the text of ``--arrivals`` for the text of each parameter's value."""
        if len(cls.parameters) == 1:
            return f"{cls.name}:{values[cls.parameters[0].name]}"
        words = ",".join(f"{parameter.word}={values[parameter.name]}"
                         for parameter in cls.parameters)
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

    ``rate_per_ms`` is the inverse of the mean gap; a rate of 0, to which tiny loads underflow, has
    no arrivals. ``cv`` is the standard deviation over the mean of a gap, > 0; gaps are exponential
    at 1.
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
    """Refuse more arrivals than a run can hold, each of which takes ``bytes_each`` of memory.

    Messages call the option or field that sets their number ``where``.
    """
    if not arrivals <= MAX_ARRIVALS:
        raise InvalidValueError("too many arrivals for one run", where=where,
                                value=f"{arrivals:.3g}", allowed=f"at most {MAX_ARRIVALS}")
    check_memory("arrivals for one run", where, arrivals, bytes_each)


def check_sample(rate_per_ms: float, duration_ms: float) -> None:
    """Refuse an invalid duration, and more arrivals than :func:`check_amount` allows."""
    check_not_negative("not a duration", duration_ms=duration_ms)
    check_amount(rate_per_ms * duration_ms)


def count_probabilities(
    process: ArrivalProcess, counts: int, interval_ms: FloatArray
) -> FloatArray:
    """Return PF(k, T) for k = 0 … counts − 1; shape (len(interval_ms), counts)."""
    closed_form = getattr(process, "count_probabilities", None)
    if callable(closed_form):
        return np.asarray(closed_form(counts, interval_ms))
    return np.exp(process.log_pf(np.arange(counts), interval_ms[:, None]))


def count_tail(process: ArrivalProcess, orders: int, interval_ms: FloatArray) -> FloatArray:
    """Return P(N(T) >= r) for r = 1 … orders; shape (len(interval_ms), orders)."""
    probability = count_probabilities(process, orders, interval_ms)
    np.cumsum(probability, axis=1, out=probability)
    np.subtract(1.0, probability, out=probability)
    return np.maximum(probability, 0.0, out=probability)


def passage_tails(
    process: ArrivalProcess, orders: int, interval_ms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return P(U_r <= T) and ∫₀ᵀ P(U_r <= s) ds for r = 1 … orders.

    U_r is the time of the r-th arrival. The integrals are in ms.

    Parameters
    ----------
    orders : int
        Largest r.
    interval_ms : ndarray, shape (T,)
        Lengths in ms, >= 0, non-increasing.

    Returns
    -------
    tail, integral : ndarrays, shape (T, orders)

    Notes
    -----
    A process with a closed form gives the integral through its ``integrated_tail``; for any
    other it is summed by Gauss-Legendre quadrature between neighbouring lengths.
    """
    closed_form = getattr(process, "integrated_tail", None)
    tail = count_tail(process, orders + 1, interval_ms)
    np.minimum.accumulate(tail, axis=0, out=tail)  # remove increases by rounding
    if callable(closed_form):
        return tail[:, :-1], closed_form(tail, interval_ms)
    tail = tail[:, :-1]
    point, weight = np.polynomial.legendre.leggauss(_QUADRATURE_POINTS)
    low = np.append(interval_ms[1:], 0.0)
    width = interval_ms - low
    inner = low[:, None] + width[:, None] * (point + 1.0) / 2.0
    value = count_tail(process, orders, inner.ravel()).reshape(*inner.shape, orders)
    piece = np.einsum("q,tqr->tr", weight / 2.0, value) * width[:, None]
    return tail, np.cumsum(piece[::-1], axis=0)[::-1]


def counts_support(process: ArrivalProcess, longest_ms: float) -> int:
    """Return a count k with P(N(T) > k) below about 1e-18 for every T up to ``longest_ms``."""
    length = np.array([longest_ms])
    size = 16 + int(1.25 * process.rate_per_ms * longest_ms)
    most = 4 * size + _MOST_COUNTS
    while True:
        log_probability = process.log_pf(np.arange(size + 1), length)
        total = float(np.exp(log_probability).sum())
        # Test several last counts at once, as single ones may be impossible (arrivals in pairs).
        if abs(total - 1.0) < _TOTAL_TOLERANCE and log_probability[-16:].max() < -42.0:
            return size
        if size > most:
            break
        size += 16 + size // 4
    raise InvalidValueError("PF(k, T) does not add up to 1 over k",
                            where=f"arrivals, T = {longest_ms:g} ms", value=total,
                            allowed=f"1 within {_TOTAL_TOLERANCE:g}")


def counts_cdf(process: ArrivalProcess, interval_ms: FloatArray, largest: int) -> FloatArray:
    """Return P(N(T) <= k) for k = 0 … largest; shape (len(interval_ms), largest + 1).

    Each row is scaled to end at 1: the distribution given at most ``largest`` arrivals.
    """
    cdf = count_probabilities(process, largest + 1, interval_ms)
    np.cumsum(cdf, axis=1, out=cdf)
    cdf /= cdf[:, -1:]
    return cdf
