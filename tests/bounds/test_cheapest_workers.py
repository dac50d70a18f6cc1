"""The fluid program of the cheapest workers: one type, enumeration, and what is left out."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.bounds import CheapestWorkers, Targets, fewest_workers_bound, fluid_bound
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError

SMALL = ServiceTimes(("small",), np.array([0.6]), np.array([[4.0, 6.0, 8.0]])[:, :, None], "p95")
LARGE = ServiceTimes(("large",), np.array([0.9]), np.array([[20.0, 30.0, 60.0]])[:, :, None],
                     "p95")
BOTH = ServiceTimes(("small", "large"), np.array([0.6, 0.9]),
                    np.concatenate([SMALL.quantiles_ms, LARGE.quantiles_ms]), "p95")
SMALL_MS, LARGE_MS = 8.0 / 3.0, 15.0  # worker time per query, at best
TARGETS = Targets(0.001, min_accuracy=0.7)


def mixes(*laws: ServiceTimes, costs: tuple[float, ...] = (1.0, 1.0), targets: Targets = TARGETS,
          load_qps: float = 1000.0, slo_ms: float = 50.0, **more: Any) -> CheapestWorkers:
    return CheapestWorkers(laws, costs[:len(laws)], targets, slo_ms=slo_ms, load_qps=load_qps,
                           **more)


def test_of_one_type_it_is_the_fewest_workers_times_the_cost():
    least = fewest_workers_bound(BOTH, TARGETS, slo_ms=50.0, load_qps=1000.0)
    found = mixes(BOTH, costs=(2.5,))
    assert found.cheapest()[0] == pytest.approx(2.5 * least)
    assert found.cheapest(whole=True) == (2.5 * np.ceil(least), (np.ceil(least),))
    assert found.fewest_alone(0) == np.ceil(least)


def test_two_alike_types_are_as_good_as_one():
    one, two = mixes(BOTH), mixes(BOTH, BOTH)
    assert two.kinds == (0, 0)
    assert two.cheapest()[0] == pytest.approx(one.cheapest()[0])
    assert two.cheapest(whole=True)[0] == one.cheapest(whole=True)[0]


def test_a_model_on_each_type_is_mixed_in_the_shares_that_the_accuracy_asks_for():
    found = mixes(SMALL, LARGE, costs=(1.0, 3.0), targets=Targets(0.0, min_accuracy=0.7))
    cost, counts = found.cheapest()
    assert counts == pytest.approx((2 / 3 * SMALL_MS, LARGE_MS / 3))
    assert cost == pytest.approx(2 / 3 * SMALL_MS + LARGE_MS)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(costs=st.tuples(st.floats(0.2, 5.0), st.floats(0.2, 5.0)), load=st.floats(100.0, 600.0),
       effective=st.floats(0.3, 0.88))
def test_whole_mixes_are_the_cheapest_of_all_that_the_fluid_bound_allows(costs, load, effective):
    """What a mix can carry by another program: its largest effective accuracy."""
    wide = mixes(SMALL, LARGE, costs=costs, load_qps=load,
                 targets=Targets(0.999, min_effective_accuracy=effective))

    def able(counts: tuple[int, int]) -> bool:
        types = [(times, k) for times, k in zip((SMALL, LARGE), counts, strict=True) if k]
        return bool(types) and fluid_bound(
            [times for times, _ in types], slo_ms=50.0, workers=[k for _, k in types],
            load_qps=load).effective_accuracy >= effective - 1e-7

    allowed = [counts for counts in product(range(4), range(11)) if able(counts)]
    cost, counts = wide.cheapest(whole=True)
    assert able((int(counts[0]), int(counts[1])))
    assert cost == pytest.approx(min(wide.cost(one) for one in allowed), rel=1e-6)
    assert wide.cheapest()[0] <= cost + 1e-9
    failed = [(1, 5), (2, 3)]
    best = wide.best(cost * 1.5, failed)
    left = [one for one in allowed if wide.cost(one) <= cost * 1.5
            and not any(one[0] <= a and one[1] <= b for a, b in failed)]
    assert (best is None) <= (not left)
    if best is not None:
        assert able(best)  # type: ignore[arg-type]
        assert wide.cost(best) <= cost * 1.5 + 1e-6
        assert all(best[0] > a or best[1] > b for a, b in failed)


def test_the_best_mix_of_a_cost_carries_the_most():
    found = mixes(SMALL, BOTH)

    def carried(counts: tuple[int, ...]) -> float:
        return mixes(SMALL, BOTH, most=counts)._carried_qps()

    best = found.best(12.0)
    assert best is not None
    most = max(carried((k, 12 - k)) for k in range(12))
    assert carried(best) == pytest.approx(most)
    assert most >= 1000.0


def test_a_type_that_is_never_in_time_has_no_workers():
    found = mixes(LARGE, BOTH, slo_ms=10.0, costs=(0.1, 1.0), targets=Targets(0.001))
    assert found.cheapest(whole=True)[1][0] == 0
    assert found.fewest_alone(0) is None


@pytest.mark.parametrize(("changes", "words"), [
    ({"targets": Targets(0.001, min_accuracy=0.95)}, "min_accuracy.*at most 0.9"),
    ({"slo_ms": 3.0}, "slo_ms.*at least 4 ms"),
])
def test_what_no_mix_reaches_is_refused_with_the_nearest(changes, words):
    with pytest.raises(InfeasibleError, match=words):
        mixes(SMALL, LARGE, **changes)


def test_too_few_workers_are_refused_with_the_load_that_they_carry():
    few = mixes(SMALL, LARGE, most=(1, 2), targets=Targets(0.0, min_accuracy=0.9))
    with pytest.raises(InfeasibleError, match=r"max_workers.*1000.*at most 133\.333 QPS"):
        few.cheapest()


@pytest.mark.parametrize("changes", [{"costs": (1.0, 0.0)}, {"load_qps": -1.0}, {"slo_ms": 0.0}])
def test_numbers_out_of_range_are_refused(changes):
    with pytest.raises(InvalidValueError):
        mixes(SMALL, LARGE, **changes)
