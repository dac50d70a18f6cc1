"""Damaged logs are read or refused in one line, in bounded time; ``make fuzz`` tries more."""

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ramsis.arrivals.reading import read_any_trace
from ramsis.audit.request_log import LogFormat, read_request_log
from ramsis.errors import InputFileError, RamsisError
from ramsis.profiles.importers import import_profile
from ramsis.profiles.importers.runs import Given
from tests.fuzz.mutate import mutated
from tests.logs import samples

_TEXTS = {**{name: layout.text() for name, layout in samples.LAYOUTS.items()},
          **samples.SUMMARIES, "history": samples.LOCUST_HISTORY,
          "metrics": samples.TORCHSERVE_METRICS}
_SLOWEST_S = 10.0
READERS: tuple[Callable[[Path], object], ...] = (
    lambda path: read_request_log(path, LogFormat(slo_ms=100.0)), read_any_trace,
    lambda path: import_profile(path, given=Given(batch={"*": 1}), accuracy={}))


def examine(path: Path, content: bytes, seed: int) -> None:
    """Damage a file and read it by each reader."""
    rng = random.Random(seed)
    path.write_bytes(mutated(content, rng.choice(("csv", "lines", "bytes")), rng))
    for reader in READERS:
        begin = time.process_time()
        with contextlib.suppress(RamsisError):
            reader(path)
        assert time.process_time() - begin < _SLOWEST_S


@pytest.mark.parametrize("name", _TEXTS)
def test_damaged_logs(tmp_path, name):
    examine(tmp_path / "some.log", _TEXTS[name].encode()[:8000], len(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", _TEXTS)
def test_more_damaged_logs(tmp_path, name):
    for seed in range(40):
        examine(tmp_path / "some.log", _TEXTS[name].encode(), 1000 + seed)


@pytest.mark.slow
def test_damaged_files_of_the_field(reference_dir, tmp_path):
    folder = reference_dir / "field"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    for file in sorted(folder.glob("c*")):
        for seed in range(8):
            examine(tmp_path / file.name, file.read_bytes()[:40_000], seed)


@pytest.mark.parametrize(("text", "says"), [
    (samples.LOCUST_HISTORY.replace("1772366411", "x"), "not a time and a load"),
    (samples.LOCUST_HISTORY.replace("Name", "Call", 1), "no such columns"),
    ("timestamp,a\n2026-01-01T00:00:00Z," + "x" * 200_000 + "\n", "cannot read"),
    ("x" * 200_000 + ",b\n1,2\n", "cannot read"),
])
def test_damaged_traces_are_refused(tmp_path, text, says):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputFileError, match=says):
        read_any_trace(path)


def test_locusts_history_may_have_semicolons(tmp_path):
    (tmp_path / "a.csv").write_text(samples.LOCUST_HISTORY)
    (tmp_path / "b.csv").write_text(samples.LOCUST_HISTORY.replace(",", ";"))
    one, other = (read_any_trace(tmp_path / name).workload for name in ("a.csv", "b.csv"))
    assert one.load_qps == other.load_qps == pytest.approx(50.0 + 779 / 40)


def test_times_beyond_all_calendars_are_refused(tmp_path):
    path = tmp_path / "oha.csv"
    path.write_text("request-start,DNS,DNS+dialup,request-duration,bytes,status\n"
                    + "".join(f"{0.05 * i:.6f},0,0,0.02,11,200\n" for i in range(20))
                    + "1e305,0,0,1e30,11,200\n")
    with pytest.raises(InputFileError, match="line 22: duration: not a duration: got '1e30'"):
        import_profile(path, given=Given(batch={"*": 1}), accuracy={"oha": 0.9})
