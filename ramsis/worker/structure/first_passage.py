"""First passage: at which node the worker's first new request arrives during a service.

U_r is the instant of the r-th central arrival after the decision, l the service time. With
x = l − U_r what is left of the service at the first new request,

    none(r)     = P(U_r > l)                     no new request: the empty state,
    reach(i, r) = the weight of node i           Σ_i reach(i, r) + none(r) = 1.

The busy period that follows starts with the requests of one instant, so ``none`` is kept by how
many these are (:mod:`ramsis.worker.problem.batch_arrivals`; always one where requests come one at
a time).

*Exact* nodes (j, c): the passage falls in the part (s, e] of the service that belongs to bin
j, and c central arrivals follow it there:  Σ_{a<r} PF(a, s)·PF(r + c − a, e − s).

*Quadrature* nodes: each cell's mass P(x in cell) and mean E[x; x in cell], both exact for U_r,
are laid on the cell's two nodes by linear interpolation, clipped so that no weight is negative.
At the Gauss points this is of third order where the density is smooth. For Poisson arrivals a
compiled loop does it for all services at once; nodes of small x, which a long service reaches with
a probability below 1e-15 only, are left out there.

*Overdue requests.* Let x > SLO ms of a service be left when the worker's first new request comes.
At the end of the service that request is overdue, and so is every other request that came in the
first x − SLO of these x ms. All of them are dropped, whatever the table says, as a head without
slack can only be dropped. The new head is the first request that came within the last SLO, if
there is one. If the overdue head were kept at slack 0 instead, the requests behind it would be
taken to have waited for less than the SLO: after an exceptionally long service most of the queue
would seem to be in time.

Let c + A be the central arrivals from the first new request until SLO before the end, c of them
known (exact nodes), A drawn over the rest of that time. The worker drops d = 1 + ⌊(c + A)/K⌋
requests, and its next one is the r'-th central arrival, r' = K − ((c + A) mod K). From
there on, it is as if a service of length SLO began:

    continuation(x, s) = Σ_r' P(r' | x)·[Σ_i reach_SLO(i, r')·continuation(i, s) + … idle].

*Found.* The k-th of the d requests is dropped with n' + 1 − k queued, n' = 1 + ⌊(c + A + B)/K⌋
with B the central arrivals within the SLO. So the expected number of drops with n queued is
P(n' >= n) − P(n' − d >= n).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess
from ramsis.arrivals.process import (
    count_probabilities,
    counts_support,
    passage_tails,
    poisson_rate,
)
from ramsis.worker.problem.batch_arrivals import BusyPeriodStart
from ramsis.worker.problem.queue import WorkerQueue
from ramsis.worker.structure.slack_nodes import Cells, NodeSet


class Passage(NamedTuple):
    """First passage during one service time, by phase r = 1 … K."""

    # shape (I', K): weights of I' nodes (x rises, and later nodes cannot be reached)
    reach: FloatArray
    # shape (L, K): P(no new request, and the busy period then starts in the i-th way)
    idle: FloatArray
    first: int = 0  # the first of these nodes; those before it are hardly ever reached

    @property
    def nodes(self) -> slice:
        """Slice of the nodes that have weights."""
        return slice(self.first, self.first + len(self.reach))


class Passages(Mapping[float, Passage]):
    """First passages by service time in ms, in arrays that several can share.

    Service times have a ``row`` each in ``reach`` (G, I, K), weights of all nodes, and ``idle``
    (G, L, K) as in :class:`Passage`; ``nodes`` (G, 2) are the first and last, exclusive, reached.
    """

    def __init__(
        self, row: Mapping[float, int], reach: FloatArray, nodes: IntArray, idle: FloatArray
    ) -> None:
        self._row, self._reach, self._nodes, self._idle = row, reach, nodes, idle

    def __getitem__(self, latency_ms: float) -> Passage:
        row = self._row[latency_ms]
        first, last = self._nodes[row]
        return Passage(self._reach[row, first:last], self._idle[row], first)

    def __iter__(self) -> Iterator[float]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    @property
    def idle_starts(self) -> int:
        """L: number of ways in which a busy period starts."""
        return int(self._idle.shape[1])

    def blocks(
        self, numbers: int
    ) -> Iterator[tuple[list[float], slice, FloatArray, FloatArray]]:
        """Yield services in blocks of limited size: weights of nodes and starts by column.

        Yields
        ------
        latencies_ms : list of float, length X
        nodes : slice
            The I' nodes that any of them reaches.
        reach, idle : ndarray, shapes (I', X·K) and (L, X·K)
            Weights of nodes and of starts for each service and phase r.
        """
        latencies, size = list(self._row), self._reach.shape[1] * self._reach.shape[2]
        each = max(1, numbers // size)
        for start in range(0, len(latencies), each):
            some = latencies[start : start + each]
            rows = [self._row[latency] for latency in some]
            nodes = slice(min(self._nodes[row][0] for row in rows),
                          max(self._nodes[row][1] for row in rows))
            reach, idle = (part[rows].transpose(1, 0, 2).reshape(part.shape[1], -1)
                           for part in (self._reach[:, nodes], self._idle))
            yield some, nodes, reach, idle

    def arrays(self) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
        """Return the weights ``reach`` and ``idle``, the rows of these services, and ``nodes``."""
        return self._reach, self._idle, np.array(list(self._row.values())), self._nodes

    def worth(self, node_value: FloatArray) -> FloatArray:
        """Return the expected value after each service by phase, (G, K), from node values."""
        from ramsis.worker.structure._kernels import service_values  # which takes long to load

        reach, idle, rows, nodes = self.arrays()
        return np.asarray(service_values(reach, idle, rows, nodes, node_value))

    @cached_property
    def truncated_mass(self) -> float:
        """Largest probability that any first passage leaves out by truncation."""
        every = np.ones(self._reach.shape[1] + self._idle.shape[1])
        return float(np.abs(1.0 - self.worth(every)).max())

    def mixed(self, latencies_ms: tuple[float, ...], weights: tuple[float, ...]) -> Passage:
        """Return the first passage of a service time drawn from these with ``weights``."""
        if len(latencies_ms) == 1:
            return self[latencies_ms[0]]
        rows = [self._row[latency] for latency in latencies_ms]
        first = min(self._nodes[row][0] for row in rows)
        last = max(self._nodes[row][1] for row in rows)
        reach = np.zeros((last - first, self._reach.shape[2]))
        for row, weight in zip(rows, weights, strict=True):
            start, stop = self._nodes[row]
            reach[start - first : stop - first] += weight * self._reach[row, start:stop]
        return Passage(reach, np.tensordot(weights, self._idle[rows], axes=1), first)


def first_passages(
    queue: WorkerQueue, nodes: NodeSet, latencies_ms: FloatArray, starts: BusyPeriodStart
) -> Passages:
    """Return node weights for services of several lengths; see :func:`first_passage`."""
    workers, count = queue.workers, len(latencies_ms)
    reach = np.zeros((count, len(nodes), workers))  # pages that stay 0 take no memory
    idle = np.empty((count, len(starts.queued), workers))
    rows = {latency: i for i, latency in enumerate(latencies_ms.tolist())}
    rate_per_ms = poisson_rate(queue.arrivals)
    if nodes.cells is not None and rate_per_ms is not None:
        from ramsis.worker.structure._kernels import poisson_passages  # which takes long to load

        used = poisson_passages(
            float(rate_per_ms), latencies_ms, (nodes.cells.edge_ms, nodes.cells.points),
            nodes.remaining_ms, reach, idle[:, 0])
        return Passages(rows, reach, used, idle)
    used = np.zeros((count, 2), dtype=np.int64)
    if nodes.cells is None:
        used[:, 1] = _exact_nodes(queue, nodes, latencies_ms, reach)
        idle[:] = [starts.after(before) for before in count_probabilities(
            queue.arrivals, workers, latencies_ms)]
        return Passages(rows, reach, used, idle)
    for latency, i in rows.items():
        passage = first_passage(queue, nodes, latency, starts, reach[i])
        idle[i], used[i, 1] = passage.idle, len(passage.reach)
    return Passages(rows, reach, used, idle)


def first_passage(
    queue: WorkerQueue, nodes: NodeSet, latency_ms: float, starts: BusyPeriodStart,
    room: FloatArray | None = None,
) -> Passage:
    """Return node weights for a service of ``latency_ms``.

    Weights of quadrature nodes are written into the first rows of ``room``, (I, K), if given.
    """
    if nodes.cells is None:
        return first_passages(queue, nodes, np.array([latency_ms]), starts)[latency_ms]
    tail, reach = _quadrature_passage(
        queue.arrivals, queue.workers, nodes, nodes.cells, latency_ms, room)
    if len(starts.queued) == 1:
        return Passage(reach, 1.0 - tail[None])
    before = -np.diff(tail, prepend=1.0)
    return Passage(reach, starts.after(before))


def _quadrature_passage(
    arrivals: ArrivalProcess, orders: int, nodes: NodeSet, cells: Cells, latency_ms: float,
    room: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return P(U_r <= l), shape (R,), and quadrature-node weights, (I', R), for r = 1 … R."""
    used = int(np.searchsorted(cells.edge_ms, latency_ms, side="left"))
    instant = np.maximum(latency_ms - cells.edge_ms[: used + 1], 0.0)
    tail, integral = passage_tails(arrivals, orders, instant)
    # By cell: P(x in cell) and E[x; x in cell], with x = l − U_r. The upper node of a cell gets
    # the share of the mass that keeps the mean.
    mass = tail[:-1] - tail[1:]
    moment = instant[:, None] * tail - integral
    mean = latency_ms * mass - (moment[:-1] - moment[1:])
    first = cells.first_node[:used]
    pair = cells.points[:used] == 2
    low, high = first[pair], first[pair] + 1
    gap = nodes.remaining_ms[high] - nodes.remaining_ms[low]
    share = (mean[pair] - nodes.remaining_ms[low][:, None] * mass[pair]) / gap[:, None]
    np.clip(share, 0.0, mass[pair], out=share)
    size = int(cells.points[:used].sum())
    reach = np.empty((size, orders)) if room is None else room[:size]
    reach[first] = mass
    reach[low] -= share
    reach[high] = share
    return tail[0], reach


def _exact_nodes(
    queue: WorkerQueue, nodes: NodeSet, latencies_ms: FloatArray, reach: FloatArray
) -> IntArray:
    """Count the nodes that each service reaches; write the weights into ``reach``, (G, I, K).

    For services that outlast bin j, the bin has one length T for all and begins after a time s of
    each service, in which a arrivals come; the sums over a are computed for all services at once.
    Other services end within the bin: s = 0 and a = 0.
    """
    used = np.zeros(len(latencies_ms), dtype=np.int64)
    lowest, first = -1 if nodes.overdue.any() else 0, 0
    for j in range(queue.bins - 1, lowest - 1, -1):
        since = queue.slo_ms - float(queue.slack_ms[j + 1])
        until = queue.slo_ms - float(queue.slack_ms[j]) if j > lowest else np.inf
        reached = latencies_ms > since
        if not reached.any():
            break
        last = first + int(np.count_nonzero(nodes.bin == j))
        used[reached] = last
        begin, beyond = reached & (latencies_ms <= until), latencies_ms > until
        within = count_probabilities(queue.arrivals, queue.workers + last - first,
                                     latencies_ms[begin] - since)
        # PF(r + c, T) by c and r − 1
        reach[begin, first:last] = sliding_window_view(within[:, 1:], queue.workers, axis=1)
        if beyond.any():
            before = count_probabilities(queue.arrivals, queue.workers,
                                         latencies_ms[beyond] - until)
            whole = count_probabilities(queue.arrivals, within.shape[1],
                                        np.array([until - since]))[0]
            reach[beyond, first:last] = _sums(before, whole)
        first = last
    return used


def _sums(before: FloatArray, within: FloatArray) -> FloatArray:
    """Return Σ_{a<r} PF(a, s)·PF(r + c − a, T), shape (G, C, K), from (G, K) and (K + C,)."""
    services, workers = before.shape
    size = len(within) - workers
    sums = np.empty((services, size, workers))
    total = np.zeros((services, len(within)))  # [b], Σ_{a<r} PF(a, s)·PF(b − a, T)
    for a in range(workers):
        total[:, a:] += before[:, a, None] * within[: len(within) - a]
        sums[:, :, a] = total[:, a + 1 : a + 1 + size]
    return sums


class AfterDrops(NamedTuple):
    """Continuation from overdue nodes, as weighted means of the rows of other nodes."""

    nodes: IntArray  # the overdue nodes, shape (J,)
    # reach, idle: shape (J, I') and (J, L): weights of the first I' nodes and of the starts of
    # busy periods
    reach: FloatArray
    idle: FloatArray
    # shape (J, N+1): expected number of overdue requests that are dropped with n = 1 … N queued,
    # and with more
    found: FloatArray


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
    weights: FloatArray, excess: FloatArray, late: IntArray, phase: FloatArray, at_slo: Passage,
    queue: QueueFound
) -> AfterDrops:
    """Return the continuation from overdue nodes; set their ``excess``.

    Parameters
    ----------
    weights : ndarray, shape (I, N+1)
        P(n' = 1 … N) and P(n' > N) given each node; 0 for the overdue nodes ``late``, (J,).
    excess : ndarray, shape (I+L,)
        Expected requests beyond N + 1.
    phase : ndarray, shape (J, R)
        P(phase after all drops) of the overdue nodes, in the order of the passages' rows.
    at_slo : Passage
        First passage of a service that lasts for the SLO.
    queue : QueueFound
        Queue given each overdue node, before the drops.
    """
    # After the drops a node leads to where a service of the SLO does from its new phase.
    upto, last = len(at_slo.reach), len(excess) - len(at_slo.idle)
    reach, idle = phase @ at_slo.reach.T, phase @ at_slo.idle.T
    # The queue after the drops, P(n' − d = 1 … N); where the worker is idle it has no requests.
    left = QueueFound(reach @ weights[:upto], reach @ excess[:upto])
    excess[late] = left.excess + idle @ excess[last:]
    # P(n' >= n) − P(n' − d >= n) for each n; see *Found* in the module's text.
    return AfterDrops(late, reach, idle, np.maximum(queue.at_least() - left.at_least(), 0.0))
