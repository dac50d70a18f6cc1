"""A small simulator of policy files, for verification alone.

It has its own reader of policy files, written after ``docs/lookup.md``, and shares no code with
:mod:`ramsis.sim` or with the synthesis. One event loop plays all dispatch rules: a request
arrives, a worker becomes idle, or a wait ends; then the queue's table is looked up until it waits
or no worker is idle. The requests of an SLO class are a *line* in the order of their arrival. The
queue of a worker has one line; a common queue has one for each class, and its head is the head of
a line that is due first.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit, uniform

Document = Mapping[str, Any]
"""A policy file as JSON has it."""

_TOLERANCE_MS = 1e-6
_WAIT, _DROP, _AS_LAST = -1, -2, -3
_AS_SHORT = 4  # times the fewest requests of a queue
_DISPATCHES = ("central-queue", "round-robin", "shortest-queue")


class TableArrays(NamedTuple):
    """Decision table of a policy file as arrays."""

    # idle, queued: levels of idle workers and of the queue length, rising from 0
    idle: IntArray
    queued: IntArray
    edge_ms: FloatArray  # least slack of each bin, shape (J,)
    row_of: IntArray  # row by idle level and queue level, both without level 0, shape (I, N)
    # code, ends: shape (R, J): answer by row and bin; the bin below whose edge a wait ends, 0 if
    # no slack ends it
    code: IntArray
    ends: IntArray
    longer: int  # code for a longer queue; -3 for that of the last level


class _Batches(NamedTuple):
    """Sizes, accuracies and service times of the batches that a table may run."""

    size: IntArray  # shape (A,)
    accuracy: FloatArray  # shape (A,)
    time_ms: FloatArray  # quantiles of the service time, shape (A, Q)
    level: FloatArray  # shape (Q,): levels of the quantiles; one where times are fixed


class Chance(NamedTuple):
    """Random numbers of a replay of n requests: arrivals and service times."""

    arrival_ms: FloatArray  # rising, shape (n,)
    slo_ms: FloatArray  # of each request, shape (n,)
    kind: IntArray  # class of each request, from 0, shape (n,)
    luck: FloatArray  # in [0, 1): quantile of each batch's service time by order of start, (n,)


class Replayed(NamedTuple):
    """Record of a replay: n requests and d decisions."""

    answer_ms: FloatArray  # when each request was answered; NaN if it was not, shape (n,)
    earned: FloatArray  # accuracy of its model if it was in time, else 0, shape (n,)
    # A decision starts a batch or drops a request; arrays of shape (d,).
    at_ms: FloatArray
    # code, queued: the table's answer, and the length of the queue just before
    code: IntArray
    queued: IntArray
    slack_ms: FloatArray  # slack of the earliest deadline, shape (d,)
    end_ms: FloatArray  # when the batch ends; NaN for a drop, shape (d,)


def table_of(document: Document) -> TableArrays:
    """Read the decision table of a policy file."""
    table = document["table"]
    axes, bins = table["axes"], len(table["axes"]["slack_ms"])
    rows = [_by_bin(row, bins) for row in table["rows"]]
    row_of = np.array(table["index"], dtype=np.int64)
    code_of, ends_of = (np.array(part, dtype=np.int64) for part in zip(*rows, strict=True))
    return TableArrays(np.array(axes["idle"]), np.array(axes["queued"]),
                       np.array(axes["slack_ms"]) - _TOLERANCE_MS, row_of, code_of, ends_of,
                       table["longer_queue"])


def _by_bin(row: list[int], bins: int) -> tuple[list[int], list[int]]:
    """Expand a row: return each slack bin's code, and the first bin of its run of equal codes."""
    codes, starts = list[int](), list[int]()
    for start, code, stop in zip(row[::2], row[1::2], [*row[2::2], bins], strict=True):
        codes += [code] * (stop - start)
        starts += [start] * (stop - start)
    return codes, starts


def _batches_of(document: Document) -> _Batches:
    """Read the actions of a policy file, overhead included in their times."""
    models, drawn = document["models"], document["service"] == "distribution"
    extra_ms = document.get("overhead_ms", 0.0)
    size, accuracy, time_ms = [], [], []
    for m, batch in document["table"]["actions"]:
        model = models[m]
        size.append(batch)
        accuracy.append(model["accuracy"])
        times = model["quantiles_ms"][batch - 1] if drawn else [model["latency_ms"][batch - 1]]
        time_ms.append([time + extra_ms for time in times])
    count = len(time_ms[0])
    levels = document.get("quantile_levels") or ((np.arange(count) + 0.5) / count).tolist()
    return _Batches(np.array(size), np.array(accuracy), np.array(time_ms),
                    np.array(levels[:count]))


class LongQueue(NamedTuple):
    """Action for queues longer than the table, where late requests are served too."""

    model: str
    batch: int
    served_qps: float  # requests a second, by all workers

    def figures(self) -> dict[str, float]:
        """Return the figures in the limit of a queue that grows without end."""
        return {"violation_rate": 1.0, "effective_accuracy": 0.0, "utilisation": 1.0,
                **{f"batch_size.{part}": float(self.batch) for part in ("mean", "p50", "p99")},
                f"model_share.{self.model}": 1.0,
                "full_queue_rate": 1.0, "per_decision.violation_rate": 1.0}


def long_queue(document: Document) -> LongQueue | None:
    """Return the action of a policy for queues beyond its table; None where it drops.

    The mean service time is the integral of its quantile function.
    """
    code = document["table"]["longer_queue"]
    if document["late"] == "drop" or code < 0:
        return None
    batches = _batches_of(document)
    model, batch = document["table"]["actions"][code]
    times = batches.time_ms[code]
    level = np.concatenate(([0.0], batches.level, [1.0]))
    at_level = np.concatenate((times[:1], times, times[-1:]))
    mean_ms = float(np.diff(level) @ (at_level[1:] + at_level[:-1])) / 2.0
    return LongQueue(document["models"][model]["name"], batch,
                     1000.0 * document["workers"] * batch / mean_ms)


def play(document: Document, chance: Chance) -> Replayed:
    """Simulate a policy on given arrivals, all workers idle at first."""
    n, workers = len(chance.arrival_ms), document["workers"]
    played = Replayed(np.full(n, np.nan), np.zeros(n), np.empty(n), np.empty(n, np.int64),
                      np.empty(n, np.int64), np.empty(n), np.full(n, np.nan))
    decisions = events(uniform(table_of(document)), uniform(_batches_of(document)),
                       uniform(chance), workers, _DISPATCHES.index(document["dispatch"]), played)
    return played._replace(**{name: getattr(played, name)[:decisions]
                              for name in Replayed._fields[2:]})


def figures(document: Document, chance: Chance, since_ms: float, until_ms: float
            ) -> dict[str, float]:
    """Replay a policy; return the figures of a time window by their names in policy files."""
    played = play(document, chance)
    arrived = (chance.arrival_ms >= since_ms) & (chance.arrival_ms < until_ms)
    in_time = played.earned[arrived] > 0.0
    summary = {"violation_rate": 1.0 - float(in_time.mean()),
               "effective_accuracy": float(played.earned[arrived].mean())}
    if in_time.any():
        summary["accuracy"] = summary["effective_accuracy"] / float(in_time.mean())
    took_ms = (played.answer_ms - chance.arrival_ms)[arrived]
    took_ms = took_ms[np.isfinite(took_ms)]
    if len(took_ms):
        summary["response_mean_ms"] = float(took_ms.mean())
        summary |= {f"response_p{level}_ms": float(np.percentile(took_ms, level))
                    for level in (50, 95, 99)}
    began = (played.at_ms >= since_ms) & (played.at_ms < until_ms)
    batch = np.isfinite(played.end_ms)
    busy_ms = (np.minimum(played.end_ms[batch], until_ms)
               - np.maximum(played.at_ms[batch], since_ms)).clip(min=0.0)
    summary["utilisation"] = float(busy_ms.sum()) / (until_ms - since_ms) / document["workers"]
    summary |= _of_decisions(document, played, began)
    return summary


def _of_decisions(
    document: Document, played: Replayed, began: BoolArray
) -> dict[str, float]:
    """Return figures over the decisions that ``began`` marks, and over the requests they serve."""
    values_by_name: dict[str, float] = {}
    queued, slack_ms, code = played.queued[began], played.slack_ms[began], played.code[began]
    if not len(queued):
        return values_by_name
    longest = document["table"]["axes"]["queued"][-1]
    for name, values in (("queue_length", queued), ("slack_ms", slack_ms)):
        values_by_name[f"{name}.mean"] = float(values.mean())
        values_by_name |= {f"{name}.p{level}": float(np.percentile(values, level))
                           for level in (50, 99)}
    values_by_name["full_queue_rate"] = float((queued > longest).mean())
    took_ms = (played.end_ms - played.at_ms)[began]
    met = took_ms <= slack_ms + 2.0 * _TOLERANCE_MS  # never for a drop
    values_by_name["per_decision.violation_rate"] = 1.0 - float(met.mean())
    actions = np.array(document["table"]["actions"])
    accuracy = np.array([model["accuracy"] for model in document["models"]])
    if met.any():
        values_by_name["per_decision.accuracy"] = float(accuracy[actions[code[met], 0]].mean())
    ran = actions[code[code >= 0]]
    if len(ran):
        size = np.repeat(ran[:, 1], ran[:, 1])  # of each request's batch
        values_by_name["batch_size.mean"] = float(size.mean())
        values_by_name |= {f"batch_size.p{level}": float(np.percentile(size, level))
                           for level in (50, 99)}
        for m, model in enumerate(document["models"]):
            values_by_name[f"model_share.{model['name']}"] = float(
                ran[ran[:, 0] == m, 1].sum() / len(size))
    return values_by_name


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def ask(
    table: TableArrays, queued: int, slack_ms: float, idle: int
) -> tuple[int, int]:
    """Look up a decision: return its code, and the bin below whose edge a wait ends, or 0."""
    longest = table.queued[-1]
    if queued > longest and table.longer == _DROP:
        return _DROP, 0
    if idle == 0:
        return _WAIT, 0
    if queued > longest and table.longer != _AS_LAST:
        return table.longer, 0
    i = int(np.searchsorted(table.idle, idle, side="right")) - 2
    n = int(np.searchsorted(table.queued, queued, side="right")) - 2
    j = max(int(np.searchsorted(table.edge_ms, slack_ms, side="right")) - 1, 0)
    row = table.row_of[i, n]
    return int(table.code[row, j]), int(table.ends[row, j])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _service_ms(batches: _Batches, code: int, luck: float) -> float:
    """Evaluate the quantile function of a service time: linear between levels."""
    times, levels = batches.time_ms[code], batches.level
    above = int(np.searchsorted(levels, luck, side="right"))
    if above == 0 or above == levels.size:
        return float(times[min(above, levels.size - 1)])
    share = (luck - levels[above - 1]) / (levels[above] - levels[above - 1])
    return float(times[above - 1] + share * (times[above] - times[above - 1]))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def events(
    table: TableArrays, batches: _Batches, chance: Chance, workers: int, dispatch: int,
    played: Replayed,
) -> int:
    """Simulate all events, record them in ``played``, and return the number of decisions.

    A *line* is a queue in the order of arrival: of a class if the queue is central, else of a
    worker; ``first``, ``last`` and ``behind`` link its requests.
    """
    arrival, slo, kind = chance.arrival_ms, chance.slo_ms, chance.kind
    luck = chance.luck
    n, common = arrival.size, dispatch == 0
    lines = kind.max() + 1 if common else workers
    first, last = np.full(lines, -1), np.full(lines, -1)
    behind = np.full(n, -1)  # the next request in the same line
    queued = np.zeros(1 if common else workers, np.int64)
    in_service = np.zeros(workers, np.int64)
    idle = np.full(queued.size, workers // queued.size)
    ends = [(np.inf, 0, 0)]  # of the batches under way, by end and then by start
    rings, below = np.inf, np.inf  # end of a wait, and the slack to look up then
    joined = np.arange(queued.size) - queued.size  # last request of each queue; at first in turn
    coming, started, decisions = 0, 0, 0
    while coming < n or len(ends) > 1 or rings < np.inf:
        arrives = arrival[coming] if coming < n else np.inf
        limit = np.inf
        if rings < min(arrives, ends[0][0]):
            q, now, limit = 0, rings, below
        elif ends[0][0] <= arrives:
            now, _, q = heappop(ends)
            in_service[q] = 0
            idle[q] += 1
        else:
            now, q = arrives, 0
            # Route: round robin (1), or of the short queues the one joined longest ago (2).
            if dispatch == 1:
                q = coming % workers
            elif dispatch == 2:
                held = queued + in_service
                short = held <= _AS_SHORT * held.min()
                q = -1
                for w in range(workers):
                    if short[w] and (q < 0 or joined[w] < joined[q]):
                        q = w
                joined[q] = coming
            line = kind[coming] if common else q
            if first[line] < 0:
                first[line] = coming
            else:
                behind[last[line]] = coming
            last[line] = coming
            queued[q] += 1
            coming += 1
        rings = np.inf
        while queued[q] > 0 and (idle[q] > 0 or common):
            line = _due_first(first, arrival, slo) if common else q
            head = first[line]
            deadline = arrival[head] + slo[head]
            code, low = ask(table, queued[q], min(deadline - now, limit), idle[q])
            limit = np.inf
            if code == _WAIT:
                if low > 0:
                    rings = max(deadline - table.edge_ms[low], now)
                    below = np.nextafter(table.edge_ms[low], -np.inf)
                break
            played.at_ms[decisions], played.code[decisions] = now, code
            played.queued[decisions], played.slack_ms[decisions] = queued[q], deadline - now
            if code == _DROP:
                first[line] = behind[head]
                queued[q] -= 1
                decisions += 1
                continue
            until = now + _service_ms(batches, code, luck[started])
            played.end_ms[decisions] = until
            decisions += 1
            started += 1
            for _ in range(batches.size[code]):
                line = _due_first(first, arrival, slo) if common else q
                request = first[line]
                first[line] = behind[request]
                played.answer_ms[request] = until
                if until <= arrival[request] + slo[request] + 2.0 * _TOLERANCE_MS:
                    played.earned[request] = batches.accuracy[code]
            queued[q] -= batches.size[code]
            idle[q] -= 1
            in_service[q] = batches.size[code]
            heappush(ends, (until, started, q))
    return decisions


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _due_first(first: IntArray, arrival: FloatArray, slo: FloatArray) -> int:
    """Return the queue whose head is due first, of equal ones the older; -1 if all are empty."""
    best = -1
    for line in range(first.size):
        head = first[line]
        if head < 0:
            continue
        if best >= 0:
            other = first[best]
            due, earliest = arrival[head] + slo[head], arrival[other] + slo[other]
            if due > earliest or (due == earliest and head > other):
                continue
        best = line
    return best
