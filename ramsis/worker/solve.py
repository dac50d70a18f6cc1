"""One worker's problem to its policy: which solver, and what every solver returns.

The structured solvers (policy iteration on the slack nodes, value iteration) need no transition
matrix. The linear program and pymdptoolbox work on the explicit MDP, for comparison: they take
minutes and gigabytes where the others take milliseconds. All but the default are imported when
they are asked for, since loading their compiled loops takes longer than finding a policy.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import MarkovModulated, Poisson
from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.result import Certificate
from ramsis.worker.actions import Batching
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.slack_nodes import (
    NodeSolution,
    evaluate_on_nodes,
    solve_on_nodes,
    state_visits,
    table_visits,
)
from ramsis.worker.structured import StructuredMDP, build_structured

__all__ = ["SOLVERS", "SolverName", "WorkerSolution", "evaluate_table", "solve_dispatched",
           "solve_worker"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SolverName = Literal["policy-iteration", "value-iteration", "linear-program", "pymdptoolbox"]
SOLVERS: tuple[SolverName, ...] = get_args(SolverName)
"""Names of the worker's solvers; the first is the default."""


@dataclass(frozen=True, eq=False)
class WorkerSolution:
    """A worker's policy, how often it meets each state, and its certificate.

    Attributes
    ----------
    problem : WorkerProblem
    policy : ndarray of int, shape (N, D+1)
        Model for n queued (row n − 1) at slack bin j; the fastest where the request is late.
    visits : ndarray, shape (N+1, D+1)
        Stationary frequency of each state, up to a common factor; the last row is the full
        state, at bin 0.
    excess : float
        Requests of the full state beyond N + 1, at the same factor.
    gain : float
        Of the policy, in the units of the problem's objective.
    certificate : Certificate
    solver : str
    """

    problem: WorkerProblem
    policy: IntArray
    visits: FloatArray
    excess: float
    gain: float
    certificate: Certificate
    solver: SolverName


def solve_worker(
    problem: WorkerProblem, solver: SolverName = "policy-iteration", *, tolerance: float = 1e-9
) -> WorkerSolution:
    """Find the worker's best policy.

    Parameters
    ----------
    solver : one of :data:`SOLVERS`
    tolerance : float > 0
        Stopping rule of the iterative solvers but policy iteration, which runs to its end.

    Raises
    ------
    InvalidValueError
        Unknown solver, or one that does not know the arrival process.
    """
    if solver not in SOLVERS:
        raise InvalidValueError(
            describe("unknown solver", where="solver", value=solver, allowed=", ".join(SOLVERS))
        )
    if isinstance(problem.arrivals, MarkovModulated):
        return _solve_modulated(problem, problem.arrivals, solver)
    variable = problem.batching is Batching.VARIABLE
    if variable and solver == "value-iteration":
        raise InvalidValueError(
            describe("this solver knows no variable batching", where="solver", value=solver,
                     allowed=", ".join(name for name in SOLVERS if name != solver))
        )
    if solver == "policy-iteration":
        if variable:
            return _solve_variable(problem)
        mdp = build_structured(problem)
        return _from_nodes(mdp, solve_on_nodes(mdp), solver)
    if solver == "value-iteration":
        from ramsis.worker.node_value_iteration import iterate_on_nodes

        mdp = build_structured(problem)
        return _from_nodes(mdp, iterate_on_nodes(mdp, tolerance=tolerance), solver)
    return _solve_explicit(problem, solver, tolerance)


def solve_dispatched(
    problem: WorkerProblem, dispatch: str, solver: SolverName = "policy-iteration"
) -> WorkerSolution:
    """As :func:`solve_worker`, for ``round-robin`` or ``shortest-queue``."""
    if dispatch == "shortest-queue":
        from ramsis.worker.shortest_queue_solver import solve_shortest_queue

        return solve_shortest_queue(problem, solver)
    return solve_worker(problem, solver)


def evaluate_table(
    problem: WorkerProblem, table: IntArray, dispatch: str = "round-robin"
) -> tuple[FloatArray, float]:
    """How often a table meets each state, and its excess; as in :class:`WorkerSolution`."""
    if dispatch == "shortest-queue":
        from ramsis.worker.shortest_queue_solver import settle_rates

        settled = settle_rates(problem, table)
        return settled.visits, settled.excess
    if isinstance(problem.arrivals, MarkovModulated):
        from ramsis.worker.modulated import build_modulated, every_mode

        problem.check_policy(table)
        mdp = build_modulated(problem, problem.arrivals)
        return table_visits(mdp, evaluate_on_nodes(mdp, every_mode(table)))
    if problem.batching is Batching.VARIABLE:
        from ramsis.worker.variable import build_variable
        from ramsis.worker.variable_solver import evaluate_variable

        found = evaluate_variable(build_variable(problem), table)
        return found.visits, found.excess
    mdp = build_structured(problem)
    return state_visits(mdp, evaluate_on_nodes(mdp, table))


def _from_nodes(
    mdp: StructuredMDP, solution: NodeSolution, solver: SolverName
) -> WorkerSolution:
    visits, excess = state_visits(mdp, solution.evaluation)
    return WorkerSolution(
        problem=mdp.problem,
        policy=solution.policy,
        visits=visits,
        excess=excess,
        gain=solution.evaluation.gain,
        certificate=solution.certificate,
        solver=solver,
    )


def _solve_modulated(
    problem: WorkerProblem, arrivals: MarkovModulated, solver: SolverName
) -> WorkerSolution:
    """The table that starts from the one for Poisson arrivals of the same load."""
    if solver != SOLVERS[0]:
        raise InvalidValueError(
            describe("this solver knows no Markov-modulated arrivals", where="solver",
                     value=solver, allowed=SOLVERS[0])
        )
    from ramsis.worker.hidden_mode import solve_hidden
    from ramsis.worker.modulated import build_modulated

    poisson = dataclasses.replace(problem, arrivals=Poisson(1000.0 * arrivals.rate_per_ms))
    initial = solve_on_nodes(build_structured(poisson)).policy
    mdp = build_modulated(problem, arrivals)
    solution = solve_hidden(mdp, initial)
    visits, excess = table_visits(mdp, solution.evaluation)
    return WorkerSolution(
        problem=problem,
        policy=solution.policy,
        visits=visits,
        excess=excess,
        gain=solution.evaluation.gain,
        certificate=solution.certificate,
        solver=solver,
    )


def _solve_variable(problem: WorkerProblem) -> WorkerSolution:
    from ramsis.worker.variable import build_variable
    from ramsis.worker.variable_solver import solve_variable

    solution = solve_variable(build_variable(problem))
    return WorkerSolution(
        problem=problem,
        policy=solution.policy,
        visits=solution.evaluation.visits,
        excess=solution.evaluation.excess,
        gain=solution.evaluation.gain,
        certificate=solution.certificate,
        solver=SOLVERS[0],
    )


def _solve_explicit(
    problem: WorkerProblem, solver: SolverName, tolerance: float
) -> WorkerSolution:
    from ramsis.mdp.linear_program import linear_program
    from ramsis.mdp.stationary import stationary_distribution
    from ramsis.mdp.toolbox import solve_with_pymdptoolbox
    from ramsis.worker.explicit import build_explicit

    explicit = build_explicit(problem)
    if solver == "linear-program":
        solution = linear_program(explicit.mdp)
    else:
        solution = solve_with_pymdptoolbox(explicit.mdp, tolerance=tolerance)
    rows = explicit.mdp.rows_of(solution.policy)
    empty = np.zeros(explicit.mdp.n_states)
    empty[0] = 1.0  # matters where the chain falls into parts up to rounding
    law = stationary_distribution(explicit.mdp.transition[rows], start=empty).distribution
    gain = float(law @ explicit.mdp.reward[rows] / (law @ explicit.mdp.costs[rows]))
    return WorkerSolution(
        problem=problem,
        policy=explicit.table(solution.policy),
        visits=explicit.by_queue_and_bin(law),
        excess=float(law @ explicit.excess[rows]),
        gain=gain,
        certificate=solution.certificate,
        solver=solver,
    )
