"""Recipes for workers with a queue each: the table of a single worker serves all.

The steps: profile → latency table → Pareto pruning → worker problem → solver → stationary
analysis and fluid bound → policy.

The worker's problem is that of round robin, in which a worker gets every K-th request.
Shortest-queue dispatch uses the same tables with another routing: it is nearly round robin as long
as all workers keep up, and passes over workers that do not. No model states how often it does, so
the promises of its policies are measured by simulation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from ramsis import __version__
from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.analysis.sampled import Evidence
from ramsis.analysis.worker import evidence_of
from ramsis.arrays import IntArray
from ramsis.arrivals import ArrivalProcess, Arrivals, Poisson, Sampler, is_orderly
from ramsis.arrivals.process import poisson_rate
from ramsis.bounds import fluid_bound
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.policy import CertificateRecord, Policy, PolicyModel, encoded
from ramsis.policy.records import NOTHING, ORIGINS
from ramsis.profiles import LatencyTable, ProfileSet
from ramsis.runtime.table import AS_LAST_CODE
from ramsis.synthesis.headroom import Limits, Replays, with_headroom
from ramsis.synthesis.recipes.recipe import (
    DELAY_PRICE,
    Planned,
    Recipe,
    bounded_by,
    service_times,
    sizes_stated,
    stated_arrivals,
    without_overhead,
)
from ramsis.synthesis.settings import SynthesisSettings, inputs_of
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.problem.queue import DEFAULT_GRID, RandomTimes
from ramsis.worker.solve import WorkerModel, WorkerSolution, evaluate_table


class RoundRobinRecipe(Recipe[WorkerProblem]):
    """Recipe of round robin: requests go to the workers in turn."""

    def knows(self, settings: SynthesisSettings) -> bool:
        """Return whether the problem is solved for the arrival process itself, not for Poisson.

        The problem of a worker is exact for every process with independent counts. But for
        negative binomial counts it takes 10 to 50 times as long as planning for Poisson arrivals,
        and its tables earn the same in replay (within 0.0004 in 14 settings). So for a process
        other than Poisson it is solved only with the paper's objective, or if the process cannot
        be drawn from.
        """
        process = Arrivals.parse(settings.arrivals)(1.0)
        if not isinstance(process, ArrivalProcess):
            return False
        if poisson_rate(process) is not None:
            return True
        as_the_paper = settings.objective == Objective.PER_DECISION.value
        return (as_the_paper or not isinstance(process, Sampler)) and not Batching(
            settings.batching).partial

    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        load_factor: float | None = None,
    ) -> WorkerProblem:
        """Return the decision problem of one worker under round robin for a load."""
        table, law = service_times(profile, settings)
        return WorkerProblem.create(
            table,
            slo_ms=settings.slo_ms,
            workers=settings.workers,
            arrivals=(Arrivals.parse(settings.arrivals).counted(load_qps) if load_factor is None
                      else Poisson(load_factor * load_qps)),
            grid=settings.grid or DEFAULT_GRID,
            max_queue=settings.max_queue,
            objective=settings.objective,
            late=settings.late,
            batching=settings.batching,
            violation_price=settings.violation_price,
            delay_price=_delay_price(settings.objective),
            times=None if law is None else RandomTimes(
                law.quantiles_ms, law.levels, law.samples, law.tails),
        )

    def planned(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        problem: WorkerProblem, replays: Replays, load_factor: float | None = None,
    ) -> Planned:
        """Return the best policy of a worker's problem, with its certificate."""
        bound = fluid_bound(
            bounded_by(problem),
            slo_ms=settings.slo_ms,
            workers=settings.workers,
            load_qps=load_qps,
            max_batch=settings.max_queue,
        )
        limits = Limits(load_qps, bound.capacity_qps, bound.effective_accuracy)
        models: dict[float, WorkerModel] = {}
        solutions: dict[float, WorkerSolution] = {}

        def planned(factor: float) -> Policy:
            models[factor] = WorkerModel(problem if factor == 1.0 else problem.slower(
                factor, settings.grid or DEFAULT_GRID))
            solution = models[factor].solve(settings.solver)
            solution.certificate.require_converged(f"load {load_qps:g} QPS")
            solutions[factor] = solution
            return replace(self._unpromised(profile, settings, problem, solution, limits),
                           load_factor=load_factor)

        policy = with_headroom(planned, settings.headroom, replays, limits)
        solution = solutions[policy.planned_factor]
        if solution.policy is not solution.draft:
            actions, codes, longer_queue = table_record(solution.problem, solution.policy)
            policy = replace(policy, actions=actions, codes=codes, longer_queue=longer_queue)

        # The table is made for longer times than profiled; its promise is for the profiled times.
        @cache
        def as_profiled() -> WorkerModel:
            if 1.0 in models and np.array_equal(policy.slack_ms, problem.slack_ms):
                return models[1.0]
            return WorkerModel(replace(problem, slack_ms=solution.problem.slack_ms))

        def analysis() -> WorkerAnalysis:
            frequency = solution if policy.planned_factor == 1.0 else as_profiled().evaluate(
                solution.policy)
            return analyse_worker(as_profiled().problem, solution.policy, frequency.frequency,
                                  frequency.excess, as_profiled().at_hand)

        def evidence() -> Evidence | None:
            if problem.samples is None:
                return None
            if problem.batching.partial:
                return analysis().evidence()
            return evidence_of(as_profiled().problem, solution.policy, as_profiled().structured)

        return Planned(policy, lambda: analysis().expectations(
            capacity_qps=bound.capacity_qps, upper_bound=bound.effective_accuracy), evidence)

    def _unpromised(
        self, profile: ProfileSet, settings: SynthesisSettings, problem: WorkerProblem,
        solution: WorkerSolution, limits: Limits,
    ) -> Policy:
        """Return the policy of a solution; of its expectations, only capacity and bound are set.

        ``problem`` has the profiled service times, ``solution`` those that are planned for.
        """
        table = problem.latency
        actions, codes, longer_queue = table_record(solution.problem, solution.draft)
        return Policy(
            models=_models(problem, settings.overhead_ms),
            slo_ms=problem.slo_ms,
            workers=problem.workers,
            load_qps=limits.load_qps,
            arrivals=stated_arrivals(settings, limits.load_qps),
            service=table.statistic,
            dispatch=settings.dispatch,
            batching=problem.batching.value,
            late=problem.late.value,
            objective=problem.objective.value,
            idle_levels=np.arange(2),
            queue_levels=np.arange(problem.max_queue + 1),
            slack_ms=solution.problem.slack_ms,
            actions=actions,
            codes=codes,
            longer_queue=longer_queue,
            expectations=replace(NOTHING, capacity_qps=limits.capacity_qps,
                                 upper_bound=limits.effective_accuracy),
            certificate=certificate_of(solution),
            inputs=inputs_of(profile, settings),
            created_by=f"ramsis {__version__}",
            violation_price=problem.violation_price,
            quantile_levels=None if problem.quantiles_ms is None else problem.quantile_levels,
            overhead_ms=settings.overhead_ms,
            slowness=settings.slowness,
            tails=problem.tails,
        )

    def problem_of(self, policy: Policy, where: str = "policy") -> WorkerProblem:
        """Return the problem of one worker that a policy file describes."""
        letters = np.array([[ORIGINS.index(c) for c in m.latency_origin or ()]
                            for m in policy.models])
        try:
            latency = LatencyTable(
                tuple(m.name for m in policy.models), policy.accuracy, policy.latency_ms,
                letters.astype(np.int8), policy.service,
            )
            problem = WorkerProblem.create(
                latency,
                slo_ms=policy.slo_ms,
                workers=policy.workers,
                arrivals=(Arrivals.of(policy.arrivals).counted(policy.load_qps)
                          if policy.load_factor is None else Poisson(policy.planned_qps)),
                grid=policy.slack_ms,
                max_queue=policy.max_queue,
                objective=policy.objective,
                late=policy.late,
                batching=policy.batching,
                violation_price=policy.violation_price,
                delay_price=_delay_price(policy.objective),
                times=None if policy.quantiles_ms is None else RandomTimes(
                    policy.quantiles_ms, policy.levels, policy.samples, policy.tails),
            )
        except InvalidValueError as error:
            raise InputFileError(f"no problem can be made of it ({error})", where=where) from error
        return problem

    def analysis(self, policy: Policy) -> WorkerAnalysis:
        """Return the stationary behaviour of a worker under the table of a policy file."""
        problem = self.problem_of(policy)
        model, batch = policy.model_and_batch()
        table = problem.policy_of(model[0], batch[0])
        solution = evaluate_table(problem, table)
        return analyse_worker(problem, table, solution.frequency, solution.excess)


class ShortestQueueRecipe(RoundRobinRecipe):
    """Recipe of shortest-queue dispatch: the tables of round robin under another routing."""

    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        load_factor: float | None = None,
    ) -> WorkerProblem:
        """Return the problem of one worker as under round robin; refuse undrawable arrivals."""
        Arrivals.parse(settings.arrivals).drawn(load_qps)
        return super().problem(profile, load_qps, settings, load_factor)


def _delay_price(objective: str) -> float:
    """Return the delay price of an objective; decisions have no response time to charge."""
    return DELAY_PRICE if objective == Objective.PER_QUERY.value else 0.0


def _models(problem: WorkerProblem, overhead_ms: float) -> tuple[PolicyModel, ...]:
    """Return the models with their service times as policy files state them, without overhead."""
    table = problem.latency
    latency_ms = without_overhead(table.latency_ms, overhead_ms)
    return tuple(
        PolicyModel(
            name=name,
            accuracy=float(table.accuracy[m]),
            latency_ms=tuple(latency_ms[m].tolist()),
            latency_origin="".join(ORIGINS[o] for o in table.origin[m]),
            quantiles_ms=_finite_rows(problem, m, overhead_ms),
            samples=_samples(problem, m),
            run_as=sizes_stated(table.run_as[m]),
        )
        for m, name in enumerate(table.models)
    )


def _finite_rows(
    problem: WorkerProblem, model: int, overhead_ms: float
) -> tuple[tuple[float, ...], ...] | None:
    if problem.quantiles_ms is None:
        return None
    rows = problem.quantiles_ms[model]
    rows = without_overhead(rows[np.isfinite(rows[:, -1])], overhead_ms)
    return tuple(tuple(row.tolist()) for row in rows)


def _samples(problem: WorkerProblem, model: int) -> tuple[int, ...] | None:
    if problem.samples is None or problem.quantiles_ms is None:
        return None
    finite = np.isfinite(problem.quantiles_ms[model, :, -1])
    return tuple(problem.samples[model, : len(finite)][finite].tolist())


def table_record(problem: WorkerProblem, table: IntArray) -> tuple[IntArray, IntArray, int]:
    """Return a table's actions, codes, and code for longer queues, as policy files have them."""
    model, batch = problem.model_and_batch(table)
    actions, codes, longer_queue = encoded(
        model, batch, (problem.latency.fastest, problem.max_queue))
    return actions, codes, AS_LAST_CODE if problem.late is LateRule.DROP else longer_queue


def certificate_of(solution: WorkerSolution) -> CertificateRecord:
    """Return the certificate of a table that is optimal for the times that it is planned for."""
    certificate = solution.certificate
    on_nodes = solution.solver == "policy-iteration"
    return CertificateRecord(
        solver=solution.solver,
        converged=certificate.converged,
        iterations=certificate.iterations,
        bellman_residual=certificate.bellman_residual,
        gain=solution.gain,
        gain_lower=certificate.lower_bound,
        gain_upper=certificate.upper_bound,
        truncated_mass=certificate.truncated_mass,
        nodes_per_bin=2 if on_nodes and is_orderly(solution.problem.arrivals) else None,
        tolerance=None,
    )
