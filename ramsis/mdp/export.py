"""A sparse decision problem in the layouts of other solvers.

Neither package is imported here: what comes back are plain NumPy and SciPy arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ramsis.mdp.sparse import SparseMDP

__all__ = ["to_pymdptoolbox", "to_quantecon"]

_ROUNDS = 4


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
