"""The chain of a policy in the structured form: from states to slack nodes and back.

Under a policy the process moves from slack node to slack node, or to the empty state, which starts
a busy period. Let F be the transitions of the reached states to the nodes and the busy-period
starts, and A the continuation from these to the states. The chain between nodes has the kernel
A·F, the chain between states F·A; the smaller one is solved. F has only K dimensions for each
queue length and service, phase · passage, and is written out only where it must be.

A drop takes no time. So a state that drops has the transitions, reward and cost of the states that
the drop leads to, its own cost besides. Rows are written only for states that the policy meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.worker.actions import Outcome
from ramsis.worker.structured import NEGLIGIBLE, StructuredMDP

__all__ = [
    "frequency_through_drops",
    "node_frequency",
    "rewards_and_costs",
    "state_kernel",
    "to_nodes",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class _Group(NamedTuple):
    """States (n − 1, bins) with one service: their rows of F are phase · passage."""

    states: tuple[int, IntArray]
    phase: FloatArray
    service: int


def _met(mdp: StructuredMDP, outcome: Outcome) -> BoolArray:
    """The states that nodes or a policy's drops lead to, (N+1, D+1)."""
    met = np.zeros(outcome.service.shape, dtype=bool)
    met[mdp.reached] = True
    if mdp.drops is not None:
        for n in range(len(met) - 1, 0, -1):
            drops = met[n] & (outcome.service[n] < 0)
            met[n - 1] |= (mdp.drops.next_slack[n, drops] > NEGLIGIBLE).any(axis=0)
    return met


def _groups(mdp: StructuredMDP, outcome: Outcome, met: BoolArray) -> Iterator[_Group]:
    """The states that are met by queue length and service, but for those that drop."""
    queued, bins = np.nonzero(met & (outcome.service >= 0))
    if not len(queued):
        return
    service = outcome.service[queued, bins]
    key = queued * (service.max() + 1) + service
    order = np.argsort(key, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        n, own = int(queued[group[0]]), bins[group]
        yield _Group((n, own), mdp.phase[n, own], int(service[group[0]]))


def to_nodes(mdp: StructuredMDP, outcome: Outcome) -> FloatArray:
    """F, from the reached states to the nodes and busy-period starts; shape (S, I+L)."""
    met = _met(mdp, outcome)
    rows = np.zeros((*met.shape, len(mdp.excess)))
    for states, phase, service in _groups(mdp, outcome, met):
        passage = mdp.passage(service)
        rows[*states, : len(passage.reach)] = phase @ passage.reach.T
        rows[*states, -len(passage.idle) :] = phase @ passage.idle.T
    if mdp.drops is not None:
        emptied = mdp.drops.emptied
        drops = met & (outcome.service < 0)
        rows[0, drops[0], -len(emptied) :] = mdp.phase[0, drops[0]] @ emptied.T
        _add_after_drops(mdp, drops, rows)
    return np.asarray(rows[mdp.reached])


def state_kernel(mdp: StructuredMDP, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """F·A and F·excess, shapes (S, S) and (S,), without F."""
    met, size = _met(mdp, outcome), len(mdp.reached[0])
    kernel, beyond = np.zeros((*met.shape, size)), np.zeros(met.shape)
    for states, phase, service in _groups(mdp, outcome, met):
        next_state, excess = np.zeros((size, phase.shape[1])), np.zeros(phase.shape[1])
        for latency, weight in mdp.latencies_of(service):
            one, more = mdp.state_transitions[latency]
            next_state += weight * one
            excess += weight * more
        kernel[states] = phase @ next_state.T
        beyond[states] = phase @ excess
    if mdp.drops is not None:
        last = len(mdp.excess) - len(mdp.drops.emptied)
        drops = met & (outcome.service < 0)
        emptied = mdp.phase[0, drops[0]] @ mdp.drops.emptied.T
        kernel[0, drops[0]] = emptied @ mdp.continuation[last:].toarray()
        beyond[0, drops[0]] = emptied @ mdp.charged_excess[last:]
        _add_after_drops(mdp, drops, kernel)
        _add_after_drops(mdp, drops, beyond)
    return np.asarray(kernel[mdp.reached]), np.asarray(beyond[mdp.reached])


def node_frequency(mdp: StructuredMDP, outcome: Outcome, frequency: FloatArray) -> FloatArray:
    """v·F: frequencies of the nodes from those of the reached states; shape (I+L,)."""
    found = np.zeros(len(mdp.excess))
    met = _met(mdp, outcome)
    by_state = np.zeros(met.shape)
    by_state[mdp.reached] = frequency
    if mdp.drops is not None:
        frequency_through_drops(mdp, outcome, by_state)
        drops, emptied = outcome.service[0] < 0, mdp.drops.emptied
        found[-len(emptied) :] = emptied @ (by_state[0, drops] @ mdp.phase[0, drops])
    weights: dict[float, FloatArray] = {}
    for states, phase, service in _groups(mdp, outcome, met):
        own = by_state[states] @ phase
        for latency, share in mdp.latencies_of(service):
            weights[latency] = weights.get(latency, 0.0) + share * own
    for latency, weight in weights.items():
        reach, idle = mdp.passages[latency]
        found[: len(reach)] += reach @ weight
        found[-len(idle) :] += idle @ weight
    return found


def rewards_and_costs(mdp: StructuredMDP, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """Reward r and cost c of the reached states, up to the end of a drop; shape (S,) each."""
    reward, cost = mdp.problem.rewards_and_costs(outcome)
    if mdp.drops is not None:
        drops = outcome.service < 0
        _add_after_drops(mdp, drops, reward)
        _add_after_drops(mdp, drops, cost)
    return reward[mdp.reached], cost[mdp.reached]


def frequency_through_drops(mdp: StructuredMDP, outcome: Outcome, frequency: FloatArray) -> None:
    """Add frequencies, (N+1, D+1), of states that drop to those that the drops lead to."""
    assert mdp.drops is not None
    for n in range(len(frequency) - 1, 0, -1):
        dropped = np.where(outcome.service[n] < 0, frequency[n], 0.0)
        frequency[n - 1] += dropped @ mdp.drops.next_slack[n]


def _add_after_drops(mdp: StructuredMDP, drops: BoolArray, values: FloatArray) -> None:
    """Add to the entries of states that drop those of the states that the drops lead to.

    ``values`` is of shape (N+1, D+1, …).
    """
    assert mdp.drops is not None
    for n in range(1, len(values)):
        values[n, drops[n]] += mdp.drops.next_slack[n, drops[n]] @ values[n - 1]
