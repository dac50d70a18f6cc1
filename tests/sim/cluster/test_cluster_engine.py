"""What the cluster engine does, event by event, and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from ramsis.scenario import Scenario
from ramsis.sim import Engine, Run, Scheduler, SchedulerError, measure
from ramsis.sim.engine import engine as engine_module
from tests.scenario.samples import model, scenario, stream


class Scripted(Scheduler):
    """Calls a function at each event, with its name and arguments."""

    def __init__(self, engine: Engine, script: Callable[..., None]) -> None:
        super().__init__(engine)
        self.script = script
        for name in ("on_start", "on_arrival", "on_end", "on_loaded", "on_ready", "on_processed",
                     "on_scaled", "on_timer"):
            setattr(self, name, lambda *args, name=name: script(engine, name, *args))


def played(made: Scenario, script: Callable[..., None], **more: Any) -> Run:
    return Engine.of_scenario(made, **more).serve(lambda engine: Scripted(engine, script))


def at_once(engine: Engine, name: str, *args: Any) -> None:
    """Run each request alone on the first worker."""
    if name == "on_arrival":
        engine.run(0, 0, [args[0]])


def times(*at_ms: float, **more: Any) -> dict[str, Any]:
    return stream(workload={"times_ms": list(at_ms)}, **more)


def test_events_of_an_instant_come_in_the_documented_order():
    seen = []

    def script(engine: Engine, name: str, *args: Any) -> None:
        seen.append((engine.now_ms, name))
        if name == "on_start":
            engine.load(0, 1)
            engine.wake_at(10.0)
            engine.scale_up(0)
        if name == "on_arrival" and args[0] == 0:
            engine.run(0, 0, [0])

    played(scenario(
        worker_types=[{"name": "gpu", "count": 2, "active": 1, "scale_up_ms": 10}],
        start=[{"worker": "gpu-1", "models": ["m"]}],
        models=[model(), model("n", load_ms=10)], streams=[times(0, 10)]), script)
    assert seen == [(0.0, "on_start"), (0.0, "on_arrival"), (10.0, "on_end"), (10.0, "on_loaded"),
                    (10.0, "on_scaled"), (10.0, "on_arrival"), (10.0, "on_timer")]


def test_the_first_load_in_the_cluster_takes_its_own_time():
    loaded = []

    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_start":
            assert engine.load_ms(0, 0) == 80
            engine.load(0, 0)
        if name == "on_loaded":
            loaded.append(engine.now_ms)
            if args[0] == 0:
                engine.load(1, 0)

    run = played(scenario(worker_types=[{"name": "gpu", "count": 2}], start=[],
                          models=[model(first_load_ms=80)], streams=[times(500)]), script)
    assert loaded == [80, 130]
    assert run.load_end_ms.tolist() == [80, 130]
    assert measure(run).never_answered == 1


def test_a_cold_start_is_a_load_after_the_arrival():
    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_arrival" and args[0] == 0:
            engine.load(0, 0)
        if name == "on_loaded":
            engine.run(0, 0, [0])
        if name == "on_arrival" and args[0] == 1:
            engine.run(0, 0, [1])

    run = played(scenario(start=[], streams=[times(0, 200)]), script)
    assert run.cold.tolist() == [True, False]
    assert run.answered_ms.tolist() == [60, 210]
    found = measure(run)
    assert (found.loads, found.loading_s, found.cold_starts) == (1, 0.05, 1)
    assert found.utilisation == pytest.approx(20 / 1000)  # while requests may come


def test_processing_holds_cores_and_crosses_the_network():
    cores = []

    def script(engine: Engine, name: str, *args: Any) -> None:
        cores.append(engine.workers.free_cores[0])
        if name == "on_arrival":
            engine.process(args[0], 0, inference_on=1)
        if name == "on_ready":
            assert engine._at_machine[args[0]][0] == 0
            engine.run(1, 0, [args[0]])

    run = played(scenario(
        worker_types=[{"name": "gpu", "count": 2, "cores": 4}],
        streams=[times(0, pre_ms=1, post_ms=2, network_ms=3, network_back_ms=4, cores=3)]), script)
    assert run.start_ms.tolist() == [4]
    assert run.answered_ms.tolist() == [1 + 3 + 10 + 4 + 2]
    assert cores == [4, 4, 1, 1, 4]
    assert run.worker[run.batch_of].tolist() == [1]


def test_streams_after_others_and_closed_loops():
    run = played(scenario(worker_types=[{"name": "gpu", "count": 1, "lanes": 3}], streams=[
        times(0, 5, name="warm"),
        times(1, name="late", after="loop"),
        stream("loop", workload={"users": 2, "think_ms": 1, "requests": 5}, after="warm")]),
        at_once)
    assert run.arrival_ms.tolist() == [0, 5, 15, 15, 26, 26, 37, 48]
    assert run.stream.tolist() == [0, 0, 2, 2, 2, 2, 2, 1]


def test_batches_slow_each_other_down_and_no_work_is_lost():
    def halves(worker: int, running: Any) -> list[float]:
        return [1.0 / len(running)] * len(running)

    run = played(scenario(worker_types=[{"name": "gpu", "count": 1, "lanes": 2}],
                          streams=[times(0, 5)]), at_once, slowdown=halves)
    assert run.finish_ms.tolist() == [15, 20]


def test_requests_join_and_leave_a_continuous_batch():
    steps = [{"worker_type": "gpu", "batch": 1, "latency_ms": 1},
             {"worker_type": "gpu", "batch": 2, "latency_ms": 2}]

    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_arrival" and args[0] == 0:
            assert engine.run(0, 0, [0]) == 0
        if name == "on_arrival" and args[0] == 1:
            engine.join(0, [1])
        if name == "on_arrival" and args[0] == 2:
            with pytest.raises(SchedulerError, match="more requests than a continuous batch"):
                engine.join(0, [2])

    run = played(scenario(
        models=[model(latency=steps,
                      inference={"batching": "continuous", "output_tokens": 10})],
        streams=[times(0, 5, 6)]), script)
    assert run.answered_ms[:2].tolist() == [15, 20]


def test_static_batches_of_tokens_end_with_the_longest():
    run = played(scenario(models=[model(inference={"output_tokens": 7})], streams=[times(0)]),
                 at_once)
    assert run.answered_ms.tolist() == [70]


def test_workers_are_scaled():
    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_start":
            assert engine.scale_up(0) == 1
            assert engine.scale_up(0) is None
        if name == "on_scaled":
            engine.scale_down(0)
            with pytest.raises(SchedulerError, match="stop of a worker that is not idle"):
                engine.scale_down(0)
        if name == "on_arrival":
            engine.drop(args[0])

    run = played(scenario(
        worker_types=[{"name": "gpu", "count": 2, "active": 1, "scale_up_ms": 30}],
        start=[{"worker": "gpu-1", "models": ["m"]}], streams=[times(100)]), script)
    assert run.active_ms().tolist() == [30, 100]
    assert run.drop_request.tolist() == [0]


REFUSALS: list[tuple[str, Callable[[Engine, int], Any]]] = [
    ("a batch on a worker that cannot start one: got 'gpu-1 \\(worker 0\\)'",
     lambda e, r: (e.run(0, 0, [r]), e.run(0, 0, [r]))),
    ("a batch of a model that is not loaded: got 'gpu-1 \\(worker 0\\), model n'",
     lambda e, r: e.run(0, 1, [r])),
    ("run of a request that is not waiting: got 1", lambda e, r: e.run(0, 0, [1])),
    ("load beyond the memory of a worker", lambda e, r: e.load(0, 2)),
    ("load of a model that is loaded already", lambda e, r: e.load(0, 0)),
    ("load on a worker that cannot", lambda e, r: (e.load(0, 1), e.load(0, 3))),
    ("unload of a model that is not loaded", lambda e, r: e.unload(0, 1)),
    ("unload of a model that runs", lambda e, r: (e.run(0, 0, [r]), e.unload(0, 0))),
    ("processing of a request that is not waiting", lambda e, r: e.process(r, 0)),
    ("stop of a worker that is not idle", lambda e, r: (e.load(0, 1), e.scale_down(0))),
    ("not a running continuous batch", lambda e, r: e.join(0, [r])),
    ("run of a request for another model", lambda e, r: e.run(1, 1, [r])),
]


@pytest.mark.parametrize(("message", "act"), REFUSALS)
def test_what_cannot_be_done_stops_the_run_naming_the_event(message, act):
    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_arrival":
            act(engine, args[0])

    with pytest.raises(SchedulerError, match=message) as stopped:
        played(scenario(
            worker_types=[{"name": "gpu", "count": 2, "memory_mb": 450}], duration_s=50,
            models=[model(), model("n"), model("big", memory_mb=400), model("o")],
            start=[{"worker": "gpu-1", "models": ["m"]}, {"worker": "gpu-2", "models": ["n"]}],
            streams=[times(5, 900)]), script)
    assert str(stopped.value).startswith("at 5 ms, arrival of request 0: ")
    assert "\n" not in str(stopped.value)


def test_loads_without_end_that_serve_nobody_are_stopped(monkeypatch):
    """As of round robin, where no two models are given up for a large one at a time."""
    monkeypatch.setattr(engine_module, "_MOST", 50)

    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_start":
            engine.load(0, 0)
        elif name == "on_loaded":
            engine.unload(0, args[1])
            engine.load(0, 1 - args[1])

    made = scenario(start=[], models=[model(), model("n"), model("big")],
                    streams=[times(0, model="big"), times(1, model="big", name="more")])
    with pytest.raises(SchedulerError, match="loaded without end while 2 requests wait, the "
                                             "first for big: got 51"):
        played(made, script)


def test_loads_while_nobody_waits_may_go_on(monkeypatch):
    monkeypatch.setattr(engine_module, "_MOST", 50)

    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_start":
            engine.load(0, 0)
        elif name == "on_loaded" and len(engine.workers.loaded[0]) == 1 and engine.now_ms < 1e5:
            engine.unload(0, args[1])
            engine.load(0, 1 - args[1])
        elif name == "on_arrival":
            engine.drop(args[0])

    run = played(scenario(start=[], models=[model(load_ms=100), model("n", load_ms=100)],
                          streams=[times(0, 99_000)]), script)
    assert len(run.load_model) > 900


def test_requests_of_a_family_may_be_answered_by_another_model():
    def script(engine: Engine, name: str, *args: Any) -> None:
        if name == "on_arrival":
            engine.run(0, 1, [args[0]])

    run = played(scenario(
        models=[model(family="f"), model("n", family="f", accuracy=0.5)],
        start=[{"worker": "gpu", "models": ["m", "n"]}], streams=[times(0)]), script)
    assert measure(run).accuracy == 0.5
