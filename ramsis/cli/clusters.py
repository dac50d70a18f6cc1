"""Clusters as the command line names them: worker types with their profiles, and SLO classes."""

from __future__ import annotations

from typing import Any

from ramsis import profiles
from ramsis.cli.params import ByType
from ramsis.cluster import Cluster, SloClass, WorkerType, merged_classes
from ramsis.errors import InvalidValueError, describe

__all__ = ["cluster_of", "cluster_terms", "cluster_terms_if_several"]


def cluster_of(
    profile_names: ByType[str], classes: tuple[SloClass, ...], workers: ByType[int],
    overhead_ms: float = 0.0, padding: bool = True,
) -> Cluster:
    """The cluster that the options name, its profiles read, with overhead, padded or not.

    Raises
    ------
    InvalidValueError
        A type without workers or without a profile, shares that do not sum to 1, or an overhead
        below 0.
    InputFileError
        A profile that cannot be read.
    """
    files = profile_names.values
    if profile_names.typed and not workers.typed:
        raise InvalidValueError(describe("worker types have profiles but no numbers",
                                         where="--workers", value=workers.text,
                                         allowed=",".join(f"{name}=N" for name in files)))
    if profile_names.typed:
        for name in files:
            if name not in workers.values:
                raise InvalidValueError(describe("unknown worker type", where="--profiles",
                                                 value=name, allowed=", ".join(workers.values)))
        for name in workers.values:
            if name not in files:
                raise InvalidValueError(describe("unknown worker type: it has no profile",
                                                 where="--workers", value=name,
                                                 allowed=", ".join(files)))
    classes = merged_classes(classes)
    read = {file: profiles.load(file).with_padding(padding).with_overhead(overhead_ms)
            for file in files.values()}
    types = tuple(
        WorkerType(name, read[files[name] if profile_names.typed else profile_names.one], count)
        for name, count in workers.values.items())
    return Cluster(types, classes)


def cluster_terms(cluster: Cluster) -> dict[str, Any]:
    """What rows say of a cluster."""
    return {
        "workers": cluster.workers, "slo_ms": cluster.slo_ms,
        "worker_types": {one.name: one.count for one in cluster.worker_types},
        "slo_classes": [{"slo_ms": one.slo_ms, "share": one.share} for one in cluster.classes],
    }


def cluster_terms_if_several(cluster: Cluster) -> dict[str, Any]:
    """The same, without types and classes where the cluster is simple."""
    terms = cluster_terms(cluster)
    if cluster.simple:
        return {name: terms[name] for name in ("workers", "slo_ms")}
    return terms
