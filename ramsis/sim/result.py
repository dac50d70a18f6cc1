"""Result of a simulation: figures of each seed, means and confidence intervals."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from ramsis.errors import INNER, check_known
from ramsis.reprs import dataclass, figure_of
from ramsis.sim.metrics import Metrics
from ramsis.sim.run import Run
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

FEW_VIOLATIONS = 50
"""Violations below which their spread over the runs does not show the error of their rate."""


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds with its confidence interval."""

    mean: float  # NaN where no seed has the figure
    # of the confidence interval, by Student's t; ``None`` for fewer than two seeds
    half_width: float | None

    @classmethod
    def of(cls, values: list[float], confidence: float = 0.95) -> Estimate:
        """Return the mean of independent values, NaN without any, and its interval.

        The half-width is None for fewer than two values.

        >>> Estimate.of([1.0, 2.0, 3.0]).mean
        2.0
        """
        INNER.check("not a confidence", confidence=confidence)
        if not values:
            return cls(math.nan, None)
        if len(values) == 1:
            return cls(values[0], None)
        quantile = float(stdtrit(len(values) - 1, (1.0 + confidence) / 2.0))
        # The first value is subtracted so that equal runs have an error of exactly 0.
        spread = float(np.std(np.subtract(values, values[0]), ddof=1))
        return cls(float(np.mean(values)), quantile * spread / math.sqrt(len(values)))


def score_reach(rate: float, requests: float, clump: float, quantile: float) -> float:
    """Return the distance from a rate to the upper end of Wilson's score interval, for clumps.

    Events occur in clumps of ``clump`` events on average, so the effective number of requests is
    ``requests / clump``. Without any event the result is a two-sided rule of three.

    >>> round(10_000 * score_reach(0.0, 10_000, 1.0, 1.96), 2)
    3.84
    """
    centre = quantile**2 * clump / (2.0 * requests)
    return min(centre + math.sqrt(quantile**2 * clump * rate / requests + centre**2), 1.0)


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Runs of one scheduler on one workload, one for each seed."""

    scheduler: str
    # workers, slo_ms, service: as in :class:`~ramsis.sim.fleet.Fleet`
    workers: int
    slo_ms: float
    service: str
    load_qps: float | None  # the workload's mean load, if it is known beforehand
    monitored: bool  # whether the scheduler used the load of the load monitor
    duration_ms: float
    seeds: tuple[int, ...]
    metrics: tuple[Metrics, ...]  # of each seed
    runs: tuple[Run, ...] = ()  # the records, where they were asked for
    told_qps: float | None = None  # the load that the scheduler was told, if it was

    def _summary(self) -> str:
        return (f"of {self.scheduler}: {self.workers} workers, SLO {self.slo_ms:g} ms, "
                f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}, effective accuracy "
                f"{self.effective_accuracy:.4f}, "
                f"violations {self.violation_rate:.4%}")

    def estimate(self, figure: str, confidence: float = 0.95) -> Estimate:
        """Return mean and confidence interval over the seeds of a field of :class:`Metrics`.

        Shares of the requests are means over the seeds with requests; 0 without any request.

        Where fewer than 50 requests are late or dropped, the half-widths of the violation rate and
        the effective accuracy are at least :func:`score_reach`: runs without a violation do not
        show that there are none. Seeds whose runs are all the same, as on recorded requests with
        fixed service times, have no error.
        """
        check_known("unknown figure", figure, FIGURES, "figure")
        seen = [metrics for metrics in self.metrics if metrics.queries] or self.metrics
        values = [getattr(metrics, figure)
                  for metrics in (seen if figure in _OF_REQUESTS else self.metrics)]
        estimate = Estimate.of([float(v) for v in values if v is not None], confidence)
        if figure not in _WITH_VIOLATIONS or estimate.half_width is None:
            return estimate
        return replace(estimate, half_width=max(estimate.half_width, self._unseen(confidence)))

    def _unseen(self, confidence: float) -> float:
        """Return the least half-width of the violation rate if violations are few, else 0."""
        requests = sum(metrics.queries for metrics in self.metrics)
        answered = sum(metrics.in_time + metrics.late for metrics in self.metrics)
        late = requests - sum(metrics.in_time for metrics in self.metrics)
        alike = all(metrics == self.metrics[0] for metrics in self.metrics)
        if alike or late >= FEW_VIOLATIONS or not requests:
            return 0.0
        spread = float(np.var([metrics.violation_rate for metrics in self.metrics], ddof=1))
        clump = max(answered / max(sum(metrics.batches for metrics in self.metrics), 1), 1.0,
                    spread / len(self.metrics) * requests**2 / max(late, 1))
        return score_reach(late / requests, requests, clump, float(ndtri((1 + confidence) / 2)))

    @property
    def accuracy(self) -> float:
        """Mean accuracy of the requests in time; NaN without any."""
        return self.estimate("accuracy").mean

    @property
    def violation_rate(self) -> float:
        """Mean share of the requests not in time."""
        return self.estimate("violation_rate").mean

    @property
    def effective_accuracy(self) -> float:
        """Mean over all requests of the accuracy if in time, else 0."""
        return self.estimate("effective_accuracy").mean

    def model_share(self) -> dict[str, float]:
        """Return the mean share of each model in the answered requests, the most used first."""
        names = {name for metrics in self.metrics for name in metrics.model_share}
        share = {name: float(np.mean([metrics.model_share.get(name, 0.0)
                                      for metrics in self.metrics])) for name in names}
        return dict(sorted(share.items(), key=lambda item: (-item[1], item[0])))

    def row(self) -> dict[str, Any]:
        """Return means over the seeds, and half-widths of the three main figures; counts are sums.

        A figure that no seed has is ``None``.
        """
        row: dict[str, Any] = {
            "scheduler": self.scheduler, "load_qps": self.load_qps, "workers": self.workers,
            "slo_ms": self.slo_ms, "service": self.service, "monitor": self.monitored,
            "duration_s": self.duration_ms / 1000.0, "seeds": len(self.seeds),
        }
        for name in _COUNTS:
            row[name] = sum(getattr(metrics, name) for metrics in self.metrics)
        for name in FIGURES:
            if name not in _COUNTS:
                mean = self.estimate(name).mean
                row[name] = None if math.isnan(mean) else mean
        for name in _MAIN:
            row[f"{name}_half_width"] = self.estimate(name).half_width
        row["model_share"] = self.model_share()
        opinions = [metrics.second_opinions for metrics in self.metrics
                    if metrics.second_opinions is not None]
        if opinions:
            row["second_opinions"] = float(np.mean(opinions))
        return row

    def _repr_html_(self) -> str:
        """Return means and intervals as an HTML table for notebooks."""
        return html_table((Column("figure", ""), Column("mean", "mean", ".5g"),
                           Column("half_width", "±", ".2g")), [
            {"figure": name.replace("_", " "), "mean": estimate.mean,
             "half_width": estimate.half_width}
            for name in _SHOWN for estimate in (self.estimate(name),)
            if not math.isnan(estimate.mean)],
            caption=f"{self.scheduler}, {self.workers} workers, SLO {self.slo_ms:g} ms, "
                    f"{len(self.seeds)} seeds")

    def plot(self) -> Any:
        """Plot the seeds, their mean and its interval (:class:`matplotlib.figure.Figure`)."""
        return figure_of("simulation", self)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row for each seed: the settings, and every figure."""
        import pandas as pd

        settings = {"scheduler": self.scheduler, "load_qps": self.load_qps,
                    "workers": self.workers, "slo_ms": self.slo_ms, "service": self.service,
                    "monitor": self.monitored, "duration_s": self.duration_ms / 1000.0}
        return pd.DataFrame([
            {**settings, "seed": seed, **{name: getattr(metrics, name) for name in FIGURES}}
            for seed, metrics in zip(self.seeds, self.metrics, strict=True)
        ])


_OF_SCENARIOS = ("response_longest_ms", "throughput_qps", "goodput_qps", "loads", "loading_s",
                 "cold_starts", "worker_s")
"""Figures that rows of fleets omit: they follow from other figures, or concern loads of models."""
FIGURES = tuple(item.name for item in fields(Metrics)
                if item.name not in ("model_share", "second_opinions", *_OF_SCENARIOS))
_WITH_VIOLATIONS = ("violation_rate", "effective_accuracy")
_OF_REQUESTS = ("violation_rate", "effective_accuracy", "queue_p99")
"""Figures that are 0 in a run without requests, although they are unknown there."""
_COUNTS = ("queries", "in_time", "late", "dropped", "never_answered", "batches")
_SHOWN = ("effective_accuracy", "accuracy", "violation_rate", "response_p99_ms", "utilisation")
_MAIN = ("accuracy", "violation_rate", "effective_accuracy")
