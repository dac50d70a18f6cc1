"""Rules of scaling do what their sources say, on the examples that these give."""

import math
from typing import Any

import numpy as np
import pytest

from ramsis.bounds import Targets
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.plugins import trusting
from ramsis.scaling import (
    RULES,
    DecisionTables,
    FleetTerms,
    Observation,
    comparison,
    made,
    play,
    rule_of,
    tunable,
    tune,
)
from ramsis.scaling.rules import Dynamo, Hpa, Keda, Knative, RayServe, Static, Wva
from tests.sim.samples import tiny_policy


def seen(time_s: float = 0.0, load_qps: float = 0.0, active: int = 1, **more: Any) -> Observation:
    """What a rule is shown, mostly nothing."""
    return Observation(time_s, load_qps, active, **{
        "starting": 0, "queued": 0, "in_service": 0, "utilisation": 0.0, **more})


def told(rule: Any, loads_qps: list[float], start: int, interval_s: float = 15.0) -> list[int]:
    """What a rule wants where every worker is active at once."""
    numbers, active = [], start
    for i, load_qps in enumerate(loads_qps):
        active = rule.wanted(seen(interval_s * (i + 1), load_qps, active))
        numbers.append(active)
    return numbers


class TestKnative:
    """By hand from the source: ceil(average / (0.7 × target)), and panic at twice the workers."""

    def test_the_stable_average_over_seven_tenths_of_the_target_is_wanted(self):
        assert told(Knative(50.0), [100.0] * 5, 3) == [3] * 5  # ceil(100 / 35)
        assert told(Knative(1.0, concurrency=10.0), [100.0], 2) == [1]  # none waits or runs
        rule = Knative(1.0, concurrency=10.0)
        assert rule.wanted(seen(2.0, active=1, queued=5, in_service=6)) == 2  # ceil(11 / 7)

    def test_at_most_half_of_the_ready_workers_go(self):
        assert told(Knative(50.0), [1.0] * 5, 16, 70.0) == [8, 4, 2, 1, 1]

    def test_a_peak_makes_it_panic_and_nothing_goes_until_the_window_has_passed(self):
        quiet, peak = [70.0] * 30, [350.0] * 3  # 2 workers, and 10
        wanted = told(Knative(50.0), [*quiet, *peak, *quiet, *quiet], 2, 2.0)
        assert wanted[:30] == [2] * 30
        # In 6 s: (70 + 70 + 350) / 3 = 163 wants 5, at least twice 2; then 257 and 350.
        assert wanted[30:33] == [5, 8, 10]
        # Its average of 6 s was twice the 5 ready ones last with the second of the peak's loads.
        ends = 30 + wanted[30:].index(2)
        assert 30 + 30 < ends < 30 + 3 + 31
        assert set(wanted[33:ends - 3]) == {10}

    def test_a_delay_holds_the_highest_number(self):
        # At most half go at a time: 10, 5, 2; each is held by the one before it in 100 s.
        rule = Knative(50.0, down_delay_s=100.0)
        assert told(rule, [70.0, 350.0, *[70.0] * 4], 2, 70.0) == [2, 10, 10, 5, 5, 2]


class TestHpa:
    """Kubernetes' documentation: desired = ceil(current × current value / desired value)."""

    def test_a_value_of_200_at_a_target_of_100_doubles_the_workers(self):
        assert Hpa(target=0.4).desired(seen(active=3, utilisation=0.8)) == 6

    def test_a_value_of_50_halves_them(self):
        assert Hpa(target=0.8).desired(seen(active=4, utilisation=0.4)) == 2

    @pytest.mark.parametrize(("utilisation", "desired"), [
        (0.55, 10), (0.45, 10), (0.5501, 12), (0.4499, 9)])
    def test_nothing_changes_within_a_tenth(self, utilisation, desired):
        assert Hpa(target=0.5).desired(seen(active=10, utilisation=utilisation)) == desired

    def test_requests_per_second_and_worker(self):
        rule = Hpa(target=0.8, rate_per_worker_qps=50.0)
        assert rule.desired(seen(load_qps=481.0, active=4)) == 13  # of 40 each

    def test_utilisation_may_be_asked_for_where_the_rate_is_known(self):
        rule = Hpa(target=0.4, rate_per_worker_qps=50.0, metric="utilisation")
        assert rule.desired(seen(load_qps=1e6, active=3, utilisation=0.8)) == 6

    def test_workers_that_start_count_as_idle_where_more_are_wanted(self):
        rule = Hpa(target=0.5)
        # 4 × 0.9 / 0.5 = 7.2 without them, and with 2 that start 6 × (4/6 × 1.8) = 7.2: the same.
        assert rule.desired(seen(active=4, starting=2, utilisation=0.9)) == 8
        # Of 8 in all 0.9 × 4 / 8 is 0.9 of the target: within the tolerance.
        assert rule.desired(seen(active=4, starting=4, utilisation=0.9)) == 8
        # With more of them the direction would turn: nothing changes.
        assert rule.desired(seen(active=4, starting=9, utilisation=0.9)) == 13

    def test_workers_that_start_do_not_count_where_fewer_are_wanted(self):
        assert Hpa(target=0.5).desired(seen(active=4, starting=2, utilisation=0.2)) == 2

    def test_the_example_of_the_proposal_that_made_behaviour_configurable(self):
        """kubernetes/enhancements, KEP-853: 600 s, once a minute."""
        rule = Hpa(target=1.0, rate_per_worker_qps=1.0, sync_s=60.0, scale_down_s=600.0,
                   tolerance=0.0)
        numbers = told(rule, [10, 9, 8, 9, 9, 8, 9, 8, 9, 8, 7], start=10, interval_s=60.0)
        assert numbers == [10] * 10 + [9]

    def test_within_15_seconds_they_double_or_grow_by_four(self):
        rule = Hpa(target=1.0, rate_per_worker_qps=1.0)
        assert told(rule, [100.0] * 5, start=1) == [5, 10, 20, 40, 80]

    def test_scale_up_policies_count_what_came_within_their_period(self):
        rule = Hpa(target=1.0, rate_per_worker_qps=1.0, up_workers=4, up_percent=0.0,
                   policy_s=60.0)
        assert told(rule, [100.0] * 6, start=1) == [5, 5, 5, 5, 9, 9]

    def test_scale_down_policies(self):
        rule = Hpa(target=1.0, rate_per_worker_qps=1.0, scale_down_s=0.0, down_percent=10.0,
                   policy_s=60.0)
        assert told(rule, [1.0] * 6, start=80) == [72, 72, 72, 72, 64, 64]

    def test_it_synchronises_every_15_seconds(self):
        rule = Hpa(target=1.0, rate_per_worker_qps=1.0)
        assert told(rule, [2.0, 3.0, 3.0, 3.0], start=1, interval_s=5.0) == [2, 2, 2, 3]


class TestKeda:
    """Average values of external metrics, the highest of the triggers."""

    def test_each_trigger_desires_its_value_by_its_threshold(self):
        rule = Keda(rate_per_worker_qps=50.0, target=0.8, queue_per_worker=5.0)
        assert rule.desired(seen(load_qps=401.0, active=4, queued=0)) == 11
        assert rule.desired(seen(load_qps=401.0, active=4, queued=61)) == 13

    def test_cached_values_are_as_old_as_the_polling(self):
        rule = Keda(rate_per_worker_qps=1.0, target=1.0, cached=True)
        assert told(rule, [2.0, 4.0, 4.0, 4.0], start=1) == [2, 2, 4, 4]
        assert told(Keda(rate_per_worker_qps=1.0, target=1.0), [2.0, 4.0], start=1) == [2, 4]

    def test_the_last_worker_goes_after_the_cooldown(self):
        rule = Keda(rate_per_worker_qps=1.0, scale_down_s=0.0)
        assert told(rule, [1.0, 1.0] + [0.0] * 23, start=2) == [2] * 2 + [1] * 19 + [0] * 4


class TestRayServe:
    """The number of ongoing requests by the target."""

    def test_two_workers_with_four_requests_each_become_four(self):
        assert RayServe().desired(seen(active=2, queued=5, in_service=3)) == 4

    @pytest.mark.parametrize(("factors", "ongoing", "desired"), [
        ({"upscaling_factor": 0.5}, 40, 15), ({"upscaling_factor": 2.0}, 40, 30),
        ({"downscaling_factor": 0.5}, 10, 8), ({"downscaling_factor": 0.01}, 10, 9)])
    def test_factors_multiply_the_difference(self, factors, ongoing, desired):
        assert RayServe(**factors).desired(seen(active=10, in_service=ongoing)) == desired

    def test_it_grows_after_30_seconds_without_a_break(self):
        rule = RayServe(look_back_s=0.0)
        ongoing = [8, 8, 2, 8, 8, 8, 8]
        numbers = [rule.wanted(seen(15.0 * i, active=1, queued=n)) for i, n in enumerate(ongoing)]
        assert numbers == [1, 1, 1, 1, 1, 4, 1]

    def test_it_shrinks_after_600(self):
        rule = RayServe(look_back_s=0.0)
        numbers = [rule.wanted(seen(15.0 * i, active=4, queued=2)) for i in range(42)]
        assert numbers == [4] * 40 + [1, 4]

    def test_it_looks_back_30_seconds(self):
        rule = RayServe()
        for i, ongoing in enumerate((400, 10, 30)):
            desired = rule.desired(seen(15.0 * i, active=5, queued=ongoing))
        assert desired == 10


class TestWva:
    """A worker is a queue of its own, and its mean time meets the target."""

    def test_with_much_room_it_is_the_mean_of_mm1(self):
        """1 / (μ − λ), from which a room for 11 hardly differs at a low load."""
        rule = Wva(batch_rate_qps=100.0, slo_ms=15.0)
        assert rule.throughput_qps == pytest.approx(100.0 - 1000.0 / 15.0, rel=1e-3)

    def test_it_divides_and_rounds_up(self):
        rule = Wva(batch_rate_qps=100.0, slo_ms=15.0, period_s=0.0, load_s=0.0)
        assert [rule.wanted(seen(load_qps=load)) for load in (0.0, 33.0, 34.0, 330.0)] == [
            1, 1, 2, 10]

    def test_batches_are_a_chain_of_births_and_deaths(self):
        rule = Wva(batch_rate_qps=400.0, slo_ms=50.0, max_batch=2, base_share=0.5)
        # A batch of 2 takes 5 ms, of which 2.5 are its base: one request takes 3.75 ms.
        rates = [1 / 0.00375, *[400.0] * 21]
        np.testing.assert_allclose(rule.rates_qps, rates)
        weight = np.cumprod([1.0, *(300.0 / rate for rate in rates)])
        weight /= weight.sum()
        mean_s, throughput = rule.mean_s(300.0)
        assert throughput == pytest.approx(300.0 * (1 - weight[-1]))
        assert mean_s == pytest.approx(weight @ np.arange(23) / throughput)

    def test_a_target_that_cannot_be_met_gives_as_many_as_for_one_at_a_time(self):
        assert Wva(batch_rate_qps=10.0, slo_ms=5.0).throughput_qps == 10.0

    def test_it_decides_once_a_minute(self):
        rule = Wva(batch_rate_qps=100.0, slo_ms=15.0)
        assert told(rule, [30.0, 90.0, 90.0, 90.0, 90.0], start=1) == [1, 1, 1, 1, 3]

    def test_its_load_is_that_of_a_minute(self):
        rule = Wva(batch_rate_qps=100.0, slo_ms=15.0)
        assert told(rule, [30.0, 90.0, 90.0, 30.0, 30.0], start=1) == [1, 1, 1, 1, 2]

    def test_what_is_near_to_the_workers_there_are_changes_nothing(self):
        for load, wanted in ((600.0, 20), (590.0, 20), (510.0, 16)):
            rule = Wva(batch_rate_qps=100.0, slo_ms=15.0)
            assert rule.wanted(seen(load_qps=load, active=19, starting=1)) == wanted


class TestDynamo:
    """ceil(forecast / rate)."""

    def test_the_constant_forecast_is_the_load_of_the_last_three_minutes(self):
        rule = Dynamo(batch_rate_qps=10.0)
        numbers = told(rule, [40.0] * 6 + [61.0] * 6 + [10.0] * 12, start=3)
        assert numbers == [3] * 11 + [6] * 12 + [1]  # 50.5 / 10, 10 / 10

    def test_the_moving_forecast_is_the_mean_of_some(self):
        rule = Dynamo(10.0, forecast="moving", window=2, adjustment_s=15.0)
        assert told(rule, [40.0, 61.0, 10.0], start=1) == [4, 6, 4]

    def test_one_worker_stays(self):
        assert told(Dynamo(10.0, adjustment_s=0.0), [0.0], start=3) == [1]


def test_a_static_fleet():
    assert told(Static(7), [1.0, 1e9], start=2) == [7, 7]


def test_rules_are_named_with_parameters():
    assert rule_of("static:workers=20") == ("static", {"workers": 20})
    assert rule_of("wva") == ("wva", {})
    assert rule_of("dynamo:forecast=moving,batch-rate-qps=5.5") == (
        "dynamo", {"forecast": "moving", "batch_rate_qps": 5.5})
    for text, message in (("hpb", "unknown rule"), ("hpa:targets=1", "targets"),
                          ("hpa:target=much", "target"), ("static", "missing")):
        with pytest.raises(InputFileError, match=message):
            rule_of(text)


def test_a_rule_of_ones_own_is_named_by_its_file(tmp_path):
    text = f"{tmp_path / 'mine.py'}:Mine"
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, plus: int = 1) -> None:\n"
        "        self.plus = 10 // plus\n"
        "    def wanted(self, seen):\n"
        "        return seen.active + self.plus\n"
        "class Other:\n"
        "    pass\n")
    with pytest.raises(InputFileError, match="not imported unless you name it"):
        rule_of(text)
    with trusting([text, text.replace("Mine", "Other")]):
        name, parameters = rule_of(f"{text}:plus=5")
        assert (name, parameters) == (text, {"plus": 5})
        assert made(name, parameters).wanted(seen(active=3)) == 5
        with pytest.raises(InputFileError, match=r"mine\.py, line 3"):
            made(name, {"plus": 0})
        with pytest.raises(InputFileError, match="method wanted"):
            rule_of(text.replace("Mine", "Other"))


def test_the_rate_is_filled_in_where_a_rule_takes_it():
    assert made("wva", {}, batch_rate_qps=90.0, slo_ms=20.0).throughput_qps < 90.0  # type: ignore[attr-defined]
    own = made("hpa", {"rate_per_worker_qps": 4.0}, rate_per_worker_qps=9.0)
    assert own.rate_per_worker_qps == 4.0  # type: ignore[attr-defined]
    assert made("static", {"workers": 3}, rate_per_worker_qps=90.0).workers == 3  # type: ignore[attr-defined]
    with pytest.raises(InputFileError, match="batch_rate_qps"):
        made("dynamo", {}, rate_per_worker_qps=90.0)


@pytest.mark.parametrize("name", [*RULES])
def test_every_rule_has_parameters_to_try(name):
    tried = tunable(name)
    assert 1 < len(tried) <= 24
    for parameters in tried:
        rule = made(name, parameters, rate_per_worker_qps=50.0, batch_rate_qps=60.0, slo_ms=100.0)
        assert rule.wanted(seen(15.0, 100.0, 2, utilisation=0.5)) >= 1


@pytest.mark.parametrize(("name", "parameters"), [
    ("static", {"workers": 0}), ("hpa", {"target": 0.0}), ("hpa", {"tolerance": -0.1}),
    ("hpa", {"scale_down_s": math.nan}), ("hpa", {"metric": "cpu"}),
    ("keda", {"queue_per_worker": -1.0}),
    ("knative", {"concurrency": 0.0}), ("knative", {"panic": 0.5}),
    ("knative", {"stable_s": -1.0}),
    ("ray-serve", {"target_ongoing_requests": 0.0}), ("wva", {"base_share": 1.0}),
    ("wva", {"max_batch": 0}), ("dynamo", {"forecast": "arima"}), ("dynamo", {"window": 0,
                                                                        "forecast": "moving"}),
    ("keda", {"rate_per_worker_qps": math.inf}),
])
def test_what_is_out_of_range_is_refused(name, parameters):
    with pytest.raises(InvalidValueError, match=next(iter(parameters))):
        made(name, parameters, rate_per_worker_qps=50.0, batch_rate_qps=60.0, slo_ms=100.0)


FLEET = {"slo_ms": 100.0, "startup_s": 5.0, "interval_s": 5.0, "least": 1, "most": 6, "start": 2}


@pytest.fixture(scope="module")
def tables():
    return DecisionTables.of({n: [tiny_policy(load * n, workers=n) for load in (50.0, 200.0)]
                              for n in (1, 2, 4)})


@pytest.fixture(scope="module")
def times():
    """A load that goes up and down."""
    rng = np.random.default_rng(3)
    load = np.repeat([120.0, 500.0, 200.0], 60)
    return np.sort(np.concatenate([1000.0 * (second + rng.random(rng.poisson(qps)))
                                   for second, qps in enumerate(load)]))


def test_the_cheapest_that_meets_the_target(tables, times):
    target, runs = Targets(max_violation=0.02), {}
    grid = [{"target": share, "scale_down_s": 10.0} for share in (0.3, 0.5, 0.7, 0.9, 3.0)]
    for parameters in grid:
        runs[parameters["target"]] = play(
            times, tables, made("hpa", parameters, rate_per_worker_qps=250.0),
            FleetTerms(**FLEET))
    good = {share: run.worker_s for share, run in runs.items() if run.violation_rate <= 0.02}
    assert 0 < len(good) < len(runs)
    found = tune(
        "hpa", times, tables, target, FleetTerms(**FLEET), defaults={"rate_per_worker_qps": 250.0},
        grid=grid)
    assert found["target"] == min(good, key=good.__getitem__)
    # If none does, the one with the fewest violations.
    none = tune(
        "hpa", times, tables, Targets(max_violation=0.0, min_accuracy=1.0), FleetTerms(**FLEET),
        defaults={"rate_per_worker_qps": 250.0}, grid=grid)
    fewest = min(run.violation_rate for run in runs.values())
    assert runs[none["target"]].violation_rate == fewest


@pytest.mark.parametrize(("name", "late"), [("hpa", 0.02), ("keda", 0.0), ("wva", 0.02)])
def test_tuning_ends_no_worse_than_the_defaults(tables, times, monkeypatch, name, late):
    """Whatever else is tried, and whether any of it meets the target."""
    known = {"rate_per_worker_qps": 250.0, "batch_rate_qps": 300.0, "slo_ms": FLEET["slo_ms"]}
    target = Targets(max_violation=late)

    def rank(parameters: dict[str, Any]) -> tuple[bool, float]:
        run = play(times, tables, made(name, parameters, **known), FleetTerms(**FLEET))
        met = run.violation_rate <= late
        return not met, run.worker_s if met else run.violation_rate

    monkeypatch.setattr(comparison, "tunable", lambda name: tunable(name)[:2])
    assert rank(tune(name, times, tables, target, FleetTerms(**FLEET), defaults=known)) <= rank({})


def test_the_smallest_static_fleet(tables, times):
    def violations(workers: int) -> float:
        terms = FleetTerms(**{**FLEET, "start": workers})
        return play(times, tables, Static(workers), terms).violation_rate

    workers = tune("static", times, tables, Targets(max_violation=0.01),
                   FleetTerms(**FLEET))["workers"]
    assert 1 < workers < 6
    assert violations(workers) <= 0.01 < violations(workers - 1)
