"""Named workers with the fewest moves, shadow prices, and what becomes of ties and extremes."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_milp import Problem, place, problem_from_document
from placement_milp.problem import Holding, Variant, WorkerType
from placement_milp.recipe import name_workers
from tests.placement.samples import document, problem, variant


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_names_are_given_with_the_least_loading(data):
    """Against every assignment of names, with load times that make moves unequal."""
    loads = {"a": 1000.0, "b": 300.0, "c": 0.0}
    sets = [frozenset(s) for n in (1, 2) for s in itertools.combinations(loads, n)]
    worker_type = WorkerType("gpu", 4, 1000.0)
    base = problem(objective={"kind": "effective-accuracy"})
    current = tuple(
        Holding(name, tuple(held)) for name in worker_type.worker_names()
        if (held := data.draw(st.sampled_from([frozenset[str](), *sets]))))
    asked = replace(base, worker_types=(worker_type,), current=current, variants=tuple(
        Variant(name, "vision", 0.5, 1.0, load_ms) for name, load_ms in loads.items()))
    wanted = [(s, data.draw(st.integers(1, 2))) for s in data.draw(
        st.lists(st.sampled_from(sets), min_size=1, max_size=2, unique=True))]
    given_names = name_workers(asked, worker_type, wanted)
    assert [len(names) for names in given_names] == [number for _, number in wanted]
    flat = [name for names in given_names for name in names]
    assert len(set(flat)) == len(flat)
    held = {item.worker: frozenset(item.variants) for item in current}

    def loading(names: tuple[str, ...]) -> tuple[float, int]:
        slots = [s for s, number in wanted for _ in range(number)]
        new = [v for s, name in zip(slots, names, strict=True)
               for v in s - held.get(name, frozenset())]
        return sum(loads[v] for v in new), len(new)

    best = min(loading(order) for order in itertools.permutations(
        worker_type.worker_names(), len(flat)))
    mine = loading(tuple(flat))
    assert mine[0] == pytest.approx(best[0])
    assert mine[1] == best[1]


def test_what_runs_already_stays_where_it_is():
    first = place(problem())
    now = [{"worker": worker, "variants": [v for use in group.uses for v in use.variants]}
           for group in first.groups for worker in group.workers]
    again = place(problem(current=now))
    assert again.moves == ()
    assert again.objective == pytest.approx(first.objective)


def test_a_price_on_moving_keeps_what_is_good_enough():
    """Loading the accurate variant takes 10 s and brings 0.2 of accuracy."""
    def placed(price: float) -> tuple[tuple[str, ...], float, int]:
        found = place(problem_from_document(document(
            objective={"kind": "effective-accuracy", "moving_price": price},
            families=[{"name": "vision", "demand_qps": 50, "slo_ms": 100}],
            worker_types=[{"name": "gpu", "count": 1, "memory_mb": 1000}],
            variants=[variant("small", "vision", 0.7, 100, {("gpu", 4): 40}, 10_000),
                      variant("large", "vision", 0.9, 100, {("gpu", 4): 40}, 10_000)],
            current=[{"worker": "gpu-1", "variants": ["small"]}])))
        return found.groups[0].uses[0].variants, found.objective, len(found.moves)

    assert placed(0.021) == (("small",), pytest.approx(0.7), 0)
    assert placed(0.019) == (("large",), pytest.approx(0.9 - 0.19), 1)


def line(demand_qps: float, count: int, **changes: Any) -> Problem:
    """One family on workers of 100 QPS each."""
    return problem_from_document(document(**{
        "objective": {"kind": "effective-accuracy", "unserved_penalty": 1.0},
        "families": [{"name": "vision", "demand_qps": demand_qps, "slo_ms": 100}],
        "worker_types": [{"name": "gpu", "count": count, "memory_mb": 1000, "cost_per_hour": 2}],
        "variants": [variant("only", "vision", 0.7, 100, {("gpu", 4): 40})], **changes}))


def test_one_more_worker_is_worth_what_it_would_add():
    """A tenth of the demand more at accuracy 0.7, and the penalty saved; nothing when idle."""
    short, more = place(line(1000, 4)), place(line(1000, 5))
    assert short.prices["gpu"] == pytest.approx(more.objective - short.objective)
    assert short.prices["gpu"] == pytest.approx(0.1 * 1.7)
    assert place(line(100, 4)).prices["gpu"] == 0.0


def test_the_load_is_spread_evenly_and_idle_workers_are_not_used():
    placement = place(line(150, 4))
    (group,) = placement.groups
    assert len(group.workers) >= 2
    use = group.uses[0]
    assert use.load_qps * len(group.workers) == pytest.approx(150)
    cheapest = place(line(150, 4, objective={"kind": "cheapest"}))
    assert (len(cheapest.groups[0].workers), cheapest.objective) == (2, pytest.approx(4.0))
    assert cheapest.cost_per_hour == pytest.approx(4.0)


@pytest.mark.parametrize("demand", [1e-6, 1e-3, 1.0, 1e6, 1e9])
def test_demands_of_every_size(demand):
    placement = place(line(demand, 3))
    served = min(1.0, 300 / demand)
    assert placement.objective == pytest.approx(1.7 * served - 1.0, abs=1e-6)
    assert placement.families[0].served_share == pytest.approx(served, abs=1e-6)


def test_ten_thousand_workers_are_counted_not_listed():
    placement = place(line(900_000, 10_000))
    assert len(placement.groups) == 1
    assert placement.objective == pytest.approx(0.7)


def test_a_type_can_have_the_latencies_of_another_at_its_own_speed():
    placement = place(line(500, 0, worker_types=[
        {"name": "gpu", "count": 1, "memory_mb": 1000},
        {"name": "fast", "count": 1, "memory_mb": 1000, "latency_like": "gpu",
         "relative_speed": 2.5}]))
    rates = {group.worker_type: group.uses[0].rate_qps for group in placement.groups}
    assert rates == {"gpu": pytest.approx(100.0), "fast": pytest.approx(250.0)}


def test_memory_counts_at_the_batch():
    """The batch of 8 is faster and does not fit; sharing needs both memories at once."""
    def rate(memory_mb: float) -> float:
        found = document(
            families=[{"name": "vision", "demand_qps": 900, "slo_ms": 200}],
            worker_types=[{"name": "gpu", "count": 1, "memory_mb": memory_mb}],
            variants=[variant("only", "vision", 0.7, 100, {("gpu", 1): 20, ("gpu", 8): 80})])
        found["variants"][0]["latency"][1]["memory_mb"] = 500
        return place(problem_from_document(found)).groups[0].uses[0].rate_qps

    assert rate(499) == pytest.approx(50.0)
    assert rate(500) == pytest.approx(100.0)


def test_weights_decide_who_gets_the_worker():
    def served(weight: float) -> float:
        placement = place(problem(
            families=[{"name": "vision", "demand_qps": 100, "slo_ms": 100, "weight": weight},
                      {"name": "text", "demand_qps": 100, "slo_ms": 200}],
            worker_types=[{"name": "gpu", "count": 1, "memory_mb": 1000},
                          {"name": "cpu", "count": 0, "memory_mb": 1}]))
        return placement.families[0].served_share

    assert served(10.0) == pytest.approx(1.0)
    assert served(0.1) == pytest.approx(0.0)
