"""Checks and canonical form of the arrays of a sparse decision problem.

:func:`canonical_pairs` is the one place where such arrays are judged; after it, solvers may
rely on sorted pairs, one class of matrix, and rows that add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ramsis.errors import InvalidValueError

ROW_SUM_TOLERANCE = 1e-9
"""How far from 1 the probabilities of a pair may add up."""

_EXACT = 1e-12  # a row sum this close to 1 is left as it is

_Place = Callable[[int], str]


def state_name(state: int, names: tuple[str, ...] | None) -> str:
    """Return a state's name for messages."""
    named = names is not None and 0 <= state < len(names)
    return f"state {state}" + (f" ({names[state]})" if named and names is not None else "")


def pair_name(
    pair: int,
    state: NDArray[np.int64],
    action: NDArray[np.int64],
    names: tuple[str, ...] | None,
) -> str:
    """Return a pair's name for messages: its state and action."""
    return f"{state_name(int(state[pair]), names)}, action {int(action[pair])}"


def canonical_pairs(
    state: ArrayLike,
    action: ArrayLike,
    transition: Any,
    reward: ArrayLike,
    cost: ArrayLike | None,
    state_names: tuple[str, ...] | None,
) -> dict[str, Any]:
    """Return the checked fields of a ``SparseMDP``, pairs sorted by state and action.

    The caller's arrays stay untouched.
    """
    states, actions = _integers("state", state), _integers("action", action)
    matrix = _as_csr(transition)
    n_pairs, n_states = int(matrix.shape[0]), int(matrix.shape[1])
    rewards = np.asarray(reward, dtype=np.float64)
    costs = None if cost is None else np.asarray(cost, dtype=np.float64)
    names = None if state_names is None else tuple(state_names)
    for name, array in (("state", states), ("action", actions), ("reward", rewards),
                        ("cost", costs)):
        if array is not None and array.shape != (n_pairs,):
            raise InvalidValueError(f"{name} has the wrong shape", value=array.shape,
                                    allowed=f"({n_pairs},), one per row of transition")
    if names is not None and len(names) != n_states:
        raise InvalidValueError("state_names has the wrong length", value=len(names),
                                allowed=str(n_states))

    def place(pair: int) -> str:
        return pair_name(pair, states, actions, names)

    order = _check_pairs(states, actions, n_states, names, place)
    _check_numbers("reward", rewards, place)
    if costs is not None:
        _check_numbers("cost", costs, place, lowest=0.0)
    matrix = _check_matrix(matrix, place)
    # Pairs that come sorted are left as they are, which spares a copy of the matrix.
    if not np.array_equal(order, np.arange(n_pairs)):
        states, actions, rewards = states[order], actions[order], rewards[order]
        matrix, costs = matrix[order], None if costs is None else costs[order]
    return {"state": states, "action": actions, "transition": matrix, "reward": rewards,
            "cost": costs, "state_names": names}


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidValueError(f"{name} is not an array of integers", value=str(array.dtype),
                                allowed="an integer type")
    return array.astype(np.int64, copy=False)


def _as_csr(transition: Any) -> sparse.csr_array:
    """Convert ``transition`` to CSR of floats without changing the caller's arrays."""
    matrix: Any = transition if sparse.issparse(transition) else np.asarray(transition)
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "biuf":
        raise InvalidValueError("transition is not a matrix of numbers",
                                value=(matrix.shape, str(matrix.dtype)),
                                allowed="shape (pairs, states), neither of them 0")
    return sparse.csr_array(matrix, dtype=np.float64)


def _check_pairs(
    state: NDArray[np.int64],
    action: NDArray[np.int64],
    n_states: int,
    names: tuple[str, ...] | None,
    place: _Place,
) -> NDArray[np.int64]:
    """Check that the pairs cover every state without duplicates; return their sorting order."""
    outside = np.flatnonzero((state < 0) | (state >= n_states))
    if outside.size:
        raise InvalidValueError("state index out of range", where=place(outside[0]),
                                value=int(state[outside[0]]), allowed=f"0 … {n_states - 1}")
    order = np.lexsort((action, state))
    twice = (np.diff(state[order]) == 0) & (np.diff(action[order]) == 0)
    if twice.any():
        raise InvalidValueError("the pair is given twice",
                                where=place(order[int(np.argmax(twice))]),
                                allowed="each action once in a state")
    present = np.bincount(state, minlength=n_states)
    if not present.all():
        raise InvalidValueError("state has no action",
                                where=state_name(int(np.argmin(present)), names),
                                allowed="at least one action in every state")
    return order


def _check_numbers(
    name: str, values: NDArray[np.float64], place: _Place, lowest: float = -np.inf
) -> None:
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= lowest)))
    if bad.size:
        allowed = "a finite number" + (f" >= {lowest:g}" if lowest > -np.inf else "")
        raise InvalidValueError(f"{name} is not allowed", where=place(bad[0]),
                                value=float(values[bad[0]]), allowed=allowed)


def _check_matrix(matrix: sparse.csr_array, place: _Place) -> sparse.csr_array:
    """Return the checked transition matrix, without stored zeros, rows summing to 1."""
    columns, data = matrix.indices, matrix.data

    def row_of(entry: int) -> int:
        return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1

    outside = np.flatnonzero((columns < 0) | (columns >= matrix.shape[1]))
    if outside.size:
        raise InvalidValueError("next state out of range", where=place(row_of(outside[0])),
                                value=int(columns[outside[0]]),
                                allowed=f"0 … {matrix.shape[1] - 1}")
    bad = np.flatnonzero(~(np.isfinite(data) & (data >= 0)))
    if bad.size:
        raise InvalidValueError(
            f"transition probability to state {int(columns[bad[0]])} is not allowed",
            where=place(row_of(bad[0])), value=float(data[bad[0]]), allowed="a number in [0, 1]")
    if not matrix.has_canonical_format or not data.all():
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    total = np.asarray(matrix.sum(axis=1)).ravel()
    wrong = np.flatnonzero(np.abs(total - 1.0) > ROW_SUM_TOLERANCE)
    if wrong.size:
        raise InvalidValueError("transition probabilities do not add up to 1",
                                where=place(wrong[0]), value=float(total[wrong[0]]),
                                allowed=f"1 within {ROW_SUM_TOLERANCE:g}")
    if np.abs(total - 1.0).max() > _EXACT:
        matrix = sparse.csr_array(sparse.diags_array(1.0 / total) @ matrix)
    return matrix
