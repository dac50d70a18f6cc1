"""Compiled simulation of round robin over workers that come and go, and figures of a run.

While the number of workers is constant, :func:`round_robin` equals its namesake in
:mod:`ramsis.sim._kernels` bit for bit; that one needs no lists of requests, and so is faster. This
one stops before the first event at or after ``until_ms`` and stores its position in the state.
Requests are numbered by arrival; ``Outcomes`` holds the result of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster._kernels import quantile
from ramsis.compiling import index, njit
from ramsis.sim._kernels import RunTerms, _first, _level, _near_bin
from ramsis.sim.tables import Tables

_STRETCH = 32  # mean requests per worker and pass, so that their arrivals stay in the cache

ASSIGNED, TURN = range(2)


class OwnState(NamedTuple):
    """State of workers with one queue each; S worker slots, n requests."""

    # shape (2,): assigned requests; index, among the active slots, of the next round-robin turn
    counts: IntArray
    work_ms: FloatArray  # busy time of all workers so far, shape (1,)
    # shape (n,): linked lists: the next request in the queue of the same worker, -1 after the last
    following: NDArray[np.int32]
    # shape (S,), by slot: first and last request of its queue; ``queued`` of the ``waiting``
    # requests have arrived by its last decision, ``last`` is the newest of these
    head: IntArray
    tail: IntArray
    last: IntArray
    waiting: IntArray
    queued: IntArray
    free_ms: FloatArray  # end of its last batch, shape (S,)
    # shape (S,): first request and size of its last batch
    batch: IntArray
    size: IntArray
    # shape (S,): arrivals counted by its load monitor, and those older than the monitor's window
    seen: IntArray
    past: IntArray


class Outcomes(NamedTuple):
    """Outcome of each request; arrays of shape (n,)."""

    finish_ms: FloatArray  # time of the answer, infinite without one
    model: NDArray[np.int16]  # -1 never answered, -2 dropped, -3 lost in a worker failure


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def round_robin(
    until_ms: float, active: IntArray, serving: IntArray, arrival_ms: FloatArray, tables: Tables,
    terms: RunTerms, state: OwnState, out: Outcomes,
) -> None:
    """Simulate round-robin dispatch to the active workers until a time.

    Without an active worker requests are dropped on arrival. Workers do not interact between
    assignments, so each of them is simulated alone through one stretch of arrivals at a time.
    """
    counts, work, following, heads, tails, lasts, waiting, queued_of, free_at, first_of, size_of, \
        seen, past = state
    _, _, _, queue_row, slack_ms, per_ms, first_bin, codes, models, batches, _ = tables
    last_row = queue_row.shape[1] - 1
    quantiles_ms, levels, uniform = terms.quantiles_ms, terms.quantile_levels, terms.uniform
    near = terms.near_level
    finish_of, model_of = out
    assigned, turn, work_ms = counts[ASSIGNED], counts[TURN], work[0]
    upto = _first(arrival_ms, until_ms, assigned, False)
    while True:
        # Assign a stretch of arrivals in turn, then let each worker decide before ``limit_ms``.
        end = min(assigned + _STRETCH * max(active.size, 1), upto)
        limit_ms = until_ms if end == upto else arrival_ms[end]
        for request in range(assigned, end):
            if active.size == 0:
                model_of[request] = -2
                continue
            slot = active[turn]
            turn += 1
            if turn == active.size:
                turn = 0
            following[index(request)] = -1
            if waiting[slot] == 0:
                heads[slot] = request
            else:
                following[index(tails[slot])] = request
            tails[slot] = request
            waiting[slot] += 1
        assigned = end
        for slot in serving:
            head, free_ms, queued, last = (
                heads[slot], free_at[slot], queued_of[slot], lasts[slot])
            left = waiting[slot]
            while left > 0:
                first_ms = arrival_ms[index(head)]
                triggered = first_ms >= free_ms
                now_ms = first_ms if triggered else free_ms
                if now_ms >= limit_ms:
                    break
                if triggered:  # The first request arrived at an idle worker.
                    queued, last = 1, head
                else:  # add the requests that arrived during the last batch
                    after = head if queued == 0 else int(following[index(last)])
                    while after >= 0 and arrival_ms[index(after)] < now_ms:
                        last = after
                        after = int(following[index(after)])
                        queued += 1
                seen[slot] = (head + 1 if triggered
                              else _first(arrival_ms, now_ms, seen[slot], False))
                past[slot] = _first(arrival_ms, now_ms - terms.window_ms, past[slot], True)
                level = _level(tables, terms, arrival_ms, now_ms, seen[slot], past[slot])
                left_ms = first_ms + terms.slo_ms - now_ms
                j = _near_bin(per_ms, first_bin, level, left_ms)
                j += slack_ms[level, j + 1] <= left_ms
                while slack_ms[level, j + 1] <= left_ms:
                    j += 1
                row = index(min(queued - 1, queue_row[level, last_row]))
                answer = int(codes[level, 0, row, index(j)])
                action = index(max(answer, 0))
                model, batch = int(models[level, action]), int(batches[level, action])
                if answer < 0:
                    model_of[head] = -2
                    head = int(following[index(head)])
                    queued -= 1
                    left -= 1
                    continue
                if uniform.size == 0:
                    service_ms = quantiles_ms[model, batch - 1, 0]
                else:
                    service_ms = quantile(quantiles_ms, levels, near, (model, batch - 1),
                                          uniform[head])
                free_ms = now_ms + terms.network_ms + service_ms
                work_ms += free_ms - now_ms
                first_of[slot] = head
                size_of[slot] = batch
                for _ in range(batch):
                    finish_of[index(head)] = free_ms
                    model_of[index(head)] = model
                    head = int(following[index(head)])
                queued -= batch
                left -= batch
            heads[slot], free_at[slot], queued_of[slot], lasts[slot] = head, free_ms, queued, last
            waiting[slot] = left
        if assigned == upto:
            break
    counts[ASSIGNED], counts[TURN], work[0] = assigned, turn, work_ms


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def figures(
    arrival_ms: FloatArray, out: Outcomes, accuracy: FloatArray, slo_ms: float, room_ms: float,
    edge_ms: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Count arrivals and on-time answers, and sum the accuracies of these, by arrival interval."""
    intervals, at = edge_ms.size - 1, 0
    arrived, in_time = np.zeros(intervals, np.int64), np.zeros(intervals, np.int64)
    reward = np.zeros(intervals)
    finish_of, model_of = out
    for request in range(arrival_ms.size):
        while at < intervals - 1 and arrival_ms[request] >= edge_ms[at + 1]:
            at += 1
        arrived[at] += 1
        if finish_of[request] <= arrival_ms[request] + slo_ms + room_ms:
            in_time[at] += 1
            reward[at] += accuracy[model_of[request]]
    return arrived, in_time, reward
