"""Figures of groups of a scenario's requests: by stream, tenant, family, model or copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import check_known
from ramsis.scenario import Scenario
from ramsis.sim import Run
from ramsis.sim.metrics.groups import STAGES, GroupFigures, by_group, jain_index

GROUPINGS = ("stream", "tenant", "family", "model", "copy")
"""What requests are grouped by; models and families are those that a request asks for."""
_COUNTS = ("requests", "late", "dropped", "never_answered")
_QUANTILES = ("response_p50_ms", "response_p99_ms")


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of a scenario."""

    by: str  # one of :data:`GROUPINGS`
    names: tuple[str, ...]  # of the groups
    of: IntArray  # the group of each stream, or of each model

    def figures(self, run: Run) -> GroupFigures:
        """The figures of a run."""
        part = run.stream if self.by in ("stream", "tenant") else run.asked
        return by_group(run, self.of[part], len(self.names))

    def row(self, found: Sequence[GroupFigures]) -> dict[str, Any]:
        """Fairness, the worst group, and an entry for each group.

        Counts are sums over the runs. Shares and means are of the requests of all runs, quantiles
        are means over the runs; all are ``None`` without a request or an answer.
        """
        counts = {name: sum(getattr(figures, name) for figures in found)
                  for name in (*_COUNTS, "in_time")}
        stages = np.sum([figures.stage_ms for figures in found], axis=0)
        answered = counts["in_time"] + counts["late"]
        quantiles = {name: [getattr(figures, name) for figures in found] for name in _QUANTILES}
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
    """The groups of a scenario."""
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


def stage_means(found: Sequence[GroupFigures]) -> dict[str, float | None]:
    """Mean time of each stage, over the answers to all groups in all runs."""
    return _means(np.sum([figures.stage_ms.sum(axis=1) for figures in found], axis=0),
                  int(sum(figures.in_time.sum() + figures.late.sum() for figures in found)))


def _means(stages_ms: FloatArray, answered: int) -> dict[str, float | None]:
    names = ["response_mean_ms", *(f"{stage}_mean_ms" for stage in STAGES)]
    if not answered:
        return dict.fromkeys(names)
    return dict(zip(names, (np.append(stages_ms.sum(), stages_ms) / answered).tolist(),
                    strict=True))


def _mean_known(values: Sequence[float]) -> float | None:
    numbers = [float(value) for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else None
