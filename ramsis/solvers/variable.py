"""Policy iteration for variable batching: whole queues by slack nodes, parts by sparse rows.

Under a policy the likely states form a chain (:mod:`ramsis.mdp.variable`). Its kernel has the rows
F·A of :mod:`ramsis.solvers.slack_nodes` where a state serves its whole queue and the rows of
:mod:`ramsis.mdp.remainder` where it serves a part; one factorisation of it gives gain, values and
stationary law. A round then improves every likely state; it ends when no choice gains more than
rounding. The bounds on the gain are those of the slack nodes.

The policy that it starts from is the best one of maximal batching, so that the result is never
worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import NotConvergedError
from ramsis.mdp.choices import Batching
from ramsis.mdp.structured import Backup
from ramsis.mdp.variable import VariableMDP, build_variable
from ramsis.solvers.result import Certificate, Criterion, Status
from ramsis.solvers.slack_nodes import (
    LARGEST_ERROR,
    PRECISION,
    RESTART,
    Chain,
    between_states,
    rounding,
    solve_chain,
    solve_on_nodes,
    to_nodes,
)

__all__ = ["VariableEvaluation", "VariableSolution", "evaluate_variable", "solve_variable"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VariableEvaluation:
    """A policy's gain, relative values and stationary visits.

    Attributes
    ----------
    gain : float
    value : ndarray, shape (S,)
        Of the likely states, up to a constant, restarts counted in.
    visits : ndarray, shape (N+1, D+1)
        Stationary visits to each state per unit of cost.
    excess : float
        Requests beyond N + 1 at the same factor.
    reference : int
        The most visited state.
    restart : float
        As in :class:`~ramsis.solvers.slack_nodes.NodeEvaluation`.
    """

    gain: float
    value: FloatArray
    visits: FloatArray
    excess: float
    reference: int
    restart: float
