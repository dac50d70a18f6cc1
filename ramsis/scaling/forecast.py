"""Load forecasts read from a file: load by time, and the forecast error."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import NON_NEGATIVE, InputFileError
from ramsis.numerals import number_or_nan

_COLUMNS = ("time_s", "forecast_qps", "error")


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecast of the load: each value holds from its time until the next."""

    time_s: FloatArray  # increasing, shape (n,)
    forecast_qps: FloatArray  # >= 0, shape (n,)
    error: float  # relative error: share by which loads may differ from the forecast, >= 0

    def told(self, time_s: float, horizon_s: float) -> tuple[float | None, float | None]:
        """Return the forecast load at a time and its maximum up to the horizon.

        None for both before the forecast's first time.
        """
        first, last = (int(np.searchsorted(self.time_s, at, side="right")) - 1
                       for at in (time_s, time_s + horizon_s - 1e-9))
        if first < 0:
            return None, None
        return (float(self.forecast_qps[first]),
                float(self.forecast_qps[first:max(last, first) + 1].max()))

    def later(self, by_s: float) -> Forecast:
        """Return a copy shifted in time; a negative shift moves it earlier."""
        return Forecast(self.time_s + by_s, self.forecast_qps, self.error)

    def times(self, factor: float) -> Forecast:
        """Return a copy with all loads multiplied by a factor."""
        return Forecast(self.time_s, self.forecast_qps * factor, self.error)


def read_forecast(path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast from a CSV file with columns ``time_s``, ``forecast_qps`` and ``error``.

    The largest error counts.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"cannot be read: {error}", where=str(path)) from None
    header = lines[0] if lines else {}
    for name in _COLUMNS:
        if name not in header:
            raise InputFileError("lacks a column", where=str(path), value=name,
                                 allowed=",".join(_COLUMNS) + " and lines below")
    numbers = np.array([[_number(path, at, name, line[name]) for name in _COLUMNS]
                        for at, line in enumerate(lines, 2)])
    for at, (time_s, other) in enumerate(pairwise(numbers[:, 0].tolist()), 3):
        if other <= time_s:
            raise InputFileError("times do not rise", where=f"{path}, line {at}: time_s",
                                 value=other, allowed=f"more than {time_s:g}")
    return Forecast(numbers[:, 0], numbers[:, 1], float(numbers[:, 2].max()))


def _number(path: str | os.PathLike[str], at: int, name: str, text: str | None) -> float:
    value = number_or_nan(text or "")
    if not NON_NEGATIVE.holds(value):
        raise InputFileError("out of range", where=f"{path}, line {at}: {name}", value=text,
                             allowed=NON_NEGATIVE.allowed)
    return value
