"""The policies of a mixed fleet: what they promise together, and the file that lists them.

A folder with a ``mix.json`` has a policy set in a sub-folder for each part; the mix says which
share of each SLO class's queries goes to which part at which load.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InputFileError, OutputError, describe
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.policy.fleet import FleetPolicy
from ramsis.policy.manifest import entry_for, policy_file_name, write_manifest
from ramsis.policy.schema import check_schema
from ramsis.policy.storage import Policy, policy_of, validate, write
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.runtime.mix import MIX_FORMAT, MIX_NAME, ListedLevel, ListedPart, Mix, read_mix

__all__ = ["Figures", "MixLevel", "MixPart", "figures_of", "mix_policies", "remove_mix",
           "validate_mix", "write_mix"]

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Figures:
    """What some parts promise, or do, together, over all queries.

    Attributes
    ----------
    effective_accuracy, violation_rate : float
    """

    effective_accuracy: float
    violation_rate: float

    @property
    def accuracy(self) -> float | None:
        """Of the queries in time; None if there are none."""
        in_time = 1.0 - self.violation_rate
        return min(self.effective_accuracy / in_time, 1.0) if in_time > 0 else None


@dataclass(frozen=True, eq=False)
class MixPart:
    """Workers of one type with a policy of their own.

    Attributes
    ----------
    types : tuple of str
        Names of the worker type; several that are alike.
    workers : int
    share : mapping of float to float
        By SLO in ms, the share of its class's queries that comes here; > 0.
    policy : Policy
        Its load is that of the part.
    """

    types: tuple[str, ...]
    workers: int
    share: Mapping[float, float]
    policy: Policy

    @property
    def folder(self) -> str:
        """Name of the folder for its policies: type, workers and SLOs, shares where shared."""
        slos = [f"{slo:g}ms" for slo in sorted(self.share)]
        if isinstance(self.policy, FleetPolicy) and self.policy.slo_classes:
            slos = [f"{one.label}={one.share:.6g}" for one in self.policy.slo_classes]
        return "-".join(["+".join(self.types), f"{self.workers}w", *slos])


@dataclass(frozen=True, eq=False)
class MixLevel:
    """The policies for one load.

    Attributes
    ----------
    load_qps : float
        Of all queries.
    parts : tuple of MixPart
    figures : Figures
        What they promise.
    shared, apart : Figures or None
        With several classes: what the same division between types gives in simulation where
        classes share the workers of a type, and where each class has its own. ``shared`` is None
        for worker policies, ``apart`` where there are fewer workers than classes.
    upper_bound : float
        What no scheme can beat.
    """

    load_qps: float
    parts: tuple[MixPart, ...]
    figures: Figures
    shared: Figures | None
    apart: Figures | None
    upper_bound: float

    def expected(self) -> dict[str, Any]:
        """The promise under the names that every command uses."""
        shared, apart = self.shared, self.apart
        return {
            "expected_accuracy": self.figures.accuracy,
            "expected_violation_rate": self.figures.violation_rate,
            "expected_effective_accuracy": self.figures.effective_accuracy,
            "upper_bound": self.upper_bound,
            "shared_effective_accuracy": shared and shared.effective_accuracy,
            "shared_violation_rate": shared and shared.violation_rate,
            "apart_effective_accuracy": apart and apart.effective_accuracy,
            "apart_violation_rate": apart and apart.violation_rate,
        }


def figures_of(parts: Iterable[tuple[float, Policy]]) -> Figures:
    """What parts promise together, given each one's share of all queries and policy."""
    effective, violations = 0.0, 0.0
    for share, policy in parts:
        effective += share * policy.expectations.effective_accuracy
        violations += share * policy.expectations.violation_rate
    return Figures(min(effective, 1.0), min(violations, 1.0))


def write_mix(
    folder: str | os.PathLike[str], levels: Sequence[MixLevel], *, kind: str,
    types: Mapping[str, int], classes: Sequence[SloClass], created_by: str,
) -> Path:
    """Write each part's policies into a sub-folder with a manifest, and then the mix; its path.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    listed, sets = [], dict[str, dict[str, tuple[Policy, str]]]()
    for level in levels:
        parts = []
        for part in level.parts:
            policy = part.policy
            name = policy_file_name(policy.kind, policy.load_qps, policy.arrivals)
            text = write(policy, Path(folder) / part.folder / name)
            sets.setdefault(part.folder, {})[name] = policy, text
            parts.append({
                "file": f"{part.folder}/{name}", "fingerprint": fingerprint(text),
                "types": list(part.types), "workers": part.workers, "load_qps": policy.load_qps,
                "share": [{"slo_ms": slo, "share": share}
                          for slo, share in sorted(part.share.items())],
            })
        listed.append({"load_qps": level.load_qps, **level.expected(), "parts": parts})
    for name, members in sets.items():
        write_manifest(Path(folder) / name, [entry_for(policy, file, text)
                                             for file, (policy, text) in members.items()])
    path = Path(folder) / MIX_NAME
    write_atomic(path, canonical_json({
        "format": MIX_FORMAT, "created_by": created_by, "kind": kind,
        "types": [{"name": name, "workers": count} for name, count in types.items()],
        "classes": [{"slo_ms": one.slo_ms, "share": one.share} for one in classes],
        "levels": listed,
    }))
    return path


def remove_mix(folder: str | os.PathLike[str]) -> None:
    """Remove a mix, the policy files that it names, and their manifests.

    Raises
    ------
    OutputError
        A file cannot be removed.
    """
    try:
        files = [part.file for level in read_mix(folder).levels for part in level.parts]
    except InputFileError:
        files = []  # damaged: whose files these are is not known
    try:
        (Path(folder) / MIX_NAME).unlink()
        for file in files:
            path = Path(folder) / file
            path.unlink(missing_ok=True)
            (path.parent / MANIFEST_NAME).unlink(missing_ok=True)
        for parent in {(Path(folder) / file).parent for file in files}:
            if parent != Path(folder) and parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
    except OSError as error:
        raise OutputError(describe(f"cannot replace the mix ({error.strerror})",
                                   where=str(folder))) from error


def mix_policies(mix: Mix, level: ListedLevel) -> list[tuple[ListedPart, Policy]]:
    """The parts of a level with their policies.

    Raises
    ------
    InputFileError
        A policy file is missing, has changed, breaks its format, or is for something else than
        the mix says.
    """
    found = []
    for part in level.parts:
        where = str(mix.folder / part.file)
        policy = policy_of(mix.document(part), where)
        classes = getattr(policy, "slo_classes", ()) or (SloClass(policy.slo_ms),)
        loads = {slo: mix.classes[slo] * share for slo, share in sorted(part.share.items())}
        for what, stated, own in (
            ("kind", mix.kind, policy.kind),
            ("number of workers", part.workers, policy.workers),
            ("load", part.load_qps, policy.load_qps),
            ("SLOs", list(loads), [one.slo_ms for one in classes]),
            ("shares of the classes", [round(load / sum(loads.values()), 6)
                                       for load in loads.values()],
             [round(one.share, 6) for one in classes]),
        ):
            if stated != own:
                raise InputFileError(describe(f"{what} of the policy: not what the mix says",
                                              where=where, value=own, allowed=f"{stated}"))
        found.append((part, policy))
    return found


def validate_mix(path: str | os.PathLike[str]) -> Mix:
    """As :func:`~ramsis.runtime.mix.read_mix`, with the schema, the policies and the sums checked.

    Raises
    ------
    InputFileError
        Also when loads of the parts or the figures do not add up.
    """
    mix = read_mix(path)
    file = str(mix.folder / MIX_NAME)
    check_schema(read_json(file), "mix-1", file)
    for i, level in enumerate(mix.levels):
        for part in level.parts:
            validate(mix.folder / part.file)
            load = sum(level.load_qps * mix.classes[slo] * share
                       for slo, share in part.share.items())
            if abs(load - part.load_qps) > _TOLERANCE * level.load_qps:
                raise InputFileError(describe("load of a part is not that of its shares",
                                              where=f"{file}: levels[{i}]", value=part.load_qps,
                                              allowed=f"{load:g}"))
        total = figures_of((part.load_qps / level.load_qps, policy)
                           for part, policy in mix_policies(mix, level))
        stated = level.expected["expected_effective_accuracy"]
        if abs(total.effective_accuracy - stated) > _TOLERANCE:
            raise InputFileError(describe("not the sum of the parts' promises",
                                          where=f"{file}: levels[{i}].expected_effective_accuracy",
                                          value=stated, allowed=f"{total.effective_accuracy}"))
    return mix
