"""Autoscaling policies for Ray Serve, by a scaling policy or by capacity answers.

A scaling policy (``ramsis scale``) accounts for future loads and the start-up time of a replica.
Capacity answers (``ramsis capacity``) are sufficient numbers of workers by load, looked up for the
load after the start-up time: the present one, or a larger linear extrapolation of recent ones. The
dispatcher sends the load to workers, which report it as a custom metric. This module does not
import Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramsis.runtime.scaling_table import ScalingControl, ScalingTable

LOAD_METRIC = "load_qps"  # name under which workers report the anticipated load
_FEWEST_POINTS = 3  # least number of loads for a trend; a line through two is mostly noise


def workers_for(load_qps: float, levels: Sequence[tuple[float, int]]) -> int:
    """Return the workers of the lowest level at or above a load, or of the highest level.

    >>> workers_for(150.0, [(100.0, 1), (200.0, 3)]), workers_for(900.0, [(100.0, 1), (200.0, 3)])
    (3, 3)
    """
    return next((workers for load, workers in levels if load >= load_qps), levels[-1][1])


class CapacityPolicy:
    """Autoscaling policy for Ray Serve by capacity answers.

    ``levels`` are loads in queries per second, increasing, each with the fewest workers for it;
    ``startup_s`` is the start-up time of a replica.
    """

    def __init__(self, levels: Sequence[tuple[float, int]], startup_s: float = 30.0) -> None:
        self.levels = [(float(load), int(workers)) for load, workers in levels]
        self.startup_s = startup_s

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas, and the state for the next call."""
        load_qps, now_s = reported_load(context.aggregated_metrics), float(context.current_time)
        seen: list[tuple[float, float]] = [
            (at, load) for at, load in (context.policy_state or {}).get("seen", [])
            if now_s - self.startup_s <= at < now_s]
        if load_qps is None:
            return context.target_num_replicas, {"seen": seen}
        seen.append((now_s, load_qps))
        wanted = workers_for(max(load_qps, self._by_then(seen, now_s)), self.levels)
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(wanted, low), high), {"seen": seen}

    def _by_then(self, seen: Sequence[tuple[float, float]], now_s: float) -> float:
        """Return the expected load after the start-up time of a replica."""
        if len(seen) < _FEWEST_POINTS:
            return seen[-1][1]
        at, loads = np.array(seen).T
        slope, level = np.polyfit(at - now_s, loads, 1)
        return float(level + slope * self.startup_s)


class ScalingPolicy:
    """Autoscaling policy for Ray Serve that looks up a scaling table.

    It decides once every interval of the table; in between the last decision holds. Ray's own
    delays should be 0, as the table includes stabilisation. ``scaling`` is the path of the
    ``scaling.json``, or of its folder, where Ray's controller runs.
    """

    def __init__(self, scaling: str) -> None:
        self._control = ScalingControl(ScalingTable.load(scaling))
        self._next_s, self._wanted = -np.inf, 0

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas; there is no state for the next call."""
        load_qps, now_s = reported_load(context.aggregated_metrics), float(context.current_time)
        target = int(context.target_num_replicas)
        if load_qps is None:
            return target, {}
        if now_s >= self._next_s:
            active = min(int(context.current_num_replicas), target)
            self._wanted = self._control.wanted(load_qps, active, target - active)
            self._next_s = now_s + self._control.table.interval_s
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(self._wanted, low), high), {}


def reported_load(metrics: Mapping[str, Mapping[Any, float]] | None) -> float | None:
    """Return the largest load that a replica reports; None if none does."""
    values = list((metrics or {}).get(LOAD_METRIC, {}).values())
    return max(values) if values else None
