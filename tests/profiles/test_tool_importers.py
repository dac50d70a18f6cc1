"""Importers of tables that users and tools write: long CSV, Model Analyzer, timm, request logs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.profiles import BatchProfile, ModelProfile
from ramsis.profiles.importers import detect, import_profile
from ramsis.profiles.importers.accuracy import read_accuracy
from tests.cli.command import refused
from tests.profiles.samples import (
    LONG_CSV,
    MODEL_ANALYZER_CSV,
    TIMM_CSV,
    TIMM_RESULTS_CSV,
    written,
)

FRACTIONS = {"small": 0.7025, "large": 0.815}
LONG = "model,batch,latency_ms"
ANALYZER = "Model,Batch,Concurrency,p99 Latency (ms)"
TIMM = "model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size"


def models(path: Path, accuracy: dict[str, float] | Path | None = None,
           pick: list[str] | None = None) -> dict[str, ModelProfile]:
    found = import_profile(path, accuracy=accuracy, models=pick)
    return {model.name: model for model in found.models}


def notes(path: Path) -> list[str]:
    found = import_profile(path, accuracy=FRACTIONS).measurement["notes"]
    assert isinstance(found, list)
    return found


def test_rows_of_samples_are_the_samples_of_a_batch(tmp_path):
    samples = np.random.default_rng(5).gamma(9.0, 1.0, 300).round(4)
    rows = "".join(f"a,1,{value}\nb,1,{value + 5:.4f}\n" for value in samples)
    found = models(written(tmp_path, f"{LONG}\n{rows}"), {"a": 0.5, "b": 0.6})
    assert found["a"].batches == (BatchProfile.from_samples(1, samples),)
    assert found["b"].batches == (BatchProfile.from_samples(1, (samples + 5).round(4)),)


def test_rows_of_statistics_become_those_statistics(tmp_path):
    found = models(written(tmp_path, LONG_CSV))
    assert (found["small"].accuracy, found["large"].accuracy) == (0.7025, 0.815)
    one, two = found["small"].batches
    assert (one.n, one.p50_ms, one.p95_ms, one.mean_ms) == (200, 9.8, 12.5, None)
    assert (two.batch, two.n, two.p95_ms) == (2, 150, 18.0)
    assert found["large"].batches[0].n is None


def test_model_analyzer_rows_at_concurrency_1_are_taken(tmp_path):
    path = written(tmp_path, MODEL_ANALYZER_CSV)
    found = models(path, FRACTIONS)
    one, two = found["small"].batches
    assert (one.mean_ms, one.p90_ms, one.p95_ms, one.p99_ms) == (10.1, None, 12.5, 14.0)
    assert (two.batch, two.p99_ms) == (2, 19.0)
    assert "rows with several requests in flight or a request rate, left out: 1" in notes(path)
    assert "large_config_default: instance group 2:GPU" in notes(path)


def test_configurations_of_a_model_are_models_with_its_accuracy(tmp_path):
    path = written(tmp_path, "Model,Batch,Concurrency,Model Config Path,p99 Latency (ms)\n"
                             "m,1,1,m_config_0,5.0\nm,1,1,m_config_1,6.0\n"
                             'e,1,1,"e_config_0: part_config_1, part_config_2",7.0\n')
    found = models(path, {"m": 0.5, "m_config_1": 0.6, "e": 0.7})
    assert {name: model.accuracy for name, model in found.items()} == {
        "m_config_0": 0.5, "m_config_1": 0.6, "e": 0.7}
    assert found["e"].batches[0].statistics == ("p99",)


def test_request_rates_and_columns_of_backends_are_left_out(tmp_path):
    path = written(tmp_path, "Model,Batch,Concurrency,Request Rate,p95 Latency (ms),"
                             "backend_parameter/threads,Server Queue time (ms)\n"
                             "small,1,1,,5.0,4,0.1\nsmall,1,,64,9.0,4,0.1\n")
    assert models(path, FRACTIONS)["small"].batches[0].p95_ms == 5.0


def test_timm_means_are_the_only_statistic(tmp_path):
    path = written(tmp_path, TIMM_CSV)
    found = models(path, FRACTIONS)
    assert [item.mean_ms for item in found["small"].batches] == [10.01, 16.0]
    assert found["small"].batches[1].statistics == ("mean",)
    assert notes(path)[0].startswith("timm reports no percentile")


def test_a_folder_of_timm_results_joins_their_batch_sizes(tmp_path):
    for batch in (1, 4):
        written(tmp_path, f"{TIMM}\nsmall,200,{5 * batch},{batch},224\n", f"batch-{batch}.csv")
    assert detect(tmp_path) == "timm"
    found = models(tmp_path, FRACTIONS)
    assert [(item.batch, item.mean_ms) for item in found["small"].batches] == [(1, 5), (4, 20)]


def test_timm_accuracies_count_at_the_size_that_was_timed(tmp_path):
    results = written(tmp_path, TIMM_RESULTS_CSV, "results.csv")
    assert read_accuracy(results) == {"small@224": 0.7025, "large@288": 0.815}
    assert read_accuracy(written(tmp_path, "model,top1,top1_err\na,70,30\n")) == {"a": 0.7}
    path = written(tmp_path, TIMM_CSV)
    assert models(path, results)["large"].accuracy == 0.815
    other = written(tmp_path, TIMM_CSV.replace("288", "224"), "other.csv")
    with pytest.raises(InputFileError, match=r"model large: no accuracy .*large@288"):
        models(other, results)


def test_a_model_at_several_sizes_becomes_several(tmp_path):
    path = written(tmp_path, f"{TIMM}\na,200,5,1,160\na,100,10,1,224\nb,50,20,1,224\n")
    found = models(path, {"a@160": 0.5, "a@224": 0.6, "b": 0.7})
    assert {name: model.batches[0].mean_ms for name, model in found.items()} == {
        "a@160": 5.0, "a@224": 10.0, "b": 20.0}


def test_models_without_batch_1_can_be_left_out(tmp_path):
    path = written(tmp_path, f"{TIMM}\nsmall,200,5,1,224\nlarge,200,1280,256,224\n")
    assert list(models(path, FRACTIONS, ["small"])) == ["small"]
    with pytest.raises(InputFileError, match=r"model large, batches: batch size 1 was not "
                                             r"measured: got \[256\]; .*--batch-size 1"):
        models(path, FRACTIONS)


@pytest.mark.parametrize(("text", "latency_ms", "accuracy"), [
    ("model,batch,latency_s\na,1,1", 1000.0, 0.5), (f"{LONG},size\na,1,1,3", 1.0, 0.5),
    (f"{LONG},accuracy\na,1,5,70.25", 5.0, 0.7025),
    ("Model,Batch,Concurrency,p99 Latency (us)\na,1,1,5000", 5.0, 0.5),
])
def test_tables_like_these_formats_are_read_in_their_units(tmp_path, text, latency_ms, accuracy):
    given = None if "accuracy" in text else {"a": 0.5}
    found = models(written(tmp_path, text), given)["a"]
    (batch,) = found.batches
    (statistic,) = {batch.statistic_ms(name) for name in batch.statistics}
    assert (statistic, found.accuracy) == (latency_ms, accuracy)


@pytest.mark.parametrize(("text", "message"), [
    (f"{LONG},n\na,1,1,3", "header: a number of samples, though each row is one.*got 'n'"),
    (f"{LONG}", "no rows below the header"),
    (f"{LONG}\na,1,5\na,1,nan", "line 3, latency_ms: .*: got nan; allowed: a finite number"),
    (f"{LONG}\na,1,5\na,1,-2", "line 3, latency_ms: value is not positive"),
    (f"{LONG},statistic\na,1,5,p95\na,1,5,p95", "line 3, latency_ms: p95 of a .*twice"),
    (f"{LONG},statistic\na,1,5,p96", "unknown statistic: got 'p96'; allowed: mean, std"),
    (f"{LONG},statistic\na,1,5,min", "line 2, p95_ms: missing"),
    (f"{LONG},statistic\na,1,5,p95\na,1,4,p99", "line 3, latency_ms: p99_ms is below p95_ms"),
    (f"{LONG},statistic,n\na,1,5,p95,9\na,1,6,p99,8", "line 3, n: differs"),
    ("Model,Batch,Request Rate,p99 Latency (ms)\na,1,16,5",
     "missing column: got 'Concurrency'"),
    ("Model,GPU UUID,Batch,Concurrency,GPU Utilization (%)\na,g,1,1,5",
     "cannot tell which column holds the latency: got 'Model, GPU UUID"),
    ("Model,Batch,Concurrency\na,1,1", "no column of latencies; .*p95 Latency"),
    (f'{ANALYZER}\na,1,1,5\n"a,b","1,1","1,1","7, [6,8]"',
     "line 3, Model: several models were measured at once.*'a,b'; allowed: one model per row"),
    (f"{ANALYZER}\na,1,2,5", "no row at concurrency 1; at others, waiting"),
    (f"{ANALYZER}\na,1,1,0.0", r"line 2, p99 Latency \(ms\): .*: got 0.0; .* >= 0.0001"),
    (f"{ANALYZER}\na,4,1,5", r"batch size 1 was not measured: got \[4\]"),
    (f"{TIMM},infer_step_time_us\na,200,5,1,224,5", "got 'infer_step_time_us'"),
    ("model,train_samples_per_sec,train_step_time\na,1,1", "got 'infer_batch_size'"),
    (f"{TIMM}\na,200,0.005,1,224", "line 2, infer_step_time: does not fit.*allowed: about 5"),
    (f"{TIMM}\na,0,5,1,224", "line 2, infer_samples_per_sec: value is not positive"),
    (f"{TIMM}\na,200,5,1,224\na,200,5,1,224", "line 3, infer_batch_size: .*a@224 .*twice"),
])
def test_a_bad_file_is_refused_in_one_line_with_exit_code_3(run, tmp_path, text, message):
    path, out = written(tmp_path, text), tmp_path / "out.json"
    accuracy = written(tmp_path, json.dumps({"a": 0.5}), "accuracy.json")
    given = () if "accuracy" in text else ("--accuracy", accuracy)
    ran = run("profile", "import", path, "--out", out, *given)
    refused(ran, 3, str(path))
    assert re.search(message, ran.err)
    assert not out.exists()


def test_an_empty_folder_holds_no_timm_results(tmp_path):
    with pytest.raises(InputFileError, match="no CSV file in this folder"):
        import_profile(tmp_path, "timm")


@pytest.mark.parametrize(("text", "message"), [
    (TIMM_RESULTS_CSV.replace("29.750", "0.29"), "line 2, top1: top1 and top1_err"),
    (TIMM_RESULTS_CSV.replace("large", "small").replace("288", "224"),
     "line 3, model: model appears twice: got 'small@224'"),
    (TIMM_RESULTS_CSV.replace("interpolation", "mood"), "unknown column or unit: got 'mood'"),
    (TIMM_RESULTS_CSV.replace("70.250", "nan"), "line 2, top1: top1 and top1_err"),
])
def test_a_bad_file_of_timm_results_is_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        read_accuracy(written(tmp_path, text))


def test_notes_are_printed_and_the_only_statistic_is_shown(run, tmp_path):
    path, out = written(tmp_path, TIMM_CSV), tmp_path / "out.json"
    results = written(tmp_path, TIMM_RESULTS_CSV, "results.csv")
    ran = run("profile", "import", path, "--accuracy", results, "--out", out)
    assert ran.code == 0
    assert ran.err.startswith("note: timm reports no percentile")
    assert run("profile", "show", out, "--statistic", "mean").code == 0
    refused(run("profile", "show", out), 2, "statistic is not in the profile; allowed: mean")


def test_the_sample_of_model_analyzer_is_refused_with_its_row(run, reference_dir, tmp_path):
    path = reference_dir / "triton_model_analyzer_inference.csv"
    refused(run("profile", "import", path, "--out", tmp_path / "x.json"), 3, "line 2, Model",
            "several models", "resnet50_libtorch,vgg19_libtorch")


def test_samples_may_be_more_than_other_files_hold(tmp_path, monkeypatch):
    """The limit of other files does not hold for rows of samples, which are streamed."""
    path = written(tmp_path, "model,batch,latency_ms,accuracy\n"
                   + "".join(f"a,{1 + i % 2},{10 + i % 7}.5,0.5\n" for i in range(2000)))
    monkeypatch.setattr("ramsis.files.MAX_FILE_BYTES", 1000)
    monkeypatch.setattr("ramsis.profiles.importers.detection.MAX_FILE_BYTES", 1000)
    assert detect(path) == "long-csv"
    one, two = import_profile(path).models[0].batches
    assert (one.n, two.n) == (1000, 1000)
    monkeypatch.setattr("ramsis.profiles.importers.formats.MAX_SAMPLES_BYTES", 1000)
    with pytest.raises(InputFileError, match=r"too large.*at most 1000 bytes"):
        import_profile(path, "long-csv")


def test_columns_that_the_format_has_not_are_refused(tmp_path):
    path = written(tmp_path, "model,batch,latency_s\na,1,2.0\n")
    with pytest.raises(InputFileError, match="header: unknown column or unit: got 'latency_s'"):
        import_profile(path, "long-csv", accuracy={"a": 0.5})


LOG_HEADER = "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
LOG = LOG_HEADER + """\
0.000,0.001,0.011,50,served,a,1,1,0,1
0.001,0.001,0.013,50,late,a,1,1,1,0
0.020,0.021,0.041,50,served,a,2,2,0,1
0.020,0.021,0.041,50,served,a,2,2,0,1
0.030,0.050,0.075,50,served,b,3,4,1,
0.031,0.050,0.075,50,served,b,3,4,1,
0.031,0.050,0.075,50,served,b,3,4,1,
0.032,0.080,0.089,50,served,b,1,1,1,
0.033,,0.060,50,dropped,,,,,
0.034,0.090,0.100,50,failed,b,1,1,1,
"""


def test_each_batch_is_one_sample_of_the_size_it_ran_as(tmp_path):
    a, b = models(written(tmp_path, LOG), {"b": 0.9}).values()
    assert (a.name, a.accuracy) == ("a", 0.75)
    assert [(item.batch, item.n, item.mean_ms) for item in (*a.batches, *b.batches)] == [
        (1, 2, pytest.approx(11.0)), (2, 1, pytest.approx(20.0)),
        (1, 1, pytest.approx(9.0)), (4, 1, pytest.approx(25.0))]


@pytest.mark.parametrize(("row", "message"), [
    ("0,,1,50,dropped,,,,,", "no request was answered"),
    ("0,2,1,50,served,a,1,1,0,1", "latency is not positive"),
    ("0,1,2,50,served,a,two,,0,1", "batch"),
    ("0,1,2,50,served,a,2,2,0,1", "batch size 1 was not measured"),
])
def test_logs_that_hold_no_profile_are_refused(tmp_path, row, message):
    with pytest.raises(InputFileError, match=message):
        import_profile(written(tmp_path, f"{LOG_HEADER}{row}\n"))
