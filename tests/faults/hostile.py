"""A server under hostile clients: ``python -m tests.faults.hostile``.

For each kind of them, once they are at it, another client sends a query at a time; its answers
are timed. Printed are the share of answers with status 200, the 99th percentile of their times,
how much memory the server has gained, and how long it took to stop meanwhile. The hostile clients
are a process of low priority: elsewhere they would have processors of their own. Only this machine
is spoken to.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.serving.servers import VARIANTS, Running, make, running

_INFER = b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\n"
_ALIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
_FILES_BESIDE = 64


class Endured(NamedTuple):
    """What became of others meanwhile."""

    attack: str
    answers: int
    good: float
    p99_ms: float
    longest_ms: float
    memory_mb: float
    stopped_s: float


class _Hostile:
    """Many sockets, each of which sends what it is given until the end."""

    def __init__(self, host: str, port: int, count: int, seconds: float) -> None:
        self.host, self.port, self.count = host, port, count
        self.ends = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        return time.monotonic() > self.ends

    def open(self, sent: bytes) -> socket.socket:
        client = socket.create_connection((self.host, self.port), timeout=5)
        with contextlib.suppress(OSError):
            client.sendall(sent)
        return client

    def held(self, sent: bytes) -> None:
        """So many connections that send something and no more; the closed are opened again."""
        clients = [self.open(sent) for _ in range(self.count)]
        print("ready", flush=True)
        at = 0
        while not self.over:
            time.sleep(0.005)  # two hundred a second
            at = (at + 1) % len(clients)
            clients[at].setblocking(False)
            try:
                if clients[at].recv(1000):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            clients[at].close()
            with contextlib.suppress(OSError):
                clients[at] = self.open(sent)

    def endless(self, begin: bytes, more: bytes, times: int) -> None:
        """A few connections that send for ever, opened again when they are closed."""
        def run() -> None:
            while not self.over:
                with contextlib.suppress(OSError), self.open(begin) as client:
                    while not self.over:
                        if more:
                            client.sendall(more)
                        else:
                            client.settimeout(0.5)
                            if not client.recv(1000):
                                break
        self._all([run] * times)

    def repeated(self, documents: Sequence[Any]) -> None:
        """Requests, each over and over; its client leaves after a moment."""
        def run(body: bytes) -> None:
            while not self.over:
                with contextlib.suppress(OSError), self.open(
                        _INFER + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)) as client:
                    client.settimeout(0.2)
                    client.recv(1000)
        self._all([partial(run, json.dumps(one).encode()) for one in documents])

    def _all(self, runs: Sequence[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=run) for run in runs]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for thread in threads:
            thread.join()


def _queries(count: int, **parameters: Any) -> dict[str, Any]:
    return {"parameters": parameters, "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [count, 3], "data": [1.0] * (3 * count)}]}


def _data(data: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2000, 3], "data": data}]}


_EXTREME = (
    _queries(2048, deadline_ms=0.001), _queries(2048, deadline_ms=600_000),
    _queries(1, deadline_ms=1e308), _data([[]] * 29_000),
    _data(["x" * 4_000_000, *[""] * 5999]), _data([7] * 1_300_000),
    {"id": "x" * 4_000_000, **_queries(1)}, {"inputs": [[]] * 29_000})
ATTACKS: dict[str, Callable[[_Hostile], None]] = {
    "nothing": lambda hostile: hostile.repeated([]),
    "half-open connections": lambda hostile: hostile.held(b""),
    "half a head": lambda hostile: hostile.held(_INFER + b"X: " + b"a" * 2000),
    "half a body": lambda hostile: hostile.held(_INFER + b"Content-Length: 9000\r\n\r\n{"),
    "idle connections": lambda hostile: hostile.held(_ALIVE),
    "endless headers": lambda hostile: hostile.endless(_INFER, b"X: " + b"a" * 60_000, 4),
    "endless trailers": lambda hostile: hostile.endless(
        _INFER + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 60_000, 4),
    "endless bodies": lambda hostile: hostile.endless(
        _INFER + b"Transfer-Encoding: chunked\r\n\r\n",
        b"ea60\r\n" + b" " * 60_000 + b"\r\n", 4),
    "large bodies that stop": lambda hostile: hostile.endless(
        _INFER + b"Content-Length: 16000000\r\n\r\n" + b" " * 15_000_000, b"", 8),
    "extreme parameters": lambda hostile: hostile.repeated(_EXTREME),
}


def endured(server: Running, name: str, count: int, seconds: float) -> Endured:
    """Have a server attacked, and stop it meanwhile."""
    before = _memory_mb(server.process.pid)
    hostile = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.hostile", "--hostile", name, server.host,
         str(server.port), "--connections", str(count), "--seconds", str(seconds + 60.0),
         "--nice", str(10 - min(os.nice(0), 0))],
        stdout=subprocess.PIPE, text=True)
    try:
        assert hostile.stdout is not None
        hostile.stdout.readline()
        times_ms, good, peak = [], 0, before
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            begun = time.perf_counter()
            with contextlib.suppress(OSError, ValueError):
                good += server.infer([[1, 2, 3]])[0] == 200
            times_ms.append(1000.0 * (time.perf_counter() - begun))
            if len(times_ms) % 20 == 0:
                peak = max(peak, _memory_mb(server.process.pid))
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        stopped_s = time.monotonic() - begun
    finally:
        hostile.kill()
        hostile.wait()
        if hostile.stdout is not None:
            hostile.stdout.close()
    return Endured(name, len(times_ms), good / len(times_ms), float(np.quantile(times_ms, 0.99)),
                   max(times_ms), peak - before, stopped_s)


def _memory_mb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) / 1024.0
    return 0.0


def main() -> int:
    """Attack, and print a line for each kind; 1 if others suffered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--drain-s", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--nice", type=int, default=0, help="of the server and the other client")
    parser.add_argument("--hostile", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(given.connections, hard - _FILES_BESIDE)
    if given.hostile:
        os.nice(given.nice)
        name, host, port = given.hostile
        ATTACKS[name](_Hostile(host, int(port), count, given.seconds))
        return 0
    os.nice(given.nice)
    print(f"{'attack':24} {'answers':>8} {'200':>8} {'p99 (ms)':>9} {'longest':>9} "
          f"{'memory (MB)':>12} {'stopped (s)':>12}")
    bad = 0
    for name in given.only:
        with _server(given.drain_s) as server:
            found = endured(server, name, count, given.seconds)
        print(f"{found.attack:24} {found.answers:8} {found.good:8.3%} {found.p99_ms:9.1f} "
              f"{found.longest_ms:9.1f} {found.memory_mb:12.1f} {found.stopped_s:12.2f}",
              flush=True)
        bad += (found.good < 0.99 or found.p99_ms > 100.0 or found.memory_mb > 100.0
                or found.stopped_s > given.drain_s + 1.0)
    return int(bad > 0)


@contextlib.contextmanager
def _server(drain_s: float) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder), loads=(20.0, 400.0), slo_ms=500.0, variants=VARIANTS.replace(
            "summing:slow", "summing:fast"))  # so that answers take what the server does
        with running(made, "--drain-s", str(drain_s)) as server:
            server.infer([[1, 2, 3]])
            yield server


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
