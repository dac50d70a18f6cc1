"""Flattening of a policy set to arrays of numbers and texts, constants in any language.

The table of a policy is three rising axes and rows of (slack bin, answer). Everything that the
runtime derives from a file is derived here: edges less their tolerance and the end of each wait.
The other language has to compare numbers and to follow indices only, so that no rounding can
differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from ramsis.runtime import DISPATCHES, DecisionTable, Level, PolicySet, Selector, Station
from ramsis.runtime.decisions import DROP, Wait
from ramsis.runtime.selector import compiled
from ramsis.runtime.table import SLACK_TOLERANCE_MS

NONE, DROPPED, NEVER = 0, 1, 2
"""Indices of answers: none, to drop, and to wait at any slack."""


class FlatAnswer(NamedTuple):
    """Answer of a lookup."""

    kind: str  # ``error``, ``run``, ``drop`` or ``wait``
    model: int = 0  # index into the models of the set
    # batch, run_as: requests to take, and the batch size to run them as; 0 unless ``run``
    batch: int = 0
    run_as: int = 0
    below_ms: float | None = None  # slack below which a wait ends; None: at none, or not a wait


class FlatPolicy(NamedTuple):
    """Policy whose answers are indices into :attr:`FlatSet.answers`."""

    dispatch: str  # dispatch rule
    # slo_ms, load_qps, workers: what the policy was made for
    slo_ms: float
    load_qps: float
    workers: int
    # idle, queued: levels after 0, rising from 1
    idle: tuple[int, ...]
    queued: tuple[int, ...]
    edges_ms: tuple[float, ...]  # slacks that reach the slack bins 1, 2, …
    # where in ``rows`` the row of each idle level and queue level begins, queue levels side by
    # side
    row_of: list[int]
    # the rows behind one another, each so that a lookup reads what lies together: the number n
    # of its answers, the n - 1 slack bins, rising, from which the second and later ones hold,
    # and the n answers
    rows: list[int]
    longer: int  # answer to a queue longer than the last level; :data:`NONE`: as the last level
    # late, spare_idle: answer to offer to a dropped request, :data:`NONE` for never, and with
    # how many idle
    late: int
    spare_idle: int


class FlatStation(NamedTuple):
    """A station: its policy is an index into :attr:`FlatSet.policies`."""

    name: str
    worker_types: tuple[str, ...]
    workers: int
    queues: int
    load_qps: float
    policy: int


class FlatLevel(NamedTuple):
    """The stations for one load and one slowness (service times as a multiple of the profiled).

    ``classes`` holds for each SLO in ms the stations that serve it, by index, each with its share
    of the class's requests, added up over the stations so far.
    """

    load_qps: float
    slowness: float
    stations: list[FlatStation]
    classes: list[tuple[float, list[tuple[int, float]]]]


class FlatSet(NamedTuple):
    """All policies of a set.

    ``processes`` are labels of arrival processes with their levels by slowness, then load.
    """

    models: list[str]
    answers: list[FlatAnswer]
    policies: list[FlatPolicy]
    processes: list[tuple[str, list[FlatLevel]]]


def flatten(policies: PolicySet[Selector]) -> FlatSet:
    """Flatten a set; models are in the order in which they first appear."""
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
    """Numbering of answers and models."""

    def __init__(self) -> None:
        self.models: dict[str, int] = {}
        self.answers = {answer: number for number, answer in enumerate(
            (FlatAnswer("error"), FlatAnswer("drop"), FlatAnswer("wait")))}

    def number(self, answer: Any) -> int:
        """Return the index of a selector's answer."""
        if answer is DROP:
            return DROPPED
        if isinstance(answer, Wait):
            flat = FlatAnswer("wait", below_ms=answer.below_ms)
        else:
            model = self.models.setdefault(answer.model, len(self.models))
            flat = FlatAnswer("run", model, answer.batch, answer.run_as)
        return self.answers.setdefault(flat, len(self.answers))


def _policy(selector: Selector, answers_of: _Answers) -> FlatPolicy:
    table = selector.table
    for name in table.models:  # so that their order is that of the file
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
    spare_idle = max(table.spare_idle or 0, 1)
    late = selector.late_answer(spare_idle, 0)
    return FlatPolicy(
        dispatch=table.dispatch, slo_ms=table.slo_ms, load_qps=table.load_qps,
        workers=table.workers, idle=table.idle[1:], queued=table.queued[1:], edges_ms=edges_ms,
        row_of=[start[id(row)] for line in by_level for row in line], rows=rows,
        longer=NONE if longer is None else answers_of.number(longer),
        late=NONE if late is None else answers_of.number(late), spare_idle=spare_idle)


def _station(station: Station[Selector], policy: int) -> FlatStation:
    table: DecisionTable = station.policy.table
    return FlatStation(station.name, station.worker_types, station.workers,
                       DISPATCHES[table.dispatch].queues(station.workers), station.load_qps,
                       policy)


def _classes(level: Level[Selector]) -> list[tuple[float, list[tuple[int, float]]]]:
    """Return by SLO the stations with the sums of their shares, as queries are routed."""
    slos: Iterable[float] = sorted({slo for station in level.stations for slo in station.share})
    classes = []
    for slo_ms in slos:
        serving = [k for k, station in enumerate(level.stations) if slo_ms in station.share]
        upto = accumulate(level.stations[k].share[slo_ms] for k in serving)
        classes.append((slo_ms, list(zip(serving, upto, strict=True))))
    return classes
