"""Raw samples with heavy tails, and the profiles that are imported from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet

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


def heavy(rng: np.random.Generator, count: int, median_ms: float) -> FloatArray:
    """A tail by a power: one in a thousand takes 2.5 times as long, without an end."""
    return median_ms * (1.0 + 0.015 * rng.pareto(1.5, count))


LARGEST = 17
"""Batch sizes up to this are measured, unless said otherwise."""

DIFFERING: Mapping[str, Law] = {"small": log_normal, "medium": bimodal, "large": outlier}
"""Models that have nothing in common."""
LAWS: dict[str, Law] = {"log-normal": log_normal, "bimodal": bimodal, "outlier": outlier}


@dataclass(frozen=True)
class Measured:
    """A profile and the samples that it was imported from."""

    profile: ProfileSet
    samples: Samples

    @classmethod
    def of(
        cls, law: Law | Mapping[str, Law], count: int = 2000, seed: int = 0, dip: bool = True,
        largest: int = LARGEST,
    ) -> Measured:
        """Three models; a batch of 3 is slower than one of 4 where there is a dip.

        Parameters
        ----------
        law
            Of all models, or by model.
        """
        rng = np.random.default_rng(seed)
        speed = {"small": (0.70, 4.0, 1.2), "medium": (0.76, 8.0, 2.8), "large": (0.81, 15.0, 6.0)}
        samples: dict[str, dict[int, FloatArray]] = {}
        models = []
        for name, (accuracy, first, more) in speed.items():
            times = {b: first + more * (b - 1) for b in range(1, largest + 1)}
            if dip:
                times[3] *= 1.6
            own = law[name] if isinstance(law, Mapping) else law
            samples[name] = {b: own(rng, count, ms) for b, ms in times.items()}
            models.append(ModelProfile(name, accuracy, tuple(
                BatchProfile.from_samples(b, drawn) for b, drawn in samples[name].items())))
        return cls(ProfileSet("raw", tuple(models)), samples)


def one_model(law: str, count: int, seed: int) -> ProfileSet:
    """A model with batches of 1 to 3, so that there is little to choose."""
    rng = np.random.default_rng(seed)
    return ProfileSet("one", (ModelProfile("m", 0.8, tuple(
        BatchProfile.from_samples(b, LAWS[law](rng, count, 10.0 + 3.0 * b)) for b in (1, 2, 3))),))
