"""Arrival processes of the user's own, in modules of the current folder."""

from __future__ import annotations

import os
import sys

__all__ = ["see_own_modules"]


def see_own_modules(word: str) -> None:
    """Let a process that the user names be imported from the current folder."""
    from ramsis.arrivals import SHIPPED  # here, as it takes long to load

    name, colon, _ = word.partition(":")
    here = os.getcwd()
    if colon and name not in SHIPPED and here not in sys.path:
        sys.path.insert(0, here)
