"""What policies were made from, as their files say it."""

from __future__ import annotations

import json

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.files import fingerprint
from ramsis.policy import Inputs, Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis.checks import Check
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["inputs_checks", "inputs_of", "with_settings"]


def inputs_of(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    """The record of a profile and settings."""
    return with_settings(Inputs(profile.fingerprint, profile.name, ""), settings)


def with_settings(inputs: Inputs, settings: SynthesisSettings) -> Inputs:
    """The record of the same profile with other settings."""
    options = json.loads(json.dumps(settings.as_dict()))  # plain values, as files have them
    return Inputs(inputs.profile, inputs.profile_name, fingerprint(options), options)


def inputs_checks(policy: Policy) -> tuple[Check, ...]:
    """Whether a file says the same of what it was made for in all of its places."""
    inputs, options = policy.inputs, policy.inputs.options
    budget, headroom = policy.budget, policy.headroom
    interval = policy.expectations.interval
    same = fingerprint(dict(options)) == inputs.settings
    checks = [Check("settings have their fingerprint", None, None, same)]
    stated = {
        "slo_ms": policy.slo_ms, "workers": policy.workers, "dispatch": policy.dispatch,
        "batching": policy.batching, "late": policy.late, "objective": policy.objective,
        "prefer": policy.prefer, "overhead_ms": policy.overhead_ms,
        "headroom": headroom.allowed_loss if headroom is not None else 0.0,
        "max_violation": budget.max_violation_rate if budget is not None else None,
    }
    if budget is None:  # else the price was looked for
        stated["violation_price"] = policy.violation_price
    if interval is not None:
        stated["confidence"] = interval.confidence
    for name, value in stated.items():
        usual = CONFIDENCE if name == "confidence" else None
        checks.append(Check(f"settings: {name.replace('_', ' ')}", None, None,
                            options.get(name, usual) == value))
    return tuple(checks)
