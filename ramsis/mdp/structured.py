"""The structured form of the worker MDP: backups at the cost of |S|·|A|·D, nothing of |S|².

With V the value of a state, V(empty) of the empty one, u the value of the slack nodes
(:mod:`ramsis.mdp.nodes`), w the phases (:mod:`ramsis.mdp.phases`) and the first passage of a
choice of latency l (:mod:`ramsis.mdp.passage`),

    u(i)         = Σ_s continuation(i, s)·V(s) − gain·excess(i)     s = (n', j(i))
    h_l(r)       = Σ_i reach_l(i, r)·u(i) + Σ_e landing_l(e, r)·u(e)
    Q((n, j), m) = reward − gain·cost + Σ_r w(n, j, r)·h_{l(m,n)}(r).

The empty state costs nothing and ends with an arrival: the last nodes e lead to (n', SLO), n' = 1
where requests come one at a time, and any number of them otherwise (:mod:`ramsis.mdp.clumps`).
The last row of every (N+1, …) array is the full state, at slack 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramsis.arrivals import is_orderly
from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.clumps import Landing, landing
from ramsis.mdp.nodes import (
    CELLS_PER_SLO,
    NodeSet,
    continuation_weights,
    exact_nodes,
    quadrature_nodes,
)
from ramsis.mdp.passage import Passage, first_passage
from ramsis.mdp.phases import missing_arrivals
from ramsis.mdp.problem import MAX_NUMBERS, Objective, WorkerProblem

__all__ = ["Backup", "NodeKind", "StructuredMDP", "build_structured"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NodeKind = Literal["auto", "quadrature", "exact"]

_NEGLIGIBLE = 1e-15
_ROUNDING = 1e-11


class Backup(NamedTuple):
    """One backup of every state; the last row is the full state, at bin 0.

    Attributes
    ----------
    value : ndarray, shape (N+1, D+1)
        max_m Q.
    policy : ndarray of int, shape (N, D+1)
        The incumbent where it is among the best up to rounding, else the fastest best.
    kept : ndarray, shape (N+1, D+1)
        Q of the incumbent.
    """

    value: FloatArray
    policy: IntArray
    kept: FloatArray


@dataclass(frozen=True, eq=False)
class StructuredMDP:
    """A worker problem with all that its backups need; made by :func:`build_structured`.

    Attributes
    ----------
    problem : WorkerProblem
    nodes : NodeSet
        I slack nodes; L nodes of landings follow them.
    missing : ndarray, shape (N+1, D+1, K)
        Law of r, the central arrivals missing to the worker's next request.
    reached : tuple of two int ndarrays, shape (S,)
        The states (n − 1, j) that some node leads to with a probability above 1e-15.
    continuation : csr_array, shape (I+L, S)
        Law of the reached state from each node, and last from each landing.
    excess : ndarray, shape (I+L,)
        Expected requests beyond N + 1 at each node.
    passages : dict of float to Passage
        First passage for every service latency in ms.
    truncated_mass : float
        Largest probability that a row leaves out.
    """

    problem: WorkerProblem
    nodes: NodeSet
    missing: FloatArray
    reached: tuple[IntArray, IntArray]
    continuation: csr_array[np.float64]
    excess: FloatArray
    passages: dict[float, Passage]
    truncated_mass: float

    @property
    def charged_excess(self) -> FloatArray:
        """What a node adds to the cost beyond that of the states; shape (I+L,)."""
        if self.problem.objective is Objective.PER_QUERY:
            return self.excess
        return np.zeros_like(self.excess)

    def node_values(self, value: FloatArray, gain: float = 0.0) -> FloatArray:
        """Node values u, shape (I+L,), of state values of shape (N+1, D+1)."""
        result: FloatArray = self.continuation @ value[self.reached] - gain * self.charged_excess
        return result

    def future(self, latency_ms: float, node_value: FloatArray) -> FloatArray:
        """Vector h_l of shape (K,): what a service of ``latency_ms`` is worth for each r."""
        passage = self.passages[latency_ms]
        result: FloatArray = node_value[: len(passage.reach)] @ passage.reach
        result += node_value[-len(passage.landing) :] @ passage.landing
        return result

    @cached_property
    def costs(self) -> FloatArray:
        """Cost of a decision for n = 1 … N+1; shape (N+1,)."""
        return np.array([self.problem.cost(n) for n in range(1, self.problem.max_queue + 2)])

    def greedy(self, node_value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Back up every state, charging ``gain`` per unit of cost."""
        problem = self.problem
        value = np.empty((problem.max_queue + 1, problem.bins + 1))
        kept = np.empty_like(value)
        policy = incumbent.copy()
        for n in range(problem.max_queue + 1):
            late = self.future(float(problem.late_latency_ms[n]), node_value)
            base = -gain * self.costs[n]
            value[n] = kept[n] = base + self.missing[n] @ late
            if n < problem.max_queue and problem.choices[n]:
                self._choose(n, base, node_value, value[n], policy[n], kept[n])
        return Backup(value, policy, kept)

    def _choose(
        self,
        n: int,
        base: float,
        node_value: FloatArray,
        value: FloatArray,
        policy: IntArray,
        kept: FloatArray,
    ) -> None:
        """Write the backup of (n + 1, j) where some choice is admissible."""
        problem = self.problem
        best = np.full(len(value), -np.inf)
        arg = policy.copy()
        for choice in problem.choices[n]:
            span = slice(choice.first_bin, None)
            reward = problem.reward(n + 1, choice.model)
            h = self.future(choice.latency_ms, node_value)
            q = base + reward + self.missing[n, span] @ h
            better = q > best[span]
            arg[span][better] = choice.model
            best[span][better] = q[better]
            mine = policy[span] == choice.model
            kept[span][mine] = q[mine]
        admissible = slice(min(c.first_bin for c in problem.choices[n]), None)
        value[admissible] = best[admissible]
        tolerance = _ROUNDING * (1.0 + np.abs(best[admissible]))
        change = best[admissible] > kept[admissible] + tolerance
        policy[admissible][change] = arg[admissible][change]


def build_structured(
    problem: WorkerProblem, nodes: NodeKind = "auto", *, cells_per_slo: int = CELLS_PER_SLO
) -> StructuredMDP:
    """Put the structured form of a problem together.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Gauss nodes in the slack bins: fast, the gain below capacity within about 1e-6 of exact
        at D = 100 and 60 workers, 1e-5 where many requests arrive in a cell. Or one node per bin
        and arrival count: exact for the rounded model. ``auto`` takes the first for orderly
        arrivals; those in clumps need the second, as their first passages overshoot.
    cells_per_slo : int
        Refines the quadrature.
    """
    if nodes not in get_args(NodeKind):
        raise InvalidValueError(
            describe("unknown kind of nodes", where="nodes", value=nodes,
                     allowed="auto, quadrature or exact")
        )
    exact = nodes == "exact" or (nodes == "auto" and not is_orderly(problem.arrivals))
    node_set = exact_nodes(problem) if exact else quadrature_nodes(problem, cells_per_slo)
    _check_passages(problem, node_set)
    ends = landing(problem)
    reached, continuation, excess = _continuation(problem, node_set, ends)
    passages = {
        float(latency): first_passage(problem, node_set, float(latency), ends)
        for latency in problem.service_latencies_ms
    }
    lost = max(
        float(np.abs(1.0 - p.reach.sum(axis=0) - p.none).max()) for p in passages.values()
    )
    missing = missing_arrivals(problem)
    return StructuredMDP(
        problem, node_set, missing, reached, continuation, excess, passages, lost
    )


def _check_passages(problem: WorkerProblem, nodes: NodeSet) -> None:
    """Refuse first passages that would fill the memory: exact nodes can be very many."""
    numbers = len(problem.service_latencies_ms) * len(nodes) * problem.workers
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            describe("the problem is too large", where="worker problem",
                     value=f"{len(nodes)} slack nodes for {problem.workers} workers",
                     allowed="fewer workers, fewer models, a coarser grid or a lower load")
        )


def _continuation(
    problem: WorkerProblem, nodes: NodeSet, ends: Landing
) -> tuple[tuple[IntArray, IntArray], csr_array[np.float64], FloatArray]:
    """The states that the nodes lead to, the law of them, and the excess."""
    weights, excess = continuation_weights(problem, nodes)
    node, column = np.nonzero(weights > _NEGLIGIBLE)
    top, landed = problem.max_queue, np.arange(len(ends.queued))
    row = np.minimum(ends.queued - 1, top)
    bins = np.where(column < top, nodes.bin[node], 0)
    flat = np.append(column * (problem.bins + 1) + bins,
                     row * (problem.bins + 1) + np.where(row < top, problem.bins, 0))
    states, index = np.unique(flat, return_inverse=True)
    law = csr_array(
        (np.append(weights[node, column], np.ones(len(landed))),
         (np.append(node, len(nodes) + landed), index)),
        shape=(len(nodes) + len(landed), len(states)),
    )
    beyond = np.maximum(ends.queued - top - 1.0, 0.0)
    return np.divmod(states, problem.bins + 1), law, np.append(excess, beyond)
