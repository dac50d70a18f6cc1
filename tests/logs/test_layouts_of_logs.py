"""Logs and load tests of other programs, against the requests that they were made of."""

import gzip
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals.trace_formats import detect_trace, read_trace
from ramsis.audit.request_log import LogFormat, RequestLog, read_request_log
from ramsis.errors import InputFileError
from ramsis.logs.kinds import KINDS, SUMMARIES, LogKind, Summary, kind_of
from tests.cli.command import refused
from tests.logs import samples
from tests.logs.samples import ARRIVAL_S, LAYOUTS, SLO_MS, STATUS, TOOK_S


def log_of(path: Path, text: str, form: LogFormat | None = None) -> RequestLog:
    path.write_text(text)
    return read_request_log(path, form or LogFormat(slo_ms=SLO_MS))


def test_every_layout_has_a_sample():
    titles = {name.partition(" (")[0] for name in LAYOUTS} - {"a table"}
    assert titles == {kind.title for kind in KINDS if not kind.lacks}
    known = {kind_of(text) for text in samples.SUMMARIES.values()}
    assert {kind.title for kind in known if isinstance(kind, Summary)} == {
        summary.title for summary in SUMMARIES if not summary.is_load}


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrivals_times_and_outcomes_are_those_of_the_requests(tmp_path, name):
    layout = LAYOUTS[name]
    log = log_of(tmp_path / "some.log", layout.text())
    assert len(log) == len(ARRIVAL_S)
    assert log.notes[0].startswith(f"read as {name.partition(' (')[0]}, a request in each row")
    error_s = log.arrival_s - log.arrival_s[0] - (ARRIVAL_S - ARRIVAL_S[0])
    assert np.abs(error_s).max() <= layout.error_s + 1e-9
    good = STATUS == 200 if layout.failures else np.ones(len(STATUS), dtype=bool)
    assert log.in_time.sum() == (good & (TOOK_S <= SLO_MS / 1000)).sum()
    assert (log.outcome == "late").sum() == (good & (TOOK_S > SLO_MS / 1000)).sum()
    dropped = int((STATUS == 503).sum()) if layout.failures and layout.dropped else 0
    assert (log.outcome == "dropped").sum() == dropped
    assert (log.outcome == "failed").sum() == (~good).sum() - dropped


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_trace_has_the_arrivals_that_an_audit_has(tmp_path, name):
    path = tmp_path / "some.log"
    log = log_of(path, LAYOUTS[name].text())
    if name.startswith("a table"):  # whose times are those of the column, as in any table
        return
    assert detect_trace(path) == "request-log"
    trace = read_trace(path, "request-log")
    np.testing.assert_allclose(trace.spread_ms - trace.spread_ms[0],
                               1000 * (log.arrival_s - log.arrival_s[0]), atol=2e-3)
    assert trace.notes[0].partition(";")[0] == log.notes[0].partition(";")[0]
    packed = tmp_path / "some.log.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert np.array_equal(read_request_log(packed, LogFormat(slo_ms=SLO_MS)).arrival_s,
                          log.arrival_s)


@pytest.mark.parametrize("title", samples.SUMMARIES)
def test_a_summary_is_refused_by_its_name(run, tmp_path, title):
    path = tmp_path / "summary.txt"
    path.write_text(samples.SUMMARIES[title])
    for words in (("arrivals", "fit", path),
                  ("profile", "import", path, "--out", tmp_path / "p.json"),
                  ("audit", path, "--profiles", "digits-cpu", "--workers", 1, "--slo-ms", 25)):
        refused(run(*words), 3, f"is {title}")


def test_locusts_load_over_time_is_a_trace(run, tmp_path, tiny_file):
    path = tmp_path / "history.csv"
    path.write_text(samples.LOCUST_HISTORY)
    trace = read_trace(path, "request-log")
    expected = 50.0 + np.arange(40)
    expected[7] = expected[6]  # a second without a row holds the load before
    assert trace.rate_qps.tolist() == expected.tolist()
    ran = run("audit", path, "--profiles", tiny_file, "--workers", 1, "--slo-ms", 100)
    refused(ran, 3, "loads and no requests", f"--trace {path} takes it as a load")
    ran = run("simulate", "--profiles", tiny_file, "--workers", 2, "--slo-ms", 100,
              "--scheduler", "greedy", "--duration-s", 1, "--trace", path)
    assert ran.code == 0, ran.err
    assert "1 s with a rate in Requests/s" in ran.err


_OFTEN = ("metrics", "combined", "text-embeddings-inference's log")


@pytest.mark.parametrize("name", [
    *_OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in LAYOUTS
               if name not in _OFTEN)])
def test_advice_works_on_the_very_file(run, tmp_path, tiny_file, name):
    """What a command that does not take a log says of it, and each step that it names."""
    path = tmp_path / "some.log"
    path.write_text(samples.TORCHSERVE_METRICS if name == "metrics" else
                    samples.combined() if name == "combined" else LAYOUTS[name].text())
    asked = [("profile", "import", path, "--out", tmp_path / "p.json"), ("profile", "check", path)]
    if name not in LAYOUTS:  # which these take
        asked += [("arrivals", "fit", path),
                  ("audit", path, "--profiles", tiny_file, "--workers", 4)]
    messages = [run(*words).err for words in asked]
    steps = {step for text in messages if text.startswith("error")
             for step in re.findall(r"`(ramsis [^`]+)`", text)}
    assert steps or name.startswith("a table")
    for step in sorted(steps):
        words = shlex.split(step.replace("PROFILE.json", str(tmp_path / "profile.json")))[1:]
        if words[0] == "audit":
            words += ["--profiles", str(tiny_file), "--workers", "40", "--slo-ms", "100",
                      "--seeds", "1", "--scheduler", "round-robin:grid=fixed:20,max_queue=4"]
        ran = run(*words)
        assert ran.code == 0, (step, ran.err)
    traces = {step for text in messages for step in re.findall(r"(--trace \S+) takes it", text)}
    for step in traces:
        ran = run("simulate", "--profiles", tiny_file, "--workers", 2, "--slo-ms", 100,
                  "--scheduler", "greedy", "--duration-s", 1, *step.split())
        assert ran.code == 0, (step, ran.err)


def test_the_format_that_a_refusal_of_uvicorns_log_names_is_read(tmp_path):
    with pytest.raises(InputFileError) as caught:
        log_of(tmp_path / "uvicorn.log", samples.SUMMARIES["uvicorn's access log"])
    assert "gunicorn's --access-logformat with %D or %(D)s behind it" in str(caught.value)
    assert len(log_of(tmp_path / "gunicorn.log", samples.apache())) == len(ARRIVAL_S)


def test_lines_of_other_kinds_are_counted(tmp_path):
    assert any("left out: 1" in note for note in log_of(tmp_path / "a.log", samples.tei()).notes)
    text = samples.apache() + "damaged\n"
    assert any("left out: 1" in note for note in log_of(tmp_path / "a.log", text).notes)
    first, _, others = samples.apache().partition("\n")
    text = first + "\n" + others.replace("[", "(")
    with pytest.raises(InputFileError, match=r"line 2.*not a line of Apache's access log"):
        log_of(tmp_path / "a.log", text)


def test_a_unit_of_durations_is_not_for_times_since_1970(tmp_path):
    columns = {"arrival": "when", "duration": "took"}
    text = "when,took\n" + "".join(f"{1772366400.25 + i},{40 + i}\n" for i in range(20))
    log = log_of(tmp_path / "a.csv", text, LogFormat(columns, "ms", 50.0))
    assert log.arrival_s[-1] == pytest.approx(19.0)
    assert log.in_time.sum() == 11
    assert "when (s) is its start, took (ms) is the time it took" in log.notes[0]


@pytest.mark.parametrize(("cells", "seconds"), [
    (("726ms", "432µs", "0.031s", "1m2.3s", "1h0m1s"), (0.726, 432e-6, 0.031, 62.3, 3601.0)),
    (("726 ms", "432us", "2 min"), (0.726, 432e-6, 120.0))])
def test_cells_may_state_their_unit(tmp_path, cells, seconds):
    text = "start_time,latency\n" + "".join(
        f"2026-03-01T12:00:0{i}Z,{cell}\n" for i, cell in enumerate(cells))
    log = log_of(tmp_path / "a.csv", text, LogFormat(slo_ms=1e9))
    assert (log.finish_s - log.arrival_s).tolist() == pytest.approx(seconds)
    with pytest.raises(InputFileError, match="some times state a unit, others none"):
        log_of(tmp_path / "a.csv", text + "2026-03-01T12:00:09Z,5\n")


@pytest.mark.parametrize(("status", "outcome"), [
    ("000", "failed"), ("0", "failed"), ("", "failed"), ("-1", "failed"), ("200 OK", "served"),
    ("204", "served"), ("503", "dropped"), ("UNAVAILABLE", "failed"), ("OK", "served"),
    ("Non HTTP response code: java.net.SocketTimeoutException", "failed"), ("500", "failed")])
def test_statuses_that_are_no_answers_are_failures(tmp_path, status, outcome):
    text = f"start_time,latency_ms,code\n2026-03-01T12:00:00Z,5,{status}\n"
    assert log_of(tmp_path / "a.csv", text).outcome.tolist() == [outcome]


def test_a_time_that_may_be_the_start_is_said_and_can_be(tmp_path):
    text = "timestamp,latency_ms\n2026-03-01T12:00:00Z,500\n2026-03-01T12:00:01Z,100\n"
    log = log_of(tmp_path / "a.csv", text)
    (option,) = re.findall("--column (arrival=timestamp) where that is the start", log.notes[0])
    assert log.arrival_s.tolist() == pytest.approx([0.0, 1.4])
    form = LogFormat(dict([option.split("=")]), slo_ms=SLO_MS)
    log = log_of(tmp_path / "a.csv", text, form)
    assert log.arrival_s.tolist() == pytest.approx([0.0, 1.0])
    assert "timestamp is its start" in log.notes[0]


def test_the_times_of_a_log_of_no_known_layout_are_cut_as_said(run, tmp_path):
    path = tmp_path / "app.log"
    path.write_text("".join(f"2026-03-01 12:{i // 60:02}:{i % 60:02},{i * 7 % 1000:03} INFO done\n"
                            for i in range(200)))
    ran = run("arrivals", "fit", path)
    refused(ran, 3, "several columns")
    (command,) = re.findall("`(cut -c1-[0-9]+ /.+/app.log > times.txt)`", ran.err)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    ran = run("arrivals", "fit", tmp_path / "times.txt")
    assert ran.code == 0, ran.err
    assert "200 requests" in ran.err + ran.out


def test_k6s_rows_without_requests_are_named(tmp_path):
    text = samples.k6_csv().replace("http_req_duration", "grpc_req_duration")
    with pytest.raises(InputFileError, match=r"no rows of requests.*grpc_req_duration"):
        log_of(tmp_path / "k6.csv", text)


def test_a_time_taken_of_no_plausible_unit_is_refused(tmp_path):
    text = re.sub(r"000$", "", samples.apache(), flags=re.MULTILINE)  # as %{ms}T writes it
    with pytest.raises(InputFileError, match="shorter than any answer over a network"):
        log_of(tmp_path / "a.log", text)
    log = log_of(tmp_path / "a.log", text, LogFormat(unit="ms", slo_ms=SLO_MS))
    assert np.allclose(np.sort(log.finish_s - log.arrival_s), np.sort(TOOK_S))


def test_response_times_of_one_request_at_a_time_are_a_profile(run, tmp_path):
    path = tmp_path / "alone.csv"
    path.write_text("request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n"
                    + "".join(f"{0.05 * i:.6f},0,0,0.001,{0.02 + 1e-4 * (i % 7):.6f},11,"
                              f"{500 if i == 9 else 200}\n" for i in range(50)))
    out = tmp_path / "p.json"
    refused(run("profile", "import", path, "--out", out), 3, "the batch size is not in this file")
    ran = run("profile", "import", path, "--out", out, "--batch", 1)
    assert ran.code == 0, ran.err
    (model,) = json.loads(out.read_text())["models"]
    assert model["batches"][0]["n"] == 49
    for name in ("hey's CSV", "ab's -g table"):
        path.write_text(LAYOUTS[name].text())
        assert run("profile", "import", path, "--out", out, "--batch", 1).code == 3


FIELD = {
    "c17_tei.log": (300, "text-embeddings-inference", 0),
    "c18_bentoml.log": (300, "BentoML", 11), "c23_k6_real.csv": (300, "k6's CSV", 0),
    "c23_vegeta.json": (300, "vegeta's JSON", 3), "c33_alb.log": (300, "AWS", 0),
}


@pytest.mark.parametrize("name", FIELD)
def test_files_of_the_field(reference_dir, name):
    path = reference_dir / "field" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    requests, program, unanswered = FIELD[name]
    log = read_request_log(path, LogFormat(slo_ms=60.0))
    assert len(log) == requests
    assert program in log.notes[0]
    assert int(np.isin(log.outcome, ["failed", "dropped"]).sum()) == unanswered
    if name == "c23_k6_real.csv":
        assert (log.outcome == "late").sum() == 4


def test_kinds_are_told_from_the_first_lines_alone():
    for name, layout in LAYOUTS.items():
        text = layout.text()
        kind = kind_of(text + "\n" * 100_000)
        assert (kind.title if isinstance(kind, LogKind) else "a table") == name.partition(" (")[0]


def test_durations_in_hours_minutes_and_seconds_and_dates_of_utc(tmp_path):
    log = log_of(tmp_path / "log.csv", "start_time,duration,status\n" + "".join(
        f"2026-05-01 10:00:{i:02d}.500 UTC,0:00:00.{30 + i:03d},200\n" for i in range(30)))
    assert log.finish_s - log.arrival_s == pytest.approx(np.arange(30) / 1000 + 0.030, abs=1e-6)


@pytest.mark.parametrize(("text", "says"), [
    ("2026-05-01 10:00:00,132 - INFO - served in 59.1 ms\n" * 20, "no header"),
    ('{"latency": {"average": 30.2}, "duration": 60}\n', "one JSON object"),
])
def test_what_is_no_log_is_said(tmp_path, text, says):
    with pytest.raises(InputFileError, match=says):
        log_of(tmp_path / "file.log", text)
