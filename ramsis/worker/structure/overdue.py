"""Requests that are overdue when a service ends, under the late rule ``drop``.

Let a service go on for more than the SLO after the worker's first new request came: x ms of it are
left then, x > SLO. At its end that request is overdue, and so is every other that came in the
first x − SLO of these x ms. A head without slack is dropped, whatever the table, so all of them
are, and the head is then the first that came within the SLO, if one did. A slack of 0 would say
that the head had waited for just the SLO, and those behind it for less: after a long outlier of
service times most of the queue would seem to be in time.

Let c + A be the central arrivals from the first new request until SLO before the end, c of them
known (exact nodes), A drawn over the rest of that time. The worker drops d = 1 + ⌊(c + A)/K⌋
requests, and its next one is the r'-th central arrival, r' = K − ((c + A) mod K). What follows is
what follows a service that lasts for just the SLO from there:

    continuation(x, s) = Σ_r' P(r' | x)·[Σ_i reach_SLO(i, r')·continuation(i, s) + … idle].

*Found.* The k-th of the d requests is dropped with n' + 1 − k queued, n' = 1 + ⌊(c + A + B)/K⌋
with B the central arrivals within the SLO. So the expected number of drops with n queued is
P(n' >= n) − P(n' − d >= n).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.counts import count_probabilities, counts_support
from ramsis.worker.problem.queue import WorkerQueue
from ramsis.worker.structure.first_passage import Passage
from ramsis.worker.structure.slack_nodes import NodeSet


class AfterDrops(NamedTuple):
    """Rows of overdue nodes, as means of the rows of the other nodes."""

    nodes: IntArray  # the overdue nodes, shape (J,)
    # reach, idle: shape (J, I') and (J, L): weights of the first I' nodes and of the starts of
    # busy periods
    reach: FloatArray
    idle: FloatArray
    # shape (I+L, S): the continuation with rows of zeros for the overdue nodes
    others: csr_array[np.float64]
    # shape (J, N+1): expected number of overdue requests that are dropped with n = 1 … N queued,
    # and with more
    found: FloatArray

    def onward(self, rows: FloatArray) -> FloatArray:
        """Return the continuation times ``rows`` of states, (S, X), without forming its rows."""
        result = np.asarray(self.others @ rows)
        result[self.nodes] = (self.reach @ result[: self.reach.shape[1]]
                              + self.idle @ result[len(result) - self.idle.shape[1] :])
        return result


class Continuation(NamedTuple):
    """Transitions from nodes to states (the continuation)."""

    reached: tuple[IntArray, IntArray]  # the states (n − 1, j) that some node leads to, shape (S,)
    # P(state | node), the starts of busy periods last, shape (I+L, S)
    transition: csr_array[np.float64]
    excess: FloatArray  # expected requests beyond N + 1, shape (I+L,)
    late: AfterDrops | None = None  # of the overdue nodes, if there are any


class QueueFound(NamedTuple):
    """Queue at the end of the service, overdue requests included, given each of J nodes."""

    queued: FloatArray  # P(n' = 1 … N), and P(n' > N), shape (J, N+1)
    excess: FloatArray  # E[(n' − N − 1)⁺], shape (J,)

    def at_least(self) -> FloatArray:
        """Return P(n' >= 1 … N) and E[(n' − N)⁺]; shape (J, N+1)."""
        tails = np.cumsum(self.queued[:, ::-1], axis=1)[:, ::-1].copy()
        tails[:, -1] += self.excess
        return tails


def phase_after_drops(queue: WorkerQueue, nodes: NodeSet) -> FloatArray:
    """Return P(phase r' after all drops | overdue node), independent increments; shape (J, K)."""
    late = nodes.overdue
    lost_ms = np.maximum(nodes.remaining_ms[late] - queue.slo_ms, 0.0)
    support, workers = counts_support(queue.arrivals, float(lost_ms.max())), queue.workers
    chance = count_probabilities(queue.arrivals, -(-(support + 1) // workers) * workers, lost_ms)
    by_phase = chance.reshape(len(lost_ms), -1, workers).sum(axis=1)
    ahead = (nodes.offset[late][:, None] + np.arange(workers)) % workers
    phase: FloatArray = np.empty_like(by_phase)
    np.put_along_axis(phase, workers - 1 - ahead, by_phase, axis=1)
    return phase


def after_drops(
    continuation: Continuation, late: IntArray, phase: FloatArray, at_slo: Passage,
    queue: QueueFound
) -> Continuation:
    """Return the continuation with the rows of overdue nodes filled in.

    Parameters
    ----------
    continuation : Continuation
        Transitions with rows of zeros for the overdue nodes ``late``, (J,).
    phase : ndarray, shape (J, R)
        P(phase after all drops) of these nodes, in the order of the passages' rows.
    at_slo : Passage
        First passage of a service that lasts for the SLO.
    queue : QueueFound
        Queue given each overdue node, before the drops.
    """
    transition, excess = continuation.transition, continuation.excess
    upto, last = len(at_slo.reach), transition.shape[0] - len(at_slo.idle)
    reach, idle = phase @ at_slo.reach.T, phase @ at_slo.idle.T
    behind = np.asarray(reach @ transition[:upto])
    rows = behind + idle @ transition[last:]
    by_length = np.zeros_like(queue.queued)
    lengths, first = np.unique(continuation.reached[0], return_index=True)  # these do not fall
    by_length[:, lengths] = np.add.reduceat(behind, first, axis=1)
    left = QueueFound(by_length, reach @ excess[:upto])
    onward = np.zeros(len(excess))
    onward[late] = left.excess + idle @ excess[last:]
    dropped = np.maximum(queue.at_least() - left.at_least(), 0.0)
    node, column = np.nonzero(rows)
    entries = np.zeros(len(excess), dtype=np.int64)
    entries[late] = np.bincount(node, minlength=len(late))
    drops = csr_array((rows[node, column], column, np.append(0, np.cumsum(entries))),
                      shape=transition.shape)
    return Continuation(continuation.reached, csr_array(transition + drops), excess + onward,
                        AfterDrops(late, reach, idle, transition, dropped))
