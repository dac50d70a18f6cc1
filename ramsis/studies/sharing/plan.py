"""Sharing plans: which GPU runs which models at which batch sizes.

A policy is a function of models and GPUs that returns replicas; :mod:`ramsis.studies.sharing.
policies` finds it by name. Its replicas are checked here, whoever wrote it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ramsis.errors import InputFileError
from ramsis.studies.sharing.gpu.profile import SharingProfile
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel

_RELATIVE = 1e-9  # tolerance of sums of shares
_MOST_GPUS = 100_000


class SharingPolicy(Protocol):
    """Interface of a sharing policy."""

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> Sequence[Replica]:
        """Return replicas of the models on the GPUs."""


@dataclass(frozen=True)
class SharingPlan:
    """Plan of a sharing policy: replicas with GPU and batch, and unserved models."""

    policy: str  # its name
    replicas: tuple[Replica, ...]  # as the policy returned them
    # model → planned requests per second, at most the load
    planned_rps: Mapping[str, float]
    unserved: Mapping[str, str] = field(default_factory=dict)  # model without replicas → why

    @property
    def goodput_rps(self) -> float:
        """Return the planned goodput of all models, in requests per second."""
        return math.fsum(self.planned_rps.values())


def models_of(
    profile: SharingProfile, rates_rps: Mapping[str, float], slo_ms: float
) -> tuple[SharedModel, ...]:
    """Return models of a profile with their loads and a common SLO."""
    models = []
    for name, rate in rates_rps.items():
        if name not in profile.models():
            raise InputFileError("model is not in the profile", value=name,
                                 allowed=", ".join(profile.models()))
        models.append(SharedModel(name, rate, slo_ms, {
            kind: profile.batches(name, kind) for kind in profile.gpu_types()
            if profile.batches(name, kind)}))
    return tuple(models)


def gpus_of(count: int, gpu_type: str = "gpu") -> tuple[Gpu, ...]:
    """Return equal GPUs, named ``gpu-0`` onwards."""
    if not 1 <= count <= _MOST_GPUS:
        raise InputFileError("not a number of GPUs", where="count", value=count,
                             allowed=f"a whole number from 1 to {_MOST_GPUS}")
    return tuple(Gpu(f"gpu-{i}", gpu_type) for i in range(count))


def check_given(models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> None:
    """Refuse a policy's input without models, or without GPUs."""
    if not models or not gpus:
        raise InputFileError("no models or no GPUs", value=(len(models), len(gpus)),
                             allowed="one of each, or more")


def check_replicas(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], replicas: Sequence[Replica]
) -> None:
    """Check that replicas fit the memory and multiprocessors of their GPUs."""
    kinds = {gpu.name: gpu.gpu_type for gpu in gpus}
    by_name = {model.name: model for model in models}
    memory: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    for i, item in enumerate(replicas):
        where = f"replica {i} ({item.model})"
        if item.gpu not in kinds:
            raise InputFileError("GPU does not exist", where=where, value=item.gpu,
                                 allowed=", ".join(kinds))
        if item.model not in by_name:
            raise InputFileError("model does not exist", where=where, value=item.model,
                                 allowed=", ".join(by_name))
        row = None if item.batch < 1 else by_name[item.model].batch(kinds[item.gpu], item.batch)
        if row is None:
            raise InputFileError("batch does not fit the GPU", where=where, value=item.batch,
                                 allowed="a batch of the profile")
        if item.mps_share is not None and not 0 < item.mps_share <= 1:
            raise InputFileError("not a share", where=where, value=item.mps_share,
                                 allowed="above 0, at most 1")
        memory[item.gpu] += row.memory  # type: ignore[assignment]
        shares[item.gpu] += item.mps_share or 0.0  # type: ignore[assignment]
    for used, what in ((memory, "memory"), (shares, "shares")):
        for name, total in used.items():
            if total > 1 + _RELATIVE:
                raise InputFileError(f"{what} above 100 %", where=name,
                                     value=round(100 * float(total), 2), allowed="at most 100")


def planned_rps(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], replicas: Sequence[Replica]
) -> dict[str, float]:
    """Return the planned rate of each model: Σ batch / latency of replicas, at most its load."""
    kinds = {gpu.name: gpu.gpu_type for gpu in gpus}
    planned = {}
    for model in models:
        rows = [model.batch(kinds[r.gpu], r.batch) for r in replicas if r.model == model.name]
        planned[model.name] = min(model.rate_rps,
                                  math.fsum(row.rate_rps for row in rows if row is not None))
    return planned


def why_unserved(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], replicas: Sequence[Replica]
) -> dict[str, str]:
    """Return the reason, for each model without replicas, as far as the profile shows it."""
    placed = {item.model for item in replicas}
    kinds = dict.fromkeys(gpu.gpu_type for gpu in gpus)
    reasons = {}
    for model in models:
        if model.name in placed:
            continue
        if not any(model.batches.get(kind) for kind in kinds):
            reasons[model.name] = "it fits no GPU"
        elif not any(model.in_time(kind) for kind in kinds):
            reasons[model.name] = "no batch is within its SLO"
        else:
            best = max(row.rate_rps for kind in kinds for row in model.in_time(kind))
            need = math.ceil(model.rate_rps / best)
            remark = (f"of which there are {len(gpus)}" if need > len(gpus)
                      else "and the policy has used them otherwise")
            reasons[model.name] = f"all of its load takes {need} GPU{'s' * (need > 1)}, {remark}"
    return reasons
