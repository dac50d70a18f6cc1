"""The worker MDP with every transition written out: for inspection, teaching and other solvers.

For a service of l ms from state (n, j), with r the central arrivals missing to the worker's next
request, the next state (n', j') is reached when that request falls in the part (s, e] of the
service after which its slack lies in bin j', and (EuroSys '24, Eq. 2-3, read as below)

    P(n', j' | r) = Σ_a Σ_d Σ_k PF(a, s)·PF(d, e − s)·PF(k, l − e)
                    over a < r <= a + d,  n' = 1 + ⌊(a + d + k − r)/K⌋.

Fewer than r arrivals in l lead to the empty state, counted once; where requests come in clumps,
straight to the state (n', SLO) that ends the empty epoch (:mod:`ramsis.worker.batch_arrivals`).
Bin 0 takes all slack below T_1, negative slack too; n' > N is the full state. Nothing here uses
the slack nodes of the structured form, so that the two can be held against each other.

The full state is charged N + 1 requests; what it holds beyond them is charged to the decision
that led there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.special import betainc

from ramsis.arrivals import is_orderly
from ramsis.arrivals.counts import counts_cdf, counts_support
from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.sparse import SparseMDP
from ramsis.worker._kernels import four_intervals
from ramsis.worker.actions import Batching
from ramsis.worker.batch_arrivals import Landing, landing
from ramsis.worker.behind import second_by_bin
from ramsis.worker.explicit_parts import PartRows
from ramsis.worker.phases import missing_arrivals
from ramsis.worker.problem import Objective, WorkerProblem

__all__ = ["MAX_CELLS", "ExplicitWorkerMDP", "build_explicit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_CELLS = 5_000_000_000
"""Most pairs × states of a problem that is written out in full; about 1 in 100 is not zero."""
_NEGLIGIBLE = 1e-17


@dataclass(frozen=True, eq=False)
class ExplicitWorkerMDP:
    """A worker problem as a sparse MDP.

    State 0 is the empty one, state 1 + (n−1)·(D+1) + j is (n, j), the last one is the full
    state. An action's label is its entry in a policy's table; the empty state's only action
    has label 0 and costs nothing.

    Attributes
    ----------
    problem : WorkerProblem
    mdp : SparseMDP
    excess : ndarray, shape (L,)
        E[(n' − N − 1)⁺] of each pair: requests of the full state beyond N + 1.
    """

    problem: WorkerProblem
    mdp: SparseMDP
    excess: FloatArray

    def index(self, queued: int, slack_bin: int) -> int:
        """State of n = ``queued`` >= 1 at bin j; n > N is the full state."""
        if queued > self.problem.max_queue:
            return self.mdp.n_states - 1
        return 1 + (queued - 1) * (self.problem.bins + 1) + slack_bin

    def labels(self, policy: IntArray) -> IntArray:
        """Action labels of all states for a table of shape (N, D+1)."""
        full = self.problem.choices.rows[-1][0].code
        return np.concatenate([[0], np.asarray(policy).ravel(), [full]])

    def table(self, labels: IntArray) -> IntArray:
        """The table of shape (N, D+1) of action labels of all states."""
        return np.asarray(labels)[1:-1].reshape(self.problem.max_queue, -1)

    def by_queue_and_bin(self, state_values: FloatArray) -> FloatArray:
        """Values of states as an array (N+1, D+1), the full state at the start of the last row."""
        rows = np.zeros((self.problem.max_queue + 1, self.problem.bins + 1))
        rows[:-1] = np.asarray(state_values)[1:-1].reshape(self.problem.max_queue, -1)
        rows[-1, 0] = state_values[-1]
        return rows


def build_explicit(problem: WorkerProblem) -> ExplicitWorkerMDP:
    """Write out every transition of a worker problem.

    Rows of some dozen to some hundred entries for states × admissible models: 4 MB for nine
    models at N = 32, D = 100 and 60 workers, in about a second.

    Raises
    ------
    InvalidValueError
        When the problem is too large for that (:data:`MAX_CELLS`).
    """
    _check_size(problem)
    missing, after, ends = missing_arrivals(problem), _counts_after(problem), landing(problem)
    columns, full = problem.bins + 1, problem.max_queue
    states, actions, rewards, costs, beyond, rows = [], [], [], [], [], []
    laws = _ServiceLaws(problem, after, ends)
    parts = PartRows(problem, missing) if problem.batching is Batching.VARIABLE else None
    for n, choices in enumerate(problem.choices.rows):
        for choice in choices:
            bins = np.arange(columns)[choice.bins] if n < full else np.array([0])
            if parts is not None and choice.batch <= n and not choice.drops:
                row, excess = parts.of(n, bins, choice)
            else:
                if choice.drops:
                    probability, excess = _drop_law(problem, n, bins, missing, ends)
                else:
                    law, beyond_law = laws.of(choice.service)
                    probability, excess = missing[n, bins] @ law, missing[n, bins] @ beyond_law
                probability[probability < _NEGLIGIBLE] = 0.0
                row = csr_array(probability)
            rows.append(row)
            states.append(1 + n * columns + bins)
            actions.append(np.full(len(bins), choice.code))
            rewards.append(problem.reward(choice)[: len(bins)])
            costs.append(np.full(len(bins), problem.cost(choice.batch)))
            beyond.append(excess)
    empty = csr_array(([1.0], ([0], [1 + problem.bins])), shape=(1, rows[0].shape[1]))
    state = np.concatenate([[0], *states])
    action = np.concatenate([[0], *actions])
    excess = np.concatenate([[0.0], *beyond])
    charged = excess if problem.objective is Objective.PER_QUERY else np.zeros_like(excess)
    price = problem.violation_price
    order = np.lexsort((action, state))
    mdp = SparseMDP(
        state=state[order],
        action=action[order],
        transition=csr_array(vstack([empty, *rows], format="csr"))[order],
        reward=(np.concatenate([[0.0], *rewards]) - price * charged)[order],
        cost=(np.concatenate([[0.0], *costs]) + charged)[order],
    )
    return ExplicitWorkerMDP(problem, mdp, excess[order])


def _check_size(problem: WorkerProblem) -> None:
    """Refuse what would take hours and fill the memory."""
    columns = problem.bins + 1
    pairs = sum(c.stop_bin - c.first_bin for row in problem.choices.rows for c in row)
    states = 2 + problem.max_queue * columns
    if pairs * states > MAX_CELLS:
        raise InvalidValueError(
            describe("the problem is too large to be written out in full", where="worker problem",
                     value=f"{pairs} state-action pairs, {states} states",
                     allowed=f"pairs times states up to {MAX_CELLS:.0e}")
        )


def _drop_law(
    problem: WorkerProblem, n: int, bins: IntArray, missing: FloatArray, ends: Landing
) -> tuple[FloatArray, FloatArray]:
    """Law of the next state when the earliest of n + 1 requests is dropped; and no excess.

    Given k central Poisson arrivals in T_A, the K-th of them falls at a share of T_A with the law
    Beta(K, k − K + 1).
    """
    columns, workers = problem.bins + 1, problem.workers
    law = np.zeros((len(bins), 2 + problem.max_queue * columns))
    if n == 0:
        after = missing[0, bins] @ ends.law
        for queued, probability in zip(ends.queued.tolist(), after.T, strict=True):
            law[:, -1 if queued > problem.max_queue else queued * columns] += probability
        if len(ends.queued) == 1:
            law[:, 0], law[:, columns] = 1.0, 0.0
        return law, after @ np.maximum(ends.queued - problem.max_queue - 1.0, 0.0)
    start = 1 + (n - 1) * columns
    if not is_orderly(problem.arrivals):
        second = second_by_bin(problem.arrivals, workers, problem.slack_ms, n + 1)
        law[:, start : start + columns] = second[n, bins]
        return law, np.zeros(len(bins))
    k = n * workers + np.arange(workers)
    for row, j in enumerate(bins.tolist()):
        waited = problem.slo_ms - problem.slack_ms[j]
        if waited == 0.0:
            law[row, start + j] = 1.0
            continue
        weight = missing[n, j, ::-1]  # of k, as r = K − (k mod K)
        some = weight > _NEGLIGIBLE
        share = (problem.slack_ms[j:] - problem.slack_ms[j]) / waited
        upto = betainc(workers, k[some, None] - workers + 1.0, np.minimum(share, 1.0))
        law[row, start + j : start + columns - 1] = np.diff(weight[some] @ upto)
    return law, np.zeros(len(bins))


def _counts_after(problem: WorkerProblem) -> list[FloatArray]:
    """P(at most k arrivals in SLO − T_{j+1}) for each bin j."""
    arrivals = problem.arrivals
    rest = problem.slo_ms - problem.slack_ms[1:]
    return [
        counts_cdf(arrivals, rest[j : j + 1], counts_support(arrivals, float(rest[j])))[0]
        for j in range(problem.bins)
    ]


class _ServiceLaws:
    """Laws of the next state for the problem's services, each made once where it is shared."""

    def __init__(self, problem: WorkerProblem, after: list[FloatArray], ends: Landing) -> None:
        self.problem, self.after, self.ends = problem, after, ends
        self.known: dict[int, tuple[csr_array[np.float64], FloatArray]] = {}

    def of(self, service: int) -> tuple[FloatArray, FloatArray]:
        """Law of the next state given r, shape (K, S), and the excess, shape (K,)."""
        services = self.problem.services
        part = slice(services.mix.indptr[service], services.mix.indptr[service + 1])
        law, excess = None, np.zeros(self.problem.workers)
        for place, weight in zip(services.mix.indices[part].tolist(),
                                 services.mix.data[part].tolist(), strict=True):
            one, beyond = self._at(place)
            law = weight * one if law is None else law + weight * one
            excess += weight * beyond
        assert law is not None
        return law.toarray(), excess

    def _at(self, place: int) -> tuple[csr_array[np.float64], FloatArray]:
        if place not in self.known:
            latency_ms = float(self.problem.services.latency_ms[place])
            law, excess = _service_law(self.problem, latency_ms, self.after, self.ends)
            self.known[place] = csr_array(law), excess
        return self.known[place]


def _service_law(
    problem: WorkerProblem, latency_ms: float, after: list[FloatArray], ends: Landing
) -> tuple[FloatArray, FloatArray]:
    """Law of the next state given r, shape (K, S), and the excess, shape (K,), for one latency."""
    arrivals, workers = problem.arrivals, problem.workers
    columns = problem.bins + 1
    by_bin = np.zeros((columns, workers, problem.max_queue + 1))
    excess = np.zeros(workers)
    order = np.arange(workers)
    for j in range(problem.bins):
        end = latency_ms - (problem.slo_ms - float(problem.slack_ms[j + 1]))
        if end <= 0:
            continue
        start = latency_ms - (problem.slo_ms - float(problem.slack_ms[j])) if j else 0.0
        start = max(start, 0.0)
        before = np.exp(arrivals.log_pf(order, np.array([start])))
        size = counts_support(arrivals, end - start) + 1
        within = np.exp(arrivals.log_pf(np.arange(size), np.array([end - start])))
        four_intervals(before, within, after[j], by_bin[j], excess)
    law = np.empty((workers, 2 + problem.max_queue * columns))
    before = np.exp(arrivals.log_pf(order, np.array([latency_ms])))
    landed = ends.after(before)
    law[:, 1:-1] = by_bin[:, :, :-1].transpose(1, 2, 0).reshape(workers, -1)
    law[:, -1] = by_bin[:, :, -1].sum(axis=0)
    law[:, 0] = landed[0] if len(landed) == 1 else 0.0
    if len(landed) > 1:
        for queued, probability in zip(ends.queued.tolist(), landed, strict=True):
            law[:, -1 if queued > problem.max_queue else queued * columns] += probability
            excess += max(0, queued - problem.max_queue - 1) * probability
    return law, excess
