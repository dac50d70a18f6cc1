"""GPU sharing: policies that place several models on a GPU at once, each with a batch size."""

from __future__ import annotations

from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.igniter import Igniter
from ramsis.studies.sharing.plan import (
    SharingPlan,
    SharingPolicy,
    check_replicas,
    gpus_of,
    models_of,
    planned_rps,
)
from ramsis.studies.sharing.policies import plan, policy_names, register, sharing_policy
from ramsis.studies.sharing.programs import Program, problem_of, replicas_of
from ramsis.studies.sharing.queue_aware import QueueAware
from ramsis.studies.sharing.usher import Usher, groups_of

__all__ = [
    "Gpu", "Igniter", "Program", "QueueAware", "Replica", "SharedModel", "SharingPlan",
    "SharingPolicy", "Usher",
    "check_replicas", "gpus_of", "groups_of", "models_of", "plan", "planned_rps", "policy_names",
    "problem_of", "register", "replicas_of", "sharing_policy",
]
