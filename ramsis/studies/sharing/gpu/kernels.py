"""GPU utilisation of a model, computed from a trace of its kernels.

Between two neighbouring starts or ends of kernels, the set of running kernels is constant; the
*height* of such an interval is the sum of a metric over them:

    largest  = max_k height_k,        weighted = Σ_k length_k height_k / Σ_k length_k,

the last sum over the intervals in which anything runs. The metric is achieved occupancy, or the
multiprocessors that a launch needs:

    blocks per SM = min(threads per SM // threads of a block, shared memory per SM // of a block,
                        registers per SM // (threads x registers per thread), blocks per SM)
    SMs needed    = ceil(blocks of the grid / blocks per SM),   utilisation = min(1, needed / SMs).

A block without shared memory, or without registers, is not bound by them.

Source: P. Elvinger, ETH Zurich, MSc thesis, 2024, sections 5.2 to 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ramsis.errors import InputFileError, InvalidValueError, describe

__all__ = ["V100", "GpuLimits", "Heights", "Kernel", "KernelMetrics", "Launch", "blocks_per_sm",
           "heights", "kernel_metrics", "sms_needed", "utilisation"]


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """Hardware limits of a GPU on resident blocks."""

    sms: int  # multiprocessors
    # limits of each multiprocessor
    threads: int
    blocks: int
    registers: int
    shared_memory_bytes: int

    def __post_init__(self) -> None:
        for name in ("sms", "threads", "blocks", "registers", "shared_memory_bytes"):
            if getattr(self, name) < 1:
                raise InvalidValueError("not positive", where=name, value=getattr(self, name),
                                        allowed=">= 1")


V100 = GpuLimits(sms=80, threads=2048, blocks=32, registers=65536, shared_memory_bytes=98304)
"""NVIDIA V100 (compute capability 7.0)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch configuration of a kernel."""

    grid: tuple[int, int, int]  # blocks
    block: tuple[int, int, int]
    registers: int = 0  # of a thread
    shared_memory_bytes: int = 0  # of a block, static and dynamic


class Kernel(NamedTuple):
    """A kernel that ran: its name, launch, time, and achieved occupancy in [0, 1]."""

    name: str
    launch: Launch
    start_ms: float
    end_ms: float
    occupancy: float


class Heights(NamedTuple):
    """Largest and time-weighted mean sum of a metric over concurrent kernels."""

    largest: float
    weighted: float


class KernelMetrics(NamedTuple):
    """Shares of a GPU that a model uses while it runs; sums over kernels may exceed 1.

    ``utilisation`` is that of the multiprocessors, at most 1 for each kernel.
    """

    occupancy: Heights
    utilisation: Heights
    duration_ms: float


def blocks_per_sm(launch: Launch, gpu: GpuLimits) -> int:
    """Return the blocks of a launch that a multiprocessor holds at once.

    >>> blocks_per_sm(Launch((1000, 1, 1), (256, 1, 1), registers=32), V100)
    8
    """
    threads = math.prod(launch.block)
    if threads < 1 or math.prod(launch.grid) < 1:
        raise InvalidValueError("a launch without threads", value=(launch.grid, launch.block))
    bounds = [gpu.threads // threads, gpu.blocks]
    if launch.shared_memory_bytes:
        bounds.append(gpu.shared_memory_bytes // launch.shared_memory_bytes)
    if launch.registers:
        bounds.append(gpu.registers // (threads * launch.registers))
    if min(bounds) < 1:
        raise InvalidValueError("a block that no multiprocessor holds", value=launch,
                                allowed=str(gpu))
    return min(bounds)


def sms_needed(launch: Launch, gpu: GpuLimits) -> int:
    """Return the multiprocessors that hold all blocks of a launch at once.

    >>> sms_needed(Launch((1000, 1, 1), (256, 1, 1), registers=32), V100)
    125
    """
    return math.ceil(math.prod(launch.grid) / blocks_per_sm(launch, gpu))


def utilisation(launch: Launch, gpu: GpuLimits) -> float:
    """Return the share of a GPU's multiprocessors that a launch needs, at most 1."""
    return min(1.0, sms_needed(launch, gpu) / gpu.sms)


def heights(
    start_ms: Sequence[float], end_ms: Sequence[float], metric: Sequence[float]
) -> Heights:
    """Compute the largest and mean sum of a metric over kernels that run at once.

    ``start_ms``, ``end_ms`` and ``metric`` are of each kernel, in any order. Time in which nothing
    runs does not count for the mean.
    """
    starts, ends, values = (np.asarray(item, dtype=float) for item in (start_ms, end_ms, metric))
    if not len(starts):
        raise InvalidValueError(describe("no kernels"))
    if (ends < starts).any() or (values < 0).any() or not np.isfinite(ends - starts).all():
        raise InvalidValueError(describe("a kernel ends before it starts, or has a metric < 0"))
    at = np.concatenate([starts, ends])
    change = np.concatenate([values, -values])
    running = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    order = np.argsort(at, kind="stable")
    length = np.diff(at[order])
    height = np.cumsum(change[order])[:-1]
    busy = np.cumsum(running[order])[:-1] > 0.5
    counted = (length > 0) & busy
    if not counted.any():
        raise InvalidValueError(describe("kernels without any duration"))
    height = height[counted]
    total = float(length[counted].sum())
    return Heights(float(height.max()), float((length[counted] * height).sum() / total))


def kernel_metrics(kernels: Sequence[Kernel], gpu: GpuLimits) -> KernelMetrics:
    """Compute the shares of a GPU that the kernels of a batch use."""
    if not kernels:
        raise InputFileError(describe("trace has no kernels"))
    starts = [kernel.start_ms for kernel in kernels]
    ends = [kernel.end_ms for kernel in kernels]
    used = [utilisation(kernel.launch, gpu) for kernel in kernels]
    return KernelMetrics(
        heights(starts, ends, [kernel.occupancy for kernel in kernels]),
        heights(starts, ends, used), max(ends) - min(starts))
