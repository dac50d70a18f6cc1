"""The fluid upper bound with several worker types and several SLO classes.

Let y_{t,c,m,b} be the rate at which queries of class c are answered in batches of b of model m on
workers of type t; λ_c the load of class c, K_t the number of workers of type t:

    max  Σ accuracy_t(m)·P(L_t(m, b) <= SLO_c)·y_{t,c,m,b} / λ
    s.t. Σ_{c,m,b} E[L_t(m, b)]/b·y_{t,c,m,b} <= K_t     busy workers, for each type t,
         Σ_{t,m,b} y_{t,c,m,b}                <= λ_c     queries, for each class c.

*Batches may mix classes.* Give each query of a batch the b-th part of the time that the batch
takes. What any policy does is then a point of this program: the parts add up to the busy time of
each type, each query counts once in its class, and earns at most what its column says, by its own
deadline. So the bound holds under the conditions of :mod:`ramsis.bounds.fluid`, for shared and for
separate queues. Batches too long for a class are no column of it: a query in one earns nothing.

Types that are alike are merged, and so are classes of one SLO, before anything is computed. With
one of each this is :func:`~ramsis.bounds.fluid.fluid_bound` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ramsis.bounds.fluid import LARGEST, check_positive, columns, fluid_bound
from ramsis.cluster.service_times import ServiceTimes
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError, describe

__all__ = ["MixedBound", "check_reachable", "merged_types", "mixed_bound"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MixedBound:
    """Solution of the fluid linear program.

    Attributes
    ----------
    effective_accuracy : float
        The bound over all queries, a fraction.
    class_accuracy, class_served : ndarray, shape (C,)
        Effective accuracy and share answered in time of each class in the optimal mix.
    share : ndarray, shape (T, C)
        Share of all queries that each type takes of each class in the optimal mix.
    worker_price : ndarray, shape (T,)
        Effective accuracy gained per additional worker of each type, at the margin.
    classes : tuple of SloClass
        By rising SLO, merged.
    """

    effective_accuracy: float
    class_accuracy: FloatArray
    class_served: FloatArray
    share: FloatArray
    worker_price: FloatArray
    classes: tuple[SloClass, ...]


def mixed_bound(
    types: Sequence[tuple[ServiceTimes, int]],
    classes: Sequence[SloClass],
    *,
    load_qps: float,
    max_batch: int,
) -> MixedBound:
    """Solve the fluid linear program of a mixed fleet.

    Parameters
    ----------
    types : sequence of (ServiceTimes, int)
        Service times and number of workers >= 1 of each type.
    classes : sequence of SloClass
        Their shares sum to 1.
    load_qps : float
        λ > 0, queries per second of all classes together.
    max_batch : int
        Largest batch; a type whose law ends before runs smaller ones only.

    Raises
    ------
    InvalidValueError
        A number out of range, no type, or shares that do not sum to 1.
    InfeasibleError
        The SLO of a class is below every latency of every type.
    NotConvergedError
        The linear program was not solved.
    """
    if not types:
        raise InvalidValueError(describe("no worker types", where="workers",
                                         allowed="one or more"))
    own = np.array([count for _, count in types], dtype=float)
    check_positive(load_qps=load_qps, max_batch=max_batch, workers=float(own.min()))
    levels, kinds = merged_classes(classes), merged_types([law for law, _ in types])
    laws = [types[kinds.index(k)][0] for k in range(len(set(kinds)))]
    workers = np.bincount(kinds, own).astype(float)
    check_reachable(laws, levels)
    if len(laws) == len(levels) == 1:
        one = fluid_bound(laws[0], slo_ms=levels[0].slo_ms, workers=int(workers[0]),
                          load_qps=load_qps, max_batch=min(max_batch, laws[0].max_batch))
        found = MixedBound(
            one.effective_accuracy, np.array([one.effective_accuracy]),
            np.array([one.served_fraction]), np.array([[float(one.mix.sum())]]),
            np.array([one.worker_price]), levels)
    else:
        found = _solved(laws, workers, levels, load_qps, max_batch)
    part = own / workers[kinds]
    return replace(found, share=found.share[kinds] * part[:, None],
                   worker_price=found.worker_price[kinds])


def merged_types(laws: Sequence[ServiceTimes]) -> list[int]:
    """For each type a number from 0; types that run the same models equally fast share it."""
    known: list[ServiceTimes] = []
    kinds = []
    for law in laws:
        same = (k for k, other in enumerate(known) if _alike(law, other))
        kinds.append(next(same, len(known)))
        if kinds[-1] == len(known):
            known.append(law)
    return kinds


def _alike(law: ServiceTimes, other: ServiceTimes) -> bool:
    return (law.models == other.models and np.array_equal(law.accuracy, other.accuracy)
            and np.array_equal(law.quantiles_ms, other.quantiles_ms))


def check_reachable(laws: Sequence[ServiceTimes], classes: Sequence[SloClass]) -> None:
    """Refuse a class that no type can ever answer in time.

    Raises
    ------
    InfeasibleError
        With the least SLO that could be met.
    """
    lowest = min(float(law.quantiles_ms[:, :, 0].min()) for law in laws)
    for one in classes:
        if one.slo_ms < lowest:
            raise InfeasibleError(
                describe("SLO of a class is below every latency", where="slo_ms",
                         value=one.slo_ms, allowed=f"at least {lowest:g} ms, the fastest model's "
                         "batch of 1"))


def _solved(
    laws: Sequence[ServiceTimes], workers: FloatArray, classes: tuple[SloClass, ...],
    load_qps: float, max_batch: int,
) -> MixedBound:
    """The program, in shares of all queries: z = y/λ."""
    parts = []
    for t, law in enumerate(laws):
        for c, one in enumerate(classes):
            model, batch, busy_ms, in_time = columns(law, one.slo_ms, max_batch)
            reward = law.accuracy[model] * in_time
            parts.append(np.stack([np.full(len(model), t), np.full(len(model), c),
                                   busy_ms / batch, reward, in_time]))
    kind, level, cost_ms, reward, in_time = np.concatenate(parts, axis=1)
    load = load_qps / 1000.0
    # Where the fleet is overloaded, in shares of what can be served: of the size of 1.
    scale = max(1.0, float(cost_ms.min()) * load / float(workers.sum()))
    time = (kind == np.arange(len(laws))[:, None]) * cost_ms * load / workers[:, None] / scale
    demand = (level == np.arange(len(classes))[:, None]).astype(float)
    share = np.array([one.share for one in classes])
    found: Any = linprog(
        c=-reward, A_ub=np.vstack([time, demand]),
        b_ub=np.concatenate([np.ones(len(laws)), np.minimum(share * scale, LARGEST)]),
        method="highs",
    )
    if not found.success:
        raise NotConvergedError(describe(f"fluid bound not found ({found.message})"))
    z = found.x / scale
    taken = np.zeros((len(laws), len(classes)))
    np.add.at(taken, (kind.astype(int), level.astype(int)), z)
    return MixedBound(
        effective_accuracy=min(float(z @ reward), float(reward.max())),
        class_accuracy=demand @ (z * reward) / share,
        class_served=demand @ (z * in_time) / share,
        share=taken,
        worker_price=-found.ineqlin.marginals[: len(laws)] / scale / workers,
        classes=classes,
    )
