"""How far a policy is from the bound for one model per request, at its own price of violations."""

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
    """Return the bound on effective accuracy − price × violation rate of a policy.

    With second opinions that on effective accuracy, which is no less. With gathering windows where
    arrivals are Poisson, service times fixed and all deadlines alike.
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
    """Return the gap of a promise to the bound at the policy's price, with price and bound."""
    price, bound, promised = policy.violation_price, certified_bound(policy), policy.rates
    gap = certified_gap(promised.effective_accuracy, promised.violation_rate, price, bound)
    return {"violation_price": price, "priced_upper_bound": bound, "certified_gap": gap}


def gap_in_simulation(
    result: SimulationResult, policies: Policies | None, fleets: Fleets, workload: Workload,
    confidences: Confidences | None = None,
) -> dict[str, Any]:
    """Return the gap of simulated policies to the bound.

    At a constant load the bound is that of the long run, which luck can pass; on a trace it is
    the bound on the arrivals that were drawn. None where there are no policies, or they have
    several prices.

    Parameters
    ----------
    confidences : Confidences, optional
        Of the profile, for policies with second opinions.
    """
    found: dict[str, Any] = dict.fromkeys(
        ("violation_price", "priced_upper_bound", "certified_gap"))
    if policies is None:
        return found
    used = policies.policies if result.told_qps is None else [
        station.policy for station in policies.at(
            result.told_qps, fleets.fleets[0].slowness).level.stations]
    prices = {policy.violation_price for policy in used}
    if len(prices) > 1:
        return found
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
    if not isinstance(workload, ConstantLoad):
        return bound_on_arrivals(fleets, result.duration_ms, counts_of(result), price)
    served = _served(fleets)
    gathering = (arrivals_of(workload.arrivals).text == "poisson" and len(fleets.classes) == 1
                 and not any(one.distributed for one in served["times"]))
    return fluid_bound(**served, load_qps=workload.load_qps, gathering=gathering,
                       violation_price=price).upper_bound


def _cascade_bound_in_simulation(
    result: SimulationResult, fleets: Fleets, workload: Workload,
    confidences: Confidences | None, price: float,
) -> float | None:
    (fleet,) = fleets.fleets
    if (confidences is None or fleet.draws or not isinstance(workload, ConstantLoad)
            or arrivals_of(workload.arrivals).text != "poisson"):
        return cascade_bound_on_arrivals(fleets, confidences, result, price)
    return cascade_bound(fleet.service_times, confidences, slo_ms=fleet.slo_ms,
                         workers=fleet.workers, load_qps=workload.load_qps,
                         violation_price=price, gathering=True).upper_bound


def counts_of(result: SimulationResult) -> tuple[int, ...]:
    """Return the number of requests of each run that has any."""
    return tuple(one.queries for one in result.metrics if one.queries)


def bound_on_arrivals(
    fleets: Fleets, duration_ms: float, counts: Sequence[int], violation_price: float = 0.0
) -> float | None:
    """Return the bound for all schedulers on drawn arrivals, by their numbers in each run.

    None without requests; see :func:`ramsis.bounds.realised_bound`.
    """
    return realised_bound(**_served(fleets), duration_ms=duration_ms, counts=counts,
                          violation_price=violation_price)


def _served(fleets: Fleets) -> dict[str, Any]:
    """Return the arguments of bounds that describe the fleets."""
    return {"times": [fleet.service_times for fleet in fleets.fleets], "slo_ms": fleets.classes,
            "workers": [fleet.workers for fleet in fleets.fleets],
            "max_batch": fleets.fleets[0].max_batch}


def service_times_of(policy: Policy) -> ServiceTimes:
    """Return the times without the batch that only answers a queue longer than the table's."""
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
    """Return the bound with second opinions on drawn arrivals; None if it is not known.

    That is without requests, or where the profile has no confidences.

    The workers of a run have the time from its start to the last deadline for its requests.
    """
    (fleet,), counts = fleets.fleets, counts_of(result)
    if not counts or confidences is None:
        return None
    span_ms = result.duration_ms + fleet.slo_ms
    bounds = [cascade_bound(fleet.service_times, confidences, slo_ms=fleet.slo_ms,
                            workers=fleet.workers, load_qps=1000.0 * count / span_ms,
                            violation_price=violation_price).upper_bound for count in counts]
    return float(np.average(bounds, weights=counts))
