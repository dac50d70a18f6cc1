"""Cells of scenarios: jobs that each run a scheduler on a scenario.

The bound on all schedulers depends on the requests alone, so it is a separate job, whose result
all schedulers share.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ramsis import __version__
from ramsis.bounds import scenario_bound
from ramsis.planning import compare, scheduler_named
from ramsis.planning.comparison import KEYS
from ramsis.plugins import source_of
from ramsis.scenario import Scenario, draw_requests, read_scenario
from ramsis.sweep.pool import ResultJob
from ramsis.sweep.spec import ScenarioCell

SCENARIO_FORMAT = "ramsis.sweep-scenario/2"  # a new number where the same inputs give new results
BOUND_FORMAT = "ramsis.sweep-bound/1"

_FIGURES = ("in_time", "in_time_half_width", "bound", "share_of_bound", *KEYS)
# Columns of the tables of cells and of runs.
COLUMNS = ("scenario", "scheduler", "seed", "seeds", *_FIGURES)
SEED_COLUMNS = tuple(name for name in COLUMNS if name not in ("seeds", "in_time_half_width"))


@dataclass(frozen=True)
class SweepScenario:
    """A scenario with its traces, and its document as plain JSON values."""

    scenario: Scenario
    document: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SweepScenario:
        """Read a scenario from a file, with the digest of each trace."""
        scenario = read_scenario(path).with_traces()
        digests = {}
        for stream in scenario.streams:
            content = stream.workload.content()
            if content:
                digest = hashlib.sha256()
                for values in content:
                    digest.update(repr(values.shape).encode() + values.tobytes())
                digests[stream.name] = digest.hexdigest()
        return cls(scenario, {"scenario": scenario.to_document(), "traces": digests})


def scheduler_inputs(text: str) -> dict[str, Any]:
    """Return the inputs of a scheduler; of a user's scheduler with the digest of its file."""
    spec = scheduler_named(text)
    source = None if spec.own is None else source_of(spec.own)
    code = None if source is None else hashlib.sha256(source.read_bytes()).hexdigest()
    return {"scheduler": spec.text.partition(":")[0] if spec.own is None else spec.own,
            "parameters": dict(spec.parameters), "source": code}


@dataclass(frozen=True)
class BoundJob(ResultJob):
    """Upper bound of all schedulers on a scenario, a share for each seed."""

    kind, format_ = "bounds", BOUND_FORMAT
    folder: Path
    cell: ScenarioCell
    scenario: SweepScenario

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All inputs that the bound depends on, as JSON values."""
        return {"code": f"{BOUND_FORMAT} {__version__}", **self.scenario.document,
                "seed": self.cell.seed, "seeds": self.cell.seeds}

    def run(self) -> None:
        """Compute the bound of each seed, and write the file."""
        self.shares()

    def shares(self) -> list[float]:
        """Return the shares, computed unless a complete file exists; empty if unknown."""
        if (document := self.result()) is not None:
            return list(document["shares"])
        scenario, bounds = self.scenario.scenario, []
        for seed in _seeds(self.cell):
            requests = draw_requests(scenario, seed)
            bound = scenario_bound(scenario, requests)
            if bound is not None and len(requests):
                bounds.append(bound.share)
        self.write(shares=bounds)
        return bounds


@dataclass(frozen=True)
class ScenarioJob(ResultJob):
    """Job of a sweep that simulates one scheduler on one scenario."""

    kind, format_ = "scenarios", SCENARIO_FORMAT
    folder: Path
    cell: ScenarioCell
    scenario: SweepScenario

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All inputs that the result depends on, as JSON values."""
        return {"code": f"{SCENARIO_FORMAT} {__version__}", **self.scenario.document,
                **scheduler_inputs(self.cell.scheduler), "seed": self.cell.seed,
                "seeds": self.cell.seeds, "bound": self.cell.bounded}

    @property
    def needs(self) -> tuple[BoundJob, ...]:
        """Jobs whose result files this job reads."""
        if not self.cell.bounded:
            return ()
        return (BoundJob(self.folder, self.cell, self.scenario),)

    def run(self) -> None:
        """Simulate the scheduler, and write the file of the result."""
        spec = scheduler_named(self.cell.scheduler)
        seeds = _seeds(self.cell)
        compared, = compare(self.scenario.scenario, [spec], seeds)
        shares = tuple(share for need in self.needs for share in need.shares())
        compared = replace(compared, bounds=shares)
        each = [replace(compared, seeds=(seed,), metrics=(metrics,), bounds=shares[i:i + 1]).row()
                for i, (seed, metrics) in enumerate(zip(seeds, compared.metrics, strict=True))]
        self.write(result=compared.row(), seeds=each)


def scenario_row(cell: ScenarioCell, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ``scenarios.csv``: means over the seeds, sums of counts."""
    return {**_cell(cell), "seeds": cell.seeds, **_figures(document["result"])}


def seed_rows(cell: ScenarioCell, document: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return rows of ``scenario-seeds.csv``, one for each seed."""
    return [{**_cell(cell), **_figures(row), "seed": cell.seed + i}
            for i, row in enumerate(document["seeds"])]


def _cell(cell: ScenarioCell) -> dict[str, Any]:
    return {"scenario": cell.scenario, "scheduler": cell.scheduler, "seed": cell.seed}


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in _FIGURES}


def _seeds(cell: ScenarioCell) -> range:
    return range(cell.seed, cell.seed + cell.seeds)
