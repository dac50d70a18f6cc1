"""Profile files: reading, writing, the schema, and shipped sets."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.profiles import (
    BatchProfile,
    Confidences,
    ModelConfidence,
    Pair,
    ProfileSet,
    load,
    prune,
    save,
    shipped_names,
)
from tests.changes import drop, put
from tests.profiles.samples import document, model, profile_set

Place = tuple[str | int, ...]
SCHEMA = ProfileSet.schema()
DELETE = object()
SMALL: Place = ("models", 0)
BATCH: Place = ("models", 0, "batches", 1)
SURE: Place = ("confidences", "models", 0)
PAIR: Place = ("confidences", "pairs", 0)

BROKEN_BY_SHAPE: list[tuple[Place, object, str]] = [
    (("format",), "ramsis.profile/2", "format: this version of ramsis.profile is not known"),
    (("format",), DELETE, "format: field is missing"),
    (("name",), DELETE, "name: field is missing"),
    (("name",), "", "name: not a name"),
    (("extra",), 1, "extra: unknown field"),
    (("hardware",), [], "hardware: not an object"),
    (("measurement",), "warm", "measurement: not an object"),
    (("models",), DELETE, "models: field is missing"),
    (("models",), [], "models: not a list"),
    (("models",), {}, "models: not a list"),
    (SMALL, 3, r"models\[0\]: not an object"),
    ((*SMALL, "name"), 7, r"models\[0\]\.name: not a name"),
    ((*SMALL, "accuracy"), DELETE, r"models\[0\]\.accuracy: field is missing"),
    ((*SMALL, "accuracy"), 75, r"models\[0\]\.accuracy: .*in percent\? then write 0\.75"),
    ((*SMALL, "accuracy"), None, r"models\[0\]\.accuracy: null"),
    ((*SMALL, "latency"), 3, r"models\[0\]\.latency: unknown field"),
    ((*SMALL, "memory_mb"), -3, r"models\[0\]\.memory_mb: .*got -3; .*finite number > 0"),
    ((*SMALL, "load_ms"), "slow", r"models\[0\]\.load_ms: not a valid number: got 'slow'"),
    ((*SMALL, "batches"), [], r"models\[0\]\.batches: not a list"),
    (BATCH, [], r"models\[0\]\.batches\[1\]: not an object"),
    ((*BATCH, "batch"), 0, r"models\[0\]\.batches\[1\]\.batch: .*a whole number from 1 to 65536"),
    ((*BATCH, "p95_ms"), 0, r"models\[0\]\.batches\[1\]\.p95_ms: .*got 0; .*>= 0.0001"),
    ((*BATCH, "p95_ms"), "9", r"models\[0\]\.batches\[1\]\.p95_ms: not a valid number: got '9'"),
    ((*BATCH, "p95_ms"), DELETE, r"models\[0\]\.batches\[1\]\.p95_ms: missing"),
    ((*BATCH, "p95_s"), 1.0, r"models\[0\]\.batches\[1\]\.p95_s: unknown field"),
    ((*BATCH, "n"), 1.5, r"models\[0\]\.batches\[1\]\.n: .*got 1.5; .*whole number >= 1"),
    ((*BATCH, "std_ms"), -1, r"models\[0\]\.batches\[1\]\.std_ms: .*got -1; .*finite number >= 0"),
    ((*BATCH, "quantiles_ms"), [1], r"batches\[1\]\.quantiles_ms: wrong number of entries"),
    ((*BATCH, "quantiles_ms"), [1, True], r"batches\[1\]\.quantiles_ms\[1\]: .*got True"),
    (("confidences",), [], "confidences: not an object"),
    (("confidences", "pairs"), DELETE, r"confidences\.pairs: field is missing"),
    (("confidences", "models"), [], r"confidences\.models: not a list"),
    (("confidences", "pairs"), {}, r"confidences\.pairs: not a list"),
    (("confidences", "samples"), 9, r"confidences\.samples: unknown field"),
    (("confidences", "stated_samples"), 0, r"confidences\.stated_samples: .*whole number >= 1"),
    (("confidences", "items"), 0.5, r"confidences\.items: .*whole number >= 1"),
    (("confidences", "source"), "", r"confidences\.source: not a name"),
    (SURE, 1, r"confidences\.models\[0\]: not an object"),
    ((*SURE, "thresholds"), [], r"models\[0\]\.thresholds: not a list"),
    ((*SURE, "thresholds"), [0.5, "1"], r"models\[0\]\.thresholds\[1\]: not a valid number"),
    ((*SURE, "share"), [1.0], r"models\[0\]\.share: .*got '1 entries'; allowed: 2 to 1000"),
    ((*SURE, "accuracy"), [0.5, 0.5, 75], r"models\[0\]\.accuracy\[2\]: .*a fraction in \[0, 1\]"),
    ((*PAIR, "first"), 1, r"confidences\.pairs\[0\]\.first: not a name"),
    ((*PAIR, "expected_increment"), [0.2, 0.1, -2], r"\.expected_increment\[2\]: .*from -1 to 1"),
]
BROKEN_BY_MEANING: list[tuple[Place, object, str]] = [
    ((*SMALL, "name"), "large", r"models\[1\]\.name: duplicate model"),
    ((*BATCH, "batch"), 1, r"models\[0\]\.batches\[1\]\.batch: duplicate batch size"),
    (("models", 1, "batches", 0, "batch"), 2, r"models\[1\]\.batches: no batch-1 profile"),
    ((*BATCH, "quantiles_ms"), [3, 2], r"\[1\]: numbers fall: got 2.*at least 3"),
    ((*BATCH, "p99_ms"), 1.0, r"batches\[1\]\.p99_ms: p99_ms is below p95_ms"),
    ((*SURE, "thresholds"), [0.5, 0.5], r"thresholds\[1\]: numbers do not rise.*above 0.5"),
    ((*SURE, "share"), [0.5, 0.5, 0.5], r"models\[0\]\.share: shares do not add up to 1: got 1.5"),
    ((*SURE, "accuracy"), [0.5, 0.5], r"\.accuracy: not a number for each bin: .*3 numbers"),
    ((*SURE, "name"), "large", r"confidences\.models\[1\]\.name: duplicate model"),
    (("models", 0, "name"), "tiny", r"confidences\.models\[0\]\.name: no such model in the set"),
    ((*PAIR, "second"), "tiny", r"pairs\[0\]\.second: model without confidences.*small, large"),
    ((*PAIR, "second"), "small", r"pairs\[0\]\.second: a model gives no second opinion on itse"),
    ((*PAIR, "first"), "large", r"a model gives no second opinion on itself"),
    ((*PAIR, "expected_increment"), [0.2, 0.1], r"expected_increment: .*3 numbers"),
    ((*PAIR, "gain_error"), [0.2, 0.1, -1e-3], r"\.gain_error\[2\]: .*a fraction in"),
    (("confidences", "pairs"), 2 * document()["confidences"]["pairs"],
     r"pairs\[1\]: duplicate pair: got 'small, large'"),
    (PAIR, {"first": "small", "second": "large", "accuracy": [0.7, 0.8],
            "expected_increment": [0.1, 0.1], "gain_error": [0.1, 0.1]},
     r"pairs\[0\]\.accuracy: not a number for each bin of small: got 2; allowed: 3"),
]


def changed(place: Place, value: object) -> dict[str, Any]:
    """The valid document with one place replaced or deleted."""
    result = copy.deepcopy(document())
    (drop(*place) if value is DELETE else put(*place, value=value))(result)
    return result


def written(folder: Path, content: object) -> Path:
    path = folder / "a-set.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_every_field_is_read(tmp_path):
    found = load(written(tmp_path, document()))
    small, large = found.models
    assert (found.name, found.hardware["threads"], found.measurement["notes"][1]) == (
        "a-set", 1, None)
    assert (small.name, small.accuracy, small.memory_mb, small.load_ms) == (
        "small", 0.75, 12.5, 30.0)
    assert small.batches[0] == BatchProfile(1, 200, 10.0, 0.5, 9.0, 10.0, 11.0, 12.0, 13.0, 20.0,
                                            (9.5, 10.0, 12.5), 0.02)
    assert large.batches == (BatchProfile(1, p95_ms=40.0),)
    assert found.confidences == Confidences(
        300, 200,
        (ModelConfidence("small", (0.5, 0.75), (0.25, 0.25, 0.5), (0.5, 0.75, 0.875)),
         ModelConfidence("large", (0.5,), (0.5, 0.5), (0.7, 0.9))),
        (Pair("small", "large", (0.75, 0.75, 0.85), (0.2, 0.1, -0.01),
              (0.01, 0.02, 0.005)),), 100, "pictures")


@pytest.mark.parametrize(("place", "value", "message"), BROKEN_BY_SHAPE + BROKEN_BY_MEANING)
def test_a_broken_file_is_refused_in_one_line_with_its_place(tmp_path, place, value, message):
    path = written(tmp_path, changed(place, value))
    with pytest.raises(InputFileError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("place", "value", "_message"), BROKEN_BY_SHAPE)
def test_the_schema_refuses_what_the_reader_refuses(place, value, _message):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(place, value), SCHEMA)


def test_the_schema_is_one_and_accepts_what_the_reader_accepts():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document(), SCHEMA)


@pytest.mark.parametrize("content", ["", "[]", "nonsense", json.dumps(document())[:200]])
def test_a_file_that_is_no_json_object_is_refused(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(InputFileError, match=str(path)):
        load(path)


def test_a_saved_set_is_the_same_again_and_byte_stable(tmp_path):
    found = load(written(tmp_path, document()))
    save(found, tmp_path / "one.json")
    again = load(tmp_path / "one.json")
    save(again, tmp_path / "two.json")
    assert again == found
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    jsonschema.validate(json.loads((tmp_path / "one.json").read_text()), SCHEMA)


def test_a_set_that_cannot_be_saved_is_refused_and_nothing_is_written(tmp_path):
    found = ProfileSet("a", (model("m", 0.5, {1: 1.0}),), {"cpu": object()})
    with pytest.raises(InvalidValueError, match="hardware or measurement"):
        save(found, tmp_path / "x.json")
    with pytest.raises(OutputError, match="is a folder"):
        save(profile_set(model("m", 0.5, {1: 1.0})), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_lists_the_near_and_all_shipped_ones():
    with pytest.raises(InputFileError, match=r"did you mean digits-cpu.*one of:.*digits-cpu"):
        load("digits-gpu")
    with pytest.raises(InputFileError, match=r"one of:.*digits-cpu"):
        load("no/such/file.json")


def test_a_folder_of_the_same_name_does_not_hide_a_shipped_set(tmp_path, monkeypatch):
    (tmp_path / "digits-cpu").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits-cpu").name == "digits-cpu"


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_set_is_valid_and_says_how_it_was_measured(name):
    found = load(name)
    assert found.name == name
    assert found.hardware
    assert found.measurement
    assert all((item.n or 0) >= 100 and item.quantiles_ms
               for model in found.models for item in model.batches)


def test_the_digits_set_offers_a_choice_of_six_models_or_more():
    assert "digits-cpu" in shipped_names()
    front = prune(load("digits-cpu").latency_table())
    assert len(front.models) >= 6
    assert (front.accuracy[1:] > front.accuracy[0]).all()


def test_profiles_load_without_the_heavy_packages():
    """A command that only reads profiles starts fast."""
    code = (
        "import sys, ramsis.profiles.importers, ramsis.profiles.checks\n"
        "heavy = {'scipy', 'pandas', 'numba', 'jsonschema', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         cwd=Path(__file__).resolve().parents[2], check=False)
    assert ran.returncode == 0, ran.stderr
