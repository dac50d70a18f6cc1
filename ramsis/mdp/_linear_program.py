"""Linear programs of a decision problem, solved by HiGHS.

Discounted, over values ``V`` (free):

    min sum_s V(s)   s.t.  V(s_l) - discount (P V)_l >= r_l   for every pair l.

The dual variables are discounted state-action frequencies; every state has some, and a pair with
a positive one is optimal in its state.

Average reward, over the frequencies ``x >= 0`` of the pairs:

    max r x   s.t.  sum_l x_l ([s_l = j] - P_lj) = 0  for every state j,    c x = 1.

The rows for the states add up to 0 = 0, so the first is left out: HiGHS drops coefficients below
1e-9, after which redundant rows would contradict each other. The optimum is the gain. The dual
variables of the rows for the states are relative values ``h``, and that of the last row is the
gain. With ``d = r + P h - h``, the optimal gain is at most ``max d / c``. A state
that ``x`` does not visit takes the pair that is best for these ``h``; if it then never reaches a
visited state, it takes the best pair that leads towards one. As ``x`` is the optimum of the best
class only, a problem with several end components is solved component by component
(:mod:`ramsis.mdp.components`).

Both policies are then evaluated exactly, as HiGHS's own values carry its tolerances (1e-10, or
1e-7 where it does not reach that) and it drops coefficients below 1e-9.

Source: Puterman (1994), sections 6.9, 8.8 and 11.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.errors import InfeasibleError, NotConvergedError
from ramsis.mdp.certificates import average_solution, discounted_certificate
from ramsis.mdp.components import end_components, solve_components
from ramsis.mdp.evaluation import evaluate_pairs
from ramsis.mdp.result import Solution, Status, check_discount
from ramsis.mdp.sparse import SparseMDP

_FEASIBILITY = (1e-10, 1e-7)  # tolerances that are tried in turn
_VISITED = 1e-9
_MEETING = 1e-6  # bounds that meet this closely, relative to the values, count as optimal


def linear_program(mdp: SparseMDP, *, discount: float | None = None) -> Solution:
    """Solve by linear programming.

    Parameters
    ----------
    discount : float in [0, 1), optional
        Per decision; costs then play no part. ``None`` asks for average reward per unit of
        cost. Costs may be 0.

    Returns
    -------
    Solution
        Gain and value are those of the policy read from the program, evaluated exactly.

    Raises
    ------
    InfeasibleError
        Average reward where reward can be earned, or time be spent, for ever at no cost.
    NotConvergedError
        HiGHS gave up.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 0.5, 1: 0.5}, 1.0), (0, 1, {0: 1.0}, 1.5), (1, 0, {0: 1.0}, 4.0)])
    >>> round(linear_program(mdp).gain, 9)
    2.0
    """
    discount = check_discount(discount)
    settings: dict[str, object] = {"solver": "linear-program", "discount": discount}
    if discount is not None:
        return _discounted(mdp, discount, settings)
    ends = end_components(mdp)
    if ends.count == 1:
        return _average(mdp, settings)
    rows, parts = solve_components(mdp, ends, lambda part: _average(part, settings))
    return average_solution(
        mdp, rows, evaluate_pairs(mdp, rows, None), otherwise=Status.PRECISION,
        tolerance=_MEETING, iterations=sum(part.certificate.iterations for part in parts),
        settings=settings)


def _discounted(mdp: SparseMDP, discount: float, settings: dict[str, object]) -> Solution:
    """Solve for discounted reward: in each state the pair with the largest dual variable."""
    solution = _highs(
        c=np.ones(mdp.n_states),
        A_ub=sparse.csr_matrix(discount * mdp.transition - _owner(mdp)),
        b_ub=-mdp.reward,
        bounds=(None, None),
    )
    rows = mdp.best(-solution.ineqlin.marginals)[1]
    value = evaluate_pairs(mdp, rows, discount).value
    certificate = discounted_certificate(
        mdp, value, discount, status=Status.OPTIMAL, iterations=int(solution.nit)
    )
    if certificate.gap > _MEETING * (1.0 + np.abs(value).max()):
        certificate = replace(certificate, status=Status.PRECISION)
    return Solution(mdp.action[rows], value, None, certificate, settings)


def _average(mdp: SparseMDP, settings: dict[str, object]) -> Solution:
    """Solve for average reward by the program of state–action frequencies.

    Its duals are relative values. States that the optimum never visits get greedy pairs.
    """
    # Costs are scaled by their median: HiGHS drops coefficients below 1e-9, and large costs would
    # make frequencies that small.
    positive = mdp.costs[mdp.costs > 0.0]
    costs = mdp.costs / (np.median(positive) if len(positive) else 1.0)
    balance = (_owner(mdp) - mdp.transition).T.tocsr()[1:]
    solution = _highs(
        c=-mdp.reward,
        A_eq=sparse.csr_matrix(sparse.vstack([balance, sparse.csr_array(costs[None, :])])),
        b_eq=np.append(np.zeros(mdp.n_states - 1), 1.0),
        bounds=(0.0, None),
    )
    relative = np.append(0.0, -solution.eqlin.marginals[:-1])
    most, rows = mdp.best(solution.x)
    worth = mdp.reward + float(solution.fun) * costs + mdp.transition @ relative
    visited = most > min(_VISITED, 0.5 * float(most.max()))
    rows = np.where(visited, rows, mdp.best(worth)[1])
    rows = _leading(mdp, rows, visited, worth)
    notes: tuple[str, ...] = ()
    if not visited.all():
        notes = (f"{int((~visited).sum())} states are never visited in the long run: "
                 "their actions keep the gain, their relative values may be improvable",)
    evaluation = evaluate_pairs(mdp, rows, None)
    return average_solution(
        mdp, rows, replace(evaluation, notes=(*evaluation.notes, *notes)),
        otherwise=Status.PRECISION, tolerance=_MEETING, iterations=int(solution.nit),
        settings=settings, duals=(relative,))


def _leading(
    mdp: SparseMDP, rows: IntArray, reached: BoolArray, worth: FloatArray
) -> IntArray:
    """Return the policy ``rows``, changed in states from which it never leads to ``reached`` ones.

    The program only bounds the relative values of states that the optimum does not visit. So by
    these values, staying away from the best class may look as good as going there.
    """
    while not reached.all():
        ahead = mdp.transition @ reached > 0
        new = ~reached & ahead[rows]
        if not new.any():
            most, other = mdp.best(np.where(ahead, worth, -np.inf))
            new = ~reached & np.isfinite(most)
            if not new.any():  # no pair leads there
                break
            rows = np.where(new, other, rows)
        reached = reached | new
    return rows


def _owner(mdp: SparseMDP) -> sparse.csr_array:
    """Return the (L, S) incidence matrix of pairs and states."""
    return sparse.csr_array(
        (np.ones(mdp.n_pairs), mdp.state, np.arange(mdp.n_pairs + 1)),
        shape=(mdp.n_pairs, mdp.n_states),
    )


def _highs(**program: Any) -> Any:
    """Solve with HiGHS; return the solution or raise with the solver's reason."""
    for tolerance in _FEASIBILITY:
        solution = linprog(
            method="highs",
            options={"primal_feasibility_tolerance": tolerance,
                     "dual_feasibility_tolerance": tolerance},
            **program,
        )
        if solution.status == 0:
            return solution
        if solution.status in (2, 3):
            raise InfeasibleError(
                "the average reward is not defined", value=solution.message,
                allowed="problems in which no policy can go on for ever at no cost")
    raise NotConvergedError("linear program not solved", value=solution.message)
