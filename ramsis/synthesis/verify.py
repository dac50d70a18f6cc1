"""What a policy file claims, derived again from what the file holds by an independent path.

The path depends on the dispatch rule: :mod:`ramsis.synthesis.recipes.per_worker_claims` and
:mod:`ramsis.synthesis.recipes.central_claims`.
"""

from __future__ import annotations

import os
from typing import Any

from ramsis.mdp.settings import check_tolerance
from ramsis.policy import Policy, read
from ramsis.synthesis.certified import gap_check
from ramsis.synthesis.checks import Check
from ramsis.synthesis.inputs import inputs_checks
from ramsis.synthesis.recipes import RECIPES, Analysis

__all__ = ["TOLERANCE", "Check", "analyse_policy", "problem_of", "verify_policy"]

TOLERANCE = 1e-4
"""How far a claim may be from what is derived, in accuracy or as a fraction of the queries."""


def problem_of(
    policy: Policy, where: str = "policy", *, own_arrivals: str | None = None
) -> Any:
    """The decision problem that a policy file describes.

    Parameters
    ----------
    where : str
        Names the file in messages.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own. A module that only the file
        names is not imported.

    Raises
    ------
    InputFileError
        Its parts do not make a problem, or its arrival process cannot be made from its name.
    """
    return RECIPES[policy.dispatch].problem_of(policy, where, own_arrivals=own_arrivals)


def analyse_policy(policy: Policy, *, own_arrivals: str | None = None) -> Analysis:
    """The stationary behaviour of a policy file's table, distributions included.

    Parameters
    ----------
    own_arrivals : str, optional
        As of :func:`problem_of`.

    Raises
    ------
    InputFileError
        As :func:`problem_of`; or, with a central queue, the table is not that of the model.
    """
    return RECIPES[policy.dispatch].analysis(policy, own_arrivals=own_arrivals)


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
    claims = (*RECIPES[policy.dispatch].claims(policy, str(path), tolerance, own_arrivals),
              *inputs_checks(policy), gap_check(policy, tolerance))
    if policy.expectations.recovery is None or not all(claim.holds for claim in claims[:1]):
        return claims
    from ramsis.synthesis.verify_recovery import recovery_checks

    return (*claims, *recovery_checks(policy, own_arrivals))
