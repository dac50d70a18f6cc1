"""Bridge to pymdptoolbox: its algorithms, our input checks, values and certificates.

Only the policy is taken from the package, and then evaluated exactly here, since its value
iteration and modified policy iteration return values that are off by a constant. Besides,

- a state without some action gets a copy of its first one at a lower reward
  (:func:`ramsis.mdp.toolbox.to_pymdptoolbox`);
- the iteration bound that its value iteration computes at construction is skipped: it takes
  longer than the solution, and fails when the bound is 0;
- its policy iteration changes actions on ties within rounding and may do so for ever; here the
  incumbent stays;
- its modified policy iteration has no limit on iterations; here it has;
- average reward means its relative value iteration, run on Schweitzer's problem with unit costs
  and damping one half (:mod:`ramsis.mdp.semi_markov`), since it does not stop on periodic
  chains and knows no costs.

Neither package is imported here: what comes back are plain NumPy and SciPy arrays.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import SparseEfficiencyWarning

from ramsis.errors import InvalidValueError, check_known
from ramsis.mdp.certificates import average_solution, discounted_certificate
from ramsis.mdp.components import end_components, solve_components
from ramsis.mdp.evaluation import evaluate_pairs
from ramsis.mdp.result import Solution, Status, check_discount, check_iterations, check_tolerance
from ramsis.mdp.semi_markov import eliminate_free_states, to_unit_costs
from ramsis.mdp.sparse import SparseMDP

_ROUNDS = 4

ALGORITHMS = (
    "policy-iteration",
    "value-iteration",
    "modified-policy-iteration",
    "relative-value-iteration",
)
"""Algorithms of the package that are bridged; the last is the one for average reward."""

_AVERAGE_ALGORITHM = ALGORITHMS[-1]
_DAMPING = 0.5
_ROUNDING = 1e-12
_MEETING = 1e-6  # bounds that meet this closely, relative to the gain, count as optimal


def solve_with_pymdptoolbox(
    mdp: SparseMDP,
    algorithm: str | None = None,
    *,
    discount: float | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100_000,
) -> Solution:
    """Solve with pymdptoolbox; dense, so for small problems and comparisons.

    Parameters
    ----------
    algorithm : one of :data:`ALGORITHMS`, optional
        By default policy iteration, or relative value iteration for average reward.
    discount : float in (0, 1), optional
        ``None`` asks for average reward per unit of cost.
    tolerance : float > 0
        The package's ``epsilon``; not used by policy iteration.

    Returns
    -------
    Solution
        The package's policy with its exact value.

    Raises
    ------
    InvalidValueError
        A setting out of range, or an algorithm that does not fit the criterion.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 0.5, 1: 0.5}, 1.0), (0, 1, {0: 1.0}, 1.5), (1, 0, {0: 1.0}, 4.0)])
    >>> solve_with_pymdptoolbox(mdp, discount=0.9).policy.tolist()
    [0, 0]
    """
    discount = check_discount(discount)
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    algorithm = _check_algorithm(algorithm, discount)
    settings: dict[str, object] = {
        "solver": "pymdptoolbox", "algorithm": algorithm, "discount": discount,
        "tolerance": tolerance, "max_iterations": max_iterations}
    if discount is None:
        return _average(mdp, tolerance, max_iterations, settings)
    policy, iterations, status = _run(mdp, algorithm, discount, tolerance, max_iterations)
    rows = mdp.pairs_of(policy)
    value = evaluate_pairs(mdp, rows, discount).value
    certificate = discounted_certificate(
        mdp, value, discount, status=status, iterations=iterations)
    return Solution(mdp.action[rows], value, None, certificate, settings)


def _average(
    mdp: SparseMDP, tolerance: float, limit: int, settings: dict[str, object]
) -> Solution:
    """Solve for average reward by the package's relative value iteration.

    Component by component where there are several maximal end components.
    """
    ends = end_components(mdp)
    if ends.count > 1:
        rows, parts = solve_components(
            mdp, ends, lambda part: _average(part, tolerance, limit, settings))
        iterations = sum(part.certificate.iterations for part in parts)
        stopped = any(not part.certificate.converged for part in parts)
    else:
        reduced = eliminate_free_states(mdp)
        small, _ = to_unit_costs(reduced.mdp, _DAMPING)
        policy, iterations, status = _run(small, _AVERAGE_ALGORITHM, None, tolerance, limit)
        rows = reduced.expand_pairs(small.pairs_of(policy), mdp)
        stopped = status is not Status.OPTIMAL
    return average_solution(
        mdp, rows, evaluate_pairs(mdp, rows, None),
        otherwise=Status.MAX_ITERATIONS if stopped else Status.PRECISION,
        tolerance=max(tolerance, _MEETING), iterations=iterations, settings=settings)


def _check_algorithm(algorithm: str | None, discount: float | None) -> str:
    if algorithm is None:
        algorithm = _AVERAGE_ALGORITHM if discount is None else ALGORITHMS[0]
    check_known("unknown algorithm of pymdptoolbox", algorithm, ALGORITHMS)
    if (algorithm == _AVERAGE_ALGORITHM) != (discount is None):
        raise InvalidValueError(
            f"{algorithm} of pymdptoolbox does not fit the discount", value=discount,
            allowed=f"None for {_AVERAGE_ALGORITHM}, a discount for the others")
    if discount == 0.0:
        raise InvalidValueError("pymdptoolbox takes no discount of 0", value=discount,
                                allowed="0 < discount < 1")
    return algorithm


class _LimitReachedError(Exception):
    """Signal that leaves the package's loop at the limit on iterations."""


def _run(
    mdp: SparseMDP, algorithm: str, discount: float | None, tolerance: float, limit: int
) -> tuple[NDArray[np.int64], int, Status]:
    """Return policy, iterations and status of one algorithm of the package."""
    probability, reward = to_pymdptoolbox(mdp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SparseEfficiencyWarning)
        solver = _solver(algorithm, probability, reward, discount, tolerance, limit)
        status = Status.OPTIMAL
        try:
            solver.run()
        except _LimitReachedError:
            status = Status.MAX_ITERATIONS
    if algorithm != "modified-policy-iteration" and solver.iter >= limit:
        status = Status.MAX_ITERATIONS
    policy = mdp.labels[np.asarray(solver.policy, dtype=np.int64)]
    return policy, int(solver.iter), status


def _solver(
    algorithm: str,
    probability: Any,
    reward: NDArray[np.float64],
    discount: float | None,
    tolerance: float,
    limit: int,
) -> Any:
    """Return a solver of the toolbox, with its limits of iterations replaced by ``limit``."""
    package = importlib.import_module("mdptoolbox.mdp")
    if algorithm == "policy-iteration":
        return _steady(package)(probability, reward, discount, max_iter=limit)
    if algorithm == "modified-policy-iteration":
        return _limited(package, limit)(probability, reward, discount, epsilon=tolerance)
    if algorithm == "value-iteration":
        unbounded = type("ValueIteration", (package.ValueIteration,),
                         {"_boundIter": lambda self, epsilon: None})
        return unbounded(probability, reward, discount, epsilon=tolerance, max_iter=limit)
    return package.RelativeValueIteration(probability, reward, epsilon=tolerance, max_iter=limit)


def _steady(package: Any) -> Any:
    """Return the package's class of policy iteration, changed to keep the incumbent on ties.

    After an evaluation ``V`` is the incumbent's value, so it is beaten where the backed-up
    value exceeds ``V`` by more than rounding.
    """

    def improve(self: Any, value: NDArray[np.float64] | None = None) -> Any:
        policy, backed_up = package.PolicyIteration._bellmanOperator(self, value)
        if value is not None:
            return policy, backed_up
        slack = _ROUNDING * (1.0 + np.abs(self.V).max())
        return np.where(backed_up > self.V + slack, policy, self.policy), backed_up

    return type("PolicyIteration", (package.PolicyIteration,), {"_bellmanOperator": improve})


def _limited(package: Any, limit: int) -> Any:
    """Return the package's class of modified policy iteration, with a limit on iterations.

    Beyond it, ``_LimitReachedError`` is raised.
    """

    def evaluate(self: Any, *arguments: Any) -> None:
        if self.iter >= limit:
            raise _LimitReachedError
        package.PolicyIterationModified._evalPolicyIterative(self, *arguments)

    return type("PolicyIterationModified", (package.PolicyIterationModified,),
                {"_evalPolicyIterative": evaluate})


def to_pymdptoolbox(
    mdp: SparseMDP,
) -> tuple[list[sparse.csr_matrix], NDArray[np.float64]]:
    """Return ``(P, R)`` in the form of pymdptoolbox; costs are ignored.

    Every state must have every action there. A state that lacks one gets a copy of its first
    action at a reward lower by the whole range of rewards plus one: same future, less
    reward, so it is never chosen. Rows add up to 1 within that package's 2e-15: what rounding
    leaves over goes to the row's largest entry.

    Returns
    -------
    P : list of A sparse (S, S) matrices
        In the order of ``mdp.labels``.
    R : (S, A)
    """
    action = np.searchsorted(mdp.labels, mdp.action)
    source = np.tile(mdp.first[:-1], (mdp.labels.size, 1))
    source[action, mdp.state] = np.arange(mdp.n_pairs)
    missing = np.ones(source.shape, dtype=bool)
    missing[action, mdp.state] = False
    penalty = 1.0 + np.ptp(mdp.reward)
    reward = mdp.reward[source] - penalty * missing
    exact = _exact_rows(mdp.transition)
    return [sparse.csr_matrix(exact[rows]) for rows in source], np.ascontiguousarray(reward.T)


def to_quantecon(
    mdp: SparseMDP,
) -> tuple[NDArray[np.float64], sparse.csr_matrix, NDArray[np.int64], NDArray[np.int64]]:
    """Return ``(R, Q, s_indices, a_indices)``, the state-action-pair form of DiscreteDP.

    ``DiscreteDP(R, Q, beta, s_indices, a_indices)`` with a discount ``beta`` completes it;
    ``a_indices`` count the entries of ``mdp.labels``. Costs are ignored.
    """
    labels = np.searchsorted(mdp.labels, mdp.action).astype(np.int64)
    return mdp.reward.copy(), sparse.csr_matrix(mdp.transition), mdp.state.copy(), labels


def _exact_rows(transition: sparse.csr_array) -> sparse.csr_array:
    """Return ``transition`` with each row's rounding error moved to its largest entry."""
    matrix = transition.copy()
    starts = matrix.indptr[:-1]
    row = np.repeat(np.arange(starts.size), np.diff(matrix.indptr))
    peak = np.maximum.reduceat(matrix.data, starts)
    hits = np.flatnonzero(matrix.data >= peak[row])
    largest = hits[np.searchsorted(row[hits], np.arange(starts.size))]
    for _ in range(_ROUNDS):
        matrix.data[largest] += 1.0 - np.asarray(matrix.sum(axis=1)).ravel()
    return matrix
