"""HTTP connections of the server: limits on sizes and times, and a fast path for inference.

uvicorn limits neither the head of a request nor the time until the request is complete. Here a
connection *owes* a request from its opening, or from the first byte of a request, until the
request is complete. It is closed if it owes for too long, or if the head is too long. If there are
too many connections, or too many bytes of incomplete requests, the connection that has owed
longest is closed, or else the one that has been idle longest. A connection with a complete request
is kept, unless its client does not read the answer. When a client disconnects, its requests are
cancelled.

Pipelined requests are answered in order. While many of them wait for their answers, further ones
are neither parsed nor read. An invalid request is refused in order with a JSON error, as the
protocol defines it. An Upgrade header is ignored (RFC 9110, section 7.8).

An ASGI application costs each request a task, two messages each way and their checks. So small
inference requests that arrive whole, with no unanswered ones before them, are answered at once
without the application; they determine a server's throughput. All others use the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ramsis.errors import check_number_of, check_positive
from ramsis.serving.protocol import whole_number

Headers = Sequence[tuple[bytes, bytes]]
Reply = Callable[[int, Headers, bytes], None]  # arguments: status, headers and body of an answer

_EACH_S = 0.25  # interval of checks for slow connections
# Time after which idle connections are closed. It is longer than clients keep theirs, as a request
# sent just when the server closes would get no answer.
_IDLE_S = 75.0
# Number of cached parsed heads of requests, and largest size of such a head in bytes.
_KNOWN_HEADS, _LARGEST_KNOWN = 256, 1 << 11
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
# For larger chunks the end of a body is derived from its length, as a search takes longer.
_SCANNED = 1 << 12
# A refused connection is read for this long, and up to this many bytes: a client with unread bytes
# would get a reset instead of the error.
_LINGER_S = 2.0
_DISCARDED = 1 << 20
_REFUSAL = (b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s")
_PIPELINED = 8  # unanswered requests of a connection at which parsing stops
_LINE = 4  # bytes of a header besides its name and value: colon, space and line end
_CODED = (b"content-encoding", b"transfer-encoding")
_FRAMING = 8  # largest overhead of chunked encoding, in bytes per byte of the body


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections: number, sizes and times."""

    connections: int = 2048  # largest number of open connections
    head_bytes: int = 1 << 15  # largest head of a request: its first line and its headers
    head_s: float = 10.0  # time for the head of a request, and of a connection until its first
    request_s: float = 30.0  # time for a whole request, and for a client to read an answer
    pending_bytes: int = 1 << 26  # bytes of all requests together that are not whole

    def __post_init__(self) -> None:
        check_positive(head_s=self.head_s, request_s=self.request_s)
        for name in ("connections", "head_bytes", "pending_bytes"):
            check_number_of(name, getattr(self, name))


class AtOnce(Protocol):
    """Interface of the fast path, which answers complete requests without an application."""

    paths: Collection[bytes]  # encoded paths of the POST requests that it answers
    largest: int  # largest body, in bytes
    headers: Collection[bytes]  # names of the headers that it reads, in lower case

    def begin(
        self, headers: Mapping[bytes, str], body: bytes, whole_s: float, reply: Reply
    ) -> Callable[[], object]:
        """Begin to answer a request, and return a function to call if the client disconnects.

        ``headers`` are those of the request that are in :attr:`headers`, the body is uncompressed,
        and the request was complete at ``whole_s`` by :func:`time.monotonic`. ``reply`` is called
        once with the answer, perhaps before this returns.
        """
        ...


class _Head(NamedTuple):
    """Parsed head of a request for the fast path."""

    headers: Mapping[bytes, str]
    length: int


class Connections:
    """Group of all connections of a server; ``at_once`` is the optional fast path."""

    def __init__(self, limits: ConnectionLimits, at_once: AtOnce | None = None) -> None:
        self.limits, self.at_once = limits, at_once
        self._open, self._pending_bytes = 0, 0
        self._owing: dict[Connection, float] = {}  # start times of owing, oldest first
        self._idle: dict[Connection, float] = {}  # start times of idling, oldest first
        self._unread: dict[Connection, float] = {}  # times since when answers are not read
        self._heads: dict[bytes, _Head] = {}
        self._stated: tuple[Headers, bytes] = [], b""

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class for uvicorn, bound to this group."""
        return type("LimitedConnection", (Connection,), {"group": self})

    def opened(self, connection: Connection) -> None:
        """Register a new connection; close another one if there are too many."""
        self._open += 1
        self._owing[connection] = connection.loop.time()
        if self._open > self.limits.connections:
            self._make_room()

    def closed(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._open -= 1
        for connections in (self._owing, self._idle, self._unread):
            connections.pop(connection, None)

    def settle(self, connection: Connection, *, owes: bool, idle: bool) -> None:
        """Note since when a connection owes data or is idle, for the limits on slow clients."""
        if owes:
            self._owing[connection] = connection.loop.time()
        else:
            self._owing.pop(connection, None)
        if idle:
            self._idle[connection] = connection.loop.time()
        else:
            self._idle.pop(connection, None)

    def received(self, count: int) -> None:
        """Add to the bytes of incomplete requests; ``count`` may be negative."""
        self._pending_bytes += count
        while self._pending_bytes > self.limits.pending_bytes and self._make_room():
            pass

    def unread(self, connection: Connection, is_unread: bool = True) -> None:
        """Record whether a connection has an answer that its client does not read."""
        if is_unread:
            self._unread.setdefault(connection, connection.loop.time())
        else:
            self._unread.pop(connection, None)

    def known_head(self, data: bytes) -> tuple[_Head, bytes] | None:
        """Split bytes into head and body if they are one complete request with a cached head."""
        end = data.find(_END) + len(_END)
        head = self._heads.get(data[:end])
        return (head, data[end:]) if head is not None and len(data) == end + head.length else None

    def know_head(self, data: bytes, headers: Mapping[bytes, str], length: int) -> None:
        """Cache the parsed head of a request; ``data`` ends with a body of ``length`` bytes."""
        end = len(data) - length
        if data.find(_END) + len(_END) == end <= _LARGEST_KNOWN:
            if len(self._heads) >= _KNOWN_HEADS:
                self._heads.clear()
            self._heads[data[:end]] = _Head(headers, length)

    def stated(self, headers: Headers) -> bytes:
        """Encode the headers of an answer; the common ones are cached for a second."""
        if self._stated[0] is not headers:
            self._stated = headers, b"".join(b"%s: %s\r\n" % header for header in headers)
        return self._stated[1]

    async def watch(self) -> None:
        """Close slow connections, until cancelled."""
        limits, loop = self.limits, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_EACH_S)
            for connection, since_s in list(self._owing.items()):
                owes_s = loop.time() - since_s
                if owes_s < limits.head_s:
                    break
                if connection.waits:
                    continue
                if connection.in_head:
                    connection.refuse(b"408 Request Timeout", "the headers took too long")
                elif owes_s > limits.request_s + _LINGER_S:  # the application has said so
                    connection.abort()
            for connection, since_s in list(self._idle.items()):
                if loop.time() - since_s < _IDLE_S:
                    break
                connection.timeout_keep_alive_handler()
            for connection, since_s in list(self._unread.items()):
                if loop.time() - since_s > limits.request_s:
                    connection.abort()

    def _make_room(self) -> bool:
        """Close the connection that has owed, or been idle, longest; return False for none."""
        connections: Any = self._owing if len(self._owing) > 1 or not self._idle else self._idle
        for connection in connections:
            del connections[connection]
            connection.abort()
            return True
        return False


class _Flow(FlowControl):
    """Flow control of a connection, which pauses reading while requests are held back."""

    holds = False

    def hold(self, holds: bool) -> None:
        """Stop reading from the connection, or resume."""
        held, self.holds = self.holds, holds
        if holds:
            self.pause_reading()
        elif held:
            self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless requests are held back."""
        if self.read_paused and not self.holds:
            super().resume_reading()


class _Exchange:
    """A request that is answered at once, as uvicorn's own cycles look to its protocol."""

    __slots__ = ("body", "connection", "disconnected", "keep_alive", "leave",
                 "response_complete")
    more_body = False
    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, connection: Connection, keep_alive: bool) -> None:
        self.connection, self.keep_alive = connection, keep_alive
        self.disconnected = self.response_complete = False
        self.leave: Callable[[], object] = int  # does nothing

    def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the HTTP answer to the request, unless the client has disconnected."""
        if self.disconnected:
            return
        connection = self.connection
        parts = [STATUS_LINE[status],
                 connection.group.stated(connection.server_state.default_headers)]
        for name, value in headers:
            parts += name, b": ", value, b"\r\n"
        parts += (b"" if self.keep_alive else b"connection: close\r\n",
                  b"content-length: %d\r\n\r\n" % len(body), body)
        connection.transport.write(b"".join(parts))
        self.response_complete = True
        if not self.keep_alive:
            connection.transport.close()
        if connection.pipeline:
            connection.on_response_complete()
        else:
            connection.answered()


class Connection(HttpToolsProtocol):
    """A connection under limits; :meth:`Connections.protocol` makes its class."""

    group: Connections
    in_head = True  # whether the next byte belongs to the head of a request
    answering: asyncio.Task[Any] | None = None  # task that computes the answer
    flow: _Flow
    _whole = False  # whether all requests that have begun are whole
    _has_cycle = False  # whether the application has the last request
    _upgrades = False  # whether the last head wishes to
    _length: int | None = None  # of the body of the last request, where its head states it
    _refused = False
    _refusal = b""  # that is to be sent once all requests before it are answered
    _behind = b""  # bytes of which those from _parsed on are held back
    _parsed = 0
    _owes, _idles = True, False  # as the group knows
    _held: list[bytes] | None = None  # the body of a request that may be answered at once
    _chunk = b""  # that are read now, where a request begins with them
    _seen = _body = _beside = _pending = _discarded = 0  # bytes
    _counted = 0  # bytes of the body that came before those that are parsed now

    def connection_made(self, transport: Any) -> None:
        """Register the connection with the group."""
        self._cycles = deque[Any]()  # of requests that wait for their answers
        try:
            super().connection_made(transport)
        except OSError:  # the system does not tell its addresses
            transport.abort()
        self.flow = _Flow(transport)
        self.group.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the connection's requests, and release its bytes."""
        super().connection_lost(exc)
        for cycle in self._cycles:  # not the last alone
            cycle.disconnected = True
            if isinstance(cycle, _Exchange):
                cycle.leave()
        self._release()
        self.group.closed(self)
        if self.answering is not None:
            self.answering.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, or hold them back while too many requests wait for answers."""
        if self._refused:
            self._discarded += len(data)
            if self._discarded > _DISCARDED:
                self.abort()
            return
        if self._idles and not self.flow.write_paused:
            head_and_body = self.group.known_head(data)
            if head_and_body is not None:
                self._say(owes=False, idle=False)
                self._begin(head_and_body[0].headers, head_and_body[1], keep_alive=True)
                return
            self._chunk = data
        if self._is_one(data) or len(self._cycles) + data.count(_END) <= _PIPELINED:
            self._parse(data)
            self._chunk = b""
            self._settle()
        else:
            self._behind, self._parsed = self._behind[self._parsed:] + data, 0
            self.group.received(len(data))
            self._go_on()

    @property
    def waits(self) -> bool:
        """Whether requests are held back until others are answered."""
        return bool(self._behind)

    def _is_one(self, data: bytes) -> bool:
        """Return whether a large chunk is known to belong to a single request."""
        if len(data) < _SCANNED or self._behind or len(self._cycles) > 1:
            return False
        if not self.in_head:
            return self._length is not None and len(data) <= self._length - self._body
        end = data.find(_END) + len(_END)
        length = _LENGTH.search(data, 0, end)
        return length is not None and len(data) <= end + int(length[1])

    def _go_on(self) -> None:
        """Parse held-back requests one by one, while few wait for their answers."""
        while (self._parsed < len(self._behind) and len(self._cycles) < _PIPELINED
               and not self._refused and not self.transport.is_closing()):
            end = self._behind.find(_END, self._parsed) + len(_END)
            if end < len(_END):
                end = len(self._behind)
            piece = self._behind[self._parsed : end]
            self._parsed = end
            self.group.received(-len(piece))
            self._parse(piece)
        self._chunk = b""
        if self._parsed == len(self._behind):
            self._behind, self._parsed = b"", 0
        self.flow.hold(bool(self._behind))
        self._settle()

    def _parse(self, data: bytes) -> None:
        """Parse bytes, and count those outside of bodies."""
        self._counted = self._body
        self._beside = self._seen = self._beside + len(data)
        self._feed(data)
        if self._refused:
            return
        if self._held is not None and not self.transport.is_closing():
            self._to_application()  # the rest is not here
        if self._whole:
            if self._pending:
                self._hold(-self._pending)
        else:
            self._beside -= self._body - self._counted
            if self._beside > self.group.limits.head_bytes + _FRAMING * self._body:
                self._refuse_head()
            else:
                self._hold(len(data))

    def _feed(self, data: bytes) -> None:
        """Give bytes to the parser.

        The parser stops after a head with an Upgrade header. A new one continues, with the same
        head without this header.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._refused:
                return
            head = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url,
                                          self.parser.get_http_version().encode())
            lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            with contextlib.suppress(AttributeError):  # as uvicorn's
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._feed(b"".join((head, *lines, b"\r\n", data[upgrade.args[0]:])))
        except httptools.HttpParserCallbackError as error:
            self.logger.error("Exception while reading a request", exc_info=error)
            self.refuse(b"500 Internal Server Error", "the server failed; its log says why")
        except httptools.HttpParserError as error:
            self.refuse(b"400 Bad Request", f"not an HTTP/1.1 request ({error})")

    def on_message_begin(self) -> None:
        """Begin a new HTTP request; the parser calls it."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._whole = self._has_cycle = False

    def on_headers_complete(self) -> None:
        """Check the head of a request; trailers after a body are ignored."""
        if self._seen > self.group.limits.head_bytes and self._head() > (
                self.group.limits.head_bytes):
            self._refuse_head()
            return
        hosts, length, coded = 0, None, False
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                length = whole_number(value.decode("latin-1"))
            elif name in _CODED:
                coded = True
        self._length, self._upgrades = length, self.parser.should_upgrade()
        if hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            self.refuse(b"400 Bad Request", f"a request has one Host header; this one has {hosts}")
        elif self._upgrades and self.parser.get_method() == b"CONNECT":
            self.refuse(b"501 Not Implemented", "this server is no proxy")
        elif not self._upgrades:
            self.in_head, self._held = False, []
            if coded or length is None or not self._is_for_at_once(length):
                self._to_application()

    def on_body(self, body: bytes) -> None:
        """Buffer a part of the body, or pass it to the application."""
        self._body += len(body)
        if self._held is not None:
            self._held.append(body)
        elif not self._refused:
            HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """Answer a complete request at once, or signal its end to the application."""
        if self._upgrades:  # its body is still to be parsed
            return
        self._whole = self.in_head = True
        self._body = self._beside = self._counted = 0
        if self._refused:
            return
        if self._held is not None:
            self._answer_at_once(b"".join(self._held))
        else:
            self.scope["state"]["whole_s"] = time.monotonic()
            HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """Record that the application has sent an answer."""
        HttpToolsProtocol.on_response_complete(self)
        self._unset_keepalive_if_required()  # the group watches who is idle
        self.answered()

    def answered(self) -> None:
        """Record that an answer was sent; the rest of its request is read only briefly."""
        # The connection of a refused request lingers, so what has come of the body is let go now.
        self._cycles.popleft().body = bytearray()
        if self.transport.is_closing():
            self.group.unread(self)
        elif self._refused:
            self._send_refusal()
        else:
            if self._behind:  # not now: this may be in the middle of an event
                self.loop.call_soon(self._go_on)
            if not self.in_head:
                self.loop.call_later(_LINGER_S, self._end_of, self.cycle)
        self._settle()

    def pause_writing(self) -> None:
        """Record that the client does not read its answers."""
        super().pause_writing()
        self.group.unread(self)

    def resume_writing(self) -> None:
        """Record that the client reads its answers again."""
        super().resume_writing()
        self.group.unread(self, self.transport.is_closing())

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, which was idle for too long."""
        super().timeout_keep_alive_handler()
        self.group.unread(self)

    def refuse(self, status: bytes, reason: str) -> None:
        """Answer with an error in order, read on briefly so that it arrives, and close."""
        cycle = self.cycle
        self._refused, self._held = True, None
        self._release()
        self._say(owes=False, idle=False)
        body = json.dumps({"error": reason}).encode()
        if self.in_head or not self._has_cycle:
            self._refusal = _REFUSAL % (status, len(body), body)
        elif not cycle.response_complete:
            if cycle.response_started:
                self.abort()
                return
            self._refusal = _REFUSAL % (status, len(body), body)
            cycle.disconnected = True
            cycle.message_event.set()
            self._cycles.pop()
            if self.pipeline:
                self.pipeline.popleft()
        self._send_refusal()

    def _send_refusal(self) -> None:
        """Send a refusal if all requests before it are answered, and close."""
        if not self._cycles:
            self.transport.write(self._refusal)
            self.group.unread(self)
            self.loop.call_later(_LINGER_S, self.abort)

    def abort(self) -> None:
        """Close the connection without waiting for answers that are being sent."""
        self._release()
        self.transport.abort()

    def _release(self) -> None:
        """Release the counted bytes of requests that are incomplete or held back."""
        self._hold(-self._pending)
        held_back, self._behind, self._parsed = len(self._behind) - self._parsed, b"", 0
        self.group.received(-held_back)

    def _is_for_at_once(self, length: int) -> bool:
        """Return whether a request qualifies for the fast path once it is complete."""
        at_once = self.group.at_once
        return not (at_once is None or self.url not in at_once.paths
                    or self.parser.get_method() != b"POST" or self.expect_100_continue
                    or self.flow.write_paused or length > at_once.largest
                    or not (self.cycle is None or self.cycle.response_complete))

    def _to_application(self) -> None:
        """Pass a request, with the received part of its body, to the application."""
        held, self._held = self._held or (), None
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)  # makes the scope
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        self.scope["state"]["connection"] = self
        try:
            HttpToolsProtocol.on_headers_complete(self)
        except (httptools.HttpParserInvalidURLError, AttributeError):  # the latter without a path
            self.refuse(b"400 Bad Request", "not a URL with a path")
            return
        self.headers = []
        self._has_cycle = True
        self._cycles.append(self.cycle)
        for body in held:
            HttpToolsProtocol.on_body(self, body)

    def _answer_at_once(self, body: bytes) -> None:
        at_once = self.group.at_once
        assert at_once is not None
        headers = {name: value.decode("latin-1") for name, value in self.headers
                   if name in at_once.headers}
        self.headers, self._held = [], None
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        if keep_alive and self._chunk:
            self.group.know_head(self._chunk, headers, len(body))
        self._begin(headers, body, keep_alive=keep_alive)

    def _begin(self, headers: Mapping[bytes, str], body: bytes, *, keep_alive: bool) -> None:
        """Answer a small request at once, without the application's event loop."""
        exchange: Any = _Exchange(self, keep_alive)
        self.cycle = exchange
        self._cycles.append(exchange)
        at_once = self.group.at_once
        assert at_once is not None
        exchange.leave = at_once.begin(headers, body, time.monotonic(), exchange.reply)

    def _refuse_head(self) -> None:
        self.refuse(b"431 Request Header Fields Too Large",
                    f"headers of more than {self.group.limits.head_bytes} bytes")

    def _end_of(self, cycle: object) -> None:
        if self.cycle is cycle and not self.in_head:
            self.abort()

    def _hold(self, count: int) -> None:
        if count:
            self._pending += count
            self.group.received(count)

    def _settle(self) -> None:
        """Update in the group whether the connection owes, is idle, or waits for an answer."""
        if self._refused or self.transport.is_closing():
            return
        cycle = self.cycle
        answered = cycle is None or cycle.response_complete
        if not answered and not cycle.more_body and not self._behind:
            self._say(owes=False, idle=False)
        else:  # bytes between requests end the time to be idle, and count as a request's first
            idle = self._whole and not self._beside and not self._behind
            self._say(owes=not idle, idle=idle)

    def _say(self, *, owes: bool, idle: bool) -> None:
        if owes is not self._owes or idle is not self._idles:
            self._owes, self._idles = owes, idle
            self.group.settle(self, owes=owes, idle=idle)

    def _head(self) -> int:
        """Return the size of the first line and the headers."""
        return len(self.url) + sum(len(name) + len(value) + _LINE for name, value in self.headers)
