"""Mixed-integer program of a placement, with one function for each family of constraints.

Workers of a type are interchangeable, so the program counts them, and its size does not grow with
their number:

====================  ==========================================================================
``n_p`` integer >= 0  workers (stations of k_p workers) of type t(p) with pattern p
``m_l`` integer >= 0  GPUs that are partitioned by layout l
``z_q`` in [0, 1]     share of its family's demand that is sent to quality q (a variant, or a
                      policy)
``kept_c,p`` >= 0     workers that currently hold the set c of variants and get pattern p
``reused_i`` >= 0     existing instances of kind i that stay in use
``theta``             smallest effective accuracy of a family
====================  ==========================================================================

An instance of a partitioned GPU (:mod:`placement_milp.partitions`) is a worker; its kind is a
worker type. Only undominated layouts are columns. If moves count, GPUs with the same current
instances and variants are in one state h, and each m_l counts GPUs of one state. The positions of
the instances in its layout determine which of the current instances stay.

The objective is one of the metrics below, or several in order (:mod:`placement_milp.optimise`).
The search stops at a relative gap (:class:`placement_milp.backend.Limits`).

The name of a function is the prefix of its constraints' names in the LP text; its docstring is the
formula of the constraints. d_f is the demand of family f, mu_pq the rate that pattern p offers to
quality q, a_q the accuracy of answers of quality q and r_q their share in time.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

from placement_milp.partitions import Layout, layouts, multisets, split_worker
from placement_milp.patterns import Pattern, Quality, enumerate_patterns
from placement_milp.problem import Problem, WorkerType

MAXIMISED = frozenset({"served", "effective-accuracy", "worst-family"})  # others are minimised

# Current instances of a GPU: name, start and variants.
GpuState = frozenset[tuple[str, int, frozenset[str]]]


@dataclass(frozen=True)
class Cut:
    """Column of the program: the number of GPUs in one state that get one layout."""

    worker_type: str  # name of the type of GPU
    # state: current instances of such a GPU, with their variants; empty if moves do not count
    now: GpuState
    layout: Layout  # new instances
    gpus: Any  # variable m_l, the number of such GPUs

    def counts(self, kind: str) -> int:
        """Return the number of instances of a kind, ``TYPE/INSTANCE``."""
        return sum(f"{self.worker_type}/{name}" == kind for name, _ in self.layout)

    def staying(self, kind: str, held: frozenset[str] | None = None) -> int:
        """Return how many existing instances of a kind stay on each of these GPUs.

        With ``held``, only those that hold exactly this set of variants count.
        """
        return sum(f"{self.worker_type}/{name}" == kind and (name, start) in self.layout
                   and (held is None or held == holds) for name, start, holds in self.now)

    @property
    def destroyed(self) -> int:
        """Number of existing instances of a GPU that do not stay."""
        return sum((name, start) not in self.layout for name, start, _ in self.now)


@dataclass
class PlacementProgram:
    """PuLP problem of a placement, with its variables and constraints by name."""

    # the placement problem, the columns, and the ways of answering requests
    problem: Problem
    patterns: tuple[Pattern, ...]
    qualities: tuple[Quality, ...]
    lp: Any  # the PuLP problem; the objective is set when it is solved
    # n_p by index of the pattern; z_q by quality
    n: list[Any] = field(default_factory=list)
    z: dict[Quality, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)  # by name
    cuts: list[Cut] = field(default_factory=list)  # columns of partitioned GPUs
    reused: dict[str, Any] = field(default_factory=dict)  # reused_i by kind of instance
    # kept_cp by c, the currently held set of variants, and the index of the pattern
    kept: dict[tuple[frozenset[str], int], Any] = field(default_factory=dict)
    # variables of the elastic program, by name of the constraint that each relaxes
    unmet: dict[str, Any] = field(default_factory=dict)
    theta: Any = None  # the variable, if the objective contains it
    elastic: bool = False  # whether minima are relaxed by ``unmet``
    _labels: set[str] = field(default_factory=set)

    def variable(self, name: str, low: float | None, high: float | None,
                 integer: bool = False) -> Any:
        """Add a variable with bounds to the program, and return it."""
        category = pulp.LpInteger if integer else pulp.LpContinuous
        return self.lp.add_variable(self._label(name), low, high, category)

    def add(self, expression: Any, name: str) -> None:
        """Add a constraint to the program; ``expression`` is a comparison of variables."""
        self.lp.addConstraint(expression, self._label(name))
        self.constraints[name] = expression

    def _label(self, name: str) -> str:
        """Return a unique name that is valid in the LP format."""
        label = re.sub(r"\W", "_", name)
        while label in self._labels:
            label += "_"
        self._labels.add(label)
        return label

    def positions(self, names: Mapping[str, str]) -> dict[str, int]:
        """Return the positions of constraints in the program, by key of ``names`` (key → name)."""
        index = {name: i for i, name in enumerate(self.constraints)}
        return {key: index[name] for key, name in names.items() if name in index}

    def cuts_of(self, worker_type: str) -> list[Cut]:
        """Return the columns of a type of partitioned GPU."""
        return [cut for cut in self.cuts if cut.worker_type == worker_type]

    @property
    def in_use(self) -> list[tuple[str, Any, int]]:
        """Worker type, variable, and number of workers or GPUs per unit of the variable."""
        uncut = {item.name for item in self.problem.worker_types if item.partitions is None}
        return [*((p.worker_type, n, p.workers)
                  for n, p in zip(self.n, self.patterns, strict=True) if p.worker_type in uncut),
                *((cut.worker_type, cut.gpus, 1) for cut in self.cuts)]

    def of_family(self, family: str) -> list[Quality]:
        """Return the ways to answer a family's requests (qualities)."""
        return [quality for quality in self.qualities if quality.family == family]


def formulate(
    problem: Problem, patterns: tuple[Pattern, ...] | None = None, *, elastic: bool = False,
    only: Sequence[Callable[[PlacementProgram], None]] | None = None,
) -> PlacementProgram:
    """Write a placement problem as a mixed-integer linear program.

    Parameters
    ----------
    patterns : tuple of Pattern, optional
        Columns of the program; by default all undominated patterns.
    elastic : bool
        Whether minimum shares and accuracies are relaxed by the variables ``unmet``.
    only : sequence of functions, optional
        Families of constraints instead of all :data:`CONSTRAINTS`.
    """
    patterns = enumerate_patterns(problem) if patterns is None else patterns
    qualities = tuple(dict.fromkeys(o.quality for p in patterns for o in p.offers))
    program = PlacementProgram(problem, patterns, qualities,
                               pulp.LpProblem("placement", pulp.LpMinimize), elastic=elastic)
    _variables(program)
    for constraint in CONSTRAINTS if only is None else only:
        constraint(program)
    return program


def _variables(program: PlacementProgram) -> None:
    """Add the variables; counts have no upper bounds, which would absorb shadow prices."""
    for i, pattern in enumerate(program.patterns):
        label = "_".join((pattern.worker_type, *(
            offer.quality.label + (f"_b{offer.batch}" if offer.batch else "")
            for offer in pattern.offers)))
        program.n.append(program.variable(f"n{i}_{label}", 0, None, integer=True))
    for i, quality in enumerate(program.qualities):
        program.z[quality] = program.variable(f"z{i}_{quality.label}", 0, 1)
    for item in program.problem.worker_types:
        for state, layout in _cuts(program, item):
            label = "_".join((f"m{len(program.cuts)}_{item.name}", *(name for name, _ in layout)))
            program.cuts.append(Cut(item.name, state, layout,
                                    program.variable(label, 0, None, integer=True)))


def _cuts(program: PlacementProgram, item: WorkerType) -> Iterator[tuple[GpuState, Layout]]:
    """Yield the states of the GPUs of a type, each with its possible layouts."""
    if item.partitions is None or item.count == 0:
        return
    useful = {p.worker_type.rpartition("/")[2] for p in program.patterns
              if p.worker_type.rpartition("/")[0] == item.name}
    if not useful:
        return
    for now in gpu_states(program.problem, item):
        here = {(name, start) for name, start, _ in now}
        kinds = frozenset(useful | {name for name, _ in here})
        for layout in multisets(layouts(item.partitions, kinds), useful, here):
            yield now, layout


def gpu_states(problem: Problem, item: WorkerType) -> dict[GpuState, list[str]]:
    """Group GPUs of a type by current layout and models; one group if moves do not count."""
    names = item.worker_names()
    if not problem.moves_count:
        return {frozenset(): list(names)}
    cuts: dict[str, set[tuple[str, int, frozenset[str]]]] = {name: set() for name in names}
    for holding in problem.current:
        if holding.worker.rpartition("/")[0] in cuts:
            gpu, instance, start = split_worker(holding.worker)
            cuts[gpu].add((instance, start, frozenset(holding.variants)))
    states: dict[GpuState, list[str]] = {}
    for gpu, cut in cuts.items():
        states.setdefault(frozenset(cut), []).append(gpu)
    return states


def _linear(terms: Sequence[tuple[Any, float]], constant: float = 0.0) -> Any:
    """Return Σ coefficient · variable + constant; a variable may occur in several terms."""
    return pulp.LpAffineExpression(terms, constant)


# --- constraint families ------------------------------------------------------------------------


def workers(program: PlacementProgram) -> None:
    """Σ_p of type t k_p n_p <= N_t for every worker type t; Σ_l m_l <= N_t if partitioned."""
    for item in program.problem.worker_types:
        terms = [(variable, size) for name, variable, size in program.in_use
                 if name == item.name]
        if terms:
            program.add(_linear(terms) <= item.count, f"workers_{item.name}")


def states(program: PlacementProgram) -> None:
    """Σ_l of state h m_l <= GPUs in state h, if moves count."""
    for item in program.problem.worker_types:
        listed = gpu_states(program.problem, item) if program.cuts_of(item.name) else {}
        for j, (state, gpus) in enumerate(listed.items() if len(listed) > 1 else ()):
            terms = [(cut.gpus, 1) for cut in program.cuts_of(item.name) if cut.now == state]
            program.add(_linear(terms) <= len(gpus), f"states_{item.name}_{j}")


def instances(program: PlacementProgram) -> None:
    """Σ_p of kind i k_p n_p <= Σ_l c_il m_l for every kind of instance i."""
    for kind, terms in _by_kind(program).items():
        row = [(cut.gpus, -count) for cut in program.cuts if (count := cut.counts(kind))]
        program.add(_linear([*terms, *row]) <= 0, f"instances_{kind}")


def _by_kind(program: PlacementProgram) -> dict[str, list[tuple[Any, int]]]:
    """Return the terms k_p n_p of the patterns on each kind of instance."""
    cut = {item.name for item in program.problem.worker_types if item.partitions is not None}
    by_kind: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for n, pattern in zip(program.n, program.patterns, strict=True):
        if pattern.worker_type.rpartition("/")[0] in cut:
            by_kind[pattern.worker_type].append((n, pattern.workers))
    return by_kind


def demand(program: PlacementProgram) -> None:
    """Σ_q of family f z_q <= 1 for every family f."""
    for family in program.problem.families:
        terms = [(program.z[quality], 1) for quality in program.of_family(family.name)]
        program.add(_linear(terms) <= 1, f"demand_{family.name}")


def capacity(program: PlacementProgram) -> None:
    """d_f z_q <= Σ_p min(mu_pq, d_f) n_p for every quality q, divided by the largest coefficient.

    Capping rates at the demand tightens the relaxation.
    """
    rates: dict[Quality, list[tuple[Any, float]]] = defaultdict(list)
    need = {family.name: family.demand_qps for family in program.problem.families}
    for i, pattern in enumerate(program.patterns):
        for offer in pattern.offers:
            demand_qps = need[offer.quality.family]
            rates[offer.quality].append((program.n[i], min(offer.rate_qps, demand_qps)))
    for j, (quality, terms) in enumerate(rates.items()):
        unit = max(rate for _, rate in terms)
        row = [(program.z[quality], need[quality.family] / unit)]
        row += [(n, -rate / unit) for n, rate in terms]
        program.add(_linear(row) <= 0, f"capacity_{j}_{quality.label}")


def min_served(program: PlacementProgram) -> None:
    """Σ_q r_q z_q >= minimum share served, for every family with a minimum."""
    for family in program.problem.families:
        minimum = program.problem.min_share(family)
        if minimum > 0:
            terms = [(program.z[q], q.in_time) for q in program.of_family(family.name)]
            _at_least(program, terms, minimum, f"min_served_{family.name}")


def min_accuracy(program: PlacementProgram) -> None:
    """Σ_q r_q (a_q - minimum accuracy) z_q >= 0, for every family with a minimum."""
    for family in program.problem.families:
        if family.min_accuracy > 0:
            terms = [(program.z[q], q.in_time * (q.accuracy - family.min_accuracy))
                     for q in program.of_family(family.name)]
            _at_least(program, terms, 0.0, f"min_accuracy_{family.name}")


def _at_least(
    program: PlacementProgram, terms: list[tuple[Any, float]], minimum: float, name: str
) -> None:
    """Σ terms >= minimum, in the elastic program Σ terms + u >= minimum with u >= 0."""
    if program.elastic:
        program.unmet[name] = program.variable(f"short_{name}", 0, None)
        terms = [*terms, (program.unmet[name], 1.0)]
    program.add(_linear(terms) >= minimum, name)


def family_workers(program: PlacementProgram) -> None:
    """Σ_p that answers f k_p n_p <= maximum workers of f, for every family with a maximum."""
    for family in program.problem.families:
        if family.max_workers is not None:
            terms = [(program.n[i], pattern.workers) for i, pattern in enumerate(program.patterns)
                     if family.name in pattern.families]
            program.add(_linear(terms) <= family.max_workers, f"family_workers_{family.name}")


def total_workers(program: PlacementProgram) -> None:
    """Σ_p k_p n_p <= ``rules.max_workers``."""
    maximum = program.problem.rules.max_workers
    if maximum is not None:
        program.add(metric(program, "workers") <= maximum, "total_workers")


def budget(program: PlacementProgram) -> None:
    """Σ_p cost_t(p) k_p n_p <= ``rules.max_cost_per_hour``."""
    maximum = program.problem.rules.max_cost_per_hour
    if maximum is not None and any(item.cost_per_hour for item in program.problem.worker_types):
        program.add(metric(program, "cost") <= maximum, "budget")


def kept(program: PlacementProgram) -> None:
    """Σ_p kept_cp <= workers that hold c, and Σ_c kept_cp <= k_p n_p.

    There is a variable for each c and p of the same worker type with a common variant. With fixed
    integral n_p these constraints are a transportation problem, so ``kept`` need not be declared
    integral.
    """
    if not program.problem.moves_count:
        return
    unpartitioned = {item.name for item in program.problem.worker_types}
    for worker_type, holdings in held_sets(program.problem).items():
        arriving: dict[int, list[Any]] = defaultdict(list)
        for j, (loaded, owners) in enumerate(holdings.items()):
            leaving = []
            for i, pattern in enumerate(program.patterns):
                if pattern.worker_type == worker_type and loaded & set(pattern.holds):
                    x = program.variable(f"kept_{worker_type}_{j}_{i}", 0, len(owners))
                    program.kept[loaded, i] = x
                    leaving.append((x, 1))
                    arriving[i].append((x, 1))
            if leaving:
                # A set c on an instance is kept only if the instance stays: then the layouts, not
                # the owners, limit how often it is kept.
                existing = [(cut.gpus, -count) for cut in program.cuts
                            if (count := cut.staying(worker_type, loaded))]
                limit = len(owners) if worker_type in unpartitioned and not existing else 0
                program.add(_linear([*leaving, *existing]) <= limit,
                            f"kept_from_{worker_type}_{j}")
        for i, terms in arriving.items():
            row = _linear([*terms, (program.n[i], -program.patterns[i].workers)]) <= 0
            program.add(row, f"kept_to_{worker_type}_{i}")


def reused(program: PlacementProgram) -> None:
    """reused_i <= Σ_p of kind i k_p n_p and reused_i <= Σ_l m_l x instances of kind i that stay.

    Patterns can be assigned to any instances of their kind. So the number of existing instances
    that stay in use is the smaller of the two, whether or not they keep a variant.
    """
    if not program.problem.moves_count:
        return
    for kind, terms in _by_kind(program).items():
        existing = [(cut.gpus, -count) for cut in program.cuts if (count := cut.staying(kind))]
        if existing:
            x = program.variable(f"reused_{kind}", 0, None)
            program.reused[kind] = x
            program.add(_linear([(x, 1), *((n, -k) for n, k in terms)]) <= 0, f"reused_by_{kind}")
            program.add(_linear([(x, 1), *existing]) <= 0, f"reused_from_{kind}")


def worst_family(program: PlacementProgram) -> None:
    """Σ_q r_q a_q z_q - penalty (1 - Σ_q r_q z_q) >= theta for every family."""
    objective = program.problem.objective
    if objective.kind != "max-min" and "worst-family" not in objective.order:
        return
    penalty = objective.unserved_penalty
    program.theta = program.variable("theta", -penalty, 1)
    for family in program.problem.families:
        terms = [(program.z[q], -q.in_time * (q.accuracy + penalty))
                 for q in program.of_family(family.name)]
        program.add(_linear([(program.theta, 1), *terms]) <= -penalty,
                    f"worst_family_{family.name}")


# Families of constraints, in the order of the program.
CONSTRAINTS: tuple[Callable[[PlacementProgram], None], ...] = (
    workers, states, instances, demand, capacity, min_served, min_accuracy, family_workers,
    total_workers, budget, kept, reused, worst_family,
)


# --- metrics ------------------------------------------------------------------------------------


def metric(program: PlacementProgram, name: str) -> Any:
    """Return a metric, one of :data:`~placement_milp.problem.METRICS`, as a PuLP expression."""
    return _METRICS[name](program)


def _effective_accuracy(program: PlacementProgram) -> Any:
    """Return Σ_q r_q a_q z_q - penalty (1 - Σ_q r_q z_q), averaged over families by demand."""
    penalty = program.problem.objective.unserved_penalty
    return _linear([(z, share * q.in_time * (q.accuracy + penalty))
                    for q, z, share in _shares(program)], -penalty)


def _shares(program: PlacementProgram) -> list[tuple[Quality, Any, float]]:
    """Return each quality, its variable, and its family's share of the weighted demand."""
    total = math.fsum(f.weight * f.demand_qps for f in program.problem.families)
    share = {family.name: family.weight * family.demand_qps / total
             for family in program.problem.families}
    return [(q, z, share[q.family]) for q, z in program.z.items()]


def _cost(program: PlacementProgram) -> Any:
    cost = {item.name: item.cost_per_hour for item in program.problem.worker_types}
    return _linear([(variable, cost[name] * size) for name, variable, size in program.in_use])


def _moving(program: PlacementProgram) -> Any:
    """Return the total time of loading, creating and destroying instances, in seconds."""
    seconds = {variant.name: variant.load_ms / 1000 for variant in program.problem.variants}
    cutting = {kind.name: item.instance_ms / 1000 for item in program.problem.worker_types
               if item.partitions is not None for kind in (item, *item.instance_types())}
    # Count all loads and creations as if every instance were new and empty; add the destructions,
    # and subtract the creations and loads that existing instances and kept variants save.
    terms = [(n, p.workers * (sum(seconds[name] for name in p.holds)
                              + cutting.get(p.worker_type, 0.0)))
             for n, p in zip(program.n, program.patterns, strict=True)]
    terms += [(cut.gpus, cut.destroyed * cutting[cut.worker_type]) for cut in program.cuts]
    terms += [(x, -cutting[kind]) for kind, x in program.reused.items()]
    terms += [(x, -sum(seconds[name] for name in loaded & set(program.patterns[i].holds)))
              for (loaded, i), x in program.kept.items()]
    return _linear(terms)


_METRICS: dict[str, Callable[[PlacementProgram], Any]] = {
    "served": lambda program: _linear([(z, share * q.in_time)
                                       for q, z, share in _shares(program)]),
    "effective-accuracy": _effective_accuracy,
    "worst-family": lambda program: _linear([(program.theta, 1)]),
    "cost": _cost,
    "workers": lambda program: _linear([(n, each) for _, n, each in program.in_use]),
    "moving": _moving,
}


def held_sets(problem: Problem) -> dict[str, dict[frozenset[str], list[str]]]:
    """Return, by worker type, each currently held set of variants with its workers."""
    holdings = problem.held
    by_type: dict[str, dict[frozenset[str], list[str]]] = {}
    for item in problem.instance_types:
        sets = by_type.setdefault(item.name, {})
        for name in item.worker_names() if holdings else ():
            if holdings.get(name):
                sets.setdefault(holdings[name], []).append(name)
    return by_type
