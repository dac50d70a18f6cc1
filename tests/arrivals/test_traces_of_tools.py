"""Traces in the shape of tools: read rightly, or refused with a next step that works."""

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals.reading import ReadTrace, read_any_trace
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.errors import InputFileError
from ramsis.testing import check_reader

BEGIN = datetime(2026, 5, 6, 7, 0, tzinfo=UTC)
SINCE_MS = np.floor(np.cumsum(np.random.default_rng(1).exponential(40.0, 200)))
STAMPS = [BEGIN + timedelta(milliseconds=float(t)) for t in SINCE_MS]


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def ms(stamp: datetime) -> int:
    return round(1000.0 * stamp.timestamp())


def iso(stamp: datetime) -> str:
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond // 1000:03d}Z"


REQUESTS = {
    "JMeter's JTL": lines(
        "timeStamp,elapsed,label,responseCode,success,Latency", *(
            f"{ms(s)},{30 + i % 7},infer,200,true,{29 + i % 7}" for i, s in enumerate(STAMPS))),
    "Vegeta": lines(*(json.dumps({
        "attack": "", "seq": i, "code": 200, "timestamp": iso(s), "latency": 8_000_000})
        for i, s in enumerate(STAMPS))),
    "Envoy, JSON": lines(*(json.dumps({"start_time": iso(s), "response_code": 200, "duration": 30})
                           for s in STAMPS)),
    "nginx, JSON": lines(*(json.dumps({"msec": f"{s.timestamp():.3f}", "request_time": "0.030"})
                           for s in STAMPS)).replace('"msec": "', '"msec": ').replace(
                               '", "request_time"', ', "request_time"'),
    "Splunk, events": lines('"_time","_raw",host', *(
        f'"{iso(s)}","GET /{i}, 200",a' for i, s in enumerate(STAMPS))),
    "Google Cloud, JSON": lines(*(json.dumps({
        "timestamp": iso(s), "httpRequest": {"status": 200, "latency": "0.03s"}})
        for s in STAMPS)),
    "Apache's times": lines(*(f"{s:%d/%b/%Y:%H:%M:%S}.{s.microsecond // 1000:03d} +0000"
                              for s in STAMPS)),
    "text-embeddings-inference": lines(*(
        f'{iso(s)}  INFO embed{{total_time="726.1ms" queue_time="432µs"}}: Success'
        for s in STAMPS)),
    "Gatling": lines(*(f"REQUEST\t\tinfer\t{ms(s)}\t{ms(s) + 30}\tOK\t" for s in STAMPS)),
    "Azure multimodal": lines("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", *(
        f"{s:%Y-%m-%d %H:%M:%S.%f},1,20,10" for s in STAMPS)),
}
RATES = [12.5, 30.25, 21.75, 18.5, 25.0]
MINUTES = [BEGIN + timedelta(minutes=i) for i in range(len(RATES))]
LOADS = {
    "Splunk's timechart": lines("_time,count,_span", *(
        f"{iso(s)},{60 * rate:.0f},60" for s, rate in zip(MINUTES, RATES, strict=True))),
    "Datadog's graph": lines("timestamp,sum:requests.hits{*}.as_rate()", *(
        f"{ms(s)},{rate}" for s, rate in zip(MINUTES, RATES, strict=True))),
    "lines of minutes since 1970": lines(*(
        f"{ms(s) // 1000} {rate}" for s, rate in zip(MINUTES, RATES, strict=True))),
    "Loki's rate": lines('"Time","{app=""m""}"', *(
        f'"{s:%Y-%m-%d %H:%M:%S}","{rate} req/s"'
        for s, rate in zip(MINUTES, RATES, strict=True))),
}
REFUSED = {
    "a load balancer's log": lines(*(
        f'http {iso(s)} app/lb 192.0.2.1:1 10.0.0.1:80 0 0.03 0 200 "POST http://a HTTP/1.1"'
        for s in STAMPS)),
    "a log that begins with times": lines(*(
        f"{iso(s)} INFO request {i} done" for i, s in enumerate(STAMPS))),
    "a table of metrics": lines("timestamp,metric,value", *(
        f"{ms(s)},{name},1.5" for s in STAMPS for name in ("latency", "tokens"))),
    "a table without a header": lines(*(f"a{i};{iso(s)};200" for i, s in enumerate(STAMPS))),
}


def read(folder: Path, text: str) -> ReadTrace:
    path = folder / "given.txt"
    path.write_text(text)
    return read_any_trace(path)


def same(found: ReadTrace) -> None:
    assert isinstance(found.workload, Recorded)
    times = found.workload.times_ms
    assert len(times) == len(SINCE_MS)
    # Those of a millisecond are spread over it where several share one.
    assert times == pytest.approx(SINCE_MS - SINCE_MS[0], abs=1.0)
    assert found.notes[0].startswith("read as 200 requests in ")


@pytest.mark.parametrize("tool", REQUESTS)
def test_requests(tmp_path, tool):
    same(read(tmp_path, REQUESTS[tool]))


@pytest.mark.parametrize("tool", LOADS)
def test_loads(tmp_path, tool):
    found = read(tmp_path, LOADS[tool])
    assert isinstance(found.workload, RateTrace)
    assert found.workload.rate_qps == pytest.approx(RATES)
    assert found.notes[0].startswith("5 rows read as 5 intervals of 1 min: 21.6 requests/s")


@pytest.mark.parametrize("tool", REFUSED)
def test_the_next_step_of_a_refusal_works(tmp_path, tool):
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, REFUSED[tool])
    command = re.search(r"`([^`]+)`", str(caught.value).partition("allowed: ")[2])
    subprocess.run(command[1], shell=True, cwd=tmp_path, check=True)
    same(read_any_trace(tmp_path / command[1].rpartition("> ")[2]))


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_pageviews(tmp_path):
    items = [{"project": "en.wikipedia", "timestamp": f"202605060{hour}", "views": 3600 * views}
             for hour, views in enumerate((5, 9, 7))]
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, json.dumps({"items": items}) + "\n")
    command = "jq" + str(caught.value).partition(": jq")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx([5.0, 9.0, 7.0])


@pytest.mark.parametrize("tool", [*REQUESTS, *LOADS, *REFUSED])
def test_damaged_traces_end_in_one_line(tmp_path, tool):
    path = tmp_path / "trace"
    path.write_text({**REQUESTS, **LOADS, **REFUSED}[tool][:2000])
    check_reader(read_any_trace, path, tmp_path / "damaged", count=25)
