"""The schedulers of the Warsaw thesis: what is loaded when, and in which order requests run."""

from typing import Any

import numpy as np
import pytest

from ramsis.scenario import Scenario
from tests.scenario.samples import model, scenario, served, stream
from tests.slow import slow_after

ROUND_ROBIN = tuple(f"round-robin:quantum_ms=200,variant={variant}"
                    for variant in ("plain", "a", "b", "c", "d"))
NAMES = ("baseline", "modified-baseline", "modified-baseline:load_when=no-idle",
         "clockwork-adjusted", *ROUND_ROBIN)


def cluster(count: int, names: str, streams: list[dict[str, Any]], **more: Any) -> Scenario:
    """Workers that hold one model each unless said otherwise, and load in 50 ms."""
    worker = {"name": "gpu", "count": count, "loading": "blocking", "max_models": 1, **more}
    return scenario(worker_types=[worker], models=[model(name) for name in names],
                    streams=streams, start=[], duration_s=100)


def at(model: str, *times_ms: float, **more: Any) -> dict[str, Any]:
    more = {"name": model, "slo_ms": 1000, **more}
    return stream(model=model, workload={"times_ms": list(times_ms)}, **more)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_every_request_is_answered_though_models_are_more_than_places(name, seed):
    streams = [stream(one, one, slo_ms=400, workload={"load_qps": 15, "duration_s": 3})
               for one in "abcde"]
    run = served(cluster(2, "abcde", streams, max_models=2), name, seed)
    assert run.requests > 150
    assert run.answered.all()
    assert len(set(run.batch_of.tolist())) == run.requests == int(run.size.sum())


def test_the_baseline_loads_what_is_nowhere_and_no_second_copy():
    run = served(cluster(3, "ab", [at("a", *range(0, 100, 2)), at("b", 0)]), "baseline")
    assert run.load_model.tolist() == [0, 1]
    assert run.load_worker.tolist() == [0, 1]
    assert run.answered_ms[run.asked == 0][-1] == pytest.approx(50 + 50 * 10)


@pytest.mark.parametrize("name", ["baseline", "round-robin:quantum_ms=9000"])
def test_a_request_joins_a_running_batch_before_it_goes_to_an_idle_holder(name):
    """Ten tokens of 10 ms: the first request runs until 100 ms."""
    text = {**model("a"), "inference": {"batching": "continuous", "output_tokens": 10},
            "latency": [{"worker_type": "gpu", "batch": n, "latency_ms": 10.0} for n in (1, 3)]}
    made = scenario(
        worker_types=[{"name": "gpu", "count": 2, "max_models": 1}], models=[text],
        streams=[at("a", 0, 30, 60, 90)], duration_s=100,
        start=[{"worker": f"gpu-{i}", "models": ["a"]} for i in (1, 2)])
    run = served(made, name)
    by_request = [run.worker[run.batch_of[request]] for request in np.argsort(run.arrival_ms)]
    assert by_request == [0, 0, 0, 1]  # three are all that the batch takes until 100 ms


def test_the_modified_baseline_uses_a_model_before_it_gives_it_up():
    streams = [at("a", 0), at("b", 1), at("c", 2)]
    run = served(cluster(1, "abc", streams), "modified-baseline")
    used = [int((run.model == m).sum()) for m in range(3)]
    assert used == [1, 1, 1]
    assert run.load_model.tolist() == [0, 1, 2]


def test_what_runs_beside_a_load_does_not_count_as_its_use():
    """While b is loaded until 150 ms, a runs; c may come only once b has run, from 150 ms on."""
    streams = [at("a", 0, 105), at("b", 100), at("c", 106)]
    made = cluster(1, "abc", streams, max_models=2, loading="beside")
    run = served(made, "modified-baseline")
    assert run.load_model.tolist() == [0, 1, 2]
    assert run.load_start_ms == pytest.approx([0, 100, 160])


def test_the_modified_baseline_keeps_two_models_and_gives_up_the_least_recently_used():
    streams = [at("a", 0, 300), at("b", 100), at("c", 400)]
    run = served(cluster(1, "abc", streams, max_models=2), "modified-baseline")
    assert run.unload_model.tolist() == [1]


def test_loads_where_no_idle_worker_holds_the_model_make_copies():
    made = cluster(3, "a", [at("a", *range(0, 100, 2))])
    assert len(served(made, "modified-baseline").load_model) == 1
    assert len(served(made, "modified-baseline:load_when=no-idle").load_model) == 3


def test_round_robin_loads_the_models_in_turn_whoever_asks():
    made = cluster(1, "abc", [at("a", 900)])
    run = served(made, "round-robin:quantum_ms=100")
    assert run.load_model.tolist()[:6] == [0, 1, 2, 0, 1, 2]
    assert np.diff(run.load_start_ms)[:5] == pytest.approx(150.0)


def test_an_inference_renews_the_quantum():
    made = cluster(1, "ab", [at("a", *range(0, 2000, 40))])
    assert len(served(made, "round-robin:quantum_ms=100").load_model) > 5
    run = served(made, "round-robin:variant=a,quantum_ms=100")
    assert run.load_model.tolist() == [0]


def test_the_model_with_most_starved_requests_is_next():
    made = cluster(1, "abc", [at("a", 60), at("c", 1, 2, slo_ms=100)])
    assert served(made, "round-robin:variant=a,quantum_ms=100").load_model.tolist()[1] == 1
    assert served(made, "round-robin:variant=b,quantum_ms=100").load_model.tolist()[1] == 2


def test_larger_models_have_longer_quanta():
    models = [model("a"), {**model("b"), "load_ms": 150}]
    made = scenario(
        worker_types=[{"name": "gpu", "count": 1, "loading": "blocking", "max_models": 1}],
        models=models, streams=[at("a", 3000)], start=[], duration_s=100)
    run = served(made, "round-robin:variant=c,quantum_ms=100,step=1")
    held_ms = run.unload_ms - run.load_end_ms[:len(run.unload_ms)]
    assert held_ms[:4] == pytest.approx([75, 125, 75, 125])


@pytest.mark.parametrize(("variant", "order"), [("c", [0, 1, 2]), ("d", [2, 1, 0])])
def test_requests_run_in_the_order_of_arrival_or_of_deadlines(variant, order):
    streams = [at("a", 1, name=name, slo_ms=slo_ms)
               for name, slo_ms in (("x", 3000), ("y", 2000), ("z", 1000))]
    run = served(cluster(1, "a", streams), f"round-robin:variant={variant}")
    assert run.stream[np.argsort(run.answered_ms)].tolist() == order


def test_starved_requests_go_first():
    streams = [at("a", 0, 1, name="x", slo_ms=5000), at("a", 2, name="y", slo_ms=80)]
    run = served(cluster(1, "a", streams), "baseline")
    assert run.stream[np.argsort(run.answered_ms)].tolist() == [1, 0, 0]


def test_clockwork_adjusted_keeps_what_has_more_to_do_than_what_waits():
    busy = at("a", *range(0, 1000, 11))
    run = served(cluster(1, "ab", [busy, at("b", 500)]), "clockwork-adjusted")
    first = run.load_start_ms[run.load_model == 1]
    assert first[0] > 900  # a, with a queue from its load on, has the higher priority till then


def test_planned_gives_copies_to_the_model_whose_rate_rises():
    calm = [at(name, *range(0, 20_000, 500)) for name in "abc"]
    calm.append(at("d", *np.arange(8000, 12_000, 4.0).tolist(), slo_ms=500))
    run = served(cluster(6, "abcd", calm, max_models=1), "planned:worth=0.1")
    loads = run.load_start_ms[run.load_model == 3]
    assert ((loads > 8000) & (loads < 9500)).sum() >= 1
    assert run.in_time[run.asked == 3].mean() > 0.5
    assert run.in_time[run.asked != 3].mean() > 0.95


def test_planned_decides_by_the_past_alone():
    early = [stream(name, name, slo_ms=300, workload={"load_qps": 30, "duration_s": 4})
             for name in "abc"]
    late = at("a", *np.arange(5000, 6000, 5.0).tolist(), name="later")
    runs = [served(cluster(2, "abc", streams), "planned") for streams in (early, [*early, late])]
    until = [np.array(list(zip(one.start_ms, one.worker, one.model, strict=True))) for one in runs]
    assert (until[0][until[0][:, 0] < 5000] == until[1][until[1][:, 0] < 5000]).all()
    assert runs[0].load_start_ms.tolist()[:9] == runs[1].load_start_ms.tolist()[:9]


@pytest.mark.parametrize("name", ["modified-baseline:load_when=often", "round-robin:variant=e"])
def test_unknown_rules_are_refused(name):
    with pytest.raises(ValueError, match="allowed"):
        served(cluster(1, "a", [at("a", 0)]), name)
