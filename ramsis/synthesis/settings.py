"""What a policy is made for, besides the profile and the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ramsis.cluster.service_times import DISTRIBUTION, carries_quantiles
from ramsis.errors import InvalidValueError, describe
from ramsis.policy import DISPATCHES, SERVICES
from ramsis.profiles import ProfileSet
from ramsis.worker.actions import Batching, LateRule
from ramsis.worker.grid import DEFAULT_GRID
from ramsis.worker.problem import Objective
from ramsis.worker.solve import SOLVERS, SolverName

__all__ = ["OWN_QUEUES", "SynthesisSettings", "check_budget"]

OWN_QUEUES = tuple(name for name, rule in DISPATCHES.items() if rule.own_queues)
"""Dispatch rules under which each worker has a queue of its own."""


@dataclass(frozen=True)
class SynthesisSettings:
    """Settings shared by all load levels of a policy set.

    Attributes
    ----------
    slo_ms : float
        Deadline of a request after its arrival.
    workers : int
        Workers K that share the load.
    arrivals : str
        ``poisson``, ``negative-binomial:I``, ``mmpp:ratio=R,burst-ms=B,share=S``, or
        ``package.module:name`` of a callable that makes a process of a load.
    service : str, optional
        Service times: ``p95``, ``p99``, ``mean`` or ``distribution``; by default the distribution
        where the profile carries quantiles of every batch and dispatch is by round robin, else
        p95.
    dispatch : str
        ``round-robin``, or ``shortest-queue``: a query goes to the worker with the fewest, those
        in service counted (Poisson arrivals only).
    objective : str
        ``per-query`` or ``per-decision``.
    grid : str
        Slack grid: ``fixed:D`` or ``model``.
    max_queue : int
        Longest queue N that the table tells apart.
    late : str
        What becomes of requests that nothing can answer in time: ``serve``, ``drop`` or ``free``.
    batching : str
        ``maximal`` or ``variable``.
    violation_price : float
        What a query that is late or dropped costs, in units of accuracy, >= 0.
    solver : str
        One of :data:`ramsis.worker.solve.SOLVERS`.
    max_violation : float, optional
        Budget of violations, in (0, 1]: the price is found at which the policy is the most
        accurate one whose violation rate stays within it; see :mod:`ramsis.synthesis.budget`.

    Raises
    ------
    InvalidValueError
        An unknown word. Numbers are checked where they are used.
    """

    slo_ms: float
    workers: int
    arrivals: str = "poisson"
    service: str | None = None
    dispatch: str = OWN_QUEUES[0]
    objective: str = Objective.PER_QUERY.value
    grid: str = DEFAULT_GRID
    max_queue: int = 32
    late: str = LateRule.SERVE.value
    batching: str = Batching.MAXIMAL.value
    violation_price: float = 0.0
    solver: SolverName = "policy-iteration"
    max_violation: float | None = None

    def __post_init__(self) -> None:
        words = {"service": (None, *SERVICES), "dispatch": OWN_QUEUES,
                 "objective": tuple(Objective), "late": tuple(LateRule),
                 "batching": tuple(Batching), "solver": SOLVERS}
        for name, known in words.items():
            value = getattr(self, name)
            if value not in known:
                raise InvalidValueError(
                    describe(f"unknown {name}", where=name, value=value,
                             allowed=", ".join(word for word in known if word))
                )
        check_budget(self.max_violation)

    def chosen_service(self, profile: ProfileSet) -> str:
        """The service times for a profile."""
        if self.service is not None:
            return self.service
        drawn = self.dispatch == OWN_QUEUES[0] and carries_quantiles(profile)
        return DISTRIBUTION if drawn else SERVICES[0]

    def as_dict(self) -> Mapping[str, Any]:
        """What the policies of one set share, as plain JSON values; the arrivals are not.

        It is the same for 100 and 100.0 ms. A set holds policies for several arrival processes.
        """
        shared = asdict(self)
        del shared["arrivals"]
        if self.max_violation is None:
            del shared["max_violation"]
        return {
            **shared,
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "max_queue": int(self.max_queue),
            "violation_price": float(self.violation_price),
        }


def check_budget(max_violation: float | None) -> None:
    """Refuse what is not a budget of violations.

    Raises
    ------
    InvalidValueError
    """
    if max_violation is not None and not 0 < max_violation <= 1:
        raise InvalidValueError(describe("not a violation rate", where="max_violation",
                                         value=max_violation, allowed="a fraction in (0, 1]"))
