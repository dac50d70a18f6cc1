"""Trace files without an end: refused in bounded memory and time, whatever their shape."""

import gzip
import itertools
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ramsis.arrivals.load_table import read_rates
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace_formats import files, read_trace
from ramsis.errors import InputFileError
from tests.cli.command import refused

READERS: dict[str, Callable[[Path], object]] = {
    "timestamps": lambda path: read_timestamps(path, unit="s"),
    "rates": read_rates,
    "rates by second": lambda path: read_trace(path, "per-second-rates"),
    "JSON lines": lambda path: read_trace(path, "jsonl", unit="s", time_column="t"),
    "minutes": lambda path: read_trace(path, "azure-functions-2019"),
    "a public trace": lambda path: read_trace(path, "burstgpt"),
}


def bomb(path: Path, unit: bytes, megabytes: int) -> Path:
    """A compressed file that repeats some bytes."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = unit * (2**20 // len(unit))
    with path.open("wb") as stream:
        for _ in range(megabytes):
            stream.write(compressor.compress(block))
        stream.write(compressor.flush())
    return path


@pytest.fixture(scope="module", params=[b"\x00", b"\n", b"1"], ids=repr)
def bombed(request, tmp_path_factory):
    return bomb(tmp_path_factory.mktemp("bomb") / "trace.gz", request.param, 100)


@pytest.mark.parametrize("reader", READERS)
def test_a_bomb_is_refused(bombed, reader):
    assert bombed.stat().st_size < 2**21
    tracemalloc.start()
    with pytest.raises(InputFileError, match=r"too large when decompressed|line is too long|"
                                             r"no (timestamps|columns|such column)|not "):
        READERS[reader](bombed)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 300e6


@pytest.mark.parametrize("reader", READERS)
def test_an_endless_line_is_refused(reader):
    with pytest.raises(InputFileError, match=r"line 1: line is too long; allowed: at most 16 MB"):
        READERS[reader](Path("/dev/zero"))


def test_rows_that_shrink_as_traces_do_are_read(tmp_path):
    path = tmp_path / "trace.txt.gz"
    with gzip.open(path, "wt") as stream:
        stream.writelines(f"{0.001 * i:.3f}\n" for i in range(200_000))
    assert len(read_timestamps(path, unit="s")) == 200_000


def endless(lines: Iterator[bytes], path: Path) -> threading.Thread:
    """Someone who writes to a pipe as long as there is a reader."""
    def write() -> None:
        try:
            with path.open("wb") as stream:
                for line in lines:
                    stream.write(line)
        except BrokenPipeError:
            pass

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("reader", ["timestamps", "rates by second"])
def test_a_pipe_without_an_end_is_refused_after_a_number_of_lines(tmp_path, monkeypatch, reader):
    monkeypatch.setattr(files, "MAX_LINES", 100_000)
    monkeypatch.setattr(files, "_BLOCK_BYTES", 65536)
    os.mkfifo(tmp_path / "pipe")
    writer = endless((b"%d\n" % i for i in itertools.count(1)), tmp_path / "pipe")
    with pytest.raises(InputFileError, match="trace is too long: got"):
        READERS[reader](tmp_path / "pipe")
    writer.join(timeout=10)
    assert not writer.is_alive()


def test_the_command_line_says_so_in_a_line(run, tmp_path):
    path = bomb(tmp_path / "trace.gz", b"1" + b" " * 98 + b"\n", 80)  # each line takes its time
    refused(run("arrivals", "fit", path, "--unit", "s"), 3, "too large when decompressed", "64 MB")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["/dev/zero", "bomb"])
@pytest.mark.parametrize("command", ["arrivals fit", "simulate", "audit", "validate", "sweep",
                                     "profile check", "export"])
def test_no_command_takes_a_gigabyte(tmp_path, command, source):
    path = source if source != "bomb" else str(bomb(tmp_path / "trace.gz", b"\x00", 1500))
    lines = {
        "arrivals fit": ["arrivals", "fit", path, "--unit", "s"],
        "simulate": ["simulate", "--profiles", "digits-cpu", "--slo-ms", "25", "--workers", "4",
                     "--scheduler", "jellyfish-plus", "--trace", path],
        "audit": ["audit", path, "--profiles", "digits-cpu", "--workers", "4"],
        "validate": ["validate", path],
        "sweep": ["sweep", path, "--out", str(tmp_path / "out")],
        "profile check": ["profile", "check", path],
        "export": ["export", "ray-serve", path, "--variants", path, "--out",
                   str(tmp_path / "out")],
    }

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))

    ran = subprocess.run(
        [sys.executable, "-c",
         "import resource, sys\n"
         "from ramsis.cli.main import _run\n"
         "code = _run(sys.argv[1:])\n"
         "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
         "sys.exit(code)", *lines[command]],
        capture_output=True, text=True, preexec_fn=limited, check=False)
    assert ran.returncode == 3, ran.stderr
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert int(ran.stdout) < 2**20  # kB
    assert not (tmp_path / "out").exists()
