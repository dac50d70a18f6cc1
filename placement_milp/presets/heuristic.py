"""What the presets without a proof share: from patterns and shares to a checked placement."""

from __future__ import annotations

from collections.abc import Sequence

from placement_milp.check import check_placement
from placement_milp.expand import moves
from placement_milp.patterns import Pattern, Quality
from placement_milp.problem import Problem
from placement_milp.recipe import assemble, families
from placement_milp.result import Placement


def served_shares(
    problem: Problem, used: Sequence[tuple[Pattern, int]]
) -> dict[Quality, float]:
    """Shares of the demand that each quality can take, the most accurate first."""
    room: dict[Quality, float] = {}
    for pattern, count in used:
        for offer in pattern.offers:
            room[offer.quality] = room.get(offer.quality, 0.0) + count * offer.rate_qps
    left = {family.name: family.demand_qps for family in problem.families}
    shares = {}
    for quality in sorted(room, key=lambda q: (-q.accuracy, q.label)):
        taken = min(left[quality.family], room[quality])
        shares[quality] = taken / problem.family(quality.family).demand_qps
        left[quality.family] -= taken
    return shares


def heuristic_placement(
    problem: Problem, used: Sequence[tuple[Pattern, int]], seconds: float, *,
    notes: tuple[str, ...] = (),
) -> Placement:
    """The placement of some patterns, without a proof; its objective is effective accuracy.

    Raises
    ------
    VerificationError
        The placement failed its check.
    """
    used = [(pattern, count) for pattern, count in used if count]
    groups = assemble(problem, used, served_shares(problem, used))
    found = families(problem, groups)
    demand = sum(family.demand_qps for family in problem.families)
    objective = sum(f.effective_accuracy * f.demand_qps for f in found) / demand
    placement = Placement(problem.name, "heuristic", objective, None, None, seconds, (), groups,
                          found, moves(problem, groups), notes=notes, problem=problem)
    check_placement(problem, placement)
    return placement
