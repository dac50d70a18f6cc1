"""Small files that would take all memory or hours are refused in a line that states the limit."""

import json
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from placement_milp import problem_from_document
from ramsis import arrays, files, profiles, runtime
from ramsis.arrays import read_arrays
from ramsis.arrivals.fitting import fit_trace
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.files import canonical_json, read_json, read_toml
from ramsis.policy import read
from ramsis.sweep import SweepSpec
from tests.changes import put
from tests.placement.samples import document as problem
from tests.policy.samples import document

SWEEP = """profiles = "digits-cpu"
workers = 2
slo_ms = 25
load_qps = 100
scheduler = "greedy"
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("key", [
    "[" + ".".join("a" * 20_000) + "]\nx", " . ".join(["b-1"] * 5000),
    ".".join(['"a"'] * 5000), ".".join(["'a b'"] * 5000), "x = {" + ".".join("a" * 5000)])
def test_a_key_of_many_parts_is_refused(tmp_path, key):
    """Its tables would take gigabytes."""
    begun = time.process_time()
    with pytest.raises(InputFileError, match=r"key has too many parts: .*allowed: at most 64"):
        read_toml(written(tmp_path / "a.toml", f"{key} = 1\n"))
    assert time.process_time() - begun < 1.0


@pytest.mark.slow
def test_many_keys_of_some_parts_are_refused(tmp_path):
    """A megabyte of them took 280."""
    line = ".".join("a" * 60)
    text = "".join(f"x{i}.{line} = 1\n" for i in range(9000))
    with pytest.raises(InputFileError, match="keys have too many parts: got 540000; allowed: "):
        read_toml(written(tmp_path / "a.toml", text))
    numbers = "x = [" + "0.5, " * 700_000 + "1]\n"
    assert len(read_toml(written(tmp_path / "b.toml", numbers))["x"]) == 700_001


@pytest.mark.parametrize("text", ["a" * 10**6, '"' * 10**6, "a." * 63 + "a = 1", "'a\n" * 10**5,
                                  "x = '" + "a " * 10**5 + "'", "-" * 10**6])
def test_other_texts_are_looked_through_quickly(tmp_path, text):
    begun = time.process_time()
    files._DEEP_KEY.search(text)
    list(files._LONG_KEY.finditer(text))
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("value", ["9" * 400, "9" * 19, "-" + "9" * 400])
def test_a_whole_number_without_end_is_no_whole_number(tmp_path, value):
    """As in JSON; to compare such a one with a float would fail."""
    found = read_toml(written(tmp_path / "a.toml", f"x = [{{y = {value}}}]\nz = 7\n"))
    assert type(found["x"][0]["y"]) is float
    assert found["z"] == 7
    path = written(tmp_path / "b.toml", SWEEP + "duration_s = " + "9" * 400 + "\n")
    with pytest.raises(InputFileError, match="duration_s: not a value of this key"):
        SweepSpec.load(path)


def test_a_long_toml_file_is_refused(tmp_path):
    path = written(tmp_path / "a.toml", "x = 1\n#" + "a" * (4 << 20))
    with pytest.raises(InputFileError, match=r"file is too large: .*allowed: .*4 MB"):
        SweepSpec.load(path)


@pytest.mark.parametrize("item", ["[],", "{},", "1,"])
def test_a_document_of_many_values_is_refused(tmp_path, monkeypatch, item):
    monkeypatch.setattr(files, "_LARGE_JSON", 1 << 20)
    monkeypatch.setattr(files, "_MOST_VALUES", 400_000)
    path = written(tmp_path / "a.json", '{"a": [' + item * 600_000 + "0]}")
    with pytest.raises(InputFileError, match="too many values; allowed: "):
        read_json(path)


def test_a_profile_of_many_models_is_refused(tmp_path):
    models = [{"name": f"m{i}", "accuracy": 0.5, "batches": [{"batch": 1, "p95_ms": 1.0}]}
              for i in range(10_001)]
    path = written(tmp_path / "a.json", json.dumps(
        {"format": "ramsis.profile/1", "name": "many", "models": models}))
    with pytest.raises(InputFileError, match="models: wrong number of entries: got '10001 "):
        profiles.load(path)


SIMULATED = {"violation_rate": 0.0, "violation_half_width": 0.0, "effective_accuracy": 0.5,
             "effective_half_width": 0.0, "queries": 1000, "runs": 2, "seed": 0}


@pytest.mark.parametrize(("key", "value"), [
    ("queries", 10**9), ("runs", 10**6), ("runs", 65), ("queries", 20_000_001)])
@pytest.mark.parametrize("record", ["replay", "budget"])
def test_what_a_file_has_its_verifier_simulate_is_limited(tmp_path, record, key, value):
    stated = document()
    stated[record] = {**SIMULATED, key: value,
                      **({"max_violation_rate": 0.1} if record == "budget" else
                         {"half_widths": {}})}
    path = written(tmp_path / "a.json", canonical_json(stated))
    with pytest.raises(InputFileError, match=rf"{record}.{key}: not a valid number: got {value}"):
        read(path)


@pytest.mark.parametrize(("change", "said"), [
    (put("workers", value=10**9), "workers: not a valid number: got 1000000000"),
    (put("models", 0, "accuracy", value=1e308), r"models\[0\].accuracy: not a valid number"),
    (put("models", 0, "latency_ms", value=[]), r"models\[0\].latency_ms: not a list"),
    (put("models", value=[{"name": f"m{i}"} for i in range(10_001)]), "models: too many models"),
])
def test_what_a_server_loads_is_limited(tmp_path, change, said):
    stated = document()
    change(stated)
    with pytest.raises(InputFileError, match=said):
        runtime.load_selector(written(tmp_path / "a.json", canonical_json(stated)))


@pytest.mark.parametrize("name", ["x" * 5000, "/".join(["x" * 100] * 5), "é" * 200])
def test_a_file_with_a_long_name_is_refused_in_a_line(tmp_path, name):
    from ramsis.policy import write_set
    from ramsis.policy.policy_set import set_of
    from tests.policy.samples import small_policy

    write_set(tmp_path, set_of([small_policy()]), created_by="tests")
    path = tmp_path / "manifest.json"
    stated = json.loads(path.read_text())
    stated["levels"][0]["stations"][0]["file"] = name
    path.write_text(canonical_json(stated))
    with pytest.raises(InputFileError, match="not the name of a file in this folder"):
        runtime.load(tmp_path)


def test_numbers_that_no_solver_holds_are_refused(tmp_path):
    """Workers by the billion took gigabytes; a demand of 1e300 ended with a traceback."""
    for place, value, said in ((("families", 0, "demand_qps"), 1e300, "demand_qps: not a valid"),
                               (("worker_types", 0, "count"), 10**9, "count: not a valid number")):
        stated = json.loads(json.dumps(problem()))
        put(*place, value=value)(stated)
        with pytest.raises(InputFileError, match=said):
            problem_from_document(stated, "a problem")


def test_arrays_that_grow_without_end_are_refused(tmp_path, monkeypatch):
    """32 MB in 32 kB where a tenth of the usual limit holds, and a header that asks for more."""
    monkeypatch.setattr(arrays, "_MAX_BYTES", arrays._MAX_BYTES // 10)
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((4_000_000,), np.float64))
    with pytest.raises(InputFileError, match="arrays are too large for their file: got '3200"):
        read_arrays(str(path))
    with zipfile.ZipFile(path, "w") as packed:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**17},), }}"
        packed.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
                        + header.encode() + bytes(64))
    with pytest.raises(InputFileError, match=r"cannot read an \.npz file"):
        read_arrays(str(path))


def test_times_that_are_none_are_refused():
    """Squares of latencies, and windows of a trace, were infinite."""
    with pytest.raises(profiles.ProfileError, match=r"samples_ms\[1\]: latency .*below 1e\+150"):
        profiles.BatchProfile.from_samples(1, [1.0, 1e300])
    with pytest.raises(InvalidValueError, match=r"too long to fit a process: got '1e\+303 ms'"):
        fit_trace(np.append(np.arange(100.0), 1e303))
