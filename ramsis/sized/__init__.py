"""Requests with a size: batches whose time depends on the sizes of their members.

May import: arrivals, bounds, cluster, profiles, runtime, sim, synthesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.lazy_names import names_from
from ramsis.sized.problem import BatchTimes, SizedProblem

if TYPE_CHECKING:
    from ramsis.sized.bound import SizedBound, path_bound, upper_bound
    from ramsis.sized.schedulers import SIZED_SCHEDULERS, SizedScheduler, sized_scheduler
    from ramsis.sized.simulate import SizedResult, SizedRun, simulate_sized

__all__ = ["SIZED_SCHEDULERS", "BatchTimes", "SizedBound", "SizedProblem", "SizedResult",
           "SizedRun", "SizedScheduler", "path_bound", "simulate_sized", "sized_scheduler",
           "upper_bound"]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.sized.bound": "SizedBound path_bound upper_bound",
    "ramsis.sized.schedulers": "SIZED_SCHEDULERS SizedScheduler sized_scheduler",
    "ramsis.sized.simulate": "SizedResult SizedRun simulate_sized",
})
