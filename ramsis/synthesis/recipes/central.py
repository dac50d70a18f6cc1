"""Policies for a central queue, which all workers take from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ramsis import __version__
from ramsis.arrivals import Arrivals
from ramsis.bounds import fluid_bound
from ramsis.cluster.cluster import check_reachable
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InputFileError, NotConvergedError
from ramsis.policy import CertificateRecord, Inputs, Policy, PolicyModel
from ramsis.policy.records import NOTHING
from ramsis.profiles import ProfileSet
from ramsis.runtime.table import DROP_CODE
from ramsis.synthesis.headroom import Limits, Replays, with_headroom
from ramsis.synthesis.recipes.recipe import (
    DELAY_PRICE,
    WAIT_REWARD,
    Planned,
    Recipe,
    as_stated,
    sizes_stated,
    stated_arrivals,
    without_overhead,
)
from ramsis.synthesis.settings import SynthesisSettings, inputs_of

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution

CENTRAL_QUEUE = "central-queue"

_NO_MATTER = 3e-4  # gain that a replay may miss: the problem's error where nothing swings
_FAR_SHORT = 1.5e-3  # gain missed that a third optimum is worth its time for


class Central(Recipe["CentralProblem"]):
    """Recipe of a central queue, which all workers take from."""

    def knows(self, settings: SynthesisSettings) -> bool:
        """Return whether arrivals are Poisson: the state has no phase of an arrival process."""
        return Arrivals.parse(settings.arrivals).name == "poisson"

    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        load_factor: float | None = None,
    ) -> CentralProblem:
        """Return the decision problem of a central queue that a policy for a load solves."""
        overhead_ms = settings.overhead_ms
        times = ServiceTimes.of(settings.profile_for(profile),
                                settings.chosen_service(profile), settings.max_queue)
        times = replace(times, quantiles_ms=as_stated(times.quantiles_ms, overhead_ms))
        if settings.slo_classes:
            check_reachable([times], settings.slo_classes)
        return _problem_at(times.without_late(settings.slo_ms),
                           load_qps * (load_factor or 1.0), settings)

    def planned(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        problem: CentralProblem, replays: Replays, load_factor: float | None = None,
    ) -> Planned:
        """Return the best policy of a central queue's problem, with its certificate."""
        from ramsis.central.solve import solve_central

        inputs = inputs_of(profile, settings)
        limits = limits_of(problem, load_qps)
        solutions: dict[float, CentralSolution] = {}

        def unpromised(solution: CentralSolution) -> Policy:
            return replace(_unpromised(problem, solution, limits, inputs, settings),
                           load_factor=load_factor, arrivals=stated_arrivals(settings, load_qps))

        def planned(factor: float) -> Policy:
            plan = problem if factor == 1.0 else _problem_at(
                problem.times.scaled(factor), problem.load_qps, settings)
            if solutions:  # the kind of optimum that was chosen at other service times
                best = next(iter(solutions.values())).problem
                solutions[factor] = solve_central(plan.varied(
                    delay_price=best.delay_price, random_ends=best.random_ends))
            else:
                solutions[factor] = _better_played(plan, factor, unpromised, replays)
            return unpromised(solutions[factor])

        policy = with_headroom(planned, settings.headroom, replays, limits)
        solution = solutions[policy.planned_factor]

        def analysis() -> CentralAnalysis:
            return analysis_of(solution.problem.varied(times=problem.times), solution)

        return Planned(
            policy,
            lambda: analysis().expectations(capacity_qps=limits.capacity_qps,
                                            upper_bound=limits.effective_accuracy),
            lambda: analysis().evidence() if problem.times.distributed else None)

    def problem_of(self, policy: Policy, where: str = "policy") -> CentralProblem:
        """Return the problem of a central queue that a policy file describes."""
        from ramsis.central.classes import ClassesProblem
        from ramsis.central.problem import CentralProblem

        if policy.load_factor is None and policy.arrivals_label != "poisson":
            raise InputFileError("no load_factor, though a central queue is planned for Poisson "
                                 "arrivals", where=f"{where}: arrivals",
                                 value=policy.arrivals_label, allowed="poisson")
        problem = CentralProblem(
            times=policy.service_times, slo_ms=policy.slo_ms, workers=policy.workers,
            load_qps=policy.planned_qps, price=policy.violation_price,
            action_model=policy.actions[:, 0].copy(), action_batch=policy.actions[:, 1].copy(),
            slack_ms=policy.slack_ms.copy(),
            idle=policy.idle_levels.copy(), queue=policy.queue_levels.copy(),
            random_ends=policy.random_ends,
            delay_price=-WAIT_REWARD if policy.patient else DELAY_PRICE,
        )
        return ClassesProblem.of(problem, policy.slo_classes) if policy.slo_classes else problem

    def analysis(self, policy: Policy) -> CentralAnalysis:
        """Return the stationary behaviour of the policy in a central queue's file.

        The analysed policy is the optimum of the file's decision problem, which is solved again.
        The file's table differs from this policy by one more step of improvement
        (:mod:`ramsis.central.solve`). A file whose table differs from that of the repeated
        solution raises `InputFileError`, as the analysis is not of its table then.
        """
        problem = self.problem_of(policy)
        solution = solved_again(problem, policy.planned_factor)
        if not np.array_equal(solution.table, policy.codes):
            raise InputFileError("the model has the behaviour of its own table only",
                                 where="policy")
        return analysis_of(problem, solution)


def _better_played(
    plan: CentralProblem, factor: float, policy_of: Callable[[CentralSolution], Policy],
    replays: Replays,
) -> CentralSolution:
    """Return the best of up to three optima of the decision problem by their gain in replays.

    The first optimum answers early. If its replay, at the service times planned for, earns less
    than the decision problem predicts, workers start together and end together
    (:data:`WAIT_REWARD`). Then the optimum that lets requests queue is replayed, too; if that also
    falls far short, the optimum for batches that end at random instants.
    """
    from ramsis.central.solve import solve_central

    best, most = solve_central(plan), -np.inf
    if plan.workers == 1:
        return best
    solution = best
    for others, missed in (({"delay_price": -WAIT_REWARD}, _NO_MATTER),
                           ({"random_ends": True}, _FAR_SHORT), ({}, np.inf)):
        figures = replays.at(policy_of(solution), factor)
        if figures is None:
            return best
        gain = figures.effective_accuracy - plan.price * figures.violation_rate
        if gain > most:
            best, most = solution, gain
        if gain >= solution.steady_state.gain - max(figures.effective_half_width, missed):
            return best
        try:
            solution = solve_central(plan.varied(**others))
        except NotConvergedError:
            return best
    return best


def solved_again(problem: CentralProblem, factor: float) -> CentralSolution:
    """Return the optimal solution at service times a factor longer, on the problem's levels."""
    from ramsis.central.solve import solve_central

    return solve_central(
        problem if factor == 1.0 else problem.varied(times=problem.times.scaled(factor)))


def analysis_of(problem: CentralProblem, solution: CentralSolution) -> CentralAnalysis:
    """Return the steady state of a solved policy at a problem's service times."""
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import evaluate_central

    same = problem.times.same_as(solution.problem.times)
    return CentralAnalysis(
        problem, solution.steady_state if same else evaluate_central(problem, solution))


def limits_of(problem: CentralProblem, load_qps: float) -> Limits:
    """Return the capacity and the fluid bound at a load."""
    bound = fluid_bound(problem.times, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=load_qps, max_batch=problem.times.max_batch)
    upper_bound = bound.effective_accuracy
    if problem.classes:
        upper_bound = fluid_bound(problem.times, slo_ms=problem.classes, workers=problem.workers,
                                  load_qps=load_qps).effective_accuracy
    return Limits(load_qps, bound.capacity_qps, upper_bound)


def certificate_of(solution: CentralSolution, upper_bound: float | None) -> CertificateRecord:
    """Return the certificate of a table, optimal for the times that it is planned for.

    The bound on the gain is the fluid bound at the times as profiled. The most that a patient
    policy may have earned by waiting is taken away, so that the gain is one of answers.
    """
    steady_state = solution.steady_state
    waited = max(0.0, -solution.problem.delay_price)
    return CertificateRecord(
        solver="policy-iteration", converged=True, iterations=solution.rounds,
        bellman_residual=solution.residual, gain=steady_state.gain - waited, gain_lower=None,
        gain_upper=upper_bound, truncated_mass=steady_state.restart, nodes_per_bin=None,
        tolerance=None)


def _problem_at(
    times: ServiceTimes, load_qps: float, settings: SynthesisSettings
) -> CentralProblem:
    """Create the problem at some service times, with levels, batches and slack bins for these."""
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import CentralProblem

    grid = settings.grid
    problem = CentralProblem.create(
        times, slo_ms=settings.slo_ms, workers=settings.workers, load_qps=load_qps,
        price=settings.violation_price, delay_price=DELAY_PRICE,
        steps=int(grid.partition(":")[2]) if grid and grid != "model" else None)
    return ClassesProblem.of(problem, settings.slo_classes) if settings.slo_classes else problem


def _unpromised(
    problem: CentralProblem, solution: CentralSolution, limits: Limits, inputs: Inputs,
    settings: SynthesisSettings,
) -> Policy:
    """Return the policy of a solution; of its expectations, only capacity and bound are set.

    ``problem`` has the profiled service times, ``solution`` those that are planned for.
    """
    plan, times, overhead_ms = solution.problem, problem.times, settings.overhead_ms
    return Policy(
        models=tuple(_model(times, m, overhead_ms) for m in range(len(times.models))),
        slo_ms=plan.slo_ms,
        workers=plan.workers,
        load_qps=limits.load_qps,
        service=times.service,
        arrivals={"process": "poisson"},
        dispatch=CENTRAL_QUEUE,
        batching="variable",
        late="drop",
        objective="per-query",
        idle_levels=plan.idle,
        queue_levels=plan.queue,
        slack_ms=plan.slack_ms,
        actions=np.stack([plan.action_model, plan.action_batch], axis=1),
        codes=solution.table.astype(np.int64),
        longer_queue=DROP_CODE,
        expectations=replace(NOTHING, capacity_qps=limits.capacity_qps,
                             upper_bound=limits.effective_accuracy),
        certificate=certificate_of(solution, limits.effective_accuracy),
        inputs=inputs,
        created_by=f"ramsis {__version__}",
        violation_price=plan.price,
        slo_classes=plan.classes,
        patient=plan.delay_price < 0.0, random_ends=plan.random_ends,
        overhead_ms=overhead_ms,
        slowness=settings.slowness,
        quantile_levels=times.levels if times.service == DISTRIBUTION else None,
        tails=times.tails,
    )


def _model(times: ServiceTimes, m: int, overhead_ms: float) -> PolicyModel:
    """Return model m for a policy file: its batches that may be in time, overhead removed."""
    finite = np.isfinite(times.quantiles_ms[m]).all(axis=1)
    rows = without_overhead(times.quantiles_ms[m][finite], overhead_ms)
    means = np.maximum.accumulate(rows @ times.weights)
    drawn = times.service == DISTRIBUTION
    return PolicyModel(
        times.models[m], float(times.accuracy[m]),
        tuple((means if drawn else rows[:, 0]).tolist()),
        quantiles_ms=tuple(tuple(row) for row in rows.tolist()) if drawn else None,
        samples=tuple(times.samples[m][finite].tolist()) if drawn else None,
        run_as=sizes_stated(times.run_as[m][finite]))
