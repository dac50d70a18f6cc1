"""Checks of SLOs against service times, and numbers for equal worker types."""

from __future__ import annotations

from collections.abc import Sequence

from ramsis.cluster.service_times import ServiceTimes
from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InfeasibleError

_FASTEST = "the fastest model's batch of 1"


def below_every_latency(
    slo_ms: float, lowest_ms: float, *, whose: str = "SLO", fastest: str = _FASTEST
) -> InfeasibleError:
    """Return the error for an SLO below ``lowest_ms``, the shortest time of any batch."""
    return InfeasibleError(f"{whose} is below every latency", where="slo_ms", value=slo_ms,
                           allowed=f"at least {lowest_ms:g} ms, {fastest}")


def check_reachable(
    times: Sequence[ServiceTimes], classes: Sequence[SloClass], *, fastest: str = _FASTEST
) -> None:
    """Refuse a class that no worker type can ever answer in time."""
    lowest = min(time.lowest_ms for time in times)
    for slo_class in classes:
        if slo_class.slo_ms < lowest:
            raise below_every_latency(slo_class.slo_ms, lowest, fastest=fastest,
                                      whose="SLO" if len(classes) == 1 else "SLO of a class")


def numbered_alike(times: Sequence[ServiceTimes]) -> list[int]:
    """Number the worker types from 0, with the same number for types of equal service times.

    These run the same models equally fast.
    """
    distinct: list[ServiceTimes] = []
    numbers = []
    for service_times in times:
        same = (k for k, other in enumerate(distinct) if service_times.same_as(other))
        numbers.append(next(same, len(distinct)))
        if numbers[-1] == len(distinct):
            distinct.append(service_times)
    return numbers
