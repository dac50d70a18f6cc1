"""The solvers by name: for average reward, and for discounted reward.

A solver takes a decision problem, an initial policy or a discount, and a tolerance, and returns a
:class:`~ramsis.mdp.result.Solution`. To add one, write its function here, which imports what it
needs when it is called, and enter it in its registry. Loading the compiled loops or HiGHS takes
longer than many a solution does, so nothing is loaded before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from numpy.typing import ArrayLike

from ramsis.checks import check_arguments
from ramsis.errors import InvalidValueError
from ramsis.mdp.result import Solution
from ramsis.mdp.settings import required_discount
from ramsis.mdp.sparse import SparseMDP

__all__ = ["DISCOUNTED_SOLVERS", "SOLVERS", "DiscountedSolverName", "SolverName", "check_solver",
           "solve_average", "solve_discounted"]

SolverName = Literal["policy-iteration", "value-iteration", "linear-program", "pymdptoolbox"]
DiscountedSolverName = Literal["modified-policy-iteration", "policy-iteration", "value-iteration"]


class _Solver(Protocol):
    def __call__(
        self, mdp: SparseMDP, *, initial: ArrayLike | None, tolerance: float
    ) -> Solution: ...


class _DiscountedSolver(Protocol):
    def __call__(self, mdp: SparseMDP, *, discount: float, tolerance: float) -> Solution: ...


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
    mdp : SparseMDP
    discount : float in [0, 1)
        Per decision.
    solver : one of :data:`DISCOUNTED_SOLVERS`
        The default is the fastest on large sparse problems; policy iteration is exact up to
        rounding.
    tolerance : float > 0
        Largest error of the values, in units of reward.

    Raises
    ------
    InvalidValueError
        Unknown solver, or a setting out of range.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> solve_discounted(mdp, 0.9).value.round(6).tolist()
    [19.310345, 21.37931]
    """
    check_solver(solver, DISCOUNTED_SOLVERS)
    return _DISCOUNTED[solver](mdp, discount=required_discount(discount), tolerance=tolerance)


def check_solver(solver: str, known: Sequence[str] | None = None) -> None:
    """Refuse a name that is not one of those known, by default of :data:`SOLVERS`."""
    known = SOLVERS if known is None else known
    if solver not in known:
        raise InvalidValueError("unknown solver", where="solver", value=solver,
                                allowed=", ".join(known))


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


def _modified_discounted(mdp: SparseMDP, *, discount: float, tolerance: float) -> Solution:
    from ramsis.mdp.modified_policy_iteration import modified_policy_iteration

    return modified_policy_iteration(mdp, discount=discount, tolerance=tolerance)


def _policy_discounted(mdp: SparseMDP, *, discount: float, tolerance: float) -> Solution:
    from ramsis.mdp.policy_iteration import policy_iteration

    return policy_iteration(mdp, discount=discount, tolerance=tolerance)


def _value_discounted(mdp: SparseMDP, *, discount: float, tolerance: float) -> Solution:
    from ramsis.mdp.value_iteration import value_iteration

    return value_iteration(mdp, discount=discount, tolerance=tolerance)


_REGISTRY: Mapping[SolverName, _Solver] = {
    "policy-iteration": _policy_iteration,
    "value-iteration": _value_iteration,
    "linear-program": _linear_program,
    "pymdptoolbox": _pymdptoolbox,
}
SOLVERS: tuple[SolverName, ...] = tuple(_REGISTRY)
"""Names of the solvers; the first is the default."""
_DISCOUNTED: Mapping[DiscountedSolverName, _DiscountedSolver] = {
    "modified-policy-iteration": _modified_discounted,
    "policy-iteration": _policy_discounted,
    "value-iteration": _value_discounted,
}
DISCOUNTED_SOLVERS: tuple[DiscountedSolverName, ...] = tuple(_DISCOUNTED)
"""Names of the solvers for discounted reward; the first is the default."""

check_arguments(globals(), __all__)
