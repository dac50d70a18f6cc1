r"""How many copies of each model a cluster should hold, and where: a heuristic with a stated gap.

*The problem.* M models and W workers; in window k the requests of model m take d_km ms of workers'
time, c_m each. A worker of memory G holds a set of models; in a window of T ms it serves, of those
that it holds, as much as T allows. As many requests as possible are to be served over all windows:
peaks count as they are, not their mean.

*The heuristic.* A copy of a model is worth, per MB: the first one the loads that it saves, rate
times load time, ``load_weight`` times, but no more than a request can wait, and the share that one
copy serves; the h-th the work that it takes off each of the h − 1 others in the window of most
work, d / (h (h − 1)), and the requests that these cannot serve, even in the largest batches that
can be in time, each at the mean time that a request can wait. Copies are taken by falling worth
until the memory of all workers is full, those that are held already at 1.5 times their
worth. Each is put on the worker of least work that has room, held ones stay where they are, but
for a copy that moves where another finds no room without that.

*The gap.* For any prices p_k >= 0 of a ms and q >= 0 of a MB no placement serves more than

    Σ_k p_k W T + q Σ_w G_w + Σ_m max(0, Σ_k max(0, 1/c_m − p_k) d_km − q g_m),

as a model is held by none or by at least one, and what it earns beyond the prices is at most that
of all its requests. p_k is the price at which the windows' time is just sold out with all models
held, q that of the last model that fits. What the placement serves is computed by an assignment:
models by rising number of copies, each to the workers that hold it with most time left. It is a
feasible one, so the gap that is stated is no smaller than the true one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.sim.schedulers.loading._planned_kernels import (
    CopyWorth,
    count_copies,
    most_served,
    put_copies,
    served,
)

_SPARE = 0.015  # share of the memory that whole models do not fill


@dataclass(frozen=True, eq=False)
class CopyProblem:
    """What copies are chosen for."""

    memory_mb: FloatArray  # of each model, > 0, shape (M,)
    room_mb: FloatArray  # shape (W,)
    places: FloatArray  # most models that each worker holds, shape (W,)
    runs: BoolArray  # whether a worker can run a model, shape (W, M)
    load_ms: FloatArray  # time of a load, shape (M,)
    load_weight: float  # what a ms of loading is worth in ms of work

    @cached_property
    def all_mb(self) -> float:
        """Room of all workers."""
        return float(self.room_mb.sum())

    @cached_property
    def all_places(self) -> float:
        """Most models that all workers hold, each copy counted."""
        return float(self.places.sum())

    @cached_property
    def able(self) -> int:
        """Workers that have any room."""
        return int(np.count_nonzero(self.room_mb))

    def of(self, there: BoolArray) -> CopyProblem:
        """Return the cluster with nothing on workers that are not ``there``, (W,)."""
        return replace(self, room_mb=np.where(there, self.room_mb, 0.0),
                       places=np.where(there, self.places, 0.0),
                       runs=self.runs & there[:, None])


class Overload(NamedTuple):
    """Load that a further copy could not serve, by model, (M,)."""

    # largest work of a window in the largest batches that can be in time, in workers
    crowd: FloatArray
    wait_ms: FloatArray  # how long a request can wait
    each_ms: FloatArray  # what it takes of a worker in such batches, > 0


def choose_copies(
    cluster: CopyProblem, rate: FloatArray, work: FloatArray, held: BoolArray, least: float,
    overload: Overload | None = None,
) -> IntArray:
    """Choose the number of copies of each model, (M,).

    Parameters
    ----------
    rate : ndarray, shape (M,)
        Requests per ms.
    work : ndarray, shape (M,)
        Largest work of a window, in workers.
    held : ndarray of bool, shape (W, M)
        What the workers hold.
    least : float
        A further copy takes at least this off each other, in workers.
    overload : Overload, optional
        By default copies are short of nothing.
    """
    crowd, wait_ms, each_ms = overload or Overload(
        np.zeros(len(rate)), cluster.load_ms, np.ones(len(rate)))
    found = np.zeros(len(rate), dtype=np.int64)
    count_copies(
        CopyWorth(rate, work, crowd, wait_ms, each_ms, cluster.load_ms, cluster.memory_mb,
                  float(cluster.load_weight)),
        held, cluster.runs, least, (1.0 - _SPARE) * cluster.all_mb, cluster.all_places, found)
    return found


def place_copies(
    cluster: CopyProblem, copies: IntArray, work: FloatArray, held: BoolArray
) -> BoolArray:
    """Place copies on workers, (W, M): existing copies stay, work is balanced."""
    target = np.empty_like(held)
    put_copies(copies, work, cluster.memory_mb, cluster.room_mb, cluster.places, cluster.runs,
               held, target)
    return target


def bound_on_served(
    cluster: CopyProblem, counts: FloatArray, cost_ms: FloatArray, window_ms: float
) -> float:
    """No placement serves more requests; see the module.

    Parameters
    ----------
    counts : ndarray, shape (K, M)
        Requests of each window.
    cost_ms : ndarray, shape (M,)
        Time that a request takes, > 0.
    """
    return most_served(cluster.memory_mb, cluster.all_mb, counts, cost_ms,
                       cluster.able * window_ms)


def gap_of(
    cluster: CopyProblem, target: BoolArray, counts: FloatArray, cost_ms: FloatArray,
    window_ms: float,
) -> float:
    """Largest share by which any placement could serve more requests than this one."""
    most = bound_on_served(cluster, counts, cost_ms, window_ms)
    if most <= 0.0:
        return 0.0
    return max(1.0 - served(target, counts, cost_ms, window_ms) / most, 0.0)
