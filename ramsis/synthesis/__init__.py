"""From profile and arrivals to a policy set, by a recipe for each dispatch rule, and back.

May import: analysis, arrivals, bounds, central, cluster, placement_milp, policy, profiles,
runtime, sim, worker.
"""

from ramsis.checks import check_arguments
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

check_arguments(globals(), ["SynthesisSettings", "analyse_policy", "choose_loads",
                            "generate_policy", "generate_set"])
