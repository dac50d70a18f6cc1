"""The bound on worker-seconds: against fleets that are simulated, and exact optima."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.bounds import WorkerSecondsTerms, fewest_worker_seconds, least_cost
from ramsis.cluster import ServiceTimes
from ramsis.errors import InvalidValueError
from tests.slow import slow_after

Spans = list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Case:
    """A trace, what batches take, and a fleet; times in ms."""

    arrival: FloatArray
    slo: float
    startup: float
    batch_ms: FloatArray
    accuracy: FloatArray
    workers: list[Spans]
    fastest: bool

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """Loads that are even, that rise, and in bursts; some workers stay, others come and go."""
        rng = np.random.default_rng(seed)
        slo, models, size = float(rng.choice([20.0, 50.0, 100.0])), *rng.integers(1, [4, 9])
        first = np.sort(rng.uniform(0.05, 0.6, models)) * slo
        batch_ms = first[:, None] + (first * rng.uniform(0.05, 1.0, models))[:, None] * np.arange(
            size)
        count, length = int(rng.integers(5, 400)), slo * rng.uniform(2, 200)
        arrival = np.sort([
            rng.random(count) * length, rng.random(count) ** 3 * length,
            rng.choice(rng.random(5) * length, count) + rng.exponential(slo / 3, count),
        ][rng.integers(3)])
        startup = min(float(rng.choice([0.0, 0.3, 1.0, 3.0, 10.0])) * slo,
                      0.9 * float(arrival[-1] - arrival[0]))
        end = float(arrival[-1]) + slo
        workers: list[Spans] = []
        for k in range(int(rng.integers(1, 8))):
            cuts = np.sort(rng.random(2 * rng.integers(1, 5)) * end).tolist()
            always = k == 0 or rng.random() < 0.3
            workers.append([(0.0, end)] if always else
                           list(zip(cuts[::2], cuts[1::2], strict=True)))
        return cls(arrival, slo, startup, batch_ms, np.sort(rng.uniform(0.5, 1.0, models)),
                   workers, bool(rng.integers(2)))

    @property
    def times(self) -> ServiceTimes:
        names = tuple(f"m{m}" for m in range(len(self.accuracy)))
        return ServiceTimes(names, self.accuracy, self.batch_ms[:, :, None].copy(), "p95")

    def bound(self, **targets: Any) -> tuple[float, int]:
        """Worker-ms and peak."""
        found = fewest_worker_seconds(
            self.arrival, self.times, WorkerSecondsTerms(
                slo_ms=self.slo, startup_s=self.startup / 1000.0,
                max_batch=self.batch_ms.shape[1], **targets))
        return 1000.0 * found.worker_s, found.peak

    def batch(self, waiting: int, left: float) -> tuple[int, int]:
        """The model and batch that are run: the largest in time, most or least accurate."""
        fits = self.batch_ms[:, :waiting] <= left
        size = int(np.flatnonzero(fits.any(axis=0))[-1])
        able = np.flatnonzero(fits[:, size])
        return int(able[0 if self.fastest else -1]), size + 1

    def played(self) -> tuple[FloatArray, list[Spans]]:
        """What each answer is worth (0 if late), and when each worker is busy.

        An idle worker takes what is oldest; the first workers are preferred.
        """
        worth = np.zeros(len(self.arrival))
        busy: list[Spans] = [[] for _ in self.workers]
        free = [(start, k, end) for k, spans in enumerate(self.workers) for start, end in spans]
        heapq.heapify(free)
        queue: list[int] = []
        come = 0
        while free:
            now, k, end = heapq.heappop(free)
            while come < len(worth) and self.arrival[come] <= now:
                queue.append(come)
                come += 1
            queue = [i for i in queue
                     if self.arrival[i] + self.slo - now >= self.batch_ms[:, 0].min()]
            if not queue:
                if come < len(worth) and self.arrival[come] < end:
                    heapq.heappush(free, (float(self.arrival[come]), k, end))
                continue
            model, size = self.batch(len(queue), float(self.arrival[queue[0]]) + self.slo - now)
            done = now + float(self.batch_ms[model, size - 1])
            if done <= end:
                worth[queue[:size]] = self.accuracy[model]
                busy[k].append((now, done))
                del queue[:size]
                heapq.heappush(free, (done, k, end))
        return worth, busy

    def paid(self, workers: list[Spans]) -> float:
        """Worker-ms of workers that serve at some times, each from its start-up on."""
        total = 0.0
        for spans in workers:
            until = 0.0
            for start, end in sorted(spans):
                begun = max(0.0, start - self.startup, until)
                total += max(0.0, end - begun)
                until = max(until, end)
        return total


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_fleet_is_below_it_in_500_traces(part):
    """Fleets that come and go, and the same ones that know when they will be busy."""
    checked, near = 0, []
    for seed in range(50 * part, 50 * part + 50):
        case = Case.drawn(seed)
        worth, busy = case.played()
        if not worth.any():
            continue
        violations, effective = float((worth == 0).mean()), float(worth.mean())
        targets = [{"max_violation": violations}, {"min_effective_accuracy": effective},
                   {"max_violation": violations, "min_effective_accuracy": effective}][seed % 3]
        low, peak = case.bound(**targets)
        assert peak <= len(case.workers), seed
        assert low <= case.paid(busy) * (1 + 1e-9), seed
        assert case.paid(busy) <= case.paid(case.workers) * (1 + 1e-9), seed
        near.append(low / case.paid(busy))
        checked += 1
    assert checked > 40
    assert max(near) > 0.8


@pytest.mark.parametrize("part", slow_after(1, range(2)))
def test_no_fleet_costs_less_at_prices(part):
    """Worker time, violations and missed accuracy of the same fleets, at prices that are drawn."""
    near = []
    for seed in range(50 * part, 50 * part + 50):
        case = Case.drawn(seed)
        worth, busy = case.played()
        rng = np.random.default_rng([seed, 1])
        violation, accuracy = (rng.choice([0.0, 0.2, 1.0, 5.0], 2)
                               * case.batch_ms.mean() / 1000.0)
        missed = case.accuracy.max() - worth
        cost_s = (case.paid(busy) / 1000.0 + violation * np.count_nonzero(worth == 0)
                  + accuracy * missed.sum())
        low = least_cost(
            case.arrival, case.times, WorkerSecondsTerms(
                slo_ms=case.slo, startup_s=case.startup / 1000.0,
                max_batch=case.batch_ms.shape[1]),
            violation_worker_s=violation, accuracy_worker_s=accuracy)
        assert low <= cost_s * (1 + 1e-9) + 1e-12, seed
        near.append(low / cost_s if cost_s else 1.0)
    assert max(near) > 0.8


@pytest.mark.parametrize(("first_ms", "last_ms"), [
    (0.0, 12345.67891), (250.0, 1234567.125), (0.1, 999.9999999), (0.0, 12345.6), (1.0, 8000.0)])
def test_times_that_a_message_allows_are_allowed(first_ms, last_ms):
    case = Case.drawn(0)

    def bound(**terms: float) -> None:
        fewest_worker_seconds(np.array([first_ms, last_ms]), case.times, WorkerSecondsTerms(
            slo_ms=case.slo, max_batch=1, max_violation=0.5, **terms))

    for name, beyond in (("startup_s", 1e9), ("duration_s", 0.0)):
        with pytest.raises(InvalidValueError, match=rf"^{name}: .*allowed: ") as refused:
            bound(**{name: beyond})
        shown = re.findall(r"(?:from|0 to) ([\d.]+)", str(refused.value))[0]
        bound(**{name: float(shown)})


@pytest.mark.parametrize("price", [-1.0, np.inf, np.nan])
def test_a_price_that_is_none_is_refused(price):
    case = Case.drawn(0)
    with pytest.raises(InvalidValueError, match="prices"):
        least_cost(case.arrival, case.times,
                   WorkerSecondsTerms(slo_ms=case.slo, max_batch=case.batch_ms.shape[1]),
                   violation_worker_s=price, accuracy_worker_s=0.0)
