"""Verification of policy files: their claims derived again by code independent of synthesis.

The table is checked to be admissible. Its gain is derived by value iteration on explicit rows, the
bound from its dual, and the figures by an independent simulator (:mod:`ramsis.verify.simulator`)
on other arrivals. Neither ``synthesis`` nor the packages that it imports may import this one.

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
