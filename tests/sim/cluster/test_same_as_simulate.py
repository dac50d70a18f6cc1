"""Where everything is loaded, the cluster engine runs every batch that the plain engine runs."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.scenario import Requests, Scenario
from ramsis.sim import ConstantLoad, Engine, scheduler
from tests.runs import run_plan
from tests.scenario.samples import scenario, stream

LATENCY_MS = {"small": [5.0, 7.0, 9.0, 12.0], "large": [20.0, 26.0, 31.0, 35.0]}


def cluster(slo_ms: float) -> Scenario:
    return scenario(
        duration_s=20, worker_types=[{"name": "gpu", "count": 3, "memory_mb": 500}],
        models=[{"name": name, "family": "digits", "accuracy": 0.6 + 0.2 * i, "memory_mb": 200,
                 "latency": [{"worker_type": "gpu", "batch": b + 1, "latency_ms": ms}
                             for b, ms in enumerate(rows)]}
                for i, (name, rows) in enumerate(LATENCY_MS.items())],
        streams=[stream(model="small", slo_ms=slo_ms, workload={"load_qps": 250})],
        start=[{"worker": "gpu", "models": ["small", "large"]}])


@pytest.mark.parametrize("name", ["jellyfish-plus", "greedy", "greedy:late=drop",
                                  "fixed:model=large,batch=4", "model-switching:profile_s=2"])
def test_every_batch_is_the_same(name):
    made = cluster(60.0)
    engine = Engine.of_scenario(made, 3)
    fleet, chosen = engine.fleet, scheduler(name)
    plan = chosen.prepare(fleet)
    load = ConstantLoad(250.0, made.duration_ms)
    plain = run_plan(fleet, plan, load, seed=3, monitored=True, engine="plain")
    nothing = np.zeros(plain.requests, dtype=np.int64)
    given = Requests(plain.arrival_ms, np.array([60.0]), nothing, nothing)

    run = Engine.of_scenario(made, 3, requests=given).serve(chosen)
    assert plain.requests > 4000
    order, other = np.lexsort((run.worker, run.start_ms)), np.lexsort((plain.worker,
                                                                       plain.start_ms))
    for mine, its in ((run.start_ms, plain.start_ms), (run.finish_ms, plain.finish_ms),
                      (run.worker, plain.worker), (run.model, plain.model),
                      (run.size, plain.size)):
        np.testing.assert_array_equal(mine[order], its[other])
    np.testing.assert_array_equal(run.in_time, plain.in_time)
    np.testing.assert_array_equal(np.sort(run.drop_request), np.sort(plain.drop_request))
