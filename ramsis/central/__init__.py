"""The decision problem of a station of several workers that share one central queue.

May import: cluster, mdp, runtime.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.central.problem": "CentralProblem",
    "ramsis.central.solve": "CentralSolution evaluate_central solve_central",
})
