"""Check what a file says of its headroom (:mod:`ramsis.synthesis.headroom`), worked out again."""

from __future__ import annotations

from collections.abc import Mapping

from ramsis.policy import Policy
from ramsis.policy.records import HeadroomRecord
from ramsis.synthesis.headroom import PlayedFigures, loss_of, replayed_at
from ramsis.verify.checks import Check, close


def of_changed_table(
    policy: Policy, own_arrivals: str | None = None
) -> Mapping[float, PlayedFigures]:
    """What a table that was changed after planning, for a budget, comes to when service is slower.

    By the factor that it is. Empty where the table is the planned one, or that is not measured.
    """
    if policy.budget is None or policy.headroom is None:
        return {}
    slower = policy.headroom.slower
    found = replayed_at(policy, slower, own_arrivals=own_arrivals)
    return {} if found is None else {slower: found}


def headroom_checks(
    stated: HeadroomRecord, derived: HeadroomRecord, played: Mapping[float, PlayedFigures],
    pure: PlayedFigures, tolerance: float,
) -> tuple[Check, ...]:
    """Check the stated headroom against derived figures.

    Parameters
    ----------
    derived : HeadroomRecord
        For the same headroom, worked out again.
    played : mapping of float to PlayedFigures
        What the file's table comes to by how much longer service takes: 1, and as stated.
    pure : PlayedFigures
        Of the pure optimum.
    """
    loss, slower = loss_of(pure, played[1.0]), played[stated.slower]
    return (
        Check("headroom: loss within what is allowed", stated.allowed_loss, loss,
              loss <= stated.allowed_loss + tolerance and stated.loss <= stated.allowed_loss),
        Check("headroom: factor on service times", stated.factor, derived.factor,
              stated.factor == derived.factor),
        close("headroom: loss", stated.loss, loss, tolerance),
        Check("headroom: how much longer service takes", stated.slower, derived.slower,
              stated.slower == derived.slower),
        close("headroom: effective accuracy then", stated.effective_accuracy,
              slower.effective_accuracy, tolerance),
        close("headroom: violation rate then", stated.violation_rate, slower.violation_rate,
              tolerance),
        close("headroom: effective accuracy then without", stated.effective_accuracy_without,
              derived.effective_accuracy_without, tolerance),
        close("headroom: violation rate then without", stated.violation_rate_without,
              derived.violation_rate_without, tolerance),
    )
