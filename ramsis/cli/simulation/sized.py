"""``ramsis simulate`` of requests with a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import click
import numpy as np

from ramsis.arrays import IntArray
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.command import allow_options
from ramsis.cli.options.sizes import SizedInputs, default_statistic, workload_of_sizes
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import model_words, progress
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.sim import ConstantLoad, Policies, Run, Workload
from ramsis.sized import SizedProblem, SizedScheduler, path_bound, sized_scheduler
from ramsis.sized import simulate as sized_simulation
from ramsis.sized.policy import SizedPolicy, for_load, is_sized, read_sized
from ramsis.sized.problem import MAX_BATCH_BY_DEFAULT
from ramsis.sized.simulate import recorded_sizes

_ALLOWED = (
    "profile_names", "models", "workers", "slo_ms", "policies", "scheduler_texts", "sizes",
    "size_column",
    "loads", "trace", "trace_format", "unit", "time_column", "load_columns", "scale", "arrivals",
    "duration_s", "seed", "seeds", "service", "overhead_ms", "slowness", "told_slowness",
    "max_violation", "min_accuracy", "min_effective_accuracy", "as_json", "csv_file", "plot",
    "timeline", "request_log")
_MOST_BOUNDED = 200_000  # requests of all seeds that are bounded
_PROMISED = ("accuracy", "violation_rate", "effective_accuracy")
_ONLY_SIZED = ("tei", "infinity", "token-budget", "turbo-dp", "replanned-dp")
"""Schedulers that exist for requests with a size alone; ``delay`` exists for others, too."""


class _Case(NamedTuple):
    """One of the compared schedulers, at one load of requests with a size."""

    label: str
    scheduler: SizedScheduler
    path: str | None = None  # of the policy
    policy: SizedPolicy | None = None  # if it is one of exactly this load


@dataclass(frozen=True)
class SizedTerms:
    """Inputs of the simulation: policies and schedulers beside profile, sizes and workloads."""

    inputs: SizedInputs
    policies: dict[str, list[SizedPolicy]]  # by path
    schedulers: list[tuple[str, SizedScheduler]]  # with their labels

    @classmethod
    def of(
        cls, policies: Sequence[str], scheduler_texts: Sequence[str], served: Served,
        workload: WorkloadOptions,
    ) -> SizedTerms:
        """Return the inputs; refuse options that do not apply to requests with a size."""
        schedulers = [(text, sized_scheduler(text)) for text in scheduler_texts]
        allow_options(_ALLOWED, "is not for requests with a size.")
        terms = cls(SizedInputs.of(served, workload),
                    {path: _policies(path) for path in policies}, schedulers)
        for path, read_policies in terms.policies.items():
            terms.check(path, read_policies[0])
        return terms

    def check(self, path: str, policy: SizedPolicy) -> None:
        """Refuse a policy that was made for other inputs."""
        tables, inputs = policy.tables, self.inputs
        for what, made_for, asked in (
            ("SLO in ms", tables.slo_ms, inputs.slo_ms),
            ("workers", tables.workers, inputs.workers),
            ("models", ",".join(tables.models),
             ",".join(model.name for model in inputs.profile.models)),
        ):
            if made_for != asked:
                raise InvalidValueError(f"policy for other {what}", where=f"--policy {path}",
                                        value=made_for, allowed=str(asked))

    @property
    def edges(self) -> tuple[int, ...] | None:
        """Largest size of each class, those of the first policy; None without one."""
        if not self.policies:
            return None
        edges = next(iter(self.policies.values()))[0].document["classes"]["edges"]
        return (*edges[:-1], max(edges[-1], self.inputs.sizes.largest))

    @property
    def service(self) -> str:
        """Statistic of batch times: that of the policies if these agree, else the default."""
        services = {policy.document["service"] for policies in self.policies.values()
                    for policy in policies}
        return services.pop() if len(services) == 1 else default_statistic(self.inputs.profile)

    @property
    def largest_batch(self) -> int:
        """Largest batch of any scheduler or policy, in requests."""
        return max(case.scheduler.max_batch for load_qps in (0.0, np.inf)
                   for case in self.compared(load_qps))

    def compared(self, load_qps: float | None) -> list[_Case]:
        """Return all schedulers and policies compared at a load."""
        cases = []
        for path, policies in self.policies.items():
            policy = for_load(policies, load_qps)
            cases.append(_Case(f"{policy.scheduler.name} {path}", policy.scheduler, path,
                               policy if policy.load_qps == load_qps else None))
        return [*cases, *(_Case(label, scheduler) for label, scheduler in self.schedulers)]

    def problem(self, max_batch: int, service: str | None, slowness: float) -> SizedProblem:
        """Return the problem with times of batches of up to ``max_batch`` requests."""
        return SizedProblem.of(
            self.inputs.profile.slower(slowness), self.inputs.sizes, slo_ms=self.inputs.slo_ms,
            workers=self.inputs.workers, statistic=service or self.service, edges=self.edges,
            max_batch=max(MAX_BATCH_BY_DEFAULT, max_batch))


def sized_workload(
    policies: Sequence[str], schedulers: Sequence[str], workload: WorkloadOptions, served: Served
) -> WorkloadOptions | None:
    """Return the workload of requests with a size; None where they have no size.

    They have sizes if options state them, if a scheduler needs them, or if the trace has sizes and
    the models have times by size.
    """
    only_sized = any(text.partition(":")[0] in _ONLY_SIZED for text in schedulers) or any(
        map(is_sized, policies))
    return workload_of_sizes(workload, served, only_sized=only_sized)


def simulate_sized(
    terms: SizedTerms, *, seeds: range, service: str | None, slowness: float, told_slowness: float,
) -> tuple[list[dict[str, Any]], dict[str, Run], IntArray]:
    """Simulate every scheduler on every workload.

    Service takes ``slowness`` times as long as profiled; schedulers assume ``told_slowness``.
    Returns a row for each scheduler and workload, the first run of each scheduler by its label,
    and the sizes of the requests of the very first run.
    """
    problem_of = cache(partial(terms.problem, service=service, slowness=told_slowness))
    rows: list[dict[str, Any]] = []
    first: dict[str, Run] = {}
    sizes: list[IntArray] = []
    cases = [(workload, case) for workload in terms.inputs.workloads
             for case in terms.compared(workload.load_qps)]
    with progress("runs", len(cases) * len(seeds)) as advance:
        for workload, case in cases:
            def note(run: sized_simulation.SizedRun, label: str = case.label) -> None:
                first.setdefault(label, run.run)
                if not sizes:
                    sizes.append(run.size)
                advance()

            problem = problem_of(case.scheduler.max_batch)
            row = sized_simulation.simulate_sized(
                problem, case.scheduler, workload, seeds=seeds, slowness=slowness / told_slowness,
                on_run=note).row()
            promise = _promise(case.policy if slowness == told_slowness == 1.0 and isinstance(
                workload, ConstantLoad) else None, row)
            rows.append({**row, **promise, "label": case.label, "policy": case.path,
                         "upper_bound": None, "models": model_words(row["model_share"]),
                         "unit": problem.unit,
                         **({} if slowness == told_slowness == 1.0 else
                            {"slowness": slowness, "told_slowness": told_slowness})})
    return rows, first, sizes[0]


def _policies(path: str) -> list[SizedPolicy]:
    """Return the policies of a folder or a file; refuse those for requests without a size."""
    if not is_sized(path):
        Policies.load(path)  # tells what is wrong with a file that is no policy
        raise InputFileError("policies that know no sizes", where="--policy", value=path,
                             allowed="those of `ramsis generate --sizes`")
    return read_sized(path)


def _promise(policy: SizedPolicy | None, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's promise, in all and by class; None without a policy."""
    if policy is None:
        return dict.fromkeys(f"expected_{name}" for name in _PROMISED)
    expected = policy.expectations
    by_class = {tuple(entry["sizes"]): entry["in_time_rate"] for entry in expected["by_class"]}
    return {**{f"expected_{name}": expected[name] for name in _PROMISED},
            "expected_violation_rate_half_width": expected["violation_rate_half_width"],
            "by_class": [{**entry, "expected_in_time_rate": by_class.get(tuple(entry["sizes"]))}
                         for entry in row["by_class"]]}


def with_upper_bounds(
    rows: Sequence[Mapping[str, Any]], terms: SizedTerms, *, seeds: range, service: str | None,
    slowness: float,
) -> list[dict[str, Any]]:
    """Return the rows with the bound for every scheduler on the same requests.

    The bound assumes no padding and batches as large as any scheduler's, and is a mean over the
    seeds; None for too many requests to compute it within a few seconds.
    """
    problem = terms.problem(terms.largest_batch, service, slowness)
    if len(seeds) > 1 and recorded_sizes(terms.inputs.workloads[0]) is not None:
        click.echo("note: the requests of the trace and their sizes are the same with each seed: "
                   "they were played once", err=True)
        seeds = seeds[:1]
    bounds = {workload.load_qps: _upper_bound(problem, workload, seeds)
              for workload in terms.inputs.workloads}
    return [{**row, "upper_bound": bounds[row["load_qps"]]} for row in rows]


def _upper_bound(problem: SizedProblem, workload: Workload, seeds: range) -> float | None:
    streams = [sized_simulation.drawn(problem, workload, seed) for seed in seeds]
    streams = [(arrival_ms, size) for arrival_ms, size in streams if len(size)]
    if not streams or sum(len(size) for _, size in streams) > _MOST_BOUNDED:
        return None
    return float(np.mean([path_bound(problem, arrival_ms, size, rounds=0).upper_bound
                          for arrival_ms, size in streams]))
