"""Modified policy iteration for discounted problems: improve, evaluate roughly, until bounds meet.

With discount ``b`` and a value function ``v``, a round

1. *improves*: one sweep over all pairs gives the advantage ``B(s) = max_l (r + b P v - v)(s)``
   and the policy that attains it. ``min B <= (1 - b) (V* - v) <= max B`` (MacQueen, Porteus), so
   the method stops when ``(max B - min B) / (2 (1 - b)) <= tolerance`` and returns ``v`` plus the
   middle of the bounds;
2. *evaluates* that policy roughly: ``(I - b P_policy) d = B`` is solved until the span of its
   residual is a thousandth of the span of ``B``, and ``v <- v + d``. The mean is subtracted from
   the right-hand side of BiCGSTAB: it belongs to the smallest eigenvalue, ``1 - b``, and only
   adds a constant to the values, which does not change the bounds.

The evaluation starts with sweeps ``v <- r + b P v`` over the policy's own pairs. On a chain that
mixes fast a few of them are enough. Where the span shrinks slowly, as on banded problems at a
discount near 1, the rest is left to BiCGSTAB, which needs about the square root of the sweeps.

A round costs one sweep over all pairs and several over one pair for each state. As the evaluation
of a settled policy shrinks the span a thousandfold, a handful of rounds is enough. Where a round
does not shrink the span any more within rounding of the values, the method stops with the status
``precision``.

Sources: Puterman (1994), sections 6.5 and 6.6; van der Vorst (1992) for BiCGSTAB; Gargiani et al.
(2023) for inexact evaluation by Krylov methods. The linear systems are solved in a compiled loop
of our own, as the vector operations of SciPy's take most of the time of a system this cheap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp._kernels import (
    advantage_sweep,
    evaluation_sweeps,
    policy_rows,
    stabilised_biconjugate_gradients,
)
from ramsis.mdp.certificates import discounted_certificate, judged
from ramsis.mdp.result import (
    Solution,
    Status,
    check_iterations,
    check_tolerance,
    required_discount,
)
from ramsis.mdp.sparse import SparseMDP, kernel_arrays

_REST = 0.001  # of the span that an evaluation leaves
_SLOW = 0.8  # a span that shrinks by less in a sweep is left to BiCGSTAB
_BATCH = 4  # sweeps after which that is judged
_KRYLOV = 500  # iterations of BiCGSTAB at most
_PATIENCE = 5  # rounds without a smaller span, once it is within rounding of the values
_ROUNDING = 1e-10


def modified_policy_iteration(
    mdp: SparseMDP,
    *,
    discount: float,
    tolerance: float = 1e-9,
    max_iterations: int = 10_000,
) -> Solution:
    """Solve a discounted problem by modified policy iteration.

    Parameters
    ----------
    discount : float in [0, 1)
        Per decision; costs play no part.
    tolerance : float > 0
        Largest error of the values, in units of reward.
    max_iterations : int
        Rounds at most.

    Returns
    -------
    Solution
        Values within the tolerance, and a policy that is greedy for them.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 0.5, 1: 0.5}, 1.0), (0, 1, {0: 1.0}, 1.5), (1, 0, {0: 1.0}, 4.0)])
    >>> solution = modified_policy_iteration(mdp, discount=0.9)
    >>> solution.policy.tolist(), solution.value.round(6).tolist()
    ([0, 0], [19.310345, 21.37931])
    """
    discount = required_discount(discount)
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    settings = {"solver": "modified-policy-iteration", "discount": discount,
                "tolerance": tolerance, "max_iterations": max_iterations}
    solution = _iterate(mdp, discount, 2.0 * (1.0 - discount) * tolerance, max_iterations)
    certificate = judged(discounted_certificate(
        mdp, solution.value, discount, status=solution.status, iterations=solution.rounds,
        constant=solution.middle), 2.0 * tolerance)
    return Solution(mdp.action[solution.rows], solution.value + solution.middle, None, certificate,
                    settings)


@dataclass(frozen=True, eq=False)
class _Found:
    """Values up to a constant, and the greedy policy."""

    value: FloatArray
    rows: IntArray  # greedy pair of each state
    middle: float  # the constant, by the middle of the bounds
    status: Status
    rounds: int


def _iterate(mdp: SparseMDP, discount: float, target: float, max_iterations: int) -> _Found:
    """Improve and evaluate until the span of the advantage is at most ``target``."""
    first, transition = kernel_arrays(mdp)
    ones = np.ones(mdp.n_pairs)
    value, advantage = np.zeros(mdp.n_states), np.empty(mdp.n_states)
    rows = np.empty(mdp.n_states, dtype=np.uint64)
    status, smallest, stalled = Status.MAX_ITERATIONS, np.inf, 0
    for done in range(1, max_iterations + 1):
        advantage_sweep(first, transition, mdp.reward, ones, discount, value, advantage, rows)
        lower, upper = float(advantage.min()), float(advantage.max())
        span = upper - lower
        if span <= target:
            status = Status.OPTIMAL
            break
        stalled = 0 if span < smallest else stalled + 1
        smallest = min(smallest, span)
        if stalled >= _PATIENCE and span <= _ROUNDING * (1.0 + np.abs(value).max()):
            status = Status.PRECISION
            break
        if done < max_iterations:
            _evaluate(transition, rows, discount, value, advantage)
            value -= value[0]  # the bounds see no constants, and rounding is least near 0
    middle = 0.5 * (lower + upper) / (1.0 - discount)
    return _Found(value, rows.astype(np.int64), middle, status, done)


def _evaluate(
    transition: tuple[NDArray[np.uint64], NDArray[np.uint32], FloatArray],
    rows: NDArray[np.uint64], discount: float, value: FloatArray, advantage: FloatArray,
) -> None:
    """Evaluate the policy ``rows`` roughly, updating ``value``; ``advantage`` is overwritten."""
    chain = policy_rows(rows, *transition)
    span, shrinks = float(np.ptp(advantage)), True
    allowed = _REST * span
    while shrinks:
        before = span
        span, used = evaluation_sweeps(chain, discount, value, advantage, allowed, _BATCH)
        if span <= allowed:
            return
        shrinks = span <= before * _SLOW**used
    change, solved = advantage - advantage.mean(), np.empty_like(value)
    left = stabilised_biconjugate_gradients(chain, discount, change, solved, allowed, _KRYLOV)
    if left < span:  # else the sweeps have to do
        value += solved
