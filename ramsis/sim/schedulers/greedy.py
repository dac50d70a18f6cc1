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
from functools import partial
from typing import ClassVar

import numpy as np

from ramsis.errors import Rule
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import EarliestDeadlineFirst, most_efficient
from ramsis.sim.tables import Compiled, any_idle_level, stack

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
        """Prepare runs, with tables over the distinct latencies as slacks."""
        needed_ms = fleet.table.latency_ms - SLACK_TOLERANCE_MS
        rows = [(m, needed_ms[m].tolist()) for m in fleet.by_accuracy]
        fastest = fleet.table.fastest
        limit = most_efficient(fleet, fastest, fleet.slo_ms)
        late = (fastest, limit) if self.late == "serve" else None

        def choose(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int] | None:
            for model, latency_ms in rows:
                if latency_ms[0] <= slack_ms:
                    fits = 1
                    while fits < min(queued, len(latency_ms)) and latency_ms[fits] <= slack_ms:
                        fits += 1
                    return model, fits
            return (late[0], min(queued, late[1])) if late else None

        return Plan(self.name, partial(EarliestDeadlineFirst, choose=choose), _tables(fleet, late),
                    fleet.max_batch)


def _tables(fleet: Fleet, late: tuple[int, int] | None) -> Compiled:
    """Return the choices as tables over queue length and slack intervals between latencies."""
    late_model, late_batch = late or (0, 0)
    latency_ms = fleet.table.latency_ms
    longest_ms = max([fleet.slo_ms, *(slo_class.slo_ms for slo_class in fleet.classes)])
    edges = np.append(0.0, np.unique(latency_ms[latency_ms <= longest_ms]))
    rows = fleet.max_batch
    queued = np.arange(1, rows + 1)
    model = np.full((rows, len(edges)), late_model)
    batch = np.broadcast_to(np.minimum(queued, late_batch)[:, None], model.shape).copy()
    for column, slack_ms in enumerate(edges):
        fitting = (m for m in fleet.by_accuracy if latency_ms[m, 0] <= slack_ms)
        best = next(fitting, None)
        if best is not None:
            model[:, column] = best
            batch[:, column] = np.minimum(queued, fleet.largest_batch(best, float(slack_ms)))
    # A longer queue is answered as one of the largest batch.
    return Compiled("central-queue", stack([any_idle_level(np.inf, edges, model, batch)]))
