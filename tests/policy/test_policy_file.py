"""Policy files: what is written is what is read, byte for byte, whole or not at all."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ramsis import policy
from ramsis.errors import InvalidValueError
from ramsis.fields import Fields
from ramsis.files import canonical_json
from ramsis.runtime.table import AXES
from ramsis.runtime.table_reader import decision_table
from ramsis.schemas import read_schema
from tests.central import samples
from tests.policy.samples import document, large_policy, policies, small_policy
from tests.reference import lookup
from tests.work import calls_of


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sample=policies())
def test_any_policy_comes_back_from_its_file_unchanged(tmp_path_factory, sample):
    path = tmp_path_factory.mktemp("files") / "policy.json"
    text = policy.write(sample, path)
    again = policy.read(path)
    assert again.to_document() == sample.to_document()
    assert policy.policy_text(again) == text == path.read_text(encoding="utf-8")
    np.testing.assert_array_equal(again.codes, sample.codes)
    np.testing.assert_array_equal(again.actions, sample.actions)
    assert again.slack_ms.tolist() == sample.slack_ms.tolist()
    assert again.latency_ms.shape == (len(sample.models), sample.max_queue + 1)


def test_the_sample_passes_the_full_validation(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(canonical_json(document()))
    assert policy.validate(path).to_document() == document()


def test_nine_models_and_a_hundred_bins_stay_small_and_readable():
    text = policy.policy_text(large_policy())
    lines = text.splitlines()
    assert len(text.encode()) < 200_000
    assert len(lines) < 400 + len(large_policy().actions)
    assert sum(line.count(",") > 90 for line in lines) == 32 + 1  # one row of a table a line


def test_a_file_is_read_with_a_few_calls_a_row(tmp_path):
    path = tmp_path / "policy.json"
    policy.write(large_policy(), path)
    assert calls_of(lambda: policy.read(path)) < 50 * len(large_policy().actions)


def test_numpy_numbers_are_written_as_plain_ones():
    counted = small_policy(workers=np.int64(4), load_qps=np.float64(80.0),
                           arrivals={"process": "x", "rates": (np.float64(0.5), np.int64(2))})
    read = policy.Policy.from_document(counted.to_document(), "here")
    assert read.arrivals == {"process": "x", "rates": [0.5, 2]}
    assert policy.policy_text(read) == policy.policy_text(counted)


def test_tables_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        small_policy().codes[0, 0, 0] = 1


def test_absent_fields_that_may_be_null_read_as_null():
    older = document()
    del older["certificate"]["tolerance"], older["expectations"]["upper_bound"]
    read = policy.Policy.from_document(older, "older.json")
    assert read.certificate.tolerance is None
    assert read.expectations.upper_bound is None


@pytest.mark.parametrize(
    "changes", [{"load_qps": float("nan")}, {"workers": 0}, {"codes": [[[9] * 5] * 3]},
                {"arrivals": {"process": "x", "shape": {1, 2}}}], ids=str)
def test_a_policy_that_breaks_the_format_is_not_written(tmp_path, changes):
    with pytest.raises(InvalidValueError, match="not a policy that can be written"):
        policy.write(small_policy(**changes), tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["fdopen", "replace"])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, moment):
    path = tmp_path / "policy.json"
    old = policy.write(small_policy(), path)

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, moment, interrupt)
    with pytest.raises(KeyboardInterrupt):
        policy.write(small_policy(load_qps=90.0), path)
    monkeypatch.undo()
    assert path.read_text() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.json"]


def test_the_schema_and_the_code_know_the_same_choices_and_fields():
    properties = read_schema("ramsis.policy", "policy-1")["properties"]
    known = {"batching": policy.BATCHINGS, "late": policy.LATE_RULES,
             "service": policy.SERVICES, "dispatch": tuple(policy.DISPATCHES),
             "objective": policy.OBJECTIVES}
    for field, choices in known.items():
        assert tuple(properties[field]["enum"]) == choices
    assert properties["format"]["const"] == policy.POLICY_FORMAT
    written = small_policy().to_document()
    assert set(properties) == {*written, "slo_classes", "budget", "replay", "patient",
                               "random_ends", "overhead_ms", "headroom", "quantile_levels",
                               "tails", "slowness", "load_factor", "cascade"}
    assert set(properties["expectations"]["properties"]) == {
        *written["expectations"], "interval", "response_mean_ms", "response_p50_ms",
        "response_p95_ms", "response_p99_ms"}
    assert set(properties["certificate"]["properties"]) == set(written["certificate"])
    assert set(properties["inputs"]["properties"]) == {*written["inputs"], "options"}
    assert set(properties["table"]["properties"]) == set(written["table"])
    assert tuple(properties["table"]["properties"]["axes"]["properties"]) == AXES


@pytest.mark.parametrize("document", [lookup.CENTRAL, lookup.CLASSES])
def test_every_kind_of_policy_comes_back_and_validates(tmp_path, document):
    path = tmp_path / "policy.json"
    path.write_text(canonical_json(document))
    read = policy.validate(path)
    assert read.to_document() == document
    assert policy.policy_text(read) == path.read_text()


@pytest.mark.parametrize("document", [lookup.POLICY, lookup.CENTRAL])
def test_a_policy_in_memory_gives_the_table_of_its_file(document):
    found = policy.Policy.from_document(document, "file").decision_table()
    read = decision_table(Fields(document, "file"))
    assert found._replace(rows=(), row_of=()) == read._replace(rows=(), row_of=())
    for i, n in itertools.product(range(len(found.row_of)), range(len(found.row_of[0]))):
        assert list(found.rows[found.row_of[i][n]]) == read.rows[read.row_of[i][n]]


def test_a_made_central_policy_comes_back_and_stays_small(tmp_path):
    made = samples.policy(6000.0)
    text = policy.write(made, tmp_path / "p.json")
    found = policy.validate(tmp_path / "p.json")
    assert (found.codes == made.codes).all()
    assert policy.policy_text(found) == text
    assert found.expectations == made.expectations
    sizes = [len(policy.policy_text(samples.policy(300.0 * workers, workers=workers)))
             for workers in (20, 2000)]
    assert max(sizes) < 200_000
    assert sizes[1] < 4 * sizes[0]
