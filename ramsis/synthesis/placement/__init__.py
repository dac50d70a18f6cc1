"""Stations of a placement, policies for them, and their simulation."""

from ramsis.synthesis.placement.simulated import (
    FamilyOutcome,
    PlacementOutcome,
    StationOutcome,
    UseOutcome,
    estimate,
    simulate_placement,
)
from ramsis.synthesis.placement.stations import (
    PlacedStation,
    StationUse,
    placed_stations,
    station_policies,
)

__all__ = ["FamilyOutcome", "PlacedStation", "PlacementOutcome", "StationOutcome",
           "StationUse", "UseOutcome", "estimate", "placed_stations",
           "simulate_placement", "station_policies"]
