"""Layouts of access logs, logs of model servers and results of load tests.

A layout states how its file is recognised (the columns of a table, the keys of JSON, or the
pattern of a line) and the column of each field. Layouts are entries of :data:`KINDS`. Summaries,
which hold no requests, are in :data:`SUMMARIES` with advice on what to write instead.

Fields are those of :data:`FIELDS` and :data:`DERIVED`.

Sources: the documentation of the programs. Programs differ in writing the start or the end of a
request: nginx, Caddy, k6, ghz and the load balancers of AWS write a line at its end,
Envoy, HAProxy, Apache, vegeta, JMeter and Google's load balancer the time of its start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ramsis.logs.sizes import size_names
from ramsis.numerals import heading_unit

# Fields of our logs, which name the columns of other programs, too.
FIELDS = ("arrival", "start", "finish", "deadline", "outcome", "model", "batch", "run_as",
          "worker", "correct", "size")
# Further fields of other programs, from which arrival, finish, outcome and model are derived.
DERIVED = ("duration", "status", "success", "error", "request", "method")

HEAD_CHARACTERS = 64 * 1024  # of a file, by which it is recognised
_HEAD_RECORDS = 50  # JSON objects of the head whose keys are read
_DEEPEST = 8  # levels of nested JSON objects


@dataclass(frozen=True)
class LogKind:
    """How to recognise a program's log, and which of its columns have which meaning."""

    title: str  # the program and its format, for messages
    columns: Mapping[str, str]  # column of each field
    # unit of a field's numbers, where the column's name does not state it
    units: Mapping[str, str] = field(default_factory=dict)
    known_by: tuple[str, ...] = ()  # columns or keys that only this layout has together
    # pattern of a line that is a request, with a group for each column
    line: re.Pattern[str] | None = None
    # columns of a CSV file that has no header line; ``line`` then recognises its first line
    header: tuple[str, ...] = ()
    # values that a row must have in a column to be a request
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # beginning of a column in rows that are no request
    without: Mapping[str, str] = field(default_factory=dict)
    under: str = ""  # key of the list of requests in a JSON object
    mixed: bool = False  # whether lines of other kinds occur between those of requests
    lacks: str = ""  # missing contents for an audit, and how to write them; empty where complete

    @property
    def has_arrivals(self) -> bool:
        """Whether it states arrivals, not only the start of model runs."""
        return "arrival" in self.columns or {"finish", "duration"} <= set(self.columns)


@dataclass(frozen=True)
class Summary:
    """Output of a program that summarises many requests, without single ones."""

    # title, advice: kind of output, and what to use instead; ``{0}`` stands for the file
    title: str
    advice: str
    known_by: tuple[str, ...] = ()  # columns or keys
    text: re.Pattern[str] | None = None  # of its beginning
    is_load: bool = False  # whether it is a load over time, which a trace may be


_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
# The end is possessive, so that no number in a user agent is read as a duration.
_COMBINED = (
    r'\S+ \S+ \S+ \[(?P<time_local>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] '
    rf'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{{3}}|-) (?:\d++|-)(?: {_QUOTED} {_QUOTED})?+')
_OF_COMBINED = {"status": "status", "request": "request"}
_TIMED = "nginx's log_format with $request_time behind it, Apache's LogFormat or gunicorn's " \
    "--access-logformat with %D or %(D)s behind it"
_OF_JTL = {"arrival": "timeStamp", "duration": "elapsed", "status": "responseCode",
           "success": "success"}
_TRANSACTION = {"responseMessage": "Number of samples in transaction"}


def _line(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _plain(*names: str) -> dict[str, str]:
    """Return columns that have the names of the fields they hold."""
    return {name: name for name in names}


# In the order in which they are tried.
KINDS: tuple[LogKind, ...] = (
    # Load tests.
    LogKind("k6's CSV", {"finish": "timestamp", "duration": "metric_value", **_plain(
        "status", "method")}, {"duration": "ms"},
        known_by=("metric_name", "timestamp", "metric_value"),
        rows={"metric_name": ("http_req_duration",)}),
    LogKind("k6's JSON", {"finish": "time", "duration": "value", **_plain("status", "method")},
            {"duration": "ms"}, known_by=("metric", "type", "time", "value"),
            rows={"metric": ("http_req_duration",), "type": ("Point",)}),
    LogKind("vegeta's JSON", {"arrival": "timestamp", "duration": "latency", "status": "code",
                              **_plain("error", "method"), "request": "url"},
            {"duration": "ns"}, known_by=("attack", "seq", "code", "timestamp", "latency")),
    LogKind("vegeta's CSV", {"arrival": "timestamp", "duration": "latency", "status": "code",
                             **_plain("error", "method"), "request": "url"},
            {"arrival": "ns", "duration": "ns"},
            line=_line(r"\d{19},\d+,\d+,\d+,\d+,.*"),
            header=("timestamp", "code", "latency", "bytes_out", "bytes_in", "error", "body",
                    "attack", "seq", "method", "url", "headers")),
    LogKind("JMeter's CSV", _OF_JTL, {"arrival": "ms", "duration": "ms"},
            known_by=("timeStamp", "elapsed", "label"), without=_TRANSACTION),
    LogKind("JMeter's CSV without a header", _OF_JTL, {"arrival": "ms", "duration": "ms"},
            without=_TRANSACTION, line=_line(r"\d{13},\d+,(?:[^,]*,){5}(?:true|false),.*"),
            header=("timeStamp", "elapsed", "label", "responseCode", "responseMessage",
                    "threadName", "dataType", "success")),
    LogKind("JMeter's XML", {"arrival": "ts", "duration": "t", "status": "rc", "success": "s"},
            {"arrival": "ms", "duration": "ms"}, known_by=("<testResults", "ts", "t"),
            without={"rm": _TRANSACTION["responseMessage"]}),
    LogKind("hey's CSV", {"arrival": "offset", "duration": "response-time",
                          "status": "status-code"}, {"arrival": "s", "duration": "s"},
            known_by=("response-time", "DNS+dialup", "status-code", "offset")),
    LogKind("oha's CSV", {"arrival": "request-start", "duration": "request-duration",
                          "status": "status"}, {"arrival": "s", "duration": "s"},
            known_by=("request-start", "DNS+dialup", "request-duration")),
    LogKind("ab's -g table", {"arrival": "seconds", "duration": "ttime"},
            {"arrival": "s", "duration": "ms"},
            known_by=("starttime", "seconds", "ttime", "wait")),
    LogKind("ghz's JSON", {"finish": "timestamp", "duration": "latency", **_plain(
        "status", "error")}, {"duration": "ns"},
        known_by=("fastest", "slowest", "rps", "details"), under="details"),
    LogKind("Gatling's simulation.log", _plain("arrival", "finish", "success"),
            {"arrival": "ms", "finish": "ms"}, mixed=True,
            line=_line(r"REQUEST\t(?:[^\t]*\t)*?(?P<arrival>\d{13})\t(?P<finish>\d{13})\t"
                       r"(?P<success>OK|KO)(?:\t.*)?")),
    # Proxies and load balancers.
    LogKind("Envoy's access log", {"arrival": "start_time", "duration": "duration", **_plain(
        "status", "request"), "worker": "upstream_host"}, {"duration": "ms"}, line=_line(
        r'\[(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z)\] "(?P<request>[^"]*)" (?P<status>\d+) \S+ '
        r'(?:\S+ \S+ "[^"]*" )?\d+ \d+ (?P<duration>\d+|-) \S+ "[^"]*" "[^"]*" "[^"]*" "[^"]*" '
        r'"(?P<upstream_host>[^"]*)".*')),
    LogKind("nginx's access log", {"finish": "time_local", "duration": "request_time",
                                   **_OF_COMBINED}, {"duration": "s"}, line=_line(
        _COMBINED + r'(?:.*?[\s"=])(?P<request_time>\d+\.\d{3,6})(?=[\s",;]|$).*')),
    LogKind("Apache's access log", {"arrival": "time_local", "duration": "D", **_OF_COMBINED},
            {"duration": "us"}, line=_line(
        _COMBINED + r'(?:.*[\s"=/*])(?P<D>\d+)(?:us)?[*"]*\s*')),
    LogKind("an access log without the time taken, whose times count as arrivals",
            {"arrival": "time_local", **_OF_COMBINED}, line=_line(_COMBINED + r".*"),
            lacks=f"the time that each answer took: {_TIMED}"),
    LogKind("HAProxy's access log", {"arrival": "accept_date", "duration": "Tt", **_plain(
        "status", "request"), "worker": "server"}, {"duration": "ms"}, line=_line(
        r'.*haproxy\[\d+\]: \S+ \[(?P<accept_date>\d\d/\w{3}/\d{4}:[\d:.]+)\] \S+ '
        r'[^/\s]+/(?P<server>\S+) (?:-?\d+/){4}\+?(?P<Tt>\d+) (?P<status>-?\d+) '
        r'.*"(?P<request>[^"]*)"')),
    LogKind("AWS's log of an application load balancer", {
        "arrival": "request_creation_time", "finish": "time", "status": "elb_status_code",
        "request": "request", "worker": "target"}, line=_line(
        rf'(?:https?|h2|grpcs?|wss?) (?P<time>{_ISO}) \S+ \S+ (?P<target>\S+) (?:-?[\d.]+ ){{3}}'
        rf'(?P<elb_status_code>\d{{3}}|-) \S+ \d+ \d+ "(?P<request>(?:[^"\\]|\\.)*)" {_QUOTED} '
        rf'\S+ \S+ \S+ {_QUOTED} {_QUOTED} {_QUOTED} \S+ (?P<request_creation_time>{_ISO}).*')),
    LogKind("AWS's log of a classic load balancer", {
        "arrival": "time", "duration": "backend_processing_time", "status": "elb_status_code",
        "request": "request", "worker": "backend"}, {"duration": "s"}, line=_line(
        rf'(?P<time>{_ISO}) \S+ \S+:\d+ (?P<backend>\S+) -?[\d.]+ '
        r'(?P<backend_processing_time>-?[\d.]+) -?[\d.]+ (?P<elb_status_code>\d{3}|-) \S+ \d+ '
        r'\d+ "(?P<request>[^"]*)".*')),
    LogKind("Google Cloud's request log", {
        "arrival": "timestamp", "duration": "latency", "status": "status",
        "method": "requestMethod", "request": "requestUrl"}, {"duration": "s"},
        known_by=("requestMethod", "requestUrl", "latency", "timestamp")),
    LogKind("Knative's request log", {
        "finish": "time", "duration": "latency", "status": "status", "method": "requestMethod",
        "request": "requestUrl"}, {"duration": "s"},
        known_by=("requestMethod", "requestUrl", "latency", "time")),
    LogKind("Caddy's access log", {"finish": "ts", "request": "uri", **_plain(
        "duration", "status", "method")}, {"finish": "s", "duration": "s"},
        known_by=("logger", "ts", "duration", "uri"), rows={"msg": ("handled request",)}),
    LogKind("Traefik's access log", {
        "arrival": "StartUTC", "duration": "Duration", "status": "DownstreamStatus",
        "method": "RequestMethod", "request": "RequestPath", "worker": "ServiceURL"},
        {"duration": "ns"}, known_by=("StartUTC", "Duration", "DownstreamStatus")),
    LogKind("Envoy's JSON access log", {
        "arrival": "start_time", "status": "response_code", "request": "path",
        "worker": "upstream_host", **_plain("duration", "method")}, {"duration": "ms"},
        known_by=("start_time", "duration", "response_code")),
    LogKind("Kong's log", {"arrival": "started_at", "duration": "latencies.request",
                           "request": "uri", **_plain("status", "method")},
            {"arrival": "ms", "duration": "ms"},
            known_by=("started_at", "latencies.request", "status")),
    LogKind("Azure Front Door's access log", {
        "finish": "time", "duration": "timeTaken", "status": "httpStatusCode",
        "method": "httpMethod", "request": "requestUri"}, {"duration": "s"},
        known_by=("time", "timeTaken", "httpStatusCode")),
    LogKind("Application Insights' table of requests", {
        "arrival": "timestamp [UTC]", "status": "resultCode", **_plain("duration", "success")},
        {"duration": "ms"}, known_by=("timestamp [UTC]", "resultCode", "duration")),
    # Model servers.
    LogKind("text-embeddings-inference's log", {
        "finish": "time", "duration": "total_time"}, mixed=True, line=_line(
        rf'(?P<time>{_ISO})\s+[A-Z]+ [^{{]*\{{total_time="(?P<total_time>[^"]+)".*\}}.*')),
    LogKind("BentoML's access log", {"finish": "time", "request": "path", **_plain(
        "duration", "method", "status")}, mixed=True, line=_line(
        rf"(?P<time>{_ISO}) \[\w+\] \[[^\]]*api_server[^\]]*\] \S+ \(scheme=\w+,"
        r"method=(?P<method>\w+),path=(?P<path>[^,]*),[^)]*\) \(status=(?P<status>\d+)[^)]*\) "
        r"(?P<duration>[\d.]+[a-zµ]+)\b.*")),
    LogKind("TorchServe's metrics log", {
        "finish": "time", "model": "ModelName"}, mixed=True, line=_line(
        rf"(?P<time>{_ISO}) - HandlerTime\.(?:Milliseconds|ms):.*\|#ModelName:"
        r"(?P<ModelName>[^,|]+).*"),
        lacks="how long requests waited: TorchServe's access_log.log has response times, and "
              "`ramsis profile import {0} --out PROFILE.json` takes these times of the handler"),
    LogKind("TorchServe's access log", {"finish": "time", "duration": "ms", **_plain(
        "request", "status")}, {"duration": "ms"}, mixed=True, line=_line(
        rf'(?P<time>{_ISO}) \[\w+ *\] \S+ ACCESS_LOG - \S+ "(?P<request>[^"]*)" '
        r"(?P<status>\d{3}) (?P<ms>\d+)")),
    LogKind("Ray Serve's log of its proxy", {"finish": "time", **_plain(
        "duration", "method", "status")}, mixed=True, line=_line(
        rf"(?:\([^)]*\) )?[A-Z]+ (?P<time>{_ISO}) .*--? (?P<method>GET|POST|PUT) (?:\S+ )?"
        r"(?P<status>\w+) (?P<duration>[\d.]+ms)")),
    LogKind("Ray Serve's log of a replica", {"finish": "time", **_plain("duration", "status")},
            mixed=True, line=_line(
        rf"(?:\([^)]*\) )?[A-Z]+ (?P<time>{_ISO}) .*--? (?:CALL \S+|__CALL__) (?P<status>\w+) "
        r"(?P<duration>[\d.]+ms)")),
)

_PREAMBLE = re.compile(r"(?:(?:\s*#[^\n]*|sep=[,;\t]\s*|\s*)\n)++", re.IGNORECASE)
_REQUESTS = "a file with a line for each request"
SUMMARIES: tuple[Summary, ...] = (
    Summary("locust's statistics over time, loads and no requests",
            "--trace {0} takes it as a load", ("Timestamp", "User Count", "Requests/s"),
            is_load=True),
    Summary("locust's summary of response times, no requests",
            f"{_REQUESTS}; `locust --csv NAME --csv-full-history` writes the load over time, "
            "NAME_stats_history.csv, which --trace takes",
            ("Request Count", "Median Response Time", "50%")),
    Summary("JMeter's aggregate report, no requests",
            f"{_REQUESTS}: the .jtl file of `jmeter -n -t PLAN -l FILE.jtl`",
            ("Label", "# Samples", "Average")),
    Summary("ab's percentiles, no requests", f"{_REQUESTS}: `ab -g FILE.tsv`",
            ("Percentage served", "Time in ms")),
    Summary("oha's summary, no requests",
            f"{_REQUESTS}: `oha --output-format csv` writes one",
            ("summary", "latencyPercentiles")),
    Summary("vegeta's report, no requests",
            f"{_REQUESTS}: `vegeta encode -to json RESULTS` writes one",
            ("latencies", "throughput", "status_codes")),
    Summary("k6's summary, no requests", f"{_REQUESTS}: `k6 run --out csv=FILE` writes one",
            ("root_group", "metrics")),
    Summary("Artillery's report, no requests",
            f"{_REQUESTS}, as k6, vegeta or JMeter write it", ("aggregate", "intermediate")),
    Summary("Fortio's report, no requests",
            f"{_REQUESTS}, as k6, vegeta or JMeter write it", ("RunType", "DurationHistogram")),
    Summary("bombardier's report, no requests",
            f"{_REQUESTS}, as k6, vegeta or JMeter write it",
            ("spec.numberOfConnections", "result.latency.mean")),
    Summary("autocannon's report, no requests",
            f"{_REQUESTS}, as k6, vegeta or JMeter write it",
            ("latency", "requests", "throughput", "connections")),
    Summary("wrk's summary, no requests", f"{_REQUESTS}, as k6, vegeta or `hey -o csv` write it",
            text=_line(r"Running .+ test @ ")),
    Summary("ab's summary, no requests", f"{_REQUESTS}: `ab -g FILE.tsv` writes one",
            text=_line(r"This is ApacheBench")),
    Summary("hey's summary, no requests", f"{_REQUESTS}: `hey -o csv` writes one",
            text=_line(r"\s*Summary:\s+Total:")),
    Summary("vegeta's report, no requests",
            f"{_REQUESTS}: `vegeta encode -to json RESULTS` writes one",
            text=_line(r"Requests\s+\[total, rate")),
    Summary("uvicorn's access log, without times and durations",
            f"a log with both: {_TIMED}",
            text=_line(r'INFO:\s+\S+ - "[A-Z]+ \S+ HTTP/[\d.]+" \d{3}')),
)


def preamble_of(text: str) -> str:
    """Return the lines before the header of a table: comments, and the separator for Excel.

    >>> preamble_of("# made today\\nsep=;\\ntime;size\\n")
    '# made today\\nsep=;\\n'
    """
    match = _PREAMBLE.match(text)
    return "" if match is None else match[0]


def kind_of(head: str) -> LogKind | Summary | None:
    """Recognise the layout of a file by its beginning; None where it is unknown."""
    head = head[:HEAD_CHARACTERS].removeprefix("\ufeff")
    head = head.removeprefix(preamble_of(head))
    columns = head_columns(head)
    kinds: tuple[Summary | LogKind, ...] = (*SUMMARIES, *KINDS)
    for layout in kinds:
        if layout.known_by and set(layout.known_by) <= columns:
            return layout
    lines = [line for line in head.splitlines() if line.strip()]
    begin = head.lstrip("\n\r")
    for summary in SUMMARIES:
        if summary.text is not None and summary.text.match(begin):
            return summary
    # The last line may be cut off by the end of the head.
    tried = lines[:-1] if len(head) == HEAD_CHARACTERS and len(lines) > 1 else lines
    for kind in KINDS:
        if kind.line is not None and any(
                map(kind.line.fullmatch, tried if kind.mixed else tried[:1])):
            return kind
    return None


def head_columns(head: str) -> set[str]:
    """Return the columns of a table, or the keys of the first records of JSON."""
    begin = head.lstrip()
    if begin.startswith(("{", "[")):
        return _keys(begin)
    if begin.startswith("<"):
        match = re.search(r"<testResults\b[^>]*>\s*<(?:httpS|s)ample\b([^>]*)>", begin[:4096])
        return {"<testResults", *re.findall(r"(\w+)=", match[1])} if match else set()
    first = next(iter(begin.splitlines()), "")
    mark = max(",;\t", key=first.count)
    return {name.strip(' "') for name in first.split(mark)}


def _keys(begin: str) -> set[str]:
    """Return the keys of the first records: of lines, of an array's entries, or of one object."""
    records: list[Any] = []
    decoder = json.JSONDecoder()
    at = 1 if begin.startswith("[") else 0
    while len(records) < _HEAD_RECORDS:
        while at < len(begin) and begin[at] in " \t\r\n,":
            at += 1
        try:
            record, at = decoder.raw_decode(begin, at)
        except (ValueError, RecursionError):
            break
        records.append(record)
    if records:
        return {name for record in records if isinstance(record, dict)
                for name, _ in flattened(record)} | {
            name for record in records if isinstance(record, dict) for name in record}
    return set(re.findall(r'"([\w.]+)"\s*:', begin))  # one object that is longer than the head


def flattened(record: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the values of a JSON object by key.

    A nested value also has its last key alone, unless an outer value has that key:
    ``latencies.request`` and ``request``.
    """
    values: dict[str, Any] = {}
    short: dict[str, Any] = {}
    level: list[tuple[str, Mapping[str, Any]]] = [("", record)]
    for _ in range(_DEEPEST):
        inner: list[tuple[str, Mapping[str, Any]]] = []
        for before, item in level:
            for key, value in item.items():
                if isinstance(value, dict):
                    inner.append((f"{before}{key}.", value))
                elif not isinstance(value, list):
                    values[before + key] = value
                    short.setdefault(key, value)
        level = inner
    return {**short, **values}.items()


_NAMES: dict[str, tuple[str, ...]] = {
    "arrival": ("arrival", "arrived", "arrival_time", "arrived_at", "received", "received_at",
                "start_time", "startutc", "request_start", "enqueued_at", "request_received",
                "created_at", "submitted_at"),
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
    "success": ("success", "succeeded"),
    "error": ("error", "error_message", "exception"),
    "deadline": ("deadline", "slo", "slo_ms"),
    "request": ("request", "path", "uri", "request_uri", "requestpath"),
    "method": ("method", "request_method", "requestmethod"),
}
# Units of nginx's variables.
UNITS_OF_NAMES = {"request_time": "s", "upstream_response_time": "s", "msec": "s"}


def aliases(columns: list[str], assigned: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of fields, recognised by common names.

    ``assigned`` are fields that have columns already. A column called ``time`` is the finish
    where there is a duration, else the arrival.
    """
    stems = {column: re.sub(r"[\s-]+", "_", heading_unit(column)[0]) for column in columns}
    columns_of: dict[str, str] = {}
    for name, names in _NAMES.items():
        if name in assigned:
            continue
        fitting = [column for column in columns
                   if column not in assigned.values() and stems[column] in names]
        if fitting:
            columns_of[name] = min(fitting, key=lambda column: names.index(stems[column]))
    if "size" not in assigned:
        free = [column for column in columns
                if column not in {*assigned.values(), *columns_of.values()}]
        columns_of.update(("size", column) for column in size_names(free)[:1])
    time = columns_of.pop("time", None)
    if time is not None:
        fields = {*assigned, *columns_of}
        if "duration" in fields and not {"arrival", "finish"} & fields:
            columns_of["finish"] = time
        elif "arrival" not in fields and not {"duration", "finish"} <= fields:
            columns_of["arrival"] = time
    return columns_of
