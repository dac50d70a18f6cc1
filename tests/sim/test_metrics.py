"""Figures of runs, against sums by hand."""

import json
import math
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ramsis import profiles
from ramsis.errors import InvalidValueError
from ramsis.sim import (
    ConstantLoad,
    Estimate,
    Fixed,
    Fleet,
    Greedy,
    JellyfishPlus,
    Metrics,
    Policies,
    RateTrace,
    Recorded,
    Run,
    over_time,
)
from ramsis.sim.metrics import measure
from ramsis.sim.time_series import timeline, write_timeline
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy
from tests.reference.metrics import figures
from tests.runs import run_plan, simulate_profile
from tests.sim.samples import Logged, anything, fleet, lattice_arrivals, run, tiny


def by_hand() -> Run:
    """Two workers, 10 ms each on m0 (accuracy 0.5): five queries, one too late, at 15 ms."""
    own = fleet([[10.0]], [0.5], workers=2, slo_ms=15.0)
    return run(own, partial(Logged, log=[]), [0.0, 1.0, 2.0, 3.0, 4.0], 25.0)


def same_figures(done: Run) -> None:
    """One pass over the queries comes to what whole arrays do."""
    found = measure(done)
    for name, value in figures(done).items():
        expected = value if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)
        assert getattr(found, name) == expected, name
    same = measure(done, np.ones(done.requests, dtype=bool))  # as of a scenario
    for name in (item.name for item in fields(Metrics)):
        value = getattr(found, name)
        assert getattr(same, name) == (value if value is None else pytest.approx(
            value, rel=1e-12, abs=1e-12)), name


def test_figures_of_a_run_that_is_worked_out_by_hand():
    found = measure(by_hand())  # starts 0, 1, 10, 11, 20; answers 10, 11, 20, 21, 30
    assert (found.queries, found.in_time, found.late) == (5, 2, 3)
    assert (found.accuracy, found.violation_rate, found.effective_accuracy) == (0.5, 0.6, 0.2)
    assert found.response_p50_ms == 18.0
    assert found.utilisation == pytest.approx((10 + 10 + 10 + 10 + 5) / 50.0)
    assert found.queue_mean == pytest.approx((8 + 8 + 16) / 25.0)
    assert found.queue_max == 2
    assert (found.batches, found.batch_mean, found.batch_p99) == (5, 1.0, 1.0)
    assert found.model_share == {"m0": 1.0}
    assert found.offered_qps == 200.0


def test_a_run_without_queries_has_no_accuracy():
    empty = run(fleet([[10.0]]), partial(Logged, log=[]), [])
    found = measure(empty)
    assert found.accuracy is None
    assert found.response_p99_ms is None
    assert (found.violation_rate, found.effective_accuracy, found.queue_mean) == (0.0, 0.0, 0.0)
    assert np.isnan(over_time(empty, 500.0).accuracy).all()


@settings(max_examples=40, deadline=None)
@given(lattice_arrivals(), st.integers(0, 2**32), st.sampled_from([7.0, 50.0, 1000.0]))
def test_figures_agree_with_plain_loops_over_the_queries(arrivals, seed, bin_ms):
    own = fleet([[3.0, 5.0], [8.0, 20.0]], [0.4, 0.9], workers=2, slo_ms=15.0)
    duration = float(arrivals[-1]) + 1.0 if len(arrivals) else 10.0
    done = run(own, anything(seed).start, arrivals.tolist(), duration)
    found = measure(done)
    same_figures(done)
    total, good = 0.0, 0
    for query, batch in enumerate(done.batch_of):
        if batch >= 0 and done.finish_ms[batch] <= done.arrival_ms[query] + 15.0:
            good += 1
            total += own.table.accuracy[done.model[batch]]
    n = len(arrivals)
    assert found.in_time == good
    assert found.effective_accuracy == pytest.approx(total / n if n else 0.0)
    if good:
        assert found.accuracy == pytest.approx(total / good)
        assert found.effective_accuracy == pytest.approx(
            (found.accuracy or 0.0) * (1 - found.violation_rate))
    area = sum(min(left, duration) - came
               for left, came in zip(done.served_ms, done.arrival_ms, strict=True))
    assert found.queue_mean == pytest.approx(area / duration)
    series = over_time(done, bin_ms)
    assert series.queries.sum() == n
    assert series.in_time.sum() == good
    lengths = np.minimum(bin_ms, duration - series.start_ms)
    assert (series.queue_mean * lengths).sum() == pytest.approx(area, abs=1e-6)
    assert (series.utilisation * lengths).sum() / duration == pytest.approx(found.utilisation)
    assert np.nansum(series.effective_accuracy * series.queries) == pytest.approx(total)
    answered = done.batch_of >= 0
    for i, start in enumerate(series.start_ms):
        inside = ((done.arrival_ms >= start) & (done.arrival_ms < start + bin_ms) & answered)
        begun = (done.start_ms >= start) & (done.start_ms < min(start + bin_ms, duration))
        if inside.any():
            models = done.model[done.batch_of[inside]]
            assert series.model_share[i].tolist() == [(models == m).mean() for m in (0, 1)]
            response = done.finish_ms[done.batch_of[inside]] - done.arrival_ms[inside]
            assert series.response_p95_ms[i] == pytest.approx(np.quantile(response, 0.95))
        assert np.isnan(series.batch_mean[i]) == (not begun.any())
        if begun.any():
            assert series.batch_mean[i] == pytest.approx(done.size[begun].mean())


@pytest.mark.parametrize("late", ["drop", "serve"])
@pytest.mark.parametrize("monitored", [False, True])
def test_figures_of_policies_are_those_of_whole_arrays(late, monitored):
    """Far beyond capacity too, where response times pass the SLO many times over."""
    settings_ = SynthesisSettings(slo_ms=100.0, workers=4, late=late, headroom=0.0)
    policies = Policies([modelled_policy(tiny(), load, settings_) for load in (50.0, 200.0)])
    own = Fleet.of(tiny(), workers=4, slo_ms=100.0, service="distribution")
    for load in (60.0, 2000.0):
        done = run_plan(own, policies.prepare(own), ConstantLoad(load, 20_000.0),
                        monitored=monitored)
        same_figures(done)
        assert measure(done).dropped > 0 or late == "serve" or load < 100.0


def test_bins_must_be_lengths_of_time():
    for bad in (0.0, -1.0, math.nan, 1e-9):
        with pytest.raises(InvalidValueError, match="bin_ms"):
            over_time(by_hand(), bad)


def test_intervals_are_those_of_student():
    values = [0.1, 0.5, 0.3, 0.9]
    found = Estimate.of(values, 0.9)
    low, high = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.half_width == pytest.approx((high - low) / 2)
    assert Estimate.of([2.0]) == Estimate(2.0, None)
    assert Estimate.of(3 * [0.1]).half_width == 0.0  # whose mean by NumPy is another number
    assert math.isnan(Estimate.of([]).mean)
    with pytest.raises(InvalidValueError, match="confidence"):
        Estimate.of(values, 1.0)


def test_results_give_rows_and_frames():
    result = simulate_profile(tiny(), JellyfishPlus(), ConstantLoad(300.0, 1000.0), workers=4,
                      slo_ms=100.0, seeds=[3, 4, 5])
    frame = result.to_frame()
    assert frame["seed"].tolist() == [3, 4, 5]
    row = result.row()
    assert row["queries"] == frame["queries"].sum()
    assert row["effective_accuracy"] == pytest.approx(frame["effective_accuracy"].mean())
    assert row["accuracy_half_width"] == result.estimate("accuracy").half_width
    assert sum(row["model_share"].values()) == pytest.approx(1.0)
    json.dumps(row)
    with pytest.raises(InvalidValueError, match="unknown figure"):
        result.estimate("speed")


def test_series_give_frames():
    frame = over_time(by_hand(), 5.0).to_frame()
    assert frame["start_ms"].tolist() == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert frame["queries"].tolist() == [5, 0, 0, 0, 0]
    assert frame["share_m0"].tolist()[0] == 1.0


def test_a_trace_is_monitored_and_a_constant_load_told_unless_asked_otherwise():
    trace = RateTrace([0.0, 500.0], [100.0, 200.0])
    for workload, forced, monitored in (
        (trace, None, True), (ConstantLoad(100.0, 1000.0), None, False),
        (trace, False, False), (ConstantLoad(100.0, 1000.0), True, True),
    ):
        result = simulate_profile(tiny(), Greedy(), workload, workers=1, slo_ms=100.0,
                                  monitor=forced)
        assert result.monitored == monitored


@pytest.mark.parametrize(("changes", "words"), [
    ({"seeds": []}, "seeds"),
    ({"seeds": [-1]}, "seeds"),
    ({"workload": Recorded(np.arange(100_000) * 1e-6)},
     r"peak load \(most requests in 0.1 ms\) is beyond"),
    ({"workload": ConstantLoad(1e9, 10.0)}, "peak load"),
])
def test_bad_runs_are_refused(changes, words):
    workload = changes.pop("workload", ConstantLoad(10.0, 100.0))
    with pytest.raises(InvalidValueError, match=words):
        simulate_profile(tiny(), Fixed("small"), workload, workers=1, slo_ms=100.0, **changes)


def test_a_timeline_has_every_batch_on_its_workers_track(tmp_path):
    done = by_hand()
    write_timeline({"one": done, "two": done}, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert events == timeline({"one": done, "two": done})["traceEvents"]
    batches = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["tid"], e["ts"], e["dur"], e["args"]) for e in batches[:3]] == [
        (1, 0.0, 10000.0, {"batch": 1, "late": 0}), (2, 1000.0, 10000.0, {"batch": 1, "late": 0}),
        (1, 10000.0, 10000.0, {"batch": 1, "late": 1}),
    ]
    waiting = [e["args"]["requests"] for e in events if e["ph"] == "C" and e["pid"] == 2]
    assert waiting == [0, 3, 2, 1, 0]  # at 0, 5, 10, 15, 20 ms, what starts then left out


def test_drops_stand_in_the_timeline():
    own = fleet([[60.0]], slo_ms=100.0)
    done = run(own, Greedy("drop").prepare(own).start, [0.0, 1.0])
    (drop,) = [e for e in timeline({"x": done})["traceEvents"] if e["ph"] == "i"]
    assert (drop["ts"], drop["args"]) == (60000.0, {"request": 1})


def test_response_times_beyond_every_bin_are_counted():
    """They were written outside of the array."""
    result = simulate_profile(
        profiles.load("digits-cpu"), Greedy(), ConstantLoad(400.0, 2000.0), workers=4,
        slo_ms=25.0, network_ms=1e12, keep_runs=True)
    (found,), (ran,) = result.metrics, result.runs
    response_ms = (ran.answered_ms - ran.arrival_ms)[ran.answered]
    assert (found.response_p50_ms, found.response_p99_ms) == pytest.approx(
        np.quantile(response_ms, (0.5, 0.99)).tolist())
    assert found.in_time == 0


def test_runs_without_a_violation_have_an_interval():
    """The rule of three from both sides; recorded requests with fixed times are exact."""
    drawn, recorded = (simulate_profile(tiny(), Greedy(late="drop"), workload, workers=20,
                                        slo_ms=100.0, seeds=range(4))
                       for workload in (ConstantLoad(100.0, 5000.0),
                                        Recorded(np.arange(0.0, 5000.0, 10.0))))
    for name in ("violation_rate", "effective_accuracy"):
        half = drawn.estimate(name).half_width
        requests = sum(one.queries for one in drawn.metrics)
        assert half is not None
        assert 3.8 / requests < half < 8.0 / requests
        assert recorded.estimate(name).half_width == 0.0
    assert drawn.violation_rate == recorded.violation_rate == 0.0
