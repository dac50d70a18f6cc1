"""One worker among K that share the load by the shortest queue (EuroSys '24, App. I, corrected).

A query goes to the worker with the fewest queries, those in service counted. Seen from one
worker these are Poisson arrivals at a rate λ(n) that depends on the number n of its queries,
waiting or in service. Appendix I of the paper takes λ(n) = λ/K for n <= 2 and (λ/(K·μ))^K·μ for
n >= 3, with μ the rate of service: right without batching, where queues are hardly ever longer
than one. Workers that serve batches hold about as many queries as each other, however many that
is, so the bend must lie at that number, and all rates together must bring Σ_n π(n)·λ(n) = λ/K,
with π(n) the share of the time that a worker holds n. Both hold here: take the number of other
workers that hold fewer than n as geometric, with mean (K − 1)·p(n), p(n) = Σ_{i<n} π(i). A query
joins a worker with fewer than n with probability F(n) = K·p(n) / (1 + (K − 1)·p(n)), and

    λ(n) = λ·(F(n+1) − F(n)) / (K·π(n)) = λ / ((1 + (K−1)·p(n))·(1 + (K−1)·p(n+1))).

One worker alone gets λ at any n. π depends on λ(·) and on the policy: a fixed point
(:mod:`ramsis.worker.shortest_queue_policy`).

Such arrivals have no phase, and what follows an action depends on the queue and the latency only.
A service of l ms from n queries (all of them, maximal batching) ends with k waiting, the first
since at most SLO − T, with probability

    P(k, slack >= T) = exp(−λ(n)·(l − t))·B_t(n, n+k),   t = min(l, SLO − T),

B_t the transition probabilities of the pure birth process (:mod:`ramsis.worker.pure_birth`). No
arrival leads to the empty state, which costs nothing and ends at (1, SLO). Slack bins at which the
same models are in time are one state of the decision problem, without any loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramsis.arrivals import Poisson
from ramsis.checks import check_arguments
from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.sparse import SparseMDP
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.worker.actions import Batching, LateRule
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.pure_birth import PureBirthProcess

__all__ = ["MAX_TABLE", "ShortestQueueMDP", "arrival_rates", "build_shortest_queue",
           "check_shortest_queue"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NEVER = 1e-100  # probabilities below this change no sum, but overflow in divisions
MAX_TABLE = 64
"""Longest queue that a table for shortest-queue dispatch tells apart."""


@dataclass(frozen=True, eq=False)
class ShortestQueueMDP:
    """A worker's problem at given arrival rates; made by :func:`build_shortest_queue`.

    A *service* is a pair of n queries and a model; S of them. State 0 is the empty one, the last
    one is the full state, between them are the classes of slack bins of each queue.

    Attributes
    ----------
    problem : WorkerProblem
    rates_per_ms : ndarray, shape (L+1,)
        λ(n) for n = 0 … L = 2·(N + 1); a query to a worker with L is turned away.
    services : tuple of two int ndarrays, shape (S,)
        n − 1 and the model.
    waiting : ndarray, shape (S, N, D+1)
        Probability that k = 1 … N wait at slack bin j after a service.
    full, idle : ndarray, shape (S,)
        Probability that more than N wait, and that none does.
    excess : ndarray, shape (S,)
        Expected requests beyond N + 1 after a service.
    sojourn_ms : ndarray, shape (S, L+1)
        Expected time with n queries in a service and the empty time after it.
    starts : tuple of two int ndarrays, shape (C,)
        k − 1 and first bin of each class of slack bins.
    """

    problem: WorkerProblem
    rates_per_ms: FloatArray
    services: tuple[IntArray, IntArray]
    waiting: FloatArray
    full: FloatArray
    idle: FloatArray
    excess: FloatArray
    sojourn_ms: FloatArray
    starts: tuple[IntArray, IntArray]

    @cached_property
    def mdp(self) -> SparseMDP:
        """The decision problem; labels are models, the empty state's only action is 0."""
        problem = self.problem
        state, models, chosen = self._pairs()
        transition = self.transitions(chosen[1:])
        n = self.services[0][chosen] + 1
        per_query = problem.charges_excess
        counted = n.astype(np.float64) if per_query else np.ones(len(n))
        slack_ms = problem.slack_ms[np.concatenate([[0], self.starts[1], [0]])][state]
        latency_ms = problem.latency.latency_ms[models, n - 1]
        in_time = (latency_ms <= slack_ms + SLACK_TOLERANCE_MS) & (n <= problem.max_queue)
        in_time[0] = False
        cost = counted + (self.excess[chosen] if per_query else 0.0)
        cost[0] = 0.0
        reward = np.where(in_time, counted * problem.latency.accuracy[models], 0.0)
        return SparseMDP(state=state, action=models, transition=csr_array(transition),
                         reward=reward, cost=cost)

    def _pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """State, model and service of each state-action pair."""
        problem, (queued, first) = self.problem, self.starts
        row = {pair: i for i, pair in enumerate(zip(*map(np.ndarray.tolist, self.services),
                                                    strict=True))}
        fastest, latency = problem.latency.fastest, problem.latency.latency_ms
        state, action, used = [0], [0], [0]
        for c, (k, j) in enumerate(zip(queued.tolist(), first.tolist(), strict=True)):
            slack_ms = problem.slack_ms[j] + SLACK_TOLERANCE_MS
            in_time = np.flatnonzero(latency[:, k] <= slack_ms).tolist() or [fastest]
            state += [c + 1] * len(in_time)
            action += in_time
            used += [row[k, m] for m in in_time]
        state.append(len(queued) + 1)
        action.append(fastest)
        used.append(row[problem.max_queue, fastest])
        return np.array(state), np.array(action), np.array(used)

    def labels(self, table: IntArray) -> IntArray:
        """Action labels of all states for a table of shape (N, D+1)."""
        return np.concatenate([[0], table[self.starts], [self.problem.latency.fastest]])

    def table(self, labels: IntArray) -> IntArray:
        """The table of shape (N, D+1) of action labels of all states."""
        return np.asarray(labels)[self._state_of]

    def services_of(self, labels: IntArray) -> IntArray:
        """The service that follows each state but the empty one, shape (C+1,)."""
        models = len(self.problem.latency.models)
        key = np.append(self.starts[0], self.problem.max_queue) * models + labels[1:]
        known = self.services[0] * models + self.services[1]
        return np.searchsorted(known, key)

    def state_frequency(self, service_frequency: FloatArray) -> FloatArray:
        """Frequency of each state, (N+1, D+1), from those of the services, (S,)."""
        found = np.zeros((self.problem.max_queue + 1, self.problem.bins + 1))
        found[:-1] = np.tensordot(service_frequency, self.waiting, 1)
        found[0, -1] += service_frequency @ self.idle
        found[-1, 0] = service_frequency @ self.full
        return found

    @cached_property
    def _state_of(self) -> IntArray:
        """State of each (k − 1, j)."""
        shape = (self.problem.max_queue, self.problem.bins + 1)
        begins = np.zeros(shape, dtype=np.int64)
        begins[self.starts] = 1
        return np.cumsum(begins.ravel()).reshape(shape)

    def transitions(self, services: IntArray) -> FloatArray:
        """P(next state) after the empty one and after each of R services; (R+1, C+2)."""
        at = self.starts[0] * (self.problem.bins + 1) + self.starts[1]
        classes = np.add.reduceat(self.waiting.reshape(len(self.waiting), -1), at, axis=1)
        after = np.column_stack([self.idle, classes, self.full])
        after[after < _NEVER] = 0.0
        first = np.zeros((1, after.shape[1]))
        first[0, self._state_of[0, -1]] = 1.0
        return np.concatenate([first, after[services]])


def check_shortest_queue(problem: WorkerProblem) -> None:
    """Refuse a problem that shortest-queue dispatch is not modelled for.

    Raises
    ------
    InvalidValueError
        When the arrivals are not Poisson, the table is longer than :data:`MAX_TABLE`, service
        times are random, batching is variable, late requests are not all served, or violations
        have a price.
    """
    for where, value, allowed in (
        ("late", problem.late, LateRule.SERVE), ("batching", problem.batching, Batching.MAXIMAL),
        ("violation_price", problem.violation_price, 0.0),
        ("service", "fixed" if problem.quantiles_ms is None else "distribution", "fixed"),
    ):
        if value != allowed:
            raise InvalidValueError(describe("not modelled for shortest-queue dispatch",
                                             where=where, value=value, allowed=str(allowed)))
    if not isinstance(problem.arrivals, Poisson):
        raise InvalidValueError(
            describe("shortest-queue dispatch is modelled for Poisson arrivals only",
                     where="arrivals", value=type(problem.arrivals).__name__, allowed="poisson")
        )
    if problem.max_queue > MAX_TABLE:
        raise InvalidValueError(
            describe("the table is too long for shortest-queue dispatch", where="max_queue",
                     value=problem.max_queue, allowed=f"at most {MAX_TABLE}")
        )


def arrival_rates(problem: WorkerProblem, occupancy: FloatArray) -> FloatArray:
    """λ(n) per ms of a worker that holds n queries for a share π(n) of the time; shape (L+1,)."""
    below = np.append(0.0, np.cumsum(occupancy))
    crowd = 1.0 + (problem.workers - 1) * np.minimum(below / below[-1], 1.0)
    rates: FloatArray = problem.arrivals.rate_per_ms / (crowd[:-1] * crowd[1:])
    return rates


def build_shortest_queue(
    problem: WorkerProblem, rates_per_ms: FloatArray, table: IntArray | None = None,
    *, full: bool = False,
) -> ShortestQueueMDP:
    """The worker's problem at given rates.

    Parameters
    ----------
    rates_per_ms : ndarray, shape (2N+3,)
    table : ndarray of int, shape (N, D+1), optional
        A class begins also where it changes, and only its services are there, which is quicker.
    full : bool
        All services, also where a table is given.
    """
    if np.shape(rates_per_ms) != (2 * problem.max_queue + 3,):
        raise InvalidValueError(describe("not a rate for each length", where="rates_per_ms",
                                         value=np.shape(rates_per_ms),
                                         allowed=f"({2 * problem.max_queue + 3},)"))
    latency = problem.latency.latency_ms
    queued, models = _services(problem, None if full else table)
    service_ms = latency[models, queued]
    longest_ms = max(problem.slo_ms, float(service_ms.max()))
    process = PureBirthProcess(rates_per_ms, longest_ms, problem.slo_ms / problem.bins)
    ends = process.distribution(queued + 1, service_ms)
    after = _counts(ends, queued + 1)
    most = problem.max_queue
    beyond = np.maximum(np.arange(after.shape[1]) - most - 1, 0)
    return ShortestQueueMDP(
        problem=problem,
        rates_per_ms=rates_per_ms,
        services=(queued, models),
        waiting=_waiting(problem, process, queued, service_ms, after),
        full=after[:, most + 1 :].sum(axis=1),
        idle=after[:, 0],
        excess=after @ beyond,
        sojourn_ms=_sojourn_ms(rates_per_ms, queued, service_ms, ends),
        starts=_classes(problem, table),
    )


def _services(problem: WorkerProblem, table: IntArray | None) -> tuple[IntArray, IntArray]:
    """N − 1 and model of all services that a policy may do, or that a table does."""
    models = len(problem.latency.models)
    used = np.zeros((problem.max_queue + 1, models), dtype=bool)
    if table is None:
        used[:-1] = (problem.latency.latency_ms[:, :-1] <= problem.slo_ms).T[: len(used) - 1]
        used[:, problem.latency.fastest] = True
    else:
        np.put_along_axis(used[:-1], table, True, axis=1)
        used[-1, problem.latency.fastest] = True
    queued, chosen = np.nonzero(used)
    return queued, chosen


def _counts(by_level: FloatArray, levels: IntArray) -> FloatArray:
    """Distributions over levels as distributions over the births since ``levels``; same shape."""
    size = by_level.shape[1]
    index = levels[:, None] + np.arange(size)
    shifted = np.take_along_axis(by_level, np.minimum(index, size - 1), 1)
    return np.where(index < size, shifted, 0.0)


def _waiting(
    problem: WorkerProblem, process: PureBirthProcess, queued: IntArray, service_ms: FloatArray,
    after: FloatArray,
) -> FloatArray:
    """P(k wait, slack bin j) after each service; shape (S, N, D+1)."""
    most, since_ms = problem.max_queue, problem.slo_ms - problem.slack_ms
    levels = np.arange(1, most + 2)
    grid = process.distribution(np.repeat(levels, len(since_ms)), np.tile(since_ms, len(levels)))
    grid = _counts(grid, np.repeat(levels, len(since_ms)))[:, 1 : most + 1]
    by_level = grid.reshape(len(levels), len(since_ms), most)
    result = np.empty((len(queued), most, len(since_ms)))
    for service, n in enumerate(queued.tolist()):
        wait_ms = np.maximum(service_ms[service] - since_ms, 0.0)
        at_least = by_level[n] * np.exp(-process.rates_per_ms[n + 1] * wait_ms)[:, None]
        at_least[wait_ms == 0.0] = after[service, 1 : most + 1]
        at_least[0] = after[service, 1 : most + 1]  # bin 0 takes negative slack too
        result[service] = -np.diff(at_least, axis=0, append=0.0).T
    return np.maximum(result, 0.0)


def _sojourn_ms(
    rates_per_ms: FloatArray, queued: IntArray, service_ms: FloatArray, ends: FloatArray
) -> FloatArray:
    """Expected time at each level; multiplied by λ(n) it is the probability to pass n."""
    passed = np.maximum(1.0 - np.cumsum(ends, axis=1), 0.0)
    passed[np.arange(ends.shape[1]) < (queued + 1)[:, None]] = 0.0
    sojourn = passed / rates_per_ms
    sojourn[:, -1] = 0.0
    sojourn[:, -1] = np.maximum(service_ms - sojourn.sum(axis=1), 0.0)
    sojourn[:, 0] = ends[np.arange(len(queued)), queued + 1] / rates_per_ms[0]
    return sojourn


def _classes(problem: WorkerProblem, table: IntArray | None) -> tuple[IntArray, IntArray]:
    """Queues (k − 1) and bins at which other models are in time than one bin below."""
    most, columns = problem.max_queue, problem.bins + 1
    first = np.searchsorted(problem.slack_ms, problem.latency.latency_ms[:, :most])
    begins = np.zeros((most, columns), dtype=bool)
    begins[:, 0] = True
    _, queued = np.nonzero(first < columns)
    begins[queued, first[first < columns]] = True
    if table is not None:
        begins[:, 1:] |= np.diff(table, axis=1) != 0
    queues, bins = np.nonzero(begins)
    return queues, bins

check_arguments(globals(), ["build_shortest_queue", "arrival_rates"])
