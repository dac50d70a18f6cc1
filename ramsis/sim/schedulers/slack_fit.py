"""SlackFit: the slack of the head selects a bucket of latencies with its model and batch.

*From the source* (section 4.2). The range from the least to the greatest latency is divided evenly
into buckets. The model and batch of a bucket are those with the largest batch among the pairs
whose latency lies in it. One queue is ordered by deadline. An idle worker takes the bucket whose
latency is closest to the slack of the head and does not exceed it, and runs the bucket's model on
as many of the earliest requests as the bucket's batch. So requests that have waited long are
served by fast models in large batches, and others by accurate models.

*Chosen here.* Only latencies within the SLO are divided. Of several models with the same batch the
most accurate one is taken; a bucket without a pair has the pair of the next lower bucket. If fewer
requests wait than the batch, all of them run. If the slack is below the lowest bucket, the fastest
model serves the head late, in batches up to the most efficient one within the SLO, as by
``greedy``. The source switches between subnetworks of one network, which takes no time; switching
models takes no time here, either.

Source: A. Khare, D. Garg, S. Kalra, S. Grandhi, I. Stoica and A. Tumanov, "SuperServe:
Fine-Grained Inference Serving for Unpredictable Workloads", NSDI '25, and arXiv 2312.16733.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ramsis.arrays import IntArray
from ramsis.errors import whole
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import most_efficient, plan_by_slack


@dataclass(frozen=True)
class SlackFit(Checked, PerType):
    """SuperServe's SlackFit: model and batch by the bucket of the head's slack."""

    name: ClassVar[str] = "slackfit"

    buckets: int = setting(32, "Buckets of the latencies within the SLO.", rule=whole(1, 1000))

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs, with tables over queue length and buckets of slack."""
        latency_ms = fleet.table.latency_ms
        within = latency_ms[latency_ms <= fleet.slo_ms]
        upto_ms = np.linspace(within.min(), within.max(), self.buckets + 1)[1:]
        edges = np.append(0.0, upto_ms)
        return plan_by_slack(self.name, fleet, edges, *_pairs(fleet, edges))


def _pairs(fleet: Fleet, edges: IntArray) -> tuple[IntArray, IntArray]:
    """Return model and batch by queue and bucket of slack, shape (B, J); bucket 0 is late."""
    latency_ms, rows = fleet.table.latency_ms, fleet.max_batch
    queued, fastest = np.arange(1, rows + 1), fleet.table.fastest
    limit = most_efficient(fleet, fastest, fleet.slo_ms)
    model, batch = np.full((2, rows, len(edges)), fastest)
    batch[:, 0] = np.minimum(queued, limit)
    # Larger batches first, and of equal ones the more accurate model.
    order = np.lexsort((-np.repeat(fleet.table.accuracy, rows), -np.tile(queued, len(latency_ms))))
    for column in range(1, len(edges)):
        low = -np.inf if column == 1 else edges[column - 1]
        inside = (latency_ms > low) & (latency_ms <= edges[column] + SLACK_TOLERANCE_MS)
        best = order[inside.flat[order]][:1]
        if len(best):
            model[:, column], batch[:, column] = best // rows, np.minimum(queued, best % rows + 1)
        else:
            model[:, column], batch[:, column] = model[:, column - 1], batch[:, column - 1]
    return model, batch
