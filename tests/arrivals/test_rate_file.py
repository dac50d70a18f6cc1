"""Reading rate traces."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from ramsis.arrivals.load_table import is_rate_trace, read_rates, shipped_traces
from ramsis.errors import InputFileError, InvalidValueError

ROOT = Path(__file__).resolve().parents[2]


def write(folder: Path, text: str, name: str = "trace.txt") -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_of_seconds_and_load(tmp_path, name):
    trace = read_rates(write(tmp_path, "# made up\n10 100\n\n11 200 # more\n13,50\n", name))
    assert trace.start_ms.tolist() == [0.0, 1000.0, 3000.0]
    assert trace.rate_qps.tolist() == [100.0, 200.0, 50.0]
    assert trace.duration_ms == 5000.0


def test_times_in_another_unit(tmp_path):
    path = write(tmp_path, "0 100\n500 200\n")
    assert read_rates(path, unit="ms").duration_ms == 1000.0
    assert read_rates(path, unit="min").duration_ms == 1000 * 60_000.0
    with pytest.raises(InvalidValueError, match="unknown unit of time"):
        read_rates(path, unit="fortnight")


@pytest.mark.parametrize(("text", "rates"), [
    ("0 5\n", True), ("# x\n0,5\n", True), ("a,1,2,3\nx,5,5,5\n", True), ("12.5\n13\n", False),
    ("", False), ("time_s,size\n1,2\n", False), ("2024-01-01 00:00:00\n", False)
])
def test_rate_traces_are_told_from_recorded_arrivals(tmp_path, text, rates):
    assert is_rate_trace(write(tmp_path, text)) == rates
    assert is_rate_trace("day")


def test_minute_bins_are_added_up_over_functions(tmp_path):
    text = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\na,b,c,http,60,0,6\nd,e,f,timer,0,120,6\n"
    trace = read_rates(write(tmp_path, text, "azure.csv"))
    assert trace.start_ms.tolist() == [0.0, 60_000.0, 120_000.0]
    assert trace.rate_qps.tolist() == [1.0, 2.0, 0.2]
    assert trace.duration_ms == 180_000.0


@pytest.mark.parametrize(("text", "words"), [
    ("", "empty trace"),
    ("# nothing\n", "empty trace"),
    ("0 5\n2 5\n1 5\n", "line 3: time goes back"),
    ("0 5\n0 5\n", "line 2: time goes back"),
    ("0 5\n1 -5\n", "line 2: rate is not a load"),
    ("0 5\n1 nan\n", "line 2: rate is not a load"),
    ("0 5\n1 inf\n", "line 2: rate is not a load"),
    ("nan 5\n", "line 1: not a time and a load"),
    ("inf 5\n1 1\n", "line 2: time goes back"),
    ("0 5\n1\n", "line 2: not a time and a load"),
    ("0 5 7\n", "line 1: not a time and a load"),
    ("0 0\n1 0\n", "empty trace"),
    ("x,1,2,3\na,5,-1,3\n", "line 2, minute 2: not a count"),
    ("x,1,2,3\na,5\n", "line 2, minute 2: not a count"),
    ("x,1,2,3\n", "empty trace"),
])
def test_bad_traces_are_refused_by_line(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(InputFileError, match=words) as refused:
        read_rates(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"cannot read.*one of: day"):
        read_rates(tmp_path / "none.txt")
    with pytest.raises(InputFileError, match="cannot read"):
        read_rates(tmp_path)
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(InputFileError, match="cannot read"):
        read_rates(broken)


def test_the_shipped_spikes_are_a_minute_of_1000_on_average():
    spikes = read_rates("spikes")
    assert spikes.duration_ms == 60_000.0
    assert spikes.load_qps == pytest.approx(1000.0)
    assert set(spikes.rate_qps) == {800.0, 1800.0}


def test_the_shipped_day_is_what_its_script_makes():
    made = subprocess.run([sys.executable, str(ROOT / "scripts/make_day.py")], check=True,
                          capture_output=True, text=True)
    assert made.stdout == shipped_traces()["day"].read_text(encoding="utf-8")
