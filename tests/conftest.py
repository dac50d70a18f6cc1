"""Shared fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from ramsis.profiles import ProfileSet, save
from tests.synthesis.samples import tiny_profile

_REFERENCE = Path(__file__).resolve().parents[1].parent / "shared" / "reference"


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Folder of outside data to compare with; tests that need it skip when it is absent."""
    if not _REFERENCE.is_dir():
        pytest.skip("reference data are not on this machine")
    return _REFERENCE


@pytest.fixture(scope="session")
def tiny() -> ProfileSet:
    """Three models whose policies take milliseconds to make."""
    return tiny_profile()


@pytest.fixture(scope="session")
def tiny_file(tiny: ProfileSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a profile file; not to be written to."""
    path = tmp_path_factory.mktemp("profiles") / "tiny.json"
    save(tiny, path)
    return path
