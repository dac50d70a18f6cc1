"""Runs of table-driven schemes through the compiled kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import describe
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.sim import _kernels
from ramsis.sim.engine import SchemeError, coins
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import Run
from ramsis.sim.tables import Compiled, FleetTables, Tables

__all__ = ["replay"]

FloatArray = NDArray[np.float64]

_KERNELS = {
    "round-robin": _kernels.round_robin,
    "shortest-queue": _kernels.shortest_queue,
    "central": _kernels.central,
}


def replay(
    fleet: Fleet,
    scheme: Compiled,
    arrival_ms: FloatArray,
    duration_ms: float,
    rng: np.random.Generator,
    load_qps: float | None,
    monitor_ms: float = WINDOW_MS,
    query_slo_ms: FloatArray | None = None,
) -> Run:
    """The same run as the plain engine's, by a kernel.

    Parameters
    ----------
    fleet : Fleet
    scheme : Compiled
    arrival_ms : ndarray, shape (n,)
        Not falling.
    duration_ms : float
    rng : Generator
        For service draws.
    load_qps : float or None
        The load that the scheme is told; ``None``: what the load monitor anticipates.
    monitor_ms : float
        The monitor's window, > 0.
    query_slo_ms : ndarray, shape (n,), optional
        Deadline of each query after its arrival; for fleet policies.

    Raises
    ------
    SchemeError
        The tables hold a model or a batch that the fleet lacks.
    """
    n, tables = len(arrival_ms), scheme.tables
    if isinstance(tables, Tables):  # those of fleet policies are checked when they are read
        _check(tables, fleet)
    level = -1
    if load_qps is not None:
        level = min(int(np.searchsorted(tables.load_qps, load_qps)), len(tables.load_qps) - 1)
    terms = _kernels.Terms(
        slo_ms=fleet.slo_ms, network_ms=fleet.network_ms, workers=fleet.workers, level=level,
        window_ms=monitor_ms, shortest_ms=SHORTEST_SPAN * monitor_ms,
        quantiles_ms=fleet.quantiles_ms, uniform=rng.random(n if fleet.draws else 0),
        coin=coins(rng, n) if scheme.by_chance else np.empty(0),
    )
    out = _kernels.Batches(
        np.empty(n), np.empty(n), *(np.empty(n, dtype=np.int32) for _ in range(4))
    )
    given = np.ascontiguousarray(arrival_ms)
    drop_ms = np.full(n, np.nan)
    if isinstance(tables, FleetTables):
        count = _kernels.fleet_queue(given, _lines(n, fleet.slo_ms, query_slo_ms), tables, terms,
                                     out, drop_ms)
    else:
        count = _KERNELS[scheme.dispatch](given, tables, terms, out, drop_ms)
    dropped = np.flatnonzero(~np.isnan(drop_ms)).astype(np.int32)
    return Run(
        fleets=(fleet,),
        duration_ms=duration_ms,
        arrival_ms=arrival_ms,
        batch_of=out.batch_of,
        start_ms=out.start_ms[:count],
        finish_ms=out.finish_ms[:count],
        worker=out.worker[:count],
        model=out.model[:count],
        size=out.size[:count],
        drop_query=dropped,
        drop_ms=drop_ms[dropped],
        slo_ms=query_slo_ms,
    )


def _lines(n: int, slo_ms: float, query_slo_ms: FloatArray | None) -> _kernels.Lines:
    """Queries of one SLO stand in one line."""
    if query_slo_ms is None:
        return _kernels.Lines(np.array([slo_ms]), np.zeros(n, dtype=np.int64), np.arange(n),
                              np.array([0, n]))
    slos, line = np.unique(query_slo_ms, return_inverse=True)
    starts = np.searchsorted(np.sort(line), np.arange(len(slos) + 1))
    return _kernels.Lines(slos, line, np.argsort(line, kind="stable"), starts)


def _check(tables: Tables, fleet: Fleet) -> None:
    """Refuse tables that would reach beyond the fleet's: kernels do not look."""
    for what, own, longer, most in (
        ("model", tables.model, tables.overflow_model, len(fleet.models) - 1),
        ("batch", tables.batch, tables.overflow_batch, fleet.max_batch),
    ):
        highest = int(max(own.max(), longer.max()))
        if highest > most or own.min() < 0:
            raise SchemeError(describe(f"no such {what}", where="tables of the scheme",
                                       value=highest, allowed=f"at most {most}"))
