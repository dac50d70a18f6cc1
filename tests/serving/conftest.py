"""Shared fixtures of the tests of serving."""

import pytest


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load generator sends the first request with hardly a pause."""
    from ramsis.serving.load import run  # the extra may be missing

    monkeypatch.setattr(run, "_LEAD_S", 0.02)
