"""Files of sizes, and traces whose requests have sizes."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals import Recorded, read_any_trace, read_sizes
from ramsis.errors import InputFileError, InvalidValueError


def written(folder: Path, text: str, name: str = "sizes.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def recorded(path: Path, size: str | None = "", **options: str) -> Recorded:
    trace = read_any_trace(path, size=size, **options).workload
    assert isinstance(trace, Recorded)
    return trace


@pytest.mark.parametrize(("text", "values", "words"), [
    ("size\n8\n8\n32\n", [8, 32], "read as 3 sizes of requests, from size: median 8, 90 % up to "
                                  "32, largest 32 units"),
    ("8\n8\n32\n", [8, 32], "from the only column"),
    ("id;tokens\na;8\nb;32\n", [8, 32], "from tokens: median 8, 90 % up to 32, largest 32 tokens"),
    ("arrival_s,size\n0,8\n0.5,32\n", [8, 32], "read as 2 sizes of requests"),
    ("size,count\n8,3\n32,0\n64,1\n", [8, 64], "read as 3 sizes with their count"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,8,1\n", [8],
     "from ContextTokens"),
    ("Timestamp,Model,Request tokens,Response tokens\n5,a,8,9\n", [8], "from Request tokens"),
    ('{"size": 8}\n{"size": 32}\n', [8, 32], "read as 2 sizes of requests"),
    ('{"timestamp": 0, "input_length": 8, "output_length": 3}\n', [8], "from input_length"),
])
def test_sizes_are_read(tmp_path, text, values, words):
    read = read_sizes(written(tmp_path, text))
    assert read.distribution.values.tolist() == values
    assert words in read.note


def test_a_histogram_has_its_counts(tmp_path):
    read = read_sizes(written(tmp_path, "tokens,count\n8,3\n32,1\n8,4\n"))
    assert read.distribution.probability.tolist() == [7 / 8, 1 / 8]
    assert read.unit == "tokens"


def test_a_column_can_be_named(tmp_path):
    path = written(tmp_path, "prompt,weight_of_it\n8,1\n16,3\n")
    assert read_sizes(path, column="weight_of_it").distribution.values.tolist() == [1, 3]


@pytest.mark.parametrize(("text", "message"), [
    ("", "no sizes|file is empty"),
    ("size\n", "no sizes"),
    ("size\n8\n0\n", "line 3: not a size: got '0'; allowed: a whole number from 1 to 65536"),
    ("size\n8\n8.5\n", "line 3: not a size: got '8.5'"),
    ("size\nnan\n", "line 2: not a size: got 'nan'"),
    ("size\n-4\n", "line 2: not a size: got '-4'"),
    ("size\n\n70000\n", "line 3: not a size: got '70000'; .*count in a larger unit"),
    ("size,count\n8,-1\n", "line 2: not a count: got '-1'"),
    ("size,count\n8,0\n", "count: no requests: got 0"),
    ("a,b\n8,9\n", "line 1: no column of sizes: got 'a, b'; allowed: a column size, or --size-co"),
    ("tokens,chars\n8,9\n", "several columns may hold the size: got 'tokens, chars'"),
    ('{"size": 0}\n', "line 1, size: not a size: got '0'"),
    ('{"size": "x"}\n', "line 1, size: not a size: got 'x'"),
    ('{"a": 3}\n', "line 1: no column of sizes: got 'a'"),
    ('{"size": 3\n', "not a JSON object in each line"),
])
def test_what_holds_no_sizes_is_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        read_sizes(written(tmp_path, text))


def test_a_trace_keeps_its_sizes(tmp_path):
    path = written(tmp_path, "arrival_s,size\n" + "".join(
        f"{i / 10},{i + 1}\n" for i in range(100)))
    trace = recorded(path)
    assert trace.sizes.tolist() == list(range(1, 101))
    assert "sizes from size: median 50, 90 % up to 90, largest 100 units" in (
        read_any_trace(path, size="").notes)
    for shorter in (trace.until(3000.0), trace.scaled(2.0).until(1500.0)):
        assert shorter.sizes.tolist() == list(range(1, 31))
    assert len(trace.content()) == 3


def test_without_being_asked_for_sizes_a_trace_is_as_before(tmp_path):
    path = written(tmp_path, "arrival_s,size\n0,1\n0.5,0\n")
    trace = recorded(path, None)
    assert trace.sizes is None
    assert len(trace.content()) == 2
    assert not any("sizes" in note for note in read_any_trace(path).notes)


def test_sizes_follow_their_requests_into_order(tmp_path):
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:17:0{second}.5,{size},1\n" for second, size in ((3, 30), (1, 10), (2, 20)))
    assert recorded(written(tmp_path, azure)).sizes.tolist() == [10, 20, 30]  # type: ignore[union-attr]
    lines = "".join(json.dumps({"timestamp": at, "input_length": size, "output_length": 1}) + "\n"
                    for at, size in ((3000, 30), (1000, 10), (2000, 20)))
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    assert recorded(path).sizes.tolist() == [10, 20, 30]  # type: ignore[union-attr]


def test_logs_of_requests_have_sizes_in_order_of_arrival(tmp_path):
    rows = [(3.0, 2.5, 5), (3.2, 0.4, 28), (2.0, 1.9, 1)]  # end, duration, size
    text = "finish_s,duration_s,model,status,tokens\n" + "".join(
        f"{end},{took},a,200,{size}\n" for end, took, size in rows)
    trace = recorded(written(tmp_path, text), trace_format="request-log")
    assert trace.sizes.tolist() == [1, 5, 28]


def test_requests_of_a_coarse_clock_keep_their_sizes(tmp_path):
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.integers(0, 50, 200))
    sizes = 1 + seconds  # tells the second of each request
    text = "arrival_s,size\n" + "".join(
        f"{at},{size}\n" for at, size in zip(seconds, sizes, strict=True))
    trace = recorded(written(tmp_path, text))
    assert (trace.sizes - trace.sizes[0] == trace.at_ticks.times_ms / 1000.0).all()


@pytest.mark.parametrize(("text", "message"), [
    ("arrival_s,size\n0,1\n0.5,0\n", "line 3: not a size: got '0'"),
    ("arrival_s,size\n0,1\n0.5,2.5\n", "line 3: not a size: got '2.5'"),
    ("arrival_s,size\n0,1\n0.5,\n", "line 3: not a size: got ''"),
    ("arrival_s,model\n0,1\n", "no column of sizes: got 'arrival_s, model'"),
    ("0.1\n0.2\n", "no column of sizes"),
])
def test_a_trace_without_sizes_is_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        read_any_trace(written(tmp_path, text), size="", unit="s")


def test_a_recording_needs_a_size_for_each_request():
    with pytest.raises(InvalidValueError, match="sizes: not a size for each request: got 1"):
        Recorded([0.0, 1.0], sizes=[5])
