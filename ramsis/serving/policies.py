"""Policies of a server: reading, checks against its variants, and lookups."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramsis.errors import InputFileError
from ramsis.policy import Policy, PolicySet, rates_of, read, read_set
from ramsis.policy.policy_set import set_of
from ramsis.runtime.cascade import CascadeRule
from ramsis.runtime.policy_set import ALL_WORKERS, Level, Station
from ramsis.runtime.selector import Selector
from ramsis.runtime.sized import SizedTables

_MEANS = ("mean", "distribution")  # statements of service times whose ``latency_ms`` are means


def read_policies(path: str | os.PathLike[str]) -> PolicySet[Policy]:
    """Read the policies of a folder, or of a single file."""
    return read_set(path) if Path(path).is_dir() else set_of([read(path)])


def selectors_of(policies: PolicySet[Policy]) -> PolicySet[Selector]:
    """Convert a set of policies to a set of selectors."""
    return policies.map(selector_of)


def selector_of(policy: Policy) -> Selector:
    """Return the selector of a policy, with its second opinions."""
    table, cascade = policy.decision_table(), policy.cascade
    return Selector(table, None if cascade is None else CascadeRule(cascade.table(), table))


def has_cascades(policies: PolicySet[Policy]) -> bool:
    """Return whether any policy of a set gives second opinions."""
    return any(map(_has_cascade, policies.levels))


def _has_cascade(level: Level[Policy]) -> bool:
    return any(station.policy.cascade is not None for station in level.stations)


class _Model(NamedTuple):
    """Model of a policy for requests with a size."""

    name: str
    accuracy: float
    latency_ms: tuple[float, ...] = ()
    quantiles_ms: None = None


class _Sized(NamedTuple):
    """Adapter of a policy for requests with a size to the policies of a server."""

    models: tuple[_Model, ...]
    max_batch: int
    cascade: None = None
    service: str = "p95"  # no mean: times by batch size alone are not known
    overhead_ms: float = 0.0


def sized_policies(
    tables: SizedTables, load_qps: float, accuracy: Sequence[float],
    expectations: Mapping[str, Any],
) -> PolicySet[Any]:
    """Return a policy set with a single policy, for requests with a size.

    ``accuracy`` is that of each model; ``expectations`` have ``violation_rate`` and
    ``effective_accuracy``.
    """
    models = tuple(map(_Model, tables.models, accuracy))
    policy = _Sized(models, len(tables.times_ms[0][0]))
    classes = {tables.slo_ms: 1.0}
    station = Station("all", (ALL_WORKERS,), tables.workers, load_qps, classes, policy)
    level: Level[Any] = Level(load_qps, "poisson", (station,), {
        f"expected_{name}": expectations[name]
        for name in ("violation_rate", "effective_accuracy")})
    return PolicySet([level], {ALL_WORKERS: tables.workers}, classes)


def largest_batch(policies: PolicySet[Policy]) -> int:
    """Return the largest batch in any of the policies."""
    return max(size for level in policies.levels for station in level.stations
               for size in _largest_batches(station.policy))


def _largest_batches(policy: Policy) -> Iterator[int]:
    """Yield the largest batch of the table, of fresh requests, and of second opinions."""
    yield policy.max_batch
    if policy.cascade is not None:
        yield int(policy.cascade.actions[:, 1].max())
        yield len(policy.cascade.second_ms)


def model_names(policies: PolicySet[Policy]) -> list[str]:
    """Return the sorted names of the models that policies choose from."""
    return sorted({model.name for level in policies.levels for station in level.stations
                   for model in station.policy.models})


def check_served(
    policies: PolicySet[Policy], variants: Collection[str], max_batch: int | None, where: str
) -> None:
    """Refuse policies that the server's variants cannot serve."""
    missing = sorted(set(model_names(policies)) - set(variants))
    if missing:
        raise InputFileError("policies for models that have no variant", where=where,
                             value=missing, allowed=", ".join(sorted(variants)))
    largest = largest_batch(policies)
    if max_batch is not None and largest > max_batch:
        raise InputFileError("policies with larger batches than the workers run", where=where,
                             value=largest, allowed=f"up to {max_batch}")


class Expected:
    """Expected service times and violation rates of a level, by its policies.

    Without ``second_opinions``, which are then not used, the promise of the tables alone counts.
    """

    def __init__(self, level: Level[Policy], second_opinions: bool = True) -> None:
        self._slowness = level.slowness
        self.violation_rate = float(level.expected.get("expected_violation_rate", 0.0))
        self.effective_accuracy = float(level.expected.get("expected_effective_accuracy", 0.0))
        if not second_opinions and _has_cascade(level):
            tables = rates_of((station.load_qps / level.load_qps,
                               replace(station.policy, cascade=None))
                              for station in level.stations)
            self.violation_rate = tables.violation_rate
            self.effective_accuracy = tables.effective_accuracy
        models = [model for station in level.stations for model in station.policy.models]
        self._latency_ms = {model.name: model.latency_ms for model in models}
        # Other statements of service times are no means.
        self.knows_means = all(station.policy.service in _MEANS for station in level.stations)
        self._policy = {model.name: (station.policy, model) for station in level.stations
                        for model in station.policy.models}
        self._stated: dict[tuple[str, int], float | None] = {}

    def service_ms(self, variant: str, batch: int) -> float | None:
        """Return the profiled mean time of a batch; None if the policies do not contain it."""
        latency_ms = self._latency_ms.get(variant, ())
        return latency_ms[batch - 1] / self._slowness if batch <= len(latency_ms) else None

    def stated_ms(self, variant: str, batch: int, quantile: float) -> float | None:
        """Return a quantile of a batch's time, with the overhead of the policy.

        If the policy has a single statistic, it is taken as the quantile.
        """
        key = variant, batch
        if key not in self._stated:
            self._stated[key] = self._quantile_ms(variant, batch, quantile)
        return self._stated[key]

    def _quantile_ms(self, variant: str, batch: int, quantile: float) -> float | None:
        time_ms = self.service_ms(variant, batch)
        if time_ms is None:
            return None
        policy, model = self._policy[variant]
        if model.quantiles_ms is not None and batch <= len(model.quantiles_ms):
            quantiles_ms = np.asarray(model.quantiles_ms[batch - 1])
            levels = (policy.quantile_levels if policy.quantile_levels is not None
                      else (np.arange(len(quantiles_ms)) + 0.5) / len(quantiles_ms))
            time_ms = float(np.interp(quantile, levels, quantiles_ms)) / self._slowness
        return time_ms + policy.overhead_ms
