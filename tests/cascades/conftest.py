"""Shared fixtures."""

import pytest

from ramsis.profiles import ProfileSet
from tests.cascades.samples import profile_with_confidences


@pytest.fixture(scope="session")
def profile() -> ProfileSet:
    """The shipped profile with confidences on drawn samples."""
    return profile_with_confidences()
