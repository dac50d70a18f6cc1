"""Sampling: what is run how often, what ends it, what is recorded, and its stated error."""

import gc
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError
from ramsis.profiles.measure import MeasureSettings, StopRule, sample_batches, sampling
from ramsis.profiles.measure.environment import foreign_load, spells_of
from ramsis.profiles.measure.sampling import CONFIDENCE, ranks, relative_error, sample_interleaved
from ramsis.sim import SlowSpells

RULE = StopRule(min_samples=30, max_samples=30)
TAIL = (1 - CONFIDENCE) / 2
LEVEL = 0.95


@dataclass
class FakeModel:
    """Takes ``latency_ms(batch)`` on a clock of its own, so that no test waits."""

    latency_ms: Callable[[int], float]
    now_ns: int = 0
    runs: list[int] = field(default_factory=list)

    def prepare(self, batch: int) -> int:
        return batch

    def run(self, prepared: int) -> None:
        self.runs.append(prepared)
        self.now_ns += round(self.latency_ms(prepared) * 1e6)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], FakeModel]:
    """Makes a model of its latencies, and lets the sampling read that model's clock."""

    def make(latency_ms: Callable[[int], float]) -> FakeModel:
        model = FakeModel(latency_ms)
        monkeypatch.setattr(sampling, "perf_counter_ns", lambda: model.now_ns)
        return model

    return make


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


@pytest.mark.parametrize(("limits", "n"), [
    ({"max_samples": 300}, 300), ({"seconds_per_batch": 1.5}, 150),
    ({"seconds_per_batch": 0.0}, 100)
])
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
    found = sample_batches(fake(lambda batch: 10.0 * batch), (1, 2), StopRule(max_latency_ms=15))
    assert ([item.batch for item in found.batches], found.note) == ([1, 2], None)


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


@pytest.mark.parametrize(("name", "value"), [
    ("percentile", "p42"), ("relative_error", 0.0), ("relative_error", math.nan),
    ("min_samples", 0), ("max_samples", 99), ("seconds_per_batch", -1.0),
    ("max_latency_ms", 0.0)
])
def test_a_rule_out_of_range_names_its_value(name, value):
    with pytest.raises(InvalidValueError, match=f"^{name}: .*got "):
        StopRule(**{name: value})  # type: ignore[arg-type]


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


class Logged:
    """Takes a time; keeps the order of the runs."""

    def __init__(self, name: str, log: list[tuple[str, int]], fails_from: int = 99) -> None:
        self.name, self.log, self.fails_from, self.runs = name, log, fails_from, 0

    def prepare(self, batch: int) -> int:
        return batch

    def run(self, batch: int) -> None:
        self.runs += 1
        if batch >= self.fails_from and self.runs > 8:  # not yet when it is probed
            raise MemoryError
        self.log.append((self.name, batch))
        time.sleep(1e-5)


def test_models_and_batch_sizes_alternate_at_random():
    log: list[tuple[str, int]] = []
    models = {name: Logged(name, log) for name in ("a", "b", "c")}
    found = list(sample_interleaved(models, (1, 2), RULE, rng=np.random.default_rng(1)))
    assert sorted(name for name, _, _ in found) == ["a", "b", "c"]
    assert all([one.n for one in sampled.batches] == [30, 30] for _, sampled, _ in found)
    trace = found[-1][2]
    assert trace.keys == log[3 * 2 * 3 :]  # all but the probes
    rounds = [trace.keys[i : i + 6] for i in range(0, 180, 6)]
    assert all(len(set(one)) == 6 for one in rounds)  # each once a round
    assert len({tuple(one) for one in rounds}) > 25  # in another order each time


def test_a_batch_size_that_fails_ends_itself_and_larger_ones():
    log: list[tuple[str, int]] = []
    models = {"a": Logged("a", log), "b": Logged("b", log, fails_from=2)}
    found = {name: sampled for name, sampled, _ in sample_interleaved(models, (1, 2, 4), RULE)}
    assert [one.batch for one in found["a"].batches] == [1, 2, 4]
    assert [one.batch for one in found["b"].batches] == [1]
    assert found["b"].note is not None
    assert "from 2 on, which failed (MemoryError" in found["b"].note


def drawn(share: float, runs: int, length: float, rng: Any) -> list[bool]:
    """Whether each run is slow, in a chain with spells of so many runs."""
    slow, found = False, []
    for _ in range(runs):
        flips = 1.0 / length if slow else share / (1.0 - share) / length
        slow = bool(rng.random() < flips) != slow
        found.append(slow)
    return found


def test_spells_are_fitted_to_those_that_were_there():
    rng = np.random.default_rng(3)
    slow = drawn(0.1, 20_000, 5.0, rng)
    keys = [(name, 1) for name in rng.choice(["a", "b"], len(slow)).tolist()]
    usual = np.where([name == "a" for name, _ in keys], 2.0, 4.0) * rng.lognormal(0, 0.05, 20_000)
    found = spells_of(keys, (usual * np.where(slow, 3.0, 1.0)).tolist())
    assert found["factor"] == pytest.approx(3.0, rel=0.03)
    assert found["share"] == pytest.approx(0.3 / 1.2, rel=0.1)  # of the time
    assert found["length_ms"] == pytest.approx(5 * 3 * 3.0, rel=0.1)
    assert found["autocorrelation"] == pytest.approx(1 - 1 / 5 - 1 / 9 / 5, abs=0.05)
    assert SlowSpells.recorded({"slow_spells": found}).factor == found["factor"]


def test_independent_runs_are_not_correlated():
    rng = np.random.default_rng(4)
    found = spells_of([("a", 1)] * 5000, rng.lognormal(0, 0.05, 5000).tolist())
    assert set(found) == {"autocorrelation"}  # none is slow
    assert abs(found["autocorrelation"]) < 0.05
    assert spells_of([("a", 1)] * 5, [1.0] * 5) is None


def test_foreign_load_is_what_others_keep_busy(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0.0, 0.0), raising=False)
    assert foreign_load(1.0) == 1.5
    assert foreign_load(4.0) == 0.0


def test_an_unknown_order_is_refused():
    with pytest.raises(InvalidValueError, match="order: unknown order: got 'sorted'"):
        MeasureSettings(order="sorted")


def at_most(count: int, n: int, level: float) -> float:
    """P(B ≤ count), B binomial, summed up term by term."""
    return math.fsum(math.comb(n, k) * level**k * (1 - level) ** (n - k) for k in range(count + 1))


@settings(deadline=None)
@given(st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_ranks_are_the_tightest_of_their_confidence(n, level):
    found = ranks(n, level)
    if found is None:
        too_few_above = 1 - at_most(n - 1, n, level) > TAIL
        too_few_below = at_most(0, n, level) > TAIL
        assert too_few_above or too_few_below
        return
    lower, upper = found
    assert 1 <= lower < upper <= n
    assert at_most(lower - 1, n, level) <= TAIL < at_most(lower, n, level)
    assert 1 - at_most(upper - 1, n, level) <= TAIL + 1e-12
    assert upper == 1 or 1 - at_most(upper - 2, n, level) > TAIL - 1e-12


def test_too_few_samples_state_no_error():
    assert relative_error(np.ones(71), LEVEL) is None
    assert relative_error(np.ones(72), LEVEL) == 0.0


def test_the_error_reaches_to_the_farther_end():
    samples = np.arange(1, 101.0)  # ranks 90 and 100; numpy's p95 is 95.05
    assert relative_error(samples, LEVEL) == pytest.approx((95.05 - 90) / 95.05)


def coverage(draw: NDArray[np.float64], truth: float, turn: int) -> float:
    """Share of the samples, one per row, whose stated error reaches to the true percentile."""
    hits = [abs(np.quantile(row, LEVEL) - truth)
            <= (relative_error(row, LEVEL, turn) or 0) * np.quantile(row, LEVEL) + 1e-12
            for row in draw]
    return float(np.mean(hits))


def test_independent_samples_lie_within_the_stated_error():
    draw = 10 + np.random.default_rng(0).exponential(1, (1000, 200))
    slack = 4 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 1000)
    assert coverage(draw, 10 - math.log(1 - LEVEL), turn=10) >= CONFIDENCE - slack


def test_slow_spells_widen_the_stated_error():
    """Turns that share a delay: the plain interval is too narrow, the widened one is not."""
    rng = np.random.default_rng(1)
    shared = np.repeat(rng.exponential(1, (1000, 50)), 10, axis=1)
    draw = 10 + rng.exponential(1, (1000, 500)) + shared
    truth = 10 + 4.743865  # of the sum of two exponentials: (1 + x) exp(-x) = 0.05
    assert (1 + 4.743865) * math.exp(-4.743865) == pytest.approx(1 - LEVEL, rel=1e-5)
    assert coverage(draw, truth, turn=1) < 0.85
    assert coverage(draw, truth, turn=10) > 0.88
