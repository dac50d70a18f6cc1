"""Error of a promise because service times are known from samples only.

The violation rate v rests on *evidence*: its variance if all samples are drawn anew, and what the
samples have not shown. With N = v/variance, v is treated as a count k = N·v of rare events among N
*effective* samples, as Fay and Feuer treat weighted sums of rates [1]. The lower end of the
interval at confidence 1 − α is Jeffreys' limit of a Poisson count [2], the quantile α/2 of
Gamma(k + 1/2) over N. What has not been seen yet can only add to v. So the upper end is the
quantile 1 − α/2 of the gamma distribution with the mean v + U and the variance v/N + S² [1], where
U and S are the mean and the standard deviation of what is *unseen*. A rate below 1e-9 counts as 0:
v and its variance are then rounding errors, and N would be arbitrary.

A group i has the batches of one size on one model, and its times rest on n_i samples. Its effect
J_i(l) is what its batches add to v if they take l ms (:mod:`ramsis.analysis.worker`). A *far*
sample takes at least one and a half SLOs and, relative to the median of its batch, at least as
long as the longest sample of any group. There are two estimates of what is unseen, and the one
with the lower upper end is taken.

*By a group's own samples.* One more far sample raises v by u_i = (J_i(far) − E J_i)/n_i. As in
Jeffreys' interval, half an event more than seen is counted, of the largest weight u: U = u/2 and
S² = u²/2. That is the largest of all u_i, and of the weight 1/N of a late sample that was seen.
Without any late request the upper end is the quantile of Gamma(1/2) times u.

*By the tail that batches share* (:mod:`ramsis.profiles.tails`). A point of the tail is a deviation
d: a time over the median M of the batch that it comes from. In a batch of the median m_i it stands
for the time m_i + (d − 1)·min(m_i, M), and counts max(m_i/M, 1) times: what slows a long batch
slows a shorter one in proportion, and what stalls a short batch stalls a longer one for as many
ms, but more often, as that runs for longer. So over the points of a tail of N' pooled samples that
starts at the deviation t, long batches add to v the mean of

    Z = Σ_i (J_i(m_i + (d − 1)·min(m_i, M)) − J_i(m_i·t))⁺·max(m_i/M, 1).

The excess of this mean over what the groups' own samples above t add to v is added to U, and E
Z²/N' to S². So a policy that was chosen because a batch happened to be slow in few of its samples
does not gain by it. Groups use the tail of their model if it adds more, else the common one;
groups that are unlike their tail rest on their own samples.

Samples that are longer than any in the tail are unseen, too: half a sample, slow in all groups of
the tail at once, of the weight Σ_i (E J_i(m_i + X·x_i) − E J_i)/N'. There x_i is the longest time
beyond the median of group i that the tail or any group suggests, and N' counts for at most 10,000:
one measurement of a machine does not tell what happens once in more runs. X is an *assumption*: of
samples beyond the longest one, 1 in X² is at least X times as far from the median. That is the
tail of a generalized Pareto law of the shape 1/2, up to which laws have a variance.

Below the start of a tail, and in groups unlike their tail, half a sample of a single group is
unseen, the one with the largest weight: below the start (J_i(t·m_i) − E J_i)/n_i; in a group
unlike its tail (E J_i(m_i + X·x_i) − E J_i)/n_i, with x_i of its own samples.

Slowness of another kind, which no sample shows, is not included. So if the common tail has fewer
than 2,000 samples, which would miss a slowness of one run in 500 with a probability of 2 %, a
sample that was not seen is a far one. Apart from all this the interval does not take into account
that the policy was chosen by the same samples.

*Effective accuracy* has a second error: mean service times are known within their standard errors,
and if they are shorter, the same table finds more slack and chooses more accurate models. The
amount by which the fluid bound rises if every mean is shorter by its standard error is added on
either side. It is 0 at light load, where the bound is the best accuracy at all such times; there
the interval may be too narrow.

*One worker's queue.* Variance and J_i follow from the influence function.

*Other queues.* Their models have no derivative by the distributions of service times, so they are
treated by groups. Group i serves the share s_i of all requests, and the share v_i of all is late
in it. One sample stands for at most s_i/n_i of all requests; for each request that is late by it,
c_i are late in all, later ones included. So the variance is at most Σ v_i·s_i·c_i/n_i, and J_i(l)
is c_i times the requests whose batch has less slack than l. This takes all requests of a group to
be late by the same samples, as if all had the same slack: the interval is too wide rather than too
narrow.

[1] M. P. Fay, E. J. Feuer, "Confidence intervals for directly standardized rates: a method based
on the gamma distribution", Statistics in Medicine 16, 1997.
[2] L. D. Brown, T. T. Cai, A. DasGupta, "Interval estimation in exponential families", Statistica
Sinica 13, 2003.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from ramsis.arrays import FloatArray
from ramsis.bounds import fluid_bound
from ramsis.cluster.cluster import SloClass
from ramsis.cluster.service_times import ServiceTimes
from ramsis.policy import Expectations
from ramsis.policy.records import Interval
from ramsis.profiles.tails import Deviations, Tail, Tails

CONFIDENCE = 0.95
"""Default confidence of the intervals."""

HARDLY = 1e-9
"""Share of all requests below which batches are neglected, as served and as late."""
_LEAST_WEIGHT = 1e-12
_BEYOND = 1.5  # least time of an unseen sample, in SLOs
_MOST_POOLED = 10_000  # samples of other batches that count at most
_FEWEST_POOLED = 2_000  # samples from which a pooled tail is taken to show every slowness
_LONGER = (1.0 - (np.arange(16) + 0.5) / 16) ** -0.5  # unseen samples over the longest seen one


class Evidence(NamedTuple):
    """Evidence behind a violation rate: effective samples and unseen mass."""

    samples: float  # N of the module's text
    # unseen, unseen_deviation: U and S of the module's text; > 0
    unseen: float
    unseen_deviation: float
    # violation_error, effective_error: what violation rate and effective accuracy may be off by
    # besides: half-widths of the simulation that they were measured in; 0 where they were not
    violation_error: float = 0.0
    effective_error: float = 0.0
    # what effective accuracy may be off by besides, since mean service times are known from
    # samples only
    accuracy_error: float = 0.0

    @classmethod
    def behind(cls, interval: Interval) -> Evidence:
        """Return the evidence on violations that an interval in a policy file records."""
        return cls(*(getattr(interval, name) for name in cls._fields))

    def of_more(self, times: float) -> Evidence:
        """Return the evidence of ``times`` as many samples with the same violation rate."""
        return self._replace(samples=self.samples * times, unseen=self.unseen / times,
                             unseen_deviation=self.unseen_deviation / times)


class Effect(NamedTuple):
    """J(time): what batches of one size and model add to the violation rate at this time."""

    model: str
    quantiles_ms: FloatArray  # of the batch that is run, shape (Q,)
    samples: int  # behind these; >= 1
    time_ms: FloatArray  # rising, to the SLO at least, shape (G,)
    late: FloatArray  # J at these times, shape (G,)
    per_ms: float  # slope of J beyond the last of them

    def and_also(self, other: Effect) -> Effect:
        """Return the sum of two effects that rest on the same samples and times."""
        return self._replace(late=self.late + other.late, per_ms=self.per_ms + other.per_ms)

    def at(self, time_ms: FloatArray | float) -> FloatArray:
        """Return the violations J that batches of the group add if they take some times in ms."""
        return np.asarray(np.interp(time_ms, self.time_ms, self.late)
                          + self.per_ms * np.maximum(time_ms - self.time_ms[-1], 0.0))


def overrun_ms(quantiles_ms: FloatArray, weights: FloatArray, slo_ms: float) -> FloatArray:
    """Return E[time − SLO | time > SLO] over quantiles in the last axis; 0 if none is longer."""
    over = np.maximum(quantiles_ms - slo_ms, 0.0)
    chance = (over > 0) @ weights
    return np.asarray(np.divide(over @ weights, chance, out=np.zeros_like(chance),
                                where=chance > 0))


def accuracy_error(
    times: ServiceTimes, *, slo_ms: float | Sequence[SloClass], workers: int, load_qps: float,
) -> float:
    """Return by how much the fluid bound rises at service times one standard error shorter."""
    as_measured, shorter = (
        fluid_bound(service, slo_ms=slo_ms, workers=workers, load_qps=load_qps).effective_accuracy
        for service in (times, times.shorter()))
    return max(shorter - as_measured, 0.0)


def evidence_of_effects(
    rate: float, variance: float, effects: Sequence[Effect], weights: FloatArray,
    tails: Tails | None, slo_ms: float,
) -> Evidence | None:
    """Return the evidence behind a violation rate; None where no batches are known.

    ``variance`` is that of the rate if all samples are drawn anew; ``weights``, (Q,), those of the
    quantiles in the mean; ``tails`` the pooled tails of the profile.
    """
    if not effects:
        return None
    groups = _groups(effects, weights, slo_ms)
    weight = max(max(group.far_weight for group in groups), _LEAST_WEIGHT)
    rate, variance = float(rate), float(variance)
    # Without a late sample N is what one far sample would make it.
    none_late = rate <= HARDLY or variance <= 0.0
    samples = 1.0 / weight if none_late else rate / variance
    # N counts late samples of the weight 1/N each, so that is what one of those seen weighs.
    seen_weight = 0.0 if none_late else 1.0 / samples
    # By a group's own samples: half a sample more than seen, of the largest weight u of all.
    largest = max(weight, seen_weight)
    alone = Evidence(samples, largest / 2.0, largest / 2.0**0.5)
    if tails is None:
        return alone
    # By the tail that batches share. Both are valid, so the lower upper end may be taken.
    pooled = Evidence(samples, *_unseen_by_tails(groups, tails, seen_weight))
    return min(alone, pooled, key=lambda evidence: rate_interval(rate, evidence)[1])


class Started(NamedTuple):
    """Batches of one size on one model that a policy starts, and the requests late in them."""

    model: str
    quantiles_ms: FloatArray  # shape (Q,); batches with the same ones rest on the same samples
    samples: int  # 0 where the number is not known
    queries: FloatArray  # shape (J,): share of all requests that they serve, by the head's slack
    late: float  # share of all requests that is late in them
    per_ms: float  # share of all requests that each ms beyond the SLO makes late
    more: float = 1.0  # requests late in all for each one late by these samples, >= 1


def evidence_of_groups(
    started: Sequence[Started], slack_ms: FloatArray, weights: FloatArray, tails: Tails | None,
    slo_ms: float,
) -> Evidence | None:
    """Return the evidence behind a policy's violations; None if a number of samples is unknown.

    ``slack_ms``, (J,), are the low edges of the slack bins, from 0.
    """
    groups = dict[tuple[str, bytes], list[tuple[Effect, float]]]()
    times = np.append(slack_ms[slack_ms < slo_ms], slo_ms)
    variance = 0.0
    for batches in started:
        if batches.queries.sum() <= HARDLY:
            continue
        if batches.samples == 0:
            return None
        upto = batches.more * np.append(0.0, np.cumsum(batches.queries))
        effect = Effect(batches.model, batches.quantiles_ms, batches.samples, times,
                        np.append(upto[: len(times) - 1], upto[-1]), batches.per_ms)
        groups.setdefault((batches.model, batches.quantiles_ms.tobytes()), []).append(
            (effect, max(batches.late, 0.0)))
    effects, late = list[Effect](), 0.0
    for parts in groups.values():
        effect = reduce(Effect.and_also, [part for part, _ in parts])
        of_group = sum(rate for _, rate in parts)
        over = float(overrun_ms(effect.quantiles_ms, weights, slo_ms))
        variance += of_group * (effect.late[-1] + effect.per_ms * over) / effect.samples
        effects.append(effect)
        late += of_group
    return evidence_of_effects(late, variance, effects, weights, tails, slo_ms)


class _Group(NamedTuple):
    """Effect of a batch with its service times as multiples of their median (deviations)."""

    effect: Effect
    times: Deviations
    mean: float  # E J
    far: float  # rise of J by a sample far beyond the SLO
    longest_ms: float  # longest time beyond the median that any group's samples suggest

    @property
    def far_weight(self) -> float:
        """Violation rate that one sample far beyond the SLO would add."""
        return self.far / self.effect.samples

    def at(self, deviation: FloatArray | float) -> FloatArray:
        """Return J at batch times given as deviations, multiples of their median."""
        return self.effect.at(deviation * self.times.median_ms)

    def beyond(self, start: float, deviation: FloatArray) -> FloatArray:
        """Return the violation rate added by deviations, beyond that at the start of a tail."""
        return np.maximum(self.at(np.maximum(deviation, start)) - self.at(start), 0.0)

    def beyond_by(self, tail: Tail) -> FloatArray:
        """Return by how much J at the points of a tail exceeds J at its start."""
        late = self.effect.at(self.times.median_ms + self._over_ms(tail)) - self.at(tail.start)
        return np.maximum(late, 0.0) * np.maximum(self.times.median_ms / self._of_ms(tail), 1.0)

    def unseen(self, tail: Tail) -> float:
        """Return the violation rate added by a sample beyond all of the group and the tail."""
        return self._longer(max(self.longest_ms, float(self._over_ms(tail).max())))

    @property
    def unseen_weight(self) -> float:
        """Violation rate that one sample longer than all of the group's would add."""
        over_ms = (float(self.times.values[-1]) - 1.0) * self.times.median_ms
        return self._longer(over_ms) / self.effect.samples

    def weight_at(self, deviation: float) -> float:
        """Return the violation rate that one sample of the group at a deviation would add."""
        return max(float(self.at(deviation)) - self.mean, 0.0) / self.effect.samples

    def _longer(self, over_ms: float) -> float:
        times_ms = self.times.median_ms + over_ms * _LONGER
        return max(float(self.effect.at(times_ms).mean()) - self.mean, 0.0)

    def _over_ms(self, tail: Tail) -> FloatArray:
        """Return how far beyond the median the points of a tail are, in ms."""
        short_ms = np.minimum(self.times.median_ms, self._of_ms(tail))
        return (np.array(tail.deviation) - 1.0) * short_ms

    def _of_ms(self, tail: Tail) -> FloatArray:
        """Return the median in ms of the batch that each point of a tail comes from."""
        return np.array(tail.median_ms or [self.times.median_ms])


def _groups(effects: Sequence[Effect], weights: FloatArray, slo_ms: float) -> list[_Group]:
    """Return the groups of effects, with the rise of J by a far sample and the longest time."""
    all_times = [Deviations.of(effect.quantiles_ms, weights, effect.samples)
                 for effect in effects]
    longest = np.array([times.values[-1] for times in all_times])
    medians_ms = np.array([times.median_ms for times in all_times])
    groups = list[_Group]()
    for effect, times in zip(effects, all_times, strict=True):
        mean = float(effect.at(effect.quantiles_ms) @ times.weights)
        far_ms = max(float(longest.max()) * times.median_ms, _BEYOND * slo_ms)
        suggested_ms = (longest - 1.0) * np.minimum(medians_ms, times.median_ms)
        groups.append(_Group(effect, times, mean, max(float(effect.at(far_ms)) - mean, 0.0),
                             float(suggested_ms.max())))
    return groups


class _Pooled(NamedTuple):
    """Mean and variance of the violation rate that a tail adds to that by groups' own samples."""

    mean: float
    variance: float

    @classmethod
    def of(cls, groups: Sequence[_Group], tail: Tail) -> _Pooled:
        share = np.array(tail.share)
        z, shown = np.zeros_like(share), 0.0
        for group in groups:
            z += group.beyond_by(tail)
            shown += float(group.beyond(tail.start, group.times.values) @ group.times.weights)
        return cls(max(float(z @ share) - shown, 0.0), float(z**2 @ share) / tail.samples)

    def __add__(self, other: object) -> _Pooled:
        """Add the pooled figures of tails that have no sample in common."""
        assert isinstance(other, _Pooled)
        return _Pooled(self.mean + other.mean, self.variance + other.variance)

    @property
    def high(self) -> float:
        """Mean plus two standard deviations of the unseen share of late requests."""
        return float(self.mean + 2.0 * self.variance**0.5)


def _unseen_by_tails(
    groups: Sequence[_Group], tails: Tails, seen_weight: float
) -> tuple[float, float]:
    """Return mean and standard deviation of the unseen violation rate, by shared tails.

    ``seen_weight`` is the violation rate that one of the late samples seen stands for.
    """
    # ``weights`` has the unseen sample of each tail, ``weight`` the heaviest of one group's own.
    weight, pooled, weights = seen_weight, _Pooled(0.0, 0.0), list[float]()
    shows_all = tails.common.samples >= _FEWEST_POOLED
    own_tails = {name: tail for name, tail in tails.models.items()
                 if not tails.common.is_like(tail)}
    # Groups by the tail that they rest on: their model's where it is unlike the common one, which
    # has the name "". A model without a tail rests on its own samples.
    by_tail = dict[str, list[_Group]]()
    for group in groups:
        name = group.effect.model
        if name in tails.models:
            by_tail.setdefault(name if name in own_tails else "", []).append(group)
        else:
            weight = max(weight, group.far_weight)
    for name, of_tail in by_tail.items():
        tail, alike = own_tails.get(name, tails.common), list[_Group]()
        for group in of_tail:
            if tail.is_like(group.times):
                # The tail says what is above its start; a sample below it may be unseen.
                alike.append(group)
                weight = max(weight, group.weight_at(tail.start))
            else:
                weight = max(weight, group.unseen_weight if shows_all else group.far_weight)
        pooled += _shared(alike, tail, tails)
        # One sample longer than any in the tail is slow in all of its groups at once.
        longer = sum(group.unseen(tail) if shows_all else group.far for group in of_tail)
        weights.append(longer / min(tail.samples, _MOST_POOLED))
    weights.append(weight)
    # Half a sample of each weight w is unseen: mean w/2, variance w²/2.
    variance = pooled.variance + sum(weight**2 for weight in weights) / 2.0
    return (max(pooled.mean + sum(weights) / 2.0, _LEAST_WEIGHT),
            max(variance**0.5, _LEAST_WEIGHT))


def _shared(groups: Sequence[_Group], tail: Tail, tails: Tails) -> _Pooled:
    """Add up unseen lateness by each model's own tail where it adds more, else the common one."""
    pooled, of_tail = _Pooled(0.0, 0.0), list[_Group]()
    for name, of_model in groupby(sorted(groups, key=_model_of), key=_model_of):
        alike = list(of_model)
        by_model = _Pooled.of(alike, tails.models[name])
        if by_model.high > _Pooled.of(alike, tail).high:
            pooled += by_model
        else:
            of_tail += alike
    return pooled + _Pooled.of(of_tail, tail)


def _model_of(group: _Group) -> str:
    return group.effect.model


def rate_interval(
    rate: float, evidence: Evidence, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the confidence interval of a rate by its evidence, within [0, 1].

    The error of a simulation is not in it.
    """
    tail = (1.0 - confidence) / 2.0
    low = float(gammaincinv(evidence.samples * rate + 0.5, tail)) / evidence.samples
    mean = rate + evidence.unseen
    variance = rate / evidence.samples + evidence.unseen_deviation**2
    high = float(gammaincinv(mean**2 / variance, 1.0 - tail)) * variance / mean
    return min(low, rate), min(max(high, rate), 1.0)


def at_confidence(
    expected: Expectations, evidence: Evidence | None, confidence: float = CONFIDENCE
) -> Expectations:
    """Return a promise with its interval, or without one where sample sizes are not known.

    Each late request lowers effective accuracy by the accuracy of those in time. The errors of a
    simulation and of mean service times widen both ends. The upper bound does not clip them: it
    rests on the same samples, and may be below what the true service times allow.
    """
    if evidence is None:
        return replace(expected, interval=None)
    late, accuracy = expected.violation_rate, expected.accuracy or 0.0
    low, high = rate_interval(late, evidence, confidence)
    effective = expected.effective_accuracy
    error = evidence.effective_error + evidence.accuracy_error
    return replace(expected, interval=Interval(
        confidence,
        (max(low - evidence.violation_error, 0.0), min(high + evidence.violation_error, 1.0)),
        (max(effective - accuracy * (high - late) - error, 0.0),
         min(effective + accuracy * (late - low) + error, 1.0)), *evidence))
