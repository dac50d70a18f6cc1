"""What sets of worker and of fleet policies share: load levels, and the fleets that they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ramsis.errors import InputFileError, describe
from ramsis.policy import FleetPolicy, Policy, WorkerPolicy
from ramsis.sim.fleet import Fleet

__all__ = ["check_fits", "level_for"]

_Policy = TypeVar("_Policy", WorkerPolicy, FleetPolicy)


def level_for(policies: Sequence[_Policy], load_qps: float) -> _Policy:
    """The policy of the lowest level that meets a load, else the highest."""
    ordered = sorted(policies, key=lambda policy: policy.load_qps)
    return next((p for p in ordered if p.load_qps >= load_qps), ordered[-1])


def check_fits(policy: Policy, fleet: Fleet, *, source: str, max_batch: int) -> None:
    """Refuse a policy that was not made for a fleet; ``source`` is where it is from.

    Raises
    ------
    InputFileError
        Other models, workers or SLO, or batches up to ``max_batch`` are more than the fleet runs.
    """
    where = f"{source}: policy for {policy.load_qps:g} QPS"
    missing = [m.name for m in policy.models if m.name not in fleet.models]
    for what, found, wanted in (
        ("made for models that the profile lacks", missing, []),
        ("made for another number of workers", policy.workers, fleet.workers),
        ("made for another SLO", policy.slo_ms, fleet.slo_ms),
        ("made for other SLO classes", getattr(policy, "slo_classes", ()), fleet.classes),
    ):
        if found != wanted:
            allowed = str(wanted) if wanted else ", ".join(fleet.models)
            raise InputFileError(describe(what, where=where, value=found, allowed=allowed))
    if max_batch > fleet.max_batch:
        raise InputFileError(describe("batches beyond those of the fleet", where=where,
                                      value=max_batch, allowed=f"at most {fleet.max_batch}"))
