"""Lexicographic optimisation of a placement: the stages of an objective, solved in order.

Each stage optimises one metric over the program of :mod:`placement_milp.formulation`. Later stages
keep the values of earlier ones up to 1e-7 of the metric's magnitude. Every stage stops at the
relative gap of the limits. A placement's objective, bound and gap are those of the first stage.

==================  =============================================================================
effective-accuracy  effective accuracy - cost price x cost
cheapest            cost
fewest-workers      workers; a partitioned GPU counts as one
max-min             smallest effective accuracy of a family, then effective accuracy
lexicographic       the metrics in ``order``
==================  =============================================================================

In the first stage, the moving price x the seconds of moving is subtracted from a metric that is
maximised, and added to one that is minimised.

**Problem.** A placement problem has no feasible point. The analysis relaxes the minima of
families, not the limits on workers and cost, and finds the smallest relaxation.

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

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pulp

from placement_milp.backend import (
    Limits,
    SearchStatus,
    relative_gap,
    relaxed_prices,
    solve,
    solve_later,
)
from placement_milp.formulation import (
    MAXIMISED,
    Cut,
    PlacementProgram,
    formulate,
    held_sets,
    metric,
)
from placement_milp.patterns import Pattern, Quality, rates_of
from placement_milp.problem import Family, Problem
from placement_milp.result import Stage
from ramsis.errors import InfeasibleError, NotConvergedError

_MET = 1e-7  # an unmet part below this counts as met
_NO_PRICE = 1e-9  # tolerance of shadow prices

_STAGE_TOLERANCE = 1e-7  # without it, rounding would make later stages infeasible
_NEGLIGIBLE = 1e-9  # smaller shares of the demand count as 0


@dataclass(frozen=True, slots=True)
class Optimum:
    """Solution of a placement problem, after all stages of its objective."""

    # patterns with n_p >= 1, without variants that have no load
    used: tuple[tuple[Pattern, int], ...]
    cuts: tuple[tuple[Cut, int], ...]  # layouts with the number of GPUs that get them, >= 1
    shares: dict[Quality, float]  # z_q for each quality
    status: SearchStatus  # worst status of a stage
    stages: tuple[Stage, ...]  # one or more
    seconds: float  # total time of all stages
    prices: dict[str, float]  # worker type → shadow price in the first stage


@dataclass(frozen=True, slots=True)
class _Goal:
    """Metric that one stage of the optimisation maximises or minimises."""

    name: str  # of its metric
    expression: Any  # the metric; in the first stage, with the prices of cost and moves
    maximise: bool
    size: float  # typical magnitude, by which solvers scale it


def optimise(
    problem: Problem, limits: Limits, patterns: tuple[Pattern, ...] | None = None
) -> Optimum:
    """Solve all stages of a problem's objective; over all undominated patterns by default."""
    start = time.perf_counter()
    program = formulate(problem, patterns)
    goals = _goals(program)
    stages: list[Stage] = []
    status = SearchStatus.OPTIMAL
    # Only the first stage must find a solution; a later one without keeps the previous one.
    for goal in goals:
        search = partial(solve, program.lp, goal.expression, maximise=goal.maximise,
                         size=goal.size)
        solved = (solve_later(search, limits, start) if stages
                  else search(limits=limits.remaining(start)))
        if solved.status is SearchStatus.INFEASIBLE:
            raise InfeasibleError(explain_infeasibility(program, limits))
        if math.isnan(solved.dual_bound):  # a later stage without a solution: keep the earlier one
            status = solved.status
            break
        shares = _rounded(program)
        used = _used(program, shares)
        cuts = tuple((cut, int(cut.gpus.varValue)) for cut in program.cuts if cut.gpus.varValue)
        reached = float(goal.expression.value())
        bound = _bound(problem, goal, solved.dual_bound, first=not stages)
        # With a gap, a later stage can improve on the value of an earlier stage.
        stages = [replace(stage, objective=value, gap=relative_gap(value, stage.dual_bound))
                  for stage, value in zip(stages, (float(before.expression.value())
                                                   for before in goals), strict=False)]
        stages.append(Stage(goal.name, reached, bound, relative_gap(reached, bound)))
        if solved.status is not SearchStatus.OPTIMAL:
            status = solved.status
        if status is SearchStatus.INTERRUPTED:
            break
        _hold(program, goal, reached, len(stages))
    return Optimum(used, cuts, shares, status, tuple(stages), time.perf_counter() - start,
                   _prices(program))


def _goals(program: PlacementProgram) -> list[_Goal]:
    """Return what each stage of the optimisation optimises, in order."""
    objective = program.problem.objective
    order = {"effective-accuracy": ("effective-accuracy",), "cheapest": ("cost",),
             "fewest-workers": ("workers",),
             "max-min": ("worst-family", "effective-accuracy"),
             "lexicographic": objective.order}[objective.kind]
    goals = [_Goal(name, metric(program, name), name in MAXIMISED, _size(program.problem, name))
             for name in order]
    first = goals[0]
    sign = -1.0 if first.maximise else 1.0
    expression = first.expression
    if objective.cost_price:
        expression = expression + sign * objective.cost_price * metric(program, "cost")
    if objective.moving_price:
        expression = expression + sign * objective.moving_price * metric(program, "moving")
    goals[0] = replace(first, expression=expression)
    return goals


def _bound(problem: Problem, goal: _Goal, bound: float, *, first: bool) -> float:
    """Return the dual bound of a goal, rounded up if the goal is a whole number of workers."""
    objective = problem.objective
    priced = first and (objective.moving_price or objective.cost_price)
    return float(math.ceil(bound - 1e-6)) if goal.name == "workers" and not priced else bound


def _size(problem: Problem, name: str) -> float:
    """Return a typical magnitude of a metric, by which solvers scale it."""
    match name:
        case "cost":
            return sum(item.count * item.cost_per_hour for item in problem.worker_types) or 1.0
        case "workers":
            return 1000.0  # solvers scale objectives to 1000, so this one stays integral
        case "moving":
            return sum(item.count for item in problem.worker_types) * max(
                variant.load_ms / 1000 for variant in problem.variants) or 1.0
    return 1.0


def _hold(program: PlacementProgram, goal: _Goal, reached: float, stage: int) -> None:
    """Add a constraint that later stages keep the value that a stage has reached."""
    over = goal.expression * (1.0 / goal.size)
    held = over >= reached / goal.size - _STAGE_TOLERANCE if goal.maximise else (
        over <= reached / goal.size + _STAGE_TOLERANCE)
    program.add(held, f"held_{stage}_{goal.name}")


def _rounded(program: PlacementProgram) -> dict[Quality, float]:
    """Round counts to integers, and fit the shares to them; store both in the variables.

    Workers without load are removed; a search that stops early, or in which they cost nothing, may
    return some.
    """
    # Each share is cut to what the rounded counts can take, and a family's shares to 1 in all.
    counts = tuple(round(n.varValue or 0.0) for n in program.n)
    room = rates_of(zip(program.patterns, counts, strict=True))
    shares: dict[Quality, float] = {}
    for family in program.problem.families:
        of_family = {q: min(max(program.z[q].varValue or 0.0, 0.0), room[q] / family.demand_qps)
                     for q in program.of_family(family.name)}
        total = sum(of_family.values())
        shares |= {q: z / max(1.0, total) for q, z in of_family.items()}
    for n, count, pattern in zip(program.n, counts, program.patterns, strict=True):
        busy = any(shares[offer.quality] > _NEGLIGIBLE for offer in pattern.offers)
        n.varValue = count if busy or _counts_moves(program) else 0
    # Layouts of GPUs, and kept variants, follow from the counts.
    _cut(program)
    _keep(program)
    for quality, share in shares.items():
        program.z[quality].varValue = share
    if program.theta is not None:
        program.theta.varValue = _worst(program, shares)
    return shares


def _used(
    program: PlacementProgram, shares: dict[Quality, float]
) -> tuple[tuple[Pattern, int], ...]:
    """Return patterns with their counts, without variants that have no load.

    If moves have a price, such variants stay, as their loading was counted.
    """
    all_stay = _counts_moves(program)
    used = []
    for n, pattern in zip(program.n, program.patterns, strict=True):
        if n.varValue:
            busy = [o for o in pattern.offers if shares[o.quality] > _NEGLIGIBLE or all_stay]
            used.append((pattern.restricted_to(busy), int(n.varValue)))
    return tuple(used)


def _counts_moves(program: PlacementProgram) -> bool:
    """Return whether the program has variants or instances that may stay."""
    return bool(program.kept) or any(cut.now for cut in program.cuts)


def _cut(program: PlacementProgram) -> None:
    """Set the numbers of GPUs by layout to the fewest that have all instances in use.

    A search that stopped early, or in which GPUs cost nothing, may use more GPUs. If moves count,
    the layouts of the search stay, as the objective counts their unchanged instances; only
    ``reused`` is set, to as many existing instances as can be in use.
    """
    if not program.cuts:
        return
    needed: Counter[str] = Counter()
    for n, pattern in zip(program.n, program.patterns, strict=True):
        needed[pattern.worker_type] += pattern.workers * round(n.varValue or 0.0)
    for cut in program.cuts:
        cut.gpus.varValue = round(cut.gpus.varValue or 0.0)
    if _counts_moves(program):
        for kind, x in program.reused.items():
            existing = sum(cut.gpus.varValue * cut.staying(kind) for cut in program.cuts)
            x.varValue = min(needed[kind], existing)
        return
    # Layouts may have idle instances, so fewer GPUs than in the search can suffice.
    for worker_type in {cut.worker_type for cut in program.cuts}:
        cuts = program.cuts_of(worker_type)
        for cut, gpus in zip(cuts, fewest_gpus(cuts, needed), strict=True):
            cut.gpus.varValue = gpus


def _keep(program: PlacementProgram) -> None:
    """Set the variables ``kept`` to save the most loading, at the rounded worker counts.

    The linear program is that of :func:`placement_milp.formulation.kept` with all other variables
    fixed.
    """
    if not program.kept:
        return
    from scipy.optimize import linprog  # slow to import

    owners = held_sets(program.problem)
    unpartitioned = {item.name for item in program.problem.worker_types}
    seconds = {variant.name: variant.load_ms / 1000 for variant in program.problem.variants}
    keys = list(program.kept)
    worth = [sum(seconds[name] for name in loaded & set(program.patterns[i].holds))
             for loaded, i in keys]
    limits: dict[object, float] = {}  # right-hand sides: of Σ_c by pattern, of Σ_p by held set
    for loaded, i in keys:
        pattern = program.patterns[i]
        kind = pattern.worker_type
        limits[i] = pattern.workers * (program.n[i].varValue or 0)
        limits[kind, loaded] = len(owners[kind][loaded]) if kind in unpartitioned else sum(
            cut.gpus.varValue * cut.staying(kind, loaded) for cut in program.cuts)
    rows = np.array([[float(row in (i, (program.patterns[i].worker_type, loaded)))
                      for loaded, i in keys] for row in limits])
    solution = linprog(-np.array(worth), A_ub=rows, b_ub=list(limits.values()), method="highs-ds")
    assert solution.x is not None  # kept = 0 is feasible
    for key, value in zip(keys, solution.x, strict=True):
        program.kept[key].varValue = float(value)


def fewest_gpus(cuts: Sequence[Cut], needed: Mapping[str, int]) -> list[int]:
    """Return the numbers of GPUs by layout with all needed instances, the fewest in total."""
    kinds = [kind for kind, count in needed.items()
             if count and kind.rpartition("/")[0] == cuts[0].worker_type]
    if not kinds:
        return [0] * len(cuts)
    from scipy.optimize import LinearConstraint, milp  # slow to import

    counts = np.array([[cut.counts(kind) for cut in cuts] for kind in kinds], dtype=float)
    solution = milp(np.ones(len(cuts)), integrality=np.ones(len(cuts), dtype=np.int64),
                    constraints=LinearConstraint(counts, [needed[kind] for kind in kinds]))
    assert solution.x is not None  # feasible, as numbers of GPUs are unlimited
    return [round(gpus) for gpus in solution.x]


def _worst(program: PlacementProgram, shares: dict[Quality, float]) -> float:
    """Return theta, the smallest effective accuracy of a family, less any unserved penalty."""
    penalty = program.problem.objective.unserved_penalty
    return min(sum(shares[q] * q.in_time * (q.accuracy + penalty)
                   for q in program.of_family(family.name)) - penalty
               for family in program.problem.families)


def _prices(solved: PlacementProgram) -> dict[str, float]:
    """Return the shadow price of each worker type in the relaxation of the first stage."""
    program = formulate(solved.problem, solved.patterns)
    goal = _goals(program)[0]
    rows = program.positions(
        {item.name: f"workers_{item.name}" for item in program.problem.worker_types})
    return relaxed_prices(program.lp, goal.expression, rows, maximise=goal.maximise,
                          size=goal.size)


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
        # u' = Σ_q r_q (minimum - a_q) z_q = answered x (minimum - reached)
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
    # A row has room for another worker if its slack reaches its smallest coefficient.
    full = [text for text, row in constraints.items()
            if -row.value() < min((f for f in row.values() if f > 0), default=0.0) - 1e-6]
    prices = relaxed_prices(program.lp, total, program.positions(
        {text: name for name, text in limits.items()}), maximise=False, size=1.0)
    return [text for text, price in prices.items() if price > _NO_PRICE] or full
