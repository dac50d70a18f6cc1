"""What the search of a rule computes, against plain Python."""

from dataclasses import replace

import numpy as np
import pytest

from ramsis import load_profile
from ramsis.cluster import ServiceTimes
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim import Fleet
from ramsis.sim.cascades import served
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.cascades import _kernels
from ramsis.synthesis.cascades.rule import Numbers, problems_of
from ramsis.synthesis.cascades.search import Sample, best_rules
from ramsis.synthesis.simulated import prepared_policy
from tests.cascades.samples import profile_with_confidences

PRICE = 0.7


@pytest.mark.parametrize("numbers", [Numbers(), Numbers(work=0.1, least=(1.03, 1.03))])
def test_worth_and_second_opinions_are_those_of_the_record_of_a_run(numbers):
    profile = profile_with_confidences(4_000)
    assert profile.confidences is not None
    policy = generate_policy(profile, 12_800.0, SynthesisSettings(
        slo_ms=60.0, workers=4, service="p95", dispatch="central-queue", headroom=0.0))
    fleet, _ = prepared_policy(policy)
    problem = problems_of(policy, fleet, profile.confidences)[0]
    placed = PlacedCascade(problem.tables(numbers), problem.expected_increment)
    sample = Sample(policy, fleet, 12_800.0, 4_000, 5)
    room, outcomes = served(placed, fleet, sample.requests)
    in_time = sample.in_time(outcomes.answered_ms, fleet.slo_ms)
    opinions = sample.opinions(room, outcomes, placed.increment.shape)
    assert opinions.sum() > 0.05
    for _ in range(2):  # the room of a run is that of the next
        worth, counted = sample.worth(placed, PRICE)
        assert worth == pytest.approx(
            np.where(in_time, outcomes.accuracy[sample.counted], -PRICE).mean(), abs=1e-12)
        np.testing.assert_allclose(counted, opinions)


@pytest.mark.parametrize("seed", range(6))
def test_the_filled_table_has_the_best_batch_of_every_state(seed):
    rng = np.random.default_rng(seed)
    models, batches, levels, bins = 3, 5, 4, 12
    times = np.cumsum(rng.uniform(0.2, 3.0, (models, batches)), axis=1)
    worth, price = rng.random((levels, models)), rng.uniform(0.0, 0.4, levels)
    least = rng.integers(0, batches + 1, levels)
    step_ms, spare_ms = 1.0, 2.5
    model, size = np.empty((2, levels, batches, bins), dtype=np.int16)
    _kernels.fill(worth, price, times, times, least, (step_ms, spare_ms), model, size)
    for level, row, j in np.ndindex(levels, batches, bins):
        values = {(m, b + 1): (b + 1) * worth[level, m] - price[level] * times[m, b]
                  for m in range(models) for b in range(row + 1)
                  if times[m, b] <= j * step_ms + SLACK_TOLERANCE_MS}
        if not values:
            assert size[level, row, j] == 0
            continue
        m, b = max(values, key=lambda key: values[key])
        waits = row + 1 < least[level] and (j * step_ms - times[m, min(b, batches - 1)] > spare_ms)
        assert size[level, row, j] == (-1 if waits else b)
        assert model[level, row, j] == m


def test_fixed_times_end_within_a_slack_or_not():
    profile = profile_with_confidences(4_000)
    times = ServiceTimes.of_all(profile, "p95", 4)
    for time_ms in (0.0, float(times.quantiles_ms[1, 2, 0]), 1e9):
        np.testing.assert_array_equal(times.cdf(time_ms), times.quantiles_ms[..., 0] <= time_ms)
    fleet = Fleet.of(profile, workers=2, slo_ms=60.0, service="p95")
    assert replace(fleet, slo_ms=1.0).service_times.cdf(0.0).sum() == 0.0


def test_thresholds_that_ask_nobody_are_no_rule():
    profile = load_profile("digits-cpu")
    fast = generate_policy(profile, 17_800.0, SynthesisSettings(
        slo_ms=60.0, workers=4, service="p95", dispatch="central-queue", headroom=0.0))
    assert profile.confidences is not None
    problems = problems_of(fast, prepared_policy(fast)[0], profile.confidences)
    (_, tables), *_ = best_rules(fast, problems, 1.0)
    assert tables.unsure_bins.any()
