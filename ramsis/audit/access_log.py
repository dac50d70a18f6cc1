"""Access logs of web servers and JSON lines as tables of requests, and what their columns are.

Known are nginx and Apache in the combined format with the time taken behind it, Envoy in its
default format and in Istio's, HAProxy's log of HTTP, and JSON lines under the names that these,
Caddy, Traefik and others use. nginx and Caddy write a line when an answer is there, so that a
request came its duration before; the others write when it came. Inference is asked for by POST:
where a log has such requests, others are left out.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError

if TYPE_CHECKING:
    import pandas as pd

_NGINX = re.compile(
    r'(?P<client>\S+) \S+ \S+ \[(?P<time_local>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] '
    r'"(?P<request>[^"]*)" (?P<status>\d{3}) (?:\d+|-)(?: "[^"]*" "(?:[^"\\]|\\.)*")?(?P<rest>.*)')
_ENVOY = re.compile(
    r'\[(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z)\] "(?P<request>[^"]*)" (?P<status>\d+) \S+ '
    r'(?:\S+ \S+ "[^"]*" )?\d+ \d+ (?P<duration_ms>\d+|-) \S+ '
    r'"[^"]*" "[^"]*" "[^"]*" "[^"]*" "(?P<worker>[^"]*)".*')
_HAPROXY = re.compile(
    r'.*haproxy\[\d+\]: \S+ \[(?P<start_time>\d\d/\w{3}/\d{4}:[\d:.]+)\] \S+ '
    r'[^/\s]+/(?P<worker>\S+) (?:-?\d+/){4}\+?(?P<duration_ms>\d+) (?P<status>-?\d+) '
    r'.*"(?P<request>[^"]*)"')
_TOOK = re.compile(r'(?:^|[\s"=])(\d+\.\d{3})(?=[\s",]|$)')
_MODEL = re.compile(r"/models/([^/:?\s]+)")
_MONTHS = {name: f"{i:02}" for i, name in enumerate(
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], start=1)}

_NAMES: dict[str, tuple[str, ...]] = {
    "arrival": ("arrival", "arrived", "arrival_time", "arrived_at", "received", "received_at",
                "start_time", "startutc", "request_start", "enqueued_at", "request_received"),
    "finish": ("finish", "finished", "finished_at", "finish_time", "end", "end_time", "ended_at",
               "completed", "completed_at", "done", "done_at"),
    "duration": ("duration", "request_time", "latency", "took", "elapsed", "response_time",
                 "total_time", "upstream_response_time"),
    "time": ("time", "timestamp", "ts", "@timestamp", "time_local", "time_iso8601", "msec",
             "datetime", "date"),
    "model": ("model", "model_name"),
    "worker": ("worker", "worker_id", "worker_name", "instance", "replica", "upstream_host",
               "upstream_addr", "pod", "gpu", "serviceurl"),
    "batch": ("batch", "batch_size"),
    "status": ("status", "status_code", "response_code", "code", "downstreamstatus"),
    "deadline": ("deadline", "slo", "slo_ms"),
    "request": ("request", "path", "uri", "request_uri", "requestpath"),
    "method": ("method", "request_method", "requestmethod"),
}
_OF_NAMES = {"request_time": "s", "upstream_response_time": "s", "msec": "s"}
"""Units of nginx's variables."""
EPOCHS = ((1e9, "s"), (1e12, "ms"), (1e15, "us"), (1e18, "ns"))
"""Least number that is a time since 1970 (after 2001) in each unit."""
_SUFFIX = re.compile(r"_(ns|us|ms|s|min|h)$")


def access_frame(text: str, where: str) -> pd.DataFrame | None:
    """The lines of an access log as columns of texts; None where the first line is of none."""
    import pandas as pd

    first = next((line for line in text.splitlines() if line.strip()), "")
    form = next((one for one in (_ENVOY, _NGINX, _HAPROXY) if one.fullmatch(first)), None)
    if form is None:
        return None
    rows: list[dict[str, str]] = []
    numbers: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        matched = form.fullmatch(line)
        if matched is None:
            raise InputFileError("not a line of this access log", where=f"{where}: line {number}",
                                 value=line,
                                 allowed="lines of one format, as the first (remove this line)")
        row = matched.groupdict()
        if form is _NGINX:
            took = _TOOK.search(row.pop("rest"))
            if took is None:
                raise InputFileError(
                    "no time taken behind the line", where=f"{where}: line {number}", value=line,
                    allowed="nginx's log_format combined with $request_time behind it")
            row["request_time"] = took[1]
            row["time_local"] = _iso(row["time_local"])
        elif form is _HAPROXY:
            row["start_time"] = _iso(row["start_time"])
        rows.append(row)
        numbers.append(number)
    return pd.DataFrame(rows, index=np.array(numbers), dtype=str)


def _iso(stamp: str) -> str:
    """``24/Nov/2026:16:44:27 +0000`` as ISO 8601."""
    day, month, rest = stamp.split("/", 2)
    year, _, clock = rest.partition(":")
    return f"{year}-{_MONTHS.get(month, '00')}-{day}T{clock.replace(' ', '')}"


def json_frame(text: str, where: str) -> pd.DataFrame | None:
    """JSON lines as columns of texts; None where the first line is no object."""
    import pandas as pd

    if not text.lstrip().startswith("{"):
        return None
    rows, numbers = [], []
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            if not isinstance(item, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise InputFileError(f"not a JSON object ({error})", where=f"{where}: line {number}",
                                 value=line,
                                 allowed="JSON lines, an object for each request") from error
        rows.append({name: _text(part) for key, value in item.items()
                     for name, part in _parts(key, value)})
        numbers.append(number)
    return pd.DataFrame(rows, index=np.array(numbers), dtype=object).fillna("")


def _parts(key: str, value: Any) -> list[tuple[str, Any]]:
    return [(key, value)] if not isinstance(value, dict) else [
        (name, part) for name, part in value.items() if not isinstance(part, dict | list)]


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def aliases(columns: list[str], own: Mapping[str, str]) -> dict[str, str]:
    """Which column holds which field, beside those under our own names and those named.

    Parameters
    ----------
    columns : list of str
    own : mapping of str to str
        Fields that are known already, with their columns.

    Returns
    -------
    dict
        Columns by field; ``time`` is that of the finish where there is a duration, else of the
        arrival.
    """
    found: dict[str, str] = {}
    for field, names in _NAMES.items():
        if field in own:
            continue
        fitting = [column for column in columns if column not in own.values()
                   and _SUFFIX.sub("", column.strip().lower()) in names]
        fitting.sort(key=lambda column: names.index(_SUFFIX.sub("", column.strip().lower())))
        if fitting:
            found[field] = fitting[0]
    time = found.pop("time", None)
    if time is not None:
        known = {*own, *found}
        if "duration" in known and not {"arrival", "finish"} & known:
            found["finish"] = time
        elif "arrival" not in known and not {"duration", "finish"} <= known:
            found["arrival"] = time
    return found


def unit_of(column: str, columns: list[str]) -> str | None:
    """The unit of a column of times that a server is known to use; None: not known."""
    if column in _OF_NAMES:
        return _OF_NAMES[column]
    beside = {"response_code": "ms", "logger": "s", "StartUTC": "ns"}  # Envoy, Caddy, Traefik
    return next((unit for name, unit in beside.items()
                 if column.lower() == "duration" and name in columns), None)


def outcome_of_status(status: Any) -> NDArray[np.object_]:
    """The outcome that a status of HTTP tells: empty for an answer, and for what is no request."""
    codes = status.str.strip()
    dropped = codes.isin(["408", "429", "499", "503", "504", "0"])
    failed = codes.str.match(r"5\d\d") & ~dropped
    refused = codes.str.match(r"4\d\d") & ~dropped
    return np.asarray(np.where(dropped, "dropped", np.where(failed, "failed", np.where(
        refused, "refused", ""))), dtype=object)


def requests_only(frame: pd.DataFrame, form: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The requests for inference among the lines of an access log, and what was left out."""
    notes: list[str] = []
    column = form.get("method", form.get("request"))
    if column is not None:
        posts = frame[column].str.strip().str.upper().str.startswith("POST")
        if posts.any() and not posts.all():
            notes.append(f"lines that are no POST, left out: {int((~posts).sum())}")
            frame = frame[posts]
    if "status" in form:
        refused = outcome_of_status(frame[form["status"]]) == "refused"
        if refused.any():
            notes.append("requests that were refused (status 4xx), left out: "
                         f"{int(refused.sum())}")
            frame = frame[~refused]
    return frame, notes


def models_of_paths(requests: Any) -> Any:
    """The models in the paths of requests, as ``/v2/models/NAME/infer``; empty without."""
    return requests.str.extract(_MODEL, expand=False).fillna("")
