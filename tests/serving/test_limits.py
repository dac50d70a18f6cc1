"""One request, or many that are not whole, keep nobody else from being answered."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.serving.servers import Running, body, make, running, until
from tests.serving.test_at_once import request

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

INFER = b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("limits"), workers=1)


@pytest.fixture(scope="module")
def server(folder):
    with running(folder, "--slots", "64", "--max-connections", "20", "--header-timeout-s", "1",
                 "--request-timeout-s", "2", "--batch-timeout-s", "2", "--max-header-kb", "8",
                 "--max-body-mb", "1", "--max-json-mb", "0.5", "--max-pending-mb", "2") as found:
        yield found


def opened(server: Running, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection((server.host, server.port), timeout=10)
    client.sendall(sent)
    return client


def said(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            found += part
    return found


def asked(*numbers: float, **parameters: float) -> bytes:
    return request(json.dumps(body(*numbers, **parameters)).encode())


@pytest.mark.parametrize("parameters", [
    {"deadline_ms": 1e308}, {"deadline_ms": 600_001}, {"timeout": 1e18}])
def test_a_time_without_end_is_refused(server, parameters):
    status, found = server.infer([[1, 2, 3]], parameters=parameters)
    assert (status, "not a length of time" in found["error"]) == (400, True)
    assert "up to 6" in found["error"]


def test_a_request_that_takes_all_room_makes_way_for_others(server):
    """It can wait longer than they can."""
    with opened(server, asked(777.0)), opened(
            server, asked(*[1.0] * 63, deadline_ms=600_000)) as greedy:
        until(lambda: server.metric("ramsis_queued") == 63)
        status, _ = server.infer([[1, 2, 3]], parameters={"deadline_ms": 60_000})
        assert status == 200
        answer = greedy.recv(1000)
        assert b" 503 " in answer
        assert b"the server is full, and others are due earlier" in answer
    until(lambda: server.metric("ramsis_queued") == 0)


def test_what_waits_for_a_client_that_has_left_is_given_up(server):
    """None of it runs."""
    def dropped() -> float:
        return server.metric("ramsis_queries_total", outcome="dropped")

    before = dropped()
    with opened(server, asked(777.0)), opened(server, asked(*[1.0] * 60, deadline_ms=600_000)):
        until(lambda: server.metric("ramsis_queued") == 60)
    until(lambda: dropped() == before + 60)
    until(lambda: server.metric("ramsis_running") == 0)
    assert server.infer([[1, 2, 3]])[0] == 200


def test_headers_without_end_are_refused(server):
    for endless in (INFER + b"X: " + b"a" * 20_000, INFER + b"X: a\r\n" * 5_000,
                    b"POST /" + b"a" * 20_000,
                    INFER + b"X: " + b"a" * 9_000 + b"\r\nContent-Length: 2\r\n\r\n{}"):
        with opened(server, endless) as client:
            assert client.recv(1000).startswith(b"HTTP/1.1 431 ")
    chunked = INFER + b"Transfer-Encoding: chunked\r\n\r\n"
    for endless in (b"1;" + b"a" * 20_000, b"0\r\nX: " + b"a" * 20_000,
                    b"0\r\n" + b"X: a\r\n" * 5_000):
        with opened(server, chunked + endless) as client:
            assert client.recv(1000).startswith(b"HTTP/1.1 431 ")
    assert server.infer([[1, 2, 3]])[0] == 200


def test_a_head_that_is_not_ended_is_not_waited_for(server):
    for start in (b"", b"\r\n", INFER):
        begun = time.monotonic()
        with opened(server, start) as client:
            for _ in range(2):
                time.sleep(0.1)
                client.sendall(b"X: a\r\n" if start == INFER else start)
            assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - begun > 0.9


def test_bytes_between_requests_do_not_keep_a_connection_open(server):
    with opened(server, b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        assert b"200" in client.recv(1000)
        client.sendall(b"\r\n")
        # The first answer's body may come in a packet of its own, so all is read.
        assert b" 408 " in said(client)


def test_bodies_without_end_are_refused(server):
    with opened(server, INFER + b"Content-Length: 500\r\n\r\n{") as client:
        assert b" 408 " in client.recv(1000)
    with opened(server, INFER + b"Transfer-Encoding: chunked\r\n\r\n") as client:
        sent = 0
        with contextlib.suppress(OSError):  # of a connection that is closed
            while sent < 1 << 28:
                client.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
        assert sent < 1 << 28
    assert server.infer([[1, 2, 3]])[0] == 200


def test_connections_that_owe_a_request_make_room(server):
    """More than there may be; others are answered, and the system's files do not run out."""
    with contextlib.ExitStack() as stack:
        for start in (b"", INFER, INFER + b"Content-Length: 9\r\n\r\n{"):
            for _ in range(30):
                stack.enter_context(opened(server, start))
                assert server.infer([[1, 2, 3]])[0] == 200


def test_idle_connections_make_room(server):
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            client = stack.enter_context(opened(
                server, b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"))
            assert b"200" in client.recv(1000)
        assert server.infer([[1, 2, 3]])[0] == 200


def test_bodies_that_are_not_whole_share_what_they_may_take(server):
    """Of four with 0.9 MB each the first two are closed."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(opened(
            server, INFER + b"Inference-Header-Content-Length: 10\r\n"
            b"Content-Length: 1000000\r\n\r\n" + b" " * 900_000)) for _ in range(4)]
        assert [said(client) for client in clients[:2]] == [b"", b""]
        assert server.infer([[1, 2, 3]])[0] == 200
        for client in clients[2:]:
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.recv(1000)


def test_bodies_of_refused_requests_are_not_kept(server):
    """18 connections, each with 2 MB of a body that is too long: they linger without it."""
    with contextlib.ExitStack() as stack:
        before = resident_mb(server)
        for _ in range(18):
            client = stack.enter_context(opened(
                server, INFER + b"Content-Length: 9000000\r\n\r\n" + b" " * 2_000_000))
            assert b"413" in client.recv(30)
        assert server.infer([[1, 2, 3]])[0] == 200
        assert resident_mb(server) - before < 15.0


def cpu_s(server: Running) -> float:
    """Processor time of the front end, whatever else the machine does."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def resident_mb(server: Running) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return float(status.split("VmRSS:")[1].split()[0]) / 1024.0


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000, "²", "٣", "-1", "1e3"])
def test_a_length_of_any_form_is_read_or_refused(server, number):
    header = f"Inference-Header-Content-Length: {number}\r\n".encode().decode("latin-1")
    with opened(server, request(b"{}", header)) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("data", [
    ["x" * 100_000] + [""] * 191, [["x" * 100_000, "", ""], *[["", "", ""]] * 63], [[[]]] * 50_000,
    json.loads("[" * 900 + "]" * 900), [{}] * 40_000, ["x"] * 3, [1, 2, None], [7] * 100_000])
def test_data_that_would_take_all_memory_are_refused(server, data):
    before_s = cpu_s(server)
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [64, 3], "data": data}]}
    with opened(server, request(json.dumps(document).encode())) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert cpu_s(server) - before_s < 1.0


def test_large_bodies_wait_for_their_turns_and_not_all_of_them():
    """Whole as they are, they would be held until they are read."""
    from ramsis.serving.app import _Infer  # starlette may be missing
    from ramsis.serving.protocol import RequestLimits
    from ramsis.serving.tensors import TensorSpec

    pool = SimpleNamespace(inputs=(TensorSpec("x", "FP32", (3,)),), outputs=())
    infer = _Infer(cast(Any, SimpleNamespace(pool=pool)), 10_000, 3_000, 1.0, RequestLimits())
    large = json.dumps(body(*[1.0] * 40)).encode().ljust(1_000)

    async def several() -> list[Any]:
        found = await asyncio.gather(*(infer._parsed_in_turn({}, large) for _ in range(5)),
                                     return_exceptions=True)
        return [*found, await infer._parsed_in_turn({}, large)]

    kinds = [type(one).__name__ for one in asyncio.run(several())]
    assert kinds == [*["InferRequest"] * 3, *["OverloadedError"] * 2, "InferRequest"]


def test_small_requests_have_turns_between_large_ones():
    """Half of the time and more, so that none waits for several large ones."""
    from ramsis.serving.app import _Infer  # starlette may be missing
    from ramsis.serving.protocol import InferRequest, RequestLimits

    class Slow(_Infer):
        busy_s = 0.0

        def _parsed(self, headers: dict[bytes, str], body: bytes) -> InferRequest:
            begun = time.monotonic()
            time.sleep(0.02)
            self.busy_s += time.monotonic() - begun
            return InferRequest("", [], 0, None, {})

    infer = Slow(cast(Any, None), 10_000, 10_000, 1.0, RequestLimits())

    async def several() -> float:
        begun = time.monotonic()
        await asyncio.gather(*(infer._parsed_in_turn({}, b"") for _ in range(6)))
        return time.monotonic() - begun

    assert asyncio.run(several()) > 1.7 * infer.busy_s


@pytest.mark.slow
def test_an_answer_that_is_not_read_is_not_kept(server):
    """A client that sends on and on and reads nothing is closed."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((server.host, server.port))
        client.settimeout(20)
        ends, closed = time.monotonic() + 30, False
        while not closed and time.monotonic() < ends:
            try:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            except ConnectionError:
                closed = True
            time.sleep(0.002)
        assert closed
    assert server.infer([[1, 2, 3]])[0] == 200
    assert "Traceback" not in server.errors.read_text()


@pytest.mark.slow
def test_stopping_takes_no_longer_than_it_is_given(folder):
    """Not with requests that wait long, nor with some that are not whole."""
    with running(folder, "--drain-s", "1", "--batch-timeout-s", "30") as server, \
            opened(server) as hung, opened(server, INFER) as half, \
            opened(server, INFER + b"Content-Length: 9\r\n\r\n{") as part, \
            opened(server, asked(*[1.0] * 500, deadline_ms=600_000)) as many:
        hung.sendall(asked(777.0))
        server.wait_for_batch()
        begun = time.monotonic()
        server.process.terminate()
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda one=one: answers.append(said(one)))
                   for one in (hung, half, part, many)]
        for thread in threads:
            thread.start()
        assert server.process.wait(20) == 0
        assert time.monotonic() - begun < 15.0  # a batch may take 30 s, a request 600
        for thread in threads:
            thread.join(10)
    assert sum(b" 50" in one for one in answers) >= 2  # those that were whole
    assert any(b"the server has stopped" in one for one in answers)
    assert not any(b"--max-queue" in one for one in answers)


def test_a_queue_beyond_the_policies_is_no_fault_of_the_deadline(tmp_path):
    folder = make(tmp_path, workers=2, dispatch="central-queue")
    with running(folder) as server:
        status, found = server.infer([[1, 2, 3]] * 999, parameters={"deadline_ms": 60_000})
    assert (status, found["error"].partition(":")[0]) == (
        503, "more samples wait than the longest queue of the policies")
