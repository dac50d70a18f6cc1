"""Verification of policy files: their claims derived again by code independent of synthesis.

A table is admissible; its gain follows by value iteration on explicit rows; its bound by the dual;
its figures by a simulator of this room (:mod:`ramsis.verify.simulator`) with other arrivals.
Nothing in ``synthesis`` and below imports this room.

May import: analysis, arrivals, bounds, central, cluster, mdp, policy, runtime, sim, sized,
synthesis, worker.
"""

from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from
from ramsis.verify.checks import Check
from ramsis.verify.policy import TOLERANCE, verify_policy
from ramsis.verify.sets import verify_levels

__all__ = ["TOLERANCE", "Check", "verify_levels", "verify_policy"]

__getattr__, __dir__ = names_from(globals())

check_arguments(globals(), ["verify_policy"])
