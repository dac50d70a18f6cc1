"""Shared parts of the benchmarks, and the report that they end with."""

import os
from pathlib import Path

import pytest

from ramsis import profiles
from ramsis.profiles import LatencyTable
from ramsis.profiles.importers import import_profile
from tests.bench.cases import IMAGE_MODELS, latency_table, stand_in_profile
from tests.bench.ledger import Ledger

_LEDGER = pytest.StashKey[Ledger]()


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # as the conftest above sets it
        raise pytest.UsageError("benchmarks are of one core: set OPENBLAS_NUM_THREADS=1")
    config.stash[_LEDGER] = Ledger()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash[_LEDGER].lines
    if lines:
        terminalreporter.section("speed and memory, one core, medians")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(scope="session")
def ledger(pytestconfig: pytest.Config) -> Ledger:
    """Where figures are entered."""
    return pytestconfig.stash[_LEDGER]


@pytest.fixture(scope="session")
def profile_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine image models: measured ones where they are at hand, else made-up ones."""
    try:
        folder: Path = request.getfixturevalue("reference_dir")
    except pytest.skip.Exception:
        profile = stand_in_profile()
    else:
        profile = import_profile(folder / "ramsis_image_profiles.csv", models=IMAGE_MODELS)
    path = tmp_path_factory.mktemp("profile") / "nine.json"
    profiles.save(profile, path)
    return path


@pytest.fixture(scope="session")
def table(profile_file: Path) -> LatencyTable:
    """Their latency table."""
    return latency_table(profile_file)
