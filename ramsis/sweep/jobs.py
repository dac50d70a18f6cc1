"""Jobs of a sweep, each of which writes a file of the output folder.

A job's file is named by the fingerprint of its inputs and written atomically, so an existing file
is never written again. Policies and the offline profile of ModelSwitching are separate jobs, since
many cells share them.

Each row of the value table (``value-table.json``) states the promise of the best policy for a load
and an SLO, for a number of workers of one type with the same models. The schema of the file is in
:mod:`placement_milp`, which reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ramsis import __version__
from ramsis.cluster import Cluster
from ramsis.errors import InputFileError
from ramsis.files import canonical_json, write_atomic
from ramsis.policy import Level, Policy, PolicySet, level_of, read, read_set, write
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.sim import (
    ConstantLoad,
    Fleets,
    FleetScheduler,
    ModelSwitching,
    Policies,
    RateTrace,
    SimulationResult,
    SimulationSettings,
    Workload,
    simulate,
)
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sweep.pool import Job, ResultJob, file_of
from ramsis.sweep.spec import Cell
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.synthesis.certified import bound_on_arrivals, counts_of, gap_in_simulation
from ramsis.synthesis.schedulers import (
    ComparedScheduler,
    arrivals_document,
    fleet_scheduler,
    planned_arrivals,
    scheduler_document,
    settings_document,
)
from ramsis.synthesis.sets import made_level
from ramsis.synthesis.stations import set_header

VALUE_TABLE_FORMAT = "ramsis.value-table/1"
VALUE_TABLE_NAME = "value-table.json"  # in the folder of a sweep

CELL_FORMAT = "ramsis.sweep-cell/5"  # a new number where the same inputs give new results
_POLICIES = f"policies/2 {__version__}"  # likewise where they give new policies

_CODE = f"{CELL_FORMAT} {__version__}"
_PROMISES = ("accuracy", "violation_rate", "effective_accuracy", "upper_bound")


@dataclass(frozen=True)
class SweepCluster:
    """The cluster of a cell, with the fingerprint of each type's models."""

    cluster: Cluster
    digests: tuple[str, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> SweepCluster:
        """Create the sweep's description of a cluster, with the fingerprints of its profiles."""
        return cls(cluster, tuple(worker_type.profile.fingerprint_with_confidences
                                  for worker_type in cluster.worker_types))

    @cached_property
    def document(self) -> dict[str, Any]:
        """Models, workers and SLOs, as plain JSON values."""
        types, classes = self.cluster.worker_types, self.cluster.classes
        if self.cluster.simple:
            return {"profile": self.digests[0], "workers": self.cluster.workers,
                    "slo_ms": self.cluster.slo_ms}
        return {"worker_types": [{"name": kind.name, "workers": kind.count, "profile": digest}
                                 for kind, digest in zip(types, self.digests, strict=True)],
                "slo_classes": [{"slo_ms": slo_class.slo_ms, "share": slo_class.share}
                                for slo_class in classes]}


@dataclass(frozen=True)
class PolicyJob(Job):
    """Policies for a load: a file, or a set where the cluster may need several."""

    folder: Path
    cluster: SweepCluster
    load_qps: float
    settings: SynthesisSettings

    @cached_property
    def path(self) -> Path:
        """Policy file, or manifest of the set."""
        simple, document = self.cluster.cluster.simple, self.cluster.document
        name = file_of({
            "code": _POLICIES, "load_qps": self.load_qps,
            **({"profile": document["profile"]} if simple else document),
            "settings": settings_document(self.settings),
        })
        policies = self.folder / "policies"
        return policies / name if simple else policies / Path(name).stem / MANIFEST_NAME

    def run(self) -> None:
        """Generate the policies, unless complete files exist."""
        self.level()

    def level(self) -> Level[Policy]:
        """Return the policies, generated unless complete files exist."""
        cluster = self.cluster.cluster
        if not cluster.simple:
            return self._level()
        try:
            return level_of(read(self.path))
        except InputFileError:
            pass
        level = made_level(cluster, self.load_qps, self.settings)
        write(level.stations[0].policy, self.path)
        return level

    def _level(self) -> Level[Policy]:
        """Return the set's policies for the load, read from its folder or generated."""
        folder = self.path.parent
        try:
            (level,) = read_set(folder).levels
        except (InputFileError, ValueError):
            (level,) = generate_set(self.cluster.cluster, (self.load_qps,), self.settings, folder,
                                    overwrite=True).levels
        return level


@dataclass(frozen=True)
class ResponseJob(Job):
    """Job that profiles the fleet for ModelSwitching, before simulations use it."""

    folder: Path
    cluster: SweepCluster
    cell: Cell
    scheduler: ModelSwitching

    @cached_property
    def path(self) -> Path:
        """File of the response profile."""
        return self.folder / "responses" / file_of({
            "code": _CODE, **self.cluster.document, "service": self.cell.service,
            "network_ms": self.cell.network_ms,
            "scheduler": scheduler_document(self.scheduler),
        })

    @property
    def stored(self) -> ModelSwitching:
        """Scheduler that reads the file of this job."""
        return replace(self.scheduler, store=str(self.path))

    def run(self) -> None:
        """Profile the models for ModelSwitching, and write the file."""
        self.stored.prepare(_fleets(self.cluster, self.cell).fleets[0])


@dataclass(frozen=True)
class CellJob(ResultJob):
    """Job of a sweep that simulates one scheduler on one workload."""

    kind, format_ = "cells", CELL_FORMAT
    folder: Path
    cell: Cell
    cluster: SweepCluster
    trace: RateTrace | None

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All inputs that the result depends on, as JSON values."""
        cell, trace = self.cell, self.trace
        load: dict[str, Any] = {"load_qps": cell.load_qps}
        if trace is not None:
            load = {"start_ms": trace.start_ms.tolist(), "rate_qps": trace.rate_qps.tolist(),
                    "end_ms": trace.end_ms}
        return {
            "code": _CODE, **self.cluster.document, "service": cell.service,
            "network_ms": cell.network_ms,
            "workload": {**load, "arrivals": arrivals_document(cell.arrivals),
                         "duration_s": cell.duration_s},
            "monitor": cell.monitor, "monitor_ms": cell.monitor_ms, "told": cell.told,
            "seed": cell.seed, "seeds": cell.seeds,
            "scheduler": self._compared.document(
                self._loads, slo_ms=cell.slo_ms, workers=cell.workers, service=cell.service,
                arrivals=self._planned_arrivals),
        }

    @cached_property
    def needs(self) -> tuple[PolicyJob | ResponseJob, ...]:
        """Jobs whose result files this job reads."""
        policies = tuple(PolicyJob(self.folder, self.cluster, load, self._compared.settings(
            slo_ms=self.cell.slo_ms, workers=self.cell.workers, service=self.cell.service,
            arrivals=self._planned_arrivals)) for load in self._loads)
        spec = self._compared.spec
        # With several worker types each would have another response profile.
        if isinstance(spec, ModelSwitching) and not spec.store and self.cluster.cluster.simple:
            return (ResponseJob(self.folder, self.cluster, self.cell, spec),)
        return policies

    def run(self) -> None:
        """Simulate the scheduler, and write the file of the result."""
        levels = tuple(need.level() for need in self.needs if isinstance(need, PolicyJob))
        spec = self._ready(levels)
        fleets = _fleets(self.cluster, self.cell, max(MAX_BATCH, spec.max_batch))
        result = None
        if self.cell.duration_s != 0:
            result = self._simulate(spec)
        types = self.cluster.cluster.worker_types
        self.write(
            models=list(dict.fromkeys(model.name for worker_type in types
                                      for model in worker_type.profile.models)),
            promise=self._promise(levels, result),
            result=None if result is None else result.row(),
            upper_bound=None if result is None else bound_on_arrivals(
                fleets, result.duration_ms, counts_of(result)),
            gap={} if result is None else gap_in_simulation(
                result, spec if isinstance(spec, Policies) else None, fleets, self._workload()),
            seeds=[] if result is None else [asdict(metrics) for metrics in result.metrics])

    @cached_property
    def _compared(self) -> ComparedScheduler:
        return fleet_scheduler(self.cell.scheduler)

    @cached_property
    def _loads(self) -> tuple[float, ...]:
        if self.trace is not None:
            return self._compared.loads(self.trace)
        stated_share = 1.0 if self.cell.monitor else self.cell.told
        return self._compared.loads_for(
            ConstantLoad(stated_share * cast(float, self.cell.load_qps), 1.0))

    @cached_property
    def _planned_arrivals(self) -> str:
        workload = self.trace or ConstantLoad(
            cast(float, self.cell.load_qps), 1.0, self.cell.arrivals)
        cluster = self.cluster.cluster
        return planned_arrivals(workload, cluster.slo_ms, divided=not cluster.simple)

    def _ready(self, levels: tuple[Level[Policy], ...]) -> FleetScheduler:
        """Return the scheduler with its policies, or with the stored results that it needs."""
        if levels:
            return Policies(PolicySet(levels, *set_header(self.cluster.cluster)),
                            self.cell.scheduler)
        first = next(iter(self.needs), None)
        return first.stored if isinstance(first, ResponseJob) else cast(FleetScheduler,
                                                                        self._compared.spec)

    def _simulate(self, spec: FleetScheduler) -> SimulationResult:
        cell = self.cell
        return simulate(self.cluster.cluster, spec, self._workload(), SimulationSettings(
            service=cell.service, network_ms=cell.network_ms,
            seeds=range(cell.seed, cell.seed + cell.seeds), monitor=cell.monitor,
            monitor_ms=cell.monitor_ms, stated_load=cell.told))

    def _workload(self) -> Workload:
        if self.trace is not None:
            return self.trace
        load_qps, duration_ms = cast(float, self.cell.load_qps), 1000.0 * self._seconds
        return ConstantLoad(load_qps, duration_ms, self.cell.arrivals)

    @property
    def _seconds(self) -> float:
        return cast(float, self.cell.duration_s)

    def _promise(
        self, levels: tuple[Level[Policy], ...], result: SimulationResult | None
    ) -> dict[str, Any]:
        """Return the promise of policies made for the cell's constant load."""
        same_load = result is None or result.told_qps == self.cell.load_qps
        if self.trace is not None or not levels or not same_load:
            return dict.fromkeys(_PROMISES)
        expected = levels[0].expected
        return {name: expected.get(name if name == "upper_bound" else f"expected_{name}")
                for name in _PROMISES}


def _fleets(cluster: SweepCluster, cell: Cell, max_batch: int = MAX_BATCH) -> Fleets:
    return Fleets.of(cluster.cluster, service=cell.service, network_ms=cell.network_ms,
                     max_batch=max_batch)


def value_rows(done: Iterable[tuple[Cell, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of the value table: policies at constant loads.

    Cells of several worker types or SLO classes have no row. The worker type is the profile set's
    name in the specification. Of several policies for the same models, workers, load and SLO the
    policy with the highest expected effective accuracy is used.
    """
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell, document in done:
        value = document["promise"]["effective_accuracy"]
        if value is None or cell.worker_types or cell.slo_classes:
            continue
        key = (Path(cell.profile).stem, tuple(document["models"]), cell.workers, cell.load_qps,
               cell.slo_ms)
        if key not in best or value > best[key]["expected_effective_accuracy"]:
            best[key] = {
                "worker_type": key[0], "model_set": list(key[1]), "workers": cell.workers,
                "load_qps": cell.load_qps, "slo_ms": cell.slo_ms,
                "expected_effective_accuracy": value,
                "expected_violation_rate": document["promise"]["violation_rate"],
            }
    return [best[key] for key in sorted(best)]


def write_value_table(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write a value table atomically.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    write_atomic(path, canonical_json({"format": VALUE_TABLE_FORMAT, "rows": list(rows)}))
