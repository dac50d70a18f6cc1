"""Policies for shortest-queue dispatch: best responses to the rates that a policy brings about.

The first policy is the best one for round robin. The search finds its equilibrium rates
(:mod:`ramsis.worker.shortest_queue_rates`), then the best policy of one worker at these rates, and
so on. Where the gain in equilibrium does not rise, it takes the best response to rates half way
(geometrically) back to those of the best policy so far. It stops when a response is a policy that
was tried before, or after 8 policies, and returns the one of greatest gain in equilibrium.

The certificate's upper bound is for one worker alone that leaves this policy at its rates: where
it equals the gain, the policy is a Nash equilibrium. It does not bound what all K workers could
reach together by another policy.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ramsis.checks import check_arguments
from ramsis.errors import NotConvergedError
from ramsis.mdp.result import Certificate, Solution
from ramsis.mdp.solvers import SolverName, solve_average
from ramsis.worker.policy_iteration import solve_on_nodes
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.shortest_queue import (
    ShortestQueueMDP,
    build_shortest_queue,
    check_shortest_queue,
)
from ramsis.worker.shortest_queue_rates import RateEquilibrium, equilibrium_rates
from ramsis.worker.solution import WorkerSolution
from ramsis.worker.structured import build_structured

__all__ = ["solve_shortest_queue"]

IntArray = NDArray[np.int64]

_MOST_POLICIES = 8


def solve_shortest_queue(
    problem: WorkerProblem, solver: SolverName = "policy-iteration"
) -> WorkerSolution:
    """The best policy found for K workers that share the load by the shortest queue.

    Raises
    ------
    InvalidValueError
        As :func:`~ramsis.worker.shortest_queue.check_shortest_queue`.
    NotConvergedError
        When the first policy has no equilibrium rates.
    """
    check_shortest_queue(problem)
    first = solve_on_nodes(build_structured(problem)).policy
    best, response, tried = _search(equilibrium_rates(problem, first), solver)
    return WorkerSolution(
        problem=problem,
        policy=best.table,
        frequency=best.frequency,
        excess=best.excess,
        gain=best.gain,
        certificate=_certificate(best, response, tried),
        solver=solver,
    )


def _search(
    first: RateEquilibrium, solver: SolverName
) -> tuple[RateEquilibrium, Solution, int]:
    """The best equilibrium found, the best response to it, and the number of policies tried."""
    problem, best, found = first.model.problem, first, first
    tried = {first.table.tobytes()}
    response = None
    for _ in range(_MOST_POLICIES):
        if found is best:
            model = build_shortest_queue(problem, best.model.rates_per_ms)
            response = replied = _best_response(model, best.table, solver)
        else:
            between = np.sqrt(found.model.rates_per_ms * best.model.rates_per_ms)
            model = build_shortest_queue(problem, between)
            replied = _best_response(model, best.table, solver)
        table = model.table(replied.policy)
        if table.tobytes() in tried or len(tried) == _MOST_POLICIES:
            break
        tried.add(table.tobytes())
        try:
            found = equilibrium_rates(problem, table)
        except NotConvergedError:
            break
        if found.gain > best.gain:
            best = found
    assert response is not None
    return best, response, len(tried)


def _best_response(model: ShortestQueueMDP, table: IntArray, solver: SolverName) -> Solution:
    """The best policy of one worker at the rates of a model, from a table to start with."""
    return solve_average(model.mdp, solver, initial=model.labels(table))


def _certificate(best: RateEquilibrium, response: Solution, tried: int) -> Certificate:
    return dataclasses.replace(
        response.certificate, iterations=tried, lower_bound=best.gain,
        upper_bound=max(best.gain, response.certificate.upper_bound),
        truncated_mass=best.turned_away,
    )

check_arguments(globals(), __all__)
