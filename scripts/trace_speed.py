"""How long traces take to read, and how much memory.

python scripts/trace_speed.py [--lines 10000000] [--formats azure-llm …] [--ending gz] [--json]

A file of each format is written to a temporary folder, with gaps at random, and read by a process
of its own: its processor time without that of starting up and loading pandas, its peak memory, and
what a tenth of the lines takes. Where memory is that of a block and of 8 bytes a line, the
difference is 8 bytes a line. A line of ``azure-functions-2019`` is a function with 1,440 minutes,
of which a day of that data set has some 50,000: name it, and give it fewer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import numpy as np

_BLOCK = 100_000
_START = datetime(2023, 11, 16, 18, 15)


def _date(seconds: float) -> str:
    return f"{_START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}0"


_MINUTES = 1440
OPTIONS = {"jsonl": {"time_column": "at", "unit": "s"}, "timestamps": {"unit": "s"}}
FORMATS: dict[str, tuple[str, Callable[[float], str]]] = {
    "azure-llm": ("TIMESTAMP,ContextTokens,GeneratedTokens", lambda t: f"{_date(t)},4808,10"),
    "azure-functions-2021": ("app,func,end_timestamp,duration",
                             lambda t: f"{'a' * 64},{'b' * 64},{t:.6f},0.125"),
    "burstgpt": ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                 lambda t: f"{t:.3f},ChatGPT,472,18,490,Conversation log"),
    "mooncake": ("", lambda t: f'{{"timestamp": {1000 * t:.0f}, "input_length": 6758, '
                               '"output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6]}'),
    "vidur": ("arrived_at,num_prefill_tokens,num_decode_tokens", lambda t: f"{t:.6f},591,140"),
    "alibaba-gentd26": ("gmt_create,predict_type,predict_status,exec_time_seconds,groupId",
                        lambda t: f"{_date(t)[:19]},TXT_2_IMG,SUCCEED,32.0,G0000"),
    "jsonl": ("", lambda t: f'{{"id": "{t}", "at": {t:.6f}}}'),
    "timestamps": ("", lambda t: f"{t:.6f}"),
    "per-second-rates": ("", lambda t: f"{100 + t % 7:.2f}"),
    "azure-functions-2019": (
        "HashOwner,HashApp,HashFunction,Trigger," + ",".join(map(str, range(1, _MINUTES + 1))),
        lambda t: "a,b,c,http," + ",".join([f"{t % 10:.0f}"] * _MINUTES)),
}

_READ = """
import json, resource, sys
import pandas
from ramsis.arrivals.trace_formats import read_trace
def used():
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime, found.ru_maxrss
before, _ = used()
trace = read_trace(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
after, peak = used()
print(json.dumps({"cpu_s": after - before, "peak_mb": peak / 1024}))
"""


def opened(path: Path) -> IO[bytes]:
    """A file to write, compressed by its ending."""
    if path.suffix == ".gz":
        return gzip.open(path, "wb", compresslevel=1)  # type: ignore[return-value]
    if path.suffix == ".zst":
        import zstandard

        return zstandard.open(path, "wb")  # type: ignore[no-any-return]
    return path.open("wb")


def blocks(format: str, lines: int) -> Iterator[str]:
    """The text of a trace, a block at a time."""
    header, line = FORMATS[format]
    if header:
        yield header + "\n"
    rng, now = np.random.default_rng(0), 0.0
    for first in range(0, lines, _BLOCK):
        times = now + rng.exponential(0.001, min(_BLOCK, lines - first)).cumsum()
        now = float(times[-1])
        yield "".join(f"{line(t)}\n" for t in times.tolist())


def read(path: Path, format: str) -> dict[str, Any]:
    """What reading takes, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", _READ, str(path), format, json.dumps(OPTIONS.get(format, {}))],
        check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Print a row for each format."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS),
                        default=[name for name in FORMATS if name != "azure-functions-2019"])
    parser.add_argument("--ending", choices=("", "gz", "zst"), default="")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for format in given.formats:
        rows = []
        for lines in (given.lines // 10, given.lines):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "trace" + (f".{given.ending}" if given.ending else ""))
                with opened(path) as file:
                    for text in blocks(format, lines):
                        file.write(text.encode())
                rows.append({"format": format, "ending": given.ending, "lines": lines,
                             **read(path, format),
                             "file_mb": path.stat().st_size / 1e6})
        tenth, whole = rows
        more = (whole["peak_mb"] - tenth["peak_mb"]) * 2**20 / (whole["lines"] - tenth["lines"])
        row = {**whole, "tenth_peak_mb": tenth["peak_mb"], "bytes_a_line": more}
        print(json.dumps(row) if given.json else
              f"{format:22} {row['lines']:9} lines {row['cpu_s']:6.1f} s "
              f"{row['peak_mb']:6.0f} MB, a tenth {row['tenth_peak_mb']:5.0f} MB: "
              f"{more:5.1f} bytes a line", flush=True)


if __name__ == "__main__":
    main()
