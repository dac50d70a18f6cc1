"""The structured form of the worker MDP: backups at the cost of |S|·|A|·D, nothing of |S|².

With V the value of a state, V(empty) of the empty one, u the value of the slack nodes
(:mod:`ramsis.worker.nodes`), w the phases (:mod:`ramsis.worker.phases`) and the first passage of a
choice of latency l (:mod:`ramsis.worker.passage`),

    u(i)         = Σ_s continuation(i, s)·V(s) − gain·excess(i)     s = (n', j(i))
    h_l(r)       = Σ_i reach_l(i, r)·u(i) + Σ_e landing_l(e, r)·u(e)
    Q((n, j), m) = reward − gain·cost + Σ_r w(n, j, r)·h_{l(m,n)}(r).

The empty state costs nothing and ends with an arrival: the last nodes e lead to (n', SLO), n' = 1
where requests come one at a time, and any number of them otherwise
(:mod:`ramsis.worker.batch_arrivals`). The last row of every (N+1, …) array is the full state, at
slack 0.
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
from ramsis.worker.actions import Batching, LateRule
from ramsis.worker.batch_arrivals import Landing, landing
from ramsis.worker.behind import second_by_bin
from ramsis.worker.nodes import (
    CELLS_PER_SLO,
    NodeSet,
    continuation_weights,
    exact_nodes,
    quadrature_nodes,
)
from ramsis.worker.passage import Passage, first_passage
from ramsis.worker.phases import missing_arrivals
from ramsis.worker.problem import MAX_NUMBERS, Objective, WorkerProblem

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
        The incumbent where it is among the best up to rounding, else the first best.
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
        The states (n − 1, j) that some node leads to with a probability above 1e-15; where
        requests may be dropped all states, in order, up to the largest of their n.
    continuation : csr_array, shape (I+L, S)
        Law of the reached state from each node, and last from each landing.
    excess : ndarray, shape (I+L,)
        Expected requests beyond N + 1 at each node.
    passages : dict of float to Passage
        First passage for every latency in ms of the problem's services.
    truncated_mass : float
        Largest probability that a row leaves out.
    second : ndarray, shape (N+1, D+1, D+1), or None
        Law of the bin of the next request's slack when the earliest one is dropped, for n >= 2.
    emptied : ndarray, shape (L, K)
        Law of the landing when the only request is dropped.
    """

    problem: WorkerProblem
    nodes: NodeSet
    missing: FloatArray
    reached: tuple[IntArray, IntArray]
    continuation: csr_array[np.float64]
    excess: FloatArray
    passages: dict[float, Passage]
    truncated_mass: float
    second: FloatArray | None = None
    emptied: FloatArray | None = None

    @property
    def charged_excess(self) -> FloatArray:
        """What a node adds to the cost beyond that of the states; shape (I+L,)."""
        if self.problem.objective is Objective.PER_QUERY:
            return self.excess
        return np.zeros_like(self.excess)

    def node_values(self, value: FloatArray, gain: float = 0.0) -> FloatArray:
        """Node values u, shape (I+L,), of state values of shape (N+1, D+1)."""
        price = gain + self.problem.violation_price
        result: FloatArray = self.continuation @ value[self.reached] - price * self.charged_excess
        return result

    def future(self, latency_ms: float, node_value: FloatArray) -> FloatArray:
        """Vector h_l of shape (K,): what a service of ``latency_ms`` is worth for each r."""
        passage = self.passages[latency_ms]
        result: FloatArray = node_value[: len(passage.reach)] @ passage.reach
        result += node_value[-len(passage.landing) :] @ passage.landing
        return result

    def futures(self, node_value: FloatArray) -> FloatArray:
        """What each of the problem's services is worth for each r; shape (S, K)."""
        each = np.array([self.future(latency, node_value) for latency in self.passages])
        return np.asarray(self.problem.services.mix @ each)

    def mixed(self, service: int) -> list[tuple[float, float]]:
        """The latencies in ms of one of the problem's services, and their weights."""
        mix, latencies = self.problem.services.mix, self.problem.services.latency_ms
        part = slice(mix.indptr[service], mix.indptr[service + 1])
        return list(zip(latencies[mix.indices[part]].tolist(), mix.data[part].tolist(),
                        strict=True))

    @cached_property
    def state_laws(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        """For every latency the law of the next state, (S, K), and the charged excess, (K,)."""
        onward, excess = csr_array(self.continuation.T), self.charged_excess
        laws = {}
        for latency, (reach, ends) in self.passages.items():
            upto, last = len(reach), len(excess) - len(ends)
            law = np.asarray(onward[:, :upto] @ reach + onward[:, last:] @ ends)
            laws[latency] = law, excess[:upto] @ reach + excess[last:] @ ends
        return laws

    def passage(self, service: int) -> Passage:
        """First passage of one of the problem's services."""
        mixed = self.mixed(service)
        parts = [self.passages[latency] for latency, _ in mixed]
        if len(parts) == 1:
            return parts[0]
        reach = np.zeros((max(len(p.reach) for p in parts), self.missing.shape[2]))
        landing = np.zeros_like(parts[0].landing)
        for (_, weight), part_of in zip(mixed, parts, strict=True):
            reach[: len(part_of.reach)] += weight * part_of.reach
            landing += weight * part_of.landing
        return Passage(reach, landing)

    @cached_property
    def costs(self) -> FloatArray:
        """Least cost of a decision for n = 1 … N+1; shape (N+1,)."""
        problem = self.problem
        return np.array([min(problem.cost(choice.batch) for choice in row)
                         for row in problem.choices.rows])

    def greedy(self, node_value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Back up every state, charging ``gain`` per unit of cost.

        A drop takes no time, so what it leads to has the value of the same backup.
        """
        problem = self.problem
        futures = self.futures(node_value)
        codes = problem.every_state(incumbent)
        value = np.full(codes.shape, -np.inf)
        kept = np.full(codes.shape, -np.inf)
        arg = codes.copy()
        for n, choices in enumerate(problem.choices.rows):
            for choice in choices:
                span = choice.bins
                base = problem.reward(choice) - gain * problem.cost(choice.batch)
                mine = codes[n, span] == choice.code
                if choice.drops:
                    q = base + self._after_drop(n, value, node_value)
                    own = base + self._after_drop(n, kept, node_value)
                else:
                    q = own = base + self.missing[n, span] @ futures[choice.service]
                better = q > value[n, span]
                arg[n, span][better] = choice.code
                value[n, span][better] = q[better]
                kept[n, span][mine] = own[mine]
        tolerance = _ROUNDING * (1.0 + np.abs(value))
        change = value > kept + tolerance
        return Backup(value, np.where(change, arg, codes)[:-1], kept)

    def _after_drop(
        self, n: int, value: FloatArray, node_value: FloatArray
    ) -> FloatArray:
        """What is left when the earliest of n + 1 requests is dropped, for each bin."""
        assert self.second is not None
        assert self.emptied is not None
        if n == 0:
            ends = node_value[-len(self.emptied) :] @ self.emptied
            return np.asarray(self.missing[0] @ ends)
        return np.asarray(self.second[n] @ value[n - 1])


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
    drops = problem.late is LateRule.DROP and problem.batching is Batching.MAXIMAL
    reached, continuation, excess = _continuation(problem, node_set, ends, every_state=drops)
    passages = {
        float(latency): first_passage(problem, node_set, float(latency), ends)
        for latency in problem.services.latency_ms
    }
    lost = max(
        float(np.abs(1.0 - p.reach.sum(axis=0) - p.none).max()) for p in passages.values()
    )
    missing = missing_arrivals(problem)
    second = emptied = None
    if drops:
        second = second_by_bin(
            problem.arrivals, problem.workers, problem.slack_ms, problem.max_queue + 1
        )
        emptied = ends.law.T
    return StructuredMDP(
        problem, node_set, missing, reached, continuation, excess, passages, lost, second, emptied
    )


def _check_passages(problem: WorkerProblem, nodes: NodeSet) -> None:
    """Refuse first passages that would fill the memory: exact nodes can be very many."""
    numbers = len(problem.services.latency_ms) * len(nodes) * problem.workers
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            describe("the problem is too large", where="worker problem",
                     value=f"{len(nodes)} slack nodes for {problem.workers} workers",
                     allowed="fewer workers, fewer models, a coarser grid or a lower load")
        )


def _continuation(
    problem: WorkerProblem, nodes: NodeSet, ends: Landing, *, every_state: bool
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
    if every_state:
        columns = problem.bins + 1
        states, index = np.arange((int(states[-1]) // columns + 1) * columns), flat
    law = csr_array(
        (np.append(weights[node, column], np.ones(len(landed))),
         (np.append(node, len(nodes) + landed), index)),
        shape=(len(nodes) + len(landed), len(states)),
    )
    beyond = np.maximum(ends.queued - top - 1.0, 0.0)
    return np.divmod(states, problem.bins + 1), law, np.append(excess, beyond)
