"""Registry of sharing policies by name.

>>> from ramsis.studies.sharing import Replica, gpus_of, plan, register
>>> def one_each(models, gpus):
...     return [Replica(model.name, gpu.name, 4) for model, gpu in zip(models, gpus)]
>>> register("one-on-each", one_each)
>>> "one-on-each" in policy_names()
True
>>> sharing_policy("usher:mps=no").mps
False
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, cast

from placement_milp.presets.greedy import nexus
from placement_milp.presets.programs import alpaserve
from ramsis.errors import InputFileError
from ramsis.plugins import blamed, own
from ramsis.settings import parse
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.igniter import Igniter
from ramsis.studies.sharing.plan import (
    SharingPlan,
    SharingPolicy,
    check_given,
    check_replicas,
    planned_rps,
    why_unserved,
)
from ramsis.studies.sharing.presets.gpu_sharing import gpu_sharing
from ramsis.studies.sharing.programs import Program
from ramsis.studies.sharing.queue_aware import QueueAware
from ramsis.studies.sharing.usher import Usher

_POLICIES: dict[str, Callable[[], SharingPolicy]] = {
    "usher": Usher,
    "wao-usher": partial(Usher, metric="weighted_occupancy"),
    "igniter": Igniter,
    "ao-milp": partial(Program, gpu_sharing, "occupancy"),
    "wsm-milp": partial(Program, gpu_sharing, "utilisation"),
    "alpaserve": partial(Program, alpaserve),
    "nexus": partial(Program, nexus),
    "queue-aware": QueueAware,
}


def policy_names() -> tuple[str, ...]:
    """Return the names of the registered sharing policies."""
    return tuple(_POLICIES)


def register(name: str, policy: SharingPolicy) -> None:
    """Register a policy under a name that is not in use."""
    if name in _POLICIES:
        raise InputFileError("policy name is in use", value=name)
    _POLICIES[name] = lambda: policy


def sharing_policy(name: str) -> SharingPolicy:
    """Return the policy with a name, or from ``module:function`` or ``file.py:function``.

    Parameters of a shipped policy follow its name: ``usher:mps=no:group_size=2``.
    """
    base, *parameters = name.split(":")
    if base in _POLICIES:
        policy: Any = _POLICIES[base]()
        if parameters:
            policy = replace(policy, **_values(base, policy, parameters))
        return cast("SharingPolicy", policy)
    if ":" not in name:
        raise InputFileError("unknown policy", value=name,
                             allowed=", ".join(_POLICIES) + ", MODULE:FUNCTION")
    function = own(name, "policy")
    if not callable(function):
        raise InputFileError("policy is not a function", value=name,
                             allowed="a function of models and GPUs")

    def checked(models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> Sequence[Replica]:
        with blamed(f"policy {name} failed"):
            replicas = list(function(models, gpus))
        for item in replicas:
            if not isinstance(item, Replica):
                raise InputFileError("policy returns something else", where=name, value=item,
                                     allowed="replicas")
        return replicas

    return checked


def _values(name: str, policy: Any, parameters: Sequence[str]) -> dict[str, Any]:
    """Parse the ``key=value`` parameters of a policy, numbers and booleans."""
    kinds = {item.name: type(value) for item in (fields(policy) if is_dataclass(policy) else ())
             if isinstance(value := getattr(policy, item.name), (bool, int, float))}
    values = {}
    for part in parameters:
        key, _, text = part.partition("=")
        try:
            values[key] = parse(kinds[key], text)
        except (KeyError, ValueError):
            raise InputFileError(
                "not a parameter of the policy", where=f"policy {name}", value=part,
                allowed=", ".join(f"{key}={kind.__name__}" for key, kind in kinds.items())
                or "no parameters") from None
    return values


def plan(
    name: str, models: Sequence[SharedModel], gpus: Sequence[Gpu],
    policy: SharingPolicy | None = None,
) -> SharingPlan:
    """Run a policy, and check its plan.

    Parameters
    ----------
    name : str
        Name of the policy.
    policy : SharingPolicy, optional
        The policy itself, for one without a name.
    """
    check_given(models, gpus)
    for model in models:
        if not any(model.batches.get(gpu.gpu_type) for gpu in gpus):
            raise InputFileError("model fits no GPU", where=model.name,
                                 value=sorted({gpu.gpu_type for gpu in gpus}),
                                 allowed=", ".join(model.batches) or "none")
    chosen = policy or sharing_policy(name)
    replicas = tuple(chosen(models, gpus))
    check_replicas(models, gpus, replicas)
    return SharingPlan(name, replicas, planned_rps(models, gpus, replicas),
                       why_unserved(models, gpus, replicas))
