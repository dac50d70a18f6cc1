"""Placements in simulation: stations, policies for them, and what becomes of every request."""

from collections.abc import Sequence
from typing import Any

import pytest

from placement_milp import Placement, Problem, place, read_problem
from placement_milp.presets import PRESETS
from ramsis.errors import InfeasibleError
from ramsis.synthesis.placement import (
    PlacementOutcome,
    placed_stations,
    simulate_placement,
    station_policies,
)
from ramsis.synthesis.simulated import simulated
from tests.placement.samples import document, problem, value_row, variant
from tests.slow import slow_after


def outcome(placement: Placement, **options: Any) -> PlacementOutcome:
    terms = {"duration_ms": 5e3, **options}
    return simulate_placement(placement.problem, placement.groups, **terms)


def test_workers_that_do_the_same_are_a_station():
    placement = place(read_problem("digits"))
    found = placed_stations(placement.problem, placement.groups)
    assert sorted(len(station.workers) for station in found) == [1, 1, 4]
    (shared,) = [station for station in found if len(station.uses) == 2]
    latency = shared.profile.latency_table("p95", 8).latency_ms
    for row, use in zip(latency, shared.uses, strict=True):
        assert use.batch is not None
        assert row[use.batch - 1] == pytest.approx(use.latency_ms)
    for family in placement.families:
        sent = sum(use.load_qps for station in found for use in station.uses
                   if use.family.name == family.name)
        assert sent == pytest.approx(family.served_qps)


def test_a_row_of_a_value_table_is_as_many_stations_as_sub_fleets():
    rows = [value_row(workers=2, load_qps=20, model_set=["bert"], worker_type="gpu")]
    types = [{"name": "gpu", "count": 4, "memory_mb": 1000}]
    latency = {("gpu", 4): 40.0}
    given = problem(
        families=[{"name": "text", "demand_qps": 40, "slo_ms": 200}], worker_types=types,
        variants=[variant("bert", "text", 0.8, 300, latency)],
        values=[{"family": "text", "rows": rows}])
    placement = place(given)
    found = placed_stations(given, placement.groups)
    assert [len(station.workers) for station in found] == [2, 2]
    assert [station.load_qps for station in found] == [20.0, 20.0]
    policies = station_policies(found)
    assert policies[0] is policies[1]
    result = outcome(placement, fixed=True)  # which has no batches to fix
    assert all(station.policy is not None for station in result.stations)
    (family,) = result.families
    assert family.policies_accuracy == pytest.approx(0.8, abs=1e-3)
    assert family.placement_accuracy == pytest.approx(0.7)
    assert family.estimate("effective_accuracy").mean == pytest.approx(0.8, abs=1e-3)


def test_a_batch_that_is_not_listed_is_padded_or_late():
    placement = place(problem())
    for station in placed_stations(placement.problem, placement.groups):
        (use,) = station.uses
        assert use.latency_ms is not None
        row = station.profile.latency_table("p95", station.max_batch + 2).latency_ms[0]
        assert row[use.batch - 1] == use.latency_ms
        assert row[station.max_batch] > use.family.slo_ms
        if use.variants == ("bert",):
            assert row[0] == use.latency_ms


def test_what_is_not_sent_counts_as_not_answered():
    placement = place(problem(families=[{"name": "vision", "demand_qps": 4000, "slo_ms": 100},
                                        {"name": "text", "demand_qps": 40, "slo_ms": 200}]))
    result = outcome(placement, fixed=True, seeds=(0, 1))
    vision = result.families[0]
    assert vision.sent_share < 0.5
    for one in vision.simulated:
        assert one.not_sent / one.queries == pytest.approx(1 - vision.sent_share, abs=0.02)
        assert one.queries == (one.in_time + one.late + one.dropped + one.never_answered
                               + one.not_sent)
        assert (one.effective_accuracy or 0.0) <= vision.placement_accuracy + 0.02


@pytest.mark.parametrize("fixed", slow_after(1, [False, True]))
def test_families_get_what_their_stations_give(fixed):
    placement = place(read_problem("digits"))
    result = outcome(placement, fixed=fixed, duration_ms=500.0)
    for family in result.families:
        mine = [use.simulated[0] for station in result.stations for use in station.uses
                if use.use.family.name == family.family.name]
        whole = family.simulated[0]
        assert sum(one.queries for one in mine) == whole.queries - whole.not_sent
        assert sum(one.in_time for one in mine) == whole.in_time
        right = sum((one.effective_accuracy or 0.0) * one.queries for one in mine)
        assert whole.effective_accuracy == pytest.approx(right / whole.queries)
    assert result.first.workers == 6
    busy = [share for station in result.stations for share in station.busy]
    assert all(0 < share <= 1 + 1e-9 for share in busy)


def test_variants_at_once_are_servers_of_their_own():
    given = document(worker_types=[{"name": "gpu", "count": 1, "memory_mb": 1000}])
    for one in given["variants"]:
        one["latency"] = [{**entry, "compute_share": 0.4} for entry in one["latency"]
                          if entry["worker_type"] == "gpu"]
    del given["variants"][0]
    from placement_milp import problem_from_document

    placement = PRESETS["gpu-sharing"](problem_from_document(given))
    (group,) = placement.groups
    assert len(group.uses) == 2
    found = placed_stations(placement.problem, placement.groups)
    assert [station.at_once for station in found] == [True, True]
    assert [station.workers for station in found] == [("gpu-1",), ("gpu-1",)]


def test_a_placement_that_sends_nothing_is_refused():
    placement = place(problem())
    with pytest.raises(InfeasibleError, match="sends nothing"):
        placed_stations(placement.problem, ())


def _kept(given: Problem, least: int, but: Sequence[str] = ()) -> None:
    """The promises of a family's policies hold within 0.003 where stations serve it alone.

    Stations do in one run what each does alone, which compiled loops simulate for longer.
    Families in ``but`` are left out.
    """
    stations = [station for station in placed_stations(given, place(given).groups)
                if all(use.family.name not in but for use in station.uses)]
    promised, found, share = (dict.fromkeys((one.name for one in given.families), 0.0)
                              for _ in range(3))
    for station, policy in zip(stations, station_policies(stations), strict=True):
        for use in station.uses if policy is not None else ():
            one = simulated(policy, queries=400_000, runs=8, seed=100)
            part = use.load_qps / use.family.demand_qps
            promised[use.family.name] += part * policy.expectations.effective_accuracy
            found[use.family.name] += part * one.effective_accuracy
            share[use.family.name] += part
            assert policy.expectations.effective_accuracy <= use.accuracy + 1e-9
    kept = [name for name, part in share.items() if part > 0]
    assert len(kept) >= least
    for name in kept:
        assert found[name] / share[name] == pytest.approx(promised[name] / share[name],
                                                          abs=0.003), name


def test_policies_keep_their_promises_on_the_shipped_problem():
    _kept(read_problem("digits"), 2)


@pytest.mark.slow
def test_policies_keep_their_promises_on_a_reference_problem(reference_dir):
    """Of all but three families, whose policies take three quarters of the time."""
    _kept(read_problem(reference_dir / "placement_20_workers.json"), 6,
          ("yolo", "efficientnet", "bert"))
