"""Interleaved measurements: their order, slow spells, and other work on the machine."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.profiles.measure import MeasureSettings
from ramsis.profiles.measure.environment import foreign_load, spells_of
from ramsis.profiles.measure.sampling import StopRule, sample_interleaved
from ramsis.sim import SlowSpells

RULE = StopRule(min_samples=30, max_samples=30)


class Sleeper:
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
    models = {name: Sleeper(name, log) for name in ("a", "b", "c")}
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
    models = {"a": Sleeper("a", log), "b": Sleeper("b", log, fails_from=2)}
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
