"""Bursts: when they arrive, and how long workers take to recover from them."""

import numpy as np
import pytest

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.errors import InvalidValueError
from ramsis.sim import ConstantLoad, Greedy, Policies, Run, SimulationSettings, simulate
from ramsis.sim.workload import Burst, recovery_ms
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy

LOAD = ConstantLoad(2000.0, 2000.0)


def _run(scheduler: Policies | Greedy, load: Burst, **settings: str) -> Run:
    cluster = Cluster.of(profiles.load("digits-cpu"), workers=4, slo_ms=25.0)
    return simulate(cluster, scheduler, load, SimulationSettings(**settings),  # type: ignore[arg-type]
                    keep_runs=True).runs[0]


def test_a_burst_is_on_top_of_the_load():
    burst = Burst(LOAD, 300)
    times, usual = (load.arrivals_ms(np.random.default_rng(1)) for load in (burst, LOAD))
    assert np.array_equal(times[times != burst.at_ms], usual)
    assert int((times == 1000.0).sum()) == 300
    assert (np.diff(times) >= 0).all()
    assert (burst.load_qps, burst.varies) == (2000.0, False)


@pytest.mark.parametrize("requests", [0, 1_000_001, True])
def test_a_number_of_requests_out_of_range_is_refused(requests):
    with pytest.raises(InvalidValueError, match="requests"):
        Burst(LOAD, requests)


def test_the_number_of_requests_comes_back_as_counted_one_by_one():
    burst = Burst(LOAD, 300)
    run = _run(Greedy(), burst)
    left = np.where(np.isin(np.arange(len(run.arrival_ms)), run.drop_request), np.nan,
                    run.answered_ms)
    left[run.drop_request] = run.drop_ms

    def present(at_ms: float) -> int:
        return int(((run.arrival_ms <= at_ms) & (left > at_ms)).sum())

    usual = np.mean([present(at_ms) for at_ms in np.linspace(500.0, 999.99, 20_000)])
    found = recovery_ms(run, burst.at_ms)
    assert found is not None
    assert present(burst.at_ms + found) <= usual < present(burst.at_ms + found - 1e-6)
    assert all(present(at_ms) > usual for at_ms in np.linspace(1000.0, 999.99 + found, 500))


def test_workers_that_drop_recover_and_those_that_serve_late_may_not():
    load = Burst(ConstantLoad(25_000.0, 2000.0), 3000)
    times = []
    for late in ("drop", "serve"):
        policy = modelled_policy(profiles.load("digits-cpu"), 25_000.0, SynthesisSettings(
            slo_ms=25.0, workers=4, late=late, headroom=0.0, max_queue=8, service="p95"))
        compiled, plain = (recovery_ms(_run(Policies((policy,)), load, engine=engine,
                                            service="p95"), load.at_ms)
                           for engine in ("compiled", "plain"))
        assert compiled == (plain if plain is None else pytest.approx(plain))
        times.append(compiled)
    assert times[0] is not None
    assert times[0] < 150.0
    assert times[1] is None or times[1] > 2.0 * times[0]
