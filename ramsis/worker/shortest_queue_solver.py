"""Worker policies under shortest-queue dispatch: policies against the rates that they bring about.

The problem: the rates λ(n) at which queries join a worker follow from the share π(n) of the time
that it holds n, and these from λ(·) and the policy (:mod:`ramsis.worker.shortest_queue`).

*Settling* a policy solves log λ = log Λ(π(λ)). It starts from rates that fall from λ to λ/K² at
one number of queries, which bisection finds by Σ π(n)·λ(n) = λ/K, and goes on by Powell's hybrid
method, mostly until no rate errs by more than one in a million. Where workers hold dozens of
queries it may stop before, and 2 % is good enough.

The search settles the policy for round robin, then the best policy of one worker at these rates,
and so on; where the settled gain does not rise it answers rates half way (geometrically) back to
those of the best policy so far. It stops when an answer is a policy that was settled before, or
after 8 policies, and returns the one of greatest settled gain. The certificate's upper bound is
for one worker alone that leaves this policy at its rates: where it equals the gain, the policy is
an equilibrium. What all K workers could reach together by another policy is not bounded by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root

from ramsis.errors import NotConvergedError, describe
from ramsis.mdp.policy_iteration import policy_iteration
from ramsis.mdp.result import Solution
from ramsis.mdp.stationary import stationary_distribution
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.shortest_queue import (
    ShortestQueueMDP,
    build_shortest_queue,
    check_shortest_queue,
    shared_rates,
)
from ramsis.worker.slack_nodes import solve_on_nodes
from ramsis.worker.solve import SolverName, WorkerSolution
from ramsis.worker.structured import build_structured

__all__ = ["Settled", "settle_rates", "solve_shortest_queue"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RATE_TOLERANCE, _STUCK_TOLERANCE = 1e-6, 0.02
_BISECTIONS, _FIRST_STEPS, _DAMPING = 9, 3, 0.7
_MOST_EVALUATIONS = 200
_MOST_POLICIES = 8


class Settled(NamedTuple):
    """A table at the rates that it brings about.

    Attributes
    ----------
    model : ShortestQueueMDP
        At these rates, with the table's services only.
    table : ndarray of int, shape (N, D+1)
    often : ndarray, shape (S,)
        Stationary frequency of the services.
    """

    model: ShortestQueueMDP
    table: IntArray
    often: FloatArray

    @property
    def stay(self) -> FloatArray:
        """π(n): share of the time with n queries, waiting or in service; shape (L+1,)."""
        stay_ms = self.often @ self.model.stay_ms
        share: FloatArray = stay_ms / stay_ms.sum()
        return share

    @property
    def visits(self) -> FloatArray:
        """Stationary frequency of the states, the full one last at bin 0; shape (N+1, D+1)."""
        return self.model.visits(self.often)

    @property
    def excess(self) -> float:
        """Requests of the full state beyond N + 1, at the same factor."""
        return float(self.often @ self.model.excess)

    @property
    def gain(self) -> float:
        """Reward per cost, in the units of the problem's objective."""
        problem = self.model.problem
        queued = np.arange(1.0, problem.max_queue + 2)
        per_query = problem.objective is Objective.PER_QUERY
        cost = self.visits * queued[:, None] if per_query else self.visits
        beyond = self.excess if per_query else 0.0
        latency_ms = problem.latency.latency_ms[self.table, np.arange(problem.max_queue)[:, None]]
        earned = np.where(latency_ms <= problem.slack_ms,
                          problem.latency.accuracy[self.table], 0.0)
        return float((cost[:-1] * earned).sum() / (cost.sum() + beyond))


def settle_rates(problem: WorkerProblem, table: IntArray) -> Settled:
    """The rates that a table brings about, and its behaviour at them.

    Parameters
    ----------
    table : ndarray of int, shape (N, D+1)
        Models, admissible where anything is, the fastest elsewhere.

    Raises
    ------
    InvalidValueError
        As :func:`~ramsis.worker.shortest_queue.check_shortest_queue`, or a table that is not
        admissible.
    NotConvergedError
        When the rates do not settle.
    """
    check_shortest_queue(problem)
    problem.check_policy(table)

    def evaluate(logarithms: FloatArray) -> Settled:
        return _evaluate(build_shortest_queue(problem, np.exp(logarithms), table), table)

    def error(logarithms: FloatArray) -> FloatArray:
        rates: FloatArray = np.log(shared_rates(problem, evaluate(logarithms).stay))
        return rates - logarithms

    start = _one_bend(problem, evaluate)
    for _ in range(_FIRST_STEPS):
        start = start + _DAMPING * error(start)
    some = start > start[-1] + _RATE_TOLERANCE  # rates that are not at their floor
    some[: int(some.sum()) + 2] = True

    def with_some(values: FloatArray) -> FloatArray:
        return np.concatenate([values, start[len(values) :]])

    def some_errors(values: FloatArray) -> FloatArray:
        found: FloatArray = error(with_some(values))[some]
        return found

    found = root(some_errors, start[some], method="hybr",  # type: ignore[call-overload]
                 options={"maxfev": _MOST_EVALUATIONS})  # its stubs refuse arrays of any shape
    if not np.abs(found.fun).max() <= _STUCK_TOLERANCE:
        raise NotConvergedError(
            describe("the arrival rates of shortest-queue dispatch do not settle",
                     where="shortest queue", value=f"{found.nfev} evaluations")
        )
    return evaluate(with_some(found.x))


def _one_bend(
    problem: WorkerProblem, evaluate: Callable[[FloatArray], Settled]
) -> FloatArray:
    """Logarithms of rates that fall at one number of queries and bring in about all of them."""
    total = problem.arrivals.rate_per_ms
    fall = 2.0 * np.log(problem.workers)
    levels = np.arange(2 * problem.max_queue + 3)
    low, high = 0.0, float(levels[-1])
    for _ in range(_BISECTIONS):
        bend = (low + high) / 2
        logarithms = np.log(total) - fall * np.clip(levels + 1 - bend, 0.0, 1.0)
        found = evaluate(logarithms)
        if found.stay @ np.exp(logarithms) * problem.workers < total:
            low = bend
        else:
            high = bend
    return np.asarray(logarithms)


def solve_shortest_queue(
    problem: WorkerProblem, solver: SolverName = "policy-iteration"
) -> WorkerSolution:
    """The best policy found for K workers that share the load by the shortest queue.

    Raises
    ------
    InvalidValueError
        As :func:`~ramsis.worker.shortest_queue.check_shortest_queue`.
    NotConvergedError
        When the rates of the first policy do not settle.
    """
    check_shortest_queue(problem)
    answer = solve_on_nodes(build_structured(problem)).policy
    table, best, response = answer, settle_rates(problem, answer), None
    found, tried = best, {answer.tobytes()}
    for _ in range(_MOST_POLICIES):
        if found is best:
            model = build_shortest_queue(problem, best.model.rates_per_ms)
            response = replied = _best(model, table, solver)
        else:
            between = np.sqrt(found.model.rates_per_ms * best.model.rates_per_ms)
            model = build_shortest_queue(problem, between)
            replied = _best(model, table, solver)
        answer = model.table(replied.policy)
        if answer.tobytes() in tried or len(tried) == _MOST_POLICIES:
            break
        tried.add(answer.tobytes())
        try:
            found = settle_rates(problem, answer)
        except NotConvergedError:
            break
        if found.gain > best.gain:
            best, table = found, answer
    assert response is not None
    certificate = dataclasses.replace(
        response.certificate, iterations=len(tried), lower_bound=best.gain,
        upper_bound=max(best.gain, response.certificate.upper_bound),
        truncated_mass=_turned_away(best),
    )
    return WorkerSolution(
        problem=problem,
        policy=table,
        visits=best.visits,
        excess=best.excess,
        gain=best.gain,
        certificate=certificate,
        solver=solver,
    )


def _evaluate(model: ShortestQueueMDP, table: IntArray) -> Settled:
    """Stationary behaviour of a table at the rates of a model."""
    services = model.services_of(model.labels(table))
    empty = np.zeros(len(services) + 1)
    empty[0] = 1.0
    law = stationary_distribution(model.rows(services), start=empty).distribution
    often = np.zeros(len(model.full))
    np.add.at(often, services, law[1:])
    return Settled(model, table, often)


def _best(model: ShortestQueueMDP, table: IntArray, solver: SolverName) -> Solution:
    """The best policy at the rates of a model."""
    if solver == "policy-iteration":
        return policy_iteration(model.mdp, initial=model.labels(table))
    if solver == "value-iteration":
        from ramsis.mdp.value_iteration import value_iteration

        return value_iteration(model.mdp)
    if solver == "linear-program":
        from ramsis.mdp.linear_program import linear_program

        return linear_program(model.mdp)
    from ramsis.mdp.toolbox import solve_with_pymdptoolbox

    return solve_with_pymdptoolbox(model.mdp)


def _turned_away(settled: Settled) -> float:
    """Share of the queries that would come to a worker at the highest level."""
    rates, stay = settled.model.rates_per_ms, settled.stay
    return float(rates[-1] * stay[-1] / (rates @ stay))
