"""Service times of batches of requests with a size, such as tokens, pixels or atoms.

A batch of b requests is measured with members of one size x. The *law* of the model's back end
gives the time of a batch with different sizes:

- ``padded``: every member is padded to the longest, so x is the longest size;
- ``packed``: nothing is padded, so x is the mean size, the total divided by b.

Let v(b, x) be the chosen statistic. Between measured points v is bilinear. Below the smallest
measured size it is constant. Above the largest count it is extrapolated at every size by the
Theil-Sen slope of that size, as in :mod:`ramsis.profiles.table`. Above the largest size it is
undefined, as the growth of attention and memory is unknown.

Measurements are noisy, but schedulers rely on times that are non-decreasing in count and size. The
mean of the least non-decreasing function above v and the greatest one below,

    l(b, x) = (max of v(b', x') over b' <= b, x' <= x
               + min of v(b', x') over b' >= b, x' >= x) / 2,

is non-decreasing, equals v if v is, and minimises the maximum change of v [1].

[1] V. A. Ubhaya, "Isotone optimization", Journal of Approximation Theory 12, 1974.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.errors import Rule, check_known
from ramsis.fields import Fields
from ramsis.profiles.batch import STATISTICS
from ramsis.profiles.table import unpadded
from ramsis.profiles.values import (
    LEAST_MS,
    MOST_MS,
    BatchSize,
    Name,
    ProfileError,
    ProfileRecord,
)
from ramsis.records import Entries, Reader, schema_of
from ramsis.reprs import brief, dataclass

Law = Literal["padded", "packed"]
LAWS: tuple[str, ...] = get_args(Law)
"""What the time of a batch depends on beside its count: longest size, or total size."""

MAX_SIZE = 65536
"""Largest size of a request; tables have a column for each size up to it."""
_MOST_CELLS = 1_000_000
_MOST_TOTALS = 8192  # largest number of columns by total size: 4 MB for batches of 64

ALIKE = 0.9
"""Ratio of the errors of both laws above which they are not distinguished."""

Grid = tuple[tuple[float | None, ...], ...]
"""A time in ms for each count and size; None where a cell was not measured."""


_TIME = Rule(f"null, or a number of ms from {LEAST_MS:g}, below which rounding decides, to "
             f"{MOST_MS:g}", lambda value: LEAST_MS <= value <= MOST_MS)


def _grid(item: Fields, key: str) -> Grid:
    """Read a row of times, which may be null, for each count."""
    cells = sum(len(row) for row in item.items(key) if isinstance(row, Sequence))
    if cells > _MOST_CELLS:
        raise item.refusal(key, "too many cells", value=cells, allowed=f"at most {_MOST_CELLS}")
    rows = item.entries(key)
    return tuple(_row(rows, row) for row in rows)


def _row(rows: Fields, row: str) -> tuple[float | None, ...]:
    """Read the times of a count, of which there may be many thousands."""
    values = rows.items(row)
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)
                             and LEAST_MS <= value <= MOST_MS) for value in values):
        return tuple(None if value is None else float(value) for value in values)
    cells = rows.entries(row)  # by name, for the refusal
    return tuple(None if value is None else cells.number(f"{row}[{j}]", _TIME)
                 for j, value in enumerate(values))


def _size(item: Fields, key: str) -> int:
    """Read a size; tell what to do about one that is too large."""
    size = item.whole(key, 1)
    if size > MAX_SIZE:
        raise item.refusal(key, "size is too large", value=size,
                           allowed=f"at most {MAX_SIZE}; count in a larger unit")
    return size


_SIZE = Reader(_size, {"type": "integer", "minimum": 1, "maximum": MAX_SIZE})
_Times = Annotated[
    Grid | None,
    Reader(_grid, {"type": "array", "minItems": 1, "items": {
        "type": "array", "minItems": 2,
        "items": {"type": ["number", "null"], "minimum": LEAST_MS, "maximum": MOST_MS}}}),
    "A row for each count with a time in ms for each size; null where it was not measured, which "
    "may not be in the first row.",
]


@dataclass(frozen=True)
class SizedTimes(ProfileRecord):
    """Latency by batch size and by size of the requests, in ms, at least 1e-4.

    Each batch was measured with members of one size.
    """

    unit: Annotated[Name, "What sizes count, such as tokens; one unit for all models."]
    law: Annotated[
        Law,
        "padded: every member of a batch costs as much as the longest. packed: the total size of "
        "the batch counts.",
    ]
    counts: Annotated[tuple[BatchSize, ...], "Measured batch sizes, rising from 1."]
    sizes: Annotated[
        tuple[Annotated[int, _SIZE], ...], Entries(2),
        "Measured sizes of every member of a batch, rising; two or more, at most 65,536.",
    ]
    mean_ms: _Times = None
    p50_ms: _Times = None
    p90_ms: _Times = None
    p95_ms: _Times = None
    p99_ms: _Times = None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, which requires one of the statistics."""
        return {**schema_of(cls), "anyOf": [{"required": [name]} for name in _GRIDS]}

    def check(self, item: Fields) -> None:
        """Refuse counts and sizes that do not rise, and times that are not for each of them."""
        item.check_rising("counts", self.counts)
        item.check_rising("sizes", self.sizes)
        if self.counts[0] != 1:
            raise item.refusal("counts", "no times of single requests", value=self.counts[0],
                               allowed="counts from 1 on")
        if not self.statistics:
            raise item.refusal("", "no latency statistic",
                               allowed=f"at least one of {', '.join(_GRIDS)}")
        for statistic in self.statistics:
            name = f"{statistic}_ms"
            rows = item.entries(name, len(self.counts))
            for i, row in enumerate(getattr(self, name)):
                rows.items(f"{name}[{i}]", len(self.sizes))
                if i == 0 and None in row:
                    raise item.refusal(f"{name}[0][{row.index(None)}]",
                                       "no time of a single request", value=None,
                                       allowed="a finite number > 0")

    @classmethod
    def of(
        cls, latency_ms: ArrayLike, counts: Sequence[int], sizes: Sequence[int], *,
        law: Law = "padded", unit: str = "tokens", statistic: str = "p95",
    ) -> SizedTimes:
        """Create the times from an array of one statistic, with NaN for unmeasured cells."""
        check_known("unknown statistic", statistic, STATISTICS, "statistic")
        grid = tuple(tuple(None if math.isnan(value) else value for value in row)
                     for row in np.asarray(latency_ms, dtype=float).tolist())
        values = cast(dict[str, Any], {f"{statistic}_ms": grid})
        return cls(unit, law, tuple(counts), tuple(sizes), **values)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the names of the available statistics."""
        return tuple(name for name in STATISTICS if getattr(self, f"{name}_ms") is not None)

    @property
    def covered(self) -> str:
        """Return the range of sizes that the times cover, as text for messages."""
        return f"sizes from 1 to {self.sizes[-1]} ({self.unit})"

    def measured_ms(self, statistic: str) -> FloatArray:
        """Return a statistic as measured, shape (C, S), with NaN for unmeasured cells."""
        if statistic not in self.statistics:
            raise ProfileError("no such latency statistic of sizes", "statistic", statistic,
                               ", ".join(self.statistics))
        return np.array(getattr(self, f"{statistic}_ms"), dtype=float)

    def latency_ms(self, statistic: str, max_batch: int) -> FloatArray:
        """Return the times of batches of 1 … ``max_batch`` at the measured sizes.

        The shape is (max_batch, S); times are non-decreasing in count and size.
        """
        measured = self.measured_ms(statistic)
        counts = np.array(self.counts)
        columns = [unpadded(counts[present], column[present], max_batch)
                   for column, present in zip(measured.T, np.isfinite(measured.T), strict=True)]
        return not_falling(np.array(columns).T)

    def only(self, statistic: str) -> SizedTimes:
        """Return the times with one of their statistics alone."""
        others: dict[str, Any] = {name: None for name in _GRIDS if name != f"{statistic}_ms"}
        return replace(self, **others)

    def table(self, statistic: str, max_batch: int, max_size: int) -> SizedTable:
        """Return the table of times of batches of 1 … ``max_batch`` by longest or total size.

        ``max_size`` is the largest size of a request, at most the largest of the times.
        """
        times = self.latency_ms(statistic, max_batch)
        if self.law == "padded":
            # One more column, so that linear interpolation always has a next one.
            longest = np.arange(max_size + 2)
            return SizedTable(True, 1, np.array([
                np.interp(longest, self.sizes, row) for row in times]))
        largest = max_batch * max_size
        step = math.ceil(largest / _MOST_TOTALS)
        total = step * np.arange(largest // step + 2)
        return SizedTable(False, step, not_falling(np.array([
            np.interp(total / (b + 1), self.sizes, row) for b, row in enumerate(times)])))

    def slower(self, slowness: float) -> SizedTimes:
        """Return the times multiplied by ``slowness``."""
        return self._changed(lambda value: value * slowness)

    def longer(self, overhead_ms: float) -> SizedTimes:
        """Return the times with an overhead added to each."""
        return self._changed(lambda value: value + overhead_ms)

    def _changed(self, change: Callable[[float], float]) -> SizedTimes:
        grids = {f"{name}_ms": tuple(
            tuple(None if value is None else change(value) for value in row)
            for row in getattr(self, f"{name}_ms")) for name in self.statistics}
        return replace(self, **cast(dict[str, Any], grids))


class SizedTable(NamedTuple):
    """Times of batches by count and longest or total size."""

    padded: bool  # by longest size; else by total size
    step: int  # difference in size of two columns
    time_ms: FloatArray  # 1 … B requests at size 0, step, 2·step …, non-decreasing, shape (B, X)

    def __repr__(self) -> str:
        return brief(self)


_GRIDS = tuple(f"{name}_ms" for name in ("mean", "p50", "p90", "p95", "p99"))


def not_falling(values: FloatArray) -> FloatArray:
    """Return the non-decreasing array (on both axes) with the least maximum change.

    >>> not_falling(np.array([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[1.0, 2.5], [2.0, 2.5]]
    """
    above = np.maximum.accumulate(np.maximum.accumulate(values, 0), 1)
    below = np.minimum.accumulate(np.minimum.accumulate(values[::-1, ::-1], 0), 1)[::-1, ::-1]
    result: FloatArray = (above + below) / 2.0
    return result


def better_law(errors: Mapping[Law, float]) -> Law:
    """Return the law with the smaller error; padded, which never underestimates, if similar."""
    return "packed" if errors["packed"] < ALIKE * errors["padded"] else "padded"
