"""Simulation of a placement file whose variants share GPUs, on the cluster engine."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from placement_milp import read_placement
from ramsis.errors import InputFileError
from ramsis.studies.sharing.bound import goodput_bound_rps
from ramsis.studies.sharing.gpu.interference import THESIS, Interference
from ramsis.studies.sharing.gpu.shared_gpu import Replica
from ramsis.studies.sharing.plan import check_replicas
from ramsis.studies.sharing.play import SharedCluster, measure_sharing, play
from ramsis.studies.sharing.presets.policies import models_of_problem

__all__ = ["cluster_of_placement", "play_placement"]

_MEANS = ("achieved_rps", "in_time", "goodput_rps", "throughput_rps", "router_to_node_p95_ms",
          "node_to_worker_p95_ms", "processing_p95_ms", "response_p95_ms")


def cluster_of_placement(
    path: str | os.PathLike[str], *, interference: Interference = THESIS,
    duration_s: float = 8.0,
) -> tuple[SharedCluster, tuple[Replica, ...]]:
    """Read the cluster of a placement file, and its replicas."""
    placed = read_placement(path)
    replicas = []
    for group in placed.groups:
        for use in group.uses:
            if use.batch is None:
                raise InputFileError(
                    "a worker follows a policy", where=str(path), value=group.workers[0],
                    allowed="uses with a batch; `ramsis simulate --placement` plays policies")
            replicas += [Replica(use.family, worker, use.batch, use.mps_share)
                         for worker in group.workers]
    models, gpus = models_of_problem(placed.problem, "utilisation")
    check_replicas(models, gpus, replicas)
    return SharedCluster(models, gpus, interference=interference,
                         duration_s=duration_s), tuple(replicas)


def play_placement(
    path: str | os.PathLike[str], seeds: Sequence[int], *, interference: Interference = THESIS,
    duration_s: float = 8.0, on_run: Callable[[], None] = lambda: None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Simulate a placement: rows of figures, one for each family, and figures of all.

    Parameters
    ----------
    path : path
        ``ramsis.placement/1``, with a batch in every use.
    seeds : sequence of int
        Seeds, a run for each.
    duration_s : float
        Duration of the arrivals.
    on_run : callable
        Called after each run.

    Returns
    -------
    list of dict
        Means over the runs: rates, share in time, 95th percentiles of the segments.
    dict
        ``goodput_rps``, ``bound_rps``, ``fairness``, ``smallest_share``.
    """
    cluster, replicas = cluster_of_placement(path, interference=interference,
                                             duration_s=duration_s)
    figures = []
    for seed in seeds:
        figures.append(measure_sharing(play(cluster, replicas, seed)))
        on_run()
    rows = []
    for m, model in enumerate(cluster.models):
        row: dict[str, Any] = {"family": model.name, "target_rps": model.rate_rps,
                               "slo_ms": model.slo_ms}
        for key in _MEANS:
            values = [value for figure in figures
                      if (value := getattr(figure.models[m], key)) is not None]
            row[key] = statistics.fmean(values) if values else None
        rows.append(row)
    total = {key: statistics.fmean(getattr(figure, key) for figure in figures)
             for key in ("goodput_rps", "fairness", "smallest_share")}
    total["bound_rps"] = goodput_bound_rps(cluster.models, cluster.gpus, interference,
                                           duration_s=duration_s, router=cluster.router)
    return rows, total
