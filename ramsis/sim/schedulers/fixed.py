"""Fixed: one model, whatever the load; an idle worker takes what waits, up to a batch limit.

The module also has the base class of other schedulers of one model, with a batch limit and an
objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ramsis.errors import POSITIVE, InvalidValueError, check_known
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import ModelLevel, batch_limit, plan_levels

OBJECTIVE = POSITIVE._replace(wrong="not a share of the SLO")


@dataclass(frozen=True)
class Fixed(PerType):
    """Scheduler of one model at every load, in batches up to a limit."""

    name: ClassVar[str] = "fixed"

    model: str  # its name
    batch: int = 0  # batch limit; 0: the most efficient within half the SLO

    def prepare(self, fleet: Fleet) -> Plan:
        """Return a plan with one level, for every load."""
        model = model_index(fleet, self.model)
        check_limit(fleet, self.batch, "by the SLO")
        return plan_levels(self.name, [
            ModelLevel(math.inf, model, self.batch or batch_limit(fleet, model))
        ])


def check_limit(fleet: Fleet, batch: int, by_default: str = "the largest") -> None:
    """Refuse a batch limit that a fleet's workers do not run; 0 stands for the default."""
    if not 0 <= batch <= fleet.max_batch:
        raise InvalidValueError("no such batch limit", where="batch", value=batch,
                                allowed=f"1 to {fleet.max_batch}, 0 {by_default}")


def model_index(fleet: Fleet, name: str) -> int:
    """Return the index of a model by its name; refuse an unknown one."""
    check_known("unknown model", name, fleet.models, "model")
    return fleet.models.index(name)


@dataclass(frozen=True)
class SingleModel(Checked, PerType):
    """Base class of schedulers of one model with a batch limit."""

    model: str  # its name
    batch: int = 0  # batch limit; 0: the largest
    objective: float = setting(
        1.0, "Time after arrival that is taken as the deadline, in SLOs.", rule=OBJECTIVE)

    def limit(self, fleet: Fleet) -> int:
        """Return the batch limit on a fleet, by default its largest batch."""
        check_limit(fleet, self.batch)
        return self.batch or fleet.max_batch
