"""Reading and writing the project's JSON files: size limit, byte-stable text, atomic writes.

Standard library only, so that the runtime can share it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, OutputError, describe

__all__ = ["MAX_FILE_BYTES", "canonical_json", "fingerprint", "read_json", "write_atomic"]

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest JSON file that is read (64 MB)."""


_PLAIN = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises
    ------
    InputFileError
        When the file is missing, unreadable, larger than :data:`MAX_FILE_BYTES`, empty, cut
        off, not UTF-8, not JSON (``NaN``, ``Infinity`` and half a surrogate pair are not), or
        not an object.
    """
    where = str(path)
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)  # some sources do not know their size
        if len(content) > MAX_FILE_BYTES:
            size = max(len(content), os.stat(path).st_size)
            raise InputFileError(
                describe("file is too large", where=where, value=f"{size} bytes",
                         allowed=f"at most {MAX_FILE_BYTES} bytes (64 MB)")
            )
        text = content.decode("utf-8")
    except OSError as error:
        raise InputFileError(
            describe(f"cannot read file ({error.strerror})", where=where)
        ) from error
    except UnicodeDecodeError as error:
        raise InputFileError(describe("file is not UTF-8 text", where=where)) from error
    if not text.strip():
        raise InputFileError(describe("file is empty", where=where, allowed="a JSON object"))
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()  # half a pair is no character
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            describe(f"not valid JSON, cut off or damaged ({error})", where=where)
        ) from error
    if not isinstance(document, dict):
        raise InputFileError(
            describe("top level is not an object", where=where, value=type(document).__name__,
                     allowed="a JSON object")
        )
    return document


def _render(value: Any, indent: int) -> str:
    """JSON with sorted keys in which a list of plain values stays on one line."""
    pad, inner = " " * indent, " " * (indent + 1)
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        items = (f"{inner}{json.dumps(str(k))}: {_render(value[k], indent + 1)}"
                 for k in sorted(value))
        return "{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, (list, tuple)) and any(
        issubclass(kind, (Mapping, list, tuple)) for kind in set(map(type, value))
    ):
        return "[\n" + ",\n".join(f"{inner}{_render(v, indent + 1)}" for v in value) + f"\n{pad}]"
    return _PLAIN.encode(value)


def canonical_json(document: Mapping[str, Any]) -> str:
    """Byte-stable text of a document: sorted keys, one line per list of plain values."""
    return _render(document, 0) + "\n"


def fingerprint(document: Mapping[str, Any] | str) -> str:
    """``sha256:`` and the hexadecimal digest of a document's canonical text."""
    import hashlib  # here, so that importing the runtime stays quick

    text = document if isinstance(document, str) else canonical_json(document)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_atomic(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path`` through a temporary name in the same folder.

    A reader sees the old file or the whole new one, never a half; an interruption leaves no
    temporary file behind. Missing parent folders are made.

    Raises
    ------
    OutputError
        When the folder cannot be made or written.
    """
    import tempfile  # here, so that who only reads need not load it

    target = Path(path)
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise OutputError(
            describe(f"cannot write file ({error.strerror})", where=str(target))
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
