"""The part of a policy file that a lookup needs, and the checks that make the lookup total.

The names of the formats and of their fixed choices stand here, once: the policy package, which
reads and writes whole files, takes them from this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from ramsis.runtime.fields import POSITIVE, Fields
from ramsis.runtime.mixture import Mixture, mixture_in

__all__ = [
    "BATCHINGS",
    "KINDS",
    "LATE_RULES",
    "POLICY_FORMAT",
    "LookupTable",
    "arrivals_label",
    "arrivals_of",
    "check_format",
    "lookup_table",
    "model_names",
    "slack_grid",
]

POLICY_FORMAT = "ramsis.policy/1"
KINDS = ("worker", "fleet")
"""What decides by the policy: one worker about its own queue, or a central queue for all."""
BATCHINGS = ("maximal", "variable")
"""``maximal``: a batch is the whole queue; ``variable``: any part of it."""
LATE_RULES = ("serve", "drop", "free")
"""What the policy was made for: requests that nothing can answer in time are all served by the
fastest model, or may be dropped, or served by any model. Only ``drop`` changes what a table may
hold: a batch of 0 drops the earliest request."""


class LookupTable(NamedTuple):
    """What a lookup reads, checked.

    Attributes
    ----------
    models
        Names, fastest first.
    slo_ms, load_qps, workers
        What the policy was made for.
    arrivals
        Label of the arrival process, see :func:`arrivals_label`.
    batching
        One of :data:`BATCHINGS`.
    max_queue
        Rows of the table; a longer queue gets ``overflow``.
    slack_ms
        Low edges of the D+1 slack bins, increasing from 0.
    model, batch
        ``max_queue`` rows of D+1: row n-1 is for n queued, column j for slack bin j. A batch of
        0 drops the earliest request.
    overflow
        Model index and batch for a queue longer than ``max_queue``.
    mixture
        The place that has a second answer, if any.
    """

    models: tuple[str, ...]
    slo_ms: float
    load_qps: float
    workers: int
    arrivals: str
    batching: str
    max_queue: int
    slack_ms: tuple[float, ...]
    model: list[list[int]]
    batch: list[list[int]]
    overflow: tuple[int, int]
    mixture: Mixture | None = None


def check_format(fields: Fields, known: str) -> None:
    """Refuse a file whose ``format`` is not ``known``, saying which versions are."""
    found = fields.value("format")
    if found == known:
        return
    family = known.rpartition("/")[0]
    what = f"not a {family} file"
    if isinstance(found, str) and found.startswith(f"{family}/"):
        what = f"this version of {family} is not known here"
    raise fields.refusal("format", what, value=found, allowed=known)


def arrivals_label(arrivals: Mapping[str, object]) -> str:
    """One text for an arrival process and its parameters: what a set of policies is keyed by.

    >>> arrivals_label({"process": "poisson"})
    'poisson'
    >>> arrivals_label({"process": "negative-binomial", "dispersion": 4.0})
    'negative-binomial:dispersion=4'
    """
    parameters = ",".join(
        f"{key}={_plain(value)}" for key, value in sorted(arrivals.items()) if key != "process"
    )
    return f"{arrivals['process']}:{parameters}" if parameters else str(arrivals["process"])


def _plain(value: object) -> str:
    """A parameter as text; a float that is whole reads as an integer does."""
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_plain(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def lookup_table(fields: Fields) -> LookupTable:
    """The lookup's part of a policy document.

    Raises
    ------
    InputFileError
        When the document is of another format, version or kind, or anything that the lookup
        reads is missing or out of range. What the lookup does not read is not looked at.
    """
    check_format(fields, POLICY_FORMAT)
    fields.text("kind", ("worker",))
    drops = fields.text("late", LATE_RULES) == "drop"
    batching = fields.text("batching", BATCHINGS)
    max_queue = fields.whole("max_queue", 1)
    models = model_names(fields)
    slo_ms = fields.number("slo_ms", POSITIVE)
    slack_ms = slack_grid(fields, slo_ms)
    model, batch = _tables(fields.child("table"), max_queue, len(slack_ms), len(models),
                           batching == "maximal", drops)
    overflow = fields.child("overflow")
    overflow.only(("model", "batch"))
    return LookupTable(
        models=models,
        slo_ms=slo_ms,
        load_qps=fields.number("load_qps", POSITIVE),
        workers=fields.whole("workers", 1),
        arrivals=arrivals_of(fields.child("arrivals")),
        batching=batching,
        max_queue=max_queue,
        slack_ms=slack_ms,
        model=model,
        batch=batch,
        overflow=(overflow.whole("model", 0, len(models) - 1),
                  overflow.whole("batch", 0 if drops else 1, max_queue + 1)),
        mixture=_mixture(fields, (max_queue, len(slack_ms)), len(models), batching, drops),
    )


def _mixture(
    fields: Fields, shape: tuple[int, int], models: int, batching: str, drops: bool
) -> Mixture | None:
    def refused(place: tuple[int, ...], answer: tuple[int, ...]) -> str | None:
        queued = place[0] + 1
        least = queued if batching == "maximal" else 1
        batch = least <= answer[1] <= queued or (drops and answer[1] == 0)
        if 0 <= answer[0] < models and batch:
            return None
        return f"[0 to {models - 1}, {least} to {queued}]" + (" or a batch of 0" if drops else "")

    return mixture_in(fields, shape, 2, refused)


def arrivals_of(arrivals: Fields) -> str:
    """Label of the arrival process in a document."""
    process = arrivals.text("process")
    if not re.fullmatch(r"[^\s=,]+", process):
        raise arrivals.refusal("process", "not the name of a process", value=process,
                               allowed="a text without spaces, commas and =")
    for key in arrivals:
        if not re.fullmatch(r"[A-Za-z0-9_]+", key):
            raise arrivals.refusal(key, "not the name of a parameter", value=key,
                                   allowed="letters, digits and _")
    return arrivals_label({key: arrivals.value(key) for key in arrivals})


def model_names(fields: Fields) -> tuple[str, ...]:
    """Names of a document's models, each once."""
    names: list[str] = []
    for model in fields.children("models"):
        name = model.text("name")
        if name in names:
            raise model.refusal("name", "model appears twice", value=name)
        names.append(name)
    return tuple(names)


def slack_grid(fields: Fields, slo_ms: float) -> tuple[float, ...]:
    """Low edges of a document's slack bins: from 0, rising, at most the SLO."""
    grid = fields.numbers("slack_ms")
    if grid[0] != 0:
        raise fields.refusal("slack_ms[0]", "slack grid does not start at 0", value=grid[0],
                             allowed="0")
    for j in range(1, len(grid)):
        if grid[j] <= grid[j - 1]:
            raise fields.refusal(f"slack_ms[{j}]", "slack grid does not increase", value=grid[j],
                                 allowed=f"a number > {grid[j - 1]}")
    if grid[-1] > slo_ms:
        raise fields.refusal(f"slack_ms[{len(grid) - 1}]", "slack grid passes the SLO",
                             value=grid[-1], allowed=f"a number <= {slo_ms} (slo_ms)")
    return tuple(grid)


def _tables(
    table: Fields, rows: int, columns: int, models: int, maximal: bool, drops: bool
) -> tuple[list[list[int]], list[list[int]]]:
    table.only(("model", "batch"))
    model, batch = table.items("model", rows), table.items("batch", rows)
    for row in range(rows):
        _check_row(table, "model", row, columns, 0, models - 1)
        queued = row + 1
        lowest = queued if maximal else 1
        _check_row(table, "batch", row, columns, lowest, queued, also=0 if drops else lowest)
    return model, batch


def _check_row(
    table: Fields, key: str, row: int, columns: int, low: int, high: int, also: int | None = None
) -> None:
    """A row of whole numbers in a range, or one more; a bad cell is looked for only if needed."""
    cells = table.value(key)[row]
    if not isinstance(cells, list) or len(cells) != columns:
        found = f"{len(cells)} cells" if isinstance(cells, list) else cells
        raise table.refusal(f"{key}[{row}]", "table row has the wrong shape", value=found,
                            allowed=f"{columns} cells, one for each slack_ms")
    if set(map(type, cells)) == {int} and min(cells) >= low and max(cells) <= high:
        return
    for column, cell in enumerate(cells):
        if type(cell) is not int or not (low <= cell <= high or cell == also):
            allowed = str(low) if low == high else f"a whole number from {low} to {high}"
            if also is not None and also < low:
                allowed += f", or {also} to drop the earliest request"
            raise table.refusal(f"{key}[{row}][{column}]", f"{key} is out of range", value=cell,
                                allowed=allowed)
