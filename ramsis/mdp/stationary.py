"""Long-run distribution of a Markov chain, by two independent ways.

``pi = pi P``, ``pi 1 = 1``. The direct way finds the closed classes by graph search, solves each
by the elimination of Grassmann, Taksar and Heyman (small chains: no subtraction, so every entry
is accurate to its own size) or by sparse LU, and weights several classes by the probability of
being absorbed in them. The slower way iterates ``x <- damping x + (1 - damping) x P`` until
``|x P - x|_1 <= tolerance``; damping makes periodic chains converge and changes no stationary
distribution.

A small residual does not by itself make an iterate accurate: on a chain that mixes slowly the
error is about the residual divided by ``1 - |second eigenvalue|``.

Sources: Puterman (1994), appendix A; Grassmann, Taksar and Heyman (1985).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import BELOW_ONE, InvalidValueError
from ramsis.mdp.chain import Factorisation, SingularSystemError, closed_classes, recurrent_system
from ramsis.mdp.result import check_iterations, check_tolerance
from ramsis.mdp.sparse import SparseMDP
from ramsis.reprs import dataclass

_DIRECT_SIZE = 256  # recurrent states up to which elimination is used
_RESIDUAL = 1e-10  # of a direct solution, above which power iteration goes on from it
_LARGE = 1e150  # of a weight before all are scaled down


@dataclass(frozen=True, eq=False)
class StationaryResult:
    """A long-run distribution.

    Attributes
    ----------
    distribution : (S,)
        Adds up to 1.
    residual : float
        ``|pi P - pi|_1``.
    iterations : int
        0 for the direct way.
    method : "elimination", "lu" or "power"
    """

    distribution: FloatArray
    residual: float
    iterations: int
    converged: bool
    method: str


def stationary_distribution(
    transition: Any, *, start: ArrayLike | None = None
) -> StationaryResult:
    """Compute the stationary distribution by a direct solution.

    Where rounding spoils that, power iteration goes on from it; the result names the method.

    Parameters
    ----------
    transition : (S, S) sparse or dense
        Rows add up to 1.
    start : (S,) probabilities, optional
        Needed when the chain has several closed classes; then they are weighted by the
        probability of ending up in each.

    Raises
    ------
    InvalidValueError
        Not a stochastic matrix; several closed classes and no start.

    Examples
    --------
    >>> stationary_distribution([[0.0, 1.0], [0.5, 0.5]]).distribution.round(6).tolist()
    [0.333333, 0.666667]
    """
    chain = _chain(transition)
    count, label = closed_classes(chain)
    weight = _class_weights(chain, count, label, start)
    recurrent = np.flatnonzero(label >= 0)
    closed = sparse.csr_array(chain[recurrent][:, recurrent])
    inner, method = _within_classes(closed, label[recurrent])
    distribution = np.zeros(label.size)
    distribution[recurrent] = inner * weight[label[recurrent]]
    residual = float(np.abs(distribution @ chain - distribution).sum())
    # A direct solution that rounding has spoilt is still a good start for steps of the chain.
    if residual <= _RESIDUAL:
        return StationaryResult(distribution, residual, 0, True, method)
    return power_iteration(chain, start=distribution)


def power_iteration(
    transition: Any,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 100_000,
    damping: float = 0.5,
    start: ArrayLike | None = None,
) -> StationaryResult:
    """Compute the stationary distribution by power iteration of the damped chain.

    Parameters
    ----------
    transition : (S, S) sparse or dense
    tolerance : float > 0
        On ``|x P - x|_1``.
    max_iterations : int
        After so many, the last distribution is returned with ``converged`` false.
    damping : float in [0, 1)
        0 does not converge on a periodic chain.
    start : (S,) probabilities, optional
        Uniform by default; matters when there are several closed classes.
    """
    chain = _chain(transition)
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    BELOW_ONE.check(damping=damping)
    size = chain.shape[0]
    current = np.full(size, 1.0 / size) if start is None else _start(start, size)
    for iteration in range(1, max_iterations + 1):
        change = current @ chain - current
        residual = float(np.abs(change).sum())
        if residual <= tolerance or iteration == max_iterations:
            break
        current = current + (1.0 - damping) * change
        # Over many steps rounding would let the sum drift away from 1.
        current /= current.sum()
    return StationaryResult(current, residual, iteration, residual <= tolerance, "power")


def _chain(transition: Any) -> sparse.csr_array:
    """Check a chain, as a decision problem with one action in every state."""
    size = np.shape(transition)[0] if np.ndim(transition) else 0
    if np.shape(transition) != (size, size):
        raise InvalidValueError("transition is not square", value=np.shape(transition),
                                allowed="(S, S)")
    nothing = np.zeros(size)
    return SparseMDP(np.arange(size), nothing.astype(np.int64), transition, nothing).transition


def _start(start: ArrayLike, size: int) -> FloatArray:
    chances = np.asarray(start, dtype=np.float64)
    if chances.shape != (size,) or not (chances >= 0.0).all() or abs(chances.sum() - 1.0) > 1e-9:
        raise InvalidValueError("start is not a distribution over the states",
                                allowed=f"{size} probabilities that add up to 1")
    return np.asarray(chances / chances.sum(), dtype=np.float64)


def _class_weights(
    chain: sparse.csr_array, count: int, label: IntArray, start: ArrayLike | None
) -> FloatArray:
    """Return the (classes,) probability of ending up in each closed class."""
    if count == 1:
        return np.ones(1)
    if start is None:
        first, second = int(np.argmax(label == 0)), int(np.argmax(label == 1))
        raise InvalidValueError(f"the chain has {count} closed classes, so no unique stationary "
                                f"distribution (states {first} and {second} never meet)",
                                allowed="one closed class, or a start distribution")
    begin = _start(start, label.size)
    recurrent, transient = np.flatnonzero(label >= 0), np.flatnonzero(label < 0)
    arrived = begin[recurrent]
    if transient.size:
        leaving = chain[transient]
        inside = sparse.eye_array(transient.size, format="csc") - leaving[:, transient]
        visits = Factorisation(sparse.csc_array(inside)).solve(begin[transient], transposed=True)
        arrived = arrived + visits @ leaving[:, recurrent]
    weight = np.bincount(label[recurrent], arrived, minlength=count)
    return np.asarray(weight / weight.sum(), dtype=np.float64)


def _within_classes(
    chain: sparse.csr_array, label: IntArray
) -> tuple[FloatArray, str]:
    """Return the stationary distribution of each closed class, each summing to 1."""
    if label.size <= _DIRECT_SIZE:
        inner = np.empty(label.size)
        for number in range(label.max() + 1):
            members = np.flatnonzero(label == number)
            inner[members] = _elimination(chain[members][:, members].toarray())
        return inner, "elimination"
    matrix, references = recurrent_system(chain, np.ones(label.size), label)
    unit = np.zeros(label.size)
    unit[references] = 1.0
    try:
        inner = np.maximum(Factorisation(matrix).solve(unit, transposed=True), 0.0)
    except SingularSystemError:
        inner = np.ones(label.size)
    return inner / np.bincount(label, inner)[label], "lu"


def _elimination(chain: FloatArray) -> FloatArray:
    """Return a dense irreducible chain's stationary distribution by elimination.

    By Grassmann, Taksar and Heyman's algorithm, which subtracts nothing.
    """
    work = chain.copy()
    for last in range(work.shape[0] - 1, 0, -1):
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    weight = np.ones(work.shape[0])
    for state in range(1, work.shape[0]):
        weight[state] = weight[:state] @ work[:state, state]
        if weight[state] > _LARGE:
            weight[: state + 1] /= weight[state]
    return np.asarray(weight / weight.sum(), dtype=np.float64)
