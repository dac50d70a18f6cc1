"""What a scaling policy promises: runs on loads drawn from the fitted dynamics.

None of these runs had a part in choosing the policy. Runs of the same length differ, more than
their mean is uncertain; both are stated at a confidence, by Student's t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.trace import RateTrace
from ramsis.runtime.scaling_table import ScalingTable
from ramsis.scaling.fleet import DecisionTables, play
from ramsis.scaling.levels import LoadDynamics
from ramsis.scaling.policy import ScaledFleet, ScalingPolicy

__all__ = ["CONFIDENCE", "Estimate", "Promise", "drawn_arrivals", "promise"]

FloatArray = NDArray[np.float64]

CONFIDENCE = 0.99
_RUNS = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over runs of the same length.

    Attributes
    ----------
    mean : float
    half_width : float
        Of the interval in which the mean of many runs lies.
    low, high : float
        Between which the figure of another run lies.
    """

    mean: float
    half_width: float
    low: float
    high: float

    @classmethod
    def of(cls, values: FloatArray) -> Estimate:
        """By Student's t; figures are not negative."""
        from scipy.stats import t

        mean, spread, n = float(values.mean()), float(values.std(ddof=1)), len(values)
        factor = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * spread
        reach = factor * (1 + 1 / n) ** 0.5
        return cls(mean, factor / n ** 0.5, max(mean - reach, 0.0), mean + reach)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a scaling policy promises where the load follows the fitted dynamics.

    Attributes
    ----------
    workers : Estimate
        Mean number of workers that are paid for: worker-seconds per second.
    violation_rate, effective_accuracy : Estimate
    runs : int
    run_s : float
        Length of each run.
    """

    workers: Estimate
    violation_rate: Estimate
    effective_accuracy: Estimate
    runs: int
    run_s: float


def drawn_arrivals(
    dynamics: LoadDynamics, intervals: int, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Poisson arrivals of a load that follows the dynamics, in ms, and its first load in QPS."""
    loads = dynamics.sample(intervals, rng)
    step_ms = 1000.0 * dynamics.interval_s
    trace = RateTrace(step_ms * np.arange(intervals), loads, step_ms * intervals)
    return trace.arrivals_ms(rng), float(loads[0])


def promise(
    table: ScalingTable, dynamics: LoadDynamics, played: DecisionTables, fleet: ScaledFleet, *,
    intervals: int, seed: int,
    on_play: Callable[[], object] | None = None, runs: int = _RUNS,
) -> Promise:
    """Play a scaling table on loads drawn from dynamics.

    Parameters
    ----------
    table : ScalingTable
    dynamics : LoadDynamics
    played : DecisionTables
    fleet : ScaledFleet
    intervals : int
        Length of a run.
    seed : int
        Another one than that of the runs by which the table was chosen.
    on_play : callable, optional
        Called after each run.
    runs : int
        >= 2.
    """
    figures = []
    for rng in np.random.default_rng(seed).spawn(runs):
        arrivals, first_qps = drawn_arrivals(dynamics, intervals, rng)
        run = play(arrivals, played, ScalingPolicy(table), slo_ms=fleet.slo_ms,
                   startup_s=fleet.startup_s, interval_s=fleet.interval_s, least=fleet.least,
                   most=fleet.most, start=table.wanted(first_qps, 0, 0),
                   duration_s=intervals * fleet.interval_s, seed=int(rng.integers(2**31)))
        figures.append((run.worker_s / (intervals * fleet.interval_s), run.violation_rate,
                        run.effective_accuracy))
        if on_play is not None:
            on_play()
    workers, violation, accuracy = (Estimate.of(np.array(column))
                                    for column in zip(*figures, strict=True))
    return Promise(workers, violation, accuracy, runs, intervals * fleet.interval_s)
