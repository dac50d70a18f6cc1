"""What a promise may be off by because service times are known from samples only.

A violation happens where a batch takes longer than the slack leaves. Let group i be the batches
of a size on a model: it serves the share s_i of all queries, the share v_i of all is late in it,
and its times rest on n_i samples. A sample of l ms stands for the share W_i(l)/n_i of all queries,
W_i(l) <= s_i being the share served in group i with a slack below l; v_i is the mean of W_i over
the samples, so it has the variance Var W_i / n_i <= r_i·s_i·v_i / n_i with

    r_i = E[W_i²] / (s_i·E[W_i]) <= 1,

1 where all have the same slack. Samples also act on those that wait. A late batch makes others
late, those that come to its worker while it is beyond the deadline, f_i for each query of its own.
And of the queries late in group i the share h_i had waited for a batch before: these are late by
its time as much as by their own, two influences of like size of the same samples, of which the sum
has four times the variance of one. So with c_i = max(1 + f_i, (1 + h_i)²) the violation rate v has
a variance over its mean of

    1/N = Σ v_i·w_i / Σ v_i,        w_i = r_i·s_i·c_i / n_i,

and is treated as one count k = N·v of rare events among N *effective* samples, as Fay and Feuer do
with weighted sums of rates [1]. The interval is Jeffreys' of a Poisson count [2] at confidence
1 − α, the quantiles α/2 and 1 − α/2 of Gamma(k + 1/2), over N.

Nothing is assumed of the law of the service times. That the policy was chosen for the same samples
is not in the interval. Without any late query its upper end is still the quantile 1 − α/2 of
Gamma(1/2), over N: so many samples are needed for a budget.

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

__all__ = ["CONFIDENCE", "Groups", "at_confidence", "effective_samples", "fewest_samples",
           "overrun_ms", "rate_interval", "slack_spread"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CONFIDENCE = 0.95
"""Of the intervals, unless another one is asked for."""

_HARDLY = 1e-9  # of all queries: what serves fewer does not count


class Groups(NamedTuple):
    """Batches of one size on one model; arrays of shape (G,).

    Attributes
    ----------
    share, late : ndarray
        Shares of all queries: that it serves, and that are late in it.
    samples : ndarray of int
        Behind its service times; 0 where it is not known.
    follow : ndarray
        f of the module's text.
    spread : ndarray
        r of the module's text, in (0, 1].
    waited : ndarray
        h of the module's text, in [0, 1].
    """

    share: FloatArray
    late: FloatArray
    samples: IntArray
    follow: FloatArray
    spread: FloatArray
    waited: FloatArray


def overrun_ms(quantiles_ms: FloatArray, weights: FloatArray, slo_ms: float) -> FloatArray:
    """Mean time beyond an SLO of what takes longer than that, by the last axis; else 0."""
    over = np.maximum(quantiles_ms - slo_ms, 0.0)
    chance = (over > 0) @ weights
    return np.asarray(np.divide(over @ weights, chance, out=np.zeros_like(chance),
                                where=chance > 0))


def slack_spread(mass: FloatArray, late: FloatArray) -> FloatArray:
    """R of the module's text; 1 where nothing is late.

    Parameters
    ----------
    mass : ndarray, shape (G, J)
        Share of all queries that each group serves at slacks that rise with j.
    late : ndarray, shape (G, J)
        Probability that its batch takes longer than the slack.
    """
    upto = np.cumsum(mass, axis=1)
    squared = (np.diff(upto**2, axis=1, prepend=0.0) * late).sum(axis=1)
    most = upto[:, -1] * (mass * late).sum(axis=1)
    return np.asarray(np.divide(squared, most, out=np.ones_like(most), where=most > 0))


def effective_samples(groups: Groups) -> float | None:
    """N of the module's text; None where the samples behind some times are not known."""
    used = groups.share > _HARDLY
    if not used.any() or (groups.samples[used] == 0).any():
        return None
    share, late = groups.share[used], np.maximum(groups.late[used], 0.0)
    more = np.maximum(1.0 + groups.follow, (1.0 + groups.waited) ** 2)
    weight = (groups.spread * more)[used] * share / groups.samples[used]
    part = late if late.sum() > 0 else share
    return float(part.sum() / (part @ weight))


def rate_interval(
    rate: float, samples: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The interval of a rate that rests on so many effective samples, within [0, 1]."""
    count, tail = samples * rate, (1.0 - confidence) / 2.0
    low, high = (float(gammaincinv(count + 0.5, level)) / samples for level in (tail, 1.0 - tail))
    return min(low, rate), min(max(high, rate), 1.0)


def fewest_samples(rate: float, confidence: float = CONFIDENCE) -> float:
    """Effective samples without which no rate, not even 0, has an interval below this one."""
    return float(gammaincinv(0.5, (1.0 + confidence) / 2.0)) / rate


def at_confidence(
    expected: Expectations, samples: float | None, confidence: float = CONFIDENCE
) -> Expectations:
    """A promise with its interval; without one where the number of samples is not known.

    Effective accuracy falls by the accuracy of the queries in time for each one that is late, and
    stays below the upper bound.
    """
    if samples is None:
        return replace(expected, interval=None)
    late, accuracy = expected.violation_rate, expected.accuracy or 0.0
    low, high = rate_interval(late, samples, confidence)
    effective = expected.effective_accuracy
    most = max(1.0 if expected.upper_bound is None else expected.upper_bound, effective)
    return replace(expected, interval=Interval(
        confidence, (low, high),
        (max(effective - accuracy * (high - late), 0.0),
         min(effective + accuracy * (late - low), most)), samples))
