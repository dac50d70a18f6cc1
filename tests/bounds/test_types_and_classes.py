"""The fluid bound with worker types and SLO classes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ramsis.bounds import FluidBound, fluid_bound, realised_bound
from ramsis.bounds.columns import Columns
from ramsis.bounds.fluid import _Merged, _optimum, _Terms
from ramsis.cluster.cluster import SloClass
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.sim import ConstantLoad, Fleet, scheduler
from tests.reference.fluid import of_types_and_classes
from tests.runs import run_plan
from tests.synthesis import samples


def fixed(accuracy: list[float], latency_ms: list[list[float]]) -> ServiceTimes:
    names = tuple(f"m{i}" for i in range(len(accuracy)))
    return ServiceTimes(names, np.array(accuracy), np.array(latency_ms)[:, :, None], "p95")


SLOW = fixed([0.6, 0.9], [[4.0, 6.0, 8.0], [20.0, 30.0, 60.0]])
FAST = fixed([0.6, 0.9], [[2.0, 3.0, 4.0], [10.0, 15.0, 30.0]])


def bound(
    types: Sequence[tuple[ServiceTimes, int]], classes: Sequence[SloClass], load_qps: float
) -> FluidBound:
    return fluid_bound([one for one, _ in types], slo_ms=classes, workers=[k for _, k in types],
                       load_qps=load_qps)


@st.composite
def times(draw: st.DrawFn) -> ServiceTimes:
    models, batches = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    steps = st.lists(st.floats(0.0, 20.0), min_size=batches, max_size=batches)
    latency = np.cumsum(
        [[1.0 + row[0], *row[1:]] for row in (draw(steps) for _ in range(models))], axis=1)
    accuracy = draw(st.lists(st.floats(0.05, 1.0), min_size=models, max_size=models))
    return fixed(accuracy, latency.tolist())


@settings(max_examples=50, deadline=None)
@given(one=times(), workers=st.integers(2, 30), demand=st.floats(0.1, 4.0),
       part=st.integers(1, 9), slo_ms=st.floats(25.0, 90.0))
def test_equal_types_and_equal_classes_are_one(one, workers, demand, part, slo_ms):
    """Merged they are the bound of one; the program with both, unmerged, has the same value."""
    load_qps = demand * workers * 1000.0 / float(one.mean_ms[:, 0].min())
    single = fluid_bound(one, slo_ms=slo_ms, workers=workers, load_qps=load_qps,
                         max_batch=one.max_batch)
    some = max(1, workers * part // 10)
    types = [(one, some), (one, workers - some)]
    classes = (SloClass(slo_ms, part / 10), SloClass(slo_ms, 1 - part / 10))
    twice = bound(types, classes, load_qps)
    assert twice.effective_accuracy == pytest.approx(single.effective_accuracy, abs=1e-9)
    assert twice.type_share.sum() == pytest.approx(float(single.type_share.sum()), abs=1e-9)
    assert len(twice.type_share) == len(twice.batch_share) == len(twice.worker_price) == 2
    unmerged = _optimum(
        _Merged((one, one), np.array([some, workers - some], float), classes, load_qps / 1000.0),
        Columns.of([one, one], classes, one.max_batch), _Terms())
    assert unmerged.effective_accuracy == pytest.approx(single.effective_accuracy, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(types=st.lists(st.tuples(times(), st.integers(1, 20)), min_size=1, max_size=3),
       slos=st.lists(st.floats(25.0, 90.0), min_size=1, max_size=3, unique=True),
       demand=st.floats(0.1, 3.0))
def test_it_bounds_its_parts_and_is_bounded_by_the_loosest_and_by_the_sum(types, slos, demand):
    load_qps = demand * sum(1000.0 * k / float(one.mean_ms[:, 0].min()) for one, k in types)
    classes = [SloClass(slo, 1 / len(slos)) for slo in slos]
    whole = bound(types, classes, load_qps)
    loosest = bound(types, [SloClass(max(slos))], load_qps)
    tightest = bound(types, [SloClass(min(slos))], load_qps)
    assert tightest.effective_accuracy - 1e-9 <= whole.effective_accuracy
    assert whole.effective_accuracy <= loosest.effective_accuracy + 1e-9
    alone = [bound([one], classes, load_qps).effective_accuracy for one in types]
    assert max(alone) - 1e-9 <= whole.effective_accuracy <= sum(alone) + 1e-9
    assert whole.class_accuracy @ [one.share for one in whole.classes] == pytest.approx(
        whole.effective_accuracy, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(types=st.lists(st.tuples(times(), st.integers(1, 20)), min_size=1, max_size=3),
       slos=st.lists(st.floats(25.0, 90.0), min_size=2, max_size=3, unique=True),
       demand=st.floats(0.3, 3.0), price=st.sampled_from([0.0, 0.2, 1.0, 30.0]),
       limit=st.sampled_from([0.0, 0.05, 0.5, None]))
def test_at_a_price_and_within_a_limit_it_is_the_program_in_rates(
    types, slos, demand, price, limit
):
    load_qps = demand * sum(1000.0 * k / float(one.mean_ms[:, 0].min()) for one, k in types)
    classes = [SloClass(slo, 1 / len(slos)) for slo in slos]
    wanted = of_types_and_classes(
        [(one.accuracy.tolist(), one.mean_ms.tolist(), k) for one, k in types],
        [(one.slo_ms, one.share) for one in classes], load_qps=load_qps, price=price,
        most_late=1.0 if limit is None else limit)
    given = {"slo_ms": classes, "workers": [k for _, k in types], "load_qps": load_qps,
             "violation_price": price, "max_violation": limit}
    if wanted is None:
        with pytest.raises(InfeasibleError, match=r"^max_violation: too few workers"):
            fluid_bound([one for one, _ in types], **given)
        return
    found = fluid_bound([one for one, _ in types], **given)
    assert found.upper_bound == pytest.approx(wanted, abs=1e-6 * (1.0 + price))
    assert found.upper_bound == pytest.approx(
        found.effective_accuracy - price * found.violation_rate, abs=1e-6 * (1.0 + price))


def test_the_fast_type_serves_the_class_in_a_hurry():
    """Within 12 ms the slow type runs the small model only."""
    classes = [SloClass(12.0, 0.5), SloClass(50.0, 0.5)]
    found = bound([(SLOW, 2), (FAST, 1)], classes, 100.0)
    # 50/s in a hurry at 10 ms each on the fast worker; 50/s at 15 ms each on the slow two.
    assert found.effective_accuracy == pytest.approx(0.9)
    assert found.type_share[1, 0] == pytest.approx(0.5)


def test_two_types_fill_up_one_after_the_other():
    """In overload every worker serves by its fastest way: 3 queries in 8 ms, or in 4 ms."""
    found = bound([(SLOW, 2), (FAST, 1)], [SloClass(50.0)], 6000.0)
    assert found.effective_accuracy == pytest.approx(0.6 * (750.0 + 750.0) / 6000.0)
    assert found.worker_price == pytest.approx([0.6 * 375 / 6000, 0.6 * 750 / 6000])


def test_a_type_too_slow_for_every_class_takes_no_part():
    slow = fixed([0.9], [[200.0]])
    found = bound([(SLOW, 2), (slow, 50)], [SloClass(50.0, 0.5), SloClass(40.0, 0.5)], 400.0)
    alone = bound([(SLOW, 2)], [SloClass(50.0, 0.5), SloClass(40.0, 0.5)], 400.0)
    assert found.effective_accuracy == pytest.approx(alone.effective_accuracy, abs=1e-9)
    assert found.type_share[1].sum() == 0.0


@pytest.mark.parametrize("load_qps", [1e-9, 1e9, 1e25, 1e300])
def test_any_load_has_an_answer(load_qps):
    found = bound([(SLOW, 2), (FAST, 1)], [SloClass(50.0, 0.5), SloClass(20.0, 0.5)], load_qps)
    assert 0 <= found.effective_accuracy <= 0.9 + 1e-12
    assert found.effective_accuracy == pytest.approx(
        0.9 if load_qps < 1 else 900.0 / load_qps, rel=1e-6)


def test_contradictions_are_named():
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 1.5; allowed: at least 2 ms"):
        bound([(SLOW, 2), (FAST, 1)], [SloClass(1.5, 0.1), SloClass(50.0, 0.9)], 10.0)
    with pytest.raises(InvalidValueError, match=r"do not sum to 1: got 0\.8"):
        bound([(SLOW, 2)], [SloClass(20.0, 0.3), SloClass(50.0, 0.5)], 10.0)
    with pytest.raises(InvalidValueError, match="not a share"):
        SloClass(20.0, 1.5)
    with pytest.raises(InvalidValueError, match=r"^workers: not positive"):
        bound([(SLOW, 0)], [SloClass(20.0)], 10.0)
    with pytest.raises(InvalidValueError, match="no worker types"):
        bound([], [SloClass(20.0)], 10.0)


@settings(max_examples=25, deadline=None)
@given(profile=samples.linear_profiles(), workers=st.integers(1, 5), demand=st.floats(0.2, 2.0),
       tight_ms=st.floats(45.0, 90.0), share=st.floats(0.1, 0.9), seed=st.integers(0, 99))
def test_no_run_with_classes_beats_it(profile, workers, demand, tight_ms, share, seed):
    """Greedy by the deadline, on a queue in order of arrival: the bound of the realised counts."""
    classes = (SloClass(tight_ms, share), SloClass(100.0, 1.0 - share))
    fleet = replace(Fleet.of(profile, workers=workers, slo_ms=100.0, max_batch=9), classes=classes)
    run = run_plan(fleet, scheduler("greedy").prepare(fleet),
                   ConstantLoad(demand * fleet.capacity_qps, 2000.0), seed=seed)
    assume(run.requests > 0)
    counts = np.array([(run.slo_ms == one.slo_ms).sum() for one in classes])
    present = [SloClass(one.slo_ms, float(count / run.requests))
               for one, count in zip(classes, counts, strict=True) if count]
    limit = bound([(ServiceTimes.of(profile, "p95", 9), workers)], present, run.requests / 2.1)
    assert float(run.reward.mean()) <= limit.effective_accuracy + 1e-9


def test_a_realised_bound_has_the_load_until_the_longest_slo():
    classes = [SloClass(12.0, 0.5), SloClass(50.0, 0.5)]
    found = realised_bound([SLOW, FAST], slo_ms=classes, workers=[2, 1], duration_ms=950.0,
                           counts=[300, 900])
    each = [bound([(SLOW, 2), (FAST, 1)], classes, count).effective_accuracy
            for count in (300.0, 900.0)]
    assert found == pytest.approx(sum(each) / 2)
    assert realised_bound(SLOW, slo_ms=50.0, workers=2, duration_ms=950.0, counts=[3, 0]) is None


def test_gathering_windows_hold_on_several_types():
    """Alike types have the windows of one; on others they only tighten."""
    gathered = [fluid_bound(times, slo_ms=50.0, workers=workers, load_qps=300.0, gathering=True)
                for times, workers in ((SLOW, 3), ([SLOW, SLOW], [1, 2]), ([SLOW, FAST], [1, 1]))]
    assert gathered[0].effective_accuracy == pytest.approx(gathered[1].effective_accuracy)
    plain = bound([(SLOW, 1), (FAST, 1)], [SloClass(50.0)], 300.0)
    assert gathered[2].effective_accuracy <= plain.effective_accuracy + 1e-12
