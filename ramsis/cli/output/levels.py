"""Rows of a policy set's levels: expectations of each level and of its stations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ramsis.cli.options.clusters import cluster_terms
from ramsis.cli.output.overload import tell_overload
from ramsis.cli.output.rows import (
    Column,
    budget_row,
    headroom_row,
    policy_row,
    print_json,
    print_rows,
    say,
)
from ramsis.cluster import Cluster
from ramsis.policy import MANIFEST_NAME, Level, Policy, policy_file_name
from ramsis.runtime.manifest import read_manifest
from ramsis.tables import with_values

_RATES = (
    Column("load_qps", "load (QPS)", "g"),
    Column("slowness", "slowness", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective accuracy", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
)
_CASCADES = (
    Column("second_opinions", "second opinions", ".1%"),
    Column("gain", "gain by them", ".4f"),
)
_HEADROOM = (
    Column("headroom_factor", "planned service time (factor)", "g", wide=True),
    Column("slower_effective_accuracy", "effective accuracy at +10 % service time", ".4f",
           wide=True),
    Column("slower_violation_rate", "violations at +10 % service time", ".4%", wide=True),
)
PROMISE_COLUMNS = (*_RATES, *_CASCADES, Column("utilisation", "utilisation", ".1%"), *_HEADROOM,
                   Column("state", "state"))
_STATIONS = (
    *_RATES,
    Column("shared_effective_accuracy", "with common workers", ".4f", wide=True),
    Column("apart_effective_accuracy", "with own workers", ".4f", wide=True),
    Column("words", "stations (share of the load)"),
)
_PROMISES = ("expected_accuracy", "expected_violation_rate", "expected_effective_accuracy",
             "upper_bound", "shared_effective_accuracy", "shared_violation_rate",
             "apart_effective_accuracy", "apart_violation_rate")


def print_levels(
    cluster: Cluster, levels: Sequence[Level[Policy]], folder: Path, *, as_json: bool
) -> None:
    """Print a row for each level of a cluster, and the overloaded levels."""
    _print(cluster, levels, folder, as_json=as_json)
    tell_overload(warning for level in levels for warning in _overload(level))


def _print(
    cluster: Cluster, levels: Sequence[Level[Policy]], folder: Path, *, as_json: bool
) -> None:
    chosen: Sequence[Column] = PROMISE_COLUMNS if cluster.simple else _STATIONS
    rows = [_policy_row(level.policy, folder) if cluster.simple else _stations_row(cluster, level)
            for level in levels]
    if as_json:
        print_json(rows)
        return
    if all(level.slowness == 1.0 for level in levels):
        chosen = [column for column in chosen if column.key != "slowness"]
    filled = with_values(chosen, rows)
    columns = [column for column in chosen
               if column not in (*_HEADROOM, *_CASCADES) or column in filled]
    if cluster.simple:
        print_rows(columns, rows)
        held = len(read_manifest(folder).levels)  # a folder may have held others before
        count = f"{held} {'policy' if held == 1 else 'policies'}"
        new = "" if held == len(levels) else f", {len(levels)} of them made now"
        click.echo()
        say(f"{count} in {folder} ({MANIFEST_NAME} lists them){new}")
        return
    shown = [column for column in columns if column in filled or column.key == "words"]
    print_rows(shown, [{**row, "words": _station_words(level)}
                       for row, level in zip(rows, levels, strict=True)])
    click.echo()
    say(f"{folder / MANIFEST_NAME} lists the policies of each station")


def _policy_row(policy: Policy, folder: Path) -> dict[str, Any]:
    """Return the row of a level with a single station."""
    name = policy_file_name(policy.dispatch, policy.load_qps, policy.arrivals, policy.slowness)
    state = "OVERLOAD" if policy.expectations.overloaded else "ok"
    return {**policy_row(policy), **headroom_row(policy), **budget_row(policy),
            "file": str(folder / name), "state": state}


def _overload(level: Level[Policy]) -> Iterator[str]:
    """Describe the overloaded stations of a level."""
    for station in level.stations:
        expected = station.policy.expectations
        where = level.words + (f", {station.name}" if len(level.stations) > 1 else "")
        if expected.unstable:
            yield (f"{where}: OVERLOAD, queues of more than {station.policy.max_queue} grow "
                   "without end; a longer --max-queue has larger batches, --late drop gives up")
        elif expected.overloaded:
            yield (f"{where}: OVERLOAD, {expected.violation_rate:.1%} of the requests late or "
                   f"dropped; with batches up to --max-queue no scheduler answers more "
                   f"than {expected.capacity_qps:.6g} QPS in time")


def _stations_row(cluster: Cluster, level: Level[Policy]) -> dict[str, Any]:
    """Return the row of a level with several stations, each station listed under ``parts``."""
    return {
        "scheduler": level.stations[0].policy.dispatch, **cluster_terms(cluster),
        "load_qps": level.load_qps, "slowness": level.slowness,
        **{name: level.expected.get(name) for name in _PROMISES},
        "parts": [{
            "folder": station.name, "types": list(station.worker_types),
            "workers": station.workers,
            "load_qps": station.policy.load_qps,
            "share": [{"slo_ms": slo, "share": share}
                      for slo, share in sorted(station.share.items())],
            "expected_effective_accuracy": station.policy.expectations.effective_accuracy,
            "expected_violation_rate": station.policy.expectations.violation_rate,
            "upper_bound": station.policy.expectations.upper_bound} for station in level.stations],
    }


def _station_words(level: Level[Policy]) -> str:
    return ", ".join(f"{station.name} ({station.policy.load_qps / level.load_qps:.1%})"
                     for station in level.stations)
