"""Simulate a constant load for as long as a verdict on its violation rate and accuracy needs.

A scheduler is compared with a target such as "at most 0.1 % late". The number of requests that
this takes depends on the distance of its rates from the target, which is not known beforehand. So
runs are added until the rates lie clearly on one side, or until a largest number of requests.

**Runs.** The first round has a run for each seed. Together they have at least 50 violations on
average if the rate is just the one allowed; each lasts for at least 20 SLOs, and 20 bursts of
Markov-modulated arrivals. Each further round has new runs of twice the length. Arrivals of the
first 20 SLOs, or of the first tenth of a run if that is longer, are not counted, nor those of the
last SLO, so that queues are neither still empty nor draining.

**Intervals.** Late requests come in clumps: one long busy period makes dozens. A run is therefore
cut into windows (batch means: Law, Simulation Modeling and Analysis, 2015, §9.5.3). Near capacity
windows differ mostly by their number of arrivals. As its mean is known, this number is a control
variate (§11.4). The size c of a clump is the variance over the windows, divided by the variance if
requests were independent. The half-width is the upper reach of the score interval (Wilson) with
n/c in place of n. Without any violation it is t²·c/n, a rule of three at 95 % on both sides. If
there are fewer than 50 violations, c is at least the mean batch.

**Early stops.** Looking at an interval after each round errs more often than looking once. Rounds
therefore stop only if intervals 1.5 times as wide are clear (99.7 % for one look), and if the
second halves of the runs give the same answer, which they do not while queues are growing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ramsis.arrays import FloatArray
from ramsis.arrivals.registry import arrivals_of
from ramsis.bounds import Targets
from ramsis.bounds.targets import ROUNDING
from ramsis.sim.experiment import SimulationSettings, run_cluster
from ramsis.sim.plan import ClusterPlan, have_kernels
from ramsis.sim.result import FEW_VIOLATIONS, Estimate, SimulationResult, score_reach
from ramsis.sim.run import Run
from ramsis.sim.workload import ConstantLoad

_SETTLES, _SETTLES_SHARE, _DRAINS = 20.0, 0.1, 1.0  # SLOs, share of a run, SLOs
_LASTS = 20.0  # SLOs, and bursts, that are counted in a run at least
_WINDOWS = 4  # of a run at least
_FEWEST_WINDOWS = 20  # of the first round
_MOST_REQUESTS = 4_000_000  # counted, of compiled runs: about two seconds
_MOST_PLAIN_REQUESTS = 200_000  # counted, on the plain engine
_EARLY = 1.5  # times the half-width that has to be clear before the last round


@dataclass(frozen=True)
class MeasuredRates:
    """Rates of a scheduler, with halves of their 95 % intervals."""

    # violation_rate, effective_accuracy, accuracy: the last is that of the requests in time;
    # half-widths are None where they are not known
    violation_rate: Estimate
    effective_accuracy: Estimate
    accuracy: Estimate
    # requests, runs: that were counted
    requests: int
    runs: int

    @classmethod
    def of_windows(cls, windows: FloatArray, batch: float, runs: int) -> MeasuredRates:
        """Compute rates with intervals from windows of a steady state.

        The last axis of ``windows`` has the requests that are expected in a window, those that
        came, those in time, and the sum of their accuracies; ``batch`` is the mean batch size.
        """
        expected, requests, in_time, earned = windows.reshape(-1, 4).T
        late = requests - in_time
        events, total = float(late.sum()), float(requests.sum())
        excess = requests / expected - 1.0

        def ratio(above: FloatArray, below: FloatArray) -> tuple[float, float]:
            return _ratio_at_mean_load(above, below, expected, excess)

        quantile = float(stdtrit(len(expected) - 2, 0.975))
        if events < FEW_VIOLATIONS:  # too few for a slope
            rate, variance = _ratio_at_mean_load(late, requests, expected, np.zeros_like(excess))
        else:
            rate, variance = ratio(late, requests)
        rate = min(max(rate, 0.0), 1.0)
        clump = variance * total / rate if rate else 0.0
        if events < FEW_VIOLATIONS:
            clump = max(clump, batch)
        half = score_reach(rate, total, clump, quantile)
        accuracy, of_accuracy = ratio(earned, in_time)
        effective, of_effective = ratio(earned, requests)
        unseen = accuracy * half if events < FEW_VIOLATIONS else 0.0
        return cls(Estimate(rate, half),
                   Estimate(effective, max(quantile * math.sqrt(of_effective), unseen)),
                   Estimate(accuracy, quantile * math.sqrt(of_accuracy)), round(total), runs)

    @classmethod
    def of_runs(cls, result: SimulationResult) -> MeasuredRates:
        """Return the rates on a trace that is played once for each seed."""
        figures = {name: result.estimate(name)
                   for name in ("violation_rate", "effective_accuracy", "accuracy")}
        if math.isnan(figures["accuracy"].mean):  # nothing was in time
            figures["accuracy"] = replace(figures["violation_rate"], mean=0.0)
        return cls(**figures, requests=sum(metrics.queries for metrics in result.metrics),
                   runs=len(result.metrics))

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> MeasuredRates:
        """Return the rates of a row of `simulate`; a missing figure counts as 0."""
        figures = {name: Estimate(row[name] or 0.0, row[f"{name}_half_width"])
                   for name in ("violation_rate", "effective_accuracy", "accuracy")}
        return cls(**figures, requests=row["queries"], runs=row["seeds"])

    def met(self, targets: Targets) -> bool:
        """Return whether the rates reach the targets."""
        return all(margin >= -ROUNDING for margin, _ in self._margins(targets))

    def clear(self, targets: Targets, width: float = 1.0) -> bool | None:
        """Return whether the intervals, times ``width``, leave no doubt; None where unknown.

        Windows have no intervals: where targets are for each of them, only rates that do not vary
        leave no doubt.
        """
        margins = self._margins(targets)
        if any(half is None for _, half in margins) or (
                targets.every_ms is not None and self.effective_accuracy.half_width):
            return None
        reach = [(margin + ROUNDING, width * (half or 0.0)) for margin, half in margins]
        if self.met(targets):
            return all(margin >= half for margin, half in reach)
        return any(margin < -half for margin, half in reach)

    def with_evidence(self, other: MeasuredRates) -> MeasuredRates:
        """Return the rates by two independent measurements, weighed by their errors."""
        return MeasuredRates(_pooled(self.violation_rate, other.violation_rate),
                             _pooled(self.effective_accuracy, other.effective_accuracy),
                             _pooled(self.accuracy, other.accuracy),
                             self.requests + other.requests, self.runs + other.runs)

    def _margins(self, targets: Targets) -> list[tuple[float, float | None]]:
        """Return the margin by which each target is met (< 0: missed), and its half-width."""
        late = self.violation_rate
        return [(targets.max_violation - late.mean, late.half_width)] + [
            (estimate.mean - least, estimate.half_width) for estimate, least in (
                (self.accuracy, targets.min_accuracy),
                (self.effective_accuracy, targets.min_effective_accuracy)) if least is not None]


def steady_rates(
    plan: ClusterPlan,
    workload: ConstantLoad,
    settings: SimulationSettings,
    targets: Targets,
    *,
    known: MeasuredRates | None = None,
) -> MeasuredRates:
    """Measure the steady-state rates of a scheduler as precisely as targets need.

    The duration of the workload is the least that is counted of a run; the seeds of the settings
    are those of the first round. An independent measurement, ``known``, is pooled with this one.
    """
    # The first round: long enough for 50 violations at the largest rate allowed.
    slo_ms = plan.fleets.classes[-1].slo_ms
    compiled = settings.engine != "plain" and all(map(have_kernels, plan.levels.levels))
    most = _MOST_REQUESTS if compiled else _MOST_PLAIN_REQUESTS
    seeds = tuple(settings.seeds)
    first = min(FEW_VIOLATIONS / max(targets.max_violation, 1e-12), most / 4)
    length_ms = max(workload.duration_ms, _LASTS * max(slo_ms, _burst_ms(workload)),
                    1000.0 * first / (workload.load_qps * len(seeds)))
    in_a_run = max(_WINDOWS, math.ceil(_FEWEST_WINDOWS / len(seeds)))
    windows: list[FloatArray] = []
    batches = served = 0
    while True:
        settles_ms = max(_SETTLES * slo_ms, _SETTLES_SHARE * length_ms)
        edges_ms = settles_ms + np.linspace(0.0, length_ms, in_a_run + 1)
        lasting = replace(workload, duration_ms=settles_ms + length_ms + _DRAINS * slo_ms)
        for seed in seeds:
            run = run_cluster(plan, lasting, seed, settings)
            windows.append(_windows(run, edges_ms, workload.load_qps))
            batches, served = batches + len(run.size), served + int(run.size.sum())
        counted = np.array(windows)
        batch = served / max(batches, 1)
        # Rates of all windows, and of the second half of each run.
        rates, later = (MeasuredRates.of_windows(part, batch, len(windows))
                        for part in (counted, counted[:, in_a_run // 2:]))
        if known is not None:
            rates, later = known.with_evidence(rates), known.with_evidence(later)
        if rates.clear(targets, _EARLY) and later.met(targets) == rates.met(targets):
            return rates
        length_ms *= 2.0
        if counted[:, :, 1].sum() + workload.load_qps / 1000.0 * length_ms * len(seeds) > most:
            return rates
        seeds = tuple(seed + 1 + max(seeds) for seed in range(len(seeds)))


def _burst_ms(workload: ConstantLoad) -> float:
    """Return the mean time from one burst to the next; 0 for arrivals without bursts."""
    arrivals = arrivals_of(workload.arrivals)
    parameters = dict(arrivals.parameters)
    return parameters["burst_ms"] / parameters["share"] if arrivals.name == "mmpp" else 0.0


def _windows(run: Run, edges_ms: FloatArray, load_qps: float) -> FloatArray:
    """Return expected arrivals, arrivals, answers in time and reward by window, shape (w, 4)."""
    edges = np.searchsorted(run.arrival_ms, edges_ms)
    sums = [np.append(0.0, np.cumsum(values))[edges] for values in (run.in_time, run.reward)]
    return np.diff(np.column_stack([load_qps / 1000.0 * edges_ms, edges, *sums]), axis=0)


def _ratio_at_mean_load(
    above: FloatArray, below: FloatArray, expected: FloatArray, excess: FloatArray
) -> tuple[float, float]:
    """Return the ratio of two sums over windows, at exactly the stated load, and its variance."""
    total = float(below.sum())
    if total == 0.0:
        return 0.0, 0.0
    # Linearised ratio with the excess load as control variate: the deviation of each window is
    # regressed on its excess load.
    ratio, scale = float(above.sum()) / total, total / float(expected.sum())
    weights = expected / expected.sum()
    off = (above - ratio * below) / expected  # of mean 0
    moved = excess - float(weights @ excess)
    spread = float(weights @ moved**2)
    slope = float(weights @ (moved * off)) / spread if spread else 0.0
    residual = weights * (off - slope * moved)
    variance = float(residual @ residual) * len(off) / (len(off) - 2)
    return ratio - slope * float(weights @ excess) / scale, variance / scale**2


def _pooled(estimate: Estimate, other: Estimate) -> Estimate:
    widths = np.maximum([estimate.half_width or 0.0, other.half_width or 0.0], 1e-12)
    weights = widths**-2.0
    return Estimate(float(weights @ [estimate.mean, other.mean] / weights.sum()),
                    float(weights.sum()**-0.5))
