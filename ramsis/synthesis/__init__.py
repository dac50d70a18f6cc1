"""Synthesis of policy sets from profiles and arrivals, by a recipe for each dispatch rule.

May import: analysis, arrivals, bounds, central, cluster, mdp, placement_milp, policy,
profiles, runtime, sim, worker.
"""

from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.recipes import analyse_policy, problem_of
from ramsis.synthesis.sets import choose_loads, generate_set
from ramsis.synthesis.settings import SynthesisSettings

__all__ = [
    "SynthesisSettings",
    "analyse_policy",
    "choose_loads",
    "generate_policy",
    "generate_set",
    "problem_of",
]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.synthesis.capacity": "Capacity Trial Windows fewest_by_bound fewest_workers "
                                 "fluid_mixes try_workers",
    "ramsis.synthesis.frontier": "Corner Frontier trace_frontier",
    "ramsis.synthesis.settings": "LIMITS Limit check_limits",
    "ramsis.synthesis.placement": "FamilyOutcome PlacedStation PlacementOutcome StationOutcome "
                                  "StationUse UseOutcome placed_stations simulate_placement "
                                  "station_policies",
    "ramsis.synthesis.recipes": "Analysis Recipe",
    "ramsis.synthesis.sets": "made_level",
})

check_arguments(globals(), ["SynthesisSettings", "analyse_policy", "choose_loads",
                            "generate_policy", "generate_set"])
