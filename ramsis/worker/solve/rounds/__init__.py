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
to 1e-12. An action changes only if another one is better by 1e-9. Once no action changes, the
policy is improved in all states. If that changes none that it can reach, the values are those of
the improved policy, too. Else, and where GMRES does not converge within its steps, as in a chain
that almost falls into parts, the policy is handed on to rounds with values from a factorisation.

*Frequencies.* The stationary frequencies π of the nodes per unit of cost solve the transposed
system, (I − M + c·wᵀ)ᵀ·π = w, by the same steps (:func:`evaluate_policy`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.dense_chain import rounding_error
from ramsis.worker.solve.rounds.arrays import actions_of, mixtures_of, model_of, states_of
from ramsis.worker.structure.evaluation import NodeEvaluation, evaluate_on_nodes
from ramsis.worker.structure.structured import StructuredMDP

__all__ = ["evaluate_policy", "first_rounds"]

# Relative residuals of rough and of exact values, and relative gain of an action that is rounding.
_ROUGH, _TOLERANCE, _ROUNDING = 1e-6, 1e-12, 1e-9
_EXACT = 1e-9  # error of the gain by rounding up to which no factorisation is needed
_STEPS = 60  # largest dimension of a Krylov space
_MOST = 1_000  # rounds; a few are enough


class FirstRounds(NamedTuple):
    """Policy of the first rounds, and its values by GMRES."""

    policy: IntArray  # improved in all states, shape (N, D+1)
    rounds: int
    # node values u, (I+L,), and gain of ``policy``; None where GMRES does not converge, or where
    # the last improvement changed the policy in states that it can reach
    values: tuple[FloatArray, float] | None


def first_rounds(mdp: StructuredMDP, policy: IntArray, most: int) -> FirstRounds:
    """Return a nearly optimal policy after at most ``most`` >= 0 rounds.

    ``policy``, (N, D+1), is an admissible one to start from; it is returned if values cannot be
    computed.
    """
    from ramsis.worker.solve.rounds._kernels import rounds  # which takes long to load

    choices = mdp.choices
    codes = mdp.problem.with_full_state(policy)
    place, value = choices.place_of(codes), np.zeros(len(mdp.excess))
    states = states_of(mdp)
    count, gain, stable = rounds(
        model_of(mdp), actions_of(mdp), states, mixtures_of(mdp), place, value,
        (_ROUGH, _TOLERANCE, _ROUNDING), _STEPS, min(most, _MOST))
    if np.isnan(gain):
        return FirstRounds(policy, 0, None)
    evaluated = choices.code_at(place)
    improved = mdp.greedy(value, gain, evaluated[:-1]).policy
    at = states.queued, states.bins
    stable &= np.array_equal(mdp.problem.with_full_state(improved)[at], evaluated[at])
    return FirstRounds(improved, count, (value, gain) if stable else None)


def evaluate_policy(mdp: StructuredMDP, policy: IntArray) -> NodeEvaluation:
    """Compute gain, values and frequencies of a policy, by a factorisation only where it must be.

    That is where GMRES does not converge, or rounding would move the gain.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`~ramsis.worker.structure.evaluation.evaluate_on_nodes`.
    """
    from ramsis.worker.solve.rounds._kernels import evaluation  # which takes long to load

    mdp.problem.check_policy(policy)
    place = mdp.choices.place_of(mdp.problem.with_full_state(policy))
    value, frequency = np.zeros((2, len(mdp.excess)))
    gain = evaluation(model_of(mdp), actions_of(mdp), states_of(mdp), mixtures_of(mdp), place,
                      value, frequency, _TOLERANCE, _STEPS)
    if np.isnan(gain) or rounding_error(value, mdp.costs) > _EXACT:
        return evaluate_on_nodes(mdp, policy)
    frequency = np.maximum(frequency, 0.0)
    return NodeEvaluation(policy, gain, value, frequency, int(frequency.argmax()), _TOLERANCE)
