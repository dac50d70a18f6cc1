"""Scaling table: number of workers by anticipated load and trend, and by the current workers.

For each level and trend of the load, thresholds give the highest worker number that is started,
that is kept while it starts (by the time since its start), and that is kept when active.

A load is rounded to the nearest level in logarithm, a trend to the nearest one; of two equally
near ones the lower is taken. Standard library only.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from ramsis.errors import ABOVE_ZERO, InvalidValueError
from ramsis.fields import Fields
from ramsis.files import read_json
from ramsis.records import (
    Entries,
    Fraction,
    NonNegative,
    Positive,
    Record,
    Whole,
    WrittenRecord,
    record_of,
)
from ramsis.runtime.table import MAX_WORKERS

SCALING_FORMAT = "ramsis.scaling/1"
SCALING_NAME = "scaling.json"
_Count = Annotated[int, Whole(1, MAX_WORKERS)]
_Workers = Annotated[int, Whole(0, MAX_WORKERS)]
_ROUNDING = 1e-9
_MOST_SHORT = 0.03  # largest accumulated shortfall or surplus of accuracy
_MOST_FACTOR = 1.25  # largest factor on the load; its inverse is the smallest


@dataclass(frozen=True)
class Steering(Record):
    """Correction of the load by delivered accuracy, to keep a target accuracy."""

    accuracy: Annotated[Fraction, "Accuracy to keep."]
    requests: Annotated[Positive, "Number of requests over which a deficit is made up."]
    loads_qps: Annotated[
        tuple[Positive, ...], Entries(2), "Loads per worker, two or more, increasing."]
    accuracies: Annotated[
        tuple[Fraction, ...], Entries(2),
        "Accuracy of the decision tables at these loads, decreasing.",
    ]

    def check(self, item: Fields) -> None:
        """Refuse loads that do not rise, and accuracies that do not fall with them."""
        item.items("accuracies", len(self.loads_qps))
        item.check_rising("loads_qps", self.loads_qps)
        for i, (high, low) in enumerate(pairwise(self.accuracies)):
            if low >= high:
                raise item.refusal(f"accuracies[{i + 1}]", "accuracies do not fall", value=low,
                                   allowed=f"below {high!r}")

    @cached_property
    def _logs(self) -> list[float]:
        return list(map(math.log, self.loads_qps))

    def delivered(self, load_qps: float) -> float:
        """Return the accuracy of the decision tables at a load per worker."""
        return _between(math.log(max(load_qps, self.loads_qps[0])), self._logs, self.accuracies)

    def factor(self, short: float) -> float:
        """Return the factor on the load that compensates a shortfall of accuracy per request."""
        usual, corrected = (_between(accuracy, self.accuracies[::-1], self._logs[::-1])
                            for accuracy in (self.accuracy, self.accuracy + short))
        return min(max(math.exp(usual - corrected), 1.0 / _MOST_FACTOR), _MOST_FACTOR)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalingTable(WrittenRecord):
    """Number of wanted workers by anticipated load, its trend, active and starting workers.

    It is the part of a scaling policy file that decides.
    """

    FORMAT: ClassVar[str] = SCALING_FORMAT

    interval_s: Annotated[Positive, "Time between decisions."]
    startup_s: Annotated[NonNegative, "Time that a worker takes to start."]
    least: Annotated[_Count, "Smallest number of workers."]
    most: Annotated[_Count, "Largest number of workers."]
    levels_qps: Annotated[tuple[Positive, ...], "Levels of the load, rising."]
    trends: Annotated[
        tuple[float, ...], "Levels of the change of the load's logarithm in an interval, rising."]
    smoothing: Annotated[float, ABOVE_ZERO, "Weight of the latest change in the trend."]
    forecast_error: Annotated[
        NonNegative, "Relative error of a forecast above which the measured load is used."]
    thresholds: Annotated[
        tuple[tuple[tuple[_Workers, ...], ...], ...],
        "By level and trend, the highest number of a worker that is started; that is kept if it "
        "began to start 1, 2, … decisions ago; and that is kept when active.",
    ]
    forecast_thresholds: Annotated[
        tuple[tuple[_Workers, ...], ...] | None,
        "By level, the thresholds while a forecast is used; if absent those of no trend.",
    ] = None
    window: Annotated[_Count, "Number of intervals in the load monitor's moving average."] = 1
    steering: Annotated[
        Steering | None,
        "Correction of the load by the accuracy that was delivered; none if null or absent.",
    ] = None

    def check(self, item: Fields) -> None:
        """Refuse levels that do not rise, and thresholds that fall or are not of these levels."""
        levels, stages = len(self.levels_qps), stages_of(self.startup_s, self.interval_s)[0] + 1
        item.check_rising("levels_qps", self.levels_qps)
        item.check_rising("trends", self.trends)
        if len(self.thresholds) != levels or any(
                len(row) != len(self.trends) or any(len(cell) != stages for cell in row)
                for row in self.thresholds):
            raise item.refusal(
                "thresholds",
                f"not {levels} levels of {len(self.trends)} trends of {stages} thresholds")
        for i, row in enumerate(self.thresholds):
            for j, cell in enumerate(row):
                item.check_rising(f"thresholds[{i}][{j}]", cell, strictly=False)
        if len(self.believed_thresholds) != levels or any(
                len(row) != stages or list(row) != sorted(row)
                for row in self.believed_thresholds):
            raise item.refusal("forecast_thresholds", f"not {levels} levels of {stages} "
                                                      "thresholds that do not fall")
        if self.least > self.most:
            raise item.refusal("least", "more workers at least than at most", value=self.least,
                               allowed=f"at most {self.most} (most)")

    @cached_property
    def believed_thresholds(self) -> tuple[tuple[int, ...], ...]:
        """Thresholds by level while a forecast is trusted."""
        without_trend = _nearest(self.trends, 0.0)
        return self.forecast_thresholds or tuple(row[without_trend] for row in self.thresholds)

    @cached_property
    def _logs(self) -> list[float]:
        return list(map(math.log, self.levels_qps))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load the table in a file, or in the ``scaling.json`` of a folder."""
        file = Path(path)
        file = file / SCALING_NAME if file.is_dir() else file
        return cls.from_document(read_json(file), str(file))

    @classmethod
    def from_document(cls, document: dict[str, Any], where: str) -> Self:
        """Read the table from a document."""
        return record_of(cls, Fields(document, where), alone=False)

    def wanted(
        self, load_qps: float, active: int, starting: int, *, trend: float = 0.0,
        ages: Sequence[int] | None = None, forecast: bool = False,
    ) -> int:
        """Return the number of workers that should be active or starting.

        Parameters
        ----------
        load_qps
            Anticipated load, >= 0.
        active, starting
            Numbers of workers that serve, and that start.
        trend
            Smoothed change of the log load per interval.
        ages
            Decisions since the start of each starting worker, oldest first; by default one.
        forecast
            Whether the load comes from a forecast; then the trend is ignored.
        """
        if not load_qps >= 0:
            raise InvalidValueError("not a load", where="load_qps", value=load_qps,
                                    allowed="0 or more")
        level = _nearest(self._logs, math.log(load_qps)) if load_qps > 0 else 0
        limits = (self.believed_thresholds[level] if forecast
                  else self.thresholds[level][_nearest(self.trends, trend)])
        kept = min(active, limits[-1])
        if kept == active:
            for age in [1] * starting if ages is None else ages:
                if kept + 1 > limits[min(max(age, 1), len(limits) - 1)]:
                    break
                kept += 1
        return min(max(kept, limits[0], self.least), self.most)


class ScalingControl:
    """Controller that applies a scaling table; it tracks the load's trend and workers' start-ups.

    With steering it tracks the missed accuracy, too: the decision tables tell the accuracy of an
    interval by its load per worker. Call :meth:`wanted` once every interval.
    """

    __slots__ = ("_ages", "_forecast_log", "_loads", "_log", "_served", "_short", "_trend",
                 "believed", "table")

    def __init__(self, table: ScalingTable) -> None:
        self.table = table
        self._loads: deque[float] = deque(maxlen=table.window)
        self._log: float | None = None
        self._trend = 0.0
        self._ages: list[int] = []
        self._forecast_log: float | None = None
        self._served: int | None = None  # workers that served since the last decision
        self._short = 0.0  # missed accuracy, per request of the steering's ``requests``
        self.believed = True

    def wanted(
        self, load_qps: float, active: int, starting: int, forecast_qps: float | None = None,
        ahead_qps: float | None = None,
    ) -> int:
        """Return the number of workers that should be active or starting.

        Parameters
        ----------
        load_qps
            Load of the interval that has just ended, by the load monitor.
        active, starting
            Numbers of workers that serve, and that start.
        forecast_qps
            Forecast load of the next interval. It is trusted if the last forecast differed from
            the observed load by at most the table's ``forecast_error``.
        ahead_qps
            Highest forecast load until a worker that is started now has been active for an
            interval, on which the decision is based; by default ``forecast_qps``.
        """
        lowest = self.table.levels_qps[0]
        if self._forecast_log is not None and load_qps >= 0:
            off = abs(math.log(max(load_qps, lowest)) - self._forecast_log)
            self.believed = off <= math.log1p(self.table.forecast_error) + _ROUNDING
        self._forecast_log = (None if forecast_qps is None
                              else math.log(max(forecast_qps, lowest)))
        self._loads.append(load_qps)
        mean_qps = sum(self._loads) / len(self._loads)
        log = math.log(max(mean_qps, lowest))
        if self._log is not None:
            share = self.table.smoothing
            self._trend = (1.0 - share) * self._trend + share * (log - self._log)
        self._log = log
        forecast = forecast_qps is not None and self.believed
        ahead_qps = forecast_qps if ahead_qps is None else ahead_qps
        anticipated = self._factor(load_qps, active) * (
            ahead_qps if forecast and ahead_qps is not None else mean_qps)
        # The oldest starting workers have become active; unknown ones began just before.
        ages = [age + 1 for age in self._ages]
        ages = ages[max(len(ages) - starting, 0):]
        ages += [1] * (starting - len(ages))
        wanted = self.table.wanted(anticipated, active, starting, trend=self._trend, ages=ages,
                                   forecast=forecast)
        more = wanted - active - starting
        self._ages = ages + [0] * more if more > 0 else ages[:max(starting + more, 0)]
        self._served = min(active, wanted)
        return wanted

    def _factor(self, load_qps: float, active: int) -> float:
        """Add an interval's shortfall of accuracy; return the factor on the load to correct it."""
        steering, table = self.table.steering, self.table
        if steering is None or self._served is None:
            return 1.0
        # Workers whose start-up ended within the interval served for the last share of it.
        stages, partial = stages_of(table.startup_s, table.interval_s)
        share = partial if stages else 1.0
        served = (1.0 - share, min(self._served, active)), (share, active)
        delivered = sum(part * steering.delivered(load_qps / max(workers, 1))
                        for part, workers in served)
        self._short += (load_qps * table.interval_s * (steering.accuracy - delivered)
                        / steering.requests)
        self._short = min(max(self._short, -_MOST_SHORT), _MOST_SHORT)
        return steering.factor(self._short)


def stages_of(startup_s: float, interval_s: float) -> tuple[int, float]:
    """Return the intervals of a start-up, rounded up, and the rest of the last as a share.

    >>> stages_of(0.0, 15.0), stages_of(7.5, 15.0), stages_of(60.0, 15.0)
    ((0, 0.0), (1, 0.5), (4, 0.0))
    """
    stages = math.ceil(startup_s / interval_s - _ROUNDING)
    return stages, max(stages - startup_s / interval_s, 0.0) if stages else 0.0


def _nearest(places: Sequence[float], value: float) -> int:
    at = min(max(bisect_left(places, value), 1), len(places) - 1) if len(places) > 1 else 0
    return at - 1 if at and value - places[at - 1] <= places[at] - value else at


def _between(value: float, places: Sequence[float], values: Sequence[float]) -> float:
    """Interpolate linearly between increasing ``places``; constant outside."""
    at = bisect_left(places, value)
    if at in (0, len(places)):
        return values[min(at, len(places) - 1)]
    share = (value - places[at - 1]) / (places[at] - places[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])
