"""iGniter: shares of GPUs by a predictor of interference, for all of the load in time.

The predicted time of workload i, a batch b_i on share r_i of GPU j, is

    t_i = t_load + t_gpu + t_feedback,      t_gpu = (t_sch + t_act) / (f / F).

t_load and t_feedback are the copies to and from the GPU. The three terms of interference are
plugged in: the scheduling delay t_sch(workloads on the GPU), the factor of the shared cache on
t_act, and the frequency f / F that the sum of the workloads' powers leaves.

1. A model is divided into workloads that one GPU each can serve, by ``division``. The batch of a
   workload is what arrives in ``build_share`` of its SLO, and r_lower the smallest share at which
   it alone has t_i <= ``latency_share`` x SLO and a rate b_i / t_i of at least its load.
2. Workloads are placed in order of r_lower, the largest first. On every GPU in use the shares of
   all its workloads are raised in steps until each is in time, as long as their sum is at most 1.
   The GPU that needs the smallest increase beyond r_lower is taken, else an empty one.
3. The plan is made as if there were GPUs without end; GPUs that do not exist are cut off, with
   their workloads (best effort on a fixed cluster).

iGniter's coefficients are not published for these models: all are parameters, and their defaults
are round numbers. ``build_share`` = 1/4 gives the printed batches, 9 at 187.5 and 5 at 104.2
requests per second with an SLO of 200 ms. The published program halves the SLO for both
(``build_share`` = ``latency_share`` = 1/2), rounds batches up, looks at the time but not at the
rate, and stops where a workload is too large for a GPU (``division`` = "none").

Source: Xu et al., *iGniter: Interference-Aware GPU Resource Provisioning for Predictable DNN
Inference in the Cloud*, IEEE TPDS 34(3), 2022.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ramsis.errors import InputFileError
from ramsis.studies.sharing.gpu.profile import SharedBatch, between
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.plan import check_given

DIVISIONS = ("equal", "halves", "largest", "none")

_EPSILON = 1e-9  # rounding of sums


class GpuWorkload(NamedTuple):
    """A batch on a share of a GPU, as the interference terms see it."""

    row: SharedBatch
    share: float


@dataclass(frozen=True)
class SchedulingTerm:
    """Delay t_sch in ms: linear in the number of other workloads, whose kernels take turns."""

    ms_per_neighbour: float = 0.2

    def __call__(self, neighbours: int) -> float:
        """Return the delay beside a number of others."""
        return self.ms_per_neighbour * neighbours


@dataclass(frozen=True)
class CacheTerm:
    """Factor on t_act that grows with the multiprocessors that others keep busy."""

    per_utilisation: float = 0.15

    def __call__(self, others: Sequence[GpuWorkload]) -> float:
        """Return the factor beside other workloads."""
        return 1.0 + self.per_utilisation * sum(min(o.row.utilisation, o.share) for o in others)


@dataclass(frozen=True)
class PowerTerm:
    """Frequency f / F: 1 up to the limit of power, then falling by ``per_watt``."""

    idle_w: float = 50.0
    busy_w: float = 250.0
    limit_w: float = 300.0
    per_watt: float = 0.001

    def __call__(self, workloads: Sequence[GpuWorkload]) -> float:
        """Return the share of the frequency that is left."""
        busy = sum(min(w.row.utilisation, w.share) for w in workloads)
        over = max(0.0, self.idle_w + self.busy_w * busy - self.limit_w)
        return max(0.1, 1.0 - self.per_watt * over)


class _Part(NamedTuple):
    """An equal part of a model's load."""

    model: SharedModel
    row: SharedBatch
    rate_rps: float
    lower: float


@dataclass(frozen=True)
class Igniter:
    """iGniter's policy; every coefficient is a parameter."""

    # build_share, latency_share: shares of the SLO for gathering a batch, and for t_i
    build_share: float = 0.25
    latency_share: float = 0.5
    share_step: float = 0.025  # step in which shares are raised
    # load_ms, feedback_ms: copies of a request to and from the GPU. The thesis' latencies
    # contain them: 0.
    load_ms: float = 0.0
    feedback_ms: float = 0.0
    # whether only measured batch sizes are used, and not those between them
    measured_batches: bool = False
    # into the fewest ``equal`` workloads that one GPU each can serve, or ``halves`` of halves;
    # ``largest``: the largest workload that one can, and so on with what is left; ``none``: a
    # model that one GPU cannot serve is left out
    division: str = "equal"
    # whether a batch is what arrives, rounded up, and not to the nearest number
    rounds_up: bool = False
    # whether a share has to be enough for the load, and not for the time alone
    checks_rate: bool = True
    scaling: float = 1.62  # t_act on a share r is latency x max(1, utilisation / r)^scaling
    # scheduling, cache, power: the terms of interference, or functions like them
    scheduling: Callable[[int], float] = SchedulingTerm()
    cache: Callable[[Sequence[GpuWorkload]], float] = CacheTerm()
    power: Callable[[Sequence[GpuWorkload]], float] = PowerTerm()

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in (
            "build_share", "latency_share", "share_step", "load_ms", "feedback_ms", "scaling")}
        for term in ("scheduling", "cache", "power"):
            numbers |= {f"{term}.{key}": value
                        for key, value in vars(getattr(self, term)).items()
                        if isinstance(value, (int, float))}
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise InputFileError("negative coefficient", where=f"iGniter: {name}", value=value,
                                     allowed="a finite number >= 0")
        if not 0 < self.share_step <= 1:
            raise InputFileError("not a step of shares", where="iGniter: share_step",
                                 value=self.share_step, allowed="above 0, at most 1")
        if self.division not in DIVISIONS:
            raise InputFileError("unknown division", where="iGniter: division",
                                 value=self.division, allowed=", ".join(DIVISIONS))

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        """Return replicas of the models on the GPUs, as far as these suffice."""
        return self.everything(models, gpus)[0]

    def everything(
        self, models: Sequence[SharedModel], gpus: Sequence[Gpu]
    ) -> tuple[list[Replica], int]:
        """Return the replicas on the GPUs, and the number of GPUs that the whole plan takes."""
        check_given(models, gpus)
        kind = gpus[0].gpu_type
        parts = sorted(itertools.chain.from_iterable(self._parts(m, kind) for m in models),
                       key=lambda part: -part.lower)
        plan: list[list[tuple[_Part, float]]] = []
        tried_before: dict[tuple[object, ...], list[tuple[_Part, float]] | None] = {}

        def beside(workloads: list[tuple[_Part, float]], part: _Part
                   ) -> list[tuple[_Part, float]] | None:
            # Equal parts of a load fill GPUs equally, and each part is tried on every GPU.
            key = (id(part), *((id(other), share) for other, share in workloads))
            if key not in tried_before:
                tried_before[key] = self._beside(workloads, part)
            return tried_before[key]

        for part in parts:
            tried = {i: shares for i, workloads in enumerate(plan)
                     if (shares := beside(workloads, part)) is not None}
            if tried:
                best = min(tried, key=lambda i: _shares(tried[i]) - _shares(plan[i]))
                plan[best] = tried[best]
            else:
                plan.append([(part, part.lower)])
        # The plan is for GPUs of the first type; those of another may not have the batch.
        replicas = [Replica(part.model.name, gpu.name, part.row.batch, min(1.0, share))
                    for gpu, workloads in zip(gpus, plan, strict=False)
                    for part, share in workloads
                    if part.model.batch(gpu.gpu_type, part.row.batch) is not None]
        return replicas, len(plan)

    def time_ms(self, workload: GpuWorkload, others: Sequence[GpuWorkload]) -> float:
        """Predict the time of a batch beside others."""
        row = workload.row
        slow: float = max(1.0, row.utilisation / workload.share) ** self.scaling
        active = row.latency_ms * slow * self.cache(others)
        copies = (self.load_ms + self.feedback_ms) * row.batch
        return copies + (self.scheduling(len(others)) + active) / self.power([workload, *others])

    def _parts(self, model: SharedModel, kind: str) -> list[_Part]:
        rows = model.batches.get(kind, ())
        best = max((row.rate_rps for row in rows), default=0.0)
        if best <= 0:
            return []
        most = 2 + math.ceil(4 * model.rate_rps / best)
        if self.division == "largest":
            return self._largest(model, rows)
        counts = {"equal": range(1, most), "none": range(1, 2),
                  "halves": [2**k for k in range(most.bit_length() + 1)]}[self.division]
        for count in counts:
            part = self._part(model, rows, model.rate_rps / count)
            if part is not None:
                return [part] * count
        return []

    def _largest(self, model: SharedModel, rows: Sequence[SharedBatch]) -> list[_Part]:
        """Split a model into the largest workloads that a GPU can serve, until no load is left."""
        left, parts = model.rate_rps, list[_Part]()
        whole = self._whole(model, rows)
        while left > _EPSILON:
            part = None if whole and left > whole.rate_rps else self._part(model, rows, left)
            part = part or whole
            if part is None:
                return []
            parts.append(part)
            left -= part.rate_rps
        return parts

    def _whole(self, model: SharedModel, rows: Sequence[SharedBatch]) -> _Part | None:
        """Return the workload of the largest batch that one GPU serves as fast as it fills."""
        for batch in range(rows[-1].batch, 0, -1):
            row = between(rows, batch)
            assert row is not None
            rate_rps = 1000 * batch / max(self.build_share * model.slo_ms, _EPSILON)
            if self.measured_batches and row not in rows:
                continue
            part = self._alone(model, row, rate_rps)
            if part is not None:
                return part
        return None

    def _part(
        self, model: SharedModel, rows: Sequence[SharedBatch], rate_rps: float
    ) -> _Part | None:
        """Return a workload of a rate; None where one GPU cannot serve it."""
        exact = rate_rps * self.build_share * model.slo_ms / 1000
        size = math.ceil(exact - _EPSILON) if self.rounds_up else round(exact)
        for batch in range(max(1, min(size, rows[-1].batch)), 0, -1):
            row = between(rows, batch)
            assert row is not None
            if self.measured_batches and batch not in {item.batch for item in rows}:
                if batch > rows[0].batch or size >= rows[0].batch:
                    continue
                row = rows[0]
            part = self._alone(model, row, rate_rps)
            if part is not None:
                return part
        return None

    def _alone(self, model: SharedModel, row: SharedBatch, rate_rps: float) -> _Part | None:
        """Return a workload with the smallest share that serves it alone and in time."""
        for k in range(1, math.ceil(1 / self.share_step - _EPSILON) + 1):
            share = min(1.0, k * self.share_step)
            part = _Part(model, row, rate_rps, share)
            if self._enough(part, share, []):
                return part
        return None

    def _enough(self, part: _Part, share: float, others: Sequence[GpuWorkload]) -> bool:
        time_ms = self.time_ms(GpuWorkload(part.row, share), others)
        return time_ms <= self.latency_share * part.model.slo_ms + _EPSILON and (
            not self.checks_rate or 1000 * part.row.batch / time_ms >= part.rate_rps - _EPSILON)

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
