"""Reports of benchmark tools: read, or refused with a next step that works on that very file."""

import re
from pathlib import Path

import pytest

from ramsis.errors import InputFileError
from ramsis.profiles import load
from ramsis.profiles.importers import import_profile
from tests.cli.command import refused
from tests.profiles import reports
from tests.profiles.reports import PERF_CSV, PERF_ROWS, REPORTS


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_gives_the_figures_that_it_states(run, tmp_path, name):
    report = REPORTS[name]
    source, out = written(tmp_path, report.file, report.text), tmp_path / "out.profile"
    ran = run("profile", "import", source, *report.options, "--out", out)
    assert ran.code == 0, ran.err
    assert "note: " in ran.err
    found = {model.name: {batch.batch: batch for batch in model.batches}
             for model in load(str(out)).models}
    assert {model: set(batches) for model, batches in found.items()} == {
        model: set(batches) for model, batches in report.expected.items()}
    for model, batches in report.expected.items():
        for size, statistics in batches.items():
            for statistic, value in statistics.items():
                assert getattr(found[model][size], statistic) == pytest.approx(value, rel=1e-6), (
                    size, statistic)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_that_is_cut_off_is_no_traceback(tmp_path, name):
    report = REPORTS[name]
    for share in range(1, 10):
        text = report.text[:len(report.text) * share // 10]
        source = written(tmp_path, report.file, text)
        try:
            import_profile(source)
        except InputFileError as error:
            assert "wrong number of cells" not in str(error)  # noqa: PT017


def perf(folder: Path, *sizes: int) -> list[Path]:
    return [written(folder, f"perf_b{size}.csv", PERF_CSV + PERF_ROWS[size]) for size in sizes]


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_file_for_each_batch_size_makes_one_model(run, tmp_path, as_folder):
    files = perf(tmp_path / "runs", 1, 4, 8)
    sources = [tmp_path / "runs"] if as_folder else files
    ran = run("profile", "import", *sources, "--model-name", "small", "--out", tmp_path / "p.json")
    assert ran.code == 0, ran.err
    (model,) = load(str(tmp_path / "p.json")).models
    assert model.name == "small"
    assert [(batch.batch, batch.p95_ms) for batch in model.batches] == [
        (1, 5.4), (4, 8.02), (8, 11.3)]


def test_a_batch_size_in_a_name_counts_where_the_throughput_confirms_it(run, tmp_path):
    source = written(tmp_path, "perf_b8.csv", PERF_CSV + PERF_ROWS[4])
    ran = run("profile", "import", source, "--out", tmp_path / "p.json")
    refused(ran, 3, "batch size is not in this file", "throughput x latency is 3.95", "--batch 4")
    wrong = run("profile", "import", source, "--batch", 16, "--out", tmp_path / "p.json")
    refused(wrong, 3, "throughput x latency is not the batch size", "about 16")
    (advised,) = re.findall(r"--batch '(perf_b8\.csv=4)'", ran.err)
    ran = run("profile", "import", source, *perf(tmp_path, 1), "--batch",
              str(tmp_path / advised), "--model-name", "m", "--out", tmp_path / "p.json")
    assert ran.code == 0, ran.err


def test_several_tables_are_not_several_runs(run, tmp_path):
    table = written(tmp_path, "t.csv", "model,batch,p95_ms\nm,1,5\n")
    ran = run("profile", "import", table, *perf(tmp_path, 1), "--out", tmp_path / "p.json")
    refused(ran, 3, "t.csv (table)", "not several files of one run each", "tool-output")


def test_runs_with_several_requests_in_flight_are_refused(run, tmp_path):
    for name, text, step in (
            ("a.csv", PERF_CSV + PERF_ROWS[4].replace("1,", "4,", 1), "--concurrency-range 1"),
            ("b.txt", re.sub(r"concurrency: 1\n", "concurrency: 3\n", reports.PERF_CONSOLE),
             "--concurrency-range 1"),
            ("c.csv", reports.OPENVINO_CSV.replace("requests;1", "requests;4"), "-nireq 1"),
            ("d.txt", reports.TRTEXEC.format(1).replace("Streams: 1", "Streams: 2"),
             "--infStreams=1")):
        ran = run("profile", "import", written(tmp_path, name, text), "--batch", 1,
                  "--out", tmp_path / "p.json")
        refused(ran, 3, "waiting is in the latencies", step)


def test_a_model_that_takes_one_batch_size_pads_smaller_batches(tmp_path):
    """The engine was built for 4: nothing else of it can be measured."""
    found = import_profile(written(tmp_path, "t.txt", reports.TRTEXEC.format(4)))
    one, four = found.models[0].batches
    assert (one.batch, one.p95_ms, four.batch) == (1, four.p95_ms, 4)
    assert "takes as long as 4" in " ".join(found.measurement["notes"])  # type: ignore[arg-type]
    folder = tmp_path / "runs"
    for batch in (1, 4):
        written(folder, f"t{batch}.txt", reports.TRTEXEC.format(batch).replace(
            "5.7 ms", f"{5.6 + batch / 80} ms", 1))
    found = import_profile(folder)
    assert [batch.p95_ms for batch in found.models[0].batches] == pytest.approx([5.6125, 5.65])


def test_a_report_that_lacks_batch_1_names_its_tool(run, tmp_path):
    source = written(tmp_path, "h.json", reports.HYPERFINE.replace("--batch 1", "--batch 2"))
    ran = run("profile", "import", source, "--out", tmp_path / "p.json")
    refused(ran, 3, "batch size 1 was not measured", "a run of hyperfine at batch size 1")


@pytest.mark.parametrize(("text", "words"), [
    ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n45,1,2,3,gemm\n",
     ["Nsight", "not of batches"]),
    ("Start (ns),Duration (ns),CorrId,GrdX,Name\n1,2,3,4,gemm\n", ["read_kernel_trace"]),
    ('{"avg_latency": 1.53, "latencies": [1.5, 1.56], "percentiles": {"50": 1.5}}',
     ["generated text", "vllm bench serve"]),
    (reports.TRITON, ["batch size 1 was not measured"]),
    (reports.TRITON.replace(" 4000", " 3400"), ["several sizes", "3.4 inputs"]),
    ("# TYPE ts_inference_latency_microseconds counter\nts_inference_latency_microseconds{} 1\n",
     ["without a histogram", "model_metrics.log"]),
    ("# TYPE requests counter\nrequests 5\n", ["without a histogram", "# TYPE NAME histogram"]),
])
def test_what_holds_no_profile_is_refused_truly(run, tmp_path, text, words):
    ran = run("profile", "import", written(tmp_path, "x.txt", text), "--out", tmp_path / "p.json")
    refused(ran, 3, *words)


HISTOGRAMS = "".join(
    f"# TYPE {name} histogram\n"
    f'{name}_bucket{{le="0.1",model_name="m"}} 90\n{name}_bucket{{le="+Inf",model_name="m"}} 90\n'
    f'{name}_sum{{model_name="m"}} {total}\n{name}_count{{model_name="m"}} 90\n'
    for name, total in (("vllm:e2e_request_latency_seconds", 7.5),
                        ("vllm:request_queue_time_seconds", 2.0),
                        ("vllm:request_inference_time_seconds", 5.5)))


def test_the_metric_that_is_advised_is_taken(run, tmp_path):
    source = written(tmp_path, "metrics.txt", HISTOGRAMS)
    ran = run("profile", "import", source, "--batch", 1, "--out", tmp_path / "p.json")
    refused(ran, 3, "several histograms")
    (metric,) = re.findall(r"without waiting, as (\S+)", ran.err)
    assert metric == "vllm:request_inference_time_seconds"
    ran = run("profile", "import", source, "--batch", 1, "--metric", metric,
              "--out", tmp_path / "p.json")
    assert ran.code == 0, ran.err


def test_a_histogram_without_a_unit_takes_the_one_that_is_said(run, tmp_path):
    text = HISTOGRAMS.split("# TYPE")[1].replace("_seconds", "")
    source = written(tmp_path, "metrics.txt", f"# TYPE{text}")
    ran = run("profile", "import", source, "--batch", 1, "--out", tmp_path / "p.json")
    refused(ran, 3, "does not end in a unit", "--unit s")
    ran = run("profile", "import", source, "--batch", 1, "--unit", "s", "--out",
              tmp_path / "p.json")
    assert ran.code == 0, ran.err
    assert load(str(tmp_path / "p.json")).models[0].batches[0].mean_ms == pytest.approx(
        1000 * 7.5 / 90)


def test_a_report_of_many_rows_is_refused_at_once(tmp_path):
    """What stands above the runs was looked for in the whole file, once for each run."""
    source = written(tmp_path, "perf.csv", PERF_CSV + PERF_ROWS[1] * 20_000)
    with pytest.raises(InputFileError, match="too many rows for a report"):
        import_profile(source)
    lines = "Request concurrency: 2\n" * 50_000
    source = written(tmp_path, "perf.txt", f"*** Measurement Settings ***\n{lines}"
                                           "Inferences/Second vs. Client\n")
    with pytest.raises(InputFileError, match="2 in flight"):
        import_profile(source)
