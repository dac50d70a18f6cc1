"""Flattening of a policy set to arrays of numbers and texts, for constants in any language.

The table of a policy has three increasing axes, and rows of (slack bin, answer). All values that
the runtime derives from a file are computed here: edges with their tolerance, and the end of each
wait. The generated code only compares numbers and follows indices, so that results cannot differ
by rounding. Its only arithmetic is the level of second opinions: two products and a sum.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from sys import float_info
from typing import Any, NamedTuple

from ramsis.runtime import DISPATCHES, DecisionTable, Level, PolicySet, Selector, Station
from ramsis.runtime.cascade import CascadeTable
from ramsis.runtime.decisions import DROP, Decision, Wait
from ramsis.runtime.selector import compiled
from ramsis.runtime.table import DROP_CODE, SLACK_TOLERANCE_MS, WAIT_CODE

NONE, DROPPED, NEVER = 0, 1, 2
"""Indices of answers: none, to drop, and to wait at any slack."""
SURE, UNSURE = 0, 1
"""Entries of :attr:`FlatCascade.limit_of` for no confidence, and for any."""


class FlatAnswer(NamedTuple):
    """Answer of a lookup, such as a batch to run."""

    kind: str  # ``error``, ``run``, ``second``, ``drop`` or ``wait``
    model: int = 0  # index into the models of the set
    # number of requests to take, and padded batch size to run; 0 unless ``run``
    batch: int = 0
    run_as: int = 0
    below_ms: float | None = None  # slack below which a wait ends; None: never, or not a wait


class FlatCascade(NamedTuple):
    """Second opinions of a policy; arrays by batch are for 1, 2, … second opinions."""

    levels_per_fresh: float
    levels_per_unsure: float
    queued: int  # largest number of fresh requests with an own row
    edges_ms: tuple[float, ...]  # low edges of the slack bins 1, 2, … of the rows
    row_of: list[int]  # offset in ``rows`` by level and number of fresh requests
    rows: list[int]  # see :class:`FlatPolicy`; a wait has the slack at which it ends
    gather: list[int]  # by level, like ``least``
    least: list[int]
    # by batch: slack of the head below which it is late; below which it waits no longer; at which
    # a wait ends; and the answer that runs it
    late_below_ms: list[float]
    call_below_ms: list[float]
    wait_ms: list[float]
    seconds: list[int]
    models: int  # number of models with entries below; other models are never unsure
    # by level and model: :data:`SURE`, :data:`UNSURE`, or 2 plus an index into ``limits``, the
    # confidences below which an answer is unsure
    limit_of: list[int]
    limits: list[float]


class FlatPolicy(NamedTuple):
    """Policy whose answers are indices into :attr:`FlatSet.answers`."""

    dispatch: str  # dispatch rule
    # SLO, load and workers that the policy was made for
    slo_ms: float
    load_qps: float
    workers: int
    # levels after 0, increasing from 1
    idle: tuple[int, ...]
    queued: tuple[int, ...]
    edges_ms: tuple[float, ...]  # low edges of the slack bins 1, 2, …
    # offset in ``rows`` by idle level and queue level, with queue levels adjacent
    row_of: list[int]
    # concatenated rows, each contiguous for lookups: the number n of its answers, the n - 1 slack
    # bins, increasing, from which the second and later answers hold, and the n answers
    rows: list[int]
    longer: int  # answer to a queue longer than the last level; :data:`NONE`: as the last level
    cascade: FlatCascade | None = None


class FlatStation(NamedTuple):
    """Station, whose policy is an index into :attr:`FlatSet.policies`."""

    name: str
    worker_types: tuple[str, ...]
    workers: int
    queues: int
    load_qps: float
    policy: int


class FlatLevel(NamedTuple):
    """Stations for one load and one slowness (service times as a multiple of the profiled).

    ``classes`` holds for each SLO in ms the indices of its stations, each with the cumulative
    share of the class's requests.
    """

    load_qps: float
    slowness: float
    stations: list[FlatStation]
    classes: list[tuple[float, list[tuple[int, float]]]]


class FlatSet(NamedTuple):
    """Flattened policy set.

    ``processes`` are labels of arrival processes with their levels, by slowness, then load.
    """

    models: list[str]
    answers: list[FlatAnswer]
    policies: list[FlatPolicy]
    processes: list[tuple[str, list[FlatLevel]]]


def flatten(policies: PolicySet[Selector]) -> FlatSet:
    """Flatten a policy set; models are numbered by first appearance."""
    answers = _Answers()
    flat: list[FlatPolicy] = []
    processes: dict[str, list[FlatLevel]] = {label: [] for label in policies.processes}
    for level in sorted(policies.levels, key=lambda level: (level.slowness, level.load_qps)):
        stations = []
        for station in level.stations:
            stations.append(_station(station, len(flat)))
            flat.append(_policy(station.policy, answers))
        processes[level.arrivals].append(
            FlatLevel(level.load_qps, level.slowness, stations, _classes(level)))
    return FlatSet(list(answers.models), list(answers.answers), flat, list(processes.items()))


class _Answers:
    """Table of the distinct answers and models of some policies, with their indices."""

    def __init__(self) -> None:
        self.models: dict[str, int] = {}
        self.answers = {answer: number for number, answer in enumerate(
            (FlatAnswer("error"), FlatAnswer("drop"), FlatAnswer("wait")))}

    def number(self, answer: Any, kind: str = "run") -> int:
        """Return the index of a selector's answer; ``kind`` is for answers with a batch."""
        if answer is DROP:
            return DROPPED
        if isinstance(answer, Wait):
            flat = FlatAnswer("wait", below_ms=answer.below_ms)
        else:
            model = self.models.setdefault(answer.model, len(self.models))
            flat = FlatAnswer(kind, model, answer.batch, answer.run_as)
        return self.answers.setdefault(flat, len(self.answers))


def _policy(selector: Selector, answers_of: _Answers) -> FlatPolicy:
    """Flatten a policy's table to arrays of rows, edges and indices of answers."""
    table = selector.table
    for name in table.models:  # numbers models in the order of the file
        answers_of.models.setdefault(name, len(answers_of.models))
    edges_ms = tuple(edge - SLACK_TOLERANCE_MS for edge in table.slack_ms[1:])
    by_level, longer = compiled(table)
    start, rows = dict[int, int](), list[int]()
    for row in (row for line in by_level for row in line):
        # Levels with the same answers share a row, which is written once.
        if id(row) in start:
            continue
        start[id(row)] = len(rows)
        edges, answers = row
        rows += [len(answers), *(bisect_right(edges_ms, edge) for edge in edges),
                 *map(answers_of.number, answers)]
    return FlatPolicy(
        dispatch=table.dispatch, slo_ms=table.slo_ms, load_qps=table.load_qps,
        workers=table.workers, idle=table.idle[1:], queued=table.queued[1:], edges_ms=edges_ms,
        row_of=[start[id(row)] for line in by_level for row in line], rows=rows,
        longer=NONE if longer is None else answers_of.number(longer),
        cascade=None if selector.cascade is None else _cascade(
            selector.cascade.table, table, answers_of))


def _cascade(cascade: CascadeTable, table: DecisionTable, answers_of: _Answers) -> FlatCascade:
    """Flatten second opinions; ``answers_of`` must have numbered the policy's models before."""
    # All slack bins at which an answer changes; rows refer to them by their place, from 1.
    starts = sorted({start for row in cascade.rows for start in row[2::2]})
    place = {start: number for number, start in enumerate(starts, 1)}

    def answer(start: int, code: int) -> int:
        if code == DROP_CODE:
            return DROPPED
        if code == WAIT_CODE:
            return answers_of.number(Wait(start * cascade.step_ms - 2.0 * SLACK_TOLERANCE_MS))
        return answers_of.number(_decision(table, *cascade.actions[code]))

    begins, rows = list[int](), list[int]()
    # A row: number of answers, places of the bins from which the next ones hold, answers.
    for row in cascade.rows:
        begins.append(len(rows))
        rows += [len(row) // 2, *(place[start] for start in row[2::2]),
                 *map(answer, row[::2], row[1::2])]
    levels, last_call_ms = len(cascade.gather), cascade.last_call_ms
    limits, limit_of = _limits(cascade, table, answers_of.models)
    return FlatCascade(
        levels_per_fresh=min(cascade.levels_per_fresh, float(levels)),
        levels_per_unsure=min(cascade.levels_per_unsure, float(levels)),
        queued=len(cascade.row_of[0]),
        edges_ms=tuple(start * cascade.step_ms - SLACK_TOLERANCE_MS for start in starts),
        row_of=[begins[row] for line in cascade.row_of for row in line], rows=rows,
        gather=list(cascade.gather), least=list(cascade.least),
        late_below_ms=[first_double(partial(_fits, ms)) for ms in cascade.second_ms],
        call_below_ms=[first_double(partial(_can_wait, ms, last_call_ms))
                       for ms in cascade.second_ms],
        wait_ms=[min(ms + last_call_ms, float_info.max) for ms in cascade.second_ms],
        seconds=[answers_of.number(_decision(table, cascade.second, batch), "second")
                 for batch in range(1, len(cascade.second_ms) + 1)],
        models=len(answers_of.models), limit_of=limit_of, limits=limits)


def _fits(batch_ms: float, slack_ms: float) -> bool:
    """Return whether a batch ends within the slack, by the runtime's comparison."""
    return slack_ms + SLACK_TOLERANCE_MS >= batch_ms


def _can_wait(batch_ms: float, last_call_ms: float, slack_ms: float) -> bool:
    """Return whether a batch may wait for more requests, by the runtime's comparison."""
    return slack_ms - batch_ms - last_call_ms > SLACK_TOLERANCE_MS


def _decision(table: DecisionTable, model: int, batch: int) -> Decision:
    return Decision(table.models[model], batch, table.size_of(model, batch))


def _limits(
    cascade: CascadeTable, table: DecisionTable, models: Iterable[str]
) -> tuple[list[float], list[int]]:
    """Return thresholds below which answers are unsure, and codes by level and model.

    A code is SURE, UNSURE, or 2 plus the index of a threshold.
    """
    limits, limit_of = list[float](), list[int]()
    number = {name: m for m, name in enumerate(table.models)}
    for unsure_bins in cascade.unsure_bins:
        for name in models:
            m = number.get(name)
            bins = 0 if m is None else unsure_bins[m]
            if m is None or not (bins and cascade.confidence_bins[m]):
                limit_of.append(SURE)
            elif bins >= cascade.confidence_bins[m]:
                limit_of.append(UNSURE)
            else:
                limit_of.append(2 + len(limits))
                limits.append(cascade.thresholds[m][bins - 1])
    return limits, limit_of


def first_double(holds: Callable[[float], bool]) -> float:
    """Return the smallest double for which a monotone condition holds, or the largest double.

    Bisection over all doubles gives the exact threshold, whatever the condition's rounding.

    >>> first_double(lambda value: value + 1e-6 >= 1.0)
    0.999999
    """
    low, high = _place(-float_info.max), _place(float_info.max)
    while low < high:
        middle = (low + high) // 2
        if holds(_double(middle)):
            high = middle
        else:
            low = middle + 1
    return _double(low)


def _place(value: float) -> int:
    """Return the rank of a double among all doubles; both zeros have the same rank."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(int(bits) & (2**63 - 1))


def _double(place: int) -> float:
    """Return the double with a rank; inverse of :func:`_place`."""
    (value,) = struct.unpack("<d", struct.pack("<q", abs(place)))
    return float(value) if place >= 0 else -float(value)


def _station(station: Station[Selector], policy: int) -> FlatStation:
    table: DecisionTable = station.policy.table
    return FlatStation(station.name, station.worker_types, station.workers,
                       DISPATCHES[table.dispatch].queues(station.workers), station.load_qps,
                       policy)


def _classes(level: Level[Selector]) -> list[tuple[float, list[tuple[int, float]]]]:
    """Return, by SLO, the stations with cumulative shares, for the routing of requests."""
    slos: Iterable[float] = sorted({slo for station in level.stations for slo in station.share})
    classes = []
    for slo_ms in slos:
        serving = [k for k, station in enumerate(level.stations) if slo_ms in station.share]
        upto = accumulate(level.stations[k].share[slo_ms] for k in serving)
        classes.append((slo_ms, list(zip(serving, upto, strict=True))))
    return classes
