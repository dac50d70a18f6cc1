"""Reductions of semi-Markov problems to ones with positive costs and with unit costs.

**Elimination.** Value iteration divides by costs, so states that cost nothing must go first. A
set ``Z`` of such states with one action each is passed through at once: with ``N`` the others,

    P'_NN = P_NN + P_NZ F_P,   r'_N = r_N + P_NZ F_r,   F = (I - P_ZZ)^-1 [P_ZN, r_Z].

Gain and relative values on ``N`` stay what they are, and ``h_Z = F_r + F_P h_N``.

**Data transformation** (Schweitzer 1971; Puterman 1994, section 11.5.1). With a step
``0 < tau <= min c``, the problem with unit costs

    r~ = r / c,   P~ = I + tau (P - I) / c

has the same gain, the same optimal policies, and relative values ``h / tau``; a smaller step
adds self-loops and so also makes it aperiodic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.mdp.chain import Factorisation
from ramsis.mdp.components import pairs_toward
from ramsis.mdp.sparse import SparseMDP


@dataclass(frozen=True, eq=False)
class Reduced:
    """Problem without free states, with the maps of values and pairs to the original."""

    mdp: SparseMDP  # the reduced problem
    # kept, free: the states of the original that were kept and eliminated
    kept: IntArray
    free: IntArray
    pairs: IntArray  # pair of the original behind each pair of the reduced problem
    _reward: FloatArray
    _onward: sparse.csr_array

    def expand_value(self, value: FloatArray) -> FloatArray:
        """Return (S,) relative values of the original from (S',) of the reduced problem."""
        full = np.empty(self.kept.size + self.free.size)
        full[self.kept] = value
        full[self.free] = self._reward + self._onward @ value
        return full

    def expand_pairs(self, rows: IntArray, original: SparseMDP) -> IntArray:
        """Return (S,) pairs of the original from (S',) pairs of the reduced problem."""
        full = original.first[:-1].copy()
        full[self.kept] = self.pairs[rows]
        return full


def eliminate_free_states(mdp: SparseMDP) -> Reduced:
    """Return the problem without the states that cost nothing."""
    free_pair = mdp.costs == 0.0
    several = np.diff(mdp.first)[mdp.state] > 1
    if (free_pair & several).any():
        raise InvalidValueError(
            "the pair costs nothing and its state has other actions, "
            "which value iteration cannot eliminate",
            where=mdp.place(int(np.argmax(free_pair & several))), value=0.0,
            allowed="a positive cost, or policy iteration or the linear program")
    is_free = np.zeros(mdp.n_states, dtype=bool)
    is_free[mdp.state[free_pair]] = True
    kept, free = np.flatnonzero(~is_free), np.flatnonzero(is_free)
    pairs = np.flatnonzero(~free_pair)
    if not free.size:
        nothing = sparse.csr_array((0, mdp.n_states), dtype=np.float64)
        return Reduced(mdp, kept, free, pairs, np.empty(0), nothing)
    if not kept.size:
        raise InvalidValueError("every pair costs nothing", value=0.0,
                                allowed="a positive cost somewhere")
    trapped = is_free & (pairs_toward(mdp, ~is_free, np.ones(mdp.n_pairs, dtype=bool)) < 0)
    if trapped.any():
        raise InvalidValueError(
            "the state costs nothing and leads only to states that cost nothing",
            where=mdp.name(int(np.argmax(trapped))), value=0.0,
            allowed="a way to a state with a positive cost")
    through = mdp.transition[np.flatnonzero(free_pair)]
    reward, onward = _pass_through(through, mdp.reward[free_pair], free, kept)
    into = mdp.transition[pairs]
    to_free = into[:, free]
    reduced = SparseMDP(
        state=np.searchsorted(kept, mdp.state[pairs]),
        action=mdp.action[pairs],
        transition=sparse.csr_array(into[:, kept] + to_free @ onward),
        reward=mdp.reward[pairs] + to_free @ reward,
        cost=mdp.costs[pairs],
        state_names=None if mdp.state_names is None else tuple(mdp.state_names[s] for s in kept),
    )
    return Reduced(reduced, kept, free, pairs, reward, onward)


def to_unit_costs(mdp: SparseMDP, damping: float = 0.0) -> tuple[SparseMDP, float]:
    """Return Schweitzer's problem with unit costs and the step ``tau = (1 - damping) min c``.

    It has the same gain, and the relative values of ``mdp`` divided by ``tau``. Costs must be
    positive (see :func:`eliminate_free_states`), ``damping`` in [0, 1).
    """
    costs = mdp.costs
    step = (1.0 - damping) * float(costs.min())
    stay = sparse.csr_array(
        (1.0 - step / costs, mdp.state, np.arange(mdp.n_pairs + 1)), shape=mdp.transition.shape
    )
    moved = sparse.diags_array(step / costs) @ mdp.transition
    return (
        SparseMDP(mdp.state, mdp.action, sparse.csr_array(moved + stay), mdp.reward / costs,
                  state_names=mdp.state_names),
        step,
    )


def _pass_through(
    through: sparse.csr_array, reward: FloatArray, free: IntArray, kept: IntArray
) -> tuple[FloatArray, sparse.csr_array]:
    """Return expected rewards until free states are left, and P(kept state reached then)."""
    inside, leaving = through[:, free], through[:, kept]
    if not inside.nnz:
        return reward, leaving
    system = Factorisation(sparse.csc_array(sparse.eye_array(free.size, format="csc") - inside))
    onward = sparse.csr_array(np.maximum(system.solve(leaving.toarray()), 0.0))
    return system.solve(reward), onward
