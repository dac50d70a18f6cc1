"""Explicit rows of batches of part of the queue, phase by phase.

The distribution is that of :mod:`ramsis.worker.problem.partial_batch`. Here F_p is an incomplete
beta function for each phase and bin by itself, and every state has its own column, so that the
recurrence and the likely states of the structured form can be compared with it.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import betainc

from ramsis.arrays import FloatArray, IntArray
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Action
from ramsis.worker.problem.partial_batch import (
    bin_middles,
    new_requests,
    reached_bins,
    service_points,
)

_NEGLIGIBLE = 1e-17


class PartialRows:
    """Transition rows of a problem's actions on part of the queue.

    ``phase`` (N+1, D+1, K) is that of
    :func:`ramsis.worker.problem.batch_arrivals.phase_distribution`.
    """

    def __init__(self, problem: WorkerProblem, phase: FloatArray) -> None:
        self.problem, self.phases = problem, phase[:, :, ::-1]
        self.slack = bin_middles(problem)
        self.latency_ms, self.weight = service_points(problem)
        every, index = np.unique(self.latency_ms, return_inverse=True)
        self.new = new_requests(problem, every)
        self.index = index.reshape(self.latency_ms.shape)

    def of(
        self, n: int, bins: IntArray, action: Action
    ) -> tuple[csr_array[np.float64], FloatArray]:
        """Return P(next state), shape (bins, S), and the excess, (bins,), with n + 1 queued."""
        problem, states = self.problem, 2 + self.problem.max_queue * (self.problem.bins + 1)
        indptr, indices, data = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
        excess = np.zeros(len(bins))
        latency_ms = self.latency_ms[action.service]
        size = (len(bins), len(latency_ms))
        first_bin, last_bin = (index.reshape(size) for index in reached_bins(
            problem, np.full(size, n + 1).ravel(), np.full(size, action.batch).ravel(),
            np.repeat(self.slack[bins], len(latency_ms)), np.tile(latency_ms, len(bins))))
        for row, j in enumerate(bins.tolist()):
            for point, weight in enumerate(self.weight[action.service].tolist()):
                first, last = int(first_bin[row, point]), int(last_bin[row, point])
                joint = self._joint(n, j, action, point, first, last)
                left = n + 1 - action.batch + np.arange(len(joint))
                beyond = np.maximum(left - problem.max_queue - 1.0, 0.0)
                excess[row] += weight * float(beyond @ joint.sum(axis=1))
                bin_after = first + np.arange(joint.shape[1])
                column = 1 + (left[:, None] - 1) * (problem.bins + 1) + bin_after
                column[left > problem.max_queue] = states - 1  # the full state
                some = joint > _NEGLIGIBLE
                indices.append(column[some])
                data.append(weight * joint[some])
            indptr.append(indptr[-1] + sum(map(len, data[-len(latency_ms):])))
        transition: csr_array[np.float64] = csr_array(
            (np.concatenate(data), np.concatenate(indices), np.array(indptr)),
            shape=(len(bins), states),
        )
        transition.sum_duplicates()
        return transition, excess

    def _joint(
        self, n: int, j: int, action: Action, point: int, first: int, last: int
    ) -> FloatArray:
        """Return P(i new requests, next slack in bin first … last), shape (I, bins)."""
        problem, workers = self.problem, self.problem.workers
        latency_ms = self.latency_ms[action.service, point]
        phase = np.flatnonzero(self.phases[n, j] > _NEGLIGIBLE)
        upto = np.ones((len(phase), last - first + 1))
        if last > first:
            edge = problem.slack_ms[first + 1 : last + 1]
            y = (edge + latency_ms - self.slack[j]) / (problem.slo_ms - self.slack[j])
            order, count = action.batch * workers, n * workers + phase[:, None]
            upto[:, :-1] = betainc(order, count - order + 1.0, np.clip(y, 0.0, 1.0))
        during = self.new[self.index[action.service, point]][phase]
        weight = self.phases[n, j, phase, None] * during
        joint: FloatArray = np.maximum(np.diff(weight.T @ upto, axis=1, prepend=0.0), 0.0)
        return joint
