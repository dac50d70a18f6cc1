"""What a scheme does on some workers, against targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramsis.bounds import Targets
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.policy import PolicySet
from ramsis.sim import (
    Policies,
    RateTrace,
    Recorded,
    SchemeSpec,
    SimulationResult,
    SimulationSettings,
    Workload,
    simulate,
)
from ramsis.synthesis.schemes import PolicyScheme, policy_scheme
from ramsis.synthesis.stations import ClusterProblem, set_header

__all__ = ["FIGURES", "Trial", "largest_batch", "levels_for", "policies_for", "try_workers"]

FIGURES = ("accuracy", "violation_rate", "effective_accuracy")
"""What is promised and simulated."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One number of workers that was tried.

    Attributes
    ----------
    workers : int
        Of all types.
    promise : mapping of str to number, or None
        Of the policies for a constant load, by the names of a policy set's level.
    simulation : SimulationResult or None
        None where no policies could be made.
    targets : Targets
    refusal : str
        Why no policies could be made.
    counts : tuple of int
        Workers of each type that there is, where there are several.
    """

    workers: int
    promise: Mapping[str, Any] | None
    simulation: SimulationResult | None
    targets: Targets
    refusal: str = ""
    counts: tuple[int, ...] = ()

    @property
    def violation_rate(self) -> float:
        """Mean over the seeds; 1 without policies."""
        return self._mean("violation_rate", 1.0)

    @property
    def effective_accuracy(self) -> float:
        """Mean over the seeds; 0 without policies."""
        return self._mean("effective_accuracy", 0.0)

    @property
    def accuracy(self) -> float:
        """Of the queries in time in all seeds; 0 without any."""
        served = 1.0 - self.violation_rate
        return self.effective_accuracy / served if served > 0 else 0.0

    @property
    def met(self) -> bool:
        """Whether the means over the seeds reach the targets."""
        return (self.simulation is not None
                and self.targets.met(self.accuracy, self.violation_rate))

    @property
    def clear(self) -> bool | None:
        """Whether all of the figures' 95 % intervals is on the same side; None for one seed."""
        accuracy, late = self.half_width("accuracy"), self.half_width("violation_rate")
        if accuracy is None or late is None:
            return None
        sign = 1.0 if self.met else -1.0
        shifted = (self.accuracy - sign * accuracy,
                   min(1.0, max(0.0, self.violation_rate + sign * late)))
        return self.targets.met(*shifted) == self.met

    def half_width(self, figure: str) -> float | None:
        """Of the 95 % interval of a figure; None for one seed, or without policies."""
        return None if self.simulation is None else self.simulation.estimate(figure).half_width

    def figures(self) -> dict[str, Any]:
        """Promise and simulation under the names that every command uses."""
        promise = self.promise or {}
        row: dict[str, Any] = {f"expected_{name}": promise.get(f"expected_{name}")
                               for name in FIGURES}
        row |= {name: getattr(self, name) for name in FIGURES}
        return row | {f"{name}_half_width": self.half_width(name) for name in FIGURES}

    def _mean(self, figure: str, without: float) -> float:
        return without if self.simulation is None else self.simulation.estimate(figure).mean


def try_workers(
    cluster: Cluster,
    workload: Workload,
    targets: Targets,
    *,
    scheme: str = "central-queue",
    service: str = "p95",
    seeds: Sequence[int] = range(5),
) -> Trial:
    """What a scheme does on a cluster.

    Where no policies can be made for so few workers, as within a budget, the trial says why.

    Parameters
    ----------
    cluster : Cluster
    workload, targets, scheme, service, seeds
        As of :func:`ramsis.synthesis.capacity.fewest_workers`.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As when its policies are made and simulated.
    """
    ready, promise = policy_scheme(scheme), None
    if isinstance(ready, PolicyScheme):
        try:
            made = policies_for(ready, cluster, levels_for(ready, workload), service=service,
                                source=scheme)
        except InfeasibleError as error:
            return Trial(cluster.workers, None, None, targets, str(error))
        ready, promise = made, None if workload.varies else made.levels.levels[0].expected
    result = simulate(cluster, ready, workload, SimulationSettings(service=service, seeds=seeds))
    return Trial(cluster.workers, promise, result, targets)


def largest_batch(spec: PolicyScheme | SchemeSpec) -> int:
    """What a scheme may run beyond what every fleet can."""
    if isinstance(spec, PolicyScheme):
        return spec.largest_batch
    return int(getattr(spec, "max_batch", 1))


def levels_for(spec: PolicyScheme, workload: Workload) -> tuple[float, ...]:
    """Loads in queries per second that policies are made for."""
    if isinstance(workload, RateTrace) and workload.varies:
        return spec.loads(workload)
    if isinstance(workload, Recorded):
        return spec.levels_between(0.0, workload.peak_qps)
    if workload.load_qps is None:
        raise InvalidValueError(describe("no policies can be made: the load is not known",
                                         where="workload", value=workload))
    return (workload.load_qps,)


def policies_for(
    spec: PolicyScheme, cluster: Cluster, loads_qps: Sequence[float], *, service: str, source: str,
    on_level: Callable[[], object] | None = None,
) -> Policies:
    """The policies of a scheme for a cluster, ready to be simulated.

    Parameters
    ----------
    spec : PolicyScheme
    cluster : Cluster
    loads_qps : sequence of float
        Levels, > 0; each once.
    service : str
        Service times of the simulation, which policies are made from where they can be.
    source : str
        Names the policies in messages.
    on_level : callable, optional
        Called as each level is finished.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As of :func:`ramsis.synthesis.generate_set`.
    """
    settings = spec.settings(slo_ms=cluster.slo_ms, workers=cluster.workers, service=service)
    problem = ClusterProblem(cluster, settings)
    levels = []
    for load_qps in loads_qps:
        levels.append(problem.level(load_qps))
        if on_level is not None:
            on_level()
    return Policies(PolicySet(levels, *set_header(cluster)), source)
