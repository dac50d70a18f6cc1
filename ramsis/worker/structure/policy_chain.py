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
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.worker.problem.actions import Outcome
from ramsis.worker.structure.structured import NEGLIGIBLE, StructuredMDP

_POLICIES = 6  # evaluations for which computing all latencies' transitions beforehand pays


class PolicyStates(NamedTuple):
    """States that nodes or a policy's drops lead to, sorted by queue, service and slack."""

    # queued, bins, service: shape (S',): n − 1, j, and the policy's service there; −1 where
    # there is none
    queued: IntArray
    bins: IntArray
    service: IntArray
    first: IntArray  # where the states of each queue length begin, shape (N+2,)
    served: IntArray  # where those with a service begin; they are last, shape (N+1,)
    reached: IntArray  # places of the states that nodes lead to, shape (S,)

    def idle(self, n: int) -> slice:
        """Return the states with n + 1 queued that drop; these come first."""
        return slice(int(self.first[n]), int(self.served[n]))

    def of_queue(self, n: int) -> slice:
        """Return all states with n + 1 queued."""
        return slice(int(self.first[n]), int(self.first[n + 1]))

    def groups(self) -> Iterator[tuple[slice, int]]:
        """Yield the states of each queue length and service, with the service."""
        new = (np.diff(self.queued) != 0) | (np.diff(self.service) != 0)
        edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(self.queued)]
        for start, stop in pairwise(edges):
            service = int(self.service[start])
            if service >= 0:
                yield slice(start, stop), service


def policy_states(mdp: StructuredMDP, outcome: Outcome) -> PolicyStates:
    """Return the states that a policy with some outcome can reach from the nodes."""
    met = np.zeros(outcome.service.shape, dtype=bool)
    met[mdp.reached] = True
    if mdp.drops is not None:
        from ramsis.worker.structure._kernels import meet_after_drops  # which takes long to load

        meet_after_drops(met, outcome.service, mdp.drops.next_slack, NEGLIGIBLE)
    queued, bins = np.nonzero(met)
    service = outcome.service[queued, bins]
    order = np.lexsort((service, queued))
    queued, bins, service = queued[order], bins[order], service[order]
    place = np.zeros(met.shape, dtype=np.int64)
    place[queued, bins] = np.arange(len(queued))
    first = np.searchsorted(queued, np.arange(len(met) + 1))
    served = first[:-1] + np.bincount(queued[service < 0], minlength=len(met))
    return PolicyStates(queued, bins, service, first, served, place[mdp.reached])


def to_nodes(mdp: StructuredMDP, states: PolicyStates) -> FloatArray:
    """Return F = P(next node or busy-period start | reached state); shape (S, I+L)."""
    rows = np.zeros((len(states.queued), len(mdp.excess)))
    phase = _phase(mdp, states, slice(None))
    for part, service in states.groups():
        passage = mdp.passage(service)
        np.matmul(phase[part], passage.reach.T, out=rows[part, passage.nodes])
        np.matmul(phase[part], passage.idle.T, out=rows[part, -len(passage.idle) :])
    if mdp.drops is not None:
        emptied, none = mdp.drops.emptied, states.idle(0)
        rows[none, -len(emptied) :] = phase[none] @ emptied.T
        _add_after_drops(mdp, states, rows)
    return np.asarray(rows[states.reached])


def state_kernel(mdp: StructuredMDP, states: PolicyStates) -> tuple[FloatArray, FloatArray]:
    """Return the policy's transitions between reached states, F·A (S, S), and F·excess (S,).

    The transitions of each latency are computed once for all policies, if that is less work.
    """
    once = len(mdp.passages) * mdp.phase.shape[2]
    if mdp.nodes.cells is not None and once > _POLICIES * len(states.reached):
        rows = to_nodes(mdp, states)
        beyond = rows @ mdp.charged_excess
        return mdp.onto_states(rows), beyond
    size = len(states.reached)
    kernel, beyond = np.zeros((len(states.queued), size)), np.zeros(len(states.queued))
    for part, service in states.groups():
        phase = _phase(mdp, states, part)
        next_state, excess = mdp.next_states(service)
        kernel[part] = phase @ next_state.T
        beyond[part] = phase @ excess
    if mdp.drops is not None:
        last = len(mdp.excess) - len(mdp.drops.emptied)
        none = states.idle(0)
        emptied = _phase(mdp, states, none) @ mdp.drops.emptied.T
        kernel[none] = emptied @ mdp.continuation[last:].toarray()
        beyond[none] = emptied @ mdp.charged_excess[last:]
        _add_after_drops(mdp, states, kernel)
        _add_after_drops(mdp, states, beyond)
    return np.asarray(kernel[states.reached]), np.asarray(beyond[states.reached])


def node_frequency(mdp: StructuredMDP, states: PolicyStates, frequency: FloatArray) -> FloatArray:
    """Return v·F: frequencies of the nodes from frequencies of reached states; shape (I+L,)."""
    node_weight = np.zeros(len(mdp.excess))
    by_state = np.zeros(len(states.queued))
    by_state[states.reached] = frequency
    if mdp.drops is not None:
        for n in range(len(states.first) - 2, 0, -1):
            drops, onto = states.idle(n), states.of_queue(n - 1)
            by_state[onto] += by_state[drops] @ _after_drop(mdp, states, n)
        none, emptied = states.idle(0), mdp.drops.emptied
        node_weight[-len(emptied) :] = emptied @ (by_state[none] @ _phase(mdp, states, none))
    weights: dict[float, FloatArray] = {}
    for part, service in states.groups():
        weight_here = by_state[part] @ _phase(mdp, states, part)
        for latency, share in mdp.latencies_of(service):
            weights[latency] = weights.get(latency, 0.0) + share * weight_here
    for latency, weight in weights.items():
        passage = mdp.passages[latency]
        node_weight[passage.nodes] += passage.reach @ weight
        node_weight[-len(passage.idle) :] += passage.idle @ weight
    return node_weight


def rewards_and_costs(
    mdp: StructuredMDP, states: PolicyStates, outcome: Outcome
) -> tuple[FloatArray, FloatArray]:
    """Return reward and cost of reached states up to the next service; (S,) each."""
    both = np.stack([each[states.queued, states.bins]
                     for each in mdp.problem.rewards_and_costs(outcome)], axis=1)
    if mdp.drops is not None:
        _add_after_drops(mdp, states, both)
    reward, cost = both[states.reached].T
    return reward, cost


def frequency_through_drops(mdp: StructuredMDP, outcome: Outcome, frequency: FloatArray) -> None:
    """Pass frequencies (N+1, D+1) of states that drop on to the states that drops lead to."""
    assert mdp.drops is not None
    for n in range(len(frequency) - 1, 0, -1):
        dropped = np.where(outcome.service[n] < 0, frequency[n], 0.0)
        frequency[n - 1] += dropped @ mdp.drops.next_slack[n]


def _phase(mdp: StructuredMDP, states: PolicyStates, part: slice) -> FloatArray:
    """Return the phase distribution in some states, shape (·, K)."""
    phase: FloatArray = mdp.phase[states.queued[part], states.bins[part]]
    return phase


def _after_drop(mdp: StructuredMDP, states: PolicyStates, n: int) -> FloatArray:
    """Return the transitions of drops from the states of n + 1 queued to those of n queued."""
    assert mdp.drops is not None
    dropping, onto = states.bins[states.idle(n)], states.bins[states.of_queue(n - 1)]
    transitions: FloatArray = mdp.drops.next_slack[n, dropping[:, None], onto]
    return transitions


def _add_after_drops(mdp: StructuredMDP, states: PolicyStates, values: FloatArray) -> None:
    """Add to ``values`` (S', …) of states that drop those of the states that drops lead to."""
    from ramsis.worker.structure._kernels import add_after_drops  # which takes long to load

    assert mdp.drops is not None
    add_after_drops(values.reshape(len(values), -1), states.bins, states.first, states.served,
                    mdp.drops.next_slack)
