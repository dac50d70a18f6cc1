"""The fewest workers: the searches, agreement with a linear scan, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.arrivals import Renewal
from ramsis.bounds import smallest
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.sim import (
    ClosedLoop,
    ConstantLoad,
    Estimate,
    Policies,
    RateTrace,
    Recorded,
    SimulationResult,
    scheduler,
)
from ramsis.sim.workload import Burst
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.capacity import (
    Capacity,
    MeasuredRates,
    Targets,
    Trial,
    fewest_by_bound,
    fewest_workers,
    try_workers,
)
from ramsis.synthesis.schedulers import fleet_scheduler, planned_arrivals
from tests.profiles.samples import model
from tests.runs import simulate_profile
from tests.slow import slow_after

SEEDS = range(3)
WORKER = "round-robin:grid=fixed:10,max_queue=8"
FLEET = "central-queue:max_queue=8,grid=fixed:10"
LOAD = ConstantLoad(1500.0, 4000.0)
WANTED = Targets(0.002, min_accuracy=0.7)


def found(profile: ProfileSet, name: str, workload: Any = LOAD, targets: Targets = WANTED,
          **changes: Any) -> Capacity:
    return fewest_workers(profile, workload, targets, slo_ms=100.0, scheduler=name,
                          **{"seeds": SEEDS, **changes})


def simulated(profile: ProfileSet, name: str, workers: int, seed: int = 100) -> SimulationResult:
    """One number of workers in long runs, put together by hand."""
    terms: dict[str, Any] = {"slo_ms": 100.0, "workers": workers, "service": "p95"}
    spec = fleet_scheduler(name)
    ready: Any = spec.spec
    if spec.makes_policies:
        policy: Any = generate_policy(profile, LOAD.load_qps, spec.settings(**terms))
        ready = Policies((policy,), name)
    return simulate_profile(profile, ready, ConstantLoad(LOAD.load_qps, 40_000.0),
                            seeds=range(seed, seed + 4), **terms)


def single(service_ms: float) -> ProfileSet:
    """One model without batches."""
    return ProfileSet("single", (model("model", 0.9, {1: service_ms}),))


def meets(result: SimulationResult) -> bool:
    return WANTED.met(result.accuracy, result.violation_rate)


@given(st.integers(1, 300), st.integers(0, 500), st.integers(1, 500))
def test_doubling_finds_where_a_rising_predicate_begins_to_hold(lowest, more, span):
    first, highest = lowest + more, lowest + span
    asked: list[int] = []

    def met(k: int) -> bool:
        asked.append(k)
        return k >= first

    answer = smallest(met, lowest, highest)
    assert answer == (first if first <= highest else None)
    assert len(asked) <= 2 * (more + 1).bit_length() + 2
    assert all(lowest <= k <= highest for k in asked)


@given(st.integers(1, 99), st.lists(st.booleans(), min_size=1, max_size=200))
def test_one_by_one_finds_the_first_of_any_predicate_in_fleets_below_100(lowest, holds):
    highest = lowest + len(holds) - 1
    answer = smallest(lambda k: holds[k - lowest], lowest, highest, rising=False)
    assert answer == (lowest + holds.index(True) if holds[-1] else None)


@pytest.mark.slow
@pytest.mark.parametrize("name", [FLEET, WORKER, "jellyfish-plus", "greedy"])
def test_it_agrees_with_a_linear_scan_by_simulation(tiny, name):
    answer = found(tiny, name)
    scanned = next(k for k in range(1, 60) if meets(simulated(tiny, name, k)))
    assert answer.clear
    assert answer.workers == scanned
    again = simulated(tiny, name, answer.workers)
    error = (answer.answer.half_width("accuracy") or 0.0) + 0.002
    assert again.accuracy == pytest.approx(answer.answer.accuracy, abs=error)


def test_the_row_says_what_was_promised_simulated_and_tried(tiny):
    told: list[Trial] = []
    answer = found(tiny, FLEET, on_trial=told.append)
    row = answer.row()
    policy = generate_policy(tiny, 1500.0, SynthesisSettings(
        dispatch="central-queue", slo_ms=100.0, workers=answer.workers, service="p95",
        max_queue=8, grid="fixed:10"))
    assert row["expected_accuracy"] == policy.expectations.accuracy == row["accuracy"]
    assert row["effective_accuracy"] == policy.expectations.effective_accuracy
    assert row["violation_rate_half_width"] == policy.replay.violation_half_width
    assert row["accuracy"] * (1 - row["violation_rate"]) == pytest.approx(
        row["effective_accuracy"])
    assert row["gap"] == row["workers"] - row["workers_bound"] >= 0
    assert sorted(one.workers for one in told) == row["tried"] == [
        one.workers for one in answer.trials]
    assert row["workers"] - 1 in row["tried"] or row["gap"] == 0


@pytest.mark.slow
def test_a_trace_needs_workers_for_its_peaks(tiny):
    trace = RateTrace([0.0, 4000.0, 6000.0], [300.0, 1800.0, 300.0], 10_000.0)
    targets = Targets(0.002, min_effective_accuracy=0.7)
    name = f"{FLEET},levels=5"
    answer = found(tiny, name, trace, targets)
    mean = found(tiny, FLEET, ConstantLoad(trace.load_qps, 4000.0), targets)
    assert answer.workers_bound > mean.workers_bound
    assert answer.workers > mean.workers
    row = answer.row()
    assert row["expected_accuracy"] is None
    assert row["violation_rate"] <= 0.002


def test_recorded_arrivals_can_be_asked_for(tiny):
    times = [i * 2.0 + (i % 7) for i in range(1500)]
    recorded = Recorded(sorted(times))
    name = f"{WORKER},levels=3"
    assert found(tiny, name, recorded, seeds=(0,)).clear is None  # one seed has no interval
    answer = found(tiny, name, recorded)
    assert answer.answer.met
    assert answer.clear  # nothing differs between seeds, so that two runs tell it
    assert answer.row()["seeds"] == 2
    assert answer.answer.half_width("violation_rate") == 0.0


def test_policies_are_made_for_the_arrivals_of_a_constant_load(tiny):
    bursts = "mmpp:ratio=4,burst-ms=200,share=0.2"
    cluster = Cluster.of(tiny, workers=3, slo_ms=100.0)
    trial = try_workers(cluster, ConstantLoad(300.0, 4000.0, bursts), WANTED, scheduler=FLEET)
    policy = generate_policy(tiny, 300.0, SynthesisSettings(
        dispatch="central-queue", slo_ms=100.0, workers=3, service="p95", max_queue=8,
        grid="fixed:10", arrivals=bursts))
    assert trial.promise["expected_effective_accuracy"] == policy.expectations.effective_accuracy
    other = try_workers(cluster, ConstantLoad(300.0, 4000.0, bursts), WANTED,
                        scheduler=f"{FLEET},arrivals=poisson")
    assert other.promise is None  # that of Poisson arrivals does not hold here


@pytest.mark.parametrize(("arrivals", "one_slo", "two_slos"), [
    ("poisson", "poisson", "poisson"),
    ("renewal:3", "renewal:3", "poisson"),  # a class has a share of it, which is no such process
    ("negative-binomial:2", "negative-binomial:2", "negative-binomial:2"),
    ("mmpp:ratio=4,burst-ms=1000,share=0.2",) * 3,
    ("mmpp:ratio=4,burst-ms=900000,share=0.2", "poisson", "poisson"),  # bursts too seldom to count
    (lambda load_qps: Renewal(load_qps, 2.0), "poisson", "poisson"),
], ids=["poisson", "not split", "split", "bursts", "rare bursts", "own"])
def test_policies_are_made_for_processes_under_which_they_can_be_promised(
    arrivals, one_slo, two_slos
):
    load = ConstantLoad(300.0, 4000.0, arrivals)
    assert planned_arrivals(load, 100.0, divided=False) == one_slo
    assert planned_arrivals(Burst(load, 5), 100.0, divided=True) == two_slos
    assert planned_arrivals(RateTrace([0.0], [300.0], 4000.0), 100.0, divided=True) == "poisson"


def test_clear_means_that_the_interval_is_on_the_same_side(tiny):
    rates = MeasuredRates(Estimate(0.01, 0.002), Estimate(0.792, 0.003), Estimate(0.8, 0.001),
                          1000, 1)
    assert Trial(20, None, rates, Targets(0.013, 0.79)).clear
    edge = Trial(20, None, rates, Targets(0.011, 0.79))
    assert edge.met
    assert edge.clear is False
    assert Trial(20, None, rates, Targets(0.007)).clear
    assert Trial(20, None, rates, Targets(0.009)).clear is False
    assert Trial(20, None, rates, Targets(0.1, 0.9)).clear
    assert Trial(20, None, rates, Targets(0.1, None, 0.79)).clear is False


@pytest.mark.parametrize("name", slow_after(1, ["greedy:late=drop", "central-queue"]))
def test_slow_services_are_simulated_for_as_long_as_their_events_need(name):
    """Of M/D/K with requests dropped once late, 1.6 % and 0.18 % are with 6 and 7 workers.

    A policy with headroom may give up .003 to longer services: it drops a little sooner.
    """
    answer = fewest_workers(single(1000.0), ConstantLoad(5.0, 30_000.0),
                            Targets(0.01), slo_ms=2000.0, scheduler=name)
    assert answer.workers == 7
    assert answer.clear
    rates = {one.workers: one for one in answer.trials}
    for workers, exact in ((6, 0.0160), (7, 0.0018)):
        error = rates[workers].half_width("violation_rate")
        assert error is not None
        given_up = 0.003 if name == "central-queue" else 0.0
        difference = rates[workers].violation_rate - exact
        assert -max(error, 0.0004) < difference < max(error, 0.0004) + given_up
        assert error < abs(exact - 0.01)


def test_intervals_of_the_steady_state_cover_the_rate_of_a_loss_system():
    """Requests that find both workers busy are dropped: Erlang's formula has their share."""
    offered = 0.4
    exact = offered**2 / 2 / (1 + offered + offered**2 / 2)
    cluster = Cluster.of(single(100.0), workers=2, slo_ms=100.5)
    covered = 0
    for seed in range(0, 60, 3):
        trial = try_workers(cluster, ConstantLoad(1000.0 * offered / 100.0, 60_000.0),
                            Targets(exact + 0.03), scheduler="greedy:late=drop",
                            seeds=range(seed, seed + 3))
        half = trial.half_width("violation_rate")
        assert half is not None
        covered += abs(trial.violation_rate - exact) <= half
    assert covered >= 17


def test_no_violation_is_no_proof_that_there_is_none():
    """Where nothing was late, the interval reaches a few requests further."""
    windows = np.tile([500.0, 500.0, 500.0, 450.0], (20, 1))
    rates = MeasuredRates.of_windows(windows, 2.0, 4)
    assert rates.violation_rate.mean == 0.0
    assert 3.0 * 2.0 / 10_000 < rates.violation_rate.half_width < 5.0 * 2.0 / 10_000
    assert rates.clear(Targets(0.001))
    assert rates.clear(Targets(0.0005)) is False


@pytest.mark.parametrize("late", [0.0, 40.0])
def test_rates_are_shares_of_the_requests_that_came(late):
    """By chance 2 % more came than is expected."""
    came = np.array([1000.0, 1040.0] * 10)
    windows = np.column_stack([np.full(20, 1000.0), came, came - late, 0.9 * (came - late)])
    rates = MeasuredRates.of_windows(windows, 1.0, 4)
    assert rates.accuracy.mean == pytest.approx(0.9)
    assert rates.effective_accuracy.mean == pytest.approx(0.9 * (1.0 - rates.violation_rate.mean))
    assert rates.violation_rate.mean == pytest.approx(late / 1000.0, rel=0.03)


def test_clumps_of_late_requests_widen_the_interval():
    rng = np.random.default_rng(5)
    widths = []
    for clump in (1, 25):
        late = clump * rng.poisson(100 / clump, 200)
        windows = np.column_stack([np.full(200, 1e4), np.full(200, 1e4), 1e4 - late, 1e4 - late])
        widths.append(MeasuredRates.of_windows(windows, 1.0, 1).violation_rate.half_width)
    assert widths[0] == pytest.approx(1.97 * (0.01 / 2e6) ** 0.5, rel=0.2)
    assert widths[1] == pytest.approx(5.0 * widths[0], rel=0.3)


def test_the_load_that_came_by_chance_is_accounted_for():
    """Where twice as many requests over the mean are late, windows tell the rate at the mean."""
    rng = np.random.default_rng(6)
    came = rng.poisson(1e4, 40).astype(float)
    late = 100.0 + 2.0 * (came - 1e4) * 0.1
    windows = np.column_stack([np.full(40, 1e4), came, came - late, came - late])
    rate = MeasuredRates.of_windows(windows, 1.0, 1).violation_rate
    assert rate.mean == pytest.approx(0.01, abs=1e-6)
    assert rate.half_width < 1e-5


def test_a_scheme_that_never_gets_there_is_refused_with_what_it_reaches(tiny):
    """Jellyfish+ keeps to half the SLO, which the large model passes."""
    assert fewest_by_bound(tiny, LOAD, Targets(0.01, 0.9), slo_ms=30.0) > 0
    with pytest.raises(InfeasibleError) as refused:
        fewest_workers(tiny, LOAD, Targets(0.01, 0.9), slo_ms=30.0, scheduler="jellyfish-plus",
                       seeds=(0,))
    message = str(refused.value)
    assert message.startswith("min_accuracy: jellyfish-plus at 1500 QPS does not reach")
    assert "at most 0.75" in message


def test_more_workers_than_are_searched_for_are_refused(tiny):
    with pytest.raises(InfeasibleError, match="workers: more workers than are searched for"):
        found(tiny, FLEET, ConstantLoad(1e8, 10.0))


def test_larger_batches_than_usual_lower_the_bound(tiny):
    """Batches go on at 2 ms a query beyond the measured ones: 66 in 134 ms, 33 in 68 ms."""
    usual = fewest_by_bound(tiny, LOAD, Targets(0.0), slo_ms=500.0)
    wide = found(tiny, "round-robin:grid=fixed:10,max_queue=65", targets=Targets(0.0), seeds=(0,))
    assert usual == pytest.approx(1.5 * 68 / 33)
    assert fewest_by_bound(tiny, LOAD, Targets(0.0), slo_ms=500.0,
                           max_batch=66) == pytest.approx(1.5 * 134 / 66)
    assert wide.bound_workers <= fewest_by_bound(tiny, LOAD, Targets(0.0), slo_ms=100.0)


def test_a_closed_loop_has_no_load_to_plan_for(tiny):
    with pytest.raises(InvalidValueError, match=r"workload: .*ClosedLoop.*load_qps"):
        found(tiny, FLEET, ClosedLoop(3, 1.0, 100.0))


@pytest.mark.parametrize(("text", "word"), [
    ("central-queue:objective=per-decision", "per-query"),
    ("central-queue:violation_price=dear", "a number from 0"), ("round-robin:levels=1", ">= 2"),
    ("best", "jellyfish"),
])
def test_unknown_schemes_and_settings_are_refused(text, word):
    with pytest.raises(InvalidValueError, match=word):
        fleet_scheduler(text)


def test_schemes_name_policies_with_their_settings():
    made = fleet_scheduler("central-queue:violation_price=0.5,levels=7,max_queue=4")
    assert made.makes_policies
    assert (made.name, made.levels) == ("central-queue", 7)
    assert made.settings(slo_ms=1.0, workers=2, service="distribution") == SynthesisSettings(
        dispatch="central-queue", slo_ms=1.0, workers=2, service="distribution",
        violation_price=0.5, max_queue=4)
    worker = fleet_scheduler("round-robin:arrivals=mmpp:ratio=3,burst-ms=5,share=0.2,grid=model")
    assert worker.makes_policies
    assert worker.given == {"arrivals": "mmpp:ratio=3,burst-ms=5,share=0.2", "grid": "model"}
    assert fleet_scheduler("greedy").spec == scheduler("greedy").of_fleets
