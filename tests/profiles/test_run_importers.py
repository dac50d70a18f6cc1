"""Importers of tools that write a file for each run.

The files in ``tool_files`` were written by the tools themselves: AIPerf 0.13 and perf_analyzer
2.41 against a local server, MLPerf's loadgen 6.0, and Prometheus' Python client. The others follow
the published formats.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import ModelProfile, ProfileSet
from ramsis.profiles.importers import Given, import_profile
from tests.cli.command import refused
from tests.profiles.reports import TRTEXEC
from tests.profiles.samples import trtexec_times, write_trtexec_runs

FILES = Path(__file__).with_name("tool_files")


def perf_analyzer(latency_us: list[int], mode: str = "concurrency", value: float = 1) -> Any:
    requests = [{"timestamp": 1_700_000_000_000_000_000 + 10**8 * i, "sequence_id": 0,
                 "response_timestamps": [1_700_000_000_000_000_000 + 10**8 * i + 1000 * latency]}
                for i, latency in enumerate(latency_us)]
    return {"experiment": {"mode": mode, "value": value}, "requests": requests,
            "window_boundaries": [1_700_000_000_000_000_000]}


PERF_ANALYZER = {"experiments": [perf_analyzer([4000 + 10 * i for i in range(120)])],
                 "version": "2.59.0", "service_kind": "triton", "endpoint": ""}
VLLM: dict[str, Any] = {
    "date": "20260101-120000", "backend": "openai-embeddings", "model_id": "small",
    "num_prompts": 200, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 1,
    "duration": 2.2, "completed": 200, "total_input_tokens": 6400, "total_input_sequences": 800,
    "request_throughput": 90.9, "input_sequence_throughput": 363.6,
    "total_token_throughput": 2909.0, "mean_e2el_ms": 10.8, "median_e2el_ms": 10.5,
    "std_e2el_ms": 1.1, "p95_e2el_ms": 12.9, "p99_e2el_ms": 14.2,
}
ORT_ROWS = "".join(f"small,{0.004 + i / 1e5:.6g},180355072,25,{i}\n" for i in range(120))
ORT_STATISTICS = """\

Min Latency: 0.004 s
Max Latency: 0.00519 s
P50 Latency: 0.0046 s
P90 Latency: 0.00508 s
P95 Latency: 0.00514 s
P99 Latency: 0.00518 s
P999 Latency: 0.00519 s
"""
ORT_CONSOLE = """\
Setting intra_op_num_threads to 1
Session creation time cost: 0.0467 s
First inference time cost: 12 ms
Total inference time cost: 0.5514 s
Total inference requests: 120
Average inference time cost: 4.595 ms
Total inference run time: 0.5517 s
Number of inferences per second: 217.5
Avg CPU usage: 25 %
Peak working set size: 180355072 bytes
Avg CPU usage:25
Peak working set size:180355072
Runs:120
""" + ORT_STATISTICS.lstrip()
CLOCKWORK = """\
weights = 8370000L;
b1 = 2690000L;
b2 = 3930000L; b4 = 5630000L;
// batches beyond
b8 = 9520000L;
b16 = 17300000L;
"""
SAMPLES: dict[str, tuple[str, str]] = {
    "aiperf": ("a.json", (FILES / "aiperf-b4" / "profile_export_aiperf.json").read_text()),
    "aiperf-records": ("a.jsonl", (FILES / "aiperf-b4" / "profile_export.jsonl").read_text()),
    "perf-analyzer": ("profile_export.json", json.dumps(PERF_ANALYZER)),
    "trtexec": ("times.json", trtexec_times([5.0 + i / 100 for i in range(120)])),
    "onnxruntime-perf-test": ("result.csv", ORT_ROWS + ORT_STATISTICS),
    "onnxruntime-perf-test-console": ("out.txt", ORT_CONSOLE),
    "vllm-embedding": ("vllm.json", json.dumps(VLLM)),
    "mlperf-loadgen": ("mlperf_log_summary.txt", (FILES / "loadgen/SingleStream.txt").read_text()),
    "prometheus": ("metrics.txt", (FILES / "prometheus.txt").read_text()),
    "clockwork": ("model.measurements", CLOCKWORK),
}


class Half(dict[str, float]):
    """Accuracy one half for every model."""

    def get(self, key: str, default: Any = None) -> Any:
        return 0.5


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(path: Path, batch: int | dict[str, int] | None = None, model: str | None = None,
         metric: str | None = None, format: str = "auto") -> ProfileSet:
    batches = {"*": batch} if isinstance(batch, int) else batch or {}
    given = Given(batches, {"*": model} if model else {}, metric)
    return import_profile(path, format, accuracy=Half(any=0.5), given=given)


def only(found: ProfileSet) -> ModelProfile:
    (model,) = found.models
    return model


def notes(found: ProfileSet) -> str:
    return "; ".join(found.measurement.get("notes", ()))  # type: ignore[arg-type]


def test_a_run_of_aiperf_gives_samples_and_its_summary_model():
    found = read(FILES / "aiperf-b1", batch=1)
    model = only(found)
    (batch,) = model.batches
    summary = json.loads((FILES / "aiperf-b1" / "profile_export_aiperf.json").read_text())
    latency = summary["request_latency"]
    assert (model.name, batch.n) == ("bge-small", 40)
    assert batch.mean_ms == pytest.approx(latency["avg"], abs=1e-6)
    assert batch.p95_ms == pytest.approx(latency["p95"], abs=1e-6)
    assert batch.std_ms == pytest.approx(latency["std"], abs=1e-6)
    assert batch.quantiles_ms is not None
    alone = only(read(FILES / "aiperf-b1" / "profile_export_aiperf.json", batch=1))
    assert alone.batches[0].p95_ms == pytest.approx(latency["p95"], abs=1e-6)
    assert alone.batches[0].quantiles_ms is None


def test_a_summary_of_aiperf_may_not_state_the_requests_in_flight(tmp_path):
    found = read(written(tmp_path, *change("aiperf", '"concurrency": 1', '"rate": 1')), batch=1)
    assert "does not state how many requests were in flight" in notes(found)


def test_runs_of_a_folder_of_several_formats_are_joined_by_pattern():
    found = read(FILES, {"*b1/*": 1, "aiperf-b4/*": 4}, format="aiperf")
    assert [item.batch for item in only(found).batches] == [1, 4]
    assert "other files of the folder, left out: 6 (prometheus.txt, " in notes(found)
    with pytest.raises(InputFileError, match=r"several formats.*aiperf \(4\).*--format"):
        read(FILES)


@pytest.mark.parametrize(("file", "batch", "message"), [
    (SAMPLES["vllm-embedding"], 2, "--batch: differs.*, 4: got 2"),
    (SAMPLES["trtexec"], {"b1/*": 1}, "fits no file of the source: got 'b1/"),
    (("s.csv", "model,accuracy,batch,p95_s\na,70,1,0.01\n"), 1,
     "the table has it in column batch"),
])
def test_batch_sizes_that_do_not_fit_the_files_are_refused(tmp_path, file, batch, message):
    with pytest.raises(InvalidValueError, match=message):
        read(written(tmp_path, *file), batch)


def test_a_file_of_perf_analyzer_gives_what_it_printed():
    found = read(FILES / "perf-analyzer", batch=1, model="small")
    (batch,) = only(found).batches
    assert batch.n == 123
    assert batch.mean_ms == pytest.approx(48.578, abs=0.001)  # "Avg latency: 48578 usec"
    assert batch.p50_ms == pytest.approx(48.015, abs=0.001)
    assert batch.p95_ms == pytest.approx(52.018, abs=0.002)
    assert "experiments at other loads, left out: 1" in notes(found)


def test_perf_analyzer_latencies_are_up_to_the_last_response(tmp_path):
    document = json.loads(json.dumps(PERF_ANALYZER))
    first = document["experiments"][0]["requests"][0]
    first["response_timestamps"].append(first["timestamp"] + 9_000_000)
    document["experiments"][0]["requests"].append({"timestamp": 5, "response_timestamps": []})
    document["experiments"].append(perf_analyzer([9000] * 10, value=4))
    found = read(written(tmp_path, "profile_export.json", json.dumps(document)), batch=1)
    (batch,) = only(found).batches
    assert (batch.n, batch.max_ms, batch.min_ms) == (120, 9.0, 4.01)
    assert "experiments at other loads, left out: 1" in notes(found)
    assert "requests without a response, left out: 1" in notes(found)
    assert only(found).name == tmp_path.name


def test_trtexec_runs_of_a_folder(tmp_path):
    write_trtexec_runs(tmp_path / "runs")
    found = read(tmp_path / "runs", {"b1.json": 1, "b4.json": 4}, model="small")
    assert [(item.batch, item.min_ms) for item in only(found).batches] == [(1, 5.0), (4, 20.0)]


def test_a_batch_size_twice_is_refused_and_nothing_is_written(run, tmp_path):
    write_trtexec_runs(tmp_path / "runs")
    (tmp_path / "a.json").write_text('{"small": 0.7}')
    ran = run("profile", "import", tmp_path / "runs", "--accuracy", tmp_path / "a.json", "--out",
              tmp_path / "out.json", "--batch", "1", "--model-name", "small")
    refused(ran, 3, "batch size 1 of small appears twice", "b4.json", "b1.json")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("values", [["x"], ["=4"], ["0"], ["a=1", "a=2"], ["9999999"]])
def test_a_bad_batch_option_is_refused(run, tmp_path, values):
    path = written(tmp_path, *SAMPLES["trtexec"])
    options = [part for value in values for part in ("--batch", value)]
    ran = run("profile", "import", path, "--out", tmp_path / "o.json", *options)
    if values == ["=4"]:
        assert ran.code == 3  # a pattern may be left out
    else:
        refused(ran, 2, "--batch")


def test_results_of_onnxruntime_perf_test(tmp_path):
    model = only(read(written(tmp_path, "r.csv", ORT_ROWS + ORT_STATISTICS), batch=1))
    assert (model.name, model.batches[0].n, model.batches[0].min_ms) == ("small", 120, 4.0)
    found = only(read(written(tmp_path, "o.txt", ORT_CONSOLE), batch=1, model="small"))
    (batch,) = found.batches
    assert (batch.mean_ms, batch.p95_ms, batch.n) == (4.595, 5.14, 120)
    assert found.load_ms == pytest.approx(46.7)


def test_a_run_of_vllm_knows_its_batch_size(tmp_path):
    one = VLLM | {"total_input_sequences": 200}
    written(tmp_path / "runs", "a.json", json.dumps(one))
    written(tmp_path / "runs", "b.json", json.dumps(VLLM | {"failed": 3}))
    found = read(tmp_path / "runs")
    assert [(b.batch, b.mean_ms, b.p50_ms, b.p95_ms) for b in only(found).batches] == [
        (1, 10.8, 10.5, 12.9), (4, 10.8, 10.5, 12.9)]
    assert "failed requests, left out: 3" in notes(found)


def test_formats_that_look_alike_are_told_apart(tmp_path):
    for source, named, other in (
            (FILES / "perf-analyzer" / "profile_export.json", "aiperf", "perf-analyzer"),
            (FILES / "aiperf-b1" / "profile_export.jsonl", "perf-analyzer", "aiperf"),
            (written(tmp_path, "t.txt", TRTEXEC.format(1)), "trtexec", "tool-output")):
        with pytest.raises(InputFileError, match=f"a file of {other}, not of {named}"):
            read(source, batch=1, format=named)


def test_several_results_of_vllm_in_a_file_are_told_from_a_damaged_one(tmp_path):
    path = written(tmp_path, "r.json", f"{json.dumps(VLLM)}\n{json.dumps(VLLM)}")
    with pytest.raises(InputFileError, match=r"several results in one file.*--append-result"):
        read(path)


def test_an_old_trtexec_may_have_written_its_warm_up(tmp_path):
    entry = {"h2dMs": 1.0, "computeMs": 3.0, "d2hMs": 1.0, "latencyMs": 5.0}
    for more in ({}, {"endToEndMs": 8.0}):
        path = written(tmp_path, "t.json", json.dumps([entry | more] * 20))
        assert ("warm-up" in notes(read(path, batch=1))) == bool(more)


def test_loadgen_single_and_multi_stream_are_batches():
    found = read(FILES / "loadgen", model="m")
    one, four = only(found).batches
    assert (one.batch, one.n, one.mean_ms, one.p95_ms) == (1, 434, 3.401476, 4.439842)
    assert (four.batch, four.p99_ms) == (4, 15.42415)
    assert "left out: Server.txt: Scenario: the Server scenario is a check of capacity" in notes(
        found)
    assert "INVALID by MLPerf's rules" in notes(found)


def test_loadgen_server_says_what_it_is():
    with pytest.raises(InputFileError, match=r"check of capacity.*188\.73 samples per s and 20 ms "
                                             r"the result is INVALID.*ramsis capacity"):
        read(FILES / "loadgen" / "Server.txt")
    with pytest.raises(InputFileError, match="no latencies of single batches: got 'Offline'"):
        read(FILES / "loadgen" / "Offline.txt")


def test_a_histogram_gives_the_mean_and_percentiles_by_bucket():
    found = read(FILES / "prometheus.txt")
    assert [(m.name, [b.batch for b in m.batches]) for m in found.models] == [
        ("small", [1, 4]), ("large", [1, 4])]
    first = found.models[0].batches[0]
    assert (first.n, first.mean_ms) == (500, pytest.approx(3.612619883959087 / 500 * 1000))
    assert first.p50_ms == pytest.approx(5 + 5 * 250 / 485)
    assert first.p95_ms == pytest.approx(5 + 5 * 475 / 485)
    assert first.relative_error == pytest.approx((first.p95_ms - 5) / first.p95_ms)


def test_histograms_of_replicas_are_added_up(tmp_path):
    text = "# TYPE f_seconds histogram\n" + "".join(
        f'f_seconds_bucket{{pod="{pod}",le="0.01"}} 5\nf_seconds_bucket{{pod="{pod}",le="+Inf"}} '
        f'10 # {{trace="x"}} 1\nf_seconds_sum{{pod="{pod}"}} 0.2\nf_seconds_count{{pod="{pod}"}} '
        "10\n" for pod in "ab") + "# EOF\n"
    found = read(written(tmp_path, "x.txt", text), batch=1)
    (batch,) = only(found).batches
    assert (batch.n, batch.mean_ms, batch.p50_ms, batch.p95_ms) == (20, 20.0, 10.0, None)
    assert "counts added up over pod (2)" in notes(found)
    assert "beyond the last bucket, left out: p90, p95, p99" in notes(found)


def test_one_of_several_histograms_is_named(tmp_path):
    text = SAMPLES["prometheus"][1]
    both = text + text.replace("inference_duration", "request_duration")
    path = written(tmp_path, "m.txt", both)
    with pytest.raises(InputFileError, match="several histograms: got 'inference_duration_se"):
        read(path)
    assert len(read(path, metric="request_duration_seconds").models) == 2
    with pytest.raises(InvalidValueError, match="no such histogram"):
        read(path, metric="other")


def test_clockwork_measurements_are_a_profile(tmp_path):
    written(tmp_path, "resnet50/model.measurements", CLOCKWORK)
    (tmp_path / "resnet50" / "model.clockwork_params").write_bytes(b"0" * 102_300)
    model = only(read(tmp_path))
    assert (model.name, model.load_ms, model.memory_mb) == ("resnet50", 8.37, 0.1023)
    assert [(b.batch, b.mean_ms) for b in model.batches] == [
        (1, 2.69), (2, 3.93), (4, 5.63), (8, 9.52), (16, 17.3)]


def change(name: str, old: str, new: str) -> tuple[str, str]:
    file, text = SAMPLES[name]
    assert old in text
    return file, text.replace(old, new)


@pytest.mark.parametrize(("file", "message"), [
    (change("aiperf", '"unit": "ms",\n  "avg": 60', '"unit": "tokens",\n  "avg": 60'),
     "not a unit of time: got 'tokens'"),
    (change("aiperf", '"unit": "ms",\n  "avg": 60', '"unit": "sec",\n  "avg": 60'),
     "more than one request in flight on average"),
    (change("aiperf", '"concurrency": 1', '"concurrency": 8'), "several requests were in flight"),
    (change("aiperf", '"name": "bge-small"\n', '"name": "x"},{"name": "y"\n'), "several models"),
    (change("aiperf-records", '"unit":"ms"', '"unit":"ns"'), "line 1.*its unit is wrong"),
    (change("aiperf-records", '"request_start_ns":17953180', '"request_start_ns":17953170'),
     "requests overlap|its unit is wrong"),
    (change("aiperf-records", '"benchmark_phase":"profiling"', '"benchmark_phase":"warmup"'),
     "no request that was measured and answered: got '40 of the warm-up'"),
    (change("perf-analyzer", '"value": 1', '"value": 2'), "concurrency 2.*--concurrency-range 1"),
    (change("perf-analyzer", "[17000000", "[16000000"), "last response is not after the request"),
    (("p.json", json.dumps({"experiments": [
        {"experiment": {"mode": "concurrency", "value": 1},
         "requests": [{"timestamp": 10 * i, "response_timestamps": [10 * i + 4]}
                      for i in range(9)]}]})), "the timestamps are not ns"),
    (change("trtexec", '"latencyMs" : 5.0000', '"latencyMs" : 5000'), "its unit is wrong"),
    (("l.json", '[{"count": 3}, {"name": "conv", "timeMs": 1, "averageMs": 0.3}]'),
     "times by layer, as --exportProfile"),
    (change("onnxruntime-perf-test", " s\n", " ms\n"), "unknown unit: got 'ms'"),
    (change("onnxruntime-perf-test", "Max Latency: 0.005", "Max Latency: 5.5"),
     "a unit is wrong"),
    (("r.csv", ORT_ROWS + ORT_ROWS), "line 121: another run begins"),
    (change("onnxruntime-perf-test-console", "4.595 ms", "4.595 us"), "unknown unit: got 'us'"),
    (change("onnxruntime-perf-test-console", "0.5514 s", "2.2 s"), "more than one request"),
    (change("vllm-embedding", '"max_concurrency": 1', '"max_concurrency": null'),
     "several requests could be in flight"),
    (change("vllm-embedding", '"mean_e2el_ms": 10.8', '"mean_e2el_ms": 10800'),
     "more than one request in flight"),
    (change("vllm-embedding", '"mean_e2el_ms"', '"mean_ttft_ms"'), "a run that generates text"),
    (change("vllm-embedding", '"mean_e2el_ms"', '"mean"'), "no latency of requests"),
    (change("vllm-embedding", ": 800", ": 801"), "requests of different batch sizes"),
    (change("mlperf-loadgen", "latency (ns) ", "latency (us) "), "unknown unit"),
    (change("mlperf-loadgen", ": 3401476", ": 3401476000"), "more than one request in flight"),
    (change("mlperf-loadgen", "PerformanceOnly", "AccuracyOnly"), "not a run that measures time"),
    (change("prometheus", "_seconds", "_tokens"), "does not end in a unit of time"),
    (change("prometheus", " 3.612619883959087", " 3612.6"), "sum does not fit the buckets"),
    (change("prometheus", 'le="+Inf"', 'le="9"'), "buckets and count do not agree"),
    (change("clockwork", "2690000L", "2.69"), "line 2, b1: not a time in ns: got '2.69'"),
    (change("clockwork", "b16", "c16"), "line 6: not a setting of Clockwork"),
])
def test_wrong_units_and_other_contents_are_refused(tmp_path, file, message):
    path = written(tmp_path, *file)
    with pytest.raises(InputFileError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
