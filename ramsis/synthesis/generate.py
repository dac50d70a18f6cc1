"""Generate the policy of a station for one load from a profile, with its measured promise.

How a policy is made depends on the dispatch rule; see :mod:`ramsis.synthesis.recipes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.cluster import ServiceTimes
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis.headroom import Replays
from ramsis.synthesis.planned_load import check_measurable, planned_by_replay
from ramsis.synthesis.recipes import RECIPES
from ramsis.synthesis.replayed import replayed
from ramsis.synthesis.settings import SynthesisSettings, with_settings


def generate_policy(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """Generate the best policy for one load, with its promise and certificate.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency; a budget of violations that cannot be met.
    NotConvergedError
        The solver stopped before its rule was met.
    """
    return prepared(profile, load_qps, settings)()


def modelled_policy(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """Generate a policy with the promise of the model, which is not measured.

    The rates of policies for several prices then stand on one concave curve. Where the model
    does not know the arrival process they are those of the short replays that chose the planned
    load.
    """
    return _at_confidence(_modelled(profile, load_qps, settings)(Replays(settings.arrivals)),
                          settings.confidence)


def prepared(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[], Policy]:
    """Check the input for one load, and return a function that generates the policy."""
    if settings.max_violation is not None:
        prepared(profile, load_qps, priced(settings, 1.0))
        return partial(_within_budget, profile, load_qps, settings)
    modelled = _modelled(profile, load_qps, settings)

    def promised() -> Policy:
        replays = Replays(settings.arrivals)
        policy = _at_confidence(
            replayed(modelled(replays), own_arrivals=settings.arrivals, replays=replays),
            settings.confidence)
        return _with_second_opinions(policy, profile, settings)

    return promised


def _with_second_opinions(
    policy: Policy, profile: ProfileSet, settings: SynthesisSettings
) -> Policy:
    """Return the policy with second opinions, if they are asked for and pay."""
    if not settings.cascades or profile.confidences is None:
        return policy
    from ramsis.synthesis.cascades import with_cascade  # whose kernels take long to load

    times = ServiceTimes.of_all(settings.profile_for(profile), settings.chosen_service(profile),
                                settings.max_queue)
    return with_cascade(policy, profile.confidences, times, settings.arrivals)


def _modelled(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[Replays], Policy]:
    """Check the input, and return a function that generates the policy without measuring it."""
    recipe = RECIPES[settings.dispatch]
    if settings.cascades and profile.confidences is None:
        raise InvalidValueError(
            "the profile has no confidences", where="cascades", value=profile.name,
            allowed="a profile with confidences, see `ramsis profile import --confidences`")
    if not recipe.knows(settings):
        check_measurable(settings, load_qps)
        recipe.problem(profile, load_qps, settings, 1.0)
        return partial(planned_by_replay, recipe, profile, load_qps, settings)
    problem = recipe.problem(profile, load_qps, settings)
    return partial(recipe.modelled, profile, load_qps, settings, problem)


def _at_confidence(policy: Policy, confidence: float) -> Policy:
    """Return a policy with its interval at a confidence."""
    interval = policy.expectations.interval
    if interval is None or interval.confidence == confidence:
        return policy
    return replace(policy, expectations=at_confidence(
        policy.expectations, Evidence.behind(interval), confidence))


def priced(
    settings: SynthesisSettings, price: float
) -> SynthesisSettings:
    """Return settings with a price instead of a budget of violations."""
    return replace(settings, violation_price=price, max_violation=None)


def _within_budget(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """Generate the most accurate policy within a budget of violations."""
    from ramsis.synthesis.budget import policy_within

    assert settings.max_violation is not None
    policy = policy_within(lambda price: modelled_policy(profile, load_qps,
                                                         priced(settings, price)),
                           settings.max_violation, own_arrivals=settings.arrivals,
                           confidence=settings.confidence)
    # The policy's inputs still have the price of the search instead of the budget.
    policy = replace(policy, inputs=with_settings(policy.inputs, settings))
    return _with_second_opinions(policy, profile, settings)
