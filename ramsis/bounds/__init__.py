"""Upper bounds on effective accuracy, lower bounds on workers: what no scheme can beat."""

from ramsis.bounds.fewest import Targets, least_workers, least_workers_over_time
from ramsis.bounds.fluid import FluidBound, fluid_bound, realised_bound
from ramsis.bounds.heterogeneous import MixedBound, mixed_bound

__all__ = ["FluidBound", "MixedBound", "Targets", "fluid_bound", "least_workers",
           "least_workers_over_time", "mixed_bound", "realised_bound"]
