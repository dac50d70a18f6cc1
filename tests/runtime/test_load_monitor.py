"""The load monitor: a sliding average that equals counting every arrival anew."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.runtime import LoadMonitor
from tests.reference.lookup import observed_load_qps

STEPS = st.lists(st.tuples(st.floats(0.0, 300.0), st.integers(0, 5)), min_size=1, max_size=60)


@given(steps=STEPS, window_ms=st.sampled_from([1.0, 100.0, 500.0]))
def test_the_load_is_that_of_counting_anew(steps, window_ms):
    monitor, now_ms = LoadMonitor(window_ms), 0.0
    arrivals: list[tuple[float, int]] = []
    for gap_ms, count in steps:
        now_ms += gap_ms
        if count:
            monitor.record(now_ms, count)
            arrivals.append((now_ms, count))
        expected = observed_load_qps(arrivals, steps[0][0], now_ms, window_ms)
        assert monitor.load_qps(now_ms) == pytest.approx(expected, rel=1e-12)


def test_the_monitor_keeps_only_what_lies_in_the_window():
    monitor = LoadMonitor(window_ms=10.0)
    for now_ms in range(10_000):
        monitor.record(now_ms)
    assert len(monitor._recent) == 10
    assert monitor.load_qps(20_000.0) == 0.0


@pytest.mark.parametrize(("now_ms", "count", "message"), [
    *((now_ms, 1, "time goes back or is not finite")
      for now_ms in (4.999, -math.inf, math.inf, math.nan)),
    *((6.0, count, "not a number of arrivals") for count in (0, -1, math.nan))])
def test_what_is_no_arrival_is_refused_and_changes_nothing(now_ms, count, message):
    monitor = LoadMonitor()
    monitor.record(5.0)
    with pytest.raises(InvalidValueError, match=message):
        monitor.record(now_ms, count)
    assert monitor.load_qps(5.0) == 20.0


@pytest.mark.parametrize("window_ms", [0.0, math.inf, math.nan])
def test_a_window_without_length_is_refused(window_ms):
    with pytest.raises(InvalidValueError, match="window_ms: not a length of time"):
        LoadMonitor(window_ms)
