"""Load levels as far apart as the accuracy allows (EuroSys '24, §6).

The problem: between a lowest and a highest load, choose as few levels as possible so that the
expected accuracies a of neighbours differ by at most a step. From each level the next
one is the farthest load with |a(level) − a(load)| <= step, found by bisection on a lattice of
loads. Where a falls with the load, no set with fewer levels keeps the step, and none of the
levels could be left out. Where a jumps by more than the step between two loads of the lattice,
both are levels. It stops at the highest load.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache

from ramsis.errors import INNER, InvalidValueError

_FINENESS = 1000  # least number of steps of the lattice of loads


def adaptive_levels(
    accuracy_at: Callable[[float], float],
    lowest_qps: float,
    highest_qps: float,
    max_step: float,
) -> tuple[float, ...]:
    """Choose the fewest loads from ``lowest_qps`` to ``highest_qps``, both included.

    The accuracies of neighbours differ by at most ``max_step``, where the lattice allows it.

    Loads in between are ``lowest_qps`` plus multiples of a power of ten, the largest one that is
    at most a thousandth of the range.

    Parameters
    ----------
    accuracy_at : callable
        Expected accuracy at a load in requests per second; called about ten times for each level.
    max_step : float
        Largest difference between neighbours, in (0, 1).

    Examples
    --------
    >>> adaptive_levels(lambda load_qps: 1 - load_qps / 1000, 100, 500, 0.125)
    (100.0, 225.0, 350.0, 475.0, 500.0)
    """
    INNER.check("not an accuracy step", max_accuracy_step=max_step)
    lattice = _lattice(lowest_qps, highest_qps)
    accuracy = cache(lambda place: accuracy_at(lattice[place]))
    chosen = [0]
    while chosen[-1] < len(lattice) - 1:
        here = chosen[-1]

        def within(place: int, here: int = here) -> bool:
            return abs(accuracy(here) - accuracy(place)) <= max_step

        chosen.append(max(_farthest(within, here, len(lattice) - 1), here + 1))
    return tuple(lattice[place] for place in chosen)


def _lattice(lowest_qps: float, highest_qps: float) -> list[float]:
    """Return the loads to choose from, at round differences, free of binary rounding."""
    low, high = Decimal(repr(float(lowest_qps))), Decimal(repr(float(highest_qps)))
    if not 0 < low < high:
        raise InvalidValueError(
            "not a range of loads", where="load", value=f"{lowest_qps:g}:{highest_qps:g}",
            allowed="a lowest and a higher load > 0 for levels chosen by accuracy")
    spacing = Decimal(10) ** ((high - low) / _FINENESS).adjusted()
    inner = [low + i * spacing for i in range(int((high - low) / spacing) + 1)]
    return [float(load) for load in (inner if inner[-1] == high else [*inner, high])]


def _farthest(within: Callable[[int], bool], here: int, last: int) -> int:
    """Return by bisection the farthest place up to ``last`` that is within the step."""
    if within(last):
        return last
    while last - here > 1:
        middle = (here + last) // 2
        here, last = (middle, last) if within(middle) else (here, middle)
    return here
