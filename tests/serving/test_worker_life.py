"""A worker's life: known to be dead, started again until that works, ready when it can run."""

import asyncio
import contextlib
import errno
import http.client
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.servers import FUNCTIONS, Running, body, make, running, until

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.serving.variants import read_variants  # noqa: E402
from ramsis.serving.workers.pool import PoolSettings, WorkerEvents, WorkerPool  # noqa: E402

READY = "/v2/health/ready", "/v2/models/sums/ready"
FORKS = '''
import sys

def forks(x):
    """Leave a process behind that has all that this one has open."""
    if x.max() == 444: sys.exit(3)
    if x.max() == 555 and not os.fork():
        os.setsid()
        open("orphan", "w").write(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    return fast(x)
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("life"))
    (folder / "summing.py").write_text(FUNCTIONS + FORKS.replace(
        '"orphan"', repr(str(folder / "orphan"))))
    variants = folder / "variants.toml"
    variants.write_text(variants.read_text().replace("summing:slow", "summing:forks"))
    with running(folder, "--overhead-ms", "1", "--batch-timeout-s", "30") as running_server:
        yield running_server


def worker_of(server: Running) -> int:
    """The process of the one worker."""
    back = [event["process"] for event in server.events() if event["event"] == "worker back"]
    return back[-1] if back else server.wait_for("ready")["processes"][0]


def count(server: Running, event: str) -> int:
    return sum(line["event"] == event for line in server.events())


@contextlib.contextmanager
def lost(server: Running) -> Iterator[list[str]]:
    """A worker is lost within, and back soon after; the reason is put in."""
    before, back = count(server, "worker lost"), count(server, "worker back")
    reason: list[str] = []
    yield reason
    reason.append(server.wait_for("worker lost", before + 1)["reason"])
    server.wait_for("worker back", back + 1)
    assert server.infer([[1, 2, 3]])[0] == 200


def test_a_worker_is_dead_though_a_process_that_it_forked_holds_its_socket(server):
    assert server.infer([[555, 0, 0]])[0] == 200
    orphan = server.folder / "orphan"
    until(orphan.exists)
    until(lambda: orphan.read_text() != "")
    with lost(server) as reason:
        os.kill(worker_of(server), signal.SIGKILL)
    assert reason == ["the worker process ended (signal SIGKILL)"]
    os.kill(int(orphan.read_text()), signal.SIGKILL)  # it has lived until now


def test_a_worker_that_exits_is_lost_by_its_exit_code(server):
    """It closes its socket before it has ended."""
    restarts = server.metric("ramsis_worker_restarts_total")
    with lost(server) as reason:
        status, answer = server.infer([[444, 0, 0]])
    assert (status, reason) == (500, ["the worker process ended (exit code 3)"])
    assert "its worker was lost: the worker process ended (exit code 3)" in answer["error"]
    assert server.metric("ramsis_worker_restarts_total") == restarts + 1


def readiness(connection: http.client.HTTPConnection) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for path in READY:
        connection.request("GET", path)
        answer = connection.getresponse()
        found.append((answer.status, json.load(answer)))
    return found


def ready_of(connection: http.client.HTTPConnection) -> set[int]:
    return {status for status, _ in readiness(connection)}


@pytest.mark.parametrize("fault", ["no model", "no files"])
def test_a_start_that_fails_is_tried_again_and_the_server_is_not_ready_meanwhile(server, fault):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    model, away = server.folder / "summing.py", server.folder / "summing.away"
    failures = server.metric("ramsis_worker_start_failures_total")
    logged, back = count(server, "worker not started"), count(server, "worker back")
    with contextlib.closing(connection):
        assert ready_of(connection) == {200}
        if fault == "no model":
            model.rename(away)
        else:
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(worker_of(server), signal.SIGKILL)
        said = server.wait_for("worker not started", logged + 3)
        assert [line["again_in_s"] for line in server.events()
                if line["event"] == "worker not started"][logged:logged + 3] == [0.1, 0.2, 0.4]
        assert ("No module named 'summing'" if fault == "no model"
                else "Too many open files") in said["reason"]
        for status, document in readiness(connection):
            assert (status, document["ready"]) == (503, False)
            assert document["error"] == f"no worker can run the model (worker 0: {said['reason']})"
        connection.request("POST", "/v2/models/sums/infer", json.dumps(body(1.0)))
        assert connection.getresponse().status == 503
        connection.close()
        if fault == "no model":
            away.rename(model)
        else:
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        server.wait_for("worker back", back + 1)
        assert ready_of(connection) == {200}
    assert server.infer([[1, 2, 3]])[0] == 200
    assert server.metric("ramsis_worker_start_failures_total") >= failures + 3


async def killed_once(folder: Path) -> list[tuple[object, ...]]:
    """Kill the one worker of a pool; losses until another is ready."""
    variants = read_variants(make(folder) / "variants.toml")
    events: list[tuple[object, ...]] = []
    again = asyncio.Event()
    pool = WorkerPool(variants, PoolSettings(1, 1, pin=False), WorkerEvents(
        ready=lambda worker: again.set(), ended=lambda *_: None,
        gone=lambda *event: events.append(event)))
    await pool.start()
    process = pool.process(0)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    await asyncio.wait_for(again.wait(), 20)
    await pool.stop()
    return events


def test_without_pidfds_a_death_is_found_by_waiting_for_it(tmp_path, monkeypatch):
    def none(process: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", none, raising=False)
    assert asyncio.run(killed_once(tmp_path)) == [(0, "the worker process ended (signal SIGKILL)")]


class ClosedWithAnError(socket.socket):
    """A socket that is closed with an error, as the kernel may report one."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_channel_that_is_closed_with_an_error_keeps_no_worker_away(tmp_path, monkeypatch):
    real = socket.socketpair

    def pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = real()
        return ClosedWithAnError(fileno=ours.detach()), theirs

    async def run() -> list[tuple[object, ...]]:
        monkeypatch.setattr(socket, "socketpair", pair)
        return await killed_once(tmp_path)

    assert asyncio.run(run()) == [(0, "the worker process ended (signal SIGKILL)")]
