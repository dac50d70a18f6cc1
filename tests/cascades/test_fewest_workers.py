"""The fewest workers with second opinions: the bound, the search, its rows and refusals."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.bounds import (
    Targets,
    cascade_bound,
    fewest_workers_bound,
    fewest_workers_bound_with_cascades,
)
from ramsis.cluster import WorkerType
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import save
from ramsis.report.figure import plot_charts
from ramsis.report.page import write_report
from ramsis.report.simulations import capacity_charts
from ramsis.report.verdicts import bounded_schedulers, bounds_on_workers
from ramsis.sim import ConstantLoad, RateTrace
from ramsis.synthesis.capacity import fewest_workers
from tests.bounds.test_cascade_bound import PAIRS, TIMES, confidences
from tests.cli.command import refused

SLO_MS, LOAD_QPS, SCHEDULER = 60.0, 4_800.0, "central-queue:cascades=true"


def fewest(pairs: Any = PAIRS, load_qps: float = 300.0, **targets: Any) -> float:
    return fewest_workers_bound_with_cascades(
        TIMES, confidences(pairs), Targets(**targets), slo_ms=30.0, load_qps=load_qps)


@pytest.mark.parametrize("wanted", [0.72, 0.8, 0.86, 0.9])
def test_the_bound_on_workers_is_the_inverse_of_that_on_accuracy(wanted):
    """Of 1,000 workers' load, so that whole numbers are close to the bound."""
    load_qps = 100_000.0
    busy = fewest(load_qps=load_qps, min_effective_accuracy=wanted, max_violation=0.5)
    assert busy == pytest.approx(fewest(load_qps=300.0, min_effective_accuracy=wanted,
                                        max_violation=0.5) * load_qps / 300.0)
    below, above = (cascade_bound(
        TIMES, confidences(PAIRS), slo_ms=30.0, workers=workers, load_qps=load_qps).upper_bound
        for workers in (int(busy) - 1, int(busy) + 1))
    assert below < wanted <= above


def test_cascades_never_need_more_by_the_bound_than_one_model():
    for targets in (Targets(0.0), Targets(0.3), Targets(0.01, 0.8), Targets(0.01, 0.9),
                    Targets(0.1, None, 0.75)):
        one_model = fewest_workers_bound(TIMES, targets, slo_ms=30.0, load_qps=300.0)
        alone, asked = (fewest_workers_bound_with_cascades(
            TIMES, confidences(pairs), targets, slo_ms=30.0, load_qps=300.0)
            for pairs in ([], PAIRS))
        assert asked <= alone + 1e-9
        assert alone <= one_model + 1e-6
        if targets.min_accuracy is None and targets.min_effective_accuracy is None:
            assert asked == pytest.approx(one_model)
    assert fewest(max_violation=0.01, min_accuracy=0.8) < 0.9 * fewest(
        [], max_violation=0.01, min_accuracy=0.8)


@pytest.mark.parametrize(("targets", "name"), [
    ({"min_accuracy": 0.999}, "min_accuracy"),
    ({"min_effective_accuracy": 0.999}, "min_effective_accuracy")])
def test_an_accuracy_beyond_all_cascades_is_out_of_reach(targets, name):
    with pytest.raises(InfeasibleError, match=f"{name}: .* even with second opinions"):
        fewest(**targets)


def test_fewer_workers_are_enough_with_second_opinions(profile):
    targets = Targets(min_effective_accuracy=0.9366)
    workload = ConstantLoad(LOAD_QPS, 1_000.0)
    with_opinions, alone = (
        fewest_workers(profile, workload, targets, slo_ms=SLO_MS, service="p95", scheduler=name)
        for name in (SCHEDULER, "central-queue"))
    assert with_opinions.workers < alone.workers
    assert with_opinions.workers_bound <= with_opinions.workers
    row, other = with_opinions.row(), alone.row()
    assert row["effective_accuracy"] >= 0.9366
    assert row["second_opinions"] > 0.01
    assert row["gain"] > 2.0 * row["gain_error"] > 0.0
    assert 0.0 < row["effective_accuracy_half_width"] < 2e-3
    assert all("second_opinions" in trial for trial in row["trials"])
    assert not {"second_opinions", "gain", "gain_error"} & set(other)
    assert "or a cascade" in with_opinions._repr_html_()
    assert "cascade" not in alone._repr_html_()


def test_where_they_do_not_pay_the_row_says_so(profile, monkeypatch):
    monkeypatch.setattr("ramsis.synthesis.cascades.with_cascade", lambda policy, *_: policy)
    row = fewest_workers(
        profile, ConstantLoad(400.0, 1_000.0), Targets(min_accuracy=0.9),
        slo_ms=SLO_MS, service="p95", scheduler=SCHEDULER).row()
    assert row["workers"] == 1
    assert (row["second_opinions"], row["gain"]) == (0.0, 0.0)


def test_what_second_opinions_cannot_serve_is_refused(profile):
    varying = RateTrace(np.array([0.0, 1000.0]), np.array([100.0, 300.0]), 2000.0)
    constant = ConstantLoad(LOAD_QPS, 1_000.0)

    def search(types: Any = profile, workload: Any = constant, slo_ms: Any = SLO_MS) -> None:
        fewest_workers(types, workload, Targets(), slo_ms=slo_ms, scheduler=SCHEDULER)

    typed = [WorkerType("a", profile), WorkerType("b", profile)]
    for refused_search, word in (
        (lambda: search(typed), "workers of several types"),
        (lambda: search(workload=varying), "a constant load"),
        (lambda: search(replace(profile, confidences=None)), "no confidences")):
        with pytest.raises(InvalidValueError, match=f"cascades: .*{word}"):
            refused_search()


def test_the_command_adds_a_row_with_second_opinions(run, profile, tmp_path):
    file = tmp_path / "digits.json"
    save(profile, file)
    ran = run("capacity", "--profiles", file, "--slo-ms", "60", "--service", "p95", "--load",
              "3200", "--min-effective-accuracy", "0.93", "--cascades", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert [row["scheduler"] for row in document["rows"]] == [
        "round-robin", "central-queue", "round-robin:cascades=true", SCHEDULER]
    in_turn, alone, in_turn_cascades, cascades = document["rows"]
    assert "second_opinions" not in alone
    for without, with_ in ((in_turn, in_turn_cascades), (alone, cascades)):
        assert with_["workers"] <= without["workers"]
        assert with_["workers_bound"] <= without["workers_bound"]
    assert document["next"][3].endswith("--dispatch central-queue --cascades --out "
                                        f"policies-central-queue-cascades-{cascades['workers']}")


@pytest.fixture(scope="module")
def capacity_rows():
    """Rows of both kinds, as a search returns them."""
    row: dict[str, Any] = {
        "scheduler": "central-queue", "load_qps": 9_600.0, "workers": 4, "workers_bound": 4,
        "gap": 0, "bound_workers": 3.9, "slo_ms": 60.0, "service": "p95", "min_accuracy": None,
        "min_effective_accuracy": 0.93, "max_violation": 0.001, "accuracy": 0.9362,
        "violation_rate": 0.0, "effective_accuracy": 0.9362, "queries": 400_000, "seeds": 8,
        "clear": True, "tried": [4], "trials": []}
    return [row, {**row, "scheduler": SCHEDULER, "workers": 3, "workers_bound": 3,
                  "second_opinions": 0.13, "gain": 0.0111, "gain_error": 0.0012}]


def test_bounds_on_workers_are_named_by_their_schedulers(capacity_rows, tmp_path):
    assert bounds_on_workers(capacity_rows) == {
        "bound (one model per request)": {9_600.0: 4}, "bound (with cascades)": {9_600.0: 3}}
    assert [bounded_schedulers(row) for row in capacity_rows] == [
        "one model per request", "one model or a cascade per request"]
    file, page = tmp_path / "capacity.json", tmp_path / "page.html"
    file.write_text(json.dumps({"created_by": "test", "command": "ramsis capacity",
                                "rows": capacity_rows}))
    write_report([str(file)], page)
    text = page.read_text()
    for words in ("central-queue with cascades", "13.0% of the requests get a second opinion",
                  "bound (with cascades)", "gain by them",
                  "with one model or a cascade per request no scheduler does with fewer than 3"):
        assert words in text, words
    plot_charts(capacity_charts(capacity_rows), tmp_path / "capacity.svg")


@pytest.mark.parametrize(("options", "words"), [
    (("--load", "100", "--dispatch", "shortest-queue"),
     ("--dispatch round-robin or central-queue",)),
    (("--load", "100", "--scheduler", "shortest-queue:cascades=true"), ("--cascades", "queue")),
])
def test_the_command_refuses_cascades_that_cannot_be(run, options, words):
    more = () if "shortest-queue:cascades=true" in options else ("--cascades",)
    refused(run("capacity", "--profiles", "digits-cpu", "--slo-ms", "60", *options, *more), 2,
            *words)


def test_the_command_refuses_several_slos(run):
    refused(run("capacity", "--profiles", "digits-cpu", "--slo-ms", "25:0.5,60:0.5", "--load",
                "100", "--cascades"), 2, "--cascades", "one SLO")
