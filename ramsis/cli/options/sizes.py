"""Options of requests with a size: the profile, the sizes and the workloads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from ramsis import profiles
from ramsis.arrivals import Arrivals, SizeDistribution, read_sizes
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.sim import Recorded, Workload


@dataclass(frozen=True)
class SizedInputs:
    """Inputs for requests with a size: profile, SLO, workers, sizes and workload."""

    profile: ProfileSet
    sizes: SizeDistribution
    workloads: list[Workload]
    slo_ms: float
    workers: int

    @classmethod
    def of(cls, served: Served, workload: WorkloadOptions) -> SizedInputs:
        """Return the inputs; refuse options that do not apply to requests with a size.

        Without ``--workers`` there is one worker.
        """
        count, sizes = check_single(served), workload.sizes
        if sizes is None and workload.trace is None:
            raise InvalidValueError(
                "the sizes of the requests are missing", where="--sizes",
                allowed="a CSV file with a column size, or a --trace with the columns "
                "arrival_s,size")
        profile = served.profile()
        if sizes is not None:
            workload = replace(workload, arrivals=with_own_sizes(workload.arrivals, sizes,
                                                                 workload.size_column))
        workloads = workload.workloads(None)
        if sizes is not None:
            read = read_sizes(sizes, column=workload.size_column or "")
            click.echo(f"note: {sizes}: {read.note}", err=True)
            distribution = read.distribution
        else:
            (recorded,) = workloads
            if not isinstance(recorded, Recorded) or recorded.sizes is None:
                raise InvalidValueError("a trace of loads has no sizes", where="--sizes",
                                        allowed="a CSV file with a column size")
            distribution = SizeDistribution.of_sizes(recorded.sizes)
        return cls(profile, distribution, workloads, served.slo_ms[0].slo_ms, count)


def check_single(served: Served) -> int:
    """Return the number of workers, by default 1; refuse several SLOs or worker types."""
    counts = {"": 1} if served.workers is None else served.workers.values
    for option, values in (("--slo-ms", served.slo_ms), ("--workers", counts),
                           ("--profiles", served.profile_names.values)):
        if len(values) > 1:
            raise click.UsageError(f"{option}: requests with a size have one SLO and one type of "
                                   "workers.")
    return next(iter(counts.values()))


def with_own_sizes(arrivals: Arrivals, sizes: Path, size_column: str | None) -> Arrivals:
    """Return arrivals with their own sizes, and say so, if they are of the file of sizes."""
    result = arrivals.with_sizes_of(sizes, size_column or "")
    if result != arrivals:
        click.echo(f"note: {sizes}: its requests are replayed with their own sizes", err=True)
    return result


def workload_of_sizes(
    workload: WorkloadOptions, served: Served, *, only_sized: bool = False
) -> WorkloadOptions | None:
    """Return the workload of requests with a size; None where they have no size.

    They have sizes if options state them, if the schedulers need them (``only_sized``), or if the
    trace has sizes and the models have times by size. Requests of a trace keep their own sizes,
    unless ``--sizes`` is another file.
    """
    sizes, column = workload.sizes, workload.size_column
    if sizes is not None:
        path = None if workload.trace is None else workload.trace.path
        own = path is not None and path.exists() and sizes.exists() and path.samefile(sizes)
        return workload.with_sizes(column) if own else workload
    if workload.trace is None:
        return workload if only_sized or column is not None else None
    if only_sized or column is not None:
        return workload.with_sizes(column)
    if any(model.sized is None for file in served.profile_names.values.values()
           for model in profiles.load(file).models):
        return None
    try:
        return workload.with_sizes(None)
    except InputFileError:  # no sizes; any other error occurs again when it is read again
        return None


def default_statistic(profile: ProfileSet) -> str:
    """Return the default statistic of batch times: p95 if all models have it."""
    common = [name for name in ("p95", "mean", "p99", "p90", "p50")
              if all(model.sized is not None and name in model.sized.statistics
                     for model in profile.models)]
    return common[0] if common else "p95"
