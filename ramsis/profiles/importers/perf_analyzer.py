"""Importer of ``perf-analyzer``: ``profile_export.json`` of Triton's perf_analyzer.

For each experiment (a concurrency or a request rate) it holds the requests: ``timestamp`` when a
request was sent and ``response_timestamps`` when its responses came, in **ns**. The latency is up
to the last response. The experiment at concurrency 1 is used. Others are left out and counted,
because their latencies include waiting; so are requests that were never answered. The file names
neither model nor batch size. Latencies include the network, and there is no accuracy.

AIPerf's file of records has a similar name, which ends in ``.jsonl``; the two are distinguished by
their content.

Source: the schema and tests of perf_analyzer's exporter (triton-inference-server/perf_analyzer,
``profile_data_exporter``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError
from ramsis.profiles.importers.runs import Given, MeasuredRun, Node, Source

_SHORTEST_NS = 1000
"""Median latencies below this are no ns: no request takes less than a microsecond."""


def recognises(source: Source) -> bool:
    """Return whether a file was written by Perf Analyzer."""
    document = source.document()
    return isinstance(document, dict) and isinstance(document.get("experiments"), list)


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read perf_analyzer's run with one request at a time."""
    document = source.node()
    experiments = list(document.item("experiments").entries())
    alone = [entry for entry in experiments
             if entry.item("experiment", "mode").value == "concurrency"
             and entry.item("experiment", "value").number() == 1]
    if len(alone) != 1:
        raise InputFileError(
            "not one experiment at concurrency 1; at others, waiting is in the latency",
            where=f"{source.where}: experiments", value=", ".join(
                f"{entry.item('experiment', 'mode').value} "
                f"{entry.item('experiment', 'value').value}" for entry in experiments),
            allowed="a run with --concurrency-range 1")
    latency_ns, unanswered = _latencies(alone[0])
    notes = ["latencies are as a client sees them, with the way to the server and back"]
    if len(experiments) > 1:
        notes.append(f"experiments at other loads, left out: {len(experiments) - 1}")
    if unanswered:
        notes.append(f"requests without a response, left out: {unanswered}")
    return [MeasuredRun({}, latency_ns / 1e6, notes=tuple(notes))]


def _latencies(experiment: Node) -> tuple[NDArray[np.float64], int]:
    """Return the latencies in ns, and the number of requests without a response."""
    latencies: list[int] = []
    unanswered = 0
    for request in experiment.item("requests").entries():
        sent = request.item("timestamp").whole()
        answers = [entry.whole() for entry in request.item("response_timestamps").entries()]
        if not answers:
            unanswered += 1
            continue
        if answers[-1] <= sent:
            raise InputFileError("the last response is not after the request", where=request.where,
                                 value=answers[-1], allowed=f"more than {sent}")
        latencies.append(answers[-1] - sent)
    if not latencies:
        raise InputFileError("no request with a response", where=experiment.where,
                             value=unanswered, allowed="one or more")
    latency_ns = np.array(latencies, dtype=float)
    if np.median(latency_ns) < _SHORTEST_NS:
        raise InputFileError("latencies are below a microsecond, so the timestamps are not ns",
                             where=experiment.where, value=float(np.median(latency_ns)),
                             allowed="timestamps in ns")
    return latency_ns, unanswered
