"""Which workers each station of a level has.

Workers are numbered through a set's worker types, in the order of the set, and taken in that order
by the stations. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ramsis.errors import InvalidValueError
from ramsis.runtime.policy_set import Level
from ramsis.runtime.selector import Selector


class StationWorkers(NamedTuple):
    """A station's part of the workers."""

    dispatch: str  # the dispatch rule of its policy
    workers: list[int]  # their numbers
    slo_ms: list[float]  # the classes that it serves, rising


def division(level: Level[Selector], worker_types: Mapping[str, int]) -> list[StationWorkers]:
    """Assign workers to the stations of a level."""
    free: dict[str, list[int]] = {}
    first = 0
    for name, count in worker_types.items():
        free[name] = list(range(first, first + count))
        first += count
    stations = []
    for station in level.stations:
        here: list[int] = []
        for name in station.worker_types:
            missing = station.workers - len(here)
            here, free[name] = here + free[name][:missing], free[name][missing:]
        if len(here) < station.workers:
            raise InvalidValueError("more workers than there are", value=station.workers,
                                    where=f"station {station.name} at {level.load_qps:g} QPS",
                                    allowed=str(len(here)))
        stations.append(StationWorkers(station.policy.table.dispatch, here, sorted(station.share)))
    return stations
