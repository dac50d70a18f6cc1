"""Worker policies under shortest-queue dispatch: a fixed point of the arrival rates and the policy.

The problem: the rates λ(n) at which queries join a worker follow from the share π(n) of the time
that it holds n, and these from λ(·) and the policy (:mod:`ramsis.mdp.shortest_queue`). So

1. for a fixed policy find log λ = log Λ(π(λ)) by Anderson's acceleration of that iteration, until
   no rate changes by more than one in a million;
2. at these rates find the best policy of one worker; go back to 1 unless its gain is at most
   1e-5 above that of the policy that the rates belong to.

The result is an equilibrium: no worker among K alike does better by another policy at the rates
that they all bring about. What another policy of all K would bring is not searched. Where no
policy is in equilibrium by itself, rounds repeat; after 30 the policy nearest to it is returned,
marked as not converged unless it is within 1e-3. The certificate's upper bound is for one worker
at the given rates.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import NoConvergence, anderson
from scipy.sparse import csr_array

from ramsis.errors import NotConvergedError, describe
from ramsis.mdp.problem import WorkerProblem
from ramsis.mdp.shortest_queue import (
    ShortestQueueMDP,
    build_shortest_queue,
    check_shortest_queue,
    even_rates,
    shared_rates,
)
from ramsis.solvers.policy_iteration import policy_iteration
from ramsis.solvers.result import Solution, Status
from ramsis.solvers.stationary import stationary_distribution
from ramsis.solvers.worker import SolverName, WorkerSolution

__all__ = ["Settled", "settle_rates", "solve_shortest_queue"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RATE_TOLERANCE = 1e-6
_MOST_EVALUATIONS = 200
_SETTLED, _NEAR = 1e-5, 1e-3
_MOST_ROUNDS = 30


class Settled(NamedTuple):
    """A table at the rates that it brings about.

    Attributes
    ----------
    model : ShortestQueueMDP
    law : ndarray, shape (C+2,)
        Stationary frequency of the states; the empty one is left out as 0.
    often : ndarray, shape (S,)
        Stationary frequency of the services.
    gain : float
    """

    model: ShortestQueueMDP
    law: FloatArray
    often: FloatArray
    gain: float

    @property
    def stay(self) -> FloatArray:
        """π(n): share of the time with n queries, waiting or in service; shape (L+1,)."""
        stay_ms: FloatArray = self.often @ self.model.stay_ms
        return stay_ms / stay_ms.sum()


def settle_rates(
    problem: WorkerProblem, table: IntArray, rates_per_ms: FloatArray | None = None
) -> Settled:
    """The rates that a table brings about, and its behaviour at them.

    Parameters
    ----------
    table : ndarray of int, shape (N, D+1)
        Models, admissible where anything is, the fastest elsewhere.
    rates_per_ms : ndarray, shape (2N+3,), optional
        A guess; λ/K everywhere by default.

    Raises
    ------
    InvalidValueError
        As :func:`~ramsis.mdp.shortest_queue.check_shortest_queue`, or a table that is not
        admissible.
    NotConvergedError
        When the rates do not settle.
    """
    check_shortest_queue(problem)
    problem.check_policy(table)

    def error(logarithms: FloatArray) -> FloatArray:
        found = _evaluate(build_shortest_queue(problem, np.exp(logarithms), table), table)
        return np.asarray(np.log(shared_rates(problem, found.stay)) - logarithms)

    start = np.log(even_rates(problem) if rates_per_ms is None else rates_per_ms)
    try:
        settled = anderson(error, start, alpha=0.7, M=8, w0=1e-4, f_tol=_RATE_TOLERANCE,
                           maxiter=_MOST_EVALUATIONS, line_search=None)
    except NoConvergence:
        raise NotConvergedError(
            describe("the arrival rates of shortest-queue dispatch do not settle",
                     where="shortest queue", value=f"{_MOST_EVALUATIONS} iterations")
        ) from None
    return _evaluate(build_shortest_queue(problem, np.exp(settled), table), table)


def solve_shortest_queue(
    problem: WorkerProblem, solver: SolverName = "policy-iteration"
) -> WorkerSolution:
    """The worker's policy in equilibrium.

    Raises
    ------
    InvalidValueError
        As :func:`~ramsis.mdp.shortest_queue.check_shortest_queue`.
    NotConvergedError
        When the rates of a policy do not settle.
    """
    check_shortest_queue(problem)
    table, rates = problem.fastest_policy(), even_rates(problem)
    nearest: tuple[float, Settled, Solution, IntArray] | None = None
    for rounds in range(1, _MOST_ROUNDS + 1):
        settled = settle_rates(problem, table, rates)
        best = _best(settled.model, table, solver)
        short = best.certificate.upper_bound - settled.gain
        if nearest is None or short < nearest[0]:
            nearest = short, settled, best, table
        if short <= _SETTLED:
            break
        table, rates = settled.model.table(best.policy), settled.model.rates_per_ms
    assert nearest is not None
    short, settled, best, table = nearest
    status = best.certificate.status if short <= _NEAR else Status.MAX_ITERATIONS
    certificate = dataclasses.replace(
        best.certificate, status=status, iterations=rounds, lower_bound=settled.gain,
        upper_bound=max(settled.gain, best.certificate.upper_bound),
        truncated_mass=_turned_away(settled),
    )
    return WorkerSolution(
        problem=problem,
        policy=table,
        visits=settled.model.visits(settled.often),
        excess=float(settled.often @ settled.model.excess),
        gain=settled.gain,
        certificate=certificate,
        solver=solver,
    )


def _evaluate(model: ShortestQueueMDP, table: IntArray) -> Settled:
    """Stationary behaviour and gain of a table at the rates of a model."""
    labels = model.labels(table)
    rows = model.mdp.rows_of(labels)
    empty = np.zeros(len(labels))
    empty[0] = 1.0
    law = stationary_distribution(csr_array(model.mdp.transition[rows]), start=empty).distribution
    gain = float(law @ model.mdp.reward[rows] / (law @ model.mdp.costs[rows]))
    often = np.bincount(model.services_of(labels), law[1:], minlength=len(model.full))
    return Settled(model, law, often, gain)


def _best(model: ShortestQueueMDP, table: IntArray, solver: SolverName) -> Solution:
    """The best policy at the rates of a model."""
    if solver == "policy-iteration":
        return policy_iteration(model.mdp, initial=model.labels(table))
    if solver == "value-iteration":
        from ramsis.solvers.value_iteration import value_iteration

        return value_iteration(model.mdp)
    if solver == "linear-program":
        from ramsis.solvers.linear_program import linear_program

        return linear_program(model.mdp)
    from ramsis.solvers.toolbox import solve_with_pymdptoolbox

    return solve_with_pymdptoolbox(model.mdp)


def _turned_away(settled: Settled) -> float:
    """Share of the queries that would come to a worker at the highest level."""
    rates, stay = settled.model.rates_per_ms, settled.stay
    return float(rates[-1] * stay[-1] / (rates @ stay))
