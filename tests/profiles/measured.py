"""Models that take a known time, for tests of measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ramsis.profiles.measure import sampling


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
