"""End components of a decision problem, and the best policy once each of them is solved.

A set of states with some of their actions is an *end component* if these actions stay within the
set and lead from each of its states to every other; it is *maximal* if no other contains it.
Whatever the policy, a process ends up in a maximal one with probability 1, and within one the best
gain is the same from every state. So average reward falls into two parts: the best gain of each
maximal end component, and where to go,

    g(s) = max( gain of s's component,  max_l (P g)_l  over the pairs that leave it ),

a problem in which every policy ends, as no end component is left once these are contracted.

Sources: de Alfaro (1997), *Formal verification of probabilistic systems*; Puterman (1994),
section 9.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.mdp.chain import absorption
from ramsis.mdp.result import Solution
from ramsis.mdp.sparse import SparseMDP, best_pairs

_ROUNDINGS = 4.0 * float(np.finfo(np.float64).eps)
_BETTER = 4.0  # rounding errors by which a pair must be better to replace another
_MOST_ROUNDS = 1000


@dataclass(frozen=True, eq=False)
class EndComponents:
    """Maximal end components: sets of states in which some policy can stay for ever."""

    count: int
    label: IntArray  # component of each state, -1 where it is in none
    inside: BoolArray  # pairs that stay within their state's component


def end_components(mdp: SparseMDP) -> EndComponents:
    """Find the maximal end components by removing pairs that leave strongly connected sets.

    >>> mdp = SparseMDP.from_pairs([
    ...     (0, 0, {0: 1.0}, 0.0), (0, 1, {1: 0.5, 2: 0.5}, 0.0), (1, 0, {2: 1.0}, 0.0),
    ...     (2, 0, {2: 1.0}, 0.0)])
    >>> found = end_components(mdp)
    >>> found.count, found.label.tolist(), found.inside.tolist()
    (2, [0, -1, 1], [True, False, False, True])
    """
    matrix = mdp.transition
    pair = np.repeat(np.arange(mdp.n_pairs), np.diff(matrix.indptr))
    inside, left = np.ones(mdp.n_pairs, dtype=bool), 1
    while left:
        kept = inside[pair]
        graph = sparse.csr_array(
            (np.ones(int(kept.sum())), (mdp.state[pair[kept]], matrix.indices[kept])),
            shape=(mdp.n_states, mdp.n_states))
        graph.sum_duplicates()  # SciPy 1.13 does not end where an edge is there twice
        _, part = connected_components(graph, directed=True, connection="strong")
        leaves = np.zeros(mdp.n_pairs, dtype=bool)
        leaves[pair[part[matrix.indices] != part[mdp.state[pair]]]] = True
        left = int((leaves & inside).sum())
        inside &= ~leaves
    stays = np.zeros(mdp.n_states, dtype=bool)
    stays[mdp.state[inside]] = True
    _, number = np.unique(part[stays], return_inverse=True)
    label = np.full(mdp.n_states, -1, dtype=np.int64)
    label[stays] = number
    return EndComponents(int(number.max()) + 1, label, inside)


def pairs_toward(mdp: SparseMDP, goals: BoolArray, allowed: BoolArray) -> IntArray:
    """Return (S,) the first pair of a shortest path from each state to the goals.

    Only ``allowed`` pairs (L,) are used. -1 in the goals, and where no path leads there.
    """
    matrix = mdp.transition
    pair = np.repeat(np.arange(mdp.n_pairs), np.diff(matrix.indptr))
    usable = allowed[pair]
    pair, onward = pair[usable], matrix.indices[usable]
    root, size = mdp.n_states, mdp.n_states + 1
    ends = np.flatnonzero(goals)
    backwards = sparse.csr_array(
        (np.ones(onward.size + ends.size),
         (np.append(onward, np.full(ends.size, root)), np.append(mdp.state[pair], ends))),
        shape=(size, size))
    backwards.sum_duplicates()
    _, nearer = breadth_first_order(backwards, root)
    steps = np.flatnonzero((onward == nearer[mdp.state[pair]]) & ~goals[mdp.state[pair]])[::-1]
    rows = np.full(mdp.n_states, -1, dtype=np.int64)
    rows[mdp.state[pair[steps]]] = pair[steps]
    return rows


@dataclass(frozen=True, eq=False)
class Ends:
    """Best end component to reach from each state, given the gain of each."""

    value: FloatArray  # largest expected gain of the component in which the process stays
    rounding: FloatArray  # largest rounding error of ``value``
    stays: BoolArray  # whether it is best to stay in a component
    # the pair to take where a component is left and in states of no component; -1 elsewhere
    rows: IntArray


def best_ends(mdp: SparseMDP, components: EndComponents, worth: FloatArray) -> Ends:
    """Maximise the expected gain, ``worth``, of the component in which a process stays for ever.

    By policy iteration on components as single nodes; those with ``-inf`` must be left.
    """
    node = np.where(components.label >= 0, components.label,
                    components.count + np.cumsum(components.label < 0) - 1)
    moves = np.flatnonzero(~components.inside)
    size = int(node.max()) + 1
    # A node's pairs: to stay, where that is possible, then those that leave it.
    owner = np.concatenate([np.flatnonzero(np.isfinite(worth)), node[mdp.state[moves]]])
    pair = np.concatenate([np.full(owner.size - moves.size, -1), moves])
    order = np.argsort(owner, kind="stable")
    owner, pair = owner[order], pair[order]
    lacking = np.bincount(owner, minlength=size) == 0
    if lacking.any():
        raise mdp.endless(int(np.argmax(lacking[node])))
    moving = pair >= 0
    # Rounding grows with the steps until the end, so only differences of worth are averaged.
    finite = worth[np.isfinite(worth)]
    common = finite[np.argmin(np.abs(finite))] if finite.size else 0.0
    reward = np.zeros(owner.size)
    reward[~moving] = worth[owner[~moving]] - common
    onward = _onward(mdp, node, pair, size)
    first = np.searchsorted(owner, np.arange(size + 1))
    rows = first[:-1].copy()
    for _ in range(_MOST_ROUNDS):
        stopping = (~moving[rows]).astype(np.float64)
        system = absorption(onward[rows], stopping)
        value = system.expected(reward[rows])
        quality = reward + onward @ value
        noise = _ROUNDINGS * (np.abs(reward) + onward @ np.abs(value))
        largest, best = best_pairs(quality, owner, first)
        excess = largest - quality[rows]
        better = excess > _BETTER * (noise[rows] + noise[best])
        if not better.any():
            break
        rows = np.where(better, best, rows)
    rounding = system.expected(noise[rows] + np.maximum(excess, 0.0))
    taken = pair[rows]
    state_rows = np.full(mdp.n_states, -1, dtype=np.int64)
    state_rows[mdp.state[taken[taken >= 0]]] = taken[taken >= 0]
    return Ends(common + value[node], rounding[node], taken[: components.count] < 0, state_rows)


def _onward(mdp: SparseMDP, node: IntArray, pair: IntArray, size: int) -> sparse.csr_array:
    """Return P(next node | pair leaves its node), (pairs, nodes); 0 for -1, which is to stay."""
    member = sparse.csr_array((np.ones(node.size), (np.arange(node.size), node)),
                              shape=(node.size, size))
    to = sparse.csr_array(mdp.transition @ member)[np.maximum(pair, 0)]
    home = node[mdp.state[np.maximum(pair, 0)]]
    number = np.repeat(np.arange(pair.size), np.diff(to.indptr))
    to.data[(to.indices == home[number]) | (pair[number] < 0)] = 0.0
    to.eliminate_zeros()
    total = np.asarray(to.sum(axis=1)).ravel()
    return sparse.csr_array(sparse.diags_array(1.0 / np.where(total > 0.0, total, 1.0)) @ to)


def solve_components(
    mdp: SparseMDP, components: EndComponents, solve: Callable[[SparseMDP], Solution]
) -> tuple[IntArray, list[Solution]]:
    """Find a policy that is optimal from every state, with a solver for single-gain problems.

    Parameters
    ----------
    solve
        Takes the problem of one component; its policy's gain from some state is what staying in
        the component is worth.

    Returns
    -------
    rows : (S,)
        The pair of each state.
    solutions
        One of each component with a cost; a process may not stay for ever in the others.
    """
    rows = np.full(mdp.n_states, -1, dtype=np.int64)
    worth, solutions = np.full(components.count, -np.inf), []
    order = np.argsort(components.label, kind="stable")
    bounds = np.searchsorted(components.label[order], np.arange(components.count + 1))
    own_pairs = np.flatnonzero(components.inside)
    own_pairs = own_pairs[np.argsort(components.label[mdp.state[own_pairs]], kind="stable")]
    pair_bounds = np.searchsorted(components.label[mdp.state[own_pairs]],
                                  np.arange(components.count + 1))
    for number in range(components.count):
        states = order[bounds[number] : bounds[number + 1]]
        pairs = own_pairs[pair_bounds[number] : pair_bounds[number + 1]]
        part = SparseMDP(
            np.searchsorted(states, mdp.state[pairs]), mdp.action[pairs],
            mdp.transition[pairs][:, states], mdp.reward[pairs],
            None if mdp.cost is None else mdp.cost[pairs])
        if not part.costs.any():  # at no cost nobody may stay for ever
            continue
        solution = solve(part)
        gain = solution.state_gain
        assert gain is not None
        worth[number] = gain.max()
        way = pairs_toward(part, gain == gain.max(), np.ones(part.n_pairs, dtype=bool))
        rows[states] = pairs[np.where(way >= 0, way, part.pairs_of(solution.policy))]
        solutions.append(solution)
    ends = best_ends(mdp, components, worth)
    chosen = ends.rows >= 0
    # Within a component that is left, take the way to the state from which it is left.
    left = np.append(~ends.stays, False)[components.label] & ~chosen
    way = pairs_toward(mdp, chosen, components.inside)
    return np.where(chosen, ends.rows, np.where(left, way, rows)), solutions
