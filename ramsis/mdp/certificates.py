"""Bounds on the optimum from any value function, by one sweep over the problem.

Discounted, with ``B(s) = max_l (r + discount P V - V)(s)`` (MacQueen 1966, Porteus 1971):

    min B / (1 - discount)  <=  V*(s) - V(s)  <=  max B / (1 - discount).

Average reward, with the slack ``d = r + P h - h`` of every pair (Puterman 1994, theorem 8.5.5
for unit costs; divided by the cost when there is one, Schweitzer 1971):

    min over a policy's pairs of d / c  <=  its gain  <=  optimal gain  <=  max over all of d / c.

A pair that costs nothing bounds nothing, but its slack must not be positive for the upper bound
(nor negative, when the policy takes it, for the lower one); where it is, by more than rounding,
that bound is infinite. Both hold from every starting state, so also for multichain problems,
where they need not meet.

All bounds are widened by the rounding of the sweep, ``4 eps (max |r| + 2 max |V - centre|)``, so
that values too large to tell gains apart show in the certificate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ramsis.mdp.result import Certificate, Criterion, Status
from ramsis.mdp.sparse import SparseMDP

__all__ = ["average_certificate", "common_gain", "discounted_certificate", "gain_bounds",
           "judged"]

_SAME_GAIN = 1e-9  # gains this close, relative to their size, count as one
_KEEPS_GAIN = 1e-12  # pairs whose next gain is this close to their own keep it
_ROUNDINGS = 4.0 * float(np.finfo(np.float64).eps)

_Floats = NDArray[np.float64]


def discounted_certificate(
    mdp: SparseMDP,
    value: _Floats,
    discount: float,
    *,
    status: Status,
    iterations: int,
    constant: float = 0.0,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """Certificate of the discounted value function ``value + constant``.

    The constant part of the values is taken out of the sweep, so that the bounds keep their
    digits at discounts close to 1.
    """
    centre = 0.5 * float(value.min() + value.max())
    relative = value - centre
    backed_up, _ = mdp.best(mdp.reward + discount * (mdp.transition @ relative))
    change = backed_up - relative - (1.0 - discount) * (centre + constant)
    noise = _noise(mdp, relative)
    if mdp.cost is not None:
        notes = (*notes, "costs do not enter the discounted criterion")
    return Certificate(
        criterion=Criterion.DISCOUNTED,
        status=status,
        iterations=iterations,
        bellman_residual=float(np.abs(change).max()),
        lower_bound=float((change.min() - noise) / (1.0 - discount)),
        upper_bound=float((change.max() + noise) / (1.0 - discount)),
        notes=notes,
    )


def gain_bounds(
    mdp: SparseMDP, value: _Floats, rows: NDArray[np.int64]
) -> tuple[float, float]:
    """Lower bound on the gain of the policy ``rows`` and upper bound on the optimal gain."""
    relative = value - 0.5 * (value.min() + value.max())
    slack = mdp.reward + mdp.transition @ relative - relative[mdp.state]
    noise, paid = _noise(mdp, relative), mdp.costs > 0.0
    costs = np.where(paid, mdp.costs, 1.0)
    above = np.where(paid, (slack + noise) / costs, np.where(slack > noise, np.inf, -np.inf))
    below = np.where(paid, (slack - noise) / costs, np.where(slack < -noise, -np.inf, np.inf))
    return float(below[rows].min()), float(above.max())


def _noise(mdp: SparseMDP, relative: _Floats) -> float:
    return float(_ROUNDINGS * (np.abs(mdp.reward).max() + 2.0 * np.abs(relative).max()))


def common_gain(state_gain: _Floats) -> float | None:
    """The gain if it is the same from every state, up to rounding; otherwise ``None``."""
    lowest, highest = float(state_gain.min()), float(state_gain.max())
    if highest - lowest > _SAME_GAIN * max(1.0, abs(lowest), abs(highest)):
        return None
    return float(np.median(state_gain))


def average_certificate(
    mdp: SparseMDP,
    value: _Floats,
    state_gain: _Floats,
    rows: NDArray[np.int64],
    *,
    status: Status,
    iterations: int,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """Certificate of a policy (``rows``) with relative values and gains of each state.

    The residual is that of both optimality equations, ``g = max P g`` and, among the pairs that
    keep the gain, ``h = max r - g c + P h``; the first is trivial when the gain is constant.
    """
    common = common_gain(state_gain)
    gain = state_gain if common is None else np.full(mdp.n_states, common)
    own = gain[mdp.state]
    drift = mdp.transition @ gain - own
    charged = mdp.reward - own * mdp.costs + mdp.transition @ value
    charged[drift < -_KEEPS_GAIN * (1.0 + np.abs(own))] = -np.inf
    residual = np.abs(mdp.best(charged)[0] - value).max()
    lower, upper = gain_bounds(mdp, value, rows)
    return Certificate(
        criterion=Criterion.AVERAGE,
        status=status,
        iterations=iterations,
        bellman_residual=float(max(residual, drift.max())),
        lower_bound=lower,
        upper_bound=upper,
        notes=notes,
    )


def judged(certificate: Certificate, allowed: float) -> Certificate:
    """Not optimal after all when rounding alone opens the bounds beyond ``allowed``."""
    if certificate.converged and certificate.gap > 2.0 * allowed:
        return replace(certificate, status=Status.PRECISION)
    return certificate
