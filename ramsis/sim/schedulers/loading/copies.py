r"""Number and placement of the copies of each model in a cluster: a heuristic with a stated gap.

*The problem.* There are M models and W workers. In window k the requests of model m take d_km ms
of worker time in all, c_m ms each. A worker w has memory G_w and holds a set of models, model m
with g_m MB. In a window of T ms it serves requests for these models, for at most T ms. The
placement is to maximise the number of requests served over all windows; peaks count as they are,
not their mean.

*The heuristic.* Copies are taken in the order of their worth per MB until the memory of all
workers is full.

- The first copy of a model is worth its work, plus ``load_weight`` × rate × the load time that it
  saves. That time is capped by the time that a request can wait, and multiplied by the share of
  the requests that one copy can serve.
- The h-th copy is worth the work that it takes off each of the h − 1 other copies in the busiest
  window, d / (h (h − 1)), plus the requests that these cannot serve even in the largest batches
  that can be in time, each at the mean time that a request can wait.
- A copy that is already held is worth 1.5 times as much.

A copy is placed on the worker with the least work that has room. Held copies stay on their
workers, unless a further copy finds room only if one of them moves.

*The gap.* For any prices p_k >= 0 of a ms in window k and q >= 0 of a MB, no placement serves more
requests than

    Σ_k p_k W T + q Σ_w G_w + Σ_m max(0, Σ_k max(0, 1/c_m − p_k) d_km − q g_m),

as each model has no copy or at least one, and a model earns beyond the prices at most what all its
requests earn. p_k is the price at which the time of window k is just sold out with all models
held; q is the price of the last model that fits. The requests that the placement serves are
computed by a feasible assignment (:func:`served`). So the stated gap is no smaller than the true
one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit

_SPARE = 0.015  # share of the memory that stays empty, as models are not divisible
_HELD = 1.5  # factor on the worth of a copy that is already held
_FULL = 0.85  # share of a worker's time up to which a copy serves all requests


class CopyProblem(NamedTuple):
    """Cluster that copies are chosen for: W workers, M models."""

    memory_mb: FloatArray  # of each model, > 0, shape (M,)
    room_mb: FloatArray  # shape (W,)
    places: FloatArray  # most models that each worker holds, shape (W,)
    runs: BoolArray  # whether a worker can run a model, shape (W, M)
    load_ms: FloatArray  # time of a load, shape (M,)
    load_weight: float  # ms of work that a ms of loading counts as

    def of(self, active: BoolArray) -> CopyProblem:
        """Return the cluster without room on workers that are not ``active``, (W,)."""
        return self._replace(room_mb=np.where(active, self.room_mb, 0.0),
                             places=np.where(active, self.places, 0.0),
                             runs=self.runs & active[:, None])


class CopyLoad(NamedTuple):
    """Load that copies are chosen for, by model, (M,)."""

    rate: FloatArray  # requests per ms
    work: FloatArray  # work in the busiest window, in workers
    # work in the busiest window if run in the largest batches that can be in time, in workers;
    # the part that exceeds the capacity of the copies is lost
    crowd: FloatArray
    wait_ms: FloatArray  # how long a request can wait
    each_ms: FloatArray  # worker time of a request in such batches, > 0


def choose_copies(
    cluster: CopyProblem, load: CopyLoad, held: BoolArray, least: float
) -> IntArray:
    """Choose the number of copies of each model, (M,).

    ``held``, (W, M), is whether a worker holds a model now; ``least`` the least gain of a further
    copy: how much it lowers the work of each other copy, in workers.
    """
    copies = np.zeros(len(load.rate), dtype=np.int64)
    count_copies(cluster, load, held, least, (1.0 - _SPARE) * float(cluster.room_mb.sum()),
                  float(cluster.places.sum()), copies)
    return copies


def place_copies(
    cluster: CopyProblem, copies: IntArray, work: FloatArray, held: BoolArray
) -> BoolArray:
    """Place copies on workers, (W, M): existing copies stay, work is balanced."""
    target = np.zeros_like(held)
    put_copies(cluster, copies, work, held, target)
    return target


def bound_on_served(
    cluster: CopyProblem, counts: FloatArray, cost_ms: FloatArray, window_ms: float
) -> float:
    """Return an upper bound on the number of requests that any placement serves.

    ``counts``, (K, M), are the requests of each window, ``cost_ms``, (M,), the time of a request.
    """
    able = np.count_nonzero(cluster.room_mb)  # workers that have any room
    return most_served(cluster.memory_mb, float(cluster.room_mb.sum()), counts, cost_ms,
                        able * window_ms)


def gap_of(
    cluster: CopyProblem, target: BoolArray, counts: FloatArray, cost_ms: FloatArray,
    window_ms: float,
) -> float:
    """Return a bound on the share of requests that this placement leaves to a better one.

    It is 1 − (requests that ``target``, (W, M), serves) / (bound for any placement), at least 0.
    """
    most = bound_on_served(cluster, counts, cost_ms, window_ms)
    if most <= 0.0:
        return 0.0
    return max(1.0 - served(target, counts, cost_ms, window_ms) / most, 0.0)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count_copies(
    cluster: CopyProblem, load: CopyLoad, held: BoolArray, least: float, room_mb: float,
    places: float, copies: IntArray,
) -> None:
    """Add copies to ``copies`` (M,), by falling worth per MB, as long as they fit in memory.

    Copies may use ``room_mb`` and ``places`` (numbers of models) in all. Of two copies of a model
    with equal worth, the lower-numbered one comes first.
    """
    memory_mb, _, _, runs, load_ms, load_weight = cluster
    rate, work, crowd, wait_ms, each_ms = load
    workers, models = held.shape
    asked = rate > 0.0
    mean_wait_ms = wait_ms[asked].mean() if asked.any() else 0.0
    model = np.empty(models * workers, np.int64)
    worth = np.empty(models * workers)
    count = 0
    have, able = np.zeros(models, np.int64), np.zeros(models, np.int64)
    for w in range(workers):
        for m in range(models):
            have[m] += held[w, m]
            able[m] += runs[w, m]
    # Candidates: the h-th copy of model m, with the worth of the module's text.
    for h in range(1, workers + 1):
        before = count
        for m in range(models):
            if h == 1:
                if rate[m] <= 0.0:
                    continue
                share = min(1.0, _FULL / max(crowd[m], 1e-12))  # that one copy serves
                gain = load_weight * rate[m] * (min(load_ms[m], wait_ms[m]) * share) + work[m]
            else:
                unserved = min(max(crowd[m] - _FULL * (h - 1), 0.0), _FULL)
                gain = work[m] / (h * (h - 1)) + mean_wait_ms / each_ms[m] * unserved
                if gain <= least or able[m] < h:
                    continue
            model[count] = m
            worth[count] = -gain / memory_mb[m] * (_HELD if have[m] >= h else 1.0)
            count += 1
        # Each further copy gains less than the one before, so no model has one from here on.
        if h > 1 and count == before:
            break
    used = 0.0
    best = np.argsort(worth[:count], kind="mergesort")  # stable: by number where alike
    for taken, i in enumerate(best):
        used += memory_mb[model[i]]
        if used > room_mb or taken >= places:
            break
        copies[model[i]] += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _first_at_limit(order: IntArray, needed: FloatArray, limit: float) -> int:
    """Return the first item of ``order`` up to which ``needed`` sums to ``limit``; -1 if none."""
    total = 0.0
    for i in order:
        total += needed[i]
        if total >= limit:
            return int(i)
    return -1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def most_served(
    memory_mb: FloatArray, room_mb: float, counts: FloatArray, cost_ms: FloatArray, time_ms: float
) -> float:
    """Return the bound on served requests; ``time_ms`` is all workers' time in a window."""
    windows, models = counts.shape
    order = np.argsort(cost_ms, kind="mergesort")
    total = 0.0
    earned = np.zeros(models)
    for k in range(windows):
        last = _first_at_limit(order, counts[k] * cost_ms, time_ms)
        price = 0.0 if last < 0 else 1.0 / cost_ms[last]
        total += price * time_ms
        earned += np.maximum(1.0 - price * cost_ms, 0.0) * counts[k]
    by_mb = earned / memory_mb
    last = _first_at_limit(np.argsort(-by_mb, kind="mergesort"), memory_mb, room_mb)
    price = 0.0 if last < 0 else by_mb[last]
    return float(total + price * room_mb + np.maximum(earned - price * memory_mb, 0.0).sum())


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def served(
    held: BoolArray, counts: FloatArray, cost_ms: FloatArray, window_ms: float
) -> float:
    """Return the requests that a placement serves by a greedy assignment in each window.

    Models are assigned one after the other, by rising number of copies or by rising time per
    request, whichever order serves more. A model takes time from the holder with most time left.
    """
    workers, models = held.shape
    by_cost = np.argsort(cost_ms)
    order = np.argsort(held.sum(axis=0), kind="mergesort")
    total = 0.0
    left = np.empty(workers)
    for k in range(counts.shape[0]):
        most = 0.0
        for way in range(2):  # both orders are feasible, so the better one is a lower bound
            left[:] = window_ms
            requests = 0.0
            for i in range(models):
                m = order[i] if way == 0 else by_cost[i]
                work = counts[k, m] * cost_ms[m]
                while work > 0.0:
                    best = -1
                    for w in range(workers):
                        if held[w, m] and left[w] > 0.0 and (best < 0 or left[w] > left[best]):
                            best = w
                    if best < 0:
                        break
                    taken = min(work, left[best])
                    left[best] -= taken
                    work -= taken
                    requests += taken / cost_ms[m]
            most = max(most, requests)
        total += most
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _moved(
    m: int, cluster: CopyProblem, target: BoolArray, busy: FloatArray, each: FloatArray,
    room_mb: FloatArray, places: FloatArray,
) -> int:
    """Move a copy of another model to make room for model m; return the worker with room, or -1.

    Of the copies with less work than m's whose removal makes room, the one of least work moves, to
    the worker of least work that has room for it. ``each`` is the work of a copy by model,
    ``busy`` the work of each worker.
    """
    memory_mb, runs = cluster.memory_mb, cluster.runs
    workers, models = target.shape
    least, giver, taker, moved = np.inf, -1, -1, -1
    for w in range(workers):
        if not runs[w, m] or target[w, m] or places[w] < 0.0:
            continue
        for e in range(models):
            if (not target[w, e] or each[e] >= min(each[m], least)
                    or room_mb[w] + memory_mb[e] < memory_mb[m]):
                continue
            best = -1
            for v in range(workers):
                if (v != w and runs[v, e] and not target[v, e] and room_mb[v] >= memory_mb[e]
                        and places[v] >= 1.0 and (best < 0 or busy[v] < busy[best])):
                    best = v
            if best >= 0:
                least, giver, taker, moved = each[e], w, best, e
    if giver < 0:
        return -1
    for w, sign in ((giver, -1.0), (taker, 1.0)):
        target[w, moved] = sign > 0.0
        room_mb[w] -= sign * memory_mb[moved]
        places[w] -= sign
        busy[w] += sign * each[moved]
    return giver


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def put_copies(
    cluster: CopyProblem, copies: IntArray, work: FloatArray, held: BoolArray, target: BoolArray
) -> None:
    """Fill ``target`` (W, M) with the copies, models of most work per copy first.

    Held copies are placed first, on the workers that hold them.
    """
    memory_mb, runs = cluster.memory_mb, cluster.runs
    room_mb, places = cluster.room_mb.copy(), cluster.places.copy()
    workers = len(room_mb)
    busy = np.zeros(workers)
    left = copies.copy()
    each = work / np.maximum(copies, 1)
    order = np.argsort(-each, kind="mergesort")  # stable: by number where alike
    for stays in (True, False):
        for m in order:
            while left[m] > 0:
                best = -1
                for w in range(workers):
                    if (runs[w, m] and not target[w, m] and (held[w, m] or not stays)
                            and room_mb[w] >= memory_mb[m] and places[w] >= 1.0
                            and (best < 0 or busy[w] < busy[best])):
                        best = w
                if best < 0 and not stays:
                    best = _moved(m, cluster, target, busy, each, room_mb, places)
                if best < 0:
                    break
                target[best, m] = True
                room_mb[best] -= memory_mb[m]
                places[best] -= 1.0
                busy[best] += each[m]
                left[m] -= 1
