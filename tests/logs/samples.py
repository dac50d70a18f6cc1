"""The same requests as programs of the field write them down: each in its own layout."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
COUNT = 240
RNG = np.random.default_rng(11)
ARRIVAL_S = np.round(np.sort(RNG.uniform(0.0, 24.0, COUNT)), 3)
TOOK_S = np.round(RNG.uniform(0.004, 0.140, COUNT), 3)
STATUS = np.select([np.arange(COUNT) % 50 == 49, np.arange(COUNT) % 60 == 59], [503, 500], 200)
WORKERS = ("10.0.0.7:8000", "10.0.0.8:8000")
SLO_MS = 100.0


class Row(NamedTuple):
    """A request with its times and what it got."""

    number: int
    start: datetime
    end: datetime
    took_s: float
    status: int

    @property
    def start_ms(self) -> int:
        """Of its start since 1970."""
        return round(1000 * self.start.timestamp())

    @property
    def worker(self) -> str:
        """That answered."""
        return WORKERS[self.number % 2]


def _rows() -> list[Row]:
    return [Row(i, BEGIN + timedelta(seconds=float(at)),
                BEGIN + timedelta(seconds=float(at) + float(took)), float(took), int(status))
            for i, (at, took, status) in enumerate(zip(ARRIVAL_S, TOOK_S, STATUS, strict=True))]


ROWS = _rows()
BY_END = sorted(ROWS, key=lambda row: row.end)


def _lines(lines: Iterable[str], header: str = "") -> str:
    return "".join(f"{line}\n" for line in ([header] if header else []) + list(lines))


def _json_lines(items: Iterable[Any]) -> str:
    return _lines(map(json.dumps, items))


def _iso(moment: datetime, digits: int = 3, zone: str = "Z") -> str:
    fraction = f"{moment.microsecond:06d}"[:digits]
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{fraction}" if digits else "") + zone


def _combined(moment: datetime, row: Row) -> str:
    return (f'10.1.2.3 - - [{moment:%d/%b/%Y:%H:%M:%S} +0000] "POST /predict HTTP/1.1" '
            f'{row.status} 512 "-" "python-httpx/0.271 8"')


def nginx() -> str:
    return _lines(f"{_combined(row.end, row)} {row.took_s:.3f}" for row in BY_END)


def nginx_ingress() -> str:
    return _lines(
        f"{_combined(row.end, row)} 466 {row.took_s:.3f} [default-svc-80] [] {row.worker} 20 "
        f"{row.took_s:.3f} {row.status} 3f2a" for row in BY_END)


def apache() -> str:
    return _lines(f"{_combined(row.start, row)} {round(1e6 * row.took_s)}" for row in BY_END)


def combined() -> str:
    return _lines(_combined(row.end, row) for row in BY_END)


def envoy() -> str:
    return _lines(
        f'[{_iso(row.start)}] "POST /predict HTTP/1.1" {row.status} - 120 512 '
        f'{round(1000 * row.took_s)} {round(1000 * row.took_s) - 1} "-" "curl/8.5" '
        f'"id-{row.number}" '
        f'"models.local" "{row.worker}"' for row in ROWS)


def istio() -> str:
    return _lines(
        f'[{_iso(row.start)}] "POST /predict HTTP/1.1" {row.status} - via_upstream - "-" 120 512 '
        f'{round(1000 * row.took_s)} {round(1000 * row.took_s) - 1} "-" "curl/8.5" '
        f'"id-{row.number}" '
        f'"models.local" "{row.worker}" inbound|8000|| 127.0.0.6:1 10.0.0.7:8000 10.1.2.3:1 - '
        "default" for row in ROWS)


def envoy_json() -> str:
    return _json_lines({
        "start_time": _iso(row.start), "method": "POST", "path": "/predict",
        "response_code": row.status, "duration": round(1000 * row.took_s),
        "upstream_host": row.worker} for row in ROWS)


def haproxy() -> str:
    return _lines(
        f"Mar  1 12:00:00 lb haproxy[14389]: 10.0.1.2:33317 [{row.start:%d/%b/%Y:%H:%M:%S}."
        f"{row.start.microsecond // 1000:03d}] http-in models/gpu-{'ab'[row.number % 2]} 0/1/2/"
        f"{round(1000 * row.took_s) - 3}/{round(1000 * row.took_s)} {row.status} 512 - - ---- "
        '1/1/1/1/0 0/0 "POST /predict HTTP/1.1"' for row in ROWS)


def alb() -> str:
    return _lines(
        f"http {_iso(row.end, 6)} app/my-lb/50dc 192.0.2.39:2000 {row.worker} 0.000 "
        f'{row.took_s:.3f} 0.000 {row.status} {row.status} 34 366 "POST http://lb:80/predict '
        'HTTP/1.1" "curl/8.5" - - arn:aws:elasticloadbalancing:us-east-2:1:targetgroup/tg/7 '
        f'"Root=1-58" "-" "-" 0 {_iso(row.start, 6)} "forward" "-" "-" "{row.worker}" '
        f'"{row.status}" "-" "-"' for row in BY_END)


def elb() -> str:
    return _lines(
        f"{_iso(row.start, 6)} my-lb 192.0.2.39:2817 {row.worker} 0.000010 {row.took_s:.6f} "
        f'0.000010 {row.status} {row.status} 0 29 "POST http://lb:80/predict HTTP/1.1" "curl/8.5" '
        "- -" for row in ROWS)


def _google(row: Row) -> dict[str, Any]:
    return {"httpRequest": {
        "requestMethod": "POST", "requestUrl": "https://models.example.org/predict",
        "requestSize": "34", "status": row.status, "latency": f"{row.took_s:.6f}s"},
        "resource": {"type": "http_load_balancer", "labels": {"zone": "global"}},
        "timestamp": _iso(row.start, 6), "receiveTimestamp": _iso(row.end, 6)}


def google() -> str:
    return _json_lines(map(_google, ROWS))


def google_array() -> str:
    return json.dumps([_google(row) for row in ROWS], indent=2)


def knative() -> str:
    return _json_lines({"httpRequest": {
        "requestMethod": "POST", "requestUrl": "/predict", "status": row.status,
        "latency": f"{row.took_s:.6f}s", "protocol": "HTTP/1.1"},
        "time": _iso(row.end, 6)} for row in BY_END)


def caddy() -> str:
    other = {"level": "info", "ts": BEGIN.timestamp(), "logger": "tls", "msg": "cleaned"}
    return _json_lines([other, *({
        "level": "info", "ts": row.end.timestamp(), "logger": "http.log.access",
        "msg": "handled request", "duration": row.took_s, "size": 512, "status": row.status,
        "request": {"remote_ip": "10.1.2.3", "method": "POST", "uri": "/predict"},
    } for row in BY_END)])


def traefik() -> str:
    return _json_lines({
        "Duration": round(1e9 * row.took_s), "DownstreamStatus": row.status,
        "RequestMethod": "POST", "RequestPath": "/predict", "ServiceURL": row.worker,
        "StartUTC": _iso(row.start, 6), "time": _iso(row.end, 0)} for row in ROWS)


def kong() -> str:
    return _json_lines({
        "latencies": {"request": round(1000 * row.took_s), "kong": 1, "proxy": 3},
        "started_at": row.start_ms, "response": {"status": row.status},
        "request": {"method": "POST", "uri": "/predict"}} for row in ROWS)


def front_door() -> str:
    return _json_lines({
        "time": _iso(row.end, 6), "category": "FrontDoorAccessLog", "properties": {
            "httpMethod": "POST", "httpStatusCode": str(row.status), "requestUri": "/predict",
            "timeTaken": f"{row.took_s:.3f}"}} for row in BY_END)


def application_insights() -> str:
    return _lines((
        f'"{row.start.month}/{row.start.day}/{row.start.year}, '
        f'{row.start:%I:%M:%S}.{row.start.microsecond // 1000:03d} {row.start:%p}",|a.b,'
        f"POST predict,{row.status == 200},{row.status},{1000 * row.took_s:.1f}" for row in ROWS),
        "timestamp [UTC],id,name,success,resultCode,duration")


_K6 = ("metric_name,timestamp,metric_value,check,error,error_code,group,method,name,proto,"
       "scenario,status,subproto,tls_version,url,extra_tags")


def k6_csv() -> str:
    return _lines((
        f"{metric},{int(row.end.timestamp())},{value:f},,,,,POST,http://a/infer,HTTP/1.1,default,"
        f"{row.status},,,http://a/infer," for row in BY_END for metric, value in (
            ("http_reqs", 1.0), ("http_req_duration", 1000 * row.took_s),
            ("http_req_waiting", 900 * row.took_s))), _K6)


def k6_json() -> str:
    return _json_lines([
        {"type": "Metric", "metric": "http_req_duration", "data": {
            "name": "http_req_duration", "type": "trend", "contains": "time"}},
        *({"metric": metric, "type": "Point", "data": {
            "time": _iso(row.end, 6), "value": value, "tags": {
                "method": "POST", "status": str(row.status), "url": "http://a/infer"}}}
          for row in BY_END for metric, value in (
              ("http_reqs", 1), ("http_req_duration", 1000 * row.took_s)))])


def vegeta_json() -> str:
    return _json_lines({
        "attack": "", "seq": row.number, "code": 0 if row.status == 500 else row.status,
        "timestamp": _iso(row.start, 6), "latency": round(1e9 * row.took_s), "bytes_out": 31,
        "bytes_in": 99, "error": "EOF" if row.status == 500 else "", "body": None,
        "method": "POST", "url": "http://a/infer", "headers": {}} for row in ROWS)


def vegeta_csv() -> str:
    return _lines(
        f"{1000 * round(1e6 * row.start.timestamp())},{row.status},{round(1e9 * row.took_s)},31,"
        f"99,{'500 Internal' if row.status == 500 else ''},,,{row.number},POST,http://a/infer,"
        for row in ROWS)


def _jtl(row: Row) -> str:
    code = "Non HTTP response code: java.net.SocketTimeoutException" if row.status == 500 \
        else row.status
    good = str(row.status == 200).lower()
    return (f"{row.start_ms},{round(1000 * row.took_s)},HTTP Request,{code},OK,Thread Group 1-1,"
            f"text,{good},,366,118,1,1,http://a/infer,{round(1000 * row.took_s) - 1},0,1")


_JTL = ("timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,"
        "failureMessage,bytes,sentBytes,grpThreads,allThreads,URL,Latency,IdleTime,Connect")
_TRANSACTION = (f'{ROWS[0].start_ms},900,All,200,"Number of samples in transaction : 2, number of '
                'failing samples : 0",Thread Group 1-1,,true,,732,236,1,1,null,0,0,1')


def jmeter_csv() -> str:
    return _lines([*map(_jtl, ROWS), _TRANSACTION], _JTL)


def jmeter_without_header() -> str:
    return _lines([*map(_jtl, ROWS), _TRANSACTION])


def jmeter_xml() -> str:
    return _lines((
        f'<httpSample t="{round(1000 * row.took_s)}" it="0" lt="3" ct="1" ts="{row.start_ms}" '
        f's="{str(row.status == 200).lower()}" lb="HTTP Request" rc="{row.status}" rm="OK" '
        f'tn="Thread Group 1-1" dt="text"><httpSample t="1" ts="{row.start_ms}" s="true" '
        'rc="200"/><java.net.URL>http://a/infer</java.net.URL></httpSample>'
        for row in ROWS), '<?xml version="1.0" encoding="UTF-8"?>\n<testResults version="1.2">'
        ) + "</testResults>\n"


def hey() -> str:
    return _lines((
        f"{row.took_s:.4f},0.0001,0.0000,0.0000,{row.took_s:.4f},0.0000,{row.status},{at:.4f}"
        for row, at in zip(ROWS, ARRIVAL_S, strict=True)),
        "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,"
        "offset")


def oha() -> str:
    return _lines((
        f"{at:.6f},0.000309806,0.001021632,0.001,{row.took_s:.6f},11,{row.status}"
        for row, at in zip(ROWS, ARRIVAL_S, strict=True)),
        "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status")


def ab() -> str:
    by_time = sorted(ROWS, key=lambda row: row.took_s)  # as ab sorts them
    return _lines((
        f"{row.start:%a %b %d %H:%M:%S %Y}\t{int(row.start.timestamp())}\t0\t"
        f"{round(1000 * row.took_s)}\t{round(1000 * row.took_s)}\t1" for row in by_time),
        "starttime\tseconds\tctime\tdtime\tttime\twait")


_GRPC = {200: "OK", 503: "Unavailable", 500: "Internal"}


def ghz() -> str:
    return json.dumps({
        "date": _iso(BEGIN), "count": COUNT, "total": 24_000_000_000, "average": 70_000_000,
        "fastest": 4_000_000, "slowest": 140_000_000, "rps": 10.0, "details": [
            {"timestamp": _iso(row.end, 6), "latency": round(1e9 * row.took_s),
             "error": "" if row.status == 200 else f"rpc error: code = {_GRPC[row.status]}",
             "status": _GRPC[row.status]} for row in BY_END]}, indent=2)


def gatling() -> str:
    return _lines((
        f"REQUEST\t\tinfer\t{row.start_ms}\t{row.start_ms + round(1000 * row.took_s)}\t"
        f"{'OK' if row.status == 200 else 'KO'}\t{' ' if row.status == 200 else 'status 503'}"
        for row in BY_END), f"RUN\ta.Sim\tsim\t{ROWS[0].start_ms}\t \t3.9\nUSER\ts\tSTART\t1")


def tei() -> str:
    return _lines((
        f'{_iso(row.end, 6)}  INFO openai_embed{{total_time="{1000 * row.took_s:.3f}ms" '
        f'tokenization_time="432.651µs" queue_time="416.398µs" '
        f'inference_time="{1000 * row.took_s - 1:.3f}ms"}}: text_embeddings_router::http::server: '
        "router/src/http/server.rs:1290: Success" for row in BY_END),
        f"{_iso(BEGIN, 6)}  INFO text_embeddings_router: router/src/main.rs:175: Args {{ model_id")


def bentoml() -> str:
    return _lines((
        f"{_iso(row.end, 0, '+0000')} [INFO] [api_server:1] 127.0.0.1:31801 (scheme=http,"
        f"method=POST,path=/predict,type=application/json,length=91) (status={row.status},"
        f"type=application/json,length=20) {1000 * row.took_s:.3f}ms (trace=f4,span=9,sampled=0)"
        for row in BY_END),
        f"{_iso(BEGIN, 0, '+0000')} [INFO] [cli] Starting production HTTP BentoServer")


def torchserve() -> str:
    return _lines((
        f"{row.end:%Y-%m-%dT%H:%M:%S},{row.end.microsecond // 1000:03d} [INFO ] W-9000-resnet_1.0 "
        f'ACCESS_LOG - /127.0.0.1:40592 "POST /predictions/small HTTP/1.1" {row.status} '
        f"{round(1000 * row.took_s)}" for row in BY_END),
        "2026-03-01T12:00:00,001 [INFO ] main TS_METRICS - Requests2XX.Count:1.0|#Level:Host")


def ray_proxy() -> str:
    return _lines(
        f"INFO {row.end:%Y-%m-%d %H:%M:%S},{row.end.microsecond // 1000:03d} proxy 10.0.0.1 "
        f"e03aff59 -- POST /infer {row.status} {1000 * row.took_s:.1f}ms" for row in BY_END)


def ray_replica() -> str:
    return _lines(
        f"(ServeReplica:default:Model pid=60091) INFO {row.end:%Y-%m-%d %H:%M:%S},"
        f"{row.end.microsecond // 1000:03d} default_Model f3fw e03aff59 /infer replica.py:378 - "
        f"__CALL__ {'OK' if row.status == 200 else 'ERROR'} {1000 * row.took_s:.1f}ms"
        for row in BY_END)


def json_lines() -> str:
    return _json_lines({
        "start_time": row.start.isoformat(), "latency_ms": 1000.0 * row.took_s,
        "status": row.status, "worker": f"gpu-{'ab'[row.number % 2]}"} for row in ROWS)


def grpc_table() -> str:
    names = {200: "OK", 503: "UNAVAILABLE", 500: "DEADLINE_EXCEEDED"}
    return _lines((
        f"{row.start.isoformat()},{1000 * row.took_s:.0f}ms,{names[row.status]}" for row in ROWS),
        "start_time,latency,code")


class Written(NamedTuple):
    """A layout: who writes it, how far its arrivals may be off, and which results it tells."""

    text: Callable[[], str]
    error_s: float = 0.002
    dropped: bool = True
    failures: bool = True


LAYOUTS: dict[str, Written] = {
    "nginx's access log": Written(nginx, 2.0),
    "nginx's access log (ingress)": Written(nginx_ingress, 2.0),
    "Apache's access log": Written(apache, 2.0),
    "Envoy's access log": Written(envoy),
    "Envoy's access log (Istio)": Written(istio),
    "Envoy's JSON access log": Written(envoy_json),
    "HAProxy's access log": Written(haproxy),
    "AWS's log of an application load balancer": Written(alb),
    "AWS's log of a classic load balancer": Written(elb),
    "Google Cloud's request log": Written(google),
    "Google Cloud's request log (array)": Written(google_array),
    "Knative's request log": Written(knative),
    "Caddy's access log": Written(caddy),
    "Traefik's access log": Written(traefik),
    "Kong's log": Written(kong),
    "Azure Front Door's access log": Written(front_door),
    "Application Insights' table of requests": Written(application_insights),
    "k6's CSV": Written(k6_csv, 2.0),
    "k6's JSON": Written(k6_json),
    "vegeta's JSON": Written(vegeta_json),
    "vegeta's CSV": Written(vegeta_csv),
    "JMeter's CSV": Written(jmeter_csv),
    "JMeter's CSV without a header": Written(jmeter_without_header),
    "JMeter's XML": Written(jmeter_xml),
    "hey's CSV": Written(hey),
    "oha's CSV": Written(oha),
    "ab's -g table": Written(ab, 2.0, failures=False),
    "ghz's JSON": Written(ghz, dropped=False),
    "Gatling's simulation.log": Written(gatling, dropped=False),
    "text-embeddings-inference's log": Written(tei, failures=False),
    "BentoML's access log": Written(bentoml, 2.0),
    "TorchServe's access log": Written(torchserve),
    "Ray Serve's log of its proxy": Written(ray_proxy),
    "Ray Serve's log of a replica": Written(ray_replica, dropped=False),
    "a table": Written(json_lines),
    "a table (gRPC)": Written(grpc_table, dropped=False),
}
"""Layouts by the titles that messages use; what stands in parentheses tells them apart."""

TORCHSERVE_METRICS = _lines(
    f"{_iso(row.end, 3, '').replace('.', ',')} - {name}.Milliseconds:{1000 * row.took_s:.2f}|"
    f"#ModelName:resnet-18,Level:Model|#hostname:a,requestID:{ids},timestamp:1772366400"
    for row in BY_END for name, ids in (
        ("HandlerTime", f"a4a8-{row.number:04}"), ("PredictionTime", f"a4a8-{row.number:04}")))
LOCUST_HISTORY = _lines((
    f"{1772366400 + second},100,{kind},{name},{rate:f},0.000000,88,97,110,120,160,220,400,690,"
    "1900,2300,2400,58,0,88,101.3,41.2,2380.5,212.0" for second in range(40) if second != 7
    for kind, name, rate in (("POST", "/predict", 40.0 + second),
                             ("", "Aggregated", 50.0 + second))),
    "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,"
    "99.99%,100%,Total Request Count,Total Failure Count,Total Median Response Time,Total Average "
    "Response Time,Total Min Response Time,Total Max Response Time,Total Average Content Size")
SUMMARIES = {
    "locust's summary": "Type,Name,Request Count,Failure Count,Median Response Time,Average "
    "Response Time,Min Response Time,Max Response Time,Average Content Size,Requests/s,Failures/s,"
    "50%,66%\nPOST,/predict,24310,12,88,101.3,41.2,2380.5,212.0,81.03,0.04,88,97\n",
    "JMeter's aggregate report": "Label,# Samples,Average,Median,90% Line\nHTTP,100,31,30,40\n",
    "ab's percentiles": "Percentage served,Time in ms\n0,4.1\n1,4.2\n",
    "ab's summary": "This is ApacheBench, Version 2.3 <$Revision: 1903618 $>\n",
    "wrk's summary": "Running 30s test @ http://127.0.0.1:8080/infer\n  2 threads\n",
    "hey's summary": "\nSummary:\n  Total:\t0.1 secs\n  Slowest:\t0.02 secs\n",
    "oha's summary": json.dumps({"summary": {"successRate": 1.0, "total": 1.0},
                                 "responseTimeHistogram": {}, "latencyPercentiles": {"p50": 0.1}}),
    "vegeta's report": json.dumps({"latencies": {"mean": 1}, "requests": 4, "rate": 4.0,
                                   "throughput": 3.9, "success": 1, "status_codes": {"200": 4}}),
    "k6's summary": json.dumps({"root_group": {"name": ""}, "metrics": {"http_reqs": {}}}),
    "Artillery's report": json.dumps({"aggregate": {"counters": {}}, "intermediate": []}),
    "Fortio's report": json.dumps({"RunType": "HTTP", "DurationHistogram": {"Count": 4}}),
    "bombardier's report": json.dumps({"spec": {"numberOfConnections": 2},
                                       "result": {"latency": {"mean": 3.1}}}),
    "autocannon's report": json.dumps({"connections": 10, "requests": {"average": 1},
                                       "latency": {"p50": 1}, "throughput": {"average": 1}}),
    "uvicorn's access log": 'INFO:     127.0.0.1:54321 - "POST /predict HTTP/1.1" 200 OK\n',
}
"""Beginnings of files that hold no requests."""
