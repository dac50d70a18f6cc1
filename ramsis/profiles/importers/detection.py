"""Detection of the format of a file, or of the files in a folder.

Only contents decide, never names, as similar formats have similar names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ramsis.errors import InputFileError
from ramsis.files import MAX_FILE_BYTES
from ramsis.profiles.importers import (
    aiperf,
    clockwork,
    instances,
    mlperf,
    onnxruntime_perf,
    perf_analyzer,
    prometheus,
    ramsis_artifact,
    reports,
    request_log,
    table,
    trtexec,
    vllm_embedding,
)
from ramsis.profiles.importers.formats import (
    MAX_SAMPLES_BYTES,
    LongCsv,
    ModelAnalyzer,
    QuantilesCsv,
    StatsCsv,
    Timm,
)
from ramsis.profiles.importers.reports import torchserve
from ramsis.profiles.importers.rows import MeasuredModel, read_columns
from ramsis.profiles.importers.runs import Given, MeasuredRun, Source

_MOST_FILES = 10_000
_OF_FOLDERS = ("timm", "ramsis-artifact", "instances")
"""Formats of a table that are read from a folder as a whole."""


class TableFormat(Protocol):
    """Interface of an importer module for a table, or a folder of samples."""

    def recognises(self, columns: Collection[str]) -> bool:
        """Return whether the header of a table is of this format."""
        ...

    def read(self, path: Path) -> dict[str, MeasuredModel]:
        """Read the models of a file or folder, in its order."""
        ...


class RunFormat(Protocol):
    """Interface of an importer module for files of one run each."""

    def recognises(self, source: Source) -> bool:
        """Return whether a file of one run is of this format."""
        ...

    def read(self, source: Source, given: Given) -> Sequence[MeasuredRun]:
        """Read the runs of a file."""
        ...


RUN_FORMATS: dict[str, RunFormat] = {
    "aiperf": aiperf,
    "perf-analyzer": perf_analyzer,
    "trtexec": trtexec,
    "onnxruntime-perf-test": onnxruntime_perf,
    "vllm-embedding": vllm_embedding,
    "mlperf-loadgen": mlperf,
    "prometheus": prometheus,
    "clockwork": clockwork,
    "torchserve": torchserve,
    "server-log": request_log.SERVER_LOG,
    "tool-output": reports,
}
"""Formats of which a file is one run, asked in this order."""

TABLE_FORMATS: dict[str, TableFormat] = {
    "stats-csv": StatsCsv(),
    "quantiles-csv": QuantilesCsv(),
    "ramsis-artifact": ramsis_artifact,
    "long-csv": LongCsv(),
    "model-analyzer": ModelAnalyzer(),
    "timm": Timm(),
    "request-log": request_log,
}
"""Formats that state all that is in them."""

_HEADERS: dict[str, Callable[[Collection[str]], bool]] = {
    "instances": instances.recognises,
    **{name: module.recognises for name, module in TABLE_FORMATS.items()}}
"""Formats that are recognised by a header, in this order; other headers are of ``table``."""


def detect(path: Path) -> str:
    """Detect the format of a file, or of the files in a folder."""
    return _of_folder(path) if path.is_dir() else _of_file(path)


def table_file(path: Path, format: str) -> Path:
    """Return the only table of a format in a folder, or the file itself."""
    if not path.is_dir() or format in _OF_FOLDERS:
        return path
    fitting = [file for file in _tables(path) if _table_format(file) == format]
    if len(fitting) != 1:
        raise InputFileError("not one table of this format in this folder", where=str(path),
                             value=", ".join(file.name for file in fitting[:5]) or None,
                             allowed="one, or its file instead of the folder")
    return fitting[0]


def run_files(path: Path, format: str) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return the files of one format in a folder (or the file), and the names of the others."""
    if not path.is_dir():
        source = Source(path)
        other = _run_format_of(source)
        if other is not None and not RUN_FORMATS[format].recognises(source):
            raise InputFileError(
                f"a file of {other}, not of {format}", where=str(path),
                allowed=f"--format {other}, or none: what a file holds tells its format")
        return [(path.name, path)], []
    files = [(file.relative_to(path).as_posix(), file, _run_format(file))
             for file in _files(path)]
    fitting = [(name, file) for name, file, kind in files if kind == format]
    if not fitting:
        raise InputFileError(f"no file of the format {format} in this folder", where=str(path))
    if format == "aiperf":  # without the summaries of runs whose samples are in the same folder
        sampled = {file.parent for _, file in fitting if file.suffix == ".jsonl"}
        fitting = [(name, file) for name, file in fitting
                   if file.suffix == ".jsonl" or file.parent not in sampled]
    return fitting, [name for name, _, kind in files if kind != format]


def _of_file(path: Path) -> str:
    if os.stat(path).st_size > MAX_FILE_BYTES and (name := _table_format(path)):
        return name
    source = Source(path)
    name = _run_format_of(source)
    if name is not None:
        return name
    if table.looks_like_json(source.text):
        document = source.document()
        if isinstance(document, dict) and str(document.get("format", "")).startswith("ramsis."):
            raise InputFileError(
                "is a file of ramsis already", where=str(path), value=document["format"],
                allowed="another program's measurements; a profile file is for --profiles FILE, "
                        "or gets --confidences SAMPLES.csv")
        return "table"
    return _table_format(path) or "table"


def _table_format(path: Path) -> str | None:
    """Return the format of a CSV file by its header; None for another file."""
    if os.stat(path).st_size > MAX_FILE_BYTES:
        columns = read_columns(path, MAX_SAMPLES_BYTES)
        return "long-csv" if TABLE_FORMATS["long-csv"].recognises(columns) else None
    try:
        header = read_columns(path, MAX_FILE_BYTES)
        name = next((name for name, recognises in _HEADERS.items() if recognises(header)), None)
    except InputFileError:
        name = None
    return name or ("table" if table.holds_measurements(path) else None)


def _tables(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("*.csv") if not file.name.startswith("."))


def _of_folder(path: Path) -> str:
    # A log may lie beside the results of a benchmark.
    counts = Counter(kind for file in _files(path)
                     if (kind := _run_format(file)) not in (None, "server-log"))
    tables = [] if counts else _tables(path)
    counts.update(kind for file in tables if (kind := _table_format(file)) is not None)
    if len(counts) > 1:
        shown = ", ".join(f"{kind} ({n})" for kind, n in counts.items())
        raise InputFileError("files of several formats in this folder", where=str(path),
                             value=shown, allowed="--format with one of them")
    if counts:
        return next(iter(counts))
    return _of_file(tables[0]) if tables else "ramsis-artifact"


def _files(path: Path) -> Iterator[Path]:
    """Yield the files below a folder, by name."""
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith(".") or not file.is_file():
                continue
            count += 1
            if count > _MOST_FILES:
                raise InputFileError("too many files in this folder", where=str(path),
                                     allowed=f"at most {_MOST_FILES}")
            yield file


def _run_format(file: Path) -> str | None:
    """Return the format of a file of one run; None for another file, readable or not.

    A damaged JSON file is refused: it may be a run, and the import would lack this run.
    """
    json = file.suffix in (".json", ".jsonl")
    try:
        source = Source(file)
    except InputFileError:
        if file.suffix == ".json" and os.stat(file).st_size <= MAX_FILE_BYTES:
            raise
        return None
    kind = _run_format_of(source)
    if kind is None and json and source.first_record() is None:
        source.node()
    return kind


def _run_format_of(source: Source) -> str | None:
    return next((name for name, module in RUN_FORMATS.items() if module.recognises(source)), None)
