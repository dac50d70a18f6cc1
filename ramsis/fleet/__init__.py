"""What the whole fleet can reach: the bound that no scheme beats."""

from ramsis.fleet.bound import FluidBound, fluid_bound, realised_bound
from ramsis.fleet.mixed import MixedBound, mixed_bound

__all__ = ["FluidBound", "MixedBound", "fluid_bound", "mixed_bound", "realised_bound"]
