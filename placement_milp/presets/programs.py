"""Presets that are integer programs; most change the objective or the rules of the placement's.

*Jellyfish*: one model on each worker; maximum served share first, then maximum accuracy. Its
choice of a model for each GPU is one program over all workers here. The published scheme adapts to
the network time between client and server; here the user subtracts this time from the SLO. Source:
Nigade, Bauszat, Bal, Wang, *Jellyfish: Timely Inference Serving for Dynamic Edge Networks*, RTSS
2022.

*InfAdapter*: accuracy minus the cost of CPUs and of switching models.

    max  alpha · accuracy - beta · cost - gamma · loading     with all of the demand served

A worker is a unit of CPU; the number of workers with a variant is the variant's size. The
published program counts the longest loading; here it is the sum over workers, the time of all
changes if workers load one after another. Source: Salmani et al., *Reconciling
High Accuracy, Cost-Efficiency, and Low Latency of Inference Serving Systems*, EuroMLSys 2023.

*Proteus*: accuracy scaling with a fixed batch rule, with all demand served.

    max Σ_q a_q d_f z_q / Σ_f d_f    with Σ_q of f z_q = 1 for every family

where a worker runs its variant at the largest batch whose latency is within the share of the SLO
(half of it, in the paper), not at the batch with the highest rate. While no placement serves all
demand, the demand is divided by beta. Source: Ahmad, Guan, Friedman, Williams, Sitaraman, Woo,
*Proteus: A High-Throughput Inference-Serving System with Accuracy Scaling*, ASPLOS 2024.

*AlpaServe*: replication of models, as memory allows, for the largest tolerance to bursts.

    max theta   with  Σ_p mu_pf n_p >= theta d_f  for every family f,   Σ_p of type t n_p <= N_t

theta is the *tolerance*: the multiple of every family's demand that the workers could take. Each
family has one model, its most accurate variant. AlpaServe replicates greedily by simulated
attainment of SLOs; here the replication is exact for the rates, and up to two models share a
worker where ``variants_per_worker`` and memory allow. Splitting a model over several workers is
left out. Source: Li et al., *AlpaServe: Statistical Multiplexing with Model Parallelism for Deep
Learning Serving*, OSDI 2023.
"""

from __future__ import annotations

from dataclasses import replace

import pulp

from placement_milp.backend import Limits, relative_gap, solve
from placement_milp.feasible import feasible_batches
from placement_milp.formulation import budget, family_workers, formulate, total_workers, workers
from placement_milp.optimise import Optimum, optimise
from placement_milp.patterns import Pattern, each_alone, enumerate_patterns, rates_of
from placement_milp.presets.heuristic import checked_placement
from placement_milp.problem import PlacementObjective, Problem
from placement_milp.recipe import families, place, placed
from placement_milp.result import Placement, Stage
from ramsis.errors import InfeasibleError

_UNLIMITED = 1e9  # demand above all rates, so that rates are not capped

_MAX_DIVISIONS = 2**10  # of the demand; if still infeasible, so is any load


def jellyfish(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place one variant on each worker: most served, then most accurate.

    Parameters
    ----------
    problem : Problem
        Its objective and ``variants_per_worker`` are replaced.
    """
    objective = PlacementObjective("lexicographic", order=("served", "effective-accuracy"))
    rules = replace(problem.rules, variants_per_worker=1)
    changed = replace(problem, objective=objective, rules=rules)
    return replace(place(changed, limits), problem=problem)


def infadapter(
    problem: Problem, limits: Limits | None = None, *, cost_price: float | None = None,
    moving_price: float | None = None,
) -> Placement:
    """Place one variant on each worker for accuracy minus costs.

    Parameters
    ----------
    problem : Problem
        Every family is served whole unless it states a minimum share.
    cost_price, moving_price : float, optional
        beta / alpha per unit of cost and hour, gamma / alpha per second of loading; by default the
        problem's prices if it has them, else 0.01 over the cost of all workers, and 0.
    """
    stated = problem.objective
    total_cost = sum(item.count * item.cost_per_hour for item in problem.worker_types)
    default = stated.cost_price or (0.01 / total_cost if total_cost else 0.0)
    objective = PlacementObjective(
        "effective-accuracy",
        cost_price=default if cost_price is None else cost_price,
        moving_price=stated.moving_price if moving_price is None else moving_price)
    families = tuple(replace(family, min_served=problem.min_share(family) or 1.0)
                     for family in problem.families)
    rules = replace(problem.rules, variants_per_worker=1)
    changed = replace(problem, objective=objective, families=families, rules=rules)
    return replace(place(changed, limits), problem=problem)


def proteus(
    problem: Problem, limits: Limits | None = None, *, beta: float = 1.05
) -> Placement:
    """Place variants by the program of Proteus.

    Parameters
    ----------
    problem : Problem
        Objective and minimum shares are replaced.
    beta : float
        Divisor of the demand while it cannot be served, > 1.

    Returns
    -------
    Placement
        Families have their shares of the whole demand; objective and bound are relative to the
        divided demand, and a note states the divisor.
    """
    limits = limits or Limits()
    patterns = each_alone(problem, lambda item: item.batch)
    solved: dict[int, tuple[Problem, Optimum]] = {}

    def feasible(times: int) -> bool:
        divided = _divided(problem, beta**times)
        try:
            solved[times] = (divided, optimise(divided, limits, patterns))
        except InfeasibleError:
            if times >= _MAX_DIVISIONS:
                raise
            return False
        return True

    # The least number of divisions with a placement: by doubling, then by bisection.
    high = 0
    while not feasible(high):
        high = 2 * high or 1
    low = high // 2  # infeasible, unless both are 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    divided, optimum = solved[high]
    placement = placed(divided, optimum)
    notes = (f"demand divided by {beta:g}^{high} = {beta**high:.4g}",) if high else ()
    return replace(placement, families=families(problem, placement.groups), notes=notes,
                   problem=problem)


def _divided(problem: Problem, by: float) -> Problem:
    """Return the problem with demands divided by ``by``, all of which must be served."""
    families_ = tuple(replace(family, demand_qps=family.demand_qps / by, min_served=1.0)
                      for family in problem.families)
    return replace(problem, families=families_, objective=PlacementObjective())


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
