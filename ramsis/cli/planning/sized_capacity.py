"""``ramsis capacity`` for requests with a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import click

from ramsis.arrivals.recorded import PROCESS as TRACE
from ramsis.bounds import Targets
from ramsis.cli.options.command import allow_options
from ramsis.cli.options.sizes import SizedInputs, default_statistic
from ramsis.cli.options.workloads import process_text
from ramsis.cli.output.rows import progress
from ramsis.cli.parallel_jobs import plain
from ramsis.cli.planning.plan_run import PlanRun
from ramsis.files import write_atomic
from ramsis.profiles import ProfileSet
from ramsis.runtime.routing import DISPATCHES
from ramsis.sim import Recorded, Workload
from ramsis.sized import SizedProblem, sized_scheduler
from ramsis.sized.capacity import SizedTrial
from ramsis.sized.problem import MAX_BATCH_BY_DEFAULT
from ramsis.sized.schedulers import POLICY
from ramsis.sweep.engines import Question

_REQUESTS = "requests.csv"  # in the folder, of a trace

_ALLOWED = (
    "profile_names", "models", "slo_ms", "sizes", "size_column", "min_in_time_by_class",
    "schedulers", "dispatches", "min_accuracy", "min_effective_accuracy", "max_violation",
    "loads", "trace", "trace_format", "unit", "time_column", "load_columns", "scale", "arrivals",
    "duration_s", "seed", "seeds", "service", "overhead_ms", "engine", "address", "processes",
    "keep", "as_json", "plot", "cost_per_worker", "growth", "out", "dry_run")
"""Options of `capacity` and `plan`."""


@dataclass(frozen=True)
class SizedCapacity:
    """Inputs of the search: profile, deadline, sizes, targets and loads."""

    inputs: SizedInputs
    problem: SizedProblem
    schedulers: tuple[str, ...]
    targets: Targets
    min_in_time_by_class: tuple[float, ...] | None
    seeds: range

    @classmethod
    def of(
        cls, inputs: SizedInputs, schedulers: Sequence[str], targets: Targets,
        min_in_time_by_class: tuple[float, ...] | None, seeds: range, service: str | None,
    ) -> SizedCapacity:
        """Return the inputs by the options; refuse options that need requests without a size."""
        allow_options(_ALLOWED, "is not for requests with a size.")
        most = MAX_BATCH_BY_DEFAULT
        for text in schedulers:
            if text in DISPATCHES and text != POLICY:
                raise click.UsageError(f"{text}: requests with a size wait in one queue for all "
                                       f"workers: --dispatch {POLICY}.")
            if text != POLICY:
                most = max(most, sized_scheduler(text).max_batch)
        problem = SizedProblem.of(
            inputs.profile, inputs.sizes, slo_ms=inputs.slo_ms, max_batch=most,
            statistic=service or default_statistic(inputs.profile))
        return cls(inputs, problem, tuple(schedulers), targets, min_in_time_by_class, seeds)

    def questions(self) -> list[Question]:
        """Return a job for each load and scheduler, which searches the fewest workers."""
        terms = {"targets": self.targets, "min_in_time_by_class": self.min_in_time_by_class,
                 "seeds": self.seeds}
        return [
            Question(partial(_row, self.problem, self.inputs.profile, load, scheduler, terms),
                     {"asked": "capacity of sizes", "problem": self.problem.fingerprint,
                      "scheduler": scheduler, "workload": plain(load),
                      **{key: plain(value) for key, value in terms.items()}})
            for load, scheduler in product(self.inputs.workloads, self.schedulers)]


def _row(
    problem: SizedProblem, profile: ProfileSet, workload: Workload, scheduler: str,
    terms: Mapping[str, Any],
) -> dict[str, Any]:
    from ramsis.sized.capacity import fewest_workers_of_sizes

    with progress(f"{scheduler}: workers", 1) as advance:
        return fewest_workers_of_sizes(
            problem, profile, workload, scheduler=scheduler, **terms,
            on_trial=lambda trial: advance(
                text=f"{trial.workers} workers miss {trial.violation_rate:.2%}", more=1))


def next_command(
    params: Mapping[str, Any], workload: Workload, row: Mapping[str, Any]
) -> list[str]:
    """Return the command that generates the policy of a row, by the parameters of the search.

    ``workload`` is that of the row, or another of the same kind.
    """
    trace, shares = params["trace"], params["min_in_time_by_class"]
    process = process_text(getattr(workload, "arrivals", None))
    # An arrival process cannot state how a trace is read.
    if isinstance(workload, Recorded) and params["trace_format"] == "auto" and not any(
            params[name] for name in ("unit", "time_column", "load_columns")):
        process = f"{TRACE}:{trace.name}"
    words = ["ramsis", "generate", "--profiles", params["profile_names"].text, "--slo-ms",
             f"{row['slo_ms']:.10g}", "--workers", str(row["workers"]), "--load",
             f"{row['load_qps']:.10g}"]
    for option, value in (
        ("--models", ",".join(params["models"] or ())), ("--service", params["service"]),
        ("--arrivals", process),
        ("--sizes", params["sizes"] or (trace and trace.name)),
        ("--size-column", params["size_column"]),
        ("--min-in-time-by-class", ",".join(f"{share:.10g}" for share in shares or ())),
        ("--overhead-ms", params["overhead_ms"] and f"{params['overhead_ms']:.10g}"),
    ):
        if value:
            words += [option, str(value)]
    return [*words, "--dispatch", POLICY, "--out", f"policies-{POLICY}-{row['workers']}"]


@dataclass(kw_only=True)
class SizedPlanRun(PlanRun):
    """A plan in progress for requests with a size, with policies for the mean load.

    Policies for a trace of requests are made for arrivals that repeat it, with their own sizes if
    the trace has them.
    """

    # sizes, by_class: options of commands; none where the trace has the sizes, and where no share
    # is asked for
    sizes: tuple[str, ...]
    by_class: tuple[str, ...]
    shares: Sequence[float] | None  # in time of each class
    queues: tuple[str, ...] = (POLICY,)

    each_policy_s: ClassVar[float] = 10.0
    requests_each_s: ClassVar[float] = 2e5

    @property
    def loads_qps(self) -> tuple[float, ...]:
        """The mean load, which `capacity` makes policies for, too."""
        return (self.workload.load_qps or 0.0,)

    @property
    def options(self) -> list[str]:
        """Command-line options of the plan, with the share in time by size class."""
        return [*super().options, *self.by_class]

    def scheduler(self, dispatch: str) -> str:
        """Return the ``--scheduler`` value for policies."""
        return dispatch

    def search_of(self, dispatches: Iterable[str], arrivals: Sequence[str]) -> list[str]:
        """Return the command that finds the fewest workers for some arrivals."""
        return [*super().search_of(dispatches, arrivals), *self.by_class]

    def making(self, dispatch: str, workers: int, policies: str) -> list[str]:
        """Return the command that makes policies for some workers."""
        process, sizes = self.process, self.sizes
        if isinstance(self.workload, Recorded):
            requests = str((self.folder / _REQUESTS).resolve())
            process = ("--arrivals", f"{TRACE}:{requests}")
            if self.workload.sizes is not None:
                sizes = ("--sizes", requests)
        return [*self.making_for_loads(workers), *process, "--dispatch", dispatch, *sizes,
                *self.by_class, "--out", policies, "--json"]

    def further(self, dispatch: str, workers: int) -> Mapping[str, Any]:
        """Simulate policies for some workers with other seeds, and return the row."""
        return self.confirmed(dispatch, workers)[0]

    def trial(self, played: Mapping[str, Any]) -> SizedTrial:
        """Hold the row of a simulation against the targets."""
        return SizedTrial.of_row(played, self.targets, self.shares)

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Make the folder, with the requests of a trace, or go on with the plan that it holds."""
        super().begin(inputs)
        if isinstance(self.workload, Recorded):
            import pandas as pd  # which takes long to load

            columns: dict[str, Any] = {"arrival_s": self.workload.times_ms / 1000.0}
            if self.workload.sizes is not None:
                columns["size"] = self.workload.sizes
            write_atomic(self.folder / _REQUESTS, pd.DataFrame(columns).to_csv(index=False))
