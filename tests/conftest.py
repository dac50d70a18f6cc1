"""Shared fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

_REFERENCE = Path(__file__).resolve().parents[1].parent / "shared" / "reference"


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Folder of outside data to compare with; tests that need it skip when it is absent."""
    if not _REFERENCE.is_dir():
        pytest.skip("reference data are not on this machine")
    return _REFERENCE
