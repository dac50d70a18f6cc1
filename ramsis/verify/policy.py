"""Re-derivation of a policy file's claims from its contents by an independent path.

The path depends on the dispatch rule: :mod:`ramsis.verify.per_worker` and
:mod:`ramsis.verify.central`.
"""

from __future__ import annotations

import os

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.files import fingerprint
from ramsis.mdp.result import check_tolerance
from ramsis.policy import Policy, read
from ramsis.runtime.routing import DISPATCHES
from ramsis.synthesis.certified import gap_of_promise
from ramsis.synthesis.headroom import HEADROOM
from ramsis.verify.cascade import cascade_checks
from ramsis.verify.central import central_claims
from ramsis.verify.checks import Check
from ramsis.verify.per_worker import worker_claims

TOLERANCE = 1e-4
"""Largest difference of a claim from the derived figure, as a share of accuracy or requests."""
_BY_CHANCE = 2.0  # half-widths by which a simulation may exceed the bound, by its drawn arrivals


def verify_policy(
    path: str | os.PathLike[str], *, tolerance: float = TOLERANCE
) -> tuple[Check, ...]:
    """Check every claim of a policy file.

    Parameters
    ----------
    tolerance : float
        Largest difference between a stated and a derived figure, finite and > 0.

    Raises
    ------
    InputFileError
        The file breaks its format, or names an arrival process that cannot be made from it, or
        that is one's own and not trusted (:func:`ramsis.trust`).
    InvalidValueError
        The tolerance is out of range.
    """
    tolerance = check_tolerance(tolerance)
    policy = read(path)
    claims_of = worker_claims if DISPATCHES[policy.dispatch].own_queues else central_claims
    return (*claims_of(policy, str(path), tolerance), *cascade_checks(policy),
            *_inputs_checks(policy), _gap_check(policy, tolerance))


def _inputs_checks(policy: Policy) -> tuple[Check, ...]:
    """Check that a file states its inputs consistently."""
    inputs, options = policy.inputs, policy.inputs.options
    budget = policy.budget
    interval = policy.expectations.interval
    same = fingerprint(dict(options)) == inputs.settings
    checks = [Check("settings have their fingerprint", None, None, same)]
    stated = {
        "slo_ms": policy.slo_ms, "workers": policy.workers, "dispatch": policy.dispatch,
        "batching": policy.batching, "late": policy.late, "objective": policy.objective,
        "overhead_ms": policy.overhead_ms,
        "max_violation": budget.max_violation_rate if budget is not None else None,
    }
    if budget is None:  # else the price was looked for
        stated["violation_price"] = policy.violation_price
    if interval is not None:
        stated["confidence"] = interval.confidence
    stated["slowness"] = policy.slowness
    headroom = options.get("headroom")
    factors = [1.0 + share for share in (
        (*HEADROOM, 0.0) if headroom is None else (headroom,))]
    checks.append(Check("settings: headroom", None, None,
                        (policy.headroom is None) == (headroom == 0.0)
                        and policy.planned_factor in factors))
    for name, value in stated.items():
        usual = {"confidence": CONFIDENCE, "slowness": 1.0}.get(name)
        checks.append(Check(f"settings: {name.replace('_', ' ')}", None, None,
                            options.get(name, usual) == value))
    return tuple(checks)


def _gap_check(policy: Policy, tolerance: float) -> Check:
    """Check the certified gap; a negative one is impossible for any scheduler."""
    price, bound, gap = gap_of_promise(policy).values()
    promised = policy.rates
    measured = (policy.budget or policy.replay if policy.cascade is None
                else policy.cascade.promise)
    allowed = tolerance * (1.0 + price)
    if measured is not None:
        allowed += _BY_CHANCE * (measured.effective_half_width
                                 + price * measured.violation_half_width)
    value = promised.effective_accuracy - price * promised.violation_rate
    return Check("certified_gap", gap, gap, value <= bound + allowed)
