"""Sources of a page: the sections on a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ramsis import profiles
from ramsis.errors import InputFileError
from ramsis.files import read_json
from ramsis.policy import MANIFEST_FORMAT, MANIFEST_NAME, POLICY_FORMAT, read, read_set, set_of
from ramsis.report.columns import (
    GROUPS,
    PLACED,
    SCALED,
    SCHEDULERS,
    SIMULATED,
    capacity_columns,
)
from ramsis.report.page.clusters import cluster_section
from ramsis.report.page.parts import Section, checked_rows
from ramsis.report.page.plans import audit_section, plan_section
from ramsis.report.page.policies import policies_section, sized_section
from ramsis.report.page.profile import profile_section
from ramsis.report.page.results import (
    capacity_section,
    placed_section,
    scaling_section,
    simulation_section,
)
from ramsis.report.page.sweep import (
    RECORD_NAME,
    RESULTS_NAME,
    SCENARIOS_NAME,
    scenarios_section,
    sweep_section,
)
from ramsis.runtime.manifest import manifest_path
from ramsis.runtime.sized import SIZED_FORMAT, SIZED_MANIFEST_FORMAT

PLAN_NAME, PLAN_FORMAT = "plan.json", "ramsis.plan/1"

_KINDS = ("a profile, policy, manifest or placement file, the --json of simulate, capacity, "
          "scale or audit, the folder of a plan, of a policy set or of a sweep, or a folder of "
          "these")
# Tables of a sweep's folder, and the section on each.
_TABLES: Mapping[str, Callable[[Path, str], Section]] = {
    RESULTS_NAME: sweep_section, SCENARIOS_NAME: scenarios_section}
_SWEEP_NAMES = (*_TABLES, RECORD_NAME)
_RATES = ("effective_accuracy", "violation_rate")
# What a row says besides its columns: how exact it is, and what was asked for.
_TERMS = ("expected_accuracy", "expected_effective_accuracy",
          "expected_violation_rate_half_width", "violation_rate_half_width",
          "accuracy_half_width", "duration_s", "seeds", "max_violation", "min_accuracy",
          "min_effective_accuracy")


def sections_of(name: str) -> list[Section]:
    """Return the sections on a path or shipped profile set; several for a folder."""
    path = Path(name)
    if path.is_dir():
        return _of_folder(path)
    if not path.exists():
        if name in profiles.shipped_names():
            return [profile_section(profiles.load(name), name)]
        raise InputFileError("no such file, folder or shipped profile set", where=name,
                             allowed=_KINDS)
    sections = _of_known_folder(path.parent) if path.name in _SWEEP_NAMES else []
    return sections or [_of_file(path)]


def _of_folder(folder: Path) -> list[Section]:
    sections = _of_known_folder(folder)
    if sections:
        return sections
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            sections += _of_known_folder(path)
        elif path.suffix == ".json" and _reader(read_json(path)) is not None:
            sections.append(_of_file(path))
    if not sections:
        raise InputFileError("nothing to report on", where=str(folder), allowed=_KINDS)
    return sections


def _of_known_folder(folder: Path) -> list[Section]:
    """Return sections on a policy set, a plan or a sweep's tables; none on other folders."""
    if (folder / MANIFEST_NAME).exists():
        return [_set_section(folder)]
    if (folder / PLAN_NAME).exists():
        return _of_plan(folder)
    return [section(folder, str(folder)) for table, section in _TABLES.items()
            if (folder / table).exists()]


def _set_section(folder: Path) -> Section:
    """Return the section on a policy set, with the commands of its manifest."""
    document = read_json(manifest_path(folder))
    commands = tuple(map(str, document.get("commands", ())))
    if document.get("format") == SIZED_MANIFEST_FORMAT:
        return _sized(folder, str(folder), commands)
    return policies_section(read_set(folder), str(folder), commands)


def _sized(path: Path, name: str, commands: Sequence[str] = ()) -> Section:
    from ramsis.sized.policy import validate_sized  # which takes long to load

    return sized_section(validate_sized(path), name, commands)


def _of_plan(folder: Path) -> list[Section]:
    """Return sections on a finished plan: the verdict, then its policies and simulations."""
    document = read_json(folder / PLAN_NAME)
    sections = [_of_file(folder / PLAN_NAME)]
    verdict = document.get("verdict")
    if isinstance(verdict, Mapping):
        policies = folder / str(verdict.get("policies"))
        if (policies / MANIFEST_NAME).exists():
            sections.append(_set_section(policies))
        simulated = folder / f"simulation-{verdict.get('workers')}.json"
        sections += [_of_file(path) for path in (simulated, folder / "capacity.json")
                     if path.exists()]
    return sections


def _of_file(path: Path) -> Section:
    document = read_json(path)
    reader = _reader(document)
    if reader is None:
        raise InputFileError("nothing to report on", where=str(path),
                             value=document.get("format", list(document)[:5]), allowed=_KINDS)
    return reader(path, document, str(path))


# Takes a file, its content, and its name for readers of the page.
_Reader = Callable[[Path, Mapping[str, Any], str], Section]


def _reader(document: Mapping[str, Any]) -> _Reader | None:
    """Return the reader of a document, by its format or the keys of its rows; None if unknown."""
    form, rows = document.get("format"), document.get("rows")
    if isinstance(form, str):
        return _FORMATS.get(form)
    first = rows[0] if isinstance(rows, list) and rows else None
    if not isinstance(first, Mapping):
        return None
    for keys, reader in _ROWS.items():
        if all(key in first for key in keys):
            return reader
    return None


def _placement(path: Path, document: Mapping[str, Any], name: str) -> Section:
    from ramsis.report.page.placement import placement_section  # its solvers take long to load

    return placement_section(path, name)


def _plan(path: Path, document: Mapping[str, Any], name: str) -> Section:
    if not isinstance(document.get("verdict"), Mapping):
        raise InputFileError("the plan was cut short", where=str(path),
                             allowed="run `ramsis plan` again: it goes on")
    rows = checked_rows(document, str(path), numbers=("workers", "workers_bound", *_RATES),
                        optional=("accuracy",), texts=("dispatch",))
    return plan_section(path, document, rows, name)


def _cluster(path: Path, document: Mapping[str, Any], name: str) -> Section:
    rows = checked_rows(document, str(path), columns=SCHEDULERS, texts=("scheduler",),
                        optional=("requests", "seeds"))
    for i, row in enumerate(rows):
        if "by" in row:
            row["by"] = _groupings(row["by"], f"{path}: rows[{i}].by")
    return cluster_section(document, rows, name)


def _groupings(value: object, where: str) -> dict[str, dict[str, Any]]:
    """Check the figures of groups of requests, by the grouping."""
    if not isinstance(value, Mapping):
        raise InputFileError("not an object", where=where, value=value)
    groupings = {}
    for by, figures in value.items():
        (fair,) = checked_rows({"rows": [figures]}, f"{where}.{by}",
                               optional=("fairness", "worst_in_time"))
        fair["groups"] = checked_rows(
            {"rows": fair.get("groups")}, f"{where}.{by}.groups", texts=("name",), columns=GROUPS)
        groupings[str(by)] = fair
    return groupings


def _of_rows(
    section: Callable[[Mapping[str, Any], list[dict[str, Any]], str], Section],
    **needed: Sequence[Any],
) -> _Reader:
    """Return a reader that checks rows by :func:`checked_rows`, and shows them."""
    return lambda path, document, name: section(
        document, checked_rows(document, str(path), **needed), name)


_FORMATS: dict[str, _Reader] = {
    POLICY_FORMAT: lambda path, _, name: policies_section(set_of([read(path)]), name),
    SIZED_FORMAT: lambda path, _, name: _sized(path, name),
    **dict.fromkeys((MANIFEST_FORMAT, SIZED_MANIFEST_FORMAT),
                    lambda path, *_: _set_section(path.parent)),
    profiles.FORMAT: lambda path, _, name: profile_section(profiles.load(path), name),
    "ramsis.placement/1": _placement, PLAN_FORMAT: _plan,
}
# Readers by keys of the first row; the first whose keys it has.
_ROWS: Mapping[tuple[str, ...], _Reader] = {
    ("violations_by_cause", "upper_bound"): _of_rows(
        audit_section, numbers=(*_RATES, "workers", "upper_bound", "workers_bound", "requests"),
        optional=("accuracy", "least_violation_rate", "fewest_workers"),
        mappings=("violations_by_cause",)),
    ("best_policy", "gap_to_bound", "by_class"): _of_rows(
        audit_section, numbers=(*_RATES, "workers", "requests"),
        optional=("accuracy", "upper_bound", "workers_bound"), mappings=("violations_by_cause",)),
    ("scheduler", "worker_s", "meets_target"): _of_rows(
        scaling_section, columns=SCALED, numbers=("worker_s", *_RATES), texts=("scheduler",)),
    ("workers_bound", "clear"): _of_rows(
        capacity_section, columns=capacity_columns(typed=False),
        numbers=("workers", "workers_bound", "slo_ms", "gap"), texts=("scheduler",),
        optional=_TERMS),
    ("cost_bound", "clear"): _of_rows(
        partial(capacity_section, typed=True), columns=capacity_columns(typed=True),
        numbers=("cost", "cost_bound", "slo_ms", "workers", "gap"), texts=("scheduler",),
        optional=_TERMS, mappings=("worker_types",)),
    ("family", "placement_effective_accuracy"): _of_rows(
        placed_section, columns=PLACED, numbers=(*_RATES, "slo_ms"), texts=("family",),
        optional=_TERMS),
    ("label", "violation_rate"): _of_rows(
        simulation_section, columns=SIMULATED, numbers=(*_RATES, "workers", "slo_ms"),
        optional=_TERMS, texts=("label",), mappings=("model_share",)),
    ("scheduler", "in_time"): _cluster,
}
