"""Shared fixtures."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

# The matrices are small: threads of the linear algebra cost more than they bring, above all where
# several tests run at once. As in the command line, they are set before NumPy is loaded.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from ramsis.profiles import ProfileSet, save  # noqa: E402
from tests.cli.command import Run, runner  # noqa: E402
from tests.synthesis.samples import tiny_profile  # noqa: E402

# What a shell starts in the background ignores Ctrl-C, and would hand that on to the programs that
# tests start and interrupt.
if (threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.SIG_IGN):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are bounded in number, not in time: the machine may be busy.
settings.register_profile("ramsis", deadline=None)
settings.load_profile("ramsis")

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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process: ``run("bound", ...)`` → code, out, err."""
    return runner(capsys)
