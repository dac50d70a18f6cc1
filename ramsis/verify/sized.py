"""Check what a policy file for requests with a size states of itself."""

from __future__ import annotations

import os

from ramsis.schemas import check_schema
from ramsis.sized.policy import certified_gap, read_sized
from ramsis.verify.checks import Check, close


def verify_sized(path: str | os.PathLike[str], *, tolerance: float) -> tuple[Check, ...]:
    """Check that the figures of a policy follow from each other.

    The share in time follows from those of the classes, the gap from value and upper bound, and
    the replanned dynamic program decides only where the rule gains nothing over it or misses what
    was asked of a class. A bound needs the profile: ``ramsis bound --sizes`` derives it again.

    Parameters
    ----------
    tolerance : float
        Largest difference between a stated and a derived figure.
    """
    (policy,) = read_sized(path)
    check_schema(dict(policy.document), "ramsis.sized", "sized-policy-1", os.fspath(path))
    expected = policy.expectations
    in_time = sum(entry["share"] * (entry["in_time_rate"] or 0.0)
                  for entry in expected["by_class"])
    effective = (expected["accuracy"] or 0.0) * (1.0 - expected["violation_rate"])
    most = expected["upper_bound"] + expected["upper_bound_half_width"] + (
        expected["effective_accuracy_half_width"] or 0.0)
    asked = policy.document["inputs"]["min_in_time_by_class"]
    return (
        close("expected violation rate", expected["violation_rate"], 1.0 - in_time, tolerance),
        close("expected effective accuracy", expected["effective_accuracy"], effective, tolerance),
        Check("value at most the upper bound", expected["value"], most,
              expected["value"] <= most),
        close("gain over the replanned dynamic program",
              0.0 if policy.tables.plan else expected["rule_gain"],
              expected["value"] - expected["replanned_dp"], tolerance),
        Check("rule decides", float(policy.tables.plan is None),
              float(expected["rule_gain"] >= 0.0), asked is not None
              or (policy.tables.plan is None) == (expected["rule_gain"] >= 0.0)),
        Check("certified_gap", certified_gap(policy), certified_gap(policy), True))
