"""Importers of profile sets from measurements of other programs.

There are two kinds of formats; :data:`FORMATS` lists both. A table is read into ``{model:
MeasuredModel}``; formats with fixed columns are
:class:`~ramsis.profiles.importers.formats.ColumnMap` s. A tool that writes one file per run has a
module that reads one file (:data:`~ramsis.profiles.importers.detection.RUN_FORMATS`); the user
states values that its files lack. Importers convert to ms and fractions, and never guess: an
unknown column or unit is an error that names it. :func:`import_profile` then adds the accuracies
of a separate file, selects models and builds the checked profile set.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.profiles.file import is_profile, load
from ramsis.profiles.importers import instances, table
from ramsis.profiles.importers.accuracy import AnsweredSamples, read_accuracy, read_samples
from ramsis.profiles.importers.detection import (
    RUN_FORMATS,
    TABLE_FORMATS,
    detect,
    run_files,
    table_file,
)
from ramsis.profiles.importers.rows import MeasuredModel, check_number
from ramsis.profiles.importers.runs import Given, gather
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.values import placed

__all__ = ["FORMATS", "AnsweredSamples", "Given", "about_format", "detect", "import_profile",
           "read_samples"]

_MODULES = {**TABLE_FORMATS, "table": table, "instances": instances, **RUN_FORMATS}

FORMATS: tuple[str, ...] = tuple(_MODULES)
"""Names of the formats."""


def about_format(format: str) -> str:
    """Return a short description of a format, one of :data:`FORMATS`."""
    check_known("unknown format", format, FORMATS, "format")
    first_line = (_MODULES[format].__doc__ or "").partition("\n")[0]
    return first_line.partition(": ")[2].replace("`", "").rstrip(".")


def import_profile(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str = "auto",
    models: Sequence[str] | None = None,
    accuracy: str | os.PathLike[str] | Mapping[str, float] | None = None,
    name: str | None = None,
    given: Given | None = None,
    confidences: str | os.PathLike[str] | None = None,
) -> ProfileSet:
    """Import the profile set in another program's file or folder.

    Parameters
    ----------
    source : path, or sequence of paths
        A file or a folder; or several files of one run each, as if in one folder.
    format : str
        One of :data:`FORMATS`, or ``"auto"``: what a file holds tells its format, a CSV file by
        its header; for a folder its files are looked at.
    models : sequence of str, optional
        Models to keep, in this order; all by default.
    accuracy : path or mapping, optional
        Accuracies by model: a file as :func:`read_accuracy` takes, or fractions in [0, 1].
        They go before accuracies in the source.
    name : str, optional
        Name of the set; by default that of the source without its ending.
    given : Given, optional
        What the files do not say: batch sizes, models, a metric, columns and units.
    confidences : path, optional
        Samples with correctness and confidence of each model, as :func:`read_samples` takes; they
        also state accuracies that nothing else does. With them, a profile file or the name of a
        shipped set is a source, too.

    Raises
    ------
    InputFileError
        When a file cannot be read or breaks its format, a model has no accuracy, or samples
        contradict the profile.
    InvalidValueError
        When ``format`` or a name in ``models`` is unknown, or an argument is out of range.
    """
    paths = [Path(item) for item in (
        [source] if isinstance(source, str | os.PathLike) else source)]
    check_known("unknown format", format, ("auto", *FORMATS), "format")
    if not paths:
        raise InvalidValueError("no files", where="source", allowed="a path, or one or more")
    given = given or Given()
    samples = None if confidences is None else read_samples(confidences, models)
    if samples is not None and len(paths) == 1 and is_profile(paths[0]):
        profile = load(paths[0])
        _refuse_options_beside(profile, format, given)
        profile = profile if models is None else profile.subset(models)
        accuracies = _accuracies(accuracy, given) or {}
        profile = replace(profile, name=name or profile.name, models=tuple(
            replace(model, accuracy=accuracies.get(model.name, model.accuracy))
            for model in profile.models))
    else:
        measured, chosen = _measured(paths, format, given)
        measured = _pick(measured, models, str(paths[0]))
        check_number(measured, paths[0])
        answered = {} if samples is None else samples.accuracies
        for key, item in measured.items():
            if item.accuracy is None:
                item.accuracy = answered.get(key)
        profile = _profile_set(measured, paths[0], chosen, _accuracies(accuracy, given), name)
    return profile if samples is None else samples.added_to(profile)


def _accuracies(
    accuracy: str | os.PathLike[str] | Mapping[str, float] | None, given: Given
) -> Mapping[str, float] | None:
    return (read_accuracy(accuracy, given.accuracy_unit)
            if isinstance(accuracy, str | os.PathLike) else accuracy)


def _refuse_options_beside(profile: ProfileSet, format: str, given: Given) -> None:
    """Refuse options on what a table or a tool's file holds, as the source is a profile file."""
    if format != "auto" or given:
        raise InvalidValueError("a profile file states all that these options say",
                                where="--format, --batch, --model-name, --metric, --column, "
                                "--unit, --accuracy-unit, --law, --instance, --processes",
                                value=profile.name, allowed="none of these options")


def _measured(
    paths: Sequence[Path], format: str, given: Given
) -> tuple[dict[str, MeasuredModel], str]:
    """Read another program's files; return their models, and the format that they have."""
    for path in paths:
        if not path.exists():
            raise InputFileError("no such file or folder", where=str(path))
    if len(paths) == 1:
        (path,) = paths
        if format == "auto":
            format = "instances" if given.instance or given.processes else detect(path)
            # Who says what columns hold has a table, whatever its header looks like.
            if format in TABLE_FORMATS and given and not path.is_dir():
                format = "table"
        return _read(path, format, given), format
    formats = {str(path): format if format != "auto" else
               "a folder" if path.is_dir() else detect(path) for path in paths}
    others = [f"{path} ({kind})" for path, kind in formats.items() if kind not in RUN_FORMATS]
    if others or len(set(formats.values())) > 1:
        raise InputFileError(
            "not several files of one run each and of one format", where=others[0] if others
            else ", ".join(f"{path} ({kind})" for path, kind in formats.items()),
            allowed=f"one table or folder, or files of one of: {', '.join(RUN_FORMATS)}")
    (format,) = set(formats.values())
    _refuse_given(format, given)
    files = [(path.as_posix(), path) for path in paths]
    return gather(files, RUN_FORMATS[format].read, given, format), format


def _profile_set(
    measured: dict[str, MeasuredModel], path: Path, format: str,
    accuracies: Mapping[str, float] | None, name: str | None,
) -> ProfileSet:
    """Return the checked set of the models of a source."""
    if len(measured) == 1 and accuracies is None:
        (item,) = measured.values()
        if item.accuracy is None:  # no choice depends on it
            item.accuracy = 1.0
            item.notes.append("no accuracy: the only model counts 1, so that figures are shares "
                              "of requests answered in time")
    without = [key for key, item in measured.items() if item.sized is None]
    if without and len(without) < len(measured):
        raise InputFileError("no times by size, beside models with them",
                             where=f"{path}: model {without[0]}",
                             allowed="rows of two or more sizes, or --models without this model")
    profiles = [_model(key, item, accuracies or {}, str(path)) for key, item in measured.items()]
    note: dict[str, object] = {"imported_from": path.resolve().name, "format": format}
    notes = list(dict.fromkeys(line for item in measured.values() for line in item.notes))
    if notes:
        note["notes"] = notes
    own_name = path.resolve().name if path.is_dir() else path.stem
    return ProfileSet(name or own_name, tuple(profiles), measurement=note)


def _refuse_given(format: str, given: Given) -> None:
    """Refuse options that do not apply to a format of runs."""
    _refuse_instances(format, given)
    if given.columns or given.law or (given.unit and format != "prometheus"):
        raise InvalidValueError("this format states columns and units",
                                where="--column, --unit, --law",
                                value=format, allowed="--format table, or none of these options")


def _refuse_instances(format: str, given: Given) -> None:
    if given.instance or given.processes:
        raise InvalidValueError("this format has no instances of GPUs",
                                where="--instance, --processes", value=format,
                                allowed="none of these options")


def _read(path: Path, format: str, given: Given) -> dict[str, MeasuredModel]:
    if format == "instances":
        return instances.read(path, given)
    _refuse_instances(format, given)
    if format == "table":
        return table.read(table_file(path, format), given)
    if format in TABLE_FORMATS:
        if (given.batch or given.model or given.metric or given.columns or given.unit
                or given.law):
            raise InvalidValueError("this format states models and batch sizes",
                                    where="--batch, --model-name, --metric, --column, --unit, "
                                    "--law",
                                    value=format, allowed=", ".join(("table", *RUN_FORMATS)))
        return TABLE_FORMATS[format].read(table_file(path, format))
    _refuse_given(format, given)
    files, others = run_files(path, format)
    measured = gather(files, RUN_FORMATS[format].read, given, format)
    for item in measured.values():
        if others:
            some = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
            item.notes.append(f"other files of the folder, left out: {len(others)} ({some})")
    return measured


def _pick(
    measured: dict[str, MeasuredModel], models: Sequence[str] | None, path: str
) -> dict[str, MeasuredModel]:
    """Return the named models, in the order of the names; all of one task."""
    for key in models or ():
        if key not in measured:
            near = difflib.get_close_matches(key, measured, n=3) or list(measured)
            raise InvalidValueError(f"no such model in {path}", where="models", value=key,
                                    allowed=", ".join(near))
    picked = {key: measured[key] for key in (measured if models is None else models)}
    tasks = sorted({item.task for item in picked.values() if item.task})
    if len(tasks) > 1:
        raise InputFileError("accuracies of several tasks do not compare", where=f"{path}: task",
                             value=", ".join(tasks), allowed="models of one task (name them)")
    return picked


def _model(
    name: str, item: MeasuredModel, accuracies: Mapping[str, float], path: str
) -> ModelProfile:
    """Return the profile of a measured model, by the name that the profile set gives it.

    The accuracy is that of ``accuracies`` under this name or under the model's alias, else the
    measured one.
    """
    accuracy = accuracies.get(name, accuracies.get(item.alias or name, item.accuracy))
    if accuracy is None:
        near = difflib.get_close_matches(item.alias or name, accuracies, n=3)
        raise InputFileError(
            "no accuracy for this model", where=f"{path}: model {name}",
            allowed="an accuracy file that names it, by --accuracy FILE"
                    + (f" (it has {', '.join(near)})" if near else
                       "" if accuracies else f", or --models {name} for a profile of one model, "
                       "which needs none"))
    sizes = sorted({batch.batch for batch in item.batches})
    # ``more`` tells the user how to measure a missing batch size.
    if item.more and 1 not in sizes:
        raise InputFileError("batch size 1 was not measured",
                             where=f"{path}: model {name}, batches", value=sizes,
                             allowed=item.more)
    with placed(lambda field: f"{path}: model {name}, {field}"):
        return ModelProfile(name, accuracy, tuple(item.batches), item.memory_mb, item.load_ms,
                            item.sized)
