"""Rows of a table by size: times of each model by count and size of the requests.

A column of sizes holds the size of every member of a batch, or of its longest member. A column of
total sizes beside it shows how much of a batch is padding. If the total always is count × size,
all members of a batch have the same size, and the times of each count and size are those of its
rows. Otherwise both laws are fitted to the rows, and the times are those of the better law.

By both laws a batch takes about

    t(b, x) = a0 + a1·b + a2·b·x + a3·b·x²,   a0, a1, a2, a3 >= 0,

with b the number of members, and x the longest size if the back end pads (*padded*), or the mean
size if it does not (*packed*); attention is quadratic in the size. Both are fitted by non-negative
least squares of relative residuals; the law with the smaller root mean square is chosen. Batches
with members of one size fit both equally well, and cannot distinguish the laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError
from ramsis.profiles.batch import STATISTICS, BatchProfile
from ramsis.profiles.importers.rows import LATENCY, CsvRow, MeasuredModel, Measurements
from ramsis.profiles.sized import ALIKE, Grid, Law, SizedTimes, better_law
from ramsis.profiles.values import placed

_MOST_FITTED = 16  # counts and sizes of a fitted table
_LEAST_FITTED = 8  # batches, for four factors


@dataclass(frozen=True)
class Entry:
    """Latency of one batch of requests with a size, with its place in the file."""

    row: CsvRow
    column: str
    statistic: str
    time_ms: float
    batch: int
    size: int  # of each member, or of the longest
    total: int


@dataclass
class SizedRows:
    """Latencies by model, count and size, collected from rows in any order."""

    path: Path
    unit: str
    law: Law | None  # as the user or a column states it
    total_column: str  # column of total sizes; empty where there is none
    count: Callable[[CsvRow], int | None]  # samples behind the statistics of a row
    advice: Callable[[], str] = str
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, model: str, entry: Entry) -> None:
        """Enter a latency; refuse a total size that batch and longest size contradict."""
        most = entry.batch * entry.size
        if not entry.batch + entry.size - 1 <= entry.total <= most:
            raise InputFileError(
                "the total size contradicts batch and longest size",
                where=entry.row.at(self.total_column), value=entry.total,
                allowed=f"{entry.batch + entry.size - 1} to {most} for a "
                f"batch of {entry.batch} whose longest has {entry.size}")
        self.entries.setdefault(model, []).append(entry)

    def models(self) -> dict[str, MeasuredModel]:
        """Return the profiles of all models."""
        models = {name: self._model(name, entries) for name, entries in self.entries.items()}
        every = [entry for entries in self.entries.values() for entry in entries]
        if any(entry.statistic == LATENCY for entry in every) and not _of_several_sizes(every):
            self.notes.append("latencies without a statistic: one for a count and size is the "
                              "mean, several are samples")
        return models

    def _model(self, name: str, entries: list[Entry]) -> MeasuredModel:
        """Return a model's profile by cells of count and size, or by a law if sizes differ."""
        sizes = {entry.size for entry in entries}
        if _of_several_sizes(entries):
            return self._fitted(name, entries)
        # Members of a batch have one size: each (count, size) is a cell with the rows' statistics.
        by_size: dict[int, Measurements] = {}
        for entry in entries:
            batch = by_size.setdefault(entry.size, Measurements(self.advice)).of(
                entry.row, name, entry.batch)
            batch.add(entry.row, entry.column, entry.statistic, entry.time_ms)
        cells: dict[int, dict[int, BatchProfile]] = {}
        for size, measured in by_size.items():
            for batch in measured.sizes[name].values():
                batch.n = self.count(batch.first)
                cells.setdefault(batch.batch, {})[size] = batch.profile()
        if len(sizes) == 1:
            self.notes.append(f"{name}: one size, {min(sizes)} {self.unit}, so no times by size")
            return MeasuredModel([row[min(sizes)] for row in cells.values()],
                                 more="a row with batch size 1")
        lacking = sorted(sizes - set(cells.get(1, {})))
        if lacking:
            raise InputFileError(
                "batch size 1 was not measured at this size", where=f"{self.path}: model {name}",
                value=f"{lacking[0]} {self.unit}",
                allowed="a row with batch size 1 for each size (or --models without this model)")
        law = self.law or "padded"
        reason = "as stated" if self.law else (
            "members of a batch have one size, which fits padded and packed alike; --law packed "
            "where the back end does not pad")
        missing = len(cells) * len(sizes) - sum(map(len, cells.values()))
        self.notes.append(
            f"{name}: times by size in {self.unit}, {len(cells)} counts to {max(cells)} x "
            f"{len(sizes)} sizes from {min(sizes)} to {max(sizes)}"
            f"{f' ({missing} of them not measured)' if missing else ''}; law {law}: {reason}")
        # Batches of the largest size are the profile without sizes; a statistic becomes a grid if
        # all cells have it.
        counts, columns = sorted(cells), sorted(sizes)
        largest = [cells[count][columns[-1]] for count in counts if columns[-1] in cells[count]]
        grids: dict[str, Grid] = {}
        for statistic in STATISTICS:
            if all(statistic in cell.statistics for row in cells.values()
                   for cell in row.values()):
                grids[f"{statistic}_ms"] = tuple(tuple(
                    cells[count][size].statistic_ms(statistic) if size in cells[count] else None
                    for size in columns) for count in counts)
        return MeasuredModel(largest, sized=self._sized(name, law, counts, columns, grids))

    def _sized(
        self, name: str, law: Law, counts: list[int], sizes: list[int], grids: dict[str, Grid]
    ) -> SizedTimes:
        with placed(lambda place: f"{self.path}: model {name}, by size: {place}"):
            return SizedTimes(self.unit, law, tuple(counts), tuple(sizes),
                              **cast(dict[str, Any], grids))

    def _fitted(self, name: str, entries: list[Entry]) -> MeasuredModel:
        """Return times by the law fitted to batches whose members differ in size."""
        statistics = list(dict.fromkeys(entry.statistic for entry in entries))
        fits: dict[str, LawFit] = {}
        for statistic in statistics:
            rows = [entry for entry in entries if entry.statistic == statistic]
            if len(rows) < _LEAST_FITTED:
                raise InputFileError(
                    "too few batches with members of different sizes to tell how they take time",
                    where=f"{self.path}: model {name}", value=len(rows),
                    allowed=f"{_LEAST_FITTED} or more, or batches with members of one size")
            fits[statistic] = fit_law(
                [entry.batch for entry in rows], [entry.size for entry in rows],
                [entry.total for entry in rows], [entry.time_ms for entry in rows],
                self.law or (fits[statistics[0]].law if fits else None))
        # Evaluate the law at counts and sizes that cover the rows; with the packed law the size is
        # the mean size of a batch.
        fit = fits[statistics[0]]
        counts = _spread([entry.batch for entry in entries], 1)
        sizes = _spread([entry.size for entry in entries], 2)
        if fit.law == "packed":
            means = [entry.total // entry.batch for entry in entries]
            sizes = _spread([*means, max(entry.size for entry in entries)], 2)
        self.notes.append(f"{name}: times by size in {self.unit}, fitted to {len(entries)} "
                          f"batches with members of different sizes; {fit.summary()}"
                          f"{'' if fit.tells else '; the rows do not tell which law holds'}")
        grids: dict[str, Grid] = {}
        batches: dict[int, dict[str, float]] = {count: {} for count in counts}
        for statistic, fit in fits.items():
            # Latencies without a statistic are samples: the law gives their mean, and quantiles of
            # measured over fitted times give the percentiles.
            fitted = fit.time_ms(np.array(counts)[:, None], np.array(sizes)[None, :])
            level = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
            scales = {"mean": 1.0, **{key: float(np.quantile(fit.ratio, value))
                                      for key, value in level.items()}} if (
                statistic == LATENCY) else {statistic: 1.0}
            for key, scale in scales.items():
                if key not in STATISTICS:
                    continue
                rounded = np.round(np.maximum(scale * fitted, 1e-4), 6)
                grids[f"{key}_ms"] = tuple(map(tuple, rounded.tolist()))
                for count, value in zip(counts, rounded[:, -1].tolist(), strict=True):
                    batches[count][f"{key}_ms"] = value
        with placed(lambda place: f"{self.path}: model {name}, fitted: {place}"):
            profiles = [BatchProfile(count, **cast(dict[str, Any], values))
                        for count, values in batches.items()]
        return MeasuredModel(profiles, sized=self._sized(name, fits[statistics[0]].law, counts,
                                                         sizes, grids))


def _of_several_sizes(entries: Sequence[Entry]) -> bool:
    """Return whether some batch has members of different sizes."""
    return any(entry.total < entry.batch * entry.size for entry in entries)


def _spread(values: list[int], least: int) -> list[int]:
    """Return a geometric series of whole numbers, up to the largest of ``values``.

    It begins with 1 if ``least`` is 1; with a ``least`` of 2 it begins with the smallest value,
    and has at least two numbers.
    """
    low = 1 if least == 1 else min(values)
    high = max(max(values), low + least - 1)
    steps = np.geomspace(low, high, min(_MOST_FITTED, 2 + int(np.log2(high / low)) * 2))
    return np.unique(np.round(steps).astype(int)).tolist() if high > low else [low]


@dataclass(frozen=True)
class LawFit:
    """Fit of the times of batches by the better of the two laws."""

    law: Law
    errors: dict[Law, float]  # root mean square of the relative residuals, by law
    factors: FloatArray  # a0 … a3
    ratio: FloatArray  # measured time divided by fitted time of each batch

    @property
    def tells(self) -> bool:
        """Whether the measured times distinguish padded from packed batches."""
        low, high = sorted(self.errors.values())
        return low < ALIKE * high

    def time_ms(self, count: ArrayLike, size: ArrayLike) -> FloatArray:
        """Return the fitted time of batches with members of equal size."""
        result: FloatArray = _terms(np.asarray(count, float), np.asarray(size, float)) @ (
            self.factors)
        return result

    def summary(self) -> str:
        """Return a text with the law, and the errors by which it was chosen."""
        errors = ", ".join(f"{law} {self.errors[law]:.1%}" for law in self.errors)
        return f"law {self.law} (relative errors: {errors})"


def fit_law(
    count: ArrayLike, longest: ArrayLike, total: ArrayLike, time_ms: ArrayLike,
    law: Law | None = None,
) -> LawFit:
    """Fit the times of batches by both laws, and choose the better one.

    The arrays, shape (n,), have the number of members, the longest and the total size, and the
    time of each batch. ``law`` overrules the choice.
    """
    counts, times = np.asarray(count, float), np.asarray(time_ms, float)
    fits: dict[Law, tuple[FloatArray, FloatArray]] = {}
    errors: dict[Law, float] = {}
    for name, size in zip(get_args(Law), (longest, np.asarray(total, float) / counts),
                          strict=True):
        terms = _terms(counts, np.asarray(size, float))
        factors = _not_negative(terms / times[:, None])
        ratio = times / (terms @ factors)
        fits[name] = factors, ratio
        errors[name] = float(np.sqrt(np.mean((1.0 / ratio - 1.0) ** 2)))
    chosen = law or better_law(errors)
    return LawFit(chosen, errors, *fits[chosen])


def _terms(count: FloatArray, size: FloatArray) -> FloatArray:
    count, size = np.broadcast_arrays(count, size)
    return np.stack([np.ones(count.shape), count, count * size, count * size**2], axis=-1)


def _not_negative(relative: FloatArray) -> FloatArray:
    """Fit factors >= 0 of terms relative to times, whose weighted sums should be 1."""
    from scipy.optimize import nnls  # reading profiles must not require scipy

    scale = np.abs(relative).max(axis=0)
    factors, _ = nnls(relative / scale, np.ones(len(relative)))
    result: FloatArray = factors / scale
    return result
