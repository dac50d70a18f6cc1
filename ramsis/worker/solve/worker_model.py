"""Solve a worker's problem, or evaluate a policy of it, by the formulation that fits.

Two formulations cover the problems:

- *maximal batching*: the structured form (:mod:`ramsis.worker.structure.structured`), by policy
  iteration on its slack nodes;
- *variable batching*: the same with sparse rows for parts of the queue
  (:mod:`ramsis.worker.structure.variable_batching`).

Other solvers are those of :mod:`ramsis.mdp.solvers` on explicit rows. They are for comparison:
they take minutes and gigabytes where policy iteration takes milliseconds. All but the default are
imported when they are used, since loading their compiled loops takes longer than finding a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.checks import check_arguments
from ramsis.mdp.result import Certificate
from ramsis.mdp.solvers import SOLVERS, SolverName, check_solver, solve_average
from ramsis.reprs import dataclass
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve.policy_iteration import solve_on_nodes
from ramsis.worker.solve.rounds import evaluate_policy
from ramsis.worker.structure import StructuredMDP, build_structured
from ramsis.worker.structure.evaluation import StateFrequency, state_frequency

if TYPE_CHECKING:
    from ramsis.worker.structure.variable_batching import VariableMDP

__all__ = ["SOLVERS", "SolverName", "WorkerModel", "WorkerSolution", "evaluate_table",
           "solve_worker"]


@dataclass(frozen=True, eq=False)
class WorkerSolution:
    """A worker's policy, its stationary frequencies, and its certificate.

    Attributes
    ----------
    draft : ndarray of int, shape (N, D+1)
        The policy; with variable batching other actions stand in states that hardly occur.
    gain : float
        Gain of the policy, in the units of the problem's objective.
    """

    problem: WorkerProblem
    draft: IntArray
    gain: float
    certificate: Certificate
    solver: str
    evaluate: Callable[[], StateFrequency]  # of the policy
    complete: Callable[[], IntArray] | None = None  # the policy, if it is not the draft

    @cached_property
    def policy(self) -> IntArray:
        """Action for n queued (row n − 1) at slack bin j, shape (N, D+1)."""
        return self.draft if self.complete is None else self.complete()

    @property
    def frequency(self) -> FloatArray:
        """Stationary frequency of each state, up to a common factor; shape (N+1, D+1).

        The last row is the full state, at bin 0.
        """
        return self.visits.frequency

    @property
    def excess(self) -> float:
        """Expected requests of the full state beyond N + 1, in the units of :attr:`frequency`."""
        return self.visits.excess

    @cached_property
    def visits(self) -> StateFrequency:
        """Stationary frequencies, computed at the first use."""
        return self.evaluate()


def solve_worker(
    problem: WorkerProblem,
    solver: SolverName = "policy-iteration",
    *,
    tolerance: float = 1e-9,
) -> WorkerSolution:
    """Find the optimal policy of a worker's problem; see :meth:`WorkerModel.solve`."""
    return WorkerModel(problem).solve(solver, tolerance=tolerance)


def evaluate_table(problem: WorkerProblem, table: IntArray) -> StateFrequency:
    """Compute a policy table's long-run state frequencies."""
    return WorkerModel(problem).evaluate(table)


class WorkerModel:
    """Solver of a worker's problem, which builds the formulation for its batching only once."""

    def __init__(self, problem: WorkerProblem) -> None:
        self.problem = problem
        self.at_hand: StructuredMDP | None = None  # the structured form if it has been built

    @property
    def structured(self) -> StructuredMDP:
        """The structured form for maximal batching, built on first use."""
        if self.at_hand is None:
            self.at_hand = build_structured(self.problem)
        return self.at_hand

    @cached_property
    def variable(self) -> VariableMDP:
        """The structured form for variable batching, built on first use."""
        from ramsis.worker.structure.variable_batching import build_variable

        return build_variable(self.problem)

    def solve(
        self, solver: SolverName = "policy-iteration", *, tolerance: float = 1e-9
    ) -> WorkerSolution:
        """Find the optimal policy of the worker's problem.

        Parameters
        ----------
        tolerance : float > 0
            Stopping rule of iterative solvers; policy iteration runs until it is stable.
        """
        check_solver(solver)
        if solver != "policy-iteration":
            return _solve_explicit(self.problem, solver, tolerance)
        if self.problem.batching.partial:
            return self._solve_variable()
        mdp = self.structured
        solution = solve_on_nodes(mdp)
        return WorkerSolution(self.problem, solution.policy, solution.gain, solution.certificate,
                              solver, lambda: state_frequency(mdp, solution.evaluation))

    def evaluate(self, table: IntArray) -> StateFrequency:
        """Compute a policy table's long-run state frequencies."""
        if not self.problem.batching.partial:
            return state_frequency(self.structured, evaluate_policy(self.structured, table))
        from ramsis.worker.solve.policy_iteration import evaluate_variable

        evaluation = evaluate_variable(self.variable, table)
        return StateFrequency(evaluation.frequency, evaluation.excess)

    def _solve_variable(self) -> WorkerSolution:
        """Solve for batches of any part of the queue, on likely states."""
        from ramsis.worker.solve.policy_iteration import solve_variable

        solution = solve_variable(self.variable)
        return WorkerSolution(
            self.problem, solution.draft, solution.gain, solution.certificate, "policy-iteration",
            lambda: StateFrequency(solution.evaluation.frequency, solution.evaluation.excess),
            lambda: solution.policy)


def _solve_explicit(
    problem: WorkerProblem, solver: SolverName, tolerance: float
) -> WorkerSolution:
    """Solve a worker's problem by a general MDP solver on explicit transition rows."""
    from ramsis.mdp.stationary import stationary_distribution
    from ramsis.worker.explicit import build_explicit

    explicit = build_explicit(problem)
    solution = solve_average(explicit.mdp, solver, tolerance=tolerance)
    pairs = explicit.mdp.pairs_of(solution.policy)
    empty = np.zeros(explicit.mdp.n_states)
    empty[0] = 1.0  # chooses among closed classes if rounding splits the chain into several
    share = stationary_distribution(explicit.mdp.transition[pairs], start=empty).distribution
    gain = float(share @ explicit.mdp.reward[pairs] / (share @ explicit.mdp.costs[pairs]))
    visits = StateFrequency(explicit.visits(share, pairs), float(share @ explicit.excess[pairs]))
    return WorkerSolution(problem, explicit.table(solution.policy), gain, solution.certificate,
                          solver, lambda: visits)


check_arguments(globals(), ["solve_worker"])
