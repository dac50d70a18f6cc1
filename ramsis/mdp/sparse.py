"""A finite Markov decision problem held as a list of state-action pairs.

Pair ``l`` stands for action ``action[l]`` in state ``state[l]``. It earns ``reward[l]``, costs
``cost[l]`` (time, or whatever unit the reward is counted per; 1 when absent) and leads to state
``j`` with probability ``transition[l, j]``. A state has only the pairs that are listed for it,
so actions may differ from state to state and impossible ones take no room.

Three criteria are meant, with the same data:

- discounted: ``V(s) = max_l reward[l] + discount * sum_j transition[l, j] V(j)``;
- average reward per decision: ``g + h(s) = max_l reward[l] + sum_j transition[l, j] h(j)``;
- average reward per unit of cost (semi-Markov):
  ``h(s) = max_l reward[l] - g cost[l] + sum_j transition[l, j] h(j)``.

Source: Puterman, *Markov Decision Processes* (1994), chapters 6, 8, 9 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ramsis.errors import InvalidValueError
from ramsis.mdp.pairs import canonical_pairs, pair_name, state_name
from ramsis.reprs import dataclass


@dataclass(frozen=True, eq=False)
class SparseMDP:
    """A finite Markov decision problem, checked when it is made.

    Pairs may be given in any order; they are kept sorted by state, then action. Rows whose sum
    differs from 1 by rounding (up to 1e-9) are rescaled to 1, stored zeros are dropped.

    Parameters
    ----------
    state : (L,) integers in 0 … S-1
        State of each pair; every state has at least one pair.
    action : (L,) integers
        Label of each pair's action, unique within its state.
    transition : (L, S) sparse or dense matrix
        Probabilities of the next state; every row adds up to 1.
    reward : (L,) finite floats
        Expected reward of a pair.
    cost : (L,) finite floats >= 0, optional
        What the average reward is counted per: sojourn time, requests served, … ``None`` means
        1 for every pair.
    state_names : S strings, optional
        Used in messages.

    Raises
    ------
    InvalidValueError
        Naming the first bad pair by state and action: an index out of range, two pairs alike,
        a state without a pair, a probability that is negative, NaN or infinite, a row that
        does not add up to 1, a reward that is not finite, a cost that is negative or not
        finite.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 0.5, 1: 0.5}, 5.0), (0, 1, {1: 1.0}, 10.0), (1, 0, {1: 1.0}, -1.0)])
    >>> mdp
    <SparseMDP 2 states, 3 state-action pairs, 4 transitions>
    """

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    transition: sparse.csr_array
    reward: NDArray[np.float64]
    cost: NDArray[np.float64] | None = None
    state_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        vars(self).update(canonical_pairs(
            self.state, self.action, self.transition, self.reward, self.cost, self.state_names))

    def _summary(self) -> str:
        """Return the numbers of states and pairs in words, for ``repr``."""
        return (f"{self.n_states} states, {self.n_pairs} state-action pairs, "
                f"{self.transition.nnz} transitions")

    @classmethod
    def from_dense(
        cls,
        transition: ArrayLike | Sequence[Any],
        reward: ArrayLike | Sequence[Any],
        *,
        allowed: ArrayLike | None = None,
        cost: ArrayLike | None = None,
    ) -> SparseMDP:
        """Return the problem of arrays with one matrix per action, as pymdptoolbox has them.

        Parameters
        ----------
        transition : (A, S, S), or A dense or sparse matrices (S, S)
            ``transition[a, s, j]``: probability of ``j`` after action ``a`` in ``s``.
        reward : (S, A), (S,), (A, S, S), or A matrices (S, S)
            Reward of a state and action, of a state, or of a transition; the last is weighted by
            the probability of the transition.
        allowed : (S, A) booleans, optional
            Which actions a state has; all of them by default.
        cost : (S, A), optional
        """
        chances = _matrices(transition, "transition")
        shape = (chances[0].shape[0], len(chances))
        gain = _rewards(reward, chances)
        mask = np.ones(shape, dtype=bool) if allowed is None else np.asarray(allowed, dtype=bool)
        costs = np.ones(shape) if cost is None else np.asarray(cost, dtype=float)
        for name, array in (("allowed", mask), ("cost", costs)):
            if array.shape != shape:
                raise InvalidValueError(f"{name} has the wrong shape", value=array.shape,
                                        allowed=f"{shape}, that of reward")
        state, action = np.nonzero(mask)
        return cls(
            state=state,
            action=action,
            transition=sparse.csr_array(sparse.vstack(chances, format="csr")[
                action * shape[0] + state]),
            reward=gain[state, action],
            cost=None if cost is None else costs[state, action],
        )

    @classmethod
    def from_pairs(
        cls,
        pairs: Iterable[tuple[Any, ...]],
        *,
        n_states: int | None = None,
        state_names: Sequence[str] | None = None,
    ) -> SparseMDP:
        """Build a problem from ``(state, action, {next: probability}, reward[, cost])`` tuples.

        ``n_states`` defaults to one more than the largest state that appears. A cost must be
        given for every pair or for none.
        """
        listed = list(pairs)
        lengths = {len(pair) for pair in listed}
        if lengths not in ({4}, {5}):
            raise InvalidValueError("pairs have different or wrong lengths", value=sorted(lengths),
                                    allowed="at least one pair, all with 4 entries or all with 5")
        nexts: list[Mapping[int, float]] = [pair[2] for pair in listed]
        columns = [j for chances in nexts for j in chances]
        states = [pair[0] for pair in listed]
        for index in (*states, *columns):
            if isinstance(index, bool) or not isinstance(index, int | np.integer):
                raise InvalidValueError("a state is not a number", value=index, allowed="whole "
                                        "numbers from 0, as names.index(state), with the names in "
                                        "state_names")
        size = n_states if n_states is not None else 1 + max([*states, *columns])
        rows = np.concatenate([[0], np.cumsum([len(chances) for chances in nexts])])
        matrix = _csr([p for chances in nexts for p in chances.values()], columns, rows, size)
        return cls(
            state=np.array(states),
            action=np.array([pair[1] for pair in listed]),
            transition=matrix,
            reward=np.array([pair[3] for pair in listed], dtype=float),
            cost=np.array([p[4] for p in listed], dtype=float) if lengths == {5} else None,
            state_names=tuple(state_names) if state_names is not None else None,
        )

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self.transition.shape[1])

    @property
    def n_pairs(self) -> int:
        """L, the number of state-action pairs."""
        return int(self.state.size)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(S+1,) the pairs of state ``s`` are ``first[s]`` … ``first[s+1] - 1``."""
        return np.searchsorted(self.state, np.arange(self.n_states + 1)).astype(np.int64)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """(L,) the costs, ones where the problem has none."""
        return np.ones(self.n_pairs) if self.cost is None else self.cost

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(A,) the distinct action labels, rising."""
        return np.unique(self.action)

    @cached_property
    def moving(self) -> NDArray[np.float64]:
        """(L,) P(leave the state), summed up: 1 − P(stay) would lose its digits where small."""
        return np.asarray(self._others.sum(axis=1), dtype=np.float64).ravel()

    @cached_property
    def moves(self) -> sparse.csr_array:
        """(L, S) P(next state | the pair leaves its state); an empty row if it never does."""
        moving = np.where(self.moving > 0.0, self.moving, 1.0)
        return sparse.csr_array(sparse.diags_array(1.0 / moving) @ self._others)

    @cached_property
    def _others(self) -> sparse.csr_array:
        matrix = self.transition.copy()
        pair = np.repeat(np.arange(self.n_pairs), np.diff(matrix.indptr))
        matrix.data[matrix.indices == self.state[pair]] = 0.0
        return matrix

    def place(self, pair: int) -> str:
        """Return a pair's name for messages: its state and action."""
        return pair_name(pair, self.state, self.action, self.state_names)

    def name(self, state: int) -> str:
        """Return a state's name for messages."""
        return state_name(state, self.state_names)

    def endless(self, state: int) -> InvalidValueError:
        """Return the error that a policy can stay around a state for ever at no cost."""
        return InvalidValueError(
            "a policy can go on for ever at no cost, so it has no average reward",
            where=self.name(state), value=0.0,
            allowed="a positive cost somewhere in every closed class")

    def best(self, quality: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return each state's largest ``quality`` and the first pair that has it.

        ``quality`` has shape (L,), the results (S,).
        """
        return best_pairs(quality, self.state, self.first)

    def pairs_of(self, policy: ArrayLike) -> NDArray[np.int64]:
        """Return the (S,) pair index of each state under a policy of (S,) action labels.

        A policy of another length, or with an action that its state lacks, is refused.
        """
        labels = np.asarray(policy)
        if labels.shape != (self.n_states,):
            raise InvalidValueError("policy has the wrong shape", value=labels.shape,
                                    allowed=f"({self.n_states},), one action label per state")
        rows = np.flatnonzero(self.action == labels[self.state])
        if rows.size != self.n_states:
            lacking = int(np.setdiff1d(np.arange(self.n_states), self.state[rows])[0])
            allowed = self.action[self.first[lacking] : self.first[lacking + 1]]
            raise InvalidValueError("policy takes an action that the state does not have",
                                    where=self.name(lacking), value=labels[lacking].item(),
                                    allowed=", ".join(map(str, allowed[:20])))
        return rows


def best_pairs(
    quality: NDArray[np.float64], state: NDArray[np.int64], first: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the best pair of each state, for pairs sorted by state; each state has some."""
    largest = np.maximum.reduceat(quality, first[:-1])
    hits = np.flatnonzero(quality >= largest[state])
    return largest, hits[np.searchsorted(state[hits], np.arange(first.size - 1))]


def _matrices(values: Any, name: str) -> list[sparse.csr_array]:
    """Return one sparse matrix (S, S) per action."""
    try:
        matrices = [sparse.csr_array(_dense_or_sparse(matrix)) for matrix in values]
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{name} is not an array of numbers ({error})",
                                allowed="(A, S, S), or a matrix (S, S) per action") from error
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or any(len(shape) != 2 or shape[0] != shape[1] for shape in shapes):
        raise InvalidValueError(f"{name} has not one square matrix per action",
                                value=sorted(shapes), allowed="(A, S, S)")
    return matrices


def _dense_or_sparse(matrix: Any) -> Any:
    return matrix if sparse.issparse(matrix) else np.asarray(matrix, dtype=float)


def _rewards(values: Any, chances: Sequence[sparse.csr_array]) -> NDArray[np.float64]:
    """Return the expected reward of each state and action, (S, A)."""
    states, actions = chances[0].shape[0], len(chances)
    listed = isinstance(values, list | tuple) or (
        isinstance(values, np.ndarray) and values.dtype.hasobject)
    if (listed and any(map(sparse.issparse, values))) or np.ndim(values) == 3:
        rewards = _matrices(values, "reward")
        if len(rewards) == actions and rewards[0].shape == chances[0].shape:
            return np.column_stack([(chance * reward).sum(axis=1)
                                    for chance, reward in zip(chances, rewards, strict=True)])
        shape: tuple[int, ...] = (len(rewards), *rewards[0].shape)
    else:
        try:
            dense = np.asarray(getattr(values, "toarray", lambda: values)(), dtype=float)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"reward is not an array of numbers ({error})",
                                    allowed="(S, A), (S,) or (A, S, S)") from error
        shape = dense.shape
        if shape == (states,):
            return np.repeat(dense[:, None], actions, axis=1)
        if shape == (states, actions):
            return np.asarray(dense, dtype=float)
    raise InvalidValueError("shapes of transition and reward do not fit",
                            value=((actions, states, states), shape),
                            allowed="(A, S, S) and (S, A), (S,) or (A, S, S)")


def _csr(
    data: Sequence[float], columns: Sequence[int], rows: NDArray[np.int64], n_states: int
) -> sparse.csr_array:
    """Build a CSR matrix from its arrays; translate SciPy's errors."""
    try:
        return sparse.csr_array(
            (np.array(data, dtype=float), np.array(columns, dtype=np.int64), rows),
            shape=(rows.size - 1, n_states),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidValueError(f"transition is not a matrix ({error})",
                                allowed="integer states") from error


def kernel_arrays(
    mdp: SparseMDP
) -> tuple[NDArray[np.unsignedinteger], tuple[NDArray[np.unsignedinteger],
                                              NDArray[np.unsignedinteger], NDArray[np.float64]]]:
    """Return the arrays of the compiled loops: :attr:`SparseMDP.first` and the CSR transitions.

    Indices are unsigned, which spares the loops the test for negative ones. Columns have 32 bits
    where that suffices, so that the loops are compiled once for the matrices of all callers.
    """
    matrix = mdp.transition
    indptr, columns = matrix.indptr.astype(np.int64, copy=False), matrix.indices
    if mdp.n_states <= np.iinfo(np.int32).max:
        columns = columns.astype(np.int32, copy=False)
    return _unsigned(mdp.first), (_unsigned(indptr), _unsigned(columns), matrix.data)


def _unsigned(integers: NDArray[np.signedinteger]) -> NDArray[np.unsignedinteger]:
    """View non-negative integers as unsigned ones of equal width."""
    return integers.view(np.dtype(f"u{integers.dtype.itemsize}"))
