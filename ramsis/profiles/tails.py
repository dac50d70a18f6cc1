"""What the batches of a profile share: the tail of their times, relative to the median of each.

A hundred samples of a batch say nothing of what happens to one run in a thousand. But what makes a
run slow, a busy machine above all, does so to every batch. So the times are divided by the median
of their batch, which slow runs hardly move, and these *deviations* of many batches are taken
together: of the models that are alike (the *common* tail), and of each model by itself.

Batches and models are **alike** unless samples say otherwise. Where a tail has the share s of its
samples above a deviation d, a batch of n samples has a Poisson number of them above d, with the
mean n·s. A batch, or a model, that has k of them is *unlike* where so many or more have a
probability of less than 0.001, at any d. The tail is the common one of all batches; while there
are unlike ones, the one that is least probable is left out and the tail worked out again; with its
second batch a model is left out as a whole, unless it is the last. So
nothing is pooled with a batch whose samples are evidently slower. One that is evidently faster
stays: what it borrows is too much.

How long the batches were whose samples a tail has is known, too: a batch of 5 ms that takes 80 ms
says of one of 70 ms that it may take 145 ms, rather than a second.

A tail **starts** above nine tenths of the samples, if nine tenths of these are alike there. Where
batches differ so far down it starts higher, by halves, and at the latest where one sample of each
batch lies above on average. Below the start a batch's own samples speak for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray

_UNLIKE = 1e-3
_MANY_UNLIKE = 2  # batches of a model, which is unlike then
_WIDEST = 0.1  # of the samples: where a tail starts, if batches are alike there
_MOST_ALIKE = 0.9  # of the samples, that is
_STEPS = 4  # shares while the probability above halves
_DIGITS = 9


@dataclass(frozen=True, eq=False)
class Deviations:
    """Times of a batch over their median."""

    median_ms: float
    # values, weights: shape (q,): points that rise, and their probabilities, which add up to 1
    values: FloatArray
    weights: FloatArray
    samples: int  # how many samples they stand for, >= 1

    @classmethod
    def of(cls, quantiles_ms: FloatArray, weights: FloatArray, samples: int) -> Deviations:
        """Create the deviations from quantiles and the weights that they have in the mean."""
        median_ms = float(np.interp(0.5, np.cumsum(weights) - weights / 2.0, quantiles_ms))
        return cls(median_ms, quantiles_ms / median_ms, weights, samples)

    def above(self, deviation: FloatArray) -> FloatArray:
        """Return the probability of a larger deviation, for each of some deviations."""
        return self._beyond[self.values.searchsorted(deviation, side="right")]

    @cached_property
    def _beyond(self) -> FloatArray:
        """Probability of what is beyond none, one, ... of the values."""
        return np.maximum(1.0 - np.append(0.0, np.cumsum(self.weights)), 0.0)


class _Sorted(NamedTuple):
    """The values of several batches, the largest first."""

    # values, counts, median_ms: shape (n,): and how many samples each value stands for, of a
    # batch with which median
    values: FloatArray
    counts: FloatArray
    median_ms: FloatArray
    batch: IntArray  # index of the batch that it is of, shape (n,)
    samples: int  # of all batches

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
                       sum(one.samples for one, stays in zip(batches, kept, strict=True) if stays))


@dataclass(frozen=True)
class Tail:
    """The largest deviations of pooled samples."""

    samples: int  # pooled, those below the tail among them
    start: float  # the deviation from which the tail is
    # deviation, share: its points, rising, and the probability of each
    deviation: tuple[float, ...]
    share: tuple[float, ...]
    # mean of the medians of the batches whose samples a point has; empty where not known
    median_ms: tuple[float, ...] = ()

    @classmethod
    def of(cls, pooled: _Sorted, top: float) -> Tail:
        """Create the tail of the largest share ``top`` of the pooled samples."""
        values, samples = pooled.values, pooled.samples
        weights = pooled.counts / samples
        above = np.append(0.0, np.cumsum(weights))
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
        """Return the least probability over d of at least as many samples above d as another has.

        For each of the others.
        """
        from scipy.special import gammainc  # here, so that policies are read quickly

        at = np.append(self.start, self.deviation[:-1])
        samples = np.array([[other.samples] for other in others])
        count = samples * np.array([other.above(at) for other in others])
        expected = self.samples_above * samples
        found = np.ones_like(count)
        some = count > 0.5
        found[some] = gammainc(count[some], expected[some])
        return np.asarray(found.min(axis=1))

    @cached_property
    def samples_above(self) -> FloatArray:
        """Share of the samples above ``start`` and above each deviation but the last."""
        return np.cumsum(np.array(self.share)[::-1])[::-1]

    def above(self, deviation: FloatArray) -> FloatArray:
        """Return the probability of a larger deviation, for each of some in the tail."""
        upto = np.append(self.samples_above, 0.0)
        return upto[np.searchsorted(np.array(self.deviation), deviation, side="right")]

    def is_like(self, other: Deviations | Tail) -> bool:
        """Return whether another's samples may come from this tail."""
        return bool(self.improbable([other])[0] >= _UNLIKE)


@dataclass(frozen=True)
class Tails:
    """The common tail of a profile's batches, and that of each model's."""

    common: Tail
    # by name; without the batches that are unlike the common tail, unless the model is
    models: Mapping[str, Tail]


def tails_of(batches: Mapping[str, Sequence[Deviations]]) -> Tails | None:
    """Fit the tails of models to the deviations of their batches; None where there are none."""
    known = {name: found for name, found in batches.items() if found}
    every = [one for found in known.values() for one in found]
    if not every:
        return None
    pooled = _Sorted.of(every)
    of_model = np.repeat(np.arange(len(known)), [len(found) for found in known.values()])
    models = {name: of_model == m for m, name in enumerate(known)}
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
    """Fit tails of the share ``top``; None where fewer than ``alike`` samples have a common one.

    ``pooled`` has the values of all batches, and ``models`` says which batches are a model's.
    """
    left = np.ones(len(batches), dtype=bool)
    tails = {name: Tail.of(pooled.only(batches, own), top) for name, own in models.items()}
    while True:
        kept = pooled.only(batches, left)
        if kept.samples < alike:
            return None
        common = Tail.of(kept, top)
        indices = np.flatnonzero(left).tolist()
        names = [name for name, own in models.items() if left[own].any()]
        if len(names) == 1:
            names = []
        found = common.improbable(
            [*(batches[i] for i in indices), *(tails[name] for name in names)])
        least = int(found.argmin())
        if found[least] >= _UNLIKE or len(indices) == 1:
            return Tails(common, tails)
        if least < len(indices):
            left[indices[least]] = False
            name = next(one for one, own in models.items() if own[indices[least]])
        else:
            name = names[least - len(indices)]
        many = (~left & models[name]).sum() >= _MANY_UNLIKE
        if least >= len(indices) or (many and (left & ~models[name]).any()):
            left[models[name]] = False
        rest = left & models[name]
        if not rest.any():  # a model that is left out has its own tail, of all its batches
            rest = models[name]
        tails[name] = Tail.of(pooled.only(batches, rest), top)
