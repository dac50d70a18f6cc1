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
    """What one of the variants on a worker does, or the policy of a station of workers."""

    # family, variants: which queries, answered by which variants: one, or the model set of a
    # policy
    family: str
    variants: tuple[str, ...]
    # batch, latency_ms: batch size, and its time with the slow-down of sharing; ``None`` under a
    # policy
    batch: Count | None
    latency_ms: Positive | None
    accuracy: Fraction  # of the queries answered in time
    in_time: Fraction  # share of the load that is answered in time
    rate_qps: Positive  # queries per second that it can take
    load_qps: NonNegative  # queries per second that it is sent
    # share of the worker's multiprocessors that it is held to; ``None`` is no limit
    mps_share: Fraction | None = None
    processes: Count = 1  # processes that run such batches side by side


@dataclass(frozen=True, slots=True)
class Group(WrittenRecord):
    """Workers of one type that do the same."""

    worker_type: str  # name of their type
    # their names. With ``together`` = k > 1, every k of them in turn form a station.
    workers: tuple[str, ...]
    # workers of a station, which one policy serves; rates and loads are those of one station
    together: Count
    uses: tuple[Use, ...]  # what each does
    # memory_mb, memory_limit_mb: used, and there, on each
    memory_mb: NonNegative
    memory_limit_mb: Positive
    cycle_ms: Positive | None  # time in which each variant runs once; ``None`` under a policy
    cost_per_hour: NonNegative  # of all of them


@dataclass(frozen=True, slots=True)
class CutGpu(WrittenRecord):
    """A GPU in use that is cut into instances."""

    # gpu, worker_type: its name and type
    gpu: str
    worker_type: str
    instances: tuple[str, ...]  # all that it has, ``INSTANCE@START``, by start; idle ones too
    # made, destroyed: those of them that have to be made, and those that it has now and that
    # have to go
    made: Annotated[tuple[str, ...], EMPTY]
    destroyed: Annotated[tuple[str, ...], EMPTY]
    cost_per_hour: NonNegative  # of the GPU


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """Demand of a family and the part of it that is answered."""

    # name, demand_qps, slo_ms: as asked
    name: str
    demand_qps: float
    slo_ms: float
    served_qps: float  # answered in time
    served_share: float  # the same as a share of the demand
    accuracy: float | None  # of these; ``None`` when there are none
    effective_accuracy: float  # ``accuracy`` x ``served_share``, 0 for none
    # longest time of a query answered in time, its wait for a batch included; ``None`` when no
    # query is answered by a variant of known latency
    worst_latency_ms: float | None
    workers: int  # that hold a variant of it


@dataclass(frozen=True, slots=True)
class Move:
    """A worker that has to change what it holds; ``load_ms`` is the time of loading."""

    worker: str
    load: tuple[str, ...]
    unload: tuple[str, ...]
    load_ms: float


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the optimisation; values of earlier stages are kept."""

    metric: str  # the metric that was optimised
    # objective, dual_bound: reached; a bound on all placements
    objective: float
    dual_bound: float
    gap: float  # their difference relative to ``objective``


@dataclass(frozen=True, slots=True)
class Point:
    """A point on the front of accuracy and cost; no placement is better in both."""

    cost_per_hour: float
    effective_accuracy: float
    dual_bound: float
    workers: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement with its proof: which worker holds what, objective and dual bound."""

    name: str  # of the problem
    status: str  # ``optimal``, ``time-limit``, ``interrupted``, or ``heuristic`` without any proof
    # objective, dual_bound, gap: of the first stage. ``dual_bound`` and ``gap`` are ``None`` for
    # heuristics.
    objective: float
    dual_bound: float | None
    gap: float | None
    seconds: float  # time that solving took
    stages: tuple[Stage, ...]  # all that was optimised, in this order
    # groups, families: workers and what they do; results by family
    groups: tuple[Group, ...]
    families: tuple[FamilyResult, ...]
    # workers that have to change; all those in use where nothing is held now
    moves: tuple[Move, ...] = ()
    gpus: tuple[CutGpu, ...] = ()  # GPUs in use that are cut into instances
    # worker type → shadow price: what one more worker of it would add to the objective, by the
    # linear relaxation
    prices: Mapping[str, float] = field(default_factory=dict)
    front: tuple[Point, ...] = ()  # of a ``pareto`` objective
    notes: tuple[str, ...] = ()  # remarks
    # that it answers, so that a placement can be simulated by its file alone
    problem: Problem = field(kw_only=True)

    @property
    def cost_per_hour(self) -> float:
        """Return the cost per hour of all workers and GPUs in use."""
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
