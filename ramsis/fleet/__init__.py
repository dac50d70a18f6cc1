"""What the whole fleet can reach: the bound that no scheme beats."""

from ramsis.fleet.bound import FluidBound, fluid_bound, realised_bound

__all__ = ["FluidBound", "fluid_bound", "realised_bound"]
