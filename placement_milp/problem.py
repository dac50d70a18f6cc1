"""The placement problem: demand by family, workers by type, and the variants that run on them.

The records are those of the problem file (``ramsis.placement-problem/1``), one dataclass for each
kind of object; each reads itself from the fields of a JSON object. Ranges are checked as a field
is read, references between records in :mod:`placement_milp.consistency`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from placement_milp.rules import COLOCATIONS, KINDS, METRICS, Colocation, Objective, Rules
from placement_milp.values import ValueRow, Values
from ramsis.runtime.fields import FRACTION, NON_NEGATIVE, POSITIVE, Fields
from ramsis.runtime.records import default, names, stated, texts

__all__ = [
    "COLOCATIONS", "KINDS", "METRICS", "PROBLEM_FORMAT", "Colocation", "Family", "Holding",
    "Latency", "Objective", "Problem", "Rules", "ValueRow", "Values", "Variant", "WorkerType",
]

PROBLEM_FORMAT = "ramsis.placement-problem/1"


@dataclass(frozen=True, slots=True)
class Family:
    """An application: queries that any variant of its family can answer.

    Attributes
    ----------
    name
        Unique.
    demand_qps
        Queries per second, > 0.
    slo_ms
        Deadline after arrival, > 0.
    weight
        Weight of a query of this family in the objective, > 0.
    min_accuracy
        Minimum mean accuracy of the queries answered in time, a fraction.
    min_served
        Minimum share of the demand that is answered in time; ``None`` is 0, and 1 where the
        objective is ``cheapest``.
    max_workers
        Maximum number of workers that may hold a variant of the family.
    """

    name: str
    demand_qps: float
    slo_ms: float
    weight: float = 1.0
    min_accuracy: float = 0.0
    min_served: float | None = None
    max_workers: int | None = None

    @classmethod
    def from_fields(cls, item: Fields) -> Family:
        """The family in an entry of ``families``."""
        item.only(names(cls))
        return cls(
            item.text("name"), item.number("demand_qps", POSITIVE),
            item.number("slo_ms", POSITIVE), default(item.number_or_none("weight", POSITIVE), 1.0),
            default(item.number_or_none("min_accuracy", FRACTION), 0.0),
            item.number_or_none("min_served", FRACTION), item.whole_or_none("max_workers", 0),
        )


@dataclass(frozen=True, slots=True)
class WorkerType:
    """Like workers.

    Attributes
    ----------
    name
        Unique.
    count
        Number of workers of this type that can be used, or rented.
    memory_mb
        Memory of a worker for variants, > 0.
    cost_per_hour
        Of a worker that is used.
    latency_like, relative_speed
        Latencies that a variant does not list for this type are those listed for the type
        ``latency_like``, divided by ``relative_speed``.
    workers
        Names of the workers; without them ``NAME-1`` to ``NAME-count``.
    """

    name: str
    count: int
    memory_mb: float
    cost_per_hour: float = 0.0
    latency_like: str | None = None
    relative_speed: float = 1.0
    workers: tuple[str, ...] = ()

    @classmethod
    def from_fields(cls, item: Fields) -> WorkerType:
        """The worker type in an entry of ``worker_types``."""
        item.only(names(cls))
        like = item.text("latency_like") if "latency_like" in item else None
        speed = item.number_or_none("relative_speed", POSITIVE)
        if speed is not None and like is None:
            raise item.refusal("relative_speed", "relative to nothing", value=speed,
                               allowed="together with latency_like, the type it is relative to")
        count = item.whole("count", 0)
        workers = texts(item, "workers") if "workers" in item else ()
        if workers and len(workers) != count:
            raise item.refusal("workers", "not a name for each worker",
                               value=f"{len(workers)} names", allowed=f"{count} (count)")
        return cls(item.text("name"), count, item.number("memory_mb", POSITIVE),
                   default(item.number_or_none("cost_per_hour", NON_NEGATIVE), 0.0),
                   like, default(speed, 1.0), workers)

    def worker_names(self) -> tuple[str, ...]:
        """A name for each worker."""
        return self.workers or tuple(f"{self.name}-{i + 1}" for i in range(self.count))


@dataclass(frozen=True, slots=True)
class Latency:
    """Time and memory of a batch of a variant on a worker type.

    Attributes
    ----------
    worker_type
        Its name.
    batch
        Queries in the batch, from 1.
    latency_ms
        Time of the batch, > 0.
    memory_mb
        Memory that the variant needs with this batch; ``None`` is the variant's ``memory_mb``.
    compute_share
        Share of the worker's processors that the batch keeps busy, for the presets that divide
        a worker by it.
    occupancy, weighted_occupancy, utilisation
        Largest and mean achieved occupancy, and mean share of the multiprocessors in use, for the
        presets that look at one of these; without them they look at ``compute_share``.
    """

    worker_type: str
    batch: int
    latency_ms: float
    memory_mb: float | None = None
    compute_share: float | None = None
    occupancy: float | None = None
    weighted_occupancy: float | None = None
    utilisation: float | None = None

    @classmethod
    def from_fields(cls, item: Fields) -> Latency:
        """The latency in an entry of ``variants[i].latency``."""
        item.only(names(cls))
        return cls(item.text("worker_type"), item.whole("batch", 1),
                   item.number("latency_ms", POSITIVE), item.number_or_none("memory_mb", POSITIVE),
                   *(item.number_or_none(name, FRACTION) for name in (
                       "compute_share", "occupancy", "weighted_occupancy", "utilisation")))


@dataclass(frozen=True, slots=True)
class Variant:
    """A model that answers the queries of one family.

    Attributes
    ----------
    name
        Unique.
    family
        Name of its family.
    accuracy
        Fraction in [0, 1].
    memory_mb
        Memory that it takes once loaded, > 0.
    load_ms
        Time to load it onto a worker.
    latency
        By worker type and batch; may be empty for a variant that only value tables use.
    """

    name: str
    family: str
    accuracy: float
    memory_mb: float
    load_ms: float = 0.0
    latency: tuple[Latency, ...] = ()

    @classmethod
    def from_fields(cls, item: Fields) -> Variant:
        """The variant in an entry of ``variants``."""
        item.only(names(cls))
        entries = item.children("latency") if item.value("latency") != [] else []
        return cls(item.text("name"), item.text("family"), item.number("accuracy", FRACTION),
                   item.number("memory_mb", POSITIVE),
                   default(item.number_or_none("load_ms", NON_NEGATIVE), 0.0),
                   tuple(Latency.from_fields(entry) for entry in entries))


@dataclass(frozen=True, slots=True)
class Holding:
    """What a worker holds now."""

    worker: str
    variants: tuple[str, ...]

    @classmethod
    def from_fields(cls, item: Fields) -> Holding:
        """The worker in an entry of ``current``."""
        item.only(names(cls))
        empty = item.value("variants") == []
        return cls(item.text("worker"), () if empty else texts(item, "variants"))


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
    objective: Objective = field(default_factory=Objective)
    rules: Rules = field(default_factory=Rules)
    current: tuple[Holding, ...] = ()
    colocation: tuple[Colocation, ...] = ()
    values: tuple[Values, ...] = ()

    @property
    def total_weighted_demand(self) -> float:
        """Σ weight x demand over the families, in queries per second."""
        return math.fsum(family.weight * family.demand_qps for family in self.families)

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
        return 1.0 if self.objective.kind == "cheapest" else 0.0
