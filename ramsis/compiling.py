"""Compilation of kernels, kept from run to run where there is a place to keep it.

Numba keeps compiled code beside the source, or in the user's cache folder. Where neither can be
written (a read-only installation of a user without a home), kernels are compiled in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

__all__ = ["njit"]


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As :func:`numba.njit` with options; ``cache`` is a wish."""
    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError:  # no place for a cache
            return numba.njit(**{**options, "cache": False})(function)

    return compiled
