"""Mixed fleets in simulation: each part of a ``mix.json`` on its share of the arrivals.

Queries go to the parts at random by the shares of the mix, so that Poisson arrivals of the whole
are independent Poisson arrivals at the parts, each query's class drawn by what the part gets. So
each part is run by itself, and what they do is added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import Policy, WorkerPolicy
from ramsis.policy.mix import mix_policies
from ramsis.profiles import ProfileSet
from ramsis.runtime.mix import Mix
from ramsis.sim.experiment import run_plan
from ramsis.sim.fleet import MAX_BATCH, Fleet
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.result import Estimate
from ramsis.sim.schemes import FleetPolicies, WorkerPolicies
from ramsis.sim.workload import ConstantLoad

__all__ = ["MixResult", "replay_parts", "simulate_mix"]


@dataclass(frozen=True, eq=False)
class MixResult:
    """What a mixed fleet did at one load.

    Attributes
    ----------
    load_qps, level_qps : float
        Of all queries; and the load that the policies were made for.
    seeds : tuple of int
    parts : tuple of tuple of Metrics
        For each seed, of each part in the order of the mix.
    """

    load_qps: float
    level_qps: float
    seeds: tuple[int, ...]
    parts: tuple[tuple[Metrics, ...], ...]

    def queries(self) -> tuple[int, ...]:
        """Queries of each seed, over all parts."""
        return tuple(sum(one.queries for one in parts) for parts in self.parts)

    def estimate(self, figure: str) -> Estimate:
        """Mean and 95 % confidence interval over the seeds.

        Parameters
        ----------
        figure : str
            ``effective_accuracy``, ``violation_rate``, or ``accuracy`` of the queries in time.
        """
        if figure == "accuracy":
            return Estimate.of([
                _total(parts, "effective_accuracy") / (1.0 - _total(parts, "violation_rate"))
                for parts in self.parts if _total(parts, "violation_rate") < 1.0])
        return Estimate.of([_total(parts, figure) for parts in self.parts])


def simulate_mix(
    mix: Mix,
    profiles: Mapping[str, ProfileSet],
    *,
    load_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
) -> MixResult:
    """Replay the policies of a mix on Poisson arrivals.

    Parameters
    ----------
    mix : Mix
    profiles : mapping of str to ProfileSet
        Of each worker type of the mix.
    load_qps : float
        Of all queries, > 0; the lowest level that meets it serves, else the highest.
    duration_ms : float
        Until arrivals stop, > 0.
    service : str
        As for :func:`ramsis.sim.simulate`.
    seeds : sequence of int
        One or more, >= 0.

    Raises
    ------
    InvalidValueError
        A number out of range, or no profile for a type.
    InputFileError
        A policy file is missing, has changed, or does not fit its profile.
    """
    for name in mix.types:
        if name not in profiles:
            raise InvalidValueError(describe("no profile for a worker type", where="profiles",
                                             value=name, allowed=", ".join(profiles)))
    level = mix.at(load_qps)
    parts = [(policy, profiles[part.types[0]], str(mix.folder / part.file))
             for part, policy in mix_policies(mix, level)]
    return replay_parts(parts, load_qps=load_qps, level_qps=level.load_qps,
                        duration_ms=duration_ms, service=service, seeds=seeds)


def replay_parts(
    parts: Sequence[tuple[Policy, ProfileSet, str]],
    *,
    load_qps: float,
    level_qps: float,
    duration_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
) -> MixResult:
    """Replay the parts of a fleet, each its policy, its profile and where the policy is from.

    Parameters
    ----------
    load_qps, level_qps : float
        Of all queries; and what the loads of the policies add up to.
    duration_ms, service, seeds
        As of :func:`simulate_mix`.
    """
    prepared = []
    for policy, profile, source in parts:
        fleet = _fleet(policy, profile, service)
        workload = ConstantLoad(policy.load_qps * load_qps / level_qps, duration_ms)
        prepared.append((fleet, _policies(policy, source).prepare(fleet), workload))
    runs = tuple(
        tuple(measure(run_plan(fleet, plan, workload, seed=_own_seed(seed, i)))
              for i, (fleet, plan, workload) in enumerate(prepared))
        for seed in seeds)
    return MixResult(load_qps, level_qps, tuple(seeds), runs)


def _fleet(policy: Policy, profile: ProfileSet, service: str) -> Fleet:
    largest = max(MAX_BATCH, _policies(policy, "").max_batch)
    fleet = Fleet.of(profile, workers=policy.workers, slo_ms=policy.slo_ms, service=service,
                     max_batch=largest)
    return replace(fleet, classes=getattr(policy, "slo_classes", ()))


def _policies(policy: Policy, source: str) -> FleetPolicies | WorkerPolicies:
    if isinstance(policy, WorkerPolicy):
        return WorkerPolicies((policy,), source=source)
    return FleetPolicies((policy,), source)


def _own_seed(seed: int, part: int) -> int:
    """A seed of a part's own."""
    return int(np.random.SeedSequence((seed, part)).generate_state(1)[0])


def _total(parts: Sequence[Metrics], figure: str) -> float:
    """A rate over the queries of all parts."""
    queries = sum(one.queries for one in parts)
    return sum(float(getattr(one, figure)) * one.queries for one in parts) / max(queries, 1)
