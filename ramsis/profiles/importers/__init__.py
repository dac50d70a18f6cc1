"""Profile sets from other programs' measurements.

An importer is a function ``(path) -> {model: Measured}``, entered in :data:`FORMATS` under
the name of its format; what it reads is converted to ms and fractions there, and nothing is
guessed: an unknown column or unit is an error that names it. :func:`import_profile` then adds
the accuracies of a separate file, picks models and builds the checked profile set.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.profiles.importers import (
    long_csv,
    model_analyzer,
    quantiles_csv,
    ramsis_artifact,
    stats_csv,
    timm,
)
from ramsis.profiles.importers.accuracy import read_accuracy
from ramsis.profiles.importers.rows import Measured, read_rows
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.values import ProfileError

__all__ = ["FORMATS", "import_profile"]

FORMATS: dict[str, Callable[[Path], dict[str, Measured]]] = {
    "stats-csv": stats_csv.read,
    "quantiles-csv": quantiles_csv.read,
    "ramsis-artifact": ramsis_artifact.read,
    "long-csv": long_csv.read,
    "model-analyzer": model_analyzer.read,
    "timm": timm.read,
}
"""Format name to importer."""

_HEADERS = (
    ("quantiles-csv", quantiles_csv, "model, batch, q0_ms, …"),
    ("stats-csv", stats_csv, "model, batch, p95_s, …"),
    ("long-csv", long_csv, "model, batch, latency_ms"),
    ("model-analyzer", model_analyzer, "Model, Batch, Concurrency, p99 Latency (ms), …"),
    ("timm", timm, "model, infer_step_time, …"),
)
"""The formats that a header tells apart, asked in this order."""


def import_profile(
    source: str | os.PathLike[str],
    format: str = "auto",
    models: Sequence[str] | None = None,
    accuracy: str | os.PathLike[str] | Mapping[str, float] | None = None,
    name: str | None = None,
) -> ProfileSet:
    """The profile set in another program's file or folder.

    Parameters
    ----------
    source : path
        A file or a folder.
    format : str
        A key of :data:`FORMATS`, or ``"auto"``: a CSV file is told by its header; a folder
        is ``timm`` when CSV files lie in it, else ``ramsis-artifact``.
    models : sequence of str, optional
        Models to keep, in this order; all by default.
    accuracy : path or mapping, optional
        Accuracies by model: a file as :func:`read_accuracy` takes, or fractions in [0, 1].
        They go before accuracies in the source.
    name : str, optional
        Name of the set; by default that of the source without its ending.

    Raises
    ------
    InputFileError
        When a file cannot be read or breaks its format, or a model has no accuracy.
    InvalidValueError
        When ``format`` or a name in ``models`` is unknown, or an argument is out of range.
    """
    path = Path(source)
    if format not in ("auto", *FORMATS):
        raise InvalidValueError(
            describe("unknown format", where="format", value=format,
                     allowed=", ".join(("auto", *FORMATS)))
        )
    if not path.exists():
        raise InputFileError(describe("no such file or folder", where=str(path)))
    chosen = detect(path) if format == "auto" else format
    measured = _pick(FORMATS[chosen](path), models, str(path))
    given = read_accuracy(accuracy) if isinstance(accuracy, str | os.PathLike) else accuracy
    profiles = [
        _model(key, item, given or {}, str(path))
        for key, item in measured.items()
    ]
    note: dict[str, object] = {"imported_from": path.resolve().name, "format": chosen}
    notes = list(dict.fromkeys(line for item in measured.values() for line in item.notes))
    if notes:
        note["notes"] = notes
    own_name = path.resolve().name if path.is_dir() else path.stem
    return ProfileSet(name or own_name, tuple(profiles), measurement=note)


def detect(path: Path) -> str:
    """The format of a file or folder.

    Raises
    ------
    InputFileError
        When it is none that is known.
    """
    if path.is_dir():
        return "timm" if any(path.glob("*.csv")) else "ramsis-artifact"
    header = read_rows(path).columns
    for name, importer, _ in _HEADERS:
        if importer.recognises(header):
            return name
    raise InputFileError(
        describe("cannot tell the format by the columns", where=str(path),
                 value=", ".join(header),
                 allowed="; ".join(f"{name} ({shown})" for name, _, shown in _HEADERS))
    )


def _pick(
    measured: dict[str, Measured], models: Sequence[str] | None, path: str
) -> dict[str, Measured]:
    """The named models, in the order named; all of one task."""
    for key in models or ():
        if key not in measured:
            near = difflib.get_close_matches(key, measured, n=3) or list(measured)
            raise InvalidValueError(
                describe(f"no such model in {path}", where="models", value=key,
                         allowed=", ".join(near))
            )
    picked = {key: measured[key] for key in (measured if models is None else models)}
    tasks = sorted({item.task for item in picked.values() if item.task})
    if len(tasks) > 1:
        raise InputFileError(
            describe("accuracies of several tasks do not compare", where=f"{path}: task",
                     value=", ".join(tasks), allowed="models of one task (name them)")
        )
    return picked


def _model(name: str, item: Measured, given: Mapping[str, float], path: str) -> ModelProfile:
    accuracy = given.get(name, given.get(item.alias or name, item.accuracy))
    if accuracy is None:
        near = difflib.get_close_matches(item.alias or name, given, n=3)
        raise InputFileError(
            describe("no accuracy for this model", where=f"{path}: model {name}",
                     allowed="an accuracy file that names it"
                             + (f" (it has {', '.join(near)})" if near else ""))
        )
    sizes = sorted({batch.batch for batch in item.batches})
    if item.more and 1 not in sizes:
        raise InputFileError(
            describe("batch size 1 was not measured", where=f"{path}: model {name}, batches",
                     value=sizes, allowed=item.more)
        )
    try:
        return ModelProfile(name, accuracy, tuple(item.batches))
    except ProfileError as error:
        raise InputFileError(error.at(f"{path}: model {name}, {error.field}")) from error
