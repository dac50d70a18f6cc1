"""What the whole fleet can reach: the bound that no scheme beats."""

from ramsis.fleet.bound import FluidBound, fluid_bound, realised_bound
from ramsis.fleet.least import Targets, least_workers, least_workers_over_time
from ramsis.fleet.mixed import MixedBound, mixed_bound

__all__ = ["FluidBound", "MixedBound", "Targets", "fluid_bound", "least_workers",
           "least_workers_over_time", "mixed_bound", "realised_bound"]
