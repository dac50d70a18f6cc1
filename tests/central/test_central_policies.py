"""What policies of a central queue do and promise, against simulation, bounds and each other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.bounds import fluid_bound
from ramsis.central import _kernels
from ramsis.central.chain import Chain
from ramsis.central.solve import DROP, WAIT, solve_central
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InputFileError, NotConvergedError
from ramsis.policy import Policy
from ramsis.profiles import load
from ramsis.sim import ConstantLoad, Fleet, Policies
from ramsis.synthesis import SynthesisSettings, analyse_policy, generate_policy, problem_of
from ramsis.synthesis.recipes.recipe import DELAY_PRICE
from ramsis.synthesis.simulated import simulated as settled
from tests.central import samples
from tests.central.evaluation import evaluated
from tests.reference.fleet_queue import replay
from tests.runs import run_plan, simulate_profile
from tests.slow import slow_after
from tests.synthesis.samples import linear_profile, linear_profiles, tiny_profile

LOADS = (200.0, 2000.0, 6000.0, 9500.0)  # the capacity of 20 workers is 8889 queries/s


def simulated(policy: Policy, queries: float = 60_000) -> tuple[float, float]:
    """Effective accuracy and violation rate over four seeds."""
    workload = ConstantLoad(load_qps=policy.load_qps, duration_ms=1000 * queries / policy.load_qps)
    found = simulate_profile(tiny_profile(), Policies((policy,)), workload, workers=policy.workers,
                     slo_ms=policy.slo_ms, seeds=range(4))
    return (float(np.mean([one.effective_accuracy for one in found.metrics])),
            float(np.mean([one.violation_rate for one in found.metrics])))


@pytest.mark.parametrize(("workers", "load_qps"), slow_after(2, [
    (4, 2000.0), (4, 9500.0), (1, 200.0), (1, 6000.0), (20, 6000.0), (20, 9500.0)]))
def test_the_promise_is_close_to_simulation(load_qps, workers):
    policy = samples.policy(load_qps * workers / 20, workers=workers)
    effective, violations = simulated(policy)
    assert policy.expectations.effective_accuracy == pytest.approx(effective, abs=0.015)
    assert policy.expectations.violation_rate == pytest.approx(violations, abs=0.03)


@pytest.mark.parametrize("load_qps", [20.0, 300.0])
def test_the_promise_of_a_single_worker_is_closer_still(load_qps):
    policy = samples.policy(load_qps, workers=1)
    effective, violations = simulated(policy)
    assert policy.expectations.effective_accuracy == pytest.approx(effective, abs=0.002)
    assert policy.expectations.violation_rate == pytest.approx(violations, abs=0.002)


def test_states_that_the_model_never_comes_to_are_settled_too():
    """The fleet comes to them: with actions left as they were it stayed among them."""
    profile = load("image-cpu")
    chosen = SynthesisSettings(dispatch="central-queue", slo_ms=650.0, workers=60, headroom=0.0)
    policy = generate_policy(profile, 7900.0, chosen)
    found = simulate_profile(profile, Policies((policy,)),
                     ConstantLoad(load_qps=7900.0, duration_ms=20_000.0), workers=60,
                     slo_ms=650.0, service="distribution", seeds=range(2))
    effective = np.mean([one.effective_accuracy for one in found.metrics])
    assert policy.expectations.effective_accuracy == pytest.approx(effective, abs=0.005)
    assert policy.certificate.bellman_residual <= 1e-6


def test_the_analysis_of_a_policy_is_that_of_its_own_table_only():
    policy = samples.policy(2000.0)
    stated = policy.expectations
    found = analyse_policy(policy)
    modelled = found.expectations(capacity_qps=stated.capacity_qps, upper_bound=stated.upper_bound)
    assert modelled.effective_accuracy == pytest.approx(stated.effective_accuracy, abs=0.02)
    for _, probabilities in found.distributions().values():
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-6)
    codes = policy.codes.copy()
    codes[0, 0] = DROP
    with pytest.raises(InputFileError, match="its own table only"):
        analyse_policy(replace(policy, codes=codes))


@pytest.mark.parametrize("load_qps", LOADS)
def test_every_query_is_served_or_dropped(load_qps):
    problem = samples.problem(load_qps)
    found = evaluated(problem, solve_central(problem).table)
    assert found.batches @ problem.action_batch + found.dropped == pytest.approx(1, abs=1e-6)
    assert found.queue.sum() == pytest.approx(1)
    assert found.slack.sum() == pytest.approx(1)
    value = found.in_time @ problem.accuracy - problem.price * (1 - found.in_time.sum())
    assert -1e-6 <= value - found.gain <= DELAY_PRICE + 1e-6
    plain = replace(problem, delay_price=0.0)
    found = evaluated(plain, solve_central(plain).table)
    value = found.in_time @ problem.accuracy - problem.price * (1 - found.in_time.sum())
    assert found.gain == pytest.approx(value, abs=1e-6)


def test_a_higher_price_means_fewer_violations_and_less_accuracy():
    """Where a query given up lets two others have the better model."""
    profile = linear_profile((0.3, 10.0, 2.0), (0.9, 13.0, 3.0))
    promises = []
    for price in (0.0, 4.0):
        chosen = SynthesisSettings(
            dispatch="central-queue", slo_ms=60.0, workers=10, max_queue=8, violation_price=price,
            headroom=0.0)
        policy = generate_policy(profile, 2700.0, chosen)
        promises.append(policy.expectations)
    cheap, dear = promises
    assert cheap.effective_accuracy > dear.effective_accuracy + 0.01
    assert cheap.violation_rate > dear.violation_rate + 0.02


def test_late_heads_are_never_kept_waiting_and_batches_fit_the_queue():
    policy = samples.policy(6000.0)
    assert (policy.codes[:, :, 0] != WAIT).all()
    size = policy.actions[np.maximum(policy.codes, 0), 1]
    assert ((policy.codes < 0) | (size <= policy.queue_levels[1:, None])).all()
    in_time = np.array([policy.models[m].service_ms[b - 1][0] for m, b in policy.actions])
    started = np.where(policy.codes >= 0, in_time[np.maximum(policy.codes, 0)], 0.0)
    assert (started[:, :, 1:] <= policy.slack_ms[1:]).all()


@pytest.mark.parametrize(("workers", "load_qps"), [(1, 20.0), (3, 120.0), (1, 400.0)])
def test_an_idle_worker_never_waits_with_a_head_that_nothing_answers_in_time(load_qps, workers):
    made = generate_policy(samples.drawn_profile(), load_qps, samples.settings(
        workers=workers, service="distribution"))
    fastest_ms = min(model.service_ms[0][0] for model in made.models)
    hopeless = made.slack_ms < fastest_ms
    assert hopeless.sum() > 1
    assert (made.codes[:, :, hopeless] != WAIT).all()


def test_overload_sheds_early_so_that_batches_stay_large():
    policy = samples.policy(12_000.0)
    assert policy.expectations.batch_size.mean > 7
    assert (policy.codes == DROP).any()
    assert simulated(policy)[0] > 0.9 * float(policy.expectations.upper_bound or 1)


def test_drawn_service_times_are_promised_and_bounded():
    profile = samples.drawn_profile()
    chosen = SynthesisSettings(dispatch="central-queue", slo_ms=100.0, workers=20, max_queue=8)
    assert chosen.chosen_service(profile) == "distribution"
    for load_qps in (2000.0, 9000.0):
        policy = generate_policy(profile, load_qps, chosen)
        found = simulate_profile(profile, Policies((policy,)),
                         ConstantLoad(load_qps=load_qps, duration_ms=8000.0), workers=20,
                         slo_ms=100.0, service="distribution", seeds=range(4))
        effective = np.mean([one.effective_accuracy for one in found.metrics])
        assert policy.expectations.effective_accuracy == pytest.approx(effective, abs=0.015)
        assert effective <= float(policy.expectations.upper_bound or 1) + 1e-3


def test_a_policy_that_only_waits_is_evaluated_all_the_same():
    """Its chain stays where the queue is full: every query but the first few is dropped."""
    problem = samples.problem(500.0)
    shape = (len(problem.idle) - 1, len(problem.queue) - 1, len(problem.slack_ms))
    found = evaluated(problem, np.full(shape, WAIT, dtype=np.int16))
    assert found.in_time.sum() == pytest.approx(0, abs=1e-6)
    assert found.dropped == pytest.approx(1, abs=1e-4)


def test_a_system_that_stays_singular_is_an_error(monkeypatch):
    tried: list[float] = []

    def singular(chain: Chain, exact: float) -> None:
        tried.append(chain.model.restart)

    monkeypatch.setattr(Chain, "values", singular)
    with pytest.raises(NotConvergedError, match="cannot be computed"):
        solve_central(samples.problem(500.0))
    assert tried[-1] > 1000 * tried[0]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(profile=linear_profiles(), workers=st.integers(1, 4), demand=st.floats(0.1, 2.0),
       seed=st.integers(0, 1000), price=st.sampled_from([0.0, 1.0]))
def test_no_run_of_a_thousand_passes_the_bound_of_its_own_trace(
    profile, workers, demand, seed, price
):
    """A policy, and runs of forty seeds; the first is held against a slow twin too."""
    slo_ms, duration_ms = 60.0, 1000.0
    table = profile.latency_table("p95", 4)
    load_qps = demand * workers * 1000.0 / float(table.latency_ms[:, 0].min())
    chosen = SynthesisSettings(
        dispatch="central-queue", slo_ms=slo_ms, workers=workers, service="p95", max_queue=4,
                           violation_price=price, grid="fixed:10", headroom=0.0)
    policy = generate_policy(profile, load_qps, chosen)
    fleet = Fleet.of(profile, workers=workers, slo_ms=slo_ms)
    plan = Policies((policy,)).prepare(fleet)
    workload = ConstantLoad(load_qps=load_qps, duration_ms=duration_ms)
    times = ServiceTimes.of(profile, "p95", 4)
    for at in range(seed, seed + 40):
        run = run_plan(fleet, plan, workload, seed=at)
        count = len(run.arrival_ms)
        if not count:
            continue
        batch = run.batch_of[run.batch_of >= 0]
        met = run.finish_ms[batch] <= run.arrival_ms[run.batch_of >= 0] + slo_ms
        earned = fleet.table.accuracy[run.model[batch]][met].sum()
        limit = fluid_bound(times, slo_ms=slo_ms, workers=workers, max_batch=4,
                            load_qps=1000.0 * count / (duration_ms + slo_ms))
        assert earned / count <= limit.effective_accuracy + 1e-9
        if at == seed:
            twin = replay(policy.to_document(), run.arrival_ms.tolist())
            assert twin == (pytest.approx(earned), met.sum(), (run.batch_of == -2).sum())


def test_every_count_is_placed_between_its_neighbouring_levels():
    low, share = _kernels.place(np.array([0, 1, 2, 4, 7]), 9)
    levels = np.array([0, 1, 2, 4, 7, 7])
    assert ((1 - share) * levels[low] + share * levels[low + 1]).tolist() == [
        0, 1, 2, 3, 4, 5, 6, 7, 7, 7]


@pytest.mark.slow
def test_where_early_answers_make_workers_swing_requests_queue_instead():
    """Models that are almost alike make this fleet swing between many and no idle workers."""
    chosen = SynthesisSettings(
        dispatch="central-queue", slo_ms=95.0, workers=200, service="p95", headroom=0.0)
    made = generate_policy(load("text-cpu"), 11_764.0, chosen)
    assert made.patient
    again = Policy.from_document(made.to_document(), "file")
    assert isinstance(again, Policy)
    assert again.patient
    analyse_policy(again)  # an error where the table is not that of its model
    found = settled(again, queries=400_000, runs=4, seed=10)
    promised, bound = made.expectations.effective_accuracy, made.expectations.upper_bound
    assert abs(found.effective_accuracy - promised) < 5e-4 + found.effective_half_width
    assert bound is not None
    assert promised > bound - 5e-4
    early = solve_central(replace(problem_of(made), delay_price=DELAY_PRICE))
    swings = replace(made, codes=early.table.astype(np.int64))
    assert settled(swings, queries=400_000, runs=4, seed=10).effective_accuracy < promised - 2e-3
