"""Policy sets in simulation: each station on its share of the arrivals.

Queries go to the stations at random by the shares of the set, so that Poisson arrivals of the
whole are independent Poisson arrivals at the stations, each query's class drawn by what the
station gets. So each station is run by itself, and what they do is added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import Policy, PolicySet
from ramsis.profiles import ProfileSet
from ramsis.sim.experiment import run_plan
from ramsis.sim.fleet import MAX_BATCH, Fleet
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.result import Estimate
from ramsis.sim.schemes.policies import Policies
from ramsis.sim.workload import ConstantLoad

__all__ = ["StationsResult", "simulate_set", "simulate_stations"]


@dataclass(frozen=True, eq=False)
class StationsResult:
    """What several stations did at one load.

    Attributes
    ----------
    load_qps, level_qps : float
        Of all queries; and the load that the policies were made for.
    seeds : tuple of int
    stations : tuple of tuple of Metrics
        For each seed, of each station in the order of the level.
    """

    load_qps: float
    level_qps: float
    seeds: tuple[int, ...]
    stations: tuple[tuple[Metrics, ...], ...]

    def queries(self) -> tuple[int, ...]:
        """Queries of each seed, over all stations."""
        return tuple(sum(one.queries for one in stations) for stations in self.stations)

    def estimate(self, figure: str) -> Estimate:
        """Mean and 95 % confidence interval over the seeds.

        Parameters
        ----------
        figure : str
            ``effective_accuracy``, ``violation_rate``, or ``accuracy`` of the queries in time.
        """
        if figure == "accuracy":
            return Estimate.of([
                _total(stations, "effective_accuracy")
                / (1.0 - _total(stations, "violation_rate"))
                for stations in self.stations if _total(stations, "violation_rate") < 1.0])
        return Estimate.of([_total(stations, figure) for stations in self.stations])


def simulate_set(
    policies: PolicySet[Policy],
    profiles: Mapping[str, ProfileSet],
    *,
    load_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
    source: str = "policies",
) -> StationsResult:
    """Simulate the stations of a set on Poisson arrivals.

    Parameters
    ----------
    policies : PolicySet of Policy
        For Poisson arrivals.
    profiles : mapping of str to ProfileSet
        Of each worker type of the set.
    load_qps : float
        Of all queries, > 0; the lowest level that meets it serves, else the highest.
    duration_ms : float
        Until arrivals stop, > 0.
    service : str
        As for :func:`ramsis.sim.simulate`.
    seeds : sequence of int
        One or more, >= 0.
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
    level = policies.at(load_qps).level
    stations = [(station.policy, profiles[station.worker_types[0]], f"{source}: {station.name}")
                for station in level.stations]
    return simulate_stations(stations, load_qps=load_qps, level_qps=level.load_qps,
                             duration_ms=duration_ms, service=service, seeds=seeds)


def simulate_stations(
    stations: Sequence[tuple[Policy, ProfileSet, str]],
    *,
    load_qps: float,
    level_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
) -> StationsResult:
    """Simulate stations, each its policy, its profile and where the policy is from.

    Parameters
    ----------
    load_qps, level_qps : float
        Of all queries; and what the loads of the policies add up to.
    duration_ms, service, seeds
        As of :func:`simulate_set`.
    """
    prepared = []
    for policy, profile, source in stations:
        scheme = Policies((policy,), source)
        fleet = Fleet.of(profile, workers=policy.workers, slo_ms=policy.slo_ms, service=service,
                         max_batch=max(MAX_BATCH, scheme.max_batch))
        fleet = replace(fleet, classes=policy.slo_classes)
        workload = ConstantLoad(policy.load_qps * load_qps / level_qps, duration_ms)
        prepared.append((fleet, scheme.prepare(fleet), workload))
    runs = tuple(
        tuple(measure(run_plan(fleet, plan, workload, seed=_own_seed(seed, i)))
              for i, (fleet, plan, workload) in enumerate(prepared))
        for seed in seeds)
    return StationsResult(load_qps, level_qps, tuple(seeds), runs)


def _own_seed(seed: int, station: int) -> int:
    """A seed of a station's own."""
    return int(np.random.SeedSequence((seed, station)).generate_state(1)[0])


def _total(stations: Sequence[Metrics], figure: str) -> float:
    """A rate over the queries of all stations."""
    queries = sum(one.queries for one in stations)
    return sum(float(getattr(one, figure)) * one.queries for one in stations) / max(queries, 1)
