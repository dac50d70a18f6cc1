"""Small profile sets, settings and arrival processes for tests of whole policies."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammaln

from ramsis.arrivals import Poisson
from ramsis.policy import Policy
from ramsis.profiles import LatencyTable, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings
from ramsis.worker.problem import WorkerProblem
from tests.profiles.samples import model

_Floats = NDArray[np.float64]

_GIVEN: dict[str, Any] = {"slo_ms": 100.0, "workers": 4, "grid": "fixed:20", "max_queue": 8,
                          "headroom": 0.0}
SETTINGS = SynthesisSettings(**_GIVEN)
"""Policies of the tiny profile in milliseconds; capacity is 1778 queries/s at batches of 8."""


def settings(**changes: Any) -> SynthesisSettings:
    """The small settings, some changed; what is not given is the default of what is."""
    return SynthesisSettings(**{**_GIVEN, **changes})


def tiny_profile() -> ProfileSet:
    """Three models of rising accuracy and latency."""
    return ProfileSet("tiny", (
        model("small", 0.6, {1: 4.0, 2: 6.0, 4: 10.0, 8: 18.0}),
        model("medium", 0.75, {1: 9.0, 2: 15.0, 4: 27.0}),
        model("large", 0.9, {1: 20.0, 2: 36.0}),
    ))


def varying_profile() -> ProfileSet:
    """The same three models with times that vary from 0.6 to 1.02 of their p95."""
    level = (np.arange(16) + 0.5) / 16
    return ProfileSet("varying", tuple(
        ModelProfile(one.name, one.accuracy, tuple(
            dataclasses.replace(item, quantiles_ms=tuple(
                (item.statistic_ms("p95") * (0.6 + 0.4 * level / 0.95)).tolist()))
            for item in one.batches))
        for one in tiny_profile().models
    ))


def linear_profile(*models: tuple[float, float, float]) -> ProfileSet:
    """Models given by accuracy, latency of a batch of 1, and of each further request."""
    return ProfileSet("linear", tuple(
        model(f"m{i}", accuracy, {b: first + step * (b - 1) for b in (1, 9)})
        for i, (accuracy, first, step) in enumerate(models)
    ))


@st.composite
def linear_profiles(draw: st.DrawFn) -> ProfileSet:
    """Up to four models with latencies of 4 to 40 ms and any accuracies."""
    one = st.tuples(st.floats(0.05, 1), st.floats(4, 40), st.floats(0.1, 12))
    return linear_profile(*draw(st.lists(one, min_size=1, max_size=4)))


def one_model(
    latency_ms: list[float], *, load_qps: float, slo_ms: float, accuracy: float = 0.8,
    **changes: Any,
) -> WorkerProblem:
    """One worker and one model with these latencies of batches of 1 … N+1."""
    parts: dict[str, Any] = {"workers": 1, "grid": "fixed:10",
                             "max_queue": len(latency_ms) - 1, **changes}
    table = LatencyTable.measured(["only"], [accuracy], [latency_ms])
    return WorkerProblem.create(table, slo_ms=slo_ms, arrivals=Poisson(load_qps), **parts)


def plain(policy: Policy) -> dict[str, Any]:
    """A policy's document without what names its inputs and maker."""
    document = policy.to_document()
    return {key: value for key, value in document.items() if key not in ("inputs", "created_by")}


class OwnPoisson:
    """A user's own process, with no closed forms: found by its import path."""

    def __init__(self, load_qps: float) -> None:
        self.rate_per_ms = load_qps / 1000.0

    def log_pf(self, count: _Floats, interval_ms: _Floats) -> _Floats:
        mean = self.rate_per_ms * np.asarray(interval_ms, dtype=float)
        k = np.asarray(count, dtype=float)
        log_mean = np.log(np.where(mean > 0, mean, 1.0))
        law: _Floats = np.where(mean > 0, k * log_mean - mean - gammaln(k + 1.0),
                                np.where(k == 0, 0.0, -np.inf))
        return law


class PerMinute(OwnPoisson):
    """A process that is made of something else than a load in queries per second."""

    def __init__(self, queries_per_minute: float) -> None:
        super().__init__(queries_per_minute / 60.0)


def by_the_minute(load_qps: float) -> PerMinute:
    """A factory: its own name, not the class of what it returns, makes the process again."""
    return PerMinute(60.0 * load_qps)
