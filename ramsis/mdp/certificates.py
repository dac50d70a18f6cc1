"""Bounds on the optimum from any value function, by one sweep over the problem.

Discounted, with ``B(s) = max_l (r + discount P V - V)(s)`` (MacQueen 1966, Porteus 1971):

    min B / (1 - discount)  <=  V*(s) - V(s)  <=  max B / (1 - discount).

Average reward, with the slack ``d = r + P h - h`` of every pair (Puterman 1994, theorem 8.5.5
for unit costs; divided by the cost when there is one, Schweitzer 1971):

    min over a policy's pairs of d / c  <=  its gain  <=  optimal gain  <=  max over all of d / c.

A pair that costs nothing bounds nothing, but its slack must not be positive for the upper bound
(nor negative, when the policy takes it, for the lower one); where it is, by more than rounding,
that bound is infinite. Both hold from every starting state. Where they are apart, as they are if
the gain depends on the starting state, each end component gets bounds of its own from the pairs
that stay within it, and each state the best of what it can reach (:mod:`ramsis.mdp.components`):

    what the policy reaches by the lower bounds  <=  its gain from a state
        <=  optimal gain from it  <=  the best that can be reached by the upper bounds.

All bounds are widened by the rounding of the sweep, 4 eps times the sizes of the terms that are
added, so that values too large to tell gains apart show in the certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.components import best_ends, end_components, pairs_toward
from ramsis.mdp.evaluation import Evaluation
from ramsis.mdp.result import Certificate, Criterion, Solution, Status
from ramsis.mdp.sparse import SparseMDP

_KEEPS_GAIN = 1e-12  # pairs whose next gain is this close to their own, relatively, keep it
_ROUNDINGS = 4.0 * float(np.finfo(np.float64).eps)

_FREE = 4.0  # times that, for the largest terms: the slack of a pair without costs until it moves


def discounted_certificate(
    mdp: SparseMDP,
    value: FloatArray,
    discount: float,
    *,
    status: Status,
    iterations: int,
    constant: float = 0.0,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """Certify the discounted value function ``value + constant``.

    The constant part of the values is taken out of the sweep, so that the bounds keep their
    digits at discounts close to 1.
    """
    centre = 0.5 * float(value.min() + value.max())
    relative = value - centre
    backed_up, _ = mdp.best(mdp.reward + discount * (mdp.transition @ relative))
    change = backed_up - relative - (1.0 - discount) * (centre + constant)
    noise = _ROUNDINGS * float(_size(mdp, relative).max())
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


def _state_bounds(
    mdp: SparseMDP, value: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds on the gain from each state.

    They follow from the end components that the state can reach.
    """
    policy = SparseMDP(np.arange(mdp.n_states), mdp.action[rows], mdp.transition[rows],
                       mdp.reward[rows], mdp.costs[rows])
    return -_reached(policy, value, lower=True), _reached(mdp, value)


def _reached(mdp: SparseMDP, value: FloatArray, *, lower: bool = False) -> FloatArray:
    """Return upper bounds on the optimal gain by state, (S,); ``lower``: of the negative gain."""
    components = end_components(mdp)
    centre = np.zeros(components.count + 1)  # of each component's values, where rounding is least
    for extreme in (np.minimum, np.maximum):
        most = np.full(components.count + 1, value[0])
        most[components.label] = value
        extreme.at(most, components.label, value)
        centre[:-1] += 0.5 * most[:-1]
    below, above = _pair_bounds(mdp, value - centre[components.label])
    bound = (-below if lower else above)[components.inside]
    worth = np.full(components.count, -np.inf)
    np.maximum.at(worth, components.label[mdp.state[components.inside]], bound)
    unbounded = worth == np.inf
    ends = best_ends(mdp, components, np.where(unbounded, 0.0, worth))
    hit = np.append(unbounded, False)[components.label]
    hit |= pairs_toward(mdp, hit, np.ones(mdp.n_pairs, dtype=bool)) >= 0
    return np.where(hit, np.inf, ends.value + ends.rounding)


def _pair_bounds(mdp: SparseMDP, relative: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (L,) lower and upper bounds of the gain that follow from each pair.

    A policy gains at least the least lower bound of its pairs, and no policy more than the
    greatest upper bound of all. Pairs without cost bound nothing (inf, -inf), unless ``relative``
    makes one lose (then -inf) or earn (inf) something for nothing.
    """
    slack = mdp.reward + mdp.transition @ relative - relative[mdp.state]
    noise, paid = _ROUNDINGS * _size(mdp, relative), mdp.costs > 0.0
    if paid.all():
        return (slack - noise) / mdp.costs, (slack + noise) / mdp.costs
    costs, most = np.where(paid, mdp.costs, 1.0), _FREE * float(noise.max()) * mdp.moving
    above = np.where(paid, (slack + noise) / costs, np.where(slack > most, np.inf, -np.inf))
    below = np.where(paid, (slack - noise) / costs, np.where(slack < -most, -np.inf, np.inf))
    return below, above


def _size(mdp: SparseMDP, relative: FloatArray) -> FloatArray:
    """Return the sum of the absolute terms of each pair's slack, (L,), to bound its rounding."""
    size = np.abs(relative)
    return np.asarray(np.abs(mdp.reward) + mdp.transition @ size + size[mdp.state])


def average_solution(
    mdp: SparseMDP,
    rows: IntArray,
    evaluation: Evaluation,
    *,
    otherwise: Status,
    tolerance: float,
    iterations: int,
    settings: Mapping[str, object],
    duals: tuple[FloatArray, ...] = (),
) -> Solution:
    """Return the evaluated policy (``rows``) as a solution with its certificate.

    It is optimal if, for every starting state, the bounds are within ``tolerance`` of each other
    and of the gain, relative to ``1 + |gain|``; if not, the status is ``otherwise``. If the bounds
    for all starting states are too far apart, bounds are computed for each. ``duals`` are further
    relative values by which the optimum is bounded from above.
    """
    gain = evaluation.state_gain
    assert gain is not None
    allowed = tolerance * (1.0 + np.abs(gain))
    bounds = [_pair_bounds(mdp, value - 0.5 * (value.min() + value.max()))
              for value in (evaluation.value, *duals)]
    lower = np.full(mdp.n_states, bounds[0][0][rows].min())
    upper = np.full(mdp.n_states, min(above.max() for _, above in bounds))
    if (upper - lower > allowed).any():
        below, above = _state_bounds(mdp, evaluation.value, rows)
        lower, upper = np.maximum(lower, below), np.minimum(upper, above)
    converged = (upper - lower <= allowed) & (lower - gain <= allowed) & (gain - upper <= allowed)
    notes = evaluation.notes
    if evaluation.gain is None:
        notes = (*notes, "the gain depends on the starting state; the bounds span all of them")
    certificate = Certificate(
        criterion=Criterion.AVERAGE,
        status=Status.OPTIMAL if converged.all() else otherwise,
        iterations=iterations,
        bellman_residual=_residual(mdp, evaluation),
        lower_bound=float(lower.min()),
        upper_bound=float(upper.max()),
        notes=notes,
    )
    return Solution(mdp.action[rows], evaluation.value, evaluation.gain, certificate, settings,
                    gain, lower, upper)


def _residual(mdp: SparseMDP, evaluation: Evaluation) -> float:
    """Return the largest violation of both optimality equations.

    They are ``g = max P g`` and, among the pairs that keep the gain, ``h = max r - g c + P h``;
    the first is trivial when the gain is constant.
    """
    gain, value = evaluation.state_gain, evaluation.value
    assert gain is not None
    if evaluation.gain is not None:
        gain = np.full(mdp.n_states, evaluation.gain)
    gain_here = gain[mdp.state]
    drift = mdp.transition @ gain - gain_here
    charged = mdp.reward - gain_here * mdp.costs + mdp.transition @ value
    charged[drift < -_KEEPS_GAIN * np.abs(gain_here)] = -np.inf
    residual = np.abs(mdp.best(charged)[0] - value).max()
    return float(max(residual, drift.max()))


def judged(certificate: Certificate, allowed: float) -> Certificate:
    """Return the certificate, no longer optimal if its gap is more than twice ``allowed``."""
    if certificate.converged and certificate.gap > 2.0 * allowed:
        return replace(certificate, status=Status.PRECISION)
    return certificate
