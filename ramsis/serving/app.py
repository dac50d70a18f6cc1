"""The HTTP front end: the Open Inference Protocol and ``/metrics``, as a Starlette application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ramsis import __version__
from ramsis.errors import InvalidValueError, RamsisError
from ramsis.serving.calls import FailedError, OverloadedError
from ramsis.serving.metrics import CONTENT_TYPE_LATEST
from ramsis.serving.protocol import answer_body, parse_request
from ramsis.serving.server import Server

__all__ = ["application"]

_RETRY_AFTER_S = b"1"
_EXTENSIONS = ["binary_tensor_data"]
_JSON = b"application/json"


class _RefusedError(RamsisError):
    """A request that is not taken, with its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def application(
    server: Server, *, max_body_bytes: int = 1 << 24, body_timeout_s: float = 30.0
) -> Starlette:
    """The application of a server that is started.

    Parameters
    ----------
    server
    max_body_bytes
        Larger requests are refused.
    body_timeout_s
        A request that is not here whole by then is refused.
    """
    infer = _Infer(server, max_body_bytes, body_timeout_s)
    model = "/v2/models/{name}"
    version = model + "/versions/{version}"

    def json(document: object, status: int = 200) -> Response:
        return Response(orjson.dumps(document), status, media_type="application/json")

    def known(request: Request) -> bool:
        params = request.path_params
        return bool(params["name"] == server.name and params.get("version", "1") == "1")

    def metadata(request: Request) -> Response:
        if not known(request):
            return json(_unknown(server), 404)
        pool = server.pool
        return json({"name": server.name, "versions": ["1"], "platform": "ramsis",
                     "inputs": [spec.metadata() for spec in pool.inputs],
                     "outputs": [spec.metadata() for spec in pool.outputs]})

    def model_ready(request: Request) -> Response:
        if not known(request):
            return json(_unknown(server), 404)
        return json({"name": server.name, "ready": server.ready}, 200 if server.ready else 503)

    async def of_model(request: Request) -> Response:
        return metadata(request)

    async def ready_of_model(request: Request) -> Response:
        return model_ready(request)

    async def live(request: Request) -> Response:
        return json({"live": True})

    async def ready(request: Request) -> Response:
        return json({"ready": server.ready}, 200 if server.ready else 503)

    async def about(request: Request) -> Response:
        return json({"name": "ramsis", "version": __version__, "extensions": _EXTENSIONS})

    async def metrics(request: Request) -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[
        Route(model + "/infer", infer), Route(version + "/infer", infer),
        Route("/v2/health/live", live), Route("/v2/health/ready", ready),
        Route("/v2", about), Route("/v2/", about),
        Route(model + "/ready", ready_of_model), Route(version + "/ready", ready_of_model),
        Route(model, of_model), Route(version, of_model),
        Route("/metrics", metrics),
    ])


def _unknown(server: Server) -> dict[str, str]:
    return {"error": f"no such model; there is {server.name!r}, version 1"}


class _Infer:
    """Answers inference requests; an ASGI application, since it is the one that has to be fast."""

    def __init__(self, server: Server, max_body_bytes: int, body_timeout_s: float) -> None:
        self._server = server
        self._max_body_bytes, self._body_timeout_s = max_body_bytes, body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, headers = 200, [(b"content-type", _JSON)]
        try:
            body, json_end = await self._answered(scope, receive)
            if json_end is not None:
                headers = [(b"content-type", b"application/octet-stream"),
                           (b"inference-header-content-length", b"%d" % json_end)]
        except InvalidValueError as error:
            status, body = 400, _error(error)
        except _RefusedError as error:
            status, body = error.status, _error(error)
        except OverloadedError as error:
            status, body = 503, _error(error)
            headers.append((b"retry-after", _RETRY_AFTER_S))
        except FailedError as error:
            status, body = 500, _error(error)
        if status != 200:
            self._server.metrics.refused.labels(str(status)).inc()
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[bytes, int | None]:
        server = self._server
        named = scope["path_params"]
        if named["name"] != server.name or named.get("version", "1") != "1":
            raise _RefusedError(404, _unknown(server)["error"])
        if scope["method"] != "POST":
            raise _RefusedError(405, "inference requests are POST requests")
        if not server.ready:
            raise OverloadedError("the server is not ready")
        headers = _headers(scope["headers"])
        body = await self._body(headers, receive)
        arrival_ms = server.front.now_ms()
        request = parse_request(
            body, headers.get(b"inference-header-content-length"),
            headers.get(b"x-deadline-ms"), server.pool.inputs, server.pool.outputs)
        if request.queries > server.settings.slots:
            raise InvalidValueError(f"inputs: more queries than the server holds: got "
                                    f"{request.queries}; allowed: up to {server.settings.slots}")
        answer = await server.infer(request, arrival_ms)
        return answer_body(server.name, request, answer, server.pool.outputs)

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes:
        """The whole body, unless it is too long or too slow."""
        if headers.get(b"content-encoding", "identity") != "identity":
            raise _RefusedError(415, "bodies are not to be compressed")
        length = headers.get(b"content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise _RefusedError(413, f"a body of {length} bytes; allowed: up to "
                                     f"{self._max_body_bytes}")
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


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in headers}


def _error(error: RamsisError) -> bytes:
    return orjson.dumps({"error": str(error)})
