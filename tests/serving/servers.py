"""Servers in processes of their own, for tests: models are functions, answers are known."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ramsis.plugins import trust
from ramsis.policy import Policy, write_set
from ramsis.policy.policy_set import set_of
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy

FUNCTIONS = '''
import os, time
import numpy as np

def fast(x):
    """The sum of each query's numbers."""
    if x.max() == 666: os.abort()
    if x.max() == 777: time.sleep(60)
    if x.max() == 888: raise MemoryError("no room")
    return {"sum": x.sum(axis=1), "size": np.full(len(x), len(x), np.int32)}

def slow(x):
    time.sleep((0.004 + 0.001 * len(x)) * (4.0 if os.path.exists("LAGGING") else 1.0))
    return fast(x)

def bent(x):
    return {"sum": x.sum(axis=1)}

def broken(x):
    raise RuntimeError("always")
'''
VARIANTS = """
name = "sums"
[[variants]]
name = "fast"
backend = "callable"
model = "summing:fast"
accuracy = 0.6
[[variants]]
name = "slow"
backend = "callable"
model = "summing:slow"
accuracy = 0.9
[[inputs]]
name = "x"
datatype = "FP32"
shape = [3]
"""
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
"""A limit on what takes a second or two, so that no test fails on a busy machine."""


def profile() -> ProfileSet:
    """Of the functions, with room to spare."""
    def model(name: str, accuracy: float, first_ms: float, each_ms: float) -> ModelProfile:
        return ModelProfile(name, accuracy, tuple(
            BatchProfile(b, p95_ms=first_ms + each_ms * b) for b in (1, 2, 4, 8)))
    return ProfileSet("sums", (model("fast", 0.6, 1.0, 0.1), model("slow", 0.9, 6.0, 1.5)))


def make(folder: Path, *, loads: tuple[float, ...] = (20.0, 200.0), workers: int = 1,
         variants: str = VARIANTS, **settings: Any) -> Path:
    """Functions, variants and policies in a folder; this process trusts the functions.

    The SLO is long by default, so that requests are in time on a machine that is busy.
    """
    trust("summing:fast", "summing:slow")
    (folder / "summing.py").write_text(FUNCTIONS)
    (folder / "variants.toml").write_text(variants)
    chosen = SynthesisSettings(**{"slo_ms": 5_000.0, "grid": "fixed:20", "max_queue": 8,
                                  "headroom": 0.0, "workers": workers, "late": "drop", **settings})
    write_set(folder / "policies", set_of(
        [_policy(load, chosen) for load in loads]), created_by="tests")
    return folder


@cache
def _policy(load_qps: float, settings: SynthesisSettings) -> Policy:
    return generate_policy(profile(), load_qps, settings)


@dataclass
class Running:
    """A server that runs."""

    process: subprocess.Popen[str]
    host: str
    port: int
    folder: Path
    errors: Path
    """What it writes to its standard error."""

    def ask(self, method: str, path: str, body: bytes | str | None = None,
            headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def infer(self, data: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        """Status and document of the answer to queries of three numbers each."""
        document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(data), 3],
                                "data": data}], **more}
        status, _, body = self.ask("POST", "/v2/models/sums/infer", json.dumps(document))
        return status, json.loads(body)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        from prometheus_client.openmetrics.parser import text_string_to_metric_families

        text = self.ask("GET", "/metrics")[2].decode()
        return sum(sample.value for family in text_string_to_metric_families(text)
                   for sample in family.samples
                   if sample.name == name and labels.items() <= sample.labels.items())

    def wait_for_batch(self, seconds: float = PATIENCE_S, running: bool = True) -> None:
        """Wait until a batch runs, or none."""
        until(lambda: bool(self.metric("ramsis_running")) is running, seconds)

    def events(self) -> list[dict[str, Any]]:
        """The structured log so far."""
        lines = self.errors.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for(self, event: str, count: int = 1, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """The last of so many events of a name."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found = [one for one in self.events() if one["event"] == event]
            if len(found) >= count:
                return found[-1]
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {self.events()}")


def until(holds: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def body(*numbers: float, **parameters: Any) -> dict[str, Any]:
    """A request of queries that each have a number thrice."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(numbers), 3],
                        "data": [one for one in numbers for _ in range(3)]}],
            "parameters": parameters}


class Load:
    """Threads that each send a request every so often, and count what is answered."""

    def __init__(self, server: Running, threads: int = 8, pause_s: float = 1.0,
                 document: Any = None) -> None:
        self.server, self.pause_s = server, pause_s
        self._body = json.dumps(document or body(1.0))
        self.sent, self.answered = 0, Counter[int]()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def at(self, load_qps: float) -> None:
        """Send so many from now on."""
        self.pause_s = len(self._threads) / load_qps

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(
            self.server.host, self.server.port, timeout=PATIENCE_S)
        while not self._stop.is_set():
            with self._lock:
                self.sent += 1
            connection.request("POST", "/v2/models/sums/infer", self._body)
            answer = connection.getresponse()
            answer.read()
            with self._lock:
                self.answered[answer.status] += 1
            self._stop.wait(self.pause_s)
        connection.close()


def ask(port: int, path: str, document: Any = None, method: str = "POST",
        headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Status and document of a server's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(document),
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


@contextlib.contextmanager
def started(line: Sequence[str | Path], log: Path, port: int,
            ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another's server in the log's folder, when a path answers 200 or it has ended."""
    with log.open("wb") as written, subprocess.Popen(
            line, stdout=written, stderr=written, cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            ends = time.monotonic() + PATIENCE_S
            while process.poll() is None and time.monotonic() < ends:
                with contextlib.suppress(OSError, ValueError):
                    if ask(port, ready, method="GET")[0] == 200:
                        break
                time.sleep(0.1)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


def command(folder: Path, *options: str) -> list[str]:
    """The command line of a server that trusts its functions."""
    functions = re.findall(r'model = "(\w+:\w+)"', (folder / "variants.toml").read_text())
    return [sys.executable, "-m", "ramsis", "serve", str(folder / "policies"), "--variants",
            str(folder / "variants.toml"), *(["--code", ",".join(functions)] if functions else []),
            "--port", "0", *options]


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """A server on the policies and variants of a folder, stopped at the end."""
    # A file of its own: servers of several tests may share the folder, and run at once.
    number, name = tempfile.mkstemp(".txt", "stderr-", folder)
    with open(number, "w") as errors:
        process = subprocess.Popen(
            command(folder, *options), stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, Path(name).read_text()
        host, _, port = line.rpartition("/")[2].strip().partition(":")
        yield Running(process, host, int(port), folder, Path(name))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
