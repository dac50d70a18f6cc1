"""Policies for a central queue, which all workers take from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ramsis import __version__
from ramsis.cluster.checks import check_reachable
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InputFileError, NotConvergedError
from ramsis.policy import Inputs, Policy, PolicyModel
from ramsis.profiles import ProfileSet
from ramsis.runtime.table import DROP_CODE
from ramsis.synthesis.recipes.central_headroom import Plans, plans_of
from ramsis.synthesis.recipes.central_promise import certificate_of, promise_of
from ramsis.synthesis.recipes.recipe import Recipe
from ramsis.synthesis.replayed import replayed, settles
from ramsis.synthesis.service import as_stated, sizes_stated, without_overhead
from ramsis.synthesis.settings import SynthesisSettings, inputs_of
from ramsis.synthesis.simulated import simulated

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution

CENTRAL_QUEUE = "central-queue"

_QUERIES, _RUNS = 100_000, 4  # of the simulation that two ways are compared in
_MOST_QUERIES = 2e6  # of a run until the workers have settled
_NO_MATTER = 6e-4  # of accuracy that may be missing there
_LEAST_VARIABILITY = 1e-3


class Central(Recipe["CentralProblem"]):
    """One queue that all workers take from."""

    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings
    ) -> CentralProblem:
        """See :meth:`Recipe.problem`."""
        overhead_ms = settings.overhead_ms
        times = ServiceTimes.of(settings.profile_for(profile),
                                settings.chosen_service(profile), settings.max_queue)
        times = replace(times, quantiles_ms=as_stated(times.quantiles_ms, overhead_ms))
        from ramsis.central.classes import ClassesProblem
        from ramsis.central.problem import CentralProblem

        problem = CentralProblem.create(
            times.without_late(settings.slo_ms), slo_ms=settings.slo_ms, workers=settings.workers,
            load_qps=load_qps, price=settings.violation_price, steps=_steps(settings.grid),
            prefer=settings.prefer,
        )
        if not settings.slo_classes:
            return problem
        check_reachable([times], settings.slo_classes)
        return ClassesProblem.of(problem, settings.slo_classes)

    def policy(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        problem: CentralProblem,
    ) -> Policy:
        """See :meth:`Recipe.policy`; what is promised is :mod:`ramsis.synthesis.replayed`."""
        return replayed(self._chosen(profile, load_qps, settings, problem))

    def modelled(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        problem: CentralProblem,
    ) -> Policy:
        """See :meth:`Recipe.modelled`."""
        return self._chosen(profile, load_qps, settings, problem)

    def _chosen(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        problem: CentralProblem,
    ) -> Policy:
        """Return the best of the candidate policies.

        The optimum for several workers is replayed in simulation, but for so many that this would
        take millions of queries. Where it earns less there than it promises, batches do not end
        as evenly as the model has it. Then the optimum for batches that end at random is replayed
        too, and the one that earns more is what the headroom is looked for from.
        """
        inputs = inputs_of(profile, settings)
        plans = _planned(problem, inputs, settings)
        if problem.workers > 1 and settles(problem.load_qps, problem.slo_ms, _MOST_QUERIES):
            assert plans.policy is not None
            played = plans.figures(plans.solution(), 1.0)
            if played.gain < plans.policy.certificate.gain - max(played.half_width, _NO_MATTER):
                try:
                    other = _planned(problem.varied(random_ends=True), inputs, settings, plans)
                except NotConvergedError:
                    other = plans
                if other.figures(other.solution(), 1.0).gain > played.gain:
                    plans = other
        return _most_robust(plans, inputs, settings)

    def problem_of(
        self, policy: Policy, where: str = "policy", *, own_arrivals: str | None = None
    ) -> CentralProblem:
        """See :meth:`Recipe.problem_of`; the arrivals must be Poisson."""
        from ramsis.central.classes import ClassesProblem
        from ramsis.central.problem import CentralProblem

        if policy.arrivals_label != "poisson":
            raise InputFileError("no problem of a central queue for this arrival process",
                                 where=f"{where}: arrivals", value=policy.arrivals_label,
                                 allowed="poisson")
        times = ServiceTimes(tuple(model.name for model in policy.models), policy.accuracy,
                         policy.service_ms, policy.service, policy.levels,
                         policy.samples, tails=policy.tails)
        problem = CentralProblem(
            times=times, slo_ms=policy.slo_ms, workers=policy.workers,
            load_qps=policy.load_qps, price=policy.violation_price,
            action_model=policy.actions[:, 0].copy(), action_batch=policy.actions[:, 1].copy(),
            slack_ms=policy.slack_ms.copy(),
            idle=policy.idle_levels.copy(), queue=policy.queue_levels.copy(),
            random_ends=policy.random_ends, prefer=policy.prefer,
        )
        return ClassesProblem.of(problem, policy.slo_classes) if policy.slo_classes else problem

    def analysis(self, policy: Policy, *, own_arrivals: str | None = None) -> CentralAnalysis:
        """See :meth:`Recipe.analysis`.

        Of the model's optimal policy, which the table improves on.
        """
        from ramsis.analysis.central import CentralAnalysis

        problem = self.problem_of(policy)
        plans, solution = plans_of(problem, policy)
        if not np.array_equal(solution.table, policy.codes):
            raise InputFileError("the model has the behaviour of its own table only",
                                 where="policy")
        return CentralAnalysis(problem, plans.played(solution).steady_state)


def _steps(grid: str | None) -> int | None:
    """Number of equal slack bins; None for the default of the service times."""
    return int(grid.partition(":")[2]) if grid and grid != "model" else None


def policy_of_regular_ends(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """Return the best policy for fixed service times near capacity.

    The more of the time workers are busy, the more evenly their batches end: the departures of a
    queue with Poisson arrivals and fixed service times have a squared coefficient of variation of
    1 - ρ², ρ being the utilisation (W. Whitt, "The Queueing Network Analyzer", Bell System
    Technical Journal 62, 1983). By that factor the spacings of ends vary less than
    :mod:`ramsis.central.problem` has them, ρ being that of its own policy. Both policies are
    replayed in simulation on the same arrivals, and the one for more regular ends is the answer
    unless it earns less there: it may count on a regularity that its own waiting destroys.
    """
    recipe = Central()
    problem = recipe.problem(profile, load_qps, settings)
    made = recipe.policy(profile, load_qps, settings, problem)
    if problem.workers == 1 or not settles(problem.load_qps, problem.slo_ms):
        return made
    variability = max(1.0 - made.expectations.utilisation**2, _LEAST_VARIABILITY)
    regular = _most_robust(_planned(problem.varied(end_variability=variability), made.inputs,
                                    settings), made.inputs, settings)
    worse = _in_simulation(regular) < _in_simulation(made) - _NO_MATTER
    return made if worse else replayed(regular)


def _in_simulation(policy: Policy) -> float:
    """The gain in simulation."""
    found = simulated(policy, queries=_QUERIES, runs=_RUNS, seed=0)
    return found.effective_accuracy - policy.violation_price * found.violation_rate


def _planned(
    problem: CentralProblem, inputs: Inputs, settings: SynthesisSettings,
    like: Plans | None = None,
) -> Plans:
    """The plans of a problem, which its optimum is replayed for."""
    plans = Plans(problem, like=like)
    plans.policy = _as_policy(plans.played(plans.solution()), plans.solution(), inputs, settings)
    return plans


def _most_robust(plans: Plans, inputs: Inputs, settings: SynthesisSettings) -> Policy:
    """The policy that is optimal in the model, or the most robust one within the headroom."""
    assert plans.policy is not None
    if not settings.headroom:
        return plans.policy
    solution, headroom = plans.most_robust(settings.headroom)
    made = plans.policy if solution is plans.solution() else _as_policy(
        plans.played(solution), solution, inputs, settings)
    return replace(made, headroom=headroom)


def _as_policy(
    found: CentralAnalysis, solution: CentralSolution, inputs: Inputs,
    settings: SynthesisSettings,
) -> Policy:
    """Return a solution as a policy that promises the model's figures."""
    problem, times = found.problem, found.problem.times
    expectations, overhead_ms = promise_of(found), settings.overhead_ms
    return Policy(
        models=tuple(_model(times, m, overhead_ms) for m in range(len(times.models))),
        slo_ms=problem.slo_ms,
        workers=problem.workers,
        load_qps=problem.load_qps,
        service=times.service,
        arrivals={"process": "poisson"},
        dispatch=CENTRAL_QUEUE,
        batching="variable",
        late="drop",
        objective="per-query",
        idle_levels=problem.idle,
        queue_levels=problem.queue,
        slack_ms=problem.slack_ms,
        actions=np.stack([problem.action_model, problem.action_batch], axis=1),
        codes=solution.table.astype(np.int64),
        longer_queue=DROP_CODE,
        expectations=expectations,
        certificate=certificate_of(solution, expectations.upper_bound, found.steady_state.gain),
        inputs=inputs,
        created_by=f"ramsis {__version__}",
        violation_price=problem.price,
        prefer=problem.prefer,
        slo_classes=problem.classes,
        spare_idle=solution.spare_idle,
        random_ends=problem.random_ends,
        overhead_ms=overhead_ms,
        slowness=settings.slowness,
        quantile_levels=times.levels if times.service == DISTRIBUTION else None,
        tails=times.tails,
    )


def _model(times: ServiceTimes, m: int, overhead_ms: float) -> PolicyModel:
    """A model with the batches that may be in time, without the overhead."""
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
