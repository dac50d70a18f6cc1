"""Scenario files: what is read, written and refused."""

import json

import jsonschema
import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.plugins import trusting
from ramsis.scenario import (
    draw_requests,
    read_scenario,
    scenario_from_document,
    schema,
    write_scenario,
)
from tests.scenario.samples import document, model, scenario, stream

FULL = document(
    worker_types=[
        {"name": "gpu", "count": 2, "memory_mb": 1000, "max_models": 3, "lanes": 2,
         "load_mb_per_s": 100, "loading": "blocking", "loads_at_a_time": 2, "active": 1,
         "scale_up_ms": 30},
        {"name": "cpu", "count": 1, "cores": 4}],
    models=[
        {"name": "m", "copies": 2, "memory_mb": 300, "first_load_ms": 900,
         "latency": [{"worker_type": "gpu", "batch": 1, "latency_ms": 3},
                     {"worker_type": "gpu", "batch": 4, "quantiles_ms": [5, 6, 9]}],
         "family": "digits", "accuracy": 0.9},
        {"name": "llm", "load": [{"worker_type": "cpu", "load_ms": 4}],
         "latency": [{"worker_type": "cpu", "batch": 8, "latency_ms": 20}],
         "inference": {"batching": "continuous", "output_tokens": [10, 20]}}],
    streams=[
        stream("a", "m", shares=[1, 3], tenant="x", earliest_ms=5, pre_ms=1, post_ms=2,
               network_ms=3, network_back_ms=4),
        stream("b", "m-2", best_effort=True,
               workload={"minutes": [3, 4], "within": "poisson", "start_ms": 5}),
        stream("c", "llm", workload={"users": 3, "think_ms": 2, "requests": 9}, after="a"),
        stream("d", "m", workload={"times_ms": [0, 4, 4], "duration_s": 0.5}),
        stream("e", "m", workload={"load_qps": 3, "arrivals": "renewal:2"})],
    start=[{"worker": "gpu-1", "models": ["m"]}],
)


def test_a_file_is_written_as_it_was_read(tmp_path):
    jsonschema.validate(FULL, schema())
    read = scenario_from_document(FULL)
    path = tmp_path / "scenario.json"
    write_scenario(read, path)
    again = read_scenario(path)
    assert again == read
    jsonschema.validate(json.loads(path.read_text()), schema())
    toml = tmp_path / "scenario.toml"
    toml.write_text('format = "ramsis.scenario/1"\nname = "t"\nduration_s = 1\n'
                    '[[worker_types]]\nname = "gpu"\ncount = 1\n'
                    '[[models]]\nname = "m"\n[[models.latency]]\nworker_type = "gpu"\n'
                    'batch = 1\nlatency_ms = 5\n'
                    '[[streams]]\nname = "s"\nmodel = "m"\nslo_ms = 9\n'
                    'workload = { load_qps = 5 }\n')
    assert read_scenario(toml).arrays.models == ("m",)


def test_arrays_number_copies_and_pad_batches():
    arrays = scenario_from_document(FULL).arrays
    assert arrays.models == ("m-1", "m-2", "llm")
    assert arrays.workers == ("gpu-1", "gpu-2", "cpu-1")
    assert arrays.kind.tolist() == [0, 0, 1]
    assert arrays.family.tolist() == [0, 0, 2]
    np.testing.assert_allclose(arrays.latency_ms[0, 0], [3, 20 / 3, 20 / 3, 20 / 3, *4 * [np.inf]])
    assert np.isinf(arrays.latency_ms[0, 1]).all()
    assert arrays.load_ms[0].tolist() == [3000, 3000, 0]
    assert arrays.first_load_ms[0].tolist() == [900, 900, 0]
    assert arrays.load_ms[1, 2] == 4
    assert arrays.start == ((0, 1), (), ())
    assert arrays.active.tolist() == [True, False, True]
    assert arrays.stream_shares[0].tolist() == [0.25, 0.75]


def test_requests_of_a_stream_do_not_depend_on_the_others():
    alone = draw_requests(scenario(models=[model(copies=3)]), 5)
    other = stream("t", "m", workload={"minutes": [60]})
    both = draw_requests(scenario(models=[model(copies=3)], streams=[stream(), other]), 5)
    mine = both.stream == 0
    np.testing.assert_array_equal(both.arrival_ms[mine], alone.arrival_ms)
    np.testing.assert_array_equal(both.model[mine], alone.model)
    assert (np.diff(both.arrival_ms) >= 0).all()
    assert len(set(both.model.tolist())) == 3


def test_minutes_hold_the_stated_numbers():
    made = scenario(duration_s=120, streams=[stream(workload={"minutes": [30, 50, 70]})])
    arrival = draw_requests(made, 0).arrival_ms
    assert np.histogram(arrival, [0, 60_000, 120_000])[0].tolist() == [30, 50]
    assert arrival.max() < 120_000


@pytest.mark.parametrize(("models", "workloads"), [
    ([model("m", copies=2)], {"m": {"last_minute": 2}}),
    # Streams of several models share the functions of a trace.
    ([model("m"), model("n")], {"m": {"last_minute": 2, "every": 2},
                                "n": {"last_minute": 2, "every": 2, "first_function": 1}})])
def test_traces_by_function_go_to_the_copies_in_turn(tmp_path, models, workloads):
    (tmp_path / "functions.csv").write_text(
        "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n"
        "o,a,f1,http,10,0,1\no,a,f2,http,0,20,1\no,a,f3,http,5,5,1\n")
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(duration_s=600, models=models, streams=[
        stream(name, name, workload={"functions": "functions.csv", **more})
        for name, more in workloads.items()])))
    found = draw_requests(read_scenario(path), 1)
    assert np.bincount(found.model).tolist() == [20, 20]
    assert (found.arrival_ms[found.model == 1] >= 60_000).all()


def test_recorded_times_are_played(tmp_path):
    (tmp_path / "times.csv").write_text("arrival_ms\n100\n130\n190\n")
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(
        streams=[stream(workload={"file": "times.csv", "scale": 2, "start_ms": 7})])))
    assert draw_requests(read_scenario(path), 0).arrival_ms.tolist() == [7, 22, 52]


def test_a_file_has_no_module_imported_that_the_user_does_not_name(tmp_path):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(streams=[
        stream(workload={"load_qps": 5, "arrivals": "no_such_module:Mine"})])))
    with pytest.raises(InputFileError, match="not imported unless you name it"):
        read_scenario(path)
    with trusting(["no_such_module:Mine"]), \
            pytest.raises(InputFileError, match="cannot import arrival process"):
        read_scenario(path)


@pytest.mark.parametrize(("changes", "message"), [
    ({"models": [model(memory_mb=2000)]}, "models[0].memory_mb: the model fits no worker: "
     "got 2000.0; allowed: at most 1000 (gpu)"),
    ({"streams": [{"name": "s", "slo_ms": 1, "workload": {"load_qps": 1}}]},
     "streams[0].model: field is missing"),
    ({"streams": [stream(model="n")]}, "streams[0].model: unknown model: got 'n'; allowed: m"),
    ({"streams": [stream("a", after="b"), stream("b", after="a")]},
     "streams[0].after: streams wait for each other: got 'a after b after a'; allowed: no cycle"),
    ({"streams": [stream(pre_ms=-1)]}, "streams[0].pre_ms: not a valid number: got -1"),
    ({"models": [model(copies=11)]}, "start: more models than worker gpu-1 holds: "
     "got '11 models, 1100 MB'"),
    ({"start": [{"worker": "cpu", "models": ["m"]}]}, "start[0].worker: unknown worker"),
    ({"streams": [stream(workload={})]}, "no workload, or several"),
    ({"streams": [stream(workload={"load_qps": 5, "users": 1})]}, "no workload, or several"),
    ({"streams": [stream(workload={"load_qps": 5, "arrivals": "poison"})]},
     "unknown arrival process"),
    ({"streams": [stream(), stream()]}, "streams: a name stands twice: got 's'"),
    ({"streams": [stream(shares=[1, 2])]}, "not a share for each copy"),
    ({"streams": [stream(cores=9)]}, "streams[0].cores: more than any machine has"),
    ({"streams": [stream(earliest_ms=100)]}, "earliest_ms: not before the deadline"),
    ({"worker_types": [{"name": "gpu", "count": 1, "memory": 3}]}, "unknown field"),
    ({"models": [model(latency=[{"worker_type": "gpux", "batch": 1, "latency_ms": 1}])]},
     "unknown worker type: got 'gpux'; allowed: gpu"),
    ({"models": [model(load=[{"worker_type": "gpu", "load_ms": 3}] * 2)]},
     "models[0].load: a name stands twice: got 'gpu'"),
    ({"worker_types": [{"name": "gpu", "count": 1}, {"name": "gpu-1", "count": 1}]},
     "worker_types: a name stands twice: got 'gpu-1'"),
    ({"worker_types": [{"name": "gpu", "count": 10 ** 9}]},
     "worker_types: too many workers: got 1000000000; allowed: at most 1000000"),
    ({"models": [model(copies=10 ** 9)]}, "models: too many models, each copy counted"),
    ({"models": [model(latency=[{"worker_type": "gpu", "batch": 10 ** 9, "latency_ms": 1}])]},
     "models: too many times: got 1000000000; allowed: at most 100000000, for worker types x "),
    ({"streams": [stream(workload={"users": 10 ** 9})]}, "workload.users: too many users"),
    ({"streams": [stream(workload={"times_ms": [3, 1]})]}, "times_ms: times go back"),
    ({"worker_types": [{"name": "gpu", "count": 1, "active": 0}]},
     "start: worker gpu-1 is not active at the start"),
    ({"models": [model(), model("m-1"), model("n", copies=2), model("n-2")]},
     "models: a name stands twice: got 'n-2'"),
    ({"format": "ramsis.scenario/2"}, "this version of ramsis.scenario is not known here"),
    ({"worker_types": [{"name": "gpu", "count": 1, "memory_mb": None}]},
     "worker_types[0].memory_mb: not a valid number: got None; allowed: a finite number > 0"),
])
def test_bad_input_is_refused_in_a_line(changes, message):
    with pytest.raises(InputFileError) as refused:
        scenario(**changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("scenario: ")
