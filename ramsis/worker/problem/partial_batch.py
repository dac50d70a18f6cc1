"""Batches of part of the queue: the distribution of the next state (Poisson arrivals).

In state (n, j) the worker serves the first b < n requests in l ms. The next head is the (b+1)-th
request, the bK-th central arrival after the present head (EuroSys '24, §4.3.2). Let T = SLO − t be
the time since the head came, t its slack, and k = (n−1)·K + p the central arrivals in that time.
The phase p is K − r with r as in :mod:`ramsis.worker.problem.batch_arrivals`. Then

- given k, the arrivals in T are k independent uniform instants, so the bK-th of them came
  X = T·Beta(bK, k − bK + 1) after the head, and the slack after the service is t + X − l;
- a ~ Poisson(λl) central arrivals come during the service, and n' = n − b + ⌊(p + a)/K⌋.

Given p the two are independent, so that

    P(n' = n − b + i, slack' < s | n, j) = Σ_p w(p)·A_p(i)·F_p((s + l − t)/T),
    A_p(i) = P(⌊(p + a)/K⌋ = i),   F_p(y) = P(Beta(bK, k − bK + 1) <= y) = P(Bin(k, y) >= bK).

The sum runs over all K phases, with F_p by the recurrence
P(Bin(k+1, y) >= c) = P(Bin(k, y) >= c) + y·P(Bin(k, y) = c − 1).

Slack is known to its bin only. With the rounded value t = T_j every part of a queue would lose
half a bin, again and again; so t is the middle of the bin here (the SLO at the last one). Slack
below T_1, negative slack too, is bin 0. More than N queued is the full state, at bin 0.

*Approximation.* The next state remembers (n', j') only. Its phase then has the distribution that
the decision problem gives it; the exact past would tell a little more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import betainc, betaincinv, gammaln

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import counts_cdf, counts_support
from ramsis.errors import InvalidValueError
from ramsis.worker.problem.queue import WorkerQueue

SERVICE_POINTS = 4
"""Number of values that represent a random service time."""
MAX_ENTRIES = 200_000_000
"""Most transitions of partial batches that are held at once, of 12 bytes each."""
_NEGLIGIBLE = 1e-15


class PartialBatches(NamedTuple):
    """P batches that leave part of the queue, each in a state."""

    queued: IntArray  # n: 2 … N, or N + 1 for the full state, shape (P,)
    slack_bin: IntArray  # shape (P,)
    batch: IntArray  # b, 1 <= b < n, shape (P,)
    latency_ms: FloatArray  # l >= 0, shape (P,)


@dataclass(frozen=True, eq=False)
class PartialBatchTransitions:
    """Transitions after P different partial batches."""

    transition: csr_array[np.float64]  # P(next state); rows add up to 1, shape (P, S)
    excess: FloatArray  # shape (P,): E[(n' − N − 1)⁺]: requests of the full state beyond N + 1


def bin_middles(queue: WorkerQueue) -> FloatArray:
    """Return each bin's representative slack: its middle, or the SLO for the last; (D+1,)."""
    upper = np.append(queue.slack_ms[1:], queue.slo_ms)
    middle: FloatArray = (queue.slack_ms + upper) / 2.0
    return middle


class _Edges(NamedTuple):
    """Upper edges of the slack bins that each batch may lead to, one row for each batch."""

    start: IntArray  # where the edges of each batch begin, shape (P+1,)
    first_bin: IntArray  # the bin that its first edge ends, shape (P,)
    # y, below, log_weight: shape (E,): for each edge y, P(Bin(k, y) >= bK) and log P(Bin(k, y) =
    # bK − 1) at phase 0
    y: FloatArray
    below: FloatArray
    log_weight: FloatArray


def partial_batch_transitions(
    queue: WorkerQueue, phase: FloatArray, columns: IntArray, batches: PartialBatches
) -> PartialBatchTransitions:
    """Return the transitions of each partial batch.

    Parameters
    ----------
    phase : ndarray, shape (N+1, D+1, K)
        Result of :func:`ramsis.worker.problem.batch_arrivals.phase_distribution`.
    columns : ndarray of int, shape (N+1, D+1)
        Column of the transition matrix that stands for (n', j'), n' = N + 1 the full state;
        several states may share one.
    """
    from ramsis.worker.problem._kernels import partial_batch_rows

    if not len(batches.queued):
        nowhere: csr_array[np.float64] = csr_array((0, int(columns.max()) + 1))
        return PartialBatchTransitions(nowhere, np.empty(0))
    latency_ms, service = np.unique(batches.latency_ms, return_inverse=True)
    new = new_requests(queue, latency_ms)
    middles = bin_middles(queue)
    first, last = reached_bins(
        queue, batches.queued, batches.batch, middles[batches.slack_bin], batches.latency_ms
    )
    counted = (new > _NEGLIGIBLE).any(axis=1).sum(axis=1)
    size = int(((last - first + 1) * counted[service]).sum())
    _check_entries(len(first), size)
    edges = _edges(queue, batches, first, last)
    which = np.stack([*batches[:3], service, first], axis=1)
    # The kernel indexes phases by p = K − r, so the axis is reversed.
    indptr, indices, data, excess = partial_batch_rows(
        np.ascontiguousarray(phase[:, :, ::-1]), new, columns, which, edges.start,
        (edges.y, edges.below, edges.log_weight), _NEGLIGIBLE, size,
    )
    shape = (len(first), int(columns.max()) + 1)
    transition: csr_array[np.float64] = csr_array((data, indices, indptr), shape=shape)
    return PartialBatchTransitions(transition, excess)


def _check_entries(batches: int, entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise InvalidValueError(
            "the problem is too large for variable batching", where="worker problem",
            value=f"{batches} batches of part of a queue, {entries:.3g} transitions",
            allowed=f"up to {MAX_ENTRIES:.0e}: fewer models, a coarser grid, a smaller "
            "max_queue, or maximal batching")


def _edges(
    queue: WorkerQueue, batches: PartialBatches, first: IntArray, last: IntArray
) -> _Edges:
    """Return the edges between the first and the last bin that each batch can lead to."""
    count = last - first
    start = np.concatenate([[0], np.cumsum(count)])
    pair = np.repeat(np.arange(len(count)), count)
    upper = queue.slack_ms[first[pair] + 1 + np.arange(start[-1]) - start[pair]]
    now = bin_middles(queue)[batches.slack_bin[pair]]
    y = (upper + batches.latency_ms[pair] - now) / (queue.slo_ms - now)
    np.clip(y, 0.0, 1.0, out=y)
    order = batches.batch[pair] * queue.workers
    fewest = (batches.queued[pair] - 1) * queue.workers
    return _Edges(start, first, y, *_at_phase_0(order, fewest, y))


def new_requests(queue: WorkerQueue, latency_ms: FloatArray) -> FloatArray:
    """Return A_p(i), P(i new requests in a service from phase p), by latency; shape (L, K, I).

    Latencies rise.
    """
    workers = queue.workers
    top = counts_support(queue.arrivals, float(latency_ms[-1]))
    cdf = counts_cdf(queue.arrivals, latency_ms, top)
    most = (top + workers - 1) // workers
    # At most i new requests come from phase p with at most (i + 1)·K − 1 − p central arrivals.
    last = (np.arange(most + 1) + 1) * workers - 1 - np.arange(workers)[:, None]
    upto = np.where(last > top, 1.0, cdf[:, np.minimum(last, top)])
    return np.maximum(np.diff(upto, axis=2, prepend=0.0), 0.0)


def reached_bins(
    queue: WorkerQueue, queued: IntArray, batch: IntArray, slack_ms: FloatArray,
    latency_ms: FloatArray,
) -> tuple[IntArray, IntArray]:
    """Return the first and last bin of the slack after each batch, negligible mass left out."""
    # The shares of the wait depend on queue and batch alone, which few pairs share.
    lengths = 1 + int(queued.max())
    pairs, pair = np.unique(queued * lengths + batch, return_inverse=True)
    order, fewest = pairs % lengths * queue.workers, (pairs // lengths - 1) * queue.workers
    # The next head came soonest after the head for the largest k, and latest for the smallest k.
    most = fewest + queue.workers - 1
    low = np.asarray(betaincinv(order, most - order + 1.0, _NEGLIGIBLE), dtype=np.float64)[pair]
    high = (1.0 - np.asarray(betaincinv(fewest - order + 1.0, order, _NEGLIGIBLE),
                             dtype=np.float64))[pair]
    waited = queue.slo_ms - slack_ms

    def bin_at(share: FloatArray) -> IntArray:
        after = slack_ms + share * waited - latency_ms
        bins = np.searchsorted(queue.slack_ms, after, side="right") - 1
        return np.clip(bins, 0, queue.bins)

    return bin_at(low), bin_at(high)


def _at_phase_0(
    order: IntArray, count: IntArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return P(Bin(k, y) >= c) and log P(Bin(k, y) = c − 1) for c <= k."""
    below = np.asarray(betainc(order, count - order + 1.0, y), dtype=np.float64)
    log_factorial = gammaln(np.arange(1.0, int(count.max(initial=0)) + 2.0))
    with np.errstate(divide="ignore"):
        log_weight = (log_factorial[count] - log_factorial[order - 1]
                      - log_factorial[count - order + 1]
                      + (order - 1.0) * np.log(y) + (count - order + 1.0) * np.log1p(-y))
    log_chance: FloatArray = np.where(np.isnan(log_weight), -np.inf, log_weight)
    return below, log_chance


def service_points(queue: WorkerQueue) -> tuple[FloatArray, FloatArray]:
    """Return up to four values and weights of each service time; shapes (services, points).

    The next state is spread over many milliseconds anyway, so the means of four equally likely
    quarters of a random service time are enough.
    """
    services = queue.services
    if queue.quantiles_ms is None:
        return services.mean_ms[:, None], np.ones((len(services.mean_ms), 1))
    level = np.arange(SERVICE_POINTS + 1) / SERVICE_POINTS
    points = np.empty((len(services.mean_ms), SERVICE_POINTS))
    weights = services.weights
    for s, part in enumerate(np.split(np.arange(weights.nnz), weights.indptr[1:-1])):
        latency_ms = services.latency_ms[weights.indices[part]]
        # The mean of a quarter is the difference of partial expectations at its two levels.
        order = np.argsort(latency_ms)
        upto = np.append(0.0, np.cumsum(weights.data[part][order]))
        total = np.append(0.0, np.cumsum((weights.data[part] * latency_ms)[order]))
        points[s] = np.diff(np.interp(level, upto, total)) * SERVICE_POINTS
    return points, np.full(points.shape, 1.0 / SERVICE_POINTS)


def waiting_in_partial_batch(
    queue: WorkerQueue, phase: FloatArray, largest: int
) -> list[csr_array[np.float64]]:
    """Return the expected number of a partial batch's requests behind its head, by slack.

    Returns
    -------
    list of csr_array, each of shape ((N+1)·(D+1), D+1)
        Entry ``[b-1][(n-1)·(D+1) + j, j']``: expected number of requests with slack T_j' among
        the first b <= ``largest`` of n > b requests, the head excluded. A request between two
        grid values counts half at each.
    """
    lengths, columns = queue.max_queue + 1, queue.bins + 1
    bins = np.broadcast_to(np.arange(columns), (lengths, columns)).copy()
    edge = np.arange(columns)
    halves = csr_array((np.full(2 * columns, 0.5), (
        np.append(edge, edge), np.append(edge, np.minimum(edge + 1, columns - 1)))))
    total: csr_array[np.float64] = csr_array((lengths * columns, columns))
    mass = [total]
    for i in range(1, largest):
        n, j = (index.ravel() for index in np.mgrid[i + 1 : lengths, :columns])
        # A batch of the first i that takes no time leaves the next one as the head: its slack now.
        batches = PartialBatches(n, j, np.full(len(n), i), np.zeros(len(n)))
        at = partial_batch_transitions(queue, phase, bins, batches).transition.tocoo()
        scattered = csr_array((at.data, ((n - 1)[at.row] * columns + j[at.row], at.col)),
                              shape=total.shape)
        total = total + csr_array(scattered @ halves)
        mass.append(total)
    return mass
