"""The bound on worker-seconds as an integer program, for traces of few requests.

Time is cut at all arrivals and deadlines. w_h workers serve at the h-th cut. Cell h, of the length
d_h, lies between it and the next cut; K_h is the largest number of workers in the cell, c_h the
worker time paid for there, u_h the work done there, and f_ih the part of it that is done for
request i. y_ik is 1 if i is answered in way k (a model and a batch size), which takes t_k of worker
time and is in time with probability p_k, with accuracy a_k. A worker is paid for from X, its
start-up time, before it serves:

    min  Σ_h c_h + Σ_h min(X, cut h)·(K_h − w_h)
    s.t. K_h >= w_h, w_{h+1};   u_h <= d_h·K_h;   c_h >= u_h,   c_h >= min(d_h, X)·(w_h + w_{h+1} − K_h),
         c_h >= (min(X, cut h+1) − min(X, cut h))·w_{h+1},   u_h = Σ_i f_ih,   Σ_h f_ih = Σ_k t_k·y_ik for cells of the window of i,   Σ_k y_ik <= 1,
         Σ p_k·y_ik and Σ a_k·p_k·y_ik at least as targeted,

where w, K and, if service times are fixed, y are whole numbers. A worker that serves at both ends
of a cell is paid for throughout, or for another start, which takes X. A worker that serves within
a cell, but at neither end, costs a start; that is no less than the amount by which
w_h + w_{h+1} − K_h is then too small. A worker that serves at the end of a cell before X has been
paid for at least since the trace began. Requests that arrive at the same time are one i. The bound
is the solver's lower bound, even if it stops early.
"""  # noqa: E501 - equations

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ramsis.arrays import FloatArray

_MOST_NODES = 500
_GAP = 1e-3
_TOLERANCE = 1e-5  # what rows and whole numbers may be off


@dataclass(frozen=True, eq=False)
class LeastCost:
    """Lower bound on the cost in worker-ms, and a plan of workers by cell of time."""

    cost_ms: float
    edges_ms: FloatArray  # of the cells, shape (cells + 1,)
    workers: FloatArray  # paid for at least in each cell, shape (cells,)


@dataclass(frozen=True, eq=False)
class FewRequests:
    """Integer program of the least paid worker time on a trace, over cells of time."""

    arrival: FloatArray  # in ms, rising, shape (n,)
    window_ms: float
    ways: Sequence[FloatArray]  # by request: worker time, reward, P(in time); (3, ways)
    whole: bool  # whether each request is answered in a single way, not in a mix of ways
    startup_ms: float
    end_ms: float
    # least, most: limits on the number of workers at any time
    least: float
    most: float

    def solve(self, asked: tuple[float, float]) -> LeastCost | None:
        """Return a lower bound on the cost of meeting two targets; None if the solver finds none.

        Parameters
        ----------
        asked : (float, float)
            Least sums over all requests of the expected reward (accuracy, 0 if late), and of the
            probability to be in time; 0 for no target.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # which take long to load

        # The unit of time is the window: the solver's tolerances are absolute.
        unit = self.window_ms
        startup, stop, arrival = self.startup_ms / unit, self.end_ms / unit, self.arrival / unit
        cuts = np.unique(np.concatenate([[0.0, stop], arrival, arrival + 1.0]))
        length = np.diff(cuts)
        cells, instants = len(length), np.unique(arrival)
        free = cuts[:-1] >= stop  # cells after the end cost nothing
        ways = [(int(i), way) for i, ways_of in zip(np.searchsorted(instants, arrival),
                                                    self.ways, strict=True) for way in ways_of.T]
        # Equal requests that arrive at the same instant become one, with as many answers.
        column, count = np.unique(np.array([(i, *way) for i, way in ways]), axis=0,
                                  return_counts=True)
        # i, and t, a·p and p of each y_ik
        request, (work, *sums) = column[:, 0].astype(int), column[:, 1:].T
        served = sparse.coo_array((np.ones(len(request)), (request, np.arange(len(request)))),
                                  shape=(len(instants), len(request)))
        arrived = np.bincount(np.searchsorted(instants, arrival))  # requests at each instant
        # f_ih is a column only for the cells h within the window of i.
        flows = [(i, h) for i, at in enumerate(instants)
                 for h in range(*np.searchsorted(cuts, [at, at + 1.0]))]
        of_request, of_cell = (sparse.coo_array(
            (np.ones(len(flows)), (rows, np.arange(len(flows)))), shape=(size, len(flows)))
            for rows, size in zip(np.array(flows).T, (len(instants), cells), strict=True))
        # Matrices from columns to cells: w at a cell's begin and end, and factors of K and c.
        begin, end = (sparse.eye_array(cells, cells + 1, k=k) for k in (0, 1))
        each, by_length = sparse.eye_array(cells), sparse.diags_array(length)
        # min(d_h, X), paid for by workers that serve at both ends of a cell
        kept = sparse.diags_array(np.where(free, 0.0, np.minimum(length, startup)))
        # the part of a cell before X, paid for by all that serve at its end
        first = sparse.diags_array(np.where(free, 0.0, np.diff(
            np.minimum(np.minimum(startup, cuts), stop))))
        busy = sparse.diags_array(np.where(free, 0.0, 1.0))
        # Columns: w, K, c, f, y.
        rows: Any = sparse.block_array([
            [begin, -each, None, None, None],  # w_h <= K_h
            [end, -each, None, None, None],  # w_{h+1} <= K_h
            [None, -by_length, None, of_cell, None],  # u_h <= d_h·K_h
            [None, None, -each, busy @ of_cell, None],  # c_h >= u_h
            [kept @ (begin + end), -kept, -each, None, None],  # workers at both ends of a cell
            [first @ end, None, -each, None, None],  # workers in the first X
            # the work of each request's answers, and their number
            [None, None, None, -of_request, served @ sparse.diags_array(work / unit)],
            [None, None, None, None, served],
            [None, None, None, None, -sparse.csr_array(np.array(sums))],  # the targets
        ], format="csr")
        limit = np.concatenate([np.zeros(6 * cells + len(instants)), arrived,
                                -(1.0 - 1e-9) * np.array(asked)])
        # Cost of a start at each cell; after the end only the part of X before it is paid for.
        start = np.where(free, np.maximum(startup - (cuts[1:] - stop), 0.0),
                         np.minimum(startup, cuts[:-1]))
        workers = 2 * cells + 1  # columns of w and of K
        lowest = np.concatenate([np.full(workers, self.least),
                                 np.where(free, 0.0, self.least * length),
                                 np.zeros(len(flows) + len(request))])
        highest = np.concatenate([np.full(workers, self.most),
                                  np.full(cells + len(flows), np.inf), count])
        integral = np.concatenate([np.ones(workers), np.zeros(cells + len(flows)),
                                   np.full(len(request), float(self.whole))])
        cost = np.zeros(len(lowest))
        cost[:cells] -= start
        cost[cells + 1:workers] = start
        cost[workers:workers + cells] = 1.0
        solution: Any = milp(cost, integrality=integral, bounds=Bounds(lowest, highest),
                             constraints=LinearConstraint(rows, ub=limit),
                             options={"mip_rel_gap": _GAP, "node_limit": _MOST_NODES})
        bound = getattr(solution, "mip_dual_bound", None)
        if bound is None or not np.isfinite(bound):
            return None
        paid = (np.zeros(cells) if solution.x is None
                else solution.x[workers:workers + cells] / length)
        return LeastCost(float(bound) * unit * (1.0 - _TOLERANCE), cuts * unit, paid)
