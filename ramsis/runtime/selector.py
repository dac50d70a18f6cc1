"""Lookup of a station's decision by idle workers, queue length and slack.

The rule is defined for all arguments; ``docs/lookup.md`` specifies it for any language. Each axis
takes the last level that its value reaches (slack is rounded *down*, EuroSys '24, §4.3.1, with the
tolerance :data:`ramsis.runtime.table.SLACK_TOLERANCE_MS`), and all queues longer than the table
have one answer. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from math import inf, nextafter
from operator import index
from typing import Any, TypeVar

from ramsis.errors import InvalidValueError
from ramsis.runtime.cascade import CascadeRule
from ramsis.runtime.decisions import DROP, Decision, Drop, Wait
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import (
    AS_LAST_CODE,
    DROP_CODE,
    SLACK_TOLERANCE_MS,
    WAIT_CODE,
    DecisionTable,
)

Answer = Decision | Wait | Drop
Row = tuple[tuple[float, ...], tuple[Any, ...]]
A = TypeVar("A")

_NEVER = Wait(None)


class Selector:
    """Lookup of decisions in a policy's table.

    The decision table and the policy's second opinions, if any, which the lookup itself ignores,
    are the attributes ``table`` and ``cascade``. ``largest_batch`` is that of the table.

    Examples
    --------
    >>> table = DecisionTable(
    ...     models=("small", "large"), slo_ms=100.0, load_qps=50.0, workers=2,
    ...     dispatch="central-queue", arrivals="poisson", idle=(0, 1, 2), queued=(0, 1, 2),
    ...     slack_ms=(0.0, 20.0, 60.0), actions=[[0, 1], [1, 1], [0, 2]],
    ...     rows=[[0, -2, 1, 0, 2, -1], [0, -2, 1, 2, 2, 1]], row_of=[[0, 1], [1, 1]],
    ...     longer_queue=-2)
    >>> selector = Selector(table)
    >>> selector(1, 80.0, idle=1)
    Wait(below_ms=59.999999)
    >>> selector(2, 30.0, idle=2)
    Decision(model='small', batch=2)
    >>> selector(1, -3.0, idle=2)
    Drop()
    """

    __slots__ = ("_level", "_longer", "_longest", "_most", "_rows", "_shared", "_single",
                 "cascade", "largest_batch", "table")

    def __init__(self, table: DecisionTable, cascade: CascadeRule | None = None) -> None:
        self.table, self.cascade = table, cascade
        self.largest_batch = max((batch for _, batch in table.actions), default=0)
        self._longest, self._most = table.queued[-1], table.idle[-1]
        self._single = self._most == 1
        self._shared = not DISPATCHES[table.dispatch].own_queues
        by_level, self._longer = compiled(table)
        self._level = [-1, *_repeated(range(len(table.queued) - 1), table.queued)]
        self._rows: list[list[Any]] = [[_NEVER] * len(self._level),
                                       *_repeated(by_level, table.idle)]

    def __call__(self, queued: int, slack_ms: float, idle: int | None = None) -> Answer:
        """Look up the decision for ``queued`` requests, the earliest deadline ``slack_ms`` away.

        Only a table made with the late rule ``drop`` answers with a :class:`Drop`, and only one
        of a central queue with a :class:`Wait`.

        Parameters
        ----------
        queued
            Requests in the queue, 1 or more.
        slack_ms
            Time to the earliest deadline; any number, infinities and negative (late) ones
            included.
        idle
            Idle workers of the station, 0 or more; numbers above its workers count as all. It is
            optional for a queue with a single worker, which is then idle.
        """
        # Hot path: unusual arguments fail one comparison, and are handled by ``_unusual``.
        try:
            if 0 < queued <= self._longest and slack_ms <= inf:
                if idle is None:
                    if self._single:
                        edges, answers = self._rows[1][self._level[queued]]
                        return answers[bisect_right(edges, slack_ms)]  # type: ignore[no-any-return]
                elif 0 < idle <= self._most:
                    edges, answers = self._rows[idle][self._level[queued]]
                    return answers[bisect_right(edges, slack_ms)]  # type: ignore[no-any-return]
                elif idle == 0:  # common: a lookup at each arrival at a central queue
                    return self._rows[idle][queued]  # type: ignore[no-any-return]
        except TypeError:
            pass
        return self._unusual(queued, slack_ms, idle)

    def when_slow(
        self, slowness: float, queued: int, slack_ms: float, idle: int | None = None
    ) -> Answer:
        """Look up the decision if batches take ``slowness`` times as long as the table assumes.

        The caller divides slacks by r, so that the ratio of slack to service time is right. But to
        the table of a central queue, little slack means requests that have waited for long, and so
        a short queue behind them means a low load: it would run them one by one, and never recover
        from a burst. So each request counts as r, unless the batch is then larger than the queue.

        Parameters
        ----------
        slowness
            The factor r, 1 or more.
        queued, idle
            As for a call, with the same errors.
        slack_ms
            Time to the earliest deadline, divided by r; the slack of a :class:`Wait` is, too.
        """
        if self._shared and queued > 0:
            answer = self(int(queued * slowness), slack_ms, idle)
            if not isinstance(answer, Decision) or answer.batch <= queued:
                return answer
        return self(queued, slack_ms, idle)

    def _unusual(self, queued: int, slack_ms: float, idle: int | None) -> Answer:
        """Look up the decision for arguments outside the hot path, or refuse them."""
        if idle is None and self._single:
            idle = 1
        _check(queued, slack_ms, idle, self._most)
        assert idle is not None
        if queued > self._longest and self._longer is DROP:
            return DROP
        if idle == 0:
            return _NEVER
        if queued > self._longest and self._longer is not None:
            return self._longer
        level = self._level[min(queued, self._longest)]
        edges, answers = self._rows[min(idle, self._most)][level]
        return answers[bisect_right(edges, slack_ms)]  # type: ignore[no-any-return]


def compiled(table: DecisionTable) -> tuple[list[list[Row]], Drop | Decision | None]:
    """Compile the answers of a table for lookups.

    Return the rows and the answer for a queue longer than the last level, None for that of the
    last level. A row, for each idle level after 0 and each queue level after 0, has the slacks in
    ms from which the next answer holds, and the answers, one more than slacks. Levels that share a
    row of the table share the object.
    """
    actions = [Decision(table.models[m], b, table.size_of(m, b)) for m, b in table.actions]
    rows = [_row(row, table.slack_ms, actions) for row in table.rows]
    by_level = [[rows[r] for r in line] for line in table.row_of]
    return by_level, _longer(table.longer_queue, actions)


def wake_slack(wait: Wait) -> float | None:
    """Return the largest slack at which a lookup ends the wait; None if none does."""
    return None if wait.below_ms is None else nextafter(wait.below_ms, float("-inf"))


def _check(queued: object, slack_ms: object, idle: object, workers: int) -> None:
    """Refuse invalid arguments of a lookup."""
    try:
        is_number = bool(slack_ms <= inf)  # type: ignore[operator]
    except TypeError:
        is_number = False
    if not is_number:
        raise InvalidValueError("slack is not a number", where="slack_ms", value=slack_ms,
                                allowed="any number but NaN")
    if idle is None:
        raise InvalidValueError("idle workers are not stated", where="idle", value=idle,
                                allowed=f"0 to {workers}, the workers that "
                                "take from this queue")
    for where, count, low, fault in (("queued", queued, 1, "nothing queued"),
                                    ("idle", idle, 0, "not a number of idle workers")):
        try:
            number = index(count)  # type: ignore[arg-type]
        except TypeError:
            raise InvalidValueError("not a whole number", where=where, value=count,
                                    allowed=f"{low} or more") from None
        if number < low:
            raise InvalidValueError(fault, where=where, value=count, allowed=f"{low} or more")


def _repeated(values: Iterable[A], levels: Sequence[int]) -> Iterator[A]:
    """Yield, for each integer from 1 to the last level, the value of the level that it reaches."""
    for value, (low, high) in zip(values, pairwise((*levels[1:], levels[-1] + 1)), strict=True):
        yield from repeat(value, high - low)


def _longer(code: int, actions: Sequence[Decision]) -> Drop | Decision | None:
    """Return the answer for queues beyond the last level; None to use the last level's row."""
    if code == AS_LAST_CODE:
        return None
    return DROP if code == DROP_CODE else actions[code]


def _row(
    row: Sequence[int], slack_ms: tuple[float, ...], actions: Sequence[Decision]
) -> Row:
    """Return the slacks from which a row's next answers hold, and its answers."""
    edges = tuple(slack_ms[j] - SLACK_TOLERANCE_MS for j in row[2::2])
    answers: list[Answer] = []
    for place, code in enumerate(row[1::2]):
        if code == WAIT_CODE:
            answers.append(Wait(edges[place - 1] if place else None))
        else:
            answers.append(DROP if code == DROP_CODE else actions[code])
    return edges, tuple(answers)
