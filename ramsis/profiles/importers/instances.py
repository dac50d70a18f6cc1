"""Models on instances of a GPU: the rows of one kind of instance and number of processes.

What files of instances hold is in :mod:`ramsis.profiles.instances`. A profile is of one kind of
worker, so the user says which instance it is, and how many processes run side by side on it.
Latencies are means.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError, describe
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import Measured
from ramsis.profiles.importers.runs import Given
from ramsis.profiles.instances import read_instance_profile

__all__ = ["read", "recognises"]

_NOTE = "latencies are means, of an instance {} with {} processes side by side"


def recognises(columns: Collection[str]) -> bool:
    """Whether a table with this header is about instances."""
    return ("instance_slices" in columns or {"instance", "processes"} <= set(columns)
            or {"Mig instance", "Workload Number"} <= set(columns))


def read(path: Path, given: Given) -> dict[str, Measured]:
    """The models that were measured on the instance that is given, in the order of the file.

    Raises
    ------
    InputFileError
        The file cannot be read, or has nothing of this instance and number of processes.
    """
    rows = read_instance_profile(path)
    kinds = {row.instance if row.gpu_type is None else f"{row.gpu_type}/{row.instance}": None
             for row in rows}
    processes = given.processes or 1
    chosen = [row for row in rows if row.processes == processes and given.instance in (
        row.instance, f"{row.gpu_type}/{row.instance}")]
    if len({row.gpu_type for row in chosen}) > 1 or not chosen:
        counts = sorted({row.processes for row in rows})
        raise InputFileError(describe(
            "a profile is of one kind of instance", where=str(path),
            value=f"--instance {given.instance} --processes {processes}" if given.instance
            else None,
            allowed=f"--instance {', '.join(kinds)} with --processes "
                    f"{', '.join(map(str, counts))}"))
    models: dict[str, Measured] = {}
    for row in chosen:
        item = models.setdefault(row.model, Measured(
            notes=[_NOTE.format(row.instance, processes)], more="a row of batch 1"))
        item.batches.append(BatchProfile(row.batch, mean_ms=row.latency_ms))
        if row.memory_mb is not None:
            item.memory_mb = max(row.memory_mb, item.memory_mb or 0.0)
    for item in models.values():
        item.batches.sort(key=lambda batch: batch.batch)
    return models
