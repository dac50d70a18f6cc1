r"""Lower bound on the workers that targets require of schedulers with cascades.

*Violations.* Without its second opinions a scheduler with cascades answers each request by one
model, is late no more often, and takes no more worker time. So the bound for one model per request
on the violations alone (:mod:`ramsis.bounds.workers`) holds for it.

*Accuracy.* With V the largest share of violations, A the least accuracy of answers in time and E
the least effective accuracy, a scheduler that meets the targets has an effective accuracy of at
least max(A·(1 − V), E). The program of :mod:`ramsis.bounds.cascades` says the most that K workers
reach. Its value depends on the worker time K/λ of a request alone, in which it is concave and does
not fall, so K is at least where it reaches the target. A tangent lies above a concave function:
where it reaches the target is never beyond that point. Steps along tangents, whose slopes are the
program's dual prices, approach it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ramsis.bounds.cascades import effective_by_time
from ramsis.bounds.targets import ROUNDING, Targets, outward
from ramsis.bounds.workers import fewest_workers_bound
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError
from ramsis.profiles import Confidences

_FIRST_MS = 1e-6  # of worker time for a request: less than any target takes
_TANGENTS = 50  # at most 10 were needed
_STILL = 1e-9  # of the time: a smaller step is the last


def fewest_workers_bound_with_cascades(
    times: ServiceTimes, confidences: Confidences, targets: Targets, *, slo_ms: float,
    load_qps: float,
) -> float:
    """Bound the busy workers that targets require of schedulers with cascades at a constant load.

    Parameters
    ----------
    times : ServiceTimes
        Fixed or drawn, of all models (:meth:`ServiceTimes.of_all`).
    confidences : Confidences
        Confidences of these models.
    slo_ms : float
        > 0.
    load_qps : float
        > 0, requests per second.

    Returns
    -------
    float
        > 0. There must be at least this many workers, rounded up.

    Raises
    ------
    InfeasibleError
        No number of workers reaches the targets; with the most that can be reached.
    NotConvergedError
        The linear program for the violations was not solved.
    """
    busy = fewest_workers_bound(times, Targets(targets.max_violation), slo_ms=slo_ms,
                                load_qps=load_qps)
    wanted = max((targets.min_accuracy or 0.0) * (1.0 - targets.max_violation),
                 targets.min_effective_accuracy or 0.0) - ROUNDING
    if wanted <= 0.0:
        return busy
    value = effective_by_time(times, confidences, slo_ms)
    most, _ = value(math.inf)
    if most < wanted:
        raise _unreachable(targets, most)
    return max(busy, load_qps / 1000.0 * _least_time(value, wanted))


def _least_time(value: Callable[[float], tuple[float, float]], wanted: float) -> float:
    """Return the least worker time with which the program reaches a value, from below."""
    time_ms = _FIRST_MS
    for _ in range(_TANGENTS):
        reached, slope = value(time_ms)
        if reached >= wanted or slope <= 0.0:
            break
        step = (wanted - reached) / slope
        time_ms += step
        if step <= _STILL * time_ms:
            break
    return time_ms


def _unreachable(targets: Targets, most: float) -> InfeasibleError:
    name, value = "min_effective_accuracy", targets.min_effective_accuracy
    if (value or 0.0) <= most:
        name, value = "min_accuracy", targets.min_accuracy
        most /= 1.0 - targets.max_violation
    return InfeasibleError("no number of workers reaches this, even with second opinions",
                           where=name, value=value, allowed=f"at most {outward(min(most, 1.0))}")
