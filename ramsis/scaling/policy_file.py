"""Reading and writing of a scaling policy: ``scaling.json`` and its folders of decision tables.

The runtime reads its part of the file by :class:`ramsis.runtime.scaling_table.ScalingTable`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from ramsis import __version__
from ramsis.bounds import Targets
from ramsis.errors import InputFileError, OutputError
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.policy import Policy, read_set, set_of, write_set
from ramsis.records import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Schema,
    WrittenRecord,
    schema_of,
)
from ramsis.runtime.scaling_table import (
    SCALING_FORMAT,
    SCALING_NAME,
    ScalingTable,
)
from ramsis.scaling.fleet import DecisionTables, ScaledFleet
from ramsis.scaling.policy import Candidate
from ramsis.scaling.prices import Prices
from ramsis.scaling.promise import Promise
from ramsis.scaling.synthesis import FleetTables, resized

_DISPATCHES = ("round-robin", "central-queue")
_STATED = ("target", "prices", "certificate")  # written even if null
_FOLDER: Schema = {"type": "string", "pattern": "^[^\\\\]+$"}

_TABLES = "tables"
_KNOWN = ("rate_per_worker_qps", "batch_rate_qps")


def scaling_document(
    chosen: Candidate, tables: FleetTables, promised: Promise, target: Targets | Prices,
    fleet: ScaledFleet,
) -> dict[str, Any]:
    """Return a scaling policy as JSON-serialisable values."""
    table, dynamics = chosen.table, chosen.dynamics
    prices = target if isinstance(target, Prices) else chosen.prices
    return {
        "format": SCALING_FORMAT,
        "created_by": f"ramsis {__version__}",
        "slo_ms": float(fleet.slo_ms),
        **tables.known(fleet.slo_ms, target),
        "dispatch": next(iter(tables.policies.values()))[0].dispatch,
        "interval_s": float(table.interval_s),
        "startup_s": float(table.startup_s),
        "least": table.least,
        "most": table.most,
        "levels_qps": list(table.levels_qps),
        "trends": list(table.trends),
        "smoothing": table.smoothing,
        "forecast_error": table.forecast_error,
        "thresholds": [[list(cell) for cell in row] for row in table.thresholds],
        "forecast_thresholds": [list(row) for row in table.believed_thresholds],
        "window": table.window,
        "steering": None if table.steering is None else asdict(table.steering),
        "tables": [{"workers": workers, "made_for": tables.size(workers),
                    "folder": f"{_TABLES}/workers-{tables.size(workers)}"}
                   for workers in range(1, table.most + 1)],
        "target": None if isinstance(target, Prices) else {
            "max_violation": target.max_violation,
            "min_effective_accuracy": target.min_effective_accuracy},
        "prices": None if prices is None else {
            "violation_worker_s": prices.violation, "accuracy_worker_s": prices.accuracy},
        "dynamics": {"carried": dynamics.carried, "reverting": dynamics.reverting,
                     "mean_log_qps": dynamics.mean_log_qps, "errors": dynamics.errors.tolist(),
                     "met_at": dynamics.met_at.tolist()},
        "promise": {name: value for name, value in asdict(promised).items()
                    if value is not None},
        "certificate": None if chosen.decisions is None else {
            "average_reward": chosen.decisions.average, "span": chosen.decisions.span,
            "sweeps": chosen.decisions.sweeps},
    }


@dataclass(frozen=True, eq=False)
class SavedScaling:
    """Scaling policy and its settings, read from its folder."""

    table: ScalingTable
    played: DecisionTables
    fleet: ScaledFleet
    target: Targets | Prices
    known: Mapping[str, float]  # defaults for parameters of rules, see :func:`ramsis.scaling.made`

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedScaling:
        """Load a scaling policy from its folder or its file."""
        file = Path(path) / SCALING_NAME if Path(path).is_dir() else Path(path)
        table, stated = validate_scaling(file)
        sets: dict[str, list[Policy]] = {}
        policies = {}
        for entry in stated.tables:
            if entry.folder not in sets:
                levels = read_set(file.parent / entry.folder).levels
                sets[entry.folder] = [level.policy for level in levels]
            policies[entry.workers] = resized(sets[entry.folder], entry.workers)
        return cls(
            table, DecisionTables.of(policies),
            ScaledFleet(stated.slo_ms, table.startup_s, table.interval_s, table.least, table.most),
            _asked(stated),
            {name: getattr(stated, name) for name in ("slo_ms", *_KNOWN)})


def _asked(stated: ScalingFile) -> Targets | Prices:
    """Return the target or the prices of a policy."""
    if stated.target is not None:
        return Targets(stated.target.max_violation, None, stated.target.min_effective_accuracy)
    assert stated.prices is not None  # checked when the file was read
    return Prices(stated.prices.violation_worker_s, stated.prices.accuracy_worker_s)


def write_scaling(
    folder: str | os.PathLike[str], document: Mapping[str, Any], tables: FleetTables
) -> Path:
    """Write decision tables, then the scaling policy, into a folder; return the policy's path."""
    folder = Path(folder)
    for size, policies in tables.policies.items():
        write_set(folder / _TABLES / f"workers-{size}", set_of(policies),
                  created_by=f"ramsis {__version__}")
    path = folder / SCALING_NAME
    write_atomic(path, canonical_json(document))
    return path


def check_new(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that holds a scaling policy or decision tables."""
    for name in (SCALING_NAME, _TABLES):
        if os.path.lexists(Path(folder) / name):
            raise OutputError("the folder holds another scaling policy", where=str(folder),
                              value=name, allowed="an empty folder")


def validate_scaling(path: str | os.PathLike[str]) -> tuple[ScalingTable, ScalingFile]:
    """Read and check a scaling policy's file and its folders."""
    document = read_json(path)
    table = ScalingTable.from_document(document, str(path))
    stated = ScalingFile.from_fields(Fields(document, str(path)))
    if [entry.workers for entry in stated.tables] != list(range(1, table.most + 1)):
        raise InputFileError("not each number of workers once", where=f"{path}: tables",
                             allowed=f"1 to {table.most}")
    for entry in stated.tables:
        if not (Path(path).parent / entry.folder).is_dir():
            raise InputFileError("no such folder", where=f"{path}: tables", value=entry.folder,
                                 allowed="a folder of policies")
    return table, stated


def _folder(item: Fields, key: str) -> str:
    """Read a folder's name; refuse backslashes, which are not separators everywhere."""
    name = item.text(key)
    if "\\" in name:
        raise item.refusal(key, "not the name of a folder", value=name, allowed="names with /")
    return name


@dataclass(frozen=True)
class TablesFolder(WrittenRecord):
    """Folder of the decision tables for a number of workers."""

    workers: Count
    made_for: Annotated[Count, "Number of workers that the tables were made for."]
    folder: Annotated[str, Reader(_folder, _FOLDER), "Folder beside this file."]


@dataclass(frozen=True)
class Target(WrittenRecord):
    """Target that a scaling policy was made for."""

    max_violation: Fraction
    min_effective_accuracy: Fraction | None


@dataclass(frozen=True)
class StatedPrices(WrittenRecord):
    """Prices in worker-seconds, of a violation and of a unit of missed accuracy."""

    violation_worker_s: NonNegative
    accuracy_worker_s: NonNegative


@dataclass(frozen=True)
class StatedDynamics(WrittenRecord):
    """Parameters of the load model that was fitted to the trace."""

    carried: Fraction
    reverting: Fraction
    mean_log_qps: float
    errors: tuple[float, ...]
    met_at: tuple[float, ...]


@dataclass(frozen=True)
class StatedCertificate(WrittenRecord):
    """Average reward of the decision process, with its error bound."""

    average_reward: float
    span: NonNegative
    sweeps: Count


@dataclass(frozen=True, kw_only=True)
class ScalingFile(ScalingTable):
    """Scaling policy file: number of workers by load, with the decision tables' folders."""

    created_by: Annotated[str, "Program and version."]
    slo_ms: Annotated[Positive, "Time allowed for an answer."]
    rate_per_worker_qps: Annotated[
        Positive, "Load that a worker carries within the target; only compared rules use it."]
    batch_rate_qps: Annotated[
        Positive, "Load that a worker carries with full batches; only compared rules use it."]
    dispatch: Annotated[str, _DISPATCHES, "How requests reach the workers."]
    tables: Annotated[
        tuple[TablesFolder, ...],
        "For each number of active workers the folder of its policies, and the number of workers "
        "they were made for; loads are scaled by the quotient.",
    ]
    target: Annotated[Target | None, "Target of the synthesis; null where it had prices."]
    prices: Annotated[
        StatedPrices | None,
        "Prices of the decision process, in worker-seconds; without a target those of the user.",
    ]
    dynamics: Annotated[StatedDynamics, "Parameters of the load model."]
    promise: Annotated[Promise, "Promised figures."]
    certificate: Annotated[
        StatedCertificate | None,
        "Average reward of the decision process, and its optimality gap as span, in "
        "worker-seconds per interval.",
    ]

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema; without a target, prices and an expected cost are required."""
        schema = schema_of(cls)
        return {**schema, "required": [*schema["required"], *_STATED],
                "if": {"properties": {"target": {"type": "null"}}},
                "then": {"properties": {"prices": {"type": "object"},
                                        "promise": {"required": ["cost"]}}}}

    def check(self, item: Fields) -> None:
        """Refuse a policy without target that states no prices or no cost."""
        super().check(item)
        for name in _STATED:
            item.value(name)
        if self.target is None and self.prices is None:
            raise item.refusal("prices", "neither target nor prices", value=None,
                               allowed="prices where the target is null")
        if self.target is None and self.promise.cost is None:
            raise item.refusal("promise.cost", "no cost is promised", value=None,
                               allowed="an estimate where the target is null")
