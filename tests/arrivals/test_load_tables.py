"""Tables whose rows are intervals: told from requests, and rates from counts."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals.reading import ReadTrace, read_any_trace
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.errors import InputFileError, InvalidValueError

RATES = [18.952, 20.177, 36.983, 34.881, 21.35]
COUNTS = [1137, 1210, 2218, 2092, 1281]
STAMPS = [f"2026-05-06 07:{minute:02d}:00" for minute in range(5)]
PROMQL = '"sum(rate(http_requests_total{job=""m""}[1m]))"'


def table(header: str, cells: Sequence[object], stamps: Sequence[str] = STAMPS) -> str:
    rows = [f'"{stamp}",{cell}' for stamp, cell in zip(stamps, cells, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def read(folder: Path, text: str, **options: object) -> ReadTrace:
    path = folder / "export.csv"
    path.write_text(text)
    return read_any_trace(path, **options)  # type: ignore[arg-type]


ALIKE = {
    "the name of a series": table('"Time","m"', RATES),
    "a query": table(f'"Time",{PROMQL}', RATES),
    "a query of whole numbers of a minute": table(
        '"Time","sum(increase(http_requests_total[1m]))"', COUNTS),
    "two series of one query": table('"Time","rate(x{pod=""a""}[1m])","rate(x{pod=""b""}[1m])"',
                                     [f"{rate / 4},{rate * 0.75}" for rate in RATES]),
    "cells with units": table('"Time","m"', [f'"{rate} req/s"' for rate in RATES]),
    "cells with another unit": table('"Time","m"', [f'"{60 * rate:.2f} rpm"' for rate in RATES]),
    "thousands": table('"Time","m"', [f'"{rate / 1000} K req/s"' for rate in RATES]),
    "for Excel": "sep=,\n" + table('"Time","m"', RATES),
    "Kibana": table('"@timestamp per minute","Count of records"',
                    [f'"{count:,}"' for count in COUNTS],
                    [f"May 6, 2026 @ 07:{minute:02d}:00.000" for minute in range(5)]),
    "CloudWatch, slashes": table("Timestamp,RequestCount per minute", COUNTS,
                                 [stamp.replace("-", "/") for stamp in STAMPS]),
    "a row that is missing": table('"Time","m"', [*RATES[:3], 34.881, *RATES[4:], 21.35, 21.35], [
        *STAMPS, "2026-05-06 07:06:00", "2026-05-06 07:07:00"]),
    "InfluxDB, annotated": "\n".join([
        "#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string",
        "#group,false,false,true,true,false,false,true", "#default,_result,,,,,,",
        ",result,table,_start,_stop,_time,_value,_field", *(
            f",,0,2026-05-06T07:00:00Z,2026-05-06T08:00:00Z,2026-05-06T07:0{i}:00Z,{rate},rps"
            for i, rate in enumerate(RATES))]) + "\n",
}


@pytest.mark.parametrize("shape", ALIKE)
def test_rows_are_intervals(tmp_path, shape):
    found = read(tmp_path, ALIKE[shape])
    assert isinstance(found.workload, RateTrace)
    assert found.workload.rate_qps[:5] == pytest.approx(RATES, rel=3e-3)
    assert found.workload.start_ms[:5] == pytest.approx(60_000.0 * np.arange(5))
    (note,) = found.notes
    rows = len(found.workload.rate_qps)
    assert f"{rows} rows read as {rows} intervals of " in note
    assert "1 min: " in note


def test_an_empty_cell_leaves_the_load_as_it_was(tmp_path):
    found = read(tmp_path, table('"Time","m"', [18.5, "", 30.5, "null", 21.5]))
    assert isinstance(found.workload, RateTrace)
    assert found.workload.rate_qps.tolist() == [18.5, 30.5, 21.5]
    assert found.workload.start_ms.tolist() == [0.0, 120_000.0, 240_000.0]


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(InputFileError) as caught:
        read(folder, text)
    return str(caught.value)


@pytest.mark.parametrize("preamble", ["", "sep=,\n", "# made today\n"])
def test_whole_numbers_are_refused_with_both_readings_and_what_decides(tmp_path, preamble):
    said = refusal(tmp_path, preamble + table('"Time","m"', COUNTS))
    assert "26.46 requests/s on the mean" in said
    assert "Rates, 1588 requests/s" in said
    command = said.partition("mean: ")[2].partition(". Rates")[0]
    assert command.startswith("sed ")
    for word, factor in (("requests", 60.0), ("qps", 1.0)):
        subprocess.run(command.replace("requests", word), shell=True, cwd=tmp_path, check=True)
        found = read_any_trace(tmp_path / "load.csv").workload
        assert isinstance(found, RateTrace)
        assert found.rate_qps == pytest.approx(np.array(COUNTS) / factor)


@pytest.mark.parametrize("header", ['"Time","GET /a","GET /b"', '"Time","p50","m"'])
def test_several_columns_are_refused_and_named_columns_are_added_up(tmp_path, header):
    text = table(header, [f"{rate},{2 * rate}" for rate in RATES])
    said = refusal(tmp_path, text)
    assert "--load-column" in said
    assert "--time-column 'Time' where each row is one request" in said
    first, second = (name.strip('"') for name in header.split(",")[1:])
    both = read(tmp_path, text, load_columns=(first, second)).workload
    one = read(tmp_path, text, load_columns=(second,)).workload
    assert isinstance(both, RateTrace)
    assert isinstance(one, RateTrace)
    assert both.rate_qps == pytest.approx(3 * np.array(RATES))
    assert one.rate_qps == pytest.approx(2 * np.array(RATES))
    assert isinstance(read(tmp_path, text, time_column="Time").workload, Recorded)
    with pytest.raises(InputFileError, match=r"no such column: got 'x'"):
        read(tmp_path, text, load_columns=("x",))


@pytest.mark.parametrize("cells", ["{} ms", "{}%", "{}"])
def test_a_metric_is_no_load_and_no_request(tmp_path, cells):
    said = refusal(tmp_path, table('"Time","latency p95"', [cells.format(r) for r in RATES]))
    assert "rows 1 min apart: intervals with a load, or requests" in said


@pytest.mark.parametrize("name", ["m", "rps"])
def test_a_decimal_comma_is_not_read_as_thousands(tmp_path, name):
    text = f"Time;{name}\n" + "".join(f"06.05.2026, 07:0{i};{str(rate).replace('.', ',')}\n"
                                      for i, rate in enumerate(RATES))
    said = refusal(tmp_path, text)
    subprocess.run(said.partition("as by ")[2], shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx(RATES)


def test_a_unit_besides_that_of_the_column_is_refused(tmp_path):
    text = table("time_ms,qps", RATES, ["0", "1000", "2000", "3000", "4000"])
    with pytest.raises(InvalidValueError, match="--unit: the column time_ms states another unit"):
        read(tmp_path, text, unit="s")


def test_a_unit_in_the_heading_that_cannot_be_is_refused_with_its_line(tmp_path):
    text = table("time_s,qps", RATES, [str(1714557600000 + 1000 * i) for i in range(5)])
    said = refusal(tmp_path, text)
    assert "line 2: times of our days in ms, and of a far future in s" in said
    assert said.count("export.csv") == 1


def test_points_in_numbers_are_not_guessed(tmp_path):
    said = refusal(tmp_path, table("time,requests", [900, "1.210", 2, "2.092", 1]))
    assert "a point in a number: of decimals, or between thousands: got '1.210'" in said
    text = "sep=;\nTime;Requests per min\n" + "".join(
        f"06.05.2026 07:0{i};{count // 1000}.{count % 1000:03d}\n"
        for i, count in enumerate(COUNTS))
    said = refusal(tmp_path, text)
    assert "--load-column 'Requests per min' for decimals" in said
    found = read(tmp_path, text, load_columns=["Requests per min"]).workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx(np.array(COUNTS) / 1000 / 60)
    subprocess.run(said.partition("as by ")[2], shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx(np.array(COUNTS) / 60)


def test_a_mark_is_replaced_beside_quoted_dates_with_commas(tmp_path):
    said = refusal(tmp_path, table("time,requests", ["1.137", "1.210", "2.218", "2.092", "900"], [
        f"May 6, 2026 @ 07:0{i}:00" for i in range(5)]))
    subprocess.run(said.partition("as by ")[2], shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx(np.array([*COUNTS[:4], 900]) / 60)


def test_a_counter_is_refused_with_the_command_that_makes_counts(tmp_path):
    folder = tmp_path / "a folder"  # other than that of the command, and quoted in it
    folder.mkdir()
    said = refusal(folder, "sep=,\n" + table("time,http_requests_total", np.cumsum([5, *COUNTS]),
                                   [*STAMPS, "2026-05-06 07:05:00"]))
    subprocess.run(said.partition("differences of its rows: ")[2], shell=True, cwd=tmp_path,
                   check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    assert found.rate_qps == pytest.approx(np.array(COUNTS) / 60)


@pytest.mark.parametrize("text", [
    "timestamp,path\n" + "".join(f"2026-05-06 07:00:0{i},/a{i}\n" for i in range(6)),
    "timestamp,tokens\n" + "".join(f"2026-05-06 07:00:{i * i:02d},{i}\n" for i in range(6)),
    "arrival_s,tokens\n" + "".join(f"{0.025 * i},{i}\n" for i in range(60)),
], ids=["texts", "no even times", "a constant rate"])
def test_rows_of_requests_stay_requests(tmp_path, text):
    assert isinstance(read(tmp_path, text).workload, Recorded)


def test_lines_of_milliseconds_since_1970_and_loads(tmp_path):
    found = read(tmp_path, "".join(f"{1778050800000 + 60_000 * i} {rate}\n"
                                   for i, rate in enumerate(RATES))).workload
    assert isinstance(found, RateTrace)
    assert found.end_ms == 300_000.0


DOCUMENTS = {
    "CloudWatch, metric data": (
        '{"MetricDataResults": [{"Id": "m", "Timestamps": ["2026-05-06T07:01:00Z", '
        '"2026-05-06T07:00:00Z", "2026-05-06T07:02:00Z"], "Values": [1200.0, 600.0, 900.0]}]}'),
    "CloudWatch, statistics, on several lines": (
        '{\n "Label": "RequestCount",\n "Datapoints": [\n'
        '  {"Timestamp": "2026-05-06T07:01:00Z", "Sum": 1200.0, "Unit": "Count"},\n'
        '  {"Timestamp": "2026-05-06T07:00:00Z", "Sum": 600.0, "Unit": "Count"},\n'
        '  {"Timestamp": "2026-05-06T07:02:00Z", "Sum": 900.0, "Unit": "Count"}\n ]\n}'),
    "Elasticsearch": (
        '{"took": 3, "aggregations": {"2": {"buckets": ['
        '{"key": 1778050800000, "doc_count": 600}, {"key": 1778050860000, "doc_count": 1200}, '
        '{"key": 1778050920000, "doc_count": 900}]}}}'),
    "Datadog": ('{"status": "ok", "series": [{"metric": "hits", "pointlist": '
                '[[1778050800000, 10.0], [1778050860000, 20.0], [1778050920000, 15.0]]}]}'),
    "InfluxDB": ('{"results": [{"series": [{"name": "http", "columns": ["time", "rate"], '
                 '"values": [["2026-05-06T07:00:00Z", 10.0], ["2026-05-06T07:01:00Z", 20.0], '
                 '["2026-05-06T07:02:00Z", 15.0]]}]}]}'),
    "lines of a value a minute": "".join(
        f'{{"time": "2026-05-06T07:0{i}:00Z", "value": {rate}}}\n'
        for i, rate in enumerate((10.5, 20.25, 15.75, 12.5))),
    "lines of rates": "".join(f'{{"time": "2026-05-06T07:0{i}:00Z", "rps": {rate}}}\n'
                              for i, rate in enumerate((10.0, 20.0, 15.0))),
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_command_that_a_refusal_of_a_document_names_works(tmp_path, document):
    said = refusal(tmp_path, DOCUMENTS[document])
    command = said.partition(": jq")[2].partition("; or")[0]
    subprocess.run("jq" + command, shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "load.csv").workload
    assert isinstance(found, RateTrace)
    rates = [10.5, 20.25, 15.75, 12.5] if "a value" in document else [10.0, 20.0, 15.0]
    assert found.rate_qps == pytest.approx(rates)


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_a_list_of_requests_becomes_lines(tmp_path):
    path = tmp_path / "list.json"
    path.write_text('[{"timestamp": 1778050800.5}, {"timestamp": 1778050801.25}]')
    with pytest.raises(InputFileError) as caught:
        read_any_trace(path)
    command = str(caught.value).partition("allowed: ")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    found = read_any_trace(tmp_path / "trace.jsonl").workload
    assert isinstance(found, Recorded)
    assert found.times_ms.tolist() == [0.0, 750.0]
