"""Closed classes of a Markov chain and the one linear system that describes them all.

A chain's states fall into closed classes, which it never leaves, and transient states. Within a
closed class, gain ``g`` and relative values ``h`` of a reward ``r`` earned at cost ``c`` solve

    c g + (I - P) h = r,        h(reference) = 0.

Let ``M`` be ``I - P`` with the reference state's column replaced by ``c``. Then ``M x = r`` is a
regular system, whose ``x`` has ``g`` in the place of ``h(reference)``. The transposed system
``y M = e_reference`` gives the class's stationary distribution, as it says ``y (I - P) = 0`` and
``y c = 1``. Classes do not communicate, so the systems of all closed classes are solved as one,
with a block-diagonal ``M``.

Source: Puterman (1994), sections 8.2 and 9.2 and appendix A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

_REFERENCE_STEPS = 64
_DIRECT_SIZE = 256  # states up to which elimination is used


class SingularSystemError(ArithmeticError):
    """A linear system that has no numerically unique solution."""


class Factorisation:
    """Sparse LU of a square matrix, solving with one step of iterative refinement.

    Parameters
    ----------
    pivots : bool
        Whether rows are exchanged. Without exchanges the factors of ``I - P``, with transitions
        ``P`` that come to an end, have no positive entry off the diagonal; see :meth:`expected`.
    """

    def __init__(self, matrix: sparse.csc_array, *, pivots: bool = True) -> None:
        self._matrix = matrix
        try:
            self._lu: Any = splu(matrix) if pivots else splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                options={"SymmetricMode": True})
        except RuntimeError as error:
            raise SingularSystemError(str(error)) from error

    def solve(
        self, right: NDArray[np.float64], *, transposed: bool = False
    ) -> NDArray[np.float64]:
        """Solve ``matrix @ x = right``, or ``x @ matrix = right`` when transposed."""
        trans = "T" if transposed else "N"
        matrix = self._matrix.T if transposed else self._matrix
        solution = self._lu.solve(right, trans=trans)
        solution = solution + self._lu.solve(right - matrix @ solution, trans=trans)
        if not np.isfinite(solution).all():
            raise SingularSystemError("solution is not finite")
        return np.asarray(solution, dtype=np.float64)


    def expected(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solve ``(I - P) x = right``, each entry accurate to its own size.

        The factorisation must be without pivots. Positive and negative parts are solved for
        separately, so nothing is subtracted on the way: a 0 stays 0, and 1e-40 differs from 2e-40.
        """
        above, below = (self._lu.solve(np.maximum(sign * right, 0.0)) for sign in (1.0, -1.0))
        return np.asarray(above - below, dtype=np.float64)


class Elimination:
    """``I - P`` of transitions ``P`` that come to an end, eliminated state by state, densely.

    Every number on the way is a sum of positive ones (Grassmann, Taksar and Heyman), so that
    entries are accurate to their own size even where it takes 1e30 steps to the end.

    Parameters
    ----------
    leaving : (S,)
        Chance to come to the end from each state.
    """

    def __init__(self, inside: sparse.csr_array, leaving: NDArray[np.float64]) -> None:
        work, left = inside.toarray(), leaving.astype(np.float64)
        self._moving = np.empty(left.size)
        for last in range(left.size - 1, -1, -1):
            self._moving[last] = work[last, :last].sum() + left[last]
            if not self._moving[last] > 0.0:
                raise SingularSystemError("a state is never left")
            work[:last, last] /= self._moving[last]
            left[:last] += work[:last, last] * left[last]
            work[:last, :last] += np.outer(work[:last, last], work[last, :last])
        self._work = work

    def expected(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``x`` with ``(I - P) x = right``, by elimination without subtractions."""
        parts = np.stack([np.maximum(right, 0.0), np.maximum(-right, 0.0)], axis=1)
        for last in range(right.size - 1, 0, -1):
            parts[:last] += np.outer(self._work[:last, last], parts[last])
        for state in range(right.size):
            parts[state] += self._work[state, :state] @ parts[:state]
            parts[state] /= self._moving[state]
        if not np.isfinite(parts).all():
            raise SingularSystemError("solution is not finite")
        return np.asarray(parts[:, 0] - parts[:, 1], dtype=np.float64)

    solve = expected


def absorption(
    inside: sparse.csr_array, leaving: NDArray[np.float64]
) -> Elimination | Factorisation:
    """Return a solver for expected totals until absorption: dense for few states, else sparse."""
    if leaving.size <= _DIRECT_SIZE:
        return Elimination(inside, leaving)
    return Factorisation(passage(inside, leaving), pivots=False)


def passage(inside: sparse.csr_array, leaving: NDArray[np.float64]) -> sparse.csc_array:
    """Return ``I - P`` for transient states with transitions ``P`` and exit probabilities.

    The chance to move on is summed up, as subtracted from 1 it would lose its digits where it is
    small.
    """
    size = leaving.size
    state = np.arange(size)
    row = np.repeat(state, np.diff(inside.indptr))
    other = inside.indices != row
    row, column, chance = row[other], inside.indices[other], inside.data[other]
    onward = np.bincount(row, chance, minlength=size) + leaving
    return sparse.csc_array(
        (np.append(-chance, onward), (np.append(row, state), np.append(column, state))),
        shape=(size, size))


def closed_classes(transition: sparse.csr_array) -> tuple[int, NDArray[np.int64]]:
    """Return the number of closed classes and each state's class, (S,), −1 if it is transient.

    Classes count from 0 in the order of their lowest state. Stored entries are transitions,
    so zeros must not be stored.

    >>> chain = sparse.csr_array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> count, label = closed_classes(chain)
    >>> count, label.tolist()
    (2, [-1, 0, 1])
    """
    size = transition.shape[0]
    count, component = connected_components(transition, directed=True, connection="strong")
    origin = np.repeat(component, np.diff(transition.indptr))
    is_open = np.zeros(count, dtype=bool)
    is_open[origin[origin != component[transition.indices]]] = True
    closed, lowest = np.unique(component, return_index=True)
    keep = ~is_open[closed]
    closed = closed[keep][np.argsort(lowest[keep])]
    number = np.full(count, -1, dtype=np.int64)
    number[closed] = np.arange(closed.size)
    label: NDArray[np.int64] = number[component].reshape(size)
    return int(closed.size), label


def recurrent_system(
    transition: sparse.csr_array, cost: NDArray[np.float64], label: NDArray[np.int64]
) -> tuple[sparse.csc_array, NDArray[np.int64]]:
    """Return the system ``M`` of the closed classes' values, and (classes,) reference states.

    ``M`` is ``I - P`` with the column of each class's reference state replaced by ``cost``, so
    ``M x = reward`` has the gain of a class at its reference and relative values elsewhere.

    Parameters
    ----------
    transition : (R, R)
        Chain on the recurrent states.
    cost : (R,)
        Not all zero within a class.
    label : (R,)
        Class of each state, 0 … classes - 1.

    Notes
    -----
    The reference is a state that the chain visits often: a rare one would make the values
    relative to it huge and cost all digits. Some steps of the damped chain find it.
    """
    frequency = np.full(label.size, 1.0 / label.size)
    for _ in range(_REFERENCE_STEPS):
        # Half steps settle on a periodic chain too.
        frequency = 0.5 * (frequency + frequency @ transition)
    order = np.lexsort((-frequency, label))
    references = order[np.searchsorted(label[order], np.arange(label[order[-1]] + 1))]
    kept = np.ones(label.size)
    kept[references] = 0.0
    columns = sparse.coo_array(
        (cost, (np.arange(label.size), references[label])), shape=transition.shape
    )
    matrix = passage(transition, np.zeros(label.size)) @ sparse.diags_array(kept) + columns
    return sparse.csc_array(matrix), references
