"""Jellyfish+: the most accurate model whose throughput meets the load within half the SLO.

Of the (model, batch) with l(m, b) <= SLO/2 and b / l(m, b) >= headroom · load / K it takes the
most accurate model, and batches up to the most efficient such b (the rest of the SLO is for
waiting). Where no model meets the load, the fastest runs in its most efficient batches, those
within the SLO first (see :func:`~ramsis.sim.schedulers.central.overload_levels`).

The RAMSIS paper compares with it (Mendoza et al., EuroSys '24, §7); the artifact of that paper
has a headroom of 1.05, takes the largest such b, and in overload batches of up to 32. The
scheduler follows Jellyfish (Nigade et al., RTSS '22).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ramsis.errors import POSITIVE
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import (
    ModelLevel,
    batch_limit,
    overload_levels,
    plan_levels,
    rising,
    throughput_qps,
)


@dataclass(frozen=True)
class JellyfishPlus(Checked, PerType):
    """Jellyfish+: the most accurate model that meets the load within half the SLO."""

    name: ClassVar[str] = "jellyfish-plus"

    headroom: float = setting(1.0, "Throughput wanted, as a multiple of the load.",
                              rule=POSITIVE._replace(wrong="not a factor"))

    def prepare(self, fleet: Fleet) -> Plan:
        """Return a plan with the levels at which the choice of the model changes."""
        return plan_levels(self.name, self.levels(fleet))

    def levels(self, fleet: Fleet) -> list[ModelLevel]:
        """Return model and batch limit by load, the last level for any load above."""
        levels: list[ModelLevel] = []
        for model in fleet.by_accuracy:
            batch = batch_limit(fleet, model)
            if fleet.table.latency_ms[model, batch - 1] <= fleet.slo_ms / 2.0:
                levels.append(ModelLevel(
                    float(throughput_qps(fleet, model)[batch - 1]) / self.headroom, model, batch))
        beyond, last = overload_levels(fleet)
        levels.append(beyond._replace(load_qps=beyond.load_qps / self.headroom))
        return [*rising(levels), last]
