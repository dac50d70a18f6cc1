"""The most robust table of a worker within a headroom (:mod:`ramsis.synthesis.headroom`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.policy import Policy, encoded
from ramsis.runtime.table import AS_LAST_CODE
from ramsis.synthesis.headroom import Chosen, Drawn, PlayedFigures, most_robust, replayed_at
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.problem.actions import LateRule
from ramsis.worker.problem.grid import fixed_grid
from ramsis.worker.solve import SolverName, WorkerModel, WorkerSolution
from ramsis.worker.structure.evaluation import StateFrequency


@dataclass(frozen=True, eq=False)
class WorkerPlan:
    """A table, and the factor on service times that it was planned with."""

    table: IntArray  # shape (N, D+1)
    factor: float
    slack_ms: FloatArray  # shape (D+1,)


class PlannedTables:
    """The tables of a problem's solver, planned with several factors, and what they come to.

    Parameters
    ----------
    model : WorkerModel
        At the true times.
    grid : str or ndarray
        Slack grid, as of :meth:`ramsis.worker.problem.WorkerProblem.create`.
    policy : Policy, optional
        Any policy for these times, load and workers, by which tables are replayed; without one
        what they come to is the model's.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.
    """

    def __init__(
        self, model: WorkerModel, solver: SolverName, grid: str | FloatArray,
        policy: Policy | None = None, own_arrivals: str | None = None,
    ) -> None:
        self.true, self.solver, self.grid = model, solver, grid
        self.policy, self.own_arrivals = policy, own_arrivals
        self._measured = policy is not None and can_be_measured(policy)
        self._at: dict[float, WorkerModel] = {1.0: model}  # times longer by a factor
        self._known: dict[tuple[WorkerPlan, float], WorkerAnalysis] = {}
        self._met: dict[tuple[WorkerPlan, float], tuple[
            WorkerModel, WorkerSolution | StateFrequency]] = {}  # the states that tables meet
        self._drawn: Drawn = {}

    def most_robust(self, pure: WorkerSolution, headroom: float) -> Chosen[WorkerPlan]:
        """See :func:`ramsis.synthesis.headroom.most_robust`."""
        problem = self.true.problem
        optimum = WorkerPlan(pure.policy, 1.0, problem.slack_ms)
        self._met[optimum, 1.0] = self.true, pure
        return most_robust(
            optimum, lambda factor: self.planned(factor, optimum),
            self.figures, headroom, self.policy)

    def figures(self, plan: WorkerPlan, slower: float) -> PlayedFigures:
        """Return the figures of a table when service takes a factor longer than profiled."""
        if self.policy is not None and self._measured:
            measured = replayed_at(with_table(self.policy, self.true.problem, plan), slower,
                                   own_arrivals=self.own_arrivals, drawn=self._drawn)
            if measured is not None:
                return measured
        return _played(self.analysis(plan, slower))

    def planned(self, factor: float, near: WorkerPlan | None = None) -> WorkerPlan | None:
        """Solve for the best table when service takes a factor longer; None where there is none.

        It is looked for from a table ``near``, of the true times.
        """
        try:
            problem = self.true.problem.planned(factor, self.grid)
        except (InvalidValueError, InfeasibleError):
            return None
        model = self._model(factor, 1.0, problem.slack_ms)
        start = None if near is None else _stretched(model.problem, near, factor)
        if start is not None and self._measured:
            # What it comes to is measured at the true times, so that nothing rests on the proof.
            table = model.unproven(self.solver, start)
            if table is not None:
                return WorkerPlan(table, factor, problem.slack_ms)
        try:
            found = model.solve(self.solver, initial=start)
            found.certificate.require_converged(f"planned with service {factor:g} times as long")
        except NotConvergedError:
            return None
        plan = WorkerPlan(found.policy, factor, problem.slack_ms)
        self._met[plan, factor] = model, found
        return plan

    def analysis(self, plan: WorkerPlan, slower: float) -> WorkerAnalysis:
        """The same by the model, with all that follows from it."""
        if (plan, slower) not in self._known:
            if (plan, slower) not in self._met:
                model = self._model(slower, plan.factor / slower, plan.slack_ms)
                self._met[plan, slower] = model, model.evaluate(plan.table)
            model, found = self._met[plan, slower]
            self._known[plan, slower] = analyse_worker(
                model.problem, plan.table, found.frequency, found.excess, model.at_hand)
        return self._known[plan, slower]

    def _model(self, slower: float, planned_factor: float, slack_ms: FloatArray) -> WorkerModel:
        """The problem at longer times, for tables that were planned with a factor on these."""
        problem = self.true.problem
        if not np.array_equal(slack_ms, problem.slack_ms):
            other = replace(problem.slower(slower), slack_ms=slack_ms,
                            planned_factor=planned_factor)
            return WorkerModel(other)
        if slower not in self._at:  # with all that the tables of the true times may run
            self._at[slower] = WorkerModel(problem.slower(slower))
            self._at[slower].prepare()
        return self._at[slower].for_tables(planned_factor)


def _stretched(problem: WorkerProblem, near: WorkerPlan, factor: float) -> IntArray:
    """What a table does at a slack, at a slack that is a factor longer.

    The fastest model where its action may not be run.
    """
    at = np.searchsorted(near.slack_ms, problem.slack_ms / factor, side="right") - 1
    table = near.table[:, at]
    return np.where(problem.admissible(table)[:-1], table, problem.fastest_policy())


def _played(found: WorkerAnalysis) -> PlayedFigures:
    return PlayedFigures(found.effective_accuracy, found.violation_rate, found.gain)


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


def can_be_measured(policy: Policy) -> bool:
    """Return whether simulation can measure a table: not where workers may collapse.

    Nor does it tell the gain of the objective ``per-decision``.
    """
    steady = policy.late == LateRule.DROP.value or not policy.rule.in_turn
    return steady and policy.objective == Objective.PER_QUERY.value


def with_table(policy: Policy, problem: WorkerProblem, plan: WorkerPlan) -> Policy:
    """A policy with the table of a plan."""
    model, batch = problem.model_and_batch(plan.table)
    actions, codes, longer_queue = encoded(
        model, batch, (problem.latency.fastest, problem.max_queue))
    if problem.late is LateRule.DROP:
        longer_queue = AS_LAST_CODE
    return replace(policy, actions=actions, codes=codes, longer_queue=longer_queue,
                   slack_ms=plan.slack_ms, randomised=None)
