"""The structured form under Markov-modulated Poisson arrivals, with the hidden mode in the states.

A state is (n, T_j, z): z is the mode, quiet or burst, at the decision. It stands in column
2j + z of every array, and the problem's slack grid holds each slack twice, so that the structured
form and its solvers apply as they are. A table that does not depend on z is a policy whose columns
come in equal pairs; one that does knows more than a worker can.

- *First passage.* Uniformised at a rate η, the mode and the arrivals are events of a Poisson
  process of rate η. Let B(k, m) be the probabilities of k arrivals among m events, and of the mode
  after them. The worker's next request is event m + 1 and meets mode z' with probability
  B(r − 1, m)·Λ/η, so the passage is a mixture of those of the events.
- *Start of a busy period.* The jump chain of the modes at arrivals gives the mode at the r-th
  arrival, ((Λ − Q)⁻¹Λ)^r; what does not pass within the service starts a busy period.
- *Continuation.* From a node, the joint distribution of the count and the mode at the end of the
  service.
- *Phase.* Weights P(k, z | T_A) from a mode as arrivals find it, scaled to add up to 1 given n and
  z. This is approximate: what else the state tells of the mode at the arrival of the head is not
  used.
- *Drop.* The next head came as under Poisson arrivals of the same number, whatever the mode. This
  is approximate too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Poisson
from ramsis.arrivals.counts import counts_support
from ramsis.errors import InvalidValueError
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import LateRule
from ramsis.worker.problem.modes import MODES, ModulatedProcess
from ramsis.worker.problem.round_robin_phase import phase_distribution_by_mode
from ramsis.worker.problem.waiting_slack import second_slack_distribution
from ramsis.worker.structure.evaluation import NodeEvaluation, StateFrequency, state_frequency
from ramsis.worker.structure.first_passage import Passage, Passages, quadrature_passage
from ramsis.worker.structure.overdue import Continuation, QueueFound, after_drops
from ramsis.worker.structure.slack_nodes import CELLS_PER_SLO, NodeSet, quadrature_nodes
from ramsis.worker.structure.structured import DropTransitions, StructuredMDP

_NEGLIGIBLE = 1e-15
_MOST_EVENTS = 20_000  # of the uniformised process, within a service
_MOST_NUMBERS = 100_000_000  # kept for them


def repeat_modes(table: IntArray) -> IntArray:
    """The table (N, D+1) as a policy of the augmented problem, (N, 2(D+1))."""
    return np.repeat(table, MODES, axis=1)


def table_frequency(mdp: StructuredMDP, evaluation: NodeEvaluation) -> StateFrequency:
    """The frequencies of the states (n, T_j) of a table, summed over the modes."""
    frequency = state_frequency(mdp, evaluation)
    by_slack = np.add.reduceat(
        frequency.frequency, np.arange(0, frequency.frequency.shape[1], MODES), axis=1)
    return StateFrequency(by_slack, frequency.excess)


def build_modulated(
    problem: WorkerProblem, arrivals: ModulatedProcess, *, cells_per_slo: int = CELLS_PER_SLO
) -> StructuredMDP:
    """The structured form of ``problem`` with the mode in its states.

    Returns
    -------
    StructuredMDP
        Its ``problem`` is augmented: slack T_j stands in the columns 2j and 2j + 1. Arrays over
        r = 1 … K are over (z, r) here, and nodes are (node, z').
    """
    events = _Events.of(arrivals, problem.workers, float(problem.services.latency_ms[-1]))
    nodes = quadrature_nodes(problem, cells_per_slo, overdue=problem.late is LateRule.DROP)
    onward = _continuation(problem, arrivals, nodes, events)
    passages = Passages.of({float(latency): events.passage(nodes, float(latency))
                            for latency in problem.services.latency_ms})
    augmented = dataclasses.replace(problem, slack_ms=np.repeat(problem.slack_ms, MODES))
    pairs = NodeSet(np.repeat(nodes.bin, MODES), np.repeat(nodes.remaining_ms, MODES),
                    np.repeat(nodes.offset, MODES), nodes.cells)
    drops = _drops(problem, events) if problem.late is LateRule.DROP else None
    return StructuredMDP(augmented, pairs, _phase(problem, arrivals), onward.reached,
                         onward.transition, onward.excess, passages,
                         passages.truncated_mass, drops, onward.late)


def _drops(problem: WorkerProblem, events: _Events) -> DropTransitions:
    """Where drops lead; they take no time, so the mode stays."""
    second = second_slack_distribution(problem, problem.max_queue + 1)
    length, bins, _ = second.shape
    next_slack = np.zeros((length, bins, MODES, bins, MODES))
    for z in range(MODES):
        next_slack[:, :, z, :, z] = second
    return DropTransitions(next_slack.reshape(length, bins * MODES, bins * MODES),
                           events.ever.reshape(MODES, -1))


@dataclasses.dataclass(frozen=True, eq=False)
class _Events:
    """The uniformised process."""

    process: Poisson  # the events
    # shape (M, 2, 2, K): P(event m + 1 is the r-th arrival, and meets z' | z), indexed [m, z',
    # z, r − 1]
    is_rth: FloatArray
    ever: FloatArray  # shape (2, 2, K): P(the r-th arrival meets z' | z), indexed [z', z, r − 1]

    @classmethod
    def of(cls, arrivals: ModulatedProcess, workers: int, longest_ms: float) -> _Events:
        """All events that matter within ``longest_ms``."""
        eta = float((arrivals.rates - np.diag(arrivals.generator)).max())
        process = Poisson(1000.0 * eta)
        events = eta * longest_ms
        if events > _MOST_EVENTS or events * MODES**2 * workers > _MOST_NUMBERS:
            raise InvalidValueError(
                "arrivals or modes change too often for the model", where="arrivals mmpp",
                value=f"{events:.3g} events in {longest_ms:.3g} ms",
                allowed=f"at most {_MOST_EVENTS}: longer bursts, a lower load or fewer "
                "workers")
        most = counts_support(process, longest_ms)
        arrive = np.diag(arrivals.rates) / eta
        other = np.eye(MODES) + arrivals.generator / eta - arrive
        count = np.zeros((workers, MODES, MODES))  # B(k, m), k < K
        count[0] = np.eye(MODES)
        is_rth = np.empty((most, MODES, MODES, workers))
        for m in range(most):
            is_rth[m] = (count @ arrive).transpose(2, 1, 0)
            step = count @ other
            step[1:] += count[:-1] @ arrive
            count = step
        jump = np.linalg.solve(np.diag(arrivals.rates) - arrivals.generator,
                               np.diag(arrivals.rates))
        powers = [jump]
        for _ in range(workers - 1):
            powers.append(powers[-1] @ jump)
        return cls(process, is_rth, np.array(powers).transpose(2, 1, 0))

    def passage(self, nodes: NodeSet, latency_ms: float) -> Passage:
        """First passage for a service of ``latency_ms``."""
        assert nodes.cells is not None
        used = min(len(self.is_rth), counts_support(self.process, latency_ms))
        _, reach = quadrature_passage(self.process, used, nodes, nodes.cells, latency_ms)
        size, workers = len(reach), self.is_rth.shape[-1]
        passed = (reach @ self.is_rth[:used].reshape(used, -1)).reshape(size, MODES, -1)
        idle = self.ever.reshape(MODES, -1) - passed.sum(axis=0)
        return Passage(passed.reshape(size * MODES, MODES * workers), np.maximum(idle, 0.0))


def _phase(problem: WorkerProblem, arrivals: ModulatedProcess) -> FloatArray:
    """The same as (N+1, 2(D+1), 2K), over (z, r), with zeros where the mode is another."""
    by_mode = phase_distribution_by_mode(problem, arrivals)
    bins, _, lengths, workers = by_mode.shape
    phase = np.zeros((lengths, bins, MODES, MODES, workers))
    for z in range(MODES):
        phase[:, :, z, z] = by_mode[:, z].transpose(1, 0, 2)
    return phase.reshape(lengths, bins * MODES, MODES * workers)


def _continuation(
    problem: WorkerProblem, arrivals: ModulatedProcess, nodes: NodeSet, events: _Events
) -> Continuation:
    """As of the structured form, from (node, z') to (n', j', z'')."""
    top, columns = problem.max_queue, MODES * (problem.bins + 1)
    queued, excess = _queue_distribution(problem, arrivals, nodes)
    late = nodes.overdue
    found = QueueFound(queued[late].sum(axis=2).reshape(-1, top + 1), excess[late].ravel())
    queued[late], excess[late] = 0.0, 0.0
    node, mode, end, row = np.nonzero(queued > _NEGLIGIBLE)
    bins = np.where(row < top, nodes.bin[node], 0)
    started = np.arange(MODES)
    flat = np.append(row * columns + MODES * bins + end, MODES * problem.bins + started)
    states, index = np.unique(flat, return_inverse=True)
    size = len(nodes) * MODES
    matrix = csr_array(
        (np.append(queued[node, mode, end, row], np.ones(MODES)),
         (np.append(MODES * node + mode, size + started), index)),
        shape=(size + MODES, len(states)),
    )
    known = Continuation(np.divmod(states, columns), matrix,
                         np.append(excess.ravel(), np.zeros(MODES)))
    if not late.any():
        return known
    return after_drops(known, np.flatnonzero(np.repeat(late, MODES)),
                       _phase_after_drops(problem, arrivals, nodes),
                       events.passage(nodes, problem.slo_ms), found)


def _phase_after_drops(
    problem: WorkerProblem, arrivals: ModulatedProcess, nodes: NodeSet
) -> FloatArray:
    """P(mode, r' | node, z') once the overdue requests are dropped; shape (2J, 2K)."""
    lost_ms = nodes.remaining_ms[nodes.overdue] - problem.slo_ms
    busiest = Poisson(1000.0 * float(arrivals.rates[-1]))
    count = np.arange(counts_support(busiest, float(lost_ms.max())) + 1)
    joint = arrivals.joint_pf(count, lost_ms)
    becomes = np.eye(problem.workers)[problem.workers - 1 - count % problem.workers]
    return np.asarray(joint @ becomes).reshape(len(lost_ms) * MODES, -1)


def _queue_distribution(
    problem: WorkerProblem, arrivals: ModulatedProcess, nodes: NodeSet
) -> tuple[FloatArray, FloatArray]:
    """P(n', z'' | node, z'), shape (I, 2, 2, N+1), and E[(n' − N − 1)⁺], shape (I, 2)."""
    top, workers = problem.max_queue, problem.workers
    x = nodes.remaining_ms
    highest = Poisson(1000.0 * float(arrivals.rates[-1]))
    most = max(top + 1, counts_support(highest, float(x[-1])) // workers + 1)
    upto = arrivals.joint_cdf(np.arange(1, most + 1) * workers - 1, x)
    decay = np.exp(-sum(arrivals.switches) * x)[:, None, None]
    always = arrivals.stationary + decay * (np.eye(MODES) - arrivals.stationary)
    listed = np.diff(upto[..., :top], axis=-1, prepend=0.0)
    full = always[..., None] - upto[..., top - 1 : top]
    beyond = np.maximum(always[..., None] - upto[..., top:], 0.0).sum(axis=(2, 3))
    return np.maximum(np.concatenate([listed, full], axis=-1), 0.0), beyond
