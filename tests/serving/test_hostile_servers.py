"""`ramsis load` against servers that answer with anything: no traceback, and it ends."""

import contextlib
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Run, refused
from tests.serving.test_load import row

for name in ("httptools", "orjson"):
    pytest.importorskip(name)

from ramsis.serving.load import client, connections  # noqa: E402

pytestmark = pytest.mark.usefixtures("soon")

METADATA = {"name": "sums", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "sum", "datatype": "FP32", "shape": [-1]}]}
ANSWER = {"model_name": "sums", "outputs": [
    {"name": "sum", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
HEAD = b"HTTP/1.1 200 OK\r\n"

Send = Callable[[bytes], None]
Answer = bytes | Callable[[Send], object] | None
"""To be sent, or what sends it, before the connection is closed; or what a good server sends."""


def whole(document: Any, *headers: bytes) -> bytes:
    """An answer with a document, or with bytes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = b"".join(header + b"\r\n" for header in headers)
    return HEAD + lines + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class Hostile:
    """A server that answers requests for inference, and for metadata, as it is told."""

    def __init__(self, infer: Answer, metadata: Answer, about: Answer) -> None:
        self._infer = whole(ANSWER) if infer is None else infer
        self._metadata = whole(METADATA) if metadata is None else metadata
        self._about = whole({"extensions": []}) if about is None else about
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        for one in (self._listening, *self._open):
            one.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            while asked := connection.recv(1 << 16):
                what = (self._infer if asked.startswith(b"POST") else
                        self._about if asked.startswith(b"GET /v2 ") else self._metadata)
                if callable(what):
                    what(connection.sendall)
                    return
                connection.sendall(what)
                if not what.startswith(HEAD):
                    return


@pytest.fixture
def serving():
    """Starts a server, and gives its URL."""
    servers: list[Hostile] = []

    def serving(infer: Answer = None, metadata: Answer = None, about: Answer = None) -> str:
        servers.append(Hostile(infer, metadata, about))
        return servers[-1].url

    yield serving
    for server in servers:
        server.close()


def load(run: Run, url: str, *options: object) -> Any:
    return run("load", url, "--model", "sums", "--slo-ms", 1000, "--load", 20, "--duration-s", 0.2,
               "--arrivals", "fixed-rate", "--timeout-s", 20, *options)


def endless(part: bytes, first: bytes = b"") -> Callable[[Send], object]:
    def send(send: Send) -> None:
        send(first)
        while True:
            send(part)
    return send


def dripping(send: Send) -> None:
    for byte in HEAD * 100:
        send(bytes([byte]))
        time.sleep(0.05)


def silent(send: Send) -> None:
    time.sleep(5)


DEEP = b'{"outputs":' + b"[" * 100_000
HUGE = b'{"outputs":[{"name":"sum","datatype":"FP32","shape":[1],"data":[1e308,' + b"9" * 5000 + (
    b']}],"parameters":{"batch":' + b"9" * 400 + b"}}")

ANSWERS: dict[str, tuple[Answer, str]] = {
    "closes at once": (b"", "closed the connection"),
    "garbage": (b"\x00\xff garbage\r\n\r\n", "not HTTP"),
    "endless headers": (endless(b"X: " + b"a" * 1000 + b"\r\n", HEAD), "headers of more than"),
    "one endless header": (endless(b"a" * 10_000, HEAD + b"X: "), "headers of more than"),
    "endless body": (endless(b"a" * 65_536, HEAD + b"\r\n"), "an answer of more than"),
    "endless chunks": (endless(b"10000\r\n" + b"a" * 65_536 + b"\r\n",
                               HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
                       "an answer of more than"),
    "an endless chunk's name": (endless(b"a" * 10_000, HEAD +
                                        b"Transfer-Encoding: chunked\r\n\r\n1;"), "more than"),
    "length too large": (HEAD + b"Content-Length: 999\r\n\r\n{}", "no answer within"),
    "length too large, and closes": (lambda send: send(
        HEAD + b"Content-Length: 999\r\n\r\n{}"), "closed the connection"),
    "length too small": (HEAD + b"Content-Length: 2\r\n\r\n" + json.dumps(ANSWER).encode(),
                         "not an answer"),
    "length that is none": (HEAD + b"Content-Length: many\r\n\r\n{}", "not HTTP"),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", "not HTTP"),
    "drip": (dripping, "no answer within 0.2 s"),
    "silence": (silent, "no answer within 0.2 s"),
    "flood of 1xx": (endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "headers of more than"),
    "1xx, and closes": (lambda send: send(b"HTTP/1.1 103 Early\r\n\r\n"), "closed the connection"),
    "other protocol": (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
                       b"Upgrade: h2c\r\n\r\n\x00\x00", "switched to another protocol"),
    "chunk without length": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}", "not HTTP"),
    "chunks cut off": (lambda send: send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
                       "closed the connection"),
    "no JSON": (whole(b"<html>"), "not an answer"),
    "a list": (whole([]), "not an answer"),
    "null": (whole(None), "not an answer"),
    "no outputs": (whole({}), "not an answer"),
    "outputs that are none": (whole({"outputs": 7}), "not an answer"),
    "parameters that are none": (whole({**ANSWER, "parameters": [1]}), "not an answer"),
    "a variant without name": (whole({"outputs": [{"name": "variant", "data": 5}]}),
                               "not an answer"),
    "not UTF-8": (whole(b'{"outputs": [{"name": "\xff\xfe"}]}'), "not an answer"),
    "deep": (whole(DEEP), "not an answer"),
    "huge numbers": (whole(HUGE), "not an answer"),
    "large JSON": (whole(b"[" + b"1," * (1 << 23) + b"1]"), "JSON of 16777219 bytes"),
    "a long name": (whole({**ANSWER, "model_name": "n" * 10_000}), "a name of 10000 characters"),
    "a head of no length": (whole(ANSWER, b"Inference-Header-Content-Length: -3"),
                            "not an answer"),
    "a head beyond the end": (whole(ANSWER, b"Inference-Header-Content-Length: 999"),
                              "not an answer"),
    "a tensor beyond the end": (whole({"outputs": [
        {"name": "sum", "datatype": "FP32", "parameters": {"binary_data_size": 1 << 40}}]}),
        "a tensor of 1099511627776 bytes"),
    "a type that is none": (whole({"outputs": [
        {"name": "sum", "datatype": [], "parameters": {"binary_data_size": 0}}]}),
        "not an answer"),
    "compressed": (whole(b"x", b"Content-Encoding: br"), "compressed, which was not asked for"),
    "redirect": (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://elsewhere/\r\n"
                 b"Content-Length: 0\r\n\r\n", "307, to http://elsewhere/, which is not followed"),
    "an error with codes": (b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n\x1b[31m\nred\n",
                            r"500 \x1b[31m\nred"),
    "a status that is none": (b"HTTP/1.1 99999 OK\r\n\r\n", "not HTTP"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_any_kind_are_failures_in_one_line(run, serving, name, monkeypatch):
    """A limit of 64 MB for an answer is here 1 MB, as the rest of the tests want memory, too."""
    answer, said = ANSWERS[name]
    if "endless" in name:
        monkeypatch.setattr(connections, "_LARGEST", 1 << 20)
    soon = ("--timeout-s", 0.2) if "no answer within" in said else ()
    ran = load(run, serving(answer), "--json", *soon)
    assert ran.code == 3, ran.err
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    assert "requests failed, the first: " in ran.err
    assert said in ran.err
    found = row(ran.out)
    assert found["failed"] == found["requests"] > 0


def test_answers_that_nobody_asked_for_are_not_taken_for_others(run, serving):
    """Two answers to each request: the second one ends the connection, and counts for none."""
    second = whole({**ANSWER, "model_name": "impostor"})

    def late(send: Send) -> None:
        send(whole(ANSWER))
        time.sleep(0.01)  # the next request comes after half a second
        send(second)
        time.sleep(0.7)

    for answer in (whole(ANSWER) + second, late):
        ran = load(run, serving(answer), "--json", "--load", 2, "--duration-s", 1)
        assert ran.code == 0, ran.err
        found = row(ran.out)
        assert (found["failed"], found["model_share"]) == (0, {"sums": 1.0})


def test_answers_share_what_they_may_take(run, serving, monkeypatch):
    monkeypatch.setattr(connections, "_MOST_HELD", 1 << 22)
    tracemalloc.start()
    ran = load(run, serving(endless(b"a" * 65_536, HEAD + b"\r\n")), "--load", 200)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ran.code == 3
    assert "answers of more than 4194304 bytes together" in ran.err
    assert peak_bytes < 50e6


def shaped(*shape: object, **more: object) -> bytes:
    return whole({**METADATA, "inputs": [{"name": "x", "datatype": "FP32", "shape": list(shape),
                                          **more}]})


@pytest.mark.parametrize(("metadata", "said"), [
    (b"", "no answer of the server"), (silent, "no answer within 0.2 s"),
    (whole(b"\xff"), "no answer of the server"), (whole([]), "not the metadata"),
    (whole("text"), "not the metadata"), (whole(None), "not the metadata"),
    (whole({**METADATA, "inputs": []}), "without inputs"),
    (whole({**METADATA, "inputs": [1]}), "not the metadata"),
    (whole({**METADATA, "outputs": None}), "not the metadata"),
    (shaped(-1, 1 << 40), "a request would be too large"),
    (shaped(-1, *[1 << 20] * 10), "a request would be too large"),
    (shaped(-1, 1e300), "a request would be too large"),
    (shaped(-1, "many"), "not the metadata"), (shaped(-1, None), "not the metadata"),
    (shaped(-1, 3, datatype=[]), "a type that is not sent"),
    (shaped(-1, 3, datatype="BYTES"), "a type that is not sent"),
    (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", "302, to /login"),
])
def test_metadata_of_any_kind_is_read_or_refused(run, serving, metadata, said):
    soon = ("--timeout-s", 0.2) if "no answer within" in said else ()
    refused(load(run, serving(metadata=metadata), *soon), 3, said)


@pytest.mark.parametrize("about", [
    b"", whole(b"<html>"), whole([]), whole({"extensions": 7}), whole({"extensions": [[], None]}),
    whole({"extensions": {"binary_tensor_data": 1}})])
def test_a_server_that_does_not_say_what_it_knows_gets_json(run, serving, about):
    ran = load(run, serving(about=about))
    assert ran.code == 0, ran.err


def test_large_samples_are_few(monkeypatch):
    """Of 12 MB each 256 would take 3 GB; sizes are here a hundredth."""
    monkeypatch.setattr(client, "_SAMPLES_BYTES", (1 << 28) // 100)
    model = client.RemoteModel.of("http://h/v2/models/sums", json.loads(
        shaped(-1, 3, 100, 100).partition(b"\r\n\r\n")[2]), [], "auto")
    assert len(model.random_samples(256, np.random.default_rng(0))) == 22


def test_a_host_that_is_no_name_is_an_error_in_one_line(run):
    for host in ("a" * 300, "a..b", "xn--" + "9" * 70):
        refused(load(run, f"http://{host}:80"), 3, "no answer of the server")
