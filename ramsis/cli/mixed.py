"""Mixed fleets as the command line names them: worker types and SLO classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ramsis.bounds import fluid_bound
from ramsis.cli.clusters import cluster_of
from ramsis.cli.params import ByType
from ramsis.cli.rows import Column, print_json, print_rows
from ramsis.cluster import SloClass, WorkerType

__all__ = ["MixedFleet", "OneFleet", "bound_mixed", "fleet_of"]

_BOUND = (
    Column("load_qps", "load (QPS)", "g"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("served_fraction", "served", ".2%"),
    Column("types", "share of each type (one more worker)"),
    Column("classes", "effective acc. of each class"),
)


@dataclass(frozen=True)
class OneFleet:
    """Workers that are alike and one SLO."""

    slo_ms: float
    workers: int


@dataclass(frozen=True, eq=False)
class MixedFleet:
    """Worker types, and SLO classes by rising SLO."""

    types: tuple[WorkerType, ...]
    classes: tuple[SloClass, ...]

    @property
    def workers(self) -> int:
        """Of all types."""
        return sum(one.count or 0 for one in self.types)

    @property
    def slo_ms(self) -> float:
        """The longest."""
        return self.classes[-1].slo_ms

    def terms(self) -> dict[str, Any]:
        """What rows say of the fleet."""
        return {
            "workers": self.workers, "slo_ms": self.slo_ms,
            "worker_types": {one.name: one.count for one in self.types},
            "slo_classes": [{"slo_ms": one.slo_ms, "share": one.share} for one in self.classes],
        }


def fleet_of(
    profile_names: ByType[str], classes: tuple[SloClass, ...], workers: ByType[int]
) -> OneFleet | MixedFleet:
    """The fleet that the options name, its profiles read if it is mixed.

    Raises
    ------
    InvalidValueError
        A type without workers or without a profile, or shares that do not sum to 1.
    """
    if not (workers.typed or profile_names.typed) and classes == (SloClass(classes[0].slo_ms),):
        return OneFleet(classes[0].slo_ms, workers.one)
    cluster = cluster_of(profile_names, classes, workers)
    return MixedFleet(cluster.worker_types, cluster.classes)


def bound_mixed(
    fleet: MixedFleet, loads: tuple[float, ...], *, service: str, max_batch: int, as_json: bool
) -> None:
    """Bound the effective accuracy of every scheme on a mixed fleet."""
    times = [one.service_times(service, max_batch) for one in fleet.types]
    workers = [one.count or 0 for one in fleet.types]
    rows: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    for load_qps in loads:
        found = fluid_bound(times, slo_ms=fleet.classes, workers=workers, load_qps=load_qps,
                            max_batch=max_batch)
        of_type = [{"type": one.name, "share": float(taken), "worker_price": float(price)}
                   for one, taken, price in zip(fleet.types, found.type_share.sum(axis=1),
                                                found.worker_price, strict=True)]
        of_class = [{"slo_ms": one.slo_ms, "effective_accuracy": float(accuracy),
                     "served_fraction": float(served)}
                    for one, accuracy, served in zip(fleet.classes, found.class_accuracy,
                                                     found.class_served, strict=True)]
        rows.append({**fleet.terms(), "load_qps": load_qps,
                     "upper_bound": found.effective_accuracy,
                     "served_fraction": found.served_fraction,
                     "types": of_type, "classes": of_class})
        words.append({
            **rows[-1],
            "types": ", ".join(f"{one['type']} {one['share']:.1%} ({one['worker_price']:+.5f})"
                               for one in of_type),
            "classes": ", ".join(f"{one['slo_ms']:g} ms {one['effective_accuracy']:.4f}"
                                 for one in of_class),
        })
    if as_json:
        print_json(rows)
    else:
        print_rows(_BOUND, words)
