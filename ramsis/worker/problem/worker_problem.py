"""The decision problem of one worker: a semi-Markov decision process, and its policies.

*States.* The empty state; (n, T_j) with n = 1 … N queued requests and slack T_j of the head; the
full state, more than N queued, at slack 0 (:mod:`ramsis.worker.problem.queue`).

*Actions.* A model and a batch from the head of the queue, or a drop of the head
(:mod:`ramsis.worker.problem.actions`).

*Rewards and costs.* With t of the n requests of an action in time on average, the head in time
with probability P, and a price p of a violation,

    per request   reward t·accuracy(m) − p·(n − t)   cost n
    per decision  reward P·accuracy(m) − p·(1 − P)   cost 1.

A drop has n = 1 and t = P = 0. The wait in the empty state has neither reward nor cost. The full
state is charged every request that it holds, so that a small table hides nothing.

*Criterion.* A policy's gain g = Σ reward / Σ cost in the long run. The optimal gain and relative
values solve  V(s) = max_a [reward(s, a) − g·cost(s, a) + Σ_s' P(s' | s, a)·V(s')].

*Policies* are tables of action codes, shape (N, D+1); row n − 1 is for n queued. The full state
has one action.

With n queued and slack T_j of the head, a batch of b requests on model m is admissible when it may
be in time for the head: l(m, b) <= T_j where service times are fixed, P(L(m, b) <= T_j) > 0 where
they are random. With maximal batching b = n; with variable batching 1 <= b <= n. Where no batch of
the whole queue is admissible the head is late, and the late rule says what may be done
(:class:`~ramsis.worker.problem.actions.LateRule`; EuroSys '24, §4.1-4.3). The full state has the
late actions only.

The expected number of requests in time, of a batch of b with P(L <= T_j) = F(j), is

    b·F(j)                            fixed times: all or none;
    F(j) + Σ_j' waiting(j')·F(j')     random ones: waiting(j') of the b − 1 others have slack T_j',

with ``waiting`` as in :mod:`ramsis.worker.problem.waiting_slack` for the whole queue and as in
:mod:`ramsis.worker.problem.partial_batch` for its first requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess
from ramsis.checks import check_arguments
from ramsis.errors import InvalidValueError, check_not_negative, check_positive, whole
from ramsis.profiles import LatencyTable
from ramsis.reprs import dataclass
from ramsis.worker.problem import checks
from ramsis.worker.problem.actions import DROP, Action, ActionSet, Batching, LateRule, Outcome
from ramsis.worker.problem.batch_arrivals import phase_distribution
from ramsis.worker.problem.checks import MAX_QUEUE
from ramsis.worker.problem.partial_batch import waiting_in_partial_batch
from ramsis.worker.problem.queue import DEFAULT_GRID, RandomTimes, WorkerQueue
from ramsis.worker.problem.waiting_slack import waiting_by_slack

__all__ = ["MAX_QUEUE", "DecisionRules", "Objective", "WorkerProblem"]


class Objective(StrEnum):
    """Unit that the gain of a policy is averaged over: requests or decisions."""

    PER_QUERY = "per-query"
    """Accuracy of the requests answered in time, over all requests."""
    PER_DECISION = "per-decision"
    """Accuracy of the decisions in time, over all decisions: the paper's reward."""


class DecisionRules(TypedDict, total=False):
    """Rules and prices of a problem; keyword arguments of :meth:`WorkerProblem.create`."""

    objective: Objective | str
    late: LateRule | str
    batching: Batching | str
    violation_price: float
    delay_price: float


_NAMED_RULES = {"objective": Objective, "late": LateRule, "batching": Batching}


@dataclass(frozen=True, eq=False)
class WorkerProblem(WorkerQueue):
    """The decision problem of one worker; make it with :meth:`create`.

    It has the attributes of :class:`~ramsis.worker.WorkerQueue`, too.

    Attributes
    ----------
    violation_price : float
        Cost of a late or dropped request (or decision), in units of accuracy.
    delay_price : float
        Cost of a response time of an SLO or more, in units of accuracy; proportionally less for
        shorter ones.
    """

    objective: Objective = Objective.PER_QUERY
    late: LateRule = LateRule.SERVE
    batching: Batching = Batching.MAXIMAL
    violation_price: float = 0.0
    delay_price: float = 0.0

    @classmethod
    def create(
        cls,
        latency: LatencyTable,
        *,
        slo_ms: float,
        workers: int,
        arrivals: ArrivalProcess,
        grid: str | FloatArray = DEFAULT_GRID,
        max_queue: int = 32,
        times: RandomTimes | None = None,
        **rules: Unpack[DecisionRules],
    ) -> WorkerProblem:
        """Build a checked problem.

        Parameters
        ----------
        latency : LatencyTable
            Must reach batch ``max_queue + 1``.
        grid : str or ndarray
            ``fixed:D``, ``model``, or the slack values themselves.
        times : RandomTimes, optional
            Where service times are random, for B >= N+1 and Q >= 2. Every batch of
            ``latency.fastest`` is finite.
        **rules
            ``objective`` (``per-query``), ``late`` (``serve``), ``batching`` (``maximal``),
            ``violation_price`` (0) and ``delay_price`` (0); the defaults in brackets.
        """
        whole(1).check("not a number in range", workers=workers)
        whole(1, MAX_QUEUE).check("not a number in range", max_queue=max_queue)
        check_positive("arrival rate is not positive", inside="arrivals.",
                       rate_per_ms=arrivals.rate_per_ms)
        checks.check_table(latency, max_queue)
        slack_ms = checks.checked_grid(grid, slo_ms, latency, max_queue)
        drawn: dict[str, Any] = {} if times is None else times._asdict()
        if times is not None:
            drawn["quantiles_ms"] = times.quantiles_ms[:, : max_queue + 1]
        problem = cls(latency, float(slo_ms), workers, arrivals, slack_ms, max_queue,
                      **drawn, **_checked(rules))
        checks.check_slo(problem.slo_ms, problem.shortest_ms)
        checks.check_modelled(problem.arrivals, problem.batching)
        checks.check_size(problem, problem.late)
        return problem

    def slower(self, factor: float, grid: str | FloatArray) -> WorkerProblem:
        """Return the problem with service times multiplied by a factor > 0, on a slack grid."""
        times = None if self.quantiles_ms is None else self.quantiles_ms * factor
        latency = replace(self.latency, latency_ms=self.latency.latency_ms * factor)
        slack_ms = checks.checked_grid(grid, self.slo_ms, latency, self.max_queue)
        slower = replace(self, latency=latency, quantiles_ms=times, slack_ms=slack_ms)
        checks.check_slo(slower.slo_ms, slower.shortest_ms)
        return slower

    def with_maximal_batching(self) -> WorkerProblem:
        """Return the problem with batches of the whole queue alone."""
        other = replace(self, batching=Batching.MAXIMAL)
        vars(other).update(services=self.services)
        return other

    def of_violations(self) -> WorkerProblem:
        """Return a problem whose gain is minus the violation rate per request."""
        nothing = replace(self.latency, accuracy=np.zeros_like(self.latency.accuracy))
        other = replace(self, latency=nothing, objective=Objective.PER_QUERY, violation_price=1.0)
        vars(other).update(actions=self.actions, services=self.services)
        return other

    @cached_property
    def actions(self) -> ActionSet:
        """Admissible actions of each state, by the late rule and the kind of batching."""
        return admissible_actions(self, self.late, self.batching)

    @property
    def charges_excess(self) -> bool:
        """Whether requests of the full state beyond N + 1 cost: they do per request only."""
        return self.objective is Objective.PER_QUERY

    def cost(self, batch: int) -> float:
        """Return the cost of an action that takes ``batch`` requests from the queue.

        It is ``batch`` where the objective is per query, else 1.
        """
        return float(batch) if self.objective is Objective.PER_QUERY else 1.0

    def rewards_and_costs(self, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
        """Compute the reward and cost of each state under a policy, or of actions.

        They have the shape of the outcome.
        """
        per_query = self.objective is Objective.PER_QUERY
        good = outcome.in_time if per_query else outcome.head_in_time
        cost = outcome.batch.astype(float) if per_query else np.ones_like(good)
        reward = self.latency.accuracy[outcome.model] * good
        return (reward - self.violation_price * (cost - good) - self.delay_cost(outcome)), cost

    def delay_cost(self, outcome: Outcome) -> FloatArray:
        """Return the cost of response times for each entry of an outcome.

        The requests of a batch are taken to have arrived evenly spread over the head's age.
        """
        batch, service = outcome.batch, outcome.service
        mean_ms = np.append(self.services.mean_ms, 0.0)[service]  # the last of drops
        waited_ms = (self.slo_ms - self.slack_ms) * (batch + 1.0) / (2.0 * np.maximum(batch, 1))
        response_ms = np.where(service >= 0, waited_ms + mean_ms, self.slo_ms)
        return batch * (self.delay_price * np.clip(response_ms / self.slo_ms, 0.0, 1.0))

    def fastest_policy(self) -> IntArray:
        """Return the policy that serves the whole queue on the fastest model that may be in time.

        Where no model may be, it takes the late action. Under the late rule ``drop`` it runs the
        smallest partial batch that may be in time, on the fastest model, and else drops.
        """
        policy = np.full((self.max_queue, self.bins + 1), DROP, dtype=np.int64)
        for row, actions in zip(policy, self.actions.by_queue, strict=False):
            for action in reversed(actions):  # so that the first of the list has the last word
                row[action.bins] = action.code
        return policy

    def with_full_state(self, policy: IntArray) -> IntArray:
        """Append to a policy's table the first action of the full state, as a row, (N+1, D+1)."""
        full = self.actions.by_queue[-1][0].code
        return np.vstack([policy, np.full((1, self.bins + 1), full)])

    def outcome(self, policy: IntArray) -> Outcome:
        """Return what an admissible policy does in each state, the full state included."""
        return self.actions.outcome_of(self.actions.index_of(self.with_full_state(policy)))

    def admissible(self, policy: IntArray) -> BoolArray:
        """Return in which states, (N+1, D+1), the policy's action is admissible."""
        listed: BoolArray = self.actions.index_of(self.with_full_state(policy)) >= 0
        return listed

    def in_time(self, policy: IntArray) -> BoolArray:
        """Return in which states a policy's action may meet the earliest deadline, (N, D+1)."""
        result: BoolArray = self.outcome(policy).head_in_time[:-1] > 0.0
        return result

    def model_and_batch(self, policy: IntArray) -> tuple[IntArray, IntArray]:
        """Return the table's models and batches, (N, D+1) each; a drop is model 0, batch 0."""
        models = len(self.latency.models)
        queued = np.arange(1, self.max_queue + 1)[:, None]
        drops = policy == DROP
        return (np.where(drops, 0, policy % models),
                np.where(drops, 0, queued - policy // models))

    def policy_of(self, model: IntArray, batch: IntArray) -> IntArray:
        """Return the table of models and batches, the inverse of :meth:`model_and_batch`."""
        queued = np.arange(1, self.max_queue + 1)[:, None]
        codes = model + len(self.latency.models) * (queued - batch)
        return np.where(batch == 0, DROP, codes)

    def check_policy(self, policy: IntArray) -> Outcome:
        """Return the outcome of a table in each state; refuse inadmissible actions."""
        shape = (self.max_queue, self.bins + 1)
        if np.shape(policy) != shape:
            raise InvalidValueError("table has the wrong shape", where="policy",
                                    value=np.shape(policy), allowed=f"{shape}")
        index = self.actions.index_of(self.with_full_state(policy))
        if (index < 0).any():
            n, j = (int(i) for i in np.argwhere(index < 0)[0])
            allowed = ("a model that is in time; the fastest where none is"
                       if self.late is LateRule.SERVE else "an action of that state")
            raise InvalidValueError("model is not admissible",
                                    where=f"policy, {n + 1} queued, slack bin {j}",
                                    value=int(policy[n, j]), allowed=allowed)
        return self.actions.outcome_of(index)


def _checked(rules: DecisionRules) -> dict[str, Any]:
    """Return the rules as members of their enumerations, and the prices as floats."""
    violation_price, delay_price = rules.get("violation_price", 0.0), rules.get("delay_price", 0.0)
    check_not_negative("not a price", violation_price=violation_price, delay_price=delay_price)
    checked: dict[str, Any] = {**rules, "violation_price": float(violation_price),
                               "delay_price": float(delay_price)}
    for name in _NAMED_RULES.keys() & rules.keys():
        checked[name] = checks.one_of(_NAMED_RULES[name], name, checked[name])
    return checked


check_arguments(globals(), ["WorkerProblem"])


def admissible_actions(queue: WorkerQueue, late: LateRule, batching: Batching) -> ActionSet:
    """List the actions of all states, the fastest first for each batch size."""
    maker = _Maker(queue, late, batching)
    return ActionSet(
        tuple(maker.actions(n) for n in range(1, queue.max_queue + 2)), len(queue.slack_ms)
    )


@dataclass(frozen=True, eq=False)
class _Maker:
    """Enumeration of the actions of a queue under a late rule and a way of batching."""

    queue: WorkerQueue
    late: LateRule
    batching: Batching

    def actions(self, queued: int) -> tuple[Action, ...]:
        """List the actions on a queue: batches that may be in time, and a late action or a drop.

        The late action of the rule ``serve`` runs the whole queue on the table's fastest model,
        in the bins where that cannot be in time. Another model may be in time there and is then
        better, but a table that is planned for longer service times may have the late action
        there, too. The drop of the rule ``drop`` is for all bins.
        """
        top = len(self.queue.slack_ms)
        full, never = queued > self.queue.max_queue, np.zeros(top)
        whole = [] if full else list(self._batches(queued, queued))
        partial = [] if full else [action for batch in self.batching.parts(queued)
                                   for action in self._batches(queued, batch)]
        if self.late is LateRule.DROP:
            return (*whole, *partial, Action(DROP, -1, 1, -1, 0, top, never, never))
        fastest = self.queue.latency.fastest
        stop = next((action.first_bin for action in whole if action.model == fastest), top)
        late = self._batch(queued, (fastest, queued), (0, stop), never)
        return (*whole, late, *partial) if stop else (*whole, *partial)

    def _batches(self, queued: int, batch: int) -> Iterator[Action]:
        """Yield batches of one size that may be in time for some slack, the fastest first."""
        latency, top = self.queue.latency, len(self.queue.slack_ms)
        for m in sorted(self.queue.possible_models[batch], key=lambda m: (
                latency.latency_ms[m, batch - 1], -latency.accuracy[m])):
            probability = self.queue.in_time_probability[m, batch - 1]
            first = int(np.count_nonzero(probability == 0.0))
            if first < top:
                yield self._batch(queued, (m, batch), (first, top), probability)

    def _batch(
        self, queued: int, run: tuple[int, int], bins: tuple[int, int], probability: FloatArray
    ) -> Action:
        """Build the action that runs (model, batch) at bins[0] <= j < bins[1]."""
        (model, batch), span = run, slice(*bins)
        in_time = self._in_time(queued, batch, probability)
        code = model + len(self.queue.latency.models) * (queued - batch)
        return Action(code, model, batch, self.queue.services.row[model, batch], *bins,
                      in_time[span], probability[span])

    def _in_time(self, queued: int, batch: int, probability: FloatArray) -> FloatArray:
        """Compute the expected number of requests of a batch answered in time, (D+1,)."""
        if not probability.any():
            return np.zeros(len(probability))
        if self._waiting is None or batch == 1:
            return batch * probability
        if batch == queued:
            return np.asarray(probability + self._waiting[batch - 1] @ probability)
        rows = slice((queued - 1) * len(probability), queued * len(probability))
        partial: FloatArray = probability + self._waiting_in_part[batch - 1][rows] @ probability
        return partial

    @cached_property
    def _waiting(self) -> FloatArray | None:
        """Expected numbers of requests behind the head by slack; None if times are fixed."""
        queue = self.queue
        if queue.quantiles_ms is None:
            return None
        return queue.once("waiting by slack", queue.max_queue,
                          lambda: waiting_by_slack(queue, queue.max_queue))

    @cached_property
    def _waiting_in_part(self) -> list[csr_array[np.float64]]:
        """Expected numbers of requests behind the head in partial batches, by slack and size."""
        queue = self.queue
        largest = max(b for b in range(1, queue.max_queue + 1) if queue.possible_models[b])
        return waiting_in_partial_batch(queue, phase_distribution(queue),
                                        min(largest, queue.max_queue - 1))
