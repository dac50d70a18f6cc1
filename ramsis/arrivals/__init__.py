"""Arrival processes: the probability of k central arrivals in an interval, ``PF(k, T)``."""

from ramsis.arrivals.process import (
    ArrivalProcess,
    Poisson,
    describe_process,
    from_description,
    is_orderly,
    process_factory,
)

__all__ = [
    "ArrivalProcess",
    "Poisson",
    "describe_process",
    "from_description",
    "is_orderly",
    "process_factory",
]
