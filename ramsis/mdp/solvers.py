"""The solvers for average reward, by name.

A solver takes a decision problem, an initial policy and a tolerance, and returns a
:class:`~ramsis.mdp.result.Solution`. To add one, write its function here, which imports what it
needs when it is called, and enter it in the registry. Loading the compiled loops or HiGHS takes
longer than many a solution does, so nothing is loaded before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from numpy.typing import ArrayLike

from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.result import Solution
from ramsis.mdp.sparse import SparseMDP

__all__ = ["SOLVERS", "SolverName", "check_solver", "solve_average"]

SolverName = Literal["policy-iteration", "value-iteration", "linear-program", "pymdptoolbox"]


class _Solver(Protocol):
    def __call__(
        self, mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
    ) -> Solution: ...


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
    mdp : SparseMDP
    solver : one of :data:`SOLVERS`
    initial : (S,) action labels, optional
        First policy, for solvers that start from one.
    tolerance : float > 0
        For solvers that stop at one.

    Raises
    ------
    InvalidValueError
        Unknown solver, or a setting that the solver refuses.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> solve_average(mdp, "policy-iteration").gain
    2.0
    """
    check_solver(solver)
    return _REGISTRY[solver](mdp, initial=initial, tolerance=tolerance)


def check_solver(solver: str) -> None:
    """Refuse a name that is not one of :data:`SOLVERS`."""
    if solver not in SOLVERS:
        raise InvalidValueError(
            describe("unknown solver", where="solver", value=solver, allowed=", ".join(SOLVERS))
        )


def _policy_iteration(
    mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
) -> Solution:
    from ramsis.mdp.policy_iteration import policy_iteration

    return policy_iteration(mdp, initial=initial, tolerance=tolerance)


def _value_iteration(
    mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
) -> Solution:
    from ramsis.mdp.value_iteration import value_iteration

    return value_iteration(mdp, tolerance=tolerance)


def _linear_program(
    mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
) -> Solution:
    from ramsis.mdp.linear_program import linear_program

    return linear_program(mdp)


def _pymdptoolbox(
    mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
) -> Solution:
    from ramsis.mdp.toolbox import solve_with_pymdptoolbox

    return solve_with_pymdptoolbox(mdp, tolerance=tolerance)


_REGISTRY: Mapping[SolverName, _Solver] = {
    "policy-iteration": _policy_iteration,
    "value-iteration": _value_iteration,
    "linear-program": _linear_program,
    "pymdptoolbox": _pymdptoolbox,
}
SOLVERS: tuple[SolverName, ...] = tuple(_REGISTRY)
"""Names of the solvers; the first is the default."""
