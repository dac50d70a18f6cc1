"""The exact value of one policy on the slack nodes of the structured form.

Let A be the continuation from nodes to states, and F the transitions of the policy from states to
nodes, with the reward r and cost c of each state (:mod:`ramsis.worker.structure.policy_chain`).
Let e be the *charged excess* of each node: the expected requests that no state counts, as they are
beyond the longest queue or dropped as overdue on the way to the next state
(:attr:`~ramsis.worker.structure.structured.StructuredMDP.charged_excess`). Each of them costs the
price p of a violation. Values V of states, values u of nodes and the gain g satisfy

    V = r − g·c + F·u,    u = A·V − (g + p)·e.

Inserting one into the other gives two chains for :mod:`ramsis.mdp.dense_chain`,

    between nodes    kernel A·F, reward A·r − p·e, cost A·c + e,
    between states   kernel F·A, reward r − p·F·e, cost c + F·e,

of which the one with fewer rows is solved: that between states where the nodes are exact. States
that A reaches with a probability below 1e-15 are left out. A restart goes to the empty state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.dense_chain import DenseChain, rounding_error, solve_chain, with_restarts
from ramsis.reprs import dataclass
from ramsis.worker.problem.actions import Outcome
from ramsis.worker.structure.policy_chain import (
    PolicyStates,
    frequency_through_drops,
    node_frequency,
    policy_states,
    rewards_and_costs,
    state_kernel,
    to_nodes,
)
from ramsis.worker.structure.structured import StructuredMDP

__all__ = ["NodeEvaluation", "StateFrequency", "evaluate_on_nodes", "state_frequency"]


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
    gain : float
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

    def evaluate(start: int | None, chance: float) -> NodeEvaluation:
        return _evaluate(mdp, (policy, outcome, states), start, chance)

    if restart is not None:
        return evaluate(reference, restart)
    return with_restarts(
        evaluate, reference,
        lambda evaluation: rounding_error(evaluation.node_value, mdp.costs),
    )


def state_frequency(mdp: StructuredMDP, evaluation: NodeEvaluation) -> StateFrequency:
    """Return frequencies of the states, and of requests beyond N + 1, per unit of cost.

    States that drop a request count, and so do those that the drop leads to; overdue requests are
    dropped at bin 0.
    """
    frequency = np.zeros((mdp.problem.max_queue + 1, mdp.problem.bins + 1))
    frequency[mdp.reached] = np.asarray(evaluation.node_frequency @ mdp.continuation)
    if mdp.drops is not None:
        frequency_through_drops(mdp, mdp.problem.outcome(evaluation.policy), frequency)
    if mdp.overdue is not None:
        frequency[:, 0] += evaluation.node_frequency @ mdp.overdue
    return StateFrequency(frequency, float(evaluation.node_frequency @ mdp.excess))


def _evaluate(
    mdp: StructuredMDP, evaluated: tuple[IntArray, Outcome, PolicyStates],
    reference: int | None, restart: float,
) -> NodeEvaluation:
    """Evaluate a policy on the smaller of two chains: that between nodes, or between states."""
    continuation, (policy, outcome, states) = mdp.continuation, evaluated
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
            mdp.onward(rows), np.asarray(continuation @ reward) - fined,
            np.asarray(continuation @ cost) + excess, empty)
        del rows  # the largest array: its memory serves the factorisation
        solution = solve_chain(chain, restart, reference)
        value, frequency = solution.value, solution.frequency
    else:
        # Between states: V = (r − p·F·e) − g·(c + F·e) + F·A·V. A restart replaces F by
        # (1 − ε)·F + ε·(to the empty state), so it also changes F·e, here ``beyond``.
        kernel, beyond = state_kernel(mdp, states)
        beyond += restart * (excess[-1] - beyond)
        chain = DenseChain(kernel, reward - price * beyond, cost + beyond,
                           np.asarray(continuation.T @ empty))
        solution = solve_chain(chain, restart, reference)
        # Back to nodes: u = A·V − g·e − p·e, and the frequencies v·F, restarts included.
        value = np.asarray(continuation @ solution.value) - solution.gain * excess - fined
        frequency = node_frequency(mdp, states, solution.frequency)
        frequency += restart * (solution.frequency.sum() * empty - frequency)
    return NodeEvaluation(policy, solution.gain, value, frequency, solution.reference,
                          solution.residual, restart)
