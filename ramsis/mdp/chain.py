"""Closed classes of a Markov chain and the one linear system that describes them all.

A chain's states fall into closed classes, which it never leaves, and transient states. Within a
closed class, gain ``g`` and relative values ``h`` of a reward ``r`` earned at cost ``c`` solve

    c g + (I - P) h = r,        h(reference) = 0.

With the reference state's column of ``I - P`` replaced by ``c`` this is a regular system
``M x = r``; its transpose gives the class's stationary distribution, as ``y M = e_reference``
says ``y (I - P) = 0`` and ``y c = 1``. Classes do not communicate, so the systems of all
closed classes stand in one block-diagonal ``M``.

Source: Puterman (1994), sections 8.2 and 9.2 and appendix A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

__all__ = ["Factorisation", "SingularSystemError", "closed_classes", "recurrent_system"]

_REFERENCE_STEPS = 64


class SingularSystemError(ArithmeticError):
    """A linear system that has no numerically unique solution."""


class Factorisation:
    """Sparse LU of a square matrix, solving with one step of iterative refinement.

    Raises
    ------
    SingularSystemError
        When the matrix is singular, or a solution is not finite.
    """

    def __init__(self, matrix: sparse.csc_array) -> None:
        self._matrix = matrix
        try:
            self._lu: Any = splu(matrix)
        except RuntimeError as error:
            raise SingularSystemError(str(error)) from error

    def solve(
        self, right: NDArray[np.float64], *, transposed: bool = False
    ) -> NDArray[np.float64]:
        """``x`` with ``matrix @ x = right``, or ``x @ matrix = right`` when transposed."""
        trans = "T" if transposed else "N"
        matrix = self._matrix.T if transposed else self._matrix
        solution = self._lu.solve(right, trans=trans)
        solution = solution + self._lu.solve(right - matrix @ solution, trans=trans)
        if not np.isfinite(solution).all():
            raise SingularSystemError("solution is not finite")
        return np.asarray(solution, dtype=np.float64)


def closed_classes(transition: sparse.csr_array) -> tuple[int, NDArray[np.int64]]:
    """Number of closed classes, and (S,) the class of each state, -1 where it is transient.

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
    """The matrix ``M`` of the closed classes and (classes,) their reference states.

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
        frequency = 0.5 * (frequency + frequency @ transition)
    order = np.lexsort((-frequency, label))
    references = order[np.searchsorted(label[order], np.arange(label[order[-1]] + 1))]
    kept = np.ones(label.size)
    kept[references] = 0.0
    identity = sparse.eye_array(label.size, format="csr")
    columns = sparse.coo_array(
        (cost, (np.arange(label.size), references[label])), shape=transition.shape
    )
    matrix = (identity - transition) @ sparse.diags_array(kept) + columns
    return sparse.csc_array(matrix), references
