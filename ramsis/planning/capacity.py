"""How many workers of a type a scenario needs for a share of requests in time.

A scheduler has enough workers where its violations are at most so many, as the mean over the
seeds. The bound on requests in time (:func:`ramsis.bounds.scenario_bound`) says which numbers no
scheduler can do with: more workers never lower what the best schedule reaches, so a number for
which the bound is too low rules out all below it. Numbers are tried one by one from there on, as
a scheduler may meet the target on K workers and miss it on K + 1.

The same seeds give every scheduler and number of workers the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ramsis.bounds import scenario_bound
from ramsis.checks import check_arguments
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.planning.comparison import compare
from ramsis.planning.schedulers import scheduler_named
from ramsis.scenario import Scenario, draw_requests
from ramsis.sim.cluster import SchedulerError

__all__ = ["fewest_by_scenario_bound", "fewest_in_scenario", "with_workers"]

_SPAN = 10  # times the bound, where numbers end
_MOST = 4096
_ROUNDING = 1e-12


def with_workers(scenario: Scenario, grow: str, count: int) -> Scenario:
    """The same scenario with so many workers of a type.

    What ``start`` says of single workers goes with these; all are active at the start where the
    scenario does not say fewer.

    Raises
    ------
    InvalidValueError
        No such worker type, or fewer than one worker.
    """
    names = [one.name for one in scenario.worker_types]
    if grow not in names:
        raise InvalidValueError(describe("unknown worker type", where="grow", value=grow,
                                         allowed=", ".join(names)))
    if count < 1:
        raise InvalidValueError(describe("too few workers", where="count", value=count,
                                         allowed="1 or more"))
    types = tuple(
        one if one.name != grow else replace(
            one, count=count, active=None if one.active is None else min(one.active, count))
        for one in scenario.worker_types)
    gone = {worker for one in scenario.worker_types if one.name == grow
            for worker in one.worker_names()[count:]}
    return replace(scenario, worker_types=types, start=tuple(
        one for one in scenario.start if one.worker not in gone))


def fewest_by_scenario_bound(
    scenario: Scenario, grow: str, *, max_violation: float = 0.001,
    seeds: Sequence[int] = range(5), most: int | None = None,
) -> int | None:
    """Workers of a type without which no scheduler meets the target.

    Parameters
    ----------
    scenario : Scenario
    grow : str
        Name of the worker type.
    max_violation : float
        Largest share of the requests that are late or dropped, in [0, 1).
    seeds : sequence of int
        One or more.
    most : int, optional
        Most workers there can be, at most 4096, which is the default.

    Returns
    -------
    int or None
        None where the bound is not known, as for closed loops.

    Raises
    ------
    InvalidValueError
        A number out of range, or no such worker type.
    InfeasibleError
        Not even ``most`` workers are enough by the bound; with what they reach.
    """
    _check(max_violation, seeds, most)
    drawn = [draw_requests(scenario, seed) for seed in seeds]
    drawn = [one for one in drawn if len(one)]

    def lost(count: int) -> float | None:
        grown, shares = with_workers(scenario, grow, count), []
        for requests in drawn:
            found = scenario_bound(grown, requests)
            if found is None:
                return None
            shares.append(found.share)
        return 1.0 - sum(shares) / len(shares) if shares else 0.0

    highest, count, short = most or _MOST, 1, 0
    while (violations := lost(count)) is not None and violations > max_violation + _ROUNDING:
        if count == highest:
            raise InfeasibleError(describe(
                f"no scheduler reaches this on {highest} workers of the type {grow}",
                where="max_violation", value=max_violation, allowed=f"at least {violations:.6g}"))
        short, count = count, min(2 * count, highest)
    if violations is None:
        return None
    while count - short > 1:
        middle = (short + count) // 2
        if (lost(middle) or 0.0) > max_violation + _ROUNDING:
            short = middle
        else:
            count = middle
    return count


def fewest_in_scenario(
    scenario: Scenario, scheduler: str, grow: str, *, max_violation: float = 0.001,
    seeds: Sequence[int] = range(5), most: int | None = None, least: int | None = None,
    on_trial: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """The fewest workers of a type on which a scheduler meets the target.

    Parameters
    ----------
    scenario : Scenario
    scheduler : str
        As :func:`~ramsis.planning.scheduler_named` reads it.
    grow, max_violation, seeds
        As of :func:`fewest_by_scenario_bound`.
    most : int, optional
        Most workers that are tried; by default ten times ``least``.
    least : int, optional
        Where the search begins, as :func:`fewest_by_scenario_bound` gives it; by default 1.
    on_trial : callable
        Called after each number of workers.

    Returns
    -------
    dict
        ``scheduler``, ``grow``, ``workers``, ``workers_bound`` (``least``) and ``gap``, both None
        where that is; ``max_violation``; ``clear``, whether the target is met at the bad end of
        the 95 % interval, too; ``tried``, the numbers of workers; then the figures of
        :meth:`ramsis.planning.Compared.row` on these workers.

    Raises
    ------
    InvalidValueError
        A number out of range, or no such worker type.
    InputFileError
        No such scheduler.
    InfeasibleError
        No number meets the target; with the fewest violations.
    """
    _check(max_violation, seeds, most)
    spec, first = scheduler_named(scheduler), least or 1
    tried: list[int] = []
    fewest, why = 1.0, ""
    for count in range(first, (most or _SPAN * first) + 1):
        tried.append(count)
        try:
            (found,) = compare(with_workers(scenario, grow, count), [spec], seeds)
        except SchedulerError as error:  # on more workers it may do better
            why = f" ({error})"
            continue
        finally:
            on_trial()
        row = found.row()
        violations = 0.0 if row["in_time"] is None else 1.0 - row["in_time"]
        fewest = min(fewest, violations)
        if violations <= max_violation + _ROUNDING:
            wide = row["in_time_half_width"]
            return {
                "scheduler": row.pop("scheduler"), "grow": grow, "workers": count,
                "workers_bound": least, "gap": None if least is None else count - least,
                "max_violation": max_violation,
                "clear": None if wide is None else violations + wide <= max_violation,
                "tried": tried, **row}
    raise InfeasibleError(describe(
        f"{scheduler} does not reach this on up to {max(tried, default=first)} workers of the "
        f"type {grow}{why}", where="max_violation", value=max_violation,
        allowed=f"at least {fewest:.6g}"))


def _check(max_violation: float, seeds: Sequence[int], most: int | None) -> None:
    """Refuse numbers out of range."""
    if not 0.0 <= max_violation < 1.0:
        raise InvalidValueError(describe("no share of violations", where="max_violation",
                                         value=max_violation, allowed="0 to less than 1"))
    if not len(seeds):
        raise InvalidValueError(describe("none", where="seeds", allowed="one or more"))
    if most is not None and not 1 <= most <= _MOST:
        raise InvalidValueError(describe("most workers out of range", where="most", value=most,
                                         allowed=f"1 to {_MOST}"))


check_arguments(globals(), __all__)
