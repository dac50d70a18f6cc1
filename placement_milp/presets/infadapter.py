"""InfAdapter: accuracy minus the cost of CPUs and of switching models.

    max  alpha · accuracy - beta · cost - gamma · loading     with all of the demand served

A worker is a unit of CPU; the number of workers with a variant is the variant's size. The
published program counts the longest loading; here it is the sum over workers, which a batch of
changes has to wait for where workers load one after another.

Source: Salmani et al., *Reconciling High Accuracy, Cost-Efficiency, and Low Latency of Inference
Serving Systems*, EuroMLSys 2023.
"""

from __future__ import annotations

from dataclasses import replace

from placement_milp.backend import Limits
from placement_milp.problem import PlacementObjective, Problem
from placement_milp.recipe import place
from placement_milp.result import Placement


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
