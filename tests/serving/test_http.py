"""HTTP/1.1 as its specification has it: upgrades, pipelines, hosts, and errors in JSON."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import time

import pytest

from tests.serving.servers import Running, body, make, running
from tests.serving.test_at_once import answers, connected, queries, request

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

INFER = "/v2/models/sums/infer"
UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(make(tmp_path_factory.mktemp("http")), "--overhead-ms", "0",
                 "--max-header-kb", "8", "--batch-timeout-s", "3") as served:
        yield served


def answered(server: Running, *parts: bytes, count: int = 1) -> list[tuple[int, object]]:
    """Status and document of each answer to what is sent in parts; none comes after them."""
    with connected(server) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.03 * (len(parts) - 1))
        found = answers(connection, count)
        connection.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            assert connection.recv(1) == b""
    return [(status, json.loads(document)) for status, _, document in found]


def chunked(content: bytes, headers: str = "") -> bytes:
    head = f"POST {INFER} HTTP/1.1\r\nHost: here\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


@pytest.mark.parametrize("sent", [
    request(queries(1), UPGRADE), chunked(queries(1), UPGRADE),
    request(queries(1), "Connection: upgrade\r\nUpgrade: websocket\r\n"),
])
@pytest.mark.parametrize("cut", [None, 20, 110, -40, -1])
def test_a_wish_to_upgrade_is_ignored_and_the_body_read(server, sent, cut):
    parts = (sent,) if cut is None else (sent[:cut], sent[cut:])
    ((status, document),) = answered(server, *parts)
    assert status == 200
    assert isinstance(document, dict)
    assert document["outputs"][0]["data"] == [3.0]


@pytest.mark.parametrize("parts", [1, 2])
def test_the_body_of_a_request_that_wishes_to_upgrade_is_no_request(server, parts):
    sent = request(LIVE, UPGRADE)
    at = len(sent) - len(LIVE)
    ((status, document),) = answered(server, *((sent,) if parts == 1 else (sent[:at], sent[at:])))
    assert status == 400
    assert "error" in str(document)


def test_curls_offer_of_http_2_is_answered_over_http_1(server):
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in subprocess.check_output([curl, "--version"]):
        pytest.skip("needs curl with HTTP/2")
    url = f"http://{server.host}:{server.port}{INFER}"
    for document, more in ((body(1.0), ()), (body(*range(200), deadline_ms=60_000),
                                             ("-H", "Expect: 100-continue"))):
        ran = subprocess.run(
            [curl, "--http2", "-sS", "-w", " %{http_version} %{http_code}", *more, "-d", "@-",
             url], input=json.dumps(document), capture_output=True, text=True, check=True)
        assert ran.stdout.endswith("} 1.1 200"), ran.stdout[-200:]


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0]))
            .POST(HttpRequest.BodyPublishers.ofString(words[1])).build();
        var client = HttpClient.newHttpClient();  // offers HTTP/2
        for (int i = 0; i < 3; i++)
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString())
                .statusCode());
    }
}
"""


@pytest.mark.slow
def test_javas_client_gets_answers(server, tmp_path):
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        pytest.skip("needs a Java development kit")
    (tmp_path / "Ask.java").write_text(JAVA)
    ran = subprocess.run(
        [java, str(tmp_path / "Ask.java"), f"http://{server.host}:{server.port}{INFER}",
         json.dumps(body(1.0, deadline_ms=60_000))], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["200"] * 3, ran.stderr


def test_this_server_is_no_proxy(server):
    ((status, document),) = answered(
        server, b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n" + LIVE)
    assert (status, document) == (501, {"error": "this server is no proxy"})


def test_all_requests_behind_each_other_are_answered_in_turn(server):
    """More than are parsed at once, of several kinds; the last is no request."""
    sent = [request(queries(1, id=str(number))) if number % 3 else
            chunked(queries(2, id=str(number))) if number % 2 else request(b"{")
            for number in range(200)]
    found = answered(server, b"".join([*sent, b"no request\r\n\r\n", *sent]), count=201)
    assert [status for status, _ in found] == [
        *(200 if number % 3 or number % 2 else 400 for number in range(200)), 400]
    assert all(document["id"] == str(number)  # type: ignore[index]
               for number, (status, document) in enumerate(found) if status == 200)
    assert "not an HTTP/1.1 request" in str(found[-1][1])


def test_a_client_that_sends_on_is_read_only_as_fast_as_it_is_answered(server):
    """Of 8 MB of requests few are here while the first of them waits for the model."""
    with connected(server) as connection:
        connection.settimeout(0.3)
        connection.sendall(request(json.dumps(body(777.0)).encode()) + LIVE * 20)
        sent, many = 0, 1000 * request(b"".ljust(1000))
        with contextlib.suppress(TimeoutError):
            while True:
                sent += connection.send(many)
                assert sent < 1 << 23


def test_many_thousand_small_requests_at_once_are_all_answered(server):
    with connected(server) as connection:
        connection.sendall(3000 * LIVE)
        assert {status for status, _, _ in answers(connection, 3000)} == {200}


@pytest.mark.parametrize(("head", "status"), [
    ("GET /v2/health/live HTTP/1.1\r\n", 400),
    ("GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
    ("GET /v2/health/live HTTP/1.1\r\nHost: a\r\nhost: a\r\n", 400),
    ("GET /v2/health/live HTTP/1.0\r\nHost: a\r\nHost: a\r\n", 400),
    (f"POST {INFER} HTTP/1.1\r\nContent-Length: 2\r\n", 400),
    ("GET /v2/health/live HTTP/1.0\r\n", 200),
    ("GET /v2/health/live HTTP/1.1\r\nhOsT:\r\n", 200),
])
def test_a_request_has_one_host(server, head, status):
    ((code, document),) = answered(server, head.encode() + b"\r\n")
    assert code == status
    assert ("one Host header" in str(document)) == (status == 400)


@pytest.mark.parametrize(("sent", "status", "said"), [
    (b"GET /missing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "nothing is at this path"),
    (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405, "not a method"),
    (f"DELETE {INFER} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), 405, "POST requests"),
    (b"GET /v2/models/others/ready HTTP/1.1\r\nHost: x\r\n\r\n", 404, "no such model"),
    (b"\x16\x03\x01 nonsense\r\n\r\n", 400, "not an HTTP/1.1 request"),
    (b"GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not an HTTP/1.1 request"),
    (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not a URL"),
    (b"GET http://x:y:z/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not a URL"),
    (b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not a URL"),
    (b"GET ? HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400,
     "not an HTTP/1.1 request"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "not an HTTP/1.1 request"),
    (f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n".encode(), 400,
     "not an HTTP/1.1 request"),
    (b"GET / HTTP/1.1\r\nX: " + b"a" * 9000, 431, "headers of more than"),
])
def test_errors_are_json_as_the_protocol_has_them(server, sent, status, said):
    with connected(server) as connection:
        connection.sendall(sent)
        ((code, headers, document),) = answers(connection, 1)
    assert (code, headers["content-type"]) == (status, "application/json")
    assert said in json.loads(document)["error"]
    assert ("allow" in headers) == (status == 405)


def test_an_error_in_a_body_is_the_one_answer_to_its_request(server):
    """It follows on the answers to those before, also where its own was begun."""
    bad = chunked(queries(1)).replace(b"\r\n0\r\n\r\n", b"\r\nz\r\n")
    for parts in ((request(queries(1)) + bad,), (LIVE + LIVE + bad[:-4], bad[-4:])):
        found = answered(server, *parts, count=2 if len(parts) == 1 else 3)
        assert [status for status, _ in found] == [*[200] * (len(found) - 1), 400]


def random_request(rng: random.Random, number: int) -> tuple[bytes, int, str | None]:
    """A request, the status of its answer, and the id in it."""
    name = str(number)
    body = queries(rng.randint(1, 3), id=name, parameters={"deadline_ms": 60_000})
    body += b" " * rng.choice([0, 0, 10, 5_000, 70_000])
    upgrade = rng.choice(["", UPGRADE])
    return rng.choice([
        (request(body, upgrade), 200, name), (chunked(body, upgrade), 200, name),
        (request(body, f"X-Filled: {'a' * rng.randrange(3000)}\r\n"), 200, name),
        (request(body, "Content-Encoding: gzip\r\n"), 415, None),
        (request(b"\r\n\r\n" * rng.randint(1, 3000)), 400, None), (LIVE, 200, None),
        (b"GET /missing HTTP/1.1\r\nHost: here\r\n\r\n", 404, None)])


@pytest.mark.parametrize("seed", range(int(os.environ.get("HTTP_STREAMS", "12"))))
def test_requests_in_a_stream_are_told_apart_however_it_is_cut(server, seed):
    rng = random.Random(seed)
    sent = [random_request(rng, number) for number in range(rng.choice([1, 8, 9, 30]))]
    if rng.random() < 0.5:
        sent.append((b"no request\r\n\r\n" + LIVE, 400, None))
    stream = b"".join(content for content, _, _ in sent)
    cuts = sorted(rng.randrange(len(stream)) for _ in range(rng.choice([0, 1, 5, 40])))
    with connected(server) as connection:
        for first, after in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            connection.sendall(stream[first:after])
            time.sleep(rng.choice([0.0, 0.005]))
        found = answers(connection, len(sent))
    assert [(status, json.loads(document).get("id") if status == 200 else None)
            for status, _, document in found] == [(status, name) for _, status, name in sent]
