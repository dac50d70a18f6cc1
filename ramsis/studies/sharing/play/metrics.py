"""Figures of a simulated plan: goodput, latency by segment, headroom, fairness.

The latency of a request has three segments: *router to node*, from its arrival to its batch's
arrival at the GPU (batching and network); *node to worker*, its batch's wait for the replica; and
*processing*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.sim.metrics import jain_index
from ramsis.studies.sharing.play.play import Played
from ramsis.studies.sharing.play.router import Placed


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Simulated figures of the requests of one model."""

    name: str  # of the model
    # arrival rate as planned, and as drawn, in requests per second
    target_rps: float
    achieved_rps: float
    in_time: float  # share of the requests answered in time
    # part of the target that is in time, and answers per second from the first arrival to the
    # last answer
    goodput_rps: float
    throughput_rps: float
    # 95th percentiles over the answered requests; None if there are none
    router_to_node_p95_ms: float | None
    node_to_worker_p95_ms: float | None
    processing_p95_ms: float | None
    response_p95_ms: float | None


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """Simulated figures of one replica of a sharing plan."""

    # model, gpu, batch: the replica
    model: str
    gpu: str
    batch: int
    share_of_requests: float  # its part of the model's requests
    # mean size of its batches, and share of full ones
    mean_batch: float
    full_share: float
    arrivals_rps: float  # rate of the requests sent to it
    # capacity by the times of its full batches, or of all batches if none was full
    capacity_rps: float
    headroom: float  # 1 - arrivals / capacity; below 0 it is overloaded


@dataclass(frozen=True, slots=True)
class SharingFigures:
    """Simulated figures of a sharing plan, over all models and by replica."""

    # models, replicas: one entry each
    models: tuple[ModelFigures, ...]
    replicas: tuple[ReplicaFigures, ...]
    # goodput_rps, throughput_rps: of all models
    goodput_rps: float
    throughput_rps: float
    # Jain's index of the models' shares in time: 1 if equal, 1 / models if only one is served
    fairness: float
    smallest_share: float  # the smallest share in time of a model


def measure_sharing(played: Played) -> SharingFigures:
    """Compute the figures of a simulated sharing plan."""
    models = tuple(_model(played, m) for m in range(len(played.cluster.models)))
    shares = np.array([model.in_time for model in models])
    return SharingFigures(
        models, _replicas(played), sum(model.goodput_rps for model in models),
        sum(model.throughput_rps for model in models),
        jain_index(shares), float(shares.min()))


def _model(played: Played, m: int) -> ModelFigures:
    """Return the figures of model ``m``: goodput, and p95 of the segments of its latency."""
    run, model = played.run, played.cluster.models[m]
    is_own = run.asked == m
    answered = np.flatnonzero(is_own & run.answered)
    batch = run.batch_of[answered]
    at_gpu = np.full(len(run.size), np.nan)
    at_gpu[[sent.batch for sent in played.sent]] = [sent.at_gpu_ms for sent in played.sent]
    requested = int(is_own.sum())
    share = float(run.in_time[is_own].sum()) / requested if requested else 1.0
    first = float(run.arrival_ms[is_own].min()) if requested else 0.0
    last = float(run.answered_ms[answered].max()) if len(answered) else first
    return ModelFigures(
        model.name, model.rate_rps, requested / played.cluster.duration_s, share,
        share * model.rate_rps, 1000 * len(answered) / (last - first) if last > first else 0.0,
        _p95(at_gpu[batch] - run.arrival_ms[answered]), _p95(run.start_ms[batch] - at_gpu[batch]),
        _p95(run.finish_ms[batch] - run.start_ms[batch]), _p95(run.response_ms[answered]))


def _p95(values: FloatArray) -> float | None:
    return float(np.quantile(values, 0.95)) if len(values) else None


def _replicas(played: Played) -> tuple[ReplicaFigures, ...]:
    """Return the figures of each replica; its capacity is measured in full batches if any ran."""
    run, cluster = played.run, played.cluster
    total = np.bincount(run.asked, minlength=len(cluster.models))
    by_replica: dict[Placed, list[int]] = {}
    for sent in played.sent:
        by_replica.setdefault(sent.replica, []).append(sent.batch)
    figures = []
    for placed, numbers in by_replica.items():
        sizes = run.size[numbers]
        took_ms = run.finish_ms[numbers] - run.start_ms[numbers]
        full = sizes == placed.batch
        counted = full if full.any() else np.ones(len(sizes), dtype=bool)
        capacity = 1000 * float(sizes[counted].sum() / took_ms[counted].sum())
        arrivals = float(sizes.sum()) / cluster.duration_s
        figures.append(ReplicaFigures(
            cluster.models[placed.model].name,
            cluster.gpus[placed.worker].name, placed.batch,
            float(sizes.sum()) / max(1, int(total[placed.model])),
            float(sizes.mean()), float(full.mean()), arrivals, capacity,
            1 - arrivals / capacity))
    return tuple(figures)
