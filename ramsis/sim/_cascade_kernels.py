"""Compiled simulation of a queue whose requests may get a second opinion.

The rule and its steps 1 to 4 are those of :mod:`ramsis.policy.cascade`. Events come in the order
of :func:`ramsis.sim._kernels.central_queue`: at one instant batches end before requests arrive,
and every event is followed by decisions for all idle workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.cluster._kernels import quantile
from ramsis.compiling import njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim._kernels import RunTerms, _insert, _ring_size
from ramsis.sim.tables import CascadeTables

_TOLERANCE_MS = SLACK_TOLERANCE_MS
_FIRST, _SECOND = 1, 2  # what a worker runs


class CascadeRoom(NamedTuple):
    """Output arrays of a run: up to two batches for each of n requests, and each request."""

    # start_ms, finish_ms, worker, model, size, queued: of each batch, shape (2n,)
    start_ms: FloatArray
    finish_ms: FloatArray
    worker: NDArray[np.int32]
    model: NDArray[np.int32]
    size: NDArray[np.int32]
    queued: NDArray[np.int32]  # fresh requests that wait
    first: NDArray[np.int32]  # batch of the first answer, -1 or -2 (dropped), shape (n,)
    second: NDArray[np.int32]  # batch of the second opinion that is the answer, or -1, shape (n,)
    bin_of: NDArray[np.int32]  # bin of the first answer's confidence, shape (n,)
    answered_ms: FloatArray  # when the answer is given, shape (n,)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _largest(times_ms: FloatArray, slack_ms: float, most: int) -> int:
    """Return the largest batch, up to ``most``, that ends within a slack."""
    batch = 0
    while batch < most and times_ms[batch + 1] <= slack_ms + _TOLERANCE_MS:
        batch += 1
    return batch


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cascade(
    arrival_ms: FloatArray, sureness: FloatArray, tables: CascadeTables, terms: RunTerms,
    out: CascadeRoom,
) -> int:
    """Simulate a queue with second opinions and its workers; return the number of batches.

    ``sureness`` is the rank of each request's confidence, uniform in [0, 1).
    """
    (models, batches, unsure_bins, upto, gather, least, second_ms, second, per_fresh, per_unsure,
     step_ms, last_call_ms) = tables
    slo_ms, network_ms, workers = terms.slo_ms, terms.network_ms, terms.workers
    quantiles_ms, levels, near = terms.quantiles_ms, terms.quantile_levels, terms.near_level
    uniform = terms.uniform
    (start_of, finish_of, worker_of, model_of, size_of, queued_of, first_of, second_of, bin_of,
     answered_ms) = out
    n, last_level = arrival_ms.size, gather.size - 1
    longest, last_bin, most = batches.shape[1], batches.shape[2] - 1, second_ms.size - 1
    ring = _ring_size(workers)
    mask = ring - 1
    times, who = np.empty(ring), np.empty(ring, dtype=np.int64)
    idle = np.empty(ring, dtype=np.int64)
    for worker in range(workers):
        idle[worker] = worker
    # What each worker runs (_FIRST or _SECOND), and the first place of its batch: in the requests
    # by arrival for first answers, in ``unsure`` for second opinions.
    stage, begin = np.zeros(workers, dtype=np.int64), np.zeros(workers, dtype=np.int64)
    runs = np.zeros(workers, dtype=np.int64)  # number of each worker's batch
    unsure = np.empty(n, dtype=np.int64)  # queue of unsure requests: head to tail by deadline
    # Rings of busy and idle workers as in ramsis.sim._kernels; ``fresh`` requests wait, the latest
    # of the ``arrived`` ones.
    first, busy, first_idle, idles = 0, 0, 0, workers
    arrived, fresh, head, tail, count = 0, 0, 0, 0, 0
    timer_ms = np.inf
    first_of[:] = -1
    second_of[:] = -1
    answered_ms[:] = np.inf
    while True:
        next_ms = arrival_ms[arrived] if arrived < n else np.inf
        end_ms = times[first & mask] if busy > 0 else np.inf
        if timer_ms < min(next_ms, end_ms):
            now_ms = timer_ms
        elif busy > 0 and end_ms <= next_ms:
            now_ms = end_ms
            worker = who[first & mask]
            first += 1
            busy -= 1
            idle[(first_idle + idles) & mask] = worker
            idles += 1
            ran = runs[worker]
            model, size = model_of[ran], size_of[ran]
            if stage[worker] == _FIRST:
                # Answers of low confidence join the unsure queue, by the level at this instant.
                level = min(int(fresh * per_fresh + (tail - head) * per_unsure), last_level)
                bins = unsure_bins[level, model]
                for query in range(begin[worker], begin[worker] + size):
                    answered_ms[query] = now_ms
                    at = 0
                    while at < upto.shape[1] - 1 and sureness[query] >= upto[model, at]:
                        at += 1
                    bin_of[query] = at
                    if at < bins and now_ms < arrival_ms[query] + slo_ms:
                        place = tail  # by deadline: another batch may have ended before
                        while place > head and unsure[place - 1] > query:
                            unsure[place] = unsure[place - 1]
                            place -= 1
                        unsure[place] = query
                        tail += 1
            else:
                for place in range(begin[worker], begin[worker] + size):
                    query = unsure[place]
                    due_ms = arrival_ms[query] + slo_ms
                    # Else the first answer was sent when it was due.
                    answered_ms[query] = min(now_ms, due_ms)
                    if now_ms <= due_ms + _TOLERANCE_MS:
                        second_of[query] = ran
                        answered_ms[query] = now_ms
        elif arrived < n:
            now_ms = next_ms
            arrived += 1
            fresh += 1
        else:
            break
        timer_ms = np.inf
        while idles > 0 and fresh + tail - head > 0:
            level = min(int(fresh * per_fresh + (tail - head) * per_unsure), last_level)
            # Step 1: heads that cannot be in time in an efficient batch keep their first answers.
            while tail > head and (
                    arrival_ms[unsure[head]] + slo_ms - now_ms + _TOLERANCE_MS
                    < second_ms[min(tail - head, gather[level])]):
                # When it is due at the latest, whether a worker is idle or not.
                answered_ms[unsure[head]] = min(now_ms, arrival_ms[unsure[head]] + slo_ms)
                head += 1
            # Step 2: whether second opinions run now (``ready``): ``again`` of them end in time.
            again, due_ms, ready = 0, np.inf, False
            if tail > head:
                due_ms = arrival_ms[unsure[head]] + slo_ms
                again = _largest(second_ms, due_ms - now_ms, min(tail - head, most))
                ready = (again >= gather[level] or due_ms - now_ms - second_ms[again]
                         <= last_call_ms + _TOLERANCE_MS)
            # Step 3: fresh requests by the table.
            batch, model, wake_ms = -1, 0, np.inf
            if fresh > 0 and not ready:
                oldest = arrived - fresh
                slack_ms = arrival_ms[oldest] + slo_ms - now_ms
                j = max(min(int((slack_ms + _TOLERANCE_MS) / step_ms), last_bin), 0)
                row = min(fresh, longest) - 1
                batch, model = batches[level, row, j], models[level, row, j]
                if batch == 0:
                    first_of[oldest] = -2
                    answered_ms[oldest] = now_ms
                    fresh -= 1
                    continue
                if batch < 0:  # to be asked again in the first bin below with another answer
                    while j > 0 and batches[level, row, j - 1] < 0:
                        j -= 1
                    if j > 0:
                        wake_ms = arrival_ms[oldest] + slo_ms - j * step_ms + 2.0 * _TOLERANCE_MS
            # Step 4: the worker has no fresh batch; fewer second opinions than ``gather`` may do.
            if batch < 0 and again > 0 and not ready:
                if again >= least[level]:
                    ready = True
                else:
                    wake_ms = min(wake_ms, due_ms - second_ms[again] - last_call_ms)
            if not ready and batch < 0:
                # After months, at a very low load, the tolerance is below the spacing of times.
                timer_ms = max(wake_ms, now_ms + _TOLERANCE_MS, np.nextafter(now_ms, np.inf))
                break
            worker = idle[first_idle & mask]
            if ready:
                batch, model, query = again, second, unsure[head]
                stage[worker], begin[worker] = _SECOND, head
                draw = n - 1 - query  # a number other than that of its first answer
                head += batch
            else:
                query = arrived - fresh
                stage[worker], begin[worker] = _FIRST, query
                draw = query
                first_of[query : query + batch] = count
                fresh -= batch
            if uniform.size == 0:
                service_ms = quantiles_ms[model, batch - 1, 0]
            else:
                service_ms = quantile(quantiles_ms, levels, near, (model, batch - 1),
                                      uniform[draw])
            end_ms = now_ms + network_ms + service_ms
            first_idle += 1
            idles -= 1
            _insert(times, who, first, busy, end_ms, worker)
            busy += 1
            runs[worker] = count
            start_of[count], finish_of[count] = now_ms, end_ms
            worker_of[count], model_of[count], size_of[count] = worker, model, batch
            queued_of[count] = fresh
            count += 1
    return count


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def earned(
    arrival_ms: FloatArray, counted: tuple[int, int], out: CascadeRoom, accuracy: FloatArray,
    increment: FloatArray, terms: tuple[float, float], opinions: NDArray[np.int64],
) -> float:
    """Return the mean reward of the requests ``counted[0]`` … ``counted[1] − 1`` of a run.

    A request in time is worth the ``accuracy`` (M,) of its first answer, plus the ``increment``
    (M, Q) of its second opinion if it got one; a miss is worth minus a price. ``terms`` are the
    SLO in ms and the price of a miss. ``opinions`` (M, Q) is overwritten with the number of second
    opinions by first model and bin of confidence.
    """
    slo_ms, price = terms
    total = 0.0
    opinions[:] = 0
    for query in range(counted[0], counted[1]):
        worth = 0.0
        if out.first[query] >= 0:
            model = out.model[out.first[query]]
            worth = accuracy[model]
            if out.second[query] >= 0:
                worth += increment[model, out.bin_of[query]]
                opinions[model, out.bin_of[query]] += 1
        in_time = (out.first[query] >= 0 and out.answered_ms[query] <= arrival_ms[query]
                   + slo_ms + 2.0 * _TOLERANCE_MS)
        total += worth if in_time else -price
    return total / (counted[1] - counted[0])
