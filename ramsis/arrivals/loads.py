"""Parser of load levels: ``400``, ``400,800`` or ``400:4000:400``."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from ramsis.errors import POSITIVE, InvalidValueError

MAX_LEVELS = 10_000
"""Most load levels that one range may ask for."""

_ALLOWED = "a number, a list 400,800 or a range from:to:step with both ends, in queries/s > 0"


def parse_loads(text: str) -> tuple[float, ...]:
    """Parse load levels in requests per second into a sorted tuple without duplicates.

    They are numbers, or ranges ``from:to:step`` that include both ends, separated by commas.

    >>> parse_loads("400:1600:400,2000")
    (400.0, 800.0, 1200.0, 1600.0, 2000.0)

    Raises
    ------
    InvalidValueError
        Not of that form, or a load that is not finite and > 0.
    """
    levels = {level for part in text.split(",") for level in _part(part.strip(), text)}
    return tuple(sorted(levels))


def _part(part: str, text: str) -> list[float]:
    """Parse ``LOAD`` or ``START:STOP:STEP`` in requests per second to a list of loads."""
    try:
        # Decimal arithmetic, so that 0.1:0.5:0.1 ends at exactly 0.5.
        numbers = [Decimal(number) for number in part.split(":")]
    except InvalidOperation:
        numbers = []
    if len(numbers) not in (1, 3) or not all(
            number.is_finite() and POSITIVE.holds(float(number)) for number in numbers):
        raise InvalidValueError("not a load", where="load", value=text, allowed=_ALLOWED)
    if len(numbers) == 1:
        return [float(numbers[0])]
    start, stop, step = numbers
    steps = (stop - start) / step
    if steps < 0 or steps != int(steps) or steps >= MAX_LEVELS:
        raise InvalidValueError(
            "the range does not end on its last level", where="load", value=part,
            allowed=f"from <= to, a whole number of steps, at most {MAX_LEVELS} levels")
    return [float(start + i * step) for i in range(int(steps) + 1)]
