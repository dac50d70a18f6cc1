"""Simulation of a placement, compared with the promises of the placement and of its policies.

All families are served at once, in one run of the plain engine for each seed: Poisson arrivals at
the demand of each, routed to its stations at random by the loads of the placement. Requests that
the placement sends to no station count as not answered. Requests count from when the workers, idle
at first, have had 40 SLOs to settle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from placement_milp import Family, Problem
from placement_milp.result import Group
from ramsis.bounds import fluid_bound
from ramsis.cluster.service_times import ServiceTimes
from ramsis.policy import Policy
from ramsis.reprs import dataclass
from ramsis.sim.result import Estimate
from ramsis.sim.run import Run
from ramsis.sim.schedulers.duty_cycle import DutyCycle
from ramsis.synthesis.placement.stations import (
    PlacedStation,
    StationUse,
    placed_stations,
    station_fleet,
    station_plan,
    station_policies,
)
from ramsis.synthesis.placement.streams import (
    NOT_SENT,
    Figures,
    QueryStream,
    StreamStation,
    Target,
    figures,
    requests_of,
    run_streams,
)
from ramsis.synthesis.simulated import SETTLES


@dataclass(frozen=True, eq=False)
class UseOutcome:
    """Simulated figures of a station for one family of requests."""

    use: StationUse
    simulated: tuple[Figures, ...]  # of each seed


@dataclass(frozen=True, eq=False)
class StationOutcome:
    """Simulated figures of one station of a placement."""

    station: PlacedStation
    policy: Policy | None  # that it was served by; ``None`` with fixed batches
    uses: tuple[UseOutcome, ...]
    busy: tuple[float, ...]  # share of the workers' time that is busy, of each seed


@dataclass(frozen=True, eq=False)
class FamilyOutcome:
    """Figures of a family; rates refer to its whole demand."""

    family: Family
    sent_share: float  # share of the demand that the placement sends to stations
    placement_accuracy: float  # effective accuracy that the placement promises
    # effective accuracy that the policies of its stations promise together; ``None`` where a
    # station has none
    policies_accuracy: float | None
    # upper bound on the effective accuracy with these workers and their variants, as if no other
    # family shared them
    upper_bound: float
    utilisation: float  # share of the time that the placement takes its busiest workers to be busy
    simulated: tuple[Figures, ...]  # of each seed

    def estimate(self, figure: str) -> Estimate:
        """Return mean and 95 % confidence interval over seeds of a rate of :class:`Figures`."""
        return estimate(self.simulated, figure)


@dataclass(frozen=True, eq=False)
class PlacementOutcome:
    """Simulated figures of a placement, by family and by station."""

    problem: Problem
    families: tuple[FamilyOutcome, ...]
    stations: tuple[StationOutcome, ...]
    first: Run  # of the first seed


def estimate(simulated: Sequence[Figures], figure: str) -> Estimate:
    """Return mean and 95 % confidence interval of a figure over seeds."""
    values = [getattr(figures, figure) for figures in simulated]
    return Estimate.of([float(value) for value in values if value is not None])


def simulate_placement(
    problem: Problem,
    groups: Sequence[Group],
    *,
    duration_ms: float,
    seeds: Sequence[int] = (0,),
    fixed: bool = False,
    on_step: Callable[[], object] | None = None,
) -> PlacementOutcome:
    """Simulate the demands of a problem on the groups of workers of a placement.

    Parameters
    ----------
    problem, groups
        Those of a placement, such as :func:`placement_milp.read_placement` returns.
    duration_ms : float
        Length of the time in which requests are counted, > 0.
    fixed : bool
        Run the placement's batches instead of policies, where it has batches, and drop nothing.
        Without it a duty cycle drops what it would answer late, as policies do.
    on_step : callable, optional
        Called after each station's policy and each seed.
    """
    stations = placed_stations(problem, groups)
    policies = _policies(stations, fixed, on_step)
    served = [_served(station, policy, drop=not fixed)
              for station, policy in zip(stations, policies, strict=True)]
    streams, settled_ms = _streams(problem, stations), SETTLES * max(
        family.slo_ms for family in problem.families)
    results: list[_Result] = []
    first: Run | None = None
    for seed in seeds:
        run, result = _one_seed(served, streams, stations, settled_ms, duration_ms, seed)
        first = first or run
        results.append(result)
        if on_step is not None:
            on_step()
    assert first is not None
    return PlacementOutcome(
        problem,
        tuple(_family(problem, family, stations, policies,
                      tuple(result.families[i] for result in results))
              for i, family in enumerate(problem.families)),
        tuple(_outcome(stations, policies, i, results) for i in range(len(stations))), first)


def _policies(
    stations: Sequence[PlacedStation], fixed: bool, on_step: Callable[[], object] | None
) -> tuple[Policy | None, ...]:
    """Return the policy of each station, None where it runs the placement's batches."""
    by_policy = [not fixed or station.uses[0].batch is None for station in stations]
    policies = iter(station_policies(
        [station for station, wanted in zip(stations, by_policy, strict=True) if wanted], on_step))
    for wanted in by_policy:
        if not wanted and on_step is not None:
            on_step()
    return tuple(next(policies) if wanted else None for wanted in by_policy)


def _served(
    station: PlacedStation, policy: Policy | None, *, drop: bool
) -> StreamStation:
    """Return a station with its scheduler: a policy, or the placement's batches in turn."""
    if policy is None:
        batches = [use.batch or 1 for use in station.uses]
        return StreamStation(station_fleet(station, station.max_batch),
                             partial(DutyCycle, batches=batches, drop=drop))
    fleet, plan = station_plan(station, policy)
    return StreamStation(fleet, lambda engine, use_of: plan.start(engine))


def _streams(problem: Problem, stations: Sequence[PlacedStation]) -> list[QueryStream]:
    """Return the stream of each family's requests, with the stations that they go to."""
    return [
        QueryStream(family.demand_qps, family.slo_ms, tuple(
            Target(i, j, use.load_qps / family.demand_qps)
            for i, station in enumerate(stations) for j, use in enumerate(station.uses)
            if use.family.name == family.name and use.load_qps > 0))
        for family in problem.families]


@dataclass(frozen=True, eq=False)
class _Result:
    """Figures of one seed: of families, of the uses of each station, and of its workers' time."""

    families: tuple[Figures, ...]
    uses: tuple[tuple[Figures, ...], ...]
    busy: tuple[float, ...]


def _one_seed(
    served: Sequence[StreamStation], streams: Sequence[QueryStream],
    stations: Sequence[PlacedStation], settled_ms: float, duration_ms: float, seed: int,
) -> tuple[Run, _Result]:
    """Simulate all stations with one seed; return the run and its figures after the warm-up."""
    until_ms = settled_ms + duration_ms
    requests = requests_of(streams, until_ms, seed)
    sent = requests.sent
    run = run_streams(served, sent, until_ms)
    judged = sent.arrival_ms >= settled_ms
    unsent = requests.stream[(requests.station == NOT_SENT) & (requests.arrival_ms >= settled_ms)]
    missing = np.bincount(unsent, minlength=len(streams)).tolist()
    families = tuple(figures(run, judged & (sent.stream == i), missing[i])
                     for i in range(len(streams)))
    uses = tuple(
        tuple(figures(run, judged & (sent.station == i) & (sent.use == j))
              for j in range(len(station.uses)))
        for i, station in enumerate(stations))
    return run, _Result(families, uses, _busy(run, settled_ms, until_ms))


def _busy(run: Run, since_ms: float, until_ms: float) -> tuple[float, ...]:
    """Return the busy share of the workers' time in a window, by fleet."""
    busy_ms = (np.clip(run.finish_ms, since_ms, until_ms)
               - np.clip(run.start_ms, since_ms, until_ms))
    counts = np.bincount(run.site.worker_type)
    total = np.bincount(run.site.worker_type[run.worker], busy_ms, minlength=len(counts))
    return tuple((total / counts / (until_ms - since_ms)).tolist())


def _outcome(
    stations: Sequence[PlacedStation], policies: Sequence[Policy | None], i: int,
    results: Sequence[_Result],
) -> StationOutcome:
    uses = tuple(UseOutcome(use, tuple(result.uses[i][j] for result in results))
                 for j, use in enumerate(stations[i].uses))
    return StationOutcome(stations[i], policies[i], uses, tuple(r.busy[i] for r in results))


def _family(
    problem: Problem, family: Family, stations: Sequence[PlacedStation],
    policies: Sequence[Policy | None], simulated: tuple[Figures, ...],
) -> FamilyOutcome:
    """Return a family's figures by placement, policies and simulation, over its stations."""
    uses = [(station, policy, use) for station, policy in zip(stations, policies, strict=True)
            for use in station.uses if use.family.name == family.name]
    share = [use.load_qps / family.demand_qps for _, _, use in uses]
    promises = [policy.expectations.effective_accuracy for _, policy, _ in uses
                if policy is not None]
    return FamilyOutcome(
        family, sum(share),
        sum(s * use.accuracy * use.in_time for s, (_, _, use) in zip(share, uses, strict=True)),
        sum(s * promise for s, promise in zip(share, promises, strict=True))
        if len(promises) == len(uses) else None,
        _bound(family, stations),
        max((station.utilisation for station, _, _ in uses), default=0.0), simulated)


def _bound(family: Family, stations: Sequence[PlacedStation]) -> float:
    """Return the fluid bound of a family as if it had the workers of its stations to itself."""
    types, counts = [], []
    for station in stations:
        names = [name for use in station.uses if use.family.name == family.name
                 for name in use.variants]
        if names:
            types.append(ServiceTimes.of(station.profile.subset(names), "p95", station.max_batch))
            counts.append(len(station.workers))
    if not types:
        return 0.0
    return fluid_bound(types, slo_ms=family.slo_ms, workers=counts,
                       load_qps=family.demand_qps).effective_accuracy
