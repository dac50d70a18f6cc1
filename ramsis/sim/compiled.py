"""Simulation of table-driven schedulers by the compiled kernels.

With several stations and a constant load, each station is simulated by its own kernel; the results
are merged into one record (:func:`replay_level`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.runtime.policy_set import Level
from ramsis.scenario import Requests
from ramsis.sim import _kernels
from ramsis.sim.fleet import Fleet, Fleets, site_of
from ramsis.sim.plan import StationPlan
from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run
from ramsis.sim.tables import Compiled, Tables


def replay(
    fleet: Fleet,
    scheduler: Compiled,
    requests: Requests,
    duration_ms: float,
    load_qps: float | None,
    monitor_ms: float = WINDOW_MS,
) -> Run:
    """Simulate a scheduler with a compiled kernel; the result equals the plain engine's.

    Requests have numbers that draw the service times if these are random; only central queues
    serve requests of different SLOs. Arrivals stop at ``duration_ms``. If ``load_qps`` is None,
    the load monitor, with a window of ``monitor_ms``, anticipates the load.
    """
    n, tables = len(requests), scheduler.tables
    scheduler.check(len(fleet.models), fleet.max_batch)
    level = -1
    if load_qps is not None:
        level = min(int(np.searchsorted(tables.load_qps, load_qps)), len(tables.load_qps) - 1)
        cascade = scheduler.cascades[level] if scheduler.cascades else None
        if cascade is not None and len(requests.sureness):
            from ramsis.sim.cascades import replay_cascade  # whose kernel takes long to load

            return replay_cascade(cascade, fleet, requests, duration_ms,
                                  fleet.workers if scheduler.in_turn else 1)
    terms = _kernels.RunTerms.of(fleet, requests, level, monitor_ms, scheduler.slowness)
    out = _kernels.DecisionRoom.of(n)
    drop_ms = np.empty(n)  # set for dropped requests only
    count = _KERNELS[scheduler.dispatch](requests, tables, terms, out, drop_ms)
    dropped = np.flatnonzero(out.batch_of == DROPPED).astype(np.int32)
    return Run(
        site=fleet.site,
        duration_ms=duration_ms,
        arrival_ms=requests.arrival_ms,
        batch_of=out.batch_of,
        start_ms=out.start_ms[:count],
        finish_ms=out.finish_ms[:count],
        worker=out.worker[:count],
        model=out.model[:count],
        size=out.size[:count],
        drop_request=dropped,
        drop_ms=drop_ms[dropped],
        slo_ms=requests.slo_ms,
        queued=out.queued[:count],
        drop_queued=out.drop_queued[dropped],
    )


def lines_of(requests: int, slo_ms: FloatArray) -> _kernels.Lines:
    """Return a line for the requests of each SLO, (1,) or by request (n,)."""
    if len(slo_ms) == 1:
        nothing = np.empty(0, dtype=np.int64)
        return _kernels.Lines(slo_ms, nothing, nothing, *np.zeros((2, 1), dtype=np.int64))
    slos_ms, line = np.unique(slo_ms, return_inverse=True)
    starts = np.searchsorted(np.sort(line), np.arange(len(slos_ms)))
    return _kernels.Lines(slos_ms, line, np.argsort(line, kind="stable"), starts, starts.copy())


def _central_queue(
    requests: Requests, tables: Tables, terms: _kernels.RunTerms, *room: Any
) -> int:
    """Run the kernel of a central queue to the end of a run."""
    state = _kernels.CentralState.of(terms.workers)
    _kernels.central_queue(
        inf, -inf, np.ascontiguousarray(requests.arrival_ms),
        lines_of(len(requests), requests.slo_ms), tables, terms, state, *room)
    return int(state.counts[_kernels.BATCHES])


def _with_one_slo(kernel: Callable[..., int]) -> Callable[..., int]:
    return lambda requests, *terms: kernel(np.ascontiguousarray(requests.arrival_ms), *terms)


_KERNELS: Mapping[str, Callable[..., int]] = {
    "round-robin": _with_one_slo(_kernels.round_robin),
    "shortest-queue": _with_one_slo(_kernels.shortest_queue),
    "central-queue": _central_queue,
}


def routes(
    level: Level[StationPlan], fleets: Fleets, requests: Requests, uniform: FloatArray
) -> IntArray:
    """Return the station of each request, shape (n,).

    This is :meth:`ramsis.runtime.policy_set.Level.route`, vectorised over the requests;
    ``uniform`` (n,) holds a uniform random number in [0, 1) for each.
    """
    route = np.zeros(len(uniform), dtype=np.int64)
    for slo_class in fleets.classes:
        slo_ms = slo_class.slo_ms
        stations = [i for i, station in enumerate(level.stations) if slo_ms in station.share]
        upto = np.cumsum([level.stations[i].share[slo_ms] for i in stations])
        members = (slice(None) if len(fleets.classes) == 1
                   else np.flatnonzero(requests.slo_ms == slo_ms))
        place = np.minimum(np.searchsorted(upto, uniform[members] * upto[-1]), len(upto) - 1)
        route[members] = np.array(stations)[place]
    return route


def replay_level(
    level: Level[StationPlan], fleets: Fleets, requests: Requests, duration_ms: float,
    route: IntArray, load_qps: float,
) -> Run:
    """Simulate a level with a kernel for each station; the result equals the plain engine's.

    ``route`` (n,) is the station of each request, ``load_qps`` the stated load of the cluster.
    """
    batch_of = np.full(len(requests), NEVER_ANSWERED, dtype=np.int32)
    firsts = np.array(fleets.first_workers)
    first_model = np.cumsum([0, *(len(fleet.models) for fleet in fleets.fleets)])
    batches, runs = 0, list[Run]()
    worker, model, dropped = [], [], []
    for station in (station.policy for station in level.stations):
        assert station.plan.compiled is not None
        members = np.flatnonzero(route == station.number)
        run = replay(station.fleet, station.plan.compiled, requests.part(members), duration_ms,
                     load_qps * station.load_share)
        batch_of[members] = np.where(run.batch_of >= 0, run.batch_of + batches, run.batch_of)
        kind = int(np.searchsorted(firsts, station.workers.start, side="right")) - 1
        worker.append(run.worker + station.workers.start)
        model.append(run.model + first_model[kind])
        dropped.append(members[run.drop_request])
        batches += len(run.size)
        runs.append(run)
    return Run(
        site=site_of(fleets.fleets),
        duration_ms=duration_ms,
        arrival_ms=requests.arrival_ms,
        batch_of=batch_of,
        start_ms=np.concatenate([run.start_ms for run in runs]),
        finish_ms=np.concatenate([run.finish_ms for run in runs]),
        worker=np.concatenate(worker).astype(np.int32),
        model=np.concatenate(model).astype(np.int32),
        size=np.concatenate([run.size for run in runs]),
        drop_request=np.concatenate(dropped).astype(np.int32),
        drop_ms=np.concatenate([run.drop_ms for run in runs]),
        slo_ms=requests.slo_ms,
    )
