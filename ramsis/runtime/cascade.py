"""Lookup of a policy with second opinions (model cascade).

:mod:`ramsis.policy.cascade` states the rule, ``docs/lookup.md`` the format. Documents that break
the format are refused here, so that a lookup never fails. Slacks are compared with a tolerance of
:data:`~ramsis.runtime.table.SLACK_TOLERANCE_MS`, as in the decision table. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from ramsis.errors import FINITE, NON_NEGATIVE, POSITIVE
from ramsis.fields import Fields
from ramsis.runtime.decisions import DROP, Decision, Drop
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import DROP_CODE, SLACK_TOLERANCE_MS, WAIT_CODE, DecisionTable

_MOST_BINS = 100_000


class SecondOpinions(Decision):
    """Decision to run a batch of unsure requests on the second model, earliest deadlines first."""

    second = True


class Keep(NamedTuple):
    """Decision to send the first answer of the unsure queue's head, then to look up again."""

    level: int


class WaitForEither(NamedTuple):
    """Decision to wait for an event, or until the slack of a queue's head falls to a limit."""

    fresh_ms: float  # slack of the fresh queue's head, -inf if no slack ends the wait
    unsure_ms: float  # slack of the unsure queue's head, likewise


Answer = Decision | Drop | Keep | WaitForEither


class CascadeTable(NamedTuple):
    """Part of a policy's ``cascade`` that lookups read; fields are named as in the file."""

    second: int
    levels_per_fresh: float
    levels_per_unsure: float
    step_ms: float
    bins: int
    actions: Sequence[Sequence[int]]
    rows: Sequence[Sequence[int]]
    row_of: Sequence[Sequence[int]]  # the file's ``index``
    unsure_bins: Sequence[Sequence[int]]
    gather: Sequence[int]
    least: Sequence[int]
    last_call_ms: float
    second_ms: Sequence[float]
    thresholds: Sequence[Sequence[float]]  # edges of the confidence bins, by model
    confidence_bins: Sequence[int]  # number of bins of each model's confidence; 0 for none


class CascadeRule:
    """Lookup of decisions for a queue of fresh and one of unsure requests.

    ``cascade``, the second opinions of a policy, is its attribute ``table``. The policy's decision
    ``table`` has the names of the models, and the batch sizes to run.

    Examples
    --------
    >>> table = DecisionTable(
    ...     models=("small", "large"), slo_ms=60.0, load_qps=50.0, workers=2,
    ...     dispatch="central-queue", arrivals="poisson", idle=(0, 1, 2), queued=(0, 1),
    ...     slack_ms=(0.0,), actions=[[0, 1]], rows=[[0, 0]], row_of=[[0], [0]], longer_queue=0)
    >>> rule = CascadeRule(CascadeTable(
    ...     second=1, levels_per_fresh=0.5, levels_per_unsure=0.0, step_ms=10.0, bins=6,
    ...     actions=[[0, 1]], rows=[[0, -2, 1, 0], [0, 0]], row_of=[[0], [1]],
    ...     unsure_bins=[[1, 0], [0, 0]], gather=[2, 2], least=[3, 3], last_call_ms=5.0,
    ...     second_ms=[20.0, 25.0], thresholds=[[0.7], []], confidence_bins=[2, 0]), table)
    >>> rule(1, 60.0, 0, 0.0)
    Decision(model='small', batch=1)
    >>> rule.unsure(rule.level(fresh=0, unsure=0), "small", confidence=0.6)
    True
    >>> rule(0, 0.0, 1, 50.0)
    WaitForEither(fresh_ms=-inf, unsure_ms=25.0)
    >>> rule(0, 0.0, 1, 25.0)
    SecondOpinions(model='large', batch=1)
    >>> rule(0, 0.0, 1, 15.0)
    Keep(level=0)
    """

    __slots__ = ("_gather", "_keeps", "_last", "_last_call_ms", "_least", "_limits", "_lines",
                 "_longest", "_most", "_per_fresh", "_per_unsure", "_second_ms", "_seconds",
                 "_waits", "table")

    def __init__(self, cascade: CascadeTable, table: DecisionTable) -> None:
        self.table, levels = cascade, len(cascade.gather)
        self._last, self._longest = levels - 1, len(cascade.row_of[0])
        # Clipping changes no result, and avoids an overflow for a huge number of levels.
        self._per_fresh = min(cascade.levels_per_fresh, float(levels))
        self._per_unsure = min(cascade.levels_per_unsure, float(levels))
        self._keeps = tuple(map(Keep, range(levels)))
        self._gather, self._least = tuple(cascade.gather), tuple(cascade.least)
        self._last_call_ms = cascade.last_call_ms
        self._second_ms, self._most = (0.0, *cascade.second_ms), len(cascade.second_ms)
        # Cached, as creating a named tuple would double the time of a lookup.
        self._waits = tuple(WaitForEither(-inf, time_ms + self._last_call_ms if batch else -inf)
                            for batch, time_ms in enumerate(self._second_ms))
        models, second = table.models, cascade.second
        self._seconds = tuple(
            SecondOpinions(models[second], batch, table.size_of(second, batch) if batch else 0)
            for batch in range(self._most + 1))
        actions = [Decision(models[m], b, table.size_of(m, b)) for m, b in cascade.actions]
        rows = [_row(row, cascade.step_ms, actions) for row in cascade.rows]
        self._lines = [[rows[r] for r in line] for line in cascade.row_of]
        self._limits = [
            {name: inf if bins >= count else edges[bins - 1]
             for name, bins, edges, count in zip(models, line, cascade.thresholds,
                                                 cascade.confidence_bins, strict=True)
             if bins and count}
            for line in cascade.unsure_bins]

    def level(self, fresh: int, unsure: int) -> int:
        """Return the level of the table for numbers of waiting requests."""
        level = int(fresh * self._per_fresh + unsure * self._per_unsure)
        return level if level < self._last else self._last

    def unsure(self, level: int, model: str, confidence: float) -> bool:
        """Return whether a first answer is unsure.

        A confidence equal to a threshold counts as above it; NaN counts as sure.
        """
        return confidence < self._limits[level].get(model, -inf)

    def __call__(
        self, fresh: int, slack_ms: float, unsure: int, unsure_slack_ms: float,
        level: int | None = None,
    ) -> Answer:
        """Look up the decision for an idle worker.

        Parameters
        ----------
        fresh, unsure
            Numbers of requests in both queues, 0 or more.
        slack_ms, unsure_slack_ms
            Time to the earliest deadline in each; any number if the queue is empty.
        level
            Level of the preceding :class:`Keep`; by default the level of the queues.
        """
        if level is None:
            level = int(fresh * self._per_fresh + unsure * self._per_unsure)
            if level > self._last:
                level = self._last
        again = 0
        if unsure:
            second_ms, gather = self._second_ms, self._gather[level]
            slack = unsure_slack_ms + SLACK_TOLERANCE_MS
            if slack < second_ms[unsure if unsure < gather else gather]:
                return self._keeps[level]
            again = bisect_right(second_ms, slack, 1,
                                 (unsure if unsure < self._most else self._most) + 1) - 1
            if (again >= gather or unsure_slack_ms - second_ms[again] - self._last_call_ms
                    <= SLACK_TOLERANCE_MS):
                return self._seconds[again]
        fresh_ms = -inf
        if fresh:
            edges, answers = self._lines[level][fresh - 1 if fresh < self._longest else -1]
            answer = answers[bisect_right(edges, slack_ms)]
            if answer.__class__ is not float:
                return answer  # type: ignore[no-any-return]
            fresh_ms = answer
        if again and again >= self._least[level]:
            return self._seconds[again]
        wait = self._waits[again]
        return wait if fresh_ms == -inf else WaitForEither(fresh_ms, wait.unsure_ms)

    def when_slow(
        self, slowness: float, fresh: int, slack_ms: float, unsure: int, unsure_slack_ms: float,
        level: int | None = None,
    ) -> Answer:
        """Look up the decision if batches take ``slowness`` times as long as the policy assumes.

        As in :meth:`~ramsis.runtime.selector.Selector.when_slow`, slacks are divided by the
        factor, and the number of fresh requests is multiplied by it, unless the batch is then
        larger than the queue.
        """
        answer = self(int(fresh * slowness), slack_ms, unsure, unsure_slack_ms, level)
        if isinstance(answer, Decision) and not answer.second and answer.batch > fresh:
            return self(fresh, slack_ms, unsure, unsure_slack_ms, level)
        return answer


def cascade_rule(document: Fields, table: DecisionTable) -> CascadeRule | None:
    """Read the second opinions of a policy document; None if it has none.

    ``table`` is the document's decision table.
    """
    item = document.child_or_none("cascade")
    if item is None:
        return None
    check_in_turn(document)
    return CascadeRule(cascade_table(item, len(table.models)), table)


def check_in_turn(document: Fields) -> None:
    """Refuse second opinions in a policy whose queues are not joined in turn."""
    if not DISPATCHES[document.text("dispatch", DISPATCHES)].in_turn:
        raise document.refusal(
            "cascade", "second opinions with queues that are not joined in turn",
            value=document.text("dispatch"), allowed="dispatch " + " or ".join(
                name for name, rule in DISPATCHES.items() if rule.in_turn))


def cascade_table(item: Fields, models: int, max_batch: int | None = None) -> CascadeTable:
    """Read and check the lookup's part of the object ``cascade`` of a policy file.

    ``models`` is the number of models in the file, ``max_batch`` their largest batch, if known.
    """
    # Levels and the longest queue of the table follow from the lengths of ``gather`` and
    # ``index``.
    bins, levels = item.whole("bins", 1, _MOST_BINS), len(item.items("gather"))
    lines = item.entries("index", levels)
    queued = len(item.items("index")[0]) if isinstance(item.items("index")[0], list) else 1
    actions = _actions(item, models, queued if max_batch is None else max_batch)
    rows = _rows(item, bins, len(actions))
    row_of = [lines.wholes(key, 0, len(rows) - 1, queued) for key in lines]
    _check_rows(item, row_of, rows, actions)
    per_level = item.entries("unsure_bins", levels)
    by_model = item.children("models")
    if len(by_model) != models:
        raise item.refusal("models", "not an entry for each model", value=len(by_model),
                           allowed=f"{models} entries")
    counts = [0 if part.value("share") == [] else len(part.items("share")) for part in by_model]
    second_ms = item.numbers("second_ms", POSITIVE)
    item.check_rising("second_ms", second_ms, strictly=False)
    return CascadeTable(
        second=item.whole("second", 0, models - 1),
        levels_per_fresh=item.number("levels_per_fresh", NON_NEGATIVE),
        levels_per_unsure=item.number("levels_per_unsure", NON_NEGATIVE),
        step_ms=item.number("step_ms", POSITIVE), bins=bins, actions=actions, rows=rows,
        row_of=row_of,
        unsure_bins=[per_level.wholes(key, 0, length=models) for key in per_level],
        gather=item.wholes("gather", 1, len(second_ms), levels),
        least=item.wholes("least", 1, length=levels),
        last_call_ms=item.number("last_call_ms", NON_NEGATIVE), second_ms=second_ms,
        thresholds=[_thresholds(part, count)
                    for part, count in zip(by_model, counts, strict=True)],
        confidence_bins=counts)


def _row(
    row: Sequence[int], step_ms: float, actions: Sequence[Decision]
) -> tuple[tuple[float, ...], tuple[Any, ...]]:
    """Return the slacks from which a row's next answers hold, and its answers.

    An answer to wait is given as the slack that ends the wait.
    """
    edges = tuple(start * step_ms - SLACK_TOLERANCE_MS for start in row[2::2])
    answers = [start * step_ms - 2.0 * SLACK_TOLERANCE_MS if code == WAIT_CODE
               else DROP if code == DROP_CODE else actions[code]
               for start, code in zip(row[::2], row[1::2], strict=True)]
    return edges, tuple(answers)


def _actions(item: Fields, models: int, largest: int) -> list[list[int]]:
    """Read the model and batch size of each action from a policy file."""
    pairs = item.entries("actions")
    actions = [pairs.wholes(key, 0, length=2) for key in pairs]
    for key, (model, batch) in zip(pairs, actions, strict=True):
        if not (model < models and 1 <= batch <= largest):
            raise pairs.refusal(key, "no such action", value=[model, batch],
                                allowed=f"a model from 0 to {models - 1} and a batch from 1 "
                                f"to {largest}")
    return actions


def _rows(item: Fields, bins: int, actions: int) -> list[list[int]]:
    """Read the rows of a table: pairs of a slack bin and the code from this bin on."""
    entries, rows = item.entries("rows"), []
    for key in entries:
        row = entries.wholes(key, DROP_CODE, max(bins, actions) - 1)
        starts, codes = row[::2], row[1::2]
        if (len(row) % 2 or starts[0] != 0 or any(a >= b for a, b in pairwise(starts))
                or starts[-1] >= bins or max(codes) >= actions):
            raise entries.refusal(key, "not pairs of a rising slack bin, from 0, and a code",
                                  value=row, allowed=f"bins below {bins}; an action from 0 to "
                                  f"{actions - 1}, {WAIT_CODE} to wait, {DROP_CODE} to drop")
        rows.append(row)
    return rows


def _check_rows(
    item: Fields, row_of: Sequence[Sequence[int]], rows: Sequence[Sequence[int]],
    actions: Sequence[Sequence[int]],
) -> None:
    """Check that batches fit the queue, and that no row waits in the first slack bin."""
    largest = [max((actions[code][1] for code in row[1::2] if code >= 0), default=0)
               for row in rows]
    for level, line in enumerate(row_of):
        for place, row in enumerate(line):
            if largest[row] > place + 1:
                raise item.refusal(
                    f"index[{level}][{place}]", "a batch of more requests than wait", value=row,
                    allowed=f"batches up to {place + 1}")
            if rows[row][1] == WAIT_CODE:
                raise item.refusal(
                    f"index[{level}][{place}]", "waits without slack", value=row,
                    allowed="an action, or -2 to drop, in the first bin")


def _thresholds(part: Fields, bins: int) -> list[float]:
    """Read the edges of a model's confidence bins; empty for a model without confidences."""
    if bins < 2:
        return []
    edges = part.numbers("thresholds", FINITE, bins - 1)
    part.check_rising("thresholds", edges)
    return edges
