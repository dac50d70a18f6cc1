"""What a policy file claims, derived again from what the file holds by an independent path.

The path depends on the dispatch rule: :mod:`ramsis.verify.per_worker` and
:mod:`ramsis.verify.central`.
"""

from __future__ import annotations

import os

from ramsis.mdp.settings import check_tolerance
from ramsis.policy import read
from ramsis.runtime.routing import DISPATCHES
from ramsis.verify.central import central_claims
from ramsis.verify.checks import Check
from ramsis.verify.gap import gap_check
from ramsis.verify.inputs import inputs_checks
from ramsis.verify.per_worker import worker_claims
from ramsis.verify.recovery import recovery_checks

TOLERANCE = 1e-4
"""How far a claim may be from what is derived, in accuracy or as a fraction of the queries."""


def verify_policy(
    path: str | os.PathLike[str],
    *,
    tolerance: float = TOLERANCE,
    own_arrivals: str | None = None,
) -> tuple[Check, ...]:
    """Every claim of a policy file, checked.

    Parameters
    ----------
    tolerance : float
        Largest difference between a stated and a derived figure, finite and > 0.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own, which the file names too;
        no other module is imported.

    Raises
    ------
    InputFileError
        The file breaks its format, or names an arrival process that cannot be made from it.
    InvalidValueError
        The tolerance is out of range.
    """
    tolerance = check_tolerance(tolerance)
    policy = read(path)
    claims_of = worker_claims if DISPATCHES[policy.dispatch].own_queues else central_claims
    claims = (*claims_of(policy, str(path), tolerance, own_arrivals),
              *inputs_checks(policy), gap_check(policy, tolerance))
    if policy.expectations.recovery is None or not all(claim.holds for claim in claims[:1]):
        return claims
    return (*claims, *recovery_checks(policy, own_arrivals))
