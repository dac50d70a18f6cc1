"""Requests that arrive at one instant, and what they do to the round robin.

A process with independent increments that is not Poisson arrives in clumps. With f the law of a
clump's size X (the limit of PF(k, h)/P(N(h) >= 1) for short h), two things follow.

*The end of the empty epoch.* Let d central arrivals be missing to the worker's next one. Clumps
come until one of them passes d; with u(a) the probability that some number of clumps makes up
exactly a arrivals, c arrivals of the last clump come after the worker's with the probability
Σ_{a<d} u(a)·f(d + c − a), and n' = 1 + ⌊c/K⌋ requests are queued at slack SLO.

*The phase.* The worker's first request of a clump has c arrivals of that clump behind it, with
the law o(c) ∝ P(c < X <= c + K): its place in the clump is any of the first K alike. So the
central arrivals since the earliest request are c and those of the time since.

The first is exact, given d. The second takes the place in the clump as it is for the worker's
clumps on average, whatever else the state tells of it. For orderly arrivals f(1) = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.errors import InvalidValueError, describe

if TYPE_CHECKING:
    from ramsis.worker.problem import WorkerProblem

__all__ = ["Landing", "clump_law", "landing", "own_overshoot"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_INSTANT = 1e-9  # mean arrivals of an interval short enough to hold one clump
_NEGLIGIBLE = 1e-15
_LARGEST = 1_000_000


@dataclass(frozen=True, eq=False)
class Landing:
    """The queue that ends an empty epoch.

    Attributes
    ----------
    queued : ndarray of int, shape (L,)
        The numbers n' of requests that may come at once.
    law : ndarray, shape (K, L)
        ``law[d-1, i]`` = P(queued[i] requests | d central arrivals missing at its start).
    """

    queued: IntArray
    law: FloatArray

    def after(self, before: FloatArray) -> FloatArray:
        """The landing's law for each r, shape (L, K), where no new request comes in a service.

        Parameters
        ----------
        before : ndarray, shape (K,)
            P(a central arrivals in the service), a = 0 … K−1.
        """
        workers = len(before)
        return np.array([np.convolve(before, column)[:workers] for column in self.law.T])


def clump_law(process: ArrivalProcess) -> FloatArray:
    """P(X = 0, 1, 2, …) of the number of requests at an instant of arrival.

    Raises
    ------
    InvalidValueError
        When a clump may be larger than a million requests.
    """
    if is_orderly(process):
        return np.array([0.0, 1.0])
    instant = np.array([_INSTANT / process.rate_per_ms])
    some = -np.expm1(process.log_pf(np.array([0]), instant))
    size = 64
    while size <= _LARGEST:
        law = np.exp(process.log_pf(np.arange(size + 1), instant)) / some
        law[0] = 0.0
        tail = np.cumsum(law[::-1])[::-1]
        if tail[size // 2] < _NEGLIGIBLE:
            law = law[: int(np.count_nonzero(tail > _NEGLIGIBLE))]
            return np.asarray(law / law.sum())
        size *= 2
    raise InvalidValueError(
        describe("requests arrive in clumps that are too large", where="arrivals",
                 allowed=f"clumps of at most {_LARGEST} requests")
    )


def own_overshoot(law: FloatArray, workers: int) -> FloatArray:
    """o(c): arrivals of its clump behind the worker's first request of it; adds up to 1."""
    beyond = _beyond(law)
    place = np.append(beyond, np.zeros(workers))
    weight = beyond[:-1] - place[workers : workers + len(beyond) - 1]
    return np.asarray(weight / weight.sum())


def landing(problem: WorkerProblem) -> Landing:
    """How an empty epoch ends."""
    law, workers = clump_law(problem.arrivals), problem.workers
    reach = np.zeros(workers)  # u(a)
    reach[0] = 1.0
    for a in range(1, workers):
        size = min(a, len(law) - 1)
        reach[a] = law[1 : size + 1] @ reach[a - size : a][::-1]
    most = 1 + (len(law) - 2) // workers
    beyond = np.append(_beyond(law), np.zeros(most * workers + 1))
    lowest = np.arange(workers)  # d − 1
    columns = []
    for n in range(most):
        start = lowest + n * workers
        end = np.minimum(start + workers, len(beyond) - 1)
        columns.append(np.convolve(reach, beyond[start] - beyond[end])[:workers])
    full = np.maximum(np.array(columns).T, 0.0)
    kept = np.flatnonzero(full.max(axis=0) > _NEGLIGIBLE)
    return Landing(1 + kept, full[:, kept])


def _beyond(law: FloatArray) -> FloatArray:
    """P(X > y) for y = 0 … the largest clump."""
    return np.append(np.cumsum(law[::-1])[::-1][1:], 0.0)
