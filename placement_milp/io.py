"""Problem files, value tables and placements, and variants of a problem from profiles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from placement_milp.check import check_groups
from placement_milp.consistency import check_consistency
from placement_milp.partitions import PartitionTable
from placement_milp.problem import (
    PROBLEM_FORMAT,
    Colocation,
    Family,
    Holding,
    Latency,
    PlacementObjective,
    Problem,
    Rules,
    ValueRow,
    Values,
    Variant,
    WorkerType,
)
from placement_milp.result import PLACEMENT_FORMAT, CutGpu, Group, Placement
from ramsis.errors import InputFileError, InvalidValueError, OutputError, VerificationError
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.profiles import ProfileSet, Statistic, load
from ramsis.profiles.importers.instances import InstanceRow, read_instance_profile
from ramsis.records import DIALECT, names

_EXAMPLES = Path(__file__).resolve().parent / "examples"
VALUES_FORMAT = "ramsis.value-table/1"


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema ``placement-problem-1``, ``value-table-1`` or ``placement-1``."""
    schemas = {"placement-problem-1": Problem.schema, "value-table-1": _values_schema,
               "placement-1": Placement.schema}
    if name not in schemas:
        raise InvalidValueError("no such schema", where="name", value=name,
                                allowed=", ".join(schemas))
    return schemas[name]()


def _values_schema() -> dict[str, Any]:
    """Return the JSON schema of a value table; further fields are allowed, and ignored."""
    row = {**ValueRow.schema(), "additionalProperties": True}
    return {"$schema": DIALECT, "title": VALUES_FORMAT,
            "description": "What policies make of workers at loads.", "type": "object",
            "required": ["format", "rows"],
            "properties": {"format": {"const": VALUES_FORMAT},
                           "rows": {"type": "array", "items": row, "minItems": 1}}}


def read_problem(path: str | os.PathLike[str]) -> Problem:
    """Read a placement problem from a file.

    Parameters
    ----------
    path : path
        JSON, ``ramsis.placement-problem/1``; or, if no such file exists, the name of a shipped
        problem. Value tables in a field ``file`` are relative to its folder.
    """
    file = Path(path)
    shipped = _EXAMPLES / f"{os.fspath(path)}.json"
    if not file.exists():
        if os.fspath(path) not in shipped_problems():
            raise InputFileError("no such problem file or shipped problem", where=str(path),
                                 allowed=f"a path, or one of: {', '.join(shipped_problems())}")
        file = shipped
    return problem_from_document(read_json(file), str(path), file.parent)


def shipped_problems() -> tuple[str, ...]:
    """Return the names of the problems that come with the package."""
    return tuple(sorted(item.stem for item in _EXAMPLES.glob("*.json")))


def problem_from_document(
    document: Mapping[str, Any], where: str = "problem", folder: Path | None = None
) -> Problem:
    """Read a problem from a parsed file; ``where`` names it in messages."""
    top = Fields(document, where)
    top.of_format(PROBLEM_FORMAT)
    top.only(("format", *names(Problem), "profiles"))
    families = tuple(Family.from_fields(item) for item in top.children("families"))
    types = tuple(WorkerType.from_fields(item) for item in top.children("worker_types"))
    problem = Problem(
        name=top.text("name"), families=families, worker_types=types,
        variants=_variants(top, families, types, folder or Path()),
        objective=PlacementObjective.from_fields(top.child("objective")),
        rules=Rules.from_fields(top.child("rules")) if "rules" in top else Rules(),
        current=tuple(Holding.from_fields(item) for item in _optional(top, "current")),
        colocation=tuple(Colocation.from_fields(item) for item in _optional(top, "colocation")),
        values=tuple(_values(item, folder or Path()) for item in _optional(top, "values")),
    )
    check_consistency(problem, where)
    return problem


def _optional(top: Fields, key: str) -> list[Fields]:
    return top.children(key) if key in top and top.value(key) != [] else []


def _variants(
    top: Fields, families: tuple[Family, ...], types: tuple[WorkerType, ...], folder: Path
) -> tuple[Variant, ...]:
    """Read the variants of a problem, with the batches of its instance profiles."""
    if "profiles" not in top:
        return tuple(Variant.from_fields(item) for item in top.children("variants"))
    variants = tuple(Variant.from_fields(item) for item in _optional(top, "variants"))
    latencies: dict[str, tuple[Latency, ...]] = {}
    for item in top.children("profiles"):
        for model, entries in _profile(item, types, folder).items():
            latencies[model] = (*latencies.get(model, ()), *entries)
    extended = with_instance_profile(variants, [item.name for item in families], latencies)
    if not extended:
        raise top.refusal("profiles", "no model is named like a family",
                          value=", ".join(sorted(latencies)[:8]), allowed="variants, or families "
                          "with the names of models")
    return extended


def _profile(
    item: Fields, types: tuple[WorkerType, ...], folder: Path
) -> dict[str, tuple[Latency, ...]]:
    """Read an instance profile: the batches of each model, on one or all kinds of instance."""
    by_name = {kind.name: kind for kind in types}
    kinds = {part.name for kind in types if kind.partitions for part in kind.instance_types()}
    name = item.text("worker_type", (*by_name, *kinds))
    path = folder / item.text("file")
    if name in kinds:
        item.only(("worker_type", "file"))
        return measured_latencies(load(path), name)
    item.only(("worker_type", "file", "gpu_type", "max_processes"))
    gpu_type = item.text("gpu_type") if "gpu_type" in item else None
    rows = [row for row in read_instance_profile(path) if gpu_type in (None, row.gpu_type)]
    if not rows:
        raise item.refusal("gpu_type", "the profile has no row of this GPU", value=gpu_type)
    by_model = instance_latencies(rows, by_name[name], where=str(path),
                                  max_processes=item.whole_or_none("max_processes", 1))
    if not by_model:
        raise item.refusal("max_processes", "every row has more processes",
                           value=item.value("max_processes"),
                           allowed=f"at least {min(row.processes for row in rows)}")
    return by_model


def _values(item: Fields, folder: Path) -> Values:
    """Read a family's value table, from the problem or a file beside it."""
    item.only(("family", "file", "rows"))
    if ("file" in item) == ("rows" in item):
        raise item.refusal("rows", "the table stands nowhere, or twice",
                           allowed="one of file, rows")
    if "file" in item:
        rows = read_values(folder / item.text("file"))
    else:
        rows = tuple(ValueRow.from_fields(row) for row in item.children("rows"))
    return Values(item.text("family"), rows)


def read_values(path: str | os.PathLike[str]) -> tuple[ValueRow, ...]:
    """Read the rows of a value table (``ramsis.value-table/1``)."""
    top = Fields(read_json(path), str(path))
    top.of_format(VALUES_FORMAT)
    rows: dict[object, ValueRow] = {}
    for item in top.children("rows"):
        # Tables may have further columns.
        values = {key: item.value(key) for key in item if key in names(ValueRow)}
        row = ValueRow.from_fields(Fields(values, item.file, item.path))
        if row.case in rows:
            raise item.refusal("model_set", "the same case stands twice", value=row.model_set,
                               allowed="each worker type, model set, workers, load and SLO once")
        rows[row.case] = row
    if not rows:
        raise top.refusal("rows", "the table is empty", allowed="one row or more")
    return tuple(rows.values())


class PlacedGroups(NamedTuple):
    """Groups of workers in a placement file, with its problem."""

    problem: Problem
    groups: tuple[Group, ...]
    gpus: tuple[CutGpu, ...] = ()


def read_placement(path: str | os.PathLike[str]) -> PlacedGroups:
    """Read problem and groups of workers of a placement file (``ramsis.placement/1``).

    The other contents follow from these, or are not needed to run the placement.
    """
    top = Fields(read_json(Path(path)), str(path))
    top.of_format(PLACEMENT_FORMAT)
    # The problem is required to check loads and latencies of the placement.
    if "problem" not in top:
        raise top.refusal("problem", "the placement does not say what problem it answers",
                          allowed="the file that `ramsis place` writes")
    problem = problem_from_document(top.value("problem"), f"{path}: problem", Path(path).parent)
    # The optimum may have no workers, if serving costs more than it gains.
    groups = tuple(Group.from_fields(item)
                   for item in (top.children("groups") if top.value("groups") != [] else ()))
    try:
        gpus = tuple(CutGpu.from_fields(item) for item in _optional(top, "gpus"))
        check_groups(problem, groups, gpus)
    except VerificationError as error:
        raise top.refusal("groups", f"contradict the problem: {error}") from error
    return PlacedGroups(problem, groups, gpus)


def write_placement(
    placement: Placement, path: str | os.PathLike[str], *, command: str | None = None
) -> None:
    """Write a placement (``ramsis.placement/1``) atomically.

    Parameters
    ----------
    command : str, optional
        Command that made it, which is stored in the file.
    """
    if Path(path).is_dir():
        raise OutputError("is a folder", where=str(path), allowed="a file name")
    origin = {} if command is None else {"command": command}
    write_atomic(path, canonical_json({**placement.to_document(), **origin}))


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
