"""The recipe: profile and arrivals in, policy set out; and its verification."""

from ramsis.checks import check_arguments
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.sets import choose_loads, generate_set
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.synthesis.verify import Check, analyse_policy, problem_of, verify_policy

__all__ = [
    "Check",
    "SynthesisSettings",
    "analyse_policy",
    "choose_loads",
    "generate_policy",
    "generate_set",
    "problem_of",
    "verify_policy",
]

check_arguments(globals(), __all__)
