"""Actions of all states in arrays, so that backups compare them at once.

A queue of n requests has up to A actions; arrays are padded with actions of a reward of −inf. A
drop is not among them: what it is worth follows from the values of states with a request fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import DROP


@dataclass(frozen=True, eq=False)
class Choices:
    """Actions that serve, by queue length, in padded arrays."""

    problem: WorkerProblem
    # code, service: shape (N+1, A)
    code: IntArray
    service: IntArray
    cost: FloatArray  # shape (N+1, A)
    reward: FloatArray  # −inf at bins where the action is not admissible, shape (N+1, A, D+1)
    dropped: FloatArray  # reward of a drop; −inf where there is none, shape (N+1, D+1)
    drop_cost: FloatArray  # its cost, shape (N+1,)

    @classmethod
    def of(cls, problem: WorkerProblem) -> Choices:
        """Return the actions of a problem with maximal batching."""
        actions = problem.actions
        row, serves = actions.row, actions.code != DROP  # a drop is the last action of its state
        at = row[serves], (np.arange(len(row)) - actions.first[row])[serves]
        shape = (len(actions.by_queue), 1 + int(at[1].max(initial=0)))
        code, service = np.zeros((2, *shape), dtype=np.int64)
        cost, reward = np.zeros(shape), np.full((*shape, problem.bins + 1), -np.inf)
        dropped, drop_cost = np.full((shape[0], problem.bins + 1), -np.inf), np.zeros(shape[0])
        earned, costs = problem.rewards_and_costs(actions.arrays)
        earned = np.where(actions.admissible, earned, -np.inf)
        code[at], service[at] = actions.code[serves], actions.arrays.service[serves, 0]
        cost[at], reward[at] = costs[serves, 0], earned[serves]
        dropped[row[~serves]], drop_cost[row[~serves]] = earned[~serves], costs[~serves, 0]
        return cls(problem, code, service, cost, reward, dropped, drop_cost)

    def place_of(self, codes: IntArray) -> IntArray:
        """Return the place of the action with each state's code, (N+1, D+1); −1 for drops."""
        actions = self.problem.actions
        return np.where(codes < 0, -1, actions.index_of(codes) - actions.first[:, None])

    def code_at(self, place: IntArray) -> IntArray:
        """Return the action codes at indices by queue length; the inverse of :meth:`place_of`."""
        chosen = np.take_along_axis(self.code, np.maximum(place, 0), axis=1)
        return np.where(place < 0, DROP, chosen)
