"""The drift test: its stated rate of false alarms, and how soon it finds what has changed."""

import numpy as np
import pytest

from ramsis.audit.drift import ARRIVALS, SERVICE, ArrivalDrift, Cusum, ServiceDrift, threshold


@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_false_alarms_are_as_rare_as_stated(shift):
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(150):
        side, length = Cusum(shift, 500.0), 0
        alarm = False
        while not alarm:
            length += 1
            alarm = side.add(float(rng.standard_normal()))
        lengths.append(length)
    assert np.mean(lengths) == pytest.approx(500.0, rel=0.25)


def test_a_rarer_alarm_needs_a_higher_threshold():
    assert threshold(0.5, 1e9) > threshold(0.5, 1e6) > threshold(1.0, 1e6) > 0


def drawn_ms(rng: np.random.Generator, mean_ms: float, spread: float) -> float:
    """Log-normal service times with a slow one in 200."""
    slow = 3.0 if rng.random() < 0.005 else 1.0
    return slow * mean_ms * float(np.exp(spread * rng.standard_normal() - spread**2 / 2))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("spread", [0.05, 0.25])
def test_longer_service_times_are_found_soon_and_quiet_gives_no_alarm(spread, known):
    """At 10 batches a second, 30 s are 300 batches."""
    rng = np.random.default_rng(1)
    means = {("small", 1): 4.0, ("small", 4): 9.0, ("large", 1): 11.0}
    keys = sorted(means)
    drift = ServiceDrift(lambda variant, batch: means[variant, batch] if known else None)
    for _ in range(60_000):
        key = keys[rng.integers(3)]
        assert drift.add(*key, drawn_ms(rng, means[key], spread)) is None
    alarms = []
    for key in rng.integers(3, size=250):
        alarms.append(drift.add(*keys[key], 1.3 * drawn_ms(rng, means[keys[key]], spread)))
    first = next(alarm for alarm in alarms if alarm)
    assert first.what == SERVICE
    assert first.ratio > 1.1


@pytest.mark.slow
def test_ten_quiet_hours_of_batches_give_no_alarm():
    """Half a million of them; then batches that take 30 % longer are reported within 30 s."""
    rng = np.random.default_rng(4)
    means = {("small", 1): 4.0, ("small", 4): 9.0, ("large", 1): 11.0}
    keys, per_s = sorted(means), 14
    drift = ServiceDrift(lambda variant, batch: means[variant, batch])
    drawn = {key: mean_ms * np.exp(0.2 * rng.standard_normal(100_000) - 0.02)
             for key, mean_ms in means.items()}
    for key, at in zip(rng.integers(3, size=36_000 * per_s).tolist(),
                       rng.integers(100_000, size=36_000 * per_s).tolist(), strict=True):
        assert drift.add(*keys[key], float(drawn[keys[key]][at])) is None
    assert any(drift.add(*keys[key], 1.3 * drawn_ms(rng, means[keys[key]], 0.2))
               for key in rng.integers(3, size=30 * per_s))


def test_shorter_service_times_are_found_too():
    rng = np.random.default_rng(2)
    drift = ServiceDrift(lambda variant, batch: 5.0)
    alarms = [drift.add("a", 1, drawn_ms(rng, 5.0, 0.1)) for _ in range(1000)]
    assert not any(alarms)
    found = [drift.add("a", 1, drawn_ms(rng, 3.5, 0.1)) for _ in range(300)]
    (first, *_) = [alarm for alarm in found if alarm]
    assert first.ratio < 0.9


def test_ten_quiet_hours_of_arrivals_at_the_highest_level_give_no_alarm():
    rng = np.random.default_rng(3)
    drift = ArrivalDrift(80.0)
    assert not any(drift.add(int(count)) for count in rng.poisson(80.0, 36_000))
    alarms = [drift.add(int(count)) for count in rng.poisson(104.0, 100)]
    (first, *_) = [alarm for alarm in alarms if alarm]
    assert first.what == ARRIVALS
    assert first.ratio == pytest.approx(1.3, abs=0.15)
