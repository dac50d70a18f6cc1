"""What no plan can pass: an upper bound on requests in time, by work on the GPUs.

Under interference that saturates, batches on a GPU together do no more work than it has
multiprocessors: a batch of n requests of model m on type t takes e · l = u_mt(n) l_mt(n) of it, so
a request takes at least

    w_mt = min { u_mt(n) l_mt(n) / n :  n up to the largest batch,  l_mt(n) <= SLO_m }.

All that is in time is done between the first arrival and the last deadline. With x_mt requests of
m per second on type t,

    max Σ x_mt    with  Σ_t x_mt <= rate_m,   Σ_m w_mt x_mt <= GPUs_t (1 + max_m SLO_m / duration).

Shares do not help where no exponent is below 1. Interference that does not saturate lets any
number of batches run at once, and the bound is the load of the models that have a batch within
their SLO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ramsis.cluster.interference import Interference
from ramsis.cluster.shared_gpu import Gpu, SharedModel
from ramsis.profiles.sharing import between


def goodput_bound_rps(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], interference: Interference, *,
    duration_s: float,
) -> float:
    """Requests per second that any plan answers in time, at most.

    Parameters
    ----------
    models : sequence of SharedModel
    gpus : sequence of Gpu
    interference : Interference
    duration_s : float
        Of the arrivals.
    """
    kinds = Counter(gpu.gpu_type for gpu in gpus)
    works = [[work_ms(model, kind) for kind in kinds] for model in models]
    exponents = [interference.share_exponent, *interference.exponents.values()]
    if not interference.saturates or min(exponents) < 1:
        return math.fsum(model.rate_rps for model, row in zip(models, works, strict=True)
                         if min(row) < math.inf)
    longer = 1.0 + max(model.slo_ms for model in models) / (1000.0 * duration_s)
    from scipy.optimize import linprog  # here, as it takes long to load

    work = np.array(works) / 1000.0
    possible = np.isfinite(work)
    shape = work.shape
    by_model = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    by_type = np.zeros((shape[1], shape[0] * shape[1]))
    for t in range(shape[1]):
        by_type[t, t::shape[1]] = np.where(possible[:, t], work[:, t], 0.0)
    found = linprog(
        -np.ones(work.size), A_ub=np.vstack([by_model, by_type]),
        b_ub=[*(model.rate_rps for model in models), *(n * longer for n in kinds.values())],
        bounds=[(0, None if can else 0) for can in possible.ravel()], method="highs")
    assert found.fun is not None  # nothing served is always possible
    return max(0.0, float(-found.fun))


def work_ms(model: SharedModel, kind: str) -> float:
    """Least work of a request, w: ms of a whole GPU; infinite without a batch within the SLO."""
    rows = model.batches.get(kind, ())
    best = math.inf
    for n in range(1, 1 + (rows[-1].batch if rows else 0)):
        row = between(rows, n)
        assert row is not None
        if row.latency_ms <= model.slo_ms:
            best = min(best, row.utilisation * row.latency_ms / n)
    return best
