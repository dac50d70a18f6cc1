"""Clusters as the command line names them: worker types with their profiles, and SLO classes."""

from __future__ import annotations

from typing import Any

from ramsis import profiles
from ramsis.cluster import Cluster, SloClass
from ramsis.cluster.words import ByType, named_cluster

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
    return named_cluster(
        profile_names, classes, workers, ("--profiles", "--workers"),
        lambda file: profiles.load(file).with_padding(padding).with_overhead(overhead_ms))


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
