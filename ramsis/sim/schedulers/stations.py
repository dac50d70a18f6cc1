"""Policy sets on several stations: which workers each station has at each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ramsis.errors import InputFileError
from ramsis.policy import Level, Policy
from ramsis.runtime.policy_set import PolicySet, types_in_words
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.plan import ClusterPlan, Plan, StationPlan

PlanOf = Callable[[Sequence[Policy], str, Fleet], Plan]
"""The plan of a station: its policies by load, where they are from, and its workers."""

_Division = tuple[tuple[range, float, tuple[float, ...]], ...]


def stations_of(
    policies: PolicySet[Policy], fleets: Fleets, plan_of: PlanOf, *, name: str, source: str
) -> ClusterPlan:
    """The stations of each level of a set.

    Levels that divide the workers in the same way share their schedulers, which then change tables
    with the load as those of a simple set do.

    Parameters
    ----------
    policies : PolicySet of Policy
    fleets : Fleets
    plan_of : callable
        See :data:`PlanOf`.
    name, source : str
        As in results, and where the policies are from.
    """
    classes = {one.slo_ms: one.share for one in fleets.classes}
    if policies.worker_types != dict(fleets.worker_types):
        raise InputFileError(
            "made for other worker types", where=source,
            value=types_in_words(policies.worker_types),
            allowed=types_in_words(fleets.worker_types))
    if policies.slo_classes != classes:
        raise InputFileError("made for other SLO classes", where=source,
                             value=policies.slo_classes, allowed=str(classes))
    alike: dict[_Division, list[Level[Policy]]] = {}
    for level in policies.levels:
        alike.setdefault(_division(level, fleets, source), []).append(level)

    def own_plan(own: list[Level[Policy]], number: int, fleet: Fleet) -> Plan:
        """One station's tables, by the load of the whole cluster."""
        made = [replace(level.stations[number].policy, load_qps=level.load_qps) for level in own]
        return plan_of(made, f"{source}: {own[0].stations[number].name}", fleet)

    levels = [planned for division, own in alike.items()
              for planned in _planned(own_plan, fleets, division, own)]
    return ClusterPlan(name, fleets,
                       PolicySet(levels, policies.worker_types, policies.slo_classes))


def _division(level: Level[Policy], fleets: Fleets, source: str) -> _Division:
    """The workers of each station, its SLO and its classes; workers are taken in order."""
    free = list(fleets.first_workers)
    stations = []
    for station in level.stations:
        kind = fleets.fleet_of[station.worker_types[0]]
        workers = range(free[kind], free[kind] + station.workers)
        free[kind] = workers.stop
        if workers.stop > fleets.first_workers[kind] + fleets.fleets[kind].workers:
            raise InputFileError(
                "more workers than there are alike", value=station.workers,
                where=f"{source}: station {station.name} at {level.load_qps:g} QPS",
                allowed=f"{fleets.fleets[kind].workers} in all stations")
        stations.append((workers, station.policy.slo_ms, tuple(sorted(station.share))))
    return tuple(stations)


def _planned(
    own_plan: Callable[[list[Level[Policy]], int, Fleet], Plan], fleets: Fleets,
    division: _Division, levels: list[Level[Policy]],
) -> list[Level[StationPlan]]:
    """Levels that divide the workers in the same way."""
    plans = []
    for number, (workers, slo_ms, _) in enumerate(division):
        stations = [level.stations[number] for level in levels]
        kind = fleets.fleets[fleets.fleet_of[stations[0].worker_types[0]]]
        fleet = replace(kind, workers=len(workers), slo_ms=slo_ms,
                        classes=stations[0].policy.slo_classes)
        plans.append(StationPlan(number, fleet, workers, own_plan(levels, number, fleet)))
    return [level._replace(stations=tuple(
        station._replace(policy=plan)  # type: ignore[arg-type]
        for station, plan in zip(level.stations, plans, strict=True)))  # type: ignore[misc]
        for level in levels]
