"""Sketches keep the mean and the tail of samples; older ones are given theirs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.cluster import ServiceTimes
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, load
from ramsis.profiles.sketch import averaged, hat_weights, sketch_levels, sketch_samples

MEASURED = {
    "log-normal": lambda rng: rng.lognormal(2.0, 0.6, 3000),
    "bimodal": lambda rng: np.where(rng.random(3000) < 0.9, 5.0, 40.0) + rng.random(3000),
    "one outlier in 500": lambda rng: np.where(np.arange(3000) % 500 == 7, 300.0, 5.0)
    + rng.random(3000),
}


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=300), st.integers(2, 40))
def test_the_mean_and_the_largest_sample_are_kept(samples, size):
    levels, values = sketch_samples(samples, size)
    assert hat_weights(levels).sum() == pytest.approx(1.0)
    assert hat_weights(levels) @ values == pytest.approx(np.mean(samples), rel=1e-9)
    assert values[-1] == pytest.approx(max(samples))
    assert (np.diff(values) >= 0).all()
    assert values[0] >= min(samples)


def test_the_levels_for_fewer_samples_are_some_of_those_for_more():
    many = sketch_levels(64, 100_000)
    for samples in (1, 10, 100, 500, 2000, 99_999):
        assert np.isin(sketch_levels(64, samples), many).all()
        assert 1.0 - sketch_levels(64, samples)[-2] <= max(1.0 / samples + 1e-9, 0.11)


@pytest.mark.parametrize("kind", MEASURED)
def test_probabilities_of_the_tail_are_those_of_the_samples(kind):
    samples = MEASURED[kind](np.random.default_rng(1))
    profile = ProfileSet("p", (ModelProfile("m", 0.5, (BatchProfile.from_samples(1, samples),)),))
    times = ServiceTimes.of(profile, "distribution", 1)
    assert times.mean_ms[0, 0] == pytest.approx(samples.mean(), rel=1e-6)
    assert times.samples[0, 0] == 3000
    for level in (0.5, 0.9, 0.95, 0.99, 0.997, 0.999):
        at = float(np.quantile(samples, level)) * 1.001
        late = float((samples > at).mean())
        assert 1.0 - times.cdf(at)[0, 0] == pytest.approx(late, rel=0.2, abs=1e-3)


def test_a_batch_of_fewer_samples_stands_at_the_levels_of_one_of_more_unchanged():
    rng = np.random.default_rng(2)
    few, many = rng.lognormal(1.0, 1.0, 150), rng.lognormal(2.0, 1.0, 5000)
    batches = (BatchProfile.from_samples(1, few), BatchProfile.from_samples(2, many))
    times = ServiceTimes.of(ProfileSet("p", (ModelProfile("m", 0.5, batches),)), "distribution", 2)
    assert times.mean_ms[0] == pytest.approx([few.mean(), many.mean()], rel=1e-6)
    assert times.quantiles_ms[0, :, -1] == pytest.approx([few.max(), many.max()], rel=1e-6)
    assert times.samples.tolist() == [[150, 5000]]


@pytest.mark.parametrize("name", ["digits-cpu", "text-cpu", "image-cpu"])
def test_shipped_sketches_get_the_mean_and_the_maximum_that_are_stated(name):
    profile = load(name)
    largest = max(item.batch for model in profile.models for item in model.batches)
    times = ServiceTimes.of_all(profile, "distribution", largest)
    padded = profile.latency_table("p95", largest).origin
    for m, model in enumerate(profile.models):
        for item in model.batches:
            if padded[m, item.batch - 1] == 0:
                assert times.mean_ms[m, item.batch - 1] == pytest.approx(item.mean_ms)
                assert times.quantiles_ms[m, item.batch - 1, -1] == pytest.approx(item.max_ms)


def test_points_are_averaged_under_hats():
    """Against a plain integral over a fine grid."""
    points, mass = np.array([1.0, 2.0, 10.0]), np.array([0.5, 0.4, 0.1])
    levels = np.array([0.2, 0.45, 0.7, 0.95, 1.0])
    p = (np.arange(200_000) + 0.5) / 200_000
    q = points[np.searchsorted(np.cumsum(mass), p)]
    hats = [np.interp(p, levels, np.eye(5)[i]) for i in range(5)]
    assert averaged(points, mass, levels) == pytest.approx(
        [float((q * hat).sum() / hat.sum()) for hat in hats], rel=1e-3)
