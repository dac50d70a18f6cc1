"""Arrival rates under shortest-queue dispatch that agree with the policy that they bring about.

The rates λ(n) at which queries join a worker follow from the occupancy distribution π(n), the
share of the time that it holds n queries. This follows from λ(·) and the policy
(:mod:`ramsis.worker.shortest_queue`). So a policy's rates are a fixed point:
log λ = log Λ(π(λ)).

*Method.* The search starts from rates that fall from λ to λ/K² at one number of queries, which
bisection finds by Σ π(n)·λ(n) = λ/K. It goes on by Powell's hybrid method, mostly until no rate
errs by more than one in a million. Where workers hold dozens of queries it may stop before; 2 % is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root

from ramsis.checks import check_arguments
from ramsis.errors import NotConvergedError, describe
from ramsis.mdp.stationary import stationary_distribution
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.shortest_queue import (
    ShortestQueueMDP,
    arrival_rates,
    build_shortest_queue,
    check_shortest_queue,
)

__all__ = ["RateEquilibrium", "equilibrium_rates"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RATE_TOLERANCE, _ACCEPTED_TOLERANCE = 1e-6, 0.02
_BISECTIONS, _FIRST_STEPS, _DAMPING = 9, 3, 0.7
_MOST_EVALUATIONS = 200


class RateEquilibrium(NamedTuple):
    """A table at the rates that it brings about.

    Attributes
    ----------
    model : ShortestQueueMDP
        At these rates, with the table's services only.
    table : ndarray of int, shape (N, D+1)
    service_frequency : ndarray, shape (S,)
        Stationary frequency of the services.
    """

    model: ShortestQueueMDP
    table: IntArray
    service_frequency: FloatArray

    @property
    def occupancy(self) -> FloatArray:
        """π(n): share of the time with n queries, waiting or in service; shape (L+1,)."""
        sojourn_ms = self.service_frequency @ self.model.sojourn_ms
        share: FloatArray = sojourn_ms / sojourn_ms.sum()
        return share

    @property
    def frequency(self) -> FloatArray:
        """Stationary frequency of the states, the full one last at bin 0; shape (N+1, D+1)."""
        return self.model.state_frequency(self.service_frequency)

    @property
    def excess(self) -> float:
        """Requests of the full state beyond N + 1, at the same factor."""
        return float(self.service_frequency @ self.model.excess)

    @property
    def gain(self) -> float:
        """Reward per cost, in the units of the problem's objective."""
        problem = self.model.problem
        queued = np.arange(1.0, problem.max_queue + 2)
        per_query = problem.objective is Objective.PER_QUERY
        cost = self.frequency * queued[:, None] if per_query else self.frequency
        beyond = self.excess if per_query else 0.0
        latency_ms = problem.latency.latency_ms[self.table, np.arange(problem.max_queue)[:, None]]
        reward = np.where(latency_ms <= problem.slack_ms,
                          problem.latency.accuracy[self.table], 0.0)
        return float((cost[:-1] * reward).sum() / (cost.sum() + beyond))

    @property
    def turned_away(self) -> float:
        """Share of the queries that would come to a worker at the highest level."""
        rates, occupancy = self.model.rates_per_ms, self.occupancy
        return float(rates[-1] * occupancy[-1] / (rates @ occupancy))


def equilibrium_rates(problem: WorkerProblem, table: IntArray) -> RateEquilibrium:
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

    def evaluate(logarithms: FloatArray) -> RateEquilibrium:
        return _evaluate(build_shortest_queue(problem, np.exp(logarithms), table), table)

    def error(logarithms: FloatArray) -> FloatArray:
        rates: FloatArray = np.log(arrival_rates(problem, evaluate(logarithms).occupancy))
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
    if not np.abs(found.fun).max() <= _ACCEPTED_TOLERANCE:
        raise NotConvergedError(
            describe("the arrival rates of shortest-queue dispatch do not settle",
                     where="shortest queue", value=f"{found.nfev} evaluations")
        )
    return evaluate(with_some(found.x))


def _one_bend(
    problem: WorkerProblem, evaluate: Callable[[FloatArray], RateEquilibrium]
) -> FloatArray:
    """Logarithms of rates that fall at one number of queries and add up to about the load."""
    total = problem.arrivals.rate_per_ms
    fall = 2.0 * np.log(problem.workers)
    levels = np.arange(2 * problem.max_queue + 3)
    low, high = 0.0, float(levels[-1])
    for _ in range(_BISECTIONS):
        bend = (low + high) / 2
        logarithms = np.log(total) - fall * np.clip(levels + 1 - bend, 0.0, 1.0)
        found = evaluate(logarithms)
        if found.occupancy @ np.exp(logarithms) * problem.workers < total:
            low = bend
        else:
            high = bend
    return np.asarray(logarithms)


def _evaluate(model: ShortestQueueMDP, table: IntArray) -> RateEquilibrium:
    """Stationary behaviour of a table at the rates of a model."""
    services = model.services_of(model.labels(table))
    empty = np.zeros(len(services) + 1)
    empty[0] = 1.0
    chain = stationary_distribution(model.transitions(services), start=empty)
    service_frequency = np.zeros(len(model.full))
    np.add.at(service_frequency, services, chain.distribution[1:])
    return RateEquilibrium(model, table, service_frequency)

check_arguments(globals(), __all__)
