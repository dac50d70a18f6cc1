"""Levels, distributions and bins of the fleet's problem, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.central.problem import MANY_WORKERS, MAX_WORKERS, PARTS, idle_levels, queue_levels
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ModelProfile, ProfileSet
from ramsis.profiles.batch import BatchProfile
from ramsis.synthesis.recipes import RECIPES
from tests.central import samples


@given(workers=st.integers(1, MAX_WORKERS))
def test_idle_levels_rise_from_0_and_1_to_all_and_are_few(workers):
    levels = idle_levels(workers)
    assert levels[0] == 0
    assert levels[1] == 1
    assert levels[-1] == workers
    assert (np.diff(levels) >= 1).all()
    assert len(levels) <= 100


@given(workers=st.integers(1, 63))
def test_small_fleets_have_a_level_for_each_number_of_idle_workers(workers):
    assert idle_levels(workers).tolist() == list(range(workers + 1))


@given(largest=st.integers(1, 64), mean=st.floats(0.01, 1e5))
def test_queue_levels_are_exact_up_to_two_batches_and_reach_beyond_the_slo(largest, mean):
    levels = queue_levels(largest, mean)
    assert levels[: 2 * largest + 1].tolist() == list(range(2 * largest + 1))
    assert levels[-1] >= mean
    assert (np.diff(levels) <= np.maximum(1, levels[:-1] / largest)).all()


def test_the_age_of_the_head_has_the_erlang_law():
    problem = samples.problem(800.0)
    rng = np.random.default_rng(0)
    n = 7
    age = rng.gamma(n, 1 / problem.load, 400_000)
    found = np.histogram(problem.slo_ms - age, [-np.inf, *problem.slack_ms[1:], np.inf])[0]
    assert found / age.size == pytest.approx(problem.slack_distribution[1, n], abs=0.004)
    inside = problem.slack_distribution[1, n] > 1e-3
    edges = problem.slo_ms - np.append(problem.slack_ms, problem.slo_ms)
    for j in np.flatnonzero(inside):
        high = np.inf if j == 0 else edges[j]
        mine = age[(age > edges[j + 1]) & (age <= high)]
        assert problem.mean_age_ms[n, j] == pytest.approx(mine.mean(), rel=0.05)


@pytest.mark.parametrize("workers", [1, 2, 20, 1000])
def test_arrivals_until_a_worker_is_free_keep_the_mean(workers):
    problem = samples.problem(1000.0, workers=workers)
    mean = problem.arrivals_between @ np.arange(problem.arrivals_between.shape[1])
    assert mean == pytest.approx(problem.load * problem.mean_ms / workers, rel=1e-6)
    time = (problem.arrivals_between * problem.spacing_ms).sum(axis=1)
    assert time == pytest.approx(problem.mean_ms / workers, rel=1e-6)


def test_options_that_another_model_always_beats_are_left_out():
    problem = samples.problem(500.0)
    pairs = set(zip(problem.action_model.tolist(), problem.action_batch.tolist(), strict=True))
    distribution = problem.times
    for m, b in pairs:
        for other, _ in (pair for pair in pairs if pair[1] == b and pair[0] != m):
            beats = distribution.accuracy[other] >= distribution.accuracy[m] \
                and distribution.mean_ms[other, b - 1] <= distribution.mean_ms[m, b - 1]
            assert not beats
    assert {b for _, b in pairs} == set(range(1, 9))


def test_bins_after_a_drop_follow_the_share_of_the_queue_that_is_left():
    problem = samples.problem(300.0)
    n, d = 8, 4
    for j, age in enumerate(problem.mean_age_ms[n]):
        slack = problem.slo_ms - age / 2
        bin_ = problem.after_drop[n, d, j]
        assert problem.slack_ms[bin_] <= slack + 1e-9
        assert bin_ + 1 == len(problem.slack_ms) or slack < problem.slack_ms[bin_ + 1]


@pytest.mark.parametrize(("change", "where"), [
    ({"slo_ms": -1.0}, "slo_ms"), ({"workers": MAX_WORKERS + 1}, "workers"),
    ({"violation_price": -0.1}, "violation_price"), ({"grid": "fixed:1"}, "grid"),
    ({"max_queue": 0}, "max_queue"),
])
def test_values_out_of_range_are_named(change, where):
    with pytest.raises(InvalidValueError, match=f"^{where}: .*got .*allowed"):
        samples.problem(100.0, **change)


def test_an_slo_below_every_latency_is_infeasible():
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 3.9; allowed: at least 4 ms"):
        samples.problem(100.0, slo_ms=3.9)


@pytest.mark.parametrize(("load_qps", "change"), [
    (1e12, {}), (100.0, {"slo_ms": 1e6, "max_queue": 10_000}), (400.0, {"slo_ms": 1e9}),
])
def test_a_problem_that_would_fill_the_memory_is_refused(load_qps, change):
    with pytest.raises(InvalidValueError, match=r"^central queue: .*too large.*lower load"):
        samples.problem(load_qps, **change)


def test_batches_that_smaller_ones_in_a_row_outdo_are_left_out():
    times = {1: 10.0, 2: 15.0, 3: 30.0, 4: 30.0, 5: 46.0}  # 3 = 2 + 1 and 5 = 2 + 2 + 1 in a row
    profile = ProfileSet("bent", (ModelProfile("only", 0.7, tuple(
        BatchProfile(b, p95_ms=ms) for b, ms in times.items())),))
    chosen = samples.settings(max_queue=5)
    problem = RECIPES["central-queue"].problem(profile, 100.0, chosen)
    assert sorted(problem.action_batch.tolist()) == [1, 2]


@given(n=st.integers(2, 9), b=st.integers(1, 8))
def test_the_next_heads_age_has_the_law_of_random_instants(n, b):
    if b >= n:
        return
    problem = samples.problem(500.0, workers=1)
    action = int(np.flatnonzero(problem.action_batch == b)[0])
    instants = np.sort(np.random.default_rng(n * 10 + b).random((20_000, n - 1)), axis=1)
    oldest = instants[:, -b]  # ages behind the head, as shares of its age
    parts = np.split(np.sort(oldest), (np.cumsum(PARTS)[:-1] * oldest.size).astype(int))
    assert problem.left_age[n, action] == pytest.approx([np.median(p) for p in parts], abs=0.02)


def test_large_fleets_fluctuate_by_share_like_smaller_ones():
    one, many = (samples.problem(400.0 * workers, workers=workers)
                 for workers in (MANY_WORKERS, 4 * MANY_WORKERS))
    arrivals = np.arange(many.arrivals_between.shape[1])
    for problem, factor in ((one, 1.0), (many, 4.0)):
        distribution = problem.arrivals_between
        mean = distribution @ arrivals[: distribution.shape[1]]
        variance = distribution @ arrivals[: distribution.shape[1]] ** 2 - mean**2
        workers = problem.workers
        square = (variance - mean) / mean**2  # of the coefficient of variation of the spacing
        expected = factor * (workers - 1) / (workers + 1) / problem.action_batch
        assert square == pytest.approx(np.minimum(expected, 1.0), rel=0.02)
