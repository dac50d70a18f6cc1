"""iGniter: provisions shares of GPUs by predicted interference, to serve all load in time.

The predicted time of workload i, a batch b_i on share r_i of GPU j, is

    t_i = t_load + t_gpu + t_feedback,      t_gpu = (t_sch + t_act) / (f / F).

t_load and t_feedback are the copies to and from the GPU. The three terms of interference are
plugged in: the scheduling delay t_sch beside the GPU's other workloads, the factor of the shared
cache on t_act, and the frequency f / F that the sum of the workloads' powers leaves.

1. A model is one workload. Its batch is what arrives in ``budget_share`` of the SLO, rounded up,
   and r_lower the smallest share at which it alone has t_i <= ``budget_share`` x SLO and a rate
   b_i / t_i of at least its load.
2. A model whose workload is too large for a GPU gets GPUs of its own: each runs the largest batch
   up to ``largest_batch`` that is in time on all of it, and takes ``rate_share`` of b / t from the
   load. What is left is the workload.
3. Workloads are placed in order of r_lower, the largest first. On every GPU in use the shares of
   all its workloads are raised in steps until each is in time, as long as their sum is at most 1.
   The GPU that needs the smallest increase beyond r_lower is taken, else an empty one.
4. GPUs of a single model come last. The plan is made as if there were GPUs without end; those that
   do not exist are cut off, with their workloads (best effort on a fixed cluster).

The rules and their numbers are those of the published program. Its coefficients are fitted to
measurements of TensorRT models on a V100; the defaults of the terms come from these. Those of the
models here are published nowhere, so all are parameters.

Sources: Xu et al., *iGniter: Interference-Aware GPU Resource Provisioning for Predictable DNN
Inference in the Cloud*, IEEE TPDS 34(3), 2022, and its repository, icloud-ecnu/igniter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ramsis.errors import InputFileError
from ramsis.studies.sharing.gpu.profile import SharedBatch, between
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.plan import check_given

_EPSILON = 1e-9  # rounding of sums


class GpuWorkload(NamedTuple):
    """Batch on a share of a GPU, the argument of the interference terms."""

    row: SharedBatch
    share: float


@dataclass(frozen=True)
class SchedulingTerm:
    """Scheduling delay t_sch in ms, as kernels of several workloads take turns.

    Each kernel waits ``ms_per_kernel`` for each workload of the GPU beyond ``free``.
    """

    # A line through the published delays of a kernel of vgg19 beside 1 to 4 others, at the
    # highest frequency: 0.0003, 0.0054, 0.0102, 0.0146 ms longer than alone.
    ms_per_kernel: float = 0.00475
    free: float = 1.9  # number of workloads without delay
    # Kernels of a batch: the published numbers, and their mean with that of ssd (93) for others.
    kernels: Mapping[str, int] = field(
        default_factory=lambda: {"alexnet": 20, "resnet50": 80, "vgg19": 29})
    other_kernels: int = 55

    def __call__(self, model: str, others: int) -> float:
        """Return the delay of a model's batch beside a number of other workloads."""
        kernels = self.kernels.get(model, self.other_kernels)
        return kernels * self.ms_per_kernel * max(0.0, 1 + others - self.free)


@dataclass(frozen=True)
class CacheTerm:
    """Factor on t_act of the shared cache, by the multiprocessors that others keep busy."""

    # Between two measurements: beside a workload on half of the GPU, the four published models
    # take 3.6 to 4.2 % longer (0.08); resnet50 beside alexnet in the thesis 18 % (0.375).
    per_utilisation: float = 0.15

    def __call__(self, others: Sequence[GpuWorkload]) -> float:
        """Return the factor by which the other workloads of a GPU slow a workload down."""
        return 1.0 + self.per_utilisation * sum(min(o.row.utilisation, o.share) for o in others)


@dataclass(frozen=True)
class PowerTerm:
    """Relative frequency f / F: 1 up to the power limit, then decreasing by ``per_watt``."""

    # Published of a V100: 53.5 W idle, 300 W at most; on half of the GPU 16 or 32 requests take
    # 262 to 306 W per GPU more, 283 W in the mean. Beyond the limit the frequency, 1530 MHz, falls
    # by 1.03 MHz with each W.
    idle_w: float = 53.5
    busy_w: float = 283.0
    limit_w: float = 300.0
    per_watt: float = 0.00067

    def __call__(self, workloads: Sequence[GpuWorkload]) -> float:
        """Return the relative frequency for the workloads of a GPU."""
        busy = sum(min(w.row.utilisation, w.share) for w in workloads)
        over = max(0.0, self.idle_w + self.busy_w * busy - self.limit_w)
        return max(0.1, 1.0 - self.per_watt * over)


class _Part(NamedTuple):
    """Workload: part of a model's load, with the smallest share that serves it alone."""

    model: SharedModel
    row: SharedBatch
    rate_rps: float
    lower: float


@dataclass(frozen=True)
class Igniter:
    """Sharing policy of iGniter; every coefficient is a parameter."""

    budget_share: float = 0.5  # share of the SLO for gathering a batch, and for t_i
    share_step: float = 0.025  # step in which shares are raised
    # load_ms, feedback_ms: copies of a request to and from the GPU. The thesis' latencies
    # contain them: 0.
    load_ms: float = 0.0
    feedback_ms: float = 0.0
    # whether only measured batch sizes are used, and not those between them
    measured_batches: bool = False
    # of a model that is too large for a GPU: the largest batch on GPUs of its own, that of single
    # models, and the share of b / t that such a GPU takes from the load
    largest_batch: int = 32
    largest_batches: Mapping[str, int] = field(default_factory=dict)
    rate_share: float = 0.9
    # t_act on a share r is latency x max(1, utilisation / r)^scaling. The four published models
    # have exponents of 0.80 to 0.99 at batches of 16 and 32, from 10 to 50 and to 100 % of a GPU.
    scaling: float = 1.0
    # scheduling, cache, power: the terms of interference, or functions like them
    scheduling: Callable[[str, int], float] = field(default_factory=SchedulingTerm)
    cache: Callable[[Sequence[GpuWorkload]], float] = CacheTerm()
    power: Callable[[Sequence[GpuWorkload]], float] = PowerTerm()

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in (
            "budget_share", "share_step", "load_ms", "feedback_ms", "scaling", "rate_share")}
        for term in ("scheduling", "cache", "power"):
            numbers |= {f"{term}.{key}": value
                        for key, value in vars(getattr(self, term)).items()
                        if isinstance(value, (int, float))}
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise InputFileError("negative coefficient", where=f"iGniter: {name}", value=value,
                                     allowed="a finite number >= 0")
        for name in ("share_step", "rate_share"):
            if not 0 < getattr(self, name) <= 1:
                raise InputFileError("not a share", where=f"iGniter: {name}",
                                     value=getattr(self, name), allowed="above 0, at most 1")

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        """Return replicas of the models, as far as the GPUs suffice."""
        return self.everything(models, gpus)[0]

    def everything(
        self, models: Sequence[SharedModel], gpus: Sequence[Gpu]
    ) -> tuple[list[Replica], int]:
        """Return the replicas on the GPUs, and the number of GPUs that the whole plan takes."""
        check_given(models, gpus)
        kind = gpus[0].gpu_type
        divided = [self._divided(model, kind) for model in models]
        parts = sorted((part for _, part in divided if part is not None),
                       key=lambda part: -part.lower)
        plan: list[list[tuple[_Part, float]]] = []
        for part in parts:
            tried = {i: shares for i, workloads in enumerate(plan)
                     if (shares := self._beside(workloads, part)) is not None}
            if tried:
                best = min(tried, key=lambda i: _shares(tried[i]) - _shares(plan[i]))
                plan[best] = tried[best]
            else:
                plan.append([(part, part.lower)])
        plan += [[(part, 1.0)] for whole, _ in divided for part in whole]
        # The plan is for GPUs of the first type; on another type the batch may not fit.
        replicas = [Replica(part.model.name, gpu.name, part.row.batch, min(1.0, share))
                    for gpu, workloads in zip(gpus, plan, strict=False)
                    for part, share in workloads
                    if part.model.batch(gpu.gpu_type, part.row.batch) is not None]
        return replicas, len(plan)

    def time_ms(self, workload: GpuWorkload, others: Sequence[GpuWorkload]) -> float:
        """Predict the time of a batch that runs beside others on a GPU."""
        row = workload.row
        slow: float = max(1.0, row.utilisation / workload.share) ** self.scaling
        # The profile's latency was measured at the frequency that the batch alone leaves.
        alone = self.power([GpuWorkload(row, 1.0)])
        active = row.latency_ms * alone * slow * self.cache(others)
        copies = (self.load_ms + self.feedback_ms) * row.batch
        delay = self.scheduling(row.model, len(others))
        return copies + (delay + active) / self.power([workload, *others])

    def _divided(self, model: SharedModel, kind: str) -> tuple[list[_Part], _Part | None]:
        """Split a model into workloads on dedicated GPUs, and the rest to place with others."""
        rows = model.batches.get(kind, ())
        part = self._part(model, rows, model.rate_rps) if rows else None
        if part is not None or not rows:
            return [], part
        limit = self.largest_batches.get(model.name, self.largest_batch)
        candidates = [row for row in self._sizes(rows) if row.batch <= limit
                      and self.time_ms(GpuWorkload(row, 1.0), []) <= self._budget_ms(model)]
        if not candidates:
            return [], None
        largest = candidates[-1]
        time_ms = self.time_ms(GpuWorkload(largest, 1.0), [])
        rate_rps = self.rate_share * 1000 * largest.batch / time_ms
        count = math.ceil(model.rate_rps / rate_rps - _EPSILON) - 1
        left = model.rate_rps - count * rate_rps
        part = self._part(model, rows, left) or _Part(model, largest, left, 1.0)
        return [_Part(model, largest, rate_rps, 1.0)] * count, part

    def _budget_ms(self, model: SharedModel) -> float:
        """Return the time budget for gathering a batch of a model, and for running it."""
        return self.budget_share * model.slo_ms + _EPSILON

    def _sizes(self, rows: Sequence[SharedBatch]) -> list[SharedBatch]:
        """Return the batches that may be used, by size."""
        if self.measured_batches:
            return list(rows)
        return [row for batch in range(1, rows[-1].batch + 1)
                if (row := between(rows, batch)) is not None]

    def _part(
        self, model: SharedModel, rows: Sequence[SharedBatch], rate_rps: float
    ) -> _Part | None:
        """Return the workload of a rate with its smallest share; None if a GPU cannot serve it."""
        gathered = math.ceil(rate_rps * self.budget_share * model.slo_ms / 1000 - _EPSILON)
        sizes = self._sizes(rows)
        row = next((row for row in reversed(sizes) if row.batch <= gathered), sizes[0])
        for k in range(1, math.ceil(1 / self.share_step - _EPSILON) + 1):
            share = min(1.0, k * self.share_step)
            part = _Part(model, row, rate_rps, share)
            if self._enough(part, share, []):
                return part
        return None

    def _enough(self, part: _Part, share: float, others: Sequence[GpuWorkload]) -> bool:
        """Return whether a share suffices for a workload's latency and rate, beside others."""
        time_ms = self.time_ms(GpuWorkload(part.row, share), others)
        return (time_ms <= self._budget_ms(part.model)
                and 1000 * part.row.batch / time_ms >= part.rate_rps - _EPSILON)

    def _beside(
        self, workloads: list[tuple[_Part, float]], part: _Part
    ) -> list[tuple[_Part, float]] | None:
        """Return the shares of all workloads of a GPU with one more; None if they exceed 1."""
        parts = [item for item, _ in workloads] + [part]
        shares = [share for _, share in workloads] + [part.lower]
        if sum(item.row.memory for item in parts) > 1 + _EPSILON:
            return None
        while sum(shares) <= 1 + _EPSILON:
            short = [i for i, item in enumerate(parts)
                     if not self._enough(item, shares[i], [
                         GpuWorkload(other.row, shares[j]) for j, other in enumerate(parts)
                         if j != i])]
            if not short:
                return list(zip(parts, shares, strict=True))
            for i in short:
                shares[i] += self.share_step
        return None


def _shares(workloads: Sequence[tuple[_Part, float]]) -> float:
    return sum(share for _, share in workloads)
