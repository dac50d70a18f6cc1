"""The worker MDP with every transition written out: for inspection, teaching and other solvers.

For a service of l ms from state (n, j), with r the central arrivals missing to the worker's next
request, the next state (n', j') is reached when that request falls in the part (s, e] of the
service after which its slack lies in bin j', and (EuroSys '24, Eq. 2-3, read as below)

    P(n', j' | r) = Σ_a Σ_d Σ_k PF(a, s)·PF(d, e − s)·PF(k, l − e)
                    over a < r <= a + d,  n' = 1 + ⌊(a + d + k − r)/K⌋.

Fewer than r arrivals in l lead to the empty state, counted once. Bin 0 takes all slack below T_1,
negative slack too; n' > N is the full state. Nothing here uses the slack nodes of the structured
form, so that the two can be held against each other.

The full state is charged N + 1 requests; what it holds beyond them is charged to the decision
that led there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ramsis.arrivals.counts import counts_cdf, counts_support
from ramsis.mdp._kernels import four_intervals
from ramsis.mdp.phases import missing_arrivals
from ramsis.mdp.problem import Objective, WorkerProblem
from ramsis.mdp.sparse import SparseMDP

__all__ = ["ExplicitWorkerMDP", "build_explicit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NEGLIGIBLE = 1e-17


@dataclass(frozen=True, eq=False)
class ExplicitWorkerMDP:
    """A worker problem as a sparse MDP.

    State 0 is the empty one, state 1 + (n−1)·(D+1) + j is (n, j), the last one is the full
    state. An action's label is its model; the empty state's only action has label 0 and costs
    nothing.

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
        fastest = self.problem.latency.fastest
        return np.concatenate([[0], np.asarray(policy).ravel(), [fastest]])

    def table(self, labels: IntArray) -> IntArray:
        """The table of shape (N, D+1) of action labels of all states."""
        return np.asarray(labels)[1:-1].reshape(self.problem.max_queue, -1)

    def by_queue_and_bin(self, state_values: FloatArray) -> FloatArray:
        """Values of states as an array (N+1, D+1), the full state at the start of the last row."""
        rows = np.zeros((self.problem.max_queue + 1, self.problem.bins + 1))
        rows[:-1] = np.asarray(state_values)[1:-1].reshape(self.problem.max_queue, -1)
        rows[-1, 0] = state_values[-1]
        return rows


@dataclass(frozen=True, eq=False)
class _Service:
    """Law of the next state given r, for one latency."""

    law: FloatArray  # (K, 1 + N·(D+1) + 1): states as in ExplicitWorkerMDP
    excess: FloatArray  # (K,)


class _Services:
    """The laws of all latencies, each made when first asked for."""

    def __init__(self, problem: WorkerProblem) -> None:
        self._problem = problem
        self._known: dict[float, _Service] = {}

    @cached_property
    def _after(self) -> list[FloatArray]:
        """P(at most k arrivals in SLO − T_{j+1}) for each bin j."""
        problem = self._problem
        rest = problem.slo_ms - problem.slack_ms[1:]
        arrivals = problem.arrivals
        return [
            counts_cdf(arrivals, rest[j : j + 1], counts_support(arrivals, float(rest[j])))[0]
            for j in range(problem.bins)
        ]

    def __getitem__(self, latency_ms: float) -> _Service:
        if latency_ms not in self._known:
            self._known[latency_ms] = self._make(latency_ms)
        return self._known[latency_ms]

    def _make(self, latency_ms: float) -> _Service:
        problem, arrivals, workers = self._problem, self._problem.arrivals, self._problem.workers
        rows, columns = problem.max_queue + 1, problem.bins + 1
        by_bin = np.zeros((columns, workers, rows))
        excess = np.zeros(workers)
        order = np.arange(workers)
        for j in range(problem.bins):
            end = latency_ms - (problem.slo_ms - float(problem.slack_ms[j + 1]))
            start = latency_ms - (problem.slo_ms - float(problem.slack_ms[j])) if j else 0.0
            start = max(start, 0.0)
            if end <= 0:
                continue
            before = np.exp(arrivals.log_pf(order, np.array([start])))
            size = counts_support(arrivals, end - start) + 1
            within = np.exp(arrivals.log_pf(np.arange(size), np.array([end - start])))
            four_intervals(before, within, self._after[j], by_bin[j], excess)
        law = np.empty((workers, 2 + problem.max_queue * columns))
        law[:, 0] = np.cumsum(np.exp(arrivals.log_pf(order, np.array([latency_ms]))))
        law[:, 1:-1] = by_bin[:, :, :-1].transpose(1, 2, 0).reshape(workers, -1)
        law[:, -1] = by_bin[:, :, -1].sum(axis=0)
        return _Service(law, excess)


def build_explicit(problem: WorkerProblem) -> ExplicitWorkerMDP:
    """Write out every transition of a worker problem.

    Rows of some hundred entries each for states × admissible models: about 30 MB for nine
    models at N = 32, D = 100.
    """
    missing, services = missing_arrivals(problem), _Services(problem)
    rows: list[csr_array[np.float64]] = []
    states: list[int] = []
    actions: list[int] = []
    rewards: list[float] = []
    costs: list[float] = []
    excess: list[FloatArray] = []
    columns, full = problem.bins + 1, problem.max_queue

    def add(n: int, bins: IntArray, model: int, reward: float) -> None:
        service = services[float(problem.latency.latency_ms[model, n])]
        law = missing[n, bins] @ service.law
        law[law < _NEGLIGIBLE] = 0.0
        rows.append(csr_array(law))
        states.extend((1 + n * columns + bins).tolist())
        actions.extend([model] * len(bins))
        rewards.extend([reward] * len(bins))
        costs.extend([problem.cost(n + 1)] * len(bins))
        excess.append(missing[n, bins] @ service.excess)

    for n in range(full + 1):
        choices = problem.choices[n] if n < full else ()
        first = min((c.first_bin for c in choices), default=columns)
        late = np.arange(first) if n < full else np.array([0])
        if len(late):
            add(n, late, problem.latency.fastest, 0.0)
        for choice in choices:
            add(n, np.arange(choice.first_bin, columns), choice.model,
                problem.reward(n + 1, choice.model))
    empty = csr_array(([1.0], ([0], [1 + problem.bins])), shape=(1, rows[0].shape[1]))
    beyond = np.concatenate([*excess, [0.0]])
    charged = beyond if problem.objective is Objective.PER_QUERY else np.zeros_like(beyond)
    pairs = np.array([*states, 0]), np.array([*actions, 0])
    order = np.lexsort(pairs[::-1])
    mdp = SparseMDP(
        state=pairs[0][order],
        action=pairs[1][order],
        transition=csr_array(vstack([*rows, empty], format="csr"))[order],
        reward=np.array([*rewards, 0.0])[order],
        cost=(np.array([*costs, 0.0]) + charged)[order],
    )
    return ExplicitWorkerMDP(problem, mdp, beyond[order])
