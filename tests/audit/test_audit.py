"""Audits: the parts add up, no log is above its bound, and waste that was put in is found."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.audit.audit import Audit, AuditSettings, audit_log
from ramsis.audit.hindsight import Day
from ramsis.audit.request_log import Request, RequestLog, read_request_log, write_request_log
from ramsis.audit.simulated_log import requests_of_run
from ramsis.cluster import SloClass
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, save
from ramsis.profiles.sketch import midpoint_levels
from ramsis.sim import Clipper, ConstantLoad, Fixed, Greedy, Infaas, JellyfishPlus, RateTrace
from tests.cli.command import refused
from tests.runs import simulate_profile
from tests.synthesis.samples import tiny_profile

RANDOM_LOGS = int(os.environ.get("AUDIT_LOGS", "25"))


def random_profile(rng: np.random.Generator) -> ProfileSet:
    """Models whose times vary by up to two fifths, larger ones more accurate."""
    models, level = [], midpoint_levels(16)
    for number in range(int(rng.integers(1, 5))):
        first, step = rng.uniform(2, 20) * (number + 1), rng.uniform(0.3, 8)
        spread = rng.uniform(0.0, 0.4)
        batches = []
        for batch in (1, 2, 4, 8):
            quantiles = (first + step * (batch - 1)) * (1 + spread * level)
            batches.append(BatchProfile(batch, p95_ms=float(quantiles[-1]),
                                        mean_ms=float(quantiles.mean()),
                                        quantiles_ms=tuple(quantiles.tolist())))
        models.append(ModelProfile(f"m{number}", 0.5 + 0.1 * number, tuple(batches)))
    return ProfileSet("random", tuple(models))


def simulated(tmp_path: Path, profile: ProfileSet, scheduler: Any, workload: Any,
              **terms: Any) -> RequestLog:
    result = simulate_profile(profile, scheduler, workload, keep_runs=True, **terms)
    path = tmp_path / "log.csv"
    write_request_log(path, requests_of_run(result.runs[0]))
    return read_request_log(path)


def random_log(tmp_path: Path, number: int) -> tuple[RequestLog, ProfileSet, int, str]:
    rng = np.random.default_rng(number)
    profile, workers = random_profile(rng), int(rng.integers(1, 6))
    slo_ms = float(profile.latency_table("p95", 8).latency_ms.min() * rng.uniform(1.5, 8))
    load_qps = 1000.0 * workers / slo_ms * rng.uniform(0.2, 8)
    fastest = min(one.name for one in profile.models)
    scheduler = [Greedy(), Greedy(late="drop"), JellyfishPlus(), Infaas(0.5),
              Clipper(model=fastest), Fixed(model=fastest)][int(rng.integers(6))]
    duration_ms = 300.0 / load_qps * 1000.0
    workload = (ConstantLoad(load_qps, duration_ms) if rng.random() < 0.7 else RateTrace(
        [0.0, duration_ms / 2], [load_qps / 3, 2 * load_qps], duration_ms))
    service = ["p95", "distribution", "mean"][int(rng.integers(3))]
    log = simulated(tmp_path, profile, scheduler, workload, workers=workers, slo_ms=slo_ms,
                    service=service, seeds=(number,))
    if rng.random() < 0.3:  # some requests had more time than others
        longer = np.where(rng.random(len(log)) < 0.5, 2.0, 1.0) * log.deadline_ms
        log = replace(log, deadline_ms=longer)
        late = log.finish_s - log.arrival_s > longer / 1000.0 + 1e-7
        log = replace(log, outcome=np.where(log.answered, np.where(late, "late", "served"),
                                            log.outcome).astype(object))
    return log, profile, workers, ["distribution", "p95"][int(rng.integers(2))]


def check_sums(audit: Audit) -> None:
    done = audit.achieved
    assert done.served + done.late + done.dropped + done.failed == done.requests
    assert sum(audit.causes.values()) == done.requests - done.served
    assert done.effective_accuracy + audit.lost_to_violations + audit.lost_to_models == (
        pytest.approx(audit.most_accurate))
    assert audit.lost_to_models >= -1e-12
    assert done.effective_accuracy <= audit.upper_bound + 1e-9
    assert done.violation_rate >= audit.least_violation_rate - 1e-9
    assert audit.upper_bound <= audit.most_accurate + 1e-12
    assert 1 <= audit.workers_bound <= audit.workers


@pytest.mark.parametrize("number", range(RANDOM_LOGS))
def test_parts_add_up_and_no_log_is_above_its_bound(tmp_path, number):
    log, profile, workers, service = random_log(tmp_path, number)
    audit = audit_log(log, profile, AuditSettings(workers, service=service, schedulers=()))
    check_sums(audit)
    assert (audit.best, audit.fewest) == (None, None)


def test_a_bound_is_not_idle(tmp_path):
    """Twice what can be served: nobody answers more than capacity allows, and most of that."""
    profile = tiny_profile()
    table = profile.latency_table("p95", 33)
    fast = table.latency_ms[0]
    best = float((np.arange(1, 34) / fast)[fast <= 100.0].max())
    log = simulated(tmp_path, profile, Greedy(late="drop"),
                    ConstantLoad(2 * 2 * 1000.0 * best, 5000.0), workers=2, slo_ms=100.0)
    audit = audit_log(log, profile, AuditSettings(2, service="p95", schedulers=()))
    check_sums(audit)
    assert audit.least_violation_rate == pytest.approx(0.5, abs=0.03)
    assert audit.achieved.service_factor == pytest.approx(1.0)
    assert audit.causes["overload"] > 0.9 * (audit.achieved.requests - audit.achieved.served)


def test_waste_that_was_put_in_is_found(tmp_path):
    profile = tiny_profile()
    log = simulated(tmp_path, profile, Greedy(), ConstantLoad(100.0, 10000.0), workers=8,
                    slo_ms=100.0)
    audit = audit_log(log, profile, AuditSettings(
        8, "p95", ("round-robin:grid=fixed:20,max_queue=8",), seeds=1))
    check_sums(audit)
    assert audit.workers_bound <= audit.fewest.workers < 8
    assert audit.wasted_workers == 8 - audit.fewest.workers
    assert audit.fewest.effective_accuracy >= audit.achieved.effective_accuracy - 1e-9
    assert audit.best.effective_accuracy <= audit.upper_bound + 0.002
    row = json.loads(json.dumps(audit.row()))
    assert row["gap_to_bound"] == pytest.approx(
        row["upper_bound"] - row["best_policy"]["effective_accuracy"] + row["gap_to_policy"])


def one_worker(*requests: Request, tmp_path: Path) -> RequestLog:
    path = tmp_path / "log.csv"
    write_request_log(path, requests)
    return read_request_log(path)


def test_each_violation_has_its_cause(tmp_path):
    """tiny_profile's fast model takes some ms; each case by hand."""
    profile = tiny_profile()
    fast = profile.models[0]
    alone_s = fast.batches[0].p95_ms / 1000.0  # type: ignore[operator]
    terms = {"deadline_ms": 100.0, "outcome": "late", "model": fast.name, "batch": 1,
             "run_as": 1, "worker": 0}

    def late(at_s: float, wait_s: float, takes_s: float) -> Request:
        return Request(at_s, at_s + wait_s, at_s + wait_s + takes_s, **terms)  # type: ignore[arg-type]

    log = one_worker(
        late(0.0, 0.0, 0.2),                                # ran for much longer than it should
        late(10.0, 0.0995, 0.2),                            # nothing could be in time any more
        Request(20.0, None, 20.01, 100.0, "dropped"),       # given up at once
        Request(30.0, None, 30.0995, 100.0, "dropped"),     # waited for too long
        Request(40.0, None, None, 100.0, "failed"),
        Request(50.0, None, None, 100.0, "dropped"),        # nobody knows when
        Request(60.0, 60.0, 60.0 + alone_s, 100.0, "served", fast.name, 1, 1, 0),
        tmp_path=tmp_path)
    audit = audit_log(log, profile, AuditSettings(1, service="p95", schedulers=()))
    check_sums(audit)
    assert audit.causes == {"failed": 1, "overload": 0, "service": 1, "batching": 0,
                            "given up": 1, "queueing": 2, "unexplained": 1}
    assert audit.achieved.service_factor > 5


def test_without_start_times_nothing_is_said_of_service_times(tmp_path):
    fast = tiny_profile().models[0]
    log = one_worker(*(Request(at, None, at + 0.02, 100.0, "served", fast.name, 1, 1, 0)
                       for at in (0.0, 1.0, 2.0)), tmp_path=tmp_path)
    achieved = audit_log(log, tiny_profile(), AuditSettings(1, schedulers=())).achieved
    assert (achieved.service_factor, achieved.utilisation) == (None, None)


def test_too_large_a_batch_is_a_cause(tmp_path):
    profile = tiny_profile()
    slow = profile.models[-1]
    table = profile.latency_table("p95", 33)
    size = int(np.argmax(table.latency_ms[-1] > 60.0)) + 1
    takes_s = float(table.latency_ms[-1, size - 1]) / 1000.0
    log = one_worker(*(Request(0.0, 0.05, 0.05 + takes_s, 100.0, "late", slow.name, size, size, 0)
                       for _ in range(size)), Request(90.0, None, 90.1, 100.0, "dropped"),
                     tmp_path=tmp_path)
    audit = audit_log(log, profile, AuditSettings(1, service="p95", schedulers=()))
    check_sums(audit)
    assert audit.causes["batching"] == size
    assert audit.achieved.service_factor == pytest.approx(1.0)


def test_names_of_routers_and_ensembles_stand_for_models(tmp_path):
    profile = tiny_profile()
    fast, *_, slow = (model.name for model in profile.models)
    log = one_worker(*(Request(float(at), None, at + 0.02, 100.0, "served", name) for at, name in
                       enumerate(("ens", fast, "ens"))), tmp_path=tmp_path)
    best, least = profile.models[-1].accuracy, profile.models[0].accuracy

    def accuracy(**settings: Any) -> float:
        audit = audit_log(log, profile, AuditSettings(1, schedulers=(), **settings))
        return float(audit.achieved.accuracy or 0.0)

    assert accuracy(names={"ens": slow}) == pytest.approx((2 * best + least) / 3)
    assert accuracy(model=fast) == pytest.approx(least)
    with pytest.raises(InputFileError, match=r"got 'ens'.*--map ens=MODEL.*--model MODEL"):
        accuracy()
    for settings, words in (({"names": {"ens": "x"}}, "map: a model that the profile lacks"),
                            ({"model": "x"}, "model: a model that the profile lacks"),
                            ({"names": {"router": slow}}, "the log lacks: got 'router'.*ens")):
        with pytest.raises(InvalidValueError, match=words):
            accuracy(**settings)


def test_logs_that_cannot_be_are_refused(tmp_path):
    profile = tiny_profile()
    name = profile.models[0].name
    with pytest.raises(InputFileError, match="a model that the profile lacks: got 'other'"):
        audit_log(one_worker(Request(0.0, 0.0, 0.1, 50.0, "late", "other"), tmp_path=tmp_path),
                  profile, AuditSettings(1, schedulers=()))
    both = [Request(0.0, 0.0, 0.1, 500.0, "served", name, 1, 1, worker) for worker in (0, 1)]
    with pytest.raises(InputFileError, match="more workers than stated: got 1"):
        audit_log(one_worker(*both, tmp_path=tmp_path), profile, AuditSettings(1, schedulers=()))
    nameless = [one._replace(worker=None, start_s=0.001 * i) for i, one in enumerate(both)]
    with pytest.raises(InputFileError, match="more batches at once than workers: got 2"):
        audit_log(one_worker(*nameless, tmp_path=tmp_path), profile,
                  AuditSettings(1, schedulers=()))
    for wrong in ({"workers": 0}, {"workers": 1, "max_violation": 2.0},
                  {"workers": 1, "schedulers": ("greedy",)}):
        with pytest.raises(InvalidValueError):
            AuditSettings(**wrong)  # type: ignore[arg-type]


def test_the_command_prints_what_adds_up(run, tiny_file, tmp_path):
    simulated(tmp_path, tiny_profile(), Greedy(), ConstantLoad(800.0, 3000.0), workers=2,
              slo_ms=50.0)
    base = ["audit", tmp_path / "log.csv", "--profiles", tiny_file, "--workers", 2,
            "--service", "p95", "--scheduler", "round-robin:grid=fixed:10,max_queue=4",
            "--seeds", 1]
    ran = run(*base, "--json", "--plot", tmp_path / "audit.png")
    (row,) = ran.rows
    assert (tmp_path / "audit.png").stat().st_size > 5000
    assert sum(row["violations_by_cause"].values()) == row["requests"] - row["served"] > 0
    ran = run(*base, "--wide")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[1].startswith("achieved ")
    assert f"{row['upper_bound']:.4f}" in lines[3]
    assert f"{row['requests']} requests in" in lines[-1]


def test_of_equal_levels_the_one_for_the_mean_load_is_recommended(tmp_path):
    """One model, hardly any load but for a burst: policies of all levels are as good."""
    profile = ProfileSet("one", (ModelProfile("m", 0.9, (BatchProfile(1, p95_ms=5.0),)),))
    arrivals_s = [0.05 * i for i in range(200)] + [10.0 + 0.02 * i for i in range(20)]
    log = one_worker(*(Request(at, deadline_ms=100.0, finish_s=at + 0.005, outcome="served",
                               model="m") for at in arrivals_s), tmp_path=tmp_path)
    audit = audit_log(log, profile, AuditSettings(1, schedulers=("round-robin",)))
    assert audit.best.effective_accuracy == pytest.approx(0.9)
    assert audit.best.level_qps == pytest.approx(audit.achieved.load_qps, rel=1e-5)


def test_a_best_policy_below_what_was_achieved_says_why(run, tmp_path):
    """It is simulated with 95th percentiles, which are above the deadline."""
    save(ProfileSet("one", (ModelProfile("m", 0.9, (
        BatchProfile(1, p95_ms=20.0), BatchProfile(2, p95_ms=30.0))),)), tmp_path / "one.json")
    rng = np.random.default_rng(0)
    lines = [f"{at},{at + took},served,m" for at, took in zip(
        np.cumsum(rng.exponential(0.05, 300)), rng.uniform(0.008, 0.02, 300), strict=True)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["arrival_s,finish_s,outcome,model", *lines]))
    ran = run("audit", log, "--profiles", tmp_path / "one.json", "--workers", 1, "--slo-ms", 25,
              "--scheduler", "round-robin:grid=fixed:20,max_queue=8")
    assert ran.code == 0, ran.err
    assert ("the best policy is below what was achieved: it is simulated with the profile's 95th "
            "percentiles, and most batches take less") in " ".join(ran.out.split())


def test_the_command_refuses_what_it_cannot_judge(run, tiny_file, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("came_ms,net\n1,small\n2,small\n")
    base = ["audit", path, "--profiles", tiny_file, "--workers", 1]
    refused(run(*base), 3, "other.csv", "no column says the arrival of requests")
    refused(run(*base, "--column", "arrival=came_ms"), 3, "no deadline", "--slo-ms")
    refused(run(*base, "--column", "arrival"), 2, "FIELD=NAME")
    refused(run(*base, "--column", "colour=net"), 2, "no such field")
    refused(run(*base, "--scheduler", "greedy"), 2, "not policies")
    refused(run(*base, "--seeds", "9" * 30), 2, "--seeds", "100000")
    refused(run("audit", tmp_path / "none.csv", "--profiles", tiny_file, "--workers", 1), 3,
            "cannot read file")


@pytest.mark.parametrize("length_ms", [700.0, 997.0, 1311.0, 5300.0])
def test_levels_of_a_short_log_go_up_to_its_peak_and_no_further(length_ms):
    """Even arrivals: no half second has more than the mean, however the log is cut into them."""
    times_ms = np.arange(0.5, length_ms, 1000.0 / 311.0)
    day = Day(tiny_profile(), "p95", 1.0, times_ms, (SloClass(50.0),), {})
    loads = day.levels_qps()
    assert len(set(loads)) == len(loads)
    assert max(loads) <= 1.27 * 311.0
