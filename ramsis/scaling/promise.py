"""Expected cost and quality of a scaling policy on loads drawn from its dynamics.

Half an hour of such a load may be high or low, so a mean over a few runs says little. Many loads
are therefore drawn, each with its mirror image (antithetic variates), and their cost and quality
computed from the decision tables (:func:`ramsis.scaling.policy.expected_run`), without simulation.
On a few other loads the policy is simulated as well, and the mean difference to the expected
figures is added. This is a control variate: the difference varies far less than the figure itself.

Seeds differ from those of the search for a policy. If the interval leaves open whether a target is
met, more runs are simulated, as far as they are short. Two intervals are stated: a confidence
interval of the mean over many runs, and a wider prediction interval of one further run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.trace import RateTrace
from ramsis.bounds import Targets
from ramsis.bounds.targets import ROUNDING
from ramsis.records import Fraction, NonNegative, Positive, Whole, WrittenRecord
from ramsis.runtime.scaling_table import ScalingControl, ScalingTable
from ramsis.scaling.fleet import DecisionTables, FleetTerms, ScaledFleet, play
from ramsis.scaling.levels import LoadDynamics, interval_loads
from ramsis.scaling.policy import Candidate, TableRule, expected_run
from ramsis.scaling.prices import Delivered, Prices
from ramsis.scaling.synthesis import FleetTables

CONFIDENCE = 0.99
# Simulated runs double from _RUNS up to _MORE_RUNS while the interval contains the target, if all
# together have at most _MOST_REQUESTS.
_EXPECTED_PAIRS = 200  # pairs of a sampled load and its mirror image; cheap, as not simulated
_RUNS, _MORE_RUNS = 24, 96
_MOST_REQUESTS = 2e6


@dataclass(frozen=True, slots=True)
class PromisedFigure(WrittenRecord):
    """Mean of a figure over runs of equal length, with its confidence interval."""

    mean: NonNegative
    half_width: Annotated[
        NonNegative, "Half width of the confidence interval of the mean over many runs."]
    low: Annotated[NonNegative, "Lower end of the prediction interval of a further run."]
    high: Annotated[NonNegative, "Upper end of that interval."]

    @classmethod
    def of(cls, expected: FloatArray, off: FloatArray) -> PromisedFigure:
        """Combine expectations on many loads with the errors of a few simulated runs.

        ``expected``, (P, 2), are the figures of loads and of their mirror images; ``off``, (n,),
        the simulated less the expected figure of each simulated run. Figures are not negative. The
        confidence interval of the mean is Welch's t. The prediction interval is that of the sum of
        an expected figure and a difference: the wider one of its quantiles and Student's t.
        """
        from scipy.stats import norm, t

        sure, few = 0.5 + CONFIDENCE / 2, len(off) - 1
        mean = max(float(expected.mean() + off.mean()), 0.0)
        pairs = expected.mean(axis=1)
        parts = np.array([pairs.var(ddof=1) / len(pairs), off.var(ddof=1) / len(off)])
        error = float(parts.sum())
        freedom = error ** 2 / float((parts ** 2 / [len(pairs) - 1, few]).sum()) if error else few
        # Few differences are sampled: widen them to the t quantile, and by that of their mean.
        wider = float(t.ppf(sure, few) / norm.ppf(sure)) * (1 + 1 / len(off)) ** 0.5
        apart = expected.ravel()[:, None] + off.mean() + wider * (off - off.mean())
        low, high = np.quantile(apart, [1.0 - sure, sure])
        reach = float(t.ppf(sure, few)) * (expected.var() + off.var(ddof=1) + error) ** 0.5
        return cls(mean, float(t.ppf(sure, freedom)) * error ** 0.5,
                   max(min(float(low), mean - reach), 0.0), max(float(high), mean + reach))


@dataclass(frozen=True, slots=True)
class Promise(WrittenRecord):
    """Expected figures of a scaling policy on loads drawn from its dynamics.

    The means decide whether it meets a target; this is clear if the confidence intervals agree.
    """

    workers: Annotated[
        PromisedFigure, "Mean number of paid workers: worker-seconds per second."]
    violation_rate: PromisedFigure
    effective_accuracy: PromisedFigure
    runs: Annotated[int, Whole(2), "Number of simulated runs."]
    run_s: Annotated[Positive, "Length of each run."]
    cost: Annotated[
        PromisedFigure | None,
        "Workers, violations and missed accuracy at the prices, in worker-seconds per second.",
    ] = None
    confidence: Annotated[Fraction, "Level of all intervals."] = CONFIDENCE

    def meets(self, target: Targets) -> bool:
        """Return whether the promised means reach the target."""
        return all(margin >= -ROUNDING for margin, _ in self._margins(target))

    def clear(self, target: Targets) -> bool:
        """Return whether the intervals leave no doubt that the target is met or is missed."""
        if self.meets(target):
            return all(margin + ROUNDING >= half for margin, half in self._margins(target))
        return any(margin + ROUNDING < -half for margin, half in self._margins(target))

    def _margins(self, target: Targets) -> list[tuple[float, float]]:
        """Return the margin to each part of the target, with the half width of its interval."""
        late, accuracy = self.violation_rate, self.effective_accuracy
        margins = [(target.max_violation - late.mean, late.half_width)]
        if target.min_effective_accuracy is not None:
            margins.append((accuracy.mean - target.min_effective_accuracy, accuracy.half_width))
        return margins


def drawn_arrivals(
    dynamics: LoadDynamics, intervals: int, rng: np.random.Generator, *, mirrored: bool = False
) -> tuple[FloatArray, float]:
    """Draw Poisson arrivals of a sampled load; return times in ms and the first load in QPS."""
    loads = dynamics.sample(intervals, rng, mirrored=mirrored)
    step_ms = 1000.0 * dynamics.interval_s
    trace = RateTrace(step_ms * np.arange(intervals), loads, step_ms * intervals)
    return trace.arrivals_ms(rng), float(loads[0])


@dataclass(frozen=True, eq=False)
class _Runs:
    """Expected and simulated runs of a scaling table on loads drawn from its dynamics."""

    table: ScalingTable
    dynamics: LoadDynamics
    tables: FleetTables
    fleet: ScaledFleet
    intervals: int
    prices: Prices

    @property
    def run_s(self) -> float:
        return self.intervals * self.fleet.interval_s

    @property
    def requests(self) -> float:
        """Approximate number of requests of a run."""
        return self.run_s * math.exp(self.dynamics.mean_log_qps)

    def expected(self, rng: np.random.Generator, mirrored: bool) -> tuple[float, ...]:
        """Estimate the figures on another load from the expectations of the decision tables."""
        loads = self.dynamics.sample(self.intervals, rng, mirrored=mirrored)
        seconds = self.dynamics.interval_s
        return self._expected(rng.poisson(loads * seconds) / seconds, float(loads[0]))

    def _expected(self, loads: FloatArray, first_qps: float) -> tuple[float, ...]:
        return self._figures(expected_run(
            loads, ScalingControl(self.table), self.tables, self.fleet, self._start(first_qps)))

    def off(self, played: DecisionTables, rng: np.random.Generator) -> FloatArray:
        """Return simulated minus expected figures of the policy on one load."""
        arrivals, first_qps = drawn_arrivals(self.dynamics, self.intervals, rng)
        run = play(arrivals, played, TableRule(self.table), FleetTerms(
            **asdict(self.fleet), start=self._start(first_qps), duration_s=self.run_s,
            seed=int(rng.integers(2**31))))
        loads = interval_loads(arrivals, self.fleet.interval_s, self.run_s)
        return np.subtract(self._figures(Delivered.of(run)), self._expected(loads, first_qps))

    def _start(self, first_qps: float) -> int:
        return self.table.wanted(first_qps, 0, 0)

    def _figures(self, run: Delivered) -> tuple[float, ...]:
        return (run.worker_s / self.run_s, run.violation_rate, run.effective_accuracy,
                self.prices.total(run, self.tables.accuracy) / self.run_s)


def promise(
    chosen: Candidate, tables: FleetTables, played: DecisionTables, fleet: ScaledFleet, *,
    intervals: int, seed: int, target: Targets | Prices,
    on_play: Callable[[], object] | None = None,
) -> Promise:
    """Estimate cost and quality of a scaling table on loads drawn from its dynamics.

    ``played`` is ``tables`` in the form for simulations, ``intervals`` the length of a run.
    ``seed`` must differ from the seed with which the table was chosen. If ``target`` is prices, a
    cost is promised, too. ``on_play`` is called after each simulated run.
    """
    prices = target if isinstance(target, Prices) else None
    runs = _Runs(chosen.table, chosen.dynamics, tables, fleet, intervals,
                 prices or Prices(0.0, 0.0))
    first, second = np.random.SeedSequence(seed).spawn(2)
    expected = np.array([[runs.expected(np.random.default_rng(seed), mirrored)
                          for mirrored in (False, True)] for seed in first.spawn(_EXPECTED_PAIRS)])
    simulated = np.random.default_rng(second)
    off: list[FloatArray] = []
    result = None
    while result is None or (
            len(off) < _MORE_RUNS and isinstance(target, Targets) and not result.clear(target)
            and _MORE_RUNS * runs.requests <= _MOST_REQUESTS):
        for rng in simulated.spawn(max(_RUNS, len(off))):
            off.append(runs.off(played, rng))
            if on_play is not None:
                on_play()
        workers, violation, accuracy, cost = (PromisedFigure.of(estimates, other)
                                              for estimates, other in zip(
            np.moveaxis(expected, -1, 0), np.array(off).T, strict=True))
        result = Promise(workers, violation, accuracy, len(off), runs.run_s,
                         None if prices is None else cost)
    return result
