"""What batches take."""

from typing import Any

import numpy as np
import pytest

from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.sim import Fleet
from tests.sim.samples import tiny


def sketched(*batches: BatchProfile) -> ProfileSet:
    return ProfileSet("s", (ModelProfile("m", 0.7, batches),))


def test_a_statistic_is_what_every_batch_takes():
    own = Fleet.of(tiny(), workers=2, slo_ms=100.0, service="p95", max_batch=8)
    assert own.service_times.quantiles_ms.shape == (3, 8, 1)
    assert (own.service_times.quantiles_ms[:, :, 0] == own.table.latency_ms).all()
    assert not own.service_times.distributed
    assert own.capacity_qps == pytest.approx(2000 * 8 / 18.0)


def test_capacity_counts_only_batches_within_the_slo():
    assert Fleet.of(tiny(), workers=1, slo_ms=11.0).capacity_qps == pytest.approx(4000 / 10.0)


def test_a_sketch_is_drawn_from_as_it_stands():
    sketch = tuple(np.linspace(5.0, 9.0, 32))
    own = Fleet.of(sketched(BatchProfile(1, quantiles_ms=sketch)), workers=1, slo_ms=50.0,
                   service="distribution", max_batch=1)
    assert own.service_times.quantiles_ms[0, 0] == pytest.approx(sketch)
    assert own.table.latency_ms[0, 0] == pytest.approx(np.quantile(sketch, 0.95), rel=0.02)


def test_statistics_alone_are_a_piecewise_linear_law_constant_above_p99():
    batch = BatchProfile(1, min_ms=2.0, p50_ms=4.0, p90_ms=8.0, p95_ms=9.0, p99_ms=10.0)
    own = Fleet.of(sketched(batch), workers=1, slo_ms=50.0, service="distribution", max_batch=1)
    times = own.service_times
    values = times.quantiles_ms[0, 0]
    known = np.interp(times.levels, [0.0, 0.5, 0.9, 0.95, 0.99], [2.0, 4.0, 8.0, 9.0, 10.0])
    assert values == pytest.approx(known, rel=0.015)
    assert values[-1] == pytest.approx(10.0)


def test_padded_filled_and_extended_batches_have_the_law_of_their_neighbours():
    def law(scale: float) -> tuple[float, ...]:
        return tuple(scale * np.linspace(0.8, 1.0, 20))

    profile = sketched(*(BatchProfile(b, quantiles_ms=law(ms))
                         for b, ms in ((1, 10.0), (2, 40.0), (4, 20.0), (6, 30.0))))
    own = Fleet.of(profile, workers=1, slo_ms=500.0, service="distribution", max_batch=9)
    drawn = own.service_times.quantiles_ms[0]
    assert drawn[0] == pytest.approx(law(10.0))
    assert drawn[1] == pytest.approx(law(20.0))  # a batch of 2 is padded to 4
    assert drawn[4] == pytest.approx(law(25.0))  # halfway between 4 and 6
    ratio = own.table.latency_ms[0, 8] / own.table.latency_ms[0, 5]
    assert drawn[8] == pytest.approx(ratio * np.array(law(30.0)))
    assert (np.diff(drawn, axis=1) >= 0).all()


def test_drawn_and_stated_p95_agree_where_batches_are_measured(reference_dir):
    from ramsis.profiles.importers import import_profile

    profile = import_profile(reference_dir / "ramsis_image_quantiles.csv",
                             accuracy=_accuracies(reference_dir))
    own = Fleet.of(profile, workers=60, slo_ms=150.0, service="distribution", max_batch=9)
    p95 = np.quantile(own.service_times.quantiles_ms, 0.95, axis=2)
    assert p95 == pytest.approx(own.table.latency_ms, rel=0.03)
    assert own.service_times.quantiles_ms.mean() < own.table.latency_ms.mean()


def _accuracies(folder: Any) -> dict[str, float]:
    from ramsis.profiles.importers import import_profile

    return {m.name: m.accuracy
            for m in import_profile(folder / "ramsis_image_profiles.csv").models}


@pytest.mark.parametrize(("changes", "words"), [
    ({"workers": 0}, "workers"),
    ({"slo_ms": float("nan")}, "slo_ms"),
    ({"network_ms": -1.0}, "network_ms"),
    ({"service": "p99"}, "p99"),
])
def test_bad_terms_are_refused(changes, words):
    with pytest.raises(InvalidValueError, match=words):
        Fleet.of(tiny(), **{"workers": 2, "slo_ms": 50.0, **changes})


def test_an_slo_below_every_latency_is_infeasible():
    with pytest.raises(InfeasibleError, match="below every latency"):
        Fleet.of(tiny(), workers=2, slo_ms=3.9)
