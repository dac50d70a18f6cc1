"""Sharing policies as placement presets: Usher, WAO-Usher, iGniter, queue-aware.

The problem has one variant in each family, and every worker is a GPU. Shares of multiprocessors
are a policy's metric (``occupancy``, ``weighted_occupancy``, ``utilisation`` of a latency), or
``compute_share`` if a problem lacks it. A placement states isolated latencies, and loads by
batch / latency.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from placement_milp.backend import Limits
from placement_milp.feasible import latencies
from placement_milp.presets.heuristic import (
    ModelOnGpu,
    check_one_variant_each,
    gpu_groups,
    gpu_placement,
)
from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType
from placement_milp.result import Placement
from ramsis.errors import InfeasibleError, InputFileError
from ramsis.studies.sharing.gpu.profile import SharedBatch
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.igniter import Igniter
from ramsis.studies.sharing.plan import SharingPolicy, check_replicas, why_unserved
from ramsis.studies.sharing.queue_aware import QueueAware
from ramsis.studies.sharing.usher import Usher


def usher(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place models by Usher with the largest achieved occupancy; ``limits`` has no effect."""
    return placed_by(Usher(), problem, "occupancy")


def wao_usher(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place models by Usher with occupancy over time; ``limits`` has no effect."""
    return placed_by(Usher(metric="weighted_occupancy"), problem, "weighted_occupancy")


def igniter(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place models by iGniter at the problem's batch sizes; ``limits`` has no effect."""
    return placed_by(Igniter(measured_batches=True), problem, "utilisation")


def queue_aware(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place models by the queue-aware planner; ``limits`` has no effect.

    Batches are of the problem's sizes, and utilisations on a GPU add up to 1 at most, as
    placements require.
    """
    planner = QueueAware(compute_limit=1.0, sheds=False, measured_batches=True)
    return placed_by(planner, problem, "utilisation")


def placed_by(policy: SharingPolicy, problem: Problem, metric: str) -> Placement:
    """Run a sharing policy on a placement problem, and return the checked placement.

    ``metric`` is the field of latencies that holds the share of the multiprocessors. Batches with
    neither this field nor ``compute_share`` are left out.
    """
    start = time.perf_counter()
    models, gpus = models_of_problem(problem, metric)
    replicas = tuple(policy(models, gpus))
    check_replicas(models, gpus, replicas)
    instances = _instances(problem, replicas)
    busy = {item.gpu for item in instances}
    groups = gpu_groups(problem, instances, [gpu.name for gpu in gpus if gpu.name in busy])
    notes = tuple(f"{name} is not served: {why}"
                  for name, why in why_unserved(models, gpus, replicas).items())
    return gpu_placement(problem, groups, time.perf_counter() - start, notes=notes)


def models_of_problem(
    problem: Problem, metric: str
) -> tuple[tuple[SharedModel, ...], tuple[Gpu, ...]]:
    """Return the models and GPUs of a problem, with the metric that a policy uses."""
    check_one_variant_each(problem)
    gpus = tuple(Gpu(name, item.name) for item in problem.worker_types
                 for name in item.worker_names())
    by_family = {variant.family: variant for variant in problem.variants}
    models = tuple(_model(problem, family, by_family.get(family.name), metric)
                   for family in problem.families)
    if not gpus:
        raise InfeasibleError("no GPUs", where=problem.name)
    for model in models:
        if not model.batches:
            raise InputFileError(
                "model fits no GPU", where=f"{problem.name}: {model.name}",
                allowed=f"a latency with {metric} or compute_share, within a worker's memory")
    return models, gpus


def _model(
    problem: Problem, family: Family, variant: Variant | None, metric: str
) -> SharedModel:
    batches = {}
    for item in problem.worker_types if variant is not None else ():
        assert variant is not None
        rows = [_row(variant, item, entry, share) for entry in latencies(variant, item)
                if (share := _share(entry, metric)) is not None]
        fitting = tuple(sorted((row for row in rows if row.memory <= 1), key=lambda r: r.batch))
        if fitting:
            batches[item.name] = fitting
    return SharedModel(family.name, family.demand_qps, family.slo_ms, batches)


def _share(entry: Latency, metric: str) -> float | None:
    share: float | None = getattr(entry, metric)
    return entry.compute_share if share is None else share


def _row(variant: Variant, item: WorkerType, entry: Latency, share: float) -> SharedBatch:
    memory_mb = variant.memory_mb if entry.memory_mb is None else entry.memory_mb
    shares = [share if value is None else value for value in (
        entry.occupancy, entry.weighted_occupancy, entry.utilisation)]
    return SharedBatch(variant.family, item.name, entry.batch, entry.latency_ms,
                       memory_mb / item.memory_mb, *shares)


def _instances(problem: Problem, replicas: Sequence[Replica]) -> list[ModelOnGpu]:
    """Return the replicas as instances of the problem."""
    by_family = {variant.family: variant for variant in problem.variants}
    kinds = {name: item for item in problem.worker_types for name in item.worker_names()}
    instances = []
    for replica in replicas:
        variant, kind = by_family[replica.model], kinds[replica.gpu]
        listed = {entry.batch: entry for entry in latencies(variant, kind)}
        # A policy may use an interpolated batch size; a placement has only listed ones.
        if replica.batch not in listed:
            raise InputFileError(
                "the policy takes a batch that is not listed for this worker type",
                where=f"{problem.name}: {variant.name}", value=f"{replica.batch} on {kind.name}",
                allowed="the same batches of a variant on all worker types")
        instances.append(ModelOnGpu(problem.family(replica.model), variant, kind,
                                    listed[replica.batch], replica.gpu, replica.mps_share))
    return instances
