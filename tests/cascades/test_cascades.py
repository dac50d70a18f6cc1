"""Second opinions: the rule, its search and gate, its file, and its promise."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.arrivals import Arrivals
from ramsis.bounds import cascade_bound, certified_gap
from ramsis.cli.output.rows import policy_row
from ramsis.cluster import Cluster, ServiceTimes
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.policy import (
    BudgetRecord,
    Policy,
    read,
    set_of,
    validate,
    validate_set,
    write,
    write_set,
)
from ramsis.profiles import load, save
from ramsis.report.page import write_report
from ramsis.report.simulations import promise_charts
from ramsis.report.verdicts import one_model_bound
from ramsis.sim import ConstantLoad, Fleet, Policies, SimulationSettings, simulate
from ramsis.sim.cascades import served
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis import cascades as synthesis
from ramsis.synthesis.cascades import with_cascade
from ramsis.synthesis.cascades.gate import _Measured
from ramsis.synthesis.certified import gap_of_promise
from ramsis.synthesis.simulated import prepared_policy
from ramsis.verify import verify_policy
from ramsis.verify.cascade import cascade_checks, play
from tests.changes import put
from tests.cli.command import refused
from tests.verify.mutations import failures

SLO_MS, WORKERS, LOAD_QPS = 60.0, 4, 9_600.0


def settings(**changes: Any) -> SynthesisSettings:
    return SynthesisSettings(**{"slo_ms": SLO_MS, "workers": WORKERS, "service": "p95",
                                "dispatch": "central-queue", "cascades": True, **changes})


@pytest.fixture(scope="module")
def policy(profile):
    made = generate_policy(profile, LOAD_QPS, settings())
    assert made.cascade is not None
    return made


@pytest.fixture(scope="module")
def in_turn(profile):
    """A policy by which each worker has its own queues."""
    made = generate_policy(profile, LOAD_QPS, settings(dispatch="round-robin"))
    assert made.cascade is not None
    return made


def requests_of(fleet: Fleet, count: int, seed: int = 3, load_qps: float = LOAD_QPS) -> Any:
    rng = np.random.default_rng(seed)
    drawn = fleet.requests(np.cumsum(rng.exponential(1000.0 / load_qps, count)), rng=rng)
    return replace(drawn, sureness=rng.random(count))


def test_second_opinions_pass_the_bound_of_one_model_and_no_bound_of_their_own(profile, policy):
    promise = policy.cascade.promise
    bound = cascade_bound(ServiceTimes.of_all(profile, "p95", 32), profile.confidences,
                          slo_ms=SLO_MS, workers=WORKERS, load_qps=LOAD_QPS, gathering=True)
    assert promise.upper_bound == pytest.approx(bound.upper_bound)
    assert policy.expectations.upper_bound is not None
    assert promise.effective_accuracy > policy.expectations.upper_bound + 2 * promise.gain_error
    assert bound.effective_accuracy - 0.002 < promise.effective_accuracy
    assert promise.effective_accuracy < bound.effective_accuracy + promise.effective_half_width


@pytest.mark.parametrize("load_qps", [3_000.0, LOAD_QPS, 16_000.0, 40_000.0])
def test_the_compiled_run_equals_a_plain_one(policy, load_qps):
    """Also beside what the rule was made for: idle workers, and queues that grow."""
    fleet, _ = prepared_policy(policy)
    requests = requests_of(fleet, 12_000, load_qps=load_qps)
    placed = PlacedCascade.of(policy.cascade, range(len(fleet.models)), len(fleet.models))
    _, outcomes = served(placed, fleet, requests)
    plain = play(policy.to_document(), requests.arrival_ms, np.random.default_rng(0),
                 requests.sureness)
    np.testing.assert_allclose(outcomes.answered_ms, [one.answered_ms for one in plain], atol=1e-9)
    np.testing.assert_array_equal(outcomes.second_opinion, [one.second for one in plain])
    np.testing.assert_allclose(outcomes.accuracy, [one.accuracy for one in plain], atol=1e-12)


def test_waits_end_where_the_tolerance_is_below_the_spacing_of_times(policy: Policy) -> None:
    """As after 17 years, which a thousand requests take at one in a week; they waited for ever."""
    assert policy.cascade is not None
    fleet, _ = prepared_policy(policy)
    requests = requests_of(fleet, 1_000, load_qps=LOAD_QPS)
    requests = replace(requests, arrival_ms=requests.arrival_ms + 5e11)
    placed = PlacedCascade.of(policy.cascade, range(len(fleet.models)), len(fleet.models))
    _, outcomes = served(placed, fleet, requests)
    assert outcomes.second_opinion.any()
    assert (outcomes.answered_ms <= requests.arrival_ms + SLO_MS + 0.001).all()
    plain = play(policy.to_document(), requests.arrival_ms, np.random.default_rng(0),
                 requests.sureness)
    assert all(one.answered_ms < np.inf for one in plain)


@pytest.mark.parametrize("load_qps", [3_000.0, LOAD_QPS, 40_000.0])
def test_queues_that_are_joined_in_turn_are_those_of_a_worker_each(in_turn, load_qps):
    """Each is played by itself in plain Python, with every fourth request."""
    fleet, _ = prepared_policy(in_turn)
    requests = requests_of(fleet, 12_001, load_qps=load_qps)
    placed = PlacedCascade.of(in_turn.cascade, range(len(fleet.models)), len(fleet.models))
    room, outcomes = served(placed, fleet, requests, WORKERS)
    alone = {**in_turn.to_document(), "dispatch": "central-queue", "workers": 1}
    for worker in range(WORKERS):
        mine = slice(worker, None, WORKERS)
        plain = play(alone, requests.arrival_ms[mine], np.random.default_rng(0),
                     requests.sureness[mine])
        np.testing.assert_allclose(outcomes.answered_ms[mine],
                                   [one.answered_ms for one in plain], atol=1e-9)
        np.testing.assert_allclose(outcomes.accuracy[mine], [one.accuracy for one in plain],
                                   atol=1e-12)
        first = room.first[mine]
        assert (room.worker[first[first >= 0]] == worker).all()


def test_second_opinions_pay_with_queues_of_workers_own(profile, policy, in_turn, tmp_path):
    """Less than with a common queue, as for policies with one model; the file verifies."""
    promise, common = in_turn.cascade.promise, policy.cascade.promise
    alone = in_turn.expectations.effective_accuracy
    assert alone + 0.005 < promise.effective_accuracy < common.effective_accuracy
    assert promise.upper_bound == common.upper_bound
    assert promise.gain == pytest.approx(promise.effective_accuracy - alone, abs=0.001)
    assert failures(in_turn, tmp_path) == []
    result = simulate(Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS), Policies((in_turn,)),
                      ConstantLoad(LOAD_QPS, 8_000.0),
                      SimulationSettings(service="p95", seeds=(1, 2, 3)))
    assert result.effective_accuracy == pytest.approx(promise.effective_accuracy, abs=0.001)
    assert result.row()["second_opinions"] == pytest.approx(promise.second_opinions, abs=0.02)


@pytest.mark.parametrize("process", ["renewal:2", "mmpp:ratio=2,burst-ms=200,share=0.2"])
def test_the_search_meets_the_arrivals_of_one_worker(profile, process):
    """Every second request of those that come together, which are no process with a name."""
    made = generate_policy(profile, 4_000.0, settings(dispatch="round-robin", workers=2,
                                                      arrivals=process))
    assert made.cascade is not None
    assert [check for check in cascade_checks(made) if not check.holds] == []


@pytest.mark.parametrize("dispatch", ["central-queue", "round-robin"])
def test_long_queues_become_short_again(policy, in_turn, dispatch):
    """A rule that works with short queues only would never leave the long ones of the start."""
    made = policy if dispatch == "central-queue" else in_turn
    promise, (fleet, _) = made.cascade.promise, prepared_policy(made)
    placed = PlacedCascade.of(made.cascade, range(len(fleet.models)), len(fleet.models))
    requests = requests_of(fleet, 60_000)
    waiting = np.zeros(2 * int(LOAD_QPS * SLO_MS / 1000.0))
    full = replace(requests, arrival_ms=np.concatenate([waiting, requests.arrival_ms[
        : -len(waiting)]]))
    _, outcomes = served(placed, fleet, full, made.rule.queues(WORKERS))
    late = outcomes.answered_ms - full.arrival_ms > SLO_MS + 1e-6
    settled = full.arrival_ms > 20.0 * SLO_MS
    assert not late[settled].any()
    assert outcomes.accuracy[settled].mean() == pytest.approx(
        promise.effective_accuracy, abs=0.002)


def test_no_request_is_lost_and_no_worker_runs_two_batches(policy):
    fleet, _ = prepared_policy(policy)
    requests = requests_of(fleet, 30_000)
    placed = PlacedCascade.of(policy.cascade, range(len(fleet.models)), len(fleet.models))
    room, outcomes = served(placed, fleet, requests)
    assert ((room.first >= 0) | (room.first == -2)).all()
    assert np.isfinite(outcomes.answered_ms[room.first >= 0]).all()
    for worker in range(WORKERS):
        mine = np.flatnonzero(room.worker == worker)
        assert (room.start_ms[mine][1:] >= room.finish_ms[mine][:-1] - 1e-9).all()
    again = outcomes.second_opinion
    assert (room.start_ms[room.second[again]] >= room.finish_ms[room.first[again]] - 1e-9).all()
    assert np.bincount(room.first[room.first >= 0]).max() <= 32


def test_confidence_that_says_nothing_gives_no_second_opinions(profile, policy):
    """Every bin as accurate as the other: the larger model is worth its time for none."""
    flat = replace(profile.confidences, pairs=tuple(
        replace(pair, accuracy=profile.confidences.model(pair.first).accuracy)
        for pair in profile.confidences.pairs))
    found = with_cascade(replace(policy, cascade=None), flat,
                         ServiceTimes.of_all(profile, "p95", 32))
    assert found.cascade is None


def test_where_the_best_rule_is_refused_the_next_one_is_tried(profile, policy, monkeypatch):
    """As one that is good in the search and tips into overload at times."""
    refused: list[Any] = []
    promised = synthesis.promised

    def all_but_the_first(*given: Any) -> Any:
        if refused:
            return promised(*given)
        refused.append(given)
        return None

    monkeypatch.setattr(synthesis, "promised", all_but_the_first)
    made = with_cascade(replace(policy, cascade=None), profile.confidences,
                        ServiceTimes.of_all(profile, "p95", 32))
    assert refused
    assert made.cascade is not None


def test_a_promise_that_is_known_only_roughly_is_measured_on_more_requests(policy):
    """In a few runs of this policy queues grow long for a while, which moves the mean by 0.002."""
    made = generate_policy(load("digits-cpu"), 7_300.5,
                           settings(dispatch="round-robin", workers=3, service="distribution"))
    promise = made.cascade.promise
    assert promise.queries > 7 * policy.cascade.promise.queries
    assert promise.effective_half_width < 0.0015


def test_a_promise_counts_runs_by_their_requests() -> None:
    """The mean of a ratio, and the error by its residuals, of 1, 2 and 3 requests."""
    runs = _Measured(np.zeros((1, 1)), requests=[1, 2, 3])
    values = runs.by_request([0.9, 0.6, 0.3])
    assert np.mean(values) == pytest.approx((0.9 + 2 * 0.6 + 3 * 0.3) / 6)
    residuals = np.array([0.9, 1.2, 0.9]) - 0.5 * np.array([1, 2, 3])
    assert np.std(values, ddof=1) == pytest.approx(np.std(residuals, ddof=1) / 2)


def test_without_the_option_the_policy_is_that_beside_second_opinions(profile, policy):
    plain, small = settings(cascades=False), settings(cascades=False, workers=1, max_queue=4)
    with_them, alone = (generate_policy(one, 1_000.0, small)
                        for one in (profile, replace(profile, confidences=None)))
    assert with_them.to_document() == alone.to_document()
    assert "cascades" not in plain.as_dict()
    without = generate_policy(replace(profile, confidences=None), LOAD_QPS, plain)
    np.testing.assert_array_equal(policy.codes, without.codes)
    assert policy.expectations == without.expectations


def test_drawn_service_times_keep_the_promise(profile):
    made = generate_policy(profile, LOAD_QPS, settings(service="distribution"))
    assert made.cascade is not None
    assert [check for check in cascade_checks(made) if not check.holds] == []


def test_a_file_comes_back_and_validates(policy, tmp_path):
    path = tmp_path / "policy.json"
    write(policy, path)
    assert read(path).to_document() == policy.to_document()
    assert validate(path).cascade is not None


def test_a_promise_that_was_changed_is_found(policy):
    assert all(check.holds for check in cascade_checks(policy))
    promise = replace(policy.cascade.promise,
                      effective_accuracy=policy.cascade.promise.effective_accuracy + 0.005)
    changed = replace(policy, cascade=replace(policy.cascade, promise=promise))
    failed = [check.claim for check in cascade_checks(changed) if not check.holds]
    assert "effective accuracy with second opinions" in failed


BAD: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no such second model": (put("second", value=99), "cascade.second: not a valid number"),
    "an action of no model": (put("actions", 0, value=[99, 1]), "cascade.actions[0]: no such "),
    "a batch of none": (put("actions", 0, value=[0, 0]), "cascade.actions[0]: no such action"),
    "a row of nothing": (put("rows", 0, value=[1, 0]), "cascade.rows[0]: not pairs of a rising"),
    "a wait without slack": (put("rows", 0, value=[0, -1]), "waits without slack"),
    "an index beyond the rows": (put("index", 0, 0, value=10**6), "cascade.index[0][0]: not a"),
    "a level too few": (put("least", value=[1]), "cascade.least: list has the wrong length"),
    "a share above 1": (put("models", 0, "share", value=[1.5]), "cascade.models[0].share"),
    "times that fall": (put("second_ms", value=[5.0, 4.0]), "cascade"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_the_place(name, policy, tmp_path):
    change, message = BAD[name]
    document = copy.deepcopy(policy.to_document())
    change(document["cascade"])
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError) as refused:
        read(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_second_opinions_with_shortest_queues_are_refused(profile, in_turn):
    with pytest.raises(InvalidValueError, match="depend on the queues of all others"):
        settings(dispatch="shortest-queue")
    with pytest.raises(InvalidValueError, match="for queues that requests join in turn"):
        simulate(Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS),
                 Policies((in_turn,), dispatch="shortest-queue"), ConstantLoad(LOAD_QPS, 1_000.0))
    document = {**in_turn.to_document(), "dispatch": "shortest-queue"}
    with pytest.raises(InputFileError, match="not joined in turn"):
        Policy.from_document(document, "file")


def test_a_profile_without_confidences_is_refused(profile):
    with pytest.raises(InvalidValueError, match="the profile has no confidences"):
        generate_policy(replace(profile, confidences=None), LOAD_QPS, settings())


def test_a_simulation_states_second_opinions_and_keeps_the_promise(profile, policy):
    promise = policy.cascade.promise
    cluster = Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS)
    result = simulate(cluster, Policies((policy,)), ConstantLoad(LOAD_QPS, 8_000.0),
                      SimulationSettings(service="p95", seeds=(1, 2, 3)))
    row = result.row()
    assert row["second_opinions"] == pytest.approx(promise.second_opinions, abs=0.01)
    assert row["effective_accuracy"] == pytest.approx(promise.effective_accuracy, abs=0.001)
    assert row["response_p99_ms"] == pytest.approx(promise.response_p99_ms, rel=0.05)


def test_a_load_monitor_is_refused(profile, policy):
    cluster = Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS)
    with pytest.raises(InvalidValueError, match="at a stated load"):
        simulate(cluster, Policies((policy,)), ConstantLoad(LOAD_QPS, 1_000.0),
                 SimulationSettings(service="p95", monitor=True))


def test_the_search_meets_the_bursts_of_a_recorded_trace(profile, tmp_path):
    # Phases at a fourth of the rate of the next one: as many requests as usual see one of both.
    gaps_ms = np.random.default_rng(1).exponential(1.0, 100_000)
    times_ms = np.cumsum(gaps_ms)
    slow = times_ms // 48_000.0 % 2
    trace = tmp_path / "trace.csv"
    trace.write_text("t_ms\n" + "\n".join(f"{t:.4f}" for t in np.cumsum(
        gaps_ms * np.where(slow, 0.25, 1.0)) / 3.84))
    arrivals = f"trace:{trace}"
    policy = generate_policy(profile, LOAD_QPS, settings(arrivals=arrivals))
    promise = policy.cascade.promise
    result = simulate(
        Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS), Policies((policy,)),
        ConstantLoad(LOAD_QPS, 41_600.0, Arrivals.parse(arrivals)),
        SimulationSettings(service="p95", seeds=(1, 2, 3)))
    assert promise.effective_accuracy == pytest.approx(result.effective_accuracy, abs=1e-3)


def test_a_folder_states_what_second_opinions_deliver(policy, tmp_path):
    promise = policy.cascade.promise
    write_set(tmp_path, set_of([policy]), created_by="test")
    (level,) = validate_set(tmp_path).levels
    assert level.expected["expected_effective_accuracy"] == promise.effective_accuracy
    assert level.expected["upper_bound"] == promise.upper_bound
    gap = gap_of_promise(policy)["certified_gap"]
    value = promise.effective_accuracy - policy.violation_price * promise.violation_rate
    assert gap == pytest.approx(certified_gap(
        promise.effective_accuracy, promise.violation_rate, policy.violation_price,
        promise.upper_bound))
    assert gap > 0.0 or value >= promise.upper_bound


def test_results_tell_both_bounds_apart(profile, policy, tmp_path, run):
    """Also a figure at one load, whose bound is that for one model per request."""
    write_set(tmp_path / "set", set_of([policy]), created_by="test")
    profile_file = tmp_path / "digits.json"
    save(profile, profile_file)
    figure = tmp_path / "figure.svg"
    (row,) = run("simulate", "--profiles", profile_file, "--slo-ms", SLO_MS, "--workers", WORKERS,
                 "--load", LOAD_QPS, "--policy", tmp_path / "set", "--duration-s", 1, "--json",
                 "--plot", figure).rows
    assert row["upper_bound_one_model"] < row["effective_accuracy"] < row["upper_bound"]
    assert one_model_bound(row) == row["upper_bound_one_model"]
    assert one_model_bound({"upper_bound": 0.9}) == 0.9
    assert figure.stat().st_size > 5_000
    shown = run("policy", "show", next((tmp_path / "set").glob("central*.json")))
    assert "with second opinions by svm-poly-12000 on " in shown.out


def test_a_page_says_of_whom_its_bounds_are_and_what_second_opinions_add(policy, tmp_path):
    write_set(tmp_path / "set", set_of([policy]), created_by="test")
    write_report([str(tmp_path / "set")], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    promise = policy.cascade.promise
    for words in (f"no scheduler with one model or a cascade per request passes "
                  f"{promise.upper_bound:.4f}",
                  f"{promise.second_opinions:.1%} of the requests get a second opinion",
                  f"adds {promise.gain:.4f} of effective accuracy",
                  "upper bound (with cascades)", "upper bound (one model per request)",
                  f"second opinion by {policy.models[policy.cascade.second].name}",
                  ", without second opinions: effective accuracy",
                  "decide by these tables only where a server states no confidence"):
        assert words in page, words
    write_set(tmp_path / "alone", set_of([replace(policy, cascade=None)]), created_by="test")
    write_report([str(tmp_path / "alone")], tmp_path / "alone.html")
    assert "ascade" not in (tmp_path / "alone.html").read_text().split("What was asked")[0]


def test_a_drawn_promise_is_that_with_second_opinions(policy):
    promise, bound = policy.cascade.promise, policy.expectations.upper_bound
    effective, late = promise_charts([policy_row(policy)])
    assert {line.name: line.y for line in effective.series} == {
        "promised": [promise.effective_accuracy],
        "upper bound (one model per request)": [bound],
        "upper bound (with cascades)": [promise.upper_bound]}
    assert [line.y for line in late.series] == [[promise.violation_rate]]
    without = promise_charts([policy_row(replace(policy, cascade=None))])[0].series[0]
    assert without.y[0] < promise.effective_accuracy


@pytest.mark.slow
def test_an_audit_says_what_second_opinions_would_have_brought(profile, run, tmp_path):
    profile_file, log = tmp_path / "digits.json", tmp_path / "log.csv"
    save(profile, profile_file)
    served = ("--profiles", profile_file, "--workers", 2, "--service", "p95")
    ran = run("simulate", *served, "--slo-ms", SLO_MS, "--load", 4_800, "--duration-s", 1,
              "--scheduler", "greedy", "--request-log", log)
    assert ran.code == 0, ran.err
    ran = run("audit", log, *served, "--dispatch", "central-queue", "--cascades", "--seeds", 1,
              "--json")
    (row,) = ran.rows
    best = row["best_policy"]
    assert best["scheduler"] == "central-queue:cascades=true"
    assert best["second_opinions"] > 0.01
    assert row["upper_bound"] < best["effective_accuracy"] <= row["upper_bound_with_cascades"]
    page = tmp_path / "page.html"
    (tmp_path / "audit.json").write_text(ran.out)
    write_report([str(tmp_path / "audit.json")], page)
    assert "bound (with cascades)" in page.read_text()
    assert f"second opinions for {best['second_opinions']:.1%} of the requests" in page.read_text()
    save(replace(profile, confidences=None), profile_file)
    refused(run("audit", log, *served, "--cascades"), 2, "--cascades", "no confidences")
    refused(run("audit", log, *served, "--dispatch", "shortest-queue", "--cascades"), 2,
            "--dispatch round-robin or central-queue")


def test_second_opinions_keep_a_budget_of_violations(profile, policy, monkeypatch):
    """At the upper end of the interval, which is above 0 for any number of requests."""
    monkeypatch.setattr(synthesis, "_BUDGET_PRICES", (1.0, 8.0))
    times = ServiceTimes.of_all(profile, "p95", 32)
    record = BudgetRecord(effective_accuracy=0.93, effective_half_width=0.0, violation_rate=0.0,
                          violation_half_width=0.0, queries=10, runs=2, seed=0,
                          max_violation_rate=0.001)
    found = with_cascade(replace(policy, cascade=None, budget=record), profile.confidences, times)
    assert found.cascade is not None
    promise = found.cascade.promise
    assert 0.0 < promise.violation_rate + promise.violation_half_width <= 0.001
    strict = replace(record, max_violation_rate=1e-9)
    assert with_cascade(replace(policy, cascade=None, budget=strict), profile.confidences,
                        times).cascade is None


@pytest.mark.slow
def test_a_file_within_a_budget_has_second_opinions_and_verifies(profile, tmp_path):
    made = generate_policy(profile, LOAD_QPS, settings(max_violation=0.001))
    assert made.cascade is not None
    assert made.budget is not None
    write(made, tmp_path / "policy.json")
    checks = verify_policy(tmp_path / "policy.json")
    assert all(check.holds for check in checks)
    assert any("with second opinions within the budget" in check.claim for check in checks)
