"""The structured worker MDP under Markov-modulated Poisson arrivals, with the hidden mode in it.

A state is (n, T_j, z): z is the mode, quiet or burst, at the decision. It stands in column
2j + z of every array, and the problem's slack grid holds each slack twice, so that the structured
form and its solvers apply as they are. A table that does not look at z is a policy whose columns
come in equal pairs; one that does knows more than a worker can.

- *First passage.* Uniformised at a rate η, the mode and the arrivals are events of a Poisson
  process of rate η: with B(k, m) the law of k arrivals among m events and of the mode after them,
  the worker's next request is event m + 1 and meets mode z' with the weight
  B(r − 1, m)·Λ/η. So the passage is a mixture of those of the events.
- *Landing.* The jump chain of the modes seen by arrivals gives the mode at the r-th arrival,
  ((Λ − Q)⁻¹Λ)^r; what has not passed within the service ends the empty epoch.
- *Continuation.* From a node the joint law of the count and the mode at the end of the service.
- *Phase.* Weights P(k, z | T_A) from a mode as arrivals find it, scaled to sum to 1 given n and
  z. This alone is approximate: what else the state says of the mode at the earliest request's
  arrival is not used.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramsis.arrivals import MarkovModulated, Poisson
from ramsis.arrivals.counts import counts_support
from ramsis.errors import InvalidValueError, describe
from ramsis.worker.nodes import CELLS_PER_SLO, NodeSet, quadrature_nodes
from ramsis.worker.passage import Passage, quadrature_passage
from ramsis.worker.phases import scaled_phases
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.structured import StructuredMDP

__all__ = ["MODES", "build_modulated", "every_mode", "phases_by_mode"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MODES = 2
_NEGLIGIBLE = 1e-15
_MOST_EVENTS = 20_000  # of the uniformised process, within a service
_MOST_NUMBERS = 100_000_000  # kept for them


def every_mode(table: NDArray[np.int64]) -> IntArray:
    """The table (N, D+1) as a policy of the augmented problem, (N, 2(D+1))."""
    return np.repeat(table, MODES, axis=1)


def build_modulated(
    problem: WorkerProblem, arrivals: MarkovModulated, *, cells_per_slo: int = CELLS_PER_SLO
) -> StructuredMDP:
    """The structured form of ``problem`` with the mode in its states.

    Returns
    -------
    StructuredMDP
        Its ``problem`` is augmented: slack T_j stands in the columns 2j and 2j + 1. Arrays over
        r = 1 … K are over (z, r) here, and nodes are (node, z').

    Raises
    ------
    InvalidValueError
        When modes or arrivals change so often that the passages would fill the memory.
    """
    events = _Events.of(arrivals, problem.workers, float(problem.services.latency_ms[-1]))
    nodes = quadrature_nodes(problem, cells_per_slo)
    reached, continuation, excess = _continuation(problem, arrivals, nodes)
    passages = {
        float(latency): events.passage(nodes, float(latency))
        for latency in problem.services.latency_ms
    }
    lost = max(
        float(np.abs(1.0 - p.reach.sum(axis=0) - p.none).max()) for p in passages.values()
    )
    augmented = dataclasses.replace(problem, slack_ms=np.repeat(problem.slack_ms, MODES))
    pairs = NodeSet(np.repeat(nodes.bin, MODES), np.repeat(nodes.remaining_ms, MODES),
                    np.repeat(nodes.offset, MODES), nodes.cells)
    return StructuredMDP(augmented, pairs, _missing(problem, arrivals), reached, continuation,
                         excess, passages, lost)


@dataclasses.dataclass(frozen=True, eq=False)
class _Events:
    """The uniformised process.

    Attributes
    ----------
    process : Poisson
        The events.
    is_rth : ndarray, shape (M, 2, 2, K)
        P(event m + 1 is the r-th arrival, and meets z' | z), indexed [m, z', z, r − 1].
    ever : ndarray, shape (2, 2, K)
        P(the r-th arrival meets z' | z), indexed [z', z, r − 1].
    """

    process: Poisson
    is_rth: FloatArray
    ever: FloatArray

    @classmethod
    def of(cls, arrivals: MarkovModulated, workers: int, longest_ms: float) -> _Events:
        """All events that matter within ``longest_ms``."""
        eta = float((arrivals.rates - np.diag(arrivals.generator)).max())
        process = Poisson(1000.0 * eta)
        events = eta * longest_ms
        if events > _MOST_EVENTS or events * MODES**2 * workers > _MOST_NUMBERS:
            raise InvalidValueError(
                describe("arrivals or modes change too often for the model", where="arrivals mmpp",
                         value=f"{events:.3g} events in {longest_ms:.3g} ms",
                         allowed=f"at most {_MOST_EVENTS}: longer bursts, a lower load or fewer "
                                 "workers")
            )
        most = counts_support(process, longest_ms)
        arrive = np.diag(arrivals.rates) / eta
        other = np.eye(MODES) + arrivals.generator / eta - arrive
        law = np.zeros((workers, MODES, MODES))  # B(k, m), k < K
        law[0] = np.eye(MODES)
        is_rth = np.empty((most, MODES, MODES, workers))
        for m in range(most):
            is_rth[m] = (law @ arrive).transpose(2, 1, 0)
            step = law @ other
            step[1:] += law[:-1] @ arrive
            law = step
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
        law = (reach @ self.is_rth[:used].reshape(used, -1)).reshape(size, MODES, -1)
        landing = self.ever.reshape(MODES, -1) - law.sum(axis=0)
        return Passage(law.reshape(size * MODES, MODES * workers), np.maximum(landing, 0.0))


def phases_by_mode(problem: WorkerProblem, arrivals: MarkovModulated) -> FloatArray:
    """Law of r in the state (n, j, z); shape (D+1, 2, N+1, K), indexed [j, z, n − 1, r − 1]."""
    workers, rows = problem.workers, problem.max_queue + 1
    waited_ms = problem.slo_ms - problem.slack_ms
    joint = arrivals.joint_pf(np.arange(rows * workers), waited_ms)
    weight = np.einsum("z,jzyk->jyk", arrivals.at_arrivals, joint)
    return scaled_phases(weight.reshape(len(waited_ms), MODES, rows, workers))


def _missing(problem: WorkerProblem, arrivals: MarkovModulated) -> FloatArray:
    """The same as (N+1, 2(D+1), 2K), over (z, r), with zeros where the mode is another."""
    law = phases_by_mode(problem, arrivals)
    bins, _, rows, workers = law.shape
    missing = np.zeros((rows, bins, MODES, MODES, workers))
    for z in range(MODES):
        missing[:, :, z, z] = law[:, z].transpose(1, 0, 2)
    return missing.reshape(rows, bins * MODES, MODES * workers)


def _continuation(
    problem: WorkerProblem, arrivals: MarkovModulated, nodes: NodeSet
) -> tuple[tuple[IntArray, IntArray], csr_array[np.float64], FloatArray]:
    """As of the structured form, from (node, z') to (n', j', z'')."""
    top, columns = problem.max_queue, MODES * (problem.bins + 1)
    law, excess = _queue_laws(problem, arrivals, nodes)
    node, mode, end, row = np.nonzero(law > _NEGLIGIBLE)
    bins = np.where(row < top, nodes.bin[node], 0)
    landed = np.arange(MODES)
    flat = np.append(row * columns + MODES * bins + end, MODES * problem.bins + landed)
    states, index = np.unique(flat, return_inverse=True)
    size = len(nodes) * MODES
    matrix = csr_array(
        (np.append(law[node, mode, end, row], np.ones(MODES)),
         (np.append(MODES * node + mode, size + landed), index)),
        shape=(size + MODES, len(states)),
    )
    return np.divmod(states, columns), matrix, np.append(excess.ravel(), np.zeros(MODES))


def _queue_laws(
    problem: WorkerProblem, arrivals: MarkovModulated, nodes: NodeSet
) -> tuple[FloatArray, FloatArray]:
    """P(n', z'' | node, z'), shape (I, 2, 2, N+1), and E[(n' − N − 1)⁺], shape (I, 2)."""
    top, workers = problem.max_queue, problem.workers
    x = nodes.remaining_ms
    highest = Poisson(1000.0 * float(arrivals.rates[-1]))
    most = max(top + 1, counts_support(highest, float(x[-1])) // workers + 1)
    upto = arrivals.joint_cdf(np.arange(1, most + 1) * workers - 1, x)
    decay = np.exp(-sum(arrivals.switches) * x)[:, None, None]
    always = arrivals.stationary + decay * (np.eye(MODES) - arrivals.stationary)
    law = np.diff(upto[..., :top], axis=-1, prepend=0.0)
    full = always[..., None] - upto[..., top - 1 : top]
    beyond = np.maximum(always[..., None] - upto[..., top:], 0.0).sum(axis=(2, 3))
    return np.maximum(np.concatenate([law, full], axis=-1), 0.0), beyond
