"""Plausibility checks of a profile set: findings that are suspicious but allowed.

A file keeps values as measured, and real measurements are noisy: a batch of 2 may have run slower
than one of 8. No finding is an error, because the latency table (:mod:`ramsis.profiles.table`)
handles all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from ramsis.profiles.batch import Statistic
from ramsis.profiles.confidences import Confidences
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.pareto import dominators
from ramsis.profiles.sketch import hat_weights, sketch_quantile
from ramsis.profiles.table import fill_row

FEW_SAMPLES = 100
"""Fewer samples than this leave less than five above the 95th percentile."""
OUTLIER_FACTOR = 2.0
"""A p95 this many times the value expected from the other batch sizes is an outlier."""
LEAST_MS, MOST_MS = 0.02, 1000.0
"""A request alone that takes less or more than this may have been measured in another unit."""
_FALLING = 0.1  # relative decrease of times with the size that causes a warning
LEAST_ACCURACY = 0.01
"""Lower accuracies may be fractions that were taken as percent."""
SKETCH_TOLERANCE = 0.05
"""Largest relative difference between p95, mean and maximum as stated and by quantiles_ms."""
_MOST_ENTRIES = 10_000_000  # largest latency table, 80 MB


@dataclass(frozen=True)
class Finding:
    """Finding of a check: its kind, model, batch size (None for the whole model), and text."""

    kind: str
    model: str
    batch: int | None
    message: str

    def __str__(self) -> str:
        place = self.model if self.batch is None else f"{self.model}, batch {self.batch}"
        return f"{place}: {self.message} [{self.kind}]"


def check_profile(profile_set: ProfileSet) -> list[Finding]:
    """Run all checks on a profile set; return the findings, model by model.

    Kinds: ``unit``, ``few-samples``, ``noise``, ``not-monotone``, ``outlier``, ``sketch``,
    ``gap``, ``no-p95``, ``contradiction``, ``dominated``. Latencies are compared by p95, or by the
    first of :attr:`ProfileSet.statistics` where it is missing somewhere.
    """
    findings: list[Finding] = []
    statistic = next(iter(profile_set.statistics), None)
    for model in profile_set.models:
        findings += _units(model)
        findings += _few_samples(model)
        if statistic is not None:
            findings += _not_monotone(model, statistic)
            findings += _outliers(model, statistic)
        findings += _sketches(model)
        findings += _gaps(model)
        findings += _no_p95(model)
        findings += _sizes(model)
        findings += _contradiction(model, profile_set.confidences)
    if statistic is not None:
        findings += _dominated(profile_set, statistic)
    return findings


def _units(model: ModelProfile) -> Iterator[Finding]:
    """Find latencies and accuracies that look like values in another unit."""
    first = model.batches[0]
    took = first.statistic_ms(first.statistics[0])
    if not LEAST_MS <= took <= MOST_MS:
        yield Finding("unit", model.name, first.batch,
                      f"{first.statistics[0]} is {took:.6g} ms; is the unit right?")
    if model.accuracy < LEAST_ACCURACY:
        yield Finding("unit", model.name, None,
                      f"accuracy is {100 * model.accuracy:.4g} %; is the unit right?")


def _few_samples(model: ModelProfile) -> Iterator[Finding]:
    for item in model.batches:
        if item.n is not None and item.n < FEW_SAMPLES:
            yield Finding("few-samples", model.name, item.batch,
                          f"{item.n} samples; a 95th percentile wants {FEW_SAMPLES} or more")


def _not_monotone(model: ModelProfile, statistic: str) -> Iterator[Finding]:
    """Find batch sizes with a larger latency than a larger batch size."""
    values, steady = model.statistic_by_batch(statistic)
    for i, item in enumerate(model.batches[:-1]):
        if steady[i] != values[i]:
            yield Finding("noise", model.name, item.batch,
                          f"{statistic} {values[i]:.4g} ms is taken to be {steady[i]:.4g} ms, as "
                          "that of neighbouring batch sizes: the difference is within the error "
                          "of measurement")
        best = i + 1 + int(np.argmin(steady[i + 1 :]))
        if steady[best] < steady[i]:
            yield Finding("not-monotone", model.name, item.batch,
                          f"{statistic} {steady[i]:.4g} ms is above {steady[best]:.4g} ms of "
                          f"batch {model.batches[best].batch}; it is padded up")


def _outliers(model: ModelProfile, statistic: str) -> Iterator[Finding]:
    """Find batch sizes whose latency is far above the interpolation without them.

    Batch size 1 is compared with the least latency of larger ones.
    """
    sizes = np.array([item.batch for item in model.batches])
    values = np.array([item.statistic_ms(statistic) for item in model.batches])
    if len(sizes) == 1:
        return
    # Without a size the table interpolates, or takes the least latency of larger ones.
    least_above = np.append(np.minimum.accumulate(values[:0:-1])[::-1], np.inf)
    between = least_above.copy()
    between[1:-1] = values[:-2] + (sizes[1:-1] - sizes[:-2]) * (
        (values[2:] - values[:-2]) / (sizes[2:] - sizes[:-2]))
    suggested = np.minimum(least_above, between)
    suggested[-1] = fill_row(sizes[:-1], values[:-1], int(sizes[-1]))[0][-1]
    for i, item in enumerate(model.batches):
        expected = suggested[i]
        if values[i] > OUTLIER_FACTOR * expected:
            yield Finding("outlier", model.name, item.batch,
                          f"{statistic} {values[i]:.4g} ms is {values[i] / expected:.3g} times "
                          f"the {expected:.4g} ms that the other batch sizes suggest")


def _sketches(model: ModelProfile) -> Iterator[Finding]:
    """Warn about statistics that differ from those of the stated quantiles."""
    for item in model.batches:
        if item.quantiles_ms is None:
            continue
        mean = float(hat_weights(item.levels) @ np.array(item.quantiles_ms))
        sketched = {"p95": sketch_quantile(item.quantiles_ms, 0.95, item.quantile_levels),
                    "mean": mean, "max": item.quantiles_ms[-1]}
        for name, value in sketched.items():
            stated = getattr(item, f"{name}_ms")
            if stated is not None and abs(value - stated) > SKETCH_TOLERANCE * stated:
                tail = name != "p95" and item.quantile_levels is None
                yield Finding("sketch", model.name, item.batch,
                              f"{name} {stated:.4g} ms, but {value:.4g} ms by quantiles_ms"
                              f"{'; the stated one gives the tail' if tail else ''}")


def _gaps(model: ModelProfile) -> Iterator[Finding]:
    """Find unmeasured batch sizes below the largest measured one; the table fills them in."""
    sizes = [item.batch for item in model.batches]
    missing = sorted(set(range(1, sizes[-1])) - set(sizes))
    if missing:
        shown = ", ".join(str(size) for size in missing[:8]) + (", …" if missing[8:] else "")
        yield Finding("gap", model.name, None, f"batch sizes not measured: {shown}")


def _no_p95(model: ModelProfile) -> Iterator[Finding]:
    """Find batch sizes without p95, the default statistic of commands."""
    for item in model.batches:
        if "p95" not in item.statistics:
            yield Finding("no-p95", model.name, item.batch,
                          f"no 95th percentile; it has {', '.join(item.statistics)}")


def _sizes(model: ModelProfile) -> Iterator[Finding]:
    """Find times that decrease with count or size, and counts far above the measured ones."""
    if model.sized is None:
        return
    statistic = model.sized.statistics[0]
    measured = model.sized.measured_ms(statistic)
    steady = model.sized.latency_ms(statistic, model.sized.counts[-1])[
        np.array(model.sized.counts) - 1]
    off = np.where(np.isfinite(measured), np.abs(steady / measured - 1.0), 0.0)
    row, column = np.unravel_index(int(off.argmax()), off.shape)
    if off.max() > _FALLING:
        yield Finding("not-monotone", model.name, model.sized.counts[row],
                      f"{statistic} {measured[row, column]:.4g} ms of size "
                      f"{model.sized.sizes[column]} is taken to be {steady[row, column]:.4g} ms: "
                      "times fall with count or size")


def _contradiction(model: ModelProfile, confidences: Confidences | None) -> Iterator[Finding]:
    """Find an accuracy that contradicts the samples of the confidences."""
    if confidences is None or all(model.name != item.name for item in confidences.models):
        return
    stated = confidences.accuracy(model.name)
    if abs(stated - model.accuracy) > confidences.tolerance(model.name, model.accuracy):
        yield Finding("contradiction", model.name, None,
                      f"accuracy {model.accuracy:.4g}, but {stated:.4g} on the samples of its "
                      "confidences")


def _dominated(profile_set: ProfileSet, statistic: str) -> Iterator[Finding]:
    names = [model.name for model in profile_set.models]
    largest = max(item.batch for model in profile_set.models for item in model.batches)
    largest = min(largest, max(1, _MOST_ENTRIES // len(names)))
    table = profile_set.latency_table(cast(Statistic, statistic), largest)
    for name, other in zip(names, dominators(table.accuracy, table.latency_ms), strict=True):
        if other >= 0:
            yield Finding("dominated", name, None,
                          f"{names[other]} is as accurate and as fast at every batch size "
                          f"to {largest}")
