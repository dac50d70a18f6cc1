"""Reader of the decision table in a policy document; its checks ensure that lookups never fail.

Errors are one line with the file and the JSON path. Fields that a lookup does not read are hardly
checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from ramsis.errors import FRACTION, POSITIVE, whole
from ramsis.fields import Fields
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import (
    AS_LAST_CODE,
    AXES,
    BATCHINGS,
    DROP_CODE,
    LATE_RULES,
    MAX_WORKERS,
    POLICY_FORMAT,
    WAIT_CODE,
    DecisionTable,
    arrivals_label,
)

_MAX_MODELS = 10_000
_MOST_QUEUED = 10**9  # fits into the integers of arrays
_TABLE_KEYS = ("axes", "actions", "rows", "index", "longer_queue")


class _Allowed(NamedTuple):
    """Codes and batches that are allowed in a table, by its dispatch and late rules."""

    models: int
    own_queue: bool
    drops: bool
    whole_queue: bool

    @property
    def lowest(self) -> int:
        """Lowest allowed code: to drop, to wait, or the first action."""
        if self.drops:
            return DROP_CODE
        return 0 if self.own_queue else WAIT_CODE

    def is_code(self, code: object, actions: int) -> bool:
        """Return whether a value is an allowed code of a table."""
        if type(code) is not int or not self.lowest <= code < actions:
            return False
        return code != WAIT_CODE or not self.own_queue

    def words(self, actions: int) -> str:
        """Describe the allowed codes for a message."""
        words = f"an action from 0 to {actions - 1}"
        if not self.own_queue:
            words += f", {WAIT_CODE} to wait"
        return words + (f", {DROP_CODE} to drop" if self.drops else "")


def slowness_of(fields: Fields) -> float:
    """Return the slowness of a policy or level, 1 where the field is absent or null."""
    slowness = fields.number_or_none("slowness", POSITIVE)
    return 1.0 if slowness is None else slowness


def decision_table(fields: Fields) -> DecisionTable:
    """Read the decision table of a policy document."""
    fields.of_format(POLICY_FORMAT)
    rule = DISPATCHES[fields.text("dispatch", DISPATCHES)]
    late = fields.text("late", LATE_RULES if rule.own_queues else ("drop",))
    batching = fields.text("batching", BATCHINGS)
    models, workers = _model_names(fields), fields.whole("workers", 1, MAX_WORKERS)
    allowed = _Allowed(len(models), rule.own_queues, late == "drop", batching == "maximal")
    slo_ms = fields.number("slo_ms", POSITIVE)
    table = fields.child("table")
    table.only(_TABLE_KEYS)
    axes = table.child("axes")
    for name in axes:
        if name not in AXES:
            raise axes.refusal(name, "unknown axis", allowed=", ".join(AXES))
    idle = _levels(axes, "idle")
    if idle[-1] != rule.station_workers(workers):
        raise axes.refusal(f"idle[{len(idle) - 1}]", "not the number of workers of a queue",
                           value=idle[-1], allowed=str(rule.station_workers(workers)))
    queued = _levels(axes, "queued", one_by_one=rule.own_queues)
    slack_ms = _slack_grid(axes, slo_ms)
    actions = _actions(table, len(models), queued[-1] + 1)
    rows = table.items("rows")
    for r, row in enumerate(rows):
        _check_row(table, f"rows[{r}]", row, len(slack_ms), len(actions), allowed)
    sizes = [sizes_to_run(model) for model in fields.children("models")]
    return DecisionTable(
        models=models, slo_ms=slo_ms, load_qps=fields.number("load_qps", POSITIVE),
        workers=workers, dispatch=fields.text("dispatch"),
        arrivals=arrivals_of(fields.child("arrivals")), idle=idle, queued=queued,
        slack_ms=slack_ms, actions=actions, rows=rows,
        row_of=_row_of(table, len(idle) - 1, queued, rows, actions, allowed),
        longer_queue=_longer_queue(table, len(actions), allowed),
        run_as=tuple(sizes) if any(sizes) else (),
        slowness=slowness_of(fields),
    )


def arrivals_of(arrivals: Fields) -> str:
    """Return the label of the arrival process in a document."""
    process = arrivals.text("process")
    if not re.fullmatch(r"[^\s=,]+", process):
        raise arrivals.refusal("process", "not the name of a process", value=process,
                               allowed="a text without spaces, commas and =")
    for key in arrivals:
        if not re.fullmatch(r"[A-Za-z0-9_]+", key):
            raise arrivals.refusal(key, "not the name of a parameter", value=key,
                                   allowed="letters, digits and _")
    return arrivals_label({key: arrivals.value(key) for key in arrivals})


def _model_names(fields: Fields) -> tuple[str, ...]:
    """Return the distinct names of a document's models."""
    names: dict[str, None] = {}
    models = fields.children("models")
    if len(models) > _MAX_MODELS:
        raise fields.refusal("models", "too many models", value=len(models),
                             allowed=f"at most {_MAX_MODELS}")
    for model in models:
        name = model.text("name")
        if name in names:
            raise model.refusal("name", "model appears twice", value=name)
        names[name] = None
        if "accuracy" in model:
            model.number("accuracy", FRACTION)
        if "latency_ms" in model:
            model.items("latency_ms")
    return tuple(names)


def sizes_to_run(model: Fields, batches: int | None = None) -> tuple[int, ...]:
    """Read the padded sizes of batches of 1, 2, … on a model; empty if it has none."""
    if "run_as" not in model or model.value("run_as") is None:
        return ()
    sizes = model.items("run_as", batches)
    for b, size in enumerate(sizes, start=1):
        if type(size) is not int or size < b:
            raise model.refusal(f"run_as[{b - 1}]", "not a batch size to run", value=size,
                                allowed=f"a whole number >= {b}")
    return tuple(sizes)


def _levels(axes: Fields, key: str, *, one_by_one: bool = False) -> tuple[int, ...]:
    """Read an axis of integers: 0, 1, then increasing, or consecutive if ``one_by_one``."""
    levels = axes.items(key)
    for i, level in enumerate(levels):
        low = levels[i - 1] + 1 if i else 0
        exact = i < 2 or one_by_one
        if type(level) is not int or not low <= level <= _MOST_QUEUED or (exact and level != i):
            allowed = str(i) if exact else whole(low, _MOST_QUEUED).allowed
            raise axes.refusal(f"{key}[{i}]", "levels do not rise from 0 and 1", value=level,
                               allowed=allowed)
    if len(levels) < 2:
        raise axes.refusal(key, "too few levels", value=levels, allowed="0, 1, …")
    return tuple(levels)


def _slack_grid(axes: Fields, slo_ms: float) -> tuple[float, ...]:
    """Read the low edges of the slack bins: from 0, increasing, at most the SLO."""
    grid = axes.numbers("slack_ms")
    if grid[0] != 0:
        raise axes.refusal("slack_ms[0]", "slack grid does not start at 0", value=grid[0],
                           allowed="0")
    axes.check_rising("slack_ms", grid)
    if grid[-1] > slo_ms:
        raise axes.refusal(f"slack_ms[{len(grid) - 1}]", "slack grid passes the SLO",
                           value=grid[-1], allowed=f"a number <= {slo_ms} (slo_ms)")
    return tuple(grid)


def _actions(table: Fields, models: int, largest: int) -> list[list[int]]:
    actions = table.items("actions")
    for o, action in enumerate(actions):
        if not isinstance(action, list) or [type(item) for item in action] != [int, int] \
                or not (0 <= action[0] < models and 1 <= action[1] <= largest):
            raise table.refusal(f"actions[{o}]", "not a model and a batch", value=action,
                                allowed=f"[0 to {models - 1}, 1 to {largest}]")
    return actions


def _check_row(
    table: Fields, key: str, row: Any, bins: int, actions: int, allowed: _Allowed
) -> None:
    """Check that a row has pairs of increasing bins, from 0, and allowed codes."""
    are_pairs = isinstance(row, list) and len(row) >= 2 and len(row) % 2 == 0 \
        and set(map(type, row)) == {int}
    if not are_pairs or row[0] != 0 or any(a >= b for a, b in pairwise(row[::2])) \
            or row[-2] >= bins or not all(allowed.is_code(code, actions)
                                          for code in set(row[1::2])):
        raise table.refusal(key, "not a row of slack bins and actions", value=row,
                            allowed=f"rising bins from 0 to {bins - 1}, each with "
                            f"{allowed.words(actions)}")


def _row_of(
    table: Fields, idle: int, queued: tuple[int, ...], rows: Sequence[Sequence[int]],
    actions: Sequence[Sequence[int]], allowed: _Allowed,
) -> list[list[int]]:
    """Read the row of each idle and queue level; check that its batches fit the queue.

    A batch has at most all requests of the level, and exactly these under maximal batching.
    """
    batches = [{actions[code][1] for code in set(row[1::2]) if code >= 0} for row in rows]
    smallest = [min(sizes, default=inf) for sizes in batches]
    largest = [max(sizes, default=0) for sizes in batches]
    lines = table.items("index", idle)
    for i, line in enumerate(lines):
        if not isinstance(line, list) or len(line) != len(queued) - 1:
            raise table.refusal(f"index[{i}]", "not a row for each queue level", value=line,
                                allowed=f"{len(queued) - 1} whole numbers")
        for n, row in enumerate(line):
            waiting = queued[n + 1]
            if type(row) is not int or not 0 <= row < len(rows) or largest[row] > waiting or (
                    allowed.whole_queue and smallest[row] < waiting):
                how = "of" if allowed.whole_queue else "up to"
                raise table.refusal(f"index[{i}][{n}]", "no such row for this queue", value=row,
                                    allowed=f"0 to {len(rows) - 1}, with batches {how} {waiting}")
    return lines


def _longer_queue(table: Fields, actions: int, allowed: _Allowed) -> int:
    """Read the code for queues longer than the table: an action, a drop, or the last row's."""
    code, special = table.value("longer_queue"), dict[int, str]()
    if allowed.drops:
        special[DROP_CODE] = "to drop"
    if allowed.own_queue:
        special[AS_LAST_CODE] = "for that of the last level"
    if type(code) is not int or not (0 <= code < actions or code in special):
        words = [f"an action from 0 to {actions - 1}"]
        words += [f"{other} {why}" for other, why in special.items()]
        raise table.refusal("longer_queue", "not what a longer queue can get", value=code,
                            allowed=", ".join(words))
    return code
