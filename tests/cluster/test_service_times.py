"""Service times: fixed or drawn, quantile and distribution functions, what is never in time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.cluster import _kernels
from ramsis.cluster.service_times import ServiceTimes, carries_quantiles, near_levels, quantile
from ramsis.errors import InvalidValueError
from tests.central.samples import drawn_profile
from tests.synthesis.samples import tiny_profile


def test_probabilities_and_means_are_those_of_draws_by_inversion():
    times = ServiceTimes.of(drawn_profile(), "distribution", 4)
    rng = np.random.default_rng(0)
    for m, b in ((0, 0), (1, 2), (2, 1)):
        quantiles = times.quantiles_ms[m, b]
        drawn = np.interp(rng.random(200_000), times.levels, quantiles)
        assert times.mean_ms[m, b] == pytest.approx(drawn.mean(), rel=2e-3)
        for slack in (*quantiles[[0, -1]], *rng.uniform(quantiles[0], quantiles[-1], 5)):
            assert times.cdf(slack)[m, b] == pytest.approx((drawn <= slack).mean(), abs=5e-3)


def test_batches_that_are_never_in_time_take_for_ever():
    times = ServiceTimes.of(tiny_profile(), "p95", 8).without_late(30.0)
    assert times.models == ("small", "medium", "large")
    assert times.max_batch == 8
    assert np.isfinite(times.mean_ms).sum(axis=1).tolist() == [8, 4, 1]
    few = ServiceTimes.of(tiny_profile(), "p95", 8).without_late(10.0)
    assert few.models == ("small", "medium")


def test_quantiles_are_carried_only_where_every_batch_has_them():
    assert carries_quantiles(drawn_profile())
    assert not carries_quantiles(tiny_profile())


def test_an_unknown_service_is_refused():
    with pytest.raises(InvalidValueError, match=r"^service: .*p42.*distribution"):
        ServiceTimes.of(tiny_profile(), "p42", 8)


@given(values=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=30, unique=True),
       level=st.floats(0.0, 1.0))
def test_quantile_and_cdf_are_inverse_and_equal_when_compiled(values, level):
    values = sorted(values)
    times = ServiceTimes(("m",), np.array([0.5]), np.array([[values]]), "distribution")
    time_ms = float(quantile(values, times.levels, level))
    assert times.quantile(level)[0, 0] == time_ms
    assert times.cdf(time_ms)[0, 0] == _kernels.cdf(np.array(values), times.levels, time_ms)
    if len(values) > 1:
        assert _kernels.quantile(times.quantiles_ms, times.levels, near_levels(times.levels),
                                 (0, 0), level) == time_ms
        half, gap = 0.5 / len(values), float(np.diff(values).min())
        back = float(times.cdf(time_ms)[0, 0])
        if half < level < 1.0 - half and gap > 1e-6 * values[-1]:
            assert back == pytest.approx(level, abs=1e-6)
        else:
            assert values[0] <= time_ms <= values[-1] * (1 + 1e-12)


def test_batches_that_a_model_lacks_are_not_run():
    lacks = [np.inf, np.inf]
    times = ServiceTimes(("a", "b"), np.array([0.5, 0.7]),
                         np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], lacks]]),
                         "distribution")
    assert times.distributed
    assert times.lowest_ms == 1.0
    assert times.mean_ms.tolist() == [[1.5, 3.5], [5.5, np.inf]]
    assert times.quantile(0.5).tolist() == [[1.5, 3.5], [5.5, np.inf]]
    assert times.cdf(1e9).tolist() == [[1.0, 1.0], [1.0, 0.0]]
    twice = times.scaled(2.0)
    assert twice.mean_ms.tolist() == [[3.0, 7.0], [11.0, np.inf]]
    assert times.same_as(times.scaled(1.0))
    assert not times.same_as(twice)
