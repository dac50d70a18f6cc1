"""What a promise may be off by because service times are known from samples only.

The violation rate v rests on *evidence*: the variance that it has when all samples are drawn anew,
and the weight u of one more sample that is longer than those seen, as a share of all queries.
With N = v/variance it is treated as a count k = N·v of rare events among N *effective* samples, as
Fay and Feuer do with weighted sums of rates [1]. The lower end of the interval at confidence 1 − α
is Jeffreys' of a Poisson count [2], the quantile α/2 of Gamma(k + 1/2) over N. What has not been
seen yet can only add to v. So at the upper end the half of an event that Jeffreys' has more has
the weight u, if that is more than the 1/N of those seen: it is the quantile 1 − α/2 of the gamma
distribution of mean v + u/2 and variance v/N + u²/2 [1]. Without any late query it is still the
quantile of Gamma(1/2) times u: so many samples are needed for a budget. A rate below 1e-9 counts
as 0, as v and its variance are then of the size of rounding, and N would be any number.

Nothing is assumed of the law of the service times but that one more sample is no longer, against
the mean of its batch, than the longest of any batch. That the policy was chosen for the same
samples is not in the interval.

*One worker's queue.* Variance and u follow from the influence function
(:mod:`ramsis.analysis.influence`).

*Other queues*, where the model has no laws of service times to take a derivative by, are treated
by groups. Let group i be the batches of a size on a model: it serves the share s_i of all queries,
the share v_i of all is late in it, and its times rest on n_i samples. One of them stands for the
share s_i/n_i of all queries at most, with c_i as many that are late by it later on, so that

    variance <= Σ v_i·w_i,  u = max w_i,        w_i = s_i·c_i / n_i.

That takes all queries of a group to be late by the same samples, as if all had the same slack: the
interval is too wide rather than too narrow.

[1] M. P. Fay, E. J. Feuer, "Confidence intervals for directly standardized rates: a method based
on the gamma distribution", Statistics in Medicine 16, 1997.
[2] L. D. Brown, T. T. Cai, A. DasGupta, "Interval estimation in exponential families", Statistica
Sinica 13, 2003.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from ramsis.policy import Expectations
from ramsis.policy.records import Interval

__all__ = ["CONFIDENCE", "Evidence", "Groups", "at_confidence", "evidence_of_groups",
           "lowest_upper", "overrun_ms", "rate_interval"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CONFIDENCE = 0.95
"""Of the intervals, unless another one is asked for."""

_HARDLY = 1e-9  # of all queries: what serves fewer does not count, and fewer late ones are none
_LEAST_WEIGHT = 1e-12


class Evidence(NamedTuple):
    """What a violation rate rests on.

    Attributes
    ----------
    samples : float
        N of the module's text.
    one_more : float
        u of the module's text; at least 1/N.
    """

    samples: float
    one_more: float

    @classmethod
    def of(cls, rate: float, variance: float, weight: float) -> Evidence:
        """From a rate, its variance, and the weight u."""
        weight = max(weight, _LEAST_WEIGHT)
        if rate <= _HARDLY or variance <= 0.0:
            return cls(1.0 / weight, weight)
        return cls(rate / variance, max(weight, variance / rate))

    @classmethod
    def behind(cls, interval: Interval) -> Evidence:
        """What a stated interval follows from."""
        return cls(interval.samples, interval.one_more)


class Groups(NamedTuple):
    """Batches of one size on one model; arrays of shape (G,).

    Attributes
    ----------
    share, late : ndarray
        Shares of all queries: that it serves, and that are late in it.
    samples : ndarray of int
        Behind its service times; 0 where it is not known.
    more : ndarray
        c of the module's text, >= 1.
    """

    share: FloatArray
    late: FloatArray
    samples: IntArray
    more: FloatArray


def overrun_ms(quantiles_ms: FloatArray, weights: FloatArray, slo_ms: float) -> FloatArray:
    """Mean time beyond an SLO of what takes longer than that, by the last axis; else 0."""
    over = np.maximum(quantiles_ms - slo_ms, 0.0)
    chance = (over > 0) @ weights
    return np.asarray(np.divide(over @ weights, chance, out=np.zeros_like(chance),
                                where=chance > 0))


def evidence_of_groups(groups: Groups) -> Evidence | None:
    """As of the module's text; None where the samples behind some times are not known."""
    used = groups.share > _HARDLY
    if not used.any() or (groups.samples[used] == 0).any():
        return None
    late = np.maximum(groups.late[used], 0.0)
    weight = (groups.more * groups.share)[used] / groups.samples[used]
    return Evidence.of(float(late.sum()), float(late @ weight), float(weight.max()))


def rate_interval(
    rate: float, evidence: Evidence, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The interval of a rate that rests on some evidence, within [0, 1]."""
    samples, weight = evidence
    tail = (1.0 - confidence) / 2.0
    low = float(gammaincinv(samples * rate + 0.5, tail)) / samples
    mean, variance = rate + weight / 2.0, rate / samples + weight**2 / 2.0
    high = float(gammaincinv(mean**2 / variance, 1.0 - tail)) * variance / mean
    return min(low, rate), min(max(high, rate), 1.0)


def lowest_upper(evidence: Evidence, confidence: float = CONFIDENCE) -> float:
    """The upper end of the interval of a rate of 0."""
    return rate_interval(0.0, evidence, confidence)[1]


def at_confidence(
    expected: Expectations, evidence: Evidence | None, confidence: float = CONFIDENCE
) -> Expectations:
    """A promise with its interval; without one where the number of samples is not known.

    Effective accuracy falls by the accuracy of the queries in time for each one that is late, and
    stays below the upper bound.
    """
    if evidence is None:
        return replace(expected, interval=None)
    late, accuracy = expected.violation_rate, expected.accuracy or 0.0
    low, high = rate_interval(late, evidence, confidence)
    effective = expected.effective_accuracy
    most = max(1.0 if expected.upper_bound is None else expected.upper_bound, effective)
    return replace(expected, interval=Interval(
        confidence, (low, high),
        (max(effective - accuracy * (high - late), 0.0),
         min(effective + accuracy * (late - low), most)), *evidence))
