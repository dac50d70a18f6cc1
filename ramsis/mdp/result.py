"""Result of a solver: a policy, its values, and a certificate; checks of shared settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import POSITIVE, InvalidValueError, NotConvergedError, whole
from ramsis.reprs import dataclass


class Criterion(StrEnum):
    """Criterion that is maximised: discounted or average reward."""

    DISCOUNTED = "discounted"
    AVERAGE = "average"


class Status(StrEnum):
    """Why a solver stopped."""

    OPTIMAL = "optimal"
    MAX_ITERATIONS = "max-iterations"
    PRECISION = "precision"
    """Rounding hides any further progress although the tolerance is not met."""


@dataclass(frozen=True)
class Certificate:
    """How a solution was reached and a bound on its distance from the optimum.

    Attributes
    ----------
    iterations : int
        Sweeps, policy evaluations or simplex iterations, whichever the solver counts.
    bellman_residual : float
        Largest violation of the optimality equation by the returned value (and gain).
    lower_bound, upper_bound : float
        Average reward: the optimal gain from any state lies between them, and ``lower_bound``
        holds for the returned policy already. Discounted: ``V*(s) - value(s)`` lies between them
        in every state.
    truncated_mass : float
        Largest probability that was cut off when the problem was built.
    notes : tuple of str
        Further remarks, such as a recovery from a singular system.
    """

    criterion: Criterion
    status: Status
    iterations: int
    bellman_residual: float
    lower_bound: float
    upper_bound: float
    truncated_mass: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the solver's stopping rule was met."""
        return self.status is Status.OPTIMAL

    @property
    def gap(self) -> float:
        """Upper bound less lower bound on the optimum."""
        return self.upper_bound - self.lower_bound

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as plain JSON values; infinite bounds become ``None``."""
        values = {**asdict(self), "converged": self.converged, "notes": list(self.notes)}
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in values.items()}

    def require_converged(self, where: str | None = None) -> None:
        """Raise :class:`~ramsis.errors.NotConvergedError` unless the stopping rule was met."""
        if not self.converged:
            raise NotConvergedError(
                f"solver stopped after {self.iterations} iterations with bounds "
                f"{self.lower_bound:.9g} and {self.upper_bound:.9g}", where=where,
                value=self.status.value, allowed="more iterations or a larger tolerance")


@dataclass(frozen=True, eq=False)
class Solution:
    """A policy with its values.

    Attributes
    ----------
    policy : (S,) integers
        Action label of each state.
    value : (S,)
        Discounted: the optimal value. Average reward: relative values ``h``, defined up to a
        constant (up to one per closed class where the policy has several).
    gain : float or None
        Average reward per decision, or per unit of cost. ``None`` for a discounted problem,
        and where it depends on the starting state: then see ``state_gain``.
    settings : mapping
        The solver's name and the settings it ran with.
    state_gain : (S,) or None
        Gain from each starting state; ``None`` for a discounted problem.
    state_lower, state_upper : (S,) or None
        The optimal gain from each starting state lies between them, and ``state_lower`` holds for
        the returned policy already; ``None`` for a discounted problem.
    """

    policy: NDArray[np.int64]
    value: NDArray[np.float64]
    gain: float | None
    certificate: Certificate
    settings: Mapping[str, object] = field(default_factory=dict)
    state_gain: NDArray[np.float64] | None = None
    state_lower: NDArray[np.float64] | None = None
    state_upper: NDArray[np.float64] | None = None


def check_discount(discount: float | None) -> float | None:
    """Return ``discount`` as a float in [0, 1), or ``None`` for average reward."""
    if discount is None:
        return None
    allowed = "0 <= discount < 1, or None for average reward"
    if not 0.0 <= discount <= 1.0:
        raise InvalidValueError("discount is out of range", value=discount, allowed=allowed)
    if discount == 1.0:
        raise InvalidValueError(
            "discounted sums need not converge at discount 1, use average reward", value=discount,
            allowed=allowed)
    return float(discount)


def required_discount(discount: float) -> float:
    """Return ``discount`` as a float in [0, 1); average reward is refused."""
    checked = check_discount(discount)
    if checked is None:
        raise InvalidValueError("no discount", value=discount, allowed="0 <= discount < 1")
    return checked


def check_tolerance(tolerance: float) -> float:
    """Return ``tolerance`` as a positive finite float."""
    return POSITIVE.required("tolerance", tolerance, "out of range")


def check_iterations(max_iterations: int) -> int:
    """Return ``max_iterations`` as an integer of at least 1."""
    return int(whole(1).required("max_iterations", max_iterations, "out of range"))
