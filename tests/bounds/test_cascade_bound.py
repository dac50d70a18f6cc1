"""The bound with cascades: its value by brute force, its price, and that nothing beats it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.bounds import CascadeBound, cascade_bound, fluid_bound
from ramsis.cluster import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import Confidences, LatencyTable
from ramsis.profiles.confidences import ModelConfidence
from ramsis.profiles.confidences import Pair as PairConfidence
from tests.reference import cascades as reference

NAMES = ("small", "medium", "large")
LATENCY = [[2.0, 2.5, 3.0, 3.5], [5.0, 6.0, 8.0, 9.0], [14.0, 16.0, 20.0, 22.0]]
ACCURACY = [0.7, 0.8, 0.9]
TABLE = LatencyTable.measured(NAMES, ACCURACY, LATENCY)
SHARE = [0.2, 0.3, 0.5]
TIMES = ServiceTimes.of_table(TABLE)
PAIRS = [reference.Pair(0, 1, SHARE, [0.3, 0.15, -0.01]),
         reference.Pair(0, 2, SHARE, [0.5, 0.3, 0.02]),
         reference.Pair(1, 2, SHARE, [0.4, 0.1, -0.02])]


def confidences(pairs: list[reference.Pair], names: tuple[str, ...] = NAMES) -> Confidences:
    """Confidences with the shares and increments of the pairs."""
    bins = max((len(pair.share) for pair in pairs), default=2)
    shares = {pair.first: pair.share for pair in pairs}
    models = tuple(ModelConfidence(
        name, tuple(range(bins - 1)), tuple(shares.get(m, [1.0 / bins] * bins)), (0.5,) * bins)
        for m, name in enumerate(names))
    return Confidences(100, 100, models, tuple(PairConfidence(
        names[pair.first], names[pair.second], tuple(0.5 + x for x in pair.increment),
        tuple(pair.increment), (0.0,) * bins) for pair in pairs))


def bound(load_qps: float, **changes: Any) -> CascadeBound:
    terms = {"slo_ms": 30.0, "workers": 2, **changes}
    return cascade_bound(TIMES, confidences(PAIRS), load_qps=load_qps, **terms)


@st.composite
def pairs_of(draw: st.DrawFn, models: int = 3, bins: int = 3) -> list[reference.Pair]:
    pairs = []
    for first in range(models):
        weights = np.array(draw(st.lists(st.integers(1, 9), min_size=bins, max_size=bins)))
        share = (weights / weights.sum()).tolist()
        for second in range(models):
            if first != second and draw(st.booleans()):
                pairs.append(reference.Pair(first, second, share, draw(st.lists(
                    st.floats(-0.3, 0.5), min_size=bins, max_size=bins))))
    return pairs


@settings(max_examples=30, deadline=None)
@given(pairs=pairs_of(), workers=st.integers(1, 20), demand=st.floats(0.02, 3.0),
       slo_ms=st.floats(3.0, 50.0), price=st.sampled_from([0.0, 0.4, 5.0]),
       together=st.booleans())
def test_it_is_the_best_mix_of_all_columns(pairs, workers, demand, slo_ms, price, together):
    load_qps = demand * workers * 1000.0 / LATENCY[0][0]
    found = cascade_bound(TIMES, confidences(pairs), slo_ms=slo_ms, workers=workers,
                          load_qps=load_qps, violation_price=price, max_batch=2,
                          second_by_confidence=together)
    best = reference.best_mix(ACCURACY, [row[:2] for row in LATENCY], pairs, slo_ms=slo_ms,
                              workers=workers, load_qps=load_qps, price=price, together=together)
    assert found.upper_bound == pytest.approx(best, abs=1e-7 * (1.0 + price))
    assert found.upper_bound == pytest.approx(
        found.effective_accuracy - price * found.violation_rate, abs=1e-9 * (1.0 + price))
    assert sum(part.share for part in found.mix) == pytest.approx(found.served_fraction)
    assert found.time_price * workers / load_qps * 1000.0 + found.query_price == pytest.approx(
        found.upper_bound, abs=1e-9 * (1.0 + price)) or found.query_price == -price


@settings(max_examples=25, deadline=None)
@given(workers=st.integers(1, 30), demand=st.floats(0.02, 3.0), slo_ms=st.floats(3.0, 50.0),
       price=st.floats(0.0, 3.0), pairs=pairs_of())
def test_without_gains_it_is_the_bound_for_one_model(workers, demand, slo_ms, price, pairs):
    terms: dict[str, Any] = {"slo_ms": slo_ms, "workers": workers, "violation_price": price,
                             "load_qps": demand * workers * 1000.0 / LATENCY[0][0]}
    alone = fluid_bound(TABLE, **terms)
    none = [pair._replace(increment=[-abs(x) for x in pair.increment]) for pair in pairs]
    for useless in ([], none):
        found = cascade_bound(TIMES, confidences(useless), **terms)
        assert found.upper_bound == pytest.approx(alone.upper_bound, abs=1e-9)
        assert found.worker_price == pytest.approx(alone.worker_price[0], abs=1e-9)
        assert found.second_share == 0.0
    assert cascade_bound(TIMES, confidences(pairs), **terms).upper_bound >= (
        alone.upper_bound - 1e-12)


@settings(max_examples=25, deadline=None)
@given(workers=st.integers(2, 30), demand=st.floats(0.05, 3.0), together=st.booleans())
def test_it_is_concave_in_the_workers_with_the_price_as_slope(workers, demand, together):
    load_qps = demand * workers * 1000.0 / LATENCY[0][0]
    fewer, here, more = (bound(load_qps, workers=count, second_by_confidence=together)
                         for count in (workers - 1, workers, workers + 1))
    assert more.upper_bound >= here.upper_bound >= fewer.upper_bound
    assert here.upper_bound - fewer.upper_bound >= here.worker_price - 1e-9
    assert more.upper_bound - here.upper_bound <= here.worker_price + 1e-9
    assert here.time_price == pytest.approx(here.worker_price * load_qps / 1000.0)


def test_the_second_model_may_be_chosen_before_or_by_confidence():
    """One second model suits the unsure, another the very unsure."""
    before, after = bound(700.0), bound(700.0, second_by_confidence=True)
    assert after.upper_bound > before.upper_bound + 0.004
    assert all(len({model for model, _, _ in part.second}) <= 1 for part in before.mix)
    assert max(len({model for model, _, _ in part.second}) for part in after.mix) == 2


def test_the_second_batch_has_to_fit_beside_the_first():
    """The medium model takes 5 ms, then the large one 14 ms for one request, 16 for two."""
    for slo_ms, batch in ((21.0, 2), (20.9, 1), (19.0, 1)):
        (part,) = bound(1.0, slo_ms=slo_ms).mix
        assert (part.model, part.batch) == ("medium", 1)
        assert part.second == (("large", batch, pytest.approx(0.5)),)
    (part,) = bound(1.0, slo_ms=18.9).mix
    assert (part.model, part.second) == ("large", ())


@pytest.mark.parametrize(("load_qps", "workers", "slo_ms"), [
    (500.0, 2, 100.0), (700.0, 3, 60.0)])
def test_no_simulated_cascade_beats_it(load_qps, workers, slo_ms):
    terms: dict[str, Any] = {"slo_ms": slo_ms, "workers": workers, "load_qps": load_qps}
    limit = cascade_bound(TIMES, confidences(PAIRS), **terms).upper_bound
    alone = fluid_bound(TABLE, **terms).upper_bound
    reached = [reference.simulated(reference.Rule(pair, unsure, least), ACCURACY, LATENCY,
                                   **terms, requests=8000, seed=1)
               for pair in PAIRS for unsure in (1, 2) for least in (2, 4)]
    assert max(reached) <= limit + 0.003  # the shares of the bins that were drawn
    assert max(reached) > alone + 0.005  # what no scheduler reaches that asks one model


@settings(max_examples=10, deadline=None)
@given(pairs=pairs_of(bins=2), workers=st.integers(1, 4), demand=st.floats(0.1, 2.0),
       slo_ms=st.floats(8.0, 40.0), price=st.sampled_from([0.0, 0.5]))
def test_with_gathering_it_is_the_program_with_all_windows(pairs, workers, demand, slo_ms, price):
    terms: dict[str, Any] = {"slo_ms": slo_ms, "workers": workers,
                             "load_qps": demand * workers * 1000.0 / LATENCY[0][0]}
    fluid, tight = (cascade_bound(TIMES, confidences(pairs), **terms, violation_price=price,
                                  max_batch=3, gathering=gathering).upper_bound
                    for gathering in (False, True))
    whole = reference.gathered_mix(ACCURACY, [row[:3] for row in LATENCY], pairs, **terms,
                                   price=price)
    assert tight <= fluid
    assert whole - 1e-6 <= tight <= whole + 2e-5


@settings(max_examples=10, deadline=None)
@given(workers=st.integers(1, 20), demand=st.floats(0.1, 3.0), price=st.floats(0.0, 3.0),
       pairs=pairs_of())
def test_with_gathering_and_without_gains_it_is_that_of_one_model(workers, demand, price, pairs):
    terms: dict[str, Any] = {"slo_ms": 25.0, "workers": workers, "violation_price": price,
                             "load_qps": demand * workers * 1000.0 / LATENCY[0][0],
                             "gathering": True}
    alone = fluid_bound(TABLE, **terms).upper_bound
    none = [pair._replace(increment=[-abs(x) for x in pair.increment]) for pair in pairs]
    assert cascade_bound(TIMES, confidences(none), **terms).upper_bound == pytest.approx(
        alone, abs=2e-5)
    assert cascade_bound(TIMES, confidences(pairs), **terms).upper_bound >= alone - 1e-6


def test_second_opinions_wait_for_each_other():
    """A large batch of unsure requests takes longer to fill than the SLO leaves."""
    latency = [[1.0] * 8, [18.0] * 8]
    times = ServiceTimes.of_table(LatencyTable.measured(("a", "b"), [0.7, 0.39], latency))
    pair = reference.Pair(0, 1, [0.1, 0.9], [0.5, -0.4])
    terms: dict[str, Any] = {"slo_ms": 25.0, "workers": 1, "load_qps": 2000.0}
    fluid, tight = (cascade_bound(times, confidences([pair], ("a", "b")), **terms,
                                  gathering=gathering) for gathering in (False, True))
    assert fluid.upper_bound == pytest.approx(0.75)
    assert tight.upper_bound == pytest.approx(0.737, abs=5e-4)
    reached = max(reference.simulated(reference.Rule(pair, 1, least), [0.7, 0.39], latency,
                                      **terms, requests=8000, seed=1) for least in (1, 2, 4))
    assert reached < tight.upper_bound
    for change in ({"second_by_confidence": True}, {"times": replace(
            times, quantiles_ms=np.repeat(times.quantiles_ms, 2, axis=2), levels=np.empty(0))}):
        with pytest.raises(InvalidValueError, match=r"^gathering: .*need fixed service times"):
            cascade_bound(**{"times": times, "confidences": confidences([pair], ("a", "b")),
                             **terms, "gathering": True, **change})


def test_drawn_times_count_by_chance_and_a_late_second_opinion_only_costs_time():
    """The first batch takes 10 or 30 ms, so that a second one of 15 is in time for half."""
    times = ServiceTimes(("a", "b"), np.array([0.6, 0.9]), np.array(
        [[[10.0, 30.0]], [[14.9, 15.1]]]), "distribution")
    pairs = [reference.Pair(0, 1, [0.5, 0.5], [0.4, 0.0])]
    found = cascade_bound(times, confidences(pairs, ("a", "b")), slo_ms=40.0, workers=1,
                          load_qps=1.0)
    fixed = cascade_bound(
        ServiceTimes.of_table(LatencyTable.measured(("a", "b"), [0.6, 0.9], [[10.0], [15.0]])),
        confidences(pairs, ("a", "b")), slo_ms=40.0, workers=1, load_qps=1.0)
    assert fixed.upper_bound == pytest.approx(0.9)
    in_time = float(times.cdf(40.0)[0, 0])
    exact = 0.6 * in_time + 0.5 * 0.4 * float(np.mean(
        [times.cdf(40.0 - first)[1, 0] for first in np.linspace(10.0, 30.0, 20001)]))
    assert found.upper_bound == pytest.approx(0.9)  # by the second model alone
    slow = replace(times, accuracy=np.array([0.6, 0.1]))
    found = cascade_bound(slow, confidences(pairs, ("a", "b")), slo_ms=40.0, workers=1,
                          load_qps=1.0)
    assert exact - 0.03 < found.upper_bound < exact + 0.03


def test_drawn_times_without_spread_are_fixed_ones():
    spread = ServiceTimes(NAMES, np.array(ACCURACY),
                          np.repeat(np.array(LATENCY)[:, :, None], 4, axis=2), "distribution")
    for load_qps in (100.0, 400.0, 900.0, 2000.0):
        found = cascade_bound(spread, confidences(PAIRS), slo_ms=32.0, workers=2,
                              load_qps=load_qps)
        low, high = (bound(load_qps, slo_ms=slo_ms).upper_bound for slo_ms in (32.0, 32.5))
        assert low - 1e-12 <= found.upper_bound <= high + 1e-12


@pytest.mark.parametrize("load_qps", [1e-300, 1e308])
def test_any_finite_load_has_a_finite_answer(load_qps):
    found = bound(load_qps)
    assert 0.0 <= found.upper_bound <= 1.0
    assert np.isfinite([found.time_price, found.worker_price, found.effective_accuracy]).all()


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"workers": 0}, InvalidValueError, "workers"),
    ({"load_qps": math.nan}, InvalidValueError, "load_qps"),
    ({"max_batch": 5}, InvalidValueError, r"^max_batch: .*1 to 4"),
    ({"violation_price": -1.0}, InvalidValueError, "^violation_price: not a price"),
    ({"slo_ms": 1.9}, InfeasibleError, r"^slo_ms: .*got 1.9; allowed: at least 2 ms"),
])
def test_what_is_out_of_range_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        bound(**{"load_qps": 100.0, **change})
