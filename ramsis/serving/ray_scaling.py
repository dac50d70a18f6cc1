"""Autoscaling policy for Ray Serve, by a scaling policy of ``ramsis scale``.

The dispatcher sends the load to workers, which report it as a custom metric. This module does not
import Ray.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ramsis.runtime.scaling_table import ScalingControl, ScalingTable

LOAD_METRIC = "load_qps"  # name under which workers report the anticipated load


class ScalingPolicy:
    """Autoscaling policy for Ray Serve that looks up a scaling table.

    It decides once every interval of the table; in between the last decision holds. Ray's own
    delays should be 0, as the table includes stabilisation. ``scaling`` is the path of the
    ``scaling.json``, or of its folder, where Ray's controller runs.
    """

    def __init__(self, scaling: str) -> None:
        self._control = ScalingControl(ScalingTable.load(scaling))
        self._next_s, self._wanted = -math.inf, 0

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
