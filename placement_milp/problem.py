"""The placement problem: demand by family, workers by type, and the variants that run on them.

The records are those of the problem file (``ramsis.placement-problem/1``), one dataclass for each
kind of object; each reads itself by the annotations of its fields. References between records are
checked in :mod:`placement_milp.consistency`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from placement_milp.partitions import PartitionTable, instance_worker
from ramsis.errors import ABOVE_ZERO, INNER, Rule, at_least
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import (
    EMPTY,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Record,
    Whole,
    record_of,
    stated,
)
from ramsis.runtime.table import MAX_WORKERS

__all__ = [
    "COLOCATIONS", "KINDS", "METRICS", "PROBLEM_FORMAT", "Colocation", "Family", "Holding",
    "Latency", "PlacementObjective", "Problem", "Rules", "ValueRow", "Values", "Variant",
    "WorkerType",
]

PROBLEM_FORMAT = "ramsis.placement-problem/1"
KINDS = ("effective-accuracy", "cheapest", "fewest-workers", "lexicographic", "max-min", "pareto")
"""Kinds of objective."""
METRICS = ("served", "effective-accuracy", "worst-family", "cost", "workers", "moving")
"""What a lexicographic objective can order: three to maximise, three to minimise."""
COLOCATIONS = ("apart", "alone", "only-on", "slow-down")
"""Kinds of co-location rules."""

_DEMAND = Rule("a finite number > 0, at most 1e12", lambda value: 0 < value <= 1e12)
"""Solvers take numbers from 1e20 on for infinite."""


@dataclass(frozen=True, slots=True)
class Family(Record):
    """An application: queries that any variant of its family can answer."""

    name: str  # unique
    demand_qps: Annotated[float, _DEMAND]  # queries per second, > 0
    slo_ms: Positive  # deadline after arrival, > 0
    weight: Positive = 1.0  # weight of a query of this family in the objective, > 0
    # minimum mean accuracy of the queries answered in time, a fraction
    min_accuracy: Fraction = 0.0
    # minimum share of the demand that is answered in time; ``None`` is 0, and 1 where the
    # objective is ``cheapest`` or ``fewest-workers``
    min_served: Fraction | None = None
    # maximum number of workers that may hold a variant of the family
    max_workers: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerType(Record):
    """Workers of one kind: number, memory, cost, and how they can be cut.

    Attributes
    ----------
    name
        Unique.
    count
        Number of workers of this type that can be used, or rented.
    memory_mb
        Memory of a worker for variants, > 0. With ``partitions`` that of the largest instance.
    cost_per_hour
        Of a worker that is used.
    latency_like, relative_speed
        Latencies that a variant does not list for this type are those listed for the type
        ``latency_like``, divided by ``relative_speed``.
    workers
        Names of the workers; without them ``NAME-1`` to ``NAME-count``.
    partitions
        Instances that a GPU of this type is cut into; ``None`` for whole workers.
    instance_ms
        Time to make an instance or to destroy one, >= 0.
    """

    name: str
    count: Annotated[int, Whole(0, MAX_WORKERS)]
    memory_mb: Positive
    cost_per_hour: NonNegative = 0.0
    latency_like: str | None = None
    relative_speed: Positive = 1.0
    workers: tuple[str, ...] = ()
    partitions: Annotated[PartitionTable | None, Reader(PartitionTable.from_field)] = None
    instance_ms: NonNegative = 0.0

    @classmethod
    def from_fields(cls, item: Fields) -> WorkerType:
        """The worker type in an entry of ``worker_types``.

        A GPU that is cut need not state a memory: it is the largest instance's.
        """
        if "partitions" in item and "memory_mb" not in item:
            partitions = PartitionTable.from_field(item, "partitions")
            largest = max(kind.memory_mb for kind in partitions.instances)
            return record_of(cls, item, memory_mb=largest, partitions=partitions)
        return record_of(cls, item)

    def check(self, item: Fields) -> None:
        """Refuse fields that mean nothing without others, and workers that are not counted."""
        if "relative_speed" in item and self.latency_like is None:
            raise item.refusal("relative_speed", "relative to nothing", value=self.relative_speed,
                               allowed="together with latency_like, the type it is relative to")
        if self.workers and len(self.workers) != self.count:
            raise item.refusal("workers", "not a name for each worker",
                               value=f"{len(self.workers)} names", allowed=f"{self.count} (count)")
        if self.partitions is None and "instance_ms" in item:
            raise item.refusal("instance_ms", "the GPU has no instances",
                               value=self.instance_ms, allowed="together with partitions")

    def worker_names(self) -> tuple[str, ...]:
        """A name for each worker."""
        return self.workers or tuple(f"{self.name}-{i + 1}" for i in range(self.count))

    def instance_types(self) -> tuple[WorkerType, ...]:
        """A worker type ``NAME/INSTANCE`` for each kind of instance; itself if it is whole.

        Their workers are all instances that there could be, not all of them at once.
        """
        if self.partitions is None:
            return (self,)
        types = []
        for kind in self.partitions.instances:
            like = None if self.latency_like is None else f"{self.latency_like}/{kind.name}"
            workers = tuple(instance_worker(gpu, kind.name, start)
                            for gpu in self.worker_names() for start in kind.starts)
            types.append(replace(
                self, name=f"{self.name}/{kind.name}", count=len(workers), workers=workers,
                memory_mb=kind.memory_mb, cost_per_hour=0.0, latency_like=like, partitions=None,
                instance_ms=0.0))
        return tuple(types)


@dataclass(frozen=True, slots=True)
class Latency(Record):
    """Time and memory of a batch of a variant on a worker type."""

    worker_type: str  # its name
    batch: Count  # queries in the batch, from 1
    latency_ms: Positive  # time of the batch, > 0
    # memory that the variant needs with this batch, of all processes together; ``None`` is the
    # variant's ``memory_mb``
    memory_mb: Positive | None = None
    # share of the worker's processors that the batch keeps busy, for the presets that divide a
    # worker by it
    compute_share: Fraction | None = None
    # occupancy, weighted_occupancy, utilisation: largest and mean achieved occupancy, and mean
    # share of the multiprocessors in use, for the presets that look at one of these; without
    # them they look at ``compute_share``
    occupancy: Fraction | None = None
    weighted_occupancy: Fraction | None = None
    utilisation: Fraction | None = None
    # processes of the variant that run such batches side by side on the worker, from 1
    processes: Count = 1
    # measured throughput of all of them; ``None`` is ``processes`` x ``batch`` / ``latency_ms``
    rate_qps: Positive | None = None

    @property
    def throughput_qps(self) -> float:
        """Queries per second of all processes, at full batches."""
        if self.rate_qps is not None:
            return self.rate_qps
        return 1000.0 * self.processes * self.batch / self.latency_ms


@dataclass(frozen=True, slots=True)
class Variant(Record):
    """A model that answers the queries of one family."""

    name: str  # unique
    family: str  # name of its family
    accuracy: Fraction  # fraction in [0, 1]
    # memory that it takes once loaded, >= 0; 0 where every listed batch is known to fit
    memory_mb: NonNegative
    load_ms: NonNegative = 0.0  # time to load it onto a worker
    # by worker type and batch; may be empty for a variant that only value tables use
    latency: Annotated[tuple[Latency, ...], EMPTY] = ()

    def check(self, item: Fields) -> None:
        """Refuse a variant that does not say whether it has latencies."""
        item.value("latency")


@dataclass(frozen=True, slots=True)
class Holding(Record):
    """Variants that a worker holds now."""

    worker: str
    variants: Annotated[tuple[str, ...], EMPTY]


@dataclass(frozen=True, slots=True)
class PlacementObjective(Record):
    """The objective of a placement problem."""

    kind: Annotated[str, KINDS] = "effective-accuracy"  # one of :data:`KINDS`
    # price of a query that is not answered in time, in accuracy
    unserved_penalty: NonNegative = 0.0
    # price of a second of loading variants that workers do not hold now, and of making and
    # destroying instances
    moving_price: NonNegative = 0.0
    # price of one unit of cost per hour, in accuracy (``effective-accuracy`` only)
    cost_price: NonNegative = 0.0
    order: tuple[str, ...] = ()  # for ``lexicographic``: :data:`METRICS`, the most important first
    points: Annotated[int, Whole(2, 1000)] = 10  # for ``pareto``: points on the front

    @classmethod
    def from_fields(cls, item: Fields) -> PlacementObjective:
        """The object ``objective``, with the parameters that its kind knows."""
        known = {"effective-accuracy": ("unserved_penalty", "cost_price"), "cheapest": (),
                 "fewest-workers": (),
                 "lexicographic": ("unserved_penalty", "order"),
                 "max-min": ("unserved_penalty",), "pareto": ("unserved_penalty", "points")}
        item.only(("kind", "moving_price", *known[item.text("kind", KINDS)]))
        return record_of(cls, item)

    def check(self, item: Fields) -> None:
        """Refuse an order of metrics that is missing, or not of metrics."""
        if self.kind == "lexicographic":
            item.value("order")
        for i, metric in enumerate(self.order):
            if metric not in METRICS:
                raise item.refusal(f"order[{i}]", "unknown or repeated metric", value=metric,
                                   allowed="each once of " + ", ".join(METRICS))


@dataclass(frozen=True, slots=True)
class Rules(Record):
    """Limits that every placement keeps."""

    # A batch may take this share of the SLO; 0.5 leaves as much time for gathering it
    latency_share_of_slo: Annotated[float, ABOVE_ZERO] = 0.5
    # maximum number of variants that share a worker, 1 or 2
    variants_per_worker: Annotated[int, Whole(1, 2)] = 1
    # factor >= 1 on the latencies of variants that share a worker
    interference: Annotated[float, at_least(1)] = 1.0
    max_workers: int | None = None  # maximum number of workers in use
    max_cost_per_hour: NonNegative | None = None  # maximum of their cost per hour
    # quantile of the response times, in (0, 1), that has to be within the SLO under Poisson
    # arrivals, instead of ``latency_share_of_slo``; ``None`` leaves queueing out
    in_time_quantile: Annotated[float, INNER] | None = None
    # with ``in_time_quantile``: share by which latencies may be longer than listed
    headroom: NonNegative = 0.05


@dataclass(frozen=True, slots=True)
class Colocation(Record):
    """A rule about what may share a worker, or where a family may run."""

    # ``apart``: no two of ``members`` on one worker. ``alone``: members share a worker with no
    # other variant. ``only-on``: members only on ``worker_types``. ``slow-down``: where any two
    # of the members share a worker, their latencies grow by ``factor`` instead of
    # ``rules.interference``.
    kind: Annotated[str, COLOCATIONS]
    members: tuple[str, ...]  # names of families or variants; a family stands for all its variants
    worker_types: tuple[str, ...] = ()  # for ``only-on``
    factor: Annotated[float, at_least(1)] = 1.0  # for ``slow-down``, >= 1

    @classmethod
    def from_fields(cls, item: Fields) -> Colocation:
        """The rule in an entry of ``colocation``, with what its kind needs."""
        more = {"only-on": ("worker_types",), "slow-down": ("factor",)}.get(
            item.text("kind", COLOCATIONS), ())
        item.only(("kind", "members", *more))
        rule = record_of(cls, item)
        for key in more:
            item.value(key)
        return rule

    def check(self, item: Fields) -> None:
        """Refuse a rule about two members that names one."""
        if self.kind in ("apart", "slow-down") and len(self.members) < 2:
            raise item.refusal("members", "too few members", value=list(self.members),
                               allowed="two or more")


@dataclass(frozen=True, slots=True)
class ValueRow(Record):
    """A row of a value table: what a policy promises for some workers at a load."""

    worker_type: str  # name of the type of all the workers
    model_set: tuple[str, ...]  # names of the models that each of them holds
    workers: Count  # how many, from 1
    load_qps: Positive  # load that they share, > 0
    slo_ms: Positive  # the deadline that the policy was made for
    expected_effective_accuracy: Fraction  # accuracy x (1 - violation rate), per query
    expected_violation_rate: Fraction  # share of the queries not answered in time

    @property
    def case(self) -> tuple[object, ...]:
        """The key of the row, unique in a table."""
        return (self.worker_type, tuple(sorted(self.model_set)), self.workers, self.load_qps,
                self.slo_ms)

    def check(self, item: Fields) -> None:
        """Refuse more accuracy than is answered in time."""
        in_time = 1.0 - self.expected_violation_rate
        if self.expected_effective_accuracy > in_time + 1e-9:
            raise item.refusal("expected_effective_accuracy", "above the share answered in time",
                               value=self.expected_effective_accuracy,
                               allowed=f"at most {in_time:g} (1 - expected_violation_rate)")


@dataclass(frozen=True, slots=True)
class Values:
    """The value table of a family."""

    family: str
    rows: tuple[ValueRow, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A placement problem; see the classes of its fields.

    ``current`` lists the workers that hold variants now, ``values`` the tables of the families
    that policies serve.
    """

    name: str
    families: tuple[Family, ...]
    worker_types: tuple[WorkerType, ...]
    variants: tuple[Variant, ...]
    objective: PlacementObjective = field(default_factory=PlacementObjective)
    rules: Rules = field(default_factory=Rules)
    current: tuple[Holding, ...] = ()
    colocation: tuple[Colocation, ...] = ()
    values: tuple[Values, ...] = ()

    @property
    def total_weighted_demand(self) -> float:
        """Σ weight x demand over the families, in queries per second."""
        return math.fsum(family.weight * family.demand_qps for family in self.families)

    @property
    def instance_types(self) -> tuple[WorkerType, ...]:
        """Return the worker types, with partitioned types replaced by their instances."""
        return tuple(kind for item in self.worker_types for kind in item.instance_types())

    @property
    def moves_count(self) -> bool:
        """Return whether the objective counts moves."""
        return self.objective.moving_price > 0.0 or "moving" in self.objective.order

    @property
    def held(self) -> dict[str, frozenset[str]]:
        """Worker → the variants that it holds now."""
        return {item.worker: frozenset(item.variants) for item in self.current}

    def family(self, name: str) -> Family:
        """The family of that name."""
        return next(item for item in self.families if item.name == name)

    def table(self, family: Family) -> tuple[ValueRow, ...] | None:
        """The rows of a family's value table for its SLO; ``None`` without a table."""
        for item in self.values:
            if item.family == family.name:
                return tuple(row for row in item.rows if math.isclose(row.slo_ms, family.slo_ms))
        return None

    def to_document(self) -> dict[str, Any]:
        """The JSON document of a problem file, value tables in it."""
        kind = {"objective": {"kind": self.objective.kind, **stated(self.objective)}}
        return {"format": PROBLEM_FORMAT, **stated(self), **kind}

    def min_share(self, family: Family) -> float:
        """Minimum share of a family's demand that is answered in time."""
        if family.min_served is not None:
            return family.min_served
        whole = self.rules.in_time_quantile or 1.0
        return whole if self.objective.kind in ("cheapest", "fewest-workers") else 0.0
