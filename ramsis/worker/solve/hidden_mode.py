"""Policies that do not observe the mode of the arrivals: local search from a given table.

The worker knows its queue and its slack, not whether the arrivals are quiet or bursting: the
problem is partially observed, and policies are restricted to tables over (n, j). With π(z | n, j)
the conditional frequency of the mode in (n, j) under the policy, the first-order change of the
gain by another action there is the advantage averaged over z,

    Σ_z π(z | n, j)·[Q((n, j, z), m) − Q((n, j, z), m(n, j))].

A round takes the action with the largest such average in every state. Where the gain of the new
table is not larger, only the half of the changes with the largest frequency × average is kept, and
so on. The search ends when no change is left that raises the gain. The table's gain is exact for
the model. It is a local optimum; no proof that no table has more. The greatest gain of a policy
that observes the mode, found by policy iteration, is an upper bound.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.result import Status
from ramsis.worker.problem.actions import DROP
from ramsis.worker.problem.modes import MODES
from ramsis.worker.solve.policy_iteration import NodeSolution, certify, solve_on_nodes
from ramsis.worker.structure import StructuredMDP
from ramsis.worker.structure.evaluation import NodeEvaluation, evaluate_on_nodes, state_frequency
from ramsis.worker.structure.modulated import repeat_modes

_SMALLEST_GAIN = 1e-10


def solve_hidden(
    mdp: StructuredMDP, initial: IntArray, *, max_rounds: int = 100
) -> NodeSolution:
    """Return a table whose gain is a local maximum.

    Parameters
    ----------
    mdp : StructuredMDP
        Of :func:`ramsis.worker.structure.modulated.build_modulated`.
    initial : ndarray of int, shape (N, D+1)
        Table to start from; the result has no less gain.
    max_rounds : int
        Evaluations after which the best table so far is returned, marked as not converged.

    Returns
    -------
    NodeSolution
        Its policy is a table (N, D+1), its evaluation that of the augmented problem; the
        certificate's upper bound is that of policies that observe the mode.
    """
    observing = solve_on_nodes(mdp, initial=repeat_modes(initial))
    table, best = initial, evaluate_on_nodes(mdp, repeat_modes(initial))
    rounds, stable = 1, False
    while not stable and rounds < max_rounds:
        change, merit = _improvement(mdp, table, best)
        order = np.argsort(-merit, axis=None, kind="stable")
        order = order[: np.count_nonzero(merit > 0.0)]
        stable = True
        while len(order) and stable and rounds < max_rounds:
            trial = table.copy()
            trial.ravel()[order] = change.ravel()[order]
            evaluation = evaluate_on_nodes(mdp, repeat_modes(trial), best.reference)
            rounds += 1
            if evaluation.gain > best.gain + _SMALLEST_GAIN:
                table, best, stable = trial, evaluation, False
            order = order[: len(order) // 2]
    policy = repeat_modes(table)
    backup = mdp.greedy(best.onward_value, best.gain, policy)
    status = Status.OPTIMAL if stable else Status.MAX_ITERATIONS
    proof = certify(mdp, best, backup, rounds, status)
    proof = dataclasses.replace(
        proof, upper_bound=max(proof.lower_bound, observing.certificate.upper_bound),
        notes=(*proof.notes, "a local optimum; the upper bound is that of seeing the mode"),
    )
    return NodeSolution(table, best, proof)


def _improvement(
    mdp: StructuredMDP, table: IntArray, evaluation: NodeEvaluation
) -> tuple[IntArray, FloatArray]:
    """The action of the greatest averaged Q in each state, and frequency × its advantage."""
    problem = mdp.problem
    frequency, _ = state_frequency(mdp, evaluation)
    frequency = frequency[:-1].reshape(*table.shape, MODES)
    total = frequency.sum(axis=2)
    change, merit = table.copy(), np.zeros(table.shape)
    onward_value, gain = evaluation.onward_value, evaluation.gain
    service_values = mdp.service_values(onward_value)
    kept_value = mdp.greedy(onward_value, gain, repeat_modes(table)).kept
    for n, actions in enumerate(problem.actions.by_queue[:-1]):
        q = np.full((len(problem.latency.models) + 1, table.shape[1]), -np.inf)  # a drop is last
        for action in actions:
            onward = (mdp.drop_value(n, kept_value, onward_value) if action.drops
                      else mdp.phase[n, action.bins] @ service_values[action.service])
            own = problem.reward(action) - gain * problem.cost(action.batch)
            each = (own + onward).reshape(-1, MODES)
            span = slice(action.first_bin // MODES, action.stop_bin // MODES)
            q[action.code, span] = (each * frequency[n, span]).sum(axis=1)
        kept = q[table[n], np.arange(table.shape[1])]
        more = q.max(axis=0) - kept
        better = more > _SMALLEST_GAIN * total[n]
        best = q.argmax(axis=0)
        change[n][better] = np.where(best == len(q) - 1, DROP, best)[better]
        merit[n][better] = more[better]
    return change, merit
