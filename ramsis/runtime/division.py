"""Assignment of numbered workers to the stations of a level.

Workers are numbered through a set's worker types, in the order of the set, and assigned to the
stations in this order. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ramsis.errors import InvalidValueError
from ramsis.runtime.policy_set import Level
from ramsis.runtime.selector import Selector


class StationWorkers(NamedTuple):
    """Workers, dispatch rule and SLO classes of a station."""

    dispatch: str  # dispatch rule of its policy
    workers: list[int]  # numbers of its workers
    slo_ms: list[float]  # SLO classes that it serves, increasing


def division(level: Level[Selector], worker_types: Mapping[str, int]) -> list[StationWorkers]:
    """Assign workers to the stations of a level."""
    free: dict[str, list[int]] = {}
    first = 0
    for name, count in worker_types.items():
        free[name] = list(range(first, first + count))
        first += count
    stations = []
    for station in level.stations:
        workers: list[int] = []
        for name in station.worker_types:
            missing = station.workers - len(workers)
            workers, free[name] = workers + free[name][:missing], free[name][missing:]
        if len(workers) < station.workers:
            raise InvalidValueError("more workers than there are", value=station.workers,
                                    where=f"station {station.name} at {level.load_qps:g} QPS",
                                    allowed=str(len(workers)))
        stations.append(
            StationWorkers(station.policy.table.dispatch, workers, sorted(station.share)))
    return stations
