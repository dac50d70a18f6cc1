"""Placement presets as sharing policies: the integer programs, AlpaServe and Nexus.

The models become a placement problem with one variant each. Shares of multiprocessors are the
chosen metric, memory is in percent of a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from placement_milp.backend import Limits
from placement_milp.problem import Family, Latency, Problem, Rules, Variant, WorkerType
from placement_milp.result import Placement
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel

_MEMORY_MB = 100.0  # memory of a GPU in the problem, so that its unit is percent
Preset = Callable[[Problem, Limits], Placement]


@dataclass(frozen=True)
class Program:
    """Adapter of a placement preset to a sharing policy."""

    preset: Preset  # function of a problem and limits
    metric: str = "occupancy"  # field of a batch with its share of the multiprocessors
    limits: Limits = field(default_factory=Limits)  # limits of the solver

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        """Return replicas of the models on the GPUs."""
        if not any(model.in_time(gpu.gpu_type) for model in models for gpu in gpus):
            return []  # presets refuse problems that have no solution at all
        return replicas_of(self.preset(problem_of(models, gpus, self.metric), self.limits))


def problem_of(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], metric: str = "utilisation"
) -> Problem:
    """Return the placement problem of models on GPUs; memory in percent of a GPU's."""
    kinds = dict.fromkeys(gpu.gpu_type for gpu in gpus)
    types = tuple(
        WorkerType(kind, len(names), _MEMORY_MB, workers=names) for kind in kinds
        if (names := tuple(gpu.name for gpu in gpus if gpu.gpu_type == kind)))
    families = tuple(Family(m.name, m.rate_rps, m.slo_ms) for m in models)
    variants = tuple(
        Variant(m.name, m.name, 1.0, min((row.memory for rows in m.batches.values()
                                          for row in rows), default=1.0) * _MEMORY_MB, 0.0,
                tuple(Latency(kind, row.batch, row.latency_ms, row.memory * _MEMORY_MB,
                              getattr(row, metric), row.occupancy, row.weighted_occupancy,
                              row.utilisation)
                      for kind in kinds for row in m.batches.get(kind, ())))
        for m in models)
    return Problem("sharing", families, types, variants, rules=Rules(variants_per_worker=2))


def replicas_of(placement: Placement) -> list[Replica]:
    """Return the replicas of a placement, for each worker of each group."""
    return [Replica(use.family, worker, use.batch, use.mps_share)
            for group in placement.groups for worker in group.workers for use in group.uses
            if use.batch is not None]
