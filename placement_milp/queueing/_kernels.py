"""Compiled simulation of a station: lanes that serve several queues in turn, in batches.

``tests/placement/test_queueing.py`` compares it with the simulation engine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


@njit(cache=True)
def responses_ms(
    arrivals: _Floats, begin: _Ints, lanes: int, batches: _Ints, latency: _Floats
) -> _Floats:
    """Simulate a station; return the response time of each request, shape (requests,).

    The requests of queue q have the indices begin[q] to begin[q + 1] - 1, sorted by arrival. An
    idle lane takes the waiting requests of its next queue in turn, up to batches[q], for
    latency[q, size] ms; empty queues are skipped.
    """
    queues = len(batches)
    head = begin[:-1].copy()
    free = np.zeros(lanes)
    turn = np.zeros(lanes, np.int64)
    response = np.empty(len(arrivals))
    pending = len(arrivals)
    while pending > 0:
        first = np.inf
        for q in range(queues):
            if head[q] < begin[q + 1]:
                first = min(first, arrivals[head[q]])
        # The lane that is free first starts when a request waits for it.
        lane = 0
        for other in range(1, lanes):
            if free[other] < free[lane]:
                lane = other
        start = max(free[lane], first)
        q = turn[lane]
        # The loop ends, as at least one queue has a request by the start.
        while head[q] == begin[q + 1] or arrivals[head[q]] > start:
            q = (q + 1) % queues
        end = head[q]
        while end < begin[q + 1] and end - head[q] < batches[q] and arrivals[end] <= start:
            end += 1
        size = end - head[q]
        done = start + latency[q, size]
        for request in range(head[q], end):
            response[request] = done - arrivals[request]
        head[q] = end
        pending -= size
        free[lane] = done
        turn[lane] = (q + 1) % queues
    return response
