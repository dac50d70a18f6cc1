"""HTTP front end: the Open Inference Protocol and ``/metrics``, as a Starlette application."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ramsis import __version__
from ramsis.errors import InvalidValueError, RamsisError
from ramsis.serving.calls import FailedError, OverloadedError
from ramsis.serving.connections import Reply
from ramsis.serving.protocol import (
    Answer,
    InferRequest,
    RequestLimits,
    answer_body,
    parse_request,
    whole_number,
)
from ramsis.serving.server import Server

_RETRY_AFTER_S = b"1"  # the header takes whole seconds
# Size in bytes from which a body is large; large bodies are parsed one after the other, with
# pauses, so that small requests keep at least half of the event loop.
_LARGE = 1 << 14
_QUERY_S = 1e-5  # approximate time of the event loop per query
_EXTENSIONS = ["binary_tensor_data"]
_JSON = b"application/json"
_JSON_LENGTH = b"inference-header-content-length"
# Headers that are read; all others are dropped while parsing.
_READ = frozenset({_JSON_LENGTH, b"x-deadline-ms", b"content-length", b"content-encoding"})
_NOT_READY = "the server is not ready"


class _RefusedError(RamsisError):
    """Refusal of a request, with its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


_REFUSALS = (InvalidValueError, _RefusedError, OverloadedError, FailedError)


def application(
    server: Server, *, max_body_bytes: int = 1 << 24, max_json_bytes: int = 1 << 22,
    max_waiting_bytes: int = 1 << 26, body_timeout_s: float = 30.0,
) -> Starlette:
    """Return the ASGI application of a started server.

    Its ``state.at_once`` answers small inference requests without the ASGI overhead, for
    :class:`~ramsis.serving.connections.Connections`.

    Limited are the body of a request; the JSON document in it, which tensors may follow as bytes;
    all large requests together that wait to be parsed, beyond which further ones are refused; and
    the time for receiving a whole body.
    """
    infer = _Infer(server, max_body_bytes, max_waiting_bytes, body_timeout_s, RequestLimits(
        server.settings.slots, max_json_bytes, 1000.0 * server.settings.max_wait_s,
        server.variants.max_size))
    # A name with special characters has several URL encodings, which only the application handles.
    if quote(server.name, safe="") == server.name:
        infer.paths = frozenset(f"/v2/models/{server.name}{version}/infer".encode()
                                for version in ("", "/versions/1"))
    model = "/v2/models/{name}"
    version = model + "/versions/{version}"

    def json(document: object, status: int = 200) -> Response:
        return Response(orjson.dumps(document), status, media_type="application/json")

    def is_served(request: Request) -> bool:
        params = request.path_params
        return bool(params["name"] == server.name and params.get("version", "1") == "1")

    async def metadata(request: Request) -> Response:
        if not is_served(request):
            return json(_unknown(server), 404)
        pool = server.pool
        return json({"name": server.name, "versions": ["1"], "platform": "ramsis",
                     "inputs": [spec.metadata() for spec in pool.inputs],
                     "outputs": [spec.metadata() for spec in pool.outputs]})

    def readiness(about: Mapping[str, object]) -> Response:
        reason = server.not_ready
        if reason is None:
            return json({**about, "ready": True})
        return json({**about, "ready": False, "error": reason}, 503)

    async def model_ready(request: Request) -> Response:
        if not is_served(request):
            return json(_unknown(server), 404)
        return readiness({"name": server.name})

    async def live(request: Request) -> Response:
        return json({"live": True})

    async def ready(request: Request) -> Response:
        workers = server.about_workers
        return readiness({} if workers is None else {"workers": workers()})

    async def about(request: Request) -> Response:
        return json({"name": "ramsis", "version": __version__, "extensions": _EXTENSIONS})

    async def metrics(request: Request) -> Response:
        text, content_type = server.metrics.text(request.headers.get("accept", ""))
        return Response(text, media_type=content_type)

    def refusal(request: Request, error: Exception) -> Response:
        """Return an HTTP error as the protocol's JSON."""
        assert isinstance(error, HTTPException)
        reasons = {404: "nothing is at this path", 405: "not a method of this path"}
        response = json({"error": reasons.get(error.status_code, error.detail)}, error.status_code)
        response.headers.update(error.headers or {})
        return response

    def failure(request: Request, error: Exception) -> Response:
        return json({"error": "the server failed; its log says why"}, 500)

    app = Starlette(exception_handlers={HTTPException: refusal, Exception: failure}, routes=[
        Route(model + "/infer", infer), Route(version + "/infer", infer),
        Route("/v2/health/live", live), Route("/v2/health/ready", ready),
        Route("/v2", about), Route("/v2/", about),
        Route(model + "/ready", model_ready), Route(version + "/ready", model_ready),
        Route(model, metadata), Route(version, metadata),
        Route("/metrics", metrics),
    ])
    app.state.at_once = infer
    return app


def _unknown(server: Server) -> dict[str, str]:
    return {"error": f"no such model; there is {server.name!r}, version 1"}


class _Infer:
    """Inference requests, as an ASGI application or as an ``AtOnce`` of connections."""

    def __init__(
        self, server: Server, max_body_bytes: int, max_waiting_bytes: int, body_timeout_s: float,
        limits: RequestLimits,
    ) -> None:
        self._server, self._body_timeout_s, self._limits = server, body_timeout_s, limits
        self._max_body_bytes, self._max_waiting_bytes = max_body_bytes, max_waiting_bytes
        self.largest = min(_LARGE, max_body_bytes, limits.json_bytes)
        self.paths, self.headers = frozenset[bytes](), _READ
        self._one_by_one, self._waiting_bytes, self._pauses_until_s = asyncio.Lock(), 0, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; cancel it if its client disconnects."""
        connection = scope.get("state", {}).get("connection")
        if connection is not None:
            connection.answering = asyncio.current_task()
        try:
            await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            return  # nobody is there to take the answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body, json_end, finish_ms = await self._answered(scope, receive)
            status, headers = 200, _answer_headers(json_end)
        except _REFUSALS as error:
            status, headers, body, finish_ms = *self._refused(error), math.nan
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        if status == 200:
            self._server.overhead.answered(self._server.front.now_ms() - finish_ms)

    def begin(
        self, headers: Mapping[bytes, str], body: bytes, whole_s: float, reply: Reply
    ) -> Callable[[], object]:
        """Begin to answer a small request; see :class:`~ramsis.serving.connections.AtOnce`."""
        server = self._server
        try:
            if not server.ready:
                raise OverloadedError(_NOT_READY)
            request = self._parsed(headers, body)
            call = server.submit(request, 1000.0 * whole_s,
                                 lambda result: self._tell(request, result, reply))
        except _REFUSALS as error:
            reply(*self._refused(error))
            return int  # there is nothing to end
        return partial(server.abandon, call)

    def _tell(self, request: InferRequest, result: Answer | RamsisError, reply: Reply) -> None:
        if isinstance(result, RamsisError):
            reply(*self._refused(result))
            return
        server = self._server
        body, json_end = answer_body(server.name, request, result, server.pool.outputs)
        reply(200, _answer_headers(json_end), body)
        server.overhead.answered(server.front.now_ms() - result.finish_ms)

    def _refused(self, error: RamsisError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, headers and body of an error."""
        headers = [(b"content-type", _JSON)]
        if isinstance(error, OverloadedError):
            status = 503
            headers.append((b"retry-after", _RETRY_AFTER_S))
        elif isinstance(error, _RefusedError):
            status = error.status
            if status == 405:
                headers.append((b"allow", b"POST"))
        else:
            status = 400 if isinstance(error, InvalidValueError) else 500
        self._server.metrics.refused.of[str(status),] += 1
        return status, headers, orjson.dumps({"error": str(error)})

    async def _answered(
        self, scope: Scope, receive: Receive,
    ) -> tuple[bytes, int | None, float]:
        """Return the body of the answer, the length of its JSON, and the time of the answer.

        The length is None if no bytes follow the JSON.
        """
        server = self._server
        parameters = scope["path_params"]
        if parameters["name"] != server.name or parameters.get("version", "1") != "1":
            raise _RefusedError(404, _unknown(server)["error"])
        if scope["method"] != "POST":
            raise _RefusedError(405, "inference requests are POST requests")
        if not server.ready:
            raise OverloadedError(_NOT_READY)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]
                   if name in _READ}
        body = await self._body(headers, receive)
        whole_s = scope.get("state", {}).get("whole_s")  # before others had their turn
        arrival_ms = server.front.now_ms() if whole_s is None else 1000.0 * whole_s
        request = (self._parsed(headers, body) if len(body) <= _LARGE
                   else await self._parsed_in_turn(headers, body))
        del body  # what waits for its answer is in the slots
        answer = await server.infer(request, arrival_ms)
        return (*answer_body(server.name, request, answer, server.pool.outputs),
                answer.finish_ms)

    def _parsed(self, headers: Mapping[bytes, str], body: bytes) -> InferRequest:
        pool = self._server.pool
        return parse_request(body, headers.get(_JSON_LENGTH),
                             headers.get(b"x-deadline-ms"), pool.inputs, pool.outputs,
                             self._limits)

    async def _parsed_in_turn(self, headers: dict[bytes, str], body: bytes) -> InferRequest:
        """Parse a large request after earlier large ones; together they take half of the time."""
        if self._waiting_bytes + len(body) > self._max_waiting_bytes:
            raise OverloadedError("too many large requests at once")
        self._waiting_bytes += len(body)
        try:
            async with self._one_by_one:
                await asyncio.sleep(max(self._pauses_until_s - time.monotonic(), 0.0))
                begun_s, queries = time.monotonic(), 0
                try:
                    request = self._parsed(headers, body)
                    queries = request.queries
                finally:
                    ended_s = time.monotonic()
                    self._pauses_until_s = 2.0 * ended_s - begun_s + queries * _QUERY_S
                return request
        finally:
            self._waiting_bytes -= len(body)

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes:
        """Read the whole body, unless it is too long or too slow."""
        if headers.get(b"content-encoding", "identity") != "identity":
            raise _RefusedError(415, "bodies are not to be compressed")
        most = self._max_body_bytes
        if _JSON_LENGTH not in headers:  # it is JSON alone
            most = min(most, self._limits.json_bytes)
        length = whole_number(headers.get(b"content-length", "0"))
        if length is not None and length > most:
            raise _RefusedError(413, f"a body of {length} bytes; allowed: up to {most}")
        message: Any = await receive()
        if not message.get("more_body"):
            return self._checked(message.get("body", b""))
        parts, size = [message["body"]], len(message["body"])
        try:
            async with asyncio.timeout(self._body_timeout_s):
                while message.get("more_body") and size <= self._max_body_bytes:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(400, "the client is gone")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
        except TimeoutError:
            raise _RefusedError(408, "the body took too long") from None
        return self._checked(b"".join(parts))

    def _checked(self, body: bytes) -> bytes:
        if len(body) > self._max_body_bytes:
            raise _RefusedError(413, f"a body of more than {self._max_body_bytes} bytes")
        return body


def _answer_headers(json_end: int | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, with the end of its JSON if bytes follow."""
    if json_end is None:
        return [(b"content-type", _JSON)]
    return [(b"content-type", b"application/octet-stream"), (_JSON_LENGTH, b"%d" % json_end)]
