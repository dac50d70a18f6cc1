"""The exact value of one policy.

Discounted: ``(I - discount P) V = r``.

Average reward: on each closed class, gain and relative values by the regular system of
:mod:`ramsis.mdp.chain`; from a transient state, ``g = P g`` and
``h = r - g c + P h``, which is regular on the transient states. So a policy with several
closed classes (multichain) is no special case and nothing becomes singular by structure.
Relative values are shifted so that their stationary mean is 0 in every class, which is what
keeps policy iteration from cycling when several classes share the best gain.

Source: Puterman (1994), sections 6.1, 8.2, 9.2 and 11.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import NotConvergedError
from ramsis.mdp.chain import (
    Elimination,
    Factorisation,
    SingularSystemError,
    absorption,
    closed_classes,
    passage,
    recurrent_system,
)
from ramsis.mdp.result import check_discount
from ramsis.mdp.sparse import SparseMDP
from ramsis.reprs import dataclass

_WEAK_LINK = 1e-12  # transitions below this are dropped when the full chain is singular
_SAME_GAIN = 1e-9  # gains this close, relative to their size, count as one
_SAME_ZERO = 1e-14  # and gains that are this small, relative to rewards
_RESIDUAL = 1e-8  # largest residual of an evaluation, relative to its values


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Value of a policy.

    Attributes
    ----------
    value : (S,)
        Discounted value, or relative values with stationary mean 0 in each closed class.
    gain : float or None
        Average reward per unit of cost; ``None`` when discounted or when it depends on the
        starting state.
    state_gain : (S,) or None
        Average reward from each starting state; ``None`` when discounted.
    """

    value: FloatArray
    gain: float | None
    state_gain: FloatArray | None
    notes: tuple[str, ...] = ()


def evaluate_policy(
    mdp: SparseMDP, policy: ArrayLike, discount: float | None = None
) -> Evaluation:
    """Evaluate a policy exactly, discounted or per unit of cost.

    Parameters
    ----------
    policy : (S,) action labels
    discount : float in [0, 1), optional
        Per decision; ``None`` asks for average reward.

    Raises
    ------
    InvalidValueError
        An action that its state lacks, a discount out of range, or (average reward) a policy
        that can go on for ever at no cost.
    NotConvergedError
        A chain so badly scaled that its equations cannot be solved.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> evaluate_policy(mdp, [0, 0]).gain
    2.0
    """
    return evaluate_pairs(mdp, mdp.pairs_of(policy), check_discount(discount))


def evaluate_pairs(
    mdp: SparseMDP, rows: IntArray, discount: float | None
) -> Evaluation:
    """Evaluate the policy that takes pair ``rows[s]`` in state ``s``; arguments are not checked.

    ``discount`` as for :func:`evaluate_policy`.
    """
    chain, reward, cost = mdp.transition[rows], mdp.reward[rows], mdp.costs[rows]
    if discount is not None:
        identity = sparse.eye_array(mdp.n_states, format="csc")
        value = Factorisation(sparse.csc_array(identity - discount * chain)).solve(reward)
        return Evaluation(value, None, None)
    try:
        gain, value = _average(mdp, chain, reward, cost)
        notes: tuple[str, ...] = ()
    except SingularSystemError:
        gain, value = _average_without_weak_links(mdp, chain, reward, cost)
        notes = (f"singular policy: transitions below {_WEAK_LINK:g} were left out",)
    rounding = _SAME_ZERO * float(np.abs(reward).max()) / float(cost.max())
    differs = np.ptp(gain) > _SAME_GAIN * np.abs(gain).max() + rounding
    return Evaluation(value, None if differs else float(np.median(gain)), gain, notes)


def _average(
    mdp: SparseMDP, chain: sparse.csr_array, reward: FloatArray, cost: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (S,) gain and (S,) relative values of a policy's chain; raise if it is singular."""
    count, label = closed_classes(chain)
    recurrent, transient = np.flatnonzero(label >= 0), np.flatnonzero(label < 0)
    gain, value = np.empty(label.size), np.empty(label.size)
    total = np.bincount(label[recurrent], cost[recurrent], minlength=count)
    if not total.all():
        raise mdp.endless(int(np.argmax(label == int(np.argmin(total)))))
    gain[recurrent], value[recurrent] = _closed(
        sparse.csr_array(chain[recurrent][:, recurrent]),
        reward[recurrent], cost[recurrent], label[recurrent],
    )
    if transient.size:
        inside, leaving = chain[transient][:, transient], chain[transient][:, recurrent]
        left = np.asarray(leaving.sum(axis=1), dtype=np.float64).ravel()
        gain[transient] = gain[recurrent[0]]
        system: Elimination | Factorisation
        if count == 1:
            try:
                system = Factorisation(passage(inside, left))
            except SingularSystemError:
                system = absorption(inside, left)
        else:
            # Gains of classes are averaged by the probabilities of absorption. As rounding grows
            # with the steps until absorption, only differences of gains are averaged.
            system = absorption(inside, left)
            common = gain[recurrent][np.argmin(np.abs(gain[recurrent]))]
            gain[transient] = common + system.expected(leaving @ (gain[recurrent] - common))
        value[transient] = system.solve(
            reward[transient] - gain[transient] * cost[transient] + leaving @ value[recurrent]
        )
    residual = np.abs(reward - gain * cost + chain @ value - value).max()
    if residual > _RESIDUAL * (1.0 + np.abs(value).max() + np.abs(reward).max()):
        raise SingularSystemError(f"residual {residual:.3g}")
    return gain, value


def _closed(
    chain: sparse.csr_array, reward: FloatArray, cost: FloatArray, label: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return gain and relative values of states that all lie in closed classes.

    The values of a class have a stationary mean of 0.
    """
    matrix, references = recurrent_system(chain, cost, label)
    system = Factorisation(matrix)
    value = system.solve(reward)
    gain = value[references]
    value[references] = 0.0
    unit = np.zeros(label.size)
    unit[references] = 1.0
    frequency = system.solve(unit, transposed=True)
    total = np.bincount(label, frequency)
    value -= (np.bincount(label, frequency * value) / total)[label]
    return gain[label], value


def _average_without_weak_links(
    mdp: SparseMDP, chain: sparse.csr_array, reward: FloatArray, cost: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Evaluate the average reward on the chain without its very small transitions."""
    strong = chain.copy()
    strong.data[strong.data < _WEAK_LINK] = 0.0
    strong.eliminate_zeros()
    strong = sparse.csr_array(sparse.diags_array(1.0 / strong.sum(axis=1)) @ strong)
    try:
        return _average(mdp, strong, reward, cost)
    except SingularSystemError as error:
        raise NotConvergedError(f"a policy's equations are numerically singular ({error})",
                                allowed="transition probabilities of comparable size") from error
