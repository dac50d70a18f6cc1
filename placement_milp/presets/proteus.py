"""Proteus: accuracy scaling with a fixed batch rule, with all demand served.

    max Σ_q a_q d_f z_q / Σ_f d_f    with Σ_q of f z_q = 1 for every family

where a worker runs its variant at the largest batch whose latency is within the share of the SLO
(half of it, in the paper), not at the batch with the highest rate. While no placement serves all
demand, the demand is divided by beta.

Source: Ahmad, Guan, Friedman, Williams, Sitaraman, Woo, *Proteus: A High-Throughput
Inference-Serving System with Accuracy Scaling*, ASPLOS 2024.
"""

from __future__ import annotations

from dataclasses import replace

from placement_milp.backend import Limits
from placement_milp.optimise import Optimum, optimise
from placement_milp.patterns import each_alone
from placement_milp.problem import PlacementObjective, Problem
from placement_milp.recipe import families, placed
from placement_milp.result import Placement
from ramsis.errors import InfeasibleError

_MAX_DIVISIONS = 2**10  # of the demand; if still infeasible, so is any load


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
    families_ = tuple(replace(family, demand_qps=family.demand_qps / by, min_served=1.0)
                      for family in problem.families)
    return replace(problem, families=families_, objective=PlacementObjective())
