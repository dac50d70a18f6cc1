"""Importer of ``vllm-embedding``: the result file of ``vllm bench serve`` for embeddings.

``--save-result`` writes a JSON object; ``mean_e2el_ms``, ``median_e2el_ms``, ``std_e2el_ms`` and
``pNN_e2el_ms`` are the latencies of requests in **ms**; vLLM's option ``--metric-percentiles``
selects the percentiles. The batch size is ``total_input_sequences`` / ``completed`` in newer
files, and unknown in older ones.

Only runs with one request at a time are imported: ``max_concurrency`` 1, confirmed by Little's law
(throughput × latency). Runs that generate text are refused, because the time of an answer then
depends on its length. There is no accuracy.

Source: vllm-project/vllm, ``vllm/benchmarks/serve.py``.
"""

from __future__ import annotations

import re
from typing import Any

from ramsis.errors import InputFileError
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    Node,
    NotAProfileError,
    Source,
    in_flight_refused,
    percentiles_left_out,
)

_STATISTICS = {"mean_e2el_ms": "mean_ms", "std_e2el_ms": "std_ms", "median_e2el_ms": "p50_ms",
               "p50_e2el_ms": "p50_ms", "p90_e2el_ms": "p90_ms", "p95_e2el_ms": "p95_ms",
               "p99_e2el_ms": "p99_ms"}

_PERCENTILE = re.compile(r"(p\d+(?:\.\d+)?)_e2el_ms")


def recognises(source: Source) -> bool:
    """Return whether a file is a result of ``vllm bench serve`` (also of a run that generates)."""
    document = source.document() or source.first_record()
    return (isinstance(document, dict) and "request_throughput" in document
            and {"completed", "duration"} <= set(document)
            and not isinstance(document["request_throughput"], dict))


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the run of an embedding endpoint; refuse runs that generate text."""
    if source.document() is None:
        raise InputFileError(
            "several results in one file, as --append-result writes them, or one that is "
            "damaged", where=source.where, allowed="a file for each run")
    document = source.node()
    if document.get("total_output_tokens") or document.get("mean_ttft_ms"):
        raise NotAProfileError(
            "a run that generates text: how long an answer takes depends on its length",
            where=source.where, allowed="a run of an embedding endpoint")
    statistics: dict[str, Any] = {
        ours: round(value.positive() if ours != "std_ms" else value.number(), 6)
        for theirs, ours in _STATISTICS.items() if (value := document.get(theirs)) is not None
    }
    if "mean_ms" not in statistics:
        raise InputFileError("no latency of requests", where=f"{source.where}: mean_e2el_ms",
                             allowed="a run with --percentile-metrics e2el")
    statistics["n"] = int(document.item("completed").positive())
    _refuse_several(document, statistics["mean_ms"])
    model = document.get("model_id")
    return [MeasuredRun(statistics, None, _batch(document),
                        None if model is None else model.text(), _notes(document))]


def _refuse_several(document: Node, mean_ms: float) -> None:
    stated = document.get("max_concurrency")
    if stated is None or stated.value != 1:
        raise InputFileError(
            "several requests could be in flight, so that waiting is in the latencies",
            where=f"{document.where}: max_concurrency", value=stated and stated.value,
            allowed="a run with --max-concurrency 1")
    in_flight_refused(document.where, document.item("request_throughput").positive(), mean_ms)


def _batch(document: Node) -> int | None:
    """Return the inputs of each request, or None where the file does not state them."""
    inputs = document.get("total_input_sequences")
    if inputs is None:
        return None
    completed = document.item("completed").positive()
    size = inputs.positive() / completed
    if size != int(size):
        raise InputFileError("requests of different batch sizes", where=inputs.where,
                             value=inputs.value, allowed=f"a multiple of completed, {completed:g}")
    return int(size)


def _notes(document: Node) -> tuple[str, ...]:
    notes = ["latencies are as a client sees them, with the way to the server and back"]
    failed = document.get("failed")
    if failed is not None and failed.number() > 0:
        notes.append(f"failed requests, left out: {failed.number():g}")
    notes += percentiles_left_out(
        level[1] for name in document.value
        if name not in _STATISTICS and (level := _PERCENTILE.fullmatch(name)))
    return tuple(notes)
