"""Targets that are to be met in each window of a trace, and not on the mean alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramsis.bounds import Targets
from ramsis.errors import InvalidValueError
from ramsis.sim import Run, TimeSeries, over_time
from ramsis.sim.time_series import MOST_BINS


@dataclass(frozen=True)
class Windows:
    """Windows of equal length of one run or several; those without requests are left out."""

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

        None where the targets are for the mean alone, or no request arrived.

        Runs that are equal, as on recorded requests, count once.

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
        series = [over_time(run, every_ms) for run in runs]
        series = series[:1] + [each for each in series[1:] if not (
            np.array_equal(each.queries, series[0].queries)
            and np.array_equal(each.effective_accuracy, series[0].effective_accuracy, True))]

        def joined(name: str) -> Any:
            return np.concatenate([getattr(each, name)[each.queries > 0] for each in series])

        rates = {name: np.nan_to_num(joined(name)) for name in (  # no accuracy: none in time
            "accuracy", "violation_rate", "effective_accuracy")}
        if not len(rates["accuracy"]):
            return None
        met = [targets.met(accuracy, late) for accuracy, late in zip(
            rates["accuracy"].tolist(), rates["violation_rate"].tolist(), strict=True)]
        worst = int(np.argmin(rates["effective_accuracy"]))
        return cls(every_ms, len(met), met.count(False), float(joined("start_ms")[worst]),
                   float(rates["accuracy"][worst]), float(rates["violation_rate"][worst]))

    def row(self) -> dict[str, Any]:
        """The windows under the names that every command uses."""
        return {"every_s": self.every_ms / 1000.0, "windows": self.count,
                "windows_missed": self.missed, "worst_window_s": self.start_ms / 1000.0,
                "worst_window_accuracy": self.accuracy,
                "worst_window_violation_rate": self.violation_rate}


def busiest_tenth(series: TimeSeries) -> float:
    """Return the effective accuracy of the bins with the highest loads, a tenth of the time."""
    order = np.argsort(-series.queries, kind="stable")[:max(1, round(len(series.queries) / 10))]
    requests = series.queries[order]
    earned = np.nan_to_num(series.effective_accuracy[order]) * requests
    return float(earned.sum() / requests.sum()) if requests.sum() else 0.0
