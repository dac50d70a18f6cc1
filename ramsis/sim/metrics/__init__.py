"""Figures of a whole run, of a fleet or of a scenario, and of groups of its requests.

Of n requests that arrived, some are answered in time, some late, some dropped, some never
answered; all but the first are violations.

- accuracy: mean accuracy of the requests in time;
- violation rate: share of the requests that are not answered in time;
- effective accuracy: accuracy × (1 − violation rate), the mean over all requests of the accuracy
  if in time and 0 otherwise.

Response times are of all answered requests, late ones included. Utilisation and queue lengths are
means over [0, duration], the time in which requests arrive; the time after it, in which queues
drain, does not count. A worker is busy while it runs at least one batch. Utilisation is the share
of the time of active workers in which they are busy.

Runs of fleets may be long and are counted by compiled passes (:class:`_Tally`). Runs of scenarios
are counted by array operations (:class:`_Sums`): batches may overlap there, and answers may come
too early or from a machine.

The time from a request's arrival to its answer has four stages, which add up to it:

- loading: the time before the start of its batch in which its model was being loaded onto the
  worker that ran it;
- waiting: all other time before that start, preparation on a machine included;
- service: from the start of its batch to the end;
- machine: from there to the answer, on a machine and the network; 0 without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.run import DROPPED, Run

__all__ = ["Metrics", "measure"]

STAGES = ("waiting", "loading", "service", "machine")
"""Of the time to an answer, in the order of :attr:`GroupFigures.stage_ms`."""


@dataclass(frozen=True)
class Metrics:
    """Figures of one run; rates are fractions. A figure without any request is ``None``."""

    # numbers of requests: queries = in_time + late + dropped + never_answered
    queries: int
    in_time: int
    late: int
    dropped: int
    never_answered: int
    accuracy: float | None
    violation_rate: float
    effective_accuracy: float
    response_mean_ms: float | None
    response_p50_ms: float | None
    response_p95_ms: float | None
    response_p99_ms: float | None
    response_longest_ms: float | None
    batches: int
    batch_mean: float | None  # mean size of a batch
    batch_p99: float | None  # 99th percentile of the size of a query's batch
    utilisation: float  # share of the workers' time that is busy
    # requests that wait: queue_mean over time; queue_p99 and queue_max as arrivals find them
    queue_mean: float
    queue_p99: float
    queue_max: int
    # offered_qps, throughput_qps, goodput_qps: arrivals, answers, and answers in time, per
    # second of the time in which requests arrive
    offered_qps: float
    throughput_qps: float
    goodput_qps: float
    loads: int
    loading_s: float  # time of all loads of models added up
    cold_starts: int  # requests whose model was loaded onto their worker after they arrived
    worker_s: float  # time of active workers, to the end of the run
    # share of each model in the answered requests; models without any are left out
    model_share: Mapping[str, float]
    second_opinions: float | None = None  # share of the requests, where any may get one

    @property
    def in_time_share(self) -> float | None:
        """Share of the requests that were answered in time; ``None`` without any."""
        return self.in_time / self.queries if self.queries else None


def measure(run: Run, chosen: BoolArray | None = None) -> Metrics:
    """Compute the figures of a run, by default of all of its requests.

    ``chosen``, (n,), is a mask of the requests to count, such as those of one model or stream.
    Figures of batches, loads and workers are those of the whole run.
    """
    if chosen is None and run.site.one_at_a_time:
        return _figures(run, _Tally(run), run.requests)
    members = np.ones(run.requests, dtype=bool) if chosen is None else np.asarray(chosen)
    if members.dtype != bool or members.shape != (run.requests,):
        raise InvalidValueError("not a mask of the requests", where="chosen",
                                value=f"{members.dtype}, shape {members.shape}",
                                allowed=f"bool, shape ({run.requests},)")
    return _figures(run, _Sums(run, members), int(members.sum()))


def _figures(run: Run, counts: _Tally | _Sums, n: int) -> Metrics:
    """Return the figures of ``n`` requests of a run from their counts."""
    duration_ms = run.duration_ms
    answered, dropped = int(counts.answered.sum()), counts.dropped
    p50, p95, p99, longest = _quantiles_of(counts.responses, (0.5, 0.95, 0.99, 1.0))
    active_ms = float(run.active_ms(duration_ms).sum())
    served = counts.by_size * np.arange(len(counts.by_size))
    (batch_p99,) = _quantiles(served, (0.99,))
    return Metrics(
        queries=n,
        in_time=counts.in_time,
        late=answered - counts.in_time,
        dropped=dropped,
        never_answered=n - answered - dropped,
        accuracy=counts.reward / counts.in_time if counts.in_time else None,
        violation_rate=(n - counts.in_time) / n if n else 0.0,
        effective_accuracy=counts.reward / n if n else 0.0,
        response_mean_ms=counts.answering_ms / answered if answered else None,
        response_p50_ms=p50,
        response_p95_ms=p95,
        response_p99_ms=p99,
        response_longest_ms=longest,
        batches=len(run.size),
        batch_mean=int(served.sum()) / len(run.size) if len(run.size) else None,
        batch_p99=batch_p99,
        utilisation=counts.busy_ms / active_ms if active_ms else 0.0,
        queue_mean=counts.waited_ms / duration_ms,
        queue_p99=_quantiles(counts.waiting, (0.99,))[0] or 0.0,
        queue_max=max(len(counts.waiting) - 1, 0),
        offered_qps=1000.0 * n / duration_ms,
        throughput_qps=1000.0 * answered / duration_ms,
        goodput_qps=1000.0 * counts.in_time / duration_ms,
        loads=len(run.load_model),
        loading_s=float((run.load_end_ms - run.load_start_ms).sum()) / 1000.0,
        cold_starts=counts.cold_starts,
        worker_s=float(run.active_ms().sum()) / 1000.0,
        model_share=_shares(run.models, counts.answered, answered),
        second_opinions=counts.second_opinions / n if n and len(run.second_opinion) else None,
    )


class _Tally:
    """Counts of all requests and batches of a run, by compiled passes.

    ``in_time``, ``dropped`` and ``cold_starts`` are numbers of requests, ``reward`` is the sum of
    the accuracies of requests in time, ``answered`` (M,) the number of answers by model.
    ``waiting`` is the number of arrivals that find 0, 1, … requests waiting, ``by_size`` the
    number of batches of 0, 1, … requests. ``busy_ms`` of all workers and ``waited_ms`` of all
    requests count up to the end of the arrivals; ``responses`` are the response times,
    ``answering_ms`` is their sum.
    """

    second_opinions = 0  # runs with second opinions are counted by :class:`_Sums`

    def __init__(self, run: Run) -> None:
        from ramsis.sim.metrics import _kernels  # which take long to load

        n, slos = run.requests, np.ascontiguousarray(run.slo_ms)
        until_ms = float(run.duration_ms)  # numba would compile whole numbers anew
        self.dropped = len(run.drop_request)
        self.cold_starts = int(run.cold.sum()) if len(run.load_model) else 0
        record = _kernels.RunArrays(
            np.ascontiguousarray(run.arrival_ms), run.batch_of, run.start_ms, run.finish_ms,
            run.model, run.size, run.drop_ms)
        terms = _kernels.FigureTerms(slos, 2.0 * SLACK_TOLERANCE_MS, until_ms)
        self.answered = np.zeros(len(run.models), dtype=np.int64)
        self.waiting = np.zeros(0, dtype=np.int64)
        self.responses = np.empty(n)
        self.by_size = np.zeros(int(run.size.max(initial=0)) + 1, dtype=np.int64)
        self.busy_ms = _kernels.of_batches(record, until_ms, self.by_size)
        given_up = [np.minimum(when, until_ms)
                    for when in (run.drop_ms, run.arrival_ms[run.drop_request])]
        self.waited_ms = float((given_up[0] - given_up[1]).sum())
        self.answering_ms = 0.0
        in_time = np.zeros(len(run.models), dtype=np.int64)
        if n:
            # Allocated here, as NumPy asks for large pages.
            left = np.zeros(n + 1, dtype=np.int32)
            first = np.full(n // 2 + 2, n, dtype=np.int32)
            most = _kernels.queue_left(record, left, first)
            self.waiting = np.zeros(most + 1, dtype=np.int64)
            waited_ms, self.answering_ms = _kernels.tally(
                record, terms, left, self.waiting, self.responses, self.answered, in_time)
            self.waited_ms += waited_ms
        self.responses = self.responses[:self.answered.sum()]
        self.in_time, self.reward = int(in_time.sum()), float(in_time @ run.accuracy)


class _Sums:
    """Counts of :class:`_Tally` for a subset of the requests, by array operations."""

    second_opinions = 0

    def __init__(self, run: Run, members: BoolArray) -> None:
        until_ms, answered = run.duration_ms, members & run.answered
        right = members & run.in_time
        of_answer = (run.answer_accuracy[right] if len(run.answer_accuracy)
                     else run.accuracy[run.model_of[right]])
        self.in_time, self.reward = int(right.sum()), float(of_answer.sum())
        if len(run.second_opinion):
            self.second_opinions = int(run.second_opinion[members].sum())
        self.dropped = int((run.batch_of[members] == DROPPED).sum())
        self.cold_starts = int(run.cold[members].sum())
        self.answered = np.bincount(run.model_of[answered], minlength=len(run.models))
        self.by_size = np.bincount(run.size, minlength=1)
        self.busy_ms = _busy_ms(run, until_ms)
        self.responses = np.sort(run.response_ms[answered])
        self.answering_ms = float(self.responses.sum())
        came, left = np.sort(run.arrival_ms[members]), np.sort(run.served_ms[members])
        self.waited_ms = float((np.minimum(left, until_ms) - np.minimum(came, until_ms)).sum())
        # A request that leaves at the instant of an arrival still counts as waiting.
        waiting = np.arange(len(came)) - np.searchsorted(left, came, side="left")
        self.waiting = np.bincount(np.maximum(waiting, 0))


def _busy_ms(run: Run, until_ms: float) -> float:
    """Return the time in which each worker runs at least one batch, summed over workers."""
    order = np.lexsort((run.start_ms, run.worker))
    total, worker, begin, end = 0.0, -1, 0.0, 0.0
    for of_worker, start_ms, finish_ms in zip(
            run.worker[order].tolist(), np.minimum(run.start_ms[order], until_ms).tolist(),
            np.minimum(run.finish_ms[order], until_ms).tolist(), strict=True):
        if of_worker != worker or start_ms > end:
            total += end - begin
            worker, begin, end = of_worker, start_ms, finish_ms
        elif finish_ms > end:
            end = finish_ms
    return total + end - begin


def _shares(models: tuple[str, ...], counts: IntArray, answered: int) -> dict[str, float]:
    """Return each model's share of the answered requests, over all worker types that hold it."""
    total: dict[str, int] = {}
    for name, count in zip(models, counts.tolist(), strict=True):
        if count:
            total[name] = total.get(name, 0) + count
    return {name: float(count) / max(answered, 1) for name, count in total.items()}


def _quantiles(counts: IntArray, levels: Sequence[float]) -> list[float | None]:
    """Return quantiles of a histogram over 0, 1, …; None where it is empty."""
    upto = np.cumsum(counts)
    if not len(upto) or not upto[-1]:
        return [None] * len(levels)
    return [_between(level, int(upto[-1]),
                     lambda rank: float(np.searchsorted(upto, rank, side="right")))
            for level in levels]


def _quantiles_of(values: FloatArray, levels: Sequence[float]) -> list[float | None]:
    """Return quantiles of some values; None for each without any value."""
    from ramsis.sim._window import in_order  # which takes long to load

    if not len(values):
        return [None] * len(levels)
    ranks = np.unique([_ranks(level, len(values)) for level in levels])
    value_at = dict(zip(ranks.tolist(), in_order(values, ranks).tolist(), strict=True))
    return [_between(level, len(values), value_at.__getitem__) for level in levels]


def _between(level: float, size: int, at: Callable[[int], float]) -> float:
    """Return a quantile of ``size`` values by rank (``at``), linear as NumPy's default."""
    low, high = (at(rank) for rank in _ranks(level, size))
    share = level * (size - 1) - math.floor(level * (size - 1))
    return high - (high - low) * (1.0 - share) if share >= 0.5 else low + (high - low) * share


def _ranks(level: float, size: int) -> tuple[int, int]:
    """Return the ranks, from 0, of the values that a quantile lies between."""
    low = math.floor(level * (size - 1))
    return low, min(low + 1, size - 1)


@dataclass(frozen=True, eq=False)
class GroupFigures:
    """Outcomes of the requests of G groups; arrays have shape (G,) unless another is stated."""

    # requests, in_time, late, dropped, never_answered: the last four add up to the first
    requests: IntArray
    in_time: IntArray
    late: IntArray
    dropped: IntArray
    never_answered: IntArray
    # shape (4, G): time of each of :data:`STAGES` summed over the answered requests
    stage_ms: FloatArray
    # response_p50_ms, response_p99_ms: of the answered requests; NaN without any
    response_p50_ms: FloatArray
    response_p99_ms: FloatArray


def by_group(run: Run, group: IntArray, groups: int) -> GroupFigures:
    """Count the requests of each group; ``group``, (n,), is that of each, of ``groups`` in all."""
    def count(chosen: BoolArray) -> IntArray:
        return np.bincount(group[chosen], minlength=groups)

    answered = np.flatnonzero(run.answered)
    group_of = group[answered]
    stages = _stages_ms(run, answered)
    response_ms = run.response_ms[answered]
    order = np.lexsort((response_ms, group_of))
    parts = np.split(response_ms[order], np.cumsum(np.bincount(group_of, minlength=groups))[:-1])
    p50, p99 = (np.array([np.quantile(part, level) if len(part) else np.nan for part in parts])
                for level in (0.5, 0.99))
    requests, in_time = np.bincount(group, minlength=groups), count(run.in_time)
    dropped, late = count(run.batch_of == DROPPED), count(run.answered & ~run.in_time)
    return GroupFigures(
        requests, in_time, late, dropped, requests - in_time - late - dropped,
        np.array([np.bincount(group_of, stage, minlength=groups) for stage in stages]), p50, p99)


def jain_index(shares: Sequence[float] | FloatArray) -> float:
    """Return Jain's fairness index: 1 where all shares are equal, 1 / n where one has all.

    It is (Σ x)² / (n Σ x²) (Jain, Chiu and Hawe, 1984), and 1 where all are 0.

    >>> jain_index([1.0, 0.5])
    0.9
    """
    values = np.asarray(shares, dtype=np.float64)
    squares = float((values ** 2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def _stages_ms(run: Run, answered: IntArray) -> tuple[FloatArray, ...]:
    """Return the time of each stage of the answered requests, one array for each stage."""
    batch = run.batch_of[answered]
    start_ms, finish_ms = run.start_ms[batch], run.finish_ms[batch]
    loading_ms = _loading_ms(run, answered)
    return (start_ms - run.arrival_ms[answered] - loading_ms, loading_ms, finish_ms - start_ms,
            run.answered_ms[answered] - finish_ms)


def _loading_ms(run: Run, answered: IntArray) -> FloatArray:
    """Return how long each answered request waited while its model was being loaded."""
    loading_ms = np.zeros(len(answered))
    if not len(run.load_model):
        return loading_ms
    batch, models = run.batch_of[answered], len(run.models)
    came_ms, start_ms = run.arrival_ms[answered], run.start_ms[batch]
    key = run.worker[batch].astype(np.int64) * models + run.model[batch]
    load_key = run.load_worker.astype(np.int64) * models + run.load_model
    order, loads = np.argsort(key, kind="stable"), np.lexsort((run.load_start_ms, load_key))
    keys, first = np.unique(load_key[loads], return_index=True)
    low, high = (np.atleast_1d(np.searchsorted(key[order], keys, side=side))
                 for side in ("left", "right"))
    for i, loads_of_key in enumerate(np.split(loads, first[1:])):
        requests = order[low[i]:high[i]]
        times = run.load_start_ms[loads_of_key], run.load_end_ms[loads_of_key]
        loading_ms[requests] = (_within_ms(*times, start_ms[requests])
                                - _within_ms(*times, came_ms[requests]))
    return loading_ms


def _within_ms(begin_ms: FloatArray, end_ms: FloatArray, at_ms: FloatArray) -> FloatArray:
    """Return how much of successive intervals has passed at each of some times."""
    upto_ms = np.append(0.0, np.cumsum(end_ms - begin_ms))
    last = np.searchsorted(begin_ms, at_ms, side="right")
    to_come_ms = np.where(last > 0, end_ms[last - 1] - at_ms, 0.0)
    return np.asarray(upto_ms[last] - np.maximum(to_come_ms, 0.0))
