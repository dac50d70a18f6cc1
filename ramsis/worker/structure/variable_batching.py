"""The structured form with variable batching: slack nodes and sparse rows.

A batch of the whole queue leads through the slack nodes
(:mod:`ramsis.worker.structure.structured`), as with maximal batching. A batch of part of it, or a
drop, leads straight to the next state, by a sparse row. So with V the value of a state and u that
of a node,

    Q(s, whole batch) = reward − gain·cost + Σ_r w(s, r)·h_l(r)
    Q(s, part)        = reward − gain·(cost + excess) + Σ_s' P(s' | s, part)·V(s').

Policy iteration runs on the *likely* states only. In the other states of the table an action is
chosen afterwards, among batches of the whole queue and partial batches of the fastest model.

When the head has waited for T ms, n requests are queued if (n−1)·K to n·K − 1 central arrivals
came in T. A state (n, j) is likely if that has a probability above 1e-15 for some slack in bin j.
Of thousands of states some hundred are likely. An unlikely state is represented by the likely
state of the nearest n in the same bin.

A batch of b < n requests leads to the next state by :mod:`ramsis.worker.problem.partial_batch`. A
drop leads to the state of the second request (:mod:`ramsis.worker.problem.waiting_slack`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, vstack

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.process import counts_cdf, counts_support
from ramsis.errors import InvalidValueError
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Action, LateRule
from ramsis.worker.problem.partial_batch import (
    PartialBatches,
    partial_batch_transitions,
    service_points,
)
from ramsis.worker.problem.queue import WorkerQueue
from ramsis.worker.problem.waiting_slack import second_slack_distribution
from ramsis.worker.structure.structured import Backup, NodeKind, StructuredMDP, build_structured

_NEGLIGIBLE = 1e-16

_UNLIKELY = 1e-15
_AFTER_DROPS = 1e-10

MAX_LIKELY = 12_000
"""Most likely states: a policy's chain between them is one dense matrix."""
_ROUNDING = 1e-11  # relative gain below which the incumbent action stays
_FILL_SWEEPS = 200
_FILLED = 1e-9  # relative change of values at which filling ends


@dataclass(frozen=True, eq=False)
class VariableMDP:
    """A worker problem with variable batching; made by :func:`build_variable`."""

    maximal: StructuredMDP  # the same problem with maximal batching
    # the slack nodes; its ``reached`` are the S likely states, the full one last
    whole: StructuredMDP
    columns: IntArray  # the likely state that represents each state, shape (N+1, D+1)
    partial: PartialActions  # at the likely states
    # shape (N+1, D+1, D+1): distribution of the bin after a drop, where there are drops
    after_drop: FloatArray | None

    @property
    def problem(self) -> WorkerProblem:
        """Decision problem that is solved in this form."""
        return self.whole.problem

    @cached_property
    def likely(self) -> IntArray:
        """The S likely states as (n − 1)·(D+1) + j."""
        n, j = self.whole.reached
        return n * (self.problem.bins + 1) + j

    @property
    def excess_cost(self) -> float:
        """Return the cost of a request beyond the table."""
        return float(self.problem.charges_excess)

    def backup(self, value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Return one Bellman backup of the likely states from their values, shape (S,)."""
        codes = self.problem.with_full_state(incumbent)
        best, arg, kept = self._whole_queues(value, gain, codes)
        q = self._partial_values(self.partial, value, gain)
        maximise_over(self.partial, q, best.ravel(), arg.ravel())
        chosen = codes.ravel()[self.partial.state] == self.partial.code
        kept.ravel()[self.partial.state[chosen]] = q[chosen]
        at = self.whole.reached
        change = best[at] > kept[at] + _ROUNDING * (1.0 + np.abs(best[at]))
        codes[at] = np.where(change, arg[at], codes[at])
        return Backup(best, codes[:-1], kept)

    @cached_property
    def _on_whole_queues(self) -> list[tuple[int, Action, FloatArray]]:
        """List n − 1, action and rewards by bin of each batch of a whole queue."""
        reward, _ = self.problem.rewards_and_costs(self.problem.actions.arrays)
        return [(n, action, reward[i, action.bins]) for i, (n, action) in enumerate(zip(
            self.problem.actions.row.tolist(), self.problem.actions.listed, strict=True))
            if not action.drops and action.batch > n]

    def _whole_queues(
        self, value: FloatArray, gain: float, codes: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return value and code of the best whole-queue batch, and the value of ``codes``."""
        whole, problem = self.whole, self.problem
        price = gain + problem.violation_price
        node_value = whole.onward(value) - price * whole.charged_excess
        service_values = whole.service_values(node_value)
        best = np.full(codes.shape, -np.inf)
        kept, arg = best.copy(), codes.copy()
        for n, action, reward in self._on_whole_queues:
            span = action.bins
            q = (reward - gain * problem.cost(action.batch)
                 + whole.phase[n, span] @ service_values[action.service])
            better, incumbent = q > best[n, span], codes[n, span] == action.code
            best[n, span][better] = q[better]
            arg[n, span][better] = action.code
            kept[n, span][incumbent] = q[incumbent]
        return best, arg, kept

    def _partial_values(
        self, partial: PartialActions, value: FloatArray, gain: float
    ) -> FloatArray:
        price = (gain + self.problem.violation_price) * self.excess_cost
        q: FloatArray = (partial.reward - gain * partial.cost - price * partial.excess
                         + partial.transition @ value)
        return q

    def fill(self, value: FloatArray, gain: float, policy: IntArray) -> IntArray:
        """Extend a policy to unlikely states by their best actions.

        Candidates are batches of the whole queue, and of parts of it on the fastest model. Backups
        are repeated until the values converge, ``_FILL_SWEEPS`` times at most.
        """
        problem = self.problem
        codes = problem.with_full_state(policy)
        best, arg, _ = self._whole_queues(value, gain, codes)
        elsewhere = np.ones(best.size, dtype=bool)
        elsewhere[self.likely] = False
        elsewhere[-(problem.bins + 1) :] = False  # the full state's row
        every = np.arange(best.size).reshape(best.shape)
        every[-1] = every[-1, 0]
        partial = partial_actions(
            self.whole, every, elsewhere.reshape(best.shape), self.after_drop,
            lambda action: action.drops or action.model == problem.latency.fastest)
        start, whole_arg = best.ravel(), arg.ravel()
        values = np.where(np.isfinite(start), start, value.min())
        values[self.likely] = value
        for _ in range(_FILL_SWEEPS):
            q = self._partial_values(partial, values[: partial.transition.shape[1]], gain)
            improved, chosen = start.copy(), whole_arg.copy()
            maximise_over(partial, q, improved, chosen)
            improved[~elsewhere] = values[~elsewhere]
            change = np.abs(improved[elsewhere] - values[elsewhere]).max(initial=0.0)
            values = improved
            if change < _FILLED * (1.0 + np.abs(values[self.likely]).max()):
                break
        filled = codes.ravel().copy()
        filled[elsewhere] = chosen[elsewhere]
        return filled.reshape(codes.shape)[:-1]


def build_variable(problem: WorkerProblem, nodes: NodeKind = "auto") -> VariableMDP:
    """Build the structured form of a problem with variable batching.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Slack nodes, as of :func:`~ramsis.worker.structure.structured.build_structured`.
    """
    # Batches of whole queues lead to the same states with either way of batching.
    maximal = build_structured(problem.with_maximal_batching(), nodes)
    whole = replace(maximal, problem=problem, drops=None)
    likely = likely_states(problem)
    likely[whole.reached] = True
    after_drop = None
    if problem.late is LateRule.DROP:
        after_drop = slack_after_drop(problem)
        likely |= likely_after_drops(after_drop)
    columns = representatives(likely)
    states = np.flatnonzero(likely)
    if len(states) > MAX_LIKELY:
        raise InvalidValueError(
            "the problem is too large for variable batching", where="worker problem",
            value=f"{len(states)} likely states",
            allowed=f"up to {MAX_LIKELY}: a coarser grid, a smaller max_queue, or "
            "maximal batching")
    among = columns[whole.reached]
    whole = replace(whole, reached=np.divmod(states, problem.bins + 1),
                    continuation=_onto_likely(whole.continuation, among, len(states)))
    partial = partial_actions(whole, columns, likely, after_drop, lambda _: True)
    return VariableMDP(maximal, whole, columns, partial, after_drop)


def _onto_likely(
    transition: csr_array[np.float64], columns: IntArray, states: int
) -> csr_array[np.float64]:
    """Redirect transitions to the likely states that represent their targets."""
    old = transition.tocoo()
    likely_only: csr_array[np.float64] = csr_array((old.data, (old.row, columns[old.col])),
                                                   shape=(old.shape[0], states))
    return likely_only


def likely_states(queue: WorkerQueue) -> BoolArray:
    """Return which states are likely; shape (N+1, D+1).

    Each bin has at least one likely state with n <= N. Bin 0 has no upper limit on the head's
    waiting time; the full state is at bin 0.
    """
    waited = queue.slo_ms - queue.slack_ms
    top = counts_support(queue.arrivals, queue.slo_ms)
    cdf = counts_cdf(queue.arrivals, waited, top)
    last = np.arange(1, queue.max_queue + 2) * queue.workers - 1
    upto = np.where(last > top, 1.0, cdf[:, np.minimum(last, top)]).T
    # At least (n−1)·K arrivals in the longest waiting time of the bin, and at most n·K − 1 in the
    # shortest.
    above = 1.0 - np.vstack([np.zeros((1, len(waited))), upto[:-1]])
    shortest_wait = np.append(waited[1:], 0.0)
    at_least = np.where(
        last[:, None] > top, 1.0,
        counts_cdf(queue.arrivals, shortest_wait, top)[:, np.minimum(last, top)].T,
    )
    likely = (above > _UNLIKELY) & (at_least > _UNLIKELY)
    likely[:, 0] = at_least[:, 0] > _UNLIKELY
    likely[0, -1] = True
    likely[-2, ~likely[:-1].any(axis=0)] = True  # so old that more than N are queued
    likely[-1] = False
    likely[-1, 0] = True
    return likely


def likely_after_drops(after_drop: FloatArray) -> BoolArray:
    """Return the states reached by drops from the full one, taken to hold N + 1 requests.

    Parameters
    ----------
    after_drop : ndarray, shape (N+1, D+1, D+1)
        Distribution of the bin after a drop.
    """
    reach = np.zeros(after_drop.shape[:2])
    reach[-1, 0] = 1.0
    for n in range(len(reach) - 1, 0, -1):
        reach[n - 1] = reach[n] @ after_drop[n]
    return reach > _AFTER_DROPS


def representatives(likely: BoolArray) -> IntArray:
    """Return the number of each state's representative likely state; shape (N+1, D+1).

    Gaps between likely n of a bin are filled: ``likely`` is changed in place.
    """
    n = np.arange(len(likely) - 1)
    listed = likely[:-1]
    lowest = np.argmax(listed, axis=0)
    highest = len(n) - 1 - np.argmax(listed[::-1], axis=0)
    listed |= (n[:, None] >= lowest) & (n[:, None] <= highest)
    index = np.cumsum(likely).reshape(likely.shape) - 1
    columns = np.empty(likely.shape, dtype=np.int64)
    columns[:-1] = np.take_along_axis(index[:-1], np.clip(n[:, None], lowest, highest), axis=0)
    columns[-1] = index[-1, 0]
    return columns


@dataclass(frozen=True, eq=False)
class PartialActions:
    """P pairs of a state and an action on part of its queue, sorted by state."""

    state: IntArray  # (n − 1)·(D+1) + j, not falling, shape (P,)
    code: IntArray  # the action in a policy's table, shape (P,)
    # reward, cost: shape (P,)
    reward: FloatArray
    cost: FloatArray
    transition: csr_array[np.float64]  # shape (P, S)
    excess: FloatArray  # expected requests beyond N + 1 afterwards, shape (P,)

    def find(self, state: IntArray, code: IntArray) -> IntArray:
        """Return the index of each pair (state, action's code), −1 where there is no such pair."""
        if not len(self.code):
            return np.full(len(state), -1)
        base = 2 + int(max(self.code.max(), code.max()))  # codes are -1 and more
        keys, wanted = self.state * base + self.code, state * base + code
        order = np.argsort(keys)
        index = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        return np.where(keys[index] == wanted, index, -1)


def maximise_over(
    partial: PartialActions, q: FloatArray, best: FloatArray, arg: IntArray
) -> None:
    """Raise ``best`` of each state to the largest ``q`` of its actions, and its code ``arg``."""
    if not len(q):
        return
    first = np.flatnonzero(np.diff(partial.state, prepend=-1))
    state = partial.state[first]
    most = np.maximum.reduceat(q, first)
    order = np.lexsort((-q, partial.state))[first]
    better = most > best[state]
    best[state[better]] = most[better]
    arg[state[better]] = partial.code[order[better]]


def slack_after_drop(problem: WorkerProblem) -> FloatArray:
    """Return the distribution of the bin after a drop, (N+1, D+1, D+1); the last for n = 1."""
    longest = problem.max_queue + 1
    after_drop = problem.once("second slack", longest,
                              lambda: second_slack_distribution(problem, longest)).copy()
    after_drop[0, :, -1] = 1.0
    return after_drop


def partial_actions(
    whole: StructuredMDP,
    columns: IntArray,
    where: BoolArray,
    after_drop: FloatArray | None,
    wanted: Callable[[Action], bool],
) -> PartialActions:
    """Return the batches of part of the queue, and drops, that are admissible in some states.

    Parameters
    ----------
    columns : ndarray of int, shape (N+1, D+1)
        Column of the transition matrix for each next state: its own, or its representative's.
    where : ndarray of bool, shape (N+1, D+1)
        States whose actions are returned.
    after_drop : ndarray or None
        :func:`slack_after_drop`, where there are drops.
    wanted : callable
        Predicate that selects the actions to return.
    """
    problem = whole.problem
    listed = [
        i for i, (action, n) in enumerate(zip(
            problem.actions.listed, problem.actions.row.tolist(), strict=True))
        if (action.drops or action.batch <= n) and wanted(action)
    ]
    lengths = problem.actions.row[listed]
    # Pairs of an action and a bin, by state.
    chosen, slack_bin = np.nonzero(problem.actions.admissible[listed] & where[lengths])
    state = lengths[chosen] * (problem.bins + 1) + slack_bin
    order = np.argsort(state, kind="stable")
    state, chosen, slack_bin = state[order], chosen[order], slack_bin[order]
    index = np.asarray(listed, dtype=np.int64)[chosen]
    length, code = problem.actions.row[index], problem.actions.code[index]
    outcome = problem.actions.arrays
    batch, service = outcome.batch[index, 0], outcome.service[index, 0]
    rewards, costs = problem.rewards_and_costs(outcome)
    reward, cost = rewards[index, slack_bin], costs[index, 0]
    served = service >= 0
    transition, excess = _batch_transitions(
        whole, columns, *(x[served] for x in (length, slack_bin, batch, service)))
    if after_drop is not None:
        dropped = _drop_transitions(after_drop, columns, length[~served], slack_bin[~served],
                                    transition.shape[1])
        # Row of each action, in a matrix with the rows of batches first and those of drops last.
        place = np.argsort(np.argsort(~served, kind="stable"), kind="stable")
        transition = csr_array(vstack([transition, dropped], format="csr"))[place]
        excess = np.append(excess, np.zeros(dropped.shape[0]))[place]
    return PartialActions(state, code, reward, cost, transition, excess)


def _batch_transitions(
    whole: StructuredMDP, columns: IntArray, length: IntArray, slack_bin: IntArray,
    batch: IntArray, service: IntArray,
) -> tuple[csr_array[np.float64], FloatArray]:
    """Return P(next state) and excess of each partial batch, averaged over its service time.

    ``length`` is n − 1.
    """
    latency_ms, weight = service_points(whole.problem)
    points = latency_ms.shape[1]
    every = np.repeat(np.arange(len(length)), points)
    batches = PartialBatches(length[every] + 1, slack_bin[every], batch[every],
                             latency_ms[service].ravel())
    transitions = partial_batch_transitions(whole.problem, whole.phase, columns, batches)
    if points == 1:
        return transitions.transition, transitions.excess
    average: csr_array[np.float64] = csr_array(
        (weight[service].ravel(), (every, np.arange(len(every)))),
        shape=(len(length), len(every)),
    )
    return csr_array(average @ transitions.transition), np.asarray(average @ transitions.excess)


def _drop_transitions(
    after_drop: FloatArray, columns: IntArray, length: IntArray, slack_bin: IntArray, states: int
) -> csr_array[np.float64]:
    """Return P(next state) after drops of the head, with slack at the lower edges of the bins."""
    slack = after_drop[length, slack_bin]
    pair, bin_after = np.nonzero(slack > _NEGLIGIBLE)
    column = columns[np.maximum(length[pair] - 1, 0), bin_after]
    return csr_array((slack[pair, bin_after], (pair, column)), shape=(len(length), states))
