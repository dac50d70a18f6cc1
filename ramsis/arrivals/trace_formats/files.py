"""Text of trace files in blocks of whole lines, plain or compressed, with bounded memory."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ramsis.errors import InputFileError, InvalidValueError, describe

__all__ = ["blocks", "first_line", "open_bytes", "open_text"]

_BLOCK_BYTES = 8 * 1024 * 1024
_LONGEST_LINE = 64 * 1024 * 1024


def open_bytes(path: Path) -> IO[bytes]:
    """The content of a file; ``.gz`` and ``.zst`` are decompressed on the way.

    Raises
    ------
    InvalidValueError
        A ``.zst`` file without the package for it.
    """
    if path.suffix == ".gz":
        file: IO[bytes] = gzip.GzipFile(path, "rb")  # type: ignore[assignment]
        return file
    if path.suffix == ".zst":
        return _zstandard(path)
    return path.open("rb")


def open_text(path: Path) -> IO[str]:
    """As :func:`open_bytes`, as UTF-8 text with its line ends as they are."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="")


def _zstandard(path: Path) -> IO[bytes]:
    try:
        package: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise InvalidValueError(
            describe("reading .zst needs the extra 'zstd'", where=str(path),
                     allowed="pip install 'ramsis[zstd]', or the file as .gz or text")
        ) from error
    reader: IO[bytes] = package.ZstdDecompressor().stream_reader(
        path.open("rb"), read_across_frames=True, closefd=True)
    return reader


def blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Stretches of whole lines, each with the number of its first line.

    Raises
    ------
    InputFileError
        The file cannot be read, is not UTF-8, or has a line of more than 64 MB.
    """
    line = 1
    kept = b""
    try:
        with open_bytes(path) as file:
            while more := file.read(_BLOCK_BYTES):
                kept += more
                end = kept.rfind(b"\n") + 1
                if end:
                    yield line, _decoded(kept[:end], line)
                    line += kept.count(b"\n", 0, end)
                    kept = kept[end:]
                elif len(kept) > _LONGEST_LINE:
                    raise InputFileError(
                        describe("line is too long", where=f"{path}: line {line}",
                                 allowed="at most 64 MB")
                    )
            if kept:
                yield line, _decoded(kept, line)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise _unreadable(path, error) from error
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise _unreadable(path, error) from error
        raise


def _decoded(content: bytes, line: int) -> str:
    text = content.decode("utf-8")
    return text.removeprefix("\ufeff") if line == 1 else text


def _unreadable(path: Path, error: Exception) -> InputFileError:
    reason = getattr(error, "strerror", None) or error
    return InputFileError(describe(f"cannot read trace ({reason})", where=str(path)))


def first_line(path: Path) -> str:
    """The first line that is not blank; empty when there is none.

    Raises
    ------
    InputFileError
        As :func:`blocks`.
    """
    for _, text in blocks(path):
        for line in io.StringIO(text):
            if line.strip():
                return line.strip()
    return ""
