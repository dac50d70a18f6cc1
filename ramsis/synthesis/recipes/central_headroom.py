"""The most robust policy of a central queue within a headroom.

See :mod:`ramsis.synthesis.headroom`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.policy import Policy
from ramsis.synthesis.headroom import Chosen, Drawn, PlayedFigures, most_robust, replayed_at

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution


class Plans:
    """Policies of a problem, by the factor on service times that they are planned for.

    Solutions and steady states are kept: what is asked for again is not worked out again. All are
    found from the pure optimum, and so do not depend on what was asked for before.

    Parameters
    ----------
    true : CentralProblem
        Of the true service times.
    policy : Policy, optional
        Any policy for these times, load and workers, by which tables are replayed; without one
        what they come to is the model's.
    like : Plans, optional
        Of the same problem with batches that end evenly, where they are at hand.
    """

    def __init__(
        self, true: CentralProblem, policy: Policy | None = None, like: Plans | None = None,
    ) -> None:
        self.true, self.policy = true, policy
        self._near = None if like is None else like.solution()
        self._solutions: dict[float, CentralSolution] = {}
        self._played: dict[tuple[CentralSolution, float], CentralAnalysis] = {}
        # Shared: what is replayed is a table, whatever it was planned for.
        self._figures: list[tuple[CentralSolution, float, PlayedFigures]] = (
            [] if like is None else like._figures)
        self._drawn: Drawn = {} if like is None else like._drawn

    @classmethod
    def behind(cls, problem: CentralProblem, policy: Policy) -> Plans:
        """Those that the problem of a file was planned among: its levels are made again."""
        return cls(_made_for(problem, 1.0), policy)

    def solution(self, factor: float = 1.0) -> CentralSolution:
        """The optimum where service takes a factor longer, in a problem made for that."""
        from ramsis.central.solve import solve_central

        if factor not in self._solutions:
            start = self._start() if factor == 1.0 else self.solution()
            problem = self.true if factor == 1.0 else _made_for(self.true, factor)
            self._solutions[factor] = solve_central(problem, start)
        return self._solutions[factor]

    def _start(self) -> CentralSolution | None:
        """What the pure optimum is looked for from."""
        from ramsis.central.solve import solve_central

        if self._near is None and self.true.random_ends:
            self._near = solve_central(self.true.varied(random_ends=False))
        return self._near

    def solution_of(self, problem: CentralProblem, factor: float) -> CentralSolution:
        """The optimum where service takes a factor longer, at the levels of a file."""
        from ramsis.central.solve import solve_central

        found = self.solution(factor)
        if found.problem.same_decisions(problem):
            return found
        return solve_central(problem.varied(times=problem.times.scaled(factor)), self.solution())

    def played(self, plan: CentralSolution, slower: float = 1.0) -> CentralAnalysis:
        """Simulate a policy when service takes a factor longer than profiled."""
        from ramsis.analysis.central import CentralAnalysis
        from ramsis.central.solve import evaluate_central

        if (plan, slower) not in self._played:
            times = self.true.times if slower == 1.0 else self.true.times.scaled(slower)
            same = times.same_as(plan.problem.times)
            problem = plan.problem if same else plan.problem.varied(times=times)
            steady = plan.steady_state if same else evaluate_central(problem, plan)
            self._played[plan, slower] = CentralAnalysis(problem, steady)
        return self._played[plan, slower]

    def most_robust(self, headroom: float) -> Chosen[CentralSolution]:
        """Return the policy for the longest service times whose loss is within the headroom.

        Its problem is that of the longer times.
        """
        def planned(factor: float) -> CentralSolution | None:
            try:
                return self.solution(factor)
            except (InvalidValueError, InfeasibleError, NotConvergedError):
                return None

        return most_robust(self.solution(), planned, self.figures, headroom, self.policy)

    def figures(self, plan: CentralSolution, slower: float) -> PlayedFigures:
        """Return the figures of a policy when service takes a factor longer than profiled."""
        for other, factor, known in self._figures:
            if factor == slower and (other is plan or (
                    other.problem.same_decisions(plan.problem)
                    and np.array_equal(other.table, plan.table))):
                return known
        self._figures.append((plan, slower, self._replayed(plan, slower)))
        return self._figures[-1][2]

    def _replayed(self, plan: CentralSolution, slower: float) -> PlayedFigures:
        measured = None if self.policy is None else replayed_at(
            with_table(self.policy, plan), slower, drawn=self._drawn)
        if measured is not None:
            return measured
        found = self.played(plan, slower)
        expected = found.expectations()
        return PlayedFigures(expected.effective_accuracy, expected.violation_rate,
                             found.steady_state.gain)


def with_table(policy: Policy, plan: CentralSolution) -> Policy:
    """A policy with the table of a plan."""
    problem = plan.problem
    return replace(
        policy, idle_levels=problem.idle, queue_levels=problem.queue, slack_ms=problem.slack_ms,
        actions=np.stack([problem.action_model, problem.action_batch], axis=1),
        codes=plan.table.astype(np.int64), randomised=None)


def plans_of(problem: CentralProblem, policy: Policy) -> tuple[Plans, CentralSolution]:
    """The plans behind a file's problem, and its own."""
    if policy.headroom is None:
        plans = Plans(problem, policy)
        return plans, plans.solution()
    plans = Plans.behind(problem, policy)
    return plans, plans.solution_of(problem, policy.headroom.factor)


def _made_for(true: CentralProblem, factor: float) -> CentralProblem:
    """The problem made where service takes a factor longer, its levels and batches too."""
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import CentralProblem

    times = true.times.scaled(factor)
    made = CentralProblem.create(times, slo_ms=true.slo_ms, workers=true.workers,
                                 load_qps=true.load_qps, price=true.price, steps=_steps(true),
                                 prefer=true.prefer)
    if true.classes:
        made = ClassesProblem.of(made, true.classes)
    if made.same_decisions(true):
        return true.varied(times=times)
    return replace(made, random_ends=true.random_ends, end_variability=true.end_variability)


def _steps(problem: CentralProblem) -> int | None:
    """Number of equal slack bins of a problem; None where they are of its latencies."""
    steps = round(problem.slo_ms / float(problem.slack_ms[1]))
    equal = problem.slo_ms * np.arange(steps) / steps
    return steps if steps > 1 and np.isin(equal, problem.slack_ms).all() else None
