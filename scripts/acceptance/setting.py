"""A setting: its policy, and what a scheduler does there in simulation.

What is simulated are the service times of the profile, not those of the policy's file, each query
judged by its own deadline. Runs are independent; workers, idle at first, have :data:`SETTLES` SLOs
to settle before anything counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet, load, pareto_front
from ramsis.profiles.importers import import_profile
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    Fleets,
    FleetScheduler,
    SimulationSettings,
    SlowSpells,
)
from ramsis.sim.experiment import EngineName, largest_batch, run_cluster
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sim.plan import ClusterPlan
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.simulated import SETTLES

__all__ = ["Effort", "Measured", "Setting", "capacity_qps", "measured", "of_share", "profile_of"]

RUNS = 10
SEED = 7 << 24
"""Seeds are none of those by which policies are chosen, measured or verified."""
_QUICK = 10  # times fewer queries


@dataclass(frozen=True)
class Effort:
    """How much is simulated, and by which engine."""

    quick: bool = False
    engine: EngineName = "auto"

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name; what is usual is left out."""
        return {name: value for name, value in asdict(self).items()
                if value not in (False, "auto")}

    def queries(self, usual: int) -> int:
        """Queries to simulate."""
        return usual // _QUICK if self.quick else usual


@dataclass(frozen=True)
class Setting:
    """What policies are made for.

    Attributes
    ----------
    profile : str
        Name of a shipped profile set, or a file to import.
    slo_ms : float
    workers : int
    load_qps : float
    share : float
        The load as a share of the capacity, for tables.
    dispatch : str
    options : Mapping
        Of :class:`ramsis.synthesis.SynthesisSettings`; the others have their defaults.
    """

    profile: str
    slo_ms: float
    workers: int
    load_qps: float
    share: float
    dispatch: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        return (f"{self.profile}, SLO {self.slo_ms:g} ms, {self.workers} workers, "
                f"{self.load_qps:g} QPS ({self.share:.0%}), {self.dispatch}{options}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "options": dict(self.options)}

    def other(self, dispatch: str | None = None, **options: Any) -> Setting:
        """The same with another dispatch rule or other options."""
        return replace(self, dispatch=dispatch or self.dispatch,
                       options={**self.options, **options})

    @property
    def settings(self) -> SynthesisSettings:
        """For the synthesis."""
        return SynthesisSettings(slo_ms=self.slo_ms, workers=self.workers,
                                 dispatch=self.dispatch, **self.options)

    def policy(self) -> Policy:
        """The policy that is made for it."""
        return generate_policy(profile_of(self.profile), self.load_qps, self.settings)


@cache
def profile_of(name: str) -> ProfileSet:
    """A shipped profile set, or the models on the front of a file of another format."""
    if not Path(name).suffix:
        return load(name)
    whole = import_profile(Path(name))
    return whole.subset(pareto_front(whole.latency_table("p95", MAX_BATCH)))


def capacity_qps(
    profile: str, slo_ms: float, workers: int, dispatch: str, **options: Any
) -> float:
    """Largest load that can be answered in time with the service times that policies know."""
    chosen = SynthesisSettings(slo_ms=slo_ms, workers=workers, dispatch=dispatch, **options)
    times = _times(profile, chosen.chosen_service(profile_of(profile)), chosen.max_queue)
    rate = (1 + np.arange(times.max_batch)) / times.mean_ms
    return 1000.0 * workers * float(rate[times.cdf(slo_ms) > 0.0].max())


@cache
def _times(profile: str, service: str, max_batch: int) -> ServiceTimes:
    return ServiceTimes.of(profile_of(profile), service, max_batch)


def of_share(
    profile: str, slo_ms: float, workers: int, share: float, dispatch: str, **options: Any
) -> Setting:
    """The setting with a share of the capacity as its load, rounded to three digits."""
    load_qps = float(f"{share * capacity_qps(profile, slo_ms, workers, dispatch, **options):.3g}")
    return Setting(profile, slo_ms, workers, load_qps, share, dispatch, options)


class Measured(NamedTuple):
    """Means over runs, and the standard errors of these.

    Attributes
    ----------
    effective_accuracy, violation_rate, gain : float
        The last is effective accuracy less price times violation rate.
    effective_error, violation_error, gain_error : float
    """

    effective_accuracy: float
    violation_rate: float
    gain: float
    effective_error: float
    violation_error: float
    gain_error: float


def measured(
    scheduler: FleetScheduler, setting: Setting, queries: int, *, service: str,
    slower: float = 1.0, spells: SlowSpells | None = None, price: float = 1.0,
    engine: EngineName = "auto",
) -> Measured:
    """What a scheduler does at a setting's load.

    Parameters
    ----------
    scheduler : FleetScheduler
        ``Policies((policy,))``, or another scheduler.
    queries : int
        In all runs together, at least; no run is shorter than 12 SLOs.
    service : str
        Service times, as of :class:`ramsis.sim.Fleet`.
    slower : float
        Factor on all service times.
    spells : SlowSpells, optional
        Times in which workers are slow.
    price : float
        Of a violation, in the gain.
    """
    fleet = Fleet.of(profile_of(setting.profile), workers=setting.workers, slo_ms=setting.slo_ms,
                     service=service, max_batch=largest_batch([scheduler]))
    fleet = replace(fleet, service_times=fleet.service_times.scaled(slower))
    plan = scheduler.prepare(fleet)
    since_ms = SETTLES * setting.slo_ms
    until_ms = since_ms + max(1000.0 * queries / RUNS / setting.load_qps, 12.0 * setting.slo_ms)
    workload = ConstantLoad(setting.load_qps, until_ms + setting.slo_ms)
    found = []
    for seed in range(SEED, SEED + RUNS):
        run = run_cluster(
            ClusterPlan.of_one(plan, Fleets.of_one(fleet)), workload, seed,
            SimulationSettings(monitor=False, slow_spells=spells, engine=engine))
        first, last = np.searchsorted(run.arrival_ms, [since_ms, until_ms])
        reward, late = run.reward[first:last].mean(), 1.0 - run.in_time[first:last].mean()
        found.append([reward, late, reward - price * late])
    mean = np.mean(found, axis=0).tolist()
    error = (np.std(found, axis=0, ddof=1) / np.sqrt(RUNS)).tolist()
    return Measured(*mean, *error)
