"""The fewest workers of a type, or the least memory on each, that a scenario needs.

A number of workers suffices for a scheduler if its violation rate, as the mean over the seeds, is
at most the target. The bound on requests in time (:func:`ramsis.bounds.scenario_bound`) excludes
small numbers for every scheduler: more workers never lower the best possible result, so a number
whose bound misses the target excludes all smaller ones, too. From the first number that is not
excluded on, numbers are tried one by one, as a scheduler may meet the target on K workers and miss
it on K + 1.

The least memory is searched for in the same way, in steps of the smallest model's memory. The
search begins with the memory of the largest model that fits on no other worker type, and ends with
the memory of all models together.

The same seeds give every scheduler and number of workers the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf
from typing import Any

from ramsis.bounds import scenario_bound, smallest
from ramsis.bounds.search import SPAN
from ramsis.errors import (
    BELOW_ONE,
    InfeasibleError,
    InvalidValueError,
    check_known,
    check_positive,
    whole,
)
from ramsis.planning.comparison import compare
from ramsis.planning.planned import scheduler_named
from ramsis.scenario import Scenario, draw_requests
from ramsis.sim import SchedulerError

_MOST = 4096
_ROUNDING = 1e-12


def with_workers(scenario: Scenario, grow: str, count: int) -> Scenario:
    """Return the scenario with another number of workers of a type.

    Entries of ``start`` for removed workers are removed, too. All workers are active at the start,
    unless the scenario states a smaller number.
    """
    _check_type(scenario, grow)
    whole(1).check("too few workers", count=count)
    types = tuple(
        kind if kind.name != grow else replace(
            kind, count=count, active=None if kind.active is None else min(kind.active, count))
        for kind in scenario.worker_types)
    gone = {worker for worker_type in scenario.worker_types if worker_type.name == grow
            for worker in worker_type.worker_names()[count:]}
    return replace(scenario, worker_types=types, start=tuple(
        state for state in scenario.start if state.worker not in gone))


def with_memory(scenario: Scenario, grow: str, memory_mb: float) -> Scenario:
    """Return the scenario with another memory size of the workers of a type.

    Of the models that these workers hold at the ``start``, the first ones that fit are kept.
    """
    _check_type(scenario, grow)
    check_positive("no memory", memory_mb=memory_mb)
    size_mb = dict(zip(scenario.arrays.models, scenario.arrays.memory_mb.tolist(), strict=True))
    copies = {model.name: model.instance_names() for model in scenario.models}
    workers = {worker for worker_type in scenario.worker_types if worker_type.name == grow
               for worker in (grow, *worker_type.worker_names())}

    def fits(names: Sequence[str]) -> tuple[str, ...]:
        kept: list[str] = []
        for model in (copy for name in names for copy in copies.get(name, (name,))):
            if sum(size_mb[held] for held in (*kept, model)) <= memory_mb * (1.0 + _ROUNDING):
                kept.append(model)
        return tuple(kept)

    return replace(
        scenario,
        worker_types=tuple(replace(kind, memory_mb=memory_mb) if kind.name == grow else kind
                           for kind in scenario.worker_types),
        start=tuple(replace(state, models=fits(state.models)) if state.worker in workers else state
                    for state in scenario.start))


@dataclass(frozen=True)
class _Growth:
    """A resource that can grow in whole steps: workers of a type, or memory on each of them."""

    scenario: Scenario
    worker_type: str
    step_mb: float | None  # memory of a step; None if workers grow
    # first, most: least and largest number of steps
    first: int
    most: int

    @classmethod
    def of(cls, scenario: Scenario, grow: str, most: int | None) -> _Growth:
        """Parse ``TYPE`` (workers) or ``TYPE:memory`` (memory of each worker)."""
        name, _, what = grow.partition(":")
        _check_type(scenario, name)
        if what not in ("", "memory"):
            raise InvalidValueError("nothing that grows", where="grow", value=grow,
                                    allowed=f"{name} or {name}:memory")
        if not what:
            return cls(scenario, name, None, 1, most or _MOST)
        if most is not None:
            raise InvalidValueError(
                "for numbers of workers", where="most", value=most,
                allowed=f"nothing with {grow}, which ends with all models on each worker")
        sizes_mb = scenario.arrays.memory_mb
        if not sizes_mb.any():
            raise InvalidValueError("the scenario's models take no memory", where="grow",
                                    value=grow, allowed=name)
        step_mb = float(sizes_mb[sizes_mb > 0.0].min())
        elsewhere_mb = {
            other.name: other.memory_mb or inf for other in scenario.worker_types
            if other.name != name}
        alone_mb = max((
            model.memory_mb for model in scenario.models if model.memory_mb > max(
                (elsewhere_mb.get(row.worker_type, 0.0) for row in model.latency), default=0.0)),
            default=0.0)
        steps = (max(ceil(total_mb / step_mb - _ROUNDING), 1)
                 for total_mb in (alone_mb, float(sizes_mb.sum())))
        return cls(scenario, name, step_mb, *steps)

    def at(self, count: int) -> Scenario:
        """Return the scenario grown by a number of steps: workers, or memory."""
        if self.step_mb is None:
            return with_workers(self.scenario, self.worker_type, count)
        return with_memory(self.scenario, self.worker_type, self.amount(count))

    def amount(self, count: int) -> float:
        """Return the amount after ``count`` steps: workers, or MB of memory."""
        return count if self.step_mb is None else count * self.step_mb

    def words(self, count: int) -> str:
        """Return a number of steps in words, such as ``3 workers`` or an amount of memory."""
        if self.step_mb is None:
            return f"{count} workers of the type {self.worker_type}"
        return f"{self.amount(count):g} MB on each worker of the type {self.worker_type}"


def fewest_by_scenario_bound(
    scenario: Scenario, grow: str, *, max_violation: float = 0.001,
    seeds: Sequence[int] = range(5), most: int | None = None,
) -> float | None:
    """Bound from below the workers of a type, or memory on each in MB, that meet the target.

    ``grow`` is TYPE, the name of a worker type, or TYPE:memory. ``max_violation``, in [0, 1), is
    the largest share of the requests that are late or dropped. ``most``, not with memory, is the
    largest number of workers, at most 4096, which is the default. Return None where the bound is
    not known, as for closed loops.
    """
    _check(max_violation, seeds, most)
    growth = _Growth.of(scenario, grow, most)
    drawn = [draw_requests(scenario, seed) for seed in seeds]
    drawn = [requests for requests in drawn if len(requests)]

    @cache
    def violations(count: int) -> float | None:
        grown, shares = growth.at(count), []
        for requests in drawn:
            bound = scenario_bound(grown, requests)
            if bound is None:
                return None
            shares.append(bound.share)
        return 1.0 - sum(shares) / len(shares) if shares else 0.0

    if violations(growth.first) is None:
        return None
    # More never makes the bound lower.
    fewest = smallest(lambda count: (violations(count) or 0.0) <= max_violation + _ROUNDING,
                      growth.first, growth.most)
    if fewest is None:
        raise InfeasibleError(f"no scheduler reaches this on {growth.words(growth.most)}",
                              where="max_violation", value=max_violation,
                              allowed=f"at least {violations(growth.most):.6g}")
    return growth.amount(fewest)


def fewest_in_scenario(
    scenario: Scenario, scheduler: str, grow: str, *, max_violation: float = 0.001,
    seeds: Sequence[int] = range(5), most: int | None = None, least: float | None = None,
    on_trial: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Find the fewest workers of a type, or the least memory on each, that meet the target.

    ``scheduler`` is as :func:`~ramsis.planning.scheduler_named` reads it; ``grow``,
    ``max_violation``, ``seeds`` and ``most`` are as of :func:`fewest_by_scenario_bound`, but
    ``most`` is ten times ``least`` by default. The search begins at ``least``, which that function
    gives; by default with one worker, or the largest model's memory. ``on_trial`` is called after
    each number of workers or memory.

    Returns
    -------
    dict
        ``scheduler``, ``grow``, ``workers``, ``workers_bound`` (``least``) and ``gap``, the
        latter two None if ``least`` is; with memory ``memory_mb`` and ``memory_mb_bound`` instead;
        ``max_violation``; ``clear``, whether the target is also met at the pessimistic end of the
        95 % interval; ``tried``, the numbers of workers or MB; then the figures of
        :meth:`ramsis.planning.Compared.row` on these workers.
    """
    _check(max_violation, seeds, most)
    spec, growth = scheduler_named(scheduler), _Growth.of(scenario, grow, most)
    first = growth.first if least is None else round(least / growth.amount(1))
    last = growth.most if most or growth.step_mb else min(SPAN * first, growth.most)
    tried: list[float] = []
    fewest, why = 1.0, ""
    for count in range(first, last + 1):
        tried.append(growth.amount(count))
        try:
            (compared,) = compare(growth.at(count), [spec], seeds)
        except SchedulerError as error:  # on more workers it may do better
            why = f" ({error})"
            continue
        finally:
            on_trial()
        row = compared.row()
        violations = 0.0 if row["in_time"] is None else 1.0 - row["in_time"]
        fewest = min(fewest, violations)
        if violations <= max_violation + _ROUNDING:
            wide, key = row["in_time_half_width"], "memory_mb" if growth.step_mb else "workers"
            return {
                "scheduler": row.pop("scheduler"), "grow": grow, key: tried[-1],
                f"{key}_bound": least, "gap": None if least is None else tried[-1] - least,
                "max_violation": max_violation,
                "clear": None if wide is None else violations + wide <= max_violation,
                "tried": tried, **row}
    raise InfeasibleError(
        f"{scheduler} does not reach this on up to {growth.words(max(last, first))}{why}",
        where="max_violation", value=max_violation, allowed=f"at least {fewest:.6g}")


def _check_type(scenario: Scenario, grow: str) -> None:
    """Refuse a worker type that the scenario does not have."""
    names = [worker_type.name for worker_type in scenario.worker_types]
    check_known("unknown worker type", grow, names, "grow")


def _check(max_violation: float, seeds: Sequence[int], most: int | None) -> None:
    """Refuse settings of a capacity search that are out of range."""
    BELOW_ONE.check("no share of violations", max_violation=max_violation)
    if not len(seeds):
        raise InvalidValueError("none", where="seeds", allowed="one or more")
    whole(1, _MOST).check("most workers out of range", optional=True, most=most)
