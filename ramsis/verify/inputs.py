"""Check that a file says the same of what it was made for in all of its places."""

from __future__ import annotations

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.files import fingerprint
from ramsis.policy import Policy
from ramsis.verify.checks import Check


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
