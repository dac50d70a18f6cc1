"""The most robust table of a worker within a headroom (:mod:`ramsis.synthesis.headroom`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.policy import CertificateRecord, Policy
from ramsis.policy.records import HeadroomRecord
from ramsis.synthesis.checks import Check
from ramsis.synthesis.headroom import Chosen, Played, most_robust, record_claims
from ramsis.worker.grid import fixed_grid
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import SolverName, WorkerModel, WorkerSolution

__all__ = ["MadeAgain", "Remade", "Tables", "WorkerPlan", "headroom_claims", "pure_grid",
           "pure_problem"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WorkerPlan:
    """A table, and the factor on service times that it was planned with.

    Attributes
    ----------
    table : ndarray of int, shape (N, D+1)
    factor : float
    slack_ms : ndarray, shape (D+1,)
    """

    table: IntArray
    factor: float
    slack_ms: FloatArray


class Tables:
    """The tables of a problem's solver, planned with several factors, and what they come to.

    Parameters
    ----------
    model : WorkerModel
        At the true times.
    solver : str
    grid : str or ndarray
        Slack grid, as of :meth:`ramsis.worker.problem.WorkerProblem.create`.
    """

    def __init__(self, model: WorkerModel, solver: SolverName, grid: str | FloatArray) -> None:
        self.true, self.solver, self.grid = model, solver, grid
        self._at: dict[float, WorkerModel] = {1.0: model}  # times longer by a factor
        self._known: dict[tuple[WorkerPlan, float], WorkerAnalysis] = {}

    def chosen(
        self, pure: WorkerSolution, headroom: float
    ) -> tuple[WorkerAnalysis, HeadroomRecord]:
        """The most robust table, as it behaves at the true times."""
        plan, record = self.most_robust(pure, headroom)
        return self.analysis(plan, 1.0), record

    def most_robust(self, pure: WorkerSolution, headroom: float) -> Chosen[WorkerPlan]:
        """See :func:`ramsis.synthesis.headroom.most_robust`."""
        problem = self.true.problem
        optimum = WorkerPlan(pure.policy, 1.0, problem.slack_ms)
        self._known[optimum, 1.0] = analyse_worker(
            problem, pure.policy, pure.frequency, pure.excess, self.true.at_hand)
        return most_robust(
            optimum, lambda factor: self.planned(factor, optimum),
            lambda plan, slower: _played(self.analysis(plan, slower)), headroom)

    def planned(self, factor: float, near: WorkerPlan | None = None) -> WorkerPlan | None:
        """The best table where service takes a factor longer; None where there is none.

        It is looked for from a table ``near``, of the true times.
        """
        try:
            problem = self.true.problem.planned(factor, self.grid)
        except (InvalidValueError, InfeasibleError):
            return None
        model = self._model(factor, 1.0, problem.slack_ms)
        start = None if near is None else _stretched(model.problem, near, factor)
        try:
            found = model.solve(self.solver, initial=start)
            found.certificate.require_converged(f"planned with service {factor:g} times as long")
        except NotConvergedError:
            return None
        plan = WorkerPlan(found.policy, factor, problem.slack_ms)
        self._known[plan, factor] = analyse_worker(
            model.problem, found.policy, found.frequency, found.excess, model.at_hand)
        return plan

    def analysis(self, plan: WorkerPlan, slower: float) -> WorkerAnalysis:
        """What a table comes to when service takes a factor longer than it does."""
        if (plan, slower) not in self._known:
            model = self._model(slower, plan.factor / slower, plan.slack_ms)
            found = model.evaluate(plan.table)
            self._known[plan, slower] = analyse_worker(
                model.problem, plan.table, found.frequency, found.excess, model.at_hand)
        return self._known[plan, slower]

    def _model(self, slower: float, planned_factor: float, slack_ms: FloatArray) -> WorkerModel:
        """The problem at longer times, for tables that were planned with a factor on these."""
        problem = self.true.problem
        if not np.array_equal(slack_ms, problem.slack_ms):
            other = replace(problem.slower(slower), slack_ms=slack_ms,
                            planned_factor=planned_factor)
            return WorkerModel(other, self.true.dispatch)
        if slower not in self._at:  # with all that the tables of the true times may run
            self._at[slower] = WorkerModel(problem.slower(slower), self.true.dispatch)
            self._at[slower].prepare()
        return self._at[slower].for_tables(planned_factor)


def _stretched(problem: WorkerProblem, near: WorkerPlan, factor: float) -> IntArray:
    """What a table does at a slack, at a slack that is a factor longer.

    The fastest model where its action may not be run.
    """
    at = np.searchsorted(near.slack_ms, problem.slack_ms / factor, side="right") - 1
    table = near.table[:, at]
    return np.where(problem.admissible(table)[:-1], table, problem.fastest_policy())


def _played(found: WorkerAnalysis) -> Played:
    return Played(found.effective_accuracy, found.violation_rate, found.gain)


def pure_problem(problem: WorkerProblem) -> WorkerProblem:
    """The problem of the pure optimum, from that of a table which was planned with longer times.

    A grid that is not of equal steps is that of the longer latencies.
    """
    if problem.planned_factor == 1.0:
        return problem
    return problem.planned(1.0, pure_grid(problem))


def pure_grid(problem: WorkerProblem) -> str | FloatArray:
    """The slack grid of a problem, as it is named: that of the latencies, or equal steps."""
    equal = fixed_grid(problem.slo_ms, problem.bins)
    return problem.slack_ms if np.allclose(problem.slack_ms, equal, rtol=1e-9) else "model"


class Remade(NamedTuple):
    """What a file's table was chosen among, made again.

    Attributes
    ----------
    tables : Tables
        At the true times.
    pure : WorkerSolution
    chosen : Chosen of WorkerPlan
    """

    tables: Tables
    pure: WorkerSolution
    chosen: Chosen[WorkerPlan]


class MadeAgain(NamedTuple):
    """What a solver makes of a file's problem again.

    Attributes
    ----------
    analysis : WorkerAnalysis
        Of the file's policy, by the model.
    certificate : CertificateRecord
    headroom : Remade or None
        None where the file says nothing of headroom.
    """

    analysis: WorkerAnalysis
    certificate: CertificateRecord
    headroom: Remade | None


def headroom_claims(
    policy: Policy, problem: WorkerProblem, table: IntArray | None, remade: Remade | None,
    tolerance: float,
) -> tuple[Check, ...]:
    """What a policy's file says of its headroom, worked out again.

    Parameters
    ----------
    problem : WorkerProblem
        Of the file.
    table : ndarray of int, shape (N, D+1), or None
        Its table in the problem's terms; None where it was changed after planning, for a budget.
    remade : Remade or None
        None where the file says nothing.
    """
    stated = policy.headroom
    if stated is None or remade is None:
        return ()
    (plan, record), tables, pure = remade.chosen, remade.tables, remade.pure
    if table is not None:
        plan = WorkerPlan(table, stated.factor, problem.slack_ms)
    played = {slower: _played(tables.analysis(plan, slower)) for slower in (1.0, stated.slower)}
    return record_claims(stated, record, played, _played(analyse_worker(
        tables.true.problem, pure.policy, pure.frequency, pure.excess)), tolerance)
