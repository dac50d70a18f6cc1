"""The worker's problem with every transition written out: for checks and for other solvers.

Let a service take l ms from state (n, j), and let r central arrivals remain until the worker's
next request. The next state (n', j') is reached when that request falls in the part (s, e] of the
service after which its slack lies in bin j' (EuroSys '24, Eq. 2-3, read as below):

    P(n', j' | r) = Σ_a Σ_d Σ_k PF(a, s)·PF(d, e − s)·PF(k, l − e)
                    over a < r <= a + d,  n' = 1 + ⌊(a + d + k − r)/K⌋.

Fewer than r arrivals in l lead to the empty state; with batch arrivals, straight to the state
(n', SLO) with which the busy period starts (:mod:`ramsis.worker.problem.batch_arrivals`). Bin 0
takes all slack below T_1, negative slack too; n' > N is the full state. Nothing here uses the
slack nodes of the structured form, so that the two can be compared.

The full state is charged N + 1 requests; requests beyond these are charged to the decision that
led there. Under the late rule ``drop``, requests that are overdue when the service ends are
dropped before the next decision, and charged in the same way. A service of l > SLO then leads to
the same states as one of l = SLO, from the phase r' after the arrivals in its first l − SLO:

    P(· | l, r) = Σ_a PF(a, l − SLO)·P(· | SLO, r'),  r' = r − a + ⌊(a + K − r)/K⌋·K.

The worker's next request is the r-th central arrival of K workers in turn.

The distribution after a batch of part of the queue is that of
:mod:`ramsis.worker.problem.partial_batch`. Here F_p is an incomplete beta function for each phase
and bin by itself, and every state has its own column, so that the recurrence and the likely states
of the structured form can be compared with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.special import betainc

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import is_orderly
from ramsis.arrivals.process import counts_cdf, counts_support
from ramsis.errors import InvalidValueError
from ramsis.mdp.sparse import SparseMDP
from ramsis.reprs import dataclass
from ramsis.worker.explicit._kernels import four_intervals
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Action, LateRule
from ramsis.worker.problem.batch_arrivals import (
    BusyPeriodStart,
    busy_period_start,
    phase_distribution,
)
from ramsis.worker.problem.partial_batch import (
    bin_middles,
    new_requests,
    reached_bins,
    service_points,
)
from ramsis.worker.problem.waiting_slack import second_slack_distribution

MAX_CELLS = 5_000_000_000
"""Most pairs × states of a problem that is written out in full; about 1 in 100 is not zero."""
_NEGLIGIBLE = 1e-17


@dataclass(frozen=True, eq=False)
class ExplicitWorkerMDP:
    """A worker problem as a sparse MDP.

    State 0 is the empty one, state 1 + (n−1)·(D+1) + j is (n, j), the last one is the full
    state. An action's label is its entry in a policy's table; the empty state's only action
    has label 0 and costs nothing.

    Attributes
    ----------
    excess : ndarray, shape (L,)
        E[(n' − N − 1)⁺] of each pair: requests of the full state beyond N + 1.
    overdue : csr_array, shape (L, N+1)
        Expected number of overdue requests dropped with n = 1 … N queued, and with more, at the
        end of the service of each pair.
    """

    problem: WorkerProblem
    mdp: SparseMDP
    excess: FloatArray
    overdue: csr_array[np.float64]

    def index(self, queued: int, slack_bin: int) -> int:
        """Return the state of n = ``queued`` >= 1 at bin j; n > N is the full state."""
        if queued > self.problem.max_queue:
            return self.mdp.n_states - 1
        return 1 + (queued - 1) * (self.problem.bins + 1) + slack_bin

    def labels(self, policy: IntArray) -> IntArray:
        """Return the action labels of all states for a table of shape (N, D+1)."""
        full = self.problem.actions.by_queue[-1][0].code
        return np.concatenate([[0], np.asarray(policy).ravel(), [full]])

    def table(self, labels: IntArray) -> IntArray:
        """Return the table of shape (N, D+1) for action labels of all states."""
        return np.asarray(labels)[1:-1].reshape(self.problem.max_queue, -1)

    def by_queue_and_bin(self, state_values: FloatArray) -> FloatArray:
        """Return state values as an array (N+1, D+1); the full state starts the last row."""
        rows = np.zeros((self.problem.max_queue + 1, self.problem.bins + 1))
        rows[:-1] = np.asarray(state_values)[1:-1].reshape(self.problem.max_queue, -1)
        rows[-1, 0] = state_values[-1]
        return rows

    def visits(self, share: FloatArray, pairs: IntArray) -> FloatArray:
        """Return how often each state is visited, (N+1, D+1), drops of overdue requests included.

        ``share`` (S,) is the stationary distribution of the policy that takes ``pairs`` (S,).
        """
        frequency = self.by_queue_and_bin(share)
        frequency[:, 0] += np.asarray(share @ self.overdue[pairs])
        return frequency


def build_explicit(problem: WorkerProblem) -> ExplicitWorkerMDP:
    """Write out every transition of a worker's problem.

    There is a row of some dozen to some hundred entries for each state and admissible action. Nine
    models at N = 32, D = 100 and 60 workers take 4 MB and about a second.

    Raises
    ------
    InvalidValueError
        When the problem is too large for that (:data:`MAX_CELLS`).
    """
    _check_size(problem)
    transitions = _Transitions(problem)
    columns, full = problem.bins + 1, problem.max_queue
    pairs = [
        (n, action, np.arange(columns)[action.bins] if n < full else np.array([0]))
        for n, actions in enumerate(problem.actions.by_queue) for action in actions
    ]
    rows = [transitions.of(n, action, bins) for n, action, bins in pairs]
    # State 0 is empty, and the next request leads it to one request with the whole slack.
    empty = csr_array(([1.0], ([0], [1 + problem.bins])),
                      shape=(1, rows[0].transition.shape[1]))
    state = np.concatenate([[0], *(1 + n * columns + bins for n, _, bins in pairs)])
    action = np.concatenate([[0], *(np.full(len(bins), action.code) for _, action, bins in pairs)])
    rewards, costs = problem.rewards_and_costs(problem.actions.arrays)
    reward = np.concatenate([[0.0], *(rewards[i, bins] for i, (*_, bins) in enumerate(pairs))])
    cost = np.concatenate(
        [[0.0], *(np.full(len(bins), costs[i, 0]) for i, (*_, bins) in enumerate(pairs))])
    excess = np.concatenate([[0.0], *(after.excess for after in rows)])
    overdue = csr_array(vstack([csr_array((1, problem.max_queue + 1)),
                                *(after.overdue for after in rows)], format="csr"))
    # Requests that are overdue, or beyond the full state, cost as late ones, without a reward.
    charged = np.asarray(overdue.sum(axis=1)) + (excess if problem.charges_excess else 0.0)
    order = np.lexsort((action, state))
    mdp = SparseMDP(
        state=state[order],
        action=action[order],
        transition=csr_array(
            vstack([empty, *(after.transition for after in rows)], format="csr"))[order],
        reward=(reward - problem.violation_price * charged)[order],
        cost=(cost + charged)[order],
    )
    return ExplicitWorkerMDP(problem, mdp, excess[order], overdue[order])


def _check_size(problem: WorkerProblem) -> None:
    """Refuse a problem that would take hours and fill the memory."""
    columns = problem.bins + 1
    pairs = sum(action.stop_bin - action.first_bin for action in problem.actions.listed)
    states = 2 + problem.max_queue * columns
    if pairs * states > MAX_CELLS:
        raise InvalidValueError("the problem is too large to be written out in full",
                                where="worker problem",
                                value=f"{pairs} state-action pairs, {states} states",
                                allowed=f"pairs times states up to {MAX_CELLS:.0e}")


class _After(NamedTuple):
    """Transition probabilities and excess after an action by state, or after a service by r."""

    transition: Any  # P(next state), shape (rows, S)
    excess: FloatArray  # shape (rows,)
    overdue: Any  # shape (rows, N+1)


class _Transitions:
    """Rows of transition probabilities, one for each state and action of a problem."""

    def __init__(self, problem: WorkerProblem) -> None:
        self.problem = problem
        self.phase = phase_distribution(problem)
        self.starts = busy_period_start(problem)
        self.services = _ServiceTransitions(problem, self.starts)
        self.partial = (_PartialRows(problem, self.phase)
                        if problem.batching.partial else None)

    def of(self, n: int, action: Action, bins: IntArray) -> _After:
        """Return P(next state) and excess after an action with n + 1 queued, by slack bin."""
        none = csr_array((len(bins), self.problem.max_queue + 1))
        if self.partial is not None and action.batch <= n and not action.drops:
            return _After(*self.partial.of(n, bins, action), none)
        if action.drops:
            probability, excess = self._drop(n, bins)
        else:
            after, phase = self.services.of(action.service), self.phase[n, bins]
            probability, excess = phase @ after.transition, phase @ after.excess
            none = csr_array(phase @ after.overdue)
        probability[probability < _NEGLIGIBLE] = 0.0
        return _After(csr_array(probability), excess, none)

    def _drop(self, n: int, bins: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the transitions when the head of n + 1 requests is dropped."""
        problem, columns = self.problem, self.problem.bins + 1
        probability = np.zeros((len(bins), 2 + problem.max_queue * columns))
        if n == 0:
            after = self.phase[0, bins] @ self.starts.distribution
            _add_starts(probability, self.starts, after.T, problem)
            if len(self.starts.queued) == 1:
                probability[:, 0], probability[:, columns] = 1.0, 0.0
            return probability, after @ np.maximum(
                self.starts.queued - problem.max_queue - 1.0, 0.0)
        block = probability[:, 1 + (n - 1) * columns : 1 + n * columns]
        if is_orderly(problem.arrivals):
            self._second_slack(n, bins, block)
        else:
            block[:] = second_slack_distribution(problem, n + 1)[n, bins]
        return probability, np.zeros(len(bins))

    def _second_slack(self, n: int, bins: IntArray, probability: FloatArray) -> None:
        """Write P(slack bin of the second of n + 1 requests), for orderly arrivals.

        Given k central arrivals in T_A, the K-th of them falls at a share of T_A with the
        distribution Beta(K, k − K + 1).
        """
        problem, workers = self.problem, self.problem.workers
        k = n * workers + np.arange(workers)
        for row, j in zip(probability, bins.tolist(), strict=True):
            waited = problem.slo_ms - problem.slack_ms[j]
            if waited == 0.0:
                row[j] = 1.0
                continue
            weight = self.phase[n, j, ::-1]  # of k, as r = K − (k mod K)
            some = weight > _NEGLIGIBLE
            share = (problem.slack_ms[j:] - problem.slack_ms[j]) / waited
            upto = betainc(workers, k[some, None] - workers + 1.0, np.minimum(share, 1.0))
            row[j:-1] = np.diff(weight[some] @ upto)


def _add_starts(
    probability: FloatArray, starts: BusyPeriodStart, each: FloatArray, problem: WorkerProblem
) -> None:
    """Add the probability of each busy-period start, (L, rows), to the state that it leads to."""
    for queued, chance in zip(starts.queued.tolist(), each, strict=True):
        column = -1 if queued > problem.max_queue else queued * (problem.bins + 1)
        probability[:, column] += chance


class _ServiceTransitions:
    """Transitions after services, by phase r; each latency is computed once."""

    def __init__(self, problem: WorkerProblem, starts: BusyPeriodStart) -> None:
        self.problem, self.starts = problem, starts
        self.after = _counts_after(problem)
        self.by_latency: dict[float, _After] = {}

    def of(self, service: int) -> _After:
        """Return P(next state | r) and excess after a service, averaged over its latencies."""
        total: list[Any] | None = None
        latencies = self.problem.services.latency_ms
        for index, weight in self.problem.services.terms(service):
            after = self._at(float(latencies[index]))
            parts = [weight * part for part in after]
            total = parts if total is None else [a + b for a, b in zip(total, parts, strict=True)]
        assert total is not None
        return _After(total[0].toarray(), *total[1:])

    def _at(self, latency_ms: float) -> _After:
        """Return the transitions after a service of ``latency_ms``, computed once for each."""
        if latency_ms not in self.by_latency:
            problem = self.problem
            if problem.late is LateRule.DROP and latency_ms > problem.slo_ms:
                self.by_latency[latency_ms] = self._beyond_slo(latency_ms)
            else:
                probability, excess = self._of_latency(latency_ms)
                none = np.zeros((problem.workers, problem.max_queue + 1))
                self.by_latency[latency_ms] = _After(csr_array(probability), excess, none)
        return self.by_latency[latency_ms]

    def _beyond_slo(self, latency_ms: float) -> _After:
        """Return the transitions after a service that is longer than the SLO."""
        problem, workers, slo = self.problem, self.problem.workers, self.problem.slo_ms
        at_slo = self._at(slo)
        arrived = np.arange(counts_support(problem.arrivals, latency_ms - slo) + 1)
        moved = phase_moved(
            np.exp(problem.arrivals.log_pf(arrived, np.array([latency_ms - slo]))), workers)
        lost = self._at_least(latency_ms) - moved @ self._at_least(slo)
        return _After(csr_array(moved @ at_slo.transition), moved @ at_slo.excess,
                      np.maximum(lost, 0.0))

    def _at_least(self, duration_ms: float) -> FloatArray:
        """Return P(n >= 1 … N requests at the worker | r) and E[(n − N)⁺]; shape (K, N+1)."""
        problem = self.problem
        size = counts_support(problem.arrivals, duration_ms)
        upto = counts_cdf(problem.arrivals, np.array([duration_ms]), size)[0]
        return at_least(upto[:size], problem.workers, problem.max_queue)

    def _of_latency(self, latency_ms: float) -> tuple[FloatArray, FloatArray]:
        """Return P(next state | r), (K, S), and the excess, (K,), for one latency."""
        problem, arrivals, workers = self.problem, self.problem.arrivals, self.problem.workers
        by_bin, excess = self._first_passages(latency_ms)
        probability = np.empty((workers, 2 + problem.max_queue * (problem.bins + 1)))
        before = np.exp(arrivals.log_pf(np.arange(workers), np.array([latency_ms])))
        idle = self.starts.after(before)
        probability[:, 1:-1] = by_bin[:, :, :-1].transpose(1, 2, 0).reshape(workers, -1)
        probability[:, -1] = by_bin[:, :, -1].sum(axis=0)
        probability[:, 0] = idle[0] if len(idle) == 1 else 0.0
        if len(idle) > 1:
            _add_starts(probability, self.starts, idle, problem)
            for queued, chance in zip(self.starts.queued.tolist(), idle, strict=True):
                excess += max(0, queued - problem.max_queue - 1) * chance
        return probability, excess

    def _first_passages(self, latency_ms: float) -> tuple[FloatArray, FloatArray]:
        """Compute P(first passage in bin j, n' at the end | r), (D+1, K, N+1), and the excess.

        The excess, (K,), is the expected number of requests beyond N + 1 at the end.
        """
        problem, arrivals, workers = self.problem, self.problem.arrivals, self.problem.workers
        by_bin = np.zeros((problem.bins + 1, workers, problem.max_queue + 1))
        excess = np.zeros(workers)
        # The slack is in bin j if the next request arrives in (start, end] of the service.
        for j in range(problem.bins):
            end = latency_ms - (problem.slo_ms - float(problem.slack_ms[j + 1]))
            if end <= 0:
                continue
            start = latency_ms - (problem.slo_ms - float(problem.slack_ms[j])) if j else 0.0
            start = max(start, 0.0)
            before = np.exp(arrivals.log_pf(np.arange(workers), np.array([start])))
            size = counts_support(arrivals, end - start) + 1
            within = np.exp(arrivals.log_pf(np.arange(size), np.array([end - start])))
            four_intervals(before, within, self.after[j], by_bin[j], excess)
        return by_bin, excess


def _counts_after(problem: WorkerProblem) -> list[FloatArray]:
    """Return for each bin j the cdf of the arrivals in SLO − T_{j+1}, up to its support."""
    arrivals = problem.arrivals
    remaining_ms = problem.slo_ms - problem.slack_ms[1:]
    return [
        counts_cdf(arrivals, remaining_ms[j : j + 1],
                   counts_support(arrivals, float(remaining_ms[j])))[0]
        for j in range(problem.bins)
    ]


def at_least(upto: FloatArray, workers: int, top: int) -> FloatArray:
    """Return P(n >= 1 … N requests at the worker | r) and E[(n − N)⁺]; shape (…, K, N+1).

    Parameters
    ----------
    upto : ndarray, shape (…, A)
        P(at most 0, 1, … central arrivals); A and more do not come.
    workers, top : int
        K and N.
    """
    # The n-th request of the worker is the central arrival r + (n − 1)·K.
    size = upto.shape[-1]
    most = max(top + 1, size // workers + 2)
    wanted = np.arange(1, workers + 1)[:, None] + workers * np.arange(most)
    tail = np.where(wanted <= size, 1.0 - upto[..., np.minimum(wanted, size) - 1], 0.0)
    return np.concatenate([tail[..., :top], tail[..., top:].sum(axis=-1, keepdims=True)], axis=-1)


def phase_moved(arrivals: FloatArray, workers: int) -> FloatArray:
    """Return P(r' after some arrivals | r before), shape (…, K, K).

    Parameters
    ----------
    arrivals : ndarray, shape (…, A)
        Probability of 0, 1, … central arrivals.
    workers : int
        K.
    """
    arrived, r = np.arange(arrivals.shape[-1]), np.arange(1, workers + 1)[:, None]
    after = r - arrived + (arrived + workers - r) // workers * workers
    return np.stack([arrivals @ np.eye(workers)[worker - 1] for worker in after], axis=-2)


class _PartialRows:
    """Transition rows of a problem's actions on part of the queue.

    ``phase`` (N+1, D+1, K) is that of
    :func:`ramsis.worker.problem.batch_arrivals.phase_distribution`.
    """

    def __init__(self, problem: WorkerProblem, phase: FloatArray) -> None:
        self.problem, self.phases = problem, phase[:, :, ::-1]
        self.slack = bin_middles(problem)
        self.latency_ms, self.weight = service_points(problem)
        every, index = np.unique(self.latency_ms, return_inverse=True)
        self.new = new_requests(problem, every)
        self.index = index.reshape(self.latency_ms.shape)

    def of(
        self, n: int, bins: IntArray, action: Action
    ) -> tuple[csr_array[np.float64], FloatArray]:
        """Return P(next state), shape (bins, S), and the excess, (bins,), with n + 1 queued."""
        problem, states = self.problem, 2 + self.problem.max_queue * (self.problem.bins + 1)
        indptr, indices, data = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
        excess = np.zeros(len(bins))
        latency_ms = self.latency_ms[action.service]
        size = (len(bins), len(latency_ms))
        first_bin, last_bin = (index.reshape(size) for index in reached_bins(
            problem, np.full(size, n + 1).ravel(), np.full(size, action.batch).ravel(),
            np.repeat(self.slack[bins], len(latency_ms)), np.tile(latency_ms, len(bins))))
        for row, j in enumerate(bins.tolist()):
            for point, weight in enumerate(self.weight[action.service].tolist()):
                first, last = int(first_bin[row, point]), int(last_bin[row, point])
                joint = self._joint(n, j, action, point, first, last)
                left = n + 1 - action.batch + np.arange(len(joint))
                beyond = np.maximum(left - problem.max_queue - 1.0, 0.0)
                excess[row] += weight * float(beyond @ joint.sum(axis=1))
                bin_after = first + np.arange(joint.shape[1])
                column = 1 + (left[:, None] - 1) * (problem.bins + 1) + bin_after
                column[left > problem.max_queue] = states - 1  # the full state
                some = joint > _NEGLIGIBLE
                indices.append(column[some])
                data.append(weight * joint[some])
            indptr.append(indptr[-1] + sum(map(len, data[-len(latency_ms):])))
        transition: csr_array[np.float64] = csr_array(
            (np.concatenate(data), np.concatenate(indices), np.array(indptr)),
            shape=(len(bins), states),
        )
        transition.sum_duplicates()
        return transition, excess

    def _joint(
        self, n: int, j: int, action: Action, point: int, first: int, last: int
    ) -> FloatArray:
        """Return P(i new requests, next slack in bin first … last), shape (I, bins)."""
        problem, workers = self.problem, self.problem.workers
        latency_ms = self.latency_ms[action.service, point]
        phase = np.flatnonzero(self.phases[n, j] > _NEGLIGIBLE)
        upto = np.ones((len(phase), last - first + 1))
        if last > first:
            edge = problem.slack_ms[first + 1 : last + 1]
            y = (edge + latency_ms - self.slack[j]) / (problem.slo_ms - self.slack[j])
            order, count = action.batch * workers, n * workers + phase[:, None]
            upto[:, :-1] = betainc(order, count - order + 1.0, np.clip(y, 0.0, 1.0))
        during = self.new[self.index[action.service, point]][phase]
        weight = self.phases[n, j, phase, None] * during
        joint: FloatArray = np.maximum(np.diff(weight.T @ upto, axis=1, prepend=0.0), 0.0)
        return joint
