"""Independent check of a placement, without code of the optimisation.

It uses only the problem's records and the named workers: every worker exists and is used once, its
variants fit its memory, its batches have the listed latencies and meet the SLO, its load is at
most its rate, the load of a family is at most its demand, minima, limits and co-location rules
hold, and the objective is as stated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from placement_milp.partitions import PartitionTable
from placement_milp.problem import Family, Latency, Problem, Variant
from placement_milp.result import CutGpu, Group, Placement, Use
from ramsis.errors import VerificationError

_RELATIVE = 1e-6  # relative tolerance, wider than those of the solvers


def check_placement(problem: Problem, placement: Placement) -> None:
    """Check that a placement solves its problem."""
    check = _Check(problem, placement)
    check.doable()
    for group in placement.groups:
        check.together(group)
    for family in problem.families:
        check.family(family)
    check.limits()
    if placement.stages:
        check.objective()


def check_groups(
    problem: Problem, groups: Sequence[Group], gpus: Sequence[CutGpu] = ()
) -> None:
    """Check that groups of workers are feasible, without objective, minima and rules."""
    placement = Placement(problem.name, "heuristic", 0.0, None, None, 0.0, (), tuple(groups), (),
                          gpus=tuple(gpus), problem=problem)
    check = _Check(problem, placement)
    check.known()
    check.doable()


def _differ(value: float, other: float) -> bool:
    return not math.isclose(value, other, rel_tol=_RELATIVE, abs_tol=_RELATIVE)


class _Check:
    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        self.types = {item.name: item for item in problem.instance_types}
        self.variants = {item.name: item for item in problem.variants}
        self.by_family = {item.name: item for item in problem.families}

    def require(self, holds: bool, what: str, value: object, allowed: str) -> None:
        if not holds:
            raise VerificationError(f"placement of {self.problem.name}: {what}", value=value,
                                    allowed=allowed)

    def doable(self) -> None:
        """Check that workers, GPUs, batches, memory and loads are feasible."""
        self.workers()
        self.partitions()
        for group in self.placement.groups:
            for use in group.uses:
                self.use(group, use)
            self.memory(group)
        for family in self.problem.families:
            self.sent(family)

    def workers(self) -> None:
        types = {name: item.name for item in self.problem.instance_types
                 for name in item.worker_names()}
        seen: set[str] = set()
        for group in self.placement.groups:
            self.require(bool(group.workers) and len(group.workers) % group.together == 0,
                         "a group is not made of whole stations", len(group.workers),
                         f"multiples of {group.together}")
            for name in group.workers:
                self.require(types.get(name) == group.worker_type and name not in seen,
                             "a worker is used twice or not of its type", name, "each once")
                seen.add(name)

    def partitions(self) -> None:
        """Check that each partitioned GPU has a legal layout, with every instance that is used.

        Other instances may be idle. The GPU's cost, and the instances that are made and destroyed,
        must be right, too.
        """
        tables = {item.name: item for item in self.problem.worker_types if item.partitions}
        used: dict[str, set[str]] = {}
        for group in self.placement.groups:
            kind, _, instance = group.worker_type.rpartition("/")
            for worker in group.workers if kind in tables else ():
                gpu, _, place = worker.rpartition("/")
                self.require(place.rpartition("@")[0] == instance,
                             "an instance is not of its type", worker, instance)
                used.setdefault(gpu, set()).add(place)
        for cut in self.placement.gpus:
            item = tables.get(cut.worker_type)
            self.require(item is not None, "GPU of no type that is cut", cut.gpu,
                         ", ".join(tables))
            assert item is not None
            assert item.partitions is not None
            self.require(cut.gpu in item.worker_names(), "GPU does not exist", cut.gpu,
                         f"{item.count} of type {item.name}")
            self._legal(cut, item.partitions)
            # Idle instances are allowed; all used ones must exist.
            missing = used.pop(cut.gpu, set()) - set(cut.instances)
            self.require(not missing, "a GPU lacks instances in use", sorted(missing), cut.gpu)
            self.require(not _differ(cut.cost_per_hour, item.cost_per_hour),
                         "a GPU's cost is not that of its type", cut.cost_per_hour,
                         f"{item.cost_per_hour}")
            current = {holding.worker.rpartition("/")[2] for holding in self.problem.current
                   if holding.worker.rpartition("/")[0] == cut.gpu}
            after = set(cut.instances)
            self.require((set(cut.made), set(cut.destroyed)) == (after - current, current - after),
                         "instances made and destroyed are others", (cut.made, cut.destroyed),
                         cut.gpu)
        self.require(not used, "instances are on GPUs that are not listed", sorted(used), "none")

    def _legal(self, cut: CutGpu, table: PartitionTable) -> None:
        """Check that a GPU's instances start where they may, and share no slice."""
        kinds = {kind.name: kind for kind in table.instances}
        free_memory = set(range(table.memory_slices))
        compute = 0
        for place in cut.instances:
            name, _, start = place.rpartition("@")
            kind = kinds.get(name)
            self.require(kind is not None and start.isdecimal() and int(start) in kind.starts,
                         f"{table.name} has no such instance at this position", place, cut.gpu)
            assert kind is not None
            slices = set(range(int(start), int(start) + kind.memory_slices))
            self.require(slices <= free_memory, "instances overlap", place, cut.gpu)
            free_memory -= slices
            compute += kind.compute_slices
        self.require(compute <= table.compute_slices, "too many compute slices", compute,
                     f"{table.compute_slices}")

    def known(self) -> None:
        """Check that all names are defined in the problem."""
        for group in self.placement.groups:
            self.require(group.worker_type in self.types, "unknown worker type",
                         group.worker_type, ", ".join(self.types))
            for use in group.uses:
                self.require(use.family in self.by_family, "unknown family", use.family,
                             ", ".join(self.by_family))
                for name in use.variants:
                    is_variant = name in self.variants and self.variants[name].family == use.family
                    self.require(is_variant, "not a variant of the family", name,
                                 ", ".join(v.name for v in self.problem.variants
                                           if v.family == use.family))
                self.require(use.batch is None or (len(use.variants) == 1
                                                   and use.latency_ms is not None),
                             "a batch of several variants, or without its latency",
                             ", ".join(use.variants), "one variant and its latency")
            self.require(all(use.batch is not None for use in group.uses)
                         or len(group.uses) == 1, "a policy beside other uses",
                         len(group.uses), "one use under a policy")

    def use(self, group: Group, use: Use) -> None:
        """Check load, variant, latency and rate of a use; of a policy, its row."""
        self.require(0 <= use.load_qps <= use.rate_qps * (1 + _RELATIVE),
                     "a worker is sent more than it can take", use.load_qps,
                     f"at most {use.rate_qps}")
        if use.batch is None:
            self._policy_use(group, use)
            return
        (name,) = use.variants
        variant = self.variants[name]
        family = self.by_family[use.family]
        self.require(variant.family == use.family and not _differ(variant.accuracy, use.accuracy)
                     and use.in_time == (self.problem.rules.in_time_quantile or 1.0),
                     "a variant is not what the problem says", name,
                     f"family {variant.family}, accuracy {variant.accuracy}")
        entry = self._listed(variant, group.worker_type, use.batch, use.processes)
        if group.cycle_ms is None:
            self._at_once(group, use, entry)
            return
        slow = self._slow_down(group)
        self.require(use.latency_ms is not None and group.cycle_ms is not None
                     and not _differ(use.latency_ms, entry.latency_ms * slow),
                     "a latency is not the listed one", use.latency_ms,
                     f"{entry.latency_ms * slow}")
        assert use.latency_ms is not None
        assert group.cycle_ms is not None
        # In a duty cycle a request waits for the batches of both variants.
        busy = sum(other.latency_ms or 0.0 for other in group.uses)
        cycle = group.cycle_ms
        if self.problem.rules.in_time_quantile is not None:
            self._queueing(group, use, entry, slow, family)
            return
        self.require(cycle >= busy * (1 - _RELATIVE), "a cycle is shorter than its batches", cycle,
                     f"at least {busy}")
        limit_ms = 2 * self.problem.rules.latency_share_of_slo * family.slo_ms
        self.require(cycle + use.latency_ms <= limit_ms * (1 + _RELATIVE),
                     "a batch misses its SLO", cycle + use.latency_ms, f"at most {limit_ms} ms")
        in_turns = 1000 * use.batch / cycle
        self.require(not _differ(use.rate_qps, in_turns) or (
            len(group.uses) == 1 and not _differ(use.rate_qps, entry.throughput_qps)),
                     "a rate is not batch / cycle, nor the listed one", use.rate_qps,
                     f"{in_turns} or {entry.throughput_qps}")
        self.require(use.processes == 1 or len(group.uses) == 1,
                     "processes side by side beside another variant", use.processes, "1")

    def _queueing(
        self, group: Group, use: Use, entry: Latency, slow: float, family: Family
    ) -> None:
        """Check a station with a queue: full batches sustain its rate, and meet the SLO.

        The share in time is random; a simulation checks it elsewhere.
        """
        longer = 1.0 + self.problem.rules.headroom
        latency_ms = entry.latency_ms * slow * longer
        self.require(latency_ms <= family.slo_ms * (1 + _RELATIVE), "a batch misses its SLO",
                     latency_ms, f"at most {family.slo_ms} ms")
        most = 1000 * group.together * use.processes * (use.batch or 0) / latency_ms
        self.require(use.rate_qps <= most * (1 + _RELATIVE),
                     "a rate is above that of full batches", use.rate_qps, f"at most {most}")
        self.require(use.processes == 1 or len(group.uses) == 1,
                     "processes side by side beside another variant", use.processes, "1")

    def _at_once(self, group: Group, use: Use, entry: Latency) -> None:
        """Check a use of a GPU whose multiprocessors are shared by variants."""
        assert use.batch is not None
        self.require(not _differ(use.latency_ms or 0.0, entry.latency_ms)
                     and entry.latency_ms <= self.by_family[use.family].slo_ms,
                     "a latency is not the listed one, or above the SLO", use.latency_ms,
                     f"{entry.latency_ms}")
        self.require(not _differ(use.rate_qps, 1000 * use.batch / entry.latency_ms),
                     "a rate is not batch / latency", use.rate_qps,
                     f"{1000 * use.batch / entry.latency_ms}")
        shares = [other.mps_share or self._listed(
            self.variants[other.variants[0]], group.worker_type, other.batch or 0).compute_share
            for other in group.uses]
        total = sum(2.0 if share is None else share for share in shares)
        self.require(total <= 1 + _RELATIVE, "a worker's processors are shared out twice", total,
                     "at most 1")

    def _policy_use(self, group: Group, use: Use) -> None:
        """Check that a station under a policy corresponds to a row of the value table."""
        for table in self.problem.values:
            for row in table.rows if table.family == use.family else ():
                if (row.worker_type == group.worker_type and row.workers == group.together
                        and row.model_set == use.variants
                        and not _differ(row.load_qps, use.rate_qps)
                        and not _differ(row.slo_ms, self.by_family[use.family].slo_ms)
                        and not _differ(1 - row.expected_violation_rate, use.in_time)
                        and not _differ(row.expected_effective_accuracy,
                                        use.accuracy * use.in_time)):
                    return
        self.require(False, "no row of a value table says so", use.variants, "a row's promise")

    def _listed(
        self, variant: Variant, worker_type: str, batch: int, processes: int = 1
    ) -> Latency:
        item = self.types[worker_type]
        for kind, speed in ((worker_type, 1.0), (item.latency_like, item.relative_speed)):
            for entry in variant.latency:
                if (entry.worker_type, entry.batch, entry.processes) == (kind, batch, processes):
                    return replace(entry, worker_type=worker_type,
                                   latency_ms=entry.latency_ms / speed,
                                   rate_qps=entry.throughput_qps * speed)
        raise VerificationError("placement uses a batch that is not listed",
                                value=f"{variant.name}, {worker_type}, {batch}")

    def memory(self, group: Group) -> None:
        """Check that a worker's variants fit its memory, and the memory that is stated as used."""
        needed = 0.0
        for use in group.uses:
            for name in use.variants:
                variant = self.variants[name]
                if use.batch is not None:
                    entry = self._listed(variant, group.worker_type, use.batch, use.processes)
                    needed += entry.memory_mb or variant.memory_mb
                else:
                    needed += variant.memory_mb
        limit = self.types[group.worker_type].memory_mb
        self.require(needed <= limit * (1 + _RELATIVE), "a worker's memory is too small", limit,
                     f"at least {needed} MB")
        self.require(group.memory_mb <= limit * (1 + _RELATIVE)
                     and group.memory_mb >= needed * (1 - _RELATIVE),
                     "memory is not what the problem says", group.memory_mb, f"{needed} MB")

    def _slow_down(self, group: Group) -> float:
        if len(group.uses) < 2:
            return 1.0
        names = [name for use in group.uses for name in use.variants]
        return max((self._pair(first, second)
                    for first, second in itertools.combinations(names, 2)),
                   default=1.0)

    def _pair(self, first: str, second: str) -> float:
        factor = self.problem.rules.interference
        for rule in self.problem.colocation:
            if rule.kind == "slow-down" and self._names_both(rule.members, first, second):
                factor = rule.factor
        return factor

    def _names_both(self, members: tuple[str, ...], first: str, second: str) -> bool:
        """Return whether two variants belong to different members of a co-location rule."""
        listed = [{m for m in members if m in (name, self.variants[name].family)}
                  for name in (first, second)]
        same_family = self.variants[first].family == self.variants[second].family
        return all(listed) and not (same_family and self.variants[first].family in members)

    def together(self, group: Group) -> None:
        """Check the co-location rules of a group: shared workers, and allowed worker types."""
        limit = self.problem.rules.variants_per_worker
        names = [name for use in group.uses for name in use.variants]
        if group.cycle_ms is not None and self.placement.status != "heuristic":
            self.require(len(names) <= limit, "too many variants on a worker", names, f"{limit}")
        for rule in self.problem.colocation:
            for name in names:
                named = name in rule.members or self.variants[name].family in rule.members
                if named and rule.kind == "only-on":
                    self.require(group.worker_type in rule.worker_types, "a variant is elsewhere",
                                 f"{name} on {group.worker_type}", ", ".join(rule.worker_types))
                if named and rule.kind == "alone":
                    self.require(len(group.uses) == 1, "a variant is not alone", names, name)
            if rule.kind == "apart" and group.cycle_ms is not None:
                for first, second in itertools.combinations(names, 2):
                    self.require(not self._names_both(rule.members, first, second),
                                 "variants are not apart", (first, second),
                                 ", ".join(rule.members))

    def _uses(self, family: Family) -> list[tuple[int, Use]]:
        return [(len(group.workers) // group.together, use) for group in self.placement.groups
                for use in group.uses if use.family == family.name]

    def sent(self, family: Family) -> None:
        """Check that the load of a family's workers is at most its demand."""
        sent = sum(times * use.load_qps for times, use in self._uses(family))
        self.require(sent <= family.demand_qps * (1 + _RELATIVE), "a family is sent too much",
                     sent, f"at most {family.demand_qps} QPS")

    def family(self, family: Family) -> None:
        """Check a family's figures, and, unless a heuristic made the placement, its limits."""
        served, right = self._served(family)
        (claimed,) = [item for item in self.placement.families if item.name == family.name]
        self.require(not _differ(claimed.served_share, served)
                     and not _differ(claimed.effective_accuracy, right),
                     "a family does not get what is claimed",
                     (claimed.served_share, claimed.effective_accuracy), f"{served}, {right}")
        if self.placement.status == "heuristic":
            return
        minimum = self.problem.min_share(family)
        self.require(served >= minimum - _RELATIVE, f"too little of {family.name} is served",
                     served, f"at least {minimum}")
        self.require(right >= family.min_accuracy * served - _RELATIVE,
                     f"{family.name} is too inaccurate", right / max(served, 1e-300),
                     f"at least {family.min_accuracy}")
        if family.max_workers is not None:
            count = sum(len(group.workers) for group in self.placement.groups
                        if any(use.family == family.name for use in group.uses))
            self.require(count <= family.max_workers, f"too many workers for {family.name}",
                         count, f"at most {family.max_workers}")

    def _served(self, family: Family) -> tuple[float, float]:
        """Return the shares of a family's demand answered in time, and answered correctly."""
        served = sum(times * use.load_qps * use.in_time for times, use in self._uses(family))
        right = sum(times * use.load_qps * use.in_time * use.accuracy
                    for times, use in self._uses(family))
        return served / family.demand_qps, right / family.demand_qps

    def _cost(self) -> float:
        costs = {item.name: item.cost_per_hour for item in self.problem.worker_types}
        return (sum(costs.get(group.worker_type, 0.0) * len(group.workers)
                    for group in self.placement.groups)
                + sum(costs[cut.worker_type] for cut in self.placement.gpus))

    def _count(self) -> int:
        unpartitioned = {item.name for item in self.problem.worker_types}
        return len(self.placement.gpus) + sum(len(group.workers) for group in self.placement.groups
                                              if group.worker_type in unpartitioned)

    def limits(self) -> None:
        rules = self.problem.rules
        if rules.max_workers is not None:
            self.require(self._count() <= rules.max_workers, "too many workers", self._count(),
                         f"at most {rules.max_workers}")
        if rules.max_cost_per_hour is not None:
            self.require(self._cost() <= rules.max_cost_per_hour * (1 + _RELATIVE) + _RELATIVE,
                         "too expensive", self._cost(), f"at most {rules.max_cost_per_hour}")

    def _moving(self) -> float:
        """Return the seconds of loading, and of creating and destroying instances."""
        held = {item.worker: set(item.variants) for item in self.problem.current}
        total = 0.0
        for group in self.placement.groups:
            for worker in group.workers:
                for use in group.uses:
                    for name in use.variants:
                        if name not in held.get(worker, ()):
                            total += self.variants[name].load_ms
        cutting = {item.name: item.instance_ms for item in self.problem.worker_types}
        now_instances = {item.worker for item in self.problem.current}
        in_use = {worker for group in self.placement.groups for worker in group.workers}
        for cut in self.placement.gpus:
            after = {f"{cut.gpu}/{place}" for place in cut.instances}
            gone = {worker for worker in now_instances - after
                    if worker.rpartition("/")[0] == cut.gpu}
            created = (in_use & after) - now_instances
            total += cutting[cut.worker_type] * (len(created) + len(gone))
        return total / 1000

    def objective(self) -> None:
        """Recompute the value of every stage from the workers' loads, and compare."""
        objective = self.problem.objective
        penalty = objective.unserved_penalty
        total = sum(f.weight * f.demand_qps for f in self.problem.families)
        answered = {f.name: self._served(f) for f in self.problem.families}
        share = {f.name: f.weight * f.demand_qps / total for f in self.problem.families}
        values = {
            "served": sum(share[name] * served for name, (served, _) in answered.items()),
            "effective-accuracy": sum(share[name] * (right - penalty * (1 - served))
                                      for name, (served, right) in answered.items()),
            "worst-family": min(right - penalty * (1 - served)
                                for served, right in answered.values()),
            "goodput": sum(f.demand_qps * answered[f.name][0] for f in self.problem.families),
            "tolerance": min(sum(times * use.rate_qps for times, use in self._uses(f))
                             / f.demand_qps for f in self.problem.families),
            "cost": self._cost(), "workers": float(self._count()), "moving": self._moving(),
        }
        for i, stage in enumerate(self.placement.stages):
            value = values[stage.metric]
            # Prices apply to the first stage only; presets with other metrics have none.
            if i == 0 and stage.metric not in ("goodput", "tolerance"):
                price = (objective.cost_price * values["cost"]
                         + objective.moving_price * values["moving"])
                more = stage.metric in ("served", "effective-accuracy", "worst-family")
                value += -price if more else price
            self.require(not _differ(stage.objective, value),
                         f"{stage.metric} is not what is claimed", stage.objective, f"{value}")
