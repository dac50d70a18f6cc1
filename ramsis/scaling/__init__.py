"""How many workers when: scaling policies, the rules that people run, and what both deliver.

May import: arrivals, bounds, cluster, policy, profiles, runtime, sim, synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.scaling.rule": "Observation ScalingRule",
    "ramsis.scaling.rules": "RULES made rule_of tunable",
    "ramsis.scaling.fleet": "DecisionTables FleetTerms ScaledRun play",
    "ramsis.scaling.prices": "meets",
    "ramsis.scaling.tuning": "tune",
})
