"""States of a policy's table that hardly ever occur."""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc

from ramsis.arrays import IntArray
from ramsis.policy import Policy
from ramsis.runtime.routing import DISPATCHES

_RARE = 1e-6  # probability below which a state counts as one that does not occur


def rare_from(policy: Policy) -> IntArray:
    """Return for each queue length the slack bin from which on states are improbable.

    If the earliest deadline has the slack s, the oldest request arrived SLO − s ago, and all other
    requests of the queue arrived since. A queue is rare if so many Poisson arrivals in this time
    are improbable. Bursts of other processes, and queues of late requests, are not limited in this
    way: for them no state counts as rare.
    """
    bins = len(policy.slack_ms)
    others = policy.queue_levels[:-1]  # of the shortest queue that a level stands for
    if policy.arrivals.get("process") != "poisson" or policy.late == "serve":
        return np.full(len(others), bins)
    queues = policy.workers if DISPATCHES[policy.dispatch].own_queues else 1
    since_ms = np.maximum(policy.classes[-1].slo_ms - policy.slack_ms, 0.0)
    mean = policy.load_qps / queues * since_ms / 1000.0
    likely = gammainc(np.maximum(others, 1)[:, None], mean) > _RARE
    return np.where(others == 0, bins, likely.sum(axis=1))
