"""Numbers in the text of tables and options, written as people and programs write them.

Python's own ``int`` and ``float`` also accept ``1_0`` and the digits of other scripts, which are
mistakes in a table. Standard library only.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

MS = {
    **dict.fromkeys(("ns", "nsec", "nanos", "nanosecond", "nanoseconds"), "0.000001"),
    **dict.fromkeys(("us", "usec", "usecs", "µs", "μs", "micros", "microsecond", "microseconds"),
                    "0.001"),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), "1"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "1000"),
}
"""Milliseconds in each unit of time below a minute, as texts, exact in decimal."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?", re.ASCII)
_SPECIAL = ("nan", "inf", "infinity")
_DURATION_MS = {**MS, **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "60000"),
                **dict.fromkeys(("h", "hr", "hour", "hours"), "3600000")}
_UNIT_OF_MS = {"0.000001": "ns", "0.001": "us", "1": "ms", "1000": "s", "60000": "min",
               "3600000": "h"}
# A unit that ends a heading, but for that of a rate such as requests_per_second.
_HEADING_UNIT = re.compile(
    r"(?<!per)(?:[\s_]+in)?[\s_]*[_(\[\s]("
    + "|".join(sorted(_DURATION_MS.keys() - {"m"}, key=len, reverse=True)) + r")[)\]]?$")
_YEAR_LAST = re.compile(r"\d\d?/\d\d?/\d{4},? ")  # ambiguous: day or month first
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_CLOCK = re.compile(r"(\d{1,6}):([0-5]\d):([0-5]\d(?:\.\d{1,12})?)", re.ASCII)
_PART = re.compile(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]{1,3})?|\.[0-9]+)\s*([a-zµμ]*)\s*", re.ASCII)


def whole_number(text: str) -> int:
    """Parse a whole number of at most 18 digits.

    >>> whole_number(" 12 ")
    12
    """
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def number_or_nan(text: str) -> float:
    """Parse a number as :func:`decimal_number` does; NaN where the text is no number."""
    try:
        return decimal_number(text)
    except ValueError:
        return math.nan


def decimal_number(text: str) -> float:
    """Parse a decimal number; ``nan`` and ``inf`` (in any letter case) are accepted, too.

    >>> decimal_number("1e3"), decimal_number(".5")
    (1000.0, 0.5)
    """
    text = text.strip()
    if text.lower().lstrip("+-") in _SPECIAL:
        return float(text)
    if len(text) > 400 or not _DECIMAL.fullmatch(text):
        raise ValueError(f"not a number: {text[:80]!r}")
    return float(text)


def heading_unit(heading: str) -> tuple[str, str]:
    """Split a heading, in lower case, into its name and the unit of time at its end.

    The unit is ``ns``, ``us``, ``ms``, ``s``, ``min`` or ``h``, or empty where none is stated.

    >>> heading_unit("Arrival [µs]"), heading_unit("latency_seconds"), heading_unit("ms")
    (('arrival', 'us'), ('latency', 's'), ('ms', ''))
    >>> heading_unit("requests_per_second")
    ('requests_per_second', '')
    """
    heading = heading.strip().lower()
    match = _HEADING_UNIT.search(heading)
    if match is None:
        return heading, ""
    return heading[:match.start()], _UNIT_OF_MS[_DURATION_MS[match[1]]]


def time_remedy(text: str) -> str:
    """Return how to write a date or number that is not read; empty where that is unknown."""
    if _YEAR_LAST.match(text):
        return ("the year first; where the month is, as by sed -E "
                r"'s#([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}),? #\3-\1-\2 #g'; where the day is, with "
                r"\3-\2-\1")
    if _DECIMAL_COMMA.fullmatch(text):
        return "decimals after a point; where no comma separates cells, as by sed 's/,/./g'"
    return ""


def duration_ms(text: str, unit: str = "") -> float:
    """Parse a duration and return it in ms.

    It is a number with a unit, several of them in a row as Go writes durations, or h:mm:ss.
    ``unit`` is that of a number without one; if empty, such a number is an error.

    >>> duration_ms("726ms"), duration_ms("432µs"), duration_ms("1m2.3s"), duration_ms("31", "us")
    (726.0, 0.432, 62300.0, 0.031)
    >>> duration_ms("0:01:02.5")
    62500.0
    """
    text = text.strip().lower()
    if clock := _CLOCK.fullmatch(text):  # hours, minutes and seconds, as 0:01:02.5
        hours, minutes, seconds = map(Decimal, clock.groups())
        return float(((hours * 60 + minutes) * 60 + seconds) * 1000)
    total, at = Decimal(0), 0
    while len(text) <= 80 and (part := _PART.match(text, at)):
        if not part[2] and (at or part.end() < len(text)):  # "1s 5" and "5 1s" are no durations
            break
        factor = _DURATION_MS.get(part[2] or unit)
        if factor is None:
            break
        total += Decimal(part[1]) * Decimal(factor)
        at = part.end()
    if not text or at < len(text) or math.isinf(total):
        raise ValueError(f"not a duration: {text[:80]!r}")
    return float(total)
