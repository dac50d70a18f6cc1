"""Messages between the front end and a worker, over a pair of connected sockets.

Each message is its length followed by its bytes. While a worker starts, messages are JSON; then
they are fixed binary structures: a batch to run, by the slots of its queries, and its end. Nothing
is pickled.

A block is an anonymous file that both map, so it cannot be left behind; a worker gets it as an
open file at its start. The inputs of a query are in a *slot*: one row of an array for each input
tensor. A worker reads the rows of its batch in place; its outputs are in another block.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.serving.tensors import TensorSpec

_ALIGNED = 64  # alignment to cache lines, so that no two arrays share one

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
        """Decode the message to run a batch."""
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
        """Decode the message that a batch has ended."""
        number, good, service_ms, lost = _ENDED.unpack_from(message)
        error = "" if good else message[_ENDED.size:].decode() or "error"
        return cls(number, service_ms, error, lost)


def framed(message: bytes) -> bytes:
    """Return a message with its length as a prefix."""
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
    """Send a JSON document over a socket, and open files with it."""
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


class Block:
    """Block of shared memory of ``size`` bytes, >= 1, as an open file.

    ``file`` is the open file of a block that another process created.
    """

    def __init__(self, size: int, file: int | None = None) -> None:
        self.file, self.size = _anonymous_file() if file is None else file, size
        try:
            if file is None:
                os.ftruncate(self.file, size)
            self.memory = mmap.mmap(self.file, size)
        except BaseException:  # no memory; starts are tried for ever, and each leaves no file open
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the memory is released with the last array in it."""
        with contextlib.suppress(OSError):  # what is closed with an error is closed
            os.close(self.file)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ramsis")
    with tempfile.TemporaryFile() as stream:
        return os.dup(stream.fileno())


def _places(specs: Sequence[TensorSpec], rows: int) -> tuple[list[int], int]:
    """Return the offset of each tensor's array, and the total size, in bytes."""
    starts, end = [], 0
    for spec in specs:
        starts.append(end)
        end += -(-rows * spec.nbytes // _ALIGNED) * _ALIGNED
    return starts, max(end, 1)


def size_of(specs: Sequence[TensorSpec], rows: int) -> int:
    """Return the size in bytes of arrays with ``rows`` rows of each tensor."""
    return _places(specs, rows)[1]


def arrays_in(
    block: Block, specs: Sequence[TensorSpec], rows: int
) -> dict[str, NDArray[np.generic]]:
    """Return an array of shape (rows, …) for each tensor, in a block."""
    starts, _ = _places(specs, rows)
    return {spec.name: np.frombuffer(block.memory, spec.dtype,
                                     rows * spec.nbytes // spec.dtype.itemsize, start)
            .reshape(rows, *spec.shape)
            for spec, start in zip(specs, starts, strict=True)}


class Slots:
    """Slots for the inputs of ``count`` queries, >= 1; the last freed slot is reused first.

    ``specs`` are the input tensors.
    """

    def __init__(self, specs: Sequence[TensorSpec], count: int) -> None:
        self.specs, self.count = tuple(specs), count
        self.block = Block(size_of(specs, count))
        self.arrays = arrays_in(self.block, specs, count)
        self._free = list(range(count - 1, -1, -1))

    @property
    def free(self) -> int:
        """Number of slots of shared memory that hold no sample."""
        return len(self._free)

    def put(self, inputs: Sequence[NDArray[np.generic]]) -> list[int]:
        """Copy the inputs of n queries to free slots, and return these; enough must be free.

        ``inputs`` has an array of shape (n, …) for each input tensor, n >= 1; shorter dimensions
        are padded with zeros.
        """
        count = len(inputs[0])
        taken = self._free[-count:]
        del self._free[-count:]
        for array, rows in zip(self.arrays.values(), inputs, strict=True):
            if rows.shape[1:] != array.shape[1:]:
                array[taken] = 0
                array[(taken, *map(slice, rows.shape[1:]))] = rows  # type: ignore[index]
            elif count == 1:  # without a list of places: speed counts
                array[taken[0]] = rows[0]
            else:
                array[taken] = rows
        return taken

    def give(self, slots: Sequence[int]) -> None:
        """Mark slots of shared memory as free again."""
        self._free.extend(slots)
