"""The fluid upper bound on effective accuracy: what no scheme can beat.

Let x_{m,b} be the rate of batches of size b on model m, over all (m, b) with l(m, b) <= SLO,
accuracy(m) the reward of a query in time, λ the load and K the number of workers:

    max  Σ b·accuracy(m)·x_{m,b} / λ
    s.t. Σ l(m, b)·x_{m,b} <= K        busy workers,
         Σ b·x_{m,b}       <= λ        queries.

With service times fixed at l it holds for every policy, those that know all arrivals in advance
too, as long as each query is answered once by one model, a worker runs one batch at a time, none
is aborted, batches reach no further than the table, and l does not fall with b (a latency table
sees to that by padding). It is a bound on the long-run average: queueing and the gathering of
batches cost whatever is missing to it.

The dual price of the first constraint says what one more worker is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError, describe
from ramsis.profiles import LatencyTable

__all__ = ["FluidBound", "fluid_bound"]

FloatArray = NDArray[np.float64]

_LARGEST = 1e19  # what HiGHS still takes for a finite number

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
    mix : ndarray, shape (M, B)
        Share of the queries that model m answers in batches of b = column + 1.
    """

    effective_accuracy: float
    served_fraction: float
    capacity_qps: float
    worker_price: float
    mix: FloatArray


def fluid_bound(
    latency: LatencyTable, *, slo_ms: float, workers: int, load_qps: float, max_batch: int
) -> FluidBound:
    """Solve the fluid linear program.

    Parameters
    ----------
    latency : LatencyTable
    slo_ms : float
        > 0. A model that is slower at a batch of 1 takes no part.
    workers : int
        K >= 1.
    load_qps : float
        λ > 0, queries per second.
    max_batch : int
        Largest batch, at most the table's.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency.
    NotConvergedError
        The linear program was not solved.
    """
    for name, value in (("slo_ms", slo_ms), ("workers", workers), ("load_qps", load_qps)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(
                describe("not positive", where=name, value=value, allowed="a finite number > 0")
            )
    if not 1 <= max_batch <= latency.max_batch:
        raise InvalidValueError(
            describe("largest batch out of range", where="max_batch", value=max_batch,
                     allowed=f"1 to {latency.max_batch}, the latency table's largest")
        )
    service_ms = latency.latency_ms[:, :max_batch]
    model, column = np.nonzero(service_ms <= slo_ms)
    if not len(model):
        lowest = float(service_ms[:, 0].min())
        raise InfeasibleError(
            describe("SLO is below every latency", where="slo_ms", value=slo_ms,
                     allowed=f"at least {lowest:g} ms, the fastest model's batch of 1")
        )
    batch, busy_ms = column + 1.0, service_ms[model, column]
    per_query_ms = busy_ms / batch
    # Unknowns are shares of the queries, or of what can be served where that is less (1/scale of
    # them), so that the program is of the size of 1 at any load.
    demand = float(per_query_ms.min()) * load_qps / 1000.0 / workers
    scale = max(1.0, demand)
    found: Any = linprog(
        c=-latency.accuracy[model],
        A_ub=np.vstack([per_query_ms / per_query_ms.min() * min(demand, 1.0),
                        np.ones(len(model))]),
        b_ub=np.array([1.0, min(scale, _LARGEST)]),
        method="highs",
    )
    if not found.success:
        raise NotConvergedError(describe(f"fluid bound not found ({found.message})"))
    mix = np.zeros((len(latency.models), max_batch))
    mix[model, column] = found.x / scale
    return FluidBound(
        # No more than the best model's, which rounding could pass.
        effective_accuracy=min(float(-found.fun / scale), float(latency.accuracy[model].max())),
        served_fraction=float(mix.sum()),
        capacity_qps=float(1000.0 * workers * (batch / busy_ms).max()),
        worker_price=float(-found.ineqlin.marginals[0] / scale / workers),
        mix=mix,
    )
