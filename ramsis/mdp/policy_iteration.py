"""Policy iteration: evaluate a policy exactly, improve it everywhere, until it stays.

Discounted: improve by ``argmax_l r + discount P V``.

Average reward, also semi-Markov and multichain: evaluation gives a gain ``g(s)`` and relative
values ``h(s)`` (see :mod:`ramsis.mdp.evaluation`). Improve by

1. ``argmax_l (P g)(s)`` wherever that exceeds ``g(s)``; only when it does so nowhere,
2. ``argmax_l r - g(s) c + P h`` among the pairs that keep ``P g = g(s)``.

A policy that no longer changes solves both optimality equations. A state leaves its action only
for one that is better by more than rounding, so ties keep the incumbent. Each round improves
the policy and there are finitely many; should rounding bring an earlier policy back, the loop
stops there, so it never runs for ever. It takes a handful of rounds in practice. At the end the
bounds of :mod:`ramsis.mdp.certificates` judge the values, independently of how they were found.

Sources: Puterman (1994), sections 6.4, 8.6, 9.2 and 11.4; Denardo and Fox (1968).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.checks import check_arguments
from ramsis.mdp.certificates import average_certificate, discounted_certificate
from ramsis.mdp.evaluation import Evaluation, evaluate_pairs
from ramsis.mdp.result import Certificate, Solution, Status
from ramsis.mdp.settings import check_discount, check_iterations, check_tolerance
from ramsis.mdp.sparse import SparseMDP

__all__ = ["policy_iteration"]

_ROUNDING = 1e-13

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


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
    mdp : SparseMDP
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
    rows = _greedy(mdp, discount) if initial is None else mdp.pairs_of(initial)
    seen: set[bytes] = set()
    notes: tuple[str, ...] = ()
    for iteration in range(1, max_iterations + 1):
        evaluation = evaluate_pairs(mdp, rows, discount)
        notes = tuple(dict.fromkeys([*notes, *evaluation.notes]))
        better = _improve(mdp, rows, evaluation, discount)
        seen.add(rows.tobytes())
        if better.tobytes() in seen or iteration == max_iterations:
            break
        rows = better
    stopped = better.tobytes() in seen
    certificate = _certificate(mdp, rows, evaluation, discount, iteration, notes)
    status = _status(certificate, evaluation, stopped, tolerance)
    certificate = replace(certificate, status=status)
    return Solution(mdp.action[rows], evaluation.value, evaluation.gain, certificate, settings,
                    evaluation.state_gain)


def _greedy(mdp: SparseMDP, discount: float | None) -> _Ints:
    """The pair of each state with the best immediate reward (per unit of cost)."""
    if discount is not None or mdp.cost is None:
        return mdp.best(mdp.reward)[1]
    paid = mdp.cost > 0.0
    rate = np.full(mdp.n_pairs, -np.inf)
    rate[paid] = mdp.reward[paid] / mdp.cost[paid]
    return mdp.best(rate)[1]


def _improve(
    mdp: SparseMDP, rows: _Ints, evaluation: Evaluation, discount: float | None
) -> _Ints:
    """The improved policy; equal to ``rows`` when nothing is better by more than rounding."""
    onward = mdp.transition @ evaluation.value
    scale = 1.0 + np.abs(mdp.reward).max() + np.abs(evaluation.value).max()
    if discount is not None:
        return _switch(mdp, rows, mdp.reward + discount * onward, _ROUNDING * scale)
    gain = _state_gain(evaluation)
    quality = mdp.reward - gain[mdp.state] * mdp.costs + onward
    slack = _ROUNDING * (1.0 + np.abs(gain).max())
    if np.ptp(gain) > slack:
        reached = mdp.transition @ gain
        to_better_gain = _switch(mdp, rows, reached, slack)
        if not np.array_equal(to_better_gain, rows):
            return to_better_gain
        quality[reached < gain[mdp.state] - slack] = -np.inf
    return _switch(mdp, rows, quality, _ROUNDING * scale)


def _switch(mdp: SparseMDP, rows: _Ints, quality: _Floats, slack: float) -> _Ints:
    """The best pair of each state, the incumbent where it is as good up to ``slack``."""
    largest, best = mdp.best(quality)
    return np.where(largest > quality[rows] + slack, best, rows)


def _certificate(
    mdp: SparseMDP,
    rows: _Ints,
    evaluation: Evaluation,
    discount: float | None,
    iterations: int,
    notes: tuple[str, ...],
) -> Certificate:
    """The certificate, its status still open."""
    status = Status.MAX_ITERATIONS
    if discount is not None:
        return discounted_certificate(
            mdp, evaluation.value, discount, status=status, iterations=iterations, notes=notes
        )
    if evaluation.gain is None:
        notes = (*notes, "the gain depends on the starting state; the bounds span all of them")
    return average_certificate(
        mdp, evaluation.value, _state_gain(evaluation), rows, status=status,
        iterations=iterations, notes=notes,
    )


def _status(
    certificate: Certificate, evaluation: Evaluation, stopped: bool, tolerance: float
) -> Status:
    """What the certificate says of a policy that came to rest, or did not."""
    if not stopped:
        return Status.MAX_ITERATIONS
    if evaluation.gain is None:  # discounted, or a gain for each state: relative to the values
        scale = float(np.abs(evaluation.value).max())
    else:
        scale = abs(evaluation.gain)
    several = evaluation.gain is None and evaluation.state_gain is not None
    left = certificate.bellman_residual if several else certificate.gap
    return Status.OPTIMAL if left <= tolerance * (1.0 + scale) else Status.PRECISION


def _state_gain(evaluation: Evaluation) -> _Floats:
    assert evaluation.state_gain is not None  # average reward
    return evaluation.state_gain

check_arguments(globals(), __all__)
