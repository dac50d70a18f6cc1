"""Traces as strangers have them: each shape is one list of arrivals or loads, in another way."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals.load_table import is_rate_trace, read_rates
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace_formats import detect_trace, read_trace
from tests.cli.command import refused

SINCE_S = [0.0, 0.25, 0.25, 1.5, 2.0]
EPOCH_S = 1714557600
DATES = [datetime.fromtimestamp(EPOCH_S, UTC) + timedelta(seconds=each) for each in SINCE_S]
EAST = timezone(timedelta(hours=2))


def lines(*rows: object) -> str:
    return "".join(f"{row}\n" for row in rows)


ARRIVALS: dict[str, str | bytes] = {
    **{f"epoch {unit}": lines(*(f"{EPOCH_S + each:.2f}" if unit == "s" else
                                int((EPOCH_S + each) * factor) for each in SINCE_S))
       for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))},
    "epoch under a heading": lines("timestamp,path", *(
        f"{int((EPOCH_S + each) * 1000)},/a" for each in SINCE_S)),
    "ISO with a zone": lines(*(each.astimezone(EAST).isoformat() for each in DATES)),
    "ISO with Z, further columns": lines("time,level", *(
        f"{each:%Y-%m-%dT%H:%M:%S.%fZ},info" for each in DATES)),
    "a comma before the milliseconds": lines(*(
        f"{each:%Y-%m-%d %H:%M:%S},{each.microsecond // 1000:03d}" for each in DATES)),
    "gzip": gzip.compress(lines("timestamp", *(each.isoformat() for each in DATES)).encode()),
    "a unit in brackets": lines("id;arrival time (ms);model", *(
        f"{i};{1000 * each};a" for i, each in enumerate(SINCE_S))),
    "JSON lines of epoch": lines(*(json.dumps({"ts": EPOCH_S + each, "user": 1})
                                   for each in SINCE_S)),
    "JSON lines of dates": lines(*(json.dumps({"user": 1, "@timestamp": each.isoformat()})
                                   for each in DATES)),
}
STARTS = ["2024-05-01 12:00", "2024-05-01 12:01", "2024-05-01 12:02"]
COUNTS = [600, 1200, 900]
LOADS = {
    "counts by minute": lines("minute,count", *(f"{i},{n}" for i, n in enumerate(COUNTS))),
    "counts by date": lines("time,requests,errors", *(
        f"{start},{n},0" for start, n in zip(STARTS, COUNTS, strict=True))),
    "rates by second of the epoch": lines("timestamp;rps", *(
        f"{EPOCH_S + 60 * i};{n / 60}" for i, n in enumerate(COUNTS))),
    "what Grafana exports": lines('"Time","req/s"', *(
        f'"{start}:00","{n / 60}"' for start, n in zip(STARTS, COUNTS, strict=True))),
    "both rates and counts, in seconds": lines("time,requests,qps", *(
        f"{60 * i},{n},{n / 60}" for i, n in enumerate(COUNTS))),
    "lines of Prometheus": lines(*(f"{EPOCH_S + 60 * i}\t{n / 60}"
                                   for i, n in enumerate(COUNTS))),
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / ("trace.csv.gz" if isinstance(content, bytes) else "trace.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("shape", ARRIVALS)
def test_arrivals_are_read_without_any_option(tmp_path, shape):
    path = written(tmp_path, ARRIVALS[shape])
    named = detect_trace(path)
    times = read_trace(path, named).times_ms if named else read_timestamps(path)
    assert times is not None
    assert times == pytest.approx(1000.0 * np.array(SINCE_S), abs=0.001)
    assert named or not is_rate_trace(path)


@pytest.mark.parametrize("shape", LOADS)
def test_loads_are_read_without_any_option(tmp_path, shape):
    path = written(tmp_path, LOADS[shape])
    assert detect_trace(path) is None
    assert is_rate_trace(path)
    found = read_rates(path)
    assert found.start_ms.tolist() == [0.0, 60_000.0, 120_000.0]
    assert found.rate_qps == pytest.approx([10.0, 20.0, 15.0])
    assert found.end_ms == 180_000.0


@pytest.mark.parametrize(("content", "code", "step"), [
    ("0.1\n0.2\n", 2, "--unit with one of"),
    ("05/01/2024 12:00:00\n", 3, "the year first"),
    ("2024-05-01 12:00:00,250 INFO done in 12 ms\n", 3, "/trace.csv > times.txt`"),
    ("2\n1\n", 3, "sort the lines by time"),
    (json.dumps({"status": "success", "data": {"result": []}}) + "\n", 3, "jq -r"),
    ('{"at": 1}\n', 2, "--time-column KEY"),
    ("time,count\n0,5\n", 3, "two rows or more"),
    ("time,count\n0,5\n60,many\n", 3, "line 3: not a load: got 'many'"),
    ("time,count\n60,5\n0,6\n", 3, "times that rise"),
    ("a,b,c\n1,2,3\n", 3, "--time-column with one of these"),
    (b"PAR1" + bytes(60), 3, "read_parquet"),
])
def test_another_shape_is_refused_with_the_next_step(run, tmp_path, content, code, step):
    path = tmp_path / "trace.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    unit = ("--unit", "s") if content == "2\n1\n" else ()
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 4,
                "--scheduler", "greedy", "--trace", path, *unit), code, step)


def test_arrivals_fit_says_what_takes_a_table_of_counts(run, tmp_path):
    path = written(tmp_path, LOADS["counts by minute"])
    refused(run("arrivals", "fit", path), 3, "--trace of `simulate`")
