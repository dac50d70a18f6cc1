"""Policies replayed on raw samples: an independent simulator, and profiles with heavy tails.

It shares no code with ``ramsis.sim``. Decisions are made through the runtime, as a server would,
and a batch takes one of the measured samples of the size that the answer says to run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis import runtime
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet

FloatArray = NDArray[np.float64]
Samples = Mapping[str, Mapping[int, FloatArray]]
"""Measured latencies in ms by model and batch size."""

Law = Callable[[np.random.Generator, int, float], FloatArray]


def log_normal(rng: np.random.Generator, count: int, median_ms: float) -> FloatArray:
    """A heavy tail: the 99.9th percentile is 2.5 times the median."""
    return median_ms * rng.lognormal(0.0, 0.3, count)


def bimodal(rng: np.random.Generator, count: int, median_ms: float) -> FloatArray:
    """Every twentieth takes 2.5 times as long."""
    slow = np.where(rng.random(count) < 0.05, 2.5, 1.0)
    return median_ms * slow * rng.normal(1.0, 0.03, count).clip(0.8, 1.2)


def outlier(rng: np.random.Generator, count: int, median_ms: float) -> FloatArray:
    """One in 500 takes 8 times as long."""
    slow = np.where(rng.random(count) < 1 / 500, 8.0, 1.0)
    return median_ms * slow * rng.normal(1.0, 0.03, count).clip(0.8, 1.2)


LARGEST = 17
"""Batch sizes up to this are measured, unless said otherwise."""

LAWS: dict[str, Law] = {"log-normal": log_normal, "bimodal": bimodal, "outlier": outlier}


@dataclass(frozen=True)
class Measured:
    """A profile and the samples that it was imported from."""

    profile: ProfileSet
    samples: Samples

    @classmethod
    def of(
        cls, law: Law, count: int = 2000, seed: int = 0, dip: bool = True, largest: int = LARGEST
    ) -> Measured:
        """Three models; a batch of 3 is slower than one of 4 where there is a dip."""
        rng = np.random.default_rng(seed)
        speed = {"small": (0.70, 4.0, 1.2), "medium": (0.76, 8.0, 2.8), "large": (0.81, 15.0, 6.0)}
        samples: dict[str, dict[int, FloatArray]] = {}
        models = []
        for name, (accuracy, first, more) in speed.items():
            times = {b: first + more * (b - 1) for b in range(1, largest + 1)}
            if dip:
                times[3] *= 1.6
            samples[name] = {b: law(rng, count, ms) for b, ms in times.items()}
            models.append(ModelProfile(name, accuracy, tuple(
                BatchProfile.from_samples(b, drawn) for b, drawn in samples[name].items())))
        return cls(ProfileSet("raw", tuple(models)), samples)


def one_model(law: str, count: int, seed: int) -> ProfileSet:
    """A model with batches of 1 to 3, so that there is little to choose."""
    rng = np.random.default_rng(seed)
    return ProfileSet("one", (ModelProfile("m", 0.8, tuple(
        BatchProfile.from_samples(b, LAWS[law](rng, count, 10.0 + 3.0 * b)) for b in (1, 2, 3))),))


class Replayed(NamedTuple):
    """What a policy delivered.

    Attributes
    ----------
    violation_rate, effective_accuracy : float
    error : float
        Standard error of the violation rate, by the means of stretches.
    """

    violation_rate: float
    effective_accuracy: float
    error: float


_STRETCHES = 40


def replayed(policy: Policy, samples: Samples, queries: int, seed: int) -> Replayed:
    """A policy on Poisson arrivals at its load and raw samples, after a while to settle."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1000.0 / policy.load_qps, queries)).tolist()
    luck = rng.random(queries).tolist()
    kept = {name: {b: drawn.tolist() for b, drawn in sizes.items()}
            for name, sizes in samples.items()}
    selector = runtime.selector_of(policy.to_document(), "replay", rng.random)
    accuracy = {model.name: model.accuracy for model in policy.models}
    workers, central = policy.workers, policy.dispatch == "central-queue"
    queues = [deque[int]() for _ in range(1 if central else workers)]
    idle = [deque(range(workers))] if central else [deque([w]) for w in range(workers)]
    ends: list[tuple[float, int, int]] = []
    timers: list[tuple[float, int]] = []
    earned = np.zeros(queries)
    batches = 0

    def act(q: int, now: float, at_most: float = np.inf) -> None:
        nonlocal batches
        queue, free = queues[q], idle[q]
        while queue and (free or central):
            deadline = arrival[queue[0]] + policy.slo_ms
            answer = selector(len(queue), min(deadline - now, at_most), len(free))
            at_most = np.inf
            if isinstance(answer, runtime.Drop):
                queue.popleft()
                continue
            if isinstance(answer, runtime.Wait):
                if answer.below_ms is not None:
                    heapq.heappush(timers, (max(deadline - answer.below_ms, now), q))
                return
            model, batch = answer
            measured = kept[model][answer.run_as]
            end = now + measured[int(luck[batches] * len(measured))]
            batches += 1
            for _ in range(batch):
                query = queue.popleft()
                if end <= arrival[query] + policy.slo_ms:
                    earned[query] = accuracy[model]
            heapq.heappush(ends, (end, free.popleft(), q))

    coming = 0
    while coming < queries or ends:
        now = arrival[coming] if coming < queries else np.inf
        if timers and timers[0][0] < min(now, ends[0][0] if ends else np.inf):
            now, q = heapq.heappop(timers)
            if queues[q]:
                slack = arrival[queues[q][0]] + policy.slo_ms - now
                act(q, now, float(np.nextafter(slack, -np.inf)))
        elif ends and ends[0][0] <= now:
            now, worker, q = heapq.heappop(ends)
            idle[q].append(worker)
            act(q, now)
        else:
            q = 0 if central else coming % workers
            queues[q].append(coming)
            coming += 1
            act(q, now)
    counted = earned[queries // 50:]
    late = [float(part.mean()) for part in np.array_split(counted == 0.0, _STRETCHES)]
    return Replayed(float((counted == 0.0).mean()), float(counted.mean()),
                    float(np.std(late, ddof=1)) / _STRETCHES**0.5)
