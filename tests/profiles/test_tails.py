"""The tail that the batches of a profile share, and which batches share it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import gammainc

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
def test_batches_of_one_distribution_share_all_their_samples(law):
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


def test_a_model_that_is_slower_is_left_out():
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


def test_a_tail_starts_higher_where_batches_differ_below():
    """Spreads that differ tenfold say nothing of outliers, which all have alike."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(40):
        times = rng.normal(1.0, 0.01 if i % 2 else 0.08, 200) + 4.0 * (rng.random(200) < 0.005)
        found.append(Deviations.of(np.sort(times), np.full(200, 0.005), 200))
    tails = shared({"m": found})
    assert 1.0 / 200 <= sum(tails.common.share) < 0.1
    assert tails.common.above(np.array([3.0]))[0] == pytest.approx(0.005, rel=0.4)


def test_the_last_model_is_not_left_out_with_its_second_unlike_batch():
    """Of one model alone only the unlike batches are left out."""
    rng = np.random.default_rng(1)
    found = [Deviations.of(np.sort(1.0 + spread * rng.exponential(size=1000)),
                           np.full(1000, 1e-3), 1000) for spread in (*[0.01] * 12, *[1.0] * 3)]
    tails = shared({"m": found})
    assert tails.common.samples == 12_000


class Pool(NamedTuple):
    """Some batches taken together, by the text of the module alone."""

    samples: int
    start: float
    deviation: list[float]
    share: list[float]

    @classmethod
    def of(cls, pooled: list[Deviations], top: float) -> Pool:
        samples = sum(one.samples for one in pooled)
        points = sorted(((value, weight * one.samples / samples) for one in pooled
                         for value, weight in zip(one.values, one.weights, strict=True)),
                        key=lambda point: -point[0])
        above = np.cumsum([0.0, *(weight for _, weight in points)])
        moment = np.cumsum([0.0, *(value * weight for value, weight in points)])
        halvings = max(math.log2(top * samples), 0.0)
        edges = [*(top * 2.0 ** (-k / 4) for k in range(int(4 * halvings) + 1)), 0.0]
        share = [high - low for high, low in pairwise(edges)]
        mean = [(np.interp(high, above, moment) - np.interp(low, above, moment)) / (high - low)
                for high, low in pairwise(edges)]
        first = min(int(np.searchsorted(above, top)), len(points)) - 1
        return cls(samples, points[first][0], list(np.maximum.accumulate(mean)), share)

    def least(self, other: Deviations | Pool) -> float:
        """Least probability of as many samples above any point of the tail."""
        found = [1.0]
        for k, at in enumerate([self.start, *self.deviation[:-1]]):
            if isinstance(other, Pool):
                beyond = sum(share for value, share in zip(other.deviation, other.share,
                                                           strict=True) if value > at)
            else:
                beyond = float(other.weights[other.values > at].sum())
            if other.samples * beyond > 0.5:
                found.append(float(gammainc(other.samples * beyond,
                                            other.samples * sum(self.share[k:]))))
        return min(found)


def pooled_slowly(
    batches: dict[str, list[Deviations]], top: float
) -> tuple[Pool, dict[str, Pool]]:
    """What is left after the least probable batch or model is left out, again and again."""
    left = {name: list(found) for name, found in batches.items()}
    while True:
        common = Pool.of([one for found in left.values() for one in found], top)
        tried = [(common.least(one), name, i) for name, found in left.items()
                 for i, one in enumerate(found)]
        tried += [(common.least(Pool.of(found, top)), name, -1) for name, found in left.items()
                  if len(left) > 1]
        least, name, i = min(tried, key=lambda one: one[0])
        if least >= 1e-3 or sum(map(len, left.values())) == 1:
            return common, {name: Pool.of(left.get(name, found), top)
                            for name, found in batches.items()}
        second = len(left) > 1 and len(batches[name]) > len(left[name])
        rest = [] if i < 0 or second else [*left[name][:i], *left[name][i + 1:]]
        left = {**left, name: rest} if rest else {
            one: found for one, found in left.items() if one != name}


@pytest.mark.parametrize("seed", range(6))
def test_tails_are_as_worked_out_step_by_step(seed):
    """Batches and whole models are left out in the same order, and the same tails are left.

    With its second batch a model is left out.
    """
    rng = np.random.default_rng(seed)
    slow = np.zeros((4, 6))
    slow[0, :2] = 0.3
    slow[3, : seed + 1] = 0.15
    batches = dict[str, list[Deviations]]()
    for m in range(4):
        for share in slow[m]:
            count = int(rng.integers(20, 120))
            times = rng.normal(1.0, 0.02, count) + 2.0 * (rng.random(count) < share)
            batches.setdefault(f"m{m}", []).append(
                Deviations.of(np.sort(times), np.full(count, 1.0 / count), count))
    tails = shared(batches)
    common, models = pooled_slowly(batches, sum(tails.common.share))
    for found, wanted in [(tails.common, common),
                          *((tails.models[name], models[name]) for name in models)]:
        assert found.samples == wanted.samples
        assert found.start == pytest.approx(wanted.start, rel=1e-8)
        assert found.deviation == pytest.approx(wanted.deviation, rel=1e-7)
        assert found.share == pytest.approx(wanted.share, rel=1e-9)
    assert tails.common.samples < sum(one.samples for own in batches.values() for one in own)


def test_no_tail_of_no_samples():
    assert tails_of({}) is None
    assert tails_of({"m": []}) is None
    one = shared({"m": [samples(LAWS["log-normal"], 1, 0)]})
    assert one.common.samples == 1
