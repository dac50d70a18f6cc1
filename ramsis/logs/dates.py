"""Dates and times as programs write them, as ISO 8601."""

from __future__ import annotations

import re

ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d(?::?\d\d)?)?")
"""Pattern of a date and time in ISO 8601: until the second, fraction and zone."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<clock>\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?)"
_HALF = r" (?P<half>[AaPp])[Mm]"
# Go writes the name of the zone behind its offset.
_ZONE = r" ?(?:(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)(?: [A-Z]{3,4})?)?"
_DATES = (*(re.compile(date + _CLOCK + f"(?:{_HALF})?" + _ZONE) for date in (
    r"(?P<year>\d{4})(?P<mark>[-/])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)[T ]",
    r"(?P<month>[A-Za-z]{3,9}) (?P<day>\d{1,2}), (?P<year>\d{4}),?(?: @)? ",
    r"\[?(?P<day>\d\d)/(?P<month>[A-Za-z]{3})/(?P<year>\d{4}):",
    r"(?:[A-Za-z]{3}, )?(?P<day>\d{1,2}) (?P<month>[A-Za-z]{3}) (?P<year>\d{4}) ",
    r"(?P<day>\d\d)\.(?P<month>\d\d)\.(?P<year>\d{4}),? ")),
    # With slashes and the year last, the month is first where AM and PM are in upper case, as in
    # the United States; where browsers write am and pm (Australia, India), the day is.
    re.compile(r"(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4}),? " + _CLOCK
               + " (?P<half>[AP])M" + _ZONE))
_LONGEST_DATE = 60


def iso_text(text: str) -> str:
    """Convert a date and time in other unambiguous forms to ISO 8601; keep other texts.

    >>> [iso_text(text) for text in ("2026/05/06 07:00:00", "May 6, 2026 @ 07:00:00.250",
    ...                              "06/May/2026:07:00:00 +0200", "5/6/2026 7:00:00 PM")]
    ['2026-05-06T07:00:00', '2026-05-06T07:00:00.250', '2026-05-06T07:00:00+0200', \
'2026-05-06T19:00:00']
    """
    if len(text) > _LONGEST_DATE or ISO.fullmatch(text):
        return text
    match = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if match is None:
        return text
    month = match["month"].lower()[:3]
    if month.isalpha():
        if month not in _MONTHS:
            return text
        month = str(_MONTHS.index(month) + 1)
    hour, _, clock = match["clock"].partition(":")
    if match["half"]:
        if not 1 <= int(hour) <= 12:
            return text
        hour = str(int(hour) % 12 + 12 * (match["half"] in "Pp"))
    clock = clock if ":" in clock else clock + ":00"
    zone = "Z" if match["zone"] in ("UTC", "GMT") else match["zone"] or ""
    return (f"{match['year']}-{int(month):02d}-{int(match['day']):02d}"
            f"T{int(hour):02d}:{clock}{zone}")


def is_iso(text: str) -> bool:
    """Return whether a text is a date and time in a form that :func:`iso_text` accepts."""
    return ISO.fullmatch(iso_text(text)) is not None


def leading_time(text: str) -> str:
    """Return the date and time at the start of a line, or an empty text.

    >>> leading_time("2024-05-01 12:00:00,250 INFO done")
    '2024-05-01 12:00:00,250'
    """
    match = ISO.match(text)
    return match[0] if match else ""


def may_be_winter_time(back_s: float) -> bool:
    """Return whether a time without a zone may go back by ``back_s`` as a clock does in autumn.

    Clocks go back by an hour, and the next request follows within ten minutes.
    """
    return 3000.0 <= back_s <= 3600.0
