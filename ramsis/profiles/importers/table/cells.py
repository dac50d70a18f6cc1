"""Numbers as people write them in tables: units in cells, thousands, decimal commas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from ramsis.numerals import decimal_number

MB = {"b": "0.000001", "bytes": "0.000001", "kb": "0.001", "kib": "0.001024", "mb": "1",
      "mib": "1.048576", "gb": "1000", "gib": "1073.741824"}
"""Megabytes in each unit of memory."""

_MISSING = {"", "-", "--", "–", "—", "na", "n/a", "n.a.", "#n/a", "nan", "none", "null", "oom",
            "error", "fail", "failed", "timeout", "?"}
_CELL = re.compile(r"([+-]?[0-9][0-9.,'’_ \u00a0\u202f\u2009]*(?:[eE][+-]?[0-9]{1,5})?"
                   r"|[+-]?[.,][0-9]+)\s*([%a-zA-Zµμ]*)")
_SPREAD = re.compile(r"\s*(?:±|\+/-|\+-)\s*[0-9.,]+")
_SPACES = re.compile(r"(?<=[0-9])['’_ \u00a0\u202f\u2009](?=[0-9]{3}(?![0-9]))")
_COMMA_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_POINT_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?")
_LONG_POINT_GROUPS = re.compile(r"[+-]?[0-9]{1,3}((\.[0-9]{3}){2,}|(\.[0-9]{3})+,[0-9]+)")


def is_missing(text: str) -> bool:
    """Return whether a cell marks a missing value."""
    return text.strip().lower() in _MISSING


def split_unit(text: str) -> tuple[str, str]:
    """Return the number of a cell as it is written, without a spread, and its unit.

    >>> split_unit("6,270.5 ms")
    ('6,270.5', 'ms')
    >>> split_unit("12.3 ± 0.4 ms")
    ('12.3', 'ms')
    """
    match = _CELL.fullmatch(_SPREAD.sub(" ", text, count=1).strip())
    return (match[1].strip(), match[2].lower()) if match else (text.strip(), "")


class DecimalMark:
    """Which of comma and point is the decimal mark of a table, by all of its numbers.

    Parameters
    ----------
    texts : iterable of str
        Cells of numbers.
    separator : str
        Between cells; where it is a semicolon, ``6,270`` has a decimal comma if nothing says
        otherwise, else the comma is of thousands.
    """

    def __init__(self, texts: Iterable[str], separator: str) -> None:
        numbers = [split_unit(text)[0] for text in texts]
        commas = [text for text in numbers if "," in text]
        decimal = [text for text in commas if not _COMMA_GROUPS.fullmatch(text)]
        points = any("." in text and not _LONG_POINT_GROUPS.fullmatch(text) for text in numbers)
        self.comma = bool(decimal) or (bool(commas) and separator == ";" and not points)

    def number(self, text: str, factor: str) -> float:
        """Return a number without its unit, times a factor, exact in decimal."""
        plain = _SPACES.sub("", text)
        groups = _POINT_GROUPS if self.comma else _COMMA_GROUPS
        if groups.fullmatch(plain):
            plain = plain.replace("." if self.comma else ",", "")
        if self.comma:
            if "." in plain and "," in text:
                raise ValueError(text)
            plain = plain.replace(",", ".")
        decimal_number(plain)  # stricter than Decimal about what a number is
        return float(Decimal(plain) * Decimal(factor))
