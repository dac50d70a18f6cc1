"""A set of policies and the choice among its load levels (paper §3.2.2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from ramsis.errors import InvalidValueError, describe
from ramsis.runtime.fleet import FleetSelector
from ramsis.runtime.selector import Selector

__all__ = ["Choice", "PolicySet"]


S = TypeVar("S", Selector, FleetSelector)


class Choice(NamedTuple, Generic[S]):
    """The policy for an anticipated load.

    ``level_qps`` is the load that the policy was made for; ``above_highest`` says that the
    anticipated load passes every level, so that the policy's promises do not hold.
    """

    selector: S
    level_qps: float
    above_highest: bool


class _Levels(Generic[S]):
    """The policies of one arrival process, by rising load."""

    __slots__ = ("above", "choices", "loads")

    def __init__(self, selectors: list[S]) -> None:
        selectors.sort(key=lambda selector: selector.table.load_qps)
        self.loads = tuple(selector.table.load_qps for selector in selectors)
        self.choices: list[Choice[S]] = [
            Choice(s, s.table.load_qps, False) for s in selectors
        ]
        self.choices.append(self.choices[-1]._replace(above_highest=True))
        self.above = False


class PolicySet(Generic[S]):
    """Policies of one kind for several loads, and for one or more arrival processes.

    Parameters
    ----------
    selectors
        One for each load and arrival process.
    on_above_highest
        Called with the anticipated load when it passes every level: once when the load rises
        above the highest level, and again only after it has come back to a level. Where policies
        can be made on the fly, this is the place to ask for one. What it raises reaches the
        caller of :meth:`at`.

    Raises
    ------
    InvalidValueError
        When there is no selector, or two for the same load and arrival process.
    """

    def __init__(
        self,
        selectors: Iterable[S],
        *,
        on_above_highest: Callable[[float], object] | None = None,
    ) -> None:
        groups: dict[str, dict[float, S]] = {}
        for selector in selectors:
            table = selector.table
            group = groups.setdefault(table.arrivals, {})
            if table.load_qps in group:
                raise InvalidValueError(
                    describe("two policies for one load and arrival process",
                             value=f"{table.load_qps} QPS, {table.arrivals}")
                )
            group[table.load_qps] = selector
        if not groups:
            raise InvalidValueError(describe("a policy set needs at least one policy"))
        self._levels: dict[str, _Levels[S]] = {
            key: _Levels(list(group.values())) for key, group in groups.items()
        }
        self._on_above_highest = on_above_highest

    @property
    def processes(self) -> tuple[str, ...]:
        """Labels of the arrival processes, sorted."""
        return tuple(sorted(self._levels))

    def levels(self, process: str | None = None) -> tuple[float, ...]:
        """The loads in queries per second that there are policies for, rising."""
        return self._group(process).loads

    def at(self, load_qps: float, process: str | None = None) -> Choice[S]:
        """The policy of the lowest level that meets the anticipated load.

        Parameters
        ----------
        load_qps
            Anticipated load in queries per second, 0 or more. A load above every level gets
            the highest one, flagged in the answer.
        process
            Label of the arrival process; may be left out when the set has only one.

        Raises
        ------
        InvalidValueError
            When the load is negative or NaN, the set has no such process, or none is named
            and it has several.
        """
        if not load_qps >= 0:
            raise InvalidValueError(
                describe("not a load", where="load_qps", value=load_qps, allowed="0 or more")
            )
        group = self._group(process)
        choice = group.choices[bisect_left(group.loads, load_qps)]
        if choice.above_highest != group.above:
            group.above = choice.above_highest
            if group.above and self._on_above_highest is not None:
                self._on_above_highest(load_qps)
        return choice

    def _group(self, process: str | None) -> _Levels[S]:
        if process is None and len(self._levels) == 1:
            return next(iter(self._levels.values()))
        if process in self._levels:
            return self._levels[process]
        what = "no policy for this process" if process else "the set has several processes"
        raise InvalidValueError(
            describe(what, where="process", value=process, allowed=", ".join(self.processes))
        )
