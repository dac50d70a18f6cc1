"""Audits of requests with a size: the log of a simulation has its own figures."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals import SizeDistribution
from ramsis.audit.request_log import Request, read_request_log, write_request_log
from ramsis.audit.simulated_log import requests_of_run
from ramsis.audit.sized import SizedAudit, audit_sized
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import load
from ramsis.sim import ConstantLoad
from ramsis.sized import SizedProblem, SizedRun, sized_scheduler
from ramsis.sized.simulate import run_sized
from tests.cli.command import refused

PROFILE = load("minilm-cpu")
SIZES = SizeDistribution((8, 20, 60, 250), (5, 3, 2, 1))


@cache
def played(slowness: float = 1.0, duration_s: float = 6.0) -> SizedRun:
    problem = SizedProblem.of(PROFILE, SIZES, slo_ms=300.0)
    return run_sized(problem, sized_scheduler("turbo-dp"),
                     ConstantLoad(35.0, 1000.0 * duration_s), 0, slowness=slowness)


def audited(tmp_path: Path, run: SizedRun, *schedulers: str) -> SizedAudit:
    write_request_log(tmp_path / "log.csv", requests_of_run(run.run, run.size), sized=True)
    return audit_sized(read_request_log(tmp_path / "log.csv"), PROFILE, 1, service="p95",
                       schedulers={text: sized_scheduler(text) for text in schedulers})


def test_the_log_of_a_simulation_has_its_figures_by_class(tmp_path):
    run = played()
    audit = audited(tmp_path, run, "turbo-dp", "replanned-dp")
    same, better = audit.replayed
    assert audit.achieved.effective_accuracy == pytest.approx(run.run.in_time.mean())
    assert same["effective_accuracy"] == pytest.approx(audit.achieved.effective_accuracy, abs=0.01)
    assert audit.achieved.service_factor == pytest.approx(1.0, abs=1e-6)
    assert audit.padding == pytest.approx(run.padding)
    assert audit.best == better
    assert audit.upper_bound is not None
    assert audit.upper_bound >= better["effective_accuracy"] > same["effective_accuracy"]
    for (low, high), share, in_time in zip(audit.ranges, audit.share, audit.in_time, strict=True):
        chosen = (run.size >= low) & (run.size <= high)
        assert share == pytest.approx(chosen.mean())
        assert in_time == pytest.approx(run.run.in_time[chosen].mean())


def test_slower_batches_show_in_the_service_factor(tmp_path):
    audit = audited(tmp_path, played(1.2, 20.0), "turbo-dp")
    assert audit.achieved.service_factor == pytest.approx(1.2, abs=1e-6)
    assert audit.replayed[0]["effective_accuracy"] == pytest.approx(
        audit.achieved.effective_accuracy, abs=0.03)


def request(arrival_s: float, size: int | None, slo_ms: float = 300.0) -> Request:
    return Request(arrival_s, arrival_s, arrival_s + 0.02, slo_ms, "served", "minilm-l6-v2", 1, 1,
                   0, None, size)


@pytest.mark.parametrize(("second", "error", "message"), [
    (request(2.0, None), InputFileError,
     "log: size: requests without a size: got 1; allowed: a size for each request"),
    (request(2.0, 9, 100.0), InputFileError, "several deadlines"),
    (request(2.0, 600), InvalidValueError, "a size beyond those of the profile: got 600"),
])
def test_logs_of_other_requests_are_refused(tmp_path, second, error, message):
    write_request_log(tmp_path / "log.csv", [request(1.0, 9), second], sized=True)
    with pytest.raises(error, match=message):
        audit_sized(read_request_log(tmp_path / "log.csv"), PROFILE, 1, service="p95",
                    schedulers={"tei": sized_scheduler("tei")})


def test_the_command_states_shares_by_size(run, tmp_path):
    record = played()
    log = tmp_path / "log.csv"
    write_request_log(log, requests_of_run(record.run, record.size), sized=True)
    command = ["audit", str(log), "--profiles", "minilm-cpu", "--workers", "1", "--scheduler",
               "replanned-dp"]
    text = run(*command).out
    assert "in time by size:" in text
    assert "share of all" in text
    row = run(*command, "--json").rows[0]
    assert row["best_policy"]["scheduler"] == "replanned-dp"
    assert row["gap_to_bound"] == pytest.approx(row["upper_bound"] - row["effective_accuracy"])
    assert np.sum([entry["share"] for entry in row["by_class"]]) == pytest.approx(1.0)
    (tmp_path / "audit.json").write_text(run(*command, "--json").out)
    assert run("report", tmp_path / "audit.json", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    for entry in (*row["by_class"], *row["best_policy"]["by_class"]):
        assert f">{entry['in_time_rate']:.2%}</td>" in page
    assert "Violations by cause" not in page
    refused(run(*command, "--seeds", "2"), 2, "--seeds is not for requests with a size.")
