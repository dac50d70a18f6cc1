"""Persistent HTTP/1.1 connections of the load generator, each with one request at a time.

A general-purpose client spends more time per request than many servers, possibly on the same
processor, and this time counts as the server's. This one writes bytes to the socket and parses
answers with httptools, without tasks, cookies or redirects. Servers are not trusted: sizes of
answers are limited, and unsolicited bytes close their connection.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools

from ramsis.files import MAX_FILE_BYTES

_LOOKS_S = 0.1  # interval of checks for timeouts
_HEADS = 256  # number of cached heads of requests
# Largest size of an answer's head, and overhead of chunked encoding per byte of the body.
_MOST_BESIDE, _FRAMING = 1 << 16, 8
# Largest size of an answer's body, and of all incomplete answers together, in bytes.
_LARGEST, _MOST_HELD = MAX_FILE_BYTES, 4 * MAX_FILE_BYTES


class Response(NamedTuple):
    """Answer of the server, or the reason for its absence."""

    status: int  # 0 without an answer
    headers: Mapping[str, str]  # by name in lower case
    body: bytes
    failure: str  # reason for having no answer; empty with an answer
    at_s: float  # time of its last byte, by :func:`time.perf_counter`


OnResponse = Callable[[Response], object]  # called once, with the answer or the failure


class ConnectionPool:
    """Pool of connections to a server, as many as there are unanswered requests.

    ``url`` is any ``http`` or ``https`` URL of the server. A request without an answer fails after
    ``timeout_s``.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self.authority = parts.netloc.rpartition("@")[2]
        self.address = (parts.hostname or "", parts.port or (
            443 if parts.scheme == "https" else 80))  # resolved once there is a connection
        self.secure: dict[str, Any] = {} if parts.scheme == "http" else {
            "ssl": ssl.create_default_context(), "server_hostname": self.address[0]}
        self.timeout_s = timeout_s
        self.idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._asked: dict[_Request, None] = {}  # the longest first
        self._opening: set[asyncio.Task[None]] = set()
        self._looking = False
        self.held = 0  # bytes of answers that are not whole

    def send(
        self, method: str, path: str, on_response: OnResponse,
        headers: Mapping[str, str] | None = None, body: bytes = b"",
    ) -> None:
        """Send a request now, or as soon as a connection is open."""
        head = _head(f"{method} {path}", self.authority, len(body), *(headers or {}).items())
        request = _Request(head + body, on_response, self)
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_LOOKS_S, self._look)
        self._asked[request] = None
        if self.idle:  # the last one used: those that a burst left are closed by the server
            self.idle.pop().begin(request)
        else:
            task = asyncio.get_running_loop().create_task(self._begin(request))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def get(self, path: str) -> Response:
        """Send a GET request, and wait for the answer."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.send("GET", path, answer.set_result)
        return await answer

    def close(self) -> None:
        """Close all connections; unanswered requests fail."""
        for task in self._opening:
            task.cancel()
        for connection in self._open:
            connection.transport.abort()
        for request in list(self._asked):
            request.end(_failed("the run was ended"))

    def ended(self, request: _Request) -> None:
        """Remove an answered request."""
        del self._asked[request]

    def opened(self, connection: _Connection) -> None:
        """Register a new connection."""
        self._open.add(connection)
        peer = connection.transport.get_extra_info("peername")
        if peer is not None:  # it is still there
            self.address = peer[:2]

    def closed(self, connection: _Connection) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        self.forget(connection)

    def forget(self, connection: _Connection) -> None:
        """Stop using a connection for further requests."""
        if connection in self.idle:
            self.idle.remove(connection)

    async def _begin(self, request: _Request) -> None:
        """Open a connection, over which a request is sent once it is established."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self), *self.address, **self.secure)
        except (OSError, ValueError) as error:  # the latter for a name that is none
            request.end(_failed(f"{type(error).__name__}: {error}"))
            return
        if request.over:  # it has waited too long for this
            self.idle.append(connection)
        else:
            connection.begin(request)

    def _look(self) -> None:
        """Fail requests after the timeout; repeat while any request waits."""
        too_old_s = time.perf_counter() - self.timeout_s
        for request in list(self._asked):
            if request.sent_s > too_old_s:
                break
            connection = request.connection
            request.end(_failed(f"TimeoutError: no answer within {self.timeout_s:g} s"))
            if connection is not None:
                connection.transport.abort()
        self._looking = bool(self._asked)
        if self._looking:
            asyncio.get_running_loop().call_later(_LOOKS_S, self._look)


class _Request:
    """Request that has not been answered yet."""

    __slots__ = ("connection", "content", "group", "on_response", "over", "sent_s")

    def __init__(self, content: bytes, on_response: OnResponse, group: ConnectionPool) -> None:
        self.content, self.on_response, self.group = content, on_response, group
        self.sent_s, self.over = time.perf_counter(), False
        self.connection: _Connection | None = None

    def end(self, answer: Response) -> None:
        """Report the answer or the failure, once."""
        if not self.over:
            self.over = True
            self.group.ended(self)
            self.on_response(answer)


class _Connection(asyncio.Protocol):
    """Connection to the server; httptools calls its methods ``on_…``."""

    transport: asyncio.Transport

    def __init__(self, group: ConnectionPool) -> None:
        self.group = group
        self.request: _Request | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.size = self.received = 0  # bytes of the body, and of all since the request
        self.headed = False  # whether the head of the last answer is whole
        self.whole: Response | None = None
        self.is_reusable = True

    def begin(self, request: _Request) -> None:
        """Send a request on the idle connection."""
        self.request, self.whole = request, None
        request.connection = self
        self.transport.write(request.content)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.group.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.request is None:  # nobody asked for them
            self._fail("")
            return
        self.received += len(data)
        failure = ""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            failure = "the server switched to another protocol"
        except httptools.HttpParserError as error:
            failure = f"not HTTP ({error})"
        if self.whole is not None:
            if failure or not self.is_reusable:
                self.transport.abort()
            else:
                self.group.idle.append(self)
            self._end(self.whole)
        elif self.received - self.size > _MOST_BESIDE + _FRAMING * self.size:
            failure = f"headers of more than {_MOST_BESIDE} bytes"
        elif self.size > _LARGEST:
            failure = f"an answer of more than {_LARGEST} bytes"
        elif self.group.held > _MOST_HELD:
            failure = f"answers of more than {_MOST_HELD} bytes together"
        if failure:
            self._fail(failure)

    def connection_lost(self, error: Exception | None) -> None:
        self.group.closed(self)
        # An answer without a length ends with its connection.
        if (error is None and self.headed and self.parser.get_status_code() >= 200
                and not {"content-length", "transfer-encoding"} & self.headers.keys()):
            self.on_message_complete()
        if self.whole is not None:
            self._end(self.whole)
        else:
            self._fail(f"{type(error).__name__}: {error}" if error else
                       "the server closed the connection before its answer was whole")

    def on_message_begin(self) -> None:
        if self.whole is not None:  # and nobody asked for it
            self.is_reusable = False
        self.headers, self.parts, self.headed = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, data: bytes) -> None:
        self.parts.append(data)
        self.size += len(data)
        self.group.held += len(data)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200 and self.whole is None:  # else more is to come
            self.is_reusable = self.parser.should_keep_alive()
            self.whole = Response(status, self.headers, b"".join(self.parts), "",
                                  time.perf_counter())

    def _fail(self, why: str) -> None:
        """Close the connection, and fail its request."""
        self.group.forget(self)
        self.transport.abort()
        self._end(_failed(why))

    def _end(self, answer: Response) -> None:
        self.group.held -= self.size
        self.parts, self.size, self.received = [], 0, 0
        request, self.request = self.request, None
        if request is not None:
            request.end(answer)


@lru_cache(maxsize=_HEADS)
def _head(what: str, authority: str, size: int, *headers: tuple[str, str]) -> bytes:
    """Encode the head of a request; cached, as most requests have the same head."""
    lines = [("Host", authority), *([("Content-Length", str(size))] if size else ()), *headers]
    return "\r\n".join((f"{what} HTTP/1.1", *(f"{name}: {value}" for name, value in lines), "", "")
                       ).encode()


def _failed(why: str) -> Response:
    return Response(0, {}, b"", why, time.perf_counter())
