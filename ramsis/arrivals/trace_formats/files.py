"""Block-wise reader of plain or compressed trace files, with bounded memory.

Endless or malicious files are refused by the length of a line, by the number of lines, and by
their decompressed size: compression shrinks traces to between a third and a fiftieth, so a file
that expands to more than 64 MB and more than 60 times its size is no trace.
"""

from __future__ import annotations

import gzip
import importlib
import io
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from ramsis.errors import InputFileError, InvalidValueError, RamsisError, install
from ramsis.files import not_utf8
from ramsis.logs.kinds import preamble_of

MAX_LINES = 200_000_000
"""Most lines that a trace may have (1.6 GB of instants)."""

_BLOCK_BYTES = 8 * 1024 * 1024
_LONGEST_LINE = 16 * 1024 * 1024
_SMALL_BYTES = 64 * 1024 * 1024
_MOST_EXPANDED = 60


_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(on_bytes: Callable[[int], object]) -> Iterator[None]:
    """Call ``on_bytes`` in this context with the number of bytes of each read from a file."""
    token = _watcher.set(on_bytes)
    try:
        yield
    finally:
        _watcher.reset(token)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; ``.gz`` and ``.zst`` are decompressed."""
    if path.suffix == ".gz":
        file: IO[bytes] = gzip.GzipFile(path, "rb")  # type: ignore[assignment]
        return file
    if path.suffix == ".zst":
        return _zstandard(path)
    return path.open("rb")


def _zstandard(path: Path) -> IO[bytes]:
    try:
        package: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise InvalidValueError(
            "reading .zst needs the extra 'zstd'", where=str(path),
            allowed=f"{install('zstd')}, or the file as .gz or text") from error
    reader: IO[bytes] = package.ZstdDecompressor().stream_reader(
        path.open("rb"), read_across_frames=True, closefd=True)
    return reader


def blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield blocks of whole lines, each with the number of its first line."""
    line = 1
    pending = b""  # bytes after the last whole line
    taken = 0
    try:
        with open_bytes(path) as file:
            most, watcher = _most_bytes(path), _watcher.get()
            while more := file.read(_BLOCK_BYTES):
                taken += len(more)
                if watcher is not None:
                    watcher(len(more))
                _refuse_endless(path, taken, most, line)
                pending += more
                end = pending.rfind(b"\n") + 1
                if end:
                    yield line, _decoded(pending[:end], line)
                    line += pending.count(b"\n", 0, end)
                    pending = pending[end:]
                elif len(pending) > _LONGEST_LINE:
                    raise InputFileError("line is too long", where=f"{path}: line {line}",
                                         allowed=f"at most {_LONGEST_LINE >> 20} MB")
            if pending:
                yield line, _decoded(pending, line)
    except RamsisError:
        raise
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(path, error) from error
    # Compare by name, as the library that defines ZstdError is optional.
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise _unreadable(path, error) from error
        raise


def _most_bytes(path: Path) -> float:
    """Return the largest allowed decompressed size of a file, in bytes."""
    if path.suffix not in (".gz", ".zst"):
        return math.inf
    return max(_SMALL_BYTES, _MOST_EXPANDED * os.stat(path).st_size)


def _refuse_endless(path: Path, taken: int, most: float, line: int) -> None:
    if taken > most:
        raise InputFileError(
            "file is too large when decompressed", where=f"{path}: line {line}",
            allowed=f"at most {_SMALL_BYTES >> 20} MB, or {_MOST_EXPANDED} times the "
            "compressed file")
    if line > MAX_LINES:
        raise InputFileError("trace is too long", where=str(path), value=f"line {line}",
                             allowed=f"at most {MAX_LINES} lines")


def _decoded(content: bytes, line: int) -> str:
    text = content.decode("utf-8")
    return text.removeprefix("\ufeff") if line == 1 else text


def _unreadable(path: Path, error: Exception) -> InputFileError:
    reason = getattr(error, "strerror", None) or error
    return InputFileError(f"cannot read file ({reason})", where=str(path))


def first_line(path: Path) -> str:
    """Return the first line that is neither blank nor a comment; empty if there is none."""
    for _, text in blocks(path):
        text = text.removeprefix(preamble_of(text))
        for line in io.StringIO(text):
            if line.strip():
                return line.strip()
    return ""
