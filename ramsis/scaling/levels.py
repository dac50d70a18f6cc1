r"""Markov chain of the load, fitted on part of a trace.

Let x be the logarithm of an interval's load. With b the smoothed change of x,

    x' = x + ρ b - φ (x - x̄) + ε,    b' = (1 - β) b + β (x' - x),

a damped trend with reversion to the mean load x̄. For each smoothing β of a list, ρ in [0, 1] and
φ in [0, 1) are fitted by least squares; the β with the smallest sum of squares is kept. The
errors ε are the residuals of the fit (no distribution is assumed). Residuals at similar loads
weigh most, as bursts follow low loads and high loads end. A state is a point on a grid of levels
and trends; each successor is spread over the four grid points around it so that its mean is
kept.
"""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import (
    NON_NEGATIVE,
    InputFileError,
    InvalidValueError,
    check_number_of,
    check_positive,
)
from ramsis.numerals import number_or_nan

_COLUMNS = ("time_s", "forecast_qps", "error")

# Weights of the newest change in the trend; the one with the smallest squared errors is taken.
_SMOOTHINGS = (0.15, 0.3, 0.5, 0.75, 1.0)
_MOST_ERRORS = 160  # residuals that are kept, evenly spaced by rank: each adds a transition
_LEAST_WEIGHT = 0.02  # weight of a residual far from a load, relative to 1 at this load
_NEARBY = 0.35  # kernel width of the weights, in standard deviations of the log load
_LEAST_INTERVALS = 4  # two changes after the first trend, for the two coefficients
_MARGIN = 0.25  # in log load: levels extend to e^0.25 = 1.28 times the highest observed load


def interval_loads(arrival_ms: ArrayLike, interval_s: float, duration_s: float,
                   offset_s: float = 0.0) -> FloatArray:
    """Return the arrival rate of each whole interval in requests per second, shape (n,).

    ``arrival_ms`` is sorted, ``duration_s`` the length of the trace, ``offset_s`` the start of the
    first interval.
    """
    count = int((duration_s - offset_s) / interval_s + 1e-9)
    edges = 1000.0 * (offset_s + interval_s * np.arange(count + 1))
    loads: FloatArray = np.diff(np.searchsorted(np.asarray(arrival_ms), edges)) / interval_s
    return loads


@dataclass(frozen=True, eq=False)
class LoadDynamics:
    """Markov chain of the load from one interval to the next.

    States are numbered level by level: state i·B + j has level i and trend j.
    """

    interval_s: float  # length of an interval
    levels_qps: FloatArray  # increasing, > 0, shape (L,)
    # shape (B,): smoothed changes of the log load per interval, increasing, one of them 0
    trends: FloatArray
    # β, ρ, φ and x̄ of the module docstring
    smoothing: float
    carried: float
    reverting: float
    mean_log_qps: float
    # shape (E,): residuals of the log load's forecast, and the log loads at which they occurred
    errors: FloatArray = field(repr=False)
    met_at: FloatArray = field(repr=False)
    transition: FloatArray = field(repr=False)  # rows sum to 1, shape (L·B, L·B)

    @property
    def states(self) -> int:
        """Number of states of the load."""
        return len(self.levels_qps) * len(self.trends)

    def next_loads(self) -> tuple[FloatArray, FloatArray]:
        """Return the possible loads after each state and their probabilities, shape (L·B, E)."""
        x, b = self._grid()
        return np.exp(self._mean(x, b)[:, None] + self.errors), self._likely(x)

    def forecast_error(self) -> float:
        """Return the 90 % quantile of the relative error of the load's forecast."""
        return float(math.expm1(np.quantile(np.abs(self.errors), 0.9)))

    def _likely(self, x: FloatArray) -> FloatArray:
        """Return the probability of each forecast error at log loads, shape (n, E)."""
        width = max(_NEARBY * float(self.met_at.std()), 1e-9)
        weight = np.exp(-0.5 * ((x[:, None] - self.met_at) / width) ** 2) + _LEAST_WEIGHT
        likely: FloatArray = weight / weight.sum(axis=1, keepdims=True)
        return likely

    def sample(self, intervals: int, rng: np.random.Generator, *, mirrored: bool = False
               ) -> FloatArray:
        """Sample loads of successive intervals, starting at the mean load, shape (intervals,).

        Mirrored samples are antithetic: high errors where the same generator draws low ones.
        """
        low, high = np.log(self.levels_qps[[0, -1]])
        x, b = self.mean_log_qps, 0.0
        loads = np.empty(intervals)
        chances = rng.random(intervals)
        for at, chance in enumerate(1.0 - chances if mirrored else chances):
            below = np.cumsum(self._likely(np.array([x]))[0])
            error = self.errors[min(int(np.searchsorted(below, chance)), len(below) - 1)]
            following = min(max(float(self._mean(x, b)) + error, low), high)
            b = (1.0 - self.smoothing) * b + self.smoothing * (following - x)
            x = following
            loads[at] = x
        return np.exp(loads)

    def _grid(self) -> tuple[FloatArray, FloatArray]:
        """Return log load and trend of each state."""
        return (np.repeat(np.log(self.levels_qps), len(self.trends)),
                np.tile(self.trends, len(self.levels_qps)))

    def _mean(self, x: FloatArray | float, b: FloatArray | float) -> FloatArray:
        """Return the forecast of the next interval's log load."""
        return np.asarray(x + self.carried * b - self.reverting * (x - self.mean_log_qps))


def fit_loads(
    arrival_ms: ArrayLike, *, duration_s: float, interval_s: float, levels: int = 32,
    trends: int = 5, least_qps: float = 0.0,
) -> LoadDynamics:
    """Fit load dynamics to the sorted arrivals in [0, duration), at least four intervals of them.

    The grid has ``levels`` >= 2 levels and an odd number of ``trends``; with one the load has no
    direction. Loads below ``least_qps`` count as this one, for example because one worker serves
    them all.
    """
    check_positive(duration_s=duration_s, interval_s=interval_s)
    check_number_of("levels", levels)
    check_number_of("trends", trends)
    times = np.asarray(arrival_ms, dtype=float)
    loads = interval_loads(times, interval_s, duration_s)
    if len(loads) < _LEAST_INTERVALS or not loads.any():
        raise InvalidValueError(
            "too short to fit the dynamics of its load", where="trace", value=duration_s,
            allowed=f"arrivals for at least {_LEAST_INTERVALS} intervals of {interval_s:g} s")
    # An empty interval only shows that its load is below about one arrival per interval.
    least = max(0.5 / interval_s, least_qps)
    # Shifted intervals estimate the same dynamics from the same arrivals, grouped otherwise.
    shifts = [interval_s * share for share in (0.0, 0.25, 0.5, 0.75)]
    logs = [np.log(np.maximum(interval_loads(times, interval_s, duration_s, shift), least))
            for shift in shifts]
    mean = float(np.mean(logs[0]))
    smoothing, carried, reverting, errors, met_at = _fitted(
        [log for log in logs if len(log) >= _LEAST_INTERVALS - 1], mean, trends > 1)
    low, high = float(min(map(np.min, logs))), float(max(map(np.max, logs)))
    grid = np.linspace(low - _MARGIN, high + _MARGIN, levels)
    steps = np.concatenate([_trends_of(log, smoothing) for log in logs])
    widest = max(float(np.quantile(np.abs(steps), 0.98)), 1e-3)
    slopes = np.linspace(-widest, widest, trends) if trends > 1 else np.zeros(1)
    fitted = LoadDynamics(interval_s, np.exp(grid), slopes, smoothing, carried, reverting, mean,
                          errors, met_at, np.empty((0, 0)))
    x, b = fitted._grid()
    following = np.clip(fitted._mean(x, b)[:, None] + errors, grid[0], grid[-1])
    turned = (1.0 - smoothing) * b[:, None] + smoothing * (following - x[:, None])
    matrix = _spread(following, turned, fitted._likely(x), grid, slopes)
    object.__setattr__(fitted, "transition", matrix)
    return fitted


def _fitted(logs: list[FloatArray], mean: float, trended: bool
            ) -> tuple[float, float, float, FloatArray, FloatArray]:
    """Fit smoothing, trend, reversion to the mean, and the forecast errors with their loads."""
    best: tuple[float, float, float, float, FloatArray, FloatArray] | None = None
    for smoothing in _SMOOTHINGS if trended else (0.5,):
        x = np.concatenate([log[1:-1] for log in logs])
        change = np.concatenate([np.diff(log)[1:] for log in logs])
        trend = np.concatenate([_trends_of(log, smoothing)[:-1] for log in logs])
        columns = np.stack([trend if trended else np.zeros_like(trend), mean - x], axis=1)
        # The ridge penalty keeps short traces from showing a trend that is only noise.
        scale = 1e-9 + 2.0 * float(np.var(change)) * np.eye(2)
        carried, reverting = np.linalg.solve(columns.T @ columns + scale, columns.T @ change)
        carried, reverting = float(np.clip(carried, 0, 1)), float(np.clip(reverting, 0, 0.9))
        errors = change - carried * trend - reverting * (mean - x)
        squares = float(errors @ errors)
        if best is None or squares < best[0]:
            best = squares, smoothing, carried, reverting, errors, x
    assert best is not None
    *_, smoothing, carried, reverting, errors, met_at = best
    kept = np.unique(np.linspace(0, len(errors) - 1, _MOST_ERRORS).astype(int))
    order = np.argsort(errors)[kept]
    return smoothing, carried, reverting, (errors - errors.mean())[order], met_at[order]


def _trends_of(x: FloatArray, smoothing: float) -> FloatArray:
    """Return the smoothed change at each interval from the second on."""
    trend, trends = 0.0, np.empty(max(len(x) - 1, 0))
    for at, change in enumerate(np.diff(x)):
        trend = (1.0 - smoothing) * trend + smoothing * change
        trends[at] = trend
    return trends


def _between(places: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the grid place below each value and the fraction of the way to the next."""
    if len(places) == 1:
        return np.zeros(values.shape, np.int64), np.zeros(values.shape)
    at = np.clip(np.searchsorted(places, values, side="right") - 1, 0, len(places) - 2)
    share = (values - places[at]) / (places[at + 1] - places[at])
    return at, np.clip(share, 0.0, 1.0)


def _spread(x: FloatArray, b: FloatArray, likely: FloatArray, levels: FloatArray,
            trends: FloatArray) -> FloatArray:
    """Return the transition matrix: successors (x, b) spread over the grid by linear weights."""
    states, number = x.shape
    matrix = np.zeros((states, len(levels), len(trends)))
    i, up = _between(levels, x)
    j, right = _between(trends, b)
    row = np.repeat(np.arange(states), number).reshape(x.shape)
    for di, weight_i in ((0, 1 - up), (1, up)):
        for dj, weight_j in ((0, 1 - right), (1, right)):
            if len(trends) == 1 and dj:
                continue
            np.add.at(matrix, (row, i + di, j + dj), weight_i * weight_j * likely)
    return matrix.reshape(states, states)


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
