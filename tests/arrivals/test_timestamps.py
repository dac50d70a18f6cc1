"""Traces as they come, and the line that a bad one is refused for."""

import gzip
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace_formats.files import watched
from ramsis.errors import InputFileError, InvalidValueError


def trace(folder: Path, text: str, name: str = "trace.csv") -> Path:
    """A file with this text, compressed where its name says so."""
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(("text", "options", "times"), [
    ("10\n12.5\n12.5\n", {"unit": "s"}, [0.0, 2500.0, 2500.0]),
    ("10\n\n12\n\n", {"unit": "ms"}, [0.0, 2.0]),
    ("arrival_ms\n5\n6\n", {}, [0.0, 1.0]),
    ("time_s,tokens\n1,9\n1.5,9\n", {}, [0.0, 500.0]),
    ("id;when;size\na;1e9;3\nb;3e9;4\n", {"time_column": "when", "unit": "ns"}, [0.0, 2000.0]),
    ("t\tx\n1\t2\n2\t2\n", {"unit": "min"}, [0.0, 60_000.0]),
    ("TIMESTAMP,a\n2023-11-16 18:17:03.9799600,1\n2023-11-16 18:17:04.0319601,2\n", {},
     [0.0, 52.0001]),
    ("2024-02-28T23:59:59Z\n2024-02-29T01:00:00.5+01:00\n", {}, [0.0, 1500.0]),
    ("\ufefftime_us\n7\n9\n", {}, [0.0, 0.002]),
    ("1700000000.25\r\n1700000000.5\r\n", {"unit": "s"}, [0.0, 250.0]),
    ("-3\n-1\n", {"unit": "h"}, [0.0, 7.2e6]),
    ("Arrival (seconds)\n1\n2\n", {}, [0.0, 1000.0]),
    ("ts_micros\n1\n2\n", {}, [0.0, 1e-3]),
    ("start [µs]\n1\n2\n", {}, [0.0, 1e-3]),
    ("t\n2024-05-01 10:00:00.5+00\n2024-05-01 12:00:01.5+02\n", {}, [0.0, 1000.0]),
    ("t\n2024-05-01 10:00:00 +0000 UTC\n2024-05-01 12:00:01 +0200 CEST\n", {}, [0.0, 1000.0]),
    ("t\n01.05.2024 09:00:00,5\n01.05.2024 10:00:00,75\n", {}, [0.0, 3_600_250.0]),
    ("t\n5/1/2024 11:59:59.5 AM\n5/1/2024 12:00:00 PM\n5/2/2024 12:00:00 AM\n", {},
     [0.0, 500.0, 43_200_500.0]),
    ('t\n"Wed, 01 May 2024 10:00:00 GMT"\n"Wed, 01 May 2024 10:00:02 GMT"\n', {}, [0.0, 2000.0]),
])
def test_times_are_milliseconds_since_the_first(tmp_path, text, options, times):
    for name in ("trace.csv", "trace.txt.gz"):
        found = read_timestamps(trace(tmp_path, text, name), **options)
        np.testing.assert_allclose(found, times, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("text", "says"), [
    ("", "no timestamps"),
    ("\n\n", "no timestamps"),
    ("time_ms\n", "no timestamps"),
    ("1\n2\n1.5\n", "line 3: timestamp goes back in time: got '1.5'.*sort the lines"),
    ("2024-10-27 02:59:59\n2024-10-27 02:00:03\n", "line 2: timestamp goes back.*time zone"),
    ("2024-10-27 02:59:59Z\n2024-10-27 02:00:03Z\n", "line 2: timestamp goes back.*sort the"),
    ("1\n1e300\n2\n", "line 2: not a timestamp of the same kind.*got '1e300'"),
    ("time\n1,5\n2,5\n", "line 2: not a timestamp: got '1,5'.*decimals after a point"),
    ("time;id\n1,5;1\n2,5;2\n", "line 2: not a timestamp: got '1,5'.*decimals after a point"),
    ("time,id\n1,5,a\n2,5,b\n", "line 2: more cells than the header has.*allowed: 2, and dec"),
    ("time,id\n1,a\n2,5,b\n", "line 3: more cells than the header has"),
    ("t\n2024-05-01 10:00:00 CET\n", "line 2: not a timestamp"),
    ("5/1/2024 13:00:00 PM\n", "line 1: not a timestamp"),
    # Day first where pm is in lower case, as browsers write in Australia and India.
    ("time\n1/5/2026 11:59:59 pm\n2/5/2026 12:00:00 am\n", "line 2: not a timestamp.*year first"),
    ('time,id\n"1,5",3\n', "decimals after a point; where no comma separates cells, as by sed"),
    ("gap_ms\n5\n3\n", "line 1: times between requests, not of requests.*awk"),
    ("1\nnan\n", "line 2: not a timestamp of the same kind.*got 'nan'"),
    ("nan\n1\n", "line 1: not a timestamp: got 'nan'"),
    ("1\ninf\n", "line 2: not a timestamp"),
    ("1\n2024-01-01 00:00:00\n", "line 2: not a timestamp of the same kind"),
    ("2024-01-01 00:00:00\n5\n", "line 2: not a timestamp of the same kind"),
    ("2024-01-01 00:00:00\n2024-01-01 00:00:01Z\n", "line 2: not a timestamp of the same kind"),
    ("2024-01-01 00:00:00\n2024-13-01 00:00:00\n", "line 2: not a timestamp of the same kind"),
    ("2024-13-01 00:00:00\n", "line 1: not a timestamp"),
    ("1\n12ms\n", "line 2: not a timestamp of the same kind"),
    ("time_ms,b\n1,2\n\n,3\n", "line 4: not a timestamp of the same kind.*got ''"),
    ("a,time_ms\n1,2\n3\n", "line 3: line has no time column"),
    ("1,2\n3,4\n", "line 1: several columns and no header"),
    ("a,b\n3,4\n", "line 1: cannot tell which column.*got 'a, b'"),
    ("time,ts\n3,4\n", "line 1: cannot tell which column"),
])
def test_a_bad_trace_is_refused_for_its_first_bad_line(tmp_path, text, says):
    with pytest.raises(InputFileError, match=says) as caught:
        read_timestamps(trace(tmp_path, text), unit="ms")
    assert "trace.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_numbers_without_a_unit_are_not_guessed(tmp_path):
    with pytest.raises(InvalidValueError, match=r"line 2: numbers need a unit.*--unit"):
        read_timestamps(trace(tmp_path, "time\n1\n2\n"))
    with pytest.raises(InvalidValueError, match="unknown unit of time: got 'days'"):
        read_timestamps(trace(tmp_path, "1\n2\n"), unit="days")


def test_a_unit_besides_that_of_the_column_is_refused(tmp_path):
    path = trace(tmp_path, "arrival_ms,id\n1,a\n2,b\n")
    assert read_timestamps(path, unit="ms").tolist() == [0.0, 1.0]
    with pytest.raises(InvalidValueError, match=r"--unit: the column arrival_ms states another "
                                                r"unit, ms: got 's'; allowed: ms, or no --unit"):
        read_timestamps(path, unit="s")
    path = trace(tmp_path, "1714557600500\n1714557600600\n")
    assert read_timestamps(path, unit="ns").tolist() == pytest.approx([0.0, 1e-4])  # of a counter
    with pytest.raises(InvalidValueError, match=r"line 1: times of our days in ms, and of a far fu"
                                                r"ture in s.*allowed: --unit ms or none"):
        read_timestamps(path, unit="s")
    path = trace(tmp_path, "time_s\n1714557600500\n1714557600600\n")
    with pytest.raises(InvalidValueError, match="and no other unit in the heading"):
        read_timestamps(path)


def test_a_table_of_counts_is_not_taken_for_requests(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time_s,requests\n0,93\n10,87\n")
    with pytest.raises(InputFileError, match=r"line 1: a table of counts.*got 'requests'"):
        read_timestamps(path)
    assert read_timestamps(path, time_column="time_s").tolist() == [0.0, 10_000.0]


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(InputFileError, match=r"no such column: got 'c'; allowed: a, b"):
        read_timestamps(trace(tmp_path, "a,b\n1,2\n"), time_column="c", unit="s")


@pytest.mark.parametrize("name", ["missing.csv", "plain.csv.gz", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name):
    (tmp_path / "plain.csv.gz").write_text("1\n2\n")
    with pytest.raises(InputFileError, match="cannot read"):
        read_timestamps(tmp_path / name, unit="s")


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "trace.csv").write_bytes(b"\xff\x00\x81\x00")
    with pytest.raises(InputFileError, match=r"not UTF-8 text; allowed: text in UTF-8$"):
        read_timestamps(tmp_path / "trace.csv", unit="s")


@pytest.mark.parametrize("preamble", ["", "# made today\n"])
def test_sums_of_gaps_are_the_times_that_the_message_says(tmp_path, preamble):
    path = trace(tmp_path, preamble + "gap_ms\n5\n3\n0.25\n")
    with pytest.raises(InputFileError) as refusal:
        read_timestamps(path)
    command = str(refusal.value).partition("their sums: ")[2].partition(", and --unit")[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    np.testing.assert_allclose(read_timestamps(tmp_path / "times.txt", unit="ms"), [0, 3, 3.25])


def test_the_azure_trace_is_read(reference_dir):
    times = read_timestamps(reference_dir / "azure_llm_code_trace.csv")
    assert len(times) == 8819
    assert (np.diff(times) >= 0).all()
    np.testing.assert_allclose(times[:3], [0.0, 52.0, 98.189], atol=1e-6)


@pytest.mark.parametrize(("header", "line"), [
    ("", "{}Z"), ("timestamp\n", "{}+02:00"), ("id,user,timestamp\n", "1,u,{}"),
    ("when;user\n", "{}.250Z;u"), ("id,created_at,user\n", "1,{}Z,u")])
def test_dates_need_no_name_of_their_column(tmp_path, header, line):
    path = tmp_path / "trace.csv"
    path.write_text(header + "".join(
        line.format(f"2026-01-01T00:{i // 60:02}:{i % 60:02}") + "\n" for i in range(120)))
    assert read_timestamps(path).tolist() == [1000.0 * i for i in range(120)]


def test_how_far_reading_is_can_be_watched(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text("".join(f"{i}.{0:040d}\n" for i in range(200_000)))
    seen: list[int] = []
    with watched(seen.append):
        read_timestamps(path, unit="s")
    assert len(seen) > 1
    assert sum(seen) == path.stat().st_size
