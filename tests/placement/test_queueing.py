"""Stations with queues: the compiled run against the plain engine, and plans that count on it."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from placement_milp import check_placement, place, problem_from_document
from placement_milp.queueing import Lane, rate_beside, responses_ms, station_rate
from ramsis.errors import InputFileError, VerificationError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.sim.fleet import Fleet
from ramsis.sim.schedulers.duty_cycle import DutyCycle
from ramsis.synthesis.placement.simulated import simulate_placement
from ramsis.synthesis.placement.streams import (
    QueryStream,
    StreamStation,
    Target,
    requests_of,
    run_streams,
)

LISTED = {1: 10.0, 4: 18.0, 8: 29.0}
OTHER = {1: 6.0, 2: 9.0}


def fleet(lanes: int, *models: dict[int, float]) -> Fleet:
    profile = ProfileSet("station", tuple(ModelProfile(
        f"m{i}", 1.0, tuple(BatchProfile(b, p95_ms=ms) for b, ms in {
            **listed, max(listed) + 1: 999.0 + i}.items())) for i, listed in enumerate(models)))
    return Fleet.of(profile, workers=lanes, slo_ms=500.0, service="p95",
                    max_batch=max(max(listed) for listed in models))


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("loads", [(90.0,), (260.0,), (120.0, 60.0)])
def test_responses_are_those_of_the_engine(lanes, loads):
    listed = (LISTED, OTHER)[:len(loads)]
    batches = [max(one) for one in listed]
    streams = [QueryStream(lanes * load, 500.0, (Target(0, i, 1.0),))
               for i, load in enumerate(loads)]
    requests = requests_of(streams, 20_000.0, 7)
    run = run_streams([StreamStation(fleet(lanes, *listed), partial(DutyCycle, batches=batches))],
                      requests, 20_000.0)
    times = [requests.arrival_ms[requests.use == i] for i in range(len(loads))]
    table = np.zeros((len(loads), max(batches) + 1))
    for row, one, most in zip(table, listed, batches, strict=True):
        row[: most + 1] = Lane.of(most, one).table(1.0)
    mine = responses_ms(np.concatenate(times), np.cumsum([0, *map(len, times)]), lanes,
                        np.array(batches), table)
    theirs = np.concatenate([(run.answered_ms - run.arrival_ms)[requests.use == i]
                             for i in range(len(loads))])
    assert mine == pytest.approx(theirs, abs=1e-6)


def test_a_station_of_single_requests_is_an_m_d_1_queue():
    """Its mean wait is ρ s / (2 (1 - ρ)), by Pollaczek and Khinchine."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(1 / 0.07, size=400_000))
    response = responses_ms(times, np.array([0, len(times)]), 1, np.array([1]),
                            np.array([[0.0, 10.0]]))
    assert response.mean() == pytest.approx(10.0 + 0.7 * 10.0 / (2 * 0.3), rel=0.02)


def test_rates_grow_as_they_have_to():
    lane = Lane.of(8, LISTED)
    rate = partial(station_rate, lane, quantile=0.99, headroom=0.05)
    one = rate(lanes=1, slo_ms=100.0)
    assert 0.5 * 276 / 1.05 < one < 276 / 1.05
    assert rate(lanes=4, slo_ms=100.0) > 4 * one  # lanes of one queue help each other
    assert rate(lanes=1, slo_ms=60.0) < one < rate(lanes=1, slo_ms=200.0)
    assert rate(lanes=1, slo_ms=10.2) == 0.0
    beside = partial(rate_beside, Lane.of(2, OTHER), second=lane, slo_ms=100.0, quantile=0.99,
                     headroom=0.05)
    few, many = (beside(load, 100.0) for load in (5.0, 60.0))
    assert 0 < many < few < one
    assert beside(5.0, 6.2) == 0.0


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format": "ramsis.placement-problem/1", "name": "queues",
        "objective": {"kind": "fewest-workers"}, "rules": {"in_time_quantile": 0.99},
        "families": [{"name": "a", "demand_qps": 1500, "slo_ms": 100},
                     {"name": "b", "demand_qps": 12, "slo_ms": 200}],
        "worker_types": [{"name": "gpu", "count": 6, "partitions": "A30-24GB"}],
        "variants": [
            {"name": "a", "family": "a", "accuracy": 1, "memory_mb": 9, "latency": [
                {"worker_type": f"gpu/{kind}", "batch": b, "processes": p,
                 "latency_ms": ms * (1 + 0.8 * (p - 1)) / size}
                for (kind, size), (b, ms), p in itertools.product(
                    (("1g.6gb", 1.0), ("2g.12gb", 1.9)), LISTED.items(), (1, 2))]},
            {"name": "b", "family": "b", "accuracy": 1, "memory_mb": 9, "latency": [
                {"worker_type": "gpu/1g.6gb", "batch": b, "latency_ms": ms}
                for b, ms in OTHER.items()]}], **changes}


@pytest.mark.parametrize("shared", [1, 2])
def test_what_is_planned_is_in_time_on_the_engine(shared):
    problem = problem_from_document(document(
        rules={"in_time_quantile": 0.99, "variants_per_worker": shared}))
    placement = place(problem)
    both = [group for group in placement.groups if len(group.uses) == 2]
    assert len(both) == shared - 1  # b's few requests need no instance of their own
    for factor in (1.0, 1.05):
        longer = replace(problem, variants=tuple(replace(v, latency=tuple(
            replace(e, latency_ms=factor * e.latency_ms) for e in v.latency))
            for v in problem.variants))
        groups = tuple(replace(g, uses=tuple(replace(u, latency_ms=factor * (u.latency_ms or 0))
                                             for u in g.uses)) for g in placement.groups)
        outcome = simulate_placement(longer, groups, duration_ms=30_000, seeds=(1,), fixed=True)
        for family in outcome.families:
            assert family.simulated[0].response_p99_ms is not None
            assert family.simulated[0].response_p99_ms <= 1.03 * family.family.slo_ms
            assert family.simulated[0].queries > 200


def test_queues_need_more_than_full_batches_would():
    """Where batches take next to all of the SLO, hardly any load is in time."""
    tight = document(families=[{"name": "a", "demand_qps": 1500, "slo_ms": 31},
                               {"name": "b", "demand_qps": 12, "slo_ms": 200}])
    aware = place(problem_from_document(tight))
    blind = place(problem_from_document({**tight, "rules": {"latency_share_of_slo": 1.0}}))
    assert aware.workers_in_use > blind.workers_in_use


def test_a_rate_that_no_station_can_have_is_refused():
    problem = problem_from_document(document())
    placement = place(problem)
    (first, *rest) = placement.groups
    wrong = replace(first, uses=(replace(first.uses[0], rate_qps=9999.0),))
    with pytest.raises(VerificationError, match="above that of full batches"):
        check_placement(problem, replace(placement, groups=(wrong, *rest)))
    with pytest.raises(InputFileError, match=r"in_time_quantile.*\(0, 1\)"):
        problem_from_document(document(rules={"in_time_quantile": 1}))
