"""Search for the smallest number, of workers or of units of memory, that is enough."""

from __future__ import annotations

from collections.abc import Callable

SPAN = 10
"""Largest number tried, as a multiple of the bound's (and of 10 at least for workers)."""
_STRIDES = 50


def smallest(
    enough: Callable[[int], bool], lowest: int, highest: int, *, rising: bool = True
) -> int | None:
    """Return a number that is enough, the smallest if ``rising``; None if the highest is not.

    Parameters
    ----------
    enough : callable
        Called once for a number, which may take long.
    rising : bool
        Whether more than enough is always enough. If so, steps double from the lowest number on,
        then the last step is bisected. If not, the highest number is tried first, then all from
        the lowest on; from 100 on in strides of 1/50 of the lowest, then one by one, so that a
        smaller one between strides may be missed.
    """
    if not rising:
        if not enough(highest):
            return None
        stride = max(1, lowest // _STRIDES)
        reached = next((k for k in range(lowest, highest, stride) if enough(k)), highest)
        return next((k for k in range(max(lowest, reached - stride + 1), reached) if enough(k)),
                    reached)
    missed, tried, step = lowest - 1, lowest, 1
    while not enough(tried):
        if tried == highest:
            return None
        missed, tried, step = tried, min(tried + step, highest), 2 * step
    while tried - missed > 1:
        middle = (missed + tried) // 2
        missed, tried = (missed, middle) if enough(middle) else (middle, tried)
    return tried
