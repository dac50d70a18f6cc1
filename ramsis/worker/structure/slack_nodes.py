"""Slack nodes: the instants of the first new arrival from which the future is counted.

Let the worker's first request after a decision arrive x ms before the service ends. At the end it
is the head, with slack SLO − x, and further arrivals are counted over x ms. So what happens next
depends on x alone: not on the action, nor on the state in which it was taken. A slack node is one
value of x, with a value U.

*Exact* nodes: one per slack bin j and number c of central arrivals between the first passage
and the end of bin j, where x = SLO − T_{j+1} remains:

    U(j, c) = Σ_k PF(k, x)·V(1 + ⌊(c + k)/K⌋, j).

*Quadrature* nodes: the bins are cut into cells, each with two Gauss points x, and

    U(x) = Σ_k PF(k, x)·V(1 + ⌊k/K⌋, j(x)).

Cells reach as far as the longest latency. They are no wider than SLO/100, nor than an eighth of x
(of the lowest latency, where x is below it); beyond the SLO, where all is bin 0, a sixteenth
of x. They are cut at every latency l, so that no cell is reached only in part (x <= l), unless a
piece would be narrower than an eighth of the allowed width. A cell narrower than a quarter of the
allowed width has only one point.

*Overdue* nodes: if overdue requests are dropped, an x beyond the SLO does not lead to bin 0
(:mod:`ramsis.worker.structure.first_passage`). Its nodes are separate, as bin −1; exact ones count
the central arrivals between the first passage and the instant SLO before the end of the service.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.process import count_probabilities, counts_cdf, counts_support
from ramsis.worker.problem.queue import WorkerQueue

CELLS_PER_SLO = 100
_BLOCK = 64  # nodes, by rising time, whose arrival counts are computed with one support


@dataclass(frozen=True)
class Cells:
    """Intervals of x that cover (0, longest latency], rising."""

    edge_ms: FloatArray  # cell i is (edge_ms[i], edge_ms[i+1]], shape (C+1,)
    bin: IntArray  # slack bin of each cell, shape (C,)
    points: IntArray  # nodes in each cell: 2, or 1 where it is narrow, shape (C,)

    @cached_property
    def first_node(self) -> IntArray:
        """Index of each cell's first node; shape (C,)."""
        return np.cumsum(self.points) - self.points


@dataclass(frozen=True)
class NodeSet:
    """Slack nodes in rising order of x, the time left when a new request arrives."""

    bin: IntArray  # slack bin j of each node; −1 where it is overdue, shape (I,)
    remaining_ms: FloatArray  # x: time over which further arrivals are counted, shape (I,)
    offset: IntArray  # shape (I,): c: central arrivals already counted beyond the first passage
    cells: Cells | None  # the quadrature cells; None for exact nodes

    def __len__(self) -> int:
        return len(self.bin)

    @property
    def overdue(self) -> BoolArray:
        """Mask of the nodes whose request is dropped at the end of the service; shape (I,)."""
        late: BoolArray = self.bin < 0
        return late


def _widest_cell(queue: WorkerQueue, finer: float) -> Callable[[FloatArray], FloatArray]:
    """Return a function from x to the width allowed for a cell that starts at x."""
    slo, shortest = queue.slo_ms, float(queue.services.latency_ms[0])

    # U(x) changes with the arrivals in x, so widths are relative to x (module docstring).
    def width_at(x: FloatArray) -> FloatArray:
        within = np.minimum(slo / CELLS_PER_SLO, np.maximum(x, shortest) / 8)
        return np.where(x < slo, within, x / 16) / finer

    return width_at


def _cell_edges(queue: WorkerQueue, width_at: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return cell edges: bin edges, latencies away from other edges, and cuts of wide cells."""
    *latencies, longest = queue.services.latency_ms.tolist()
    slack_edges = queue.slo_ms - queue.slack_ms[::-1]
    fixed = [*slack_edges[slack_edges < longest].tolist(), longest]
    nearest = width_at(np.array(latencies)) / 8
    for latency, room in zip(latencies, nearest.tolist(), strict=True):
        at = bisect_left(fixed, latency)
        if min(abs(edge - latency) for edge in fixed[max(at - 1, 0) : at + 1]) >= room:
            fixed.insert(at, latency)
    edges = np.array(fixed)
    while True:  # the first piece of each cell that is too wide is cut off
        low, width = edges[:-1], np.diff(edges)
        pieces = np.ceil(width / width_at(low) - 1e-9)
        wide = np.flatnonzero(pieces > 1)
        if not len(wide):
            return edges
        edges = np.insert(edges, wide + 1, low[wide] + width[wide] / pieces[wide])


def quadrature_nodes(
    queue: WorkerQueue, cells_per_slo: int = CELLS_PER_SLO, *, overdue: bool = False
) -> NodeSet:
    """Return two Gauss nodes per cell of every bin, one in narrow cells.

    ``cells_per_slo`` bounds a cell's width below the SLO by SLO / cells_per_slo, and scales other
    widths in proportion. With ``overdue``, nodes beyond the SLO are in bin −1.
    """
    width_at = _widest_cell(queue, cells_per_slo / CELLS_PER_SLO)
    edges = _cell_edges(queue, width_at)
    width = np.diff(edges)
    middle = (edges[:-1] + edges[1:]) / 2
    bins = np.searchsorted(queue.slack_ms, queue.slo_ms - middle, side="right") - 1
    bins = np.clip(bins, -1 if overdue else 0, queue.bins - 1)
    points = np.where(width <= width_at(edges[:-1]) / 4, 1, 2)
    half = np.where(points == 2, width / math.sqrt(12.0), 0.0)
    x = np.repeat(middle, points)
    first = np.cumsum(points) - points
    x[first] -= half
    x[(first + 1)[points == 2]] += half[points == 2]
    bin_of_node = np.repeat(bins, points)
    return NodeSet(bin_of_node, x, np.zeros(len(x), dtype=np.int64), Cells(edges, bins, points))


def exact_nodes(queue: WorkerQueue, *, overdue: bool = False) -> NodeSet:
    """Return one node per slack bin and number of arrivals in it, without negligible ones.

    With ``overdue``, nodes beyond the SLO are in bin −1.
    """
    longest = float(queue.services.latency_ms[-1])
    bins, offsets = [], []
    lowest = -1 if overdue else 0
    for j in range(queue.bins - 1, lowest - 1, -1):
        start = queue.slo_ms - float(queue.slack_ms[j + 1])
        if start >= longest:
            break
        end = longest if j == lowest else min(longest, queue.slo_ms - float(queue.slack_ms[j]))
        size = counts_support(queue.arrivals, end - start) + 1
        bins.append(np.full(size, j))
        offsets.append(np.arange(size))
    bin_of_node = np.concatenate(bins)
    remaining = queue.slo_ms - queue.slack_ms[bin_of_node + 1]
    return NodeSet(bin_of_node, remaining, np.concatenate(offsets), None)


def continuation_weights(
    queue: WorkerQueue, nodes: NodeSet
) -> tuple[FloatArray, FloatArray]:
    """Return P(n' queued at the end of the service | node), and the requests beyond the table.

    Returns
    -------
    weights : ndarray, shape (I, N+1)
        ``weights[i, n-1]`` = P(n' = n); the last column is P(n' > N), the full state.
    excess : ndarray, shape (I,)
        E[(n' − N − 1)⁺]: requests of the full state beyond N + 1.
    """
    rows = queue.max_queue + 1
    weights = np.empty((len(nodes), rows))
    excess = np.empty(len(nodes))
    order = np.argsort(nodes.remaining_ms, kind="stable")
    start = 0
    while start < len(order):
        # Short times need few arrival counts, so each block has a support of its own.
        longest = float(nodes.remaining_ms[order[min(start + _BLOCK, len(order)) - 1]])
        part = order[start : start + _BLOCK]
        weights[part], excess[part] = _block_weights(queue, nodes, part, longest)
        start += _BLOCK
    return np.maximum(weights, 0.0), np.maximum(excess, 0.0)


def _block_weights(
    queue: WorkerQueue, nodes: NodeSet, part: IntArray, longest_ms: float
) -> tuple[FloatArray, FloatArray]:
    """Return :func:`continuation_weights` of nodes with x up to ``longest_ms``."""
    rows, offset = queue.max_queue + 1, nodes.offset[part]
    top = counts_support(queue.arrivals, longest_ms)
    windows = max(rows, (top + int(offset.max())) // queue.workers + 1)
    within = _within_windows(queue, nodes.remaining_ms[part], offset, top, windows)
    distribution = np.diff(within[:, : rows - 1], axis=1, prepend=0.0)
    full = 1.0 - within[:, rows - 2 : rows - 1]
    return np.hstack([distribution, full]), (1.0 - within[:, rows - 1 :]).sum(axis=1)


def _within_windows(
    queue: WorkerQueue, times_ms: FloatArray, offset: IntArray, top: int, windows: int
) -> FloatArray:
    """Return P(offset + arrivals < n·K) for n = 1 … windows, given at most ``top`` arrivals."""
    workers = queue.workers
    if offset.any():
        at = np.arange(1, windows + 1) * workers - 1 - offset[:, None]
        cdf = counts_cdf(queue.arrivals, times_ms, top)
        return np.where(at < 0, 0.0, np.take_along_axis(cdf, np.clip(at, 0, top), axis=1))
    some = top // workers + 1
    chance = count_probabilities(queue.arrivals, some * workers, times_ms)
    within = np.ones((len(times_ms), windows))
    np.cumsum(chance.reshape(len(times_ms), some, workers).sum(axis=2), axis=1,
              out=within[:, :some])
    within[:, :some] /= within[:, some - 1 : some].copy()
    return within
