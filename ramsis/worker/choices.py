"""The actions of all states in arrays, so that they are compared all at once.

A queue of n requests has up to A actions; arrays are padded with actions of a reward of −inf. A
drop is not among them: what it is worth follows from the values of states with a request fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.worker.actions import DROP
from ramsis.worker.problem import WorkerProblem

__all__ = ["Choices"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Choices:
    """The actions that serve, by queue length; see the module's text.

    Attributes
    ----------
    problem : WorkerProblem
    code, service : ndarrays of int, shape (N+1, A)
    cost : ndarray, shape (N+1, A)
    reward : ndarray, shape (N+1, A, D+1)
        −inf at bins where the action is not admissible.
    dropped : ndarray, shape (N+1, D+1)
        Reward of a drop; −inf where there is none.
    drop_cost : ndarray, shape (N+1,)
        Its cost.
    """

    problem: WorkerProblem
    code: IntArray
    service: IntArray
    cost: FloatArray
    reward: FloatArray
    dropped: FloatArray
    drop_cost: FloatArray

    @classmethod
    def of(cls, problem: WorkerProblem) -> Choices:
        """Those of a problem with maximal batching."""
        by_queue = problem.actions.by_queue
        serving = [[action for action in actions if not action.drops] for actions in by_queue]
        shape = (len(by_queue), max(1, *(len(actions) for actions in serving)))
        code, service = np.zeros((2, *shape), dtype=np.int64)
        cost, reward = np.zeros(shape), np.full((*shape, problem.bins + 1), -np.inf)
        dropped = np.full((len(by_queue), problem.bins + 1), -np.inf)
        drop_cost = np.zeros(len(by_queue))
        for n, every in enumerate(by_queue):
            for drop in (action for action in every if action.drops):
                dropped[n, drop.bins] = problem.reward(drop)
                drop_cost[n] = problem.cost(drop.batch)
        for n, actions in enumerate(serving):
            for a, action in enumerate(actions):
                code[n, a], service[n, a] = action.code, action.service
                cost[n, a] = problem.cost(action.batch)
                reward[n, a, action.bins] = problem.reward(action)
        return cls(problem, code, service, cost, reward, dropped, drop_cost)

    def place_of(self, codes: IntArray) -> IntArray:
        """Place of the actions with these codes in each state, (N+1, D+1); −1 for drops."""
        sizes = [len(actions) for actions in self.problem.actions.by_queue]
        first = np.cumsum([0, *sizes[:-1]])
        return np.where(codes < 0, -1, self.problem.actions.index_of(codes) - first[:, None])

    def code_at(self, place: IntArray) -> IntArray:
        """The inverse of :meth:`place_of`."""
        chosen = np.take_along_axis(self.code, np.maximum(place, 0), axis=1)
        return np.where(place < 0, DROP, chosen)
