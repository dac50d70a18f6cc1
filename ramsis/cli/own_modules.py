"""Arrival processes of the user's own, in modules of the current folder."""

from __future__ import annotations

import os
import sys

from ramsis.arrivals import KNOWN_PROCESSES

__all__ = ["see_own_modules"]

_BUILT_IN = {known.partition(":")[0] for known in KNOWN_PROCESSES}


def see_own_modules(word: str | None) -> None:
    """Let a process that the user names be imported from the current folder."""
    name, colon, _ = (word or "").partition(":")
    here = os.getcwd()
    if colon and name not in _BUILT_IN and here not in sys.path:
        sys.path.insert(0, here)
