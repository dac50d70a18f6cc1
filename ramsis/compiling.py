"""Compilation of kernels, kept from run to run where there is a place to keep it.

Numba keeps compiled code beside the source, or in the user's cache folder. Where neither can be
written (a read-only installation of a user without a home), kernels are compiled in each process.
That takes half a minute for a policy, so the first compilation of a process is logged (INFO).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

__all__ = ["dot", "index", "njit", "uniform"]

index = np.uint64
"""Of an array, in a compiled loop: the sign of an unsigned one is not looked at each time."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=NamedTuple)


def njit(**options: Any) -> Callable[[F], F]:
    """As :func:`numba.njit` with options; ``cache`` is a wish."""
    def compiled(function: F) -> F:
        try:
            return numba.njit(**options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # no place for a cache
            return numba.njit(**{**options, "cache": False})(function)  # type: ignore[no-any-return]

    return compiled


@njit(cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator,unused-ignore]
def dot(one: NDArray[np.float64], other: NDArray[np.float64], first: int, stop: int) -> float:
    """Σ one(i)·other(i) over 0 <= first <= i < stop, in any order."""
    total = 0.0
    for i in range(index(first), index(stop)):
        total += one[i] * other[i]
    return total


def uniform(arguments: T) -> T:
    """The same named tuple, each array in it contiguous and writable; copied where it is not.

    Numba compiles a kernel once more, for seconds, for arrays of another layout, and for arrays
    that are read-only.
    """
    return arguments._replace(**{
        name: np.require(value, requirements=("C", "W"))
        for name, value in arguments._asdict().items() if isinstance(value, np.ndarray)})


class _FirstCompilation(event.Listener):  # type: ignore[misc,unused-ignore]
    """Logs that kernels are compiled, once."""

    def __init__(self) -> None:
        self.logged = False

    def on_start(self, event: Any) -> None:
        if not self.logged:
            self.logged = True
            logging.getLogger(__name__).info(
                "compiling, which takes up to a minute and is kept for the next time")

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _FirstCompilation())  # type: ignore[no-untyped-call,unused-ignore]
