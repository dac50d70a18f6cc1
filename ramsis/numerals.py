"""Numbers in the text of tables and options, written as people and programs write them.

Python's own ``int`` and ``float`` also take ``1_0`` and the digits of other scripts, which in a
table are slips. Standard library only.
"""

from __future__ import annotations

import math
import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?", re.ASCII)
_SPECIAL = ("nan", "inf", "infinity")


def whole_number(text: str) -> int:
    """A whole number of at most 18 digits.

    >>> whole_number(" 12 ")
    12
    """
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def number_or_nan(text: str) -> float:
    """As :func:`decimal_number`; NaN where the text is no number."""
    try:
        return decimal_number(text)
    except ValueError:
        return math.nan


def decimal_number(text: str) -> float:
    """A number; ``nan`` and ``inf`` in any case are numbers, which the caller may refuse.

    >>> decimal_number("1e3"), decimal_number(".5")
    (1000.0, 0.5)
    """
    text = text.strip()
    if text.lower().lstrip("+-") in _SPECIAL:
        return float(text)
    if len(text) > 400 or not _DECIMAL.fullmatch(text):
        raise ValueError(f"not a number: {text[:80]!r}")
    return float(text)
