"""Profiles of models that share a GPU."""

import pytest

from ramsis.studies.sharing.gpu.profile import read_sharing_profile


@pytest.fixture(scope="session")
def v100():
    return read_sharing_profile("v100")
