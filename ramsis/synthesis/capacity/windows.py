"""Check of targets in each window of a trace, and not on the mean alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.bounds import Targets
from ramsis.errors import InvalidValueError
from ramsis.sim import Run, TimeSeries, over_time
from ramsis.sim.time_series import MOST_BINS


@dataclass(frozen=True)
class Windows:
    """Windows of equal length of one run or several; those without requests are left out.

    What remains at the end and is shorter than half a window belongs to the window before it.
    """

    every_ms: float  # length of a window
    count: int
    missed: int  # windows in which the targets are not met
    # the window with the least effective accuracy: its start and its rates
    start_ms: float
    accuracy: float
    violation_rate: float

    @classmethod
    def of(cls, runs: Sequence[Run], targets: Targets) -> Windows | None:
        """Compare the windows of runs with targets.

        None where the targets are for the mean alone, or no request arrived. Equal runs, as on
        recorded requests, count once.

        Raises
        ------
        InvalidValueError
            More than :data:`~ramsis.sim.time_series.MOST_BINS` windows.
        """
        every_ms = targets.every_ms
        if every_ms is None:
            return None
        shortest_ms = max(run.duration_ms for run in runs) / MOST_BINS
        if every_ms < shortest_ms:
            raise InvalidValueError("too many windows", where="every_ms", value=every_ms,
                                    allowed=f"at least {shortest_ms:g} ms: a million windows")
        windows = [_whole_windows(run, every_ms) for run in runs]
        different = windows[:1] + [each for each in windows[1:]
                                   if not np.array_equal(each, windows[0])]
        columns = np.concatenate(different, axis=1)
        start_ms, requests, in_time, reward = columns[:, columns[1] > 0]
        if not len(requests):
            return None
        accuracy = reward / np.maximum(in_time, 1)  # 0 where none was in time
        late = 1.0 - in_time / requests
        met = [targets.met(*rates) for rates in zip(accuracy.tolist(), late.tolist(), strict=True)]
        worst = int(np.argmin(reward / requests))
        return cls(every_ms, len(met), met.count(False), float(start_ms[worst]),
                   float(accuracy[worst]), float(late[worst]))

    def row(self) -> dict[str, Any]:
        """Return the figures by their names in results."""
        return {"every_s": self.every_ms / 1000.0, "windows": self.count,
                "windows_missed": self.missed, "worst_window_s": self.start_ms / 1000.0,
                "worst_window_accuracy": self.accuracy,
                "worst_window_violation_rate": self.violation_rate}


def _whole_windows(run: Run, every_ms: float) -> FloatArray:
    """Return start, requests, requests in time and reward of each window, shape (4, windows)."""
    series = over_time(run, every_ms)
    columns = np.stack([series.start_ms, series.queries, series.in_time,
                        np.nan_to_num(series.accuracy) * series.in_time])
    # A short window has so few requests that one late among them would decide the search.
    if len(series.start_ms) > 1 and run.duration_ms - series.start_ms[-1] < every_ms / 2.0:
        columns[1:, -2] += columns[1:, -1]
        columns = columns[:, :-1]
    return columns


def busiest_tenth(series: TimeSeries) -> float:
    """Return the effective accuracy of the bins with the highest loads, a tenth of the time."""
    order = np.argsort(-series.queries, kind="stable")[:max(1, round(len(series.queries) / 10))]
    requests = series.queries[order]
    earned = np.nan_to_num(series.effective_accuracy[order]) * requests
    return float(earned.sum() / requests.sum()) if requests.sum() else 0.0
