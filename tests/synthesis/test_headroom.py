"""Headroom: which policy is taken, what its file states, and that this is checked."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Policy, read
from ramsis.policy.records import HeadroomRecord, Simulated
from ramsis.sim import ConstantLoad, Policies, SimulationSettings, SlowSpells, simulate
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.headroom import ALLOWED_LOSS, Limits, Replays, with_headroom
from ramsis.synthesis.simulated import simulated
from tests.verify.mutations import derived_once, failures

PROFILE = profiles.load("digits-cpu")
GIVEN: dict[str, Any] = {"slo_ms": 25.0, "workers": 4, "grid": "fixed:40", "max_queue": 16}
LOAD_QPS = 1600.0


@cache
def made(share: float | None, **changes: Any) -> Policy:
    return generate_policy(PROFILE, LOAD_QPS, SynthesisSettings(
        **{**GIVEN, **changes}, headroom=share))


def test_it_costs_little_and_states_longer_times_as_they_are_simulated():
    as_profiled, policy = made(0.0), made(None)
    assert as_profiled.headroom is None
    record = policy.headroom
    assert record.factor == 1.1
    lost = (as_profiled.expectations.effective_accuracy
            - policy.expectations.effective_accuracy)
    assert 0.0 < lost < ALLOWED_LOSS + 3e-4  # both are measured
    slower, without = (simulated(which, queries=1_000_000, runs=8, seed=7, slower=1.1)
                       for which in (policy, as_profiled))
    assert slower.effective_accuracy == pytest.approx(record.slower_effective_accuracy, abs=1e-3)
    assert slower.violation_rate == pytest.approx(record.slower_violation_rate, abs=5e-4)
    assert without.violation_rate > 4.0 * (record.slower_violation_rate or 0.0)


@pytest.mark.slow
def test_fewer_requests_are_late_in_slow_spells():
    settings = SimulationSettings(service="distribution", slow_spells=SlowSpells(0.05, 3.0, 100.0))
    late = [simulate(Cluster.of(PROFILE, workers=4, slo_ms=25.0), Policies((policy,)),
                     ConstantLoad(LOAD_QPS, 60_000.0), settings).violation_rate
            for policy in (made(None), made(0.0))]
    assert late[0] < late[1]


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_the_file_verifies_and_each_of_its_numbers_is_checked(dispatch, tmp_path):
    policy = made(None, dispatch=dispatch, grid="fixed:15", max_queue=6)
    record = policy.headroom
    with derived_once() as derived:
        assert derived.anew(failures, policy, tmp_path) == []
        assert read(tmp_path / "policy.json").to_document() == policy.to_document()
        for change in ({"factor": 1.075},
                       {"slower_violation_rate": (record.slower_violation_rate or 0.0) + 0.001},
                       {"slower_effective_accuracy": None}):
            changed = replace(policy, headroom=replace(record, **change))
            assert derived.anew(failures, changed, tmp_path), change


def _choice(
    losses: dict[float, float | None], bound: float = 1.0, capacity_qps: float = 2.0
) -> tuple[float, list[float]]:
    """Return the factor that is chosen by losses at 1 QPS, and those that were planned for."""
    factors = list[float]()
    policy = made(0.0)

    def planned(factor: float) -> Policy:
        factors.append(factor)
        if losses[factor] is None:
            raise InfeasibleError("no batch is in time")
        return replace(policy, load_qps=factor)

    class Losses(Replays):
        def at(self, policy: Policy, slower: float) -> Simulated:
            loss = losses[policy.load_qps]
            assert loss is not None
            return Simulated(0.0, 0.0, 0.9 - loss, 0.0, queries=1, runs=2, seed=0)

    limits = Limits(1.0, capacity_qps, bound)
    return with_headroom(planned, None, Losses(), limits).planned_factor, factors


@pytest.mark.parametrize(("losses", "factor", "solutions"), [
    ((0.0029, 0.0), 1.1, 2), ((0.0031, 0.0029), 1.05, 3), ((0.0031, 0.0031), 1.0, 3),
    ((None, 0.001), 1.05, 3), ((None, None), 1.0, 3), ((-0.01, 0.0), 1.1, 2)])
def test_the_first_share_that_gives_up_little_is_taken(losses, factor, solutions):
    chosen, factors = _choice({1.0: 0.0, 1.1: losses[0], 1.05: losses[1]})
    assert chosen == factor
    assert len(factors) == solutions


@pytest.mark.parametrize(("bound", "solutions"), [(0.9, 1), (0.9011, 2)])
def test_what_is_close_to_the_bound_is_compared_with_nothing(bound, solutions):
    chosen, factors = _choice({1.0: 0.0, 1.1: 0.002}, bound)
    assert chosen == 1.1
    assert len(factors) == solutions


@pytest.mark.parametrize(("capacity_qps", "factors"), [
    (1.11, [1.1]), (1.09, [1.05]), (1.04, [1.0]), (0.9, [1.0])])
def test_none_is_planned_for_more_than_the_workers_can_do(capacity_qps, factors):
    losses: dict[float, float | None] = {1.0: 0.0, 1.1: 0.0, 1.05: 0.0}
    assert _choice(losses, 0.9, capacity_qps) == (factors[0], factors)


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_near_and_beyond_the_capacity_policies_are_planned_as_profiled(dispatch):
    settings = SynthesisSettings(**{**GIVEN, "grid": "fixed:15", "max_queue": 6},
                                 dispatch=dispatch)
    capacity_qps = generate_policy(PROFILE, LOAD_QPS, settings).expectations.capacity_qps
    assert capacity_qps is not None
    for share, least, most in ((0.85, 1.0, 1.1), (0.96, 1.0, 1.0), (1.2, 1.0, 1.0)):
        policy = generate_policy(PROFILE, share * capacity_qps, settings)
        assert least <= policy.planned_factor <= most


def test_a_share_that_is_given_is_that_of_the_policy():
    policy = made(0.2)
    assert policy.planned_factor == 1.2
    assert policy.certificate.gain < made(0.0).certificate.gain
    assert made(0.0).planned_factor == 1.0


def test_service_times_that_leave_no_batch_in_time_are_refused():
    fastest = float(PROFILE.latency_table("p95", 1).latency_ms.min())
    with pytest.raises(InfeasibleError, match="below every latency"):
        generate_policy(PROFILE, 100.0, SynthesisSettings(
            slo_ms=1.05 * fastest, workers=4, service="p95", headroom=0.1))


def test_late_requests_are_served_as_planned_where_another_model_could_be_in_time(tmp_path):
    """With 30 to 32 ms of slack two requests fit on the second model, not if it takes longer."""
    crossing = profiles.ProfileSet("crossing", tuple(
        profiles.ModelProfile(name, accuracy, tuple(
            profiles.BatchProfile(batch, p95_ms=ms, mean_ms=ms)
            for batch, ms in enumerate(times_ms, 1)))
        for name, accuracy, times_ms in (
            ("alone", 0.6, (10.0, 33.0)), ("pairs", 0.7, (11.0, 30.0)))))
    policy = generate_policy(crossing, 50.0, SynthesisSettings(
        slo_ms=50.0, workers=2, service="p95", grid="fixed:50", late="serve", headroom=0.1))
    assert failures(policy, tmp_path) == []


def test_a_policy_that_cannot_be_replayed_is_planned_as_profiled():
    """So many requests come within the SLO that no run of them settles."""
    fleets = 7_000
    policy = generate_policy(PROFILE, fleets * LOAD_QPS, SynthesisSettings(
        slo_ms=25.0, workers=4 * fleets, dispatch="shortest-queue", service="p95",
        grid="fixed:10", max_queue=2))
    assert policy.replay is None
    assert policy.headroom == HeadroomRecord(1.0, None, None)


def test_there_is_none_per_decision_unless_it_is_asked_for():
    assert SynthesisSettings(slo_ms=25, workers=4, objective="per-decision").headroom == 0.0
    asked = SynthesisSettings(slo_ms=25, workers=4, objective="per-decision", headroom=0.01)
    assert asked.headroom == 0.01
    with pytest.raises(InvalidValueError, match="headroom: not a share of the service time"):
        SynthesisSettings(slo_ms=25, workers=4, headroom=1.0)
