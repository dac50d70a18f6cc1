"""The fewest workers by the fluid bound: analytic cases, its inverse, nothing beats it."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ramsis.bounds import (
    Targets,
    fewest_workers_bound,
    fewest_workers_bound_over_time,
    fluid_bound,
)
from ramsis.cluster import SloClass
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.sim import FleetScheduler, Recorded, scheduler
from tests.central.samples import drawn_profile
from tests.runs import simulate_profile
from tests.synthesis.samples import tiny_profile

TIMES = ServiceTimes(("small", "large"), np.array([0.6, 0.9]),
                 np.array([[4.0, 6.0, 8.0], [20.0, 30.0, 60.0]])[:, :, None], "p95")
SMALL_MS, LARGE_MS = 8.0 / 3.0, 15.0  # worker time per query, at best


def fewest(load_qps: float = 1000.0, slo_ms: float = 50.0, **targets: Any) -> float:
    return fewest_workers_bound(TIMES, Targets(**targets), slo_ms=slo_ms, load_qps=load_qps)


def over_time(counts: list[float], window_ms: float = 1000.0, **targets: Any) -> float:
    return fewest_workers_bound_over_time(TIMES, Targets(**targets), slo_ms=50.0, counts=counts,
                                          window_ms=window_ms)


def test_without_accuracy_the_fastest_batches_serve_who_must_be():
    assert fewest(max_violation=0.0) == pytest.approx(SMALL_MS)
    assert fewest(max_violation=0.25) == pytest.approx(0.75 * SMALL_MS)


@pytest.mark.parametrize("name", ["min_accuracy", "min_effective_accuracy"])
def test_an_accuracy_between_two_models_mixes_them(name):
    wanted = fewest(max_violation=0.0, **{name: 0.7})
    assert wanted == pytest.approx((2 * SMALL_MS + LARGE_MS) / 3)


def test_accuracy_is_of_those_in_time_and_effective_accuracy_of_all():
    assert fewest(max_violation=0.5, min_accuracy=0.9) == pytest.approx(0.5 * LARGE_MS)
    assert fewest(max_violation=0.5, min_effective_accuracy=0.9) == pytest.approx(LARGE_MS)


def test_batches_too_long_for_the_slo_do_not_count():
    assert fewest(max_violation=0.0, slo_ms=7.0) == pytest.approx(3.0)  # batches of two


def of_classes(short: float, **targets: Any) -> float:
    """With a share of the queries due within 7 ms, in which only two of the small model are."""
    classes = (SloClass(7.0, short), SloClass(50.0, 1.0 - short))
    return fewest_workers_bound(TIMES, Targets(**targets), slo_ms=classes, load_qps=1000.0)


def test_queries_of_each_class_are_answered_by_its_own_deadline():
    assert of_classes(0.25, max_violation=0.0) == pytest.approx(0.25 * 3.0 + 0.75 * SMALL_MS)
    # The large model answers those with time, up to the accuracy asked for.
    wanted = of_classes(0.25, max_violation=0.0, min_accuracy=0.75)
    assert wanted == pytest.approx(0.25 * 3.0 + 0.25 * SMALL_MS + 0.5 * LARGE_MS)
    # Those without are left out first, as they take longest.
    assert of_classes(0.25, max_violation=0.25) == pytest.approx(0.75 * SMALL_MS)
    with pytest.raises(InfeasibleError, match=r"min_accuracy: .* at most 0\.825"):
        of_classes(0.25, max_violation=0.0, min_accuracy=0.85)


def test_classes_of_one_slo_are_one_over_time_too():
    terms: dict[str, Any] = {"counts": [300.0, 500.0], "window_ms": 1000.0}
    targets = Targets(0.01, min_accuracy=0.7)
    alike = fewest_workers_bound_over_time(
        TIMES, targets, slo_ms=(SloClass(50.0, 0.3), SloClass(50.0, 0.7)), **terms)
    assert alike == pytest.approx(
        fewest_workers_bound_over_time(TIMES, targets, slo_ms=50.0, **terms))
    tighter = fewest_workers_bound_over_time(
        TIMES, targets, slo_ms=(SloClass(7.0, 0.3), SloClass(50.0, 0.7)), **terms)
    assert tighter > alike


@settings(max_examples=30, deadline=None)
@given(load=st.floats(1.0, 1e5), effective=st.floats(0.05, 0.8), short=st.floats(0.05, 0.95))
def test_of_several_classes_too_the_fluid_bound_is_the_accuracy_asked_for(load, effective, short):
    assume(effective < 0.6 * short + 0.9 * (1.0 - short) - 0.001)
    classes = (SloClass(7.0, short), SloClass(50.0, 1.0 - short))
    workers = fewest_workers_bound(TIMES, Targets(0.999999, min_effective_accuracy=effective),
                                   slo_ms=classes, load_qps=load)
    found = fluid_bound(TIMES, slo_ms=classes, workers=1, load_qps=load / workers)
    assert found.effective_accuracy == pytest.approx(effective, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(load=st.floats(1.0, 1e5), effective=st.floats(0.05, 0.89))
def test_on_as_many_workers_the_fluid_bound_is_the_accuracy_asked_for(load, effective):
    workers = fewest(load, max_violation=0.999999, min_effective_accuracy=effective)
    found = fluid_bound(TIMES, slo_ms=50.0, workers=1, load_qps=load / workers, max_batch=3)
    assert found.effective_accuracy == pytest.approx(effective, abs=1e-6)


def test_windows_share_the_time_until_the_last_deadline():
    assert over_time([500.0, 0.0], max_violation=0.0) == pytest.approx(500 * SMALL_MS / 1050)
    assert over_time([500.0, 500.0], max_violation=0.0) == pytest.approx(500 * SMALL_MS / 1025)


def test_a_peak_that_may_be_missed_needs_no_workers():
    calm, peak = [100.0] * 8, [100.0] * 7 + [300.0]
    assert over_time(peak, max_violation=0.0) > 2.5 * over_time(calm, max_violation=0.0)
    missed = over_time(peak, max_violation=200 / 1000)
    assert missed == pytest.approx(over_time(calm, max_violation=0.0), rel=0.05)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), workers=st.integers(1, 4), load=st.floats(50.0, 1500.0),
       name=st.sampled_from(["greedy", "jellyfish-plus"]), drawn=st.booleans())
def test_what_a_scheme_does_is_never_below_it(seed, workers, load, name, drawn):
    """With fixed service times on any arrivals; where they are drawn, on average."""
    profile = drawn_profile() if drawn else tiny_profile()
    service = "distribution" if drawn else "p95"
    rng = np.random.default_rng(seed)
    burst = rng.uniform(0.0, 4000.0, rng.poisson(4.0 * load))
    trace = Recorded(np.sort(np.append(burst, rng.uniform(0.0, 1000.0, 50))), 4500.0)
    spec: FleetScheduler = scheduler(name)
    done = simulate_profile(profile, spec, trace, workers=workers, slo_ms=100.0, service=service,
                    seeds=range(3 if drawn else 1), monitor=True)
    assume(done.violation_rate < 0.999)
    accuracy = done.effective_accuracy / (1 - done.violation_rate)
    ease = 0.02 if drawn else 1e-9
    reached = Targets(min(done.violation_rate + ease, 0.9999), accuracy - ease)
    times = ServiceTimes.of(profile, service, 33)
    edges = np.linspace(0.0, 4500.0, 5)
    counts = np.diff(np.searchsorted(trace.times_ms, edges))
    assert fewest_workers_bound_over_time(times, reached, slo_ms=100.0, counts=counts,
                                          window_ms=1125.0) <= workers + 1e-6


@pytest.mark.parametrize(("targets", "where"), [
    ({"min_accuracy": 0.95}, "min_accuracy"),
    ({"min_effective_accuracy": 0.95}, "min_effective_accuracy"),
    ({"min_accuracy": 0.9, "min_effective_accuracy": 0.91}, "min_effective_accuracy"),
])
def test_a_target_that_nothing_reaches_names_the_nearest(targets, where):
    with pytest.raises(InfeasibleError, match=rf"^{where}: no number of workers") as refused:
        fewest(**targets)
    nearest = float(re.findall(r"at most ([\d.]+)$", str(refused.value))[0])
    assert fewest(**{**targets, where: nearest}) > 0
    with pytest.raises(InfeasibleError):
        fewest(**{**targets, where: nearest + 1e-4})


def test_drawn_times_that_are_often_too_long_limit_violations():
    times = ServiceTimes(("m",), np.array([0.8]), np.array([[[10.0, 20.0, 30.0, 40.0]]]), "x")
    with pytest.raises(InfeasibleError, match=r"max_violation: .* at least 0") as refused:
        fewest_workers_bound(times, Targets(0.01), slo_ms=30.0, load_qps=10.0)
    nearest = float(str(refused.value).split()[-1])
    found = fewest_workers_bound(times, Targets(nearest), slo_ms=30.0, load_qps=10.0)
    assert found == pytest.approx(10.0 / 1000 * 25.0, rel=1e-4)


def test_an_slo_below_every_latency_is_refused():
    with pytest.raises(InfeasibleError, match=r"slo_ms: SLO is below every latency.* 4 ms"):
        fewest(slo_ms=3.0)


@pytest.mark.parametrize(("change", "where"), [
    ({"max_violation": 1.0}, "max_violation"), ({"max_violation": -0.1}, "max_violation"),
    ({"max_violation": float("nan")}, "max_violation"),
    ({"min_accuracy": 0.0}, "min_accuracy"), ({"min_accuracy": 74.0}, "min_accuracy"),
    ({"min_effective_accuracy": 1.5}, "min_effective_accuracy"),
    ({"load_qps": 0.0}, "load_qps"), ({"load_qps": float("inf")}, "load_qps"),
    ({"slo_ms": -1.0}, "slo_ms"),
])
def test_numbers_out_of_range_are_refused(change, where):
    with pytest.raises(InvalidValueError, match=f"^{where}: "):
        fewest(**change)


@pytest.mark.parametrize("counts", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")]])
def test_windows_without_queries_are_refused(counts):
    with pytest.raises(InvalidValueError, match="counts"):
        over_time(counts)
