"""Policy iteration on the structured problem, with a certificate of optimality.

A round evaluates the policy exactly (:mod:`ramsis.worker.structure.evaluation`) and then improves
every state by the structured backup. It ends when no action is better by more than rounding. Each
round raises the gain, or keeps it and raises V; the argument for semi-Markov processes (Puterman
1994, §11.4) applies because the empty state is reached from everywhere.

*Certificate.* With T the Bellman operator at gain g and c(s) the cost of a decision in s, the
optimal gain lies in [g, g + max_s (T V − V)(s) / c(s)], widened by the residual of u = A·V and by
the rounding of u. So values by GMRES (:mod:`ramsis.worker.solve.rounds`) are enough where that
residual is small. The rounding matters if the chain all but falls into parts: its values are then
huge, and its gain depends on where it starts. Such a chain is evaluated with restarts from empty,
and the certificate notes their probability.

*Variable batching.* Under a policy the likely states form a chain
(:mod:`ramsis.worker.structure.variable_batching`). Its kernel has the rows F·A of
:mod:`ramsis.worker.structure.evaluation` where a state serves its whole queue, and those of
:mod:`ramsis.worker.problem.partial_batch` where it serves a part. GMRES gives gain and values
without this kernel, and one factorisation of it gives them together with the stationary
frequencies (:mod:`ramsis.mdp.dense_chain`). A round then improves every
likely state; the iteration ends when no action is better by more than rounding. Until then a
relative residual of 1e-6 is enough; only values with one of 1e-12 show that no action changes.
Bounds on the gain, and restarts, are as above. The iteration starts from the best policy of
maximal batching.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import check_number_of
from ramsis.mdp.dense_chain import DenseChain, rounding_error, solve_chain, with_restarts
from ramsis.mdp.result import Certificate, Criterion, Status
from ramsis.reprs import dataclass
from ramsis.worker.solve.rounds import FirstRounds, evaluate_policy, first_rounds
from ramsis.worker.structure.evaluation import (
    NodeEvaluation,
    evaluate_on_nodes,
    node_frequency,
    policy_states,
    state_kernel,
)
from ramsis.worker.structure.structured import Backup, StructuredMDP
from ramsis.worker.structure.variable_batching import VariableMDP

_LARGEST_ERROR = 1e-5  # of a gain that is still certified
_PROVEN = 1e-9  # largest error of a gain whose policy needs no factorisation
# Relative residuals of GMRES for rough and for exact values, and largest dimension of its space.
_ROUGH, _RESIDUAL, _STEPS = 1e-6, 1e-12, 60


class _Evaluated(Protocol):
    @property
    def reference(self) -> int | None: ...
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
    """Run policy iteration until the policy does not change, or ``max_rounds`` are over.

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

    mdp: StructuredMDP
    policy: IntArray  # action for n queued (row n − 1) at slack bin j, shape (N, D+1)
    gain: float
    certificate: Certificate  # bounds on the optimal gain of the solved problem
    exact: NodeEvaluation | None = None  # of the policy, where it is at hand

    @cached_property
    def evaluation(self) -> NodeEvaluation:
        """Gain, values and frequencies of the policy."""
        return self.exact or evaluate_policy(self.mdp, self.policy)


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
    first = first_rounds(mdp, initial, max_rounds - 1)
    solution = _proven(mdp, first)
    if solution is not None:
        return solution
    last = improve_until_stable(
        first.policy,
        lambda policy, reference, restart: evaluate_on_nodes(
            mdp, policy, reference, restart=restart),
        lambda evaluation, policy: mdp.greedy(evaluation.onward_value, evaluation.gain, policy),
        max_rounds - first.rounds,
    )
    return _certified(mdp, last.policy, last.evaluation, last.backup, first.rounds + last.number,
                     last.status)


def _proven(mdp: StructuredMDP, first: FirstRounds) -> NodeSolution | None:
    """Return the policy of the first rounds if their values prove that it is optimal, else None.

    No factorisation is needed then: one backup bounds the error of the values as well.
    """
    if first.values is None:
        return None
    node_value, gain = first.values
    backup = mdp.greedy(node_value, gain, first.policy)
    if not np.array_equal(backup.policy, first.policy):
        return None
    certificate = _certificate_on_nodes(mdp, node_value, gain, 0.0, backup, first.rounds + 1,
                                        Status.OPTIMAL)
    if gain - certificate.lower_bound > _PROVEN:
        return None
    return NodeSolution(mdp, first.policy, gain, certificate)


def _certified(
    mdp: StructuredMDP, policy: IntArray, evaluation: NodeEvaluation, backup: Backup,
    iterations: int, status: Status,
) -> NodeSolution:
    """Return an evaluated policy with the bounds that one backup of its values gives."""
    gain = evaluation.gain
    return NodeSolution(mdp, policy, gain, _certificate_on_nodes(
        mdp, evaluation.node_value, gain, evaluation.restart, backup, iterations, status),
        evaluation)


def _certificate_on_nodes(
    mdp: StructuredMDP, node_value: FloatArray, gain: float, restart: float, backup: Backup,
    iterations: int, status: Status,
) -> Certificate:
    """Bound the optimal gain from a policy's node values and gain, and one backup of them."""
    # Residual of the evaluation itself: the values that its own actions would give.
    missed = np.abs(mdp.node_values(backup.kept, gain) - node_value).max()
    error = float(missed / mdp.costs.min()) + rounding_error(node_value, mdp.costs)
    return _certificate(mdp, gain, restart, backup.value - backup.kept, mdp.costs[:, None], error,
                        iterations, status)


def _certificate(
    mdp: StructuredMDP, gain: float, restart: float, advantage: FloatArray, costs: FloatArray,
    error: float, iterations: int, status: Status,
) -> Certificate:
    """Bound the optimal gain from the largest advantages of actions over the policy's, by state.

    ``error`` bounds that of the gain.
    """
    notes = ((f"restarts empty with probability {restart:g} at a decision",)
             if restart else ())
    if status is Status.OPTIMAL and error > _LARGEST_ERROR:
        status = Status.PRECISION
    return Certificate(
        criterion=Criterion.AVERAGE,
        status=status,
        iterations=iterations,
        bellman_residual=float(advantage.max()),
        lower_bound=gain - error,
        upper_bound=gain + max(0.0, float((advantage / costs).max())) + error,
        truncated_mass=mdp.passages.truncated_mass,
        notes=notes,
    )


@dataclass(frozen=True, eq=False)
class VariableEvaluation:
    """A policy's gain, relative values and stationary frequencies."""

    gain: float
    value: FloatArray  # of the likely states, up to a constant, shape (S,)
    frequency: FloatArray  # shape (N+1, D+1): stationary frequency of each state per unit of cost
    excess: float  # requests beyond N + 1 at the same factor
    reference: int  # the most frequent state
    restart: float  # as in :class:`~ramsis.worker.structure.evaluation.NodeEvaluation`


class VariableValues(NamedTuple):
    """Values of a policy, by which it is improved."""

    value: FloatArray  # of the likely states, up to a constant, shape (S,)
    gain: float
    # reference, restart: as in :class:`VariableEvaluation`
    reference: int | None = None
    restart: float = 0.0


@dataclass(frozen=True, eq=False)
class VariableSolution:
    """A policy for one worker and its certificate."""

    mdp: VariableMDP
    # shape (N, D+1): the action for n queued (row n − 1) at slack bin j, best in likely states
    draft: IntArray
    values: VariableValues
    certificate: Certificate

    @property
    def gain(self) -> float:
        """Long-run gain of the policy."""
        return self.values.gain

    @cached_property
    def policy(self) -> IntArray:
        """The draft with the best actions in unlikely states, too; they hardly change its gain."""
        return self.mdp.fill(_onward(self.mdp, self.values), self.gain, self.draft)

    @cached_property
    def evaluation(self) -> VariableEvaluation:
        """Gain, values and frequencies of the policy by one factorisation."""
        return evaluate_variable(self.mdp, self.draft)


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
    return with_restarts(
        lambda start, chance: _evaluate(mdp, policy, start, chance), reference,
        lambda evaluation: rounding_error(evaluation.value, mdp.whole.costs), restart)


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
    leaves_some = outcome.batch < np.arange(1, len(outcome.batch) + 1)[:, None]
    served = policy_states(whole, outcome._replace(
        service=np.where(leaves_some, -1, outcome.service)))
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


def solve_variable(
    mdp: VariableMDP, *, initial: IntArray | None = None, max_rounds: int = 100
) -> VariableSolution:
    """Find the policy of largest gain for variable batching, by policy iteration.

    Parameters
    ----------
    initial : ndarray of int, shape (N, D+1), optional
        Admissible policy to start from; by default the best one of maximal batching.
    max_rounds : int
        Rounds after which the best policy so far is returned, marked as not converged.
    """
    start = solve_on_nodes(mdp.maximal).policy if initial is None else initial

    def improve(evaluation: VariableValues, policy: IntArray) -> Backup:
        return mdp.backup(_onward(mdp, evaluation), evaluation.gain, policy)

    near = np.zeros(len(mdp.likely))

    def evaluate(
        policy: IntArray, reference: int | None, restart: float | None, *, residual: float
    ) -> VariableValues:
        nonlocal near
        values = (_by_gmres(mdp, policy, near, residual)
                  or _factorised(mdp, policy, reference, restart))
        near = values.value
        return values

    # Rough values suffice to find a change; only exact ones show that there is none.
    rough = improve_until_stable(start, partial(evaluate, residual=_ROUGH), improve, max_rounds)
    last = improve_until_stable(rough.policy, partial(evaluate, residual=_RESIDUAL), improve,
                                max_rounds - rough.number + 1)
    last = replace(last, number=rough.number - 1 + last.number)
    certificate = _certify(mdp, last, last.number)
    if last.evaluation.gain - certificate.lower_bound > _PROVEN:
        rounds = last.number
        last = improve_until_stable(
            last.policy, partial(_factorised, mdp), improve, max(max_rounds - rounds, 1))
        certificate = _certify(mdp, last, rounds + last.number)
    return VariableSolution(mdp, last.policy, last.evaluation, certificate)


def _factorised(
    mdp: VariableMDP, policy: IntArray, reference: int | None, restart: float | None
) -> VariableValues:
    """Evaluate a policy by one factorisation; see :func:`evaluate_variable`."""
    evaluation = evaluate_variable(mdp, policy, reference, restart=restart)
    return VariableValues(evaluation.value, evaluation.gain, evaluation.reference,
                          evaluation.restart)


def _by_gmres(
    mdp: VariableMDP, policy: IntArray, near: FloatArray, residual: float
) -> VariableValues | None:
    """Evaluate a policy without a matrix; None where GMRES converges slowly.

    The system is that of :mod:`ramsis.worker.solve.rounds`, between the likely states. It is
    solved from the values ``near`` of a similar policy, up to a relative ``residual``.
    """
    from scipy.sparse.linalg import LinearOperator, gmres  # which take long to load

    problem, whole = mdp.problem, mdp.whole
    outcome = problem.outcome(policy)
    pairs = mdp.partial.find(mdp.likely, problem.with_full_state(policy).ravel()[mdp.likely])
    part, served = np.flatnonzero(pairs >= 0), np.flatnonzero(pairs < 0)
    after_part = mdp.partial.transition[pairs[part]]
    n, j = whole.reached
    phase = whole.phase[n[served], j[served]]
    used, service = np.unique(outcome.service[n, j][served], return_inverse=True)
    values = whole.values_of(used)

    def after_service(node_value: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("sk,sk->s", phase, values(node_value)[service]))

    beyond = np.empty(len(n))
    beyond[served] = after_service(whole.charged_excess)
    beyond[part] = mdp.excess_cost * mdp.partial.excess[pairs[part]]
    reward, cost = (array[whole.reached] for array in problem.rewards_and_costs(outcome))
    reward, cost = reward - problem.violation_price * beyond, cost + beyond
    share = 1.0 / float(cost.sum())

    def left(value: FloatArray) -> FloatArray:
        result = value + cost * (share * float(value.sum()))
        result[served] -= after_service(whole.onward(value))
        result[part] -= np.asarray(after_part @ value)
        return result

    system: Any = LinearOperator((len(n), len(n)), matvec=left, dtype=np.float64)
    value, failed = gmres(system, reward, near, rtol=residual, restart=_STEPS, maxiter=1)
    if failed or rounding_error(value, whole.costs) > _PROVEN:
        return None
    return VariableValues(value, share * float(value.sum()))


def _onward(mdp: VariableMDP, evaluation: VariableValues) -> FloatArray:
    """Return (1 − ε)·V + ε·V(start), the value of moving to each state with restarts."""
    if not evaluation.restart:
        return evaluation.value
    start = float(np.asarray(mdp.whole.continuation @ evaluation.value)[-1])
    value: FloatArray = evaluation.value + evaluation.restart * (start - evaluation.value)
    return value


def _certify(mdp: VariableMDP, last: Round[VariableValues], rounds: int) -> Certificate:
    """Bound the optimal gain, by one improvement step over the likely states."""
    whole, evaluation = mdp.whole, last.evaluation
    costs = whole.costs[whole.reached[0]]
    kept = last.backup.kept[whole.reached]
    missed = np.abs(kept - evaluation.value)
    error = float((missed / costs).max()) + rounding_error(evaluation.value, whole.costs)
    return _certificate(whole, evaluation.gain, evaluation.restart,
                        last.backup.value[whole.reached] - kept, costs, error, rounds, last.status)
