"""Sampling of arrival times of Poisson and renewal processes, and limits on their number."""

from __future__ import annotations

import math

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import InvalidValueError, check_not_negative
from ramsis.memory import check_memory

MAX_ARRIVALS = 500_000_000
"""Most arrivals of a run."""
_BYTES_EACH = 64.0  # memory per request of a compiled run, the smallest of all engines


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
