"""Data model of GPU sharing: models, GPUs, replicas, network times and the router's settings.

Source: P. Elvinger, ETH Zurich, MSc thesis, 2024, sections 4.3 and 4.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ramsis.errors import (
    NON_NEGATIVE,
    InputFileError,
    check_not_negative,
    check_positive,
)
from ramsis.studies.sharing.gpu.profile import SharedBatch, between

__all__ = ["Gpu", "NetworkTime", "Replica", "RouterSettings", "SharedModel"]


@dataclass(frozen=True)
class SharedModel:
    """Model with its load, SLO and profiled batches."""

    name: str  # unique
    rate_rps: float  # arrival rate in requests per second, > 0
    slo_ms: float  # deadline after arrival, > 0
    # GPU type → batches there, by batch size; missing ones do not fit
    batches: Mapping[str, tuple[SharedBatch, ...]]

    def __post_init__(self) -> None:
        check_positive(inside=f"{self.name}: ", error=InputFileError, rate_rps=self.rate_rps,
                       slo_ms=self.slo_ms)

    def batch(self, gpu_type: str, batch: int) -> SharedBatch | None:
        """Return the profile of a batch size, interpolated linearly; None if it does not fit."""
        return between(self.batches.get(gpu_type, ()), batch)

    def slower(self, factor: float) -> SharedModel:
        """Return the model with all latencies multiplied by a factor."""
        return self if factor == 1 else replace(self, batches={
            kind: tuple(replace(row, latency_ms=factor * row.latency_ms) for row in rows)
            for kind, rows in self.batches.items()})

    def in_time(self, gpu_type: str) -> tuple[SharedBatch, ...]:
        """Return the measured batches with a latency of at most the SLO."""
        return tuple(b for b in self.batches.get(gpu_type, ()) if b.latency_ms <= self.slo_ms)


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPU of a cluster; ``gpu_type`` is one of the profile's."""

    name: str
    gpu_type: str = "gpu"


@dataclass(frozen=True, slots=True)
class Replica:
    """Replica of a model on a GPU, with its batch size and share."""

    # model, gpu: names
    model: str
    gpu: str
    batch: int  # requests that the router gathers for it, from 1
    # share of the multiprocessors that it is limited to; ``None`` is no limit
    mps_share: float | None = None


@dataclass(frozen=True)
class NetworkTime:
    """Time of a batch from the router to a GPU: a x^b + c ms for x bytes.

    The thesis fits three ranges, from 1 kB, 1 MB and 100 MB. It shows them in a plot only, and
    prints one time, of the second.
    """

    bytes_per_request: float = 602112.0  # >= 0
    # a, b, c, >= 0. The defaults are a line from the printed round trip, 0.322 ms, through the
    # printed time, 8.7 ms for 9,633,792 bytes.
    a: float = (8.7 - 0.322) / 9633792.0
    b: float = 1.0
    c: float = 0.322
    # (bytes, a, b, c): coefficients for larger sizes from ``bytes`` on, sorted
    ranges: tuple[tuple[float, float, float, float], ...] = ()

    def __post_init__(self) -> None:
        for coefficients in ((self.bytes_per_request, self.a, self.b, self.c), *self.ranges):
            for name, value in zip(("bytes", "a", "b", "c"), coefficients, strict=True):
                NON_NEGATIVE.required(f"network: {name}", value, "negative coefficient",
                                      InputFileError)

    def ms(self, size: int) -> float:
        """Return the network time of a batch of ``size`` requests."""
        sent = self.bytes_per_request * size
        a, b, c = self.a, self.b, self.c
        for start, *coefficients in self.ranges:
            if sent >= start:
                a, b, c = coefficients
        return float(a * sent**b + c)


@dataclass(frozen=True)
class RouterSettings:
    """Settings of the router, which gathers one batch per model and uses replicas in turn."""

    waiting_ms: float = 100.0  # time after which an incomplete batch is sent, > 0
    # whether the waiting time is checked only at the model's next arrival and at the end
    lazy: bool = False
    network: NetworkTime = NetworkTime()  # of models without an entry in ``networks``
    networks: Mapping[str, NetworkTime] = field(default_factory=dict)  # model → its network time
    copy_ms: float = 0.0  # copy time of a request to the GPU; part of the batch's latency, >= 0
    # whether the copies of a batch overlap with the preceding batch (separate CUDA stream)
    overlaps: bool = False
    # largest number of batches in transit, at which the router stops taking requests; None is no
    # limit, as the planner and the bound assume
    coroutines: int | None = None

    def __post_init__(self) -> None:
        check_not_negative("negative coefficient", error=InputFileError, copy_ms=self.copy_ms)
        if self.coroutines is not None and self.coroutines < 1:
            raise InputFileError("not a number of coroutines", where="coroutines",
                                 value=self.coroutines, allowed="a whole number from 1")
        check_positive(error=InputFileError, waiting_ms=self.waiting_ms)

    def network_of(self, model: str) -> NetworkTime:
        """Return the network time of a model."""
        return self.networks.get(model, self.network)

    def copies_ms(self, size: int) -> float:
        """Return the copy time of a batch that overlaps with the preceding batch."""
        return self.copy_ms * size if self.overlaps else 0.0
