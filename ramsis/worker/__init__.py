"""The decision problem of a single worker with its own queue, and its solvers.

``problem`` says what is decided. ``structure`` and ``explicit`` write its transitions in two ways
that know nothing of each other. ``solve`` stands above the three.

May import: arrivals, cluster, mdp, profiles, runtime.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.worker.explicit": "ExplicitWorkerMDP build_explicit",
    "ramsis.worker.problem": "DecisionRules Objective WorkerProblem",
    "ramsis.worker.problem.actions": "Action",
    "ramsis.worker.problem.queue": "RandomTimes WorkerQueue",
    "ramsis.worker.solve": "WorkerSolution evaluate_table solve_worker",
    "ramsis.worker.solve.policy_iteration": "NodeSolution solve_on_nodes",
    "ramsis.worker.structure.evaluation": "NodeEvaluation evaluate_on_nodes",
    "ramsis.worker.structure.structured": "Backup StructuredMDP build_structured",
})
