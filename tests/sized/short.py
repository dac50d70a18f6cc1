"""Searches for the rule of policies for requests with a size that are short enough for tests."""

import pytest

from ramsis.sized import policy, search


def short_search(patched: pytest.MonkeyPatch) -> None:
    """Search from one start for one generation; measure and bound the promise by few requests."""
    patched.setattr(search, "REQUESTS", 2000)
    patched.setattr(search, "_GENERATIONS", 1)
    patched.setattr(search, "_STARTS", search._STARTS[:1])
    patched.setattr(policy, "REQUESTS", 4000)
    patched.setattr(policy, "_BOUND", {"stretches": 2, "refined": 2, "requests": 300})
