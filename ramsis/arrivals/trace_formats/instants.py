"""Parser of timestamps: ISO 8601 or numbers with a unit, one by one or by columns.

A regular column is parsed as a whole, any other line by line by the caller; both ways accept the
same texts and return the same numbers.

If a clock has whole seconds, all gaps are multiples of a second, and requests share seconds. Times
of a load test at a constant rate lie on a grid as well, but no requests share a point of it. So
two criteria decide: the greatest common divisor of the gaps, and whether about as many requests
share a tick as random arrivals would.

Within a tick only the order is known. The requests of a Poisson process are uniform order
statistics there, which :meth:`Clock.spread` draws with a fixed seed. If ticks hold nearly equal
numbers of requests, the rate was constant, and requests are spread evenly.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.logs.dates import ISO, is_iso, iso_text
from ramsis.numerals import number_or_nan, time_remedy

if TYPE_CHECKING:
    import pandas as pd

_US = 1000.0  # µs per ms; 1 µs is the finest resolution that is tested
_LONGEST_MS = 1e15
_FAR_MS = 1e14  # since 1970: beyond the year 5000
_LEAST_REQUESTS = 10
_AT_ONCE = 100_000  # times whose common divisor is taken at once
# Ticks of usual clocks in µs, longest first.
_USUAL_US = (3_600_000_000, 60_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10)
# The common divisor of fewer distinct gaps may be a multiple of the tick by chance (2⁻¹⁰ for ten).
_FEW_GAPS = 10
_FEW_SHARED = 0.25  # least number of requests that share ticks, relative to random arrivals
_EVEN = 0.3, 1e-3  # largest index of dispersion, and its largest p-value for a Poisson process
_NAMES = {0.001: "microsecond", 1.0: "millisecond", 1000.0: "second", 60_000.0: "minute",
          3_600_000.0: "hour"}

UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6}
"""Milliseconds in each unit that numbers may have."""

# Several lines of such texts, in years whose nanoseconds fit into 64 bits.
_REGULAR = re.compile(r"(?:(?:19|20|21)\d\d-\d\d-\d\d[T ]\d\d:\d\d:[0-5]\d(?:\.\d{1,9})?"
                      r"(?:\n|\Z))++", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_EPOCH_S = 1.2e9, 2.3e9  # the seconds since 1970 of January 2008 and of November 2042


def epoch_unit(text: str) -> str | None:
    """Return the unit by which a number is a Unix time in the years 2008 to 2042, or None.

    >>> [epoch_unit(text) for text in ("1714557600.5", "1714557600500", "17145")]
    ['s', 'ms', None]
    """
    low, high = _EPOCH_S
    value = number(text)
    return next((unit for unit in ("s", "ms", "us", "ns")
                 if low <= value * UNITS[unit] / 1000.0 < high), None)


def number(text: str) -> float:
    """Parse a finite number; return NaN for other texts."""
    value = number_or_nan(text)
    return value if math.isfinite(value) else math.nan


def floats(values: pd.Series) -> NDArray[np.float64] | None:
    """Convert texts to numbers as ``float`` does; None if one is not a number."""
    try:
        return values.to_numpy(dtype=object).astype(float)
    except ValueError:
        return None


class Instants:
    """Converter of timestamps of one kind to ms since the first, which decides the kind.

    ``unit`` is one of :data:`UNITS`, for numbers; ``where`` is the place of the first timestamp in
    the file, for messages.
    """

    def __init__(self, first: str, unit: str | None, where: str) -> None:
        first = iso_text(first)
        self.iso = is_iso(first)
        self._zoned = _zoned(first)
        matched = ISO.fullmatch(first)
        self._zone = (matched[3] or "") if matched else ""
        self._offset = 0  # ns by which texts read as UTC, without their zone, are too late
        self.factor, self._zero = UNITS["s"], 0.0
        if self.iso:
            try:
                self._origin = _iso(first, self._zoned)
                self._offset = _iso(first.removesuffix(self._zone), False) - self._origin
            # A date that does not exist is refused later, with its line.
            except ValueError:
                self._origin = 0
            return
        if math.isnan(number(first)):
            raise InputFileError(
                "not a timestamp", where=where, value=first, allowed=time_remedy(first)
                or "ISO 8601 as 2024-05-01T12:00:00.5, or a finite number")
        since = epoch_unit(first)
        if unit and since and number(first) * UNITS[unit] > _FAR_MS:
            raise InvalidValueError(f"times of our days in {since}, and of a far future in {unit}",
                                    where=where, value=first, allowed=f"--unit {since} or none, "
                                    "and no other unit in the heading")
        unit = unit or since
        if unit is None:
            raise InvalidValueError(
                "numbers need a unit", where=where, value=first,
                allowed="--unit with one of " + ", ".join(UNITS)
                + ", or a header that ends in it, as arrival_ms"
            )
        self.factor, self._zero = UNITS[unit], number(first)

    @property
    def is_local(self) -> bool:
        """Whether times are dates without a time zone."""
        return self.iso and not self._zoned

    def one(self, text: str) -> float:
        """Convert one text to milliseconds; NaN if it is of another kind."""
        if not self.iso:
            time_ms = (number(text) - self._zero) * self.factor
            return time_ms if abs(time_ms) <= _LONGEST_MS else math.nan
        text = iso_text(text)
        if not ISO.fullmatch(text) or _zoned(text) != self._zoned:
            return math.nan
        try:
            return (_iso(text, self._zoned) - self._origin) / 1e6
        except ValueError:
            return math.nan

    def numbers(self, values: list[Any]) -> NDArray[np.float64] | None:
        """Convert numbers to milliseconds; None if times are dates, or one is not finite."""
        if self.iso or str in set(map(type, values)):
            return None
        try:
            return self._scaled(np.array(values, dtype=float))
        except (OverflowError, ValueError):
            return None

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Scale numbers to milliseconds; None if a result is not finite, or ages away."""
        with np.errstate(over="ignore", invalid="ignore"):
            times = (numbers - self._zero) * self.factor
        return times if (np.abs(times) <= _LONGEST_MS).all() else None

    def column(self, values: pd.Series) -> NDArray[np.float64] | None:
        """Convert a column of texts to milliseconds; None if it must be read line by line."""
        if not self.iso:
            numbers = floats(values)
            return None if numbers is None else self._scaled(numbers)
        texts = values.tolist()
        if self._zone:
            if not all(text.endswith(self._zone) for text in texts):
                return None
            texts = [text[: -len(self._zone)] for text in texts]
        since = _since_1970_ns(texts)
        return None if since is None else (since - self._offset - self._origin) / 1e6


def _since_1970_ns(texts: list[str]) -> NDArray[np.int64] | None:
    """Return nanoseconds since 1970 of texts like ``2024-05-01 12:00:00.5``; else None."""
    import pandas as pd

    # pandas alone would also take 2024-5-01, a second of 60 and a point without a fraction.
    if not _REGULAR.fullmatch("\n".join(texts)):
        return None
    instants = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", errors="coerce")
    if instants.isna().any():
        return None
    return instants.to_numpy().astype("datetime64[ns]").astype(np.int64)


def _zoned(text: str) -> bool:
    """Return whether a text is in ISO 8601 and ends in a time zone."""
    matched = ISO.fullmatch(text)
    return bool(matched and matched[3])


def _iso(text: str, zoned: bool) -> int:
    """Return the nanoseconds since 1970 of an ISO 8601 text.

    If ``zoned``, the text must end in its time zone; else it is read as UTC.
    """
    matched = ISO.fullmatch(text)
    assert matched
    seconds, fraction, zone = matched.groups()
    instant = datetime.fromisoformat(seconds + (zone if zoned else "+00:00"))
    since = instant - _EPOCH
    nanoseconds = int(((fraction or "") + "0" * 9)[:9])
    return (since.days * 86_400 + since.seconds) * 10**9 + nanoseconds


@dataclass(frozen=True)
class Clock:
    """Clock of recorded times, coarser than 1 µs."""

    tick_ms: float  # resolution
    requests: int
    shared: int  # requests that come after another one in the same tick
    # whether ticks hold nearly equal numbers of requests, as at a constant rate
    even: bool = False

    @property
    def matters(self) -> bool:
        """Whether more than one request in a hundred shares its tick with one before it."""
        return self.shared > 0.01 * self.requests

    def spread(self, times_ms: FloatArray) -> FloatArray:
        """Return the times with the requests of each clock tick spread over the tick.

        They get equal distances if :attr:`even`, else uniform random times with a fixed seed.
        A recording starts and ends within a tick: the requests of the first and of the last one
        come as fast as those of the next one inwards, if there are fewer of them.
        ``times_ms`` are in any order, which is kept, each at the start of its tick.
        """
        if not (np.diff(times_ms) >= 0).all():
            order = np.argsort(times_ms, kind="stable")
            spread = np.empty(len(times_ms))
            spread[order] = self.spread(times_ms[order])
            return spread
        if self.even:
            _, first, count = np.unique(times_ms, return_index=True, return_counts=True)
            place = np.arange(len(times_ms)) - np.repeat(first, count)
            spread = (place + 0.5) / np.repeat(count, count)
        else:
            spread = np.random.default_rng(0).random(len(times_ms))
        self._shorten_ends(times_ms, spread)
        spread *= self.tick_ms
        spread += times_ms
        spread.sort()  # ticks do not overlap, so this sorts within each of them
        return spread

    def _shorten_ends(self, times_ms: FloatArray, place: FloatArray) -> None:
        """Place the requests of the first and the last tick in its recorded part only.

        Over the whole tick they would look like a lower load, and a steady load like bursts.
        ``place`` is the place of each request within its tick, as a share of the tick.
        """
        half = 0.5 * self.tick_ms

        def first_after(time_ms: float) -> int:
            return int(np.searchsorted(times_ms, time_ms))

        start, end = float(times_ms[0]), float(times_ms[-1])
        if end - start < 1.5 * self.tick_ms:  # no tick in between
            return
        count, last = first_after(start + half), first_after(end - half)
        next_inwards = first_after(start + 3.0 * half) - count
        if count < next_inwards:
            place[:count] = 1.0 - (1.0 - place[:count]) * count / next_inwards
        count, next_inwards = len(times_ms) - last, last - first_after(end - 3.0 * half)
        if count < next_inwards:
            place[last:] *= count / next_inwards

    def words(self) -> str:
        """Return the resolution of the times in words, for messages."""
        name = _NAMES.get(self.tick_ms)
        length = f"{self.tick_ms / 1000.0:g} s" if self.tick_ms >= 1000 else f"{self.tick_ms:g} ms"
        resolution = f"whole {name}s" if name else f"steps of {length}"
        length = f"1 {name}" if name in ("minute", "hour") else length
        how = "spread evenly within" if self.even else "spread within"
        return (f"timestamps have {resolution}: {self.requests} requests {how} their "
                f"{name or 'step'}; bursts shorter than {length} cannot be seen")


def clock_of(times_ms: FloatArray) -> Clock | None:
    """Detect the clock of recorded times; None if none coarser than 1 µs is found.

    ``times_ms`` are finite and in any order; times since any tick of the clock.
    """
    if len(times_ms) < _LEAST_REQUESTS:
        return None
    gaps, times = np.diff(times_ms), times_ms
    if not (gaps >= 0).all():
        times = np.sort(times_ms)
        gaps = np.diff(times)
    if not 0.0 < times[-1] - times[0] < _LONGEST_MS:
        return None
    tick_us = _divisor_us(times)
    if int((gaps > 0).sum()) < _FEW_GAPS:
        tick_us = next((usual for usual in _USUAL_US if tick_us % usual == 0), tick_us)
    if tick_us <= 1:
        return None
    tick_ms = tick_us / _US
    shared = int((gaps < 0.5 * tick_ms).sum())
    ticks = float(times[-1] - times[0]) / tick_ms + 1.0
    # Of n random arrivals in m ticks about n − m·(1 − e^(−n/m)) share a tick with one before.
    at_random = len(times) + ticks * math.expm1(-len(times) / ticks)
    if shared == 0 or shared < _FEW_SHARED * at_random:
        return None
    return Clock(tick_ms, len(times), shared, _is_even(times, tick_ms, ticks))


def _divisor_us(times: FloatArray) -> int:
    """Return the greatest common divisor of times since the first, in µs."""
    divisor = 0
    for start in range(0, len(times), _AT_ONCE):
        since = np.rint((times[start:start + _AT_ONCE] - times[0]) * _US).astype(np.int64)
        divisor = math.gcd(divisor, int(np.gcd.reduce(since)))
        if divisor == 1:
            break
    return divisor


def _is_even(times: FloatArray, tick_ms: float, ticks: float) -> bool:
    """Return whether counts in inner ticks vary far less than those of a Poisson process."""
    if ticks > 4 * len(times):
        return False
    tick = np.rint((times - times[0]) / tick_ms).astype(np.int32)
    counts = np.bincount(tick)[1:-1]
    if len(counts) < 3 or counts.mean() < 1.0:
        return False
    from scipy.stats import chi2  # which takes long to load

    dispersion = float(counts.var(ddof=1) / counts.mean())
    return dispersion < _EVEN[0] and bool(
        chi2.cdf(dispersion * (len(counts) - 1), len(counts) - 1) < _EVEN[1])
