"""Helpers for presets: checked placements from patterns, or from models on GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from placement_milp.check import check_placement
from placement_milp.patterns import Pattern, Quality, rates_of
from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType
from placement_milp.recipe import assemble, placement_of
from placement_milp.result import Group, Placement, Use
from ramsis.errors import InvalidValueError


class ModelOnGpu(NamedTuple):
    """Model that a heuristic puts on a GPU, with its batch size."""

    family: Family
    variant: Variant
    worker_type: WorkerType
    entry: Latency
    gpu: str
    mps_share: float | None = None

    @property
    def rate_qps(self) -> float:
        """Requests per second that the instance can answer, alone on its GPU."""
        return 1000.0 * self.entry.batch / self.entry.latency_ms

    @property
    def memory_mb(self) -> float:
        """Memory in MB that the model uses on its GPU."""
        return self.entry.memory_mb or self.variant.memory_mb


def check_one_variant_each(problem: Problem) -> None:
    """Refuse a problem with several variants in a family."""
    for name, number in Counter(variant.family for variant in problem.variants).items():
        if number > 1:
            raise InvalidValueError("family has several variants", where=name, value=number,
                                    allowed="one model in each family")


def gpu_groups(
    problem: Problem, instances: Sequence[ModelOnGpu], gpus: Iterable[str]
) -> tuple[Group, ...]:
    """Return a group for each GPU, with the models that run on it.

    The demand of a family is divided among its models in proportion to their rates, and cut to
    the sum of these rates.
    """
    total = dict.fromkeys((family.name for family in problem.families), 0.0)
    for item in instances:
        total[item.family.name] += item.rate_qps
    # The part of its rate that each model of a family is sent.
    busy = {f.name: min(1.0, f.demand_qps / total[f.name]) for f in problem.families
            if total[f.name]}
    groups = []
    for gpu in gpus:
        on_gpu = [item for item in instances if item.gpu == gpu]
        uses = tuple(
            Use(item.family.name, (item.variant.name,), item.entry.batch, item.entry.latency_ms,
                item.variant.accuracy, 1.0, item.rate_qps, busy[item.family.name] * item.rate_qps,
                item.mps_share)
            for item in on_gpu)
        kind = on_gpu[0].worker_type
        groups.append(Group(kind.name, (gpu,), 1, uses, sum(item.memory_mb for item in on_gpu),
                            kind.memory_mb, None, kind.cost_per_hour))
    return tuple(groups)


def gpu_placement(
    problem: Problem, groups: tuple[Group, ...], seconds: float, **more: Any
) -> Placement:
    """Return the placement of groups that a preset found in ``seconds``; check it independently.

    The check leaves out the problem's objective, minima and rules, which the presets for GPUs
    ignore. ``more`` are further arguments of :func:`placement_of`.
    """
    placement = placement_of(problem, groups, seconds, **more)
    bare = tuple(Family(f.name, f.demand_qps, f.slo_ms) for f in problem.families)
    check_placement(Problem(problem.name, bare, problem.worker_types, problem.variants),
                    placement)
    return placement


def _served_shares(
    problem: Problem, used: Sequence[tuple[Pattern, int]]
) -> dict[Quality, float]:
    """Return the share of its family's demand that each quality gets.

    The most accurate quality of a family gets as much as its workers can take, then the next one.
    """
    room = rates_of(used)
    remaining_qps = {family.name: family.demand_qps for family in problem.families}
    shares = {}
    for quality in sorted(room, key=lambda q: (-q.accuracy, q.label)):
        taken = min(remaining_qps[quality.family], room[quality])
        shares[quality] = taken / problem.family(quality.family).demand_qps
        remaining_qps[quality.family] -= taken
    return shares


def checked_placement(
    problem: Problem, used: Sequence[tuple[Pattern, int]], seconds: float, **more: Any
) -> Placement:
    """Return the placement with each pattern on its number of workers; check it independently.

    Parameters
    ----------
    used : sequence of (Pattern, int)
        Patterns, each with the number of times that it is used.
    seconds : float
        Time that the preset took; it is stated in the placement.
    **more
        Further arguments of :func:`placement_of`.
    """
    used = [(pattern, count) for pattern, count in used if count]
    groups = assemble(problem, used, _served_shares(problem, used))
    placement = placement_of(problem, groups, seconds, **more)
    check_placement(problem, placement)
    return placement
