"""What the batches of a profile share: the tail of their times, relative to the median of each.

A hundred samples of a batch say nothing of what happens to one run in a thousand. But what makes a
run slow, a busy machine above all, does so to every batch. So the times are divided by the median
of their batch, which slow runs hardly move, and these *deviations* of many batches are taken
together: of the models that are alike (the *common* tail), and of each model by itself.

Batches and models are **alike** unless samples say otherwise. Where a tail has the share s of its
samples above a deviation d, a batch of n samples has a Poisson number of them above d, with the
mean n·s. A batch, or a model, that has k of them is *unlike* where so many or more have a
probability of less than 0.001, at any d. The tail is the common one of all batches; while there
are unlike ones, the one that is least probable is left out and the tail worked out again. So
nothing is pooled with a batch whose samples are evidently slower. One that is evidently faster
stays: what it borrows is too much.

A tail **starts** above nine tenths of the samples, if nine tenths of these are alike there. Where
batches differ so far down it starts higher, by halves, and at the latest where one sample of each
batch lies above on average. Below the start a batch's own samples speak for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

__all__ = ["Deviations", "Tail", "Tails", "tails_of"]

FloatArray = NDArray[np.float64]

_UNLIKE = 1e-3
_WIDEST = 0.1  # of the samples: where a tail starts, if batches are alike there
_MOST_ALIKE = 0.9  # of the samples, that is
_STEPS = 4  # shares while the probability above halves
_DIGITS = 9


class Deviations(NamedTuple):
    """Times of a batch over their median.

    Attributes
    ----------
    median_ms : float
    values, weights : ndarray, shape (q,)
        Points that rise, and their probabilities, which add up to 1.
    samples : int
        How many samples they stand for, >= 1.
    """

    median_ms: float
    values: FloatArray
    weights: FloatArray
    samples: int

    @classmethod
    def of(cls, quantiles_ms: FloatArray, weights: FloatArray, samples: int) -> Deviations:
        """Of quantiles with the weights that they have in the mean."""
        median_ms = float(np.interp(0.5, np.cumsum(weights) - weights / 2.0, quantiles_ms))
        return cls(median_ms, quantiles_ms / median_ms, weights, samples)

    def above(self, deviation: FloatArray) -> FloatArray:
        """Probability of what is larger, for each of some deviations."""
        upto = np.append(0.0, np.cumsum(self.weights))
        return np.maximum(
            1.0 - upto[np.searchsorted(self.values, deviation, side="right")], 0.0)


@dataclass(frozen=True)
class Tail:
    """The largest deviations of pooled samples.

    Attributes
    ----------
    samples : int
        Pooled, those below the tail among them.
    start : float
        The deviation from which the tail is.
    deviation, share : tuple of float
        Its points, rising, and the probability of each.
    """

    samples: int
    start: float
    deviation: tuple[float, ...]
    share: tuple[float, ...]

    @classmethod
    def of(cls, pooled: Sequence[Deviations], top: float) -> Tail:
        """The share ``top`` of the samples of some batches."""
        samples = sum(one.samples for one in pooled)
        values = np.concatenate([one.values for one in pooled])
        weights = np.concatenate([one.weights * one.samples for one in pooled]) / samples
        order = np.argsort(-values, kind="stable")
        values, above = values[order], np.append(0.0, np.cumsum(weights[order]))
        moment = np.append(0.0, np.cumsum(values * weights[order]))
        halvings = max(math.log2(top * samples), 0.0)
        edges = top * 2.0 ** (-np.arange(int(_STEPS * halvings) + 1) / _STEPS)
        edges = np.append(edges, 0.0)
        inside = np.interp(edges, above, moment)
        share = -np.diff(edges)
        deviation = np.maximum.accumulate(-np.diff(inside) / share)
        start = values[min(int(np.searchsorted(above, edges[0])), len(values)) - 1]
        rounded = np.round([start, *deviation], _DIGITS)
        return cls(samples, float(rounded[0]), tuple(rounded[1:].tolist()),
                   tuple(np.round(share, 2 * _DIGITS).tolist()))

    def improbable(self, other: Deviations | Tail) -> float:
        """Least probability, over all d, of as many samples above d as another has, or more."""
        at = np.append(self.start, self.deviation[:-1])
        count = other.samples * other.above(at)
        expected = self.samples_above * other.samples
        found = np.where(count > 0.5, gammainc(np.maximum(count, 0.5), expected), 1.0)
        return float(found.min())

    @property
    def samples_above(self) -> FloatArray:
        """Share of the samples above ``start`` and above each deviation but the last."""
        return np.cumsum(np.array(self.share)[::-1])[::-1]

    def above(self, deviation: FloatArray) -> FloatArray:
        """As of :class:`Deviations`, for deviations in the tail."""
        upto = np.append(self.samples_above, 0.0)
        return upto[np.searchsorted(np.array(self.deviation), deviation, side="right")]

    def is_like(self, other: Deviations | Tail) -> bool:
        """Whether another's samples may be of this tail."""
        return self.improbable(other) >= _UNLIKE


@dataclass(frozen=True)
class Tails:
    """The common tail of a profile's batches, and that of each model's.

    Attributes
    ----------
    common : Tail
    models : Mapping of str to Tail
        By name; without the batches that are unlike the common tail, unless the model is.
    """

    common: Tail
    models: Mapping[str, Tail]


def tails_of(batches: Mapping[str, Sequence[Deviations]]) -> Tails | None:
    """The tails of models from the deviations of their batches; None where there are none."""
    known = {name: found for name, found in batches.items() if found}
    samples = [one.samples for found in known.values() for one in found]
    if not samples:
        return None
    narrowest = min(len(samples) / sum(samples), 1.0)
    top = max(_WIDEST, narrowest)
    tails = _with_top(known, top)
    while tails.common.samples < _MOST_ALIKE * sum(samples) and top > narrowest:
        top = max(top / 2.0, narrowest)
        tails = _with_top(known, top)
    return tails


def _with_top(batches: Mapping[str, Sequence[Deviations]], top: float) -> Tails:
    """The tails above the share ``top`` of the samples."""
    left = {name: list(found) for name, found in batches.items()}
    while True:
        common = Tail.of([one for found in left.values() for one in found], top)
        groups: list[tuple[float, str, int | None]] = [
            (common.improbable(one), name, i)
            for name, found in left.items() for i, one in enumerate(found)]
        groups += [(common.improbable(Tail.of(found, top)), name, None)
                   for name, found in left.items() if len(left) > 1]
        least, name, i = min(groups, key=lambda group: group[0])
        if least >= _UNLIKE or sum(map(len, left.values())) == 1:
            return Tails(common, {name: Tail.of(left.get(name, found), top)
                                  for name, found in batches.items()})
        rest = [] if i is None else left[name][:i] + left[name][i + 1:]
        left = {**left, name: rest} if rest else {
            other: found for other, found in left.items() if other != name}
