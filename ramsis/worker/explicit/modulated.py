"""The chain of one table under Markov-modulated arrivals, written out for checks.

Let P(k; T) be the 2×2 matrix of the probabilities of the count and of the mode at the end of T,
given the mode at its start. Let a service take l ms from a state in which r arrivals remain until
the worker's next request. For each slack bin j' and its part (s, e] of the service it leads to
(n', j', z'') with the probability

    Σ_a Σ_d Σ_k P(a; s)·P(d; e − s)·P(k; l − e)
    over a < r <= a + d,  n' = 1 + ⌊(a + d + k − r)/K⌋,

the products being those of matrices. Nothing here uses slack nodes or uniformisation. What does
not arrive within l starts a busy period at (1, SLO) in the mode that the r-th arrival meets.

Under the late rule ``drop`` requests that are overdue at the end of a service are dropped at once:
one of l > SLO leads to where one of the SLO does, from the mode and the phase after l − SLO.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.sparse import csr_array, vstack

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Poisson
from ramsis.arrivals.counts import counts_support
from ramsis.worker.explicit.arrivals import at_least, phase_moved
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import LateRule
from ramsis.worker.problem.modes import MODES, ModulatedProcess, is_modulated
from ramsis.worker.problem.round_robin_phase import phase_distribution_by_mode
from ramsis.worker.problem.waiting_slack import second_slack_distribution

_NEGLIGIBLE = 1e-17
_DIGITS = 9  # of lengths in ms
_KEPT = 256  # arrays that many service times have in common


@dataclass(frozen=True, eq=False)
class ModulatedChain:
    """The chain of a table; its states are (n, j, z) in this order, n = N + 1 the full state."""

    transition: csr_array  # shape (S, S)
    # reward, cost, excess: shape (S,): ``excess`` are the requests of the full state beyond N +
    # 1 that a state leads to
    reward: FloatArray
    cost: FloatArray
    excess: FloatArray
    # shape (S, N+1): overdue requests that are dropped with n = 1 … N queued, and with more,
    # after a state
    overdue: FloatArray


def build_modulated_chain(problem: WorkerProblem, table: IntArray) -> ModulatedChain:
    """Write out the chain of a table of shape (N, D+1)."""
    arrivals = problem.arrivals
    if not is_modulated(arrivals):
        raise TypeError("the arrivals are not Markov-modulated")
    problem.check_policy(table)
    top, bins = problem.max_queue, problem.bins + 1
    outcome = problem.outcome(table)
    phases = phase_distribution_by_mode(problem, arrivals)
    service = _Service(problem, arrivals)
    rows = {}
    excess = np.empty((top + 1, bins, MODES))
    overdue = np.zeros((top + 1, bins, MODES, top + 1))
    for n in range(top + 1):
        for chosen in np.unique(outcome.service[n]).tolist():
            if chosen < 0:
                for j in np.flatnonzero(outcome.service[n] < 0).tolist():
                    for z in range(MODES):
                        rows[n, j, z] = service.drop(n, j, phases[j, z, n], z)
                        excess[n, j, z] = 0.0
                continue
            next_state, beyond, dropped = service.of(chosen)
            for j in np.flatnonzero(outcome.service[n] == chosen).tolist():
                for z in range(MODES):
                    row = phases[j, z, n] @ next_state[z]
                    rows[n, j, z] = csr_array(np.where(row > _NEGLIGIBLE, row, 0.0)[None])
                    excess[n, j, z] = phases[j, z, n] @ beyond[z]
                    overdue[n, j, z] = phases[j, z, n] @ dropped[z]
    reward, cost = problem.rewards_and_costs(outcome)
    charged = overdue.sum(axis=3) + (excess if problem.charges_excess else 0.0)
    return ModulatedChain(
        csr_array(vstack([rows[key] for key in sorted(rows)], format="csr")),
        (reward[:, :, None] - problem.violation_price * charged).ravel(),
        (cost[:, :, None] + charged).ravel(),
        excess.ravel(),
        overdue.reshape(-1, top + 1),
    )


class _Service:
    """Transitions of the services of a problem."""

    def __init__(self, problem: WorkerProblem, arrivals: ModulatedProcess) -> None:
        self.problem, self.arrivals = problem, arrivals
        self.busiest = Poisson(1000.0 * float(arrivals.rates[-1]))
        rest = problem.slo_ms - problem.slack_ms[1:]
        self.after = [self._cdf(float(x)) for x in rest]
        self.ahead = lru_cache(_KEPT)(self._ahead)
        self.queued = lru_cache(_KEPT)(self._queued)
        jump = np.linalg.solve(
            np.diag(arrivals.rates) - arrivals.generator, np.diag(arrivals.rates)
        )
        self.jumps = np.array(
            [np.linalg.matrix_power(jump, r + 1) for r in range(problem.workers)]
        )

    def of(self, service: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P(next state | z, r), (2, K, S), excess, (2, K), and overdue, (2, K, N+1)."""
        services = self.problem.services
        parts = [(weight, *self._at(float(services.latency_ms[index])))
                 for index, weight in services.terms(service)]
        next_state, excess, overdue = (
            np.asarray(sum(part[0] * part[i] for part in parts)) for i in (1, 2, 3))
        return next_state, excess, overdue

    def _at(self, latency_ms: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same for one latency."""
        problem, slo = self.problem, self.problem.slo_ms
        none = np.zeros((MODES, problem.workers, problem.max_queue + 1))
        if problem.late is not LateRule.DROP or latency_ms <= slo:
            return *self._of_latency(latency_ms), none
        next_state, excess = self._of_latency(slo)
        moved = self._moved(latency_ms - slo)
        lost = self._at_least(latency_ms) - np.einsum("zyrs,ysn->zrn", moved, self._at_least(slo))
        return (np.einsum("zyrs,ysx->zrx", moved, next_state),
                np.einsum("zyrs,ys->zr", moved, excess), np.maximum(lost, 0.0))

    def _moved(self, duration_ms: float) -> FloatArray:
        """P(mode and r' after a time | mode and r before); [z, z', r, r']."""
        arrived = np.arange(counts_support(self.busiest, duration_ms) + 1)
        joint = self.arrivals.joint_pf(arrived, np.array([duration_ms]))[0]
        return phase_moved(joint, self.problem.workers)

    def _at_least(self, duration_ms: float) -> FloatArray:
        """P(n >= 1 … N requests come to the worker | z, r), and E[(n − N)⁺]; [z, r, n]."""
        upto = self._cdf(duration_ms).sum(axis=1)
        return at_least(upto, self.problem.workers, self.problem.max_queue)

    def drop(self, n: int, j: int, phase: FloatArray, z: int) -> csr_array:
        """P(next state), (1, S), when the head of n + 1 requests at bin j is dropped in mode z."""
        row = np.zeros((self.problem.max_queue + 1, self.problem.bins + 1, MODES))
        if n == 0:
            row[0, -1] = phase @ self.jumps[:, z]
        else:
            row[n - 1, :, z] = self.second_slack[n, j]
        return csr_array(row.reshape(1, -1))

    @cached_property
    def second_slack(self) -> FloatArray:
        """Of :func:`~ramsis.worker.problem.waiting_slack.second_slack_distribution`."""
        return second_slack_distribution(self.problem, self.problem.max_queue + 1)

    def _of_latency(self, latency_ms: float) -> tuple[FloatArray, FloatArray]:
        """The same for one latency."""
        problem = self.problem
        workers, top, bins = problem.workers, problem.max_queue, problem.bins
        next_state = np.zeros((MODES, workers, top + 1, bins + 1, MODES))
        excess = np.zeros((MODES, workers))
        ends_ms = latency_ms - (problem.slo_ms - problem.slack_ms[1 : bins + 1])
        first = int(np.searchsorted(ends_ms, 0.0, side="right"))
        starts_ms = np.append(0.0, np.maximum(ends_ms[:-1], 0.0))
        before_each = self.arrivals.joint_pf(np.arange(workers), starts_ms[first:])
        for j in range(first, bins):
            passed = self._passed(before_each[j - first], float(ends_ms[j] - starts_ms[j]))
            ends, full, beyond = self.queued(j, passed.shape[3])
            next_state[:, :, :top, j] += np.tensordot(passed, ends, 2)
            next_state[:, :, top, 0] += np.tensordot(passed, full, 2)
            excess += np.tensordot(passed, beyond, 2)
        before = self.arrivals.joint_pf(np.arange(workers), np.array([latency_ms]))[0]
        for r in range(workers):  # a < r + 1 arrivals, the rest after the service
            rest = self.jumps[r::-1]
            next_state[:, r, 0, bins] += np.einsum("zya,ayx->zx", before[:, :, : r + 1], rest)
        return next_state.reshape(MODES, workers, -1), excess

    def _passed(self, before: FloatArray, length_ms: float) -> FloatArray:
        """P(r-th arrival in an interval, c more by its end, mode z' there); [z, r, z', c].

        ``before`` has P(a arrivals before it, mode x there), [z, x, a].
        """
        order = np.arange(self.problem.workers)
        lag = order[:, None] - order[None, :]  # r − 1 − a
        short = np.where(lag >= 0, before[:, :, np.maximum(lag, 0)], 0.0)  # [z, x, r, lag]
        # Most intervals are a whole bin; their lengths differ by rounding alone.
        ahead = self.ahead(round(length_ms, _DIGITS))
        return np.asarray(np.tensordot(short, ahead, ((1, 3), (0, 2))))

    def _ahead(self, length_ms: float) -> FloatArray:
        """P(1 + lag + c arrivals in an interval, mode y at its end | x); [x, y, lag, c]."""
        workers = self.problem.workers
        size = counts_support(self.busiest, length_ms) + 1
        within = self.arrivals.joint_pf(np.arange(workers + size), np.array([length_ms]))[0]
        return np.asarray(within[:, :, 1 + np.arange(workers)[:, None] + np.arange(size)])

    def _cdf(self, rest_ms: float) -> FloatArray:
        """P(at most k arrivals in the rest, mode z'' at its end | z'); [z', z'', k]."""
        size = counts_support(self.busiest, rest_ms) + 1
        distribution = self.arrivals.joint_pf(np.arange(size), np.array([rest_ms]))[0]
        return np.asarray(np.cumsum(distribution, axis=2))

    def _queued(self, j: int, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What is queued after bin j, by z' and c, in this order.

        Returns
        -------
        ends : ndarray, shape (2, C, N, 2)
            P(n more are queued, mode at the end), n < N.
        full : ndarray, shape (2, C, 2)
            P(N or more, mode at the end).
        beyond : ndarray, shape (2, C)
            Mean number of those beyond N + 1.
        """
        cdf, workers, top = self.after[j], self.problem.workers, self.problem.max_queue
        most = max(top + 1, (size + cdf.shape[2]) // workers + 1)
        last = np.arange(most + 1)[None, :] * workers - 1 - np.arange(size)[:, None]
        found = np.where(last >= 0, cdf[:, :, np.clip(last, 0, cdf.shape[2] - 1)], 0.0)
        upto = found.transpose(0, 2, 3, 1)  # P(n' <= n, mode at the end), for n = 0 …
        return (np.diff(upto[:, :, : top + 1], axis=2), upto[:, :, -1] - upto[:, :, top],
                (upto[:, :, -1:] - upto[:, :, top + 1 :]).sum(axis=(2, 3)))
