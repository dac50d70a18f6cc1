"""What a scheduler does on some workers, against targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramsis.bounds import Targets
from ramsis.checks import check_arguments
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError
from ramsis.sim import SimulationResult, SimulationSettings, Workload, simulate
from ramsis.synthesis.schedulers import fleet_scheduler

__all__ = ["FIGURES", "Trial", "try_workers"]

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
    scheduler: str = "central-queue",
    service: str | None = None,
    seeds: Sequence[int] = range(5),
) -> Trial:
    """What a scheduler does on a cluster.

    Where no policies can be made for so few workers, as within a budget, the trial says why.

    Parameters
    ----------
    cluster : Cluster
    workload, targets, scheduler, service, seeds
        As of :func:`ramsis.synthesis.capacity.fewest_workers`.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As when its policies are made and simulated.
    """
    named = fleet_scheduler(scheduler)
    service = service or cluster.default_service
    try:
        spec, made = named.ready(cluster, named.loads_for(workload), service=service,
                                 source=scheduler)
    except InfeasibleError as error:
        return Trial(cluster.workers, None, None, targets, str(error))
    promise = None if workload.varies or made is None else made.levels.levels[0].expected
    result = simulate(cluster, spec, workload, SimulationSettings(service=service, seeds=seeds))
    return Trial(cluster.workers, promise, result, targets)


check_arguments(globals(), __all__)
