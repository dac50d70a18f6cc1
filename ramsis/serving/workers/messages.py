"""Messages between the front end and a worker, over a pair of connected sockets.

Each message is its length followed by its bytes. While a worker starts, messages are JSON; then
they are fixed binary structures: a batch to run, by the slots of its queries, and its end. Nothing
is pickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_LENGTH = struct.Struct("<I")
_RUN = struct.Struct("<QHHHI")
_ENDED = struct.Struct("<Q?d?")
_MOST = 1 << 24  # largest message in bytes, as a damaged length must not exhaust memory
_MOST_FILES = 2  # blocks of inputs and outputs


class RunBatch(NamedTuple):
    """Message to run a variant on the queries in slots, as a batch of ``run_as``."""

    number: int
    variant: int
    run_as: int
    slots: Sequence[int]
    longest: int = 0  # length of its inputs along the dimension of the size; 0: full length

    def packed(self) -> bytes:
        """Encode the message as bytes."""
        head = _RUN.pack(self.number, self.variant, self.run_as, len(self.slots),
                         self.longest)
        return head + struct.pack(f"<{len(self.slots)}I", *self.slots)

    @classmethod
    def unpacked(cls, message: bytes) -> RunBatch:
        """Decode a message."""
        number, variant, run_as, count, longest = _RUN.unpack_from(message)
        return cls(number, variant, run_as, struct.unpack_from(f"<{count}I", message, _RUN.size),
                   longest)


class Ended(NamedTuple):
    """Message that a batch has ended."""

    number: int  # number of the batch
    service_ms: float  # time of the model in the worker
    error: str = ""  # error of the batch; empty if it succeeded
    lost: bool = False  # whether the worker has to be restarted before another batch

    def packed(self) -> bytes:
        """Encode the message as bytes."""
        return (_ENDED.pack(self.number, not self.error, self.service_ms, self.lost)
                + self.error.encode())

    @classmethod
    def unpacked(cls, message: bytes) -> Ended:
        """Decode a message."""
        number, good, service_ms, lost = _ENDED.unpack_from(message)
        error = "" if good else message[_ENDED.size:].decode() or "error"
        return cls(number, service_ms, error, lost)


def framed(message: bytes) -> bytes:
    """Return a message with its length prefix."""
    return _LENGTH.pack(len(message)) + message


class Unframed:
    """Splitter of received bytes into whole messages."""

    def __init__(self) -> None:
        self._buffer = b""

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that the received bytes complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message, self._buffer = self._buffer[_LENGTH.size:end], self._buffer[end:]
            yield message


def send_json(channel: socket.socket, document: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send a document, and open files with it."""
    message = framed(json.dumps(document).encode())
    sent = socket.send_fds(channel, [message], files) if files else 0
    channel.sendall(message[sent:])


def receive_json(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive a document and its open files; raise EOFError if the other side has closed."""
    head, files, _, _ = socket.recv_fds(channel, _LENGTH.size, _MOST_FILES)
    if not head:
        raise EOFError
    head += _exactly(channel, _LENGTH.size - len(head))
    document: dict[str, Any] = json.loads(_exactly(channel, _length(head)))
    return document, files


def receive(channel: socket.socket) -> bytes:
    """Receive a message; raise EOFError if the other side has closed."""
    return _exactly(channel, _length(_exactly(channel, _LENGTH.size)))


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > _MOST:
        raise EOFError
    return int(length)


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = channel.recv(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
