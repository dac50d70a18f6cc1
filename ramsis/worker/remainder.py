"""What a batch of part of the queue leaves behind: the law of the next state (Poisson arrivals).

In state (n, j) the worker serves the b < n earliest requests in l ms. The next deadline is that
of the (b+1)-th request, the bK-th central arrival after the earliest one (EuroSys '24, §4.3.2).
With T = SLO − t the time since the earliest request came, t its slack, and k = (n−1)·K + p central
arrivals in that time, p = K − r with the law of r of :mod:`ramsis.worker.phases`:

- given k, arrivals lie in T as k independent uniform instants, so the bK-th of them came
  X = T·Beta(bK, k − bK + 1) after the earliest one, and the slack after the service is t + X − l;
- a central arrivals come during the service, n' = n − b + ⌊(p + a)/K⌋, a ~ Poisson(λl).

Given p the two are independent, so that

    P(n' = n − b + i, slack' < s | n, j) = Σ_p w(p)·A_p(i)·F_p((s + l − t)/T),
    A_p(i) = P(⌊(p + a)/K⌋ = i),   F_p(y) = P(Beta(bK, k − bK + 1) <= y) = P(Bin(k, y) >= bK).

The sum runs over all K phases, with F_p by the recurrence
P(Bin(k+1, y) >= c) = P(Bin(k, y) >= c) + y·P(Bin(k, y) = c − 1).

Slack is known to its bin only. Its rounded value t = T_j would lose half a bin in each part of a
queue, time and again; so t is the middle of the bin here (SLO at the last one). Slack below T_1,
also negative, is bin 0, and n' > N the full state, at bin 0 too.

The next state remembers (n', j') only. Given these alone its phases have the weights that the
worker's MDP gives them; the exact past would tell a little more about them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import betainc, betaincinv, gammaln

from ramsis.arrivals.counts import counts_cdf, counts_support
from ramsis.errors import InvalidValueError, describe

if TYPE_CHECKING:
    from ramsis.worker.problem import WorkerProblem

__all__ = [
    "MAX_ENTRIES",
    "SERVICE_POINTS",
    "PartialBatches",
    "Remainder",
    "bin_slack",
    "bins_reached",
    "later_in_parts",
    "likely_states",
    "new_requests",
    "remainder",
    "service_points",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SERVICE_POINTS = 4
"""Values that stand for a drawn service time."""
MAX_ENTRIES = 200_000_000
"""Most transitions of partial batches that are held at once, of 12 bytes each."""
_NEGLIGIBLE = 1e-15
_UNLIKELY = 1e-15


class PartialBatches(NamedTuple):
    """P batches that leave something in the queue.

    Attributes
    ----------
    queued : ndarray of int, shape (P,)
        n: 2 … N, or N + 1 for the full state.
    slack_bin : ndarray of int, shape (P,)
    batch : ndarray of int, shape (P,)
        b, 1 <= b < n.
    latency_ms : ndarray, shape (P,)
        l >= 0.
    """

    queued: IntArray
    slack_bin: IntArray
    batch: IntArray
    latency_ms: FloatArray


@dataclass(frozen=True, eq=False)
class Remainder:
    """Where partial batches lead.

    Attributes
    ----------
    law : csr_array, shape (P, S)
        P(next state); rows sum to 1.
    excess : ndarray, shape (P,)
        E[(n' − N − 1)⁺]: requests of the full state beyond N + 1.
    """

    law: csr_array[np.float64]
    excess: FloatArray


def bin_slack(problem: WorkerProblem) -> FloatArray:
    """The slack that stands for each bin: its middle, and the SLO at the last; shape (D+1,)."""
    upper = np.append(problem.slack_ms[1:], problem.slo_ms)
    middle: FloatArray = (problem.slack_ms + upper) / 2.0
    return middle


def likely_states(problem: WorkerProblem) -> NDArray[np.bool_]:
    """The states whose n is at all likely for some slack in the bin; shape (N+1, D+1).

    n requests are queued after T ms where (n−1)·K to n·K − 1 central arrivals came in T. Each bin
    has at least one of n <= N; bin 0 has no upper end of T, and holds the full state.
    """
    waited = problem.slo_ms - problem.slack_ms
    top = counts_support(problem.arrivals, problem.slo_ms)
    cdf = counts_cdf(problem.arrivals, waited, top)
    last = np.arange(1, problem.max_queue + 2) * problem.workers - 1
    upto = np.where(last > top, 1.0, cdf[:, np.minimum(last, top)]).T
    above = 1.0 - np.vstack([np.zeros((1, len(waited))), upto[:-1]])
    least_waited = np.append(waited[1:], 0.0)
    at_least = np.where(
        last[:, None] > top, 1.0,
        counts_cdf(problem.arrivals, least_waited, top)[:, np.minimum(last, top)].T,
    )
    likely = (above > _UNLIKELY) & (at_least > _UNLIKELY)
    likely[:, 0] = at_least[:, 0] > _UNLIKELY
    likely[0, -1] = True
    likely[-2, ~likely[:-1].any(axis=0)] = True  # so old that more than N are queued
    likely[-1] = False
    likely[-1, 0] = True
    return likely


def remainder(
    problem: WorkerProblem, missing: FloatArray, columns: IntArray, batches: PartialBatches
) -> Remainder:
    """Where each partial batch leads.

    Parameters
    ----------
    missing : ndarray, shape (N+1, D+1, K)
        Law of r, of :func:`ramsis.worker.phases.missing_arrivals`.
    columns : ndarray of int, shape (N+1, D+1)
        Column of the law that stands for (n', j'), n' = N + 1 the full state; several states may
        share one.
    """
    from ramsis.worker._kernels import remainder_rows

    if not len(batches.queued):
        nowhere: csr_array[np.float64] = csr_array((0, int(columns.max()) + 1))
        return Remainder(nowhere, np.empty(0))
    workers = problem.workers
    latency_ms, service = np.unique(batches.latency_ms, return_inverse=True)
    new = new_requests(problem, latency_ms)
    slack = bin_slack(problem)
    first, last = bins_reached(
        problem, batches.queued, batches.batch, slack[batches.slack_bin], batches.latency_ms
    )
    edges = last - first
    counted = (new > _NEGLIGIBLE).any(axis=1).sum(axis=1)
    size = int(((edges + 1) * counted[service]).sum())
    if size > MAX_ENTRIES:
        raise InvalidValueError(
            describe("the problem is too large for variable batching", where="worker problem",
                     value=f"{len(edges)} batches of part of a queue, {size:.3g} transitions",
                     allowed=f"up to {MAX_ENTRIES:.0e}: fewer models, a coarser grid, a smaller "
                             "max_queue, or maximal batching")
        )
    start = np.concatenate([[0], np.cumsum(edges)])
    pair = np.repeat(np.arange(len(edges)), edges)
    upper = problem.slack_ms[first[pair] + 1 + np.arange(start[-1]) - start[pair]]
    now = slack[batches.slack_bin[pair]]
    y = (upper + batches.latency_ms[pair] - now) / (problem.slo_ms - now)
    np.clip(y, 0.0, 1.0, out=y)
    order = batches.batch[pair] * workers
    count = (batches.queued[pair] - 1) * workers
    below, log_weight = _first_phase(order, count, y)
    which = np.stack([*batches[:3], service, first], axis=1)
    indptr, indices, data, excess = remainder_rows(
        np.ascontiguousarray(missing[:, :, ::-1]), new, columns, which, start,
        y, below, log_weight, _NEGLIGIBLE, size,
    )
    shape = (len(edges), int(columns.max()) + 1)
    law: csr_array[np.float64] = csr_array((data, indices, indptr), shape=shape)
    return Remainder(law, excess)


def new_requests(problem: WorkerProblem, latency_ms: FloatArray) -> FloatArray:
    """A_p(i) for each latency; shape (L, K, I)."""
    workers = problem.workers
    top = counts_support(problem.arrivals, float(latency_ms[-1]))
    cdf = counts_cdf(problem.arrivals, latency_ms, top)
    most = (top + workers - 1) // workers
    last = (np.arange(most + 1) + 1) * workers - 1 - np.arange(workers)[:, None]
    upto = np.where(last > top, 1.0, cdf[:, np.minimum(last, top)])
    return np.maximum(np.diff(upto, axis=2, prepend=0.0), 0.0)


def bins_reached(
    problem: WorkerProblem, queued: IntArray, batch: IntArray, slack_ms: FloatArray,
    latency_ms: FloatArray,
) -> tuple[IntArray, IntArray]:
    """First and last bin of the slack after each batch, but for what is negligible."""
    order, fewest = batch * problem.workers, (queued - 1) * problem.workers
    most = fewest + problem.workers - 1
    low = np.asarray(betaincinv(order, most - order + 1.0, _NEGLIGIBLE), dtype=np.float64)
    high = 1.0 - np.asarray(betaincinv(fewest - order + 1.0, order, _NEGLIGIBLE), dtype=np.float64)
    waited = problem.slo_ms - slack_ms

    def bin_at(share: FloatArray) -> IntArray:
        after = slack_ms + share * waited - latency_ms
        found = np.searchsorted(problem.slack_ms, after, side="right") - 1
        return np.clip(found, 0, problem.bins)

    return bin_at(low), bin_at(high)


def _first_phase(
    order: IntArray, count: IntArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """P(Bin(k, y) >= c) and log P(Bin(k, y) = c − 1) for c <= k."""
    below = np.asarray(betainc(order, count - order + 1.0, y), dtype=np.float64)
    with np.errstate(divide="ignore"):
        log_weight = (gammaln(count + 1.0) - gammaln(order) - gammaln(count - order + 2.0)
                      + (order - 1.0) * np.log(y) + (count - order + 1.0) * np.log1p(-y))
    found: FloatArray = np.where(np.isnan(log_weight), -np.inf, log_weight)
    return below, found


def service_points(problem: WorkerProblem) -> tuple[FloatArray, FloatArray]:
    """Each service time as up to four values and their weights; shapes (services, points).

    What a batch leaves behind is spread over many milliseconds anyway, so of a drawn service
    time the means of four equally likely quarters are enough.
    """
    services = problem.services
    if problem.quantiles_ms is None:
        return services.mean_ms[:, None], np.ones((len(services.mean_ms), 1))
    level = np.arange(SERVICE_POINTS + 1) / SERVICE_POINTS
    points = np.empty((len(services.mean_ms), SERVICE_POINTS))
    for s, part in enumerate(np.split(np.arange(services.mix.nnz), services.mix.indptr[1:-1])):
        latency_ms = services.latency_ms[services.mix.indices[part]]
        order = np.argsort(latency_ms)
        upto = np.append(0.0, np.cumsum(services.mix.data[part][order]))
        total = np.append(0.0, np.cumsum((services.mix.data[part] * latency_ms)[order]))
        points[s] = np.diff(np.interp(level, upto, total)) * SERVICE_POINTS
    return points, np.full(points.shape, 1.0 / SERVICE_POINTS)


def later_in_parts(
    problem: WorkerProblem, missing: FloatArray, largest: int
) -> list[csr_array[np.float64]]:
    """Where the first requests behind the earliest one stand.

    Returns
    -------
    list of csr_array, each of shape ((N+1)·(D+1), D+1)
        Entry ``[b-1][(n-1)·(D+1) + j, j']``: of b <= ``largest`` requests from the head of n > b
        those but the first, expected at slack T_j'. Those between two grid values are shared by
        the two equally.
    """
    rows, columns = problem.max_queue + 1, problem.bins + 1
    bins = np.broadcast_to(np.arange(columns), (rows, columns)).copy()
    edge = np.arange(columns)
    shared = csr_array((np.full(2 * columns, 0.5), (
        np.append(edge, edge), np.append(edge, np.minimum(edge + 1, columns - 1)))))
    law: csr_array[np.float64] = csr_array((rows * columns, columns))
    found = [law]
    for i in range(1, largest):
        n, j = (index.ravel() for index in np.mgrid[i + 1 : rows, :columns])
        batches = PartialBatches(n, j, np.full(len(n), i), np.zeros(len(n)))
        at = remainder(problem, missing, bins, batches).law.tocoo()
        one = csr_array((at.data, ((n - 1)[at.row] * columns + j[at.row], at.col)),
                        shape=law.shape)
        law = law + csr_array(one @ shared)
        found.append(law)
    return found
