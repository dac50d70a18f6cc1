"""Service laws: fixed or drawn, what is within a slack, what is never in time."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.cluster.service_times import ServiceLaw, carries_quantiles
from ramsis.errors import InvalidValueError
from tests.central.samples import drawn_profile
from tests.synthesis.samples import tiny_profile


def test_a_statistic_is_one_quantile() -> None:
    law = ServiceLaw.of(tiny_profile(), "p95", 8)
    assert law.quantiles_ms.shape == (3, 8, 1)
    assert law.mean_ms == pytest.approx(law.quantiles_ms[:, :, 0])
    assert (law.within(20.0) == (law.mean_ms <= 20.0)).all()


def test_probabilities_and_means_are_those_of_draws_by_inversion() -> None:
    law = ServiceLaw.of(drawn_profile(), "distribution", 4)
    rng = np.random.default_rng(0)
    for m, b in ((0, 0), (1, 2), (2, 1)):
        quantiles = law.quantiles_ms[m, b]
        levels = (np.arange(len(quantiles)) + 0.5) / len(quantiles)
        drawn = np.interp(rng.random(200_000), levels, quantiles)
        assert law.mean_ms[m, b] == pytest.approx(drawn.mean(), rel=2e-3)
        for slack in (*quantiles[[0, -1]], *rng.uniform(quantiles[0], quantiles[-1], 5)):
            assert law.within(slack)[m, b] == pytest.approx((drawn <= slack).mean(), abs=5e-3)


def test_batches_that_are_never_in_time_take_for_ever() -> None:
    law = ServiceLaw.of(tiny_profile(), "p95", 8).usable(30.0)
    assert law.models == ("small", "medium", "large")
    assert law.max_batch == 8
    assert np.isfinite(law.mean_ms).sum(axis=1).tolist() == [8, 4, 1]
    assert ServiceLaw.of(tiny_profile(), "p95", 8).usable(10.0).models == ("small", "medium")


def test_quantiles_are_carried_only_where_every_batch_has_them() -> None:
    assert carries_quantiles(drawn_profile())
    assert not carries_quantiles(tiny_profile())


def test_an_unknown_service_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"^service: .*p42.*distribution"):
        ServiceLaw.of(tiny_profile(), "p42", 8)
