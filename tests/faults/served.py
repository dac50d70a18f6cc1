"""Servers that are killed while they answer: their request logs, and what stays of them."""

import contextlib
import http.client
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ramsis.audit.request_log import COLUMNS, read_request_log
from ramsis.errors import RamsisError
from tests.faults.kills import Finding
from tests.serving.servers import Running, make, running

_HEADER = ",".join(COLUMNS) + "\n"


def killed_servers(root: Path, kills: int, seed: int) -> Iterator[Finding]:
    """Kill servers at random moments: logs are whole lines, those of before stay, workers go."""
    rng = random.Random(seed)
    folder = root / "served"
    folder.mkdir()
    make(folder, workers=2)
    logs, kept = folder / "logs", 0
    for _ in range(kills):
        after_s = 1.0 + rng.uniform(0.0, 2.0)
        with running(folder, "--request-log", str(logs / "log.csv")) as server:
            stop = threading.Event()
            client = threading.Thread(target=_ask, args=(server, stop))
            client.start()
            time.sleep(after_s)
            workers = server.wait_for("ready")["processes"]
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
            stop.set()
            client.join()
        if stayed := _alive(workers):
            yield Finding(f"workers stayed: {stayed}", after_s)
        lines = 0
        for file in sorted(logs.iterdir()):
            text = file.read_text()
            if not text.startswith(_HEADER) or not text.endswith("\n"):
                yield Finding(f"{file.name} is not whole lines", after_s)
            elif text != _HEADER:
                try:
                    lines += len(read_request_log(file))
                except RamsisError as error:
                    yield Finding(str(error), after_s)
        if lines < kept:
            yield Finding(f"lines were lost: {lines} of {kept}", after_s)
        kept = lines
    if kills and not kept:
        yield Finding("no log has a line", 0.0)


def _ask(server: Running, stop: threading.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            server.infer([[1, 2, 3]])


def _alive(processes: list[int]) -> list[int]:
    """Those that have not ended soon."""
    until = time.monotonic() + 5.0
    left = processes
    while left and time.monotonic() < until:
        time.sleep(0.02)
        left = [one for one in left if Path(f"/proc/{one}").exists()]
    return left
