"""Cross-record validation of a placement problem: names are unique, and references exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from placement_milp.partitions import PartitionTable, split_worker
from placement_milp.problem import Problem, WorkerType
from ramsis.errors import InputFileError


def check_consistency(problem: Problem, where: str) -> None:
    """Check a problem's records against each other; ``where`` names its file in messages."""
    check = _Check(problem, where)
    check.names()
    check.variants()
    check.colocation()
    check.current()
    check.values()
    check.cost()


class _Check:
    def __init__(self, problem: Problem, where: str) -> None:
        self.problem = problem
        self.where = where
        self.families = {item.name for item in problem.families}
        self.declared = {item.name: item for item in problem.worker_types}
        self.types = {item.name: item for item in problem.instance_types}
        self.variants_by_name = {item.name: item for item in problem.variants}

    def refuse(self, path: str, what: str, value: object, allowed: str) -> InputFileError:
        return InputFileError(what, where=f"{self.where}: {path}", value=value, allowed=allowed)

    def known(self, path: str, what: str, name: str, among: Collection[str]) -> None:
        if name not in among:
            raise self.refuse(path, f"unknown {what}", name, _listed(among))

    def once(self, path: str, names: Iterable[str]) -> None:
        seen: set[str] = set()
        for i, name in enumerate(names):
            if name in seen:
                raise self.refuse(path.format(i), "name is used twice", name, "each name once")
            seen.add(name)

    def names(self) -> None:
        """Check that names are unique, and that references between records exist."""
        problem = self.problem
        self.once("families[{}].name", (item.name for item in problem.families))
        self.once("worker_types[{}].name", (item.name for item in problem.worker_types))
        self.once("variants[{}].name", (item.name for item in problem.variants))
        workers = (name for item in problem.worker_types for name in item.worker_names())
        self.once("worker_types (worker {})", workers)
        for i, worker_type in enumerate(problem.worker_types):
            reference = worker_type.latency_like
            if reference is not None:
                path = f"worker_types[{i}].latency_like"
                self.known(path, "worker type", reference, self.declared)
                if self.declared[reference].latency_like is not None:
                    raise self.refuse(path, "type has no latencies of its own", reference,
                                      "a type without latency_like")
                # Latencies are listed for an instance of the other type, or for this type's own.
                kinds = worker_type.instance_types()
                like_those = {kind.latency_like for kind in kinds}
                of_like = {kind.name for kind in self.declared[reference].instance_types()}
                measured = {entry.worker_type for variant in self.problem.variants
                            for entry in variant.latency}
                if (like_those.isdisjoint(of_like)
                        and measured.isdisjoint(kind.name for kind in kinds)):
                    raise self.refuse(path, "types have no instance in common", reference,
                                      "a type that is whole, or cut into such instances, as "
                                      "this one is")
        self.instances()

    def instances(self) -> None:
        """Check that no other name has the form of an instance of a partitioned GPU."""
        cut = [item for item in self.problem.worker_types if item.partitions is not None]
        gpus = {name for item in cut for name in item.worker_names()}
        types = {item.name for item in cut}
        for i, item in enumerate(self.problem.worker_types):
            for path, names, among in ((f"worker_types[{i}].name", (item.name,), types),
                                       (f"worker_types[{i}].workers", item.worker_names(), gpus)):
                for name in names:
                    if name.rpartition("/")[0] in among:
                        raise self.refuse(path, "named like an instance of a GPU that is cut",
                                          name, f"not {name.rpartition('/')[0]}/…")

    def variants(self) -> None:
        for i, variant in enumerate(self.problem.variants):
            self.known(f"variants[{i}].family", "family", variant.family, self.families)
            seen: set[tuple[str, int, int]] = set()
            for j, entry in enumerate(variant.latency):
                path = f"variants[{i}].latency[{j}]"
                self.known(f"{path}.worker_type", "worker type", entry.worker_type, self.types)
                key = (entry.worker_type, entry.batch, entry.processes)
                if key in seen:
                    raise self.refuse(path, "listed twice", f"{key[0]}, batch {key[1]}, "
                                      f"{key[2]} processes",
                                      "each type, batch and number of processes once")
                seen.add(key)

    def colocation(self) -> None:
        for i, rule in enumerate(self.problem.colocation):
            for j, name in enumerate(rule.members):
                self.known(f"colocation[{i}].members[{j}]", "family or variant", name,
                           self.families | set(self.variants_by_name))
            for j, name in enumerate(rule.worker_types):
                self.known(f"colocation[{i}].worker_types[{j}]", "worker type", name, self.types)

    def current(self) -> None:
        workers = {name for item in self.problem.instance_types for name in item.worker_names()}
        self.once("current[{}].worker", (item.worker for item in self.problem.current))
        for i, holding in enumerate(self.problem.current):
            self.known(f"current[{i}].worker", "worker", holding.worker, workers)
            for j, name in enumerate(holding.variants):
                self.known(f"current[{i}].variants[{j}]", "variant", name, self.variants_by_name)
        for item in self.problem.worker_types:
            if item.partitions is not None:
                self._current_instances(item, item.partitions)

    def _current_instances(self, item: WorkerType, table: PartitionTable) -> None:
        """Check that the current instances of each GPU are part of a legal layout."""
        gpus = set(item.worker_names())
        taken: dict[str, list[int]] = {}
        compute: Counter[str] = Counter()
        for i, holding in enumerate(self.problem.current):
            gpu = holding.worker.rpartition("/")[0]
            if gpu not in gpus:
                continue
            _, name, start = split_worker(holding.worker)
            kind = table.instance(name)
            taken.setdefault(gpu, []).extend(range(start, start + kind.memory_slices))
            compute[gpu] += kind.compute_slices
            if len(set(taken[gpu])) < len(taken[gpu]) or compute[gpu] > table.compute_slices:
                raise self.refuse(f"current[{i}].worker", f"instances of {gpu} overlap",
                                  holding.worker, f"a layout that {table.name} can have")

    def values(self) -> None:
        """Check that value tables name known families, worker types and variants."""
        self.once("values[{}].family", (item.family for item in self.problem.values))
        for i, table in enumerate(self.problem.values):
            path = f"values[{i}]"
            self.known(f"{path}.family", "family", table.family, self.families)
            models = {v.name for v in self.problem.variants if v.family == table.family}
            for j, row in enumerate(table.rows):
                self.known(f"{path}.rows[{j}].worker_type", "worker type", row.worker_type,
                           self.types)
                for name in row.model_set:
                    self.known(f"{path}.rows[{j}].model_set", f"variant of {table.family}", name,
                               models)
            family = self.problem.family(table.family)
            if not self.problem.table(family):
                raise self.refuse(f"{path}.rows", "no row is for the family's SLO",
                                  sorted({row.slo_ms for row in table.rows}),
                                  f"rows with slo_ms {family.slo_ms:g}")

    def cost(self) -> None:
        objective = self.problem.objective
        needed = objective.kind in ("cheapest", "pareto") or "cost" in objective.order
        if needed and not any(item.cost_per_hour for item in self.problem.worker_types):
            raise self.refuse("worker_types", "no worker costs anything, and the objective is its "
                              "cost", 0.0, "a cost_per_hour for some type")


def _listed(names: Collection[str]) -> str:
    """Join names for a message, only the first of many."""
    ordered = sorted(names)
    return ", ".join(ordered[:8]) + (f", … ({len(ordered)} in all)" if len(ordered) > 8 else "")
