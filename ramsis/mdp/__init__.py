"""Markov decision problems in general: sparse models, solvers, certificates of the results.

May import: no other room.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.mdp._linear_program": "linear_program",
    "ramsis.mdp._modified_policy_iteration": "modified_policy_iteration",
    "ramsis.mdp._policy_iteration": "policy_iteration",
    "ramsis.mdp._value_iteration": "value_iteration",
    "ramsis.mdp.evaluation": "Evaluation evaluate_policy",
    "ramsis.mdp.result": "Certificate Criterion Solution Status",
    "ramsis.mdp.solvers": "solve_average solve_discounted",
    "ramsis.mdp.sparse": "SparseMDP",
    "ramsis.mdp.stationary": "StationaryResult power_iteration stationary_distribution",
    "ramsis.mdp.toolbox": "solve_with_pymdptoolbox to_pymdptoolbox to_quantecon",
})
