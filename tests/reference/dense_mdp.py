"""Brute force over all policies of a small decision problem, with dense algebra only."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ramsis.mdp.sparse import SparseMDP

Floats = NDArray[np.float64]


def policies(mdp: SparseMDP) -> Iterator[list[int]]:
    """Every policy, as the pair that each state takes."""
    own = [[pair for pair in range(mdp.n_pairs) if mdp.state[pair] == s]
           for s in range(mdp.n_states)]
    for choice in itertools.product(*own):
        yield list(choice)


def discounted_value(mdp: SparseMDP, rows: list[int], discount: float) -> Floats:
    """Value of one policy."""
    chain = mdp.transition.toarray()[rows]
    return np.linalg.solve(np.eye(mdp.n_states) - discount * chain, mdp.reward[rows])


def average_gain(mdp: SparseMDP, rows: list[int]) -> Floats:
    """Gain of one policy from each state, by the limit of powers of the lazy chain."""
    limit = 0.5 * (np.eye(mdp.n_states) + mdp.transition.toarray()[rows])
    for _ in range(60):
        limit = limit @ limit
        limit /= limit.sum(axis=1, keepdims=True)
    return limit @ ((limit @ mdp.reward[rows]) / (limit @ mdp.costs[rows]))


def best_discounted(mdp: SparseMDP, discount: float) -> Floats:
    """Optimal discounted value of each state."""
    return np.max([discounted_value(mdp, rows, discount) for rows in policies(mdp)], axis=0)


def best_gain(mdp: SparseMDP) -> Floats:
    """Optimal gain from each state."""
    return np.max([average_gain(mdp, rows) for rows in policies(mdp)], axis=0)
