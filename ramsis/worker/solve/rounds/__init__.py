"""First rounds of policy iteration, with values as exact as the choice of actions needs.

A policy's node values and gain solve u = r − g·c + M·u
(:mod:`ramsis.worker.structure.evaluation`). With any w >= 0, here constant with w·c = 1, this is
the one system

    (I − M + c·wᵀ)·u = r,    g = w·u,

as the stationary frequencies π give (π·c)·(w·u) = π·r. M is never written out: it is applied by
first passages, phases and drops of the states that nodes lead to, and those that drops from these
may. Few of its eigenvalues are far from 0, since a service mixes what was before, so that minimal
residuals in a Krylov space (GMRES; Saad and Schultz 1986) need few steps from the values of the
previous round.

*Stopping rule.* The residual of a round is at most 1e-6 of r; if no action changes, it is lowered
to 1e-11. An action changes only if another one is better by 1e-9. Once no action changes, the
policy is improved in all states and handed on to rounds with exact values, which prove that it is
optimal or improve it further. Where GMRES does not converge within its steps, as in a chain that
almost falls into parts, all rounds are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ramsis.arrays import IntArray
from ramsis.worker.structure.structured import NEGLIGIBLE, StructuredMDP

__all__ = ["first_rounds"]

# Relative residuals of rough and of exact values, and relative gain of an action that is rounding.
_ROUGH, _TOLERANCE, _ROUNDING = 1e-6, 1e-11, 1e-9
_STEPS = 60  # largest dimension of a Krylov space
_MOST = 1_000  # rounds; a few are enough


def first_rounds(
    mdp: StructuredMDP, policy: IntArray, most: int
) -> tuple[IntArray, int]:
    """Return a nearly optimal policy, and the number of rounds that it took.

    Parameters
    ----------
    policy : ndarray of int, shape (N, D+1)
        Admissible policy to start from, returned if values cannot be computed.
    most : int
        Largest number of rounds, >= 0.
    """
    from ramsis.worker.solve.rounds import _kernels  # which take long to load

    choices = mdp.choices
    codes = mdp.problem.with_full_state(policy)
    place, value = choices.place_of(codes), np.zeros(len(mdp.excess))
    count, gain = _kernels.rounds(
        _model(mdp, _kernels), _actions(mdp, _kernels), _states(mdp, _kernels), place, value,
        (_ROUGH, _TOLERANCE, _ROUNDING), _STEPS, min(most, _MOST))
    if np.isnan(gain):
        return policy, 0
    return mdp.greedy(value, gain, choices.code_at(place)[:-1]).policy, count


def _matrix(kernels: Any, matrix: Any) -> Any:
    return kernels.Matrix(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64),
                          matrix.data)


def _model(mdp: StructuredMDP, kernels: Any) -> Any:
    drops = mdp.drops
    reach, idle, row, nodes = mdp.passages.arrays()
    return kernels.StructuredArrays(
        mdp.phase,
        np.zeros((0, 0, 0)) if drops is None else drops.next_slack,
        np.zeros((0, mdp.phase.shape[2])) if drops is None else np.ascontiguousarray(
            drops.emptied),
        reach, idle, row, nodes, _matrix(kernels, mdp.continuation), mdp.charged_excess,
        mdp.problem.violation_price)


def _actions(mdp: StructuredMDP, kernels: Any) -> Any:
    choices = mdp.choices
    return kernels.Actions(choices.service, choices.cost, choices.reward, choices.dropped,
                           choices.drop_cost, _matrix(kernels, mdp.problem.services.weights))


def _states(mdp: StructuredMDP, kernels: Any) -> Any:
    """Return the states that slack nodes lead to, and those that drops from there may lead to.

    With each state goes the range of slack bins, ``first`` to ``stop`` (exclusive), in which the
    next head may be after a drop there; it is empty where there are no drops.
    """
    met = np.zeros(mdp.phase.shape[:2], dtype=bool)
    met[mdp.reached] = True
    first = stop = np.zeros(0, dtype=np.int64)
    if mdp.drops is not None:
        from ramsis.worker.structure._kernels import meet_after_drops  # which takes long to load

        # The policy changes from round to round, so each state may drop: service −1 everywhere.
        onward = mdp.drops.next_slack
        meet_after_drops(met, np.full(met.shape, -1), onward, NEGLIGIBLE)
        some = onward[met] > NEGLIGIBLE
        first = some.argmax(axis=1)
        stop = np.where(some.any(axis=1), some.shape[1] - some[:, ::-1].argmax(axis=1), 0)
    queued, bins = np.nonzero(met)
    return kernels.States(queued, bins, first, stop, *mdp.reached)
