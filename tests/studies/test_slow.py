"""A scheduler process that takes time for its decisions."""

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.scenario import Scenario
from ramsis.sim import Run
from ramsis.sim.engine.scheduler import SchedulerError
from tests.scenario.samples import model, scenario, stream
from tests.studies.test_warsaw import at, cluster, served


def loaded(times_ms: list[float], workers: int = 3) -> Scenario:
    """Workers that hold a model of 10 ms from the start."""
    return scenario(
        worker_types=[{"name": "gpu", "count": workers, "max_models": 1}], models=[model("a")],
        streams=[at("a", *times_ms)], start=[{"worker": "gpu", "models": ["a"]}], duration_s=10)


def starts_ms(run: Run) -> list[float]:
    return sorted(run.start_ms.tolist())


@pytest.mark.parametrize("name", ["clockwork-adjusted", "round-robin:quantum_ms=200+variant=d",
                                  "lru", "planned"])
def test_a_process_that_takes_no_time_changes_nothing(name):
    streams = [stream(one, one, slo_ms=400, workload={"load_qps": 15, "duration_s": 3})
               for one in "abcd"]
    made = cluster(2, "abcd", streams)
    plain, wrapped = served(made, name.replace("+", ",")), served(made, f"slow:of={name}")
    assert (plain.answered_ms == wrapped.answered_ms).all()
    assert (plain.load_start_ms == wrapped.load_start_ms).all()


def test_decisions_come_one_after_the_other():
    run = served(loaded([0, 0, 0, 100]), "slow:of=baseline,decision_ms=20")
    assert starts_ms(run) == pytest.approx([20, 40, 60, 120])


def test_requests_are_seen_at_polls():
    run = served(loaded([5, 12, 40, 201]), "slow:of=baseline,poll_ms=100,decision_ms=1")
    assert starts_ms(run) == pytest.approx([101, 102, 103, 301])


def test_a_decision_takes_longer_while_more_requests_wait():
    run = served(loaded([0, 0, 0]), "slow:of=baseline,decision_ms=1,per_waiting_us=2000")
    # Counted as each decision begins: the first request alone, then two, then one.
    assert starts_ms(run) == pytest.approx([3, 8, 11])


def test_by_deadline_what_cannot_be_in_time_comes_last():
    """The first is handled as it comes; when it has been, only the last can still be in time."""
    slo_ms = {"a": 250.0, "b": 80.0, "c": 210.0, "d": 195.0}
    made = scenario(
        worker_types=[{"name": "gpu", "count": 4}], models=[model(one) for one in slo_ms],
        streams=[stream(one, one, slo_ms=due_ms, workload={"times_ms": [0]})
                 for one, due_ms in slo_ms.items()],
        start=[{"worker": "gpu", "models": list(slo_ms)}], duration_s=10)
    order = {name: [made.streams[i].name for i in run.stream[np.argsort(run.answered_ms)]]
             for name in ("arrival", "deadline")
             for run in [served(made, f"slow:of=baseline,decision_ms=90,order={name}")]}
    assert order == {"arrival": ["a", "b", "c", "d"], "deadline": ["a", "d", "b", "c"]}


def test_above_its_rate_the_process_falls_behind_however_many_workers_there_are():
    times_ms = np.arange(0, 1000, 10.0).tolist()
    run = served(loaded(times_ms, workers=50), "slow:of=baseline,decision_ms=20")
    delay_ms = np.sort(run.answered_ms) - np.array(times_ms) - 10.0
    assert delay_ms == pytest.approx(20 + 10 * np.arange(100))


@pytest.mark.parametrize(("name", "loads"), [
    ("baseline", 5), ("slow:of=baseline,poll_ms=100", 180),
    ("slow:of=modified-baseline,poll_ms=10", 5)])
def test_the_baseline_switches_models_unused_where_loads_are_seen_late(name, loads):
    streams = [at(one, *np.arange(start, 2000, 10.0).tolist())
               for start, one in enumerate("abcde")]
    run = served(cluster(2, "abcde", streams), name)
    assert len(run.load_model) == loads
    assert run.answered.all()


def test_a_refused_timer_shows_no_address():
    with pytest.raises(SchedulerError, match="timer for a time in the past") as refused:
        served(loaded([0, 1]), "slow:of=baseline,decision_ms=1.7e308")
    assert "object at 0x" not in str(refused.value)


@pytest.mark.parametrize(("name", "words"), [
    ("slow:of=baseline,decision_ms=-1", "decision_ms: parameter out of range: got -1"),
    ("slow:of=baseline,poll_ms=5e-324", "poll_ms: parameter out of range: got 5e-324; allowed: 0"),
    ("slow:of=slow:of=lru", "cannot wrap itself: got .slow:of=lru"),
    ("slow:of=lruu", "unknown scheduler: got .lruu.; allowed: lru"),
    ("slow:of=baseline:starving=2", "not a parameter of the scheduler"),
    ("slow:of=greedy", "decides about a cluster")])
def test_other_values_are_refused_in_a_line(name, words):
    with pytest.raises(InputFileError, match=words) as refused:
        served(loaded([0]), name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["sigmaos", "sigmaos-colocation", "sigmaos-registry",
                                  "sigmaos-dynamic"])
def test_a_model_whose_load_is_noticed_late_is_not_loaded_again(name):
    made = cluster(2, "ab", [stream(one, one, slo_ms=400, workload={
        "load_qps": 40, "duration_s": 2}) for one in "ab"])
    run = served(made, f"slow:of={name},decision_ms=5,poll_ms=30")
    assert run.answered.all()
