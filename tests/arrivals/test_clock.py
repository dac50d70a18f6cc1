"""The clock of recorded times, told from the values, and times within its ticks."""

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.arrivals import MarkovModulated
from ramsis.arrivals.reading import read_any_trace
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.arrivals.trace_formats.instants import Clock, clock_of
from ramsis.bounds import Targets
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis.capacity import fewest_workers


def poisson_ms(rate_qps: float, requests: int, seed: int = 0) -> FloatArray:
    return np.cumsum(np.random.default_rng(seed).exponential(1000.0 / rate_qps, requests))


def cut(times_ms: FloatArray, tick_ms: float) -> FloatArray:
    return tick_ms * np.floor(times_ms / tick_ms + 1e-9)


@pytest.mark.parametrize("tick_ms", [1.0, 10.0, 15.625, 100.0, 1000.0, 60_000.0])
def test_resolution_is_found(tick_ms):
    times = cut(poisson_ms(40.0, 20_000), tick_ms)
    clock = clock_of(times)
    assert (clock.tick_ms, clock.even) == (tick_ms, False)
    assert clock.shared == len(times) - len(np.unique(times))


@pytest.mark.parametrize("unit_ms", [1.0, 1000.0])
def test_unix_times_keep_their_clock(unit_ms):
    times = 1.77e12 + cut(poisson_ms(40.0, 5_000), 10.0)
    clock = clock_of(unit_ms * (times / unit_ms))
    assert clock.tick_ms == 10.0


def test_a_short_trace_has_a_usual_clock():
    # The only gap is 7 s: the tick is not.
    clock = clock_of(1000.0 * np.repeat([0.0, 7.0], 6))
    assert clock.tick_ms == 1000.0


@pytest.mark.parametrize("times", [
    25.0 * np.arange(2400),  # a load test at 40/s, whose requests lie on the grid
    poisson_ms(40.0, 5_000),
    1000.0 * np.floor(np.arange(2400) / 40.0)[:9],
    np.zeros(100),
], ids=["constant rate", "fine clock", "too few", "one instant"])
def test_no_clock_is_made_up(times):
    assert clock_of(times) is None


def test_requests_of_a_tick_are_spread_as_a_poisson_process_has_them():
    exact = poisson_ms(40.0, 20_000)
    times = cut(exact, 1000.0)
    clock = clock_of(times)
    spread = clock.spread(times)
    assert (cut(spread, 1000.0) == times).all()
    assert (np.diff(spread) >= 0).all()
    gaps = np.diff(spread)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert (spread == clock.spread(times)).all()


def test_a_constant_rate_is_spread_evenly():
    exact = 25.0 * np.arange(2400)
    clock = clock_of(cut(exact, 1000.0))
    assert clock.even
    assert np.diff(clock.spread(cut(exact, 1000.0))) == pytest.approx(25.0)


@pytest.mark.parametrize("exact_ms", [poisson_ms(100.0, 3000), 10.0 * np.arange(3000)],
                         ids=["poisson", "constant"])
def test_a_recording_that_starts_and_ends_within_a_tick_keeps_its_load(exact_ms):
    recorded = exact_ms[(exact_ms > 800.0) & (exact_ms < 25_200.0)]
    ticks = cut(recorded, 1000.0)
    spread = clock_of(ticks).spread(ticks)
    assert (cut(spread, 1000.0) == ticks).all()
    assert spread[0] == pytest.approx(800.0, abs=80.0)
    assert spread[-1] == pytest.approx(25_200.0, abs=80.0)


def test_a_tick_with_more_requests_than_the_next_is_whole():
    ticks = np.repeat([0.0, 1000.0, 2000.0, 3000.0], [90, 20, 20, 90])
    spread = Clock(1000.0, len(ticks), 216).spread(ticks)
    assert spread[0] < 100.0
    assert spread[-1] > 3900.0


def test_order_within_a_tick_is_kept():
    times = 1000.0 * np.array([3, 0, 0, 1, 3, 1, 0, 2, 2, 2, 3, 3], dtype=float)
    clock = clock_of(times)
    spread = clock.spread(times)
    for second in range(4):
        inside = spread[times == 1000.0 * second]
        assert (np.diff(inside) > 0).all()
        assert (inside // 1000.0 == second).all()


def test_words_say_what_is_not_seen():
    clock = clock_of(cut(poisson_ms(15.0, 900), 1000.0))
    assert clock.words() == ("timestamps have whole seconds: 900 requests spread within their "
                             "second; bursts shorter than 1 s cannot be seen")


SERVICE_MS, SLO_MS, RATE_QPS = 30.0, 100.0, 80.0
PROFILE = ProfileSet("one", (ModelProfile("one", 0.9, (BatchProfile(1, p95_ms=SERVICE_MS),)),))


def poisson(duration_ms: float, rng: np.random.Generator) -> FloatArray:
    return np.sort(rng.random(rng.poisson(RATE_QPS * duration_ms / 1000.0)) * duration_ms)


def moving(duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """Poisson arrivals whose load swings by half of its mean, in five minutes."""
    seconds = np.arange(int(duration_ms / 1000.0))
    rates_qps = RATE_QPS * (1.0 + 0.5 * np.sin(2 * np.pi * seconds / 300.0))
    return RateTrace(1000.0 * seconds, rates_qps, duration_ms).arrivals_ms(rng)


def bursts(duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """Bursts of 5 s at three times the load of quiet times."""
    return MarkovModulated(RATE_QPS, 3.0, 5000.0, 0.2).sample(duration_ms, rng)


def load_test(duration_ms: float, rng: np.random.Generator) -> FloatArray:
    return np.arange(0.0, duration_ms, 1000.0 / RATE_QPS) + rng.random()


@pytest.mark.parametrize("clock_ms", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("arrivals", [poisson, moving, bursts, load_test])
def test_workers_are_within_one_of_those_for_the_exact_times(tmp_path, arrivals, clock_ms):
    exact = arrivals(120_000.0, np.random.default_rng(3))
    path = tmp_path / "trace.csv"
    path.write_text("arrival_ms,model\n" + "".join(
        f"{time_ms:.3f},a\n" for time_ms in cut(exact, clock_ms)))
    known, read = (fewest_workers(
        PROFILE, trace, Targets(0.01, None, None), slo_ms=SLO_MS, scheduler="greedy:late=drop",
        seeds=(0, 1)) for trace in (Recorded(exact), read_any_trace(path).workload))
    assert abs(known.workers - read.workers) <= 1
    if clock_ms == 1.0:
        assert read.clear is not False
