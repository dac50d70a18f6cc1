"""Sampling: what is run how often, what ends it, and what it records."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.profiles.measure import StopRule, sample_batches
from tests.profiles.measured import FakeModel, fake

__all__ = ["fake"]

Make = Callable[[Callable[[int], float]], FakeModel]


def test_a_steady_model_is_finished_with_the_fewest_samples(fake):
    found = sample_batches(fake(lambda batch: 2.0 * batch), (1, 2, 4), StopRule())
    assert [item.batch for item in found.batches] == [1, 2, 4]
    assert [item.n for item in found.batches] == [100, 100, 100]
    assert [item.p95_ms for item in found.batches] == [2.0, 4.0, 8.0]
    assert [item.relative_error for item in found.batches] == [0.0, 0.0, 0.0]
    assert found.note is None


def test_an_unsteady_model_is_run_until_its_percentile_is_stable(fake):
    rng = np.random.default_rng(0)
    model = fake(lambda batch: float(rng.uniform(1, 10)))
    rule = StopRule(relative_error=0.02, max_samples=100_000, seconds_per_batch=math.inf)
    found = sample_batches(model, (1,), rule).batches[0]
    assert found.n is not None
    assert found.n > 100
    assert found.relative_error is not None
    assert found.relative_error <= 0.02
    assert found.p95_ms == pytest.approx(9.55, rel=0.02)


@pytest.mark.parametrize(
    ("limits", "n"),
    [({"max_samples": 300}, 300), ({"seconds_per_batch": 1.5}, 150),
     ({"seconds_per_batch": 0.0}, 100)],
)
def test_a_budget_ends_a_batch_size_that_is_not_stable(fake, limits, n):
    rng = np.random.default_rng(0)
    model = fake(lambda batch: float(rng.uniform(9.9, 10.1)))  # 10 ms on average
    rule = StopRule(relative_error=1e-15, **limits)
    found = sample_batches(model, (1,), rule).batches[0]
    assert found.n == pytest.approx(n, abs=rule.turn if n == 150 else 0)


def test_turns_go_round_the_batch_sizes(fake):
    model = fake(lambda batch: 1.0)
    sample_batches(model, (1, 2), StopRule(min_samples=20, max_samples=20, percentile="p50"))
    probes, turns = model.runs[:6], model.runs[6:]
    assert probes == [1, 1, 1, 2, 2, 2]
    assert turns == [1, 1, 1, 2, 2, 2] * 10  # one that is not counted, two that are


def test_the_first_batch_size_above_the_limit_is_the_last(fake):
    model = fake(lambda batch: 10.0 * batch)
    found = sample_batches(model, (1, 2, 3, 4, 8), StopRule(max_latency_ms=25))
    assert [item.batch for item in found.batches] == [1, 2, 3]
    assert found.note == "no batch sizes above 3, which takes longer than 25 ms"


def test_no_note_when_nothing_is_left_out(fake):
    found = sample_batches(fake(lambda batch: 10.0 * batch), (1, 2), StopRule(max_latency_ms=15))
    assert [item.batch for item in found.batches] == [1, 2]
    assert found.note is None


@pytest.mark.parametrize("after", [0, 50], ids=["at once", "after a while"])
def test_a_batch_size_that_fails_ends_it_and_keeps_the_smaller_ones(fake, after):
    runs = [0]

    def latency_ms(batch: int) -> float:
        runs[0] += batch == 4
        if batch == 4 and runs[0] > after:
            raise MemoryError("no room\nfor it")
        return 1.0

    found = sample_batches(fake(latency_ms), (1, 2, 4, 8), StopRule())
    assert found.note == "no batch sizes from 4 on, which failed (MemoryError: no room for it)"
    assert [(item.batch, item.n) for item in found.batches] == [(1, 100), (2, 100)]


def test_a_model_that_fails_at_once_has_no_batches(fake):
    def latency_ms(batch: int) -> float:
        raise RuntimeError

    assert sample_batches(fake(latency_ms), (1, 2), StopRule()).batches == ()


def test_an_interruption_is_not_taken_for_a_failure(fake):
    def latency_ms(batch: int) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_batches(fake(latency_ms), (1,), StopRule())
    assert gc.isenabled()


def test_garbage_is_collected_again_afterwards_and_not_while_timing(fake):
    seen: list[bool] = []

    def latency_ms(batch: int) -> float:
        seen.append(gc.isenabled())
        return 1.0

    sample_batches(fake(latency_ms), (1,), StopRule())
    assert seen == [True] * 3 + [False] * 110
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("name", "value"),
    [("percentile", "p42"), ("relative_error", 0.0), ("relative_error", math.nan),
     ("min_samples", 0), ("max_samples", 99), ("seconds_per_batch", -1.0),
     ("max_latency_ms", 0.0)],
)
def test_a_rule_out_of_range_names_its_value(name, value):
    with pytest.raises(InvalidValueError, match=f"^{name}: .*got "):
        StopRule(**{name: value})  # type: ignore[arg-type]


class Sleeper:
    """Sleeps for a random time in [10, 20) ms, and knows how long it slept.

    A busy machine wakes sleepers late, which is part of what is measured.
    """

    def __init__(self) -> None:
        self.slept_ms: list[float] = []

    def prepare(self, batch: int) -> int:
        return batch

    def run(self, prepared: int) -> None:
        start = time.perf_counter()
        time.sleep(0.010 + 0.010 * random.random())
        self.slept_ms.append((time.perf_counter() - start) * 1000)


def test_known_sleeping_times_are_recovered_within_five_percent():
    sleeper, rule = Sleeper(), StopRule(max_samples=100)
    found = sample_batches(sleeper, (1,), rule, quantiles=16).batches[0]
    counted = np.array(sleeper.slept_ms[3:]).reshape(10, 11)[:, 1:].ravel()
    assert found.quantiles_ms[0] >= 10.0
    bulk = found.levels < 0.9
    assert np.array(found.quantiles_ms)[bulk] == pytest.approx(
        np.quantile(counted, found.levels[bulk]), rel=0.05)
    assert found.quantiles_ms[-1] == pytest.approx(counted.max(), rel=0.05)
    assert found.p50_ms == pytest.approx(np.quantile(counted, 0.5), rel=0.05)
    assert found.p95_ms == pytest.approx(np.quantile(counted, 0.95), rel=0.05)


def test_a_budget_of_violations_takes_the_samples_that_it_needs():
    """Of four requests late for each of a far sample's, at the upper end of Jeffreys' interval."""
    assert StopRule().supporting(0.01).min_samples == 1005
    found = StopRule(min_samples=50, max_samples=60).supporting(0.001)
    assert found.min_samples == found.max_samples == 10_048
    assert StopRule(min_samples=5000, max_samples=6000).supporting(0.5).min_samples == 5000


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.5, float("nan")])
def test_a_budget_that_is_no_share_is_refused(budget):
    with pytest.raises(InvalidValueError, match="max_violation: out of range"):
        StopRule().supporting(budget)
