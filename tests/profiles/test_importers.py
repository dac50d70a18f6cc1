"""Importers: units, detection, accuracies, and what they refuse."""

import csv
import json

import numpy as np
import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import ModelProfile, ProfileSet
from ramsis.profiles.importers import import_profile
from ramsis.profiles.importers.accuracy import read_accuracy
from ramsis.profiles.sketch import hat_weights
from tests.profiles.samples import ACCURACY, QUANTILES_CSV, STATISTICS_CSV, write_sources, written


@pytest.fixture
def sources(tmp_path):
    write_sources(tmp_path)
    return tmp_path


def named(found: ProfileSet) -> dict[str, ModelProfile]:
    return {model.name: model for model in found.models}


def test_statistics_become_ms_and_fractions_without_rounding_noise(sources):
    found = import_profile(sources / "statistics.csv")
    assert found.name == "statistics"
    assert found.measurement == {"imported_from": "statistics.csv", "format": "stats-csv"}
    small = named(found)["small"]
    assert small.accuracy == 0.7025
    assert [item.batch for item in small.batches] == [1, 2]
    first = small.batches[0]
    assert (first.n, first.p95_ms, first.mean_ms, first.std_ms, first.max_ms) == (
        200, 12.5, 11.0, 1.0, 20.0)


def test_quantiles_give_the_statistics(sources):
    found = named(import_profile(sources / "quantiles.csv", accuracy=sources / "accuracy.json"))
    first = found["small"].batches[0]
    assert first.quantiles_ms == (9.5, 10.5, 11.5, 12.5)
    assert (first.n, first.mean_ms, first.p50_ms, first.p95_ms) == (200, 11.0, 11.0, 12.5)
    assert found["large"].accuracy == 0.815


def test_samples_give_statistics_and_a_sketch(sources):
    found = import_profile(sources / "samples", accuracy={"small": 0.7, "large": 0.8})
    assert (found.name, found.measurement["format"]) == ("samples", "ramsis-artifact")
    first = named(found)["small"].batches[0]
    assert (first.n, first.mean_ms, first.min_ms, first.max_ms) == (3, 11.0, 10.0, 12.0)
    assert hat_weights(first.levels) @ np.array(first.quantiles_ms) == pytest.approx(11.0)
    assert (first.quantiles_ms or ())[-1] == 12.0


def test_models_are_picked_in_the_order_given_and_need_an_accuracy(sources):
    found = import_profile(sources / "statistics.csv", models=["large", "small"], name="two")
    assert (found.name, list(named(found))) == ("two", ["large", "small"])
    found = import_profile(sources / "quantiles.csv", models=["large"], accuracy={"large": 0.8})
    assert list(named(found)) == ["large"]
    with pytest.raises(InvalidValueError, match="'smal'; allowed: small"):
        import_profile(sources / "statistics.csv", models=["smal"])


def test_an_accuracy_file_goes_before_the_source(sources):
    found = import_profile(sources / "statistics.csv", accuracy={"small": 0.5})
    assert {name: model.accuracy for name, model in named(found).items()} == {
        "small": 0.5, "large": 0.815}


def test_unknown_formats_and_missing_sources_are_refused(sources):
    with pytest.raises(InvalidValueError, match=r"format: unknown format.*stats-csv"):
        import_profile(sources / "statistics.csv", "excel")
    with pytest.raises(InputFileError, match="no such file or folder"):
        import_profile(sources / "nothing")
    with pytest.raises(InvalidValueError, match="source: no files"):
        import_profile([])


HEADER = "model,accuracy,batch,p95_s"


@pytest.mark.parametrize(("text", "message"), [
    (HEADER, "no rows below the header"),
    (f"{HEADER}\na,70,1", "line 2: wrong number of cells: got 3; allowed: 4"),
    (f"{HEADER}\na,70,1,0.01\na,71,2,0.02", "line 3, accuracy: differs"),
    (f"{HEADER}\na,70,1,", "line 2, p95_s: cell is empty"),
    (f"{HEADER}\na,70,1,fast", "line 2, p95_s: not a number: got 'fast'"),
    (f"{HEADER}\na,70,1,9e999999", "line 2, p95_s: not a number"),
    (f"{HEADER}\na,70,1,nan", "line 2, p95_s: .*got nan; allowed: a finite number"),
    (f"{HEADER}\na,70,1.5,1", "line 2, batch: not a whole number: got '1.5'"),
    (f"{HEADER}\na,70,0,1", "line 2, batch: .*got 0; allowed: a whole number from 1"),
    (f"{HEADER}\na,70,1,1\na,70,1,1", "line 3, batch: .* 1 of a appears twice.*line 2"),
    (f"{HEADER}\na,70,2,1", "model a, batches: no batch-1"),
    (f"{HEADER}\na,170,1,1", "model a, accuracy: accuracy out of range"),
    (f"{HEADER},task\na,70,1,1,image\nb,80,1,1,text", "several tasks.*image, text"),
    (f'{HEADER}\n"a,70,1,1', "not valid CSV"),
])
def test_a_bad_statistics_file_is_refused_with_its_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputFileError, match=message) as caught:
        import_profile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [
    (QUANTILES_CSV.replace("q1_ms", "q1_s"), "unknown column or unit: got 'q1_s'"),
    (QUANTILES_CSV.replace("q3_ms", "q4_ms"), "unknown column or unit: got 'q4_ms'"),
    (QUANTILES_CSV.replace("10.5", "9"), r"line 2, quantiles_ms\[1\]: numbers fall"),
    ("model,batch,q0_ms\na,1,3", "missing column: got 'q1_ms'"),
])
def test_a_bad_quantile_file_is_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        import_profile(written(tmp_path, text), accuracy={"small": 0.5, "large": 0.6})


@pytest.mark.parametrize(("name", "text", "message"), [
    ("m_bsize-2_profile.json", "[0.1]", "no batch-1 profile"),
    ("m_bsize-1_profile.json", "[0.1, ", "cut off or damaged"),
    ("m_bsize-1_profile.json", "[]", "not a list of samples"),
    ("m_bsize-1_profile.json", '{"a": 1}', "not a list of samples"),
    ("m_bsize-1_profile.json", '[0.1, "x"]', r"\[1\]: not a number: got 'x'"),
    ("m_bsize-1_profile.json", "[0.1, NaN]", r"\[1\]: .*: got nan; allowed: a finite number"),
    ("m_bsize-1_profile.json", "[0.1, 0]", r"samples_ms\[1\]: latency is not positive"),
    ("m_batch-1.json", "[0.1]", "unexpected file name"),
    ("other_bsize-1_profile.json", "[0.1]", "unexpected file name"),
])
def test_a_bad_folder_of_samples_is_refused(tmp_path, name, text, message):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / name).write_text(text)
    with pytest.raises(InputFileError, match=message):
        import_profile(tmp_path, accuracy={"m": 0.5})


def test_a_folder_without_profiles_is_refused(tmp_path):
    with pytest.raises(InputFileError, match="no profiles in this folder"):
        import_profile(tmp_path)


@pytest.mark.parametrize(("text", "unit"), [
    (json.dumps(ACCURACY), None),
    (json.dumps({"unit": "fraction", "accuracy": {"small": 0.7025, "large": 0.815}}), None),
    (json.dumps({"small": 0.7025, "large": 0.815}), None),
    (json.dumps({"small": 70.25, "large": 81.5}), "percent"),
    ("model,accuracy_percent\nsmall,70.25\nlarge,81.5\n", "fraction"),
    ("accuracy_fraction,model\n0.7025,small\n0.815,large\n", None),
    ("model,accuracy\nsmall,70.25\nlarge,81.5\n", "percent"),
])
def test_accuracies_are_read_in_every_form(tmp_path, text, unit):
    path = written(tmp_path, text, "accuracy")
    assert read_accuracy(path, unit) == {"small": 0.7025, "large": 0.815}


@pytest.mark.parametrize(("text", "message"), [
    ("", "file is empty"),
    ("{", "cut off or damaged"),
    ('{"a": 70, "b": 0.5}', "unit of the accuracies is not stated: got 70"),
    ('{"a": "0.5"}', r"a: not an accuracy \(fraction\): got '0.5'"),
    ('{"a": true}', "a: not an accuracy"),
    ('{"unit": "percent", "accuracy": {"a": 0.9}}', "no accuracy above 1 percent"),
    ("model,accuracy_percent\na,0.9\nb,0.8", "no accuracy above 1 percent; fractions"),
    ('{"unit": "permille", "accuracy": {"a": 1}}', "unknown unit.*permille"),
    ('{"unit": {"a": 1}, "accuracy": {"a": 1}}', "unknown unit"),
    ('{"unit": "percent", "accuracy": {"a": 170}}', r"a: not an accuracy \(percent\).*100"),
    ("model,accuracy\na,70", "unit of the accuracies is not stated"),
    ("model,accuracy_percent,accuracy_fraction\na,70,0.7", "not stated once"),
    ("model,accuracy_percent\na,70\na,71", "line 3, model: model appears twice"),
    ("model,accuracy_percent,size\na,70,3", "unknown column or unit: got 'size'"),
])
def test_a_bad_accuracy_file_is_refused(tmp_path, text, message):
    path = written(tmp_path, text, "accuracy")
    with pytest.raises(InputFileError, match=message):
        read_accuracy(path)


def test_a_file_is_utf8_perhaps_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "source.csv"
    path.write_text(STATISTICS_CSV, encoding="utf-8-sig")
    assert len(import_profile(path).models) == 2
    path.write_bytes(b"model,batch,p95_s\n\xff,1,2")
    with pytest.raises(InputFileError, match=r"not UTF-8.*allowed: .*iconv"):
        import_profile(path)


def test_the_image_statistics_are_read_as_they_stand(reference_dir):
    source = reference_dir / "ramsis_image_profiles.csv"
    found = named(import_profile(source))
    with source.open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(len(model.batches) for model in found.values()) == len(rows)
    for row in rows:
        model = found[row["model"]]
        item = next(item for item in model.batches if item.batch == int(row["batch"]))
        assert model.accuracy == pytest.approx(float(row["accuracy"]) / 100)
        assert item.n == int(row["n"])
        for name in ("mean", "std", "min", "p50", "p90", "p95", "p99", "max"):
            assert getattr(item, f"{name}_ms") == pytest.approx(float(row[f"{name}_s"]) * 1000)


def test_the_image_quantiles_agree_with_the_image_statistics(reference_dir):
    """Both come from the same samples, and the sketch keeps 128 of their quantiles."""
    statistics = import_profile(reference_dir / "ramsis_image_profiles.csv")
    accuracy = {model.name: model.accuracy for model in statistics.models}
    sketches = import_profile(reference_dir / "ramsis_image_quantiles.csv", accuracy=accuracy)
    for model in sketches.models:
        stated = {item.batch: item for item in named(statistics)[model.name].batches}
        for item in model.batches:
            assert len(item.quantiles_ms or ()) == 128
            assert item.p50_ms == pytest.approx(stated[item.batch].p50_ms, rel=0.01)
            assert item.p90_ms == pytest.approx(stated[item.batch].p90_ms, rel=0.02)


@pytest.mark.parametrize("text", ["1_0", "\u0663", "0x10", "1e"])
def test_numbers_of_a_table_are_plain(tmp_path, text):
    (tmp_path / "a.csv").write_text(f"model,batch,latency_ms,accuracy\na,1,{text},0.9\n")
    with pytest.raises(InputFileError, match="line 2, latency_ms"):
        import_profile(tmp_path / "a.csv", "long-csv")
