"""The cheapest mix of worker types: the search, agreement with a scan, and what is refused."""

import dataclasses
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.sim import ConstantLoad, RateTrace
from ramsis.synthesis.capacity import SPAN, Capacity, Targets, Trial, fewest_workers, try_workers
from ramsis.synthesis.capacity import cheapest as module
from ramsis.synthesis.capacity.cheapest import CombinationSearch, fluid_mixes
from tests.synthesis.samples import linear_profile

SEEDS = range(2)
WORKER = "round-robin:grid=fixed:10,max_queue=8"
LOAD = ConstantLoad(1200.0, 3000.0)
WANTED = Targets(0.002, min_accuracy=0.8)
FAST = linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0))


def found(types: list[WorkerType], targets: Targets = WANTED, **changes: Any) -> Capacity:
    return fewest_workers(types, LOAD, targets, slo_ms=100.0, scheduler=WORKER, seeds=SEEDS,
                          **changes)


def offered(tiny: ProfileSet) -> list[WorkerType]:
    """Small models on one type, accurate ones on the other."""
    return [WorkerType("small", dataclasses.replace(tiny, models=tiny.models[:2])),
            WorkerType("large", dataclasses.replace(tiny, models=tiny.models[2:]), cost=1.5)]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(costs=st.tuples(st.integers(1, 8), st.integers(1, 8)), slack=st.floats(1.0, 1.6),
       worth=st.tuples(st.floats(0.5, 1.0), st.floats(0.5, 1.0)))
def test_the_search_finds_the_cheapest_where_more_workers_never_hurt(costs, slack, worth):
    """A truth that is harder than the bound, and counts workers of each type differently."""
    types = [WorkerType("a", FAST, cost=float(costs[0])), WorkerType(
        "b", linear_profile((0.75, 3.0, 2.0), (0.9, 9.0, 4.0)), cost=float(costs[1]))]
    fluid = fluid_mixes(types, 1500.0, WANTED, slo_ms=100.0)
    alone = [fluid.fewest_alone(t) for t in range(2)]
    assert alone[0]
    assert alone[1]

    def enough(counts: tuple[int, ...]) -> bool:
        pairs = zip(counts, worth, alone, strict=True)
        return sum(k * w / one for k, w, one in pairs if one) >= slack

    class Stub:
        def __init__(self, counts: tuple[int, ...]) -> None:
            self.met, self.counts = enough(counts), counts

    bound = tuple(round(k) for k in fluid.cheapest(whole=True)[1])
    search = CombinationSearch(fluid, Stub, bound, SPAN)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MISSES", 10_000)
        search.run()
    assert search.complete
    assert search.answer is not None
    cheapest = min(fluid.cost(counts) for counts in product(range(60), repeat=2)
                   if enough(counts) and fluid.cost(counts) <= fluid.cost(search.answer)
                   and fluid.best(fluid.cost(counts), [(counts[0] - 1, 10**6),
                                                       (10**6, counts[1] - 1)]) is not None)
    assert fluid.cost(search.answer) == pytest.approx(cheapest)
    assert len({counts for counts, _ in search.trials}) == len(search.trials)


@pytest.mark.slow
def test_no_cheaper_mix_meets_the_targets_by_simulation(tiny):
    types = offered(tiny)
    answer = found(types)
    assert answer.answer.met
    assert answer.complete
    assert min(answer.counts) > 0
    assert answer.fluid_cost <= answer.cost_bound <= answer.cost
    fluid = fluid_mixes(types, LOAD.load_qps, WANTED, slo_ms=100.0)
    cheaper = [counts for counts in product(range(1, 20), range(1, 13))
               if answer.cost - 1.0 <= fluid.cost(counts) < answer.cost]
    assert cheaper
    for counts in cheaper:
        some = tuple(dataclasses.replace(one, count=count)
                     for one, count in zip(types, counts, strict=True))
        trial = try_workers(Cluster(some, (SloClass(100.0),)), LOAD, WANTED, scheduler=WORKER,
                            seeds=SEEDS)
        assert not trial.met


@pytest.mark.slow
def test_it_is_never_dearer_than_the_best_type_alone(tiny):
    types = [WorkerType("old", tiny), WorkerType("new", FAST, cost=2.5)]
    alone = [one.cost * fewest_workers(one.profile, LOAD, WANTED, slo_ms=100.0, scheduler=WORKER,
                                       seeds=SEEDS).workers for one in types]
    assert found(types).cost <= min(alone)


@pytest.mark.parametrize("most", [None, 3])
def test_one_type_as_two_equal_ones_has_the_same_total(tiny, most):
    one = fewest_workers(tiny, LOAD, WANTED, slo_ms=100.0, scheduler=WORKER, seeds=SEEDS)
    two = found([WorkerType("a", tiny, most), WorkerType("b", tiny)])
    assert sum(two.counts) == two.cost == one.workers
    assert two.cost_bound == one.workers_bound
    assert two.answer.accuracy == one.answer.accuracy
    assert most is None or two.counts[0] <= most


def test_of_alike_types_the_cheaper_is_taken_as_far_as_it_goes(tiny):
    total = found([WorkerType("a", tiny)]).counts[0]
    two = found([WorkerType("dear", tiny, cost=2.0), WorkerType("cheap", tiny, total - 1)])
    assert two.counts == (1, total - 1)


@pytest.mark.slow
def test_the_row_names_the_mix_and_what_was_tried(tiny):
    told: list[Trial] = []
    answer = found(offered(tiny), on_trial=told.append)
    row = answer.row()
    assert row["worker_types"] == dict(zip(("small", "large"), answer.counts, strict=True))
    assert row["workers"] == sum(answer.counts) == answer.answer.workers
    assert row["cost"] == answer.counts[0] + 1.5 * answer.counts[1]
    assert row["gap"] == row["cost"] - row["cost_bound"]
    assert row["worker_types"] in row["tried"]
    assert len(told) == len(row["tried"])
    assert row["accuracy"] >= 0.8


def test_policies_that_cannot_be_made_for_so_few_are_a_miss(tiny, monkeypatch):
    from ramsis.synthesis import stations

    made = stations.prepared

    def refusing(profile: ProfileSet, load_qps: float, settings: Any) -> Any:
        if settings.workers < 15:
            raise InfeasibleError("max_violation: too few")
        return made(profile, load_qps, settings)

    monkeypatch.setattr(stations, "prepared", refusing)
    trial = try_workers(Cluster.of(tiny, workers=3, slo_ms=100.0), LOAD, WANTED, scheduler=WORKER)
    assert not trial.met
    assert (trial.clear, trial.refusal) == (True, "max_violation: too few")
    one = fewest_workers(tiny, LOAD, WANTED, slo_ms=100.0, scheduler=WORKER, seeds=SEEDS)
    assert one.workers == 15


def test_too_few_of_all_types_are_refused(tiny):
    few = [dataclasses.replace(one, count=1) for one in offered(tiny)]
    with pytest.raises(InfeasibleError, match="max_workers: too few workers"):
        found(few)


@pytest.mark.parametrize(("change", "words"), [
    ({"count": 0}, "max_workers"), ({"cost": 0.0}, "cost"), ({"name": "large"}, "different names"),
])
def test_types_that_are_none_are_refused(tiny, change, words):
    first, second = offered(tiny)
    with pytest.raises(InvalidValueError, match=words):
        found([dataclasses.replace(first, **change), second])


def test_only_policies_take_several_types(tiny):
    with pytest.raises(InvalidValueError, match="not policies"):
        fewest_workers(offered(tiny), LOAD, WANTED, slo_ms=100.0, scheduler="greedy")
    trace = RateTrace([0.0, 1000.0], [100.0, 400.0])
    with pytest.raises(InvalidValueError, match="constant load"):
        fewest_workers(offered(tiny), trace, WANTED, slo_ms=100.0, scheduler=WORKER)
