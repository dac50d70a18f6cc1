"""Several models at once on one GPU: policies that decide which GPU runs which, at which batch."""

from __future__ import annotations

from placement_milp.sharing.igniter import Igniter
from placement_milp.sharing.plan import (
    SharingPlan,
    SharingPolicy,
    check_replicas,
    gpus_of,
    models_of,
    planned_rps,
)
from placement_milp.sharing.policies import plan, policy_names, register, sharing_policy
from placement_milp.sharing.programs import Program, problem_of, replicas_of
from placement_milp.sharing.queue_aware import QueueAware
from placement_milp.sharing.usher import Usher, groups_of
from ramsis.checks import check_arguments
from ramsis.cluster.shared_gpu import Gpu, Replica, SharedModel

__all__ = [
    "Gpu", "Igniter", "Program", "QueueAware", "Replica", "SharedModel", "SharingPlan",
    "SharingPolicy", "Usher",
    "check_replicas", "gpus_of", "groups_of", "models_of", "plan", "planned_rps", "policy_names",
    "problem_of", "register", "replicas_of", "sharing_policy",
]

check_arguments(globals(), [name for name in __all__ if name != "SharingPolicy"])
