"""Reading and writing profile files (``"format": "ramsis.profile/1"``), and shipped sets.

``profile-1.schema.json`` beside this module defines the format. The reader checks the structure
without this schema, which is faster by two orders of magnitude and gives one-line messages. Tests
keep the two consistent.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, InvalidValueError, OutputError, describe
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.confidences import Confidences, ModelConfidence, Pair
from ramsis.profiles.model import FORMAT, ModelProfile, ProfileSet
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.values import MAX_MODELS, ProfileError, placed

__all__ = ["FORMAT", "load", "save", "shipped_names"]

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = (_PACKAGE / "shipped", _PACKAGE.parents[1] / "profiles")
"""Folders of shipped sets: in a wheel, and in the repository of an editable installation."""

_SET_FIELDS = ("format", *(item.name for item in fields(ProfileSet)))
_CONFIDENCE_FIELDS = tuple(item.name for item in fields(Confidences))
_REQUIRED_OF_CONFIDENCES = ("chosen_samples", "stated_samples", "models", "pairs")
_MODEL_FIELDS = tuple(item.name for item in fields(ModelProfile))
_BATCH_FIELDS = tuple(item.name for item in fields(BatchProfile))
_SIZED_FIELDS = tuple(item.name for item in fields(SizedTimes))
_REQUIRED_OF_SIZED = ("unit", "law", "counts", "sizes")


def shipped_names() -> tuple[str, ...]:
    """Return the names of the profile sets that come with the package, sorted."""
    return tuple(sorted(_shipped_paths()))


def _shipped_paths() -> dict[str, Path]:
    folder = next((folder for folder in _SHIPPED if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in folder.glob("*.json")}


def load(path_or_name: str | os.PathLike[str]) -> ProfileSet:
    """Load the profile set in a file, or a shipped one by name.

    Parameters
    ----------
    path_or_name : str or path-like
        An existing file, else a name of :func:`shipped_names`.

    Raises
    ------
    InputFileError
        When there is neither such a file nor such a name, or the file breaks the format;
        the message gives the place, such as ``models[0].batches[1].p95_ms``.
    """
    text = os.fspath(path_or_name)
    path = Path(text)
    if not path.is_file():
        shipped = _shipped_paths()
        if text not in shipped and not path.exists():
            raise InputFileError(_unknown(text, tuple(sorted(shipped))))
        path = shipped.get(text, path)
    return _parse(read_json(path), str(path))


def is_profile(path: Path) -> bool:
    """Return whether a path is a profile file, or names a shipped profile set."""
    if not path.exists():
        return str(path) in _shipped_paths()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
            return False
    try:
        document = read_json(path)
    except InputFileError:  # a file of another program, such as JSON lines
        return False
    return document.get("format") == FORMAT


def _unknown(text: str, shipped: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(text, shipped, n=3)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    return describe(f"no such profile file or shipped profile set{meant}", where=text,
                    allowed=f"a path, or one of: {', '.join(shipped)}")


def save(profile_set: ProfileSet, path: str | os.PathLike[str]) -> None:
    """Write a profile file atomically; equal sets give equal bytes.

    Raises
    ------
    InvalidValueError
        When ``hardware`` or ``measurement`` hold what JSON cannot.
    OutputError
        When the file cannot be written.
    """
    try:
        text = canonical_json(profile_set.to_document())
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"not representable in JSON ({error})",
                                where="hardware or measurement") from error
    if Path(path).is_dir():
        raise OutputError("is a folder", where=str(path), allowed="a file name")
    write_atomic(path, text)


def _parse(document: Mapping[str, Any], path: str) -> ProfileSet:
    """Parse the set in a document; ``path`` names the file in messages."""
    if document.get("format") != FORMAT:
        raise InputFileError("unknown format or version", where=f"{path}: format",
                             value=document.get("format"), allowed=repr(FORMAT))
    with _at(path, ""):
        values = _object(document, _SET_FIELDS, ("name", "models"))
        for name in ("hardware", "measurement"):
            if not isinstance(values.setdefault(name, {}), Mapping):
                raise ProfileError("not an object", name, values[name], "a JSON object")
        items = _list(values["models"], "models")
        if len(items) > MAX_MODELS:
            raise ProfileError("too many models", "models", len(items), f"at most {MAX_MODELS}")
    alone = {"accuracy": 1.0} if len(items) == 1 else {}
    models = [_model(item, path, f"models[{i}]", alone) for i, item in enumerate(items)]
    confidences = (_confidences(values["confidences"], path) if "confidences" in values else None)
    with _at(path, ""):
        return ProfileSet(values["name"], tuple(models), values["hardware"],
                          values["measurement"], confidences)


def _confidences(item: object, path: str) -> Confidences:
    """Parse the confidences in an item."""
    parts: dict[str, list[ModelConfidence | Pair]] = {}
    with _at(path, "confidences"):
        values = _object(item, _CONFIDENCE_FIELDS, _REQUIRED_OF_CONFIDENCES)
        for name, kind in (("models", ModelConfidence), ("pairs", Pair)):
            names = tuple(item.name for item in fields(kind))
            parts[name] = []
            for i, part in enumerate(_list(values[name], name, least=int(name == "models"))):
                with _at(path, f"confidences.{name}[{i}]"):
                    parts[name].append(kind(**_object(part, names, names)))
        return Confidences(**{**values, **parts})


def _model(
    item: object, path: str, place: str, default: Mapping[str, float]
) -> ModelProfile:
    """Parse the model in an item; ``default`` holds values of missing fields."""
    with _at(path, place):
        values = {**default, **_object(item, _MODEL_FIELDS, tuple(
            name for name in ("name", "accuracy", "batches") if name not in default))}
        items = _list(values["batches"], "batches")
    batches = []
    for i, batch in enumerate(items):
        with _at(path, f"{place}.batches[{i}]"):
            batches.append(BatchProfile(**_object(batch, _BATCH_FIELDS, ("batch",))))
    if "sized" in values:
        with _at(path, f"{place}.sized"):
            values["sized"] = SizedTimes(
                **_object(values["sized"], _SIZED_FIELDS, _REQUIRED_OF_SIZED))
    with _at(path, place):
        return ModelProfile(**{**values, "batches": tuple(batches)})


def _at(path: str, place: str) -> AbstractContextManager[None]:
    """Context that adds the full place in the file to errors of values."""
    return placed(lambda field: ": ".join(filter(None, (path, ".".join(
        filter(None, (place, field)))))))


def _object(item: object, allowed: tuple[str, ...], required: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise ProfileError("not an object", "", item, "a JSON object")
    for name, value in item.items():
        if name not in allowed:
            raise ProfileError("unknown field", name, value, ", ".join(allowed))
        if value is None:
            raise ProfileError("null is not a value", name, allowed="a value, or no such field")
    for name in required:
        if name not in item:
            raise ProfileError("missing", name, allowed=f"required: {', '.join(required)}")
    return {name: value for name, value in item.items() if name != "format"}


def _list(value: object, name: str, least: int = 1) -> list[Any]:
    if not isinstance(value, list) or len(value) < least:
        raise ProfileError("not a list of objects", name, value,
                           "one or more objects" if least else "a list of objects")
    return value
