"""Policy iteration on the structured problem, with a certificate of optimality.

A round evaluates the policy exactly (:mod:`ramsis.worker.structure.evaluation`) and then improves
every state by the structured backup. It ends when no action is better by more than rounding. Each
round raises the gain, or keeps it and raises V; the argument for semi-Markov processes (Puterman
1994, §11.4) applies because the empty state is reached from everywhere.

*Certificate.* With T the Bellman operator at gain g, the optimal gain lies in
[g, g + max_s (T V − V)(s) / c(s)], widened by the residual of u = A·V and by the rounding of u: a
chain that all but falls into parts has huge values, and its gain depends on where it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ramsis.arrays import IntArray
from ramsis.errors import check_number_of
from ramsis.mdp.dense_chain import rounding_error
from ramsis.mdp.result import Certificate, Criterion, Status
from ramsis.reprs import dataclass
from ramsis.worker.solve.rounds import first_rounds
from ramsis.worker.structure.evaluation import NodeEvaluation, evaluate_on_nodes
from ramsis.worker.structure.structured import Backup, StructuredMDP

_LARGEST_ERROR = 1e-5  # of a gain that is still certified


class _Evaluated(Protocol):
    @property
    def reference(self) -> int: ...
    @property
    def restart(self) -> float: ...


_Evaluation = TypeVar("_Evaluation", bound=_Evaluated)


@dataclass(frozen=True, eq=False)
class Round(Generic[_Evaluation]):
    """Result of the last round of policy iteration."""

    policy: IntArray  # shape (N, D+1)
    evaluation: _Evaluation  # of this policy
    backup: Backup  # of the evaluated policy's values
    number: int  # rounds in all
    status: Status


def improve_until_stable(
    policy: IntArray,
    evaluate: Callable[[IntArray, int | None, float | None], _Evaluation],
    improve: Callable[[_Evaluation, IntArray], Backup],
    max_rounds: int,
) -> Round[_Evaluation]:
    """Evaluate and improve a policy until it does not change.

    Parameters
    ----------
    policy : ndarray of int, shape (N, D+1)
        Initial policy.
    evaluate : callable
        Evaluates a policy, given reference and restart of the previous evaluation.
    improve : callable
        Backs up the values of an evaluation, with the policy as the incumbent.
    """
    check_number_of("rounds", max_rounds, where="max_rounds")
    reference = restart = None
    for number in range(1, max_rounds + 1):
        evaluation = evaluate(policy, reference, restart)
        backup = improve(evaluation, policy)
        stable = np.array_equal(backup.policy, policy)
        if stable or number == max_rounds:
            break
        policy = backup.policy
        reference, restart = evaluation.reference, evaluation.restart or None
    status = Status.OPTIMAL if stable else Status.MAX_ITERATIONS
    return Round(policy, evaluation, backup, number, status)


@dataclass(frozen=True, eq=False)
class NodeSolution:
    """A policy for one worker and its certificate."""

    policy: IntArray  # action for n queued (row n − 1) at slack bin j, shape (N, D+1)
    evaluation: NodeEvaluation
    certificate: Certificate  # bounds on the optimal gain of the model that was solved


def solve_on_nodes(
    mdp: StructuredMDP, *, initial: IntArray | None = None, max_rounds: int = 100
) -> NodeSolution:
    """Find the policy of largest gain for maximal batching, by policy iteration.

    Parameters
    ----------
    initial : ndarray of int, shape (N, D+1), optional
        Admissible policy to start from; by default the fastest admissible model everywhere.
    max_rounds : int
        Rounds after which the best policy so far is returned, marked as not converged.

    Raises
    ------
    InvalidValueError
        When there are no rounds, or the initial policy has an action that is not admissible.
    """
    check_number_of("rounds", max_rounds, where="max_rounds")
    if initial is None:
        initial = mdp.problem.fastest_policy()
    else:
        mdp.problem.check_policy(initial)
    first, done = first_rounds(mdp, initial, max_rounds - 1)
    last = improve_until_stable(
        first,
        lambda policy, reference, restart: evaluate_on_nodes(
            mdp, policy, reference, restart=restart),
        lambda evaluation, policy: mdp.greedy(evaluation.onward_value, evaluation.gain, policy),
        max_rounds - done,
    )
    return NodeSolution(last.policy, last.evaluation, certify(
        mdp, last.evaluation, last.backup, done + last.number, last.status))


class Improvement(NamedTuple):
    """Result of one Bellman backup of a policy's values."""

    residual: float  # largest advantage of an action over the policy's
    per_cost: float  # largest advantage per unit of the action's cost
    error: float  # bound on the error of the gain


def certify(
    mdp: StructuredMDP, evaluation: NodeEvaluation, backup: Backup, iterations: int, status: Status
) -> Certificate:
    """Bound the optimal gain from an evaluated policy and one backup of its values."""
    residual = backup.value - backup.kept
    per_cost = float((residual / mdp.costs[:, None]).max())
    values = evaluation.node_value
    missed = np.abs(mdp.node_values(backup.kept, evaluation.gain) - values).max()
    error = float(missed / mdp.costs.min()) + rounding_error(values, mdp.costs)
    return gain_certificate(mdp, (evaluation.gain, evaluation.restart), iterations, status,
                            Improvement(float(residual.max()), per_cost, error))


def gain_certificate(
    mdp: StructuredMDP, evaluated: tuple[float, float], iterations: int, status: Status,
    improvement: Improvement,
) -> Certificate:
    """Bound the optimal gain from a policy's (gain, restart) and one backup."""
    gain, restart = evaluated
    notes = ((f"restarts empty with probability {restart:g} at a decision",)
             if restart else ())
    if status is Status.OPTIMAL and improvement.error > _LARGEST_ERROR:
        status = Status.PRECISION
    return Certificate(
        criterion=Criterion.AVERAGE,
        status=status,
        iterations=iterations,
        bellman_residual=improvement.residual,
        lower_bound=gain - improvement.error,
        upper_bound=gain + max(0.0, improvement.per_cost) + improvement.error,
        truncated_mass=mdp.truncated_mass,
        notes=notes,
    )
