"""Choices that take part of a queue, with their rows, at some states of a worker problem.

A batch of b < n requests leads to the next state by :mod:`ramsis.worker.remainder`, a drop to that
of the second request (:mod:`ramsis.worker.behind`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ramsis.worker.actions import Choice
from ramsis.worker.behind import second_by_bin
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.remainder import PartialBatches, remainder, service_points
from ramsis.worker.structured import StructuredMDP

__all__ = ["Parts", "after_a_drop", "parts_at", "take_best"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NEGLIGIBLE = 1e-16


@dataclass(frozen=True, eq=False)
class Parts:
    """P pairs of a state and a choice that takes part of its queue, by state.

    Attributes
    ----------
    state : ndarray of int, shape (P,)
        (n − 1)·(D+1) + j, not falling.
    code : ndarray of int, shape (P,)
        The choice as it stands in a policy's table.
    reward, cost : ndarrays, shape (P,)
    law : csr_array, shape (P, S)
    excess : ndarray, shape (P,)
        Expected requests beyond N + 1 afterwards.
    """

    state: IntArray
    code: IntArray
    reward: FloatArray
    cost: FloatArray
    law: csr_array[np.float64]
    excess: FloatArray

    def find(self, state: IntArray, code: IntArray) -> IntArray:
        """Index of each pair, −1 where there is none."""
        if not len(self.code):
            return np.full(len(state), -1)
        base = 2 + int(max(self.code.max(), code.max()))  # codes are -1 and more
        keys, wanted = self.state * base + self.code, state * base + code
        order = np.argsort(keys)
        place = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        return np.where(keys[place] == wanted, place, -1)


def take_best(parts: Parts, q: FloatArray, best: FloatArray, arg: IntArray) -> None:
    """Raise the values of states to those of their parts, where these are more."""
    if not len(q):
        return
    first = np.flatnonzero(np.diff(parts.state, prepend=-1))
    state = parts.state[first]
    most = np.maximum.reduceat(q, first)
    order = np.lexsort((-q, parts.state))[first]
    better = most > best[state]
    best[state[better]] = most[better]
    arg[state[better]] = parts.code[order[better]]


def after_a_drop(problem: WorkerProblem) -> FloatArray:
    """Law of the bin after a drop, (N+1, D+1, D+1); after the only request, (1, SLO)."""
    second = second_by_bin(
        problem.arrivals, problem.workers, problem.slack_ms, problem.max_queue + 1
    )
    second[0, :, -1] = 1.0
    return second


def parts_at(
    whole: StructuredMDP,
    columns: IntArray,
    where: NDArray[np.bool_],
    second: FloatArray | None,
    wanted: Callable[[Choice], bool],
) -> Parts:
    """The wanted choices of parts of the queue in some states.

    Parameters
    ----------
    columns : ndarray of int, shape (N+1, D+1)
        Column of the law that stands for each state.
    where : ndarray of bool, shape (N+1, D+1)
        The states.
    second : ndarray or None
        :func:`after_a_drop`, where there are drops.
    wanted : callable
        Says which choices to take.
    """
    problem = whole.problem
    chosen = [
        (choice, n, np.flatnonzero(where[n, choice.bins]) + choice.first_bin)
        for n, choices in enumerate(problem.choices.rows)
        for choice in choices
        if (choice.drops or choice.batch <= n) and wanted(choice)
    ]
    size = [len(bins) for *_, bins in chosen]
    row = np.repeat(np.array([n for _, n, _ in chosen], dtype=np.int64), size)
    slack_bin = np.concatenate([np.empty(0, dtype=np.int64), *(bins for *_, bins in chosen)])
    code, batch, service = (
        np.repeat(np.array([getattr(c, name) for c, *_ in chosen], dtype=np.int64), size)
        for name in ("code", "batch", "service")
    )
    rewards = [problem.reward(c)[bins - c.first_bin] for c, _, bins in chosen]
    cost = np.repeat([problem.cost(c.batch) for c, *_ in chosen], size)
    served = service >= 0
    law, excess = _rows(whole, columns, *(x[served] for x in (row, slack_bin, batch, service)))
    if second is not None:
        dropped = _drop_rows(second, columns, row[~served], slack_bin[~served], law.shape[1])
        place = np.argsort(np.argsort(~served, kind="stable"), kind="stable")
        law = csr_array(vstack([law, dropped], format="csr"))[place]
        excess = np.append(excess, np.zeros(dropped.shape[0]))[place]
    state = row * (problem.bins + 1) + slack_bin
    order = np.argsort(state, kind="stable")
    return Parts(state[order], code[order], np.concatenate([np.empty(0), *rewards])[order],
                 cost[order], law[order], excess[order])


def _rows(
    whole: StructuredMDP, columns: IntArray, row: IntArray, slack_bin: IntArray,
    batch: IntArray, service: IntArray,
) -> tuple[csr_array[np.float64], FloatArray]:
    """Law and excess of each batch of part of a queue, averaged over its service time."""
    latency_ms, weight = service_points(whole.problem)
    points = latency_ms.shape[1]
    every = np.repeat(np.arange(len(row)), points)
    batches = PartialBatches(row[every] + 1, slack_bin[every], batch[every],
                             latency_ms[service].ravel())
    found = remainder(whole.problem, whole.missing, columns, batches)
    if points == 1:
        return found.law, found.excess
    mix: csr_array[np.float64] = csr_array(
        (weight[service].ravel(), (every, np.arange(len(every)))), shape=(len(row), len(every))
    )
    return csr_array(mix @ found.law), np.asarray(mix @ found.excess)


def _drop_rows(
    second: FloatArray, columns: IntArray, row: IntArray, slack_bin: IntArray, states: int
) -> csr_array[np.float64]:
    """Laws after drops of the earliest request; as with maximal batching, from the bins' edges."""
    law = second[row, slack_bin]
    pair, bin_after = np.nonzero(law > _NEGLIGIBLE)
    column = columns[np.maximum(row[pair] - 1, 0), bin_after]
    return csr_array((law[pair, bin_after], (pair, column)), shape=(len(row), states))
