"""The solvers by name: for average reward, and for discounted reward.

A solver takes a decision problem and, where it uses them, an initial policy, a discount and a
tolerance, and returns a :class:`~ramsis.mdp.Solution`. To add one, enter its function in
``ramsis.mdp`` and its settings below. Loading the compiled loops or HiGHS often takes longer than
the solution, so a module is loaded when its solver is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from numpy.typing import ArrayLike

from ramsis.errors import check_known
from ramsis.mdp.result import Solution, required_discount
from ramsis.mdp.sparse import SparseMDP

SolverName = Literal["policy-iteration", "value-iteration", "linear-program", "pymdptoolbox"]
DiscountedSolverName = Literal["modified-policy-iteration", "policy-iteration", "value-iteration"]


class _Solver(NamedTuple):
    """The function in ``ramsis.mdp`` of a solver, and the settings that it takes."""

    function: str
    settings: tuple[str, ...]


_AVERAGE: Mapping[SolverName, _Solver] = {
    "policy-iteration": _Solver("policy_iteration", ("initial", "tolerance")),
    "value-iteration": _Solver("value_iteration", ("tolerance",)),
    "linear-program": _Solver("linear_program", ()),
    "pymdptoolbox": _Solver("solve_with_pymdptoolbox", ("tolerance",)),
}
SOLVERS: tuple[SolverName, ...] = tuple(_AVERAGE)
"""Names of the solvers; the first is the default."""
DISCOUNTED_SOLVERS: tuple[DiscountedSolverName, ...] = (
    "modified-policy-iteration", "policy-iteration", "value-iteration")
"""Names of the solvers for discounted reward; the first is the default."""


def solve_average(
    mdp: SparseMDP,
    solver: SolverName = "policy-iteration",
    *,
    initial: ArrayLike | None = None,
    tolerance: float = 1e-9,
) -> Solution:
    """Solve for average reward per unit of cost.

    Parameters
    ----------
    solver : one of :data:`SOLVERS`
    initial : (S,) action labels, optional
        First policy, for solvers that start from one.
    tolerance : float > 0
        How close the bounds on the gain have to come: for policy iteration relative to
        ``1 + |gain|``, for value iteration in units of reward. It is pymdptoolbox's own
        ``epsilon``, and linear programs do not use it.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> solve_average(mdp, "policy-iteration").gain
    2.0
    """
    check_solver(solver)
    return _solution(_AVERAGE[solver], mdp, initial=initial, tolerance=tolerance)


def solve_discounted(
    mdp: SparseMDP,
    discount: float,
    solver: DiscountedSolverName = "modified-policy-iteration",
    *,
    tolerance: float = 1e-6,
) -> Solution:
    """Solve for discounted reward; costs play no part.

    Parameters
    ----------
    discount : float in [0, 1)
        Per decision.
    solver : one of :data:`DISCOUNTED_SOLVERS`
        The default is the fastest on large sparse problems; policy iteration is exact up to
        rounding.
    tolerance : float > 0
        Largest error of the values, in units of reward.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> solve_discounted(mdp, 0.9).value.round(6).tolist()
    [19.310345, 21.37931]
    """
    check_solver(solver, DISCOUNTED_SOLVERS)
    terms = _Solver(solver.replace("-", "_"), ("discount", "tolerance"))
    return _solution(terms, mdp, discount=required_discount(discount), tolerance=tolerance)


def check_solver(solver: str, solvers: Sequence[str] | None = None) -> None:
    """Refuse an unknown name; allowed are ``solvers``, by default :data:`SOLVERS`."""
    solvers = SOLVERS if solvers is None else solvers
    check_known("unknown solver", solver, solvers, "solver")


def _solution(solver: _Solver, mdp: SparseMDP, **settings: Any) -> Solution:
    """Run a solver on a problem, with the settings that it takes."""
    function = getattr(importlib.import_module("ramsis.mdp"), solver.function)
    solution: Solution = function(mdp, **{name: settings[name] for name in solver.settings})
    return solution
