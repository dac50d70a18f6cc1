"""Mixed fleets as the command line names them: worker types and SLO classes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ramsis import profiles
from ramsis.bounds import mixed_bound
from ramsis.cli.rows import Column, print_json, print_rows, progress
from ramsis.cluster.service_times import ServiceLaw
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.errors import InvalidValueError, describe
from ramsis.policy.mix import MixLevel
from ramsis.runtime.mix import MIX_NAME
from ramsis.synthesis import FleetSettings, SynthesisSettings
from ramsis.synthesis.mix import WorkerType, generate_mix

__all__ = ["MixedFleet", "OneFleet", "bound_mixed", "by_type", "fleet_of", "generate_mixed",
           "mixed_fleet_options"]

_TYPED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")

_PROMISE = (
    Column("load_qps", "load (QPS)", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("shared_effective_accuracy", "shared", ".4f"),
    Column("apart_effective_accuracy", "apart", ".4f"),
    Column("words", "parts"),
)
_BOUND = (
    Column("load_qps", "load (QPS)", "g"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("served_fraction", "served", ".2%"),
    Column("types", "share of each type (one more worker)"),
    Column("classes", "effective acc. of each class"),
)


@dataclass(frozen=True)
class OneFleet:
    """Workers that are alike and one SLO."""

    slo_ms: float
    workers: int


@dataclass(frozen=True, eq=False)
class MixedFleet:
    """Worker types, and SLO classes by rising SLO."""

    types: tuple[WorkerType, ...]
    classes: tuple[SloClass, ...]

    @property
    def workers(self) -> int:
        """Of all types."""
        return sum(one.workers for one in self.types)

    @property
    def slo_ms(self) -> float:
        """The longest."""
        return self.classes[-1].slo_ms

    def terms(self) -> dict[str, Any]:
        """What rows say of the fleet."""
        return {
            "workers": self.workers, "slo_ms": self.slo_ms,
            "worker_types": {one.name: one.workers for one in self.types},
            "slo_classes": [{"slo_ms": one.slo_ms, "share": one.share} for one in self.classes],
        }


def mixed_fleet_options(
    command: Callable[..., Any], *, required: bool = True
) -> Callable[..., Any]:
    """``--profiles``, ``--slo-ms`` and ``--workers``, each for one fleet or a mixed one."""
    for option in (
        click.option("--workers", required=required, metavar="N|TYPE=N,...",
                     help="Workers that share the load; of several types: gpu=4,cpu=40."),
        click.option("--slo-ms", required=required, metavar="MS|MS:SHARE,...",
                     help="Deadline after arrival, in ms; of several classes with their shares "
                     "of the queries: 100:0.3,150:0.7."),
        click.option("--profiles", "profile_name", required=required,
                     metavar="FILE|NAME|TYPE=FILE,...",
                     help="Profile file, or the name of a shipped profile set; of several worker "
                     "types: gpu=a.json,cpu=b.json."),
    ):
        command = option(command)
    return command


def fleet_of(profile_name: str, slo_ms: str, workers: str) -> OneFleet | MixedFleet:
    """The fleet that the options name, its profiles read if it is mixed.

    Raises
    ------
    InvalidValueError
        Not of these forms, a type without workers or without a profile, or shares that do not
        sum to 1.
    """
    counts = by_type(workers, "--workers")
    files = {} if os.path.exists(profile_name) else by_type(profile_name, "--profiles")
    classes = _classes(slo_ms)
    if not (counts or files) and isinstance(classes, float):
        return OneFleet(classes, _count(workers, "--workers"))
    if not counts:
        if files:
            raise InvalidValueError(describe("worker types have profiles but no numbers",
                                             where="--workers", value=workers,
                                             allowed=",".join(f"{name}=N" for name in files)))
        counts = {"all": workers}
    for name in files:
        if name not in counts:
            raise InvalidValueError(describe("unknown worker type", where="--profiles", value=name,
                                             allowed=", ".join(counts)))
    for name in counts:
        if files and name not in files:
            raise InvalidValueError(describe("unknown worker type: it has no profile",
                                             where="--workers", value=name,
                                             allowed=", ".join(files)))
    read = {file: profiles.load(file) for file in (files.values() or (profile_name,))}
    types = tuple(WorkerType(name, read[files.get(name, profile_name)],
                             _count(count, f"--workers: {name}"))
                  for name, count in counts.items())
    several = (SloClass(classes),) if isinstance(classes, float) else classes
    return MixedFleet(types, merged_classes(several))


def generate_mixed(
    fleet: MixedFleet, loads: tuple[float, ...],
    settings: FleetSettings | SynthesisSettings, out: Path, *, overwrite: bool, as_json: bool,
) -> None:
    """Make the policies of a mixed fleet and print what they promise together."""
    with progress("loads", len(loads)) as advance:
        levels = generate_mix(fleet.types, fleet.classes, loads, settings, out,
                              overwrite=overwrite, on_level=lambda _: advance())
    scheme = "fleet" if isinstance(settings, FleetSettings) else "worker"
    rows = [{"scheme": scheme, **fleet.terms(), "load_qps": level.load_qps, **level.expected(),
             "parts": _parts(level)} for level in levels]
    if as_json:
        print_json(rows)
        return
    shown = [column for column in _PROMISE
             if any(row.get(column.key) is not None for row in rows) or column.key == "words"]
    print_rows(shown, [{**row, "words": _part_words(level)}
                       for row, level in zip(rows, levels, strict=True)])
    click.echo(f"\n{out / MIX_NAME} lists the policies of each part")


def bound_mixed(
    fleet: MixedFleet, loads: tuple[float, ...], *, service: str, max_batch: int, as_json: bool
) -> None:
    """Bound the effective accuracy of every scheme on a mixed fleet."""
    types = [(ServiceLaw.of(one.profile, service, max_batch), one.workers) for one in fleet.types]
    rows: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    for load_qps in loads:
        found = mixed_bound(types, fleet.classes, load_qps=load_qps, max_batch=max_batch)
        share = [one.share for one in fleet.classes]
        of_type = [{"type": one.name, "share": float(taken), "worker_price": float(price)}
                   for one, taken, price in zip(fleet.types, found.share.sum(axis=1),
                                                found.worker_price, strict=True)]
        of_class = [{"slo_ms": one.slo_ms, "effective_accuracy": float(accuracy),
                     "served_fraction": float(served)}
                    for one, accuracy, served in zip(fleet.classes, found.class_accuracy,
                                                     found.class_served, strict=True)]
        rows.append({**fleet.terms(), "load_qps": load_qps,
                     "upper_bound": found.effective_accuracy,
                     "served_fraction": float(found.class_served @ share),
                     "types": of_type, "classes": of_class})
        words.append({
            **rows[-1],
            "types": ", ".join(f"{one['type']} {one['share']:.1%} ({one['worker_price']:+.5f})"
                               for one in of_type),
            "classes": ", ".join(f"{one['slo_ms']:g} ms {one['effective_accuracy']:.4f}"
                                 for one in of_class),
        })
    if as_json:
        print_json(rows)
    else:
        print_rows(_BOUND, words)


def _parts(level: MixLevel) -> list[dict[str, Any]]:
    return [{"folder": part.folder, "types": list(part.types), "workers": part.workers,
             "load_qps": part.policy.load_qps,
             "share": [{"slo_ms": slo, "share": share}
                       for slo, share in sorted(part.share.items())],
             "expected_effective_accuracy": part.policy.expectations.effective_accuracy,
             "expected_violation_rate": part.policy.expectations.violation_rate,
             "upper_bound": part.policy.expectations.upper_bound} for part in level.parts]


def _part_words(level: MixLevel) -> str:
    return ", ".join(f"{part.folder} ({part.policy.load_qps / level.load_qps:.1%})"
                     for part in level.parts)


def by_type(text: str, where: str) -> dict[str, str]:
    """``TYPE=VALUE,…`` as a mapping; empty for a text of another form."""
    parts = [_TYPED.fullmatch(part.strip()) for part in text.split(",")]
    if not any(parts):
        return {}
    found: dict[str, str] = {}
    for part in parts:
        if part is None or part[1] in found:
            raise InvalidValueError(describe("not a value for each worker type", where=where,
                                             value=text, allowed="TYPE=VALUE,TYPE=VALUE,…"))
        found[part[1]] = part[2]
    return found


def _count(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValueError(describe("not a valid integer", where=where, value=text,
                                         allowed="a whole number, or TYPE=N,TYPE=N,…")) from None


def _classes(text: str) -> float | tuple[SloClass, ...]:
    """One SLO, or classes ``MS:SHARE,…``."""
    try:
        if ":" not in text:
            return float(text)
        pairs = [part.split(":") for part in text.split(",")]
        return tuple(SloClass(float(slo), float(share)) for slo, share in pairs)
    except InvalidValueError:
        raise
    except ValueError:
        raise InvalidValueError(describe("not a valid float", where="--slo-ms", value=text,
                                         allowed="a number of ms, or MS:SHARE,MS:SHARE,… with "
                                         "shares of the queries that sum to 1")) from None
