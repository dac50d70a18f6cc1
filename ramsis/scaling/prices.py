"""Cost and delivered quality of a run, and prices for shortfalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ramsis.bounds import Targets
from ramsis.errors import check_not_negative
from ramsis.policy.records import Expectations
from ramsis.scaling.fleet import ScaledRun

MOST_WORKER_S = 1e6
"""Highest price of a violation, and of a unit of accuracy; above it the solvers' tolerances exceed
the cost of workers."""


class Delivered(NamedTuple):
    """Cost and delivered quality of a run, with its number of requests."""

    worker_s: float
    violation_rate: float
    effective_accuracy: float
    requests: float

    @classmethod
    def of(cls, run: ScaledRun) -> Delivered:
        """Return worker-seconds, violations and accuracy of a simulated run."""
        return cls(float(run.worker_s), float(run.violation_rate), float(run.effective_accuracy),
                   int(run.requests))


def meets(run: ScaledRun | Delivered | Expectations, target: Targets) -> bool:
    """Return whether the figures of a run meet the target."""
    in_time = 1.0 - run.violation_rate
    return target.met(run.effective_accuracy / in_time if in_time else 0.0, run.violation_rate)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of violations and of missed accuracy, in worker-seconds; in place of a target."""

    violation: float  # of a request that is late or dropped, >= 0
    # of a unit of accuracy (100 points) that a request misses, >= 0. An answer in time misses the
    # accuracy of the best model that is fast enough less that of its model; a violation misses
    # all of the former.
    accuracy: float

    def __post_init__(self) -> None:
        check_not_negative("not a price", violation=self.violation, accuracy=self.accuracy)

    def of_request(self, violation_rate: float, missed: float) -> float:
        """Return a request's mean cost of violations and missed accuracy, in worker-seconds."""
        return self.violation * violation_rate + self.accuracy * missed

    def total(self, run: Delivered, best_accuracy: float) -> float:
        """Return a run's cost in worker-seconds, with violations and missed accuracy priced."""
        return run.worker_s + run.requests * self.of_request(
            run.violation_rate, best_accuracy - run.effective_accuracy)
