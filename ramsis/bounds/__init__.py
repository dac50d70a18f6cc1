"""What no scheme can beat: bounds on effective accuracy, requests in time and workers."""

from ramsis.bounds.fluid import FluidBound, fluid_bound, realised_bound
from ramsis.bounds.goodput import GoodputBound, Requests, Servers, goodput_bound
from ramsis.bounds.scenario import scenario_bound
from ramsis.bounds.targets import Targets
from ramsis.bounds.workers import (
    CheapestWorkers,
    fewest_workers_bound,
    fewest_workers_bound_over_time,
)
from ramsis.checks import check_arguments

__all__ = ["CheapestWorkers", "FluidBound", "GoodputBound", "Requests", "Servers", "Targets",
           "fewest_workers_bound", "fewest_workers_bound_over_time", "fluid_bound",
           "goodput_bound", "realised_bound", "scenario_bound"]

check_arguments(globals(), __all__)
