"""Schedulers side by side on one scenario, with the same requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ramsis.bounds import scenario_bound
from ramsis.errors import InvalidValueError, describe
from ramsis.scenario import Scenario, draw_requests
from ramsis.sim import Estimate
from ramsis.sim.cluster import (
    ClusterEngine,
    ClusterMetrics,
    Run,
    SchedulerSpec,
    Slowdown,
    measure_cluster,
)

__all__ = ["Compared", "compare"]

_SUMS = ("requests", "late", "dropped", "never_answered", "batches", "loads", "cold_starts")


@dataclass(frozen=True, eq=False)
class Compared:
    """A scheduler on a scenario, a run for each seed.

    Attributes
    ----------
    scheduler : str
    seeds : tuple of int
    metrics : tuple of ClusterMetrics
        Of each seed.
    bounds : tuple of float
        Share of the requests that any scheduler can answer in time at most, of each seed; empty
        where it was not asked for, or is not known.
    first : Run
        Of the first seed.
    figures : tuple of dict
        What the scheduler says of itself, of each seed.
    """

    scheduler: str
    seeds: tuple[int, ...]
    metrics: tuple[ClusterMetrics, ...]
    bounds: tuple[float, ...]
    first: Run
    figures: tuple[Mapping[str, float], ...] = ()

    def row(self) -> dict[str, Any]:
        """Means over the seeds; counts are sums. Shares are fractions, ``None`` without any."""
        shares = [one.in_time_share for one in self.metrics if one.in_time_share is not None]
        share = Estimate.of(shares)
        row: dict[str, Any] = {
            "scheduler": self.scheduler, "seeds": len(self.seeds),
            "in_time": share.mean if shares else None, "in_time_half_width": share.half_width,
        }
        if self.bounds:
            bound = sum(self.bounds) / len(self.bounds)
            row["bound"] = bound
            row["share_of_bound"] = share.mean / bound if shares and bound else None
        for item in fields(ClusterMetrics):
            values = [getattr(one, item.name) for one in self.metrics]
            known = [value for value in values if value is not None]
            if item.name in _SUMS:
                row[item.name] = sum(known)
            elif item.name not in ("in_time", "in_time_share"):
                row[item.name] = sum(known) / len(known) if known else None
        for name in sorted({name for one in self.figures for name in one}):
            values = [one[name] for one in self.figures if name in one]
            row[name] = sum(values) / len(values)
        return row


def compare(
    scenario: Scenario, schedulers: Sequence[SchedulerSpec], seeds: Sequence[int], *,
    bound: bool = False, slowdown: Slowdown | None = None,
    on_run: Callable[[], object] = lambda: None,
) -> tuple[Compared, ...]:
    """Run schedulers on the same requests.

    Parameters
    ----------
    scenario : Scenario
    schedulers : sequence of SchedulerSpec
    seeds : sequence of int
        One or more.
    bound : bool
        Whether to compute what no scheduler can beat, once for a seed; it is not known where
        requests depend on the answers, or batches are continuous.
    slowdown : Slowdown, optional
    on_run : callable
        Called after each run.

    Raises
    ------
    InvalidValueError
        No scheduler, or no seed.
    SchedulerError
        A scheduler did what cannot be done.
    InputFileError
        A scheduler of the user's own raised something else.
    """
    for name, given in (("schedulers", schedulers), ("seeds", seeds)):
        if not len(given):
            raise InvalidValueError(describe("none", where=name, allowed="one or more"))
    metrics: list[list[ClusterMetrics]] = [[] for _ in schedulers]
    bounds: list[float] = []
    firsts: list[Run] = []
    figures: list[list[Mapping[str, float]]] = [[] for _ in schedulers]
    for seed in seeds:
        requests = draw_requests(scenario, seed)
        known = scenario_bound(scenario, requests) if bound else None
        if known is not None and len(requests):
            bounds.append(known.share)
        for i, spec in enumerate(schedulers):
            run = spec.serve(ClusterEngine(scenario, seed, requests=requests, slowdown=slowdown))
            metrics[i].append(measure_cluster(run))
            figures[i].append(run.figures)
            if len(firsts) <= i:
                firsts.append(run)
            on_run()
    return tuple(
        Compared(spec.text, tuple(seeds), tuple(metrics[i]), tuple(bounds), firsts[i],
                 tuple(figures[i]))
        for i, spec in enumerate(schedulers))
