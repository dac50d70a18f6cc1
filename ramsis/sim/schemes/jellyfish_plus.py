"""Jellyfish+: the most accurate model whose throughput meets the load within half the SLO.

Of the (model, batch) with l(m, b) <= SLO/2 and b / l(m, b) >= headroom · load / K it takes the
most accurate model, and batches up to the largest such b (the rest of the SLO is for waiting).
Where no model meets the load, the fastest runs in its largest batches within half the SLO.

The RAMSIS paper compares with it (Mendoza et al., EuroSys '24, §7); the artifact of that paper
has a headroom of 1.05. The scheme follows Jellyfish (Nigade et al., RTSS '22).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ramsis.errors import InvalidValueError, describe
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schemes.central import ModelLevel, batch_limit, plan_levels

__all__ = ["JellyfishPlus"]


@dataclass(frozen=True)
class JellyfishPlus(PerType):
    """See the module's description.

    Parameters
    ----------
    headroom : float
        Throughput wanted, as a multiple of the load; > 0.
    """

    name: ClassVar[str] = "jellyfish-plus"

    headroom: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.headroom) and self.headroom > 0):
            raise InvalidValueError(describe("not a factor", where="headroom",
                                             value=self.headroom, allowed="a finite number > 0"))

    def prepare(self, fleet: Fleet) -> Plan:
        """The levels at which the choice changes."""
        return plan_levels(self.name, self.levels(fleet))

    def levels(self, fleet: Fleet) -> list[ModelLevel]:
        """Model and batch limit by load, the last level for any load above."""
        latency_ms = fleet.table.latency_ms
        batch = np.arange(1, fleet.max_batch + 1)
        carried = 1000.0 * fleet.workers / self.headroom * batch / latency_ms
        carried[latency_ms > fleet.slo_ms / 2.0] = 0.0
        levels: list[ModelLevel] = []
        for load in np.unique(carried[carried > 0]):
            model = next(m for m in fleet.by_accuracy if (carried[m] >= load).any())
            level = ModelLevel(float(load), model, int(batch[carried[model] >= load][-1]))
            if levels and levels[-1][1:] == level[1:]:
                levels.pop()
            levels.append(level)
        fastest = fleet.table.fastest
        return [*levels, ModelLevel(math.inf, fastest, batch_limit(fleet, fastest))]
