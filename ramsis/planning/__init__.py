"""Clusters on which models come and go: schedulers side by side, and those that plan.

May import: bounds, placement_milp, policy, scenario, sim.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from
from ramsis.planning.capacity import (
    fewest_by_scenario_bound,
    fewest_in_scenario,
    with_memory,
    with_workers,
)
from ramsis.planning.comparison import Compared, compare
from ramsis.planning.planned import SCHEDULERS, scheduler_named

__all__ = ["SCHEDULERS", "Compared", "compare", "fewest_by_scenario_bound", "fewest_in_scenario",
           "scheduler_named", "with_memory", "with_workers"]

__getattr__, __dir__ = names_from(globals())
