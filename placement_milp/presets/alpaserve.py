"""AlpaServe: replication of models, as memory allows, for the largest tolerance to bursts.

    max theta   with  Σ_p mu_pf n_p >= theta d_f  for every family f,   Σ_p of type t n_p <= N_t

theta is the *tolerance*: the multiple of every family's demand that the workers could take. Each
family has one model, its most accurate variant. AlpaServe replicates greedily by simulated
attainment of SLOs; here the replication is exact for the rates, and up to two models share a
worker where ``variants_per_worker`` and memory allow. Splitting a model over several workers is
left out.

Source: Li et al., *AlpaServe: Statistical Multiplexing with Model Parallelism for Deep Learning
Serving*, OSDI 2023.
"""

from __future__ import annotations

from dataclasses import replace

import pulp

from placement_milp.backend import Limits, relative_gap, solve
from placement_milp.feasible import feasible_batches
from placement_milp.formulation import budget, family_workers, formulate, total_workers, workers
from placement_milp.patterns import Pattern, enumerate_patterns, rates_of
from placement_milp.presets.heuristic import checked_placement
from placement_milp.problem import PlacementObjective, Problem
from placement_milp.result import Placement, Stage

_UNLIMITED = 1e9  # demand above all rates, so that rates are not capped


def alpaserve(problem: Problem, limits: Limits | None = None) -> Placement:
    """Replicate each family's most accurate variant for the largest tolerance.

    Parameters
    ----------
    problem : Problem
        Objective, other variants and minimum shares play no part.
    """
    limits = limits or Limits()
    bare = tuple(replace(family, min_served=0.0, min_accuracy=0.0) for family in problem.families)
    original, problem = problem, replace(problem, families=bare, values=(),
                                         objective=PlacementObjective())
    program = formulate(problem, _patterns(problem), only=(
        workers, family_workers, total_workers, budget))
    theta = program.variable("theta", 0, None)
    for family in problem.families:
        rates = [(program.n[i], offer.rate_qps / family.demand_qps)
                 for i, pattern in enumerate(program.patterns) for offer in pattern.offers
                 if offer.quality.family == family.name]
        program.add(pulp.LpAffineExpression([*rates, (theta, -1)]) >= 0,
                    f"tolerance_{family.name}")
    objective = pulp.LpAffineExpression([(theta, 1)])
    solved = solve(program.lp, objective, maximise=True, size=1.0, limits=limits)
    used = [(pattern, round(n.varValue or 0.0))
            for pattern, n in zip(program.patterns, program.n, strict=True)]
    taken = rates_of(used)
    reached = min(sum(rate for quality, rate in taken.items() if quality.family == family.name)
                  / family.demand_qps for family in problem.families)
    gap = relative_gap(reached, solved.dual_bound)
    stage = Stage("tolerance", reached, solved.dual_bound, gap)
    placement = checked_placement(problem, used, solved.seconds, status=solved.status.value,
                                  stages=(stage,))
    return replace(placement, problem=original)


def _patterns(problem: Problem) -> tuple[Pattern, ...]:
    """Return patterns of the most accurate variants, with rates not capped at the demand."""
    best = {}
    for variant in sorted(problem.variants, key=lambda v: v.accuracy):
        if any(feasible_batches(problem, variant, item)
               for item in problem.worker_types if item.count):
            best[variant.family] = variant
    unlimited = tuple(replace(family, demand_qps=_UNLIMITED) for family in problem.families)
    return enumerate_patterns(replace(problem, variants=tuple(best.values()), families=unlimited))
