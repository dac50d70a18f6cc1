"""Recovery from a burst: against the time that a backlog takes to drain, and its check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import ramsis
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.policy import Policy, write
from ramsis.policy.records import Recovery
from ramsis.runtime.fields import Fields
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.recovery import _Losses, recovery, with_recovery
from ramsis.synthesis.simulated import prepared_policy
from ramsis.verify import verify_policy
from ramsis.verify.recovery import _Lost, recovery_checks
from tests.slow import slow_after
from tests.synthesis import samples

SERVED = {"late": "serve", "violation_price": 0.0}


def one_by_one(load_qps: float, **changes: object) -> Policy:
    """One worker that takes 5 ms for each request, whatever the batch."""
    profile = samples.linear_profile((0.8, 5.0, 5.0))
    chosen = samples.settings(**{"workers": 1, "slo_ms": 50.0, "max_queue": 1, **changes})
    return generate_policy(profile, load_qps, chosen)


def text_policy(share: float, **changes: object) -> Policy:
    """A policy of twenty workers for a share of the capacity."""
    profile = ramsis.load_profile("text-cpu")
    given = {"slo_ms": 95.0, "workers": 20, "service": "p95", **changes}
    chosen = SynthesisSettings(**given)  # type: ignore[arg-type]
    capacity = generate_policy(profile, 1000.0, chosen).expectations.capacity_qps
    assert capacity is not None
    return generate_policy(profile, share * capacity, chosen)


@pytest.mark.parametrize(("load_qps", "burst"), [(100.0, 100), (160.0, 100), (100.0, 400)])
def test_a_backlog_drains_at_the_rate_that_is_to_spare(load_qps: float, burst: int) -> None:
    """It takes 5 ms for each request, and a wait of up to 45 ms is in time.

    After t ms the wait is normal, with Poisson arrivals; 0.01 of accuracy is lost where it is
    too long with probability 0.01 / 0.8.
    """
    found = recovery(one_by_one(load_qps, **SERVED), burst)
    rate, quantile = load_qps / 1000.0, norm.isf(0.01 / 0.8)
    expected_ms = brentq(lambda t: 5.0 * (burst + rate * t + quantile * np.sqrt(rate * t))
                         - t - 45.0, 1.0, 1e5)
    assert found == Recovery(burst, pytest.approx(expected_ms, rel=0.1), False)


def test_who_drops_what_is_late_recovers_within_the_slo_of_that() -> None:
    found = recovery(one_by_one(100.0), 400)
    assert found.within_ms is not None
    assert found.within_ms <= 50.0 / (1.0 - 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.93])
def test_the_papers_rule_is_metastable_near_capacity_and_drops_are_not(share: float) -> None:
    served, dropped = text_policy(share, **SERVED), text_policy(share)
    assert recovery(served, 5000).metastable == (share > 0.9)
    assert not recovery(dropped, 5000).metastable


@pytest.mark.parametrize(("burst_ms", "load_qps", "burst"), slow_after(1, [
    (500, 1500.0, 2000), (5000, 1500.0, 2000), (500, 1555.0, 1000)]))
def test_a_load_that_swings_by_itself_is_no_collapse(
    burst_ms: int, load_qps: float, burst: int
) -> None:
    """In bursts that are beyond the capacity much is lost, with a burst of requests or without."""
    policy = generate_policy(samples.tiny_profile(), load_qps, samples.settings(
        max_queue=4, grid="fixed:8", arrivals=f"mmpp:ratio=4,burst-ms={burst_ms},share=0.2"))
    assert policy.expectations.violation_rate > 0.05
    found = with_recovery(policy, burst)
    record = found.expectations.recovery
    assert record is not None
    assert record.within_ms is not None
    assert record.within_ms < 10 * policy.slo_ms
    assert [check for check in recovery_checks(found) if not check.holds] == []


@pytest.mark.parametrize(("bursts", "until", "again"), [
    (8, [400], False), (8, [300, 300, 500, 500], True), (80, [300, 300, 500, 500], False),
    (80, [400, 600], True)])
def test_parts_of_few_bursts_that_differ_ask_for_more(
    bursts: int, until: list[int], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few bursts quarters, which may differ where halves do not."""
    asked = list[object]()

    def losses(*given: object) -> _Losses:
        asked.append(given[-1])
        by_step = np.where(np.arange(1600) < np.resize(until, bursts)[:, None], 1.0, -1.0)
        return _Losses(by_step, np.empty(0, dtype=int), np.empty(0), np.empty(0))

    monkeypatch.setattr("ramsis.synthesis.recovery._losses", losses)
    recovery(one_by_one(100.0))
    assert asked == ([1, 8] if again else [1])


@pytest.mark.parametrize("lasts", [0, 1, 400, 1100, 1500])
def test_the_time_is_that_of_the_sum_over_all_requests(lasts: int) -> None:
    """In the order of arrival after a burst, without steps."""
    rng = np.random.default_rng(lasts)
    since_ms, bursts = rng.uniform(0.0, 1600.0, 20_000), 4
    step = since_ms.astype(int)
    lost = np.where(since_ms < lasts, 0.3, -0.01) + rng.uniform(-0.3, 0.3, len(since_ms))
    by_step = np.bincount(step + 1600 * rng.integers(bursts, size=len(step)), lost, 1600 * bursts)
    order = np.argsort(since_ms)[: int((since_ms < 1200.0).sum())]
    total = np.cumsum(lost[order])
    expected = since_ms[order[total.argmax()]] if total.max() > 0.0 else 0.0
    found = _Losses(by_step.reshape(bursts, 1600), step, since_ms, lost).recovered_ms()
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_a_wrong_recovery_is_found(dispatch: str) -> None:
    policy = with_recovery(text_policy(0.8, dispatch=dispatch, max_queue=16, workers=8), 1000)
    stated = policy.expectations.recovery
    assert stated is not None
    assert stated.within_ms is not None
    assert all(check.holds for check in recovery_checks(policy))
    for wrong in (Recovery(1000, 3.0 * stated.within_ms + 380.0, False),
                  Recovery(1000, None, True)):
        other = replace(policy, expectations=replace(policy.expectations, recovery=wrong))
        assert not all(check.holds for check in recovery_checks(other))


@pytest.mark.parametrize(("within_ms", "requests", "holds"), [
    (900.0, 126, True), (900.0, 2000, False), (None, 126, True), (None, 2000, False)])
def test_few_requests_need_not_show_a_rare_loss(
    within_ms: float | None, requests: int, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in 80 that loses 0.8 loses 0.01 on the mean, and may not be among a hundred or so."""
    policy = one_by_one(100.0)
    stated = Recovery(1000, within_ms, within_ms is None)
    policy = replace(policy, expectations=replace(policy.expectations, recovery=stated))

    def none_lost(policy: Policy, burst: int, apart_ms: float, own: str | None) -> _Lost:
        low_ms = 0.75 * within_ms if within_ms else 128.0 * policy.slo_ms
        high_ms = within_ms or 256.0 * policy.slo_ms
        since_ms = np.linspace(low_ms, high_ms, requests)
        return _Lost(since_ms, np.arange(requests) % 40, np.zeros(requests), 0.0, 0.8)

    monkeypatch.setattr("ramsis.verify.recovery._lost", none_lost)
    monkeypatch.setattr("ramsis.verify.recovery.recovery", lambda *_, **__: stated)
    assert all(check.holds for check in recovery_checks(policy)) == holds


@pytest.mark.parametrize("dispatch", ["round-robin", "shortest-queue", "central-queue"])
def test_another_burst_is_found_where_the_time_is_hardly_another(dispatch: str) -> None:
    """Who drops what is late recovers from bursts of any size when the late ones are dropped."""
    policy = generate_policy(samples.tiny_profile(), 900.0, samples.settings(
        dispatch=dispatch, max_queue=4, grid="fixed:8", headroom=0.0))
    times = [recovery(policy, burst).within_ms for burst in (500, 1000, 1500)]
    assert all(times)
    assert times == pytest.approx([times[1]] * 3, rel=0.1)
    assert len(set(times)) == 3


def test_verify_checks_what_the_file_says_of_bursts(tmp_path: Path) -> None:
    policy = with_recovery(one_by_one(150.0, **SERVED), 100)
    assert policy.expectations.recovery is not None
    for factor in (0.2, 1.0, 6.0):
        within_ms = factor * (policy.expectations.recovery.within_ms or 0.0)
        stated = Recovery(100, within_ms, False)
        write(replace(policy, expectations=replace(policy.expectations, recovery=stated)),
              tmp_path / "policy.json")
        wrong = [check.claim for check in verify_policy(tmp_path / "policy.json")
                 if not check.holds]
        assert [claim for claim in wrong if "after a burst" not in claim] == []
        assert bool(wrong) == (factor != 1.0)


def test_without_a_compiled_loop_no_recovery_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = one_by_one(100.0)
    fleet, plan = prepared_policy(policy)
    monkeypatch.setattr("ramsis.synthesis.recovery.prepared_policy",
                        lambda _: (fleet, replace(plan, compiled=None)))
    assert with_recovery(policy) is policy
    with pytest.raises(InvalidValueError, match=r"^dispatch: no compiled simulation"):
        recovery(policy)


def test_a_burst_has_a_size() -> None:
    for burst in (0, -5, 10**7):
        with pytest.raises(InvalidValueError, match="burst"):
            with_recovery(one_by_one(100.0), burst)


@pytest.mark.parametrize("record", [
    {"burst": 1000, "within_ms": 5.0, "metastable": True}, {"burst": 1000, "metastable": False},
    {"burst": 0, "within_ms": 5.0, "metastable": False}, {"within_ms": 5.0, "metastable": False},
    {"burst": 10, "within_ms": -5.0, "metastable": False},
])
def test_a_record_that_contradicts_itself_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(InputFileError):
        Recovery.from_fields(Fields(record, "policy.json"))
