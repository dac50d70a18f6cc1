"""Lower bounds on the number and the cost of workers: the fluid program, minimising workers.

*The problem.* Let y_{t,c} be the share of the requests that column c of worker type t answers (a
model and a batch for an SLO class; see :mod:`ramsis.bounds.columns`): in time with probability
p_c, worth accuracy a_c, taking t_c of a worker's time for each. K_t are the workers of type t, and
w_t is what one of them costs. At a load λ,

    min  Σ w_t·K_t
    s.t. λ·Σ_c t_c·y_{t,c} <= K_t <= most_t            busy workers, for each type t,
         Σ y of class k <= s_k·θ                       requests, by the shares s of SLO classes,
         Σ p·y >= (1 − V)·θ                            violations at most V,
         Σ (a − A)·p·y >= 0                            accuracy of answers in time at least A,
         Σ a·p·y >= E·θ                                effective accuracy at least E,

with θ = 1, of the targets those that are asked for. With K_t real this is a lower bound on the
cost of every scheduler that :func:`~ramsis.bounds.fluid_bound` holds for, as what such a scheduler
does in the long run is a point of the program; with K_t whole numbers a higher one, still proved.

*Which workers are likely to be enough.* For given K_t the largest θ says how many times the load
they could carry at the targets: workers with θ < 1 cannot meet them, and of two sets that cost the
same the one with the larger θ is likelier to. :meth:`CheapestWorkers.best` maximises θ over the
whole numbers K_t under a cost. It excludes sets that are known to fail, and those with no more
workers of any kind than such a set; types that are alike are one kind. A binary variable for each
failed set and kind states of which kind the new set has more.

*A load that varies.* Cut the time into windows, the i-th with n_i requests, each with a y of its
own; the targets hold over all requests. Take a stretch of successive windows of the total length
D. Batches that answer its requests in time run from the first of its arrivals until the longest
SLO after the last, so

    Σ_i n_i·Σ t_c·y_{i,c} <= K·(D + SLO).

The stretches are the whole, its halves, their halves, and so on. Where service times are drawn, a
batch that runs at the end of this time may go on for the largest of them, L_max, and is charged
whole: D + SLO + L_max.

Columns that another one beats in t, p and a cannot help and are left out. All programs are solved
to optimality by HiGHS, those with whole numbers without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ramsis.arrays import FloatArray
from ramsis.bounds.columns import Columns, solved
from ramsis.bounds.targets import ROUNDING, Targets, check_targets, target_rows
from ramsis.cluster.cluster import SloClass, check_reachable, classes_of, numbered_alike
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import (
    InfeasibleError,
    InvalidValueError,
    NotConvergedError,
    check_positive,
    describe,
)

Counts = tuple[int, ...]
Stretch = tuple[NDArray[np.int64], float]

_INFEASIBLE = 2  # of scipy.optimize.milp


def fewest_workers_bound(
    times: ServiceTimes, targets: Targets, *, slo_ms: float | Sequence[SloClass], load_qps: float
) -> float:
    """Bound the busy workers that the targets require at a constant load.

    Parameters
    ----------
    times : ServiceTimes
        Fixed or drawn.
    slo_ms : float or sequence of SloClass
        > 0, or classes whose shares sum to 1.
    load_qps : float
        > 0, requests per second of all classes together.

    Returns
    -------
    float
        > 0. There must be at least this many workers, rounded up.

    Raises
    ------
    InfeasibleError
        No number of workers reaches the targets; with the nearest that can be reached.
    NotConvergedError
        The linear program was not solved.
    """
    check_positive(load_qps=load_qps)
    program = _Program.of([times], classes_of(slo_ms), targets)
    return load_qps / 1000.0 * _fewest(program, np.ones(1), [(np.arange(1), 1.0)])


def fewest_workers_bound_over_time(
    times: ServiceTimes, targets: Targets, *, slo_ms: float | Sequence[SloClass],
    counts: ArrayLike, window_ms: float,
) -> float:
    """Return the fluid bound on workers for a load that varies by windows of one length.

    With several classes it bounds the mean, as the class of each request is drawn at random.

    Parameters
    ----------
    counts : array_like, shape (n,)
        Requests that arrive in each window, or their means; >= 0, not all 0. Numbers of windows
        that are powers of two are cut best.
    window_ms : float
        Length of each, > 0.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :func:`fewest_workers_bound`.
    """
    queries = np.array(counts, dtype=float).reshape(-1)
    if not (np.isfinite(queries).all() and (queries >= 0).all() and queries.any()):
        raise InvalidValueError("not numbers of requests", where="counts",
                                allowed="finite numbers >= 0, not all 0")
    check_positive(window_ms=window_ms)
    classes = classes_of(slo_ms)
    program, longest_ms = _Program.of([times], classes, targets), classes[-1].slo_ms
    able = times.cdf(longest_ms) > 0
    overrun_ms = float(times.quantiles_ms[able][:, -1].max()) if times.distributed else 0.0
    total = float(queries.sum())
    return total * _fewest(program, queries / total, [
        (part, len(part) * window_ms + longest_ms + overrun_ms)
        for part in _stretches(np.arange(len(queries)))
    ])


class CheapestWorkers:
    """Workers of several types against targets at a constant load.

    Parameters
    ----------
    times : sequence of ServiceTimes
        One or more, of each type.
    costs : sequence of float
        Cost of one worker of each type, > 0.
    slo_ms : float or sequence of SloClass
        > 0, or classes whose shares sum to 1.
    load_qps : float
        > 0, requests per second of all classes together.
    most : sequence of (int or None), optional
        Largest number of workers of each type; None for any.

    Attributes
    ----------
    costs, most, load_qps
        As given; ``most`` is infinite for types without a limit.
    kinds : tuple of int
        For each type a number from 0, the same for types that are alike.

    Raises
    ------
    InfeasibleError
        The SLO is below every latency, or no number of workers reaches the targets; with the
        nearest that can be reached.
    """

    def __init__(
        self, times: Sequence[ServiceTimes], costs: Sequence[float], targets: Targets, *,
        slo_ms: float | Sequence[SloClass], load_qps: float,
        most: Sequence[int | None] | None = None,
    ) -> None:
        for cost in costs:
            check_positive(load_qps=load_qps, cost=cost)
        if not times:
            raise InvalidValueError("no worker types", where="profiles", allowed="one or more")
        self.kinds: Counts = tuple(numbered_alike(times))
        self.costs = np.array(costs, dtype=float)
        self.most = np.array([np.inf if k is None else float(k)
                              for k in most or [None] * len(times)])
        self.load_qps = load_qps
        program = _Program.of(times, classes_of(slo_ms), targets)
        self._rows = program.rows(np.ones(1), np.array([[load_qps / 1000.0]]))

    def cheapest(self, *, whole: bool = False) -> tuple[float, tuple[float, ...]]:
        """Return the lowest cost and the workers that attain it, as real or whole numbers.

        No scheduler on any workers of these types reaches the targets at a lower cost.
        """
        solution = self._solve(np.append(self.costs, 0.0), whole=whole, scale=(1.0, 1.0))
        if solution is None:
            raise InfeasibleError(
                "too few workers for the targets at this load", where="max_workers",
                value=self.load_qps,
                allowed=f"at most {self._carried_qps():.6g} QPS, or more workers")
        counts = solution[: len(self.costs)]
        return self.cost(counts), tuple(max(k, 0.0) for k in counts.tolist())

    def best(self, cost: float, failed: Sequence[Counts] = ()) -> Counts | None:
        """Return the workers within a cost that could carry the largest load; None if none can.

        Parameters
        ----------
        cost : float
            Upper limit on the cost of the workers.
        failed : sequence of tuple of int
            Numbers of workers by *kind*. Sets with no more workers of any kind than one of these
            are left out.
        """
        solution = self._solve(np.append(np.zeros(len(self.costs)), -1.0), whole=True,
                               scale=(1.0, np.inf), cost=cost, failed=failed)
        if solution is None:
            return None
        return tuple(int(k) for k in solution[: len(self.costs)])

    def merged(self, counts: Sequence[int]) -> Counts:
        """Return the number of workers of each kind of equal service times, from those by type."""
        total = np.bincount(self.kinds, np.asarray(counts, dtype=float))
        return tuple(int(k) for k in total)

    def cost(self, counts: ArrayLike) -> float:
        """Return the cost of workers of each type."""
        return float(self.costs @ np.asarray(counts, dtype=float))

    def fewest_alone(self, t: int) -> int | None:
        """Return the fewest workers of one type that the bound allows, or None."""
        most = np.where(np.arange(len(self.costs)) == t, self.most, 0.0)
        solution = self._solve(np.append(self.costs, 0.0), whole=True, scale=(1.0, 1.0), most=most)
        return None if solution is None else max(1, int(solution[t]))

    def _carried_qps(self) -> float:
        """Return the largest load that all workers could carry at the targets."""
        solution = self._solve(np.append(np.zeros(len(self.costs)), -1.0), whole=False,
                               scale=(0.0, np.inf))
        assert solution is not None  # no load can always be carried
        return self.load_qps * float(solution[-1])

    def _solve(
        self, objective: FloatArray, *, whole: bool, scale: tuple[float, float],
        most: FloatArray | None = None, cost: float | None = None, failed: Sequence[Counts] = (),
    ) -> FloatArray | None:
        """Minimise ``objective``·(K, θ), with θ in the range ``scale``; None if infeasible."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # which take long to load

        # Variables: shares y, workers K, the multiple θ of the load, binaries of failed sets.
        types, kinds = len(self.costs), max(self.kinds) + 1
        shares, binaries = self._rows.shape[1] - types - 1, kinds * len(failed)
        zeros = sparse.csr_array((self._rows.shape[0], binaries))
        limits = [LinearConstraint(sparse.hstack([self._rows, zeros], format="csr"), ub=0.0),
                  *self._more_than(failed)]
        if cost is not None:
            row = np.concatenate([np.zeros(shares), self.costs, np.zeros(1 + binaries)])
            limits.insert(1, LinearConstraint(row[None, :], ub=cost))
        lower = np.append(np.zeros(shares + types), [scale[0], *np.zeros(binaries)])
        upper = np.concatenate([np.full(shares, np.inf), self.most if most is None else most,
                                [scale[1]], np.ones(binaries)])
        result: Any = milp(
            np.concatenate([np.zeros(shares), objective, np.zeros(binaries)]),
            integrality=np.concatenate([np.zeros(shares), np.full(types, float(whole)), [0.0],
                                        np.ones(binaries)]),
            bounds=Bounds(lower, upper), constraints=limits, options={"mip_rel_gap": 0.0})
        if result.status == _INFEASIBLE:
            return None
        if not result.success:
            raise NotConvergedError(describe(f"cheapest workers not found ({result.message})"))
        solution: FloatArray = np.array(result.x[shares : shares + types + 1])
        if whole:
            solution[:types] = np.rint(solution[:types])
        return solution

    def _more_than(self, failed: Sequence[Counts]) -> list[Any]:
        """Return constraints that exclude failed sets of workers and all their subsets.

        ``failed`` has the number of workers of each kind in each failed set. A new set must have
        more workers of at least one kind than each of them.
        """
        from scipy.optimize import LinearConstraint

        types, kinds = len(self.costs), max(self.kinds) + 1
        size, binaries = self._rows.shape[1], kinds * len(failed)
        limits = []
        for i, counts in enumerate(failed):
            # Binary variable k of this set may be 1 only with more workers of kind k than the
            # set; at least one of them has to be 1.
            rows = np.zeros((kinds + 1, size + binaries))
            rows[np.array(self.kinds), size - types - 1 + np.arange(types)] = 1.0
            columns = size + kinds * i + np.arange(kinds)
            rows[np.arange(kinds), columns] = -(np.array(counts) + 1.0)
            rows[kinds, columns] = 1.0
            limits.append(LinearConstraint(rows, lb=np.append(np.zeros(kinds), 1.0)))
        return limits


@dataclass(frozen=True, eq=False)
class _Program:
    """Linear program for some worker types: the columns that can help, and the targets."""

    columns: Columns
    types: int  # number of worker types
    share: FloatArray  # of the requests, by SLO class, shape (C,)
    targets: Targets

    @classmethod
    def of(
        cls, times: Sequence[ServiceTimes], classes: Sequence[SloClass], targets: Targets
    ) -> _Program:
        """Create the program for targets that some workers can meet; others are refused."""
        check_reachable(times, classes, fastest="the fastest there is")
        longest = max(service_times.max_batch for service_times in times)
        columns = Columns.of(times, classes, longest).undominated()
        check_targets(columns, classes, targets)
        share = np.array([slo_class.share for slo_class in classes])
        return cls(columns, len(times), share, targets)

    def rows(self, share: FloatArray, taken: FloatArray) -> Any:
        """Return sparse rows ``a·(y, K, θ) <= 0``.

        Parameters
        ----------
        share : ndarray, shape (n,)
            Share of all requests that arrive in each window. ``y`` has the shares of the requests
            of a window in its columns, one window after the other.
        taken : ndarray, shape (S, n)
            Requests of each window per unit of the time of each stretch; 0 for windows outside it.
        """
        columns, windows = self.columns, len(share)
        busy = columns.of_types(self.types) * columns.time_ms
        queries = columns.of_classes(len(self.share)).astype(float)
        reward, lowest = zip(*target_rows(columns, self.targets), strict=True)
        blocks: Any = [
            [sparse.kron(sparse.coo_array(taken), busy),
             np.tile(-np.eye(self.types), (len(taken), 1)), None],
            [sparse.kron(sparse.eye_array(windows), queries), None,
             -np.tile(self.share, windows)[:, None]],
            [sparse.kron(sparse.coo_array(share[None, :]), -np.stack(reward)), None,
             (1.0 - ROUNDING) * np.array(lowest)[:, None]],
        ]
        return sparse.block_array(blocks, format="csr")


def _fewest(program: _Program, share: FloatArray, stretches: Sequence[Stretch]) -> float:
    """Return the fewest workers of one type per request per ms of the total load.

    Parameters
    ----------
    share : ndarray, shape (n,)
        Share of the requests in each window.
    stretches : sequence of (windows, ms)
        Successive windows, and the time in which their answers can be computed; all windows first.
    """
    whole_ms = stretches[0][1]
    taken = np.zeros((len(stretches), len(share)))
    for row, (part, length_ms) in zip(taken, stretches, strict=True):
        row[part] = share[part] * whole_ms / length_ms
    rows = program.rows(share, taken)
    size = rows.shape[1]
    # θ = 1 stands on the right.
    solution = solved("fewest workers", c=np.append(np.zeros(size - 2), 1.0),
                      A_ub=rows[:, : size - 1], b_ub=-rows[:, [size - 1]].toarray()[:, 0])
    return float(solution.fun) / whole_ms


def _stretches(windows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the windows and their dyadic merges: pairs, pairs of pairs, and so on."""
    if len(windows) < 2:
        return [windows]
    middle = (len(windows) + 1) // 2
    return [windows, *_stretches(windows[:middle]), *_stretches(windows[middle:])]
