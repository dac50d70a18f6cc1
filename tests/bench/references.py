"""The same problems, written out row by row and given to solvers that people use.

Both solve a discounted problem (0.99), as they know no reward per unit of cost. Their time starts
where ours does, at the worker problem: the rows have to be made before anything can solve them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from quantecon.markov import DiscreteDP

from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import solve_with_pymdptoolbox, to_quantecon
from ramsis.worker.explicit import ExplicitWorkerMDP, build_explicit
from ramsis.worker.problem import WorkerProblem
from tests.bench.timing import Timing, timed

DISCOUNT = 0.99
PRECISION = 1e-6


@dataclass(frozen=True)
class Reference:
    """Times of a solver on explicit rows, and the values that it found."""

    build: Timing
    solve: Timing
    value: NDArray[np.float64]

    @property
    def total(self) -> Timing:
        """Rows and solution."""
        return self.build.plus(self.solve)


@dataclass(frozen=True)
class Explicit:
    """A problem's rows, and the time that they took."""

    rows: ExplicitWorkerMDP
    build: Timing

    @classmethod
    def of(cls, problem: WorkerProblem) -> Explicit:
        """Write a problem out."""
        return cls(*timed(lambda: build_explicit(problem)))


def quantecon(explicit: Explicit) -> Reference:
    """Modified policy iteration of QuantEcon, compiled before."""
    mdp = explicit.rows.mdp
    _modified_policy_iteration(mdp)
    value, solve = timed(lambda: _modified_policy_iteration(mdp))
    return Reference(explicit.build, solve, value)


def _modified_policy_iteration(mdp: SparseMDP) -> NDArray[np.float64]:
    reward, law, state, action = to_quantecon(mdp)
    problem = DiscreteDP(reward, law, DISCOUNT, state, action)
    value: NDArray[np.float64] = problem.solve("modified_policy_iteration", epsilon=PRECISION).v
    return value


def pymdptoolbox(explicit: Explicit) -> Reference:
    """Modified policy iteration of pymdptoolbox, which checks and sorts its input first."""
    solution, solve = timed(lambda: solve_with_pymdptoolbox(
        explicit.rows.mdp, "modified-policy-iteration", discount=DISCOUNT, tolerance=PRECISION
    ))
    return Reference(explicit.build, solve, solution.value)
