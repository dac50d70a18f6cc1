"""Batches that a more accurate model would need to keep up with the load.

A worker that serves its whole queue on one model settles where the requests that arrive during a
batch are the next batch. With the load λ per worker and batches that take l(b) ms, that is
possible for a batch b with λ·l(b) <= b, and in time while a request waits for one batch and is
served in the next: 2·l(b) <= SLO. Where the smallest such b is beyond the longest queue of the
table, the policy must use faster models, although the SLO would allow for this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.cluster.service_times import seen_table
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.worker.problem import MAX_QUEUE

_MORE = 0.002  # gain in accuracy below which longer batches are not worth a word
_TIMES = 8  # largest batch that is considered, as a multiple of the longest queue
_SPARE = 1.25  # longest queue as a multiple of the batch, since queues vary


class LongBatches(NamedTuple):
    """Smallest batch in which a model keeps up with the load, and a longest queue for it."""

    model: str
    batch: int
    max_queue: int


def needed_batches(policy: Policy, profile: ProfileSet) -> LongBatches | None:
    """Return what the most accurate model needs that only the longest queue rules out, if any.

    None for a central queue, which is longer than its batches.
    """
    if not policy.rule.own_queues:
        return None
    table = seen_table(profile, policy.service, min(_TIMES * policy.max_queue, MAX_QUEUE))
    batch = np.arange(1, table.latency_ms.shape[1] + 1)
    load_per_ms = policy.load_qps / 1000.0 / policy.workers
    keeps_up = (load_per_ms * table.latency_ms <= batch) & (
        2.0 * table.latency_ms <= policy.slo_ms)
    better = np.asarray(table.accuracy) > (policy.rates.accuracy or 0.0) + _MORE
    first = np.where(keeps_up.any(axis=1), keeps_up.argmax(axis=1) + 1, 0)
    chosen = max(np.flatnonzero(better & (first > policy.max_queue)),
                 key=lambda m: table.accuracy[m], default=None)
    if chosen is None:
        return None
    longest = min(2 ** int(np.ceil(np.log2(_SPARE * first[chosen]))), MAX_QUEUE)
    return LongBatches(table.models[chosen], int(first[chosen]), longest)
