"""The chain of a policy in the structured form: from states to slack nodes and back.

Under a policy the process moves from slack node to slack node, or to the empty state, which starts
a busy period. Let F be the transitions of the reached states to the nodes and the busy-period
starts, and A the continuation from these to the states. The chain between nodes has the kernel
A·F, the chain between states F·A; the smaller one is solved. F has only K dimensions for each
queue length and service, phase · passage, and is written out only where it must be.

A drop takes no time. So a state that drops has the transitions, reward and cost of the states that
the drop leads to, its own cost besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.worker.actions import Outcome
from ramsis.worker.structured import StructuredMDP

__all__ = [
    "frequency_through_drops",
    "node_frequency",
    "rewards_and_costs",
    "state_kernel",
    "to_nodes",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class _Group(NamedTuple):
    """Reached states with one queue length and service: their rows of F are phase · passage."""

    states: IntArray
    phase: FloatArray
    service: int


def _groups(mdp: StructuredMDP, outcome: Outcome) -> Iterator[_Group]:
    """The reached states by queue length and service, but for those that drop."""
    queued, bins = mdp.reached
    service = outcome.service[queued, bins]
    key = queued * (service.max() + 2) + service
    order = np.argsort(key, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        chosen = int(service[group[0]])
        if chosen >= 0:
            yield _Group(group, mdp.phase[queued[group[0]], bins[group]], chosen)


def to_nodes(mdp: StructuredMDP, outcome: Outcome) -> FloatArray:
    """F, from the reached states to the nodes and busy-period starts; shape (S, I+L)."""
    rows = np.zeros((len(mdp.reached[0]), len(mdp.excess)))
    for states, phase, service in _groups(mdp, outcome):
        passage = mdp.passage(service)
        rows[states, : len(passage.reach)] = phase @ passage.reach.T
        rows[states, -len(passage.idle) :] = phase @ passage.idle.T
    if mdp.drops is not None:
        emptied = mdp.drops.emptied
        drops = outcome.service[0] < 0
        rows[: len(drops)][drops, -len(emptied) :] = mdp.phase[0, drops] @ emptied.T
        _add_after_drops(mdp, outcome, rows.reshape(-1, len(drops), len(mdp.excess)))
    return rows


def state_kernel(mdp: StructuredMDP, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """F·A and F·excess, shapes (S, S) and (S,), without F."""
    size = len(mdp.reached[0])
    kernel, beyond = np.zeros((size, size)), np.zeros(size)
    for states, phase, service in _groups(mdp, outcome):
        next_state, excess = np.zeros((size, phase.shape[1])), np.zeros(phase.shape[1])
        for latency, weight in mdp.latencies_of(service):
            one, more = mdp.state_transitions[latency]
            next_state += weight * one
            excess += weight * more
        kernel[states] = phase @ next_state.T
        beyond[states] = phase @ excess
    if mdp.drops is not None:
        drops, last = outcome.service[0] < 0, len(mdp.excess) - len(mdp.drops.emptied)
        emptied = mdp.phase[0, drops] @ mdp.drops.emptied.T
        kernel[np.flatnonzero(drops)] = emptied @ mdp.continuation[last:].toarray()
        beyond[np.flatnonzero(drops)] = emptied @ mdp.charged_excess[last:]
        _add_after_drops(mdp, outcome, kernel.reshape(-1, len(drops), size))
        _add_after_drops(mdp, outcome, beyond.reshape(-1, len(drops)))
    return kernel, beyond


def node_frequency(mdp: StructuredMDP, outcome: Outcome, frequency: FloatArray) -> FloatArray:
    """v·F: frequencies of the nodes from those of the reached states; shape (I+L,)."""
    found = np.zeros(len(mdp.excess))
    if mdp.drops is not None:
        by_queue = frequency.reshape(-1, outcome.service.shape[1]).copy()
        frequency_through_drops(mdp, outcome, by_queue)
        frequency, drops = by_queue.ravel(), outcome.service[0] < 0
        emptied = mdp.drops.emptied
        found[-len(emptied) :] = emptied @ (by_queue[0, drops] @ mdp.phase[0, drops])
    weights: dict[float, FloatArray] = {}
    for states, phase, service in _groups(mdp, outcome):
        own = frequency[states] @ phase
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
        _add_after_drops(mdp, outcome, reward)
        _add_after_drops(mdp, outcome, cost)
    return reward[mdp.reached], cost[mdp.reached]


def frequency_through_drops(mdp: StructuredMDP, outcome: Outcome, frequency: FloatArray) -> None:
    """Add frequencies, (n, D+1), of states that drop to those that the drops lead to."""
    assert mdp.drops is not None
    for n in range(len(frequency) - 1, 0, -1):
        dropped = np.where(outcome.service[n] < 0, frequency[n], 0.0)
        frequency[n - 1] += dropped @ mdp.drops.next_slack[n]


def _add_after_drops(mdp: StructuredMDP, outcome: Outcome, values: FloatArray) -> None:
    """Add to the entries of states that drop those of the states that the drops lead to.

    ``values`` is of shape (n, D+1, …), up to the largest n that is reached.
    """
    assert mdp.drops is not None
    for n in range(1, len(values)):
        drops = outcome.service[n] < 0
        values[n, drops] += mdp.drops.next_slack[n, drops] @ values[n - 1]
