"""Schedulers side by side on one scenario, with the same requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds import scenario_bound
from ramsis.errors import InvalidValueError, check_known
from ramsis.reprs import dataclass
from ramsis.scenario import Scenario, draw_requests
from ramsis.sim import Engine, Estimate, Metrics, Run, SchedulerSpec, Slowdown, measure
from ramsis.sim.metrics import STAGES, GroupFigures, by_group, jain_index

GROUPINGS = ("stream", "tenant", "family", "model", "copy")
"""Keys by which requests can be grouped; ``model`` and ``family`` are those a request asks for."""
_COUNTS = ("requests", "late", "dropped", "never_answered")
_QUANTILES = ("response_p50_ms", "response_p99_ms")

_SUMS = ("late", "dropped", "never_answered", "batches", "loads", "cold_starts")
_RENAMED = {"queries": "requests", "batch_mean": "mean_batch"}
FIGURES = ("queries", *_SUMS[:3], "violation_rate", "goodput_qps", "throughput_qps",
           "response_p50_ms", "response_p99_ms", "response_longest_ms", "batches", "batch_mean",
           "loads", "loading_s", "cold_starts", "utilisation", "worker_s", "accuracy")
"""Figures that rows have, in their order."""
KEYS = tuple(_RENAMED.get(name, name) for name in FIGURES)
"""Their names in rows."""


@dataclass(frozen=True, eq=False)
class Compared:
    """A scheduler on a scenario, a run for each seed."""

    scheduler: str
    seeds: tuple[int, ...]
    metrics: tuple[Metrics, ...]  # of each seed
    # upper bound on the share of requests that any scheduler can answer in time, of each seed;
    # empty if it was not requested, or is unknown
    bounds: tuple[float, ...]
    first: Run  # of the first seed
    # requests answered before the earliest_ms of their stream, of each seed; empty if no stream
    # has one
    too_early: tuple[int, ...] = ()
    # further figures that the scheduler itself reports, of each seed
    figures: tuple[Mapping[str, float], ...] = ()
    # for each requested grouping, the figures of its groups, of each seed
    groups: tuple[tuple[Grouping, tuple[GroupFigures, ...]], ...] = ()

    def row(self) -> dict[str, Any]:
        """Return means over the seeds; counts are sums. Shares are None without any request.

        With groupings the row also has the mean times of the stages of a request, and under ``by``
        the :meth:`~ramsis.planning.comparison.Grouping.row` of each grouping.
        """
        shares = [metrics.in_time_share for metrics in self.metrics
                  if metrics.in_time_share is not None]
        share = Estimate.of(shares)
        row: dict[str, Any] = {
            "scheduler": self.scheduler, "seeds": len(self.seeds),
            "in_time": share.mean if shares else None, "in_time_half_width": share.half_width,
        }
        if self.bounds:
            bound = sum(self.bounds) / len(self.bounds)
            row["bound"] = bound
            row["share_of_bound"] = share.mean / bound if shares and bound else None
        for name, key in zip(FIGURES, KEYS, strict=True):
            # Runs without requests have no violation rate.
            counted = [metrics for metrics in self.metrics
                       if metrics.queries or name != "violation_rate"]
            values = [getattr(metrics, name) for metrics in counted]
            numbers = [value for value in values if value is not None]
            if name == "queries" or name in _SUMS:
                row[key] = sum(numbers)
            else:
                row[key] = sum(numbers) / len(numbers) if numbers else None
        if self.too_early:
            row["too_early"] = sum(self.too_early)
        for name in sorted({name for figure in self.figures for name in figure}):
            values = [figure[name] for figure in self.figures if name in figure]
            row[name] = sum(values) / len(values)
        if self.groups:
            row |= stage_means(self.groups[0][1])
            row["by"] = {grouping.by: grouping.row(figures) for grouping, figures in self.groups}
        return row


def compare(
    scenario: Scenario, schedulers: Sequence[SchedulerSpec], seeds: Sequence[int], *,
    bound: bool = False, slowdown: Slowdown | None = None, by: Sequence[str] = (),
    on_run: Callable[[], object] = lambda: None,
) -> tuple[Compared, ...]:
    """Simulate schedulers on the same requests, once for each of one or more seeds.

    With ``bound``, compute for each seed the bound on requests in time for every scheduler. It is
    unknown if requests depend on answers, or if batches are continuous. ``by`` lists groupings of
    :data:`GROUPINGS`. ``on_run`` is called after each run.
    """
    for name, values in (("schedulers", schedulers), ("seeds", seeds)):
        if not len(values):
            raise InvalidValueError("none", where=name, allowed="one or more")
    groupings = [grouping_named(name, scenario) for name in dict.fromkeys(by)]
    bounds: list[float] = []
    has_earliest = any(stream.earliest_ms > 0.0 for stream in scenario.streams)
    firsts: list[Run] = []
    # metrics, requests answered too early, figures, and groups of each grouping, of each seed
    outcomes: list[list[tuple[Any, ...]]] = [[] for _ in schedulers]
    for seed in seeds:
        requests = draw_requests(scenario, seed)
        bound_in_time = scenario_bound(scenario, requests) if bound else None
        if bound_in_time is not None and len(requests):
            bounds.append(bound_in_time.share)
        for spec, seen in zip(schedulers, outcomes, strict=True):
            run = spec.serve(Engine.of_scenario(scenario, seed, requests=requests,
                                                slowdown=slowdown))
            if not seen:  # runs are large: of each scheduler the first is kept
                firsts.append(run)
            seen.append((measure(run), int(run.too_early.sum()), run.figures,
                         [grouping.figures(run) for grouping in groupings]))
            on_run()
    compared = []
    for spec, first, seen in zip(schedulers, firsts, outcomes, strict=True):
        metrics, too_early, figures, groups = zip(*seen, strict=True)
        compared.append(Compared(
            spec.text, tuple(seeds), metrics, tuple(bounds), first,
            too_early if has_earliest else (), figures,
            tuple(zip(groupings, zip(*groups, strict=True), strict=True))))
    return tuple(compared)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups of requests that a comparison reports: by stream, tenant, family, model or copy."""

    by: str  # one of :data:`GROUPINGS`
    names: tuple[str, ...]  # of the groups
    of: IntArray  # the group of each stream, or of each model

    def figures(self, run: Run) -> GroupFigures:
        """Return the figures of the groups in a run."""
        part = run.stream if self.by in ("stream", "tenant") else run.asked
        return by_group(run, self.of[part], len(self.names))

    def row(self, runs: Sequence[GroupFigures]) -> dict[str, Any]:
        """Return fairness, the worst group, and an entry for each group, from the figures of runs.

        Counts are sums over the runs. Shares and means are over the requests of all runs,
        quantiles are means over the runs; they are ``None`` without a request or an answer.
        """
        counts = {name: sum(getattr(figures, name) for figures in runs)
                  for name in (*_COUNTS, "in_time")}
        stages = np.sum([figures.stage_ms for figures in runs], axis=0)
        answered = counts["in_time"] + counts["late"]
        quantiles = {name: [getattr(figures, name) for figures in runs] for name in _QUANTILES}
        groups: list[dict[str, Any]] = []
        for i, name in enumerate(self.names):
            entry: dict[str, Any] = {"name": name}
            entry |= {key: int(counts[key][i]) for key in _COUNTS}
            asked = entry["requests"]
            entry["in_time"] = int(counts["in_time"][i]) / asked if asked else None
            entry |= _means(stages[:, i], int(answered[i]))
            entry |= {key: _mean_known([value[i] for value in values])
                      for key, values in quantiles.items()}
            groups.append(entry)
        asking = [group for group in groups if group["requests"]]
        worst = min(asking, key=lambda one: one["in_time"], default=None)
        return {"fairness": jain_index([group["in_time"] for group in asking]) if asking else None,
                "worst": worst and worst["name"], "worst_in_time": worst and worst["in_time"],
                "groups": groups}


def grouping_named(by: str, scenario: Scenario) -> Grouping:
    """Return the groups of a scenario's requests by the key ``by``."""
    arrays, models = scenario.arrays, scenario.models
    check_known("not what requests are grouped by", by, GROUPINGS, "by")
    if by == "stream":
        return Grouping(by, arrays.streams, np.arange(len(arrays.streams)))
    if by == "tenant":
        labels = [stream.tenant or "(none)" for stream in scenario.streams]
    elif by == "family":
        labels = [models[kind].family or models[kind].name for kind in arrays.kind.tolist()]
    else:
        labels = [arrays.kinds[kind] for kind in arrays.kind.tolist()] if by == "model" else [
            *arrays.models]
    names = tuple(dict.fromkeys(labels))
    places = {name: i for i, name in enumerate(names)}
    return Grouping(by, names, np.array([places[label] for label in labels]))


def stage_means(runs: Sequence[GroupFigures]) -> dict[str, float | None]:
    """Return the mean time of each stage, over the answers to all groups in all runs."""
    return _means(np.sum([figures.stage_ms.sum(axis=1) for figures in runs], axis=0),
                  int(sum(figures.in_time.sum() + figures.late.sum() for figures in runs)))


def _means(stages_ms: FloatArray, answered: int) -> dict[str, float | None]:
    names = ["response_mean_ms", *(f"{stage}_mean_ms" for stage in STAGES)]
    if not answered:
        return dict.fromkeys(names)
    return dict(zip(names, (np.append(stages_ms.sum(), stages_ms) / answered).tolist(),
                    strict=True))


def _mean_known(values: Sequence[float]) -> float | None:
    numbers = [float(value) for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else None
