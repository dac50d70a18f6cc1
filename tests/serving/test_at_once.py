"""Small whole requests are answered without the application, just as it answers them."""

import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from tests.clock import Clock
from tests.serving.servers import Running, make, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

INFER = "/v2/models/sums/infer"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(make(tmp_path_factory.mktemp("at-once")), "--overhead-ms", "0",
                 "--max-json-mb", "0.001") as served:
        yield served


def queries(count: int, **more: object) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [count, 3],
                                   "data": [[1, 2, n] for n in range(count)]}], **more}).encode()


def with_bytes(binary: bool) -> tuple[bytes, str]:
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3],
                                   "parameters": {"binary_data_size": 12}}],
                       "parameters": {"binary_data_output": binary}}).encode()
    return (head + struct.pack("<3f", 1, 2, 4),
            f"Inference-Header-Content-Length: {len(head)}\r\n")


def request(body: bytes, headers: str = "", path: str = INFER, version: str = "1.1") -> bytes:
    return (f"POST {path} HTTP/{version}\r\nHost: here\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


@contextlib.contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection((server.host, server.port), 20) as connection:
        yield connection


def answers(connection: socket.socket, count: int) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of so many answers."""
    found, data = [], b""
    while len(found) < count:
        head, ended, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines) if ended else {}
        if ended and len(rest) >= int(headers["content-length"]):
            length = int(headers["content-length"])
            found.append((int(first.split()[1]), headers, rest[:length]))
            data = rest[length:]
            continue
        part = connection.recv(65536)
        assert part, data
        data += part
    return found


def plain(answer: tuple[int, dict[str, str], bytes]) -> object:
    """An answer without what differs from one to the next."""
    status, headers, body = answer
    body = re.sub(rb'"(waiting|service)_ms":("[^"]*"|[0-9.]+),?', b"", body)
    varies = {"date", "content-length", "inference-header-content-length"}
    return status, {name: value for name, value in headers.items() if name not in varies}, body


@pytest.mark.parametrize(("sent", "status"), [
    (request(queries(1)), 200),
    (request(queries(3, id="a")), 200),
    (request(queries(1, parameters={"deadline_ms": 1e-6})), 503),
    (request(queries(2, parameters={"deadline_ms": 1e-6})), 503),
    (request(queries(1), "X-Deadline-Ms: soon\r\n"), 400),
    (request(queries(1), "Connection: close\r\n"), 200),
    (request(queries(1), "Connection: keep-alive\r\n", version="1.0"), 200),
    (request(queries(1), "Content-Encoding: gzip\r\n"), 415),
    (request(queries(1), path=INFER.replace("infer", "versions/1/infer")), 200),
    (request(queries(1), path=INFER.replace("sums", "others")), 404),
    (request(queries(100)), 413),
    (request(b"{"), 400),
    (request(b"[]"), 400),
    (request(*with_bytes(False)), 200),
    (request(*with_bytes(True)), 200),
    (request(with_bytes(True)[0], "Inference-Header-Content-Length: 99999\r\n"), 400),
])
def test_a_request_is_answered_alike_whether_it_comes_whole_or_in_parts(server, sent, status):
    found = []
    for parts in ([sent], [sent[:-1], sent[-1:]]):
        with connected(server) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.05 * (len(parts) - 1))
            found.append(plain(answers(connection, 1)[0]))
    assert found[0] == found[1]
    assert isinstance(found[0], tuple)
    assert found[0][0] == status


@pytest.mark.parametrize("sent", [
    request(queries(1)), request(*with_bytes(True)), request(b"{"),
    request(queries(1), "Content-Encoding: gzip\r\n"),
    request(queries(1, parameters={"deadline_ms": 1e-6})),
])
def test_a_head_that_has_come_before_is_answered_alike(server, sent):
    head, body = sent.split(b"\r\n\r\n", 1)
    with connected(server) as connection:
        found = []
        for _ in range(4):
            connection.sendall(sent)
            found.append(plain(answers(connection, 1)[0]))
        connection.sendall(sent + sent)
        found += map(plain, answers(connection, 2))
        connection.sendall(sent[:-1])  # the same head, but not all of its body
        time.sleep(0.05)
        connection.sendall(sent[-1:])
        found.append(plain(answers(connection, 1)[0]))
        assert found == found[:1] * 7
        connection.sendall(head + b"\r\nX-Deadline-Ms: soon\r\n\r\n" + body)
        assert answers(connection, 1)[0][0] in (400, 415, 503)
        connection.sendall(head.replace(b"POST", b"GET") + b"\r\n\r\n" + body)
        assert answers(connection, 1)[0][0] == 405


def test_connections_without_requests_are_closed():
    from ramsis.serving import connections

    clock, group = Clock(), connections.Connections(connections.ConnectionLimits())
    idle, busy, back = (Mock(loop=clock) for _ in range(3))
    for one in (idle, busy, back):
        group.settle(one, owes=False, idle=True)
    group.settle(busy, owes=False, idle=False)
    watch = clock.create_task(group.watch())
    clock.advance(connections._IDLE_S - 1.0)
    group.settle(back, owes=False, idle=True)
    clock.advance(2.0)
    watch.cancel()
    clock.settle()
    clock.close()
    assert [one.timeout_keep_alive_handler.called for one in (idle, busy, back)] == [
        True, False, False]
