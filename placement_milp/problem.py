"""Placement problem: demand by family, workers by type, and variants that run on them.

Each kind of object in the problem file (``ramsis.placement-problem/1``) is a dataclass, which is
read by the annotations of its fields. References between records are checked in
:mod:`placement_milp.consistency`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

from placement_milp.partitions import PartitionTable, instance_worker
from ramsis.errors import ABOVE_ZERO, INNER, Rule, at_least
from ramsis.fields import Fields
from ramsis.records import (
    EMPTY,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Record,
    Whole,
    record_of,
    schema_of,
    stated,
    texts,
)
from ramsis.reprs import dataclass
from ramsis.runtime.table import MAX_WORKERS

PROBLEM_FORMAT = "ramsis.placement-problem/1"
# Kinds of objective.
KINDS = ("effective-accuracy", "cheapest", "fewest-workers", "lexicographic", "max-min", "pareto")
# Metrics that a lexicographic objective can order: three to maximise, three to minimise.
METRICS = ("served", "effective-accuracy", "worst-family", "cost", "workers", "moving")
COLOCATIONS = ("apart", "alone", "only-on", "slow-down")  # kinds of co-location rules

_DEMAND = Rule("a finite number > 0, at most 1e12", lambda value: 0 < value <= 1e12,
               bounds=(("exclusiveMinimum", 0), ("maximum", 1e12)))
"""Solvers treat numbers from 1e20 on as infinite."""
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "effective-accuracy": ("unserved_penalty", "cost_price"), "cheapest": (),
    "fewest-workers": (), "lexicographic": ("unserved_penalty", "order"),
    "max-min": ("unserved_penalty",), "pareto": ("unserved_penalty", "points"),
}
"""Of an objective, by its kind."""
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "apart": (), "alone": (), "only-on": ("worker_types",), "slow-down": ("factor",)}
"""Fields of a co-location rule, by its kind."""
_OF_SEVERAL = ("apart", "slow-down")
"""Kinds of rules about two or more members."""
_ORDER = {"type": "array", "items": {"enum": list(METRICS)}, "minItems": 1, "uniqueItems": True}


def _schema_by_kind(
    record: type[Record], kinds: Mapping[str, tuple[Sequence[str], Sequence[str]]]
) -> dict[str, Any]:
    """Return the JSON schema of a record whose other fields depend on its field ``kind``.

    ``kinds`` maps each kind to its other fields, and to the required ones.
    """
    schema = schema_of(record)
    return {"oneOf": [{
        **schema, "required": ["kind", *needed],
        "properties": {"kind": {"const": kind},
                       **{name: schema["properties"][name] for name in fields}},
    } for kind, (fields, needed) in kinds.items()]}


@dataclass(frozen=True, slots=True)
class Family(Record):
    """An application: requests that any variant of its family can answer."""

    name: Annotated[str, "Name of the family, unique."]
    demand_qps: Annotated[float, _DEMAND, "Requests per second."]
    slo_ms: Annotated[Positive, "Deadline after arrival."]
    weight: Annotated[Positive, "Weight of a request of this family in the objective."] = 1.0
    min_accuracy: Annotated[
        Fraction, "Minimum mean accuracy of the requests answered in time."] = 0.0
    min_served: Annotated[
        Fraction | None,
        "Minimum share of the demand that is answered in time; 0 if absent, and 1 where the "
        "objective is cheapest or fewest-workers.",
    ] = None
    max_workers: Annotated[
        int | None, "Maximum number of workers that may hold a variant of the family."] = None


@dataclass(frozen=True, slots=True)
class WorkerType(Record):
    """Equal workers: number, memory, cost, and the instances that a GPU can be divided into."""

    name: Annotated[str, "Name of the worker type, unique."]
    count: Annotated[
        int, Whole(0, MAX_WORKERS), "Number of workers, or the most that can be rented."]
    memory_mb: Annotated[
        Positive, "Memory of a worker for variants; with partitions, of the largest instance."]
    cost_per_hour: Annotated[NonNegative, "Cost per hour of a worker in use."] = 0.0
    latency_like: Annotated[
        str | None,
        "Another worker type, whose latencies apply where a variant lists none for this one.",
    ] = None
    relative_speed: Annotated[
        Positive, "Factor that the latencies of that type are divided by."] = 1.0
    workers: Annotated[
        tuple[str, ...], "Names, as many as count; NAME-1 to NAME-count if absent."] = ()
    partitions: Annotated[
        PartitionTable | None,
        Reader(PartitionTable.from_field, PartitionTable.field_schema()),
        "Instances that a GPU of this type is cut into; an instance is a worker of type "
        "NAME/INSTANCE, named GPU/INSTANCE@START.",
    ] = None
    instance_ms: Annotated[NonNegative, "Time to make or to destroy an instance."] = 0.0

    @classmethod
    def from_fields(cls, item: Fields) -> WorkerType:
        """Read an entry of ``worker_types``.

        The memory of a partitioned GPU may be left out: it is that of the largest instance.
        """
        if "partitions" in item and "memory_mb" not in item:
            partitions = PartitionTable.from_field(item, "partitions")
            largest = max(kind.memory_mb for kind in partitions.instances)
            return record_of(cls, item, memory_mb=largest, partitions=partitions)
        return record_of(cls, item)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, with dependencies between fields."""
        schema = schema_of(cls)
        schema["required"].remove("memory_mb")
        return {**schema, "anyOf": [{"required": ["memory_mb"]}, {"required": ["partitions"]}],
                "dependentRequired": {"relative_speed": ["latency_like"],
                                      "instance_ms": ["partitions"]}}

    def check(self, item: Fields) -> None:
        """Refuse fields that lack their companion, and a wrong number of worker names."""
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
        """Return the workers' names: those that are stated, or the type's name with a number."""
        return self.workers or tuple(f"{self.name}-{i + 1}" for i in range(self.count))

    def instance_types(self) -> tuple[WorkerType, ...]:
        """Return a type ``NAME/INSTANCE`` for each kind of instance, or the unpartitioned type.

        Its workers are all possible instances, which cannot exist all at once.
        """
        if self.partitions is None:
            return (self,)
        types = []
        for kind in self.partitions.instances:
            reference = None if self.latency_like is None else f"{self.latency_like}/{kind.name}"
            workers = tuple(instance_worker(gpu, kind.name, start)
                            for gpu in self.worker_names() for start in kind.starts)
            types.append(replace(
                self, name=f"{self.name}/{kind.name}", count=len(workers), workers=workers,
                memory_mb=kind.memory_mb, cost_per_hour=0.0, latency_like=reference,
                partitions=None, instance_ms=0.0))
        return tuple(types)


@dataclass(frozen=True, slots=True)
class Latency(Record):
    """Time and memory of a batch of a variant on a worker type."""

    worker_type: Annotated[str, "Name of the worker type."]
    batch: Annotated[Count, "Requests in the batch."]
    latency_ms: Annotated[Positive, "Service time of the batch."]
    memory_mb: Annotated[
        Positive | None, "Memory with this batch, instead of the variant's."] = None
    compute_share: Annotated[
        Fraction | None, "Share of the worker's processors that it keeps busy."] = None
    occupancy: Annotated[Fraction | None, "Largest achieved occupancy."] = None
    weighted_occupancy: Annotated[Fraction | None, "Achieved occupancy, mean over time."] = None
    utilisation: Annotated[
        Fraction | None, "Share of the multiprocessors in use, mean over time."] = None
    processes: Annotated[Count, "Processes that run such batches side by side."] = 1
    rate_qps: Annotated[
        Positive | None,
        "Measured throughput of all processes, instead of processes x batch / latency.",
    ] = None

    @property
    def throughput_qps(self) -> float:
        """Requests per second of all processes, at full batches."""
        if self.rate_qps is not None:
            return self.rate_qps
        return 1000.0 * self.processes * self.batch / self.latency_ms


@dataclass(frozen=True, slots=True)
class Variant(Record):
    """A model that answers the requests of one family."""

    name: Annotated[str, "Name of the variant, unique."]
    family: Annotated[str, "Name of the family that the variant belongs to."]
    accuracy: Fraction
    memory_mb: Annotated[
        NonNegative, "Memory once loaded; 0 where every listed batch is known to fit."]
    load_ms: Annotated[NonNegative, "Time to load the variant onto a worker."] = 0.0
    latency: Annotated[
        tuple[Latency, ...], EMPTY,
        "Latencies by worker type and batch; may be empty if only value tables use the variant.",
    ] = ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema; the field ``latency`` is required."""
        schema = schema_of(cls)
        return {**schema, "required": [*schema["required"], "latency"]}

    def check(self, item: Fields) -> None:
        """Refuse a variant without the field ``latency``, which may be an empty list."""
        item.value("latency")


@dataclass(frozen=True, slots=True)
class Holding(Record):
    """Variants that a worker holds now."""

    worker: str
    variants: Annotated[tuple[str, ...], EMPTY]


@dataclass(frozen=True, slots=True)
class PlacementObjective(Record):
    """Objective of a placement problem: its kind, and prices and penalties."""

    kind: Annotated[str, KINDS] = "effective-accuracy"
    unserved_penalty: Annotated[
        NonNegative, "Price of a request not answered in time, in accuracy."] = 0.0
    moving_price: Annotated[
        NonNegative,
        "Price of a second of loading, and of making and destroying instances.",
    ] = 0.0
    cost_price: Annotated[NonNegative, "Price of one unit of cost per hour, in accuracy."] = 0.0
    order: Annotated[
        tuple[str, ...], Reader(texts, _ORDER),
        "For lexicographic: the most important metric first.",
    ] = ()
    points: Annotated[int, Whole(2, 1000), "Number of points on the front; for pareto only."] = 10

    @classmethod
    def from_fields(cls, item: Fields) -> PlacementObjective:
        """Read the object ``objective``, with the parameters of its kind."""
        item.only(("kind", "moving_price", *_PARAMETERS[item.text("kind", KINDS)]))
        return record_of(cls, item)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of each kind."""
        return _schema_by_kind(cls, {
            kind: (("moving_price", *names), ("order",) if "order" in names else ())
            for kind, names in _PARAMETERS.items()})

    def check(self, item: Fields) -> None:
        """Refuse an order of metrics that is missing or unknown."""
        if self.kind == "lexicographic":
            item.value("order")
        for i, metric in enumerate(self.order):
            if metric not in METRICS:
                raise item.refusal(f"order[{i}]", "unknown or repeated metric", value=metric,
                                   allowed="each once of " + ", ".join(METRICS))


@dataclass(frozen=True, slots=True)
class Rules(Record):
    """Limits on every placement."""

    latency_share_of_slo: Annotated[
        float, ABOVE_ZERO,
        "Share of the SLO that a batch may take; the rest is for gathering it.",
    ] = 0.5
    variants_per_worker: Annotated[
        int, Whole(1, 2), "Largest number of variants that share a worker."] = 1
    interference: Annotated[
        float, at_least(1), "Factor on the latencies of variants that share a worker."] = 1.0
    max_workers: Annotated[int | None, "Maximum number of workers in use."] = None
    max_cost_per_hour: Annotated[
        NonNegative | None, "Maximum cost per hour of the workers in use."] = None
    in_time_quantile: Annotated[
        Annotated[float, INNER] | None,
        "Quantile of the response times that has to be within the SLO under Poisson arrivals, "
        "instead of latency_share_of_slo.",
    ] = None
    headroom: Annotated[
        NonNegative, "With in_time_quantile: share by which latencies may be longer."] = 0.05


@dataclass(frozen=True, slots=True)
class Colocation(Record):
    """Co-location rule: variants that may not share a worker, or the types that may run them."""

    kind: Annotated[
        str, COLOCATIONS,
        "apart: no two of the members on one worker; alone: members share a worker with no other "
        "variant; only-on: members only on these worker types; slow-down: where any two of the "
        "members share a worker, their latencies grow by the factor instead of "
        "rules.interference.",
    ]
    members: Annotated[
        tuple[str, ...], "Names of families or variants; a family stands for all its variants."]
    worker_types: Annotated[tuple[str, ...], "Worker types allowed; for only-on."] = ()
    factor: Annotated[float, at_least(1), "Factor on the latencies; for slow-down."] = 1.0

    @classmethod
    def from_fields(cls, item: Fields) -> Colocation:
        """Read an entry of ``colocation``, with the fields of its kind."""
        more = _NEEDED[item.text("kind", COLOCATIONS)]
        item.only(("kind", "members", *more))
        rule = record_of(cls, item)
        for key in more:
            item.value(key)
        return rule

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of each kind."""
        schema = _schema_by_kind(cls, {
            kind: (("members", *more), ("members", *more)) for kind, more in _NEEDED.items()})
        for kind in schema["oneOf"]:
            if kind["properties"]["kind"]["const"] in _OF_SEVERAL:
                kind["properties"]["members"] = {**kind["properties"]["members"], "minItems": 2}
        return schema

    def check(self, item: Fields) -> None:
        """Refuse a rule with too few members."""
        if self.kind in _OF_SEVERAL and len(self.members) < 2:
            raise item.refusal("members", "too few members", value=list(self.members),
                               allowed="two or more")


@dataclass(frozen=True, slots=True)
class ValueRow(Record):
    """A row of a value table: the promise of a policy for some workers at a load."""

    worker_type: Annotated[str, "Name of the type of all the workers."]
    model_set: Annotated[tuple[str, ...], "Models that each of the workers holds."]
    workers: Annotated[Count, "Number of such workers."]
    load_qps: Annotated[Positive, "Load that the workers share."]
    slo_ms: Annotated[Positive, "Deadline that the policy was made for."]
    expected_effective_accuracy: Annotated[Fraction, "Accuracy x (1 - violation rate)."]
    expected_violation_rate: Annotated[Fraction, "Share of the requests not answered in time."]

    @property
    def case(self) -> tuple[object, ...]:
        """The key of the row, unique in a table."""
        return (self.worker_type, tuple(sorted(self.model_set)), self.workers, self.load_qps,
                self.slo_ms)

    def check(self, item: Fields) -> None:
        """Refuse an effective accuracy above the share answered in time."""
        in_time = 1.0 - self.expected_violation_rate
        if self.expected_effective_accuracy > in_time + 1e-9:
            raise item.refusal("expected_effective_accuracy", "above the share answered in time",
                               value=self.expected_effective_accuracy,
                               allowed=f"at most {in_time:g} (1 - expected_violation_rate)")


@dataclass(frozen=True, slots=True)
class Values(Record):
    """The value table of a family that policies serve."""

    family: str
    rows: tuple[ValueRow, ...]

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema: the table itself, or the file that holds it."""
        return {"oneOf": [schema_of(ValuesFile), schema_of(cls)]}


@dataclass(frozen=True, slots=True)
class ValuesFile(Record):
    """The file of a value table of a family that policies serve."""

    family: str
    file: Annotated[str, "Path of a ramsis.value-table/1, relative to this file."]


@dataclass(frozen=True, slots=True)
class ProfileFile(Record):
    """Batches of models on instances, added to variants of the same names."""

    worker_type: Annotated[
        str, "Worker type with partitions, or an instance of it (TYPE/INSTANCE)."]
    file: Annotated[
        str,
        "Beside this file: a CSV profile of instances; for one instance a profile that was "
        "measured on it.",
    ]
    gpu_type: Annotated[str | None, "GPU model whose rows are read; null for all."] = None
    max_processes: Annotated[Count | None, "Rows with more processes are left out."] = None


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """Placement problem: families with their demand, worker types, variants and rules.

    Readers also check that names are unique and exist, that a variant has one entry for each type
    and batch, a value table a row for its family's SLO, and that a minimised cost is stated.
    """

    FORMAT: ClassVar[str] = PROBLEM_FORMAT

    name: str
    families: tuple[Family, ...]
    worker_types: tuple[WorkerType, ...]
    variants: Annotated[tuple[Variant, ...], EMPTY]
    objective: PlacementObjective = field(default_factory=PlacementObjective)
    rules: Rules = field(default_factory=Rules)
    current: Annotated[tuple[Holding, ...], EMPTY, "Variants that the workers hold now."] = ()
    colocation: Annotated[tuple[Colocation, ...], EMPTY] = ()
    values: Annotated[tuple[Values, ...], EMPTY] = ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema; a file states an objective, and variants or profiles."""
        schema = schema_of(cls)
        needed = [*schema["required"], "objective"]
        needed.remove("variants")
        profiles = {"type": "array", "items": schema_of(ProfileFile), "minItems": 1}
        return {**schema, "required": needed,
                "properties": {**schema["properties"], "profiles": profiles},
                "anyOf": [{"required": ["variants"]}, {"required": ["profiles"]}]}

    @property
    def instance_types(self) -> tuple[WorkerType, ...]:
        """Worker types, with partitioned types replaced by their instances."""
        return tuple(kind for item in self.worker_types for kind in item.instance_types())

    @property
    def moves_count(self) -> bool:
        """Whether the objective has a price or a stage of loading variants onto workers."""
        return self.objective.moving_price > 0.0 or "moving" in self.objective.order

    @property
    def held(self) -> dict[str, frozenset[str]]:
        """Variants that each worker holds now, by the worker's name."""
        return {item.worker: frozenset(item.variants) for item in self.current}

    def family(self, name: str) -> Family:
        """Return the family with a name."""
        return next(item for item in self.families if item.name == name)

    def table(self, family: Family) -> tuple[ValueRow, ...] | None:
        """Return the rows of a family's value table for its SLO; None without a table."""
        for item in self.values:
            if item.family == family.name:
                return tuple(row for row in item.rows if math.isclose(row.slo_ms, family.slo_ms))
        return None

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of a problem file, with its value tables."""
        kind = {"objective": {"kind": self.objective.kind, **stated(self.objective)}}
        return {"format": PROBLEM_FORMAT, **stated(self), **kind}

    def min_share(self, family: Family) -> float:
        """Return the minimum share of a family's demand that is answered in time."""
        if family.min_served is not None:
            return family.min_served
        in_time = self.rules.in_time_quantile or 1.0
        return in_time if self.objective.kind in ("cheapest", "fewest-workers") else 0.0
