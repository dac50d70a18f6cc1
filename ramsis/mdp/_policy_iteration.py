"""Policy iteration: evaluate a policy exactly, improve it everywhere, until it stays.

Discounted: improve by ``argmax_l r + discount P V``.

Average reward, also semi-Markov and multichain: evaluation gives a gain ``g(s)`` and relative
values ``h(s)`` (see :mod:`ramsis.mdp.evaluation`). Improve by

1. ``argmax_l (P g)(s)`` wherever that exceeds ``g(s)``; only when it does so nowhere,
2. ``argmax_l r - g(s) c + P h`` among the pairs that keep ``P g = g(s)``.

A policy that no longer changes solves both optimality equations. A state changes its action only
if another one is better by more than the rounding of the terms in its sum. So ties keep the
incumbent, and probabilities of 1e-40 are distinguished as well as those near 1. Each round
improves the policy, and there are finitely many policies. The loop also stops if rounding brings
an earlier policy back, or if improvements are within rounding for some rounds. In practice it
takes a handful of rounds. At the end the bounds of :mod:`ramsis.mdp.certificates` judge the
values, independently of how they were found.

Sources: Puterman (1994), sections 6.4, 8.6, 9.2 and 11.4; Denardo and Fox (1968).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.certificates import average_solution, discounted_certificate
from ramsis.mdp.chain import closed_classes
from ramsis.mdp.components import pairs_toward
from ramsis.mdp.evaluation import Evaluation, evaluate_pairs
from ramsis.mdp.result import Solution, Status, check_discount, check_iterations, check_tolerance
from ramsis.mdp.sparse import SparseMDP

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)  # of the terms that are added
_DOUBTFUL = 1e-13  # relative to the largest terms; less may be the evaluation's rounding
_PATIENCE = 30  # rounds of doubtful improvements


def policy_iteration(
    mdp: SparseMDP,
    *,
    discount: float | None = None,
    initial: ArrayLike | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 10_000,
) -> Solution:
    """Solve by policy iteration with exact evaluation.

    Parameters
    ----------
    discount : float in [0, 1), optional
        Per decision; costs then play no part. ``None`` asks for average reward per unit of
        cost. Costs may be 0 as long as no policy can go on for ever without cost.
    initial : (S,) action labels, optional
        First policy; by default the best immediate reward per unit of cost.
    tolerance : float > 0
        How far apart the bounds may be, relative to ``1 + |gain|`` (discounted: to the
        largest value). As values are exact up to rounding, only badly scaled problems miss
        it; they get the status ``precision``.
    max_iterations : int
        Policies evaluated at most.

    Returns
    -------
    Solution
        Gain and value are those of the returned policy, exact up to rounding.

    Raises
    ------
    InvalidValueError
        A setting out of range; a policy that can go on for ever at no cost.
    NotConvergedError
        An evaluation that is numerically singular beyond recovery.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 0.5, 1: 0.5}, 1.0), (0, 1, {0: 1.0}, 1.5), (1, 0, {0: 1.0}, 4.0)])
    >>> solution = policy_iteration(mdp)
    >>> solution.policy.tolist(), solution.gain
    ([0, 0], 2.0)
    """
    discount = check_discount(discount)
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    settings = {"solver": "policy-iteration", "discount": discount, "tolerance": tolerance,
                "max_iterations": max_iterations}
    rows = _first_policy(mdp, discount) if initial is None else mdp.pairs_of(initial)
    seen: set[bytes] = set()
    doubts = 0
    notes: tuple[str, ...] = ()
    for iteration in range(1, max_iterations + 1):
        evaluation = evaluate_pairs(mdp, rows, discount)
        notes = tuple(dict.fromkeys([*notes, *evaluation.notes]))
        better, doubtful = _improve(mdp, rows, evaluation, discount)
        seen.add(rows.tobytes())
        doubts = doubts + 1 if doubtful else 0
        # Each round improves the policy, so only rounding brings an earlier one back.
        stopped = better.tobytes() in seen or doubts > _PATIENCE
        if stopped or iteration == max_iterations:
            break
        rows = better
    otherwise = Status.PRECISION if stopped else Status.MAX_ITERATIONS
    if discount is None:
        return average_solution(
            mdp, rows, replace(evaluation, notes=notes), otherwise=otherwise,
            tolerance=tolerance, iterations=iteration, settings=settings)
    certificate = discounted_certificate(
        mdp, evaluation.value, discount, status=otherwise, iterations=iteration, notes=notes)
    if stopped and certificate.gap <= tolerance * (1.0 + np.abs(evaluation.value).max()):
        certificate = replace(certificate, status=Status.OPTIMAL)
    return Solution(mdp.action[rows], evaluation.value, None, certificate, settings)


def _first_policy(mdp: SparseMDP, discount: float | None) -> IntArray:
    """Return a first policy, (S,): each state's pair with the best reward per unit of cost.

    Discounted problems ignore costs. Where that policy could go on for ever at no cost, each state
    whose pairs all cost nothing takes a pair that leads towards a state with a pair that costs.
    """
    if discount is not None or mdp.cost is None:
        return mdp.best(mdp.reward)[1]
    paid = mdp.cost > 0.0
    rate = np.full(mdp.n_pairs, -np.inf)
    rate[paid] = mdp.reward[paid] / mdp.cost[paid]
    rate, rows = mdp.best(rate)
    count, label = closed_classes(mdp.transition[rows])
    cost = np.bincount(label[label >= 0], mdp.cost[rows[label >= 0]], minlength=count)
    if cost.all():
        return rows
    way = pairs_toward(mdp, np.isfinite(rate), np.ones(mdp.n_pairs, dtype=bool))
    return np.where(way >= 0, way, rows)


def _improve(
    mdp: SparseMDP, rows: IntArray, evaluation: Evaluation, discount: float | None
) -> tuple[IntArray, bool]:
    """Return the improved policy and whether the change may be due to rounding.

    It equals ``rows`` when nothing is better by more than rounding.
    """
    value, gain = evaluation.value, evaluation.state_gain
    if gain is None:
        assert discount is not None
        return _switch(mdp, rows, mdp.reward + discount * (mdp.transition @ value), np.full(
            mdp.n_pairs, np.abs(mdp.reward).max() + np.abs(value).max()))
    paid = gain[mdp.state] * mdp.costs
    quality = mdp.reward - paid + mdp.transition @ value
    size = np.abs(mdp.reward) + np.abs(paid) + mdp.transition @ np.abs(value)
    free = mdp.costs == 0.0
    if free.any():  # per departure from the state, so that a rare departure counts in full
        free &= mdp.moving > 0.0
        quality[free] = mdp.reward[free] / mdp.moving[free] + mdp.moves[free] @ value
    if np.ptp(gain) > 0.0:
        # The gain where a pair leads to when it leaves its state: P g itself would hardly differ
        # from g where it rarely leaves.
        stays = mdp.moving == 0.0
        reached, reached_size = mdp.moves @ gain, mdp.moves @ np.abs(gain)
        reached[stays] = gain[mdp.state[stays]]
        reached_size[stays] = np.abs(reached[stays])
        better, doubtful = _switch(mdp, rows, reached, reached_size)
        if not np.array_equal(better, rows):
            return better, doubtful
        slack = _ROUNDING * reached_size
        quality[reached < (reached - slack)[rows][mdp.state] - slack] = -np.inf
    return _switch(mdp, rows, quality, np.full(mdp.n_pairs, size.max()))


def _switch(
    mdp: SparseMDP, rows: IntArray, quality: FloatArray, size: FloatArray
) -> tuple[IntArray, bool]:
    """Return the best pair of each state; the incumbent where it is as good up to rounding.

    ``size`` is that of the terms which a pair's quality is the sum of.
    """
    largest, best = mdp.best(quality)
    excess = largest - quality[rows]
    better = excess > _ROUNDING * (size[rows] + size[best])
    doubtful = not (excess > _DOUBTFUL * (1.0 + size.max())).any()
    return np.where(better, best, rows), doubtful
