"""Actions on part of a queue, with their transitions, at some states of a worker's problem.

A batch of b < n requests leads to the next state by :mod:`ramsis.worker.problem.partial_batch`. A
drop leads to the state of the second request (:mod:`ramsis.worker.problem.waiting_slack`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Action
from ramsis.worker.problem.partial_batch import (
    PartialBatches,
    partial_batch_transitions,
    service_points,
)
from ramsis.worker.problem.waiting_slack import second_slack_distribution
from ramsis.worker.structure.structured import StructuredMDP

_NEGLIGIBLE = 1e-16


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
    after_drop = second_slack_distribution(problem, problem.max_queue + 1)
    after_drop[0, :, -1] = 1.0
    return after_drop


def partial_actions(
    whole: StructuredMDP,
    columns: IntArray,
    where: BoolArray,
    after_drop: FloatArray | None,
    wanted: Callable[[Action], bool],
) -> PartialActions:
    """Return actions on part of the queue, with transitions, in some states.

    Parameters
    ----------
    columns : ndarray of int, shape (N+1, D+1)
        Column of the transition matrix that stands for each state.
    where : ndarray of bool, shape (N+1, D+1)
        Mask of the states.
    after_drop : ndarray or None
        :func:`slack_after_drop`, where there are drops.
    wanted : callable
        Whether an action is to be included.
    """
    problem = whole.problem
    chosen = [
        (action, n, np.flatnonzero(where[n, action.bins]) + action.first_bin)
        for n, actions in enumerate(problem.actions.by_queue)
        for action in actions
        if (action.drops or action.batch <= n) and wanted(action)
    ]
    size = [len(bins) for *_, bins in chosen]
    length = np.repeat(np.array([n for _, n, _ in chosen], dtype=np.int64), size)
    slack_bin = np.concatenate([np.empty(0, dtype=np.int64), *(bins for *_, bins in chosen)])
    code, batch, service = (
        np.repeat(np.array([getattr(c, name) for c, *_ in chosen], dtype=np.int64), size)
        for name in ("code", "batch", "service")
    )
    rewards = [problem.reward(c)[bins - c.first_bin] for c, _, bins in chosen]
    cost = np.repeat([problem.cost(c.batch) for c, *_ in chosen], size)
    served = service >= 0
    transition, excess = _batch_transitions(
        whole, columns, *(x[served] for x in (length, slack_bin, batch, service)))
    if after_drop is not None:
        dropped = _drop_transitions(after_drop, columns, length[~served], slack_bin[~served],
                                    transition.shape[1])
        # Where each action has its row, batches being first and drops behind them.
        index = np.argsort(np.argsort(~served, kind="stable"), kind="stable")
        transition = csr_array(vstack([transition, dropped], format="csr"))[index]
        excess = np.append(excess, np.zeros(dropped.shape[0]))[index]
    state = length * (problem.bins + 1) + slack_bin
    order = np.argsort(state, kind="stable")
    reward = np.concatenate([np.empty(0), *rewards])
    return PartialActions(state[order], code[order], reward[order], cost[order],
                          transition[order], excess[order])


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
