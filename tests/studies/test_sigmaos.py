"""The schedulers of σOS: tenants in turn, copies, and what is chosen among."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.scenario import Scenario
from ramsis.sim import SCHEDULERS, Run
from tests.scenario.samples import model, scenario, served, stream

FAMILY = sorted(name for name in SCHEDULERS if name.startswith("sigmaos"))


def cluster(machines: int = 3, cores: int = 1, **worker: Any) -> dict[str, Any]:
    return {"name": "gpu", "count": machines, "cores": cores, **worker}


def at(*times_ms: float, **more: Any) -> dict[str, Any]:
    return stream(workload={"times_ms": list(times_ms)}, **{"cores": 1, **more})


def one_model(*streams: dict[str, Any], load_ms: float = 50.0, held: bool = True,
              **worker: Any) -> Scenario:
    """A model of 10 ms on machines, the first of which holds it."""
    start = [{"worker": "gpu-1", "models": ["m"]}] if held else []
    return scenario(worker_types=[cluster(**worker)], models=[model(load_ms=load_ms)],
                    streams=list(streams), start=start, duration_s=100)


@pytest.mark.parametrize("name", FAMILY)
def test_tenants_take_turns(name):
    made = one_model(at(0, 0, 0, 0, name="a", tenant="a"), at(0, 0, name="b", tenant="b"),
                     machines=1)
    run = served(made, name)
    order = run.stream[np.argsort(run.answered_ms)]
    assert order.tolist() == [0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("name", FAMILY)
def test_a_request_is_queued_when_the_scheduler_has_it(name):
    """The second comes while the first is on its way, and runs after it."""
    run = served(one_model(at(0, 1, 30), machines=1), f"{name}:enqueue_ms=2")
    assert run.answered_ms.tolist() == [12, 22, 42]


@pytest.mark.parametrize("name", FAMILY)
def test_best_effort_is_sent_only_while_no_other_request_waits(name):
    """One core, and requests of 10 ms: the first of best effort runs, the others give way."""
    made = one_model(at(0, 0, 0, name="late", best_effort=True), at(1, 12, 31, name="first"),
                     machines=1)
    run = served(made, name)
    order = run.stream[np.argsort(run.answered_ms)]
    assert order.tolist() == [0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("name", FAMILY)
def test_critical_requests_overtake_best_effort_at_a_proxy(name):
    made = one_model(at(0, 0, 0, name="late", best_effort=True), at(1, name="first"),
                     machines=1, cores=4)
    run = served(made, name)
    assert run.stream[np.argsort(run.answered_ms)].tolist() == [0, 1, 0, 0]


def test_best_effort_leaves_the_cores_that_a_critical_request_waits_for():
    """The critical one needs both cores; a request of best effort that would fit stays behind."""
    made = one_model(at(0, name="running", best_effort=True), at(1, name="large", cores=2),
                     at(2, name="late", best_effort=True), machines=1, cores=2)
    run = served(made, "sigmaos")
    assert run.stream[np.argsort(run.answered_ms)].tolist() == [0, 1, 2]


def test_tenants_of_each_class_take_turns():
    streams = [at(0, 0, name=f"{tenant}-{kind}", tenant=tenant, best_effort=kind == "late")
               for tenant in "ab" for kind in ("first", "late")]
    run = served(one_model(*streams, machines=1), "sigmaos")
    names = [made_of.name for made_of in one_model(*streams).streams]
    order = [names[stream] for stream in run.stream[np.argsort(run.answered_ms)]]
    assert order == ["a-first", "b-first", "a-first", "b-first",
                     "a-late", "b-late", "a-late", "b-late"]


def test_requests_that_are_all_of_best_effort_are_served_as_any_others():
    plain, late = (served(one_model(*(
        at(0, 0, 3, name=tenant, tenant=tenant, best_effort=best_effort) for tenant in "ab")),
        "sigmaos") for best_effort in (False, True))
    assert (plain.answered_ms == late.answered_ms).all()


def test_a_request_that_does_not_fit_lets_a_smaller_one_pass():
    made = one_model(at(0, name="first"), at(1, name="large", cores=2), at(2, name="small"),
                     machines=1, cores=2)
    assert served(made, "sigmaos").answered_ms.tolist() == [10, 30, 20]


@pytest.mark.parametrize("name", FAMILY)
def test_a_copy_runs_one_request_at_a_time(name):
    run = served(one_model(at(0, 0, 0), machines=1, cores=4, lanes=4), name)
    assert sorted(run.answered_ms) == [10, 20, 30]


def test_a_remote_copy_frees_no_cores_and_costs_the_network():
    made = one_model(at(0, 0, post_ms=40, network_ms=3, network_back_ms=4), machines=2)
    run = served(made, "sigmaos-registry")
    # Both at the copy of the first machine, one over the network.
    assert sorted(run.answered_ms) == [50, 64]
    assert run.worker.tolist() == [0, 0]
    assert not len(run.load_model)


@pytest.mark.parametrize("target", [1, 3])
def test_the_registry_opens_a_copy_where_each_has_enough(target):
    made = one_model(at(*[0] * 4), machines=4)
    run = served(made, f"sigmaos-registry:target={target}")
    assert np.bincount(run.worker)[0] >= target
    assert (len(run.load_model) > 0) == (target == 1 or np.bincount(run.worker)[0] < 4)
    assert max(np.bincount(run.worker)[1:], default=0) <= max(4 - target, 1)


@pytest.mark.parametrize(("load_ms", "post_ms", "network_ms", "chosen"), [
    (5, 30, 30, "cold"), (100, 0, 50, "wait"), (100, 40, 2, "remote"), (100, 30, 45, "wait"),
    (34, 30, 25, "cold"), (36, 30, 25, "remote"), (41, 30, 31, "wait")])
def test_dynamic_takes_what_the_model_says_takes_least_time(load_ms, post_ms, network_ms, chosen):
    # 10 ms of inference, one request before: cold load + 10 + post, waiting 2 (10 + post),
    # remote network + 10 + post + 10.
    made = one_model(at(0, 0, post_ms=post_ms, network_ms=network_ms), load_ms=load_ms, machines=2)
    run = served(made, "sigmaos-dynamic")
    waits = run.answered_ms.max() == 2 * (10 + post_ms)
    found = "cold" if len(run.load_model) else "wait" if waits else "remote"
    assert found == chosen


def test_those_that_wait_are_counted():
    # Waiting takes 20, 30, 40 and 50 ms in all, a cold start 45: the last of them has one.
    run = served(one_model(at(0, 0, 0, 0, 0, network_ms=1000), load_ms=35, machines=2),
                 "sigmaos-dynamic")
    assert run.answered_ms.tolist() == [10, 20, 30, 40, 45]
    assert run.worker[run.batch_of].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("name", FAMILY)
def test_what_is_not_in_use_makes_room(name):
    made = scenario(
        worker_types=[cluster(1, memory_mb=150)], models=[model("a"), model("b"), model("c")],
        streams=[at(0, 300, name="a", model="a"), at(100, name="b", model="b"),
                 at(200, name="c", model="c")], start=[{"worker": "gpu-1", "models": ["c"]}])
    run = served(made, name)
    assert run.load_model.tolist() == [0, 1, 2, 0]
    assert run.unload_model.tolist() == [2, 0, 1, 2]
    assert run.answered.all()


@pytest.mark.parametrize("name", ["sigmaos-registry", "sigmaos-dynamic"])
def test_machines_without_the_model_process_for_those_that_have_it(name):
    made = scenario(worker_types=[cluster(1), {"name": "cpu", "count": 2, "cores": 4}], start=[],
                    streams=[at(0, 0, 100, cores=3, pre_ms=5, network_ms=2)])
    run = served(made, name)
    assert run.answered_ms.tolist() == [67, 77, 117]
    assert run.load_worker.tolist() == [0]


def test_a_request_does_not_wait_for_a_machine_that_is_too_small():
    made = scenario(
        worker_types=[cluster(1), {"name": "large", "count": 1, "cores": 4}],
        models=[model(latency=[{"worker_type": name, "batch": 1, "latency_ms": 10}
                               for name in ("gpu", "large")])],
        streams=[at(0, cores=4)], start=[{"worker": "gpu", "models": ["m"]}])
    assert served(made, "sigmaos-colocation-queue").answered_ms.tolist() == [60]


SCENARIOS = st.fixed_dictionaries({
    "machines": st.integers(1, 3), "cores": st.integers(1, 3), "lanes": st.integers(1, 2),
    "memory_mb": st.sampled_from([100, 150, 200, 300]),
    "loading": st.sampled_from(["beside", "blocking"]), "loads_at_a_time": st.integers(1, 2),
})
STREAMS = st.lists(st.fixed_dictionaries({
    "model": st.sampled_from(["a", "b", "c"]), "tenant": st.sampled_from(["x", "y"]),
    "cores": st.integers(0, 1), "pre_ms": st.sampled_from([0, 5]),
    "post_ms": st.sampled_from([0, 20]), "network_ms": st.sampled_from([0, 7]),
    "workload": st.fixed_dictionaries({"load_qps": st.sampled_from([5, 50, 200])}),
}), min_size=1, max_size=4)


@given(worker=SCENARIOS, streams=STREAMS, name=st.sampled_from(FAMILY), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_every_request_is_answered_in_random_scenarios(worker, streams, name, seed):
    made = scenario(
        worker_types=[cluster(**worker)], duration_s=0.5, start=[],
        models=[model("a", 5), model("b", 8, memory_mb=50, inference={"output_tokens": [1, 3]}),
                model("c", 3, first_load_ms=200, inference={
                    "batching": "continuous", "output_tokens": 2})],
        streams=[stream(f"s{i}", **one) for i, one in enumerate(streams)])
    run = served(made, name, seed)
    assert run.answered.all()
    assert (run.size == 1).all()
    # A copy runs one at a time, once its model is there.
    for one in range(len(made.arrays.workers)):
        for kind in range(3):
            mine = np.flatnonzero((run.worker == one) & (run.model == kind))
            assert (run.start_ms[mine][1:] >= run.finish_ms[mine][:-1] - 1e-9).all()
    # No more cores are held than there are.
    assert _most_cores(run, made) <= worker["cores"] * worker["machines"]


def _most_cores(run: Run, made: Scenario) -> int:
    """Most cores that are held at any time, by what is certain: from inference to the answer."""
    cores = np.array([one.cores for one in made.streams])[run.stream]
    if not len(cores):
        return 0
    start_ms = run.start_ms[run.batch_of]
    at_ms = np.concatenate([run.answered_ms, start_ms])
    change = np.concatenate([-cores, cores])
    return int(np.cumsum(change[np.lexsort((change, np.round(at_ms, 6)))]).max())


def test_the_registry_follows_the_steps_of_figure_4_3():
    """C and B are full, B's copy has fewer than three requests: the next goes to A, and to B."""
    machines = (("c", 6), ("b", 4), ("a", 1))
    made = scenario(
        worker_types=[{"name": name, "count": 1, "cores": cores} for name, cores in machines],
        models=[model(latency=[{"worker_type": name, "batch": 1, "latency_ms": 10}
                               for name, _ in machines])],
        streams=[at(*[0] * 5, name="before", cores=2, post_ms=100),
                 at(1, name="z", post_ms=5000)],
        start=[{"worker": name, "models": ["m"]} for name in "cb"])
    run = served(made, "sigmaos-registry")
    done_on = run.worker[run.batch_of]
    assert done_on[:5].tolist() == [0, 0, 0, 1, 1]
    # It waits for two others at B, which it reaches over the network; nothing is loaded for it.
    assert done_on[5] == 1
    assert run.answered_ms[5] == 30 + 5000
    assert not len(run.load_model)


@pytest.mark.parametrize("name", FAMILY)
def test_three_services_share_the_machines(name):
    """Translation, images, and text to image differ in their times; each loads its own model."""
    services = {"translation": (1000, 3000), "images": (200, 1000), "text-to-image": (8000, 20000)}
    made = scenario(
        worker_types=[cluster(1)], start=[],
        models=[model(service, latency_ms, load_ms=load_ms)
                for service, (latency_ms, load_ms) in services.items()],
        streams=[at(1e5 * i, 5e5 + 1e5 * i, name=service, model=service)
                 for i, service in enumerate(services)], duration_s=1000)
    run = served(made, name)
    assert run.load_model.tolist() == [0, 1, 2]
    for stream_index, (latency_ms, load_ms) in enumerate(services.values()):
        took_ms = (run.answered_ms - run.arrival_ms)[run.stream == stream_index]
        assert took_ms.tolist() == [load_ms + latency_ms, latency_ms]
