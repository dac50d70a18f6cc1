"""Tables as strangers have them: each shape is one measurement, written in another way."""

import contextlib
import json
import time
from pathlib import Path

import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import load
from ramsis.profiles.importers import Given, import_profile
from ramsis.profiles.importers.table.headings import DecimalMark, read_heading
from tests.cli.command import refused

MEASURED = {("small", 1): 6.25, ("small", 4): 1312.5, ("large", 1): 10.75, ("large", 4): 2033.0}
"""The latency in ms of each model at each batch size."""
ACCURACY = {"small": 0.705, "large": 0.8125}

WIDE = """model,batch_size,mean_ms,p95_ms,p99_ms,accuracy
small,1,5.5,6.25,7,70.5
small,4,1200,1312.5,1400,70.5
large,1,9.5,10.75,11,81.25
large,4,2000,2033,2100,81.25
"""


def lines(header: str, *rows: str) -> str:
    return "\n".join((header, *rows)) + "\n"


SHAPES: dict[str, tuple[str, str | bytes]] = {
    "the plain one": ("p95", WIDE),
    "seconds and capitals": ("p95", lines(
        "Model Name,Batch Size,P95 Latency [s],Top-1 Accuracy", "small,1,0.00625,70.5",
        "small,4,1.3125,70.5", "large,1,0.01075,81.25", "large,4,2.033,81.25")),
    "UPPER CASE in microseconds": ("p95", lines(
        "MODEL,BATCHSIZE,P95_US,ACC", "small,1,6250,0.705", "small,4,1312500,0.705",
        "large,1,10750,0.8125", "large,4,2033000,0.8125")),
    "semicolons and decimal commas": ("mean", lines(
        "Modell;model;batch;mean (ms);accuracy (%)", "x;small;1;6,25;70,5",
        "x;small;4;1.312,5;70,5", "x;large;1;10,75;81,25", "x;large;4;2.033,0;81,25")),
    "tabs, a mark at the start, comments": ("p99", b"\xef\xbb\xbf" + lines(
        "# measured on a T4", "// nothing else ran", "model\tbs\tp99_latency_ms\taccuracy_percent",
        "small\t1\t6.25\t70.5", "", "small\t4\t1312.5\t70.5", "large\t1\t10.75\t81.25",
        "large\t4\t2033\t81.25").encode()),
    "a spreadsheet's text": ("p99", WIDE.replace(",", "\t").replace(
        "\t7\t", "\t6.25\t").replace("\t1400\t", "\t1312.5\t").replace(
        "\t11\t", "\t10.75\t").replace("\t2100\t", "\t2033\t").encode("utf-16")),
    "names of rows, as R writes them": ("p50", lines(
        "model,batch,median_ms,acc", "1,small,1,6.25,0.705", "2,small,4,1312.5,0.705",
        "3,large,1,10.75,0.8125", "4,large,4,2033.0,0.8125")),
    "a separator at the end of each line": ("p95", WIDE.replace("\n", ",\n")),
    "an index of pandas": ("p50", lines(
        ",model,batch,median_ms,acc", "0,small,1,6.25,0.705", "1,small,4,1312.5,0.705",
        "2,large,1,10.75,0.8125", "3,large,4,2033.0,0.8125")),
    "percentiles as pandas describes them": ("p95", lines(
        "model,batch,count,mean,std,min,50%,95%,max", "small,1,200,6,0.1,5.9,6.1,6.25,7",
        "small,4,200,1300,1,1250,1300,1312.5,1400", "large,1,200,10,0.1,9.9,10.1,10.75,11",
        "large,4,200,2000,1,1900,2000,2033,2100")),
    "quoted thousands and units in cells": ("p95", lines(
        "name,batch,p95,accuracy", 'small,1,"6.25 ms",70.5%', 'small,4,"1,312.5 ms",70.5%',
        'large,1,"10.75 ms",81.25%', 'large,4,"2,033 ms",81.25%')),
    "units that differ by cell": ("mean", lines(
        "network,batch,avg_latency,top1", "small,1,6250us,70.5", "small,4,1.3125 s,70.5",
        "large,1,10.75ms,81.25", "large,4,2.033s,81.25")),
    "batch sizes side by side": ("mean", lines(
        "model,accuracy,b1_ms,b4_ms", "small,70.5,6.25,1312.5", "large,81.25,10.75,2033")),
    "batch sizes as numbers, in a comment's unit": ("mean", lines(
        "# latency in ms by batch size", "model,accuracy,1,4", "small,0.705,6.25,1312.5",
        "large,0.8125,10.75,2033")),
    "percentiles of batch sizes side by side": ("p95", lines(
        "model,accuracy,p50_b1_ms,p95_b1_ms,p50_b4_ms,p95_b4_ms", "small,70.5,6,6.25,1300,1312.5",
        "large,81.25,10,10.75,2000,2033")),
    "one statistic a row": ("p95", lines(
        "model,batch_size,metric,value,unit,accuracy", "small,1,p50,6,ms,0.705",
        "small,1,p95,6.25,ms,0.705", "small,4,p95,1.3125,s,0.705", "large,1,p95,10750,us,0.8125",
        "large,4,p95,2033,ms,0.8125")),
    "one statistic a row, which states the unit": ("p95", lines(
        "model,batch_size,metric,value,accuracy", "small,1,p95_ms,6.25,0.705",
        "small,1,throughput_qps,160,0.705", "small,4,p95_ms,1312.5,0.705",
        "large,1,p95_ms,10.75,0.8125", "large,4,p95_ms,2033,0.8125")),
    "samples": ("p50", lines(
        "model,batch_size,latency_us,accuracy", *(
            f"{model},{batch},{1000 * took},{100 * ACCURACY[model]}"
            for (model, batch), took in MEASURED.items() for _ in range(5)))),
    "JSON lines": ("p95", "".join(
        json.dumps({"model": model, "batch_size": batch, "latency": {"p95_ms": took},
                    "accuracy": ACCURACY[model]}) + "\n"
        for (model, batch), took in MEASURED.items())),
    "JSON lines of samples": ("p50", "".join(
        json.dumps({"ts": i, "model": model, "bs": batch, "duration_ms": took,
                    "top1": 100 * ACCURACY[model]}) + "\n"
        for (model, batch), took in MEASURED.items() for i in range(3))),
    "a list of JSON objects": ("p95", json.dumps({"date": "2026-01-01", "results": [
        {"name": model, "batch": batch, "p95 (ms)": took, "acc": ACCURACY[model]}
        for (model, batch), took in MEASURED.items()]})),
    "JSON by model and batch size": ("mean", json.dumps({
        model: {"accuracy": ACCURACY[model], "latency_ms": {
            str(batch): took for (name, batch), took in MEASURED.items() if name == model}}
        for model in ACCURACY})),
    "JSON by column": ("p95", json.dumps({
        "model": {str(i): model for i, (model, _) in enumerate(MEASURED)},
        "batch": {str(i): batch for i, (_, batch) in enumerate(MEASURED)},
        "p95_ms": dict(zip("0123", MEASURED.values(), strict=True)),
        "accuracy": {str(i): ACCURACY[model] for i, (model, _) in enumerate(MEASURED)}})),
    "Markdown": ("p95", lines(
        "## Results", "", "| Model | Batch | p95 (ms) | Accuracy (%) |", "|---|---:|---:|---:|",
        "| small | 1 | 6.25 | 70.5 |", "| small | 4 | 1312.5 | 70.5 |",
        "| `large` | 1 | **10.75** | 81.25 |", "| **large** | 4 | 2033 | 81.25 |")),
    "what pandas prints": ("p95", lines(
        "   model  batch   p95_ms  accuracy", "0  small      1     6.25     70.50",
        "1  small      4  1312.50     70.50", "2  large      1    10.75     81.25",
        "3  large      4  2033.00     81.25")),
    "perf_analyzer's columns": ("p95", lines(
        "Model,Batch,Concurrency,Inferences/Second,Client Send,Server Queue,p50 latency,"
        "p95 latency,Accuracy",
        "small,1,1,160,10,20,6000,6250,70.5", "small,1,8,160,10,20,46000,46250,70.5",
        "small,4,1,3,10,20,1300000,1312500,70.5", "large,1,1,99,10,20,10000,10750,81.25",
        "large,4,1,2,10,20,2000000,2033000,81.25")),
    "units in a line of their own": ("p95", lines(
        "model,batch,p95,accuracy", ",,ms,%", "small,1,6.25,70.5", "small,4,1312.5,70.5",
        "large,1,10.75,81.25", "large,4,2033,81.25")),
    "models named once, a failed row, a title": ("p95", lines(
        "Benchmark of 2026-01-01", "model,batch,p95_ms,throughput,accuracy",
        "small,1,6.25,160,70.5",
        ",4,1312.5,3,", "large,1,10.75,99,81.25", ",4,2033,2,", ",64,OOM,,")),
    "what torch.utils.benchmark prints": ("mean", lines(
        "[--------- inference ---------]", "              |  bs=1  |  bs=4",
        "1 threads: --------------------", "  small       |  6.25  |  1312.5",
        "  large       |  10.75 |  2033.0", "", "Times are in milliseconds (ms).")),
    "pytest-benchmark": ("mean", json.dumps({"machine_info": {"node": "a"}, "benchmarks": [
        {"name": f"test[{model}-{batch}]", "params": {"model": model, "batch": batch,
                                                      "accuracy": ACCURACY[model]},
         "stats": {"min": took / 1001, "mean": took / 1000, "stddev": 0.0, "hd15iqr": 1.0,
                   "rounds": 9}} for (model, batch), took in MEASURED.items()]})),
    "JSON lines of objects beside each other": ("p95", "".join(
        json.dumps({"model": {"name": model, "accuracy": ACCURACY[model]},
                    "config": {"batch": batch, "gpu": "T4"},
                    "latency": {"p50": took - 1, "p95": took, "unit": "ms"}}) + "\n"
        for (model, batch), took in MEASURED.items())),
    "percentiles with decimals, in nanoseconds": ("p99", json.dumps({"results": [
        {"model": model, "batch_size": batch, "latency_99.00_percentile_ns": int(1e6 * took),
         "accuracy_percent": 100 * ACCURACY[model]}
        for (model, batch), took in MEASURED.items()]})),
    "spreads in cells": ("mean", lines(
        "model,batch,latency (ms),top1", "small,1,6.25 ± 0.4,70.5%", "small,4,1312.5 ± 9,70.5%",
        "large,1,10.75 ± 0.1,81.25%", "large,4,2033 +/- 12,81.25%")),
    "other names beside": ("p95", lines(
        "gpu,precision,model_name,batch_size,latency_p95_ms,latency_p99.9_ms,images_per_s,top1,top5",
        "T4,fp16,small,1,6.25,8,160,70.5,90", "T4,fp16,small,4,1312.5,1500,3,70.5,90",
        "T4,fp16,large,1,10.75,12,99,81.25,95", "T4,fp16,large,4,2033,2100,2,81.25,95")),
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "measured.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_read_without_any_option(run, tmp_path, shape):
    statistic, content = SHAPES[shape]
    path = written(tmp_path, content)
    accuracy = tmp_path / "accuracy.json"
    accuracy.write_text(json.dumps(ACCURACY))
    options = ["--unit", "ms"] if "describes" in shape else []
    options += ["--accuracy", str(accuracy)] if "describes" in shape or "torch" in shape else []
    ran = run("profile", "import", path, "--out", tmp_path / "out.json", *options)
    assert ran.code == 0, ran.err
    assert sum("note: read as a table" in line for line in ran.err.splitlines()) == 1
    found = load(tmp_path / "out.json")
    assert {model.name: model.accuracy for model in found.models} == pytest.approx(ACCURACY)
    measured = {(model.name, item.batch): item.statistic_ms(statistic)
                for model in found.models for item in model.batches}
    assert measured == pytest.approx(MEASURED)


def test_what_was_left_out_is_said(tmp_path):
    notes = {shape: " ".join(map(str, import_profile(
        written(tmp_path, SHAPES[shape][1])).measurement["notes"]))
        for shape in ("models named once, a failed row, a title", "perf_analyzer's columns",
                      "other names beside")}
    first, second, third = notes.values()
    assert "left out: throughput" in first
    assert "rows without a latency, left out: 1 (the first is line 7)" in first
    assert "lines above the header, passed over: 1" in first
    assert "several requests in flight, left out: 1" in second
    assert "in us, as perf_analyzer writes" in second
    assert "left out: gpu, precision, latency_p99.9_ms, images_per_s, top5" in third


def test_columns_are_named_by_the_user(run, tmp_path):
    path = written(tmp_path, lines(
        "who,how many,slow,worth", "small,1,6250,70.5", "small,4,1312500,70.5"))
    ran = run("profile", "import", path, "--out", tmp_path / "out.json", "--column", "model=who",
              "--column", "batch=how many", "--column", "p95=slow", "--column", "accuracy=worth",
              "--unit", "us", "--accuracy-unit", "percent")
    assert ran.code == 0, ran.err
    (model,) = load(tmp_path / "out.json").models
    assert (model.accuracy, model.batches[1].p95_ms) == (0.705, 1312.5)


def test_memory_and_load_times_are_the_largest_of_a_model(tmp_path):
    path = written(tmp_path, lines("model,batch,p95_ms,GPU memory (GB),load (s)",
                                   "small,1,6.25,1.5,2", "small,4,9,1.75,"))
    (model,) = import_profile(path, accuracy={"small": 0.7}).models
    assert (model.memory_mb, model.load_ms) == (1750.0, 2000.0)


def test_a_table_of_one_model_needs_no_column_of_it(tmp_path):
    path = written(tmp_path, "batch,p95_ms\n1,6.25\n4,9\n")
    assert import_profile(path, accuracy={"measured": 0.7}).models[0].name == "measured"
    named = import_profile(path, accuracy={"small": 0.7}, given=Given(model={"*": "small"}))
    assert named.models[0].name == "small"


def test_models_side_by_side(tmp_path):
    path = written(tmp_path, "batch,small (ms),large (ms)\n1,6.25,10.75\n4,1312.5,2033\n")
    found = import_profile(path, accuracy=ACCURACY)
    assert {(model.name, item.batch): item.mean_ms
            for model in found.models for item in model.batches} == MEASURED


@pytest.mark.parametrize(("text", "comma", "separator", "expected"), [
    ("6,270", False, ",", 6270.0), ("6,270", True, ";", 6.27), ("6,270.5", False, ";", 6270.5),
    ("6.270,5", True, ",", 6270.5), ("12,5", True, ",", 12.5), ("1'234.5", False, ",", 1234.5),
    ("1 234,5", True, ";", 1234.5), ("1e3", False, ",", 1000.0), (".5", False, ",", 0.5)])
def test_numbers_as_people_write_them(text, comma, separator, expected):
    mark = DecimalMark([text], separator)
    assert (mark.comma, mark.number(text, "1")) == (comma, expected)


@pytest.mark.parametrize(("column", "field", "unit", "batch"), [
    ("mean_ms", "mean", "ms", None), ("p95_s", "p95", "s", None), ("latency_us", "latency", "us",
    None), ("p99 (ms)", "p99", "ms", None), ("Latency [s]", "latency", "s", None),
    ("BatchSize", "batch", "", None), ("meanMs", "mean", "ms", None), ("b16", "latency", "", 16),
    ("batch_size_8_ms", "latency", "ms", 8), ("95th percentile (µs)", "p95", "µs", None),
    ("time per batch (ms)", "latency", "ms", None), ("GPU memory (MB)", "memory", "mb", None),
    ("load time (ms)", "load", "ms", None), ("images/s", "", "", None),
    ("load (QPS)", "", "", None),
    ("top-5", "", "", None), ("acc@1", "accuracy", "", None), ("inference/sec", "", "", None),
    ("latency per image (ms)", "", "ms", None)])
def test_headings(column, field, unit, batch):
    found = read_heading(column)
    assert (found.field, found.batch) == (field, batch)
    assert not field or found.unit == unit


@pytest.mark.parametrize(("text", "words"), [
    ("modle,batch,p95_ms,accuracy\na,1,2,70\nb,1,3,71\n", ["model", "--column model=modle"]),
    ("model,batc,p95_ms,accuracy\na,1,2,70\n", ["batch size", "--column batch=batc"]),
    ("model,batch,p95_latncy,accuracy\na,1,2,70\n", ["latency", "=p95_latncy"]),
    ("model,batch,p95,accuracy\na,1,2,70\n", ["no unit", "--unit ms", "p95_ms"]),
    ("model,batch,mean_ms,avg_us,accuracy\na,1,2,2000,70\n", ["two columns for the mean",
     "--column mean=NAME"]),
    ("model,batch,mean_ms,accuracy\na,1,2,0.7\nb,1,3,71\n", ["percent or a fraction",
     "--accuracy-unit"]),
    ("model,batch,mean,accuracy\na,1,2 ms,0.7\nb,1,3,0.8\n", ["no unit", "--unit"]),
    ("model,batch,mean_ms,accuracy\na,1,2,70\na,1,3,70\n", ["line 3", "twice", "line 2"]),
    ("model,batch,precision,mean_ms,accuracy\na,1,fp16,2,70\na,1,fp32,3,70\n",
     ["keep the rows of one precision"]),
    ("model,batch,mean_ms,accuracy\na,1,fast,70\n", ["line 2, mean_ms", "'fast'"]),
    ("model,batch,mean_ms,accuracy\na,one,2,70\n", ["not a batch size", "'one'"]),
    ("model,batch,mean_ms,accuracy\na,1,2,seventy\n", ["accuracy: not a number", "'seventy'"]),
    ("model,batch,mean_ms,accuracy\na,1,2,170\n", ["not an accuracy", "100"]),
    ("model,batch,mean_ms,accuracy\na,1,2\n", ["wrong number of cells", "4"]),
    ("model,batch,mean_ms,accuracy\na,1,,70\n", ["no latency in any row"]),
    ("model,bs1,bs4,top1\na,1,2,70\n", ["no unit", "--unit ms"]),
    ("batch,small,large\n1,12.1,25.3\n4,36,82\n", ["no unit", "--unit ms"]),
    ("model;batch;Latenz (ms)\na;1;12,3\n", ["--column 'latency=Latenz (ms)'"]),
    ("model,batch,throughput,accuracy\na,1,80,70\n", ["the mean is batch / throughput"]),
    ("Concurrency,Inferences/Second,p95 latency\n1,200,5200\n", ["--batch N"]),
    (",p95_ms,p95_ms\nmodel,small,large\n1,12,30\n", ["column appears twice", ".stack()"]),
    ('{"hello": [1, 2, 3]}', ["cannot tell the format by what the JSON holds", "p95_ms"]),
])
def test_a_table_that_cannot_be_told_is_refused_with_the_next_step(run, tmp_path, text, words):
    ran = run("profile", "import", written(tmp_path, text), "--out", tmp_path / "out.json")
    refused(ran, 3, *words)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(("text", "words"), [
    ("model,batch,p95_s,n,accuracy,x\na,1,6270,200,70,y\n", "is the unit right"),
    ("model,batch_size,p95_s,accuracy\na,1,\"6,270 ms\",70\n", "states another unit"),
    ("model,batch_size,p95_ms,accuracy\na,1,0.005,70\n", "is the unit right"),
    ("model,batch_size,p95_ms,accuracy\na,1,9,70\na,2,5,70\n", "[not-monotone]"),
    ("model,batch_size,p95_ms,accuracy_percent\na,1,9,0.5\n", "is the unit right"),
])
def test_what_is_not_plausible_is_warned_of(run, tmp_path, text, words):
    ran = run("profile", "import", written(tmp_path, text), "--out", tmp_path / "out.json")
    assert ran.code == 0, ran.err
    assert words in ran.err


def test_options_that_contradict_the_table_are_refused(tmp_path):
    path = written(tmp_path, WIDE)
    with pytest.raises(InvalidValueError, match=r"--unit: the column mean_ms states another"):
        import_profile(path, given=Given(unit="s"))
    with pytest.raises(InvalidValueError, match=r"--column: unknown field: got 'btach'"):
        import_profile(path, given=Given(columns={"btach": "batch_size"}))
    with pytest.raises(InputFileError, match=r"no such column: got 'items'"):
        import_profile(path, given=Given(columns={"batch": "items"}))
    with pytest.raises(InvalidValueError, match="--model-name"):
        import_profile(path, given=Given(model={"*": "small"}))
    with pytest.raises(InvalidValueError, match="--metric: a table has no histograms"):
        import_profile(path, given=Given(metric="seconds"))


@pytest.mark.parametrize("shape", [
    "another unit in each cell", "another statistic in each row", "an open quote",
    "a column for each batch size", "columns that are not known", "a column for each model",
    "batch sizes of timm", "a model for each row",
])
def test_the_time_of_an_import_grows_with_the_size_of_the_file(tmp_path, shape):
    """Ten times the rows or columns take less than 25 times as long; 100 would be quadratic."""
    measured = []
    for _ in range(5):  # a busy machine slows some of the attempts, not each one
        short_s, long_s = (_seconds(tmp_path, _shaped(shape, size)) for size in (600, 6000))
        if long_s < 25 * short_s + 0.1:
            return
        measured.append((short_s, long_s))
    pytest.fail(f"seconds of 600 and of 6,000: {measured}")


def _shaped(shape: str, size: int) -> str:
    """A file of a shape with so many rows, or columns."""
    numbers = range(1, size + 1)
    each = {
        "another unit in each cell": (
            "model,batch,p95 (ms),accuracy", [f"m{i},1,{i} us,0.5" for i in numbers]),
        "another statistic in each row": (
            "model,batch,latency_ms,metric", [f"m,1,{i},x{i}" for i in numbers]),
        "an open quote": ("model,batch,p95_ms", ['"m,1,1', *(f"m{i},1,1" for i in numbers)]),
        "a column for each batch size": (
            "model," + ",".join(f"b{i}" for i in numbers), ["m," + ",".join(size * ["1 ms"])]),
        "columns that are not known": (
            "model,batch,p95_ms," + ",".join(f"c{i}" for i in numbers),
            ["m,1,1," + ",".join(size * ["1"])]),
        "a column for each model": (
            "batch," + ",".join(f"net{i}_ms" for i in numbers), ["1," + ",".join(size * ["1"])]),
        "batch sizes of timm": (
            "model,infer_samples_per_sec,infer_step_time,infer_batch_size",
            [f"m,{100 * i},10,{i}" for i in numbers]),
        "a model for each row": (
            "model,batch,p95_s,accuracy", [f"m{i},1,0.01,50" for i in numbers]),
    }
    header, rows = each[shape]
    return "\n".join([header, *rows]) + "\n"


def _seconds(folder: Path, text: str) -> float:
    """Processor time of an import, refused or not."""
    source = written(folder, text)
    start_s = time.process_time()
    with contextlib.suppress(InputFileError):
        import_profile(source)
    return time.process_time() - start_s


def test_too_many_models_or_fields_are_refused(tmp_path):
    models = "model,batch,latency_ms\n" + "".join(f"m{i},1,10\n" for i in range(10_001))
    with pytest.raises(InputFileError, match="too many models: got 10001; allowed: at most 10000"):
        import_profile(written(tmp_path, models))
    objects = "\n".join(json.dumps({"model": "m", "batch": 1, "p95_ms": 1, f"k{i}": 1})
                        for i in range(3300)) + "\n"
    with pytest.raises(InputFileError, match="objects have too many different fields"):
        import_profile(written(tmp_path, objects))
