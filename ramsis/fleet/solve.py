"""Policy iteration for the fleet's decision problem.

For a policy, let W(i,n) be the value of waiting and V_x(i,n) that of deciding just after an
arrival (x = a) or at an end of a batch (x = d), relative to W(K,0) = 0, and g the gain per ms:

    (λ + β_i/SLO) W(i,n) = −g + λ V_a(i,n+1) + (β_i/SLO) V_d(i+1,n),        β_i = K − i busy,
    V_x(i,n) = Σ_j P_x(j | n) · { W(i,n)                                     wait
                                { R + h V_d(i−1,n−b) + (1−h) V_d(i,n−b)      start, i > 1
                                { R − g L/K + Σ_k a_k V_d(1, n−b+k)          start, i = 1

with h = L/SLO, a_k the law of the arrivals until the next worker is free, and, before it, any
number of drops at −p each. One sparse LU factorisation gives g and all values; the transposed
solve gives how often each row is visited. Improvement takes the best choice at every
(i, n, slack bin), and keeps the old one unless another gains more than 1e-9. It stops when no
choice changes, or when a round raises the gain per query by less than 1e-8. A first solution with
few idle levels gives the policy to start from.

The table is one step of improvement on that policy: while waiting it keeps the age of the head,
bin by bin from the least slack up, and values what follows the first start by the policy's values.

The chain of a policy met on the way may fall into parts that do not reach each other (drops make
that possible), and its system be singular. So from every waiting state the fleet returns to
(K, 0) at a small rate, 1e-9·λ. Where the factorisation fails or its residual is not small the rate
is raised tenfold and the solve repeated, up to 1e-4·λ; a policy whose values still cannot be
computed is an error, never a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu

from ramsis.errors import NotConvergedError, describe
from ramsis.fleet import _kernels
from ramsis.fleet.problem import FleetProblem

__all__ = ["DROP", "FREE", "WAIT", "FleetSolution", "FleetTotals", "evaluate_fleet",
           "fleet_model", "solve_fleet", "steps_of"]

FloatArray = NDArray[np.float64]
Choices = NDArray[np.int16]

WAIT, DROP = -1, -2
"""Entries of a table that are not an option's index."""
FREE = 1e-6
"""A cost below this, in units of accuracy, counts as none."""

_MOST_ROUNDS = 200
_STANDSTILL = 1e-8  # a round that raises the gain by less, per query, is the last
_RESTART = 1e-9
_MOST_RESTART = 1e-4
_RESIDUAL = 1e-6


@dataclass(frozen=True, eq=False)
class FleetTotals:
    """How a policy behaves in the steady state of its model.

    Attributes
    ----------
    gain : float
        Effective accuracy less price times violation rate.
    batches, in_time : ndarray, shape (O,)
        Batches of each option and their queries in time, per query that arrives.
    dropped, overflow : float
        Share of the queries dropped, and of those because the queue was at its longest.
    queue, slack : ndarray, shapes (N,), (J,)
        Law of the queue and of the head's slack bin when a batch is started.
    late_share : float
        Mean over the batches of the share of its queries that is late.
    restart : float
        Share of the arrivals' rate at which the fleet was returned to empty.
    """

    gain: float
    batches: FloatArray
    in_time: FloatArray
    dropped: float
    overflow: float
    queue: FloatArray
    slack: FloatArray
    late_share: float
    restart: float


@dataclass(frozen=True, eq=False)
class FleetSolution:
    """The best policy of a problem.

    Attributes
    ----------
    problem : FleetProblem
    table : ndarray of int16, shape (I-1, N-1, J)
        What to do next with workers idle and queries queued: an option, :data:`WAIT` or
        :data:`DROP`.
    totals : FleetTotals
        Steady state of the model's optimal policy, which the table improves on.
    rounds : int
        Of policy iteration.
    residual : float
        Most that any one choice could still gain.
    spare_idle : int or None
        Least number of idle workers with which, the queue being empty, lending one for a batch
        of 1 on the fastest model costs less than :data:`FREE`, and with more idle too.
    """

    problem: FleetProblem
    table: Choices
    totals: FleetTotals
    rounds: int
    residual: float
    spare_idle: int | None


@dataclass(frozen=True, eq=False)
class _Values:
    """Gain per ms, values, and visits of the rows.

    Waiting and deciding at an end of a batch (I, N), deciding with one worker idle (N, J).
    """

    gain: float
    wait: FloatArray
    free: FloatArray
    last: FloatArray
    visits: FloatArray
    last_visits: FloatArray
    restart: float


def solve_fleet(problem: FleetProblem) -> FleetSolution:
    """The optimal policy of the model by policy iteration.

    Raises
    ------
    NotConvergedError
        The rounds were used up, or a policy's values could not be computed.
    """
    model = fleet_model(problem)
    start = _coarse_levels(model.idle)
    coarse = model._replace(idle=model.idle[start])
    to, option, _ = _iterated(coarse, *_first_policy(coarse))
    nearest = np.searchsorted(start, np.arange(len(model.idle)), side="right") - 1
    to, option, rounds = _iterated(model, to[nearest], option[nearest])
    values = _evaluate(model, to, option)
    totals = _totals(model, to, option, values)
    _, residual = _kernels.improve(model, values.wait, values.free, values.last, values.gain,
                                   to, option)
    width_ms = np.diff(problem.slack_ms, append=problem.slo_ms)
    table = _kernels.finish(model, values.wait, values.free, values.last, values.gain,
                            width_ms)
    return FleetSolution(problem, table[1:, 1:], totals, rounds, residual,
                         _spare_idle(model, values.wait[:, 0]))


def _coarse_levels(idle: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of idle levels for a first, cheap solution: each half as high again as the last."""
    chosen = [0]
    while chosen[-1] < len(idle) - 1:
        chosen.append(min(max(chosen[-1] + 1, chosen[-1] * 3 // 2), len(idle) - 1))
    return np.array(chosen)


def _iterated(
    model: _kernels.Model, to: Choices, option: Choices
) -> tuple[Choices, Choices, int]:
    """The policy that policy iteration comes to, and the rounds that it took."""
    before = -np.inf
    for rounds in range(1, _MOST_ROUNDS + 1):
        values = _evaluate(model, to, option)
        if values.gain <= before + _STANDSTILL * model.load:
            return to, option, rounds
        before = values.gain
        changed, _ = _kernels.improve(model, values.wait, values.free, values.last, values.gain,
                                      to, option)
        if not changed:
            return to, option, rounds
    raise NotConvergedError(describe("policy iteration for the fleet did not come to rest",
                                     value=f"{_MOST_ROUNDS} rounds"))


def _spare_idle(model: _kernels.Model, wait: FloatArray) -> int | None:
    """See :class:`FleetSolution`; ``wait`` are the values with an empty queue."""
    cost = float(model.held.min()) * np.diff(wait[1:]) / np.diff(model.idle[1:])
    free = int((cost[::-1] < FREE).cumprod().sum())  # levels from the top on
    return int(model.idle[len(model.idle) - free]) if free else None


def steps_of(
    problem: FleetProblem, table: NDArray[np.int64 | np.int16]
) -> tuple[Choices, Choices]:
    """The choices that following a file's table makes: drops, and then an option or waiting.

    Parameters
    ----------
    table : (I-1, N-1, J)
        An option, :data:`WAIT` or :data:`DROP`.

    Returns
    -------
    to, option : ndarray of int16, shape (I, N, J)
    """
    shape = (len(problem.idle), len(problem.queue), len(problem.slack_ms))
    step = np.full(shape, WAIT, dtype=np.int16)
    step[1:, 1:] = table
    return _kernels.follow(step, problem.after_drop)


def evaluate_fleet(problem: FleetProblem, to: Choices, option: Choices) -> FleetTotals:
    """The steady state of any policy of a problem; arguments as in :class:`FleetSolution`.

    Raises
    ------
    NotConvergedError
        The policy's values cannot be computed.
    """
    model = fleet_model(problem)
    return _totals(model, to, option, _evaluate(model, to, option))


@lru_cache(maxsize=4)
def fleet_model(problem: FleetProblem) -> _kernels.Model:
    """The arrays of a problem."""
    lowest, highest = _kernels.needed_bins(problem.bin_law, problem.after_drop)
    low, share = _kernels.place(problem.queue, int(problem.queue[-1]))
    batch = problem.option_batch
    in_time = _kernels.count_in_time(problem.queue, problem.slack_in_queue_ms, batch,
                                     problem.quantiles_ms)
    return _kernels.Model(
        queue=problem.queue, idle=problem.idle, batch=batch,
        accuracy=np.ascontiguousarray(problem.accuracy), mean_ms=problem.mean_ms,
        held=np.minimum(problem.mean_ms / problem.slo_ms, 1.0),
        arrivals=problem.arrivals_between, law=problem.bin_law,
        in_time=in_time,
        earned=problem.accuracy * in_time - problem.price * (batch - in_time),
        lowest=lowest, highest=highest,
        slack_ms=(problem.slack_ms + np.append(problem.slack_ms[1:], problem.slo_ms)) / 2,
        age_ms=problem.mean_age_ms, spacing_ms=problem.spacing_ms,
        after_drop=problem.after_drop, low=low, share=share, slo_ms=problem.slo_ms,
        carries=problem.carries_age, load=problem.load,
        leave=1.0 / problem.slo_ms, price=problem.price, workers=problem.workers,
    )


def _first_policy(model: _kernels.Model) -> tuple[Choices, Choices]:
    """Start the fastest of the largest batches that the queue fills."""
    shape = (len(model.idle), len(model.queue), model.law.shape[2])
    to = np.broadcast_to(np.arange(shape[1], dtype=np.int16)[None, :, None], shape).copy()
    option = np.full(shape, WAIT, dtype=np.int16)
    for n in range(1, shape[1]):
        fits = np.flatnonzero(model.batch <= model.queue[n])
        if len(fits):  # always: a batch of 1 is an option
            option[1:, n] = fits[int(np.lexsort((model.mean_ms[fits], -model.batch[fits]))[0])]
    return to, option


def _evaluate(model: _kernels.Model, to: Choices, option: Choices) -> _Values:
    restart = _RESTART
    while restart <= _MOST_RESTART:
        found = _solved(model, to, option, restart)
        if found is not None:
            return found
        restart *= 10.0
    raise NotConvergedError(describe("the values of a fleet policy cannot be computed",
                                     value="singular system"))


def _solved(
    model: _kernels.Model, to: Choices, option: Choices, restart: float
) -> _Values | None:
    """Values and visits of a policy; None where the system is singular to working precision."""
    row, column, weight, constant, cost = _kernels.rows(model, to, option, restart * model.load)
    lengths = len(model.queue)
    home, size = (len(model.idle) - 1) * lengths, len(constant)
    kept = column != home  # the value of home is 0; the gain takes its column
    costly = np.flatnonzero(cost)
    matrix = csc_array(
        (np.concatenate([weight[kept], cost[costly]]),
         (np.concatenate([row[kept], costly]),
          np.concatenate([column[kept], np.full(len(costly), home)]))),
        shape=(size, size),
    )
    try:
        factors: SuperLU = splu(matrix, permc_spec="COLAMD")
    except RuntimeError:  # exactly singular
        return None
    value = np.asarray(factors.solve(constant))
    unit = np.zeros(size)
    unit[home] = 1.0
    visits = np.asarray(factors.solve(unit, "T"))  # type: ignore[call-overload]
    if not (np.isfinite(value).all() and np.isfinite(visits).all()):
        return None
    scale = 1.0 + float(np.abs(constant).max())
    if float(np.abs(matrix @ value - constant).max()) > _RESIDUAL * scale:
        return None
    if float(np.abs(matrix.T @ visits - unit).max()) > _RESIDUAL:
        return None
    gain = float(value[home])
    value[home] = 0.0
    shape, last = (3, len(model.idle), lengths), 3 * len(model.idle) * lengths
    parts = value[:last].reshape(shape)
    return _Values(gain, parts[0].copy(), parts[1].copy(), value[last:].reshape(lengths, -1),
                   visits[:last].reshape(shape), visits[last:].reshape(lengths, -1), restart)


def _totals(
    model: _kernels.Model, to: Choices, option: Choices, values: _Values
) -> FleetTotals:
    found = _kernels.totals(model, to, option, np.maximum(values.visits, 0.0),
                            np.maximum(values.last_visits, 0.0))
    started = max(float(found.batches.sum()), 1e-300)
    return FleetTotals(
        gain=values.gain / model.load,
        batches=found.batches / model.load,
        in_time=found.in_time / model.load,
        dropped=found.dropped / model.load,
        overflow=found.overflow / model.load,
        queue=found.queue / started,
        slack=found.slack / started,
        late_share=found.mean_late / started,
        restart=values.restart,
    )
