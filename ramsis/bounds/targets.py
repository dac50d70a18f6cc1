"""Targets of a cluster: limits on violations and accuracy, and whether they can be met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.bounds.columns import Columns, solved
from ramsis.cluster.cluster import SloClass
from ramsis.errors import ABOVE_ZERO, BELOW_ONE, InfeasibleError, check_positive

ROUNDING = 1e-9


@dataclass(frozen=True)
class Targets:
    """Targets of a cluster: limits on violations and accuracy.

    Attributes
    ----------
    max_violation : float
        Largest share of the requests that are late or dropped, in [0, 1).
    min_accuracy : float, optional
        Smallest mean accuracy of the requests answered in time, in (0, 1].
    min_effective_accuracy : float, optional
        Smallest mean accuracy over all requests, those late or dropped counting 0; in (0, 1].
    every_ms : float, optional
        The targets are met in each window of this length of a trace, > 0; by default on the mean.
    """

    max_violation: float = 0.001
    min_accuracy: float | None = None
    min_effective_accuracy: float | None = None
    every_ms: float | None = None

    def __post_init__(self) -> None:
        BELOW_ONE.check("not a share of violations", max_violation=self.max_violation)
        ABOVE_ZERO.check("not an accuracy", optional=True, min_accuracy=self.min_accuracy,
                         min_effective_accuracy=self.min_effective_accuracy)
        check_positive("not a length of windows", optional=True, every_ms=self.every_ms)

    def met(self, accuracy: float, violation_rate: float) -> bool:
        """Return whether figures reach the targets; ``accuracy`` is of the requests in time."""
        effective = accuracy * (1.0 - violation_rate)
        return (violation_rate <= self.max_violation
                and accuracy >= (self.min_accuracy or 0.0) - ROUNDING
                and effective >= (self.min_effective_accuracy or 0.0) - ROUNDING)


def target_rows(columns: Columns, targets: Targets) -> list[tuple[FloatArray, float]]:
    """Return the targets as rows ``a·y >= b`` on shares y of the requests."""
    rows = [(columns.in_time, 1.0 - targets.max_violation)]
    if targets.min_accuracy is not None:
        rows.append(((columns.accuracy - targets.min_accuracy + ROUNDING) * columns.in_time, 0.0))
    if targets.min_effective_accuracy is not None:
        rows.append((columns.reward, targets.min_effective_accuracy))
    return rows


def check_targets(columns: Columns, classes: Sequence[SloClass], targets: Targets) -> None:
    """Refuse targets that no number of workers reaches."""
    queries = columns.of_classes(len(classes)).astype(float)
    share = np.array([slo_class.share for slo_class in classes])
    often = [float(columns.in_time[count > 0].max(initial=0.0)) for count in queries]
    fewest = 1.0 - math.fsum(share * often)
    if targets.max_violation < fewest - ROUNDING:
        raise _unreachable("share of violations", "max_violation", targets.max_violation,
                           f"at least {outward(fewest, up=True)}")

    def best(rows: Sequence[tuple[FloatArray, float]], equal: float | None = None) -> float:
        """Return the largest effective accuracy under further rows ``a·y <= b``.

        If ``equal`` is not None, exactly this share of the requests is in time.
        """
        return -float(solved(
            "fewest workers", c=-columns.reward,
            A_ub=np.vstack([queries, *(row for row, _ in rows)]),
            b_ub=np.array([*share, *(most for _, most in rows)]),
            A_eq=None if equal is None else columns.in_time[None, :],
            b_eq=None if equal is None else np.array([equal])).fun)

    # Fewer in time leave more choice; of all that are, this is the best mean.
    served = 1.0 - targets.max_violation
    most = best([], served) / served
    if (targets.min_accuracy or 0.0) > most + ROUNDING:
        raise _unreachable("accuracy", "min_accuracy", targets.min_accuracy,
                           f"at most {outward(most)}")
    rows = [(-columns.in_time, -served)]
    if targets.min_accuracy is not None:
        rows.append(((targets.min_accuracy - columns.accuracy) * columns.in_time, ROUNDING))
    most = best(rows)
    if (targets.min_effective_accuracy or 0.0) > most + ROUNDING:
        raise _unreachable("effective accuracy", "min_effective_accuracy",
                           targets.min_effective_accuracy, f"at most {outward(most)}")


def _unreachable(what: str, where: str, value: float | None, allowed: str) -> InfeasibleError:
    return InfeasibleError(f"no number of workers reaches this {what}", where=where, value=value,
                           allowed=allowed)


def outward(value: float, *, up: bool = False, slack: float = ROUNDING) -> str:
    """Format a share or seconds to six decimals, rounded down, or up with ``up``.

    So that the value in a message is itself allowed; it may be off by ``slack``, which the check
    behind the message lets pass.
    """
    nearest = round(float(value), 6)
    if up and nearest < value - slack:
        nearest = round(nearest + 1e-6, 6)
    elif not up and nearest > value + slack:
        nearest = round(nearest - 1e-6, 6)
    return repr(nearest).removesuffix(".0")
