"""The decision problem of a worker: queue, actions and distributions.

This room holds the problem and the probabilities that every formulation of it needs: what comes in
during a service, in which phase of the round robin, with which slack. It imports no other room of
``ramsis.worker``.
"""

from __future__ import annotations

from ramsis.worker.problem.worker_problem import MAX_QUEUE, DecisionRules, Objective, WorkerProblem

__all__ = ["MAX_QUEUE", "DecisionRules", "Objective", "WorkerProblem"]
