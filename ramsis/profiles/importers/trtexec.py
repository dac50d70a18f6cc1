"""Importer of ``trtexec``: the times that TensorRT's ``trtexec --exportTimes=FILE`` writes.

A JSON list with an entry for each inference; ``latencyMs`` is the time to copy the input to the
GPU, to compute, and to copy the output back. It must be the sum of the three parts beside it, so
that a wrong unit is found. Model and batch size are not in the file.

By default trtexec copies the next input while it computes; the parts are timed separately, so
their sum includes no waiting. Percentiles are over back-to-back inferences. There is no accuracy.
Old versions, recognised by ``endToEndMs``, also write the inferences of the warm-up. Their number
is not stated (``--warmUp=0`` makes none), so they are kept, with a note.

Source: NVIDIA/TensorRT, ``samples/common/sampleReporting.cpp`` (of TensorRT 7 to 10).
"""

from __future__ import annotations

import math

import numpy as np

from ramsis.errors import InputFileError
from ramsis.profiles.importers.runs import Given, MeasuredRun, Node, NotAProfileError, Source

_PARTS = (("h2dMs", "computeMs", "d2hMs"), ("inMs", "computeMs", "outMs"))
"""The parts of the latency: today, and up to TensorRT 8.0."""


def recognises(source: Source) -> bool:
    """Return whether a file was written by trtexec (also one of times by layer)."""
    document = source.document()
    return (isinstance(document, list) and bool(document)
            and all(isinstance(entry, dict) for entry in document[:3])
            and ("latencyMs" in document[0] or _by_layer(document)))


def _by_layer(document: list[object]) -> bool:
    return len(document) > 1 and isinstance(document[1], dict) and "averageMs" in document[1]


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the run of a file of inferences; refuse times by layer."""
    document = source.node()
    if isinstance(document.value, list) and _by_layer(document.value):
        raise NotAProfileError("times by layer, as --exportProfile writes them",
                               where=source.where, allowed="a file of trtexec --exportTimes")
    samples = np.array([_latency_ms(entry) for entry in document.entries()])
    if not len(samples):
        raise InputFileError("no inferences", where=source.where)
    notes = ["latency of trtexec: input to the GPU, computation, output back; nothing of a server"]
    if any(isinstance(entry, dict) and "endToEndMs" in entry for entry in document.value):
        notes.append("this version of trtexec may have written the inferences of the warm-up, too")
    return [MeasuredRun({}, samples, notes=tuple(notes))]


def _latency_ms(entry: Node) -> float:
    latency = entry.item("latencyMs")
    value = latency.positive()
    for names in _PARTS:
        parts = [entry.get(name) for name in names]
        if all(part is not None for part in parts):
            total = sum(part.number() for part in parts if part is not None)
            if not math.isclose(value, total, rel_tol=0.01, abs_tol=0.001):
                raise InputFileError(f"is not the sum of {', '.join(names)}, so its unit is wrong",
                                     where=latency.where, value=value,
                                     allowed=f"about {total:.6g}")
    return value
