"""Certified gap of policies: to the bound for all schedulers, at the policy's violation price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ramsis.arrivals.registry import arrivals_of
from ramsis.bounds import cascade_bound, certified_gap, fluid_bound, realised_bound
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import Confidences
from ramsis.sim import ConstantLoad, Fleets, Policies, SimulationResult, Workload


def certified_bound(policy: Policy) -> float:
    """Return the upper bound on effective accuracy − price × violation rate for a policy's load.

    For policies with second opinions it is the bound on effective accuracy, which is no smaller.
    The bound is the one with gathering windows if arrivals are Poisson, service times are fixed,
    and there is one SLO.
    """
    if policy.cascade is not None:
        return policy.cascade.promise.upper_bound
    times = service_times_of(policy)
    gathering = (policy.arrivals_label == "poisson" and not times.distributed
                 and not policy.slo_classes)
    return fluid_bound(times, slo_ms=policy.classes, workers=policy.workers,
                       load_qps=policy.load_qps, violation_price=policy.violation_price,
                       gathering=gathering).upper_bound


def gap_of_promise(policy: Policy) -> dict[str, Any]:
    """Return a promise's gap to the bound at the policy's price, with price and bound, by name."""
    price, bound, promised = policy.violation_price, certified_bound(policy), policy.rates
    gap = certified_gap(promised.effective_accuracy, promised.violation_rate, price, bound)
    return {"violation_price": price, "priced_upper_bound": bound, "certified_gap": gap}


def gap_in_simulation(
    result: SimulationResult, policies: Policies | None, fleets: Fleets, workload: Workload,
    confidences: Confidences | None = None,
) -> dict[str, Any]:
    """Return the gap of simulated policies to the bound.

    At a constant load the bound is that of the long run, which single runs can exceed; on a trace
    it is the bound on the drawn arrivals. All three figures are None if there are no policies, or
    policies with several prices. Policies with second opinions need the profile's confidences.
    """
    unknown: dict[str, Any] = dict.fromkeys(
        ("violation_price", "priced_upper_bound", "certified_gap"))
    if policies is None:
        return unknown
    used = policies.policies if result.told_qps is None else [
        station.policy for station in policies.at(
            result.told_qps, fleets.fleets[0].slowness).level.stations]
    prices = {policy.violation_price for policy in used}
    if len(prices) > 1:
        return unknown
    (price,) = prices
    bound = (_cascade_bound_in_simulation(result, fleets, workload, confidences, price)
             if gives_second_opinions(result, policies, fleets)
             else _bound_in_simulation(result, fleets, workload, price))
    gap = None if bound is None else certified_gap(
        result.effective_accuracy, result.violation_rate, price, bound)
    return {"violation_price": price, "priced_upper_bound": bound, "certified_gap": gap}


def _bound_in_simulation(
    result: SimulationResult, fleets: Fleets, workload: Workload, price: float
) -> float | None:
    """Return the bound at a constant load, else the mean over runs by their arrivals."""
    if not isinstance(workload, ConstantLoad):
        return bound_on_arrivals(fleets, result.duration_ms, counts_of(result), price)
    served = _served(fleets)
    gathering = (arrivals_of(workload.arrivals).text == "poisson" and len(fleets.classes) == 1
                 and not any(times.distributed for times in served["times"]))
    return fluid_bound(**served, load_qps=workload.load_qps, gathering=gathering,
                       violation_price=price).upper_bound


def _cascade_bound_in_simulation(
    result: SimulationResult, fleets: Fleets, workload: Workload,
    confidences: Confidences | None, price: float,
) -> float | None:
    """Return the bound with second opinions, tightened for Poisson arrivals and fixed times."""
    (fleet,) = fleets.fleets
    if (confidences is None or fleet.draws or not isinstance(workload, ConstantLoad)
            or arrivals_of(workload.arrivals).text != "poisson"):
        return cascade_bound_on_arrivals(fleets, confidences, result, price)
    return cascade_bound(fleet.service_times, confidences, slo_ms=fleet.slo_ms,
                         workers=fleet.workers, load_qps=workload.load_qps,
                         violation_price=price, gathering=True).upper_bound


def counts_of(result: SimulationResult) -> tuple[int, ...]:
    """Return the number of requests of each run, leaving out runs without any."""
    return tuple(metrics.queries for metrics in result.metrics if metrics.queries)


def bound_on_arrivals(
    fleets: Fleets, duration_ms: float, counts: Sequence[int], violation_price: float = 0.0
) -> float | None:
    """Return the mean bound for all schedulers over runs, each at its own number of requests.

    ``counts`` are these numbers. None without requests; see :func:`ramsis.bounds.realised_bound`.
    """
    return realised_bound(**_served(fleets), duration_ms=duration_ms, counts=counts,
                          violation_price=violation_price)


def _served(fleets: Fleets) -> dict[str, Any]:
    """Return the arguments of bounds that describe the fleets."""
    return {"times": [fleet.service_times for fleet in fleets.fleets], "slo_ms": fleets.classes,
            "workers": [fleet.workers for fleet in fleets.fleets],
            "max_batch": fleets.fleets[0].max_batch}


def service_times_of(policy: Policy) -> ServiceTimes:
    """Return the service times of a policy, without batches that only serve longer queues.

    Workers with their own queues run such batches when the queue is longer than the table's.
    """
    times = policy.service_times
    return times.up_to(policy.max_queue) if policy.rule.own_queues else times


def gives_second_opinions(
    result: SimulationResult, policies: Policies | None, fleets: Fleets
) -> bool:
    """Return whether simulated policies give second opinions at the load that they were told."""
    if policies is None or result.told_qps is None:
        return False
    level = policies.at(result.told_qps, fleets.fleets[0].slowness).level
    return any(station.policy.cascade is not None for station in level.stations)


def cascade_bound_on_arrivals(
    fleets: Fleets, confidences: Confidences | None, result: SimulationResult,
    violation_price: float = 0.0,
) -> float | None:
    """Return the mean bound with second opinions over runs, each at its own load.

    A run counts by its number of requests; None without requests or confidences. The
    workers of a run have the time from its start to the last deadline for its requests.
    """
    (fleet,), counts = fleets.fleets, counts_of(result)
    if not counts or confidences is None:
        return None
    span_ms = result.duration_ms + fleet.slo_ms
    bounds = [cascade_bound(fleet.service_times, confidences, slo_ms=fleet.slo_ms,
                            workers=fleet.workers, load_qps=1000.0 * count / span_ms,
                            violation_price=violation_price).upper_bound for count in counts]
    return float(np.average(bounds, weights=counts))
