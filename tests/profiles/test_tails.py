"""The tail that the batches of a profile share, and which batches share it."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.profiles.tails import Deviations, Tails, tails_of
from tests.sim.raw_samples import LAWS, Law


def samples(law: Law, count: int, seed: int, median_ms: float = 20.0) -> Deviations:
    drawn = np.sort(law(np.random.default_rng(seed), count, median_ms))
    return Deviations.of(drawn, np.full(count, 1.0 / count), count)


def shared(batches: dict[str, list[Deviations]]) -> Tails:
    found = tails_of(batches)
    assert found is not None
    return found


@pytest.mark.parametrize("law", list(LAWS))
def test_batches_of_one_distribution_share_all_their_samples(law: str) -> None:
    """A hundred samples of each tell next to nothing; all of them the share of slow runs."""
    tails = shared({model: [samples(LAWS[law], 100, 100 * m + b, 2.0 + b) for b in range(12)]
                    for m, model in enumerate(("a", "b", "c", "d"))})
    assert tails.common.samples >= 4_700
    assert sum(tails.common.share) >= 0.05 - 1e-9
    many = samples(LAWS[law], 400_000, 7)
    for deviation in (1.5, 2.0):
        truth = float(many.above(np.array([deviation]))[0])
        found = float(tails.common.above(np.array([deviation]))[0])
        assert found == pytest.approx(truth, abs=3.0 * (truth / 4_800) ** 0.5 + 0.2 * truth)


def test_a_model_that_is_slower_is_left_out() -> None:
    """And keeps its own tail; a batch that is slower than its model's others, too."""
    rng = np.random.default_rng(1)
    quiet = [samples(LAWS["outlier"], 100, i) for i in range(20)]
    slow = [samples(LAWS["bimodal"], 100, i) for i in range(2)]
    tails = shared({"quiet": quiet, "slow": slow})
    assert tails.common.samples == 2_000
    assert not tails.common.is_like(tails.models["slow"])
    assert tails.models["slow"].samples == 200
    odd = np.sort(rng.normal(1.0, 0.03, 100) + 0.8 * (rng.random(100) < 0.2))
    tails = shared({"quiet": [*quiet, Deviations.of(odd, np.full(100, 0.01), 100)]})
    assert tails.common.samples == tails.models["quiet"].samples == 2_000


def test_a_tail_starts_higher_where_batches_differ_below() -> None:
    """Spreads that differ tenfold say nothing of outliers, which all have alike."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(40):
        times = rng.normal(1.0, 0.01 if i % 2 else 0.08, 200) + 4.0 * (rng.random(200) < 0.005)
        found.append(Deviations.of(np.sort(times), np.full(200, 0.005), 200))
    tails = shared({"m": found})
    assert 1.0 / 200 <= sum(tails.common.share) < 0.1
    assert tails.common.above(np.array([3.0]))[0] == pytest.approx(0.005, rel=0.4)


def test_no_tail_of_no_samples() -> None:
    assert tails_of({}) is None
    assert tails_of({"m": []}) is None
    one = shared({"m": [samples(LAWS["log-normal"], 1, 0)]})
    assert one.common.samples == 1
