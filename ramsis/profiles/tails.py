"""Pooled tails of service times: estimates of rare slow runs from all batches of a profile.

A hundred samples of a batch contain no information on one run in a thousand. But the causes of
slow runs, mainly a busy machine, affect every batch. So times are divided by the median of their
batch, which is robust to slow runs, and these *deviations* are pooled over many batches: over
similar models (the *common* tail), and for each model.

Batches and models are **alike** unless samples show otherwise. If a tail has the share s of its
samples above a deviation d, a batch of n samples has a Poisson number of them above d, with the
mean n·s. A batch or model with k of them is *unlike* if k or more have a probability below 0.001,
at any d. The common tail is that of all batches; while there are unlike ones, the least probable
is left out and the tail computed again; with its second batch a model is left out as a whole,
unless it is the last. So nothing is pooled with a batch with evidently slower samples. An
evidently faster batch stays, as its pooled tail is conservative.

A tail also stores the median times of its batches: a batch of 5 ms that takes 80 ms suggests that
one of 70 ms may take 145 ms, rather than a second.

A tail **starts** above nine tenths of the samples, if nine tenths of the samples are alike there.
Otherwise its start is raised, halving the share above, at most until one sample of each batch is
above on average. Below the start a batch's own samples are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.fields import Fields
from ramsis.records import EMPTY, Count, Positive, Record

_UNLIKE = 1e-3
_MANY_UNLIKE = 2  # number of unlike batches that makes a model unlike
_WIDEST = 0.1  # largest share of the samples in a tail
_MOST_ALIKE = 0.9  # least share of samples that must be alike for that start
_STEPS = 4  # points of a tail while the probability above them halves
_DIGITS = 9
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Deviations:
    """Distribution of a batch's times relative to their median."""

    median_ms: float
    # shape (q,): increasing points, and their probabilities, which sum to 1
    values: FloatArray
    weights: FloatArray
    samples: int  # number of samples, >= 1

    @classmethod
    def of(cls, quantiles_ms: FloatArray, weights: FloatArray, samples: int) -> Deviations:
        """Create the deviations from quantiles and their weights in the mean."""
        median_ms = float(np.interp(0.5, np.cumsum(weights) - weights / 2.0, quantiles_ms))
        return cls(median_ms, quantiles_ms / median_ms, weights, samples)

    def above(self, deviation: FloatArray) -> FloatArray:
        """Return the probability of a larger deviation, for an array of deviations."""
        return self._beyond[self.values.searchsorted(deviation, side="right")]

    @cached_property
    def _beyond(self) -> FloatArray:
        """Probability of a deviation above the i smallest values, i = 0 … q; shape (q + 1,)."""
        return np.maximum(1.0 - np.append(0.0, np.cumsum(self.weights)), 0.0)


class _Sorted(NamedTuple):
    """Pooled deviations of several batches, sorted from the largest."""

    # shape (n,): values, with the number of samples and the batch's median time of each
    values: FloatArray
    counts: FloatArray
    median_ms: FloatArray
    batch: IntArray  # index of the batch of each value, shape (n,)
    samples: int  # total number of samples

    @classmethod
    def of(cls, batches: Sequence[Deviations]) -> _Sorted:
        values = np.concatenate([batch.values for batch in batches])
        counts = np.concatenate([batch.weights * batch.samples for batch in batches])
        batch = np.repeat(np.arange(len(batches)), [len(batch.values) for batch in batches])
        median_ms = np.array([batch.median_ms for batch in batches])[batch]
        order = np.argsort(-values, kind="stable")
        return cls(values[order], counts[order], median_ms[order], batch[order],
                   sum(batch.samples for batch in batches))

    def only(self, batches: Sequence[Deviations], kept: BoolArray) -> _Sorted:
        """Return the values of the kept batches, still sorted."""
        of_kept = kept[self.batch]
        return _Sorted(self.values[of_kept], self.counts[of_kept], self.median_ms[of_kept],
                       self.batch[of_kept],
                       sum(batch.samples for batch, stays in zip(batches, kept, strict=True)
                           if stays))


@dataclass(frozen=True)
class Tail(Record):
    """Tail of pooled samples: distribution of their largest deviations."""

    samples: Annotated[Count, "Number of pooled samples, also below the tail."]
    start: Annotated[Positive, "Where the tail begins, as a multiple of a batch's median time."]
    deviation: Annotated[
        tuple[Positive, ...], "Points of the tail: rising multiples of a batch's median time."]
    share: Annotated[tuple[Positive, ...], "Probability of each point."]
    median_ms: Annotated[
        tuple[Positive, ...], EMPTY,
        "For each point the mean median time of the batches that were sampled; absent if unknown.",
    ] = ()

    def check(self, item: Fields) -> None:
        """Refuse points that fall, and probabilities and times of other points."""
        item.check_rising("deviation", self.deviation, strictly=False)
        item.items("share", len(self.deviation))
        if self.median_ms:
            item.items("median_ms", len(self.deviation))
        if sum(self.share) > 1.0 + _ROUNDING:
            raise item.refusal("share", "probabilities of more than 1", value=sum(self.share),
                               allowed="numbers that add up to 1 at most")

    @classmethod
    def of(cls, pooled: _Sorted, top: float) -> Tail:
        """Create the tail of the largest share ``top`` of the pooled samples."""
        values, samples = pooled.values, pooled.samples
        weights = pooled.counts / samples
        above = np.append(0.0, np.cumsum(weights))
        # Points have the means of the values between edges of the probability above: from ``top``
        # down to about one sample, then to 0.
        halvings = max(math.log2(top * samples), 0.0)
        edges = top * 2.0 ** (-np.arange(int(_STEPS * halvings) + 1) / _STEPS)
        edges = np.append(edges, 0.0)
        share = -np.diff(edges)

        def means(of: FloatArray) -> FloatArray:
            inside = np.interp(edges, above, np.append(0.0, np.cumsum(of * weights)))
            return np.asarray(-np.diff(inside) / share)

        deviation = np.maximum.accumulate(means(values))
        start = values[min(int(np.searchsorted(above, edges[0])), len(values)) - 1]
        rounded = np.round([start, *deviation], _DIGITS)
        return cls(samples, float(rounded[0]), tuple(rounded[1:].tolist()),
                   tuple(np.round(share, 2 * _DIGITS).tolist()),
                   tuple(np.round(means(pooled.median_ms), _DIGITS).tolist()))

    def improbable(self, others: Sequence[Deviations | Tail]) -> FloatArray:
        """Return for each of ``others`` the least p-value over all deviations d of the tail.

        The p-value at d is the Poisson probability, under this tail, of at least as many samples
        above d as the other distribution has.
        """
        from scipy.special import gammainc  # slow to import, and not needed to read policies

        at = np.append(self.start, self.deviation[:-1])
        samples = np.array([[other.samples] for other in others])
        count = samples * np.array([other.above(at) for other in others])
        expected = self.samples_above * samples
        p_values = np.ones_like(count)
        some = count > 0.5
        p_values[some] = gammainc(count[some], expected[some])
        return np.asarray(p_values.min(axis=1))

    @cached_property
    def samples_above(self) -> FloatArray:
        """Share of the samples above ``start`` and above each deviation but the last."""
        return np.cumsum(np.array(self.share)[::-1])[::-1]

    def above(self, deviation: FloatArray) -> FloatArray:
        """Return the probability of a larger deviation, for an array of deviations in the tail."""
        upto = np.append(self.samples_above, 0.0)
        return upto[np.searchsorted(np.array(self.deviation), deviation, side="right")]

    def is_like(self, other: Deviations | Tail) -> bool:
        """Return whether another distribution is consistent with this tail."""
        return bool(self.improbable([other])[0] >= _UNLIKE)


@dataclass(frozen=True)
class Tails(Record):
    """Common tail of a profile's batches, and tails by model."""

    common: Annotated[Tail, "Tail of all similar models."]
    models: Annotated[
        Mapping[str, Tail],
        "Tail of each model by name: of its batches that are like the common tail, or of all if "
        "the whole model is unlike it.",
    ]


def tails_of(batches: Mapping[str, Sequence[Deviations]]) -> Tails | None:
    """Fit the tails of models to the deviations of their batches; None if there are none."""
    by_model = {name: listed for name, listed in batches.items() if listed}
    every = [batch for listed in by_model.values() for batch in listed]
    if not every:
        return None
    pooled = _Sorted.of(every)
    of_model = np.repeat(np.arange(len(by_model)), [len(listed) for listed in by_model.values()])
    models = {name: of_model == m for m, name in enumerate(by_model)}
    narrowest = min(len(every) / pooled.samples, 1.0)
    top = max(_WIDEST, narrowest)
    while top > narrowest:
        tails = _with_top(every, pooled, models, top, _MOST_ALIKE * pooled.samples)
        if tails is not None:
            return tails
        top = max(top / 2.0, narrowest)
    return _with_top(every, pooled, models, top, 0.0)


def _with_top(
    batches: Sequence[Deviations], pooled: _Sorted, models: Mapping[str, BoolArray],
    top: float, alike: float,
) -> Tails | None:
    """Fit tails to the largest share ``top`` of the deviations, over batches that are alike.

    ``pooled`` has the values of all batches; ``models`` has the mask of each model's batches. None
    if batches that are alike have fewer than ``alike`` samples.
    """
    included = np.ones(len(batches), dtype=bool)
    tails = {name: Tail.of(pooled.only(batches, mask), top) for name, mask in models.items()}
    # Leave out the least probable batch or model, and compute the tails again, until all that are
    # left are alike.
    while True:
        common_samples = pooled.only(batches, included)
        if common_samples.samples < alike:
            return None
        common = Tail.of(common_samples, top)
        indices = np.flatnonzero(included).tolist()
        names = [name for name, mask in models.items() if included[mask].any()]
        if len(names) == 1:
            names = []
        p_values = common.improbable(
            [*(batches[i] for i in indices), *(tails[name] for name in names)])
        least = int(p_values.argmin())
        if p_values[least] >= _UNLIKE or len(indices) == 1:
            return Tails(common, tails)
        if least < len(indices):
            included[indices[least]] = False
            name = next(model for model, mask in models.items() if mask[indices[least]])
        else:
            name = names[least - len(indices)]
        # With its second unlike batch a model is left out as a whole, unless it is the last one.
        many = (~included & models[name]).sum() >= _MANY_UNLIKE
        if least >= len(indices) or (many and (included & ~models[name]).any()):
            included[models[name]] = False
        batches_of_model = included & models[name]
        if not batches_of_model.any():  # a model that is left out keeps a tail of all its batches
            batches_of_model = models[name]
        tails[name] = Tail.of(pooled.only(batches, batches_of_model), top)
