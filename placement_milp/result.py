"""Records of a placement: groups of workers, results by family, moves, objective and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Any

from placement_milp.problem import PROBLEM_FORMAT, Problem
from ramsis.records import (
    DIALECT,
    EMPTY,
    Count,
    Fraction,
    NonNegative,
    Positive,
    WrittenRecord,
)
from ramsis.reprs import dataclass, figure_of
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

PLACEMENT_FORMAT = "ramsis.placement/1"
STATUSES = ("optimal", "time-limit", "interrupted", "heuristic")
"""How solving ended; ``heuristic`` is without any proof."""


@dataclass(frozen=True, slots=True)
class Use(WrittenRecord):
    """Use of a worker by one of its variants, or of a station by a policy."""

    family: Annotated[str, "Family whose requests are served."]
    variants: Annotated[
        tuple[str, ...], "The variants that answer them: one, or the model set of a policy."]
    batch: Annotated[Count | None, "Batch size; null under a policy."]
    latency_ms: Annotated[
        Positive | None, "Time of a batch, with the slow-down of sharing; null under a policy."]
    accuracy: Annotated[Fraction, "Mean accuracy of the requests answered in time."]
    in_time: Annotated[Fraction, "Share of the load that is answered in time."]
    rate_qps: Annotated[Positive, "Capacity, requests per second."]
    load_qps: Annotated[NonNegative, "Arrival rate, requests per second."]
    mps_share: Annotated[
        Fraction | None,
        "Share of the worker's multiprocessors that it is held to; null is no limit.",
    ] = None
    processes: Annotated[Count, "Processes that run such batches side by side."] = 1


@dataclass(frozen=True, slots=True)
class Group(WrittenRecord):
    """Workers of one type that hold the same variants in the same batches."""

    worker_type: Annotated[str, "Name of the type of these workers."]
    workers: Annotated[
        tuple[str, ...], "Names of these workers; each `together` of them in turn form a station."]
    together: Annotated[
        Count,
        "Workers of a station, which one policy serves; rates and loads are those of one "
        "station.",
    ]
    uses: Annotated[tuple[Use, ...], "Variants and loads of each of these workers."]
    memory_mb: Annotated[NonNegative, "Memory in use on each worker."]
    memory_limit_mb: Annotated[Positive, "Memory of each worker."]
    cycle_ms: Annotated[
        Positive | None, "Time in which each variant runs once; null under a policy."]
    cost_per_hour: Annotated[NonNegative, "Cost per hour of all these workers together."]


@dataclass(frozen=True, slots=True)
class CutGpu(WrittenRecord):
    """Partitioned GPU in use, with its instances."""

    gpu: Annotated[str, "Name of the GPU."]
    worker_type: Annotated[str, "Worker type of the GPU."]
    instances: Annotated[tuple[str, ...], "Its instances as INSTANCE@START, with idle ones."]
    made: Annotated[tuple[str, ...], EMPTY, "Instances that have to be made."]
    destroyed: Annotated[
        tuple[str, ...], EMPTY, "Present instances that have to be destroyed."]
    cost_per_hour: Annotated[NonNegative, "Cost per hour of the GPU."]


@dataclass(frozen=True, slots=True)
class FamilyResult(WrittenRecord):
    """Demand of a family, with the share answered in time and its accuracy."""

    name: str
    demand_qps: Positive
    slo_ms: Positive
    served_qps: Annotated[NonNegative, "Requests per second answered in time."]
    served_share: Annotated[NonNegative, "Share of the demand that is answered in time."]
    accuracy: Annotated[
        float | None,
        "Mean accuracy of the requests answered in time; null when there are none."]
    effective_accuracy: Annotated[NonNegative, "Accuracy x served share, 0 for none."]
    worst_latency_ms: Annotated[
        float | None,
        "Longest time of a request answered in time, its wait for a batch included; null when no "
        "request is answered by a variant of known latency.",
    ]
    workers: Annotated[int, "Number of workers that hold a variant of the family."]


@dataclass(frozen=True, slots=True)
class Move(WrittenRecord):
    """Variants that a worker has to load and to unload."""

    worker: str
    load: Annotated[tuple[str, ...], EMPTY]
    unload: Annotated[tuple[str, ...], EMPTY]
    load_ms: Annotated[NonNegative, "Time of loading."]


@dataclass(frozen=True, slots=True)
class Stage(WrittenRecord):
    """Stage of the optimisation; later stages keep its value."""

    metric: Annotated[str, "Metric that was optimised."]
    objective: Annotated[float, "Value of the metric that was reached."]
    dual_bound: Annotated[float, "Bound on the metric of every placement."]
    gap: Annotated[NonNegative, "Difference of bound and objective, relative to the objective."]


@dataclass(frozen=True, slots=True)
class Point(WrittenRecord):
    """Point on the Pareto front of accuracy and cost."""

    cost_per_hour: NonNegative
    effective_accuracy: float
    dual_bound: float
    workers: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement: groups of workers with their uses, objective and dual bound."""

    name: str  # name of the problem
    status: str  # one of :data:`STATUSES`
    # of the first stage; ``dual_bound`` and ``gap`` are ``None`` for heuristics
    objective: float
    dual_bound: float | None
    gap: float | None
    seconds: float  # solution time
    stages: tuple[Stage, ...]  # optimised metrics, in order
    # workers with their uses; results by family
    groups: tuple[Group, ...]
    families: tuple[FamilyResult, ...]
    # workers whose variants change; all used workers if none holds variants now
    moves: tuple[Move, ...] = ()
    gpus: tuple[CutGpu, ...] = ()  # partitioned GPUs in use
    # worker type → shadow price: increase of the objective by one more worker, in the linear
    # relaxation
    prices: Mapping[str, float] = field(default_factory=dict)
    front: tuple[Point, ...] = ()  # Pareto front of a ``pareto`` objective
    notes: tuple[str, ...] = ()  # remarks for the user
    # the problem, so that a placement can be simulated from its file alone
    problem: Problem = field(kw_only=True)

    def _summary(self) -> str:
        return (f"{self.name}: {self.status}, objective {self.objective:.4g}, "
                f"{self.workers_in_use} workers, {len(self.families)} families")

    @property
    def cost_per_hour(self) -> float:
        """Cost per hour of all workers and GPUs in use."""
        return (sum(group.cost_per_hour for group in self.groups)
                + sum(gpu.cost_per_hour for gpu in self.gpus))

    @property
    def workers_in_use(self) -> int:
        """Number of workers in use; partitioned GPUs count as one each."""
        cut = {gpu.worker_type for gpu in self.gpus}
        return len(self.gpus) + sum(len(group.workers) for group in self.groups
                                    if group.worker_type.rpartition("/")[0] not in cut)

    @property
    def effective_accuracy(self) -> float:
        """Mean accuracy over all requests, where requests not answered in time count 0."""
        demand = sum(family.demand_qps for family in self.families)
        return sum(f.effective_accuracy * f.demand_qps for f in self.families) / demand

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each use of each group, with the figures of one worker or station."""
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
        """Return the rows of :meth:`rows` as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def plot(self) -> Any:
        """Return the figure of `ramsis place --plot` (:class:`matplotlib.figure.Figure`)."""
        return figure_of("placement", self)

    def _repr_html_(self) -> str:
        """Return the uses of workers as a table, for notebooks."""
        rows = [{**row, "variants": " + ".join(row["variants"])} for row in self.rows()]
        return html_table((Column("worker_type", "worker type"), Column("workers", "workers", "d"),
                           Column("variants", "holds"), Column("batch", "batch", "d"),
                           Column("family", "family"),
                           Column("share_of_demand", "of its demand", ".1%"),
                           Column("utilisation", "busy", ".1%")), rows,
                          caption=f"Placement {self.name}: {self.status}, objective "
                                  f"{self.objective:.4g}")

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of a placement file."""
        lists: dict[str, type[WrittenRecord]] = {
            "stages": Stage, "groups": Group, "families": FamilyResult,
            "moves": Move, "front": Point, "gpus": CutGpu,
        }
        text, number = {"type": "string", "minLength": 1}, {"type": "number"}
        amount, number_or_null = {**number, "minimum": 0}, {"type": ["number", "null"]}
        properties = {
            "format": {"const": PLACEMENT_FORMAT}, "name": text,
            "status": {"enum": list(STATUSES)},
            "objective": number, "dual_bound": number_or_null, "gap": number_or_null,
            "seconds": amount, "cost_per_hour": amount,
            "effective_accuracy": {**amount, "maximum": 1},
            **{name: {"type": "array", "items": record.schema()}
               for name, record in lists.items()},
            "prices": {"type": "object", "additionalProperties": amount},
            "notes": {"type": "array", "items": {"type": "string"}},
            "problem": {
                "type": "object", "required": ["format"],
                "properties": {"format": {"const": PROBLEM_FORMAT}},
                "description": "What the placement answers; value tables stand in it."},
            "command": text,
        }
        needed = [name for name in properties if name not in ("gpus", "command")]
        return {"$schema": DIALECT, "title": PLACEMENT_FORMAT,
                "description": "What runs where.", "type": "object",
                "additionalProperties": False, "required": needed, "properties": properties}

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of a placement file."""
        return {"format": PLACEMENT_FORMAT, **asdict(self), "cost_per_hour": self.cost_per_hour,
                "effective_accuracy": self.effective_accuracy,
                "problem": self.problem.to_document()}
