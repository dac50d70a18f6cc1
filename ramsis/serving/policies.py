"""The policies that a server serves by: read, checked against its variants, made into lookups."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np

from ramsis.errors import InputFileError
from ramsis.policy import Policy, PolicySet, read, read_set
from ramsis.policy.policy_set import set_of
from ramsis.runtime.policy_set import Level
from ramsis.runtime.selector import Selector

_MEANS = ("mean", "distribution")
"""Ways to state service times of which ``latency_ms`` are means."""


def read_policies(path: str | os.PathLike[str]) -> PolicySet[Policy]:
    """The policies of a folder, or of one file."""
    return read_set(path) if Path(path).is_dir() else set_of([read(path)])


def selectors_of(policies: PolicySet[Policy]) -> PolicySet[Selector]:
    """Return the set with a lookup in each station."""
    return policies.map(lambda policy: Selector(policy.decision_table()))


def largest_batch(policies: PolicySet[Policy]) -> int:
    """Largest batch that a table asks for."""
    return max(policy.max_batch for level in policies.levels
               for policy in (station.policy for station in level.stations))


def check_served(
    policies: PolicySet[Policy], variants: Collection[str], max_batch: int | None, where: str
) -> None:
    """Refuse policies that these variants cannot serve."""
    named = {model.name for level in policies.levels for station in level.stations
             for model in station.policy.models}
    missing = sorted(named - set(variants))
    if missing:
        raise InputFileError("policies for models that have no variant", where=where,
                             value=missing, allowed=", ".join(sorted(variants)))
    largest = largest_batch(policies)
    if max_batch is not None and largest > max_batch:
        raise InputFileError("policies with larger batches than the workers run", where=where,
                             value=largest, allowed=f"up to {max_batch}")


class Expected:
    """Assumptions of the policies of a level: service times and violation rates.

    Attributes
    ----------
    load_qps, violation_rate, effective_accuracy
        Of the level.
    knows_means
        Whether service times are means; else they are some other statistic.
    """

    def __init__(self, level: Level[Policy]) -> None:
        self.load_qps, self._slowness = level.load_qps, level.slowness
        self.violation_rate = float(level.expected.get("expected_violation_rate", 0.0))
        self.effective_accuracy = float(level.expected.get("expected_effective_accuracy", 0.0))
        models = [model for station in level.stations for model in station.policy.models]
        self._latency_ms = {model.name: model.latency_ms for model in models}
        self.knows_means = all(station.policy.service in _MEANS for station in level.stations)
        self._policy = {model.name: (station.policy, model) for station in level.stations
                        for model in station.policy.models}
        self._stated: dict[tuple[str, int], float | None] = {}

    def service_ms(self, variant: str, batch: int) -> float | None:
        """Return what a batch takes as profiled, as far as the policies know it."""
        latency_ms = self._latency_ms.get(variant, ())
        return latency_ms[batch - 1] / self._slowness if batch <= len(latency_ms) else None

    def stated_ms(self, variant: str, batch: int, quantile: float) -> float | None:
        """A quantile of what a batch takes, with the overhead that the policy was made with.

        Where the policy knows one statistic alone, that is taken.
        """
        key = variant, batch
        if key not in self._stated:
            self._stated[key] = self._quantile_ms(variant, batch, quantile)
        return self._stated[key]

    def _quantile_ms(self, variant: str, batch: int, quantile: float) -> float | None:
        found = self.service_ms(variant, batch)
        if found is None:
            return None
        policy, model = self._policy[variant]
        if model.quantiles_ms is not None and batch <= len(model.quantiles_ms):
            known = np.asarray(model.quantiles_ms[batch - 1])
            levels = (policy.quantile_levels if policy.quantile_levels is not None
                      else (np.arange(len(known)) + 0.5) / len(known))
            found = float(np.interp(quantile, levels, known)) / self._slowness
        return found + policy.overhead_ms
