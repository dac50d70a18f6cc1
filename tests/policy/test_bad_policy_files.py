"""Bad policy files: each is refused with one line that names the file, the place and the value."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramsis import policy, runtime
from ramsis.errors import InputFileError
from ramsis.files import MAX_FILE_BYTES
from tests.changes import both, drop, put
from tests.policy.samples import document
from tests.reference import lookup

Document = dict[str, Any]


LOOKUP = {
    "an accuracy above 1": (put("models", 0, "accuracy", value=60.0),
                            "models[0].accuracy: not a valid number: got 60.0; allowed: "
                            "a fraction in [0, 1]"),
    "a later version": (put("format", value="ramsis.policy/2"),
                        "format: this version of ramsis.policy is not known here: got "
                        "'ramsis.policy/2'; allowed: ramsis.policy/1"),
    "another format": (put("format", value="ramsis.profile/1"),
                       "format: not a ramsis.policy file: got 'ramsis.profile/1'"),
    "no format": (drop("format"), "format: field is missing"),
    "an unknown late rule": (put("late", value="lose"), "late: unknown late: got 'lose'"),
    "an unknown axis": (put("table", "axes", "mode", value=[0, 1]),
                        "table.axes.mode: unknown axis; allowed: idle, queued, slack_ms"),
    "an axis too few": (drop("table", "axes", "idle"), "table.axes.idle: field is missing"),
    "idle levels of more workers than a queue has": (
        put("table", "axes", "idle", value=[0, 1, 2]),
        "table.axes.idle[2]: not the number of workers of a queue: got 2; allowed: 1"),
    "queues that are left out": (put("table", "axes", "queued", value=[0, 1, 2, 4]),
                                 "table.axes.queued[3]: levels do not rise"),
    "no queue": (put("table", "axes", "queued", value=[0]),
                 "table.axes.queued: too few levels: got [0]"),
    "a model index out of range": (put("table", "actions", 2, 0, value=3),
                                   "table.actions[2]: not a model and a batch: got [3, 1]; "
                                   "allowed: [0 to 2, 1 to 4]"),
    "a truth value for a model index": (put("table", "actions", 0, 0, value=True),
                                        "table.actions[0]: "),
    "an empty batch": (put("table", "actions", 1, 1, value=0), "table.actions[1]: "),
    "no action of that number": (put("table", "rows", 0, 1, value=8),
                                 "table.rows[0]: not a row of slack bins and actions: got "
                                 "[0, 8, 3, 1, 4, 2]; allowed: rising bins from 0 to 4, each "
                                 "with an action from 0 to 7"),
    "an unknown code where drops are allowed": (
        both(put("late", value="drop"), put("table", "rows", 0, 1, value=-3)),
        "table.rows[0]: not a row"),
    "a batch above the queue": (put("table", "index", 0, 0, value=1),
                                "table.index[0][0]: no such row for this queue: got 1; allowed: "
                                "0 to 2, with batches up to 1"),
    "a partial batch under maximal batching": (put("batching", value="maximal"),
                                               "table.index[0][1]: no such row for this queue: "
                                               "got 1; allowed: 0 to 2, with batches of 2"),
    "too few rows": (put("table", "index", 0, value=[0, 1]),
                     "table.index[0]: not a row for each queue level: got [0, 1]; "
                     "allowed: 3 whole numbers"),
    "a row that stands still": (put("table", "rows", 1, value=[0, 1, 0, 2]), "table.rows[1]: "),
    "a row that does not start at 0": (put("table", "rows", 0, value=[1, 0]), "table.rows[0]: "),
    "an unknown field in the table": (put("table", "wait", value=[]),
                                      "table.wait: unknown field"),
    "a grid that stands still": (put("table", "axes", "slack_ms", 2, value=0.1),
                                 "table.axes.slack_ms[2]: numbers do not rise: got 0.1; "
                                 "allowed: above 0.1"),
    "a grid above the SLO": (put("slo_ms", value=89.0),
                             "table.axes.slack_ms[4]: slack grid passes the SLO: got 90.0; "
                             "allowed: a number <= 89.0 (slo_ms)"),
    "a text in the grid": (put("table", "axes", "slack_ms", 1, value="0.1"),
                           "table.axes.slack_ms[1]: not a valid number"),
    "a model that appears twice": (put("models", 2, "name", value="small"),
                                   "models[2].name: model appears twice: got 'small'"),
    "a model that is no object": (put("models", 1, value="medium"), "models[1]: not an object"),
    "no workers": (put("workers", value=0), "workers: not a valid number: got 0"),
    "a load beyond all numbers": (put("load_qps", value=10**400), "load_qps: not a valid number"),
    "a longer queue that gets no action": (put("table", "longer_queue", value=8),
                                           "table.longer_queue: not what a longer queue can get: "
                                           "got 8; allowed: an action from 0 to 7"),
    "a longer queue that is dropped where none is allowed": (
        put("table", "longer_queue", value=-2), "table.longer_queue: "),
    "a longer queue that waits": (both(put("late", value="drop"),
                                       put("table", "longer_queue", value=-1)),
                                  "table.longer_queue: "),
    "an unknown dispatch": (put("dispatch", value="random"), "dispatch: unknown dispatch: got "
                            "'random'; allowed: round-robin, shortest-queue, central-queue"),
    "a process without a name": (put("arrivals", value={"shape": 2}),
                                 "arrivals.process: field is missing"),
    "a process name with a space": (put("arrivals", "process", value="a b"),
                                    "arrivals.process: not the name of a process"),
    "a parameter name with a colon": (put("arrivals", "a:b", value=1),
                                      "arrivals.a:b: not the name of a parameter"),
}
"""What the runtime refuses too."""

REST = {
    "several SLOs for queues of single workers": (
        put("slo_classes", value=[{"slo_ms": 50.0, "share": 0.5},
                                  {"slo_ms": 100.0, "share": 0.5}]),
        "slo_classes: queues of single workers have one SLO"),
    "a negative latency": (put("models", 1, "latency_ms", 2, value=-66.7),
                           "models[1].latency_ms[2]: not a valid number: got -66.7; allowed: "
                           "a finite number > 0"),
    "a latency too few": (drop("models", 0, "latency_ms", 0), "models[0].latency_ms: list has"),
    "an unknown latency origin": (put("models", 0, "latency_origin", value="mmmx"),
                                  "models[0].latency_origin: not one letter"),
    "a rate above 1": (put("expectations", "per_decision", "violation_rate", value=1.1),
                       "expectations.per_decision.violation_rate: "),
    "a share of an unknown model": (put("expectations", "model_share", "huge", value=0.0),
                                    "expectations.model_share.huge: unknown field"),
    "a text for a truth value": (put("expectations", "overloaded", value="no"),
                                 "expectations.overloaded: not a truth value: got 'no'"),
    "an unknown service": (put("service", value="p42"), "service: unknown service: got 'p42'"),
    "drawn times without quantiles": (put("service", value="distribution"),
                                      "models[0].quantiles_ms: field is missing"),
    "quantiles of fixed times": (put("models", 0, "quantiles_ms", value=[[1.0, 2.0]]),
                                 "models[0].quantiles_ms: unknown field"),
    "quantiles that fall": (both(put("service", value="distribution"),
                                 put("models", 0, "quantiles_ms", value=[[1.0, 2.0], [3.0, 2.0]])),
                            "models[0].quantiles_ms[1][1]: numbers fall: got 2.0"),
    "quantiles for too few batches": (both(put("service", value="distribution"),
                                           put("models", 0, "quantiles_ms", value=[[1.0, 2.0]])),
                                      "models[0].quantiles_ms: not two or more quantiles"),
    "a certificate without a gain": (drop("certificate", "gain"), "certificate.gain: field is"),
    "half an iteration": (put("certificate", "iterations", value=0.5), "certificate.iterations"),
    "an unknown field": (put("colour", value="red"), "colour: unknown field"),
    "an object as a parameter": (put("arrivals", "shape", value={}),
                                 "arrivals.shape: not a parameter"),
}
"""What the runtime does not look at."""

INCONSISTENT = {
    "a latency that falls": (put("models", 1, "latency_ms", 2, value=49.0),
                             "models[1].latency_ms[2]: latency falls as the batch grows: "
                             "got 49.0; allowed: a number >= 50.0"),
    "models not fastest first": (put("models", 0, "latency_ms", value=[40.0] * 4),
                                 "models[1].latency_ms[0]: models are not fastest first"),
    "an effective accuracy that does not follow": (
        put("expectations", "effective_accuracy", value=0.61),
        "expectations.effective_accuracy: not accuracy * (1 - violation_rate): got 0.61"),
    "shares that do not sum to 1": (put("expectations", "model_share", "large", value=0.5),
                                    "expectations.model_share: shares do not sum to 1: got 1.25"),
    "a gain above its bound": (put("certificate", "gain", value=0.7), "certificate.gain: gain"),
    "bounds that cross": (put("certificate", "gain_lower", value=0.7), "certificate.gain_lower"),
}
"""What only the full validation refuses."""


def damaged(tmp_path: Path, change: Callable[[Document], None]) -> Path:
    """A file with one thing wrong in it."""
    bad = document()
    change(bad)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(bad))
    return path


def refused(action: Callable[[Path], object], path: Path, message: str) -> None:
    """The action refuses the file in one line that starts with the file and the place."""
    with pytest.raises(InputFileError) as caught:
        action(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: {message}")
    assert "\n" not in text


@pytest.mark.parametrize("what", LOOKUP)
def test_what_the_lookup_reads_is_refused_by_reader_validator_and_runtime(tmp_path, what):
    change, message = LOOKUP[what]
    path = damaged(tmp_path, change)
    for action in (policy.read, policy.validate, runtime.load):
        refused(action, path, message)


@pytest.mark.parametrize("what", REST)
def test_what_the_lookup_does_not_read_is_refused_by_reader_and_validator(tmp_path, what):
    change, message = REST[what]
    path = damaged(tmp_path, change)
    for action in (policy.read, policy.validate):
        refused(action, path, message)
    runtime.load(path)


@pytest.mark.parametrize("what", INCONSISTENT)
def test_contradictions_are_refused_by_the_validator(tmp_path, what):
    change, message = INCONSISTENT[what]
    path = damaged(tmp_path, change)
    policy.read(path)
    refused(policy.validate, path, message)


@pytest.mark.parametrize("read", [policy.read, policy.validate, runtime.load])
def test_a_file_that_is_cut_off_is_refused(tmp_path, read):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document())[:700])
    refused(read, path, "not valid JSON, cut off or damaged")


def test_a_file_above_the_size_limit_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    refused(policy.read, path, "file is too large")


def test_the_schema_alone_names_the_field_that_breaks_it():
    bad = document()
    bad["models"][1]["accuracy"] = 2
    from ramsis.schemas import check_schema

    with pytest.raises(InputFileError, match=r"a\.json: models\[1\]\.accuracy: breaks the schema"):
        check_schema(bad, "ramsis.policy", "policy-1", "a.json")


def changed(policy_document: Document, path: tuple[Any, ...], value: Any) -> Document:
    """A policy document with one value changed."""
    document = copy.deepcopy(policy_document)
    put(*path, value=value)(document)
    return document


@pytest.mark.parametrize(("path", "value", "message"), [
    (("late",), "serve", "late: unknown late"),
    (("table", "axes", "idle"), [0, 2, 9], r"axes.idle\[1\]: levels do not rise"),
    (("table", "axes", "idle"), [0, 1, 8], "not the number of workers"),
    (("table", "axes", "queued"), [0, 1, 2, 2, 7], r"axes.queued\[3\]: levels do not rise"),
    (("table", "actions", 0), [3, 1], r"actions\[0\]: not a model and a batch"),
    (("table", "rows", 0), [0, -2, 0, 1], r"table.rows\[0\]: not a row"),
    (("table", "rows", 0), [0, 5], r"table.rows\[0\]: not a row"),
    (("table", "rows", 0), [0, -3], r"table.rows\[0\]: not a row"),
    (("table", "index", 0, 0), 3, r"table.index\[0\]\[0\]: no such row for this queue"),
])
def test_tables_of_central_queues_are_checked_by_reader_and_runtime(path, value, message):
    bad = changed(lookup.CENTRAL, path, value)
    with pytest.raises(InputFileError, match=message):
        runtime.selector_of(bad, "file")
    with pytest.raises(InputFileError, match=message):
        policy.Policy.from_document(bad, "file")


@pytest.mark.parametrize(("path", "value", "message"), [
    (("table", "actions", 3), [1, 3], r"actions\[3\]: no service time for this batch"),
    (("slo_classes",), [{"slo_ms": 40.0, "share": 0.5}], "slo_classes: .*do not sum to 1"),
    (("slo_classes",), [{"slo_ms": 100.0, "share": 1.0}], "not two or more rising SLOs"),
])
def test_policies_of_central_queues_are_checked(path, value, message):
    with pytest.raises(InputFileError, match=message):
        policy.Policy.from_document(changed(lookup.CENTRAL, path, value), "file")
