"""Greedy by the deadline: the most accurate model that the first request can still wait for.

An idle worker takes the most accurate model m with l(m, 1) <= slack, where slack is that of the
head of the central queue, and the largest batch b of waiting requests with l(m, b) <= slack. The
choice depends neither on the load nor on future arrivals, like that of MDInference (Ogden and Guo,
IC2E '20) and ALERT (Wan et al., ATC '20) for single requests. When no model can keep the deadline,
the fastest model serves the request late, in batches up to the most efficient one within the SLO;
or the request is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ramsis.errors import Rule
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import most_efficient, plan_by_slack

LATE = ("serve", "drop")
"""What is done with requests that cannot be answered in time."""
LATE_RULE = Rule(", ".join(LATE), LATE.__contains__, "unknown rule for late requests")


@dataclass(frozen=True)
class Greedy(Checked, PerType):
    """Scheduler of the most accurate model that the first request can still wait for."""

    name: ClassVar[str] = "greedy"

    late: str = setting(
        "serve", "serve: a request that cannot be in time is answered by the fastest model, in "
        "batches up to its most efficient within the SLO; drop: it is given up.", rule=LATE_RULE)

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs, with tables over queue length and slack intervals between latencies."""
        latency_ms, rows = fleet.table.latency_ms, fleet.max_batch
        longest_ms = max([fleet.slo_ms, *(slo_class.slo_ms for slo_class in fleet.classes)])
        edges = np.append(0.0, np.unique(latency_ms[latency_ms <= longest_ms]))
        queued, fastest = np.arange(1, rows + 1), fleet.table.fastest
        limit = most_efficient(fleet, fastest, fleet.slo_ms) if self.late == "serve" else 0
        model = np.full((rows, len(edges)), fastest)
        batch = np.broadcast_to(np.minimum(queued, limit)[:, None], model.shape).copy()
        for column, slack_ms in enumerate(edges):
            fitting = (m for m in fleet.by_accuracy if latency_ms[m, 0] <= slack_ms)
            best = next(fitting, None)
            if best is not None:
                model[:, column] = best
                batch[:, column] = np.minimum(queued, fleet.largest_batch(best, float(slack_ms)))
        # A longer queue is answered as one of the largest batch.
        return plan_by_slack(self.name, fleet, edges, model, batch)
