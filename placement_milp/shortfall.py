"""Why a problem has no placement: which family falls short by how much, and what would help.

The elastic program adds a shortfall >= 0 to each least share and least accuracy and minimises
their sum: Σ_q r_q z_q + short_f >= least share, Σ_q r_q (a_q - least accuracy) z_q + short_f >= 0.
With no worker in use it is feasible, so that it always has an answer. What binds are the limits
that have a price in its relaxation, or, where fractions of workers would do, those without room
for one more.
"""

from __future__ import annotations

import pulp

from placement_milp.backend import Limits, Status, relaxed_prices, solve
from placement_milp.formulation import Program, formulate
from placement_milp.problem import Family, Problem
from ramsis.errors import NotConvergedError

__all__ = ["why_infeasible"]

_SHORT = 1e-7


def why_infeasible(failed: Program, limits: Limits) -> str:
    """One line on a problem that has no placement.

    Parameters
    ----------
    failed : Program
        That of the problem.
    limits : Limits
        The elastic program is solved to a gap of 1e-3 or wider.
    """
    problem = failed.problem
    program = formulate(problem, failed.patterns, elastic=True)
    total = pulp.LpAffineExpression([(short, 1) for short in program.shortfall.values()])
    wide = Limits(max(limits.gap, 1e-3), limits.seconds, limits.solver)
    try:
        solved = solve(program.lp, total, maximise=False, size=1.0, limits=wide)
    except NotConvergedError:
        return "no placement meets the rules"
    if solved.status is Status.INFEASIBLE:
        return "no placement meets the rules"
    short = {name: x.varValue or 0.0 for name, x in program.shortfall.items()}
    missed = [_words(problem, program, family, short) for family in problem.families]
    binding = _binding(problem, program, total)
    text = "no placement meets all minima: " + "; ".join(words for words in missed if words)
    return text + (f"; what binds: {', '.join(binding)}" if binding else "")


def _words(problem: Problem, program: Program, family: Family, short: dict[str, float]) -> str:
    served = short.get(f"min_served_{family.name}", 0.0)
    accuracy = short.get(f"min_accuracy_{family.name}", 0.0)
    found = []
    if served > _SHORT:
        least = problem.least_served(family)
        found.append(f"serves {least - served:.4g} of its demand instead of {least:g} "
                     f"({served * family.demand_qps:.4g} QPS short)")
    if accuracy > _SHORT:
        answered = sum(program.z[q].varValue * q.in_time for q in program.of_family(family.name))
        reached = family.min_accuracy - accuracy / answered
        found.append(f"reaches accuracy {reached:.4g} instead of {family.min_accuracy:g}")
    return f"family {family.name} " + " and ".join(found) if found else ""


def _binding(problem: Problem, program: Program, total: object) -> list[str]:
    """Limits that a unit more of would shorten the shortfall; else those without any room."""
    what = {f"workers_{item.name}": f"workers of type {item.name} ({item.count})"
            for item in problem.worker_types}
    what |= {f"family_workers_{item.name}": f"max_workers of family {item.name}"
             for item in problem.families}
    what |= {"total_workers": "max_workers", "budget": "max_cost_per_hour"}
    rows = {text: program.rows[name] for name, text in what.items() if name in program.rows}
    full = [text for text, row in rows.items()
            if -row.value() < min((f for f in row.values() if f > 0), default=0.0) - 1e-6]
    prices = relaxed_prices(program.lp, total, program.positions(
        {text: name for name, text in what.items()}), maximise=False, size=1.0)
    return [text for text, price in prices.items() if price > 1e-9] or full
