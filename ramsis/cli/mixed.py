"""Mixed fleets as the command line names them: worker types and SLO classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ramsis.cli.clusters import cluster_of
from ramsis.cli.params import ByType
from ramsis.cli.rows import Column, print_json, print_rows, progress
from ramsis.cluster import SloClass, WorkerType
from ramsis.policy import MANIFEST_NAME, Level, Policy
from ramsis.synthesis import FleetSettings, SynthesisSettings
from ramsis.synthesis.mix import generate_mix

__all__ = ["MixedFleet", "OneFleet", "fleet_of", "generate_mixed"]

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
        return sum(one.count or 0 for one in self.types)

    @property
    def slo_ms(self) -> float:
        """The longest."""
        return self.classes[-1].slo_ms

    def terms(self) -> dict[str, Any]:
        """What rows say of the fleet."""
        return {
            "workers": self.workers, "slo_ms": self.slo_ms,
            "worker_types": {one.name: one.count for one in self.types},
            "slo_classes": [{"slo_ms": one.slo_ms, "share": one.share} for one in self.classes],
        }


def fleet_of(
    profile_names: ByType[str], classes: tuple[SloClass, ...], workers: ByType[int]
) -> OneFleet | MixedFleet:
    """The fleet that the options name, its profiles read if it is mixed.

    Raises
    ------
    InvalidValueError
        A type without workers or without a profile, or shares that do not sum to 1.
    """
    if not (workers.typed or profile_names.typed) and classes == (SloClass(classes[0].slo_ms),):
        return OneFleet(classes[0].slo_ms, workers.one)
    cluster = cluster_of(profile_names, classes, workers)
    return MixedFleet(cluster.worker_types, cluster.classes)


def generate_mixed(
    fleet: MixedFleet, loads: tuple[float, ...],
    settings: FleetSettings | SynthesisSettings, out: Path, *, overwrite: bool, as_json: bool,
) -> None:
    """Make the policies of a mixed fleet and print what they promise together."""
    with progress("loads", len(loads)) as advance:
        levels = generate_mix(fleet.types, fleet.classes, loads, settings, out,
                              overwrite=overwrite, on_level=lambda _: advance()).levels
    rows = [{"scheme": level.stations[0].policy.dispatch, **fleet.terms(),
             "load_qps": level.load_qps,
             **{key: value for key, value in level.expected.items() if key != "overloaded"},
             "parts": _parts(level)} for level in levels]
    if as_json:
        print_json(rows)
        return
    shown = [column for column in _PROMISE
             if any(row.get(column.key) is not None for row in rows) or column.key == "words"]
    print_rows(shown, [{**row, "words": _part_words(level)}
                       for row, level in zip(rows, levels, strict=True)])
    click.echo(f"\n{out / MANIFEST_NAME} lists the policies of each station")


def _parts(level: Level[Policy]) -> list[dict[str, Any]]:
    return [{"folder": part.name, "types": list(part.worker_types), "workers": part.workers,
             "load_qps": part.policy.load_qps,
             "share": [{"slo_ms": slo, "share": share}
                       for slo, share in sorted(part.share.items())],
             "expected_effective_accuracy": part.policy.expectations.effective_accuracy,
             "expected_violation_rate": part.policy.expectations.violation_rate,
             "upper_bound": part.policy.expectations.upper_bound} for part in level.stations]


def _part_words(level: Level[Policy]) -> str:
    return ", ".join(f"{part.name} ({part.policy.load_qps / level.load_qps:.1%})"
                     for part in level.stations)
