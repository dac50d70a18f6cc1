"""Bounds for every scheduler: on effective accuracy, requests in time and workers.

They hold for schedulers that answer each request once, by one model, in batches up to a limit. A
cascade, which asks a second model where the first is unsure, can pass them;
:func:`~ramsis.bounds.cascade_bound` holds for schedulers with cascades, too.

The bounds on scenarios are loaded when they are first used: their compiled loops take a while.

May import: cluster, profiles, runtime, scenario.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.bounds.fluid import FluidBound, certified_gap, fluid_bound, realised_bound
from ramsis.bounds.search import smallest
from ramsis.bounds.targets import Targets
from ramsis.bounds.workers import (
    CheapestWorkers,
    fewest_workers_bound,
    fewest_workers_bound_over_time,
)
from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from

if TYPE_CHECKING:
    from ramsis.bounds.cascades import (
        CascadeBound,
        CascadeMix,
        cascade_bound,
        fewest_workers_bound_with_cascades,
    )
    from ramsis.bounds.goodput import GoodputBound, ReleasedRequests, Servers, goodput_bound
    from ramsis.bounds.scenario import scenario_bound
    from ramsis.bounds.worker_seconds import (
        WorkerSecondsBound,
        WorkerSecondsTerms,
        fewest_worker_seconds,
        least_cost,
    )

__all__ = ["CascadeBound", "CascadeMix", "CheapestWorkers", "FluidBound", "GoodputBound",
           "ReleasedRequests", "Servers", "Targets", "WorkerSecondsBound", "WorkerSecondsTerms",
           "cascade_bound", "certified_gap", "fewest_worker_seconds", "fewest_workers_bound",
           "fewest_workers_bound_over_time", "fewest_workers_bound_with_cascades", "fluid_bound",
           "goodput_bound", "least_cost", "realised_bound", "scenario_bound", "smallest"]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.bounds.cascades": "CascadeBound CascadeMix cascade_bound "
                              "fewest_workers_bound_with_cascades",
    "ramsis.bounds.goodput": "GoodputBound ReleasedRequests Servers goodput_bound",
    "ramsis.bounds.scenario": "scenario_bound",
    "ramsis.bounds.worker_seconds": "WorkerSecondsBound WorkerSecondsTerms fewest_worker_seconds "
                                    "least_cost",
})

check_arguments(globals(), ["Targets", "fluid_bound"])
