"""Importer of ``prometheus``: histograms of service times, in Prometheus' text format.

A histogram ``NAME`` has ``NAME_bucket{le="…"}`` (cumulative counts), ``NAME_sum`` and
``NAME_count``. The end of its name states the unit, as Prometheus recommends: ``_seconds``; also
``_milliseconds``, ``_ms``, ``_microseconds``, ``_us``, ``_nanoseconds``, ``_ns``. A histogram
without such an end needs ``--unit``; a histogram whose sum does not fit its buckets is refused. If
a file has several histograms, ``--metric`` names the one to read; only the user knows whether its
times include waiting.

Triton's counters, each a sum over executions, state the mean time of batches of one size.

The labels ``model``, ``model_name`` or ``deployment`` become the model, ``batch_size`` or
``batch`` the batch size. Over other labels (replica, version) counts are added up, with a note.
The mean is exact. A percentile is known up to its bucket: it is interpolated linearly between the
ends of the bucket, as Prometheus does, and ``relative_error`` states the largest error of the 95th
percentile. A percentile in the last bucket, which is unbounded, is left out. Three kinds of files
are refused, as they were cut off or joined: a last line without a line feed, a sample that appears
twice, and counts without their sum.

Source: Prometheus' documentation, "Exposition formats" and "histogram_quantile()".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.numerals import MS, number_or_nan
from ramsis.profiles.importers.runs import Given, MeasuredRun, Source

_MS = ("seconds", "milliseconds", "ms", "microseconds", "us", "nanoseconds", "ns")
"""Units that a name may end in."""
_ANY_TYPE = re.compile(r"^# TYPE \S+ (?:counter|gauge|histogram|summary|untyped)\s*$", re.M)
_BEGINNING = 65_536
_TYPE = re.compile(r"^# TYPE (\S+) histogram\s*$", re.M)
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*?)\})?\s+(\S+)(?:\s+-?[\d.]+)?(?:\s+#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_COUNTERS = {"executions": "nv_inference_exec_count", "inferences": "nv_inference_count",
             **{part: f"nv_inference_compute_{part}_duration_us"
                for part in ("input", "infer", "output")}}
"""Triton's counters, which are sums over all executions."""
_MODEL = ("model", "model_name", "deployment")
_BATCH = ("batch_size", "batch")
_LEVELS = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
_SLACK = 1e-3


@dataclass
class _Series:
    """The counts of one histogram with the labels of one model and batch size."""

    counts: dict[float, float] = field(default_factory=dict)
    total: float = 0.0
    sum: float = 0.0
    kinds: set[str] = field(default_factory=set)
    others: dict[str, set[str]] = field(default_factory=dict)


def recognises(source: Source) -> bool:
    """Return whether a file has metrics in Prometheus' text format."""
    return _ANY_TYPE.search(source.text[:_BEGINNING]) is not None


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read a run for each model and batch size of the histogram."""
    if given.metric is None and _COUNTERS["executions"] in source.text:
        return _from_triton(source)
    name = _chosen(source, given.metric)
    factor = _factor(source, name, given.unit)
    series = _series(source, name)
    for (model, batch), item in series.items():
        if len(item.kinds) < 3:
            raise InputFileError(
                "not all of buckets, sum and count are there, so the file is cut off",
                where=f"{source.where}: {name} of model {model}, batch size {batch}",
                value=", ".join(sorted(item.kinds)), allowed="_bucket, _count, _sum")
    counted = {key: item for key, item in series.items() if item.total > 0}
    if not counted:
        raise InputFileError("the histogram is empty", where=f"{source.where}: {name}")
    others = [other for other in dict.fromkeys(_TYPE.findall(source.text)) if other != name]
    notes = [f"other histograms, left out: {', '.join(others)}"] if others else []
    if len(counted) < len(series):
        notes.append(f"series without a count, left out: {len(series) - len(counted)}")
    return [_run(f"{source.where}: {name}", key, item, factor, notes)
            for key, item in counted.items()]


def _chosen(source: Source, wanted: str | None) -> str:
    """Return the name of the histogram to read: the wanted one, or the only one of times."""
    names: list[str] = list(dict.fromkeys(_TYPE.findall(source.text)))
    if not names:
        of_torchserve = "ts_inference_latency_microseconds" in source.text
        raise InputFileError(
            "metrics without a histogram: sums of times, which include waiting, are no service "
            "times", where=source.where,
            allowed="TorchServe's model_metrics.log, which has the time of each batch"
            if of_torchserve else "metrics with a line # TYPE NAME histogram")
    if wanted is not None:
        if wanted not in names:
            raise InvalidValueError(f"no such histogram in {source.where}", where="--metric",
                                    value=wanted, allowed=", ".join(names[:8]))
        return wanted
    timed = [name for name in names if name.rpartition("_")[2] in _MS] or names
    if len(timed) > 1:
        raise InputFileError(
            "several histograms", where=source.where, value=", ".join(timed[:8]),
            allowed=f"--metric NAME with service times without waiting, as {_likeliest(timed)}")
    return timed[0]


def _likeliest(names: Sequence[str]) -> str:
    """Return the first histogram whose name suggests execution times, else the first one."""
    return next((name for word in ("compute", "infer", "predict", "execut", "service")
                 for name in names if word in name and "queue" not in name), names[0])


def _factor(source: Source, name: str, stated: str | None) -> float:
    unit = name.rpartition("_")[2]
    if unit not in _MS:
        unit = stated or ""
    elif stated is not None and MS[stated] != MS[unit]:
        raise InvalidValueError("the name of the histogram states another unit", where="--unit",
                                value=stated, allowed=f"{unit}, or no --unit")
    if not unit:
        raise InputFileError("the name does not end in a unit of time", where=source.where,
                             value=name, allowed="--unit s (ms, us, ns)")
    return float(MS[unit])


def _from_triton(source: Source) -> list[MeasuredRun]:
    """Read the mean time of a batch by model from Triton's counters."""
    runs: list[MeasuredRun] = []
    sums: dict[str, dict[str, float]] = {}
    seen: set[str] = set()
    for number, line in enumerate(source.text.splitlines(), start=1):
        sample = _SAMPLE.fullmatch(line.strip()) if line.startswith("nv_inference_") else None
        name = next((key for key, counter in _COUNTERS.items()
                     if sample is not None and sample[1] == counter), None)
        if sample is None or name is None:
            continue
        where = f"{source.where}: line {number}"
        if line in seen:
            raise _again(where, line)
        seen.add(line)
        counts = sums.setdefault(_labels(sample[2] or "", where).get("model", "model"), {})
        counts[name] = counts.get(name, 0.0) + _value(sample[3], where)
    for model, counts in sums.items():
        if counts.get("executions", 0.0) <= 0:
            continue
        batch = counts.get("inferences", 0.0) / counts["executions"]
        if batch < 1 or batch != int(batch) or "infer" not in counts:
            raise InputFileError(
                "executions with batches of several sizes, so the mean is of no batch size",
                where=f"{source.where}: model {model}", value=f"{batch:.4g} inputs on the mean",
                allowed="the counters of a server that has run batches of one size, as under "
                "perf_analyzer -b 1 --concurrency-range 1")
        busy_us = sum(counts.get(name, 0.0) for name in ("input", "infer", "output"))
        runs.append(MeasuredRun(
            {"mean_ms": busy_us / 1000.0 / counts["executions"],
             "n": int(counts["executions"])}, None, int(batch), model,
            ("read as Triton's counters: the mean compute time of an execution, in us; waiting is "
             "not in it",)))
    if not runs:
        raise InputFileError("Triton's counters of no execution", where=source.where,
                             allowed="metrics of a server that has run its models")
    return runs


def _series(source: Source, name: str) -> dict[tuple[str | None, int | None], _Series]:
    """Read the samples of a histogram by (model, batch size); refuse a file that is cut off."""
    series: dict[tuple[str | None, int | None], _Series] = {}
    seen: set[tuple[str, ...]] = set()
    if not source.text.endswith("\n"):
        raise InputFileError("the last line has no end, so the file is cut off",
                             where=source.where, value=source.text.rpartition("\n")[2],
                             allowed="a line feed after each line")
    for number, line in enumerate(source.text.splitlines(), start=1):
        if not line.startswith(name) or line[len(name):].partition("{")[0].split(" ")[0] not in (
                "_bucket", "_sum", "_count"):
            continue
        where = f"{source.where}: line {number}"
        sample = _SAMPLE.fullmatch(line.strip())
        if sample is None:
            raise InputFileError("not a sample", where=where, value=line)
        labels = _labels(sample[2] or "", where)
        value = _value(sample[3], where)
        # The name and all labels identify a sample.
        identity = (sample[1], *sorted(f"{label}={text}" for label, text in labels.items()))
        if identity in seen:
            raise _again(where, line)
        seen.add(identity)
        item = series.setdefault(_key(labels, where), _Series())
        kind = sample[1].removeprefix(name)
        item.kinds.add(kind)
        if kind == "_bucket":
            edge = _value(labels.pop("le", ""), where, infinite=True)
            item.counts[edge] = item.counts.get(edge, 0.0) + value
        elif kind == "_sum":
            item.sum += value
        else:
            item.total += value
            for label, text in labels.items():
                item.others.setdefault(label, set()).add(text)
    return series


def _again(where: str, line: str) -> InputFileError:
    return InputFileError("appears twice", where=where, value=line,
                          allowed="each sample once: a file of one scrape")


def _labels(text: str, where: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    place = 0
    while place < len(text):
        label = _LABEL.match(text, place)
        if label is None:
            raise InputFileError("not labels", where=where, value=text, allowed='name="value", …')
        labels[label[1]] = label[2]
        place = label.end()
    return labels


def _value(text: str, where: str, *, infinite: bool = False) -> float:
    value = number_or_nan(text)
    if not (value >= 0 and (infinite or value < math.inf)):
        raise InputFileError("not a count or a bucket's end", where=where, value=text,
                             allowed="a number >= 0")
    return value


def _key(labels: dict[str, str], where: str) -> tuple[str | None, int | None]:
    """Remove the labels of model and batch size; return their values."""
    model = next((labels.pop(name) for name in _MODEL if name in labels), None)
    batch = next((labels.pop(name) for name in _BATCH if name in labels), None)
    if batch is not None and not (batch.isascii() and batch.isdigit() and int(batch[:9]) > 0):
        raise InputFileError("not a batch size", where=where, value=batch,
                             allowed="a whole number >= 1")
    return model, None if batch is None else int(batch[:9])


def _run(
    where: str, key: tuple[str | None, int | None], series: _Series, factor: float,
    more: list[str],
) -> MeasuredRun:
    """Return a run with mean and percentiles interpolated in the buckets of a histogram."""
    edges = sorted(series.counts)
    counts = np.array([series.counts[edge] for edge in edges])
    if not edges or edges[-1] != math.inf or counts[-1] != series.total:
        raise InputFileError("buckets and count do not agree (+Inf)", where=where,
                             value=counts[-1].item() if edges else None,
                             allowed=f"{series.total:g}")
    if (np.diff(counts) < 0).any():
        raise InputFileError("counts of the buckets fall", where=where, value=counts.tolist(),
                             allowed="cumulative counts")
    lower = np.array([0.0, *edges[:-1]])
    inside = np.diff(counts, prepend=0.0)
    mean = series.sum / series.total
    upper = np.array(edges)
    most = math.inf if inside[-1] else float((inside[:-1] * upper[:-1]).sum() / series.total)
    least = float((inside * lower).sum() / series.total)
    if not least * (1 - _SLACK) <= mean <= most * (1 + _SLACK):
        raise InputFileError("the sum does not fit the buckets, so their units differ",
                             where=where, value=mean, allowed=f"a mean from {least:g} to {most:g}")
    statistics: dict[str, Any] = {"n": int(series.total), "mean_ms": mean * factor}
    notes = ["percentiles are those of a histogram, on the straight line between the ends of a "
             "bucket", *more]
    unknown = []
    # The bucket of each percentile, and the place in it by linear interpolation of the counts.
    for name, level in _LEVELS.items():
        place = int(np.searchsorted(counts, level * series.total))
        if edges[place] == math.inf:
            unknown.append(name.removesuffix("_ms"))
            continue
        low, high = edges[place - 1] if place else 0.0, edges[place]
        before = counts[place - 1] if place else 0.0
        share = (level * series.total - before) / (counts[place] - before)
        value = (low + share * (high - low)) * factor
        statistics[name] = value
        if name == "p95_ms":
            statistics["relative_error"] = max(high * factor - value, value - low * factor) / value
    if unknown:
        notes.append(f"beyond the last bucket, left out: {', '.join(unknown)}")
    merged = [f"{label} ({len(texts)})" for label, texts in series.others.items()
              if len(texts) > 1]
    if merged:
        notes.append(f"counts added up over {', '.join(merged)}")
    return MeasuredRun(statistics, None, key[1], key[0], tuple(notes))
