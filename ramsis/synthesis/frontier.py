"""Trade-off of a model between accuracy and violations, over all prices of a violation.

The policies that are optimal at some price p, for E − p·V with effective accuracy E and violation
rate V, are the corners of the upper concave hull of all (V, E). No policy lies above the edge
between two neighbouring corners.

The corners are found from the two ends inwards. The slope of the edge between two corners is a
price. The policy that is optimal at this price either lies above the edge and is a new corner,
with two new edges, or it proves that the edge belongs to the hull. The hull lies below the line of
slope p through each corner found at price p. So it lies above an edge by at most the height of a
triangle; the edge with the highest triangle comes first. The search **stops** when no triangle is
higher than 1e-5 of effective accuracy, or at the number of corners asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ramsis.checks import check_arguments
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.reprs import dataclass
from ramsis.synthesis.budget import HIGHEST_PRICE, accuracy_per_violation
from ramsis.synthesis.generate import modelled_policy, priced
from ramsis.synthesis.settings import SynthesisSettings

_WORTH = 1e-5  # effective accuracy by which the hull may lie above an edge


@dataclass(frozen=True)
class Corner:
    """Policy that is optimal at a price, a corner of the frontier."""

    price: float  # at which it was found; it is optimal at others too
    policy: Policy

    @property
    def violation_rate(self) -> float:
        """Violation rate of the policy, computed by the decision problem."""
        return self.policy.expectations.violation_rate

    @property
    def effective_accuracy(self) -> float:
        """Effective accuracy of the policy, computed by the decision problem."""
        return self.policy.expectations.effective_accuracy


@dataclass(frozen=True)
class Frontier:
    """Upper concave hull of accuracy against violations over the policies of a model."""

    # by rising violation rate: from the fewest violations to the unconstrained policy, which is
    # the only one where violations bring no accuracy
    corners: tuple[Corner, ...]
    hidden: float  # effective accuracy that the true hull has above the edges, at most


def trace_frontier(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings, *,
    points: int = 20,
) -> Frontier:
    """Trace the frontier for one load; price and headroom of ``settings`` do not count.

    Parameters
    ----------
    points : int
        Most corners, >= 2.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :func:`ramsis.synthesis.generate_policy`, and for too few points.
    """
    if points < 2:
        raise InvalidValueError("too few points", where="points", value=points,
                                allowed="2 or more")

    def corner_at(price: float) -> Corner:
        return Corner(price, modelled_policy(
            profile, load_qps, priced(replace(settings, headroom=0.0), price)))

    few, many = corners = [corner_at(HIGHEST_PRICE), corner_at(0.0)]
    if many.violation_rate <= few.violation_rate \
            or many.effective_accuracy <= few.effective_accuracy:  # there is nothing to trade
        return Frontier((many,), 0.0)
    done: set[tuple[float, float]] = set()
    while len(corners) < points:
        hidden, k = max(_hidden(corners, done))
        if hidden < _WORTH:
            break
        few, many = corners[k], corners[k + 1]
        corner = corner_at(_slope(few, many))
        if _above(corner, few, many) > _WORTH / 10:
            corners.insert(k + 1, corner)
        else:
            done.add((few.price, many.price))
    return Frontier(tuple(corners), max(max(_hidden(corners, done))[0], 0.0))


def _slope(few: Corner, many: Corner) -> float:
    return accuracy_per_violation(few.policy.expectations, many.policy.expectations)


def _above(corner: Corner, few: Corner, many: Corner) -> float:
    """Return how far a corner lies above an edge, at its violation rate."""
    along = corner.violation_rate - few.violation_rate
    inside = few.violation_rate < corner.violation_rate < many.violation_rate
    if not inside:
        return 0.0
    return corner.effective_accuracy - few.effective_accuracy - _slope(few, many) * along


def _hidden(
    corners: Sequence[Corner], done: set[tuple[float, float]]
) -> list[tuple[float, int]]:
    """Return for each edge how far the frontier may lie above it, and the edge's index."""
    return [(0.0 if (few.price, many.price) in done else _triangle(few, many), k)
            for k, (few, many) in enumerate(pairwise(corners))]


def _triangle(few: Corner, many: Corner) -> float:
    """Return the height of the triangle between an edge and the tangents at its ends."""
    slope = _slope(few, many)
    left, right = few.price - slope, slope - many.price
    if left <= 0 or right <= 0:
        return 0.0
    return (many.violation_rate - few.violation_rate) * left * right / (left + right)


check_arguments(globals(), ["trace_frontier"])
