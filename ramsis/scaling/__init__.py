"""Autoscaling: scaling policies, published autoscaler rules, and simulation of both.

May import: arrivals, bounds, cluster, policy, profiles, runtime, sim, synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.scaling.rule": "Observation ScalingRule",
    "ramsis.scaling.rules": "RULES made rule_of tunable",
    "ramsis.scaling.fleet": "DecisionTables FleetTerms ScaledRun play",
    "ramsis.scaling.prices": "meets",
    "ramsis.scaling.comparison": "tune",
})
