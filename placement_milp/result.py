"""Records of a placement: groups of workers, results by family, moves, objective and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from placement_milp.problem import Problem
from ramsis.figures import figure_of
from ramsis.runtime.records import EMPTY, Count, Fraction, NonNegative, Positive, WrittenRecord
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

PLACEMENT_FORMAT = "ramsis.placement/1"


@dataclass(frozen=True, slots=True)
class Use(WrittenRecord):
    """What one of the variants on a worker does, or the policy of a station of workers.

    Attributes
    ----------
    family, variants
        Which queries, answered by which variants: one, or the model set of a policy.
    batch, latency_ms
        Batch size, and its time with the slow-down of sharing; ``None`` under a policy.
    accuracy
        Of the queries answered in time.
    in_time
        Share of the load that is answered in time.
    rate_qps
        Queries per second that it can take.
    load_qps
        Queries per second that it is sent.
    mps_share
        Share of the worker's multiprocessors that it is held to; ``None`` is no limit.
    processes
        Processes that run such batches side by side.
    """

    family: str
    variants: tuple[str, ...]
    batch: Count | None
    latency_ms: Positive | None
    accuracy: Fraction
    in_time: Fraction
    rate_qps: Positive
    load_qps: NonNegative
    mps_share: Fraction | None = None
    processes: Count = 1


@dataclass(frozen=True, slots=True)
class Group(WrittenRecord):
    """Workers of one type that do the same.

    Attributes
    ----------
    worker_type
        Name of their type.
    workers
        Their names. With ``together`` = k > 1, every k of them in turn form a station.
    together
        Workers of a station, which one policy serves; rates and loads are those of one station.
    uses
        What each does.
    memory_mb, memory_limit_mb
        Used, and there, on each.
    cycle_ms
        Time in which each variant runs once; ``None`` under a policy.
    cost_per_hour
        Of all of them.
    """

    worker_type: str
    workers: tuple[str, ...]
    together: Count
    uses: tuple[Use, ...]
    memory_mb: NonNegative
    memory_limit_mb: Positive
    cycle_ms: Positive | None
    cost_per_hour: NonNegative


@dataclass(frozen=True, slots=True)
class CutGpu(WrittenRecord):
    """A GPU in use that is cut into instances.

    Attributes
    ----------
    gpu, worker_type
        Its name and type.
    instances
        All that it has, ``INSTANCE@START``, by start; idle ones too.
    made, destroyed
        Those of them that have to be made, and those that it has now and that have to go.
    cost_per_hour
        Of the GPU.
    """

    gpu: str
    worker_type: str
    instances: tuple[str, ...]
    made: Annotated[tuple[str, ...], EMPTY]
    destroyed: Annotated[tuple[str, ...], EMPTY]
    cost_per_hour: NonNegative


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """What is answered of a family's demand.

    Attributes
    ----------
    name, demand_qps, slo_ms
        As asked.
    served_qps
        Answered in time.
    served_share
        The same as a share of the demand.
    accuracy
        Of these; ``None`` when there are none.
    effective_accuracy
        ``accuracy`` x ``served_share``, 0 for none.
    worst_latency_ms
        Longest time of a query answered in time, its wait for a batch included; ``None`` when
        no query is answered by a variant of known latency.
    workers
        That hold a variant of it.
    """

    name: str
    demand_qps: float
    slo_ms: float
    served_qps: float
    served_share: float
    accuracy: float | None
    effective_accuracy: float
    worst_latency_ms: float | None
    workers: int


@dataclass(frozen=True, slots=True)
class Move:
    """A worker that has to change what it holds; ``load_ms`` is the time of loading."""

    worker: str
    load: tuple[str, ...]
    unload: tuple[str, ...]
    load_ms: float


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the optimisation; what earlier stages reached is held.

    Attributes
    ----------
    metric
        The metric that was optimised.
    objective, dual_bound
        Reached; a bound on all placements.
    gap
        Their difference relative to ``objective``.
    """

    metric: str
    objective: float
    dual_bound: float
    gap: float


@dataclass(frozen=True, slots=True)
class Point:
    """A point on the front of accuracy and cost; no placement is better in both."""

    cost_per_hour: float
    effective_accuracy: float
    dual_bound: float
    workers: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement with its proof: which worker holds what, objective and dual bound.

    Attributes
    ----------
    name
        Of the problem.
    status
        ``optimal``, ``time-limit``, ``interrupted``, or ``heuristic`` without any proof.
    objective, dual_bound, gap
        Of the first stage. ``dual_bound`` and ``gap`` are ``None`` for heuristics.
    seconds
        Time that solving took.
    stages
        All that was optimised, in this order.
    groups, families
        Workers and what they do; results by family.
    moves
        Workers that have to change; all those in use where nothing is held now.
    gpus
        GPUs in use that are cut into instances.
    prices
        Worker type → shadow price: what one more worker of it would add to the objective, by the
        linear relaxation.
    front
        Of a ``pareto`` objective.
    notes
        Remarks.
    problem
        That it answers, so that a placement can be simulated by its file alone.
    """

    name: str
    status: str
    objective: float
    dual_bound: float | None
    gap: float | None
    seconds: float
    stages: tuple[Stage, ...]
    groups: tuple[Group, ...]
    families: tuple[FamilyResult, ...]
    moves: tuple[Move, ...] = ()
    gpus: tuple[CutGpu, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    front: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    problem: Problem = field(kw_only=True)

    @property
    def cost_per_hour(self) -> float:
        """Of all workers and GPUs in use."""
        return (sum(group.cost_per_hour for group in self.groups)
                + sum(gpu.cost_per_hour for gpu in self.gpus))

    @property
    def workers_in_use(self) -> int:
        """Whole workers, and GPUs that are cut into instances."""
        cut = {gpu.worker_type for gpu in self.gpus}
        return len(self.gpus) + sum(len(group.workers) for group in self.groups
                                    if group.worker_type.rpartition("/")[0] not in cut)

    @property
    def effective_accuracy(self) -> float:
        """Mean over all queries, those not answered in time counting 0."""
        demand = sum(family.demand_qps for family in self.families)
        return sum(f.effective_accuracy * f.demand_qps for f in self.families) / demand

    def rows(self) -> list[dict[str, Any]]:
        """One row for each use of each group, with the numbers of one worker or station."""
        return [
            {
                "worker_type": group.worker_type, "workers": len(group.workers),
                "together": group.together, "family": use.family, "variants": list(use.variants),
                "batch": use.batch, "processes": use.processes,
                "load_qps": use.load_qps, "rate_qps": use.rate_qps,
                "share_of_demand": self._share(group, use),
                "utilisation": use.load_qps / use.rate_qps, "accuracy": use.accuracy,
                "latency_ms": use.latency_ms, "cycle_ms": group.cycle_ms,
                "memory_mb": group.memory_mb, "memory_limit_mb": group.memory_limit_mb,
            }
            for group in self.groups for use in group.uses
        ]

    def _share(self, group: Group, use: Use) -> float:
        demand = next(f.demand_qps for f in self.families if f.name == use.family)
        return use.load_qps * (len(group.workers) // group.together) / demand

    def to_frame(self) -> pd.DataFrame:
        """The rows of :meth:`rows`."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def plot(self) -> Any:
        """The figure of `ramsis place --plot` (:class:`matplotlib.figure.Figure`)."""
        return figure_of("placement", self)

    def _repr_html_(self) -> str:
        """What runs where as a table, for notebooks."""
        rows = [{**row, "variants": " + ".join(row["variants"])} for row in self.rows()]
        return html_table((Column("worker_type", "worker type"), Column("workers", "workers", "d"),
                           Column("variants", "holds"), Column("batch", "batch", "d"),
                           Column("family", "family"),
                           Column("share_of_demand", "of its demand", ".1%"),
                           Column("utilisation", "busy", ".1%")), rows,
                          caption=f"Placement {self.name}: {self.status}, objective "
                                  f"{self.objective:.4g}")

    def to_document(self) -> dict[str, Any]:
        """The JSON document of a placement file."""
        return {"format": PLACEMENT_FORMAT, **asdict(self), "cost_per_hour": self.cost_per_hour,
                "effective_accuracy": self.effective_accuracy,
                "problem": self.problem.to_document()}
