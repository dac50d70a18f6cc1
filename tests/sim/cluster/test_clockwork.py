"""Clockwork's heuristic: what it decides, and its share in time in cells of its grid."""

from typing import Any

import clockwork
import numpy as np
import pytest

from ramsis.scenario import Scenario
from ramsis.sim import Engine, Run, scheduler
from tests.scenario.samples import model, scenario, stream

SIZES = {1: 10.0, 2: 14.0, 4: 20.0}


def batches(made: Scenario, text: str = "clockwork") -> Run:
    return Engine.of_scenario(made, 0).serve(scheduler(text))


def sized(name: str = "m", **more: Any) -> dict[str, Any]:
    return model(name, latency=[{"worker_type": "gpu", "batch": size, "latency_ms": ms}
                                for size, ms in SIZES.items()], **more)


def test_larger_batches_come_first_while_they_are_in_time():
    made = scenario(models=[sized()], streams=[
        stream(workload={"times_ms": [0.0, 1.0, 1.0, 1.0, 1.0]}, slo_ms=35)])
    run = batches(made)
    assert run.size.tolist() == [1, 4]
    assert run.start_ms.tolist() == [0, 10]
    # At 10 ms a batch of 4 would end at 30, which is too late; so would a second batch of 2.
    tight = scenario(models=[sized()], streams=[
        stream(workload={"times_ms": [0.0, 1.0, 1.0, 1.0, 1.0]}, slo_ms=25)])
    run = batches(tight)
    assert run.size.tolist() == [1, 2]
    assert len(run.drop_request) == 2


def test_what_cannot_be_in_time_is_dropped_and_nothing_is_late():
    made = scenario(duration_s=3, models=[sized()],
                    streams=[stream(workload={"load_qps": 400}, slo_ms=40)])
    run = batches(made)
    assert run.in_time[run.answered].all()
    assert 100 / 400 < run.in_time.mean() < 200 / 400  # one by one, and in full batches


def test_days_are_played_to_the_end():
    # From 2 ** 24 ms on, 4.7 hours, a billionth of a ms is less than a time's last digit.
    made = scenario(duration_s=5 * 3600, models=[sized("a"), sized("b")],
                    start=[{"worker": "gpu", "models": ["a", "b"]}], streams=[
        stream(one, one, workload={"load_qps": 1.5}, slo_ms=40) for one in "ab"])
    run = batches(made)
    assert run.arrival_ms[-1] > 2.0**24
    assert run.in_time.mean() > 0.98


def test_a_model_that_loads_for_longer_than_the_slo_is_loaded_for_requests_to_come():
    made = scenario(duration_s=3, worker_types=[{"name": "gpu", "count": 2, "memory_mb": 250}],
                    models=[sized("a", load_ms=150), sized("b", load_ms=150)],
                    start=[], streams=[stream(one, one) for one in "ab"])
    run = batches(made)
    assert len(run.load_model) == 2
    assert run.in_time[20:].mean() > 0.99  # after half a second


def test_the_least_recently_used_model_makes_room():
    made = scenario(
        worker_types=[{"name": "gpu", "count": 1, "memory_mb": 250}],
        models=[sized("a"), sized("b"), sized("c")],
        start=[{"worker": "gpu", "models": ["a", "b"]}],
        streams=[stream("s1", "b", workload={"times_ms": [0.0]}),
                 stream("s2", "a", workload={"times_ms": [50.0]}),
                 stream("s3", "c", workload={"times_ms": [100.0]})])
    run = batches(made)
    assert run.in_time.all()
    assert run.unload_model.tolist() == [1]
    assert run.load_model.tolist() == [2]


def test_faster_workers_of_another_type_are_used():
    made = scenario(
        worker_types=[{"name": "slow", "count": 1}, {"name": "fast", "count": 1}],
        models=[model(latency=[{"worker_type": "slow", "batch": 1, "latency_ms": 90},
                               {"worker_type": "fast", "batch": 1, "latency_ms": 10}]),
                model("n", latency=[{"worker_type": "fast", "batch": 1, "latency_ms": 10}])],
        start=[{"worker": "slow", "models": ["m"]}, {"worker": "fast", "models": ["m"]}],
        streams=[stream(workload={"times_ms": [0.0, 0.0, 0.0]}),
                 stream("t", "n", workload={"times_ms": [1.0]})])
    run = batches(made)
    assert run.in_time.all()
    assert set(run.worker.tolist()) == {0, 1}


@pytest.mark.parametrize(("rate", "instances", "slo_ms", "low", "high"), [
    (600, 48, 6, 1.0, 1.0), (1200, 12, 6, 1.0, 1.0), (2400, 48, 48, 1.0, 1.0),
    (2400, 12, 6, 0.88, 0.92), (3000, 48, 12, 0.755, 0.80),
])
def test_the_share_in_time_in_cells_of_the_grid(rate, instances, slo_ms, low, high):
    """The thesis has all in time in the first three; a prototype 0.900 and 0.778 in the others."""
    shares = [Engine.of_scenario(clockwork.grid(rate, instances, slo_ms, 4.0), seed).serve(
        scheduler("clockwork")).in_time.mean() for seed in range(2)]
    assert low <= np.mean(shares) <= high


def test_random_decisions_do_at_low_rates_only():
    share = {rate: batches(clockwork.grid(rate, 48, 48.0, 2.0), "random").in_time.mean()
             for rate in (600, 1200)}
    assert share[600] > 0.999
    assert share[1200] < 0.7


def test_the_script_prints_and_writes_a_row_for_each_slo_and_scheduler(tmp_path, capsys):
    import json

    out = tmp_path / "rows.json"
    code = clockwork.main(["--rate", "600", "--instances", "12", "--slo-ms", "12,48",
                        "--duration-s", "1", "--seeds", "2", "--scheduler", "clockwork",
                        "--scheduler", "random", "--json", str(out)])
    assert code == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["slo_ms"], row["scheduler"]) for row in rows] == [
        (12, "clockwork"), (12, "random"), (48, "clockwork"), (48, "random")]
    for row in rows:
        assert (row["rate_qps"], row["instances"]) == (600, 12)
        assert 0 <= row["in_time"] <= row["bound"] <= 1
    assert capsys.readouterr().out.count("\n") == 4
