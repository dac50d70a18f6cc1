"""Promises of scaling policies against runs that are only counted."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis import load_profile
from ramsis.bounds import Targets
from ramsis.scaling.fleet import ScaledFleet, play
from ramsis.scaling.policy import TableRule, choose_policy
from ramsis.scaling.promise import CONFIDENCE, PromisedFigure, drawn_arrivals, promise
from ramsis.scaling.synthesis import FleetLoads, fleet_tables
from ramsis.synthesis import SynthesisSettings
from tests.scaling.test_levels import _arrivals, _walk

_SLO_MS, _INTERVAL_S, _RUNS = 350.0, 15.0, 40


def test_the_mean_and_another_run_are_in_their_intervals():
    """Expected figures that are off by a mean, and scatter about it: skewed, as violations are."""
    rng = np.random.default_rng(0)
    repeats, mean_in, run_in = 400, 0, 0
    for _ in range(repeats):
        of = PromisedFigure.of(rng.gamma(2.0, 1.0, (150, 2)), 0.5 + 0.3 * rng.standard_normal(24))
        mean_in += abs(of.mean - 2.5) <= of.half_width
        run_in += of.low <= rng.gamma(2.0, 1.0) + 0.5 + 0.3 * rng.standard_normal() <= of.high
    assert mean_in >= (CONFIDENCE - 0.02) * repeats
    assert run_in >= (CONFIDENCE - 0.02) * repeats
    assert of.half_width < 0.5


@pytest.mark.slow
def test_runs_cost_and_deliver_what_is_promised():
    loads = _walk(120, 0.5, seed=3) / 8.0
    arrivals = _arrivals(loads)
    target, seconds = Targets(0.001, None, 0.79), 120 * _INTERVAL_S
    tables = fleet_tables(
        load_profile("image-cpu"),
        SynthesisSettings(slo_ms=_SLO_MS, workers=1, dispatch="round-robin", headroom=0.0),
        target, FleetLoads(float(loads.min()), 1.5 * float(loads.max()), 6, 1, 4))
    played = tables.for_fleet()
    fleet = ScaledFleet(_SLO_MS, 20.0, _INTERVAL_S, 1, 4)
    chosen = choose_policy(arrivals, tables, target, fleet, duration_s=seconds)
    promised = promise(chosen, tables, played, fleet, intervals=120, seed=1)
    runs = []
    for rng in np.random.default_rng(2).spawn(_RUNS):
        times, first_qps = drawn_arrivals(chosen.dynamics, 120, rng)
        runs.append(play(times, played, TableRule(chosen.table), slo_ms=_SLO_MS,
                         startup_s=20.0, interval_s=_INTERVAL_S, least=1, most=4,
                         start=chosen.table.wanted(first_qps, 0, 0), duration_s=seconds))
    for known, figures in ((promised.workers, [run.worker_s / seconds for run in runs]),
                           (promised.violation_rate, [run.violation_rate for run in runs]),
                           (promised.effective_accuracy,
                            [run.effective_accuracy for run in runs])):
        error = np.std(figures, ddof=1) / _RUNS ** 0.5
        assert abs(np.mean(figures) - known.mean) <= known.half_width + 3.0 * error
        assert np.mean([known.low <= one <= known.high for one in figures]) >= 0.95
    assert promised.workers.half_width <= 0.03 * promised.workers.mean
