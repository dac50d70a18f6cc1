"""Arrays of a structured problem that the compiled rounds of policy iteration take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.worker.structure.structured import NEGLIGIBLE, StructuredMDP


class Mixtures(NamedTuple):
    """Cache of the first passages of random service times, computed when a service is used."""

    reach: FloatArray  # shape (S, I, K); (0, I, K) if times are fixed
    idle: FloatArray  # shape (S, L, K)
    nodes: IntArray  # first and last node, exclusive, that each reaches, shape (S, 2)
    known: BoolArray  # whether they have been computed, shape (S,)


class Matrix(NamedTuple):
    """Sparse matrix in CSR form, for compiled functions."""

    indptr: IntArray
    indices: IntArray
    data: FloatArray


class Actions(NamedTuple):
    """Actions that serve, and drops, as in :class:`ramsis.worker.structure.structured.Choices`."""

    service: IntArray  # shape (N+1, A)
    cost: FloatArray  # shape (N+1, A)
    reward: FloatArray  # shape (N+1, A, D+1)
    dropped: FloatArray  # shape (N+1, D+1)
    drop_cost: FloatArray  # shape (N+1,)
    weights: Matrix  # probabilities of the latencies of each service, (S, G)


class States(NamedTuple):
    """States that nodes lead to, or drops from such states, by rising queue length."""

    # queued, bins: n − 1 and j, shape (S',)
    queued: IntArray
    bins: IntArray
    # first, stop: the bins that a drop leads to, shape (S',)
    first: IntArray
    stop: IntArray
    # reached_queued, reached_bins: the states that nodes lead to, shape (S,)
    reached_queued: IntArray
    reached_bins: IntArray


class StructuredArrays(NamedTuple):
    """Arrays of :class:`ramsis.worker.structure.structured.StructuredMDP` and its passages."""

    phase: FloatArray  # shape (N+1, D+1, K)
    next_slack: FloatArray  # shape (N+1, D+1, D+1)
    emptied: FloatArray  # shape (L, K)
    # reach, idle: first passages: weights of nodes, (G', I, K), and of starts, (G', L, K)
    reach: FloatArray
    idle: FloatArray
    row: IntArray  # first passage of each latency, shape (G,)
    nodes: IntArray  # first and last node, exclusive, that each reaches, shape (G', 2)
    # the continuation: P(state | node), (I+L, S), with rows of zeros for the overdue nodes
    onward: Matrix
    late: IntArray  # the overdue nodes, shape (J,)
    # late_reach, late_idle: their continuation as weights of the first I' nodes, (J, I'), and of
    # starts of busy periods, (J, L)
    late_reach: FloatArray
    late_idle: FloatArray
    excess: FloatArray  # cost of a node for requests beyond the table, shape (I+L,)
    price: float  # of a violation


def matrix_of(matrix: Any) -> Matrix:
    """Return the arrays of a CSR matrix of SciPy."""
    return Matrix(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)


def model_of(mdp: StructuredMDP) -> StructuredArrays:
    """Return the arrays of the structured form for the compiled rounds."""
    drops = mdp.drops
    reach, idle, row, nodes = mdp.passages.arrays()
    if mdp.late is not None:
        overdue, late_reach, late_idle, _ = mdp.late
    else:
        overdue, late_reach = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        late_idle = np.zeros((0, idle.shape[1]))
    return StructuredArrays(
        mdp.phase,
        np.zeros((0, 0, 0)) if drops is None else drops.next_slack,
        np.zeros((0, mdp.phase.shape[2])) if drops is None else np.ascontiguousarray(
            drops.emptied),
        reach, idle, row, nodes, matrix_of(mdp.continuation), overdue, late_reach, late_idle,
        mdp.charged_excess, mdp.problem.violation_price)


def actions_of(mdp: StructuredMDP) -> Actions:
    """Return the actions of a structured problem for the compiled rounds."""
    choices = mdp.choices
    return Actions(choices.service, choices.cost, choices.reward, choices.dropped,
                   choices.drop_cost, matrix_of(mdp.problem.services.weights))


def mixtures_of(mdp: StructuredMDP) -> Mixtures:
    """Return room for the first passages of all services, none if each has a single latency."""
    reach, idle, _, _ = mdp.passages.arrays()
    weights = mdp.problem.services.weights
    services = weights.shape[0] if weights.nnz > weights.shape[0] else 0
    # Pages of services that no policy uses are never touched, so they take no memory.
    return Mixtures(
        np.zeros((services, *reach.shape[1:])), np.zeros((services, *idle.shape[1:])),
        np.zeros((services, 2), dtype=np.int64), np.zeros(services, dtype=bool))


def states_of(mdp: StructuredMDP) -> States:
    """Return the states that slack nodes lead to, and those that drops from there may lead to.

    With each state goes the range of slack bins, ``first`` to ``stop`` (exclusive), in which the
    next head may be after a drop there; it is empty where there are no drops.
    """
    met = np.zeros(mdp.phase.shape[:2], dtype=bool)
    met[mdp.reached] = True
    first = stop = np.zeros(0, dtype=np.int64)
    if mdp.drops is not None:
        from ramsis.worker.structure._kernels import meet_after_drops  # which takes long to load

        # The policy changes from round to round, so each state may drop: service −1 everywhere.
        onward = mdp.drops.next_slack
        meet_after_drops(met, np.full(met.shape, -1), onward, NEGLIGIBLE)
        some = onward[met] > NEGLIGIBLE
        first = some.argmax(axis=1)
        stop = np.where(some.any(axis=1), some.shape[1] - some[:, ::-1].argmax(axis=1), 0)
    queued, bins = np.nonzero(met)
    return States(queued, bins, first, stop, *mdp.reached)
