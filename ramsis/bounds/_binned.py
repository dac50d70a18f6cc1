r"""The bound on requests in time as a linear program over bins of time, where memory is scarce.

For some hundred requests it is tighter than prices (:mod:`ramsis.bounds.goodput`), which see
memory of all workers together, and let a model that one worker holds run several batches at once.

*Bins.* Edge k is at τ_k, a bin ends at it and is open at its start. What starts in the bin
(τ_{k-1}, τ_k] and takes l holds its worker at the edges k to k + ⌊l / width⌋ − 1 for certain. So
an integer solution follows from any schedule, with these numbers for worker type t and model m:

======  =========================================================================================
y(k)    batches of a size that start in bin k; a column for each size of which the time differs
x(k)    share of a request that a batch of y(k) answers, where it fits between release and deadline
u(k)    batches that run at edge k
h(k)    workers that hold the model at edge k, ready for use
z(k)    loads that begin in bin k; g(k) loads at edge k, c(k) all that began in bins up to k
======  =========================================================================================

*Rows.* Σ x <= 1 for a request; x <= y, Σ x <= size · y; u <= lanes · h; Σ_m u, and what blocking
loads take, <= workers; Σ_m share of memory · (h + g) <= machines; h(k) <= h(k − 1) + z(k − load);
Σ_m g <= machines · loads at a time. Last, a request is answered by a worker that holds its model
when the request is released, or has loaded it since then:

    Σ_k x(k) <= h(release) + c(last load that is of use) − c(last load before the release).

Without this row the program keeps a part of each model everywhere and serves a request with all
the parts one after the other; with it, most of what whole models cost is in the bound.

*Value.* What is stated is worked out from the dual prices: for prices of the right sign, the
value of the right-hand sides plus, for each column, its gain less its price where that is above
0, times its upper limit. It holds whatever the solver's tolerance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ramsis.arrays import FloatArray, IntArray

_MOST_COLUMNS, _MOST_IN_ONE, _MOST_IN_ALL = 4_000, 6_000, 12_000  # aimed at, in a part, in all
_GOOD_ENOUGH = 0.02  # further share of time that may be lost to rounding, for wider bins
_LEAST_APART = 2.0  # least length of a part, as a multiple of the longest load and window
_ROUNDING = 1e-9  # of the requests: enlarges the bound by the solver's rounding
_SHIFT, _SHORTER = 1e-3, 1e-9  # of a bin; so that what lies on a grid keeps to it


class Task(NamedTuple):
    """Instance: requests, and T worker types that serve M models in batches up to B."""

    # release, deadline: shape (n,): when a request can be started, and when it has to end, in ms
    release: FloatArray
    deadline: FloatArray
    model: IntArray  # shape (n,)
    # shape (T, M, B): of a batch of b = column + 1, not falling; infinite where it cannot be run
    duration: FloatArray
    load_ms: FloatArray  # infinite where the type cannot run the model, shape (T, M)
    room: FloatArray  # share of a worker's memory that a model takes, shape (T, M)
    held: FloatArray  # workers that hold a model at 0 ms, shape (T, M)
    # machines, lanes, loads_at_a_time: shape (T,)
    machines: FloatArray
    lanes: FloatArray
    loads_at_a_time: FloatArray
    blocking: NDArray[np.bool_]  # shape (T,)


def binned_bound(task: Task) -> float:
    """Bound the requests in time by a linear program over bins; infinite if it is too large."""
    width, columns = _width(task)
    if width is None:
        return np.inf
    number = -(-columns // _MOST_COLUMNS)
    around = float((task.deadline - task.release).max()) + _longest_load(task)
    # Each part may begin with any models loaded, so short parts give weak bounds.
    number = min(number, int(float(np.ptp(task.release)) / (_LEAST_APART * around)) + 1)
    if columns > number * _MOST_IN_ONE:
        return np.inf
    parts = np.array_split(np.argsort(task.release, kind="stable"), number)
    return sum(_Program(_of(task, part), width).bound() for part in parts)


def _longest_load(task: Task) -> float:
    """Return the longest time in ms that loading a model takes on any worker."""
    return max((float(task.load_ms[t, m]) for t, m in _pairs(task)), default=0.0)


def _of(task: Task, part: IntArray) -> Task:
    """Return the task with the requests of the indices ``part`` only."""
    return task._replace(release=task.release[part], deadline=task.deadline[part],
                         model=task.model[part])


def _sizes(duration: FloatArray) -> list[tuple[int, float]]:
    """Return, for each distinct batch time, the largest batch that takes it."""
    last = np.append(duration[1:] > duration[:-1], True) & np.isfinite(duration)
    return [(int(b) + 1, float(duration[b])) for b in np.flatnonzero(last)]


def _width(task: Task) -> tuple[float | None, int]:
    """Return the widest bin whose rounding costs little, and its number of columns."""
    batches = [(t, m, took) for t, m in _pairs(task) for _, took in _sizes(task.duration[t, m])]
    if not batches:
        return None, 0
    number = np.bincount(task.model, minlength=task.duration.shape[1])
    times = np.array([took for *_, took in batches])
    weights = np.array([float(number[m]) for _, m, _ in batches])
    loads = np.array([task.load_ms[t, m] for t, m in _pairs(task)])
    loads = loads[loads > 0]
    slack = (task.deadline - task.release).mean()
    span = float(task.deadline.max() - min(task.release.min(), 0.0))

    def columns(width: float) -> int:
        # The x of all requests, and at each edge u, h, z, c and g of each type and model.
        shares = weights @ (np.maximum(slack - times, 0.0) / width + 1.0)
        return int(shares + 5.0 * len(_pairs(task)) * span / width)

    tried = []
    shortest = float(times.min()) * (1.0 - _SHORTER)
    # Whole fractions of the shortest batch round nothing off it.
    for width in np.append(shortest / np.arange(1, 9), np.geomspace(
            shortest / 8.0, shortest, 30)).tolist():
        if columns(width) <= _MOST_IN_ALL:
            lost = weights @ _lost(times, width) / weights.sum() + width / (4.0 * slack)
            lost += _lost(loads, width).mean() if len(loads) else 0.0
            tried.append((float(lost), width))
    if not tried:
        return None, 0
    # Wider bins make a smaller program, so a little more rounding is taken for them.
    enough = min(tried)[0] + _GOOD_ENOUGH
    width = max(width for lost, width in tried if lost <= enough)
    return width, columns(width)


def _lost(times: FloatArray, width: float) -> FloatArray:
    """Return the share of each time that is rounded off."""
    return np.asarray(1.0 - np.floor(times / width) * width / times)


def _pairs(task: Task) -> list[tuple[int, int]]:
    """Return worker types and models that have requests and can be run there."""
    models = np.unique(task.model).tolist()
    return [(t, m) for t in range(len(task.machines)) for m in models
            if task.machines[t] > 0 and np.isfinite(task.load_ms[t, m])
            and np.isfinite(task.duration[t, m, 0])]


class _Program:
    """Linear program over bins of time for some of the requests, built block by block."""

    def __init__(self, task: Task, width: float) -> None:
        self.task, self.width, self.columns, self.count = task, width, 0, 0
        self.upper: list[FloatArray] = []
        self.parts: list[tuple[IntArray, IntArray, FloatArray]] = []
        self.limits: list[FloatArray] = []
        self.equal: list[NDArray[np.bool_]] = []
        first = float(task.release.min()) - _longest_load(task) - 2.0 * width
        self.from_start = first <= 0.0
        self.origin = max(first, min(float(task.release.min()), 0.0)) + _SHIFT * width
        self.edges = int(np.ceil((float(task.deadline.max()) - self.origin) / width)) + 2
        self._workers()

    def _column(self, count: int, upper: float) -> IntArray:
        """Add columns with bounds 0 and ``upper``; return their numbers."""
        self.upper.append(np.full(count, upper))
        self.columns += count
        return np.arange(self.columns - count, self.columns)

    def _rows(
        self, limits: FloatArray, *terms: tuple[IntArray, IntArray, float], equal: bool = False
    ) -> None:
        """Add rows Σ factor·column <= ``limits``, or = if ``equal``.

        Each term has rows, counted from the first of these, their columns and a factor.
        """
        for rows, columns, factor in terms:
            self.parts.append((rows + self.count, columns, np.full(len(rows), factor)))
        self.limits.append(limits)
        self.equal.append(np.full(len(limits), equal))
        self.count += len(limits)

    def _steps(
        self, value: IntArray, more: IntArray, after: IntArray, *,
        less: tuple[IntArray, IntArray] | None = None, first: float | None = 0.0,
        equal: bool = True,
    ) -> None:
        """Add rows value(k) = value(k − 1) + Σ more − Σ less for all edges k; columns by number.

        Column ``more[i]`` enters at the edge ``after[i]``, and ``less`` has columns with the edges
        at which they leave; those beyond the last edge never do. value(−1) is ``first``; if
        that is None, value(0) is free. With ``equal`` false the rows are value(k) <= ….
        """
        k = np.arange(self.edges)
        inside = after < self.edges
        terms = [(k, value, 1.0), (k[1:], value[:-1], -1.0),
                 (after[inside], more[inside], -1.0)]
        if less is not None:
            ends = less[1] < self.edges
            terms.append((less[1][ends], less[0][ends], 1.0))
        limits = np.zeros(self.edges)
        limits[0] = np.inf if first is None else first
        self._rows(limits, *terms, equal=equal)

    def _workers(self) -> None:
        """Add the columns and rows of all worker types, and one row for each request."""
        task, k = self.task, np.arange(self.edges)
        n = len(task.release)
        answered: list[tuple[IntArray, IntArray]] = []
        for t in range(len(task.machines)):
            machines, lanes = float(task.machines[t]), float(task.lanes[t])
            at_once = machines * float(task.loads_at_a_time[t])
            busy: list[tuple[IntArray, IntArray, float]] = []
            loading: list[tuple[IntArray, IntArray, float]] = []
            memory: list[tuple[IntArray, IntArray, float]] = []
            for m in [m for type_, m in _pairs(task) if type_ == t]:
                bins = int(np.floor(task.load_ms[t, m] / self.width))
                running = self._column(self.edges, machines * lanes)
                held = self._column(self.edges, machines)
                # A worker may do several loads in one bin if they are shorter, so only requests
                # limit them.
                begun = self._column(self.edges, at_once if bins else float(n))
                begun_upto = self._column(self.edges, float(n))
                self._steps(begun_upto, begun, k)
                self._steps(held, begun, k + bins, equal=False,
                            first=float(task.held[t, m]) if self.from_start else None)
                shares = self._runs(t, m, running, begun_upto, held, bins)
                answered += shares
                self._rows(np.zeros(self.edges), (k, running, 1.0), (k, held, -lanes))
                busy.append((k, running, 1.0))
                memory.append((k, held, float(task.room[t, m])))
                if bins:
                    on_the_way = self._column(self.edges, at_once)
                    self._steps(on_the_way, begun, k, less=(begun, k + bins))
                    loading.append((k, on_the_way, 1.0))
                    memory.append((k, on_the_way, float(task.room[t, m])))
                    if task.blocking[t]:
                        busy.append((k, on_the_way, lanes / float(task.loads_at_a_time[t])))
            if busy:
                self._rows(np.full(self.edges, machines * lanes), *busy)
                self._rows(np.full(self.edges, machines), *memory)
            if loading:
                self._rows(np.full(self.edges, at_once), *loading)
        self._rows(np.ones(n), *((who, share, 1.0) for who, share in answered))
        self.answers = np.concatenate([share for _, share in answered] or [np.empty(0, np.int64)])

    def _runs(
        self, t: int, m: int, running: IntArray, begun_upto: IntArray, held: IntArray, load: int
    ) -> list[tuple[IntArray, IntArray]]:
        """Add the batches of model ``m`` on type ``t``; return their requests and columns x."""
        task = self.task
        requests = np.flatnonzero(task.model == m)
        release = (task.release[requests] - self.origin) / self.width
        first = np.maximum(np.ceil(release), 0).astype(np.int64)
        runs: list[tuple[IntArray, IntArray]] = []
        starts: list[IntArray] = []
        begins: list[IntArray] = []
        ends: list[IntArray] = []
        for size, took in _sizes(task.duration[t, m]):
            latest = (task.deadline[requests] - took - self.origin) / self.width
            last = np.ceil(latest).astype(np.int64)
            number = np.where(latest >= release, np.maximum(last - first + 1, 0), 0)
            who = np.repeat(np.arange(len(requests)), number)
            if not len(who):
                continue
            at = first[who] + np.arange(len(who)) - np.repeat(np.cumsum(number) - number, number)
            bins, which = np.unique(at, return_inverse=True)
            batch = self._column(len(bins), float(running.size and task.machines[t]
                                                  * task.lanes[t]))
            share = self._column(len(who), 1.0)
            each = np.arange(len(who))
            self._rows(np.zeros(len(who)), (each, share, 1.0), (each, batch[which], -1.0))
            # Σ x <= size·y follows from x <= y where no more than ``size`` requests can be in a
            # batch.
            full = np.bincount(which) > size
            place = np.cumsum(full) - 1
            inside = full[which]
            self._rows(np.zeros(int(full.sum())), (place[which[inside]], share[inside], 1.0),
                       (np.arange(int(full.sum())), batch[full], -float(size)))
            runs.append((requests[who], share))
            starts.append(batch)
            begins.append(bins)
            ends.append(bins + int(np.floor(took / self.width)))
        if not runs:
            self._rows(np.zeros(self.edges), (np.arange(self.edges), running, 1.0))
            return runs
        batches = np.concatenate(starts)
        self._steps(running, batches, np.concatenate(begins),
                    less=(batches, np.concatenate(ends)))
        self._held_or_loaded(t, m, runs, begun_upto, held, load)
        return runs

    def _held_or_loaded(
        self, t: int, m: int, runs: list[tuple[IntArray, IntArray]], begun_upto: IntArray,
        held: IntArray, load: int,
    ) -> None:
        """Add rows: a request's model is held at its release, or is loaded in time after it."""
        task = self.task
        who = np.concatenate([requests for requests, _ in runs])
        rows, row = np.unique(who, return_inverse=True)
        release, deadline = task.release[rows], task.deadline[rows]
        load_ms, shortest = float(task.load_ms[t, m]), float(task.duration[t, m, 0])
        # As no batch is shorter than a bin, it is at the edge after the release or starts later.
        edge = np.ceil((release - self.origin) / self.width).astype(np.int64)
        before = edge - load
        last = np.ceil((deadline - shortest - load_ms - self.origin) / self.width).astype(np.int64)
        last = np.minimum(last, self.edges - 1)
        each = np.arange(len(rows))
        terms = [(row, np.concatenate([shares for _, shares in runs]), 1.0),
                 (each, held[edge], -1.0)]
        some = last >= 0
        terms.append((each[some], begun_upto[last[some]], -1.0))
        some &= before >= 0
        terms.append((each[some], begun_upto[np.minimum(before, last)[some]], 1.0))
        self._rows(np.zeros(len(rows)), *terms)

    def bound(self) -> float:
        """Return the bound that the solver's dual prices prove, at most all requests."""
        from scipy.optimize import linprog  # which takes long to load

        upper, limits = np.concatenate(self.upper), np.concatenate(self.limits)
        equal = np.concatenate(self.equal)
        rows, columns, values = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        matrix: Any = sparse.csr_matrix((values, (rows, columns)),
                                        shape=(self.count, self.columns))
        finite = np.isfinite(limits)
        cost = np.zeros(self.columns)
        cost[self.answers] = -1.0
        over, same = finite & ~equal, finite & equal
        between: Any = np.column_stack([np.zeros_like(upper), upper])
        solution: Any = linprog(cost, matrix[over], limits[over], matrix[same], limits[same],
                                between, method="highs")
        most = float(len(self.task.release))
        if not solution.success:
            return most
        price = np.minimum(solution.ineqlin.marginals, 0.0)
        both = solution.eqlin.marginals
        left = cost - matrix[over].T @ price - matrix[same].T @ both
        value = -float(limits[over] @ price + limits[same] @ both + upper @ np.minimum(left, 0.0))
        return min(value + _ROUNDING * most, most)
