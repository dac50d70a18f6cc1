"""The fewest or the cheapest workers that are enough."""

from ramsis.bounds import Targets
from ramsis.synthesis.capacity.cheapest import MOST_WORKERS, fluid_mixes
from ramsis.synthesis.capacity.fewest import (
    SPAN,
    Capacity,
    check_second_opinions,
    fewest_by_bound,
    fewest_workers,
    offered_types,
    whole_workers,
)
from ramsis.synthesis.capacity.steady_rates import MeasuredRates
from ramsis.synthesis.capacity.trials import FIGURES, Trial, Windows, busiest_tenth, try_workers

__all__ = ["FIGURES", "MOST_WORKERS", "SPAN", "Capacity", "MeasuredRates", "Targets", "Trial",
           "Windows", "busiest_tenth", "check_second_opinions", "fewest_by_bound",
           "fewest_workers", "fluid_mixes", "offered_types", "try_workers", "whole_workers"]
