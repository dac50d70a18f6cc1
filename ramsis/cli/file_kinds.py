"""Recognise the kind of an input file that a command refuses, and name the commands for it.

Used when a command refuses a file; only the beginning of the file is read. Each kind has a
description, advice, and the commands and options that take it; a refusal by one of these concerns
the content of the file, not its kind.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ramsis.errors import RamsisError
from ramsis.logs.kinds import LogKind, Summary, kind_of, preamble_of
from ramsis.numerals import heading_unit

_BEGINNING = 64 * 1024
_MOST_BYTES = 4 * 1024 * 1024  # of a file that is read whole, to tell a benchmark's output


class _Kind(NamedTuple):
    what: str
    step: str
    taken_by: frozenset[str]


def _kind(what: str, step: str, *taken_by: str) -> _Kind:
    return _Kind(what, step, frozenset(taken_by))


_DOCUMENTS = ("validate", "report", "verify")
_CONFIGURATIONS = ("export kubernetes", "export ray-serve")
_EXPORTS = ("export c", "export go", "export triton", *_CONFIGURATIONS)
_POLICIES = _kind("a folder of policies", "`ramsis analyze {0}` or --policy {0} takes it",
                  "analyze", "serve", *_EXPORTS, "--policy", *_DOCUMENTS)
_FOLDERS = {  # by a file that is in them
    "manifest.json": _POLICIES,
    "plan.json": _kind("the folder of a plan", "`ramsis report {0} --out PAGE.html` shows it; its "
                       "policies are in a folder there", "report", "validate"),
    "scaling.json": _kind("a scaling policy", "`ramsis serve {0}` scales workers by it", "serve",
                          *_CONFIGURATIONS, "report", "--scaling", "--advise", "validate"),
    "results.csv": _kind("the folder of a sweep", "`ramsis report {0} --out PAGE.html` shows it",
                         "report", "sweep"),
}
_RESULTS = _kind("what a command printed", "`ramsis report {0} --out PAGE.html` shows it",
                 "report", "validate")
_FORMATS = {
    "ramsis.profile": _kind("a profile file", "--profiles {0} takes it", "--profiles", "profile",
                            *_DOCUMENTS),
    "ramsis.policy": _kind("a policy file", "`ramsis analyze {0}` or --policy {0} takes it",
                           "analyze", "policy", *_EXPORTS, "--policy", *_DOCUMENTS),
    "ramsis.sized-policy": _kind("a policy file for requests with a size", "--policy {0} of "
                                 "`ramsis simulate --sizes` takes it", "--policy", "validate"),
    "ramsis.sized-manifest": _kind("the manifest of policies for requests with a size", "its "
                                   "folder is for --policy DIR of `ramsis simulate --sizes`",
                                   "validate"),
    "ramsis.manifest": _kind("the manifest of a folder of policies", "its folder is for `ramsis "
                             "analyze DIR` or --policy DIR", *_DOCUMENTS),
    "ramsis.placement-problem": _kind("a placement problem", "`ramsis place` takes it", "place",
                                      *_DOCUMENTS),
    "ramsis.placement": _kind("a placement", "`ramsis place` and --placement take it", "place",
                              "--placement", "export mig", "serve", "simulate", *_DOCUMENTS),
    "ramsis.value-table": _kind("a value table", "`ramsis place` takes it", "place", *_DOCUMENTS),
    "ramsis.scenario": _kind("a scenario", "`ramsis simulate {0}` and `ramsis scenario` take it",
                             "scenario", "simulate", "bound", "sweep", *_DOCUMENTS),
    "ramsis.plan": _kind("a plan", "`ramsis report {0} --out PAGE.html` shows it; its policies "
                         "are in a folder beside it", *_DOCUMENTS),
    "ramsis.scaling": _kind("a scaling policy", "`ramsis serve {0}` scales workers by it", "serve",
                            *_CONFIGURATIONS, "--advise", *_DOCUMENTS),
    "ramsis.agent": _kind("a trained agent", "`ramsis simulate --scheduler rl` takes it",
                          "simulate",
                          *_DOCUMENTS),
}
_TABLE = _kind("a table of latencies", "`ramsis profile import {0} --out PROFILE.json` makes a "
               "profile file of it", "profile import", "--accuracy")
_LOG = _kind("a request log", "`ramsis audit {0}` takes it", "audit", "profile")
_TIMES = _kind("a trace of arrivals", "--trace {0} or `ramsis arrivals fit {0}` takes it",
               "--trace", "arrivals")
_RATES = _kind("a trace of loads", "--trace {0} takes it", "--trace")
_TOML = _kind("a TOML file", "`ramsis sweep` takes settings of grids, `ramsis simulate` scenarios",
              "sweep", "simulate", "scenario", "place", "profile", "generate", "--variants",
              "--settings", *_DOCUMENTS)
# First bytes, name, suffix and command of compressions that are unpacked under this suffix.
_PACKED = ((b"\x1f\x8b", "gzip", ".gz", "gunzip"), (b"\x28\xb5\x2f\xfd", "zstd", ".zst", "unzstd"))
_SIGNATURES = {
    b"BZh": _kind("compressed with bzip2", "`bunzip2 -c {0} > FILE` unpacks it"),
    b"\xfd7zXZ": _kind("compressed with xz", "`unxz -c {0} > FILE` unpacks it"),
    b"PK\x03\x04": _kind("a spreadsheet or ZIP archive", "save its table as CSV"),
    b"PAR1": _kind("a Parquet file", "write its table as CSV (pandas: read_parquet, to_csv)"),
    b"%PDF": _kind("a PDF", "give the data behind it, as CSV or JSON"),
    b"\x89PNG": _kind("a picture", "give the data behind it, as CSV or JSON"),
    b"SQLite format 3": _kind("a database", "write its table as CSV"),
    b"\x93NUMPY": _kind("an array of NumPy", "write it as text (numpy.savetxt)"),
    b"\x7fELF": _kind("a program", "give a file of data"),
    b"<!DOCTYPE": _kind("a web page", "give the data behind it, as CSV or JSON"),
    b"<html": _kind("a web page", "give the data behind it, as CSV or JSON"),
}
_ISO = re.compile(r'"?\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.,]*(Z|[+-]\d\d:?\d\d)?"?\s*')


def next_step(message: str, arguments: Sequence[str]) -> str:
    """Describe a refused file and the command that takes it; empty if its kind is unknown."""
    words = [word for word in arguments if not word.startswith("-")]
    commands = {words[0], " ".join(words[:2])} if words else set()
    before = ""  # the option that the next word is the value of, if any
    for word in arguments:
        # ``path``: what the word may name; ``asked``: the option that it belongs to, or "".
        option, _, value = word.partition("=") if word.startswith("--") else ("", "", word)
        path, asked = (value, option) if value else ("", "")
        if not word.startswith("-"):
            path, asked = word.rpartition("=")[2] if "=" in word else word, before
        # A file to be written cannot be the one that was refused.
        if asked.startswith("--out"):
            path = ""
        kind = _kind_of(path) if path and path in message else None
        # A file that the option or the command takes is refused for another reason.
        options = {asked} if asked.startswith("--") else commands | {asked}
        if kind is not None and not options & kind.taken_by:
            return f"; this is {kind.what}: {kind.step.format(shlex.quote(path))}"
        before = word if word.startswith("--") and "=" not in word else ""
    return ""


def _kind_of(path: str) -> _Kind | None:
    """Return the kind of a file or folder by its beginning; None if unknown."""
    try:
        if os.path.isdir(path):
            return next((kind for name, kind in _FOLDERS.items()
                         if Path(path, name).is_file()), None)
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            begin = file.read(_BEGINNING)
    except (OSError, ValueError):
        return None
    for mark, name, suffix, command in _PACKED:
        if begin.startswith(mark):
            taken_by = ("--trace", "arrivals", "audit") if path.endswith(suffix) else ()
            return _kind(f"compressed with {name}", f"`{command} -c {{0}} > FILE` unpacks it",
                         *taken_by)
    for mark, kind in _SIGNATURES.items():
        if begin.startswith(mark):
            return kind
    text = begin.decode("utf-8-sig", "replace").lstrip()
    match = re.search(r'"?format"?\s*[:=]\s*"(ramsis\.[a-z-]+)/', text)
    if match:
        return _FORMATS.get(match[1])
    if re.match(r'\{\s*"created_by":\s*"ramsis ', text):
        return _RESULTS
    log = kind_of(text)
    if log is not None:
        return _of_log(log)
    if text.startswith("{"):
        return _of_names(_keys(text.partition("\n")[0])) or _benchmark(path)
    text = text.removeprefix(preamble_of(text))
    lines = [line for line in text.splitlines() if line.strip()]
    return _of_lines(lines[:2], path) or _benchmark(path)


def _benchmark(path: str) -> _Kind | None:
    """Return the kind of what a benchmark tool wrote about a model; None for another file."""
    from ramsis.profiles.importers.detection import RUN_FORMATS, detect  # takes long to load

    try:
        name = detect(Path(path)) if os.stat(path).st_size <= _MOST_BYTES else ""
    except (RamsisError, OSError):
        return None
    if name not in RUN_FORMATS:
        return None
    return _kind(f"a benchmark of a model ({name})", _TABLE.step, "profile import", "--loadgen")


def _of_log(log: LogKind | Summary) -> _Kind:
    """Return the kind of a request log or a load test's result, with the commands that take it."""
    if isinstance(log, Summary) or not log.has_arrivals:
        step = log.advice if isinstance(log, Summary) else log.lacks
        return _kind(log.title, step, "audit", "arrivals", "--trace", "profile import")
    fit = "`ramsis arrivals fit {0}` or --trace {0} takes it"
    return _kind(log.title, fit if log.lacks else "`ramsis audit {0}` takes it, and for its "
                 "arrivals " + fit, "audit", "arrivals", "--trace")


def _keys(line: str) -> list[str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []


def _times_or_rates(path: str) -> _Kind | None:
    """Return the kind of a table with times; None where its other columns are ambiguous."""
    from ramsis.arrivals.load_table import is_rate_trace  # which takes long to load

    try:
        return _RATES if is_rate_trace(path) else _TIMES
    except RamsisError:
        return None


def _of_lines(lines: list[str], path: str) -> _Kind | None:
    """Return the kind of a text file, recognised by its first lines."""
    if not lines:
        return None
    if re.fullmatch(r"\s*(\[+[\w.-]+\]+|[\w-]+\s*=\s*\S.*)\s*", lines[0]):
        return _TOML
    names = [name.strip(' "') for name in re.split(r"[,;\t|]", lines[0])]
    kind = _of_names(names)
    if kind is _TIMES:
        return _times_or_rates(path)
    if kind is not None:
        return kind
    if _ISO.fullmatch(lines[0]) or (
            len(lines) > 1 and len(names) == 1 and _ISO.fullmatch(lines[1])):
        return _TIMES
    numbers = [re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", part, re.IGNORECASE)
               for part in re.split(r"[\s,;]+", lines[0].strip())]
    return {1: _TIMES, 2: _RATES}.get(len(numbers)) if all(numbers) else None


def _of_names(names: list[str]) -> _Kind | None:
    """Return the kind of a table by its column names, or of JSON objects by their keys."""
    columns = {heading_unit(name)[0] for name in names}
    if {"arrival", "finish"} <= columns or {"outcome", "deadline"} <= columns:
        return _LOG
    timed = any(re.search(r"latency|mean|p\d\d|median|avg", name) for name in columns)
    sized = {"batch", "batch_size", "batch size", "batchsize", "bs"} & columns
    if timed and (sized or {"model", "model_name", "model name"} & columns):
        return _TABLE
    if {"timestamp", "time", "arrival", "ts", "arrived_at", "@timestamp"} & columns:
        return _TIMES
    return None
