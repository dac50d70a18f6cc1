"""Policy iteration for variable batching: whole queues by slack nodes, parts by sparse rows.

Under a policy the likely states form a chain (:mod:`ramsis.worker.variable`). Its kernel has the
rows F·A of :mod:`ramsis.worker.slack_nodes` where a state serves its whole queue, and those of
:mod:`ramsis.worker.remainder` where it serves a part; one factorisation of it gives gain, values
and stationary law. A round then improves every likely state; it ends when no choice gains more
than rounding. The bounds on the gain, and the restarts where rounding has the last word, are as on
the slack nodes.

It starts from the best policy of maximal batching, so that the result is never worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ramsis.mdp.result import Certificate, Status
from ramsis.worker.actions import Batching, Outcome
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.slack_nodes import (
    Chain,
    Surplus,
    average_certificate,
    between_states,
    rounded,
    settled_evaluation,
    solve_chain,
    solve_on_nodes,
    to_nodes,
)
from ramsis.worker.structured import Backup, build_structured
from ramsis.worker.variable import VariableMDP

__all__ = ["VariableEvaluation", "VariableSolution", "evaluate_variable", "solve_variable"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VariableEvaluation:
    """A policy's gain, relative values and stationary visits.

    Attributes
    ----------
    gain : float
    value : ndarray, shape (S,)
        Of the likely states, up to a constant.
    visits : ndarray, shape (N+1, D+1)
        Stationary visits to each state per unit of cost.
    excess : float
        Requests beyond N + 1 at the same factor.
    reference : int
        The most visited state.
    restart : float
        As in :class:`~ramsis.worker.slack_nodes.NodeEvaluation`.
    """

    gain: float
    value: FloatArray
    visits: FloatArray
    excess: float
    reference: int
    restart: float


@dataclass(frozen=True, eq=False)
class VariableSolution:
    """A policy for one worker and its certificate.

    Attributes
    ----------
    policy : ndarray of int, shape (N, D+1)
        The choice for n queued (row n − 1) at slack bin j.
    evaluation : VariableEvaluation
    certificate : Certificate
    """

    policy: IntArray
    evaluation: VariableEvaluation
    certificate: Certificate


def evaluate_variable(
    mdp: VariableMDP,
    policy: IntArray,
    reference: int | None = None,
    *,
    restart: float | None = None,
) -> VariableEvaluation:
    """Gain, values and visits of a policy, by one factorisation.

    The parameters are those of :func:`~ramsis.worker.slack_nodes.evaluate_on_nodes`.

    Raises
    ------
    InvalidValueError
        When the policy chooses what is not admissible.
    NotConvergedError
        When the policy's chain has no single stationary distribution within rounding.
    """
    mdp.problem.check_policy(policy)
    if restart is not None:
        return _evaluate(mdp, policy, reference, restart)
    return settled_evaluation(
        lambda start, chance: _evaluate(mdp, policy, start, chance), reference,
        lambda found: rounded(found.value, mdp.whole.costs),
    )


def _evaluate(
    mdp: VariableMDP, policy: IntArray, reference: int | None, restart: float
) -> VariableEvaluation:
    problem, whole, parts = mdp.problem, mdp.whole, mdp.parts
    outcome = problem.outcome(policy)
    pairs = parts.find(mdp.likely, problem.every_state(policy).ravel()[mdp.likely])
    state = np.flatnonzero(pairs >= 0)
    rows = pairs[state]
    served = _whole_queues(outcome)
    kernel, beyond = between_states(whole, served)
    kernel[state], beyond[state] = parts.law[rows].toarray(), mdp.charged * parts.excess[rows]
    beyond *= 1.0 - restart
    reward, cost = (array[whole.reached] for array in problem.earned(outcome))
    start = np.asarray(whole.continuation[[-1]].toarray()[0])
    chain = Chain(kernel, reward - problem.violation_price * beyond, cost + beyond, start)
    found = solve_chain(chain, restart, reference)
    visits = np.zeros(outcome.service.shape)
    visits[whole.reached] = found.visits
    to_whole = found.visits.copy()
    to_whole[state] = 0.0
    excess = (to_nodes(whole, served, to_whole) @ whole.excess
              + found.visits[state] @ parts.excess[rows])
    return VariableEvaluation(found.gain, found.value, visits, (1.0 - restart) * float(excess),
                              found.reference, restart)


def _whole_queues(outcome: Outcome) -> Outcome:
    """The outcome with what takes part of a queue marked as no service."""
    queued = np.arange(1, len(outcome.batch) + 1)[:, None]
    return outcome._replace(service=np.where(outcome.batch < queued, -1, outcome.service))


def solve_variable(mdp: VariableMDP, *, max_rounds: int = 100) -> VariableSolution:
    """The policy of greatest gain.

    Parameters
    ----------
    max_rounds : int
        Rounds after which the best policy so far is returned, marked as not converged.
    """
    policy = _maximal(mdp.problem)
    reference = restart = None
    for rounds in range(1, max_rounds + 1):
        evaluation = evaluate_variable(mdp, policy, reference, restart=restart)
        backup = mdp.backup(_onward(mdp, evaluation), evaluation.gain, policy)
        settled = np.array_equal(backup.policy, policy)
        if settled or rounds == max_rounds:
            break
        policy = backup.policy
        reference, restart = evaluation.reference, evaluation.restart or None
    certificate = _certify(mdp, evaluation, backup, rounds,
                           Status.OPTIMAL if settled else Status.MAX_ITERATIONS)
    filled = mdp.fill(_onward(mdp, evaluation), evaluation.gain, policy)
    return VariableSolution(filled, evaluation, certificate)


def _maximal(problem: WorkerProblem) -> IntArray:
    """The best policy that serves whole queues."""
    return solve_on_nodes(build_structured(replace(problem, batching=Batching.MAXIMAL))).policy


def _onward(mdp: VariableMDP, evaluation: VariableEvaluation) -> FloatArray:
    """(1 − ε)·V + ε·V(start): what moving to each state is worth, restarts counted in."""
    start = float(np.asarray(mdp.whole.continuation @ evaluation.value)[-1])
    value: FloatArray = evaluation.value + evaluation.restart * (start - evaluation.value)
    return value


def _certify(
    mdp: VariableMDP, evaluation: VariableEvaluation, backup: Backup, rounds: int, status: Status
) -> Certificate:
    whole = mdp.whole
    costs = whole.costs[whole.reached[0]]
    kept = backup.kept[whole.reached]
    more = backup.value[whole.reached] - kept
    missed = np.abs(kept - evaluation.value)
    error = float((missed / costs).max()) + rounded(evaluation.value, whole.costs)
    return average_certificate(
        whole, evaluation.gain, evaluation.restart, rounds, status,
        Surplus(float(more.max()), float((more / costs).max()), error),
    )
