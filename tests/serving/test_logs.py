"""Logs hold nobody up, whoever reads them and whatever clients cause; and signals end a server."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.serving.servers import ROOT, Running, body, command, make
from tests.serving.test_at_once import answers, request

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

SMALLEST_PIPE = 4096
FAILING, HANGING = body(888.0, deadline_ms=60_000), body(777.0, deadline_ms=60_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("logs"))


@contextlib.contextmanager
def logging_to(stderr: int | IO[str], folder: Path, *options: str, before: tuple[str, ...] = ()
               ) -> Iterator[Running]:
    """A server with a stderr of its own, after a command that starts it."""
    process = subprocess.Popen([*before, *command(folder, *options)], stdout=subprocess.PIPE,
                               stderr=stderr, text=True,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        host, _, port = process.stdout.readline().rpartition("/")[2].strip().partition(":")
        yield Running(process, host, int(port), folder, folder / "log.txt")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def fail(server: Running, count: int) -> None:
    """Have the model fail for so many requests, one after the other."""
    with socket.create_connection((server.host, server.port), 20) as connection:
        for _ in range(count):
            connection.sendall(request(json.dumps(FAILING).encode()))
            ((status, _, _),) = answers(connection, 1)
            assert status == 500


def test_a_reader_that_stops_holds_nobody_up(folder):
    """Neither of the log nor of the request log. The tests may run under nohup."""
    reader, writer = os.pipe()
    os.mkfifo(folder / "requests")
    requests = os.open(folder / "requests", os.O_RDONLY | os.O_NONBLOCK)
    for pipe in (writer, requests):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    try:
        with logging_to(writer, folder, "--request-log", str(folder / "requests"),
                        before=("env", "--default-signal=HUP")) as server:
            fail(server, 100)  # more than 4 kB of lines
            time.sleep(1.2)  # after which the lines of requests are to be written
            assert server.infer([[1, 2, 3]])[0] == 200
            server.process.send_signal(signal.SIGHUP)
            assert server.process.wait(60) == 0
        assert len(os.read(reader, 1 << 16)) > SMALLEST_PIPE - 300  # of whole lines
        assert os.read(requests, 1 << 16).startswith(b"arrival_s")
    finally:
        for pipe in (reader, writer, requests):
            os.close(pipe)


def test_lines_are_limited_and_a_second_signal_ends_what_the_first_one_lets_end(folder):
    """Under nohup, which a signal of a terminal that is closed does not end."""
    log = folder / "log.txt"
    options = ("--batch-timeout-s", "60", "--drain-s", "60")
    with log.open("w") as written, \
            logging_to(written, folder, *options, before=("nohup",)) as server, \
            socket.create_connection((server.host, server.port), 20) as hung:
        server.process.send_signal(signal.SIGHUP)
        began_s = time.monotonic()
        fail(server, 180)
        took_s = time.monotonic() - began_s
        hung.sendall(request(json.dumps(HANGING).encode()))
        server.wait_for_batch()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping")
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.5)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(45) == 0  # of the 60 s that the batch and the drain may take
        ((status, _, document),) = answers(hung, 1)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line[0] == "{"]
    assert (status, "the server has stopped" in str(document)) == (500, True)
    events = Counter(line["event"] for line in lines)
    assert 100 <= events["batch failed"] <= 101 + took_s
    left_out = sum(line["events"]["batch failed"] for line in lines
                   if line["event"] == "lines left out")
    assert events["batch failed"] + left_out == 180
    assert {"ready", "stopping", "stopped"} <= set(events)


class Full:
    """A file that is full at first."""

    def __init__(self) -> None:
        self.is_full, self.lines = True, list[dict[str, Any]]()

    def write(self, text: str) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines.append(json.loads(text))


def test_lines_for_which_there_is_no_room_are_counted(monkeypatch):
    from ramsis.serving import logs

    monkeypatch.setattr(logs, "_LAST_LINES_S", 60.0)  # of a machine that is busy
    full, log = Full(), logs.LogWriter()
    monkeypatch.setattr(sys, "stderr", full)
    for number in range(3):
        log.write("early", {"number": number})
    log.flush()
    full.is_full = False
    log.write("long", {"text": "x" * 10_000})
    log.flush()
    assert [line["event"] for line in full.lines] == ["long", "lines left out"]
    assert len(full.lines[0]["text"]) < 5_000
    assert (full.lines[1]["count"], full.lines[1]["events"]) == (3, {"early": 3})


def test_lines_wait_for_a_reader_up_to_a_number(monkeypatch):
    from ramsis.serving import logs

    monkeypatch.setattr(logs, "_BURST", 10_000)
    monkeypatch.setattr(logs, "_LAST_LINES_S", 60.0)  # of a machine that is busy
    full, log, released = Full(), logs.LogWriter(), threading.Event()
    full.is_full = False
    slow, full.write = full.write, lambda text: released.wait(60) and slow(text)  # type: ignore
    monkeypatch.setattr(sys, "stderr", full)
    for number in range(1500):
        log.write("many", {"number": number})
    released.set()
    log.flush()
    *lines, last = full.lines
    assert 1000 <= len(lines) <= 1001
    assert last["events"] == {"many": 1500 - len(lines)}


def test_what_libraries_log_is_a_line_with_its_traceback(monkeypatch):
    import logging

    from ramsis.serving.logs import records_in

    # Import-linter disables the loggers that there are, in the process of the tests.
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", False)
    found: list[dict[str, Any]] = []
    with records_in(lambda event, **fields: found.append({"event": event, **fields})):
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("uvicorn.error").exception("failed")
    assert [(one["event"], one["logger"]) for one in found] == [("error", "uvicorn.error")]
    assert found[0]["message"].endswith("ValueError: why")
