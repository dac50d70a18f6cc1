"""Importer of ``torchserve``: the handler times in TorchServe's ``model_metrics.log``.

TorchServe logs ``HandlerTime.Milliseconds`` for each batch that a handler ran, with the ids of its
requests: their number is the batch size. Waiting is not in it. Other metrics of the log are passed
over, and so are a logger's words around each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np

from ramsis.errors import InputFileError
from ramsis.numerals import duration_ms
from ramsis.profiles.importers.runs import Given, MeasuredRun, NotAProfileError, Source

_METRIC = re.compile(r"\b\w+\.(?:Milliseconds|ms|Seconds|s)\s*:\s*[^|\s]+\|#")
_HANDLER = re.compile(r"\bHandlerTime\.(Milliseconds|ms|Seconds|s)\s*:\s*([^|\s]+)\|"
                      r"#ModelName:([^,|#]+)[^|]*\|#hostname:[^,]*(?:,requestID:(.*?))?,timestamp:")
_END = re.compile(r"timestamp:\d+\s*\Z")


def recognises(source: Source) -> bool:
    """Return whether a file is a log of TorchServe's model metrics."""
    lines = list(islice((line for line in source.text[:65_536].splitlines() if line.strip()), 20))
    return bool(lines) and sum(bool(_METRIC.search(line)) for line in lines) > len(lines) // 2


def read(source: Source, given: Given) -> Sequence[MeasuredRun]:
    """Read a run for each model and batch size, of the times of its batches."""
    samples: dict[tuple[str, int], list[float]] = {}
    seen: set[tuple[str, str]] = set()
    if not _END.search(source.text[-1000:]):
        raise InputFileError("the last line has no end, so the log is cut off", where=source.where,
                             value=source.text[-1000:].rstrip().rpartition("\n")[2],
                             allowed="lines that end in timestamp:SECONDS")
    for number, line in enumerate(source.text.splitlines(), start=1):
        match = _HANDLER.search(line)
        if match is None:
            continue
        unit, text, model, requests = match.groups()
        try:
            took_ms = duration_ms(f"{text} {unit}")
        except ValueError:
            raise InputFileError("not a time", where=f"{source.where}: line {number}",
                                 value=f"{text} {unit}", allowed="a number") from None
        if requests and (model, requests) in seen:
            raise InputFileError("appears twice", where=f"{source.where}: line {number}",
                                 value=requests, allowed="each batch once: a log that is whole")
        seen.add((model, requests or ""))
        batch = len(requests.split(",")) if requests else 1
        samples.setdefault((model.strip(), batch), []).append(took_ms)
    if not samples:
        raise NotAProfileError("metrics of TorchServe without HandlerTime", where=source.where,
                               allowed="model_metrics.log of a handler that reports its times")
    return [MeasuredRun({}, np.array(times), batch, model,
                        ("handler times of TorchServe, without waiting; the batch size is the "
                         "number of requests that a line names",))
            for (model, batch), times in samples.items()]
