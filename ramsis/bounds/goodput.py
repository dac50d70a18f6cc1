r"""Upper bound on the requests in time (goodput) of any scheduler, even one that knows the trace.

*The problem.* Request i of model m_i can be started from r_i on and wants its answer by d_i. There
are W_t workers of type t, each runs one batch at a time and aborts none; a batch of b requests of
model m takes l_t(m, b) there, which does not fall with b. As many requests as possible are to be
in time.

*The bound.* Let λ_t(τ) >= 0 be a price of a worker's time, by type. Of any schedule take the
batches that answer requests in time, each with those requests alone: it takes no longer. Let n_k
be their numbers and c_k the integral of the price while they run. No worker runs two at once, so

    Σ_k n_k  =  Σ_k (n_k − c_k) + Σ_k c_k  <=  Σ_m V_m(λ) + Σ_t W_t ∫ λ_t,

with V_m the largest Σ (n − c) over sets of disjoint batches of model m, each run where it is
cheapest within its window, from its last release to its first deadline. In V_m any number of
batches may run at the same time: only the prices stand for the number of workers. So V_m is a
problem of each model by itself.

*Runs.* Let the deadlines of a model be in the order of releases, as they are with one SLO. Take
two batches P and Q of n and n' requests. If the first and the last request of P are before those
of Q, sort the requests of both, and give the first n to P and the last n' to Q. The last request
of P is then no later than before, and the first of Q no earlier: both windows have grown, and the
batches no longer mix. If all requests of Q lie between the first and the last of P, the one that
starts first can have the first requests, unless Q starts before P and ends after it. So an optimum
consists of runs of consecutive requests, which a dynamic programme finds,

    V(j) = max(V(j − 1), max_n V(j − n) + n − c(n; r_j, d_{j−n+1})),

and of batches Q whose requests lie in gaps of a batch P that takes less time. If a batch of 2
takes 3 ms and a batch of 3 takes 5 ms, the first and the last of five requests may be P, and the
three between them Q. This is rare, but without it V_m would be too low. So prices are sought with
runs, and the bound at these prices is computed with gaps, by falling i: w(i, j) is the best of
requests i to j, and u(i, j) the best batch with first request i and last request j and with w in
its gaps. The number of steps grows with the cube of the number of requests within an SLO.

*Parts.* Where that is too much (``_MOST_WORK``), and where deadlines are not in the order of
releases, each request of a batch of n is charged c / n. A part of x requests of the batch that are
consecutive among the answers pays x/n of its cost, and has a window that is no smaller. So

    V_m <= the best set of runs, of x requests each, of Σ (x − min_{n >= x} x/n·c(n; window)),

summed over the fewest chains into which the model's requests can be divided, each with deadlines
in order. If there are more than ``_MOST_CHAINS``, each deadline is moved up to the latest one of
the requests before, which leaves one chain.

*Loading.* A model that no worker holds at the start is not run before it can be loaded. Where
loading blocks the worker, one load is paid for at its cheapest time, if the model answers any
request. Further copies, network and slow-down by neighbours are left out: all of them can only
lower what a schedule reaches. A worker counts once for each of its lanes.

*Memory.* A model takes a share s_m of a worker's memory. Where W workers cannot hold all, memory
has a price μ, and

    Σ_k n_k  <=  Σ_m V_m(λ, μ) + Σ_t W_t ∫ λ_t + W ∫ μ.

Take two successive requests that are answered. Between the latest deadline of the requests up to
the first and the release of the second no request of the model runs. In this time the model is
either held, which costs s_m ∫ μ, or loaded anew, which costs the same for the time of the load
only, and the worker's time if loading blocks it. The dynamic programme goes through both requests
and bins of time (:mod:`ramsis.bounds._holding_kernels`). It takes nested batches as blocks, whose
requests have more time than they should; so V_m is the smaller of the value with blocks and the
value with parts. First the prices of time are sought alone, then both from there on; the lower of
the two bounds is taken.

*Prices* are constant in bins. The bound is convex in them, and W_t − (workers in use by the best
runs) is a subgradient. From the best price that is constant, steps go against the mean of the last
subgradients, smoothed over neighbouring bins, as long as Polyak's: to the best bound less a gap,
which is reduced after ``_PATIENCE`` rounds without progress. The search stops after ``rounds``,
after ``_TRIAL`` first rounds without any gain (``_MEMORY_TRIAL`` with memory), or when the gap is
below 1e-5 of the requests. Any prices give a bound, so no result depends on convergence.

*Rounding.* Windows are wider by 2e-6 ms, twice what is counted as in time elsewhere. Sums are
enlarged by what their rounding can cost, and then rounded down to a whole number of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.ndimage import uniform_filter1d

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.bounds import _kernels as kernels
from ramsis.bounds._binned import Task, binned_bound
from ramsis.bounds._holding_kernels import HoldingBins, held_blocks, held_runs
from ramsis.compiling import uniform
from ramsis.errors import InvalidValueError, whole
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS

_PATIENCE, _SHRINK = 8, 0.6  # rounds without progress after which the gap shrinks to this share
_MEMORY = 0.8  # weight of earlier subgradients in the direction of a step
_NEAR = 9  # bins over which a step is smoothed
_FIRST_GAP, _LAST_GAP = 0.003, 1e-5  # of the requests
_TRIAL, _MEMORY_TRIAL = 60, 30  # rounds without any gain
_CONSTANT = np.linspace(0.0, 2.4, 13)  # prices tried first, in requests per batch of one
_MOST_BINS = 16384
_BINS_IN_WINDOW = 24  # at most, in the median window between release and deadline
_MOST_WORK = 4e8  # steps of nested batches over all groups; larger groups are bounded by parts
_MEMORY_CONSTANT = np.append(0.0, np.geomspace(1e-3, 3.0, 11))  # in requests per worker
_MOST_STATES, _FEWEST_EDGES, _ENOUGH_EDGES, _MOST_EDGES = 1_000_000, 128, 512, 2048
_BINS_IN_LOAD = 12  # aimed at, in the shortest load
_MOST_CHAINS = 16  # of requests of a model with deadlines in order


@dataclass(frozen=True, eq=False)
class ReleasedRequests:
    """Requests with release times and deadlines; arrays of shape (n,)."""

    # from when on a request can be run: its arrival, and what comes before inference
    release_ms: FloatArray
    deadline_ms: FloatArray  # when a batch with it has to end
    model: IntArray  # index of its model


@dataclass(frozen=True, eq=False)
class Servers:
    """Workers that answer requests: T worker types, M models, batches up to B."""

    # shape (T, M, B): shortest time of a batch of b = column + 1; infinite where it is not run
    batch_ms: FloatArray
    workers: FloatArray  # number of workers of each type, times their lanes, shape (T,)
    load_ms: FloatArray | float = 0.0  # shortest time to load a model, (T, M)
    # shape (T, M): how many workers hold the model at the start, at 0 ms; by default all
    held: FloatArray | None = None
    # shape (T,): whether a worker that loads runs no batch; by default it runs them
    blocking: BoolArray | bool = False
    # shape (T, M): share of a worker's memory that a model takes at least; by default none. With
    # ``load_ms``.
    room: FloatArray | None = None
    # shape (T,): workers of a type, each with one memory; by default as many as ``workers``
    machines: FloatArray | None = None
    # shape (T,): most models that a worker loads at a time
    loads_at_a_time: FloatArray | float = 1.0

    def loaded(self) -> BoolArray:
        """Return whether any worker holds each model at the start, (M,)."""
        if self.held is None:
            return np.ones(self.batch_ms.shape[1], dtype=bool)
        return np.asarray((self.held > 0).any(axis=0))

    def any_load_ms(self) -> FloatArray:
        """Return the load time of each model on each type, (T, M), infinite if it cannot run."""
        return np.where(np.isfinite(self.batch_ms[:, :, 0]), self.load_ms, np.inf)

    def blocked(self) -> BoolArray:
        """Return whether each load takes at least a lane of a worker of each type, (T,)."""
        return self.blocking & (self.loads_at_a_time * self.memories() <= self.workers)

    def memories(self) -> FloatArray:
        """Return the number of workers of each type, not times their lanes, (T,)."""
        return self.workers if self.machines is None else self.machines

    def scarce(self, models: IntArray) -> bool:
        """Return whether the memory of all workers together cannot hold all of ``models``."""
        return self.room is not None and bool(
            self.room.min(axis=0)[models].sum() > self.memories().sum())

    def choose(self, models: IntArray) -> bool:
        """Return whether a worker of some type cannot hold all of ``models`` at once."""
        if self.room is None:
            return False
        room = self.room[:, models]
        return bool((np.where(np.isfinite(room), room, 0.0).sum(axis=1) > 1.0).any())


@dataclass(frozen=True, eq=False)
class GoodputBound:
    """Upper bound on the requests in time, and the dual prices that prove it."""

    in_time: int  # largest number of requests in time
    share: float  # the same as a share of all requests; NaN without any
    # shape (T, bins): requests that a ms more of a worker of the type would be worth, by bin
    price_per_ms: FloatArray
    bin_ms: float  # width of a bin, the first one from the first release
    rounds: int  # sets of prices that were tried


def goodput_bound(
    requests: ReleasedRequests, servers: Servers, *, rounds: int = 120
) -> GoodputBound:
    """Bound the number of requests that any scheduler can answer in time.

    Without requests the bound is 0 and its share NaN.

    Parameters
    ----------
    rounds : int
        Most steps of the prices, >= 0; as many again where memory is scarce.
    """
    _check(requests, servers, rounds)
    count = len(requests.release_ms)
    fewest = np.zeros((len(servers.workers), 1))
    if not count:
        return GoodputBound(0, float("nan"), fewest, 1.0, 0)
    priced = _Priced(requests, servers)
    if not len(priced.release):
        return GoodputBound(0, 0.0, fewest, 1.0, 0)
    price, tried = _cheapest_prices(priced, priced.constant(), rounds, _TRIAL)
    bound = priced.safe(price)
    if servers.scarce(np.unique(priced.model)):
        held = _Held(requests, servers)
        with_memory, more = _cheapest_prices(held, held.constant_beside(price), rounds,
                                             _MEMORY_TRIAL)
        lower = held.safe(with_memory)
        if lower < bound:
            bound, price = lower, with_memory[:-1]
        tried += more
    if servers.choose(np.unique(priced.model)):
        bound = min(bound, binned_bound(_task(priced, servers)))
    in_time = min(int(np.floor(bound)), len(priced.release))
    return GoodputBound(in_time, in_time / count, price, priced.width, tried)


def _check(requests: ReleasedRequests, servers: Servers, rounds: int) -> None:
    """Refuse arrays of requests and models whose shapes do not fit each other."""
    shape = servers.batch_ms.shape
    if len(shape) != 3 or 0 in shape or servers.workers.shape != shape[:1]:
        raise InvalidValueError("batch times and workers do not fit each other", where="servers",
                                value=(shape, servers.workers.shape),
                                allowed="(types, models, batches) and (types,)")
    sizes = {requests.release_ms.shape, requests.deadline_ms.shape, requests.model.shape}
    if len(sizes) != 1 or requests.model.ndim != 1:
        raise InvalidValueError("arrays of requests do not fit each other", where="requests",
                                value=sorted(sizes), allowed="one length for all")
    if not (np.isfinite(requests.release_ms).all() and np.isfinite(requests.deadline_ms).all()):
        raise InvalidValueError("a time of a request is not a number", where="requests",
                                allowed="finite times in ms")
    if len(requests.model) and not 0 <= requests.model.min() <= requests.model.max() < shape[1]:
        raise InvalidValueError("no such model", where="requests", value=int(requests.model.max()),
                                allowed=f"0 to {shape[1] - 1}")
    if not (servers.batch_ms > 0).all() or not (servers.workers >= 0).all():
        raise InvalidValueError("a batch time or number of workers out of range", where="servers",
                                allowed="times > 0, numbers >= 0")
    whole(0).check("rounds out of range", rounds=rounds)


def _task(priced: _Priced, servers: Servers) -> Task:
    """Return the requests that can be in time, and their batches, for the linear program."""
    assert servers.room is not None
    load_ms = np.where(np.isfinite(servers.room), servers.any_load_ms(), np.inf)
    machines = servers.memories()
    held = machines[:, None] if servers.held is None else servers.held
    return Task(
        priced.release + priced.origin, priced.deadline + priced.origin, priced.model,
        priced.duration, load_ms, servers.room, np.broadcast_to(held, load_ms.shape), machines,
        servers.workers / np.maximum(machines, 1.0),
        np.broadcast_to(servers.loads_at_a_time, machines.shape),
        np.broadcast_to(servers.blocking, machines.shape))


class _Priced:
    """Dual bound on the requests in time, as a function of the prices of worker time.

    Requests are sorted by group: those of a model, or a chain of them in the order of deadlines.
    """

    def __init__(self, requests: ReleasedRequests, servers: Servers) -> None:
        # A batch with more requests that is faster can be run instead, so times do not fall.
        self.duration = np.minimum.accumulate(
            servers.batch_ms[:, :, ::-1], axis=2)[:, :, ::-1].copy()
        self.workers = servers.workers.astype(float)
        self.duration[self.workers == 0] = np.inf
        load = np.where(servers.loaded(), 0.0, servers.any_load_ms())
        release = np.maximum(requests.release_ms, load.min(axis=0)[requests.model])
        release, deadline = release - SLACK_TOLERANCE_MS, requests.deadline_ms + SLACK_TOLERANCE_MS
        shortest = self.duration[:, :, 0].min(axis=0)
        kept = release + shortest[requests.model] <= deadline
        origin = float(release[kept].min()) if kept.any() else 0.0
        if (load > 0).any() or servers.scarce(np.unique(requests.model)):
            origin = min(origin, 0.0)  # when loads can begin
        self.release, self.deadline = release[kept] - origin, deadline[kept] - origin
        self.origin = origin
        self.model = requests.model[kept].astype(np.int64)
        self.blocks = servers.blocked()
        # Only a load that blocks costs worker time; a model that cannot be loaded costs infinity.
        otherwise = np.where(np.isfinite(load), 0.0, np.inf)
        self.fee_ms = np.where(self.blocks[:, None], load, otherwise)
        if len(self.release):
            self._bins()
            self._lengths()
            self.groups = _Groups.of(self.release, self.deadline, self.model)

    def _bins(self) -> None:
        """Choose the width of bins: half of the median shortest batch time, within limits."""
        horizon = float(self.deadline.max())
        shortest = self.duration[:, :, 0].min(axis=0)[self.model]
        window = float(np.median(self.deadline - self.release))
        self.width = max(0.5 * float(np.median(shortest)), window / _BINS_IN_WINDOW,
                         horizon / _MOST_BINS)
        self.bins = int(horizon / self.width) + 1
        self.levels = int(np.log2(max((self.deadline - self.release).max() / self.width, 1.0))) + 1
        self.ms = np.repeat(self.workers[:, None] * self.width, self.bins, axis=1)

    def _lengths(self) -> None:
        """Set the distinct batch times of each type, each with its row in the tables of costs."""
        row = np.zeros(self.duration.shape, dtype=np.int64)
        lengths: list[float] = []
        types: list[int] = []
        models = np.unique(self.model)
        for t, times in enumerate(self.duration[:, models]):
            distinct, which = np.unique(times, return_inverse=True)
            row[t, models] = which.reshape(times.shape) + len(lengths)
            finite = distinct[np.isfinite(distinct)]
            lengths += finite.tolist()
            types += [t] * len(finite)
        self.lengths, self.types = np.array(lengths), np.array(types, dtype=np.int64)
        self.batches = kernels.Batches(self.duration, row)

    def total(self, price: FloatArray) -> FloatArray:
        """Return the integral of the prices up to each edge, (T, bins + 1)."""
        total = np.zeros((len(price), self.bins + 1))
        np.cumsum(price * self.width, axis=1, out=total[:, 1:])
        return total

    def constant(self) -> Iterator[FloatArray]:
        """Yield prices that are constant in time, rising: starts of the search."""
        shortest = float(np.median(self.duration[:, :, 0].min(axis=0)[self.model]))
        for share in _CONSTANT.tolist():
            yield np.full_like(self.ms, share / shortest)

    def value(self, price: FloatArray, seed: int) -> tuple[float, FloatArray]:
        """Return Σ V for separate runs plus the price of all workers, and a subgradient in ms."""
        used = np.zeros((len(price), self.bins))
        worth = self._of_models(self._runs(self.groups, price, seed, used), price)
        return worth + float((self.ms * price).sum()), self.ms - used

    def _of_models(self, worth: FloatArray, price: FloatArray) -> float:
        """Return Σ V over models from V of the groups, less the first load of each model."""
        of_model = np.bincount(self.groups.model, worth, minlength=self.fee_ms.shape[1])
        total, horizon = self.total(price), float(self.deadline.max())
        for m in np.nonzero((self.fee_ms > 0).all(axis=0) & (of_model > 0))[0].tolist():
            fee = min((kernels.cheapest(0.0, horizon - length, length, price[t], total[t],
                                        self.width)
                       for t, length in enumerate(self.fee_ms[:, m].tolist()) if length < horizon),
                      default=np.inf)
            of_model[m] = max(of_model[m] - fee, 0.0)
        return float(of_model.sum())

    def _runs(
        self, groups: _Groups, price: FloatArray, seed: int, used: FloatArray
    ) -> FloatArray:
        """Return V of each group if no batch lies in a gap of another (separate runs)."""
        return np.asarray(kernels.best_runs(groups, self.batches, self._prices(price), seed, used))

    def _prices(self, price: FloatArray) -> kernels.BinPrices:
        """Return the prices in the form that the compiled loops take."""
        total = self.total(price)
        bends, least = kernels.cell_costs(self.lengths, self.types, self.levels, price, total,
                                          self.width)
        return kernels.BinPrices(price, total, self.width, bends, least)

    def _nested(self, group: _Groups, price: FloatArray) -> float:
        """Return V of a group where batches may lie in gaps of others."""
        worth, _ = kernels.best_nested(group.release, group.deadline, int(group.model[0]),
                                       self.duration, price, self.total(price), self.width)
        return float(worth)

    def safe(self, price: FloatArray) -> float:
        """Return the proved bound at prices: with nested batches, and safe against rounding."""
        groups = self.groups
        worth = self._runs(groups, price, 0, np.zeros((len(price), self.bins)))
        least = 5 if len(self.duration) == 1 else 3  # so that a batch can lie within another
        work = kernels.nested_work(groups.release, groups.deadline, groups.offsets, groups.model,
                                   self.duration, least)
        work[groups.parts] = 0.0
        total_work = np.cumsum(np.sort(work))
        limit = np.append(np.sort(work), np.inf)[np.searchsorted(total_work, _MOST_WORK, "right")]
        for g in np.nonzero(work)[0].tolist():
            group = groups.only(g)
            if work[g] >= limit:
                worth[g] = self._runs(group.in_parts(), price, 0, np.zeros_like(price))[0]
            else:
                worth[g] = self._nested(group, price)
        return self._enlarged(self._of_models(worth, price), price)

    def _enlarged(self, worth: float, price: FloatArray) -> float:
        """Return the bound, enlarged by the error that rounding can have caused."""
        total = self.total(price)
        all_workers = float(self.workers @ total[:, -1])
        eps, count = float(np.finfo(float).eps), len(self.release)
        of_cost = 4.0 * eps * (self.bins * float(total.max())
                               + float(price.max()) * float(self.deadline.max()))
        bound = worth + all_workers
        return bound + count * (of_cost + 2e-12) + 4.0 * eps * (count + self.bins) * bound


class _Held(_Priced):
    """Dual bound where memory is scarce; the price of memory is the last row of the prices."""

    def __init__(self, requests: ReleasedRequests, servers: Servers) -> None:
        super().__init__(requests, servers)
        machines = float(servers.memories().sum())
        self.workers = np.append(self.workers, machines)
        self.ms = np.vstack([self.ms, np.full(self.bins, machines * self.width)])
        self.fee_ms[:] = 0.0  # loads are paid for in V
        models = np.unique(self.model)
        load_ms = servers.any_load_ms()
        usable = np.isfinite(load_ms)
        shortest = float(load_ms[:, models].min())
        enough = int(_BINS_IN_LOAD * self.bins * self.width / max(shortest, self.width)) + 1
        most = min(max(_MOST_STATES // len(models), _FEWEST_EDGES),
                   min(max(enough, _ENOUGH_EDGES), _MOST_EDGES))
        self.each = -(-self.bins // most)
        self.edges = -(-self.bins // self.each) + 1
        width = self.each * self.width
        self.load_bins = np.where(usable, np.floor(np.where(usable, load_ms, 0.0) / width - 1e-9),
                                  -1.0).astype(np.int64)
        short = (self.load_bins == 0).any(axis=0)  # they cost nothing in memory, then
        assert servers.room is not None
        self.room = np.where(short, 0.0, servers.room.min(axis=0))
        self.preloaded = short | servers.loaded()

    def constant_beside(self, price: FloatArray) -> Iterator[FloatArray]:
        """Return memory prices that are constant in time, to go with the prices of worker time."""
        unit = len(self.release) / (self.workers[-1] * self.bins * self.width)
        for share in _MEMORY_CONSTANT.tolist():
            yield np.vstack([price, np.full(self.bins, share * unit)])

    def _runs(
        self, groups: _Groups, price: FloatArray, seed: int, used: FloatArray
    ) -> FloatArray:
        share = 1.0 / np.bincount(groups.model)[groups.model]
        return np.asarray(held_runs(groups, self.batches, self._prices(price),
                                    self._holding(price), share, seed, used))

    def _nested(self, group: _Groups, price: FloatArray) -> float:
        model, total = int(group.model[0]), self.total(price)
        _, within = kernels.best_nested(group.release, group.deadline, model, self.duration,
                                        price, total, self.width)
        in_blocks = held_blocks(group.release, group.deadline, within, model,
                                float(self.duration[:, model, 0].min()), self._holding(price))
        in_parts = self._runs(group.in_parts(), price, 0, np.zeros_like(price))[0]
        return min(float(in_blocks), float(in_parts))

    def _holding(self, price: FloatArray) -> HoldingBins:
        """Return the costs of holding and loading models at prices, for the compiled loops."""
        total = self.total(price)[:, np.minimum(np.arange(self.edges) * self.each, self.bins)]
        return uniform(HoldingBins(self.room, self.preloaded, self.load_bins, total[-1],
                               np.where(self.blocks[:, None], total[:-1], 0.0), self.blocks,
                               self.each * self.width, self.each))


class _Groups(kernels.Groups):
    """Requests in groups, one for each model or for each chain of a model's requests."""

    @classmethod
    def of(cls, release: FloatArray, deadline: FloatArray, model: IntArray) -> _Groups:
        """Form one group for each model with deadlines in order, else its chains."""
        order = np.lexsort((deadline, release, model))
        release, deadline, model = release[order], deadline[order], model[order]
        edges = np.append(np.unique(model, return_index=True)[1], len(model))
        rows: list[tuple[FloatArray, FloatArray, int, bool]] = []
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            come, due, which = release[first:last], deadline[first:last], int(model[first])
            chains = list(_chains(due))
            if len(chains) > _MOST_CHAINS:
                chains, due = [np.arange(last - first)], np.maximum.accumulate(due)
            rows += [(come[chain], due[chain], which, len(chains) > 1) for chain in chains]
        sizes = [len(row[0]) for row in rows]
        return cls(np.concatenate([row[0] for row in rows]),
                   np.concatenate([row[1] for row in rows]),
                   np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
                   np.array([row[2] for row in rows], dtype=np.int64),
                   np.array([row[3] for row in rows], dtype=bool))

    def only(self, g: int) -> _Groups:
        """Return group ``g`` alone."""
        part = slice(self.offsets[g], self.offsets[g + 1])
        size = int(self.offsets[g + 1] - self.offsets[g])
        return _Groups(self.release[part], self.deadline[part], np.array([0, size]),
                       self.model[g : g + 1], self.parts[g : g + 1])

    def in_parts(self) -> _Groups:
        """Return the groups with runs that may be parts of batches; the bound stays valid."""
        return self._replace(parts=np.ones_like(self.parts))


def _chains(deadline: FloatArray) -> Iterator[IntArray]:
    """Partition requests, by release, into the fewest chains with non-decreasing deadlines.

    Beyond ``_MOST_CHAINS`` it stops: the chains that it yields, one too many, are not all.
    """
    if (np.diff(deadline) >= 0).all():
        yield np.arange(len(deadline))
        return
    ends: list[float] = []
    members: list[list[int]] = []
    for i, due in enumerate(deadline.tolist()):
        # the chain with the latest end that is no later; ends fall from chain to chain
        c = next((c for c, end in enumerate(ends) if end <= due), len(ends))
        if c == len(ends):
            if c > _MOST_CHAINS:
                break
            ends.append(due)
            members.append([])
        ends[c] = due
        members[c].append(i)
    yield from (np.array(indices, dtype=np.int64) for indices in members)


def _cheapest_prices(
    priced: _Priced, constant: Iterable[FloatArray], rounds: int, trial: int
) -> tuple[FloatArray, int]:
    """Return prices with a low bound, by Polyak steps from the best start, and the number tried.

    ``constant`` are prices on a line, in order; ``trial`` first rounds may be without any gain.
    """
    count = len(priced.release)
    best, price = np.inf, np.zeros_like(priced.ms)
    for first in constant:
        value, _ = priced.value(first, 0)
        if value > best:
            break  # the bound is convex, so further prices on the line are worse
        if value < best:
            best, price = value, first
    lowest, at, gap, stalled, tried = best, price, _FIRST_GAP * count, 0, 0
    slope = np.zeros_like(price)
    for tried in range(1, rounds + 1):
        value, new = priced.value(at, tried)
        stalled = 0 if value < lowest - 0.02 * gap else stalled + 1  # less is no progress
        if value < lowest:
            lowest, price = value, at
        if tried > trial and lowest == best:
            break
        if stalled > _PATIENCE:
            gap, stalled = _SHRINK * gap, 0
            if gap < _LAST_GAP * count:
                break
        slope = _MEMORY * slope + (1.0 - _MEMORY) * new if tried > 1 else new
        at_zero = (at <= 0) & (slope > 0)  # prices stay >= 0
        free = np.where(at_zero, 0.0, slope)
        step = np.where(at_zero, 0.0, _spread(free))
        length = float((free * step).sum())
        if length <= 0.0:
            break
        # Polyak's step to the bound lowest − gap, shortened where that is far away.
        at = np.maximum(at - min(value - lowest + gap, 2.0 * gap) / length * step, 0.0)
    return price, tried


def _spread(slope: FloatArray) -> FloatArray:
    """Average slopes over neighbouring bins of time, since prices vary slowly in time."""
    near = uniform_filter1d(slope, _NEAR, axis=1, mode="constant")
    return np.asarray(near + 0.3 * slope)
