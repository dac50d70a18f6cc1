"""A sweep's specification: a TOML document that defines a list of cells.

The keys of the document apply to every ``[[grid]]``; each grid adds or replaces keys, and defines
all combinations of its axes. Without a ``[[grid]]`` the document is one grid. A grid with the
key ``scenario`` has scenario files and schedulers as its axes. The keys are described in
``docs/sweep.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import Any

from ramsis.arrivals import Arrivals
from ramsis.checks import check_arguments
from ramsis.cluster import Cluster
from ramsis.cluster.parsing import (
    check_named,
    named_cluster,
    read_profiles,
    read_slos,
    read_workers,
)
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.files import read_toml
from ramsis.policy import DISPATCHES
from ramsis.profiles import ProfileSet
from ramsis.reprs import dataclass
from ramsis.sweep.keys import (
    AXES,
    DEFAULTS,
    MODEL_SETS,
    SCENARIO_AXES,
    SCENARIO_SETTINGS,
    SETTINGS,
    read_axis,
    read_setting,
)
from ramsis.synthesis.schedulers import fleet_scheduler

MAX_CELLS = 100_000  # of a sweep
_DEFAULT_S = 30.0


@dataclass(frozen=True)
class Cell:
    """A scheduler on a workload, by the names of the specification.

    Attributes
    ----------
    profile, model_set : str
    workers : int
        Workers of all types.
    slo_ms : float
        The longest SLO.
    service : str
        See :func:`ramsis.sim.simulate`; empty for the default of the profiles.
    network_ms : float
        See :func:`ramsis.sim.simulate`.
    overhead_ms : float
        Time of every batch besides the model.
    arrivals : str
        The arrival process, as :meth:`ramsis.arrivals.Arrivals.parse` takes it.
    cv : float or None
        Coefficient of variation of its gaps, where these are independent.
    load_qps : float or None
        A constant load, or else a trace.
    trace : str or None
    trace_scale : float
    scheduler : str
    duration_s : float or None
        0: no simulation, only the promise of the policy. ``None``: as long as the trace.
    seed, seeds : int
        Seeds ``seed`` … ``seed + seeds - 1``.
    monitor : bool or None
    monitor_ms, told : float
    worker_types : str
        Workers by type, as ``gpu=4,cpu=40``; empty where none are named.
    slo_classes : str
        SLOs with their shares, as ``100:0.3,150:0.7``; empty for one SLO.
    """

    profile: str
    model_set: str
    workers: int
    slo_ms: float
    service: str
    network_ms: float
    overhead_ms: float
    arrivals: str
    cv: float | None
    load_qps: float | None
    trace: str | None
    trace_scale: float
    scheduler: str
    duration_s: float | None
    seed: int
    seeds: int
    monitor: bool | None
    monitor_ms: float
    told: float
    worker_types: str = ""
    slo_classes: str = ""

    @property
    def label(self) -> str:
        """Profile, workers, SLO, load and scheduler of the cell, for messages."""
        load = f"trace {self.trace}" if self.trace else f"{self.load_qps:g} QPS"
        return (f"{self.profile} {self.model_set}, {self.workers} workers, "
                f"SLO {self.slo_ms:g} ms, {load}, {self.scheduler}")

    def cluster(self, read: Callable[[str], ProfileSet]) -> Cluster:
        """Return its workers and SLOs; ``read`` reads a profile by its name."""
        if not (self.worker_types or self.slo_classes):
            return Cluster.of(read(self.profile), workers=self.workers, slo_ms=self.slo_ms)
        return named_cluster(
            read_profiles(self.profile, "profiles"),
            read_slos(self.slo_classes or repr(self.slo_ms), "slo_ms"),
            read_workers(self.worker_types or str(self.workers), "workers"),
            ("profiles", "workers"), read)


@dataclass(frozen=True)
class ScenarioCell:
    """Cell of a sweep over scenarios: one scheduler on one scenario."""

    scenario: str  # a scenario file
    scheduler: str  # as ``ramsis simulate --scheduler`` takes it
    # seed, seeds: seeds ``seed`` … ``seed + seeds - 1``
    seed: int
    seeds: int
    bounded: bool  # whether to compute the bound on all schedulers

    @property
    def label(self) -> str:
        """Scenario and scheduler of the cell, for messages."""
        return f"{self.scenario}, {self.scheduler}"


@dataclass(frozen=True)
class SweepSpec:
    """Specification of a sweep.

    Attributes
    ----------
    cells : tuple of Cell
        Cells in the order of the specification, none twice.
    scenarios : tuple of ScenarioCell
        Cells of scenarios, in the same way.
    model_sets : Mapping of str to tuple of str
        Named subsets of the models.
    source : str
        File of the specification, for messages.
    document : Mapping
        The specification as written.
    """

    cells: tuple[Cell, ...]
    model_sets: Mapping[str, tuple[str, ...]]
    source: str = "spec"
    document: Mapping[str, Any] = field(default_factory=dict)
    scenarios: tuple[ScenarioCell, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SweepSpec:
        """Read a specification from a TOML file.

        Parameters
        ----------
        path : path

        Raises
        ------
        InputFileError
            The file cannot be read, is not TOML, or breaks the rules; the message names the key.
        """
        return cls.of(read_toml(path), str(path))

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str = "spec") -> SweepSpec:
        """Read a specification from a document, as :mod:`tomllib` reads it."""
        shared = dict(document)
        model_sets = _model_sets(shared.pop("model_sets", {}), source)
        grids = shared.pop("grid", [{}])
        if not isinstance(grids, list) or not all(isinstance(g, Mapping) for g in grids):
            raise InputFileError("not tables", where=f"{source}: grid",
                                 allowed="each grid under [[grid]]")
        cells: dict[Cell, None] = {}
        scenarios: dict[ScenarioCell, None] = {}
        for i, grid in enumerate(grids):
            where = source if len(grids) == 1 else f"{source}: grid {i + 1}"
            full = {**shared, **grid}
            if "scenario" in full:
                scenarios.update(dict.fromkeys(_scenario_cells(full, where)))
                continue
            for cell in _cells(full, where, model_sets):
                cells[cell] = None
                if len(cells) > MAX_CELLS:
                    raise InputFileError("too many cells", where=where,
                                         allowed=f"at most {MAX_CELLS}")
        return cls(tuple(cells), model_sets, source, document, tuple(scenarios))


def _model_sets(value: Any, source: str) -> dict[str, tuple[str, ...]]:
    where = f"{source}: model_sets"
    if not isinstance(value, Mapping):
        raise InputFileError("not a table", where=where, value=value,
                             allowed='name = ["model", …]')
    for name, models in value.items():
        if not (isinstance(models, list) and models and all(isinstance(m, str) for m in models)):
            raise InputFileError("not a list of models", where=f"{where}.{name}", value=models,
                                 allowed='["model", …]')
    return {name: tuple(models) for name, models in value.items()}


def _cells(
    grid: Mapping[str, Any], where: str, model_sets: Mapping[str, tuple[str, ...]]
) -> Iterator[Cell]:
    """Yield all combinations of a grid's axes."""
    for key in grid:
        if key not in AXES and key not in SETTINGS:
            raise InputFileError("unknown key", where=where, value=key,
                                 allowed=", ".join((*AXES, *SETTINGS)))
    for key in ("profiles", "workers", "slo_ms", "scheduler"):
        if key not in grid:
            raise InputFileError("missing", where=f"{where}: {key}", allowed="one value or a list")
    if ("load_qps" in grid) == ("trace" in grid):
        raise InputFileError("needs one of load_qps and trace", where=where, allowed="either")
    if "arrivals" in grid and "cv" in grid:
        raise InputFileError("needs one of arrivals and cv", where=where,
                             allowed="either; cv = 2 is arrivals = \"renewal:2\"")
    full = {**DEFAULTS, **grid}
    settings = {key: read_setting(key, full[key], where) for key in SETTINGS if key in full}
    axes = {key: read_axis(key, full[key], where) if key in full else (None,) for key in AXES}
    for name in axes["models"]:
        if name not in (*model_sets, *MODEL_SETS[:2]) and not name.startswith("interpolate:"):
            raise InputFileError("unknown model set", where=f"{where}: models", value=name,
                                 allowed=", ".join((*model_sets, *MODEL_SETS)))
    if settings.get("duration_s") == 0 and not (
        axes["load_qps"][0] and all(fleet_scheduler(s).makes_policies for s in axes["scheduler"])
    ):
        raise InputFileError("only policies have promises", where=f"{where}: duration_s", value=0,
                             allowed=f"0 for {', '.join(DISPATCHES)} at "
                             "load_qps")
    for names, workers in product(axes["profiles"], axes["workers"]):
        try:
            check_named(names, workers, (f"{where}: profiles", f"{where}: workers"))
        except InvalidValueError as error:
            raise InputFileError(str(error)) from None
    for values in product(*axes.values()):
        yield _cell(dict(zip(axes, values, strict=True)), settings)


def _scenario_cells(grid: Mapping[str, Any], where: str) -> Iterator[ScenarioCell]:
    """Yield all combinations of a grid's scenarios and schedulers."""
    from ramsis.planning import scheduler_named  # here, as it takes long to load

    for key in grid:
        if key not in SCENARIO_AXES and key not in SCENARIO_SETTINGS:
            raise InputFileError("unknown key of a grid of scenarios", where=where,
                                 value=key, allowed=", ".join(
                                     (*SCENARIO_AXES, *SCENARIO_SETTINGS)))
    full = {"seed": DEFAULTS["seed"], "seeds": DEFAULTS["seeds"], "bound": "on",
            "scheduler": "clockwork", **grid}
    settings = {key: read_setting(key, full[key], where, SCENARIO_SETTINGS)
                for key in SCENARIO_SETTINGS}
    axes = {key: read_axis(key, full[key], where, SCENARIO_AXES) for key in SCENARIO_AXES}
    for text in axes["scheduler"]:
        try:
            scheduler_named(text)
        except InputFileError as error:
            raise InputFileError(f"{where}: {error}") from error
    if len(axes["scenario"]) * len(axes["scheduler"]) > MAX_CELLS:
        raise InputFileError("too many cells", where=where, allowed=f"at most {MAX_CELLS}")
    for scenario, scheduler in product(axes["scenario"], axes["scheduler"]):
        yield ScenarioCell(scenario, scheduler, settings["seed"], settings["seeds"],
                           settings["bound"] == "on")


def _cell(values: dict[str, Any], settings: Mapping[str, Any]) -> Cell:
    """Return the cell of one combination of axis values, under the settings of its grid."""
    duration_s = settings.get("duration_s", None if values["trace"] else _DEFAULT_S)
    monitor = settings.get("monitor")
    cv = values.pop("cv") or 1.0
    arrivals = Arrivals.parse(values.pop("arrivals") or f"renewal:{cv!r}")
    workers, slos = values.pop("workers"), values.pop("slo_ms")
    values["service"] = values["service"] or ""
    return Cell(
        profile=values.pop("profiles").text, model_set=values.pop("models"), **values,
        workers=sum(workers.values.values()), worker_types=workers.text if workers.typed else "",
        slo_ms=slos.classes[-1].slo_ms, slo_classes=slos.text,
        arrivals=arrivals.text, cv=getattr(arrivals(1000.0), "gap_cv", None),
        duration_s=duration_s, seed=settings["seed"], seeds=settings["seeds"],
        monitor=None if monitor is None else monitor == "on",
        monitor_ms=settings["monitor_ms"], told=settings["told"],
    )


check_arguments(globals(), ["SweepSpec"])
