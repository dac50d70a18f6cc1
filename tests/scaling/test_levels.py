"""Dynamics of loads: what is fitted is what the load was drawn from."""

import numpy as np
import pytest

from ramsis.arrivals.trace import RateTrace
from ramsis.errors import InvalidValueError
from ramsis.scaling.levels import fit_loads, interval_loads

_INTERVAL_S = 15.0


def _arrivals(loads, seed=0):
    step_ms = 1000 * _INTERVAL_S
    trace = RateTrace(step_ms * np.arange(len(loads)), loads, step_ms * len(loads))
    return trace.arrivals_ms(np.random.default_rng(seed))


def _walk(intervals, carried, seed):
    rng = np.random.default_rng(seed)
    x = b = 0.0
    loads = []
    for error in rng.normal(0, 0.05, intervals):
        following = x + carried * b - 0.02 * x + error
        b = following - x
        x = following
        loads.append(200 * np.exp(x))
    return np.array(loads)


def test_loads_of_intervals_count_arrivals():
    loads = interval_loads([0.0, 100.0, 14_999.0, 15_000.0, 44_000.0], _INTERVAL_S, 50.0)
    assert loads == pytest.approx(np.array([3, 1, 1]) / _INTERVAL_S)


def test_a_trend_is_found_where_there_is_one():
    with_trend = _walk(1000, 0.8, seed=4)
    fitted = fit_loads(_arrivals(with_trend), duration_s=1000 * _INTERVAL_S,
                       interval_s=_INTERVAL_S)
    assert fitted.carried > 0.4
    without = _walk(1000, 0.0, seed=5)
    assert fit_loads(_arrivals(without), duration_s=1000 * _INTERVAL_S,
                     interval_s=_INTERVAL_S).carried < 0.2


def test_the_chain_keeps_the_mean_of_what_follows():
    known = fit_loads(_arrivals(_walk(400, 0.5, seed=6)), duration_s=400 * _INTERVAL_S,
                      interval_s=_INTERVAL_S)
    assert known.transition.sum(axis=1) == pytest.approx(np.ones(known.states))
    logs = np.repeat(np.log(known.levels_qps), len(known.trends))
    middle = slice(known.states // 3, 2 * known.states // 3)  # ends of the grid cut off
    following, likely = known.next_loads()
    assert (known.transition @ logs)[middle] == pytest.approx(
        (np.log(following) * likely).sum(axis=1)[middle], abs=1e-9)


def test_drawn_loads_spread_as_the_fitted_ones():
    loads = _walk(1500, 0.5, seed=7)
    known = fit_loads(_arrivals(loads), duration_s=1500 * _INTERVAL_S, interval_s=_INTERVAL_S)
    drawn = known.sample(10_000, np.random.default_rng(1))
    assert np.log(drawn).mean() == pytest.approx(np.log(loads).mean(), abs=0.15)
    assert np.diff(np.log(drawn)).std() == pytest.approx(np.diff(np.log(loads)).std(), rel=0.2)


def test_mirrored_loads_spread_alike_and_are_low_where_the_others_are_high():
    loads = _walk(400, 0.5, seed=8)
    known = fit_loads(_arrivals(loads), duration_s=400 * _INTERVAL_S, interval_s=_INTERVAL_S)
    one, other = (np.log([known.sample(60, np.random.default_rng(seed), mirrored=mirrored).mean()
                          for seed in range(200)]) for mirrored in (False, True))
    assert one.mean() == pytest.approx(other.mean(), abs=0.05)
    assert one.std() == pytest.approx(other.std(), rel=0.3)
    assert np.corrcoef(one, other)[0, 1] < -0.7


def test_a_trace_of_few_intervals_is_refused():
    with pytest.raises(InvalidValueError, match="too short"):
        fit_loads([1.0, 2.0], duration_s=30.0, interval_s=_INTERVAL_S)
    with pytest.raises(InvalidValueError, match="too short"):
        fit_loads([], duration_s=600.0, interval_s=_INTERVAL_S)
