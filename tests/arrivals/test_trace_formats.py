"""Public data sets and other traces by the name of their format."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace_formats import TRACE_FORMATS, Trace, detect_trace, read_trace
from ramsis.arrivals.trace_formats.instants import Instants
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.testing import check_reader
from tests.cli.command import refused

AZURE_LLM = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
FUNCTIONS_2019 = """\
HashOwner,HashApp,HashFunction,Trigger,1,2,3
a,b,c,http,60,0,6
d,e,f,timer,0,120,6
"""
FUNCTIONS_2021 = """\
app,func,end_timestamp,duration
a,x,5160.25,0.125
c,z,5219.5,0.5
b,y,5241.5,42.25
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118.5,GPT-4,417,0,417,API log
"""
MOONCAKE = """\
{"timestamp": 0, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 10535, "input_length": 672, "output_length": 26, "hash_ids": [46, 47]}
{"timestamp": 27482, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}
"""
VIDUR = """\
arrived_at,num_prefill_tokens,num_decode_tokens
0.0,591,140
0.125,547,248
"""
GENTD26 = """\
gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length
2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G0000,63.0
2024-11-15 18:17:06,TXT_2_IMG,SUCCEED,36.0,G0001,93.0
2024-11-15 18:16:14,TXT_2_IMG,FAILED,43.0,G0001,93.0
"""
VEGETA = """\
1772366400000000000,200,8265410,312,99,,,,0,POST,http://a/infer,
1772366400025000000,0,30000000,312,0,EOF,,,1,POST,http://a/infer,
1772366400050500000,200,8265410,312,99,,,,2,POST,http://a/infer,
"""
RATES = "100\n250\n0\n50\n"
LINES = '{"id": 1, "at": 1.5}\n{"id": 2, "at": 2.0}\n'
TIMESTAMPS = "id;seen_ms\na;1500\nb;2000\n"
SAMPLES = {
    "azure-llm": AZURE_LLM, "azure-functions-2019": FUNCTIONS_2019,
    "azure-functions-2021": FUNCTIONS_2021, "burstgpt": BURSTGPT, "mooncake": MOONCAKE,
    "vidur": VIDUR, "alibaba-gentd26": GENTD26, "jsonl": LINES, "timestamps": TIMESTAMPS,
    "per-second-rates": RATES, "request-log": VEGETA,
}
OPTIONS = {"jsonl": {"time_column": "at", "unit": "s"}, "timestamps": {"time_column": "seen_ms"}}
LOADS = ("azure-functions-2019", "per-second-rates")
UNTOLD = ("timestamps", "per-second-rates")
FOUND = {
    "azure-llm": [0.0, 52.0, 98.189],
    "azure-functions-2021": [0.0, 39_125.0, 58_875.0],
    "burstgpt": [0.0, 40_000.0, 113_500.0],
    "mooncake": [0.0, 10_535.0, 27_482.0],
    "vidur": [0.0, 125.0],
    "request-log": [0.0, 25.0, 50.5],
    "alibaba-gentd26": [0.0, 4_704_000.0, 4_756_000.0],
    "jsonl": [0.0, 500.0],
    "timestamps": [0.0, 500.0],
    "azure-functions-2019": [1.0, 2.0, 0.2],
    "per-second-rates": [100.0, 250.0, 0.0, 50.0],
}
"""Times in ms since the first, or loads per second."""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    content = text.encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    elif name.endswith(".zst"):
        content = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    path.write_bytes(content)
    return path


def test_every_format_has_a_sample_here():
    assert set(SAMPLES) == set(TRACE_FORMATS)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("format", SAMPLES)
def test_every_format_is_read_compressed_too(tmp_path, format, ending):
    path = written(tmp_path, SAMPLES[format], "trace.csv" + ending)
    assert detect_trace(path) == (format if format not in UNTOLD else None)
    found = read_trace(path, format, **OPTIONS.get(format, {}))
    values = found.rate_qps if format in LOADS else found.times_ms
    np.testing.assert_allclose(values, FOUND[format], rtol=0, atol=1e-6)


def test_what_goes_back_in_time_is_sorted_and_counted(tmp_path):
    assert read_trace(written(tmp_path, FUNCTIONS_2021), "azure-functions-2021").notes == (
        "lines that go back in time, sorted: 1",)
    assert read_trace(written(tmp_path, VIDUR), "vidur").notes == ()


def test_minute_bins_are_added_up_over_functions(tmp_path):
    found = read_trace(written(tmp_path, FUNCTIONS_2019), "azure-functions-2019")
    assert (found.step_ms, found.notes) == (60_000.0, ("invocations of 2 functions, added up",))


@pytest.mark.parametrize(("text", "column"), [
    (RATES, None), ("rate_qps\n" + RATES, None), ("t,qps\n0,100\n1,250\n2,0\n3,50\n", "qps")])
def test_rates_by_second(tmp_path, text, column):
    found = read_trace(written(tmp_path, text), "per-second-rates", time_column=column)
    assert (found.step_ms, found.times_ms) == (1000.0, None)
    assert found.rate_qps.tolist() == [100.0, 250.0, 0.0, 50.0]


@pytest.mark.parametrize("text", [
    "1\n2.5\n3e2\n", "1\n\n2.5\n3e2", "1\r\n2.5\r\n3e2\r\n", "1 \n 2.5\n3e2\n"])
def test_rates_are_the_same_by_block_and_by_line(tmp_path, text, monkeypatch):
    monkeypatch.setattr("ramsis.arrivals.trace_formats.files._BLOCK_BYTES", 4)
    found = read_trace(written(tmp_path, text), "per-second-rates").rate_qps
    assert found.tolist() == [1.0, 2.5, 300.0]
    for bad in ("-1", "1 2", "nan", "inf", "x"):
        with pytest.raises(InputFileError, match=r"line 3: not a rate"):
            read_trace(written(tmp_path, f"1\n2\n{bad}\n"), "per-second-rates")


def test_json_lines_need_a_key_and_a_unit(tmp_path):
    path = written(tmp_path, LINES, "t.jsonl")
    iso = written(tmp_path, '{"at": "2024-05-01T00:00:00Z"}\n\n{"at": "2024-05-01T00:00:01Z"}\n')
    times = read_trace(iso, "jsonl", time_column="at").times_ms
    assert times.tolist() == [0.0, 1000.0]
    with pytest.raises(InvalidValueError, match=r"no key holds times.*--time-column KEY"):
        read_trace(path, "jsonl")
    with pytest.raises(InvalidValueError, match=r"line 1: numbers need a unit"):
        read_trace(path, "jsonl", time_column="at")


def test_timestamps_by_name_are_those_without_one(tmp_path):
    path = written(tmp_path, TIMESTAMPS)
    found = read_trace(path, "timestamps", time_column="seen_ms").times_ms
    assert found is not None
    assert found.tolist() == read_timestamps(path, time_column="seen_ms").tolist() == [0.0, 500.0]
    with pytest.raises(InvalidValueError, match="numbers need a unit"):
        read_trace(written(tmp_path, "1\n2\n"), "timestamps")


def test_a_unit_that_is_stated_counts_more_than_the_formats(tmp_path):
    def read(format: str, unit: str) -> Trace:
        return read_trace(written(tmp_path, SAMPLES[format]), format, unit=unit)

    assert read("vidur", "ms").times_ms == pytest.approx([0.0, 0.125])
    assert read("mooncake", "s").times_ms == pytest.approx([0.0, 1.0535e7, 2.7482e7])
    assert read("azure-functions-2021", "ms").times_ms == pytest.approx([0.0, 39.125, 58.875])
    hours = read("azure-functions-2019", "h")
    assert hours.step_ms == 3.6e6
    assert hours.rate_qps == pytest.approx([60 / 3600, 120 / 3600, 12 / 3600])
    assert read("per-second-rates", "min").step_ms == 60_000.0
    with pytest.raises(InvalidValueError, match="unit"):
        read("vidur", "days")


def test_mooncakes_keys_with_seconds(tmp_path):
    def lines(times: list[float]) -> Path:
        return written(tmp_path, "".join(
            json.dumps({"timestamp": t, "input_length": 1, "output_length": 1}) + "\n"
            for t in times))

    fractions = [round(0.028 * i, 3) for i in range(600)]
    found = read_trace(lines(fractions), "mooncake")
    assert found.times_ms == pytest.approx(1000.0 * np.array(fractions))
    assert any("taken as seconds" in note for note in found.notes)
    assert read_trace(lines(fractions), "mooncake", unit="ms").times_ms == pytest.approx(fractions)
    whole = [float(i // 35) for i in range(600)]
    with pytest.raises(InputFileError, match=r"requests/s if they are ms.*--unit s, or --unit ms"):
        read_trace(lines(whole), "mooncake")
    times = read_trace(lines(whole), "mooncake", unit="s").times_ms
    assert times[-1] == 17_000.0


def test_objects_in_lists_of_a_line_are_requests(tmp_path):
    path = written(tmp_path, "".join(json.dumps(
        {"session": s, "date": "2026-06-01", "turns": [
            {"turn": 0, "calls": [{"timestamp": f"2026-06-01T00:00:{10 * s + 3 * i:02d}.5Z"}
                                  for i in range(5)]}]}) + "\n" for s in range(2)))
    found = read_trace(path, "jsonl")
    assert found.times_ms.tolist() == [0.0, 3e3, 6e3, 9e3, 10e3, 12e3, 13e3, 16e3, 19e3, 22e3]
    assert found.notes == ("times under turns.calls.timestamp, all in the lists of a line",)


@pytest.mark.parametrize(("format", "text", "says"), [
    ("vidur", VIDUR + "x,1,2\n", r"line 4: not a timestamp of the same kind.*'x'"),
    ("vidur", VIDUR.replace("0.125", "nan"), "line 3: not a timestamp"),
    ("vidur", "arrived_at,num_prefill_tokens\n0,1\n", "no such column: got 'num_decode_tokens'"),
    ("vidur", VIDUR[:VIDUR.index("\n") + 1], "no requests"),
    ("azure-functions-2021", FUNCTIONS_2021.replace("42.25", "-1"), "line 4: not a duration"),
    ("azure-functions-2021", FUNCTIONS_2021 + "a,b,3\n", "line 5: line has no time column"),
    ("azure-functions-2019", FUNCTIONS_2019.replace("120", "x"), "line 3, minute 2: not a count"),
    ("azure-functions-2019", FUNCTIONS_2019.replace(",120,6", ""), "line 3, minute 2"),
    ("azure-functions-2019", FUNCTIONS_2019[:45], "empty trace"),
    ("mooncake", MOONCAKE[:-20], r"line 3: not valid JSON, cut off or damaged"),
    ("mooncake", MOONCAKE.replace('"timestamp": 10535', '"time": 3'), "line 2: no such key"),
    ("mooncake", MOONCAKE.replace("10535", "null"), "line 2, timestamp: not a timestamp"),
    ("mooncake", MOONCAKE + "[]\n", "line 4: not a JSON object"),
    ("mooncake", MOONCAKE + '{"timestamp": NaN}\n', "line 4: not a timestamp"),
    ("alibaba-gentd26", GENTD26.replace("11-15 18:17", "13-15 18:17"), "line 3: not a timestamp"),
    ("per-second-rates", "5\n-1\n", "line 2: not a rate"),
    ("per-second-rates", "0\n0\n", "empty trace"),
    ("per-second-rates", "a,b\n1,2\n", "line 1: several columns"),
])
def test_a_bad_trace_is_refused_by_line(tmp_path, format, text, says):
    path = written(tmp_path, text)
    with pytest.raises(InputFileError, match=says) as caught:
        read_trace(path, format)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_json_lines_do_not_go_back(tmp_path):
    path = written(tmp_path, '{"t": 2}\n{"t": 1}\n')
    with pytest.raises(InputFileError, match="line 2: timestamp goes back in time: got 1"):
        read_trace(path, "jsonl", time_column="t", unit="s")


def test_samples_of_gentd26_are_told_from_its_requests(tmp_path):
    path = written(tmp_path, "timestamp_anon,value,container_ip,request_type\n1,2,x,API\n")
    with pytest.raises(InputFileError, match=r"not its requests.*lora_request_trace\.csv"):
        detect_trace(path)


@pytest.mark.parametrize("text", ["", "1\n2\n", "arrival_ms,x\n1,2\n", "0 100\n", "a,1,2,3\n"])
def test_other_files_are_left_to_their_readers(tmp_path, text):
    assert detect_trace(written(tmp_path, text)) is None


def test_zst_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    (tmp_path / "a.csv.zst").write_bytes(b"")
    with pytest.raises(InvalidValueError, match=r"extra 'zstd'.*pip install 'ramsis\[zstd\]'"):
        detect_trace(tmp_path / "a.csv.zst")


@pytest.mark.parametrize("name", ["damaged.csv.gz", "damaged.csv.zst", "missing.csv"])
def test_a_damaged_file_is_refused(tmp_path, name):
    if name.endswith("zst"):
        pytest.importorskip("zstandard")
    if "damaged" in name:
        (tmp_path / name).write_bytes(b"no archive at all")
    with pytest.raises(InputFileError, match="cannot read"):
        detect_trace(tmp_path / name)


def test_columns_at_once_and_texts_one_by_one_give_the_same():
    rng = random.Random(4)

    def stamp() -> str:
        fraction = f".{rng.randrange(10**9):09d}"[: rng.randrange(2, 11)]
        return (f"{rng.randint(1971, 2100)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
                f"{rng.choice('T ')}{rng.randrange(24):02d}:{rng.randrange(60):02d}:"
                f"{rng.randrange(60):02d}{fraction}")

    for zone in ("", "Z", "+00:00", "+05:30"):
        texts = [stamp() + zone for _ in range(500)]
        instants = Instants(texts[0], None, "here")
        found = instants.column(pd.Series(texts, dtype=object))
        assert found.tolist() == [instants.one(text) for text in texts]
        for bad in ("2024-02-30 00:00:00.5", "2024-01-01 24:00:00.5", "2024-01-01 00:00:00.",
                    "2024-01-01 00:00:00.5x", "2024-01-01", "é"):
            assert instants.column(pd.Series([*texts, bad + zone], dtype=object)) is None


@pytest.mark.parametrize("format", SAMPLES)
def test_damaged_traces_end_in_one_line(tmp_path, format):
    def read(path: Path) -> None:
        detect_trace(path)
        read_trace(path, format, **OPTIONS.get(format, {}))
        read_timestamps(path, unit="s")

    check_reader(read, written(tmp_path, SAMPLES[format]), tmp_path / "damaged")


def test_the_real_azure_trace_is_the_same_by_name(reference_dir):
    path = reference_dir / "azure_llm_code_trace.csv"
    assert detect_trace(path) == "azure-llm"
    found = read_trace(path, "azure-llm").times_ms
    assert len(found) == 8819
    assert found.tolist() == read_timestamps(path).tolist()


@pytest.mark.slow
def test_commands_take_traces_by_format(run, tmp_path, tiny_file):
    lines = "".join(json.dumps({"timestamp": 20 * i, "input_length": 1, "output_length": 1}) + "\n"
                    for i in range(100))
    path = written(tmp_path, lines, "mooncake.jsonl")
    common = ("simulate", "--profiles", tiny_file, "--slo-ms", "100", "--workers", "2",
              "--scheduler", "greedy", "--json")
    ran = run(*common, "--trace", path)
    assert ran.rows[0]["load_qps"] == pytest.approx(50, rel=0.02)
    rates = written(tmp_path, "50\n80\n", "rates.txt")
    ran = run(*common, "--trace", rates, "--trace-format", "per-second-rates")
    assert ran.code == 0, ran.err
    assert run("arrivals", "fit", path).code == 0
    refused(run("arrivals", "fit", rates, "--trace-format", "per-second-rates"), 3,
            "holds loads, not requests")
    sorted_ = written(tmp_path, FUNCTIONS_2021, "f.csv")
    ran = run(*common, "--trace", sorted_)
    assert "lines that go back in time, sorted: 1" in ran.err
