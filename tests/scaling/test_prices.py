"""Scaling policies for prices in place of a target: beside all others of a small case."""

import json
import math
from itertools import product

import numpy as np
import pytest

from ramsis.arrivals.trace import RateTrace
from ramsis.cli.main import _run
from ramsis.errors import InvalidValueError
from ramsis.report.page import write_report
from ramsis.scaling.comparison import tune
from ramsis.scaling.fleet import FleetTerms, ScaledFleet, play
from ramsis.scaling.levels import fit_loads
from ramsis.scaling.policy import _ByPrice
from ramsis.scaling.policy_file import SavedScaling
from ramsis.scaling.prices import Delivered, Prices
from ramsis.scaling.rules import made
from ramsis.schemas import check_schema
from tests.cli.command import refused
from tests.scaling.test_levels import _arrivals, _walk

_INTERVAL_S, _MOST, _PER_WORKER_QPS = 15.0, 3, 250.0


class _Tables:
    """Each worker more answers a share of what is left, and more accurately."""

    accuracy = 0.8
    largest_qps = 180.0  # so that no load beyond those of the dynamics gets a level

    def delivered(self, load_qps, workers):
        each = workers * _PER_WORKER_QPS / load_qps
        return 0.8 * (1.0 - np.exp(-2.0 * each)), np.exp(-3.0 * each)


def _mean_cost(thresholds, dynamics, prices):
    """Worker-seconds a second of a table, losses at their prices, with a start-up of an interval.

    States are the load and the workers that are active; of each beginning its own mean.
    """
    loads, likely = dynamics.next_loads()
    lost = np.empty((dynamics.states, _MOST + 1))
    for workers in range(_MOST + 1):
        accuracy, violation = _Tables().delivered(loads, workers)
        each = prices.violation * violation + prices.accuracy * (0.8 - accuracy)
        lost[:, workers] = (each * loads * likely).sum(axis=1)
    step = np.zeros((dynamics.states, _MOST + 1, dynamics.states, _MOST + 1))
    cost = np.empty((dynamics.states, _MOST + 1))
    for s, active in product(range(dynamics.states), range(_MOST + 1)):
        start, keep = thresholds[s]
        on = max(min(active, keep), start)
        cost[s, active] = on + lost[s, min(active, on)]
        step[s, active, :, on] = dynamics.transition[s]
    size = cost.size
    lazy = 0.5 * (step.reshape(size, size) + np.eye(size))
    return (np.linalg.matrix_power(lazy, 1 << 14) @ cost.ravel()).min()


@pytest.mark.parametrize(("violation", "accuracy"), [(0.05, 0.0), (0.0, 0.03), (0.02, 0.01)])
def test_no_other_thresholds_of_a_small_case_cost_less(violation, accuracy):
    dynamics = fit_loads(_arrivals(_walk(200, 0.0, seed=7)), duration_s=200 * _INTERVAL_S,
                         interval_s=_INTERVAL_S, levels=3, trends=1)
    prices = Prices(violation, accuracy)
    make = _ByPrice(dynamics, _Tables(), ScaledFleet(350.0, _INTERVAL_S, _INTERVAL_S, 1, _MOST),
                    0.0, math.inf, 0.0)
    table, decisions, _ = make.finally_at(prices)
    ours = _mean_cost([row[0] for row in table.thresholds], dynamics, prices)
    pairs = [(start, keep) for keep in range(_MOST + 1) for start in range(keep + 1)]
    others = [_mean_cost(chosen, dynamics, prices) for chosen in product(pairs, repeat=3)]
    assert ours <= min(others) * (1.0 + 1e-9)
    assert max(others) > 1.2 * ours
    # What the certificate says is what no worker at all would cost, less what ours costs.
    none = _mean_cost([(0, 0)] * 3, dynamics, prices)
    assert decisions.average / _INTERVAL_S == pytest.approx(
        none - ours, abs=decisions.span / _INTERVAL_S)
    assert len(set(table.thresholds)) > 1


def test_a_cost_counts_what_is_late_and_what_is_less_accurate_than_the_best_model():
    run = Delivered(worker_s=100.0, violation_rate=0.1, effective_accuracy=0.63, requests=200)
    assert Prices(2.0, 5.0).total(run, 0.8) == pytest.approx(100.0 + 200 * (0.2 + 5.0 * 0.17))


@pytest.mark.parametrize("price", [-1.0, math.inf, math.nan])
def test_prices_are_finite_and_not_below_0(price):
    with pytest.raises(InvalidValueError, match="not a price"):
        Prices(0.0, price)


_SMALL = ["--profiles", "image-cpu", "--slo-ms", "350", "--trace", "day", "--scale", "0.03",
          "--stretch", "6", "--max-workers", "4", "--levels", "6", "--startup-s", "10"]
_COSTS = ["--cost-per-worker-s", "0.0001", "--cost-per-violation", "0.002",
          "--cost-per-accuracy-point", "0.00001"]
_VIOLATION, _ACCURACY = 20.0, 10.0
"""The same in worker-seconds."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("priced") / "out"
    assert _run(["scale", *_SMALL, *_COSTS, "--compare", "--json", "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_each_row_costs_what_it_used_and_lost_and_none_is_below_the_bound(folder):
    results = json.loads((folder / "results.json").read_text())
    check_schema(results, "ramsis.cli.output", "results-1", "results.json")
    rows = results["rows"]
    best = SavedScaling.load(folder).played.accuracy.max()
    for row in rows:
        assert row["meets_target"] is None
        assert row["cost_worker_s"] == pytest.approx(row["worker_s"] + row["requests"] * (
            _VIOLATION * row["violation_rate"] + _ACCURACY * (best - row["effective_accuracy"])))
        assert row["cost"] == pytest.approx(1e-4 * row["cost_worker_s"])
        assert row["cost_worker_s"] >= results["bound"]["cost_worker_s"]
    assert results["bound"]["cost_worker_s"] > 0.5 * rows[0]["cost_worker_s"]
    assert rows[0]["cost_worker_s"] <= 1.02 * min(row["cost_worker_s"] for row in rows)
    promised = results["promise"]["cost"]
    assert promised["low"] <= rows[0]["cost_worker_s"] / results["fitted"]["seconds"] <= (
        promised["high"])


@pytest.mark.slow
def test_the_file_of_a_priced_policy_has_its_prices_and_is_played(run, folder, tmp_path):
    document = json.loads((folder / "scaling.json").read_text())
    assert document["target"] is None
    assert document["prices"] == pytest.approx(
        {"violation_worker_s": _VIOLATION, "accuracy_worker_s": _ACCURACY})
    assert run("validate", folder / "scaling.json", folder / "results.json").code == 0
    (row,) = run("simulate", "--scaling", folder, "--trace", "day", "--scale", "0.03", "--stretch",
                 "6", "--from-s", "900", "--json").rows
    known = json.loads((folder / "results.json").read_text())["rows"][0]
    assert row["cost_worker_s"] == pytest.approx(known["cost_worker_s"], rel=1e-12)
    del document["promise"]["cost"]
    (folder / "damaged.json").write_text(json.dumps(document))
    refused(run("validate", folder / "damaged.json"), 3, "promise", "cost")
    write_report([folder / "results.json"], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert ("violations and missed accuracy included; with one model per request no scheduler "
            "costs less than") in text


@pytest.mark.slow
def test_a_static_fleet_is_tuned_to_the_least_cost(folder):
    saved = SavedScaling.load(folder)
    assert isinstance(saved.target, Prices)
    arrivals = RateTrace(np.zeros(1), np.array([45.0]), 60_000.0).arrivals_ms(
        np.random.default_rng(0))
    fleet = {"slo_ms": 350.0, "startup_s": 10.0, "interval_s": 15.0, "least": 1, "most": 4,
             "duration_s": 60.0, "seed": 0}
    best = saved.played.accuracy.max()
    chosen = set()
    for scale in (0.02, 1.0, 50.0):
        prices = Prices(scale * _VIOLATION, scale * _ACCURACY)
        costs = {workers: prices.total(Delivered.of(play(
            arrivals, saved.played, made("static", {"workers": workers}),
            FleetTerms(start=workers, **fleet))),
            best) for workers in range(1, 5)}
        tuned = tune("static", arrivals, saved.played, prices, FleetTerms(start=1, **fleet))
        assert tuned["workers"] == min(costs, key=lambda workers: costs[workers])
        chosen.add(tuned["workers"])
    assert len(chosen) > 1


@pytest.mark.parametrize(("options", "code", "words"), [
    (["--cost-per-violation", "1", "--max-violation", "0.01"], 2,
     ("--max-violation", "--cost-per-violation")),
    (["--cost-per-accuracy-point", "1", "--min-effective-accuracy", "0.7"], 2,
     ("--min-effective-accuracy", "--cost-per-accuracy-point")),
    (["--cost-per-violation", "-1"], 2, ("--cost-per-violation", "-1")),
    (["--cost-per-accuracy-point", "inf"], 2, ("--cost-per-accuracy-point",)),
    (["--cost-per-accuracy-point", "1e308"], 2, ("--cost-per-accuracy-point", "1e+308", "10000")),
    (["--cost-per-violation", "1e300"], 2, ("--cost-per-violation", "1e+300", "1e+06")),
    (["--cost-per-violation", "1e5", "--cost-per-worker-s", "0.01"], 2,
     ("--cost-per-violation", "100000", "0 to 10000")),
    (["--cost-per-worker-s", "1e308"], 2, ("--cost-per-worker-s", "1e+308", "up to 1e+06")),
    (["--cost-per-worker-s", "0"], 2, ("--cost-per-worker-s", "above 0")),
])
def test_costs_and_targets_that_do_not_fit_are_refused(run, tmp_path, options, code, words):
    refused(run("scale", *_SMALL, *options, "--out", tmp_path / "out"), code, *words)
    assert not (tmp_path / "out").exists()
