"""Solvers of a worker's problem: policy iteration, or a general solver on explicit rows.

The room stands above all others of ``ramsis.worker``: it may import problem, structure and
explicit, and none of them imports it.
"""

from __future__ import annotations

from ramsis.worker.solve.worker_model import (
    SOLVERS,
    SolverName,
    WorkerModel,
    WorkerSolution,
    evaluate_table,
    solve_worker,
)

__all__ = ["SOLVERS", "SolverName", "WorkerModel", "WorkerSolution", "evaluate_table",
           "solve_worker"]
