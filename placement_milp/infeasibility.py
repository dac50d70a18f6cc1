"""Infeasibility analysis: minima that cannot be met, their shortfall, and binding limits.

**Problem.** A placement problem has no feasible point. The analysis relaxes its minima, not its
limits, and finds the smallest relaxation.

**Elastic program.** An unmet part u >= 0 is added to each minimum share and minimum accuracy, and
the sum of these parts is minimised:

    min  Σ_f u_f + u'_f
    s.t. Σ_q r_q z_q + u_f                         >= minimum share,
         Σ_q r_q (a_q - minimum accuracy) z_q + u'_f >= 0,      for every family f,

with all other constraints unchanged. It is feasible without any worker, so there is always an
optimum. A limit *binds* if it has a positive shadow price in the linear relaxation of the elastic
program. If no limit has one, because fractions of workers would suffice, the limits without room
for one more worker bind.

**Stopping rule.** A relative gap of 1e-3, or a wider one of the caller.
"""

from __future__ import annotations

import pulp

from placement_milp.backend import Limits, SearchStatus, relaxed_prices, solve
from placement_milp.formulation import PlacementProgram, formulate
from placement_milp.problem import Family, Problem
from ramsis.errors import NotConvergedError

_MET = 1e-7  # an unmet part below this counts as met
_NO_PRICE = 1e-9  # tolerance of shadow prices


def explain_infeasibility(failed: PlacementProgram, limits: Limits) -> str:
    """Return a one-line explanation why a program has no placement."""
    problem = failed.problem
    program = formulate(problem, failed.patterns, elastic=True)
    total = pulp.LpAffineExpression([(unmet, 1) for unmet in program.unmet.values()])
    wide = Limits(max(limits.gap, 1e-3), limits.seconds, limits.solver)
    try:
        solved = solve(program.lp, total, maximise=False, size=1.0, limits=wide)
    except NotConvergedError:
        return "no placement meets the rules"
    if solved.status is SearchStatus.INFEASIBLE:
        return "no placement meets the rules"
    unmet = {name: x.varValue or 0.0 for name, x in program.unmet.items()}
    missed = [_unmet_minima(problem, program, family, unmet) for family in problem.families]
    binding = _binding_limits(problem, program, total)
    text = "no placement meets all minima: " + "; ".join(part for part in missed if part)
    return text + (f"; what binds: {', '.join(binding)}" if binding else "")


def _unmet_minima(
    problem: Problem, program: PlacementProgram, family: Family, unmet: dict[str, float]
) -> str:
    """Describe the unmet minima of a family; return an empty text if all are met."""
    share = unmet.get(f"min_served_{family.name}", 0.0)
    accuracy = unmet.get(f"min_accuracy_{family.name}", 0.0)
    reasons = []
    if share > _MET:
        minimum = problem.min_share(family)
        reasons.append(f"serves {minimum - share:.4g} of its demand instead of {minimum:g} "
                       f"({share * family.demand_qps:.4g} QPS short)")
    if accuracy > _MET:
        answered = sum(program.z[q].varValue * q.in_time for q in program.of_family(family.name))
        reached = family.min_accuracy - accuracy / answered
        reasons.append(f"reaches accuracy {reached:.4g} instead of {family.min_accuracy:g}")
    return f"family {family.name} " + " and ".join(reasons) if reasons else ""


def _binding_limits(problem: Problem, program: PlacementProgram, total: object) -> list[str]:
    """Return limits with a positive shadow price, or else without room for one more worker."""
    limits = {f"workers_{item.name}": f"workers of type {item.name} ({item.count})"
              for item in problem.worker_types}
    limits |= {f"family_workers_{item.name}": f"max_workers of family {item.name}"
               for item in problem.families}
    limits |= {"total_workers": "max_workers", "budget": "max_cost_per_hour"}
    constraints = {text: program.constraints[name] for name, text in limits.items()
                   if name in program.constraints}
    full = [text for text, row in constraints.items()
            if -row.value() < min((f for f in row.values() if f > 0), default=0.0) - 1e-6]
    prices = relaxed_prices(program.lp, total, program.positions(
        {text: name for name, text in limits.items()}), maximise=False, size=1.0)
    return [text for text, price in prices.items() if price > _NO_PRICE] or full
