"""What each scheme decides."""

import dataclasses
import json
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError
from ramsis.policy import set_of, write_set
from ramsis.profiles import load as load_profile
from ramsis.sim import (
    Clipper,
    ConstantLoad,
    Delay,
    Fixed,
    Fleet,
    Greedy,
    Infaas,
    JellyfishPlus,
    ModelSwitching,
    Policies,
    scheduler,
)
from ramsis.sim.schedulers.central import batch_limit
from tests.policy import samples
from tests.runs import run_plan, simulate_profile
from tests.sim.samples import fleet, run, tiny, tiny_policy


def tiny_fleet(workers: int = 4, slo_ms: float = 100.0) -> Fleet:
    return Fleet.of(tiny(), workers=workers, slo_ms=slo_ms)


# Jellyfish+


def jellyfish_by_words(own: Fleet, load_qps: float, headroom: float) -> tuple[int, int]:
    """The definition, batch by batch."""
    per_worker = headroom * load_qps / 1000.0 / own.workers
    for model in own.by_accuracy:
        good = [b for b in range(1, own.max_batch + 1)
                if own.table.latency_ms[model, b - 1] <= own.slo_ms / 2
                and b / own.table.latency_ms[model, b - 1] >= per_worker]
        if good:
            return model, by_throughput(own, model, good)
    fastest = own.table.fastest
    every = range(1, own.max_batch + 1)
    in_time = [b for b in every if own.table.latency_ms[fastest, b - 1] <= own.slo_ms]
    best = by_throughput(own, fastest, in_time)
    if best / own.table.latency_ms[fastest, best - 1] >= per_worker:
        return fastest, best
    return fastest, by_throughput(own, fastest, every)


def by_throughput(own: Fleet, model: int, batches: Iterable[int]) -> int:
    """The batch that serves most queries per second, of equals the smallest."""
    return max(batches, key=lambda b: (b / own.table.latency_ms[model, b - 1], -b))


@settings(max_examples=100, deadline=None)
@given(st.floats(1.0, 5000.0), st.sampled_from([0.5, 1.0, 1.05]), st.sampled_from([8.0, 30, 100]),
       st.integers(1, 6))
def test_jellyfish_takes_the_most_accurate_model_that_carries_the_load(
    load_qps, headroom, slo_ms, workers
):
    own = tiny_fleet(workers, slo_ms)
    levels = JellyfishPlus(headroom).levels(own)
    loads = [level.load_qps for level in levels]
    assert loads == sorted(set(loads))
    chosen = levels[bisect_left(loads, load_qps)]
    assert chosen[1:] == jellyfish_by_words(own, load_qps, headroom)


# ModelSwitching


def test_model_switching_carries_what_the_slo_share_allows():
    own = tiny_fleet()
    spec = ModelSwitching(profile_s=10.0)
    carried = spec.carried(own)
    for model, highest in enumerate(carried):
        assert highest.model == model
        assert highest.batch in range(1, max(own.largest_batch(model, own.slo_ms / 2), 1) + 1)
        load_qps = highest.load_qps
        for load, good in ((load_qps, True), (load_qps + spec._step(own), False)):
            done = simulate_profile(tiny(), Fixed(own.models[model], highest.batch),
                                    ConstantLoad(load, 10_000.0), workers=4, slo_ms=100.0,
                                    engine="plain")
            assert (done.violation_rate <= 0.01) == good
    levels = spec.levels(own, carried)
    accuracies = [own.table.accuracy[level.model] for level in levels[:-1]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert levels[-1].model == own.table.fastest


def test_a_batch_limit_stops_at_the_most_efficient_size():
    # Batches of 3 serve 100 queries a second and worker, larger ones fewer.
    own = fleet([[20.0, 25.0, 30.0, 60.0, 80.0, 100.0]], slo_ms=100.0)
    limits = [batch_limit(dataclasses.replace(own, slo_ms=slo_ms), 0)
              for slo_ms in (20.0, 50.0, 200.0)]
    assert limits == [1, 2, 3]
    assert [level[1:] for level in JellyfishPlus().levels(own)] == [(0, 3), (0, 3)]


@pytest.mark.parametrize("profile", ["digits-cpu", "text-cpu", "image-cpu"])
def test_a_longer_slo_never_makes_a_baseline_carry_less(profile):
    """At no load a less accurate model than with a shorter SLO."""
    of = load_profile(profile)
    fastest = Fleet.of(of, workers=8, slo_ms=1e6).table.latency_ms[:, 0].min()
    spec = ModelSwitching(profile_s=0.5)
    before = np.zeros((2, len(of.models)))
    for factor in (2.0, 4.0, 8.0, 16.0, 64.0):
        own = Fleet.of(of, workers=8, slo_ms=factor * fastest)
        carried = np.zeros_like(before)  # with each model or a more accurate one
        for row, levels in enumerate((JellyfishPlus().levels(own)[:-1], spec.carried(own))):
            for level in levels:
                carried[row, own.by_accuracy.index(level.model)] = level.load_qps
        carried = np.maximum.accumulate(carried, axis=1)
        assert (carried >= before).all()
        before = carried


def test_a_stored_response_profile_is_reused_for_the_same_fleet_only(tmp_path):
    store = tmp_path / "responses.json"
    spec = ModelSwitching(profile_s=1.0, step_qps=200.0, store=str(store))
    carried = spec.carried(tiny_fleet())
    text = store.read_text()
    assert carried == ModelSwitching(profile_s=1.0, step_qps=200.0).carried(tiny_fleet())
    edited = json.loads(text)
    for row in edited["models"]:
        trials = [trial for trial in row["trials"] if trial["batch"] == row["batch"]]
        loads = [trial["load_qps"] for trial in trials]
        assert loads == sorted(loads)
        for trial in trials:
            good = trial["load_qps"] <= row["carried_qps"]
            assert (trial["in_time"] >= 0.99) == good == (trial["response_ms"] <= 100.0)
    edited["models"][0]["carried_qps"] = 123.0
    store.write_text(json.dumps(edited))
    assert spec.carried(tiny_fleet())[0].load_qps == 123.0
    other = spec.carried(tiny_fleet(workers=2))
    assert other[0].load_qps != 123.0
    assert json.loads(store.read_text())["workers"] == 2
    again = spec.carried(tiny_fleet())
    assert (again, store.read_text()) == (carried, text)


@pytest.mark.parametrize("text", ['{"format": "other/1"}', "[1]", "{",
                                  '{"format": "ramsis.response-profile/1", "models": [1]}'])
def test_a_store_that_holds_something_else_is_refused(tmp_path, text):
    store = tmp_path / "responses.json"
    store.write_text(text)
    with pytest.raises(InputFileError, match=r"responses\.json"):
        ModelSwitching(store=str(store)).carried(tiny_fleet())
    assert store.read_text() == text


# Greedy, INFaaS, fixed, Clipper


def test_greedy_takes_the_most_accurate_model_that_the_first_query_can_wait_for():
    own = fleet([[10.0, 14.0, 18.0], [40.0, 70.0, 90.0]], [0.5, 0.9], slo_ms=100.0)
    start = Greedy().prepare(own).start
    done = run(own, start, [0.0, 1.0, 2.0, 3.0])
    # At 40 ms: three wait, 61 ms are left: the accurate model, but only one of them.
    assert done.model.tolist() == [1, 1, 0]
    assert done.size.tolist() == [1, 1, 2]
    assert done.in_time.all()


def test_greedy_serves_or_drops_what_cannot_be_in_time():
    own = fleet([[60.0, 65.0, 200.0]], slo_ms=100.0)
    served = run(own, Greedy().prepare(own).start, [0.0, 1.0, 2.0])
    # Late, two at once take 65 ms: the most efficient batch within the SLO.
    assert (served.size.tolist(), served.in_time.tolist()) == ([1, 2], [True, False, False])
    dropped = run(own, Greedy("drop").prepare(own).start, [0.0, 1.0, 2.0])
    assert dropped.batch_of.tolist() == [0, -2, -2]
    assert dropped.drop_ms.tolist() == [60.0, 60.0]


def test_infaas_takes_the_cheapest_model_that_is_accurate_enough():
    own = fleet([[10.0, 12.0], [11.0, 11.5], [30.0, 50.0], [300.0, 300.0]], [0.6, 0.6, 0.8, 0.95])
    for target, model in ((0.0, 1), (0.6, 1), (0.7, 2)):
        assert run(own, Infaas(target).prepare(own).start, [0.0]).model.tolist() == [model]
    with pytest.raises(InfeasibleError, match=r"at most 0\.8"):
        Infaas(0.9).prepare(own)


def test_fixed_keeps_its_model_and_limit():
    own = fleet([[10.0, 20.0, 30.0], [1.0, 1.0, 1.0]])
    done = run(own, Fixed("m0", 2).prepare(own).start, [0.0] * 4)
    assert (done.model.tolist(), done.size.tolist()) == ([0, 0, 0], [1, 2, 1])
    with pytest.raises(InvalidValueError, match=r"unknown model.*m0, m1"):
        Fixed("m9").prepare(own)
    with pytest.raises(InvalidValueError, match="batch"):
        Fixed("m0", 4).prepare(own)


def test_clipper_raises_its_limit_by_one_and_lowers_it_by_a_tenth():
    latency = [10.0 + 5.0 * b for b in range(30)]  # 20 fit 105 ms
    own = fleet([latency], slo_ms=104.0)
    done = run(own, Clipper("m0").prepare(own).start, (0.1 * np.arange(2000)).tolist(), 200.0)
    sizes = done.size.tolist()
    assert sizes[:20] == list(range(1, 21))
    assert sizes[20:25] == [18, 19, 20, 18, 19]  # 20 take 105 ms


def test_clipper_does_not_learn_from_batches_that_are_not_full():
    own = fleet([[10.0, 10.0, 10.0, 10.0]])
    done = run(own, Clipper("m0").prepare(own).start, [0.0, 20.0, 40.0, 41.0, 42.0, 43.0])
    assert done.size.tolist() == [1, 1, 1, 2, 1]


# Policies of ours


def whole_queue() -> NDArray[np.int64]:
    """Batches of the whole queue."""
    return np.repeat(np.arange(1, 9)[:, None], 21, axis=1)


def policy_folder(folder: Path, *policies: Any) -> Path:
    write_set(folder, set_of(policies), created_by="test")
    return folder


def test_policy_files_are_replayed_from_a_folder_or_a_file(tmp_path):
    low, high = tiny_policy(200.0), tiny_policy(800.0)
    folder = policy_folder(tmp_path, low, high)
    workload = ConstantLoad(500.0, 2000.0)
    by_folder = simulate_profile(tiny(), Policies.load(folder), workload, workers=4, slo_ms=100.0)
    by_file = simulate_profile(tiny(), Policies.load(folder / "round-robin-00800qps.json"),
                               workload, workers=4, slo_ms=100.0)
    in_memory = simulate_profile(tiny(), Policies((high,)), workload, workers=4, slo_ms=100.0)
    assert by_folder.metrics == by_file.metrics == in_memory.metrics


def test_the_process_is_chosen_when_a_set_has_several(tmp_path):
    poisson = tiny_policy(200.0)
    other = dataclasses.replace(poisson, arrivals={"process": "other", "x": 2})
    folder = policy_folder(tmp_path, poisson, other)
    assert Policies.load(folder).policies[0].arrivals_label == "poisson"
    chosen = Policies.load(folder, process="other:x=2")
    assert chosen.policies[0].arrivals_label == "other:x=2"
    with pytest.raises(InvalidValueError, match="no policy for this process"):
        Policies.load(folder, process="none")


def test_round_robin_gives_every_kth_query_to_a_worker_and_shortest_queue_does_not():
    own = tiny_fleet()
    policy = tiny_policy(400.0)
    for dispatch, turns in (("round-robin", True), ("shortest-queue", False)):
        plan = Policies((policy,), dispatch=dispatch).prepare(own)
        done = run_plan(own, plan, ConstantLoad(800.0, 2000.0))
        answered = np.flatnonzero(done.answered)  # the others were given up
        assert len(answered) > done.requests / 2
        assert (done.worker[done.batch_of[answered]] == answered % 4).all() == turns


def test_shortest_queue_sends_to_the_worker_with_fewest_waiting_or_in_service():
    own = Fleet.of(tiny(), workers=3, slo_ms=100.0)
    policy = dataclasses.replace(tiny_policy(), workers=3)
    policy = samples.with_table(policy, np.full((8, 21), 2), whole_queue(), (2, 8))
    plan = Policies((policy,), dispatch="shortest-queue").prepare(own)
    done = run(own, plan.start, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 20.05])
    # One each, then a second each; at 20.05 worker 0 serves its second, the others still two.
    assert done.worker[done.batch_of].tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("changes", "words"), [
    ({"workers": 5}, "another number of workers: got 4; allowed: 5"),
    ({"slo_ms": 99.0}, "another SLO: got 100.0; allowed: 99.0"),
])
def test_a_policy_made_for_something_else_is_refused(changes, words):
    terms = {"workers": 4, "slo_ms": 100.0, **changes}
    with pytest.raises(InputFileError, match=words):
        simulate_profile(tiny(), Policies((tiny_policy(),)), ConstantLoad(10.0, 100.0), **terms)


def test_a_policy_made_for_other_models_is_refused():
    with pytest.raises(InputFileError, match=r"the profile lacks.*'large'"):
        simulate_profile(tiny().subset(["small", "medium"]), Policies((tiny_policy(),)),
                 ConstantLoad(10.0, 100.0), workers=4, slo_ms=100.0)


def test_models_are_found_by_name_whatever_their_order():
    policy = tiny_policy(400.0)
    one, two = (
        simulate_profile(tiny().subset(names), Policies((policy,)), ConstantLoad(400.0, 2000.0),
                 workers=4, slo_ms=100.0)
        for names in (["small", "medium", "large"], ["large", "small", "medium"])
    )
    assert one.effective_accuracy == pytest.approx(two.effective_accuracy, abs=1e-12)
    assert one.model_share() == two.model_share()


def test_the_monitor_switches_policies_with_the_load():
    """A low and a high level that use different models show which was in force."""
    base = tiny_policy(200.0)
    small, large = (samples.with_table(dataclasses.replace(base, load_qps=load),
                                       np.full((8, 21), m), whole_queue(), (m, 8))
                    for load, m in ((200.0, 2), (900.0, 0)))
    spec = Policies((small, large))
    slow, fast = (simulate_profile(tiny(), spec, ConstantLoad(load, 5000.0, "fixed-rate"),
                                   workers=4, slo_ms=100.0, monitor=True)
                  for load in (150.0, 850.0))
    assert slow.model_share()["large"] > 0.99
    assert fast.model_share()["small"] > 0.95


# Names


@pytest.mark.parametrize(("text", "words"), [
    ("none-such", "unknown scheduler.*jellyfish-plus"),
    ("greedy:speed=3", "not a parameter.*late=str"),
    ("greedy:late", "not a parameter"),
    ("greedy:late=never", "late.*serve, drop"),
    ("jellyfish-plus:headroom=fast", "headroom.*a float"),
    ("jellyfish-plus:headroom=nan", "headroom"),
    ("jellyfish-plus:headroom=1,headroom=2", "not a parameter"),
    ("fixed", "parameter is missing.*fixed:model="),
    ("fixed:model=a,batch=1.5", "batch.*an? int"),
    ("infaas:accuracy=80", "accuracy"),
    ("clipper:model=a,objective=0", "objective"),
    ("symphony:model=a,objective=nan", "objective"),
    ("delay:model=a,wait_ms=-1", "wait_ms"),
    ("delay:model=a,late=never", "late"),
    ("slackfit:buckets=0", "buckets"),
    ("model-switching:share=0", "share"),
    ("model-switching:seed=-1", "seed"),
])
def test_bad_scheme_texts_are_refused_in_one_line(text, words):
    with pytest.raises(InvalidValueError, match=words) as refused:
        scheduler(text, error=InvalidValueError)
    assert "\n" not in str(refused.value)


def test_parameters_that_are_no_numbers_are_refused():
    for make in (lambda: JellyfishPlus(headroom=True), lambda: Delay("m0", wait_ms="3")):
        with pytest.raises(InvalidValueError, match="allowed: a finite number"):
            make()
