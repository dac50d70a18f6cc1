"""Small fleets and their policies."""

import functools
from typing import Any

from ramsis.central.problem import CentralProblem
from ramsis.policy import Policy
from ramsis.profiles import ModelProfile, ProfileSet
from ramsis.profiles.batch import BatchProfile
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.recipes import RECIPES
from tests.synthesis.samples import tiny_profile


def settings(**changes: Any) -> SynthesisSettings:
    """20 workers, SLO 100 ms, batches up to 8."""
    return SynthesisSettings(**{"dispatch": "central-queue", "slo_ms": 100.0, "workers": 20,
                                "max_queue": 8, "headroom": 0.0, **changes})


def problem(load_qps: float, **changes: Any) -> CentralProblem:
    """A problem of the tiny profile."""
    found: CentralProblem = RECIPES["central-queue"].problem(
        tiny_profile(), load_qps, settings(**changes))
    return found


@functools.cache
def policy(load_qps: float, **changes: Any) -> Policy:
    """Its policy."""
    return generate_policy(tiny_profile(), load_qps, settings(**changes))


def drawn_profile() -> ProfileSet:
    """The tiny profile with quantiles: 0.7 to 1.1 times the p95."""
    factors = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1)
    return ProfileSet("drawn", tuple(
        ModelProfile(model.name, model.accuracy, tuple(
            BatchProfile(item.batch, quantiles_ms=tuple((item.p95_ms or 0.0) * f
                                                        for f in factors))
            for item in model.batches))
        for model in tiny_profile().models
    ))
