"""What the whole fleet can reach: the bound that no scheme beats."""

from ramsis.fleet.bound import FluidBound, fluid_bound, realised_bound
from ramsis.fleet.least import Targets, least_workers, least_workers_over_time

__all__ = ["FluidBound", "Targets", "fluid_bound", "least_workers", "least_workers_over_time",
           "realised_bound"]
