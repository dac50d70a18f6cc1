"""Policy iteration for variable batching: one chain for whole queues and for parts of them.

Under a policy the likely states form a chain (:mod:`ramsis.worker.structure.variable_batching`).
Its kernel has the rows F·A of :mod:`ramsis.worker.structure.evaluation` where a state serves its
whole queue, and those of :mod:`ramsis.worker.problem.partial_batch` where it serves a part. One
factorisation gives gain, values and stationary frequencies (:mod:`ramsis.mdp.dense_chain`). A
round then improves every likely state; it ends when no action is better by more than rounding.
Bounds on the gain, and restarts, are those of :mod:`ramsis.worker.solve.policy_iteration`.

It starts from the best policy of maximal batching, so that the result is never worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.dense_chain import DenseChain, rounding_error, solve_chain, with_restarts
from ramsis.mdp.result import Certificate
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Batching, Outcome
from ramsis.worker.solve.policy_iteration import (
    Improvement,
    Round,
    gain_certificate,
    improve_until_stable,
    solve_on_nodes,
)
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import node_frequency, policy_states, state_kernel
from ramsis.worker.structure.variable_batching import VariableMDP


@dataclass(frozen=True, eq=False)
class VariableEvaluation:
    """A policy's gain, relative values and stationary frequencies."""

    gain: float
    value: FloatArray  # of the likely states, up to a constant, shape (S,)
    frequency: FloatArray  # shape (N+1, D+1): stationary frequency of each state per unit of cost
    excess: float  # requests beyond N + 1 at the same factor
    reference: int  # the most frequent state
    restart: float  # as in :class:`~ramsis.worker.structure.evaluation.NodeEvaluation`


@dataclass(frozen=True, eq=False)
class VariableSolution:
    """A policy for one worker and its certificate."""

    policy: IntArray  # shape (N, D+1): the action for n queued (row n − 1) at slack bin j
    evaluation: VariableEvaluation
    certificate: Certificate


def evaluate_variable(
    mdp: VariableMDP,
    policy: IntArray,
    reference: int | None = None,
    *,
    restart: float | None = None,
) -> VariableEvaluation:
    """Evaluate a policy by one factorisation: gain, values and frequencies.

    The parameters are those of :func:`~ramsis.worker.structure.evaluation.evaluate_on_nodes`.
    """
    mdp.problem.check_policy(policy)
    if restart is not None:
        return _evaluate(mdp, policy, reference, restart)
    return with_restarts(
        lambda start, chance: _evaluate(mdp, policy, start, chance), reference,
        lambda evaluation: rounding_error(evaluation.value, mdp.whole.costs),
    )


def _evaluate(
    mdp: VariableMDP, policy: IntArray, reference: int | None, restart: float
) -> VariableEvaluation:
    """Evaluate a policy with a given probability of a restart, by one dense factorisation."""
    problem, whole, partial = mdp.problem, mdp.whole, mdp.partial
    outcome = problem.outcome(policy)
    pairs = partial.find(mdp.likely, problem.with_full_state(policy).ravel()[mdp.likely])
    state = np.flatnonzero(pairs >= 0)
    chosen = pairs[state]
    # Rows F·A of all states; those of states that serve part of their queue are then replaced.
    served = policy_states(whole, _whole_queues(outcome))
    kernel, beyond = state_kernel(whole, served)
    kernel[state] = partial.transition[chosen].toarray()
    beyond[state] = mdp.excess_cost * partial.excess[chosen]
    beyond *= 1.0 - restart  # a restart has no excess: requests come one at a time
    reward, cost = (array[whole.reached] for array in problem.rewards_and_costs(outcome))
    start = np.asarray(whole.continuation[[-1]].toarray()[0])
    chain = DenseChain(kernel, reward - problem.violation_price * beyond, cost + beyond, start)
    solution = solve_chain(chain, restart, reference)
    frequency = np.zeros(outcome.service.shape)
    frequency[whole.reached] = solution.frequency
    # Only states that serve their whole queue lead through the nodes.
    to_whole = solution.frequency.copy()
    to_whole[state] = 0.0
    on_nodes = node_frequency(whole, served, to_whole)
    excess = on_nodes @ whole.excess + solution.frequency[state] @ partial.excess[chosen]
    if whole.overdue is not None:
        frequency[:, 0] += (1.0 - restart) * (on_nodes @ whole.overdue)
    return VariableEvaluation(solution.gain, solution.value, frequency,
                              (1.0 - restart) * float(excess), solution.reference, restart)


def _whole_queues(outcome: Outcome) -> Outcome:
    """Return the outcome with service −1 for actions on part of a queue."""
    queued = np.arange(1, len(outcome.batch) + 1)[:, None]
    return outcome._replace(service=np.where(outcome.batch < queued, -1, outcome.service))


def solve_variable(mdp: VariableMDP, *, max_rounds: int = 100) -> VariableSolution:
    """Find the policy of largest gain for variable batching, by policy iteration.

    Parameters
    ----------
    max_rounds : int
        Rounds after which the best policy so far is returned, marked as not converged.
    """
    last = improve_until_stable(
        _best_maximal(mdp.problem),
        lambda policy, reference, restart: evaluate_variable(
            mdp, policy, reference, restart=restart),
        lambda evaluation, policy: mdp.backup(_onward(mdp, evaluation), evaluation.gain, policy),
        max_rounds,
    )
    gains = last.evaluation
    filled = mdp.fill(_onward(mdp, gains), gains.gain, last.policy)
    return VariableSolution(filled, gains, _certify(mdp, last))


def _best_maximal(problem: WorkerProblem) -> IntArray:
    """Return the optimal policy among those that serve whole queues, as a start."""
    return solve_on_nodes(build_structured(replace(problem, batching=Batching.MAXIMAL))).policy


def _onward(mdp: VariableMDP, evaluation: VariableEvaluation) -> FloatArray:
    """Return (1 − ε)·V + ε·V(start), the value of moving to each state with restarts."""
    start = float(np.asarray(mdp.whole.continuation @ evaluation.value)[-1])
    value: FloatArray = evaluation.value + evaluation.restart * (start - evaluation.value)
    return value


def _certify(mdp: VariableMDP, last: Round[VariableEvaluation]) -> Certificate:
    whole, evaluation = mdp.whole, last.evaluation
    costs = whole.costs[whole.reached[0]]
    kept = last.backup.kept[whole.reached]
    more = last.backup.value[whole.reached] - kept
    missed = np.abs(kept - evaluation.value)
    error = float((missed / costs).max()) + rounding_error(evaluation.value, whole.costs)
    return gain_certificate(
        whole, (evaluation.gain, evaluation.restart), last.number, last.status,
        Improvement(float(more.max()), float((more / costs).max()), error),
    )
