"""Fixed threshold: a cascade of two models with one threshold of confidence at all times.

Most systems with cascades do this, such as FrugalGPT (Chen et al., 2023) for one request at a
time. Two rules were added here: how batches form, and that the first answer is given if the second
one would be late; see :mod:`ramsis.sim.schedulers.thresholds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ramsis.errors import InvalidValueError
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers.fixed import check_limit, model_index
from ramsis.sim.schedulers.thresholds import (
    OneQueue,
    Threshold,
    alone,
    confidences_of,
    placed,
    second_times,
    stated_load_only,
)
from ramsis.sim.tables import Compiled, stack


@dataclass(frozen=True)
class FixedThreshold(OneQueue):
    """Cascade of two models; a confidence below a fixed threshold asks the second."""

    name: ClassVar[str] = "fixed-threshold"

    first: str  # names of models
    second: str
    # answers with a lower confidence are unsure; rounded to the nearest threshold of the profile
    threshold: float
    # least number of second opinions that run before fresh requests; 0: the largest batch in time
    gather: int = 0

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs on the compiled kernel for a fleet."""
        confidences = confidences_of(fleet, self.name)
        first, second = model_index(fleet, self.first), model_index(fleet, self.second)
        confidences.pair(self.first, self.second)
        edges = np.array(confidences.model(self.first).thresholds)
        check_limit(fleet, self.gather, "the largest within the SLO")
        times = second_times(fleet, second)
        if not len(times):
            raise InvalidValueError("takes longer than the SLO", where="second", value=self.second,
                                    allowed="a faster model")
        cascade = Threshold(first, second, 1 + int(np.abs(edges - self.threshold).argmin()),
                            min(self.gather or len(times), len(times)))
        return Plan(self.name, stated_load_only(self.name), Compiled(
            "central-queue", stack([alone(fleet, first, np.inf)]),
            cascades=(placed(fleet, confidences, cascade),)), fleet.max_batch)
