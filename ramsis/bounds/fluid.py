"""The fluid upper bound on effective accuracy: what no scheme can beat.

Let x_{m,b} be the rate of batches of size b on model m, over all (m, b) that can be in time,
accuracy(m) the reward of a query in time, λ the load and K the number of workers:

    max  Σ b·accuracy(m)·P(L <= SLO)·x_{m,b} / λ
    s.t. Σ E[L(m, b)]·x_{m,b} <= K        busy workers,
         Σ b·x_{m,b}          <= λ        queries.

*Service times fixed at l.* Then P is 1 for l(m, b) <= SLO, and it holds for every policy, those
that know all arrivals in advance too, as long as each query is answered once by one model, a
worker runs one batch at a time, none is aborted, batches reach no further than the table, and l
does not fall with b (a latency table sees to that by padding).

*Service times drawn.* It holds for policies that may know all arrivals, but no service time before
its end; L is independent of all else. Where E[L] falls with b, running b queries as a larger batch
is a column of its own.

It is a bound on the long-run average, and on a finite run of length T with n queries when λ is
n/(T + SLO): batches in time run within T + SLO. For drawn times it then bounds the expectation.
Queueing and the gathering of batches cost whatever is missing to it.

*Gathering windows* tighten it for Poisson arrivals and fixed service times. All b queries of a
batch that is in time arrived within SLO − l(m, b). So for any s and w, no more queries can be in
time in batches of at least s with SLO − l <= w than lie in some window of length w with s
arrivals:

    Σ_{b >= s, SLO − l(m,b) <= w} b·x_{m,b} / λ <= 1 − (1 − P(at least s − 1 arrivals in w))^s.

A query has s positions among s neighbours that fit into w, each with that probability; that none
of them fits are rising events of independent gaps, so at least as likely together as the product
of their probabilities (Harris' inequality). A batch that is in time for some of its queries only
counts as the smaller batch of these.

Dual prices say what the constraints are worth: one more worker, one more query per second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import pdtr

from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError, describe
from ramsis.profiles import LatencyTable

__all__ = ["FluidBound", "fluid_bound", "realised_bound"]

FloatArray = NDArray[np.float64]

LARGEST = 1e19
"""What the linear programs' solver still takes for a finite number."""


@dataclass(frozen=True, eq=False)
class FluidBound:
    """Solution of the fluid linear program.

    Attributes
    ----------
    effective_accuracy : float
        The bound, a fraction.
    served_fraction : float
        Share of the queries that the optimal mix answers in time; below 1 in overload, and
        where answering fewer of them more accurately is worth more.
    capacity_qps : float
        Largest load that can be answered in time, K·max b / l(m, b).
    worker_price : float
        Effective accuracy gained per additional worker, at the margin.
    query_price : float
        Effective accuracy summed over a second that one more query per second adds; 0 where
        it could not be answered.
    mix : ndarray, shape (M, B)
        Share of the queries that model m answers in batches of b = column + 1.
    """

    effective_accuracy: float
    served_fraction: float
    capacity_qps: float
    worker_price: float
    query_price: float
    mix: FloatArray


def fluid_bound(
    latency: LatencyTable | ServiceTimes,
    *,
    slo_ms: float,
    workers: int,
    load_qps: float,
    max_batch: int,
    gathering: bool = False,
) -> FluidBound:
    """Solve the fluid linear program.

    Parameters
    ----------
    latency : LatencyTable or ServiceTimes
        Service times, fixed or drawn.
    slo_ms : float
        > 0. A model that is slower at a batch of 1 takes no part.
    workers : int
        K >= 1.
    load_qps : float
        λ > 0, queries per second.
    max_batch : int
        Largest batch, at most the table's.
    gathering : bool
        Add the gathering windows of Poisson arrivals; service times must be fixed.

    Raises
    ------
    InvalidValueError
        A number out of range, or gathering windows with drawn times.
    InfeasibleError
        An SLO below every latency.
    NotConvergedError
        The linear program was not solved.
    """
    check_positive(slo_ms=slo_ms, workers=workers, load_qps=load_qps)
    if not 1 <= max_batch <= latency.max_batch:
        raise InvalidValueError(
            describe("largest batch out of range", where="max_batch", value=max_batch,
                     allowed=f"1 to {latency.max_batch}, the latency table's largest")
        )
    model, batch, busy_ms, in_time = columns(latency, slo_ms, max_batch)
    if not len(model):
        lowest = float(mean_times(latency)[:, 0].min())
        raise InfeasibleError(
            describe("SLO is below every latency", where="slo_ms", value=slo_ms,
                     allowed=f"at least {lowest:g} ms, the fastest model's batch of 1")
        )
    per_query_ms, reward = busy_ms / batch, latency.accuracy[model] * in_time
    # Unknowns are shares of the queries, or of what can be served where that is less (1/scale of
    # them), so that the program is of the size of 1 at any load.
    demand = float(per_query_ms.min()) * load_qps / 1000.0 / workers
    scale = max(1.0, demand)
    windows, most = np.empty((0, len(model))), np.empty(0)
    if gathering:
        if isinstance(latency, ServiceTimes) and latency.quantiles_ms.shape[2] > 1:
            raise InvalidValueError(describe("gathering windows need fixed service times",
                                             where="gathering", allowed="a latency statistic"))
        windows, most = _windows(batch, slo_ms - busy_ms, load_qps / 1000.0)
    found: Any = linprog(
        c=-reward,
        A_ub=np.vstack([per_query_ms / per_query_ms.min() * min(demand, 1.0),
                        np.ones(len(model)), windows]),
        b_ub=np.array([1.0, min(scale, LARGEST), *(most * min(scale, LARGEST))]),
        method="highs",
    )
    if not found.success:
        raise NotConvergedError(describe(f"fluid bound not found ({found.message})"))
    mix = np.zeros((len(latency.models), max_batch))
    np.add.at(mix, (model, batch - 1), found.x / scale)
    # No more than the best model's, which rounding could pass.
    effective = min(float(-found.fun / scale), float(reward.max()))
    worker_price = float(-found.ineqlin.marginals[0] / scale / workers)
    return FluidBound(
        effective_accuracy=effective,
        served_fraction=float(found.x @ in_time / scale),
        capacity_qps=float(1000.0 * workers * (batch / busy_ms).max()),
        worker_price=worker_price,
        query_price=0.0 if gathering else max(0.0, effective - worker_price * workers),
        mix=mix,
    )


def check_positive(**numbers: float) -> None:
    """Refuse what is not finite and > 0, by its name."""
    for name, value in numbers.items():
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(
                describe("not positive", where=name, value=value, allowed="a finite number > 0")
            )


def mean_times(latency: LatencyTable | ServiceTimes) -> FloatArray:
    """Mean service times in ms, shape (M, B)."""
    return latency.latency_ms if isinstance(latency, LatencyTable) else latency.mean_ms


def columns(
    latency: LatencyTable | ServiceTimes, slo_ms: float, max_batch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray, FloatArray]:
    """Model, queries, mean busy time and P(in time) of every batch that can be in time."""
    mean_ms = mean_times(latency)
    if isinstance(latency, LatencyTable):
        mean_ms = mean_ms[:, :max_batch]
        in_time = (mean_ms <= slo_ms).astype(float)
    else:
        in_time = latency.cdf(slo_ms)
    model, batch = np.nonzero((in_time > 0)[:, :max_batch])
    size, run = batch.copy(), batch.copy()
    for m, b in np.argwhere(mean_ms < np.maximum.accumulate(mean_ms, axis=1)).tolist():
        smaller = np.flatnonzero(mean_ms[m, :min(b, max_batch)] > mean_ms[m, b])
        model = np.append(model, np.full(len(smaller), m))
        size, run = np.append(size, smaller), np.append(run, np.full(len(smaller), b))
    return model, size + 1, mean_ms[model, run], in_time[model, run]


def _windows(
    batch: NDArray[np.int64], window_ms: FloatArray, load: float
) -> tuple[FloatArray, FloatArray]:
    """Rows and right-hand sides of the gathering windows that can bind."""
    rows, most = [], []
    for width in np.unique(window_ms):
        for size in np.unique(batch[window_ms <= width]):
            share = 1.0 - float(pdtr(size - 2, load * width)) ** size
            if size > 1 and 0.0 <= share < 1.0:
                rows.append(((batch >= size) & (window_ms <= width)).astype(float))
                most.append(share)
    return np.array(rows).reshape(-1, len(batch)), np.array(most)


def realised_bound(
    latency: LatencyTable | ServiceTimes, *, slo_ms: float, workers: int, max_batch: int,
    duration_ms: float, counts: Sequence[int],
) -> float | None:
    """What no scheme can beat on finite traces: the mean of their fluid bounds.

    A trace of n queries in T ms is served with the capacity of K·(T + SLO), hence like a load of
    n / (T + SLO). None where a trace has no queries.

    Parameters
    ----------
    latency, slo_ms, workers, max_batch
        As for :func:`fluid_bound`.
    duration_ms : float
        T, until arrivals stop.
    counts : sequence of int
        n of each trace.
    """
    if not all(counts):
        return None
    seconds = (duration_ms + slo_ms) / 1000.0
    bounds = [fluid_bound(latency, slo_ms=slo_ms, workers=workers, load_qps=count / seconds,
                          max_batch=max_batch).effective_accuracy for count in counts]
    return sum(bounds) / len(bounds)
