"""How many workers when: scaling policies, the rules that people run, and what both deliver.

May import: arrivals, bounds, cluster, policy, profiles, runtime, sim, synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

_PUBLIC = {
    **dict.fromkeys(("Observation", "ScalingRule"), "ramsis.scaling.rule"),
    **dict.fromkeys(("RULES", "made", "rule_of", "tunable"), "ramsis.scaling.rules"),
    **dict.fromkeys(("DecisionTables", "FleetTerms", "ScaledRun", "play"), "ramsis.scaling.fleet"),
    "meets": "ramsis.scaling.prices", "tune": "ramsis.scaling.tuning",
}

__all__ = [*_PUBLIC]  # noqa: PLE0604 - the keys are strings

__getattr__ = names_from(globals(), _PUBLIC)
