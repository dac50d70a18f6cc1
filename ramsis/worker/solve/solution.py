"""What solving a worker's problem returns."""

from __future__ import annotations

from dataclasses import dataclass

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp.result import Certificate
from ramsis.worker.problem import WorkerProblem


@dataclass(frozen=True, eq=False)
class WorkerSolution:
    """A worker's policy, its stationary frequencies, and its certificate.

    Attributes
    ----------
    problem : WorkerProblem
    policy : ndarray of int, shape (N, D+1)
        Action for n queued (row n − 1) at slack bin j.
    frequency : ndarray, shape (N+1, D+1)
        Stationary frequency of each state, up to a common factor; the last row is the full
        state, at bin 0.
    excess : float
        Requests of the full state beyond N + 1, at the same factor.
    gain : float
        Of the policy, in the units of the problem's objective.
    certificate : Certificate
    solver : str
    """

    problem: WorkerProblem
    policy: IntArray
    frequency: FloatArray
    excess: float
    gain: float
    certificate: Certificate
    solver: str
