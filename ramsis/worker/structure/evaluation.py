"""The exact value of one policy on the slack nodes of the structured form.

Let A be the continuation from nodes, busy-period starts among them, to states, and F the
transitions of the policy from states to nodes, with the reward r and cost c of each state. Let e
be the *charged excess* of each node: the expected requests that no state counts, as they are
beyond the longest queue or dropped as overdue on the way to the next state. Each of them costs the
price p of a violation. Values V of states, values u of nodes and the gain g satisfy

    V = r − g·c + F·u,    u = A·V − (g + p)·e.

Inserting one into the other gives two chains for :mod:`ramsis.mdp.dense_chain`,

    between nodes    kernel A·F, reward A·r − p·e, cost A·c + e,
    between states   kernel F·A, reward r − p·F·e, cost c + F·e,

of which the one with fewer rows is solved: that between states where the nodes are exact. States
that A reaches with a probability below 1e-15 are left out. A restart goes to the empty state.

F has only K dimensions for each queue length and service, phase · passage, and is written out only
where it must be.

A drop takes no time. So a state that drops has the transitions, reward and cost of the states that
the drop leads to, its own cost besides. Rows are written only for states that the policy meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.dense_chain import DenseChain, rounding_error, solve_chain, with_restarts
from ramsis.reprs import dataclass
from ramsis.worker.problem.actions import Outcome
from ramsis.worker.structure.structured import NEGLIGIBLE, StructuredMDP

_POLICIES = 6  # evaluations for which computing all latencies' transitions beforehand pays


class StateFrequency(NamedTuple):
    """How often a policy meets each state in the long run."""

    # shape (N+1, D+1): stationary frequency of each state, up to a common factor; the last row
    # is the full state, at bin 0
    frequency: FloatArray
    excess: float  # requests of the full state beyond N + 1, at the same factor


@dataclass(frozen=True, eq=False)
class NodeEvaluation:
    """A policy's gain, relative values and stationary frequencies.

    Attributes
    ----------
    policy : ndarray of int, shape (N, D+1)
        The policy itself.
    node_value : ndarray, shape (I+L,)
        u, up to a constant; the busy-period starts last.
    node_frequency : ndarray, shape (I+L,)
        Stationary frequency of each node per unit of cost; the busy-period starts last.
    reference : int
        The most frequent node, or reached state where the chain of states was solved.
    residual : float
        Largest error of the balance of the frequencies.
    restart : float
        Probability ε of a restart from the empty state at a decision; mostly 0.
    """

    policy: IntArray
    gain: float
    node_value: FloatArray
    node_frequency: FloatArray
    reference: int
    residual: float
    restart: float = 0.0

    @property
    def onward_value(self) -> FloatArray:
        """(1 − ε)·u + ε·u(empty): the value of moving to each node, restarts included."""
        kept = 1.0 - self.restart
        value: FloatArray = kept * self.node_value + self.restart * self.node_value[-1]
        return value


def evaluate_on_nodes(
    mdp: StructuredMDP,
    policy: IntArray,
    reference: int | None = None,
    *,
    restart: float | None = None,
) -> NodeEvaluation:
    """Compute gain, values and frequencies of a policy with one factorisation.

    Parameters
    ----------
    policy : ndarray of int, shape (N, D+1)
        Admissible actions.
    reference : int, optional
        ``NodeEvaluation.reference`` of a similar policy, which saves a search.
    restart : float, optional
        Probability of a restart from the empty state at a decision; by default 0, or 1e-7 where
        rounding would decide (:mod:`ramsis.mdp.dense_chain`).

    Raises
    ------
    InvalidValueError
        When the policy has an action that is not admissible.
    NotConvergedError
        When the policy's chain has no single stationary distribution within rounding.
    """
    outcome = mdp.problem.check_policy(policy)
    states = policy_states(mdp, outcome)
    return with_restarts(
        lambda start, chance: _evaluate(mdp, (policy, outcome, states), start, chance), reference,
        lambda evaluation: rounding_error(evaluation.node_value, mdp.costs), restart)


def state_frequency(mdp: StructuredMDP, evaluation: NodeEvaluation) -> StateFrequency:
    """Return frequencies of the states, and of requests beyond N + 1, per unit of cost.

    States that drop a request count, and so do those that the drop leads to; overdue requests are
    dropped at bin 0.
    """
    frequency = np.zeros((mdp.problem.max_queue + 1, mdp.problem.bins + 1))
    frequency[mdp.reached] = mdp.onto_states(evaluation.node_frequency[None].copy())[0]
    if mdp.drops is not None:
        service = mdp.problem.outcome(evaluation.policy).service
        for n in range(len(frequency) - 1, 0, -1):  # a drop may lead to a further one
            dropped = np.where(service[n] < 0, frequency[n], 0.0)
            frequency[n - 1] += dropped @ mdp.drops.next_slack[n]
    if mdp.overdue is not None:
        frequency[:, 0] += evaluation.node_frequency @ mdp.overdue
    return StateFrequency(frequency, float(evaluation.node_frequency @ mdp.excess))


def _evaluate(
    mdp: StructuredMDP, evaluated: tuple[IntArray, Outcome, PolicyStates],
    reference: int | None, restart: float,
) -> NodeEvaluation:
    """Evaluate a policy on the smaller of two chains: that between nodes, or between states."""
    policy, outcome, states = evaluated
    reward, cost = rewards_and_costs(mdp, states, outcome)
    excess = mdp.charged_excess
    price = mdp.problem.violation_price
    fined = price * excess
    empty = np.zeros(len(excess))
    empty[-1] = 1.0
    if len(reward) > len(excess):
        # Between nodes: u = (A·r − p·e) − g·(A·c + e) + A·F·u.
        rows = to_nodes(mdp, states)
        chain = DenseChain(
            mdp.onward(rows), mdp.onward(reward) - fined, mdp.onward(cost) + excess, empty)
        del rows  # the largest array: its memory serves the factorisation
        solution = solve_chain(chain, restart, reference)
        value, frequency = solution.value, solution.frequency
    else:
        # Between states: V = (r − p·F·e) − g·(c + F·e) + F·A·V. A restart replaces F by
        # (1 − ε)·F + ε·(to the empty state), so it also changes F·e, here ``beyond``.
        kernel, beyond = state_kernel(mdp, states)
        beyond += restart * (excess[-1] - beyond)
        chain = DenseChain(kernel, reward - price * beyond, cost + beyond,
                           np.asarray(mdp.continuation.T @ empty))
        solution = solve_chain(chain, restart, reference)
        # Back to nodes: u = A·V − g·e − p·e, and the frequencies v·F, restarts included.
        value = mdp.onward(solution.value) - solution.gain * excess - fined
        frequency = node_frequency(mdp, states, solution.frequency)
        frequency += restart * (solution.frequency.sum() * empty - frequency)
    return NodeEvaluation(policy, solution.gain, value, frequency, solution.reference,
                          solution.residual, restart)


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

    def dropping(self, n: int) -> slice:
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
    """Return the states that a policy can reach from the nodes, given its outcome by state."""
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
        emptied, none = mdp.drops.emptied, states.dropping(0)
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
        none = states.dropping(0)
        emptied = _phase(mdp, states, none) @ mdp.drops.emptied.T
        kernel[none] = emptied @ mdp.continuation[last:].toarray()
        beyond[none] = emptied @ mdp.charged_excess[last:]
        _add_after_drops(mdp, states, kernel)
        _add_after_drops(mdp, states, beyond)
    return np.asarray(kernel[states.reached]), np.asarray(beyond[states.reached])


def node_frequency(mdp: StructuredMDP, states: PolicyStates, frequency: FloatArray) -> FloatArray:
    """Return v·F: frequencies of the nodes from frequencies of reached states; shape (I+L,)."""
    node_weight = np.zeros(len(mdp.excess))  # the I nodes, then the L busy-period starts
    by_state = np.zeros(len(states.queued))
    by_state[states.reached] = frequency
    if mdp.drops is not None:
        # A drop takes no time: pass the frequency of states that drop on to the states that the
        # drop leads to, from the longest queue down, as those may drop again.
        for n in range(len(states.first) - 2, 0, -1):
            dropping, onto = states.dropping(n), states.of_queue(n - 1)
            by_state[onto] += by_state[dropping] @ mdp.drops.next_slack[
                n, states.bins[dropping, None], states.bins[onto]]
        none, emptied = states.dropping(0), mdp.drops.emptied
        node_weight[-len(emptied) :] = emptied @ (by_state[none] @ _phase(mdp, states, none))
    # Services share latencies. Sum the weights of the K phases by latency, so that each first
    # passage is multiplied once.
    weights: dict[float, FloatArray] = {}
    for part, service in states.groups():
        phase_weight = by_state[part] @ _phase(mdp, states, part)
        for latency, share in mdp.latencies_of(service):
            weights[latency] = weights.get(latency, 0.0) + share * phase_weight
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


def _phase(mdp: StructuredMDP, states: PolicyStates, part: slice) -> FloatArray:
    """Return the phase distribution in some states, shape (·, K)."""
    phase: FloatArray = mdp.phase[states.queued[part], states.bins[part]]
    return phase


def _add_after_drops(mdp: StructuredMDP, states: PolicyStates, values: FloatArray) -> None:
    """Add to ``values`` (S', …) of each state that drops their expectation after the drop."""
    from ramsis.worker.structure._kernels import add_after_drops  # which takes long to load

    assert mdp.drops is not None
    add_after_drops(values.reshape(len(values), -1), states.bins, states.first, states.served,
                    mdp.drops.next_slack)
