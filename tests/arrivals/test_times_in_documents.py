"""Times under keys of any name in documents, and what is refused with its reason."""

import json
import subprocess
from pathlib import Path

import pytest

from ramsis.arrivals.reading import read_any_trace
from ramsis.arrivals.trace import Recorded
from ramsis.errors import InputFileError, InvalidValueError, RamsisError

EPOCH_S = 1_777_629_600.0


def written(folder: Path, document: object, indent: int | None = None) -> Path:
    path = folder / "file.json"
    path.write_text(json.dumps(document, indent=indent) + "\n")
    return path


def spans(key: str, factor: float, count: int = 200) -> list[dict[str, object]]:
    return [{"name": "infer", key: int((EPOCH_S + i / 10 + 0.0123 * (i % 7)) * factor)}
            for i in range(count)]


@pytest.mark.parametrize(("key", "factor"), [("startTime", 1e6), ("begun", 1e3), ("at", 1.0)])
def test_times_since_1970_are_told_by_their_values(tmp_path, key, factor):
    path = written(tmp_path, {"data": [{"spans": spans(key, factor)}]})
    workload = read_any_trace(path).workload
    assert workload.load_qps == pytest.approx(10.0, rel=0.02)


def test_numbers_in_texts_count(tmp_path):
    path = tmp_path / "journal.json"
    path.write_text("".join(
        json.dumps({"__REALTIME_TIMESTAMP": str(int((EPOCH_S + i / 20) * 1e6)), "MESSAGE": "x"})
        + "\n" for i in range(300)))
    assert read_any_trace(path).workload.load_qps == pytest.approx(20.0, rel=0.01)


def test_several_times_are_named_and_each_of_them_is_taken(tmp_path):
    path = written(tmp_path, {"spans": [
        {"startTimeUnixNano": str(int((EPOCH_S + i / 10) * 1e9)),
         "endTimeUnixNano": str(int((EPOCH_S + i / 10 + 0.03) * 1e9))} for i in range(200)]})
    with pytest.raises(InvalidValueError, match="several keys may be the time") as refused:
        read_any_trace(path)
    for key in ("spans.startTimeUnixNano", "spans.endTimeUnixNano"):
        assert key in str(refused.value)
        assert read_any_trace(path, time_column=key).workload.load_qps == pytest.approx(10.0)


def test_a_document_over_several_lines_is_refused_with_the_filter_for_its_list(tmp_path):
    path = written(tmp_path, {"a": [{"b": spans("startTime", 1e6)}]}, indent=1)
    with pytest.raises(InputFileError, match=r"jq -c '\.a\[\]\.b\[\]' \S+/file\.json"):
        read_any_trace(path)


@pytest.mark.parametrize("document", [
    {"date": "20260501", "request_throughput": 15.0, "ttfts": [0.03, 0.04]},
    {"latency": {"average": 30.2, "p99": 80}, "requests": {"total": 900}, "duration": 60},
    {"results": [{"command": "python run.py", "mean": 0.03, "times": [0.02, 0.04]}]},
])
def test_summaries_hold_no_times_of_requests(tmp_path, document):
    with pytest.raises(RamsisError, match="no key holds times of requests"):
        read_any_trace(written(tmp_path, document))


def test_dates_with_the_year_last_are_refused_with_what_turns_them(tmp_path):
    path = tmp_path / "us.csv"
    path.write_text("time\n5/3/2026, 10:00:00\n05/13/2026 10:00:01\n05/13/2026 1:00:01 pm\n")
    with pytest.raises(InputFileError, match="the year first; where the month is") as caught:
        read_any_trace(path)
    command = str(caught.value).partition("as by ")[2].partition("; where the day")[0]
    path.write_text(subprocess.check_output(f"{command} {path}", shell=True, text=True))
    found = read_any_trace(path).workload
    assert isinstance(found, Recorded)
    assert found.times_ms.tolist() == [0.0, 864_001_000.0, 874_801_000.0]


@pytest.mark.parametrize(("document", "says"), [
    ([1777629600.5, 1777629601.5], r"a JSON list, not a time a line; allowed: jq -r '\.\[\]'"),
    ({"times": [1777629600.5, 1777629601.5]},
     r"a list of times.*got 'times'; allowed: jq -r '\.\[\"times\"\]\[\]' \S+/file.json"),
])
def test_lists_of_times_are_refused_with_the_command_that_makes_lines(tmp_path, document, says):
    path = tmp_path / "file.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RamsisError, match=says):
        read_any_trace(path)


def test_a_list_under_the_name_of_a_count_holds_requests(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"requests": [{"ts": 1777629600.5}, {"ts": 1777629601.5}]}))
    assert read_any_trace(path).workload.times_ms.tolist() == [0, 1000]
