"""The lookup: from what waits in a worker's queue to the model and batch to run.

The rule is total and is specified language-neutrally in ``docs/lookup.md``: the column is the
last slack bin whose low edge does not pass the slack (slack is rounded *down*, paper §4.3.1),
the row is the number of queued requests, and a queue longer than the table has one answer.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import index
from typing import Any, NamedTuple

from ramsis.errors import InvalidValueError, describe
from ramsis.runtime.mixture import Either, Uniform, drawn_from
from ramsis.runtime.table import LookupTable

__all__ = ["DROP", "Decision", "Drop", "Selector", "check_slack"]


class Decision(NamedTuple):
    """What to run next: ``batch`` requests, earliest deadlines first, on ``model``."""

    model: str
    batch: int


class Drop(NamedTuple):
    """Take the head out of the queue and do not answer it in time; then ask again."""


DROP = Drop()


class Selector:
    """Looks decisions up in one policy.

    Parameters
    ----------
    table
        The lookup's part of a policy file; kept as the attribute ``table``.
    uniform
        Source of chance where the policy has a place with two answers, such as
        ``random.Random(7).random``; by default one of a fixed seed.

    Examples
    --------
    >>> selector = Selector(LookupTable(
    ...     models=("small", "large"), slo_ms=100.0, load_qps=50.0, workers=1,
    ...     arrivals="poisson", batching="maximal", max_queue=2, slack_ms=(0.0, 50.0),
    ...     model=[[0, 1], [0, 0]], batch=[[1, 1], [2, 2]], overflow=(0, 3)))
    >>> selector(1, 80.0)
    Decision(model='large', batch=1)
    >>> selector(7, 80.0)
    Decision(model='small', batch=3)
    """

    __slots__ = ("_inner_edges", "_max_queue", "_overflow", "_rows", "_uniform", "table")

    def __init__(self, table: LookupTable, uniform: Uniform | None = None) -> None:
        self.table = table
        self._max_queue = table.max_queue
        self._inner_edges = table.slack_ms[1:]
        known: dict[tuple[int, int], Decision | Drop] = {}

        def decision(model: int, batch: int) -> Decision | Drop:
            answer = Decision(table.models[model], batch) if batch else DROP
            return known.setdefault((model, batch), answer)

        rows: list[list[Any]] = [list(map(decision, *row))
                                 for row in zip(table.model, table.batch, strict=True)]
        if table.mixture is not None:
            self._uniform = drawn_from(uniform)
            row, column = table.mixture.place
            model, batch = table.mixture.answer
            rows[row][column] = Either(rows[row][column], decision(model, batch),
                                       table.mixture.probability)
        self._rows: tuple[tuple[Any, ...], ...] = ((), *map(tuple, rows))
        self._overflow = decision(*table.overflow)

    def __call__(self, queued: int, slack_ms: float) -> Decision | Drop:
        """The decision for ``queued`` requests, the earliest deadline ``slack_ms`` away.

        Only a policy made with the late rule ``drop`` answers with a :class:`Drop`.

        Parameters
        ----------
        queued
            Requests in the worker's queue, 1 or more; above the table's ``max_queue`` the
            answer is the policy's ``overflow``.
        slack_ms
            Time to the earliest deadline; any number, infinities and negative (late) ones
            included.

        Raises
        ------
        InvalidValueError
            When nothing is queued, ``queued`` is not a whole number, or ``slack_ms`` is NaN or
            not a number.
        """
        try:
            if slack_ms != slack_ms:
                raise InvalidValueError(_bad_slack(slack_ms))
            column = bisect_right(self._inner_edges, slack_ms)
            if 1 <= queued <= self._max_queue:
                found: Decision | Drop | Either[Decision | Drop] = self._rows[queued][column]
                return found.drawn(self._uniform) if isinstance(found, Either) else found
            if index(queued) >= 1:
                return self._overflow
        except TypeError:
            raise InvalidValueError(_bad_arguments(queued, slack_ms)) from None
        raise InvalidValueError(
            describe("nothing queued", where="queued", value=queued, allowed="1 or more")
        )


def check_slack(slack_ms: object) -> None:
    """Refuse a slack that is NaN or not a number."""
    if not isinstance(slack_ms, (int, float)) or slack_ms != slack_ms:
        raise InvalidValueError(_bad_slack(slack_ms))


def _bad_slack(slack_ms: object) -> str:
    return describe("slack is not a number", where="slack_ms", value=slack_ms,
                    allowed="any number but NaN")


def _bad_arguments(queued: object, slack_ms: object) -> str:
    if not isinstance(slack_ms, (int, float)):
        return _bad_slack(slack_ms)
    return describe("not a whole number", where="queued", value=queued, allowed="1 or more")
