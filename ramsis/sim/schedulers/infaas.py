"""INFaaS by an accuracy target: the cheapest model that is accurate enough.

Among the models with at least the wanted accuracy that can answer within the SLO, it takes the one
that costs a worker the least time per request at its batch limit, whatever the load: the scheduler
meets a target rather than making the most of the workers (Romero et al., ATC '21; the comparison
of the RAMSIS paper's App. H).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ramsis.errors import FRACTION, InfeasibleError
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import ModelLevel, batch_limit, plan_levels


@dataclass(frozen=True)
class Infaas(Checked, PerType):
    """INFaaS by an accuracy target: the cheapest model that is accurate enough."""

    name: ClassVar[str] = "infaas"

    accuracy: float = setting(help="Least accuracy wanted.",
                              rule=FRACTION._replace(wrong="not an accuracy"))

    def prepare(self, fleet: Fleet) -> Plan:
        """Return a plan with one level, of the cheapest model that is accurate enough."""
        table = fleet.table
        enough = [m for m in range(len(fleet.models))
                  if table.accuracy[m] >= self.accuracy and fleet.largest_batch(m, fleet.slo_ms)]
        if not enough:
            best = max(table.accuracy[table.latency_ms[:, 0] <= fleet.slo_ms])
            raise InfeasibleError("no model is accurate enough within the SLO", where="accuracy",
                                  value=self.accuracy, allowed=f"at most {best:g}")

        def cost_ms(model: int) -> float:
            batch = batch_limit(fleet, model)
            return float(table.latency_ms[model, batch - 1] / batch)

        model = min(enough, key=cost_ms)
        return plan_levels(self.name, [ModelLevel(math.inf, model, batch_limit(fleet, model))])
