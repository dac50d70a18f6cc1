"""Generate the policy of a station for one load from a profile, with its measured promise.

How a policy is made depends on the dispatch rule; see :mod:`ramsis.synthesis.recipes`.

*Other arrivals than Poisson.* A table sees the queue and its slack, and so reacts to a burst. But
a table for Poisson arrivals does not know that a burst is likely to continue; planned for a higher
load, it keeps the queue shorter. So tables for Poisson arrivals at 1, 1.25, 1.5, 2 and 3 times the
load are replayed under the actual process, and the one with the highest effective accuracy less
the price of violations is taken. All of them are tried, since the gain may fall before it rises:
under bursts of 500 ms at four times the rate, the tables of a tiny profile earn .669, .665, .674,
.679 and .600. Headroom and promise are measured under the process, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.arrays import ratio
from ramsis.arrivals import Arrivals
from ramsis.cluster import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.mdp.dense_chain import one_thread
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis.headroom import Replays
from ramsis.synthesis.recipes import RECIPES
from ramsis.synthesis.recipes.recipe import Planned, Recipe
from ramsis.synthesis.replayed import replayed
from ramsis.synthesis.settings import SynthesisSettings, with_settings
from ramsis.synthesis.simulated import (
    MOST_BURSTY,
    Drawn,
    Simulated,
    bursty_queries,
    can_be_replayed,
    settles,
    simulated,
)

LOAD_FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0)
"""Poisson loads that tables are planned for, over the load of the arrivals."""

_QUERIES, _RUNS = 400_000, 4
_WORTH = 3e-5  # gain in effective accuracy, less violations at their price, per higher factor
_MOST_QUERIES = 2_000_000  # of all runs; factors are compared on the same arrivals
_FEWEST_BURSTS, _PROMISED_RUNS = 5.0, 8  # bursts in each of so many runs that a promise needs
_SEEDS = 1 << 27  # seeds are at least this, and less than twice this


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
    """Generate a policy whose promise is computed by the decision problem, not measured.

    The rates of policies for several prices then lie on one concave curve. If the decision problem
    does not know the arrival process, the rates are those of the short replays that chose the
    planned load.
    """
    planner = _planner(profile, load_qps, settings)
    with one_thread():
        return _at_confidence(planner(Replays()).as_modelled(), settings.confidence)


def prepared(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[], Policy]:
    """Check the input for one load, and return a function that generates the policy."""
    if settings.max_violation is not None:
        prepared(profile, load_qps, priced(settings, 1.0))
        return partial(_within_budget, profile, load_qps, settings)
    planner = _planner(profile, load_qps, settings)

    def promised() -> Policy:
        replays = Replays()
        # Matrices are small: two BLAS threads would spend more time waiting than computing.
        with one_thread():
            plan = planner(replays)
            policy = (plan.to_be_measured() if can_be_replayed(plan.policy)
                      else plan.as_modelled())
            policy = _at_confidence(replayed(policy, replays=replays), settings.confidence)
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
    return with_cascade(policy, profile.confidences, times)


def _planner(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[Replays], Planned]:
    """Check the input, and return a function that plans the policy without measuring it."""
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
    return partial(recipe.planned, profile, load_qps, settings, problem)


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
    policy = policy_within(
        lambda price: modelled_policy(profile, load_qps, priced(settings, price)),
        settings.max_violation, confidence=settings.confidence)
    # The policy's inputs still have the price of the search instead of the budget.
    policy = replace(policy, inputs=with_settings(policy.inputs, settings))
    return _with_second_opinions(policy, profile, settings)


def planned_by_replay(
    recipe: Recipe[Any], profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
    replays: Replays,
) -> Planned:
    """Return the policy planned for the factor on the load whose table earns most in replay."""
    without, drawn, price = replace(settings, headroom=0.0), Drawn(), settings.violation_price

    def planned(settings: SynthesisSettings, factor: float) -> Planned:
        problem = recipe.problem(profile, load_qps, settings, factor)
        return recipe.planned(profile, load_qps, settings, problem, replays, factor)

    def gain(figures: Simulated) -> float:
        return figures.effective_accuracy - price * figures.violation_rate

    best = planned(without, LOAD_FACTORS[0])
    figures = _replayed(best.policy, settings, drawn)
    for factor in LOAD_FACTORS[1:]:
        try:
            plan = planned(without, factor)
        except (InfeasibleError, NotConvergedError):
            break
        other = _replayed(plan.policy, settings, drawn)
        if gain(other) > gain(figures) + _WORTH:
            best, figures = plan, other
    if settings.headroom != 0.0:
        assert best.policy.load_factor is not None
        best = planned(settings, best.policy.load_factor)
    late, effective = figures.violation_rate, figures.effective_accuracy
    modelled = best.modelled
    return best._replace(modelled=lambda: replace(
        modelled(), violation_rate=late, effective_accuracy=effective,
        accuracy=ratio(effective, 1.0 - late)))


def check_measurable(settings: SynthesisSettings, load_qps: float) -> None:
    """Refuse arrivals under which no replay can measure a promise."""
    arrivals = Arrivals.parse(settings.arrivals)
    arrivals.drawn(load_qps)
    if not settles(load_qps, settings.slo_ms):
        raise InvalidValueError("too many requests within the SLO to replay a policy",
                                where=f"arrivals {arrivals.text}",
                                value=f"{load_qps / 1000.0 * settings.slo_ms:.3g}",
                                allowed="a lower load, a shorter SLO, or poisson")
    if arrivals.name == "mmpp":
        parameters = dict(arrivals.parameters)
        period_s = parameters["burst_ms"] / parameters["share"] / 1000.0
        longest_s = MOST_BURSTY / (_PROMISED_RUNS * _FEWEST_BURSTS * load_qps)
        if period_s > longest_s:
            raise InvalidValueError(
                "bursts come too seldom to replay a policy under them",
                where=f"arrivals {arrivals.text}: burst-ms / share", value=f"{period_s:.3g} s",
                allowed=f"at most {longest_s:.3g} s; for longer ones make policies for both "
                        "loads, which the load monitor chooses from")


def _replayed(policy: Policy, settings: SynthesisSettings, drawn: Drawn) -> Simulated:
    """Replay a table on arrivals that are the same for each factor."""
    seed = _SEEDS + zlib.crc32(repr((policy.load_qps, policy.slo_ms)).encode()) % (_SEEDS - _RUNS)
    queries = max(_QUERIES, min(bursty_queries(policy, _RUNS), _MOST_QUERIES))
    return simulated(policy, queries=queries, runs=_RUNS, seed=seed, drawn=drawn)
