"""Requests that must not be answered too early are held back; too early is no overload."""

import json

import numpy as np
import pytest

from ramsis.planning import compare, scheduler_named
from ramsis.report.verdicts import overload_rate
from ramsis.scenario import Scenario
from ramsis.sim import Engine, scheduler
from tests.scenario.samples import document, model, scenario, stream

SIZES = [{"worker_type": "gpu", "batch": size, "latency_ms": ms}
         for size, ms in ((1, 2.7), (2, 4.3), (4, 6.1))]
STREAMS = [stream("soon", "a", slo_ms=100, workload={"load_qps": 100}),
           stream("later", "b", slo_ms=400, earliest_ms=100, workload={"load_qps": 100})]


def two_slos() -> Scenario:
    """Two models on one worker: one wants answers at once, the other none before 100 ms."""
    return scenario(duration_s=3, streams=STREAMS,
                    models=[model("a", latency=SIZES), model("b", latency=SIZES)],
                    start=[{"worker": "gpu", "models": ["a", "b"]}])


@pytest.mark.parametrize("name", ["clockwork", "planned"])
def test_answers_fall_between_the_earliest_time_and_the_deadline(name):
    run = Engine.of_scenario(two_slos(), 0).serve(scheduler(name))
    assert run.in_time.all()
    assert not run.too_early.any()
    assert run.response_ms[run.stream == 0].max() < 30
    # The first may run as soon as its answer is not too early.
    waited_ms = (run.served_ms - run.arrival_ms)[run.stream == 1]
    assert waited_ms.min() == pytest.approx(100 - 2.7, abs=1e-6)


@pytest.mark.parametrize("name", ["clockwork", "planned"])
def test_the_fastest_worker_type_says_how_long_a_request_is_held(name):
    made = scenario(
        worker_types=[{"name": "slow", "count": 1}, {"name": "fast", "count": 1}],
        models=[model(latency=[{"worker_type": "slow", "batch": 1, "latency_ms": 30},
                               {"worker_type": "fast", "batch": 1, "latency_ms": 10}])],
        start=[{"worker": "slow", "models": ["m"]}, {"worker": "fast", "models": ["m"]}],
        streams=[stream(slo_ms=200, earliest_ms=50, workload={"times_ms": [0, 1, 2]})])
    run = Engine.of_scenario(made, 0).serve(scheduler(name))
    assert run.in_time.all()
    assert np.sort(run.start_ms)[0] == pytest.approx(40)


def test_answers_that_come_too_early_are_counted_and_are_no_overload():
    compared, = compare(two_slos(), [scheduler_named("lru")], (0,))
    row = compared.row()
    assert row["too_early"] == (compared.first.stream == 1).sum() == row["late"]
    assert row["violation_rate"] > 0.4
    assert overload_rate(row) == pytest.approx(0)
    calm, = compare(scenario(), [scheduler_named("lru")], (0,))
    assert "too_early" not in calm.row()


def test_the_command_line_shows_too_early_answers_without_a_note(run, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document(
        streams=STREAMS, models=[model("a", latency=SIZES), model("b", latency=SIZES)],
        start=[{"worker": "gpu", "models": ["a", "b"]}])))
    done = run("simulate", str(path), "--scheduler", "lru", "--strict")
    assert (done.code, done.err) == (0, "")
    assert "too early" in done.out
