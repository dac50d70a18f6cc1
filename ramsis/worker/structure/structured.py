"""The structured form of the worker's problem: a backup costs |S|·|A|·D, nothing |S|².

What follows an action depends on the state and on the service through two numbers only: the phase
r, and the time x that is left of the service when the first new request arrives. Let V be the
value of a state, u that of a slack node (:mod:`ramsis.worker.structure.slack_nodes`), w the
distribution of the phase (:mod:`ramsis.worker.problem.batch_arrivals`), and reach and idle the
first passage of a service of l ms (:mod:`ramsis.worker.structure.first_passage`). Then

    u(i)         = Σ_s continuation(i, s)·V(s) − gain·excess(i)     s = (n', j(i))
    h_l(r)       = Σ_i reach_l(i, r)·u(i) + Σ_e idle_l(e, r)·u(e)
    Q((n, j), m) = reward − gain·cost + Σ_r w(n, j, r)·h_{l(m,n)}(r).

The empty state has neither reward nor cost, and a busy period ends it: the last nodes e are the
starts of busy periods and lead to (n', SLO), with n' = 1 where requests come one at a time
(:mod:`ramsis.worker.problem.batch_arrivals`). The last row of every (N+1, …) array is the full
state, at slack 0. Under the late rule ``drop`` the requests that are overdue at the end of a
service are dropped on the way from its node to the next state
(:mod:`ramsis.worker.structure.first_passage`); they are charged like those beyond N + 1.

A queue of n requests has up to A actions; arrays are padded with actions of a reward of −inf. A
drop is not among them: its value follows from the values of states with one request fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import is_orderly
from ramsis.errors import InvalidValueError, check_number_of
from ramsis.reprs import brief, dataclass
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import DROP, LateRule
from ramsis.worker.problem.batch_arrivals import (
    BusyPeriodStart,
    busy_period_start,
    phase_distribution,
)
from ramsis.worker.problem.checks import MAX_NUMBERS
from ramsis.worker.problem.waiting_slack import second_slack_distribution
from ramsis.worker.structure.first_passage import (
    AfterDrops,
    Passage,
    Passages,
    QueueFound,
    after_drops,
    first_passage,
    first_passages,
    phase_after_drops,
)
from ramsis.worker.structure.slack_nodes import (
    CELLS_PER_SLO,
    NodeSet,
    continuation_weights,
    exact_nodes,
    quadrature_nodes,
)

_MOST_CELLS = 1_000_000  # of the quadrature, per SLO
_BLOCK_NUMBERS = 2_000_000  # entries of first passages that are multiplied in one block

NodeKind = Literal["auto", "quadrature", "exact"]

NEGLIGIBLE = 1e-15
"""Probability below which transitions are left out."""
_ROUNDING = 1e-11  # relative gain below which the incumbent action stays


class DropTransitions(NamedTuple):
    """Transitions of dropping the head of the queue, which takes no time."""

    # shape (N+1, D+1, D+1): for n >= 2 the distribution of the bin of the next head's slack
    next_slack: FloatArray
    emptied: FloatArray  # for n = 1 P(start of the busy period | r), shape (L, K)


class Backup(NamedTuple):
    """One backup of every state; the last row is the full state, at bin 0."""

    value: FloatArray  # largest Q over actions, shape (N+1, D+1)
    # shape (N, D+1): the incumbent where it is among the best up to rounding, else the first best
    policy: IntArray
    kept: FloatArray  # Q of the incumbent, shape (N+1, D+1)

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, eq=False)
class StructuredMDP:
    """A worker problem in structured form, for backups; made by :func:`build_structured`.

    Attributes
    ----------
    nodes : NodeSet
        I slack nodes; L starts of busy periods follow them.
    phase : ndarray, shape (N+1, D+1, K)
        w: distribution of r, the central arrivals until the worker's next request.
    reached : tuple of two int ndarrays, shape (S,)
        The states (n − 1, j) that some node leads to with a probability above 1e-15.
    continuation : csr_array, shape (I+L, S)
        P(state | node), and last P(state | start of a busy period); 0 for overdue nodes that
        ``late`` has.
    excess : ndarray, shape (I+L,)
        Expected requests beyond N + 1 at each node.
    passages : Passages
        First passage for every latency in ms of the problem's services.
    drops : DropTransitions or None
        Transitions of drops, if the late rule drops.
    late : AfterDrops or None
        Transitions of overdue nodes, if requests overdue at the end of a service are dropped.
    """

    problem: WorkerProblem
    nodes: NodeSet
    phase: FloatArray
    reached: tuple[IntArray, IntArray]
    continuation: csr_array[np.float64]
    excess: FloatArray
    passages: Passages
    drops: DropTransitions | None = None
    late: AfterDrops | None = None

    @cached_property
    def overdue(self) -> FloatArray | None:
        """Expected overdue requests dropped at each node with n = 1 … N queued, and with more.

        Shape (I+L, N+1); None where overdue requests are not dropped.
        """
        if self.late is None:
            return None
        dropped = np.zeros((len(self.excess), self.late.found.shape[1]))
        dropped[self.late.nodes] = self.late.found
        return dropped

    def onward(self, rows: FloatArray) -> FloatArray:
        """Return the continuation times an array over states, (S,) or (S, X)."""
        result = np.asarray(self.continuation @ rows)
        if self.late is not None:
            reach, idle = self.late.reach, self.late.idle
            result[self.late.nodes] = (reach @ result[: reach.shape[1]]
                                       + idle @ result[len(result) - idle.shape[1] :])
        return result

    def onto_states(self, rows: FloatArray) -> FloatArray:
        """Return ``rows`` over nodes, (X, I+L), times the continuation; overwrites ``rows``."""
        if self.late is not None:
            dropped = rows[:, self.late.nodes]
            rows[:, : self.late.reach.shape[1]] += dropped @ self.late.reach
            rows[:, rows.shape[1] - self.late.idle.shape[1] :] += dropped @ self.late.idle
        return np.ascontiguousarray(np.asarray(self.continuation.T @ rows.T).T)

    @cached_property
    def charged_excess(self) -> FloatArray:
        """Return the cost at each node for requests that no state counts; shape (I+L,).

        Per request these are the requests beyond N + 1, and always those dropped as overdue.
        """
        beyond = self.excess if self.problem.charges_excess else np.zeros_like(self.excess)
        return beyond if self.overdue is None else beyond + self.overdue.sum(axis=1)

    def node_values(self, value: FloatArray, gain: float = 0.0) -> FloatArray:
        """Return node values u, (I+L,), from state values (N+1, D+1), less excess at its price."""
        price = gain + self.problem.violation_price
        result: FloatArray = self.onward(value[self.reached]) - price * self.charged_excess
        return result

    def service_values(self, node_value: FloatArray) -> FloatArray:
        """Return each service's value for each r; shape (S, K)."""
        return np.asarray(self.problem.services.weights @ self.passages.worth(node_value))

    def values_of(self, services: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Return a function from node values to the values of some services, (S', K)."""
        from ramsis.worker.structure._kernels import service_values  # which takes long to load

        weights = self.problem.services.weights[services]
        used, column = np.unique(weights.indices, return_inverse=True)
        mixed = csr_array((weights.data, column, weights.indptr),
                          shape=(len(services), len(used)))
        reach, idle, rows, nodes = self.passages.arrays()
        rows = rows[used]
        return lambda node_value: np.asarray(
            mixed @ service_values(reach, idle, rows, nodes, node_value))

    def latencies_of(self, service: int) -> list[tuple[float, float]]:
        """Return a service's latencies in ms and their probabilities."""
        services = self.problem.services
        return [(float(services.latency_ms[i]), weight) for i, weight in services.terms(service)]

    @cached_property
    def state_transitions(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        """P(next state | r), (S, K), and the charged excess, (K,), by service time in ms."""
        excess = self.charged_excess
        last = len(excess) - self.passages.idle_starts
        by_service = {}
        for latencies_ms, nodes, reach, idle in self.passages.blocks(_BLOCK_NUMBERS):
            rows = np.zeros((reach.shape[1], len(excess)))
            rows[:, nodes], rows[:, last:] = reach.T, idle.T
            transition = self.onto_states(rows).T
            beyond, services = excess[nodes] @ reach + excess[last:] @ idle, len(latencies_ms)
            for latency, matrix, more in zip(latencies_ms, np.split(transition, services, axis=1),
                                             np.split(beyond, services), strict=True):
                by_service[latency] = np.ascontiguousarray(matrix), more
        return by_service

    def next_states(self, service: int) -> tuple[FloatArray, FloatArray]:
        """Return the transitions (:attr:`state_transitions`) of one of the problem's services."""
        if service not in self._next_states:
            terms = [(weight, *self.state_transitions[latency])
                     for latency, weight in self.latencies_of(service)]
            weights, transition, excess = (np.array(part) for part in zip(*terms, strict=True))
            self._next_states[service] = (
                np.tensordot(weights, transition, axes=1), weights @ excess)
        return self._next_states[service]

    @cached_property
    def _next_states(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        return {}

    def passage(self, service: int) -> Passage:
        """Return the first passage of one of the problem's services."""
        if service not in self._passage_of:
            latencies_ms, weights = zip(*self.latencies_of(service), strict=True)
            self._passage_of[service] = self.passages.mixed(latencies_ms, weights)
        return self._passage_of[service]

    @cached_property
    def _passage_of(self) -> dict[int, Passage]:
        return {}

    @cached_property
    def choices(self) -> Choices:
        """Costs, rewards and service times of the actions in all states, as arrays."""
        return Choices.of(self.problem)

    @cached_property
    def costs(self) -> FloatArray:
        """Lowest cost of a decision for n = 1 … N+1; shape (N+1,)."""
        problem = self.problem
        return np.array([min(problem.cost(action.batch) for action in actions)
                         for actions in problem.actions.by_queue])

    def greedy(self, node_value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Back up every state, charging ``gain`` per unit of cost."""
        from ramsis.worker.structure._kernels import best_actions  # which takes long to load

        choices, codes = self.choices, self.problem.with_full_state(incumbent)
        emptied, next_slack = np.zeros(codes.shape[1]), np.zeros((0, 0, 0))
        if self.drops is not None:
            emptied = self.emptied_value(node_value)
            next_slack = self.drops.next_slack
        value, best, kept = best_actions(
            self.phase, self.service_values(node_value), choices.service,
            choices.reward - gain * choices.cost[:, :, None], choices.place_of(codes),
            choices.dropped - gain * choices.drop_cost[:, None], emptied, next_slack)
        change = value > kept + _ROUNDING * (1.0 + np.abs(value))
        return Backup(value, np.where(change, choices.code_at(best), codes)[:-1], kept)

    def emptied_value(self, node_value: FloatArray) -> FloatArray:
        """Return the value after a drop of the only request, for each bin."""
        assert self.drops is not None
        by_phase = node_value[-len(self.drops.emptied) :] @ self.drops.emptied
        return np.asarray(self.phase[0] @ by_phase)


def build_structured(
    problem: WorkerProblem, nodes: NodeKind = "auto", *, cells_per_slo: int = CELLS_PER_SLO
) -> StructuredMDP:
    """Build the structured form of a problem: nodes, first passages and transitions.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Gauss nodes in the slack bins: fast, the gain below capacity within about 1e-6 of exact
        at D = 100 and 60 workers, 1e-5 where many requests arrive in a cell. Or one node per bin
        and arrival count: exact for the rounded model. ``auto`` takes the first for orderly
        arrivals; batch arrivals need the second, as their first passages overshoot.
    cells_per_slo : int
        Refines the quadrature.
    """
    check_number_of("cells", cells_per_slo, where="cells_per_slo", most=_MOST_CELLS)
    node_set = _nodes(problem, nodes, cells_per_slo)
    starts = busy_period_start(problem)
    reached, continuation, excess, late = _continuation(problem, node_set, starts)
    passages = first_passages(problem, node_set, problem.services.latency_ms, starts)
    drops = None
    if problem.late is LateRule.DROP and not problem.batching.partial:
        longest = problem.max_queue + 1
        next_slack = problem.once("second slack", longest,
                                  lambda: second_slack_distribution(problem, longest))
        drops = DropTransitions(next_slack, starts.distribution.T)
    phase = problem.once("phase", problem.max_queue, lambda: phase_distribution(problem))
    return StructuredMDP(problem, node_set, phase, reached, continuation, excess, passages, drops,
                         late)


def _nodes(problem: WorkerProblem, kind: NodeKind, cells_per_slo: int) -> NodeSet:
    """Return slack nodes of a kind; refuse exact ones that would exceed memory."""
    if kind not in get_args(NodeKind):
        raise InvalidValueError("unknown kind of nodes", where="nodes", value=kind,
                                allowed="auto, quadrature or exact")
    exact = kind == "exact" or (kind == "auto" and not is_orderly(problem.arrivals))
    overdue = problem.late is LateRule.DROP
    nodes = (exact_nodes(problem, overdue=overdue) if exact
             else quadrature_nodes(problem, cells_per_slo, overdue=overdue))
    numbers = len(problem.services.latency_ms) * len(nodes) * problem.workers
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            "the problem is too large", where="worker problem",
            value=f"{len(nodes)} slack nodes for {problem.workers} workers",
            allowed="fewer workers, fewer models, a coarser grid or a lower load")
    return nodes


def _continuation(
    problem: WorkerProblem, nodes: NodeSet, starts: BusyPeriodStart
) -> tuple[tuple[IntArray, IntArray], csr_array[np.float64], FloatArray, AfterDrops | None]:
    """Return the transitions from slack nodes and busy-period starts to the next states.

    They are ``reached``, ``continuation``, ``excess`` and ``late`` of :class:`StructuredMDP`.
    """
    weights, excess = continuation_weights(problem, nodes)
    # Overdue nodes have no transitions of their own, but means of those of other nodes.
    late = np.flatnonzero(nodes.overdue)
    queue = QueueFound(weights[late], excess[late])
    weights[late], excess[late] = 0.0, 0.0
    node, column = np.nonzero(weights > NEGLIGIBLE)
    top, started = problem.max_queue, np.arange(len(starts.queued))
    row = np.minimum(starts.queued - 1, top)
    bins = np.where(column < top, nodes.bin[node], 0)
    # States (n − 1, j) as flat indices. A busy period starts at slack SLO, and the full state, the
    # last row, is at bin 0.
    flat = np.append(column * (problem.bins + 1) + bins,
                     row * (problem.bins + 1) + np.where(row < top, problem.bins, 0))
    states, index = np.unique(flat, return_inverse=True)
    entries = np.append(np.bincount(node, minlength=len(nodes)), np.ones_like(started))
    continuation = csr_array(
        (np.append(weights[node, column], np.ones(len(started))), index,
         np.append(0, np.cumsum(entries))),
        shape=(len(nodes) + len(started), len(states)),
    )
    excess = np.append(excess, np.maximum(starts.queued - top - 1.0, 0.0))
    after = after_drops(
        np.where(weights > NEGLIGIBLE, weights, 0.0), excess, late,
        phase_after_drops(problem, nodes),
        first_passage(problem, nodes, problem.slo_ms, starts), queue) if len(late) else None
    return np.divmod(states, problem.bins + 1), continuation, excess, after


@dataclass(frozen=True, eq=False)
class Choices:
    """Actions that serve, by queue length, in padded arrays."""

    problem: WorkerProblem
    # code, service: shape (N+1, A)
    code: IntArray
    service: IntArray
    cost: FloatArray  # shape (N+1, A)
    reward: FloatArray  # −inf at bins where the action is not admissible, shape (N+1, A, D+1)
    dropped: FloatArray  # reward of a drop; −inf where there is none, shape (N+1, D+1)
    drop_cost: FloatArray  # its cost, shape (N+1,)

    @classmethod
    def of(cls, problem: WorkerProblem) -> Choices:
        """Return the actions of a problem with maximal batching."""
        actions = problem.actions
        row, serves = actions.row, actions.code != DROP  # a drop is the last action of its state
        at = row[serves], (np.arange(len(row)) - actions.first[row])[serves]
        shape = (len(actions.by_queue), 1 + int(at[1].max(initial=0)))
        code, service = np.zeros((2, *shape), dtype=np.int64)
        cost, reward = np.zeros(shape), np.full((*shape, problem.bins + 1), -np.inf)
        dropped, drop_cost = np.full((shape[0], problem.bins + 1), -np.inf), np.zeros(shape[0])
        earned, costs = problem.rewards_and_costs(actions.arrays)
        earned = np.where(actions.admissible, earned, -np.inf)
        code[at], service[at] = actions.code[serves], actions.arrays.service[serves, 0]
        cost[at], reward[at] = costs[serves, 0], earned[serves]
        dropped[row[~serves]], drop_cost[row[~serves]] = earned[~serves], costs[~serves, 0]
        return cls(problem, code, service, cost, reward, dropped, drop_cost)

    def place_of(self, codes: IntArray) -> IntArray:
        """Return the place of the action with each state's code, (N+1, D+1); −1 for drops."""
        actions = self.problem.actions
        return np.where(codes < 0, -1, actions.index_of(codes) - actions.first[:, None])

    def code_at(self, place: IntArray) -> IntArray:
        """Return the action codes at indices by queue length; the inverse of :meth:`place_of`."""
        chosen = np.take_along_axis(self.code, np.maximum(place, 0), axis=1)
        return np.where(place < 0, DROP, chosen)
