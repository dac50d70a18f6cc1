"""The service times that a worker's policies are made from: a statistic, or the distribution."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.profiles import LatencyTable, ProfileSet, Statistic, prune
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.worker.problem import WorkerProblem

_DIGITS = 4  # decimals of quantiles in ms
_NANO = 6  # decimals of times in ms, down to 1 ns


def latency_table(profile: ProfileSet, settings: SynthesisSettings) -> LatencyTable:
    """Return the latencies of batches 1 … N+1: a statistic, pruned, or means of drawn times."""
    return service_times(profile, settings)[0]


def service_times(
    profile: ProfileSet, settings: SynthesisSettings
) -> tuple[LatencyTable, ServiceTimes | None]:
    """Return latencies, and their distributions where times are drawn.

    Only models that may be in time are kept; their batches that never are have infinite times,
    except those of the fastest model. Quantiles are rounded to 0.1 µs, as policy files hold them.
    All times include the overhead of the settings.
    """
    batches, service = settings.max_queue + 1, settings.chosen_service(profile)
    overhead_ms = settings.overhead_ms
    profile = settings.profile_for(profile)
    if service != DISTRIBUTION:
        table = prune(profile.latency_table(cast(Statistic, service), batches))
        return replace(table, latency_ms=as_stated(table.latency_ms, overhead_ms)), None
    times = ServiceTimes.of(profile, DISTRIBUTION, batches)
    quantiles = as_stated(np.round(times.quantiles_ms, _DIGITS), overhead_ms)
    times = replace(times, quantiles_ms=quantiles)
    usable = quantiles[:, :, 0] <= settings.slo_ms
    last = np.where(usable.any(axis=1), batches - np.argmax(usable[:, ::-1], axis=1), 0)
    last[0] = batches
    beyond = np.arange(batches) >= last[:, None]
    origin = profile.latency_table("p95", batches).select(times.models).origin
    means = np.maximum.accumulate(times.mean_ms, axis=1)
    keep = np.flatnonzero(last > 0)
    kept = replace(times, quantiles_ms=np.where(
        beyond[:, :, None], np.inf, quantiles)).select(keep)
    table = LatencyTable(kept.models, kept.accuracy, means[keep], origin[keep], DISTRIBUTION,
                         kept.run_as)
    return table, kept


def as_stated(times_ms: FloatArray, overhead_ms: float) -> FloatArray:
    """Return times with an overhead included, rounded as they are when read from a file."""
    return without_overhead(times_ms, overhead_ms) + overhead_ms if overhead_ms else times_ms


def without_overhead(times_ms: FloatArray, overhead_ms: float) -> FloatArray:
    """Subtract an overhead from service times, to 1 ns."""
    return np.asarray(np.round(times_ms - overhead_ms, _NANO)) if overhead_ms else times_ms


def sizes_stated(run_as: IntArray) -> tuple[int, ...] | None:
    """Return the sizes that batches are run at, for a policy file; None if none is padded."""
    padded = (run_as > 1 + np.arange(len(run_as))).any()
    return tuple(run_as.tolist()) if padded else None


def bounded_by(problem: WorkerProblem) -> ServiceTimes:
    """Return the service times of a worker's problem in the form that the fluid bound takes."""
    table, batches = problem.latency, problem.max_queue
    if problem.quantiles_ms is None:
        return ServiceTimes.of_table(table)
    return ServiceTimes(table.models, table.accuracy, problem.quantiles_ms[:, :batches],
                        DISTRIBUTION, problem.quantile_levels)
