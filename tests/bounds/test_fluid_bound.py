"""The fluid bound: its value, its dual, and that nothing beats it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.bounds import FluidBound, certified_gap, fluid_bound, realised_bound
from ramsis.cluster import ServiceTimes, SloClass
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import LatencyTable
from ramsis.synthesis.generate import modelled_policy
from tests.reference.fluid import best_mix, clairvoyant, gathered
from tests.synthesis import samples

TABLE = LatencyTable.measured(
    ["small", "large"], [0.6, 0.9], [[4.0, 6.0, 8.0], [20.0, 30.0, 60.0]]
)


def bound(load_qps: float, workers: int = 2, slo_ms: float = 50.0, **changes: int) -> FluidBound:
    return fluid_bound(TABLE, slo_ms=slo_ms, workers=workers, load_qps=load_qps,
                       **{"max_batch": 3, **changes})


def shares(found: FluidBound) -> NDArray[np.float64]:
    """Of all queries, by model and batch, on the only type and of the only class."""
    return found.batch_share[0][0]


@st.composite
def tables(draw: st.DrawFn) -> LatencyTable:
    models, batches = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    steps = st.lists(st.floats(0.0, 20.0), min_size=batches, max_size=batches)
    latency = np.cumsum(
        [[1.0 + row[0], *row[1:]] for row in (draw(steps) for _ in range(models))], axis=1)
    accuracy = draw(st.lists(st.floats(0.0, 1.0), min_size=models, max_size=models))
    return LatencyTable.measured([f"m{i}" for i in range(models)], accuracy, latency)


def test_all_queries_get_the_most_accurate_model_while_there_is_time():
    found = bound(100.0)  # 15 ms a query on 2 workers allow 133 queries/s
    assert found.effective_accuracy == pytest.approx(0.9)
    assert found.served_fraction == pytest.approx(1.0)
    assert found.worker_price[0] == pytest.approx(0.0, abs=1e-12)
    assert shares(found)[0].sum() == pytest.approx(0.0, abs=1e-9)


def test_beyond_that_the_best_mix_of_two_uses_all_worker_time():
    """Shares s on small (8/3 ms a query) and 1 − s on large (15 ms) fill 2/0.4 = 5 ms."""
    found = bound(400.0)
    small = (15.0 - 5.0) / (15.0 - 8 / 3)
    assert found.effective_accuracy == pytest.approx(0.6 * small + 0.9 * (1 - small))
    assert shares(found)[0, 2] == pytest.approx(small)
    assert shares(found)[1, 1] == pytest.approx(1 - small)
    assert found.served_fraction == pytest.approx(1.0)


def test_in_overload_the_fastest_way_serves_what_it_can():
    found = bound(3000.0)  # capacity: 2 workers, 3 queries in 8 ms
    assert found.capacity_qps == pytest.approx(750.0)
    assert found.served_fraction == pytest.approx(0.25)
    assert found.effective_accuracy == pytest.approx(0.15)
    assert found.worker_price == pytest.approx(0.075)  # each worker serves an eighth


def test_serving_fewer_can_be_worth_more_than_serving_all():
    """Near capacity, where the model that could serve all is far less accurate."""
    table = LatencyTable.measured(["poor", "good"], [0.1, 0.9], [[10.0], [12.0]])
    found = fluid_bound(table, slo_ms=50.0, workers=1, load_qps=100.0, max_batch=1)
    assert found.capacity_qps == pytest.approx(100.0)
    assert found.served_fraction == pytest.approx(10 / 12)
    assert found.effective_accuracy == pytest.approx(0.75)


def test_the_slo_takes_batches_out():
    assert bound(1.0, slo_ms=7.0).effective_accuracy == pytest.approx(0.6)
    assert bound(1.0, slo_ms=7.0).capacity_qps == pytest.approx(2000.0 / 3.0)
    assert bound(1.0, slo_ms=20.0).effective_accuracy == pytest.approx(0.9)
    assert bound(600.0, max_batch=1).capacity_qps == pytest.approx(500.0)


@pytest.mark.parametrize("load_qps", [1e-300, 1e308])
def test_any_finite_load_has_a_finite_answer(load_qps):
    found = bound(load_qps)
    served = min(1.0, 750.0 / load_qps)
    assert found.served_fraction == pytest.approx(served, rel=1e-9)
    worth = 0.9 if load_qps < 1 else 0.6 * served
    assert found.effective_accuracy == pytest.approx(worth, rel=1e-9)
    assert np.isfinite([*found.worker_price, *shares(found).ravel()]).all()


@settings(max_examples=40, deadline=None)
@given(table=tables(), workers=st.integers(2, 30), demand=st.floats(0.1, 3.0))
def test_more_workers_never_hurt_and_the_price_lies_between_the_differences(
    table, workers, demand
):
    """The bound is concave in K: losing one costs the price at least, a new one earns no more."""
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    fewer, here, more = (
        fluid_bound(table, slo_ms=200.0, workers=k, load_qps=load_qps, max_batch=table.max_batch)
        for k in (workers - 1, workers, workers + 1)
    )
    lost = here.effective_accuracy - fewer.effective_accuracy
    earned = more.effective_accuracy - here.effective_accuracy
    assert lost >= here.worker_price[0] - 1e-7 >= earned - 2e-7
    assert earned >= -1e-9
    assert more.capacity_qps > here.capacity_qps


@settings(max_examples=25, deadline=None)
@given(profile=samples.linear_profiles(), workers=st.integers(1, 4), demand=st.floats(0.05, 2.0))
def test_no_worker_policy_beats_it(profile, workers, demand):
    chosen = samples.settings(slo_ms=120.0, workers=workers, grid="fixed:12", max_queue=5)
    table = profile.latency_table("p95", 5)
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    promise = modelled_policy(profile, load_qps, chosen).expectations
    limit = fluid_bound(table, slo_ms=120.0, workers=workers, load_qps=load_qps, max_batch=5)
    assert promise.upper_bound == pytest.approx(limit.effective_accuracy, abs=1e-7)
    assert promise.effective_accuracy <= limit.effective_accuracy + 1e-7
    assert promise.capacity_qps == pytest.approx(limit.capacity_qps)


@pytest.mark.parametrize("name", ["slo_ms", "workers", "load_qps"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_numbers_out_of_range_are_named(name, value):
    arguments = {"slo_ms": 50.0, "workers": 2, "load_qps": 100.0, name: value}
    with pytest.raises(InvalidValueError, match=f"{name}: .*got .*(finite|whole) number"):
        fluid_bound(TABLE, max_batch=3, **arguments)


@pytest.mark.parametrize("max_batch", [0, -1, 4])
def test_batches_outside_the_table_are_refused(max_batch):
    with pytest.raises(InvalidValueError, match=r"^max_batch: .*1 to 3"):
        bound(1.0, max_batch=max_batch)


def test_an_slo_below_every_latency_is_refused():
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 3.9; allowed: at least 4 ms"):
        bound(1.0, slo_ms=3.9)


@example(table=LatencyTable.measured(("a", "b"), [6e-8, 0.0], [[1.0], [1.0]]), workers=1,
         demand=2.0)
@settings(max_examples=25, deadline=None)
@given(table=tables(), workers=st.integers(1, 20), demand=st.floats(0.1, 3.0))
def test_gathering_windows_only_tighten(table, workers, demand):
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    plain, tight = (
        fluid_bound(table, slo_ms=200.0, workers=workers, load_qps=load_qps,
                    max_batch=table.max_batch, gathering=gathering)
        for gathering in (False, True)
    )
    assert tight.upper_bound <= plain.upper_bound + 1e-12
    assert math.isnan(tight.query_price)
    assert plain.query_price == pytest.approx(
        plain.effective_accuracy - workers * plain.worker_price[0], abs=1e-7)


def test_a_batch_that_leaves_no_time_to_gather_is_rare():
    """A batch of 2 takes all of the SLO: two queries must arrive within 1 ms."""
    table = LatencyTable.measured(["m"], [0.8], [[60.0, 99.0]])
    found = fluid_bound(table, slo_ms=100.0, workers=1, load_qps=18.0, max_batch=2, gathering=True)
    pairs = 1 - math.exp(-2 * 0.018)
    assert shares(found)[0, 1] <= pairs + 1e-9
    assert found.served_fraction == pytest.approx(pairs + (1 / 0.018 - pairs * 49.5) / 60.0)


def test_drawn_times_count_by_their_mean_and_by_the_chance_to_be_in_time():
    times = ServiceTimes(("m",), np.array([0.8]), np.array([[[50.0, 150.0]]]), "distribution")
    found = fluid_bound(times, slo_ms=100.0, workers=1, load_qps=20.0, max_batch=1)
    assert found.effective_accuracy == pytest.approx(0.8 * 0.5 * 0.5)
    assert found.served_fraction == pytest.approx(0.25)


@settings(max_examples=40, deadline=None)
@given(table=tables(), workers=st.integers(1, 20), demand=st.floats(0.1, 3.0),
       limit=st.floats(0.0, 1.0))
def test_a_limit_on_violations_is_kept_at_the_least_loss(table, workers, demand, limit):
    """By the vertices of the program for accuracies that are raised by a price of violations."""
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    given: dict[str, Any] = {"slo_ms": 200.0, "workers": workers, "load_qps": load_qps}
    free = fluid_bound(table, **given)
    _, most = best_mix([1.0] * len(table.accuracy), table.latency_ms.tolist(), **given)
    if limit < 1.0 - most - 1e-6:
        with pytest.raises(InfeasibleError, match=r"^max_violation: too few workers") as refused:
            fluid_bound(table, **given, max_violation=limit)
        nearest = float(str(refused.value).split()[-1])
        assert nearest == pytest.approx(1.0 - most, abs=1e-5)
        found = fluid_bound(table, **given, max_violation=nearest)
        assert found.violation_rate <= nearest + 1e-7
        return
    assume(limit > 1.0 - most + 1e-6)
    found = fluid_bound(table, **given, max_violation=limit)
    assert found.served_fraction >= 1.0 - limit - 1e-9
    assert found.effective_accuracy <= free.effective_accuracy + 1e-9
    for price in (0.0, 0.3, 1.0, 10.0):
        raised, _ = best_mix((table.accuracy + price).tolist(), table.latency_ms.tolist(), **given)
        assert found.effective_accuracy <= raised - price * (1.0 - limit) + 1e-7
    if free.served_fraction >= 1.0 - limit:
        assert found.effective_accuracy == pytest.approx(free.effective_accuracy, abs=1e-7)


def test_the_least_violation_rate_of_a_message_is_taken():
    """Rounded to six decimals, it may be below what can be kept by less than the seventh."""
    table = LatencyTable.measured(["m"], [0.8], [[10.0]])
    given: dict[str, Any] = {"slo_ms": 50.0, "workers": 1,
                             "load_qps": 100.0 / (1.0 - 0.4518120008)}
    with pytest.raises(InfeasibleError, match=r"at least 0\.451812$"):
        fluid_bound(table, **given, max_violation=0.4)
    found = fluid_bound(table, **given, max_violation=0.451812)
    assert found.upper_bound == pytest.approx(0.8 * (1.0 - 0.451812))


PRICES = st.one_of(st.just(0.0), st.floats(0.01, 100.0), st.sampled_from([1e4, 1e9, 1e100]))


@settings(max_examples=100, deadline=None)
@given(table=tables(), workers=st.integers(1, 40), demand=st.floats(0.05, 4.0),
       slo_ms=st.floats(1.0, 80.0), price=PRICES)
def test_it_is_the_best_vertex(table, workers, demand, slo_ms, price):
    """Every answer is worth the price more, and every query costs it beforehand."""
    fastest = float(table.latency_ms[:, 0].min())
    assume(fastest <= slo_ms)
    given: dict[str, Any] = {"slo_ms": slo_ms, "workers": workers,
                             "load_qps": demand * workers * 1000.0 / fastest}
    found = fluid_bound(table, **given, violation_price=price)
    raised, served = best_mix((table.accuracy + price).tolist(), table.latency_ms.tolist(),
                              **given)
    rounding = 1e-9 + 1e-9 * price  # of the other way
    assert found.upper_bound == pytest.approx(raised - price, abs=rounding)
    assert found.upper_bound == pytest.approx(
        found.effective_accuracy - price * found.violation_rate, abs=rounding)
    assert found.query_price == pytest.approx(
        found.upper_bound - workers * found.worker_price[0], abs=rounding)
    assert found.query_price >= -price
    assert shares(found).min() >= -1e-9
    assert shares(found).sum() == pytest.approx(found.served_fraction, abs=1e-9)
    assert shares(found).sum(axis=1) @ table.accuracy == pytest.approx(
        found.effective_accuracy, abs=1e-7)
    if price == 0.0 and table.accuracy.min() > 0.01:
        assert found.served_fraction == pytest.approx(served, abs=1e-5)
        assert found.served_fraction <= found.capacity_qps / given["load_qps"] + 1e-9


def test_a_dearer_violation_is_not_paid_for_a_little_more_accuracy():
    """One model has just enough time for all, the other 6e-5 too little."""
    table = LatencyTable.measured(["fast", "slow"], [0.0, 1.0], [[1.0], [1.0 + 2.0**-14]])
    given: dict[str, Any] = {"slo_ms": 2.0, "workers": 1, "load_qps": 1000.0}
    assert fluid_bound(table, **given, violation_price=1e4).violation_rate > 6e-5
    for price in (1e5, 1e9, 1e100):
        assert fluid_bound(table, **given, violation_price=price).violation_rate == 0.0


@pytest.mark.parametrize("price", [0.5, 1e3, 1e6, 1e12, 1e300])
def test_with_time_for_all_no_price_is_too_high(price):
    found = fluid_bound(TABLE, slo_ms=50.0, workers=2, load_qps=400.0, violation_price=price)
    free = fluid_bound(TABLE, slo_ms=50.0, workers=2, load_qps=400.0)
    assert found.upper_bound == pytest.approx(free.upper_bound, abs=1e-11)
    assert found.worker_price == pytest.approx(free.worker_price)


@settings(max_examples=40, deadline=None)
@given(table=tables(), workers=st.integers(2, 30), demand=st.floats(0.1, 3.0),
       price=st.floats(0.0, 20.0))
def test_the_price_of_a_query_lies_between_the_differences(table, workers, demand, price):
    """What all queries of a second are worth is concave in the load."""
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    step = 0.01 * load_qps
    fewer, here, more = (
        fluid_bound(table, slo_ms=200.0, workers=workers, load_qps=load, violation_price=price)
        for load in (load_qps - step, load_qps, load_qps + step))
    lost = here.upper_bound * load_qps - fewer.upper_bound * (load_qps - step)
    earned = more.upper_bound * (load_qps + step) - here.upper_bound * load_qps
    rounding = 1e-7 * load_qps
    assert lost + rounding >= step * here.query_price >= earned - rounding


@settings(max_examples=40, deadline=None)
@given(table=tables(), workers=st.integers(1, 20), demand=st.floats(0.5, 2.0),
       price=st.floats(0.0, 5.0))
def test_a_limit_at_what_a_price_brings_about_costs_as_much(table, workers, demand, price):
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    given: dict[str, Any] = {"slo_ms": 200.0, "workers": workers, "load_qps": load_qps}
    at_price = fluid_bound(table, **given, violation_price=price)
    limited = fluid_bound(table, **given, max_violation=min(1.0, at_price.violation_rate + 1e-9))
    assert limited.upper_bound == pytest.approx(at_price.effective_accuracy, abs=1e-6)
    both = fluid_bound(table, **given, max_violation=1.0, violation_price=price)
    # The tolerance of HiGHS's prices, in units of what a column is worth.
    assert both.upper_bound == pytest.approx(at_price.upper_bound, abs=1e-7 * (1.0 + price))


@settings(max_examples=30, deadline=None)
@given(table=tables(), slo_ms=st.floats(25.0, 150.0), price=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
       gaps=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=25))
def test_no_clairvoyant_worker_beats_it(table, slo_ms, price, gaps):
    arrivals = np.cumsum(gaps).tolist()
    reached = clairvoyant(arrivals, table.accuracy.tolist(), table.latency_ms.tolist(),
                          slo_ms=slo_ms, price=price)
    assert reached <= realised_bound(table, slo_ms=slo_ms, workers=1, counts=[len(gaps)],
                                     duration_ms=arrivals[-1] + 1e-9,
                                     violation_price=price) + 1e-9


@settings(max_examples=30, deadline=None)
@given(table=tables(), workers=st.integers(1, 20), demand=st.floats(0.1, 3.0),
       price=st.floats(0.0, 5.0))
def test_gathering_windows_at_a_price_are_the_program_with_all_of_them(
    table, workers, demand, price
):
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    given: dict[str, Any] = {"slo_ms": 150.0, "workers": workers, "load_qps": load_qps}
    found = fluid_bound(table, **given, violation_price=price, gathering=True)
    whole = gathered(table.accuracy.tolist(), table.latency_ms.tolist(), **given, price=price)
    # Another program's optimum is within HiGHS's 1e-7 of its limits, each worth 1 + price.
    assert found.upper_bound == pytest.approx(whole, abs=3e-7 * (1.0 + price))


def test_a_gap_is_that_of_what_a_policy_maximises():
    assert certified_gap(0.7, 0.1, violation_price=2.0, upper_bound=0.8) == pytest.approx(0.375)
    assert certified_gap(0.1, 0.8, violation_price=1.0, upper_bound=0.0) is None


@pytest.mark.parametrize(("change", "words"), [
    ({"max_violation": 1.5}, r"^max_violation: not a share"),
    ({"violation_price": -0.5}, r"^violation_price: not a price: got -0.5; allowed: .* >= 0$"),
    ({"violation_price": math.nan}, r"^violation_price: not a price"),
    ({"violation_price": math.inf}, r"^violation_price: not a price"),
    ({"slo_ms": [SloClass(30.0, 0.5), SloClass(50.0, 0.5)], "gathering": True}, "need one SLO"),
    ({"workers": [1, 2]}, "not a number of workers for each type"),
])
def test_limits_that_do_not_fit_are_refused(change, words):
    with pytest.raises(InvalidValueError, match=words):
        fluid_bound(TABLE, **{"slo_ms": 50.0, "workers": 2, "load_qps": 100.0, **change})
