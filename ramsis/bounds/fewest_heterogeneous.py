"""The fluid bound of a mixed fleet the other way round: which mixes of workers could be enough.

Let y_{t,c} be the share of the queries that column c of worker type t answers (a model and a
batch; p, a and the time of a worker for each query as in :mod:`ramsis.bounds.fewest`), K_t the
workers of type t, and w_t what one of them costs. At a load λ the cheapest mix is

    min  Σ w_t·K_t
    s.t. λ·Σ_c t_{t,c}·y_{t,c} <= K_t <= most_t      busy workers, for each type t,
         Σ y <= θ,   Σ p·y >= (1 − V)·θ,   Σ (a − A)·p·y >= 0,   Σ a·p·y >= E·θ,

with θ = 1. With K_t real this is a lower bound on the cost of every scheme on any mix; with K_t
whole numbers a higher one, still proved. For given K_t the largest θ says how many times the load
they could carry at the targets: a mix with θ < 1 cannot meet them, and of two mixes that cost the
same the one with the larger θ is likelier to. So :meth:`FluidMixes.best` maximises θ over the
whole numbers K_t under a cost, leaving out mixes that have no more workers of any kind of types
than one that is known to fail: a binary for each such mix and kind says of which kind there are
more. All are solved to optimality by HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from ramsis.bounds.fewest import ROUNDING, Columns, Targets
from ramsis.bounds.fluid import check_positive
from ramsis.bounds.heterogeneous import merged_types
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError, describe

__all__ = ["FluidMixes"]

FloatArray = NDArray[np.float64]
Counts = tuple[int, ...]

_INFEASIBLE = 2  # of scipy.optimize.milp


class FluidMixes:
    """Mixes of workers of several types against targets at a constant load.

    Parameters
    ----------
    laws : sequence of ServiceTimes
        One or more, of each type.
    costs : sequence of float
        Of one worker of each type, > 0.
    targets : Targets
    slo_ms : float
        > 0.
    load_qps : float
        > 0, queries per second.
    most : sequence of (int or None), optional
        Largest number of workers of each type; None for any.

    Attributes
    ----------
    costs, most, load_qps
        As given; infinite where there are any number of workers.
    kinds : tuple of int
        For each type a number from 0, the same for types that are alike.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        The SLO is below every latency, or no number of workers reaches the targets; with the
        nearest that can be reached.
    """

    def __init__(
        self, laws: Sequence[ServiceTimes], costs: Sequence[float], targets: Targets, *,
        slo_ms: float, load_qps: float, most: Sequence[int | None] | None = None,
    ) -> None:
        for cost in costs:
            check_positive(slo_ms=slo_ms, load_qps=load_qps, cost=cost)
        self.kinds: Counts = tuple(merged_types(laws))
        self.costs = np.array(costs, dtype=float)
        self.most = np.array([np.inf if k is None else float(k)
                              for k in most or [None] * len(laws)])
        of_type = _columns(laws, slo_ms)
        kind = np.repeat(np.arange(len(laws)), [0 if c is None else len(c.time_ms)
                                                for c in of_type])
        some = [c for c in of_type if c is not None]
        whole = Columns(np.concatenate([c.time_ms for c in some]),
                        np.concatenate([c.in_time for c in some]),
                        np.concatenate([c.accuracy for c in some]), 0.0)
        whole.check_reachable(targets)
        self.load_qps = load_qps
        self._rows = self._program(whole, kind, targets, load_qps / 1000.0)

    def cheapest(self, *, whole: bool = False) -> tuple[float, tuple[float, ...]]:
        """The least cost and its mix, of real or whole numbers of workers.

        No scheme on any mix reaches the targets at a lower cost.

        Raises
        ------
        InfeasibleError
            There are not enough workers; with the load that they could carry.
        """
        found = self._solve(np.append(self.costs, 0.0), whole=whole, least=1.0, largest=1.0)
        if found is None:
            raise InfeasibleError(describe(
                "too few workers for the targets at this load", where="max_workers",
                value=self.load_qps,
                allowed=f"at most {self._carried_qps():.6g} QPS, or more workers"))
        counts = found[: len(self.costs)]
        return self.cost(counts), tuple(max(k, 0.0) for k in counts.tolist())

    def best(self, cost: float, failed: Sequence[Counts] = ()) -> Counts | None:
        """The mix that could carry the largest load at the targets; None if none carries its own.

        Parameters
        ----------
        cost : float
            Of the mix at most.
        failed : sequence of tuple of int
            Workers of each *kind*; mixes with no more of any are left out.
        """
        found = self._solve(np.append(np.zeros(len(self.costs)), -1.0), whole=True, least=1.0,
                            largest=np.inf, cost=cost, failed=failed)
        if found is None:
            return None
        return tuple(int(k) for k in found[: len(self.costs)])

    def merged(self, counts: Sequence[int]) -> Counts:
        """The workers of each kind."""
        total = np.bincount(self.kinds, np.asarray(counts, dtype=float))
        return tuple(int(k) for k in total)

    def cost(self, counts: ArrayLike) -> float:
        """Of a mix."""
        return float(self.costs @ np.asarray(counts, dtype=float))

    def fewest_alone(self, t: int) -> int | None:
        """The fewest workers of one type that the bound allows, or None."""
        most = np.where(np.arange(len(self.costs)) == t, self.most, 0.0)
        found = self._solve(np.append(self.costs, 0.0), whole=True, least=1.0, largest=1.0,
                            most=most)
        return None if found is None else max(1, int(found[t]))

    def _carried_qps(self) -> float:
        """The largest load that all workers could carry at the targets."""
        found = self._solve(np.append(np.zeros(len(self.costs)), -1.0), whole=False, least=0.0,
                            largest=np.inf)
        assert found is not None  # no load can always be carried
        return self.load_qps * float(found[-1])

    def _program(
        self, columns: Columns, kind: NDArray[np.int64], targets: Targets, load: float
    ) -> Any:
        """Rows ``a·(y, K, θ) <= 0``; sparse, shape (types + 1 + targets, columns + types + 1)."""
        types = len(self.costs)
        busy = (kind == np.arange(types)[:, None]) * columns.time_ms * load
        reward, least = zip(*columns.target_rows(targets), strict=True)
        blocks: Any = [
            [busy, -np.eye(types), None],
            [np.ones((1, len(kind))), None, -np.ones((1, 1))],
            [-np.stack(reward), None, (1.0 - ROUNDING) * np.array(least)[:, None]],
        ]
        return sparse.block_array(blocks, format="csr")

    def _solve(
        self, objective: FloatArray, *, whole: bool, least: float, largest: float,
        most: FloatArray | None = None, cost: float | None = None, failed: Sequence[Counts] = (),
    ) -> FloatArray | None:
        """Minimise over (K, θ), θ between two ends; None if there is no such mix."""
        types, kinds = len(self.costs), max(self.kinds) + 1
        shares, choices = self._rows.shape[1] - types - 1, kinds * len(failed)
        size = shares + types + 1
        limits = [LinearConstraint(_padded(self._rows, choices), ub=0.0)]
        if cost is not None:
            row = np.concatenate([np.zeros(shares), self.costs, np.zeros(1 + choices)])
            limits.append(LinearConstraint(row[None, :], ub=cost))
        for i, counts in enumerate(failed):
            rows = np.zeros((kinds + 1, size + choices))
            rows[np.array(self.kinds), shares + np.arange(types)] = 1.0
            own = size + kinds * i + np.arange(kinds)
            rows[np.arange(kinds), own] = -(np.array(counts) + 1.0)
            rows[kinds, own] = 1.0
            limits.append(LinearConstraint(rows, lb=np.append(np.zeros(kinds), 1.0)))
        upper = self.most if most is None else most
        found: Any = milp(
            np.concatenate([np.zeros(shares), objective, np.zeros(choices)]),
            integrality=np.concatenate([np.zeros(shares), np.full(types, float(whole)), [0.0],
                                        np.ones(choices)]),
            bounds=Bounds(np.append(np.zeros(size - 1), [least, *np.zeros(choices)]),
                          np.concatenate([np.full(shares, np.inf), upper, [largest],
                                          np.ones(choices)])),
            constraints=limits, options={"mip_rel_gap": 0.0})
        if found.status == _INFEASIBLE:
            return None
        if not found.success:
            raise NotConvergedError(describe(f"cheapest mix not found ({found.message})"))
        solution: FloatArray = np.array(found.x[shares:size])
        if whole:
            solution[:types] = np.rint(solution[:types])
        return solution


def _columns(laws: Sequence[ServiceTimes], slo_ms: float) -> list[Columns | None]:
    """The columns of each type; None for one that is never in time."""
    found: list[Columns | None] = []
    refused: list[InfeasibleError] = []
    for law in laws:
        try:
            found.append(Columns.of(law, slo_ms))
        except InfeasibleError as error:
            found.append(None)
            refused.append(error)
    if not found:
        raise InvalidValueError(describe("no worker types", where="profiles",
                                         allowed="one or more"))
    if len(refused) == len(found):
        fastest = min(range(len(laws)), key=lambda t: float(laws[t].quantiles_ms[:, :, 0].min()))
        raise refused[fastest]
    return found


def _padded(rows: Any, more: int) -> Any:
    """The rows with columns of zeros behind."""
    return sparse.hstack([rows, sparse.csr_array((rows.shape[0], more))], format="csr")
