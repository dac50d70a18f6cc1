"""Tables that do not see the arrivals' mode, for problems that have it in their states.

The worker knows its queue and its slack, not whether the arrivals are quiet or bursting. With
π(z | n, j) the share of the mode among the policy's visits to (n, j), the first-order change of
the gain by another model there is the advantage averaged over z,

    Σ_z π(z | n, j)·[Q((n, j, z), m) − Q((n, j, z), m(n, j))],

and a round takes the model with the largest such average in every state. Where the new table has
not more gain, only the half of the changes with the largest visits × average is kept, and so on;
it ends when no change is left that gains. The table's gain is exact for the model. It is a local
optimum: that no table has more is not proven. The greatest gain of a policy that sees the mode,
found by policy iteration, bounds it from above, as it has more to go by.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ramsis.mdp.result import Status
from ramsis.worker.modulated import MODES, every_mode
from ramsis.worker.slack_nodes import (
    NodeEvaluation,
    NodeSolution,
    certify,
    evaluate_on_nodes,
    solve_on_nodes,
    state_visits,
)
from ramsis.worker.structured import StructuredMDP

__all__ = ["solve_hidden"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LEAST_GAIN = 1e-10


def solve_hidden(
    mdp: StructuredMDP, initial: IntArray, *, max_rounds: int = 100
) -> NodeSolution:
    """A table of locally greatest gain.

    Parameters
    ----------
    mdp : StructuredMDP
        Of :func:`ramsis.worker.modulated.build_modulated`.
    initial : ndarray of int, shape (N, D+1)
        Table to start from; the result has no less gain.
    max_rounds : int
        Evaluations after which the best table so far is returned, marked as not converged.

    Returns
    -------
    NodeSolution
        Its policy is a table (N, D+1), its evaluation that of the augmented problem; the
        certificate's upper bound is that of policies which see the mode.
    """
    seeing = solve_on_nodes(mdp, initial=every_mode(initial))
    table, best = initial, evaluate_on_nodes(mdp, every_mode(initial))
    rounds, settled = 1, False
    while not settled and rounds < max_rounds:
        change, merit = _improvement(mdp, table, best)
        order = np.argsort(-merit, axis=None, kind="stable")
        order = order[: np.count_nonzero(merit > 0.0)]
        settled = True
        while len(order) and settled and rounds < max_rounds:
            trial = table.copy()
            trial.ravel()[order] = change.ravel()[order]
            found = evaluate_on_nodes(mdp, every_mode(trial), best.reference)
            rounds += 1
            if found.gain > best.gain + _LEAST_GAIN:
                table, best, settled = trial, found, False
            order = order[: len(order) // 2]
    policy = every_mode(table)
    backup = mdp.greedy(best.onward_value, best.gain, policy)
    status = Status.OPTIMAL if settled else Status.MAX_ITERATIONS
    proof = certify(mdp, best, backup, rounds, status)
    proof = dataclasses.replace(
        proof, upper_bound=max(proof.lower_bound, seeing.certificate.upper_bound),
        notes=(*proof.notes, "a local optimum; the upper bound is that of seeing the mode"),
    )
    return NodeSolution(table, best, proof)


def _improvement(
    mdp: StructuredMDP, table: IntArray, evaluation: NodeEvaluation
) -> tuple[IntArray, FloatArray]:
    """The model of the greatest averaged Q in each state, and visits × its advantage."""
    problem = mdp.problem
    visits, _ = state_visits(mdp, evaluation)
    visits = visits[:-1].reshape(*table.shape, MODES)
    total = visits.sum(axis=2)
    change, merit = table.copy(), np.zeros(table.shape)
    futures = mdp.futures(evaluation.onward_value)
    for n, choices in enumerate(problem.choices.rows[:-1]):
        q = np.full((len(problem.latency.models), table.shape[1]), -np.inf)
        for choice in choices:
            future = mdp.missing[n, choice.bins] @ futures[choice.service]
            each = (problem.reward(choice) + future).reshape(-1, MODES)
            span = slice(choice.first_bin // MODES, choice.stop_bin // MODES)
            q[choice.code, span] = (each * visits[n, span]).sum(axis=1)
        kept = q[table[n], np.arange(table.shape[1])]
        more = q.max(axis=0) - kept
        better = more > _LEAST_GAIN * total[n]
        change[n][better] = q.argmax(axis=0)[better]
        merit[n][better] = more[better]
    return change, merit
