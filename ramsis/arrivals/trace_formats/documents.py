"""Detection of JSON documents from monitoring systems, with jq commands that convert them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError

_TABLES = (
    (("MetricDataResults",), "CloudWatch's get-metric-data",
     """jq -r '["time","requests"], (.MetricDataResults[0] | [.Timestamps, .Values] """
     """| transpose | sort[]) | @csv'"""),
    (("Label", "Datapoints"), "CloudWatch's get-metric-statistics",
     """jq -r '["time","requests"], (.Datapoints | sort_by(.Timestamp)[] | [.Timestamp, .Sum]) """
     """| @csv'"""),
    (("aggregations",), "an aggregation of Elasticsearch",
     """jq -r '["time","requests"], (.aggregations[].buckets[] | [.key, .doc_count]) | @csv'"""),
    (("series", "status"), "a query of Datadog",
     """jq -r '["time","qps"], .series[0].pointlist[] | @csv'"""),
    (("items",), "pageviews of Wikimedia",
     """jq -r '["time","requests"], (.items[] | [(.timestamp | .[0:4] + "-" + .[4:6] + "-" """
     """+ .[6:8] + " " + .[8:10] + ":00:00"), .views]) | @csv'"""),
    (("results.series",), "an answer of InfluxDB",
     """jq -r '["time","qps"], .results[0].series[0].values[] | @csv'"""),
)
"""Paths of keys, what has them, and the command; counts are until the next time."""


def refuse_document(path: Path, record: Any) -> None:
    """Refuse a JSON document that is not a request, with the command that makes a trace of it.

    Parameters
    ----------
    record
        Parsed first line of the file, or the parsed file.
    """
    if isinstance(record, list) and record and isinstance(record[0], dict):
        raise InputFileError("a JSON list, not an object a line", where=str(path),
                             allowed=f"jq -c '.[]' {path.name} > trace.jsonl")
    if not isinstance(record, dict):
        return
    if {"status", "data"} <= set(record):
        raise InputFileError(
            "an answer of Prometheus, not a request a line", where=str(path),
            allowed="lines of time and load, as by jq -r '.data.result[0].values[] | @tsv'")
    for keys, what, command in _TABLES:
        if all(_has(record, key.split(".")) for key in keys):
            raise InputFileError(f"{what}, not a request a line", where=str(path),
                                 allowed=f"a table of loads: {command} {path.name} > load.csv")


def _has(item: Any, path: list[str]) -> bool:
    """Return whether an object has a path of keys; lists are followed by their first entry."""
    if isinstance(item, list) and item:
        item = item[0]
    if not path:
        return True
    return isinstance(item, dict) and path[0] in item and _has(item[path[0]], path[1:])
