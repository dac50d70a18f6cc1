"""One registry: what is named serves fleets and scenarios alike, or says in a line why not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.plugins import trusting
from ramsis.sim import (
    SCHEDULERS,
    ClosedLoop,
    ConstantLoad,
    Engine,
    Fleet,
    SimulationSettings,
    scheduler,
    simulate,
)
from ramsis.sim.schedulers import FLEET_SCHEDULERS
from tests.scenario.samples import scenario, stream
from tests.synthesis.samples import tiny_profile

OWN = '''
from ramsis.sim import Scheduler

class Oldest(Scheduler):
    """One request at a time, by the model that it asks for, on the worker of lowest number."""

    def __init__(self, engine, last: int = 0):
        super().__init__(engine)
        self.queue, self.last = [], last

    def on_arrival(self, request):
        self.queue.append(request)
        self.serve()

    def on_end(self, worker, batch):
        self.serve()

    def serve(self):
        for worker in self.engine.idle_workers()[self.last:]:
            if self.queue:
                request = self.queue.pop(0)
                self.engine.run(worker, self.engine.requests.model[request], [request])

class Broken(Scheduler):
    def on_arrival(self, request):
        raise KeyError("lost")
'''
LOADING = sorted(set(SCHEDULERS) - {*FLEET_SCHEDULERS, "policies", "rl"})
LOAD = ConstantLoad(113.7, 2000.0)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    with trusting([f"{path}:Oldest", f"{path}:Broken"]):
        yield path


def cluster(**changes: Any) -> Cluster:
    return Cluster.of(tiny_profile(), **{"workers": 3, "slo_ms": 100.0, **changes})


@pytest.mark.parametrize("name", LOADING)
def test_schedulers_of_clusters_serve_a_fleet(name):
    result = simulate(cluster(), scheduler(name), LOAD, keep_runs=True)
    (run,), (found,) = result.runs, result.metrics
    assert result.scheduler == name
    assert found.queries > 150
    assert found.queries == found.in_time + found.late + found.dropped + found.never_answered
    assert found.in_time > 0
    assert set(run.model.tolist()) == {run.asked[0]}


@pytest.mark.parametrize("name", [
    "clockwork", "planned", "clockwork-adjusted", "jellyfish-plus", "greedy", "greedy:late=drop",
    "fixed:model=large,batch=4", "model-switching:profile_s=2"])
def test_on_a_fleet_every_batch_is_that_of_the_scenario(name):
    fleet = Fleet.of(tiny_profile(), workers=3, slo_ms=100.0, service="p95")
    run, = simulate(cluster(), scheduler(name), ConstantLoad(350.0, 3000.0), SimulationSettings(
        service="p95", monitor=True, engine="plain"), keep_runs=True).runs
    same = scenario(
        duration_s=2, worker_types=[{"name": "cpu", "count": 3}],
        models=[{"name": model, "family": "fleet", "accuracy": accuracy, "latency": [
            {"worker_type": "cpu", "batch": batch + 1, "latency_ms": ms}
            for batch, ms in enumerate(rows)]} for model, accuracy, rows in zip(
                fleet.models, fleet.table.accuracy.tolist(),
                fleet.table.latency_ms.tolist(), strict=True)],
        streams=[stream(model=fleet.models[run.asked[0]])],
        start=[{"worker": "cpu", "models": list(fleet.models)}])
    other = scheduler(name).serve(Engine.of_scenario(same, requests=replace(
        fleet.requests(run.arrival_ms), model=run.asked, stream=run.stream)))
    assert len(run.size) > 100
    for mine, its in ((run.start_ms, other.start_ms), (run.finish_ms, other.finish_ms),
                      (run.worker, other.worker), (run.model, other.model),
                      (run.batch_of, other.batch_of), (run.drop_ms, other.drop_ms)):
        np.testing.assert_array_equal(mine, its)


def test_classes_are_streams_and_closed_loops_are_served():
    typed = Cluster((WorkerType("all", tiny_profile(), 3),),
                    (SloClass(60.0, 0.25), SloClass(100.0, 0.75)))
    run, = simulate(typed, scheduler("clockwork"), LOAD, keep_runs=True).runs
    assert set(run.stream.tolist()) == {0, 1}
    assert (run.slo_ms[run.stream == 0] == 60.0).all()
    loop = simulate(cluster(), scheduler("clockwork"), ClosedLoop(3, 5.0, 500.0),
                    SimulationSettings(monitor=True))
    assert loop.metrics[0].in_time > 10


def test_workers_of_several_types_are_refused_in_a_line():
    profile = tiny_profile()
    typed = Cluster((WorkerType("a", profile, 1), WorkerType("b", profile, 1, speed=2.0)),
                    (SloClass(100.0),))
    with pytest.raises(InvalidValueError, match="clockwork: decides about workers of one type"):
        simulate(typed, scheduler("clockwork"), LOAD)


def test_one_of_your_own_runs_on_fleets_and_scenarios(own):
    named = scheduler(f"{own}:Oldest")
    assert simulate(cluster(), named, LOAD).metrics[0].in_time > 150
    assert named.serve(Engine.of_scenario(scenario(), 1)).in_time.all()
    one_less = simulate(cluster(), scheduler(f"{own}:Oldest:last=2"), LOAD, keep_runs=True)
    assert set(one_less.runs[0].worker.tolist()) == {2}
    with pytest.raises(InputFileError, match=r"mine.py, line .*Broken failed .KeyError: 'lost'"):
        simulate(cluster(), scheduler(f"{own}:Broken"), LOAD)


def test_a_fleets_scheduler_refuses_a_scenario_that_is_no_fleet():
    with pytest.raises(InputFileError, match="a scheduler of equal workers cannot serve "
                                             "this scenario; allowed: all models loaded on all"):
        scheduler("greedy").serve(Engine.of_scenario(scenario(start=[]), 1))
