"""Interfaces of arrival processes and the base class of the shipped ones.

A process has a rate, and one or both of two capabilities:

- *counts*: PF(k, T), the probability that k requests reach the central controller in an interval
  of T ms (EuroSys '24, §4.2). The counts of disjoint intervals are independent and their
  distribution depends on the length alone. Policies are made for such processes. Everything works
  in log space, so that K = 1000 workers and λT = 1e5 lose nothing to underflow.
- *samples*: arrival times are drawn. Such processes are simulated.

A class of one's own plugs in: any object with ``rate_per_ms``, and ``log_pf`` or ``sample``, will
do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import Rule, check_positive

_BATCHED = 1e-3  # share of pairs among the arrivals of an instant; a Poisson process has 5e-7


class ProcessWithRate(Protocol):
    """What every arrival process has."""

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond, > 0."""
        ...


@runtime_checkable
class ArrivalProcess(ProcessWithRate, Protocol):
    """Counts with stationary, independent increments: policies can be made for the process.

    Three optional methods: ``integrated_tail`` and ``count_probabilities`` (see
    :mod:`ramsis.arrivals.counts`) give a closed form, and PF itself, where there are quicker ways;
    ``describe`` what a policy file says of the process.
    """

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return log PF(k, T), broadcast over both arguments.

        Parameters
        ----------
        count : array of whole numbers >= 0
        interval_ms : array of lengths >= 0 in ms; PF(0, 0) = 1
        """
        ...


@runtime_checkable
class Sampler(ProcessWithRate, Protocol):
    """Arrival times that can be drawn: the process can be simulated."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sample non-decreasing arrival times in ms within [0, duration_ms)."""
        ...


@dataclass(frozen=True)
class Parameter:
    """A parameter of a shipped process, beside its load."""

    name: str  # as in Python and in policy files; a unit is its end, as in ``burst_ms``
    symbol: str  # in its place in help texts
    meaning: str  # short, for messages
    rule: Rule  # its range

    @property
    def word(self) -> str:
        """As on the command line."""
        return self.name.replace("_", "-")


class ShippedProcess:
    """What processes that come with the package share: a name, parameters, their description.

    A subclass is a frozen dataclass. Its fields are ``load_qps`` and the parameters in their
    order. It has ``log_pf``, ``sample`` or both.
    """

    name: ClassVar[str]  # as on the command line and in policy files
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    # where there is no ``log_pf``: the reason, for messages
    why_no_counts: ClassVar[str] = ""
    load_qps: float  # mean requests per second

    def __post_init__(self) -> None:
        check_positive("load is not positive", load_qps=self.load_qps)
        for parameter in self.parameters:
            parameter.rule.required(f"arrivals {self.name}", getattr(self, parameter.name),
                                    f"{parameter.meaning} out of range")

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        return self.load_qps / 1000.0

    @property
    def poisson_rate_per_ms(self) -> float | None:
        """The rate of a Poisson process, whose first passages have compiled loops; else None."""
        return None

    @property
    def gap_cv(self) -> float | None:
        """Coefficient of variation of the gaps, where these are independent."""
        return None

    def simplest(self) -> ShippedProcess:
        """Return the process under its simplest name, such as Poisson."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return name and parameters of the process for a policy file, without the load."""
        same = self.simplest()
        return {"process": same.name,
                **{parameter.name: float(getattr(same, parameter.name))
                   for parameter in same.parameters}}

    @classmethod
    def pattern(cls) -> str:
        """Return the form of ``--arrivals`` for help texts, such as ``negative-binomial:I``."""
        if len(cls.parameters) == 1:
            return f"{cls.name}:{cls.parameters[0].symbol}"
        words = ",".join(f"{parameter.word}={parameter.symbol}" for parameter in cls.parameters)
        return f"{cls.name}:{words}" if words else cls.name


def is_orderly(process: ArrivalProcess) -> bool:
    """Return whether requests arrive one at a time: P(2 in h) / P(1 in h) → 0 as h → 0.

    A process with stationary, independent increments is either Poisson or arrives in batches,
    several requests at one instant.

    >>> from ramsis.arrivals import Poisson
    >>> is_orderly(Poisson(100.0))
    True
    """
    instant = np.array([1e-6 / process.rate_per_ms])
    single, two = process.log_pf(np.array([1, 2]), instant)
    return bool(two - single < math.log(_BATCHED))


def poisson_rate(process: ArrivalProcess) -> float | None:
    """Return the rate per ms of a Poisson process, for compiled loops; None for any other."""
    rate: float | None = getattr(process, "poisson_rate_per_ms", None)
    return rate
