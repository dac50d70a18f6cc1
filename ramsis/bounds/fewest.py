"""The fluid bound the other way round: no fleet smaller than this reaches the targets.

Let y_c be the share of the queries that are answered by column c, a model m with a batch of b, in
time with probability P(L <= SLO) = p_c and worth accuracy a_c, at t_c = E[L(m, b)] / b of a
worker's time for each. At a load λ the least number of busy workers is

    min  K = λ·Σ t_c·y_c
    s.t. Σ y_c <= 1,
         Σ p_c·y_c            >= 1 − V    violations at most V,
         Σ (a_c − A)·p_c·y_c  >= 0        accuracy of the answers in time at least A,
         Σ a_c·p_c·y_c        >= E        effective accuracy at least E,

of which those that are asked for. It holds in the long run for every policy that
:func:`~ramsis.bounds.fluid_bound` holds for, as what such a policy does is a point of the program.

*A load that varies.* Cut the time into windows, the i-th with n_i queries, each with a y of its
own; the targets hold over all queries. What is in time of the queries of some successive windows,
D long in all, runs from when the first arrives until SLO after the last, so

    Σ_i n_i·Σ t_c·y_{i,c} <= K·(D + SLO)

for every such stretch: all of lengths that are halves of halves of the whole. Where service times
are drawn a batch that runs at its end may go on for the largest of them, L_max, and is charged
whole: D + SLO + L_max.

The program is solved to optimality by HiGHS. Columns that another one beats in t, p and a cannot
help and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linprog

from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError, describe

__all__ = ["Columns", "Targets", "least_workers", "least_workers_over_time"]

FloatArray = NDArray[np.float64]

ROUNDING = 1e-9


@dataclass(frozen=True)
class Targets:
    """What a fleet is to deliver.

    Attributes
    ----------
    max_violation : float
        Largest share of the queries that are late or dropped, in [0, 1).
    min_accuracy : float, optional
        Least mean accuracy of the queries answered in time, in (0, 1].
    min_effective_accuracy : float, optional
        Least mean accuracy over all queries, those late or dropped counting 0; in (0, 1].

    Raises
    ------
    InvalidValueError
        A number out of range.
    """

    max_violation: float = 0.001
    min_accuracy: float | None = None
    min_effective_accuracy: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_violation < 1:
            raise InvalidValueError(describe("not a share of violations", where="max_violation",
                                             value=self.max_violation,
                                             allowed="a fraction in [0, 1)"))
        for where in ("min_accuracy", "min_effective_accuracy"):
            value = getattr(self, where)
            if value is not None and not 0 < value <= 1:
                raise InvalidValueError(describe("not an accuracy", where=where, value=value,
                                                 allowed="a fraction in (0, 1]"))

    def met(self, accuracy: float, violation_rate: float) -> bool:
        """Whether figures reach the targets; ``accuracy`` is that of the queries in time."""
        effective = accuracy * (1.0 - violation_rate)
        return (violation_rate <= self.max_violation
                and accuracy >= (self.min_accuracy or 0.0) - ROUNDING
                and effective >= (self.min_effective_accuracy or 0.0) - ROUNDING)


def least_workers(
    law: ServiceTimes, targets: Targets, *, slo_ms: float, load_qps: float
) -> float:
    """Busy workers without which no scheme reaches the targets at a constant load.

    Parameters
    ----------
    law : ServiceTimes
        Service times, fixed or drawn.
    targets : Targets
    slo_ms : float
        > 0.
    load_qps : float
        > 0, queries per second.

    Returns
    -------
    float
        > 0. A fleet has at least this many workers, rounded up.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        No number of workers reaches the targets; with the nearest that can be reached.
    NotConvergedError
        The linear program was not solved.
    """
    _require_positive(slo_ms=slo_ms, load_qps=load_qps)
    columns = Columns.of(law, slo_ms)
    columns.check_reachable(targets)
    return load_qps / 1000.0 * columns.least(np.ones(1), targets, [(np.arange(1), 1.0)])


def least_workers_over_time(
    law: ServiceTimes, targets: Targets, *, slo_ms: float, counts: ArrayLike, window_ms: float
) -> float:
    """The same for a load that varies: successive windows of one length.

    Parameters
    ----------
    counts : array_like, shape (n,)
        Queries that arrive in each window, or their means; >= 0, not all 0. Numbers of windows
        that are powers of two are cut best.
    window_ms : float
        Length of each, > 0.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :func:`least_workers`.
    """
    queries = np.array(counts, dtype=float).reshape(-1)
    if not (np.isfinite(queries).all() and (queries >= 0).all() and queries.any()):
        raise InvalidValueError(describe("not numbers of queries", where="counts",
                                         allowed="finite numbers >= 0, not all 0"))
    _require_positive(slo_ms=slo_ms, window_ms=window_ms)
    columns = Columns.of(law, slo_ms)
    columns.check_reachable(targets)
    total = float(queries.sum())
    return total * columns.least(queries / total, targets, [
        (part, len(part) * window_ms + slo_ms + columns.overrun_ms)
        for part in _stretches(np.arange(len(queries)))
    ])


def _stretches(windows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The windows, their halves, the halves of these, and so on."""
    if len(windows) < 2:
        return [windows]
    middle = (len(windows) + 1) // 2
    return [windows, *_stretches(windows[:middle]), *_stretches(windows[middle:])]


@dataclass(frozen=True, eq=False)
class Columns:
    """Ways to answer a query, none beaten by another; arrays of shape (C,).

    Attributes
    ----------
    time_ms : ndarray
        Worker time for each query.
    in_time : ndarray
        Probability of being in time, > 0.
    accuracy : ndarray
    overrun_ms : float
        The longest that a batch may go on after its queries' deadlines.
    """

    time_ms: FloatArray
    in_time: FloatArray
    accuracy: FloatArray
    overrun_ms: float

    @classmethod
    def of(cls, law: ServiceTimes, slo_ms: float) -> Columns:
        """The columns of a law, refusing an SLO below every latency."""
        in_time = law.cdf(slo_ms)
        model, batch = np.nonzero(in_time > 0)
        if not len(model):
            lowest = float(law.quantiles_ms[:, :, 0].min())
            raise InfeasibleError(
                describe("SLO is below every latency", where="slo_ms", value=slo_ms,
                         allowed=f"at least {lowest:g} ms, the fastest there is"))
        share = in_time[model, batch]
        time_ms, accuracy = law.mean_ms[model, batch] / (batch + 1), law.accuracy[model]
        worth = np.stack([-time_ms, share, accuracy])
        kept = [i for i in range(len(model)) if not _beaten(worth, i)]
        draws = law.quantiles_ms.shape[2] > 1
        overrun_ms = float(law.quantiles_ms[model, batch, -1].max()) if draws else 0.0
        return cls(time_ms[kept], share[kept], accuracy[kept], overrun_ms)

    def check_reachable(self, targets: Targets) -> None:
        """Refuse targets that no number of workers reaches.

        Raises
        ------
        InfeasibleError
            With the nearest value that can be reached beside the other targets.
        """
        least = 1.0 - float(self.in_time.max())
        if targets.max_violation < least - ROUNDING:
            raise _unreachable("share of violations", "max_violation", targets.max_violation,
                               f"at least {_outward(least, up=True)}")
        # Fewer in time leave more choice; of all that are, this is the best mean.
        served, worth = 1.0 - targets.max_violation, self.accuracy * self.in_time
        equal = self._best(worth, [], self.in_time, served) / served
        if (targets.min_accuracy or 0.0) > equal + ROUNDING:
            raise _unreachable("accuracy", "min_accuracy", targets.min_accuracy,
                               f"at most {_outward(equal)}")
        rows = [(-self.in_time, -served)]
        if targets.min_accuracy is not None:
            rows.append(((targets.min_accuracy - self.accuracy) * self.in_time, ROUNDING))
        best = self._best(worth, rows)
        if (targets.min_effective_accuracy or 0.0) > best + ROUNDING:
            raise _unreachable("effective accuracy", "min_effective_accuracy",
                               targets.min_effective_accuracy, f"at most {_outward(best)}")

    def _best(
        self, worth: FloatArray, rows: Sequence[tuple[FloatArray, float]],
        fixed: FloatArray | None = None, value: float = 0.0,
    ) -> float:
        """The largest worth of shares of the queries under further rows ``a·y <= b``."""
        found: Any = linprog(
            c=-worth, A_ub=np.vstack([np.ones(len(worth)), *(row for row, _ in rows)]),
            b_ub=np.array([1.0, *(most for _, most in rows)]),
            A_eq=None if fixed is None else fixed[None, :],
            b_eq=None if fixed is None else np.array([value]), method="highs")
        return -_solved(found)

    def least(
        self, share: FloatArray, targets: Targets,
        stretches: Sequence[tuple[NDArray[np.int64], float]],
    ) -> float:
        """Least workers per query in the whole.

        Parameters
        ----------
        share : ndarray, shape (n,)
            Of the queries in each window.
        stretches : sequence of (windows, ms)
            Windows that share the workers' time, and how much of it; the whole first.
        """
        windows, count = len(share), len(self.time_ms)
        whole_ms = stretches[0][1]
        taken = np.zeros((len(stretches), windows))
        for row, (part, length_ms) in zip(taken, stretches, strict=True):
            row[part] = share[part] * whole_ms / length_ms
        reward, least = zip(*self.target_rows(targets), strict=True)
        # Unknowns: the shares, window by window, and the number of workers.
        blocks: Any = [
            [sparse.kron(taken, self.time_ms[None, :]), -np.ones((len(stretches), 1))],
            [sparse.kron(sparse.eye_array(windows), np.ones((1, count))), None],
            [sparse.kron(share[None, :], -np.stack(reward)), None],
        ]
        limits = np.concatenate([np.zeros(len(stretches)), np.ones(windows),
                                 (ROUNDING - 1.0) * np.array(least)])
        matrix: Any = sparse.block_array(blocks, format="csr")
        found: Any = linprog(c=np.append(np.zeros(windows * count), 1.0), A_ub=matrix,
                             b_ub=limits, method="highs")
        return _solved(found) / whole_ms

    def target_rows(self, targets: Targets) -> list[tuple[FloatArray, float]]:
        """Targets as rows ``a·y >= b`` on shares of the queries."""
        rows = [(self.in_time, 1.0 - targets.max_violation)]
        if targets.min_accuracy is not None:
            rows.append(((self.accuracy - targets.min_accuracy + ROUNDING) * self.in_time, 0.0))
        if targets.min_effective_accuracy is not None:
            rows.append((self.accuracy * self.in_time, targets.min_effective_accuracy))
        return rows


def _beaten(worth: FloatArray, i: int) -> bool:
    """Whether another column is nowhere worse and somewhere better, or the same and earlier."""
    own = worth[:, i, None]
    others: NDArray[np.bool_] = np.all(worth >= own, axis=0)
    better: NDArray[np.bool_] = others & np.any(worth > own, axis=0)
    return bool(better.any() or others[:i].any())


def _solved(found: Any) -> float:
    if not found.success:
        raise NotConvergedError(describe(f"least workers not found ({found.message})"))
    return float(found.fun)


def _unreachable(what: str, where: str, value: float | None, allowed: str) -> InfeasibleError:
    return InfeasibleError(describe(f"no number of workers reaches this {what}", where=where,
                                    value=value, allowed=allowed))


def _outward(value: float, *, up: bool = False) -> str:
    """A number to six decimals, rounded to where it can be reached."""
    turn = math.ceil if up else math.floor
    return f"{turn(value * 1e6 + (-1e-3 if up else 1e-3)) / 1e6:.6g}"


def _require_positive(**numbers: float) -> None:
    for where, value in numbers.items():
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(describe("not positive", where=where, value=value,
                                             allowed="a finite number > 0"))
