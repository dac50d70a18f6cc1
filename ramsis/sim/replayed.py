"""A constant load on several stations, each by its kernel, in one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.runtime.policy_set import Level
from ramsis.sim.compiled import DrawnRequests, replay
from ramsis.sim.fleet import Fleets, FleetSite
from ramsis.sim.plan import StationPlan
from ramsis.sim.run import NEVER_ANSWERED, Run


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
    """The same run as the plain engine's, each station by its kernel.

    Parameters
    ----------
    level : Level of StationPlan
        Whose stations have kernels.
    given : DrawnRequests
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
        part = given.part(mine, coins_in_turn=compiled.central)
        part = replace(part, spells=given.spells.of_workers(one.workers))
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
        site=FleetSite(fleets.fleets),
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
