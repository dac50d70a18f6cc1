"""Access logs and JSON lines, as servers write them, against what they were made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from ramsis.audit.request_log import LogFormat, RequestLog, read_request_log
from tests.cli.command import Run

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
RNG = np.random.default_rng(11)
ARRIVAL_S = np.sort(RNG.uniform(0.0, 60.0, 600))
TOOK_S = np.round(RNG.uniform(0.004, 0.140, 600), 3)
STATUS = np.where(np.arange(600) % 50 == 49, 503, 200)
WORKERS = ("10.0.0.7:8000", "10.0.0.8:8000")


def nginx() -> str:
    ends = [BEGIN + timedelta(seconds=at + took)
            for at, took in zip(ARRIVAL_S, TOOK_S, strict=True)]
    order = np.argsort(ARRIVAL_S + TOOK_S)  # a line is written when the answer is there
    return "".join(
        f'10.1.2.3 - - [{ends[i]:%d/%b/%Y:%H:%M:%S} +0000] "POST /predict HTTP/1.1" {STATUS[i]} '
        f'512 "-" "python-httpx/0.27" {TOOK_S[i]:.3f}\n' for i in order)


def envoy() -> str:
    return "".join(
        f'[{BEGIN + timedelta(seconds=float(at)):%Y-%m-%dT%H:%M:%S}.'
        f'{int(1000 * (at % 1)):03d}Z] "POST /predict HTTP/1.1" {status} - 120 512 '
        f'{round(1000 * took)} {round(1000 * took) - 1} "-" "curl/8.5" "id-{i}" "models.local" '
        f'"{WORKERS[i % 2]}"\n'
        for i, (at, took, status) in enumerate(zip(ARRIVAL_S, TOOK_S, STATUS, strict=True)))


def json_lines() -> str:
    return "".join(json.dumps({
        "start_time": (BEGIN + timedelta(seconds=float(at))).isoformat(),
        "latency_ms": 1000.0 * took, "status": int(status), "worker": f"gpu-{'ab'[i % 2]}",
    }) + "\n" for i, (at, took, status) in enumerate(
        zip(ARRIVAL_S, TOOK_S, STATUS, strict=True)))


def haproxy() -> str:
    return "".join(
        f"Mar  1 12:00:00 lb haproxy[14389]: 10.0.1.2:33317 "
        f"[{BEGIN + timedelta(seconds=float(at)):%d/%b/%Y:%H:%M:%S}.{int(1000 * (at % 1)):03d}] "
        f"http-in models/gpu-{'ab'[i % 2]} 0/1/2/{round(1000 * took) - 3}/{round(1000 * took)} "
        f'{status} 512 - - ---- 1/1/1/1/0 0/0 "POST /predict HTTP/1.1"\n'
        for i, (at, took, status) in enumerate(zip(ARRIVAL_S, TOOK_S, STATUS, strict=True)))


def caddy() -> str:
    return "".join(json.dumps({
        "level": "info", "ts": BEGIN.timestamp() + at + took, "logger": "http.log.access",
        "msg": "handled request", "duration": took, "size": 512, "status": int(status),
        "request": {"remote_ip": "10.1.2.3", "method": "POST", "uri": "/predict"},
    }) + "\n" for at, took, status in zip(ARRIVAL_S, TOOK_S, STATUS, strict=True))


def traefik() -> str:
    return "".join(json.dumps({
        "Duration": round(1e9 * took), "DownstreamStatus": int(status), "RequestMethod": "POST",
        "RequestPath": "/predict", "ServiceURL": WORKERS[i % 2],
        "StartUTC": (BEGIN + timedelta(seconds=float(at))).isoformat(),
        "time": (BEGIN + timedelta(seconds=float(at + took))).isoformat(),
    }) + "\n" for i, (at, took, status) in enumerate(
        zip(ARRIVAL_S, TOOK_S, STATUS, strict=True)))


def log_of(path: Path, text: str) -> RequestLog:
    path.write_text(text)
    return read_request_log(path, LogFormat({}, None, 100.0))


@pytest.mark.parametrize(("written", "error_s"), [(nginx, 1.0), (envoy, 0.002),
                                                  (json_lines, 1e-6), (haproxy, 0.002),
                                                  (caddy, 1e-5), (traefik, 1e-5)])
def test_arrivals_times_and_outcomes_are_those_of_the_requests(
    tmp_path: Path, written: Callable[[], str], error_s: float
) -> None:
    log = log_of(tmp_path / "access.log", written())
    assert len(log) == 600
    # The first arrival is time 0; nginx states the second of an end, and no more.
    assert np.abs(log.arrival_s - (ARRIVAL_S - ARRIVAL_S[0])).max() <= error_s + 1e-9
    in_time = (STATUS == 200) & (TOOK_S <= 0.1)
    assert log.in_time.sum() == in_time.sum()
    assert (log.outcome == "late").sum() == ((STATUS == 200) & (TOOK_S > 0.1)).sum()
    assert (log.outcome == "dropped").sum() == (STATUS == 503).sum()
    if written not in (nginx, caddy):
        assert set(log.worker[log.answered].tolist()) == {0, 1}


def test_an_access_log_is_audited_in_one_command(
    run: Run, tiny_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "access.log").write_text(nginx())
    ran = run("audit", tmp_path / "access.log", "--profiles", tiny_file, "--workers", 2,
              "--slo-ms", 100, "--scheme", "round-robin:grid=fixed:10,max_queue=8", "--seeds", 1,
              "--json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["rows"]
    late = ((STATUS != 200) | (TOOK_S > 0.1)).mean()
    assert row["violation_rate"] == pytest.approx(late, abs=1e-9)
    assert row["effective_accuracy"] <= row["upper_bound"] + 1e-9
    assert "accuracy is an upper end" in ran.err
