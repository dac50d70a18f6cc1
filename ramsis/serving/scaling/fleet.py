"""Policies of a scaling policy: a set for each number of active workers.

Each set is for the largest number of workers, as stopped workers count as down.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.fields import Fields
from ramsis.files import read_json
from ramsis.policy import Policy, PolicySet
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.runtime.policy_set import ALL_WORKERS, Level, types_in_words
from ramsis.runtime.scaling_table import SCALING_FORMAT, SCALING_NAME, ScalingTable
from ramsis.runtime.selector import Selector
from ramsis.serving.policies import check_served, largest_batch, read_policies, selector_of


class FleetPolicies:
    """Scaling table with the policies for each number of active workers.

    ``sets`` are by that number, from 1 to the largest that the table wants.
    """

    def __init__(self, table: ScalingTable, sets: dict[int, PolicySet[Policy]]) -> None:
        self.table, self._sets = table, sets
        self.largest_batch = max(map(largest_batch, sets.values()))
        lookups: dict[int, Selector] = {}  # cache, as numbers of workers share policies

        def lookup(policy: Policy) -> Selector:
            if id(policy) not in lookups:
                lookups[id(policy)] = selector_of(policy)
            return lookups[id(policy)]

        self._selectors = {workers: policies.map(lookup)
                           for workers, policies in sets.items()}

    def policies(self, active: int) -> PolicySet[Policy]:
        """Return the policies for a number of active workers; for 0 those of 1."""
        return self._sets[max(active, 1)]

    def selectors(self, active: int) -> PolicySet[Selector]:
        """Return the policies for a number of active workers as selectors."""
        return self._selectors[max(active, 1)]

    def check(self, variants: Collection[str], where: str) -> None:
        """Refuse policies that the server's variants cannot serve."""
        for policies in self._sets.values():
            check_served(policies, variants, None, where)


def scaling_file(path: str | os.PathLike[str]) -> Path | None:
    """Return the scaling policy file at a path; None if the path holds policies."""
    given_path = Path(path)
    if given_path.is_dir():
        file = given_path / SCALING_NAME
        return file if file.is_file() and not (given_path / MANIFEST_NAME).exists() else None
    kind = str(read_json(given_path).get("format")).partition("/")[0]
    return given_path if kind == SCALING_FORMAT.partition("/")[0] else None


def read_fleet(path: str | os.PathLike[str], most: int | None = None) -> FleetPolicies:
    """Read a scaling policy with its policies, whose folders are beside the file.

    ``most`` is an upper limit on the number of workers; by default the table's.
    """
    document = read_json(path)
    table = ScalingTable.from_document(document, str(path))
    if most is not None:
        if most < table.least:
            raise InvalidValueError("less than the least workers of the scaling policy",
                                    where="most workers", value=most,
                                    allowed=f"{table.least} or more ({path})")
        table = replace(table, most=min(most, table.most))
    policies: dict[str, PolicySet[Policy]] = {}
    sets: dict[int, PolicySet[Policy]] = {}
    fields = Fields(document, str(path))
    for entry in fields.children("tables"):
        workers, planned_for = entry.whole("workers", 1), entry.whole("made_for", 1)
        folder = Path(path).parent / entry.text("folder")
        if workers > table.most:
            continue
        if str(folder) not in policies:
            policies[str(folder)] = _checked(read_policies(folder), planned_for, str(folder))
        sets[workers] = _resized(policies[str(folder)], workers / planned_for, table.most)
    missing = sorted(set(range(1, table.most + 1)) - set(sets))
    if missing:
        raise fields.refusal("tables", "no policies for a number of workers", value=missing[0])
    return FleetPolicies(table, sets)


def _checked(policies: PolicySet[Policy], size: int, where: str) -> PolicySet[Policy]:
    if policies.worker_types != {ALL_WORKERS: size}:
        raise InputFileError(
            "policies for other workers", where=where,
            value=types_in_words(policies.worker_types),
            allowed=types_in_words({ALL_WORKERS: size}))
    return policies


def _resized(policies: PolicySet[Policy], times: float, most: int) -> PolicySet[Policy]:
    """Return the policies with loads multiplied by ``times``, for ``most`` workers."""
    levels = [Level(level.load_qps * times, level.arrivals, tuple(
        station._replace(workers=most, load_qps=station.load_qps * times)
        for station in level.stations), level.expected, level.slowness)
        for level in policies.levels]
    return PolicySet(levels, {ALL_WORKERS: most}, policies.slo_classes)
