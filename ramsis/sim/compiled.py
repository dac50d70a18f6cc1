"""Runs of table-driven schedulers through the compiled kernels.

A constant load on several stations runs each by its kernel, and has one record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster.quantiles import near_levels
from ramsis.compiling import uniform
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.policy_set import Level
from ramsis.sim import _kernels
from ramsis.sim.fleet import Fleet, Fleets, site_of
from ramsis.sim.plan import StationPlan
from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run
from ramsis.sim.tables import Compiled


@dataclass(frozen=True, eq=False)
class DrawnRequests:
    """Inputs of a run: arrivals, and random numbers for service times."""

    arrival_ms: FloatArray  # not falling, shape (n,)
    duration_ms: float  # when arrivals stop
    # shape (n,): the number that draws the service time of a batch whose first query it belongs
    # to
    uniform: FloatArray
    # shape (n,): deadline of each query after its arrival; for central queues
    slo_ms: FloatArray | None = None

    @classmethod
    def drawn(
        cls, arrival_ms: FloatArray, duration_ms: float, rng: np.random.Generator,
        slo_ms: FloatArray | None = None, *, draws: bool = True,
    ) -> DrawnRequests:
        """Arrivals with numbers from a generator, the same as the plain engine draws from it.

        Parameters
        ----------
        draws : bool
            Whether service times are drawn; numbers that are not needed are left out.
        """
        n = len(arrival_ms)
        return cls(arrival_ms, duration_ms, rng.random(n if draws else 0), slo_ms)

    def part(self, queries: IntArray) -> DrawnRequests:
        """Return some of the queries."""
        return DrawnRequests(
            self.arrival_ms[queries], self.duration_ms,
            self.uniform[queries] if self.uniform.size else self.uniform,
            None if self.slo_ms is None else self.slo_ms[queries])


def replay(
    fleet: Fleet,
    scheduler: Compiled,
    given: DrawnRequests,
    load_qps: float | None,
    monitor_ms: float = WINDOW_MS,
) -> Run:
    """Run a scheduler with a compiled kernel; the result equals the plain engine's.

    Parameters
    ----------
    load_qps : float or None
        The load that the scheduler is told; ``None``: what the load monitor anticipates.
    monitor_ms : float
        The monitor's window, > 0.
    """
    n, tables = len(given.arrival_ms), scheduler.tables
    scheduler.check(len(fleet.models), fleet.max_batch)
    level = -1
    if load_qps is not None:
        level = min(int(np.searchsorted(tables.load_qps, load_qps)), len(tables.load_qps) - 1)
    terms = uniform(_kernels.RunTerms(
        slo_ms=fleet.slo_ms, network_ms=fleet.network_ms, workers=fleet.workers, level=level,
        window_ms=monitor_ms, shortest_ms=SHORTEST_SPAN * monitor_ms,
        quantiles_ms=np.ascontiguousarray(fleet.service_times.quantiles_ms),
        quantile_levels=fleet.service_times.levels,
        near_level=near_levels(fleet.service_times.levels),
        uniform=given.uniform if fleet.draws else np.empty(0),
        slowness=scheduler.slowness,
    ))
    out = _kernels.DecisionRoom(*np.empty((2, n)), *np.empty((6, n), dtype=np.int32))
    arrival_ms = np.ascontiguousarray(given.arrival_ms)
    drop_ms = np.empty(n)  # where a query is dropped
    queries = _Queries(arrival_ms, fleet.slo_ms, given.slo_ms)
    count = _KERNELS[scheduler.kernel](queries, tables, terms, out, drop_ms)
    dropped = np.flatnonzero(out.batch_of == DROPPED).astype(np.int32)
    return Run(
        site=fleet.site,
        duration_ms=given.duration_ms,
        arrival_ms=given.arrival_ms,
        batch_of=out.batch_of,
        start_ms=out.start_ms[:count],
        finish_ms=out.finish_ms[:count],
        worker=out.worker[:count],
        model=out.model[:count],
        size=out.size[:count],
        drop_request=dropped,
        drop_ms=drop_ms[dropped],
        slo_ms=np.array([fleet.slo_ms]) if given.slo_ms is None else given.slo_ms,
        queued=out.queued[:count],
        drop_queued=out.drop_queued[dropped],
    )


class _Queries(NamedTuple):
    """When queries arrive, and the SLO of all or of each."""

    arrival_ms: FloatArray
    slo_ms: float
    query_slo_ms: FloatArray | None

    def lines(self) -> _kernels.Lines:
        """Queries of one SLO stand in one line."""
        if self.query_slo_ms is None:
            none = np.empty(0, dtype=np.int64)
            return _kernels.Lines(np.array([self.slo_ms]), none, none,
                                  np.array([0, len(self.arrival_ms)]))
        slos, line = np.unique(self.query_slo_ms, return_inverse=True)
        starts = np.searchsorted(np.sort(line), np.arange(len(slos) + 1))
        return _kernels.Lines(slos, line, np.argsort(line, kind="stable"), starts)


_Kernel = Callable[[_Queries, Any, _kernels.RunTerms, _kernels.DecisionRoom, FloatArray], int]


def _with_one_slo(kernel: Callable[..., int]) -> _Kernel:
    return lambda queries, *rest: kernel(queries.arrival_ms, *rest)


_KERNELS: Mapping[str, _Kernel] = {
    "round-robin": _with_one_slo(_kernels.round_robin),
    "shortest-queue": _with_one_slo(_kernels.shortest_queue),
    "first-come": _with_one_slo(_kernels.first_come),
    "central-queue": lambda queries, *rest: _kernels.central_queue(
        queries.arrival_ms, queries.lines(), *rest),
}


def routes(
    level: Level[StationPlan], fleets: Fleets, query_slo_ms: FloatArray | None,
    uniform: FloatArray,
) -> IntArray:
    """The station of each query; shape (n,).

    All at once what :meth:`ramsis.runtime.policy_set.Level.route` says of each.

    Parameters
    ----------
    query_slo_ms : ndarray, shape (n,), or None
        Where there are several classes.
    uniform : ndarray, shape (n,)
        A number of each query.
    """
    found = np.zeros(len(uniform), dtype=np.int64)
    for one in fleets.classes:
        stations = [i for i, station in enumerate(level.stations) if one.slo_ms in station.share]
        upto = np.cumsum([level.stations[i].share[one.slo_ms] for i in stations])
        mine = slice(None) if query_slo_ms is None else query_slo_ms == one.slo_ms
        place = np.minimum(np.searchsorted(upto, uniform[mine] * upto[-1]), len(upto) - 1)
        found[mine] = np.array(stations)[place]
    return found


def replay_level(
    level: Level[StationPlan], fleets: Fleets, given: DrawnRequests, route: IntArray,
    load_qps: float,
) -> Run:
    """Run a level with a kernel for each station; the result equals the plain engine's.

    Parameters
    ----------
    level : Level of StationPlan
        Whose stations have kernels.
    route : ndarray, shape (n,)
        The station of each query.
    load_qps : float
        The stated load of the cluster.
    """
    runs = []
    for one in (station.policy for station in level.stations):
        compiled = one.plan.compiled
        assert compiled is not None
        mine = np.flatnonzero(route == one.number)
        part = given.part(mine)
        runs.append((one, mine, replay(one.fleet, compiled, part, load_qps * one.load_share)))
    return _joined(fleets, given, runs)


def _joined(
    fleets: Fleets, given: DrawnRequests,
    runs: Sequence[tuple[StationPlan, IntArray, Run]],
) -> Run:
    """One record of the runs of all stations, each with the numbers of its queries."""
    batch_of = np.full(len(given.arrival_ms), NEVER_ANSWERED, dtype=np.int32)
    firsts = np.array(fleets.first_workers)
    first_model = np.cumsum([0, *(len(fleet.models) for fleet in fleets.fleets)])
    batches = 0
    worker, model, dropped = [], [], []
    for one, queries, run in runs:
        batch_of[queries] = np.where(run.batch_of >= 0, run.batch_of + batches, run.batch_of)
        kind = int(np.searchsorted(firsts, one.workers.start, side="right")) - 1
        worker.append(run.worker + one.workers.start)
        model.append(run.model + first_model[kind])
        dropped.append(queries[run.drop_request])
        batches += len(run.size)
    records = [run for _, _, run in runs]
    return Run(
        site=site_of(fleets.fleets),
        duration_ms=given.duration_ms,
        arrival_ms=given.arrival_ms,
        batch_of=batch_of,
        start_ms=np.concatenate([run.start_ms for run in records]),
        finish_ms=np.concatenate([run.finish_ms for run in records]),
        worker=np.concatenate(worker).astype(np.int32),
        model=np.concatenate(model).astype(np.int32),
        size=np.concatenate([run.size for run in records]),
        drop_request=np.concatenate(dropped).astype(np.int32),
        drop_ms=np.concatenate([run.drop_ms for run in records]),
        slo_ms=(np.array([fleets.fleets[0].slo_ms]) if given.slo_ms is None
                else given.slo_ms),
    )
