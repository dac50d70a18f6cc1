"""The planned scheduler: late decisions, what is put off, and loads by the rates seen."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from ramsis.bounds import scenario_bound
from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim import Engine, Run, measure, scheduler
from tests.scenario.samples import model, stream
from tests.scenario.samples import scenario as document_scenario

BATCH_MS = {1: 2.7, 2: 4.3, 4: 6.1, 8: 10.1, 16: 17.7}


def scenario(
    models: int = 1, workers: int = 1, slo_ms: float = 20.0, load_ms: float = 8.0,
    times: Mapping[int, float] = BATCH_MS, rate_qps: float = 100.0,
    shares: Sequence[float] = (), worker: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Scenario:
    """Copies of a model that all workers hold at the start, and a stream for all of them."""
    return document_scenario(**{
        "worker_types": [{"name": "gpu", "count": workers, "memory_mb": 1000, **worker}],
        "models": [model(copies=models, load_ms=load_ms, latency=[
            {"worker_type": "gpu", "batch": batch, "latency_ms": ms}
            for batch, ms in times.items()])],
        "streams": [stream(slo_ms=slo_ms, workload={"load_qps": rate_qps},
                           shares=list(shares) or [1] * models)],
        **changes})


def serve(one: Scenario, rows: list[tuple[float, int, float]] | None = None, seed: int = 0,
          name: str = "planned") -> Run:
    """With requests (arrival, model, SLO), or those of the scenario."""
    if rows is None:
        return Engine.of_scenario(one, seed).serve(scheduler(name))
    arrival, model, slo = (np.array(column) for column in zip(*rows, strict=True))
    requests = Requests(arrival.astype(float), slo, model, np.zeros(len(rows), dtype=np.int64))
    return Engine.of_scenario(one, seed, requests=requests).serve(scheduler(name))


def test_what_comes_while_workers_are_busy_shares_a_batch():
    """The second batch is decided on when the first ends: by then three more have come."""
    run = serve(scenario(), [(at, 0, 20.0) for at in (0.0, 1.0, 2.0, 2.5, 2.6)])
    assert run.size.tolist() == [1, 4]
    assert run.in_time.all()


def test_of_too_much_the_batch_of_most_time_per_request_is_put_off():
    """After the first, model 1 has one request, due first, and model 2 four: not both in time."""
    rows = [(0.0, 0, 20.0), (0.1, 1, 9.0), *((0.2 + k / 10, 2, 9.0) for k in range(4))]
    run = serve(scenario(models=3), rows)
    assert run.in_time.tolist() == [True, False, True, True, True, True]


def test_both_are_run_by_latest_start_where_both_can_be_in_time():
    rows = [(0.0, 0, 20.0), (0.1, 1, 12.0), *((0.2 + k / 10, 2, 20.0) for k in range(4))]
    run = serve(scenario(models=3), rows)
    assert run.in_time.all()
    assert run.model.tolist() == [0, 1, 2]


def test_a_size_that_takes_less_time_per_request_is_run():
    """Five wait: four take 6.1 ms, five as many as eight, 10.1 ms."""
    run = serve(scenario(slo_ms=40.0), [(0.0, 0, 40.0), *[(1.0, 0, 40.0)] * 5])
    assert run.size.tolist() == [1, 4, 1]


@pytest.mark.parametrize("rate_qps", [700, 1000])
def test_a_standing_queue_does_not_end_in_small_batches(rate_qps):
    """Nine tenths of the bound; batches of what is due first alone have .426 in time at 1000/s."""
    one = scenario(duration_s=4, rate_qps=rate_qps)
    bound = scenario_bound(one, draw_requests(one, 0))
    assert serve(one).in_time.mean() >= 0.9 * bound.share


def test_a_tight_request_before_many_is_not_given_up():
    """Alone it is in time, and the eight after it are, too."""
    run = serve(scenario(), [(0.0, 0, 20.0), (0.1, 0, 5.5), *[(0.2, 0, 19.0)] * 8])
    assert run.in_time.all()
    assert run.size.tolist() == [1, 1, 8]


def test_earlier_deadlines_of_a_model_go_first():
    run = serve(scenario(), [(0.0, 0, 20.0), (0.5, 0, 60.0), (1.0, 0, 5.0)])
    assert run.in_time.all()


def test_models_that_are_nowhere_are_loaded_and_rare_ones_make_room():
    one = scenario(models=3, worker={"memory_mb": 200}, start=[
        {"worker": "gpu", "models": ["m-1", "m-2"]}])
    rows = [*((float(k), 0, 20.0) for k in range(0, 100, 5)), (100.0, 2, 30.0), (150.0, 0, 20.0)]
    run = serve(one, rows)
    assert run.in_time.all()
    assert [int(model) for model in run.load_model] == [2]  # in the place of m-2, never wanted


def test_a_busy_workers_model_is_loaded_onto_an_idle_one_too():
    one = scenario(models=2, workers=2, start=[{"worker": "gpu-1", "models": ["m-1", "m-2"]}])
    rows = [(k * 1.4, k % 2, 30.0) for k in range(700)]
    run = serve(one, rows)
    assert len(run.load_model) >= 1
    assert run.in_time[350:].mean() > 0.99
    assert run.load_start_ms.min() < 500


@pytest.mark.parametrize("changes", [
    {}, {"loading": "blocking"}, {"lanes": 2}, {"max_models": 1}, {"loads_at_a_time": 2}])
def test_no_more_than_the_bound_on_workers_of_all_kinds(changes):
    one = scenario(models=4, workers=2, slo_ms=25.0, worker={"memory_mb": 250, **changes},
                   rate_qps=900, start=[{"worker": "gpu-1", "models": ["m-1"]}])
    run = serve(one)
    found = scenario_bound(one, draw_requests(one, 0), rounds=40)
    figures = measure(run)
    assert found is not None
    assert 0.3 * found.in_time < figures.in_time <= found.in_time
    assert figures.never_answered == 0


def test_better_than_clockwork_at_a_low_slo():
    one = scenario(models=10, workers=3, slo_ms=8.0, rate_qps=1300)
    planned, clockwork = (measure(serve(one, name=name)).in_time
                          for name in ("planned", "clockwork"))
    assert planned > 1.02 * clockwork


def test_the_last_free_place_does_not_change_hands_all_the_time():
    """Eight models on three workers of three places."""
    busy = scenario(8, 3, 300, load_ms=75, times={1: 10, 4: 25}, worker={"max_models": 3},
                    rate_qps=60, shares=[8, 6, 4, 2, 1, 1, 1, 1], duration_s=20, start=[])
    run = serve(busy)
    assert len(run.load_model) < 40
    share = measure(run).in_time_share
    assert share is not None
    assert share > 0.998


def test_no_copy_of_a_calm_model_makes_requests_late_while_it_blocks():
    """A load blocks for twice the SLO. Without the rule there are 41 loads."""
    calm = scenario(12, 4, 160, load_ms=320, times={1: 6, 4: 15}, rate_qps=240, duration_s=20,
                    worker={"max_models": 9, "loading": "blocking", "memory_mb": 1e4}, start=[])
    run = serve(calm)
    assert 12 <= len(run.load_model) <= 28
    assert run.in_time[run.arrival_ms > 3000.0].mean() > 0.98


def test_loads_at_the_start_leave_time_for_what_they_were_made_for():
    """Ten models are loaded in turn, 420 ms each, where requests can wait for 770 ms."""
    ample = scenario(10, 3, 770, load_ms=420, times={1: 12, 8: 40}, rate_qps=300, duration_s=10,
                     worker={"max_models": 10, "loading": "blocking"}, start=[])
    share = {name: serve(ample, name=name).in_time.mean() for name in ("planned", "clockwork")}
    assert share["planned"] > share["clockwork"] - 0.01


def test_a_model_that_loads_for_longer_than_the_slo_is_loaded_for_requests_to_come():
    """A load takes 50 ms, and 20 are allowed."""
    one = scenario(models=2, workers=2, start=[], load_ms=50.0)
    run = serve(one, [(float(k), k % 2, 20.0) for k in range(0, 600, 3)])
    assert not run.in_time[:5].any()
    assert run.in_time[100:].mean() > 0.95


def chats(**changes: Any) -> Scenario:
    """Answers of 10 tokens, a step each, 10 ms alone and 16 ms for four."""
    return document_scenario(**{
        "worker_types": [{"name": "gpu", "count": 2, "memory_mb": 100, "active": 1}],
        "models": [model(inference={"batching": "continuous", "output_tokens": 10}, latency=[
            {"worker_type": "gpu", "batch": 1, "latency_ms": 10},
            {"worker_type": "gpu", "batch": 4, "latency_ms": 16}])],
        "streams": [stream(slo_ms=300)], "start": [], **changes})


def test_requests_join_a_continuous_batch_that_runs():
    """Three join the first, the fifth waits until one leaves."""
    warm = chats(start=[{"worker": "gpu-1", "models": ["m"]}])
    run = serve(warm, [(at, 0, 300.0) for at in (0.0, 10.0, 20.0, 30.0, 40.0)])
    assert run.start_ms[:4].tolist() == [0.0, 10.0, 20.0, 30.0]
    assert run.start_ms[4] == run.finish_ms.min() > 100.0
    assert run.in_time.all()


def test_an_answer_takes_all_of_its_tokens():
    """Of ten tokens at 10 ms each, none is there within 90 ms."""
    warm = chats(start=[{"worker": "gpu-1", "models": ["m"]}])
    assert not serve(warm, [(0.0, 0, 90.0)]).answered.any()
    assert serve(warm, [(0.0, 0, 110.0)]).in_time.all()


def test_copies_are_for_workers_that_are_active():
    """One of two workers is off for good: all is loaded onto the other, and served."""
    run = serve(chats(duration_s=5))
    late_start = run.arrival_ms > 300.0
    assert run.in_time[late_start].mean() > 0.95
    assert set(run.load_worker.tolist()) == {0}


GROWING = {batch: 10.0 * batch**0.75 for batch in (1, 2, 4, 8)}


def crowded(shares: list[float], rate_qps: float, slo_ms: float = 200, **worker: Any) -> Scenario:
    """Twelve models on eight places, loads of 150 ms."""
    return scenario(12, 4, slo_ms, load_ms=150, times=GROWING, rate_qps=rate_qps, shares=shares,
                    worker={"max_models": 2, **worker}, duration_s=12, start=[])


@pytest.mark.parametrize("loading", ["blocking", "beside"])
def test_models_that_outnumber_places_do_not_thrash(loading):
    """Requests for the eight most wanted of the twelve models are 0.88 of all."""
    one = crowded([(k + 1) ** -1.1 for k in range(12)], 430.0, loading=loading)
    shares = {name: measure(serve(one, name=name)).in_time_share or 0.0
              for name in ("planned", "clockwork")}
    assert shares["planned"] >= shares["clockwork"]
    assert shares["planned"] > 0.8


def test_models_take_turns_where_requests_can_wait():
    patient = crowded([1.0] * 12, 60.0, slo_ms=1100)
    assert measure(serve(patient)).in_time_share == 1.0


def test_a_copy_that_is_short_of_a_place_moves_another_models():
    """Four workers of three places hold eight quiet models and a hot one that takes all four."""
    run = serve(scenario(9, 4, 100, load_ms=300, times=GROWING, rate_qps=500,
                         shares=[72, *[1] * 8], worker={"max_models": 3}, duration_s=60,
                         start=[]))
    assert run.in_time[run.arrival_ms > 10_000.0].mean() > 0.99
