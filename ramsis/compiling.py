"""Compilation of kernels, kept from run to run where there is a place to keep it.

Numba keeps compiled code beside the source, or in the user's cache folder. Where neither can be
written (a read-only installation of a user without a home), kernels are compiled in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

__all__ = ["njit", "uniform"]

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


def uniform(arguments: T) -> T:
    """The same named tuple, each array in it contiguous and writable; copied where it is not.

    Numba compiles a kernel once more, for seconds, for arrays of another layout, and for arrays
    that are read-only.
    """
    return arguments._replace(**{
        name: np.require(value, requirements=("C", "W"))
        for name, value in arguments._asdict().items() if isinstance(value, np.ndarray)})
