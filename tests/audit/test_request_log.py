"""Request logs: what is written is read, and what other programs write, too."""

import csv
import resource
from pathlib import Path

import numpy as np
import pytest

from ramsis.audit.request_log import (
    COLUMNS,
    LogFormat,
    Request,
    RequestLogWriter,
    read_request_log,
    write_request_log,
)
from ramsis.audit.simulated_log import requests_of_run
from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.sim import ConstantLoad, Greedy, JellyfishPlus
from tests.cli.command import refused
from tests.runs import simulate_profile
from tests.synthesis.samples import tiny_profile


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "log.csv"
    with RequestLogWriter(path) as writer:
        writer.write(Request(2.5, 2.6, 2.7, 150.0, "late", "b", 3, 4, 1, False))
        writer.write(Request(1.000000001, 1.01, 1.05, 150.0, "served", "a", 1, 1, 0, True))
        writer.write(Request(3.0, None, 3.1, 150.0, "dropped"))
        writer.write(Request(4.0, deadline_ms=150.0, outcome="failed"))
    log = read_request_log(path)
    assert log.arrival_s.tolist() == [1.000000001, 2.5, 3.0, 4.0]
    assert log.outcome.tolist() == ["served", "late", "dropped", "failed"]
    assert log.model.tolist() == ["a", "b", "", ""]
    assert log.batch.tolist() == [1, 3, 0, 0]
    assert log.run_as.tolist() == [1, 4, 0, 0]
    assert log.worker.tolist() == [0, 1, -1, -1]
    assert log.correct.tolist()[:2] == [1.0, 0.0]
    assert np.isnan(log.correct[2:]).all()
    assert np.isnan(log.start_s[2:]).all()


LINE = Request(1.0, 1.01, 1.05, 150.0, "served", "a, b", 1, 1, 0, True)


def test_sizes_are_a_column_where_requests_have_them(tmp_path):
    path = tmp_path / "log.csv"
    write_request_log(path, [LINE._replace(size=17), LINE._replace(arrival_s=1.005)], sized=True)
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read_request_log(path).size.tolist() == [17, 0]
    without = tmp_path / "without.csv"
    write_request_log(without, [LINE._replace(size=17)])
    assert read_request_log(without).size.tolist() == [0]


def test_sizes_of_other_programs_are_read(tmp_path):
    path = written(tmp_path, "arrival_s,finish_s,ContextTokens", "1.0,1.1,12", "2.0,2.2,0",
                   "3.0,3.1,", "4.0,4.1,1.5")
    assert read_request_log(path, LogFormat(slo_ms=150.0)).size.tolist() == [12, 0, 0, 0]
    assert read_request_log(path, LogFormat({"size": "finish_s"}, slo_ms=150.0)).size[0] == 0


def test_a_log_of_before_is_kept(tmp_path):
    path = tmp_path / "log.csv"
    for number in range(3):
        with RequestLogWriter(path) as writer:
            for _ in range(number + 1):
                writer.write(LINE)
    found = {one.name: len(read_request_log(one)) for one in tmp_path.iterdir()}
    assert found == {"log.csv": 3, "log.1.csv": 1, "log.2.csv": 2}


def test_a_log_has_whole_lines_whenever_its_writer_ends(tmp_path):
    path = tmp_path / "log.csv"
    writer = RequestLogWriter(path)
    for number in range(500):
        writer.write(LINE)
        if number % 100 == 50:
            writer.flush()
        text = path.read_text()
        assert text.endswith("\n")
        assert {line.count(",") for line in text.splitlines()[1:]} <= {10}
    assert text.count("\n") == 452
    writer.close()


def test_a_log_on_a_full_disk_keeps_whole_lines_and_goes_on(tmp_path):
    path = tmp_path / "log.csv"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RequestLogWriter(path) as writer:
        writer.write(LINE)
        writer.flush()
        whole = path.read_text()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 30, before[1]))
        try:
            for _ in range(2):
                writer.write(LINE)
                with pytest.raises(OutputError, match="cannot write file"):
                    writer.flush()
                assert path.read_text() == whole
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        writer.write(LINE)
    assert len(read_request_log(path)) == 2
    with pytest.raises(OutputError, match=r"/dev/full: cannot write file \(No space left"):
        RequestLogWriter("/dev/full")


@pytest.mark.parametrize("scheduler", [Greedy(late="drop"), JellyfishPlus()])
def test_the_log_of_a_simulation_has_its_figures(tmp_path, scheduler):
    result = simulate_profile(tiny_profile(), scheduler, ConstantLoad(900.0, 3000.0), workers=2,
                              slo_ms=100.0, keep_runs=True)
    run, metrics = result.runs[0], result.metrics[0]
    path = tmp_path / "log.csv"
    write_request_log(path, requests_of_run(run))
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.csv"]
    log = read_request_log(path)
    assert len(log) == metrics.queries
    assert int(log.in_time.sum()) == metrics.in_time
    assert int((log.outcome == "late").sum()) == metrics.late
    assert int((log.outcome == "dropped").sum()) == metrics.dropped + metrics.never_answered
    assert np.allclose(log.arrival_s, run.arrival_ms / 1000.0, atol=1e-9)
    with open(path, newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(rows[0]) == COLUMNS[:-1]  # without sizes
    assert sum(row["outcome"] == "served" for row in rows) == metrics.in_time


def test_columns_of_other_programs(tmp_path):
    path = written(tmp_path, "received,took_ms,done,net,n,ok",
                   "2026-01-02T10:00:01.500Z,9,2026-01-02T10:00:01.650Z,small,2,TRUE",
                   "2026-01-02T10:00:00Z,9,2026-01-02T10:00:00.050Z,big,1,false",
                   "2026-01-02T10:00:02Z,,,,,")
    log = read_request_log(path, LogFormat(
        {"arrival": "received", "finish": "done", "model": "net", "batch": "n", "correct": "ok"},
        slo_ms=100.0))
    assert log.arrival_s.tolist() == [0.0, 1.5, 2.0]
    assert log.outcome.tolist() == ["served", "late", "dropped"]
    assert log.batch.tolist() == [1, 2, 0]
    assert log.correct.tolist()[:2] == [0.0, 1.0]


def test_units_are_those_of_the_name_or_stated(tmp_path):
    path = written(tmp_path, "arrival_ms,finish_ms,model", "0,20,a", "1500,1700,a")
    log = read_request_log(path, LogFormat({"arrival": "arrival_ms", "finish": "finish_ms"},
                                           slo_ms=100.0))
    assert log.arrival_s.tolist() == [0.0, 1.5]
    assert log.outcome.tolist() == ["served", "late"]
    path = written(tmp_path, "t,end,model", "0,20,a")
    with pytest.raises(InputFileError, match="no stated unit"):
        read_request_log(path, LogFormat({"arrival": "t", "finish": "end"}, slo_ms=100.0))
    log = read_request_log(path, LogFormat({"arrival": "t", "finish": "end"}, "us", 1.0))
    assert log.finish_s.tolist() == [pytest.approx(20e-6)]


def test_a_stated_unit_is_not_that_of_times_since_1970_in_another(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("when,took,code\n1770109200.5,38.25,200\n1770109201.0,40,200\n")
    columns = {"finish": "when", "duration": "took", "status": "code"}
    log = read_request_log(path, LogFormat(columns, "ms", 100.0))
    assert (log.finish_s - log.arrival_s).tolist() == pytest.approx([0.03825, 0.040])
    assert log.arrival_s[1] == pytest.approx(0.5 - 0.00175)
    assert "when (s) is its end, took (ms) is the time it took" in log.notes[0]
    path.write_text("when,code\n1770109200.5,504\n1770109201.0,504\n")
    with pytest.raises(InputFileError, match=r"1970 in ms, and of our days in s.*--unit s"):
        read_request_log(path, LogFormat({"arrival": "when", "status": "code"}, "ms", 100.0))
    assert read_request_log(path, LogFormat({"arrival": "when", "status": "code"}, "s", 100.0))


@pytest.mark.parametrize(("lines", "words"), [
    (["arrival_s,deadline_ms", "x,100"], "line 2: arrival: not a time: got 'x'"),
    (["arrival_s,deadline_ms", "1,100", ",100"], "line 3: arrival: not a time"),
    (["arrival_s", "1"], "line 2: deadline: no deadline"),
    (["arrival_s,deadline_ms", "1,-5"], "line 2: deadline: not a time allowed: got '-5'"),
    (["arrival_s,deadline_ms", "1,1e308"], "allowed: a number > 0, up to 1e+12 ms"),
    (["arrival_s,deadline_ms,start_s", "1,5,0.5"], "line 2: start: starts before it arrives"),
    (["arrival_s,deadline_ms,finish_s,model", "1,5,0.5,a"], "line 2: finish: ends before"),
    (["arrival_s,deadline_ms,outcome", "1,5,fine"], "unknown outcome: got 'fine'"),
    (["arrival_s,deadline_ms,outcome,model", "1,5,served,"], "answered by no model"),
    (["arrival_s,deadline_ms,batch", "1,5,0"], "line 2: batch: not a whole number"),
    (["arrival_s,deadline_ms,worker", "1,5,1.5"], "line 2: worker: not a whole number"),
    (["arrival_s,deadline_ms,correct", "1,5,maybe"], "neither right nor wrong: got 'maybe'"),
    (["timestamp_s,deadline_ms", "1,5"], "no column says what became of a request"),
    (["start_s,deadline_ms", "1,5"], "no column says the arrival of requests; allowed: --column"),
    (["ts,latency_ms,deadline_ms", "1714557600,1e300,5"], "line 2: duration: not a duration"),
    (["ts,latency_ms,deadline_ms", *["1714557600,5,5"] * 20, "0,5,5"],
     "line 22: finish: not a time as the others: got '0'; allowed: s since 1970 in all rows"),
    (["ts,latency_ms,status,deadline_ms", "1714557600,,504,5"], "--column arrival=ts if that is"),
    (["ts,spent,status,slo_ms", "1714557600,5,200,5"], "no column says how long the answers took"),
    (["ts;latency_ms;slo_ms", "1714557600;5,25;5"], "got '5,25'; allowed: decimals after a point"),
    (["start,end,slo_ms", "01/05/2024 10:00:00,1,5"], "allowed: the year first; where the month"),
    (["I0501 10:00:00.1 1 http.cc:45] request"] * 2, "lines of a layout that is not known"),
    (["a,b,c", "1,2,3,4"], "more fields than the header"),
    (["arrival_s,deadline_ms"], "no requests"),
    ([], "no requests"),
])
def test_bad_logs_are_refused_with_the_line(tmp_path, lines, words):
    with pytest.raises(InputFileError) as caught:
        read_request_log(written(tmp_path, *lines))
    assert words in str(caught.value)
    assert "log.csv" in str(caught.value)


@pytest.mark.parametrize(("header", "row"), [
    ("timestamp,latency_seconds,slo_s", "1714557600.3,0.3,0.25"),
    ("# made today\nsep=;\ntimestamp;latency [µs];slo_ms", "1714557600.3;300000;250"),
    ("created_at,finished_at,slo_ms",
     "2024-05-01 10:00:00+00,2024-05-01 12:00:00.3+02,250"),
    ("arrival,latency_ms,slo_ms", '"May 1, 2024 @ 10:00:00.250",300,250'),
    ("arrival,latency_ms,slo_ms", '"Wed, 01 May 2024 10:00:00 GMT",300,250'),
    ("arrival,latency_ms,slo_ms", "2024-05-01 10:00:00.5 +0000 UTC,300,250"),
    ("arrival,finish,slo_ms", "2024-5-1 10:00:00.0,2024-5-1 10:00:00.3,250"),
    ("arrival,finish,slo_ms", "01.05.2024 10:00:00.0,01.05.2024 10:00:00.3,250"),
    ("arrival,finish,slo_ms", "5/1/2024 11:59:59.9 AM,5/1/2024 12:00:00.2 PM,250"),
])
def test_units_dates_and_comments_of_other_programs(tmp_path, header, row):
    log = read_request_log(written(tmp_path, header, row))
    assert (log.finish_s - log.arrival_s).tolist() == [pytest.approx(0.3)]
    assert log.outcome.tolist() == ["late"]


@pytest.mark.parametrize("zone", ["", "Z"])
def test_a_clock_that_went_to_winter_time_is_noted(tmp_path, zone):
    rows = [f"2024-10-27 {clock}{zone},5" for clock in ("02:59:50", "02:59:59", "02:00:02")]
    log = read_request_log(written(tmp_path, "ts,latency_ms", *rows), LogFormat(slo_ms=10))
    assert any("line 4 is an hour earlier" in note for note in log.notes) == (not zone)


def test_columns_that_are_not_used_are_named(tmp_path):
    log = read_request_log(written(tmp_path, "ts,latency_ms,ok", "1714557600,5,true"),
                           LogFormat(slo_ms=10))
    assert log.notes[0].endswith("; not used: ok")


def test_bad_formats_are_refused(tmp_path):
    with pytest.raises(InputFileError, match="cannot read file"):
        read_request_log(tmp_path / "none.csv")
    for wrong in ({"columns": {"colour": "x"}}, {"unit": "days"}, {"slo_ms": 0.0},
                  {"slo_ms": 1e308}):
        with pytest.raises(InvalidValueError):
            LogFormat(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputFileError, match="no such column: got 'when'"):
        read_request_log(written(tmp_path, "arrival_s,deadline_ms", "1,5"),
                         LogFormat({"arrival": "when"}))


def test_simulate_writes_a_request_log(run, tiny_file, tmp_path):
    base = ["simulate", "--profiles", tiny_file, "--workers", 4, "--slo-ms", 100, "--load", 300,
            "--duration-s", 1, "--request-log", tmp_path / "log.csv"]
    refused(run(*base, "--scheduler", "greedy", "--scheduler", "jellyfish-plus"), 2,
            "--request-log")
    assert not (tmp_path / "log.csv").exists()
    ran = run(*base, "--scheduler", "greedy")
    assert ran.code == 0, ran.err
    assert len(read_request_log(tmp_path / "log.csv")) > 200
