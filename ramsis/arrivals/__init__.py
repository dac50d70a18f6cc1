"""Arrival processes, PF(k, T): the probability of k central arrivals in T; traces and fits."""

from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.process import ArrivalProcess, Poisson, is_orderly
from ramsis.arrivals.words import (
    KNOWN_PROCESSES,
    describe_process,
    from_description,
    process_factory,
)

__all__ = [
    "KNOWN_PROCESSES",
    "ArrivalProcess",
    "MarkovModulated",
    "NegativeBinomial",
    "Poisson",
    "describe_process",
    "from_description",
    "is_orderly",
    "process_factory",
]
