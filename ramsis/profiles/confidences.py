"""Confidences of models, and the accuracy that second opinions of other models add.

A *cascade* runs a second model on the requests whose first answer is unsure. Samples with the
correctness and the confidence of every model are split in two parts: thresholds and decisions are
*chosen* on one, accuracies *stated* on the other, so that the choice does not bias them.

Confidence thresholds are quantiles of the choosing part: they divide the samples of a model into
bins, lowest confidence first; a confidence equal to a threshold belongs to the upper bin. Bins
with equal thresholds are merged.

Decisions use the expected increment of accuracy (second minus first model) in each bin. It is
estimated by smooth curves on the choosing part: with u the rank of the first model's confidence, a
fraction of 1, and n samples,

    logit P(correct) = a + b·u + c·log(u + 1/n),

with one curve for each model [1]. Means of bins, or isotonic regression, would fit the noise of
few samples, and the maximum of many noisy estimates is biased upwards.

The profile states shares and accuracies of bins on the other part.

Standard errors: the models' accuracies are taken as known, so only the *location* of errors in the
bins is uncertain. Let E(m, k) be the share of samples that m answers wrong with the first model's
confidence in the k lowest bins, and E(m) the share of all samples that m answers wrong. With the
errors of both models scaled to their known shares e(m), second opinions on these bins gain

    G(k) = e(m₁)·E(m₁, k)/E(m₁) − e(m₂)·E(m₂, k)/E(m₂).

Its standard error is that of the mean of its influence function [2]: sample i, with bin j and
wrong(m) of 0 or 1, contributes the difference of wrong(m)·(1{j < k} − E(m, k)/E(m)) between both
models. Contributions of copies of one item are summed before squaring. So models that err together
have a small standard error, copies do not reduce it, and for k = Q it is 0. One further sample on
which the models differ is added, since few samples may show none.

[1] J. Platt, "Probabilistic outputs for support vector machines", Advances in Large Margin
Classifiers, 1999.
[2] J.-C. Deville, "Variance estimation for complex statistics and estimators: linearization and
residual techniques", Survey Methodology 25, 1999.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import Rule, check_known, whole
from ramsis.fields import Fields
from ramsis.files import fingerprint
from ramsis.profiles.values import (
    Name,
    ProfileError,
    ProfileRecord,
    Values,
    check_models,
    read_name,
)
from ramsis.records import EMPTY, Count, Entries, Fraction
from ramsis.reprs import dataclass

BINS = 20
"""Bins of confidence, where the samples are enough."""
_IN_BIN = 25  # least samples of each part in a bin: standard error of the accuracy <= 0.1
_LEAST_BINS, _LEAST_ITEMS = 4, 50
_MOST_BINS = 1000
_CELLS = 400  # number of cells of ranks, so that the cost of a fit is independent of the samples
_RIDGE = 0.1  # keeps the curve of a model that is always correct finite
_WORTHWHILE = 5e-4  # expected gain in accuracy below which a pair is left out
_DIGITS = 6
_SIGNIFICANT = 9  # significant digits of a threshold
_ROUNDING = 1e-4
_OTHER_DATA, _STANDARD_ERRORS = 0.02, 4.0  # allowed difference of two measured accuracies
_LEAST_SURE = 0.2
_CALIBRATED = (0.5, 2.0)

_DIFFERENCE = Rule("a number from -1 to 1", lambda value: -1 <= value <= 1,
                   bounds=(("minimum", -1), ("maximum", 1)))
_Fractions = tuple[Fraction, ...]
_BINS = Entries(2, _MOST_BINS)

Samples = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Correctness and confidence by model: the same samples in the same order."""


@dataclass(frozen=True)
class ModelConfidence(ProfileRecord):
    """Confidence of one model: thresholds, and share and accuracy of each bin."""

    name: Annotated[Name, "Name of the model."]
    thresholds: Annotated[
        tuple[float, ...], Entries(1, _MOST_BINS - 1),
        "The Q - 1 confidences between the Q bins, rising; an equal confidence lies above.",
    ]
    share: Annotated[
        _Fractions, _BINS, "Share of the requests in each bin; the shares add up to 1."]
    accuracy: Annotated[_Fractions, _BINS, "Accuracy of the model in each bin."]

    def check(self, item: Fields) -> None:
        """Refuse thresholds that do not rise, and shares and accuracies of other bins."""
        item.check_rising("thresholds", self.thresholds)
        _check_bins(item, self.bins, "share", "accuracy")
        if abs(sum(self.share) - 1) > _ROUNDING:
            raise item.refusal("share", "shares do not add up to 1", value=sum(self.share))

    @property
    def bins(self) -> int:
        """Number of bins Q."""
        return len(self.thresholds) + 1


@dataclass(frozen=True)
class Pair(ProfileRecord):
    """Pair of models: accuracy of the second model in each confidence bin of the first."""

    first: Annotated[Name, "Model whose answer comes first."]
    second: Annotated[Name, "Model that may be asked again."]
    accuracy: Annotated[
        _Fractions, _BINS, "Accuracy of the second model in each bin of the first."]
    expected_increment: Annotated[
        tuple[Annotated[float, _DIFFERENCE], ...], _BINS,
        "Accuracy of the second model less that of the first in each bin, estimated from the part "
        "of the samples that also gives the thresholds; policies decide by it.",
    ]
    gain_error: Annotated[
        _Fractions, _BINS,
        "Standard error of the accuracy that second opinions on the lowest 1, 2, … bins add, as a "
        "mean over all requests, given the accuracies of both models.",
    ]

    def check(self, item: Fields) -> None:
        """Refuse a second opinion of the same model, and fields of different lengths."""
        if self.first == self.second:
            raise item.refusal("second", "a model gives no second opinion on itself",
                               value=self.second, allowed="another model")
        _check_bins(item, len(self.accuracy), "expected_increment", "gain_error")


def _check_bins(item: Fields, bins: int, *fields: str) -> None:
    """Refuse a list that does not have a number for each bin."""
    for name in fields:
        if len(item.items(name)) != bins:
            raise item.refusal(name, "not a number for each bin",
                               value=f"{len(item.items(name))} numbers",
                               allowed=f"{bins} numbers")


@dataclass(frozen=True)
class Confidences(ProfileRecord):
    """Confidences of models, and what second opinions add by bins of the first's confidence.

    Thresholds and expected increments come from one part of the samples, shares and accuracies
    from the other.
    """

    chosen_samples: Annotated[
        Count, "Number of samples from which thresholds and expected increments were computed."]
    stated_samples: Annotated[
        Count, "Number of the other samples, from which shares and accuracies were computed."]
    models: Annotated[
        tuple[ModelConfidence, ...],
        "Models of the set with confidences, each once; not every model needs them.",
    ]
    pairs: Annotated[
        tuple[Pair, ...], EMPTY,
        "Pairs of a first and a second model, each once; pairs that are expected to add less than "
        "0.0005 of accuracy are left out.",
    ]
    items: Annotated[
        Count | None, "Number of independent items behind the samples, where some are copies."
    ] = None
    source: Annotated[Name | None, "What samples and confidences are."] = None

    def check(self, item: Fields) -> None:
        """Refuse models and pairs that occur twice, and pairs of models without confidences."""
        bins = {name: self.models[i].bins for name, i in check_models(item, self.models).items()}
        seen: set[tuple[str, str]] = set()
        for i, pair in enumerate(self.pairs):
            for field, name in (("first", pair.first), ("second", pair.second)):
                if name not in bins:
                    raise item.refusal(f"pairs[{i}].{field}", "model without confidences",
                                       value=name, allowed=", ".join(bins))
            if len(pair.accuracy) != bins[pair.first]:
                raise item.refusal(
                    f"pairs[{i}].accuracy", f"not a number for each bin of {pair.first}",
                    value=len(pair.accuracy), allowed=f"{bins[pair.first]} numbers")
            if (pair.first, pair.second) in seen:
                raise item.refusal(f"pairs[{i}]", "duplicate pair",
                                   value=f"{pair.first}, {pair.second}", allowed="each pair once")
            seen.add((pair.first, pair.second))

    @classmethod
    def of(
        cls, samples: Samples, *, groups: ArrayLike | None = None, bins: int = BINS,
        seed: int = 0, source: str | None = None,
    ) -> Confidences:
        """Estimate the confidences from answered samples.

        Parameters
        ----------
        samples : mapping of str to (correct, confidence)
            For each model its correctness (0 or 1) and confidence (finite) on each sample; the
            same samples in the same order for every model.
        groups : array_like, optional
            What each sample is a copy of. Samples of one group stay in one part. By default no
            two belong together.
        bins : int
            Bins of confidence, from 4 to 1,000. There are fewer where a part has less than 25
            samples for each, or where samples tie.
        seed : int
            Seed of the split in two parts.
        source : str, optional
            What the samples and the confidences are, for the record.

        Raises
        ------
        ProfileError
            When there are too few samples, a value is no correctness or no confidence, or a model
            is equally sure of all samples.
        """
        whole(_LEAST_BINS).check(bins=bins)
        whole(0).check(seed=seed)
        correct, confidence = _checked(samples)
        size = len(next(iter(correct.values())))
        labels = np.arange(size) if groups is None else np.asarray(groups)
        if labels.shape != (size,):
            raise ProfileError("not a group for each sample", "groups", labels.shape, f"({size},)")
        unique, item = np.unique(labels, return_inverse=True)
        items = len(unique)
        chooses = choosing_part(labels, seed)
        in_part = int(min(chooses.sum(), size - chooses.sum()))
        if in_part < _LEAST_BINS * _IN_BIN:
            raise ProfileError(
                "too few samples to choose thresholds by one part and state them by the other",
                "samples", size, f"{2 * _LEAST_BINS * _IN_BIN} or more samples "
                f"({2 * bins * _IN_BIN} for {bins} bins)"
                + (", in groups of like size" if items < size else ""))
        if items < _LEAST_ITEMS:
            raise ProfileError("too few items that are no copies of each other", "groups", items,
                               f"{_LEAST_ITEMS} or more")
        bins = min(bins, in_part // _IN_BIN, _MOST_BINS)
        models, pairs = [], []
        for name in correct:
            model, of_model = _estimated(name, correct, confidence[name], chooses, item, bins)
            models.append(model)
            pairs += of_model
        return cls(int(chooses.sum()), int(size - chooses.sum()), tuple(models), tuple(pairs),
                   items if items < size else None, source)

    def model(self, name: str) -> ModelConfidence:
        """Return the confidence of a model; refuse one that has none."""
        by_name = {model.name: model for model in self.models}
        check_known("no confidences of this model", name, by_name, "model")
        return by_name[name]

    def pair(self, first: str, second: str) -> Pair:
        """Return the pair of two models.

        Where the second is not expected to correct the first there is none, and the call is
        refused.
        """
        by_names = {f"{pair.first}, {pair.second}": pair for pair in self.pairs}
        check_known("no such pair", f"{first}, {second}", by_names, "pair")
        return by_names[f"{first}, {second}"]

    def increment(self, first: str, second: str) -> FloatArray:
        """Return the stated gain in accuracy by a second opinion in each bin, shape (Q,)."""
        return np.subtract(self.pair(first, second).accuracy, self.model(first).accuracy)

    def select(self, names: Collection[str]) -> Confidences | None:
        """Return the confidences of the named models; None if none of them has any."""
        models = tuple(model for model in self.models if model.name in names)
        pairs = tuple(pair for pair in self.pairs
                      if pair.first in names and pair.second in names)
        return replace(self, models=models, pairs=pairs) if models else None

    def calibrated(self, accuracy: Mapping[str, float]) -> Confidences:
        """Return the confidences scaled to the accuracies of a profile.

        The profile's accuracies come from other samples. A cheap model with more errors here than
        there would seem to gain more by second opinions than possible. So the error rate of a
        model in every bin is multiplied by the same factor, and the expected increments of a pair
        by a factor that makes their sum the difference of both accuracies (between 0.5 and 2; 1 if
        the second model is not the better one).

        Models without an entry in ``accuracy`` are unchanged.
        """
        factors = {}
        for model in self.models:
            errors = 1.0 - self.accuracy(model.name)
            wanted = 1.0 - accuracy.get(model.name, 1.0 - errors)
            factors[model.name] = wanted / errors if errors > 0.0 else 1.0
        models = tuple(replace(model, accuracy=_calibrated(model.accuracy, factors[model.name]))
                       for model in self.models)
        pairs = []
        for pair in self.pairs:
            total = float(np.dot(self.model(pair.first).share, pair.expected_increment))
            lacks = (accuracy.get(pair.second, self.accuracy(pair.second))
                     - accuracy.get(pair.first, self.accuracy(pair.first)))
            factor = np.clip(lacks / total, *_CALIBRATED) if min(total, lacks) > 0.0 else 1.0
            # Scale the standard error like the error rates; approximate if the factors differ.
            scale = max(factors[pair.first], factors[pair.second])
            pairs.append(replace(
                pair, gain_error=_rounded(np.minimum(np.multiply(scale, pair.gain_error), 1.0)),
                accuracy=_calibrated(pair.accuracy, factors[pair.second]),
                expected_increment=_rounded(np.clip(
                    np.multiply(factor, pair.expected_increment), -1.0, 1.0))))
        return replace(self, models=models, pairs=tuple(pairs))

    def accuracy(self, name: str) -> float:
        """Return the accuracy of a model on the stating part of the samples."""
        model = self.model(name)
        return float(np.dot(model.share, model.accuracy))

    def tolerance(self, name: str, accuracy: float) -> float:
        """Return the allowed difference of the accuracy on the samples from the profile's.

        It is four standard errors, by independent items, plus 0.02 for another data set.
        """
        stated = self.accuracy(name)
        items = self.stated_samples if self.items is None else self.items / 2
        variance = max(p * (1 - p) for p in (accuracy, stated))
        return _OTHER_DATA + _STANDARD_ERRORS * float(np.sqrt(variance / items))

    def check_accuracies(self, accuracies: Mapping[str, float]) -> None:
        """Refuse an accuracy further from that on the samples than :meth:`tolerance` allows."""
        for model in self.models:
            stated, accuracy = self.accuracy(model.name), accuracies[model.name]
            tolerance = self.tolerance(model.name, accuracy)
            if abs(stated - accuracy) > tolerance:
                raise ProfileError(
                    "accuracy on the samples contradicts that of the profile",
                    f"model {model.name}", round(stated, 4), f"{accuracy:.4g} ± {tolerance:.2g}: "
                    "samples of the same task, or a profile with their accuracy")

    def gain(self, first: str, second: str, share: float) -> float:
        """Return the stated gain in accuracy by second opinions on the least sure share."""
        shares = np.asarray(self.model(first).share)
        asked = np.clip(share - (np.cumsum(shares) - shares), 0.0, shares)
        return float(asked @ self.increment(first, second))

    def summary(self) -> tuple[str, ...]:
        """Return a text with samples, models, bins, and the pair with the largest gain."""
        copies = "" if self.items is None else f" ({self.items} items and their copies)"
        bins = sorted({model.bins for model in self.models})
        lines = [f"confidences: {self.chosen_samples + self.stated_samples} samples{copies}, of "
                 f"which {self.chosen_samples} choose and {self.stated_samples} state; "
                 f"models: {len(self.models)}, pairs: {len(self.pairs)}, "
                 f"bins: {'-'.join(map(str, (bins[0], bins[-1])[: len(bins)]))}"]
        if self.pairs:
            gains = [self.gain(pair.first, pair.second, _LEAST_SURE) for pair in self.pairs]
            pair = self.pairs[int(np.argmax(gains))]
            lines.append(f"largest gain: {pair.second} on the least sure {_LEAST_SURE:.0%} of "
                         f"{pair.first} adds {max(gains):.4f} of accuracy")
        return tuple(lines)

    @cached_property
    def fingerprint(self) -> str:
        """Return the fingerprint of the confidences; a profile set's fingerprint excludes them."""
        return fingerprint(self.to_document())


def choosing_part(groups: ArrayLike, seed: int = 0) -> NDArray[np.bool_]:
    """Return the mask of the choosing part of samples; groups are not split.

    ``groups``, shape (N,), has the group of each sample, with copies in the same group, and all
    different without copies. Half of the groups are drawn by ``seed``.
    """
    unique, group = np.unique(np.asarray(groups), return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(len(unique))
    chooses = np.zeros(len(unique), dtype=bool)
    chooses[drawn[: (len(unique) + 1) // 2]] = True
    part: NDArray[np.bool_] = chooses[group]
    return part


def _checked(
    samples: Samples
) -> tuple[dict[str, NDArray[np.bool_]], dict[str, FloatArray]]:
    """Check labelled samples; return correctness and confidence by model."""
    if not samples:
        raise ProfileError("no models", "samples", {}, "one or more models")
    correct: dict[str, NDArray[np.bool_]] = {}
    confidence: dict[str, FloatArray] = {}
    for name, (answers, confidences) in samples.items():
        read_name(Values({"model": name}), "model")
        right, sure = np.asarray(answers), np.asarray(confidences)
        for what, values in (("correct", right), ("confidence", sure)):
            if values.ndim != 1 or values.dtype.kind not in "biuf":
                raise ProfileError("not a list of numbers", f"model {name}, {what}", str(values),
                                   "a number for each sample")
            size = len(next(iter(correct.values()), right))
            if len(values) != size:
                raise ProfileError("not the same samples as of the other models",
                                   f"model {name}, {what}", len(values), f"{size} samples")
        _refuse_first(name, "correct", right, (right == 0) | (right == 1),
                      "neither right nor wrong", "0 or 1")
        _refuse_first(name, "confidence", sure, np.isfinite(sure), "not finite",
                      "a finite number")
        if len(sure) and (sure == sure[0]).all():
            raise ProfileError("equally sure of all samples, which tells none apart",
                               f"model {name}, confidence", float(sure[0]),
                               "a confidence that differs between samples")
        correct[name], confidence[name] = right.astype(bool), sure.astype(float)
    return correct, confidence


def _refuse_first(
    model: str, what: str, values: NDArray[Any], holds: NDArray[np.bool_], wrong: str,
    allowed: str,
) -> None:
    """Refuse the first sample that breaks a rule."""
    if not holds.all():
        sample = int(np.argmin(holds))
        raise ProfileError(wrong, f"model {model}, sample {sample}, {what}",
                           values[sample].item(), allowed)


def _estimated(
    first: str, correct: Mapping[str, NDArray[np.bool_]], confidence: FloatArray,
    chooses: NDArray[np.bool_], item: NDArray[np.int64], bins: int,
) -> tuple[ModelConfidence, list[Pair]]:
    """Estimate the confidence bins of model ``first``, and the pairs that begin with it."""
    thresholds = _thresholds(confidence[chooses], confidence[~chooses], bins)
    if not thresholds.size:
        raise ProfileError("equally sure of almost all samples, which tells none apart",
                           f"model {first}, confidence",
                           float(np.median(confidence)), "confidences that differ more")
    size = len(thresholds) + 1
    bin_of = np.searchsorted(thresholds, confidence, side="right")
    stated = bin_of[~chooses]
    counts = np.bincount(stated, minlength=size)
    accuracy = {name: _rounded(np.bincount(stated, right[~chooses], size) / counts)
                for name, right in correct.items()}
    # Round cumulative sums, so that the shares still sum to 1.
    sums = np.round(np.cumsum(counts) / counts.sum(), _DIGITS)
    share = _rounded(np.diff(sums, prepend=0.0))
    model = ModelConfidence(first, tuple(thresholds.tolist()), share, accuracy[first])

    expected = _expected({name: right[chooses] for name, right in correct.items()},
                         confidence[chooses], bin_of[chooses], size)
    pairs = []
    for second in correct:
        increment = expected[second] - expected[first]
        if second != first and np.dot(share, np.maximum(increment, 0.0)) >= _WORTHWHILE:
            errors = _gain_errors(~correct[first], ~correct[second], bin_of, item, size)
            pairs.append(Pair(first, second, accuracy[second], _rounded(increment),
                              _rounded(errors)))
    return model, pairs


def _gain_errors(
    wrong_first: NDArray[np.bool_], wrong_second: NDArray[np.bool_], bin_of: NDArray[np.int64],
    item: NDArray[np.int64], bins: int,
) -> FloatArray:
    """Return the standard error of the gain G on the lowest 1, 2, … bins, shape (Q,).

    The arrays, shape (N,), have for each sample whether the models err, the bin of the first one's
    confidence, and the number of its item.
    """
    # Influence of each item, summed over its samples, as k runs over the bins (module's text).
    size, items = len(item), int(item.max()) + 1
    influence, errors = np.zeros((2, items)), np.zeros(bins)
    totals = [np.bincount(item, wrong, items) for wrong in (wrong_first, wrong_second)]
    for k in range(bins):
        inside = bin_of == k
        for row, wrong in zip(influence, (wrong_first, wrong_second), strict=True):
            row += np.bincount(item[inside], wrong[inside], items)
        first, second = (row - row.sum() / max(total.sum(), 1.0) * total
                         for row, total in zip(influence, totals, strict=True))
        # The 1 is one further sample on which the models differ.
        errors[k] = np.sqrt(np.square(first - second).sum() + 1.0) / size
    return errors


def _calibrated(accuracy: Sequence[float], factor: float) -> tuple[float, ...]:
    """Return accuracies with error rates multiplied by a factor, clipped to [0, 1]."""
    return _rounded(np.clip(1.0 - factor * np.subtract(1.0, accuracy), 0.0, 1.0))


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.round(values, _DIGITS).tolist())


def _thresholds(chosen: FloatArray, stated: FloatArray, bins: int) -> FloatArray:
    """Return the quantiles of ``chosen`` that divide it into ``bins`` bins.

    Thresholds next to a bin without samples, of ``chosen`` or of ``stated``, are left out.
    """
    quantiles = np.quantile(chosen, np.arange(1, bins) / bins)
    thresholds = np.unique([float(f"{value:.{_SIGNIFICANT}g}") for value in quantiles])
    for part in (chosen, stated):
        held = np.bincount(np.searchsorted(thresholds, part, side="right"),
                           minlength=len(thresholds) + 1) > 0
        # A threshold stays if the bin above it has samples, and at least one bin below it.
        thresholds = thresholds[held[1:] & (np.cumsum(held)[:-1] > 0)]
    return cast(FloatArray, thresholds)


def _expected(
    correct: Mapping[str, NDArray[np.bool_]], confidence: FloatArray, bin_of: NDArray[np.int64],
    bins: int,
) -> dict[str, FloatArray]:
    """Return the mean over each bin of every model's curve of correctness over the rank."""
    size = len(confidence)
    ordered = np.sort(confidence)
    rank = (np.searchsorted(ordered, confidence, side="left")  # ties have their mean rank
            + np.searchsorted(ordered, confidence, side="right")) / (2 * size)
    cells = min(size, _CELLS)
    cell = np.minimum((rank * cells).astype(np.int64), cells - 1)
    middle = (np.arange(cells) + 0.5) / cells
    features = np.column_stack([np.ones(cells), middle, np.log(middle + 1 / size)])
    trials = np.bincount(cell, minlength=cells).astype(float)
    means = {}
    for name, right in correct.items():
        fitted = _fitted(features, trials, np.bincount(cell, right, cells).astype(float))
        means[name] = (np.bincount(bin_of, fitted[cell], bins)
                       / np.bincount(bin_of, minlength=bins))
    return means


def _fitted(features: FloatArray, trials: FloatArray, right: FloatArray) -> FloatArray:
    """Return the probability in each cell: Newton's method on the penalised likelihood.

    ``features``, shape (C, 3), are 1, the rank and its logarithm; ``trials`` and ``right`` the
    numbers of samples and of right answers, shape (C,).
    """
    def loss_of(weights: FloatArray) -> float:
        logit = features @ weights
        return float((trials * np.logaddexp(0, logit) - right * logit).sum()
                     + _RIDGE / 2 * weights @ weights)

    weights = np.zeros(features.shape[1])
    share = (right.sum() + 0.5) / (trials.sum() + 1)
    weights[0] = np.log(share / (1 - share))
    loss, steps = loss_of(weights), 0
    # Newton steps, halved while they raise the loss.
    while steps < 100:
        p = 1 / (1 + np.exp(-features @ weights))
        gradient = features.T @ (trials * p - right) + _RIDGE * weights
        curvature = (features.T * (trials * p * (1 - p))) @ features
        step = np.linalg.solve(curvature + _RIDGE * np.eye(len(weights)), gradient)
        while (new := loss_of(weights - step)) > loss and np.abs(step).max() > 1e-9:
            step = step / 2
        if loss - new < 1e-10 * abs(loss):
            break
        weights, loss, steps = weights - step, new, steps + 1
    return np.asarray(1 / (1 + np.exp(-features @ weights)))
