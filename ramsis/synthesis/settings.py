"""What a policy is made for, besides the profile and the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.grid import DEFAULT_GRID
from ramsis.mdp.problem import Objective
from ramsis.policy import DISPATCHES, SERVICES
from ramsis.profiles import Statistic
from ramsis.solvers.worker import SOLVERS, SolverName

__all__ = ["SynthesisSettings"]


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
    service : str
        Latency statistic that service times are taken to be: p95, p99 or mean.
    dispatch : str
        ``round-robin``, or ``shortest-queue``: a query goes to the worker with the fewest, those
        in service counted (Poisson arrivals only).
    objective : str
        ``per-query`` or ``per-decision``.
    grid : str
        Slack grid: ``fixed:D`` or ``model``.
    max_queue : int
        Longest queue N that the table tells apart.
    solver : str
        One of :data:`ramsis.solvers.worker.SOLVERS`.

    Raises
    ------
    InvalidValueError
        An unknown word. Numbers are checked where they are used.
    """

    slo_ms: float
    workers: int
    arrivals: str = "poisson"
    service: Statistic = "p95"
    dispatch: str = DISPATCHES[0]
    objective: str = Objective.PER_QUERY.value
    grid: str = DEFAULT_GRID
    max_queue: int = 32
    solver: SolverName = "policy-iteration"

    def __post_init__(self) -> None:
        words = {"service": SERVICES, "dispatch": DISPATCHES,
                 "objective": tuple(Objective), "solver": SOLVERS}
        for name, known in words.items():
            value = getattr(self, name)
            if value not in known:
                raise InvalidValueError(
                    describe(f"unknown {name}", where=name, value=value,
                             allowed=", ".join(known))
                )

    def as_dict(self) -> Mapping[str, Any]:
        """What the policies of one set share, as plain JSON values; the arrivals are not.

        It is the same for 100 and 100.0 ms. A set holds policies for several arrival processes.
        """
        shared = asdict(self)
        del shared["arrivals"]
        return {
            **shared,
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "max_queue": int(self.max_queue),
        }
