"""Interpretation of table headings: field of a profile, unit and batch size.

A heading is split into words. A unit is in brackets or at the end (``p95 (ms)``, ``mean_us``,
``Latency [s]``), a batch size has the form ``b4`` or ``batch_4``; the remaining words are looked
up.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from ramsis.logs.sizes import SIZES
from ramsis.numerals import MS, decimal_number
from ramsis.profiles.importers.rows import STATISTICS

MB = {"b": "0.000001", "bytes": "0.000001", "kb": "0.001", "kib": "0.001024", "mb": "1",
      "mib": "1.048576", "gb": "1000", "gib": "1073.741824"}
"""Megabytes in each unit of memory."""

_MISSING = {"", "-", "--", "–", "—", "na", "n/a", "n.a.", "#n/a", "nan", "none", "null", "oom",
            "error", "fail", "failed", "timeout", "?"}
_CELL = re.compile(r"([+-]?[0-9][0-9.,'’_ \u00a0\u202f\u2009]*(?:[eE][+-]?[0-9]{1,5})?"
                   r"|[+-]?[.,][0-9]+)\s*([%a-zA-Zµμ]*)")
_SPREAD = re.compile(r"\s*(?:±|\+/-|\+-)\s*[0-9.,]+")
_SPACES = re.compile(r"(?<=[0-9])['’_ \u00a0\u202f\u2009](?=[0-9]{3}(?![0-9]))")
_COMMA_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_POINT_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?")
_LONG_POINT_GROUPS = re.compile(r"[+-]?[0-9]{1,3}((\.[0-9]{3}){2,}|(\.[0-9]{3})+,[0-9]+)")

FIELDS = ("model", "batch", "accuracy", "n", "latency", *STATISTICS, "statistic", "unit",
          "memory", "load", "concurrency", "size", "total")
"""Fields that a column may hold.

``latency`` is a time whose statistic no heading names, ``size`` that of each request of a batch or
of the longest, and ``total`` that of the batch.
"""

_UNITS = {**dict.fromkeys(MS, "time"), **dict.fromkeys(MB, "memory"), "%": "percent",
          "percent": "percent", "pct": "percent", "percentage": "percent",
          "fraction": "fraction", "ratio": "fraction"}
_BRACKETS = re.compile(r"[(\[{<]\s*(?:in\s+)?([^)\]}>]*?)\s*[)\]}>]")
_WORDS = re.compile(r"[a-z]+[0-9.]*(?:th)?|[0-9]+(?:\.[0-9]+)?(?:th|%)?|%|[µμ]s")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BATCH_WORD = re.compile(r"(?:b|bs|bsz|batch|batchsize)_?([0-9]{1,5})")
_BATCH_WORDS = ("b", "bs", "bsz", "batch", "batchsize")
_TIMES = {"latency", "latencies", "lat", "time", "times", "duration", "runtime", "elapsed",
          "inference", "infer", "service", "response", "execution", "exec", "e2e", "request"}
_FILLING = {"the", "of", "in", "per", "percentile", "perc", "quantile", "compute", "total", "call",
            "end", "to", "client"}
_NAMES = {
    "model": ("model", "model name", "models", "modelname", "model id", "network", "net",
              "architecture", "arch", "variant", "checkpoint", "model variant", "name"),
    "batch": ("batch", "batch size", "batchsize", "bs", "bsz", "batch sz", "batches", "b",
              "batch sizes", "max batch size", "input batch size", "batch dim"),
    "n": ("n", "count", "samples", "sample count", "num samples", "n samples", "number samples",
          "iterations", "iters", "runs", "num runs", "n runs", "repeats", "trials", "reps",
          "num iterations", "measurements"),
    "mean": ("mean", "avg", "average"),
    "std": ("std", "stddev", "stdev", "std dev", "sd", "standard deviation", "std deviation"),
    "min": ("min", "minimum", "best", "fastest"),
    "max": ("max", "maximum", "worst", "slowest"),
    "p50": ("p50", "median", "50th", "50%", "tp50", "q50", "p50th"),
    "p90": ("p90", "90th", "90%", "tp90", "q90", "p90th"),
    "p95": ("p95", "95th", "95%", "tp95", "q95", "p95th"),
    "p99": ("p99", "99th", "99%", "tp99", "q99", "p99th"),
    "statistic": ("statistic", "stat", "metric", "measure", "quantile", "percentile", "kind",
                  "statistics", "aggregation"),
    "unit": ("unit", "units"),
    "memory": ("memory", "mem", "gpu memory", "memory usage", "peak memory", "gpu mem"),
    "load": ("load", "loading", "cold start"),
    "concurrency": ("concurrency", "concurrent requests", "request concurrency"),
    "latency": ("latency", "time", "duration", "value", "values", "result"),
    "size": tuple(text for texts in SIZES.values() for text in texts),
    "total": ("total tokens", "total size", "total length", "total len", "sum tokens",
              "batch tokens", "total pixels", "total atoms", "total characters", "total chars",
              "tokens total", "sum of lengths", "sum length", "sum lengths"),
}
_BY_NAME = {text: (field, rank) for field, texts in _NAMES.items()
            for rank, text in enumerate(texts)}
_ACCURACY = {"accuracy", "acc", "top1", "acc1"}
_OF_ACCURACY = {"accuracy", "acc", "top1", "acc1", "top", "1", "val", "test", "validation", "eval",
                "imagenet", "model", "mean", "score", "at"}
_DIMENSIONS = {**dict.fromkeys((*STATISTICS, "latency"), ("", "time")), "load": ("time",),
               "memory": ("memory",)}
"""Dimensions that the unit of a field may have; others have none."""
_RATE = re.compile(r"(/|\bper[ _])\s*s(ec(ond)?)?s?\b")
_MOST_COMPARED = 1000  # columns; each is compared with every name of a field
_PASSED = {"", "index", "idx", "unnamed", "row", "rank", "id"}


@dataclass(frozen=True)
class Heading:
    """Meaning of a column of measurements, read from its heading."""

    column: str  # as it stands in the file
    field: str = ""  # one of :data:`FIELDS`; empty where it is not known
    unit: str = ""  # as written; empty where none is stated
    # how unusual the name is for the field; the most usual of several columns is taken
    rank: int = 0
    batch: int | None = None  # of a column that holds the latencies of one batch size

    @property
    def counts_rows(self) -> bool:
        """Whether the column only numbers the rows."""
        return " ".join(_words(self.column)).split(" ")[0] in _PASSED and not self.field


def _words(text: str) -> list[str]:
    return _WORDS.findall(_CAMEL.sub(" ", text).lower().replace("p.", "p"))


def read_heading(column: str) -> Heading:
    """Read what a heading names: a field, its unit and a batch size.

    >>> read_heading("P95 Latency [us]").field, read_heading("P95 Latency [us]").unit
    ('p95', 'us')
    """
    text, unit = column.strip(), ""
    if re.fullmatch(r"[0-9]{1,5}", text):
        return Heading(column, "latency", batch=int(text))
    bracket = _BRACKETS.search(text)
    if bracket and bracket[1].lower() in _UNITS:
        unit, text = bracket[1].lower(), text[:bracket.start()] + " " + text[bracket.end():]
    if _RATE.search(text.lower()):
        return Heading(column)
    words = _words(text)
    if not unit and len(words) > 1:
        # A single letter is a unit at the end only: elsewhere it may be part of a name.
        stated = [word for word in words if word in _UNITS and (len(word) > 1 or word == "%")]
        if words[-1] in _UNITS:
            unit = words.pop()
        elif len(stated) == 1:
            unit = stated[0]
            words.remove(unit)
    words, batch = _without_batch(words)
    field, rank = _field(words, _UNITS.get(unit, ""))
    if batch is not None and not words:
        field = "latency"
    if batch is not None and field not in ("latency", *STATISTICS):
        return Heading(column)
    return Heading(column, field, unit, rank, batch)


def _without_batch(words: list[str]) -> tuple[list[str], int | None]:
    """Split a heading into the batch size that it states, None without one, and its other words.

    Returns the other words first.
    """
    for i, word in enumerate(words):
        joined = _BATCH_WORD.fullmatch(word)
        if joined:
            return words[:i] + words[i + 1:], int(joined[1])
        after = words[i + 1:i + 2] if words[i + 1:i + 2] != ["size"] else words[i + 2:i + 3]
        if word in _BATCH_WORDS and after and after[0].isdecimal():
            end = words.index(after[0], i) + 1
            return words[:i] + words[end:], int(after[0])
    return words, None


def _field(words: list[str], dimension: str) -> tuple[str, int]:
    """Return the field that words name, with its rank; ("", 0) if they name none."""
    if "percentile" in words:  # as 99.00_percentile
        words = [re.sub(r"^([0-9]{2})(\.0+)?(th)?$", r"\1th", word) for word in words]
    those = set(words)
    if those <= _OF_ACCURACY and (those & _ACCURACY or {"top", "1"} <= those):
        return "accuracy", len(words)
    field, rank = _BY_NAME.get(" ".join(words), ("", 0))
    timed = bool(those & _TIMES) or dimension == "time"
    if not field or (field == "batch" and timed):
        left_out = _TIMES | _FILLING | ({"batch", "size"} if timed else set())
        kept = [word for word in words if word not in left_out]
        if not kept:
            return ("latency", 0) if timed else ("", 0)
        field, rank = _BY_NAME.get(" ".join(kept), ("", 0))
    if dimension not in _DIMENSIONS.get(field, ("",)):
        return "", 0
    # Of several columns of sizes none is more usual: it matters which is taken.
    return field, 0 if field in (*STATISTICS, "size", "total") else rank


def nearest(field: str, columns: list[str]) -> str | None:
    """Return the column whose name is most similar to a name of a field; None if none is."""
    scores = {
        column: max(difflib.SequenceMatcher(None, " ".join(_words(column)), text).ratio()
                    for text in (*_NAMES.get(field, (field,)), field))
        for column in columns[:_MOST_COMPARED]
    }
    best = max(scores, key=lambda column: scores[column], default=None)
    return best if best is not None and scores[best] >= 0.6 else None


def is_missing(text: str) -> bool:
    """Return whether a cell marks a missing value."""
    return text.strip().lower() in _MISSING


def split_unit(text: str) -> tuple[str, str]:
    """Split a cell into its number as written, without a spread, and its unit.

    >>> split_unit("6,270.5 ms")
    ('6,270.5', 'ms')
    >>> split_unit("12.3 ± 0.4 ms")
    ('12.3', 'ms')
    """
    match = _CELL.fullmatch(_SPREAD.sub(" ", text, count=1).strip())
    return (match[1].strip(), match[2].lower()) if match else (text.strip(), "")


class DecimalMark:
    """Decimal mark of a table, comma or point, derived from all ``texts`` of its numbers.

    The ``separator`` of cells decides about numbers such as ``6,270`` if all numbers with commas
    have this form: with a semicolon, the comma is the decimal mark; otherwise it groups thousands.
    """

    def __init__(self, texts: Iterable[str], separator: str) -> None:
        numbers = [split_unit(text)[0] for text in texts]
        commas = [text for text in numbers if "," in text]
        decimal = [text for text in commas if not _COMMA_GROUPS.fullmatch(text)]
        points = any("." in text and not _LONG_POINT_GROUPS.fullmatch(text) for text in numbers)
        self.comma = bool(decimal) or (bool(commas) and separator == ";" and not points)

    def number(self, text: str, factor: str) -> float:
        """Return a number without its unit, times a factor, exact in decimal."""
        plain = _SPACES.sub("", text)
        groups = _POINT_GROUPS if self.comma else _COMMA_GROUPS
        if groups.fullmatch(plain):
            plain = plain.replace("." if self.comma else ",", "")
        if self.comma:
            if "." in plain and "," in text:
                raise ValueError(text)
            plain = plain.replace(",", ".")
        decimal_number(plain)  # stricter than Decimal about what a number is
        return float(Decimal(plain) * Decimal(factor))
