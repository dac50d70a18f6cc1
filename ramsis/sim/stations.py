"""Policy sets, and stations, simulated at one load: shorthands for :func:`ramsis.sim.simulate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InvalidValueError, describe
from ramsis.policy import Level, Policy, PolicySet
from ramsis.profiles import ProfileSet
from ramsis.runtime.policy_set import Station
from ramsis.sim.experiment import SimulationSettings, simulate
from ramsis.sim.result import SimulationResult
from ramsis.sim.schemes.policies import Policies
from ramsis.sim.workload import ConstantLoad

__all__ = ["StationsResult", "simulate_set", "simulate_stations"]

StationsResult = SimulationResult


def simulate_set(
    policies: PolicySet[Policy],
    profiles: Mapping[str, ProfileSet],
    *,
    load_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
    source: str = "policies",
) -> SimulationResult:
    """Simulate a set on Poisson arrivals.

    Parameters
    ----------
    policies : PolicySet of Policy
    profiles : mapping of str to ProfileSet
        Of each worker type of the set.
    load_qps, duration_ms
        As of :class:`ramsis.sim.ConstantLoad`.
    service, seeds
        As of :class:`ramsis.sim.SimulationSettings`.
    source : str
        Where the policies are from, for messages.

    Raises
    ------
    InvalidValueError
        A number out of range, or no profile for a type.
    InputFileError
        A policy does not fit its profile.
    """
    for name in policies.worker_types:
        if name not in profiles:
            raise InvalidValueError(describe("no profile for a worker type", where="profiles",
                                             value=name, allowed=", ".join(profiles)))
    cluster = Cluster(tuple(WorkerType(name, profiles[name], count)
                            for name, count in policies.worker_types.items()),
                      tuple(SloClass(slo, share)
                            for slo, share in policies.slo_classes.items()))
    return simulate(cluster, Policies(policies, source), ConstantLoad(load_qps, duration_ms),
                    SimulationSettings(service=service, seeds=seeds))


def simulate_stations(
    stations: Sequence[tuple[Policy, ProfileSet, str]],
    *,
    load_qps: float,
    level_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
) -> SimulationResult:
    """Simulate stations, each its policy, its profile and where the policy is from.

    Parameters
    ----------
    load_qps, level_qps : float
        Of all queries; and what the loads of the policies add up to.
    duration_ms, service, seeds
        As of :func:`simulate_set`.
    """
    of_class: dict[float, float] = defaultdict(float)
    for policy, _, _ in stations:
        for one in policy.classes:
            of_class[one.slo_ms] += policy.load_qps * one.share
    total = sum(of_class.values())
    own = [Station(f"{i}", (f"{i}",), int(policy.workers), policy.load_qps,
                   {one.slo_ms: policy.load_qps * one.share / of_class[one.slo_ms]
                    for one in policy.classes}, policy)
           for i, (policy, _, _) in enumerate(stations)]
    cluster = Cluster(tuple(WorkerType(station.name, profile, station.workers)
                            for station, (_, profile, _) in zip(own, stations, strict=True)),
                      tuple(SloClass(slo, load / total) for slo, load in of_class.items()))
    level = Level(level_qps, own[0].policy.arrivals_label, tuple(own), {})
    made = PolicySet([level], {one.name: one.count or 0 for one in cluster.worker_types},
                     {one.slo_ms: one.share for one in cluster.classes})
    return simulate(cluster, Policies(made, stations[0][2]), ConstantLoad(load_qps, duration_ms),
                    SimulationSettings(service=service, seeds=seeds))
