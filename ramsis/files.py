"""Reading and writing the project's files: size limit, byte-stable JSON, atomic writes, a lock.

A new file replaces the old one by a single rename. Until then it has a temporary name, which
begins with a dot and ends in ``.ramsis-tmp``, and its writer holds a lock on it (``flock``). The
next process that writes into the folder removes temporary files without a lock, as killed
processes left them.

Standard library only, so that the runtime can share it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import IO, Any

from ramsis.errors import InputFileError, OutputError, RamsisError

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file that is read whole (64 MB)."""

_MOST_TOML_BYTES = 4 * 1024 * 1024
_PARTS = r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
# Limits on dotted keys of TOML: the tables of a key take memory by the square of its parts, and
# each part of all keys takes half a kilobyte (the pattern excludes numbers).
_DEEP_KEY = re.compile(_PARTS + "{64}")
_LONG_KEY = re.compile(_PARTS + "{2,}+")
_LARGE_JSON = 4 * 1024 * 1024
_MOST_VALUES, _MOST_PARTS = 8_000_000, 500_000
_PLAIN = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_LARGEST_WHOLE = 10**18
_LONG_NUMBER = re.compile(r"[0-9]{19}")
_NEW_FILE = 0o666  # permissions of a new file before the umask
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_TEMPORARY = ".ramsis-tmp"
_CLEARED: set[Path] = set()  # folders in which this process has removed left temporary files


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _number(text: str) -> int | float:
    """Parse a whole number; one of 19 digits or more becomes a float, perhaps infinite."""
    if len(text) < 19:
        return int(text)
    if len(text) > 4300:
        raise ValueError(f"a number of {len(text)} digits")
    return float(text)


def _within_floats(value: Any) -> Any:
    """Convert the whole numbers in a TOML value as :func:`_number` does those of JSON."""
    if isinstance(value, dict):
        return {key: _within_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_within_floats(inner) for inner in value]
    if type(value) is int and not -_LARGEST_WHOLE < value < _LARGEST_WHOLE:
        return float(str(value))  # float(value) would raise for numbers beyond the range
    return value


def keys_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from pairs; refuse a repeated key, which programs interpret differently."""
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"key {key!r} appears twice in an object")
        document[key] = value
    return document


def read_bytes(path: str | os.PathLike[str], *, limit: int | None = None) -> bytes:
    """Read the content of a file of at most ``limit`` bytes (:data:`MAX_FILE_BYTES`).

    Sources that never end, such as ``/dev/zero``, are refused, too.
    """
    where = str(path)
    limit = MAX_FILE_BYTES if limit is None else limit
    try:
        with open(path, "rb") as stream:
            content = stream.read(limit + 1)  # some sources do not know their size
            size = max(len(content), os.fstat(stream.fileno()).st_size)
    except OSError as error:
        raise InputFileError(f"cannot read file ({error.strerror})", where=where) from error
    except ValueError as error:
        raise InputFileError(f"cannot read file ({error})", where=where) from error
    if len(content) > limit:
        raise InputFileError("file is too large", where=where, value=f"{size} bytes",
                             allowed=f"at most {limit} bytes ({limit >> 20} MB)")
    return content


def read_text(
    path: str | os.PathLike[str], *, limit: int | None = None, encoding: str = "utf-8"
) -> str:
    """Read the text of a file of at most ``limit`` bytes (:data:`MAX_FILE_BYTES`)."""
    try:
        return read_bytes(path, limit=limit).decode(encoding)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error


def not_utf8(path: str | os.PathLike[str], error: UnicodeDecodeError) -> InputFileError:
    """Return the error for a file of another encoding, with the way to convert it to UTF-8."""
    way = ""
    if error.object.startswith((b"\xff\xfe", b"\xfe\xff")):
        way = "; iconv -f UTF-16 -t UTF-8 makes it"
    elif not _CONTROLS.search(error.object[:4096]):  # text, not a program's binary file
        way = "; of a spreadsheet, iconv -f WINDOWS-1252 -t UTF-8 makes it"
    return InputFileError("file is not UTF-8 text", where=str(path),
                          allowed=f"text in UTF-8{way}")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the TOML document in ``path``."""
    import tomllib  # here, so that importing the runtime stays quick

    text = read_text(path, limit=_MOST_TOML_BYTES)
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        raise InputFileError("key has too many parts", where=str(path), value=deep.group(),
                             allowed="at most 64")
    parts = sum(key.group().count(".") for key in _LONG_KEY.finditer(text))
    if parts > _MOST_PARTS:
        raise InputFileError("keys have too many parts", where=str(path), value=parts,
                             allowed=f"at most {_MOST_PARTS} in all")
    try:
        document: dict[str, Any] = _within_floats(tomllib.loads(text))
        return document
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"not valid TOML ({error})", where=str(path),
                             allowed="lines of key = value") from error
    except IndexError as error:  # the parser raises it for an escape that is cut off
        raise InputFileError("not valid TOML (cut off)", where=str(path)) from error


def parsed(text: str, where: str) -> Any:
    """Parse a JSON text; unlike :func:`read_json`, accept ``NaN`` and ``Infinity``."""
    try:
        return json.loads(text, object_pairs_hook=keys_once)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"not valid JSON, cut off or damaged ({error})",
                             where=where) from error


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON object in ``path``."""
    where = str(path)
    text = read_text(path)
    if not text.strip():
        raise InputFileError("file is empty", where=where, allowed="a JSON object")
    if len(text) > _LARGE_JSON and (text.count(",") > _MOST_VALUES
                                    or text.count("[") + text.count("{") > _MOST_PARTS):
        raise InputFileError("too many values", where=where,
                             allowed=f"{_MOST_VALUES} values and {_MOST_PARTS} lists and objects")
    try:
        document = json.loads(text, parse_constant=_refuse_constant,
                              parse_int=_number if _LONG_NUMBER.search(text) else None,
                              object_pairs_hook=keys_once)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"not valid JSON, cut off or damaged ({error})", where=where,
                             allowed="a whole JSON document") from error
    if not isinstance(document, dict):
        raise InputFileError("top level is not an object", where=where,
                             value=type(document).__name__, allowed="a JSON object")
    return document


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the document in ``path``: TOML where the name ends in ``.toml``, else a JSON object."""
    return read_toml(path) if Path(path).suffix == ".toml" else read_json(path)


def _render(value: Any, indent: int) -> str:
    """Render JSON with sorted keys and each list of plain values on one line."""
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
    if type(value) is float and isfinite(value):
        return repr(value)  # as the encoder writes it, which takes far longer for a single number
    return _PLAIN.encode(value)


def canonical_json(document: Mapping[str, Any]) -> str:
    """Return a document's byte-stable text: sorted keys, one line per list of plain values."""
    return _render(document, 0) + "\n"


def fingerprint(document: Mapping[str, Any] | str) -> str:
    """Return ``sha256:`` and the hexadecimal digest of a document's canonical text."""
    import hashlib  # here, so that importing the runtime stays quick

    text = document if isinstance(document, str) else canonical_json(document)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_atomic(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a text, or bytes, to ``path``; see :func:`written_whole`."""
    with written_whole(path, binary=isinstance(content, bytes)) as stream:
        stream.write(content)


@contextmanager
def written_whole(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a stream (UTF-8 text by default) that replaces ``path`` as a whole at the block's end.

    A reader sees either the old file or the complete new one. An interruption leaves no temporary
    file behind; the temporary file of a killed process is removed by the next writer. Missing
    parent folders are created. If the path is a symbolic link, its target is replaced. The
    permissions of an existing file are kept; a new file has the default ones by the umask. A
    device or a pipe, such as ``/dev/stdout``, is written directly.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            with _opened(target, binary) as stream:
                yield stream
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(target.parent)
        with _replacing(target, binary, None if mode is None else stat.S_IMODE(mode)) as stream:
            yield stream
    except RamsisError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write file ({reason})", where=str(path)) from error


def _mode(target: Path) -> int | None:
    """Return type and permissions of a path, if it exists."""
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None


def _opened(file: Path | int, binary: bool) -> IO[Any]:
    """Open a stream to write bytes or UTF-8 text with line ends as they are."""
    opened: Any = os.fdopen if isinstance(file, int) else open
    stream: IO[Any] = (opened(file, "wb") if binary
                       else opened(file, "w", encoding="utf-8", newline="\n"))
    return stream


@contextmanager
def _replacing(target: Path, binary: bool, permissions: int | None) -> Iterator[IO[Any]]:
    """Open a stream to a new file that replaces a regular one by a single rename."""
    short = target.name[:100]  # names have a largest length
    while True:
        # The name is known before there is a file, so an interrupt at any step leaves none.
        temporary = target.with_name(f".{short}.{os.urandom(6).hex()}{_TEMPORARY}")
        lock: int | None = None
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NEW_FILE)
            _try_lock(handle)
            lock = os.dup(handle)
            with _opened(handle, binary) as stream:
                if not temporary.exists():  # another process removed it before it was locked
                    continue
                yield stream
            if permissions is not None:
                os.chmod(temporary, permissions)
            os.replace(temporary, target)
            return
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        finally:
            if lock is not None:
                os.close(lock)


def _try_lock(handle: int) -> bool:
    """Try to lock a file; return False if another process holds it, or without system locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_left(folder: Path) -> None:
    """Remove the temporary files of killed processes, once in each folder."""
    if folder in _CLEARED:
        return
    _CLEARED.add(folder)
    with suppress(OSError):
        for left in folder.glob(f".*{_TEMPORARY}"):
            with suppress(OSError):
                handle = os.open(left, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _try_lock(handle):
                        left.unlink()
                finally:
                    os.close(handle)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OutputError(f"cannot remove file ({error.strerror})", where=str(path)) from error


def check_within(folder: str | os.PathLike[str], name: str) -> None:
    """Refuse a name in a folder that, through a link, is a path outside of the folder."""
    path = os.path.join(folder, name)
    target = os.path.realpath(path)
    if not target.startswith(os.path.join(os.path.realpath(folder), "")):
        raise OutputError("a link leads out of the folder", where=path, value=target,
                          allowed="what lies in its folder")


def make_folder(
    folder: str | os.PathLike[str], *, of: str | os.PathLike[str] | None = None
) -> None:
    """Create a folder and missing parents; an error names ``of``, the file it is for, if given."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder ({error.strerror})",
                          where=str(folder if of is None else of)) from error


@contextmanager
def folder_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder for one process at a time, if the system offers such locks.

    The folder itself is locked (``flock``), so no lock file is left behind, and the lock ends with
    the process that holds it.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"cannot open the folder ({error.strerror})",
                          where=str(folder)) from error
    try:
        with suppress(OSError):  # some network file systems have none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
