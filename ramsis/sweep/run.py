"""Running a sweep: existing results are reused, missing ones computed, tables written.

Rows are in the order of the specification, and numbers are written with all digits, so that the
same cells give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ramsis import __version__, profiles
from ramsis.arrivals.load_table import read_rates
from ramsis.checks import check_arguments
from ramsis.errors import InputFileError, OutputError
from ramsis.files import canonical_json, remove, write_atomic
from ramsis.profiles import ProfileSet, Statistic, interpolate_front, pareto_front
from ramsis.reprs import dataclass, figure_of
from ramsis.sim import RateTrace
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sim.result import FIGURES
from ramsis.sweep.engines import Engine, runner
from ramsis.sweep.jobs import (
    VALUE_TABLE_NAME,
    CellJob,
    PolicyJob,
    ResponseJob,
    SweepCluster,
    value_rows,
    write_value_table,
)
from ramsis.sweep.pool import Job, JobOutcome, Runner
from ramsis.sweep.scenarios import (
    COLUMNS,
    SEED_COLUMNS,
    BoundJob,
    ScenarioJob,
    SweepScenario,
    scenario_row,
    seed_rows,
)
from ramsis.sweep.spec import Cell, ScenarioCell, SweepSpec
from ramsis.sweep.store import store_at
from ramsis.tables import Column, csv_text, html_table, with_values

if TYPE_CHECKING:
    import pandas as pd

# A cell, or a cell of a scenario, and the document of its results.
Done = tuple[Cell, Mapping[str, Any]]
Played = tuple[ScenarioCell, Mapping[str, Any]]

_OF_CELLS = ("results.csv", "seeds.csv", "models.csv")
_OF_SCENARIOS = ("scenarios.csv", "scenario-seeds.csv")
_SCENARIO_AXES = ("scenario", "scheduler", "seed", "seeds")
AXES = tuple(item.name for item in fields(Cell))  # in which cells can differ
_HALF_WIDTHS = ("accuracy_half_width", "violation_rate_half_width",
                "effective_accuracy_half_width")
_GAP = ("violation_price", "priced_upper_bound", "certified_gap")
_PROMISES = ("accuracy", "violation_rate", "effective_accuracy")

RECORD_NAME = "sweep.json"  # file with the specification of a folder's tables
RECORD_FORMAT = "ramsis.sweep/1"

OnStep = Callable[[], object]
_J = TypeVar("_J", bound=Job)


_COLUMNS = (
    Column("scenario", "scenario"), Column("scheduler", "scheduler"),
    Column("in_time", "in time", ".4f"), Column("bound", "bound", ".4f"),
    Column("share_of_bound", "of bound", ".2%"), Column("loads", "loads", "d"),
    Column("workers", "workers", "d"), Column("slo_ms", "SLO", "g"),
    Column("load_qps", "load (queries/s)", "g"), Column("trace", "trace"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"), Column("certified_gap", "certified gap", ".2%"))


@dataclass(frozen=True)
class Failure:
    """Cell of a sweep that could not be computed, and why."""

    cell: Cell | ScenarioCell
    error: str
    exit_code: int


@dataclass(frozen=True)
class SweepResult:
    """Results of a sweep.

    Attributes
    ----------
    computed, reused : int
        Cells computed now, and cells with earlier results.
    failures : tuple of Failure
        Failed cells in the order of the specification.
    rows : tuple of dict
        A row of ``results.csv`` for each cell that did not fail, then one of ``scenarios.csv``
        for each cell of a scenario, in the order of the specification.
    values : tuple of dict
        Rows of the value table; see :func:`ramsis.sweep.value_rows`.
    files : tuple of Path or str
        The tables written; URLs as texts.
    """

    computed: int
    reused: int
    failures: tuple[Failure, ...]
    rows: tuple[dict[str, Any], ...]
    values: tuple[dict[str, Any], ...]
    files: tuple[Path | str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a table."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def _repr_html_(self) -> str:
        """Return the cells as a table, for notebooks."""
        return html_table(with_values(_COLUMNS, self.rows), self.rows,
                          caption=f"Sweep: {self.computed} cells computed, {self.reused} reused, "
                          f"{len(self.failures)} failed")

    def plot(
        self, *, x: str = "load_qps", y: str = "effective_accuracy", by: str = "scheduler",
        panels: str | None = None,
    ) -> Any:
        """Plot a column over another, a line for each value of a third, panels by a fourth.

        Other axes of the sweep that vary have separate panels, or lines.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return figure_of("sweep", self.rows, x=x, y=y, by=by, panels=panels, axes=AXES)


class Sweep:
    """A sweep with its existing results and the jobs to run.

    Parameters
    ----------
    spec : SweepSpec
    folder : path
        Folder of results, or a URL that fsspec opens; existing results are reused.

    Attributes
    ----------
    todo : int
        Steps that :meth:`run` will take: cells, and jobs that they share.

    Raises
    ------
    InputFileError
        A profile, a trace or a scenario of the specification cannot be read.
    InvalidValueError
        A model set that a profile cannot provide.
    """

    def __init__(self, spec: SweepSpec, folder: str | os.PathLike[str]) -> None:
        with ExitStack() as leaving:
            self._store = leaving.enter_context(store_at(folder))
            self.folder = self._store.folder
            inputs = _Inputs(spec)
            self._spec, self._inputs = spec, inputs
            self.jobs = [CellJob(self.folder, cell, inputs.cluster(cell), inputs.trace(cell))
                         for cell in map(inputs.settled, spec.cells)]
            self.scenario_jobs = [ScenarioJob(self.folder, cell, inputs.scenario(cell))
                                  for cell in spec.scenarios]
            self._look()
            self._leaving = leaving.pop_all()

    def _look(self) -> None:
        """Find the results that exist already, and list the jobs to run."""
        distinct = _unique(self._every)
        self._store.fetch(job.path for job in distinct if self._store.has(job.path))
        self._open = [job for job in distinct if job.result() is None]
        self._store.forget(job.path for job in self._open)
        self._shared = [need for need in _unique(n for job in self._open for n in job.needs)
                        if not self._store.has(need.path)]
        self.todo = len(self._open) + len(self._shared)

    @property
    def _every(self) -> list[CellJob | ScenarioJob]:
        return [*self.jobs, *self.scenario_jobs]

    def run(
        self, processes: int | Engine = 1, on_step: OnStep | None = None
    ) -> SweepResult:
        """Compute missing results, and write the tables.

        Parameters
        ----------
        processes : int or Engine
            Number of processes, >= 1, or an engine. With more than one, a program that calls this
            must be importable (``if __name__ == "__main__"``), as for every use of
            :mod:`multiprocessing`.
        on_step : callable, optional
            Called after each step.
        """
        engine = processes if isinstance(processes, Engine) else Engine(workers=processes)
        failed: dict[Path, JobOutcome] = {}
        with self._leaving:
            if self.todo:
                with runner(engine, self.todo) as run:
                    self._run_all(run, self._shared, failed, on_step)
                    self._run_all(run, self._open, failed, on_step)
            return self._finish(failed)

    def _run_all(
        self, run: Runner,
        jobs: Sequence[CellJob | PolicyJob | ResponseJob | ScenarioJob | BoundJob],
        failed: dict[Path, JobOutcome], on_step: OnStep | None,
    ) -> None:
        """Run the jobs; a job that needs a failed one fails with it."""
        ready = []
        for job in jobs:
            missing = next((failed[need.path] for need in job.needs if need.path in failed), None)
            if missing is None:
                ready.append(job)
            else:
                failed[job.path] = missing
        for index, outcome in run([self._store.job(job) for job in ready]):
            if outcome.store:
                raise OutputError(str(outcome.error))
            if outcome.error is not None:
                failed[ready[index].path] = outcome
            if on_step is not None:
                on_step()

    def _finish(self, failed: dict[Path, JobOutcome]) -> SweepResult:
        """Collect the jobs' results, write the sweep's tables and record; return the result."""
        every = self._every
        failures = tuple(Failure(job.cell, str(failed[job.path].error),
                                 failed[job.path].exit_code)
                         for job in every if job.path in failed)
        self._store.fetch(job.path for job in self._open if job.path not in failed)
        done = [(job.cell, self._kept(job)) for job in self.jobs if job.path not in failed]
        played = [(job.cell, self._kept(job)) for job in self.scenario_jobs
                  if job.path not in failed]
        values = value_rows(done)
        files = write_tables(self.folder, self._spec, done, played, values,
                             [(f.cell, f.error) for f in failures])
        write_atomic(self.folder / RECORD_NAME, canonical_json(self._record()))
        self._store.keep((*files, self.folder / RECORD_NAME))
        computed = sum(job.path not in failed for job in self._open)
        distinct = {job.path for job in every}
        return SweepResult(
            computed=computed, reused=len(distinct) - len(self._open), failures=failures,
            rows=(*(cell_row(cell, document) for cell, document in done),
                  *(scenario_row(cell, document) for cell, document in played)),
            values=tuple(values), files=tuple(map(self._store.name, files)),
        )

    def _kept(self, job: CellJob | ScenarioJob) -> dict[str, Any]:
        """Return a computed result; raise an error if its file was removed."""
        result = job.result()
        if result is None:
            raise OutputError(
                "a result that was finished is gone", where=str(self._store.name(job.path)),
                allowed="results stay where they are until the sweep has ended; run it again")
        return result

    def _record(self) -> dict[str, Any]:
        """Return the specification, and the inputs of the results."""
        return {"format": RECORD_FORMAT, "created_by": f"ramsis {__version__}",
                "source": self._spec.source, "spec": dict(self._spec.document),
                "profiles": self._inputs.fingerprints}


def run_sweep(
    spec: SweepSpec, folder: str | os.PathLike[str], *, processes: int | Engine = 1,
    on_step: OnStep | None = None,
) -> SweepResult:
    """Run a sweep into a folder; see :class:`Sweep`."""
    return Sweep(spec, folder).run(processes, on_step)


def _unique(jobs: Iterable[_J]) -> list[_J]:
    """Return the first of several jobs that write the same file."""
    return list({job.path: job for job in reversed(list(jobs))}.values())[::-1]


class _Inputs:
    """Profiles, traces and scenarios, each read once."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self._profiles: dict[str, ProfileSet] = {}
        self._models: dict[tuple[str, str, str, float], ProfileSet] = {}
        self._clusters: dict[tuple[Any, ...], SweepCluster] = {}
        self._traces: dict[tuple[Any, ...], RateTrace] = {}
        self._scenarios: dict[str, SweepScenario] = {}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the profiles, by their names in the specification."""
        return {name: profile.fingerprint_with_confidences
                for name, profile in self._profiles.items()}

    def scenario(self, cell: ScenarioCell) -> SweepScenario:
        if cell.scenario not in self._scenarios:
            self._scenarios[cell.scenario] = SweepScenario.read(cell.scenario)
        return self._scenarios[cell.scenario]

    def settled(self, cell: Cell) -> Cell:
        """Return the cell with the default service times of its profiles filled in."""
        if cell.service:
            return cell
        return replace(cell, service=self.cluster(cell).cluster.default_service)

    def cluster(self, cell: Cell) -> SweepCluster:
        key = (cell.profile, cell.model_set, cell.service, cell.overhead_ms, cell.workers,
               cell.slo_ms, cell.worker_types, cell.slo_classes)
        if key not in self._clusters:
            self._clusters[key] = SweepCluster.of(
                cell.cluster(lambda name: self._models_of(name, cell)))
        return self._clusters[key]

    def _models_of(self, name: str, cell: Cell) -> ProfileSet:
        key = (name, cell.model_set,
               cell.service if cell.model_set.startswith("interpolate:") else "",
               cell.overhead_ms)
        if key not in self._models:
            if name not in self._profiles:
                self._profiles[name] = profiles.load(name)
            chosen = self._subset(self._profiles[name], cell)
            self._models[key] = chosen.with_overhead(cell.overhead_ms)
        return self._models[key]

    def _subset(self, profile: ProfileSet, cell: Cell) -> ProfileSet:
        """Return the part of a profile that a cell's model set names: a subset, or a front."""
        name = cell.model_set
        try:
            if name in self.spec.model_sets:
                return profile.subset(self.spec.model_sets[name])
            if name == "all":
                return profile
            statistic: Statistic = "p95"
            if cell.service in profile.statistics:
                statistic = cell.service  # type: ignore[assignment]
            if name == "pareto":
                return profile.subset(pareto_front(profile.latency_table(statistic, 1)))
            return interpolate_front(profile, float(name.partition(":")[2]), statistic, MAX_BATCH)
        except ValueError as error:
            raise InputFileError(f"{self.spec.source}: models {name}: {error}") from None

    def trace(self, cell: Cell) -> RateTrace | None:
        if cell.trace is None:
            return None
        key = (cell.trace, cell.trace_scale, cell.arrivals, cell.duration_s)
        if key not in self._traces:
            read = read_rates(cell.trace).scaled(cell.trace_scale)
            trace = RateTrace(read.start_ms, read.rate_qps, read.end_ms, cell.arrivals)
            if cell.duration_s is not None:
                trace = trace.until(1000.0 * cell.duration_s)
            self._traces[key] = trace
        return self._traces[key]


check_arguments(globals(), ["run_sweep"])


def cell_row(cell: Cell, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ``results.csv``: the cell, figures over its seeds, and the promise.

    Figures are means over the seeds, counts sums; without a simulation they are ``None``.
    """
    result: Mapping[str, Any] = document["result"] or {}
    promise = document["promise"]
    bound = document["upper_bound"]
    return {
        **asdict(cell),
        **{name: result.get(name) for name in (*FIGURES, *_HALF_WIDTHS)},
        **{f"expected_{name}": promise[name] for name in _PROMISES},
        "upper_bound": promise["upper_bound"] if bound is None else bound,
        **{name: document["gap"].get(name) for name in _GAP},
    }


def write_tables(
    folder: Path, spec: SweepSpec, done: Sequence[Done], played: Sequence[Played],
    values: Sequence[Mapping[str, Any]], failures: Sequence[tuple[Cell | ScenarioCell, str]],
) -> tuple[Path, ...]:
    """Write the tables of the sweep's kinds of cells, and return their paths.

    Tables of other kinds, which an earlier specification left, are removed.
    """
    tables: dict[str, tuple[Sequence[str], Iterable[Mapping[str, Any]]] | None] = {
        **dict.fromkeys((*_OF_CELLS, *_OF_SCENARIOS))}
    failing: list[str] = []  # columns of failures.csv: the axes of all kinds of cells
    if spec.cells or not spec.scenarios:
        failing += AXES
        tables["results.csv"] = (
            (*AXES, *FIGURES, *_HALF_WIDTHS, *(f"expected_{name}" for name in _PROMISES),
             "upper_bound", *_GAP), (cell_row(*pair) for pair in done))
        tables["seeds.csv"] = ((*(name for name in AXES if name not in ("seed", "seeds")),
                                "seed", *FIGURES), _seed_rows(done))
        tables["models.csv"] = (*AXES, "model", "share"), _model_rows(done)
    if spec.scenarios:
        failing += [name for name in _SCENARIO_AXES if name not in failing]
        tables["scenarios.csv"] = COLUMNS, (scenario_row(*pair) for pair in played)
        tables["scenario-seeds.csv"] = (SEED_COLUMNS,
                                        (row for pair in played for row in seed_rows(*pair)))
    tables["failures.csv"] = ((*failing, "error"),
                              ({**asdict(cell), "error": error} for cell, error in failures))
    for name, table in tables.items():
        if table is None:
            remove(folder / name)
        else:
            write_atomic(folder / name, csv_text(table[1], table[0]))
    values_file = folder / VALUE_TABLE_NAME
    if values:
        write_value_table(values, values_file)
    else:
        remove(values_file)
    written = tuple(folder / name for name, table in tables.items() if table is not None)
    return written + ((values_file,) if values else ())


def _seed_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        for i, metrics in enumerate(document["seeds"]):
            yield {**asdict(cell), **metrics, "seed": cell.seed + i}


def _model_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        shares: Mapping[str, float] = (document["result"] or {}).get("model_share", {})
        for model, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
            yield {**asdict(cell), "model": model, "share": share}
