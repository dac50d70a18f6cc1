"""Variants of a placement problem from a latency profile, or from a profile of instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placement_milp.partitions import PartitionTable
from placement_milp.problem import Latency, Variant, WorkerType
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import ProfileSet, Statistic
from ramsis.profiles.importers.instances import InstanceRow


def variants_from_profile(
    profile: ProfileSet, family: str, worker_type: str, *, statistic: Statistic = "p95",
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32),
) -> tuple[Variant, ...]:
    """Return a variant for each model of a profile, named ``FAMILY/MODEL``.

    Parameters
    ----------
    profile : ProfileSet
        Models need ``memory_mb``.
    family : str
        Family of the variants.
    worker_type : str
        Worker type that the profile was measured on.
    statistic : str
        Statistic of the profile that is taken as a batch's latency.
    batches : sequence of int
        Batch sizes; unmeasured ones are left out.
    """
    table = profile.latency_table(statistic, max(batches))
    variants = []
    for model in profile.models:
        if model.memory_mb is None:
            raise InvalidValueError("model has no memory_mb", where=model.name,
                                    allowed="a profile with the memory of each model")
        measured = {batch.batch for batch in model.batches}
        row = table.latency_ms[table.models.index(model.name)]
        variants.append(Variant(
            f"{family}/{model.name}", family, model.accuracy, model.memory_mb,
            model.load_ms or 0.0,
            tuple(Latency(worker_type, batch, float(row[batch - 1]))
                  for batch in batches if batch in measured),
        ))
    return tuple(variants)


def instance_latencies(
    rows: Iterable[InstanceRow], worker_type: WorkerType, *, max_processes: int | None = None,
    where: str = "profile",
) -> dict[str, tuple[Latency, ...]]:
    """Return the batches of each model on the instances of a type of partitioned GPU.

    An instance given as a number is the one with as many compute slices and the least memory. Rows
    with more processes than ``max_processes`` are left out; ``where`` names the file.
    """
    table = worker_type.partitions
    if table is None:
        raise InputFileError("a profile of instances is for a GPU without partitions", where=where,
                             value=worker_type.name, allowed="a worker type with partitions")
    by_model: dict[str, list[Latency]] = {}
    for row in rows:
        kind = _kind(table, row, where)
        if max_processes is None or row.processes <= max_processes:
            by_model.setdefault(row.model, []).append(Latency(
                f"{worker_type.name}/{kind}", row.batch, row.latency_ms, row.memory_mb,
                processes=row.processes, rate_qps=row.rate_rps))
    return {model: tuple(listed) for model, listed in by_model.items()}


def measured_latencies(
    profile: ProfileSet, worker_type: str, statistic: Statistic = "p95"
) -> dict[str, tuple[Latency, ...]]:
    """Return the batches of each model in a profile that was measured on one kind of instance."""
    return {model.name: tuple(
        Latency(worker_type, batch.batch, batch.statistic_ms(statistic), model.memory_mb)
        for batch in model.batches) for model in profile.models}


def _kind(table: PartitionTable, row: InstanceRow, where: str) -> str:
    kinds = [kind for kind in table.instances
             if row.instance in (kind.name, str(kind.compute_slices))]
    if not kinds:
        raise InputFileError(f"{table.name} has no such instance", where=f"{where}: {row.model}",
                             value=row.instance,
                             allowed=", ".join(kind.name for kind in table.instances))
    return min(kinds, key=lambda kind: kind.memory_slices).name


def with_instance_profile(
    variants: Sequence[Variant], families: Iterable[str],
    latencies: dict[str, tuple[Latency, ...]],
) -> tuple[Variant, ...]:
    """Return variants with the batches of an instance profile added to their own.

    A variant corresponds to the model with its name, or with the part after the last ``/``. A
    family without variants gets the model with the family's name, with accuracy 1 and no memory.
    """
    extended = [replace(item, latency=(*item.latency, *latencies.get(
        item.name, latencies.get(item.name.rpartition("/")[2], ())))) for item in variants]
    served = {item.family for item in variants}
    return (*extended, *(Variant(name, name, 1.0, 0.0, 0.0, latencies[name])
                         for name in families if name in latencies and name not in served))
