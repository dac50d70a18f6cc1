"""Settings that all compiled runs of a fleet share."""

from __future__ import annotations

import numpy as np

from ramsis.cluster.service_times import near_levels
from ramsis.compiling import uniform
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.scenario import Requests
from ramsis.sim._kernels import RunTerms
from ramsis.sim.fleet import Fleet


def run_terms(
    fleet: Fleet, requests: Requests, level: int = 0, monitor_ms: float = WINDOW_MS,
    slowness: float = 1.0,
) -> RunTerms:
    """Return the settings of a compiled run of a fleet.

    Parameters
    ----------
    level : int
        The level to use throughout; -1 for the load monitor's.
    monitor_ms : float
        The monitor's window, > 0.
    slowness : float
        Service time as a multiple of what the tables assume.
    """
    times = fleet.service_times
    return uniform(RunTerms(
        slo_ms=float(fleet.slo_ms), network_ms=float(fleet.network_ms), workers=fleet.workers,
        level=level, window_ms=monitor_ms, shortest_ms=SHORTEST_SPAN * monitor_ms,
        quantiles_ms=np.ascontiguousarray(times.quantiles_ms), quantile_levels=times.levels,
        near_level=near_levels(times.levels),
        uniform=requests.uniform if fleet.draws else np.empty(0), slowness=slowness))
