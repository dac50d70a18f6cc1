"""Upper bounds on effective accuracy, lower bounds on workers: what no scheme can beat."""

from ramsis.bounds.fluid import FluidBound, fluid_bound, realised_bound
from ramsis.bounds.targets import Targets
from ramsis.bounds.workers import (
    CheapestWorkers,
    fewest_workers_bound,
    fewest_workers_bound_over_time,
)
from ramsis.checks import check_arguments

__all__ = ["CheapestWorkers", "FluidBound", "Targets", "fewest_workers_bound",
           "fewest_workers_bound_over_time", "fluid_bound", "realised_bound"]

check_arguments(globals(), __all__)
