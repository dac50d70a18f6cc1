"""Every importer from the command line to the profile file, and what a damaged source leaves."""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ramsis.errors import InputFileError
from ramsis.profiles import load
from ramsis.profiles.importers import FORMATS, Given, import_profile
from ramsis.testing import check_importer
from tests.cli.command import refused, snapshot
from tests.fuzz.files import IMPORTED, Sample
from tests.profiles import reports, samples
from tests.profiles.test_run_importers import FILES, SAMPLES

LOG = "model,batch,start_s,finish_s,outcome,worker,correct\n" + "".join(
    f"small,1,{i},{i + 0.01 + i / 10_000:.4f},served,0,1\n" for i in range(30)
) + "small,1,31,31.5,failed,0,\n"
VEGETA = "".join(
    f'{{"attack":"","seq":{i},"code":200,"timestamp":"2026-03-04T14:39:{i:02}.250000000Z",'
    f'"latency":{20_000_000 + 10_000 * i},"bytes_out":0,"bytes_in":20,"error":"","body":null,'
    '"method":"GET","url":"http://host/v1"}\n' for i in range(40))
SOURCES: dict[str, Sample] = {
    **IMPORTED,
    "prometheus": IMPORTED["prometheus"]._replace(options=()),
    "stats-csv": Sample(samples.STATISTICS_CSV, "csv"),
    "quantiles-csv": Sample(samples.QUANTILES_CSV, "csv"),
    "long-csv": Sample(samples.LONG_CSV, "csv"),
    "request-log": Sample(LOG, "csv"),
    "instances": Sample("model,instance,batch,processes,latency_ms,throughput_rps\n"
                        "small,1g,1,1,7.5,133\nsmall,1g,2,1,11.5,174\n"
                        "small,2g,1,1,5.5,182\nlarge,1g,1,1,29.5,33\n", "csv",
                        ("--instance", "1g")),
    "tool-output": Sample(reports.PERF_CONSOLE_1, "txt", ("--model-name", "m")),
    "server-log": Sample(VEGETA, "txt", ("--batch", "1", "--model-name", "m")),
    "torchserve": Sample(reports.TORCHSERVE, "txt"),
    "table": Sample("model;batch_size;mean_ms;p95_ms;accuracy (%)\n"
                    "small;1;9,5;12,5;70,25\nsmall;2;14;18;70,25\nlarge;1;30;35;81,5\n", "csv"),
}
LATENCY = {
    "aiperf": r'("request_latency": \{\s*"unit": "ms",\s*"avg": )([\d.]+)',
    "aiperf-records": r'("request_latency":\{"value":)([\d.]+)',
    "perf-analyzer": r'("response_timestamps": \[)(\d+)',
    "perf-analyzer-of-the-tool": r'("response_timestamps":\s*\[)(\d+)',
    "trtexec": r'("latencyMs" : )([\d.]+)',
    "onnxruntime-perf-test": r"(small,)([\d.]+)",
    "onnxruntime-perf-test-console": r"(Average inference time cost: )([\d.]+)",
    "vllm-embedding": r'("mean_e2el_ms": )([\d.]+)',
    "mlperf-loadgen": r"(Mean latency \(ns\) *: )(\d+)",
    "prometheus": r"(_sum\{[^}]*\} )([\d.]+)",
    "clockwork": r"(b1 = )(\d+L)",
    "model-analyzer": r"(,99\.0,)([\d.]+)",
    "timm": r"(,100\.0,)([\d.]+)",
    "stats-csv": r"(small,70\.25,1,200,)([\d.]+)",
    "quantiles-csv": r"(small,1,200,)([\d.]+)",
    "long-csv": r"(small,1,)([\d.]+)",
    "request-log": r"(small,1,0,)([\d.]+)",
    "instances": r"(small,1g,1,1,)([\d.]+)",
    "tool-output": r"(    Avg latency: )(\d+)",
    "server-log": r'("latency":)(\d+)',
    "torchserve": r"(HandlerTime\.ms:)([\d.]+)",
    "table": r"(small;1;)([\d,]+)",
}
"""Where a sample has a latency, and what stands before it."""
LEFT_OUT = {
    "aiperf": "p1, p5, p10, p25, p75", "aiperf-records": "way to the server",
    "perf-analyzer-of-the-tool": "experiments at other loads, left out: 1",
    "onnxruntime-perf-test": "peak working set and CPU usage, left out",
    "onnxruntime-perf-test-console": "left out: p99.9",
    "mlperf-loadgen": "left out: p97.00, p99.90",
    "instances": "of an instance 1g with 1 processes side by side",
    "request-log": "requests that failed or were dropped, left out: 1",
    "model-analyzer": "rows with several requests in flight",
}


TABLES = ("model-analyzer", "timm", "stats-csv", "quantiles-csv", "long-csv", "request-log",
          "instances", "table")
"""Samples that are not files of one run each."""


def format_of(name: str) -> str:
    """The format of a sample."""
    return re.sub(r"-(records|console|of-the-tool)$", "", name)


def source(folder: Path, name: str, content: str | bytes) -> Path:
    """A file of a sample, beside an accuracy file."""
    folder.mkdir(exist_ok=True)
    accuracy = {"unit": "percent", "accuracy": {"m": 70, "small": 70.25, "large": 81.5}}
    (folder / "accuracy").write_text(json.dumps(accuracy))
    path = folder / f"source{'.jsonl' if name == 'aiperf-records' else ''}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def command(path: Path, out: Path, name: str) -> list[object]:
    return ["profile", "import", path, "--accuracy", path.with_name("accuracy"), "--out", out,
            *SOURCES[name].options]


@pytest.mark.parametrize("name", SOURCES)
def test_every_importer_writes_a_profile_and_says_what_it_left_out(run, tmp_path, name):
    out = tmp_path / "out.json"
    ran = run(*command(source(tmp_path, name, SOURCES[name].text), out, name))
    assert ran.code == 0, ran.err
    assert LEFT_OUT.get(name, "") in ran.err
    found = load(out)
    assert found.measurement["format"] == format_of(name)
    assert {model.accuracy for model in found.models} <= {0.7, 0.7025, 0.815}
    for model in found.models:
        assert model.batches[0].batch == 1
    assert run("profile", "check", out).code == 0


def test_every_format_but_that_of_a_folder_has_a_sample():
    assert set(map(format_of, SOURCES)) == set(FORMATS) - {"ramsis-artifact"}
    assert set(LATENCY) == set(SOURCES)


def twice(text: str) -> str:
    """A key or a part that stands there twice."""
    start = text.lstrip()[:2]
    return (text.replace("{", '{"key": 1, "key": 2, ', 1) if "{" in start
            else text + text.partition("\n")[2] if start[0].isalpha() else text + text)


def cut(text: str) -> str:
    """The first half, and of the line in the middle three quarters."""
    begin = text.rfind("\n", 0, len(text) // 2) + 1
    end = text.find("\n", begin)
    return text[: begin + 3 * ((len(text) if end < 0 else end) - begin) // 4]


DAMAGES: dict[str, Callable[[str], str | bytes]] = {
    "cut": cut, "twice": twice, "empty": lambda _: "", "blank": lambda _: " \n\n",
    "binary": lambda _: bytes(range(256)) * 8, "zeros": lambda _: bytes(1000),
    "packed": lambda text: gzip.compress(text.encode()),
    "another thing": lambda _: '{"hello": [1, 2, 3]}', "a list": lambda _: "[1, 2, 3]",
}


@pytest.mark.parametrize("damage", [*DAMAGES, "NaN", "-1", "1e400", '"x"', "huge"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_source_is_refused_in_a_line_and_leaves_nothing(run, tmp_path, name, damage):
    text = SOURCES[name].text
    if damage == "twice" and name in ("request-log", "server-log"):
        pytest.skip("rows of one batch may be alike")
    if (name, damage) == ("table", "NaN"):
        pytest.skip("a cell of a table may have no value")
    if damage in DAMAGES:
        path = source(tmp_path, name, DAMAGES[damage](text))
    elif damage == "huge":
        path = source(tmp_path, name, text)
        os.truncate(path, 201 * 2**20)
    else:
        changed, count = re.subn(LATENCY[name], rf"\g<1>{damage}", text, count=1)
        assert count == 1
        path = source(tmp_path, name, changed)
    (tmp_path / "there.json").write_text("of before")
    if damage != "huge":
        before = snapshot(tmp_path)
    refused(run(*command(path, tmp_path / "there.json", name)), 3, str(path))
    if damage != "huge":
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["aiperf", "aiperf-records", "perf-analyzer", "trtexec",
                                  "onnxruntime-perf-test", "onnxruntime-perf-test-console"])
def test_a_batch_size_is_asked_for(tmp_path, name):
    path = source(tmp_path, name, SOURCES[name].text)
    with pytest.raises(InputFileError, match=r"the batch size is not in this file.*--batch N"):
        import_profile(path, given=Given(model={"*": "m"}))


@pytest.mark.parametrize("name", [*SAMPLES, "long-csv", "model-analyzer", "timm"])
def test_importers_conform(tmp_path, name):
    path = source(tmp_path, name, SOURCES[name].text)
    batch = {"*": 1} if "--batch" in SOURCES[name].options else {}
    check_importer(format_of(name), path, tmp_path / "damaged", Given(batch))


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Server", "Offline"])
def test_a_summary_of_loadgen_is_whole_or_refused(tmp_path, scenario):
    text = (FILES / "loadgen" / f"{scenario}.txt").read_text()
    for end in range(0, len(text.rstrip()), 41):
        with pytest.raises(InputFileError):
            import_profile(source(tmp_path, "mlperf-loadgen", text[:end]), "mlperf-loadgen",
                           accuracy={"source": 0.5})


def test_errors_of_a_loadgen_run_are_said(run, tmp_path):
    text = SAMPLES["mlperf-loadgen"][1].replace("No errors encountered during test.",
                                                "2 ERRORS encountered. See detailed log.")
    ran = run(*command(source(tmp_path, "mlperf-loadgen", text), tmp_path / "out.json",
                       "mlperf-loadgen"))
    assert (ran.code, "loadgen met errors (2 ERRORS)" in ran.err) == (0, True)


@pytest.mark.parametrize(("name", "old", "words"), [
    ("prometheus", 'inference_duration_seconds_count{batch_size="4",model="large"}',
     "not all of buckets, sum and count"),
    ("clockwork", "000L;\n", "the last setting has no end"),
    ("onnxruntime-perf-test", "P99 Latency", "the statistics have no end"),
    ("onnxruntime-perf-test-console", "P99 Latency", "the statistics have no end"),
])
def test_lines_that_end_too_early_are_refused(run, tmp_path, name, old, words):
    text = SAMPLES[name][1]
    path = source(tmp_path, name, text[: text.rindex(old)])
    refused(run(*command(path, tmp_path / "out.json", name)), 3, words)


def test_records_of_aiperf_that_were_cut_between_lines_are_refused(run, tmp_path):
    shutil.copytree(FILES / "aiperf-b1", tmp_path / "run")
    records = tmp_path / "run" / "profile_export.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:-3]))
    ran = run("profile", "import", tmp_path / "run", "--batch", "1", "--out", tmp_path / "o.json")
    refused(ran, 3, "fewer records than the run had requests", "got 37", "40")


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_damaged_run_in_a_folder_is_not_passed_over(run, tmp_path, damage):
    samples.write_trtexec_runs(tmp_path / "runs")
    (tmp_path / "runs" / "notes.txt").write_text("passed over\n")
    (tmp_path / "a.json").write_text('{"small": 0.7}')
    arguments = ("profile", "import", tmp_path / "runs", "--accuracy", tmp_path / "a.json",
                 "--out", tmp_path / "out.json", "--batch", "b1.json=1", "--batch", "b4.json=4",
                 "--model-name", "small")
    ran = run(*arguments)
    assert ran.code == 0, ran.err
    assert "other files of the folder, left out: 1 (notes.txt)" in ran.err
    assert [item.batch for item in load(tmp_path / "out.json").models[0].batches] == [1, 4]
    (tmp_path / "out.json").unlink()
    file = tmp_path / "runs" / "b4.json"
    file.write_bytes(file.read_bytes()[:300] if damage == "cut" else b"")
    refused(run(*arguments), 3, str(file))
    assert not (tmp_path / "out.json").exists()


# A log beside the results of a benchmark is no result.
@pytest.mark.parametrize("name", [name for name in SOURCES if name != "server-log"])
def test_what_lies_in_a_folder_is_found(run, tmp_path, name):
    path = source(tmp_path / "results", name, SOURCES[name].text)
    if name in TABLES:
        path = path.rename(path.with_suffix(".csv"))
    ran = run("profile", "import", path.parent, *command(path, tmp_path / "out.json", name)[3:])
    assert ran.code == 0, ran.err
    assert load(tmp_path / "out.json").measurement["format"] == format_of(name)
    assert ("left out: 1 (accuracy)" in ran.err) == (name not in TABLES)


def test_tables_of_several_formats_in_a_folder_are_not_guessed(run, tmp_path):
    for name in ("stats-csv", "long-csv"):
        (tmp_path / f"{name}.csv").write_text(SOURCES[name].text)
    refused(run("profile", "import", tmp_path, "--out", tmp_path / "o.json"), 3,
            "several formats", "stats-csv (1)", "long-csv (1)")
    (tmp_path / "again.csv").write_text(SOURCES["long-csv"].text)
    refused(run("profile", "import", tmp_path, "--format", "long-csv", "--out",
                tmp_path / "o.json"), 3, "not one table", "again.csv, long-csv.csv")
