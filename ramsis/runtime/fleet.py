"""The lookup for a whole fleet: from idle workers, queue and slack of the head to what to do next.

Specified language-neutrally in ``docs/lookup.md``. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import nextafter
from operator import index
from typing import Any, NamedTuple

from ramsis.errors import InvalidValueError, describe
from ramsis.runtime.fields import POSITIVE, Fields
from ramsis.runtime.mixture import Either, Mixture, Uniform, drawn_from, mixture_in
from ramsis.runtime.selector import DROP, Decision, Drop, check_slack
from ramsis.runtime.table import POLICY_FORMAT, arrivals_of, check_format, model_names, slack_grid

__all__ = ["FleetSelector", "FleetTable", "Wait", "fleet_table"]

WAIT_CODE, DROP_CODE = -1, -2
"""Entries of a table that are not an option's index."""


class Wait(NamedTuple):
    """Do nothing until a request arrives, a worker becomes idle, or the slack has fallen.

    ``below_ms`` is the slack of the head below which to ask again; ``None``: at no slack.
    """

    below_ms: float | None


_Answer = Decision | Wait | Drop


class FleetTable(NamedTuple):
    """What a fleet's lookup reads, checked.

    Attributes
    ----------
    models
        Names, fastest first.
    slo_ms, load_qps, workers
        What the policy was made for.
    arrivals
        Label of the arrival process.
    idle, queue
        Numbers of idle workers and queued requests that the table tells apart, from 0.
    slack_ms
        Low edges of the slack bins, from 0.
    options
        Model index and batch of each answer that is a batch.
    rows
        Distinct rows: pairs of a slack bin and the answer from there on, flattened; the answer
        is an index into ``options``, -1 to wait or -2 to drop.
    places
        Row for each idle level (but 0) and queue level (but 0).
    mixture
        The place that has a second answer, if any.
    spare_idle
        Idle workers with which, the queue being empty, a late answer takes nothing from others.
    """

    models: tuple[str, ...]
    slo_ms: float
    load_qps: float
    workers: int
    arrivals: str
    idle: tuple[int, ...]
    queue: tuple[int, ...]
    slack_ms: tuple[float, ...]
    options: list[list[int]]
    rows: list[list[int]]
    places: list[list[int]]
    mixture: Mixture | None = None
    spare_idle: int | None = None


def fleet_table(fields: Fields) -> FleetTable:
    """The lookup's part of a fleet policy's document.

    Raises
    ------
    InputFileError
        As :func:`ramsis.runtime.table.lookup_table`.
    """
    check_format(fields, POLICY_FORMAT)
    fields.text("kind", ("fleet",))
    fields.text("late", ("drop",))
    models = model_names(fields)
    slo_ms = fields.number("slo_ms", POSITIVE)
    workers = fields.whole("workers", 1)
    idle, queue = _levels(fields, "idle_levels"), _levels(fields, "queue_levels")
    if idle[-1] != workers:
        raise fields.refusal(f"idle_levels[{len(idle) - 1}]", "not the number of workers",
                             value=idle[-1], allowed=str(workers))
    slack_ms = slack_grid(fields, slo_ms)
    options = _options(fields, len(models), queue)
    table = fields.child("table")
    table.only(("rows", "index"))
    rows = table.items("rows")
    for r, row in enumerate(rows):
        _check_row(table, f"rows[{r}]", row, len(slack_ms), len(options))
    return FleetTable(
        models=models, slo_ms=slo_ms, load_qps=fields.number("load_qps", POSITIVE),
        workers=workers, arrivals=arrivals_of(fields.child("arrivals")), idle=idle, queue=queue,
        slack_ms=slack_ms, options=options, rows=rows,
        places=_index(table, len(idle) - 1, queue, rows, options),
        mixture=_mixture(fields, (len(idle) - 1, len(queue) - 1, len(slack_ms)), queue, options),
        spare_idle=fields.whole_or_none("spare_idle", 0),
    )


class FleetSelector:
    """Looks decisions up in one fleet policy.

    Parameters
    ----------
    table
        The lookup's part of a policy file; kept as the attribute ``table``.
    uniform
        Source of chance, as of :class:`ramsis.runtime.Selector`.

    Examples
    --------
    >>> selector = FleetSelector(FleetTable(
    ...     models=("small", "large"), slo_ms=100.0, load_qps=50.0, workers=2,
    ...     arrivals="poisson", idle=(0, 1, 2), queue=(0, 1, 2), slack_ms=(0.0, 20.0, 60.0),
    ...     options=[[0, 1], [1, 1], [0, 2]], rows=[[0, -2, 1, 0, 2, -1], [0, -2, 1, 2, 2, 1]],
    ...     places=[[0, 1], [1, 1]]))
    >>> selector(1, 1, 80.0)
    Wait(below_ms=60.0)
    >>> selector(2, 2, 30.0)
    Decision(model='small', batch=2)
    >>> selector(2, 1, -3.0)
    Drop()
    """

    __slots__ = ("_queue", "_rows", "_uniform", "_workers", "table")

    def __init__(self, table: FleetTable, uniform: Uniform | None = None) -> None:
        self.table = table
        self._workers = table.workers
        self._queue = table.queue
        options = [Decision(table.models[m], b) for m, b in table.options]
        rows = [_row(row, table.slack_ms, options) for row in table.rows]
        by_level = [[rows[r] for r in line] for line in table.places]
        if table.mixture is not None:
            self._uniform = drawn_from(uniform)
            i, n, j = table.mixture.place
            by_level[i][n] = _mixed_row(
                table.rows[table.places[i][n]], j, table.mixture, table.slack_ms, options)
        self._rows: list[list[tuple[tuple[float, ...], tuple[Any, ...]]]] = [[]]
        for (low, high), line in zip(pairwise(table.idle[1:]), by_level, strict=False):
            self._rows += [line] * (high - low)
        self._rows.append(by_level[-1])

    def __call__(self, idle: int, queued: int, slack_ms: float) -> Decision | Wait | Drop:
        """What to do with ``idle`` workers idle and ``queued`` requests queued.

        Parameters
        ----------
        idle
            Idle workers, 0 or more; more than the fleet has count as all.
        queued
            Requests in the central queue, 1 or more. Longer than the table's longest queue:
            drop, however many are idle.
        slack_ms
            Time to the head's deadline; any number but NaN.

        Raises
        ------
        InvalidValueError
            A count that is not a whole number or too low, or a slack that is not a number.
        """
        check_slack(slack_ms)
        try:
            idle, queued = index(idle), index(queued)
        except TypeError:
            raise InvalidValueError(describe("not a whole number", where="idle, queued",
                                             value=(idle, queued), allowed="counts")) from None
        if idle < 0 or queued < 1:
            raise InvalidValueError(describe("nothing to decide", where="idle, queued",
                                             value=(idle, queued),
                                             allowed="idle >= 0, queued >= 1"))
        levels = self._queue
        if queued > levels[-1]:
            return DROP
        if idle == 0:
            return _NEVER
        edges, answers = self._rows[min(idle, self._workers)][bisect_right(levels, queued) - 2]
        found: _Answer | Either[_Answer] = answers[bisect_right(edges, slack_ms)]
        return found.drawn(self._uniform) if isinstance(found, Either) else found

    def late_answer(self, idle: int, queued: int) -> Decision | None:
        """What may serve a request that was dropped, late, with capacity that nobody else needs.

        Optional: neither accuracy nor violations gain by it, but whoever still wants the answer
        has one. ``None``: not now, and never where the policy finds no capacity to spare.

        Parameters
        ----------
        idle, queued
            As for a lookup; 0 or more queued, dropped requests not counted.

        Examples
        --------
        >>> from ramsis.runtime.fleet import FleetTable
        >>> selector = FleetSelector(FleetTable(
        ...     models=("small",), slo_ms=100.0, load_qps=5.0, workers=2, arrivals="poisson",
        ...     idle=(0, 1, 2), queue=(0, 1), slack_ms=(0.0,), options=[[0, 1]], rows=[[0, 0]],
        ...     places=[[0], [0]], spare_idle=2))
        >>> selector.late_answer(2, 0)
        Decision(model='small', batch=1)
        >>> selector.late_answer(1, 0), selector.late_answer(2, 1)
        (None, None)
        """
        spare = self.table.spare_idle
        if spare is None or queued > 0 or idle < max(spare, 1):
            return None
        return Decision(self.table.models[0], 1)


_NEVER = Wait(None)


def wake_slack(wait: Wait) -> float | None:
    """The largest slack at which the answer is another one than ``wait``."""
    return None if wait.below_ms is None else nextafter(wait.below_ms, float("-inf"))


def _row(
    row: list[int], slack_ms: tuple[float, ...], options: list[Decision]
) -> tuple[tuple[float, ...], tuple[Decision | Wait | Drop, ...]]:
    """Inner edges of a row and its answers."""
    edges = tuple(slack_ms[j] for j in row[2::2])
    answers: list[Decision | Wait | Drop] = []
    for place, code in enumerate(row[1::2]):
        if code == WAIT_CODE:
            answers.append(Wait(edges[place - 1] if place else None))
        else:
            answers.append(DROP if code == DROP_CODE else options[code])
    return edges, tuple(answers)


def _mixed_row(
    row: list[int], j: int, mixture: Mixture, slack_ms: tuple[float, ...],
    options: list[Decision],
) -> tuple[tuple[float, ...], tuple[Any, ...]]:
    """A row whose bin j has two answers: it is cut there, so that a wait above ends at it."""
    starts = sorted({*row[::2], j, j + 1} - {len(slack_ms)})
    codes = [row[2 * (bisect_right(row[::2], b) - 1) + 1] for b in starts]
    at = starts.index(j)

    def answers(code: int) -> tuple[tuple[float, ...], tuple[_Answer, ...]]:
        here = [*codes[:at], code, *codes[at + 1:]]
        return _row([x for pair in zip(starts, here, strict=True) for x in pair], slack_ms,
                    options)

    edges, usual = answers(codes[at])
    _, other = answers(mixture.answer[0])
    either = Either(_lasting(usual, at), _lasting(other, at), mixture.probability)
    return edges, (*usual[:at], either, *usual[at + 1:])


def _lasting(answers: tuple[_Answer, ...], at: int) -> _Answer:
    """The answer at a place of a row; a wait goes on through a wait below it."""
    if not (isinstance(answers[at], Wait) and at > 0 and isinstance(answers[at - 1], Wait)):
        return answers[at]
    return answers[at - 1]


def _mixture(
    fields: Fields, shape: tuple[int, int, int], queue: tuple[int, ...],
    options: list[list[int]],
) -> Mixture | None:
    def refused(place: tuple[int, ...], answer: tuple[int, ...]) -> str | None:
        queued = queue[place[1] + 1]
        if DROP_CODE <= answer[0] < len(options) and (
                answer[0] < 0 or options[answer[0]][1] <= queued):
            return None
        return f"{DROP_CODE} to {len(options) - 1}, a batch of up to {queued}"

    return mixture_in(fields, shape, 1, refused)


def _levels(fields: Fields, key: str) -> tuple[int, ...]:
    levels = fields.items(key)
    for i, level in enumerate(levels):
        low = levels[i - 1] + 1 if i else 0
        if type(level) is not int or level < low or (i == 0 and level != 0) or (
                i == 1 and level != 1):
            raise fields.refusal(f"{key}[{i}]", "levels do not rise from 0 and 1", value=level,
                                 allowed=str(i) if i < 2 else f"a whole number >= {low}")
    if len(levels) < 2:
        raise fields.refusal(key, "too few levels", value=levels, allowed="0, 1, …")
    return tuple(levels)


def _options(fields: Fields, models: int, queue: tuple[int, ...]) -> list[list[int]]:
    options = fields.items("options")
    for o, option in enumerate(options):
        if not isinstance(option, list) or [type(item) for item in option] != [int, int] \
                or not (0 <= option[0] < models and 1 <= option[1] <= queue[-1]):
            raise fields.refusal(f"options[{o}]", "not a model and a batch", value=option,
                                 allowed=f"[0 to {models - 1}, 1 to {queue[-1]}]")
    return options


def _check_row(table: Fields, key: str, row: Any, bins: int, options: int) -> None:
    """A row is pairs of rising bins from 0 and answers."""
    whole = isinstance(row, list) and len(row) >= 2 and len(row) % 2 == 0 \
        and set(map(type, row)) == {int}
    if not whole or row[0] != 0 or any(a >= b for a, b in pairwise(row[::2])) \
            or row[-2] >= bins or not all(DROP_CODE <= code < options for code in row[1::2]):
        raise table.refusal(key, "not a row of slack bins and answers", value=row,
                            allowed=f"rising bins from 0 to {bins - 1}, each with an answer "
                            f"from {DROP_CODE} to {options - 1}")


def _index(
    table: Fields, idle: int, queue: tuple[int, ...], rows: list[list[int]],
    options: list[list[int]],
) -> list[list[int]]:
    largest = [max((options[code][1] for code in row[1::2] if code >= 0), default=0)
               for row in rows]
    lines = table.items("index", idle)
    for i, line in enumerate(lines):
        if not isinstance(line, list) or len(line) != len(queue) - 1:
            raise table.refusal(f"index[{i}]", "not a row for each queue level", value=line,
                                allowed=f"{len(queue) - 1} whole numbers")
        for n, row in enumerate(line):
            if type(row) is not int or not 0 <= row < len(rows) or largest[row] > queue[n + 1]:
                raise table.refusal(f"index[{i}][{n}]", "no such row for this queue", value=row,
                                    allowed=f"0 to {len(rows) - 1}, with batches up to "
                                    f"{queue[n + 1]}")
    return lines
