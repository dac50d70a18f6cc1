r"""Upper bounds on what any scheduler of requests with a size can achieve.

They hold for every scheduler that answers each request at most once, by one model, in batches up
to the largest count, on workers that run one batch at a time and abort none, even if it knows all
arrivals and sizes in advance.

*The problem.* Request i comes at r_i, is due at d_i = r_i + SLO, and is worth v_mi = accuracy of m
times weight of its size class if m answers it in time. A batch Q on model m takes T_m(Q) ms on one
of K workers. Σ v over the answers in time is to be as large as possible.

*Without padding.* Let c_mi > 0 be such that Σ_{i in Q} c_mi <= T_m(Q) for every batch Q of m that
can be in time. Spread over the time of its batch, each answer then takes c_mi of the workers' time
within [r_i, d_i]. So no scheduler has more than

    max  Σ h_i(w_i)   s.t.   Σ_{r_i >= r, d_i <= d} w_i <= K·(d − r)   for all r < d,

with h_i the concave hull of (0, 0) and of the points (c_mi, v_mi). The rows are those of a
polymatroid: the work that fits into windows on a machine of K times the speed. There the greedy
method is optimal, which adds pieces of h_i by falling slope, each as far as it fits [1]. With one
SLO the intervals that matter run from a release to a deadline of a later request
(:func:`~ramsis.sized._bound_kernels.most_work`).

- Padded: T_m(Q) = T_m(b, x) with b its count and x its longest size. As it does not fall with x,
  c_mi = min_b T_m(b, x_i)/b will do, over those b that T_m(b, x_i) <= SLO and for which b
  requests, i among them, come within SLO − T_m(b, x_i). No c by size alone is larger for all b.
- Packed: T_m(Q) = T_m(b, X) with X the total size. Any line α + β·(X/b) that is nowhere above
  the points (X/b, T_m(b, X)/b) gives c_mi = α + β·x_i. Lines that touch the lower hull of these
  points are tried at several sizes; the lowest bound holds.

*With padding and gathering.* Let λ_i >= 0 be any price of request i. A scheduler runs sequences of
batches on K workers, and has each request in one batch at most. So with S the sequences of batches
on one worker that do not overlap, each Q of them within [max r_i, min d_i],

    Σ v  <=  Σ_i λ_i + K · max_{s in S} Σ_{(m,Q) in s} Σ_{i in Q} (v_mi − λ_i).

In the maximum a request may be in several batches. The maximum is a longest path over time: on a
grid of start times, batches that start in cell k or later earn at most V(k), computed backwards
(:func:`~ramsis.sized._bound_kernels.best_path`). A batch that starts within a cell may have any
request that comes by the end of the cell and would be in time if the batch started at the
beginning of the cell. It occupies the worker for its time in whole cells, rounded down. So V(0) is
at least the maximum, and the bound holds for any width of cells. With λ_i = max_m (v_mi −
c_mi·p_i), p_i the least price of time within the window of i in the first problem, the bound is at
most that without padding, up to rounding. From there the prices take subgradient steps along 1 −
K·(number of times that the best sequence has i). Any prices give a bound; no result depends on
convergence.

*Long paths* are cut into stretches of requests. A scheduler that served one stretch alone, with
all workers free, could do no less for it; so the sum of the bounds of stretches is a bound.

*In the long run.* Cut the arrivals of a stationary process into stretches of equal length. The
mean bound of a stretch over its mean number of requests is then a bound on the long-run value of a
request under every scheduler. It is a mean over stretches that are drawn. The bound without
padding is cheap and has many of them; what padding and gathering take off is measured on some of
the same. The 95 % interval has both errors.

*Rounding.* Windows are wider by 1e-6 ms on both sides, what counts as in time elsewhere. A
relative 1e-9 covers rounding errors of sums.

*What makes it loose*: the grid, the finite number of steps, and that a worker may answer a request
again at its price. In the bound without padding, shorter members cost less than the longest. For
packed back ends gathering is left out.

[1] J. Edmonds, "Submodular functions, matroids, and certain polyhedra", 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.stats import t as student

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError, check_number_of
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS

if TYPE_CHECKING:
    from ramsis.arrivals.process import Sampler
    from ramsis.sized._bound_kernels import Grid
    from ramsis.sized.problem import SizedProblem

_ROUNDING = 1e-9
_STRETCH = 4000  # requests bounded together; each stretch gets an SLO of worker time too much
_LINES = np.array([0.05, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0])  # quantiles of sizes by work
_BISECTIONS, _LEAST_WORK_MS = 50, 1e-9  # of the slope of a line; its least value
_CELLS_IN_SLO = 300
_MOST_CELLS = 400_000
_FINER = 6  # cells of the final grid for each cell of the search
# Weight of earlier subgradients; rounds without progress, after which the gap shrinks to a share.
_MEMORY, _PATIENCE, _SHRINK = 0.7, 6, 0.6
_FEW = 500  # requests whose highest prices are lowered, too
_FIRST_GAP, _WIDE_GAP, _LAST_GAP = 0.0005, 0.02, 1e-7  # of the value of all requests


@dataclass(frozen=True)
class SizedBound:
    """Upper bounds for all schedulers of requests with a size.

    Half-widths of 95 % intervals are those of averages over drawn requests, 0 for given ones.
    """

    upper_bound: float  # mean value of a request: accuracy × weight, 0 where not in time
    half_width: float
    in_time: float  # largest share of the requests in time
    in_time_half_width: float
    without_padding: float  # bound on the mean value if batches were not padded
    requests: int  # in all stretches, given or drawn
    stretches: int

    def _summary(self) -> str:
        return (f"at most {self.upper_bound:.4f} ± {self.half_width:.4f} a request, "
                f"{self.in_time:.4f} in time, over {self.requests} requests")


def path_bound(
    problem: SizedProblem, arrival_ms: FloatArray, size: IntArray, *, rounds: int = 40
) -> SizedBound:
    """Return upper bounds for all schedulers on given requests; 0 without requests.

    Parameters
    ----------
    problem : SizedProblem
    arrival_ms : ndarray, shape (n,)
        Not falling.
    size : ndarray of int, shape (n,)
    rounds : int
        Steps of the prices for each 4,000 requests; with 0 the bound is that without padding.

    Raises
    ------
    InvalidValueError
        Arrays that do not fit each other, or a size beyond the profile.
    """
    _check(problem, arrival_ms, size)
    stretches = max(-(-len(size) // _STRETCH), 1)
    value, loose, in_time = 0.0, 0.0, 0.0
    for parts in zip(np.array_split(arrival_ms, stretches), np.array_split(size, stretches),
                     strict=True):
        stretch = _Stretch(problem, *parts)
        loose += stretch.without_padding
        value += stretch.bound(rounds)
        in_time += stretch.in_time(rounds)
    n = max(len(size), 1)
    return SizedBound(value / n, 0.0, min(in_time / n, 1.0), 0.0, loose / n, len(size), stretches)


def upper_bound(
    problem: SizedProblem, arrivals: Sampler, *, rounds: int = 40, stretches: int = 32,
    refined: int = 3, requests: int = 4000, seed: int = 0,
) -> SizedBound:
    """Return upper bounds for all schedulers in the long run, by drawn requests.

    Parameters
    ----------
    problem : SizedProblem
    arrivals : Sampler
        A stationary arrival process.
    rounds : int
        Steps of the prices; with 0 the bound is that without padding.
    stretches, refined : int
        Stretches of requests that are drawn, 2 or more, and those of them, 2 or more, on which
        the gain by padding and gathering is measured.
    requests : int
        Mean number of requests of a stretch.
    seed : int
    """
    for name, number in (("stretches", stretches), ("refined", refined)):
        if not 2 <= number <= stretches:
            raise InvalidValueError("not a number of stretches", where=name, value=number,
                                    allowed=f"2 to {stretches}")
    check_number_of("requests", requests)
    duration_ms = requests / arrivals.rate_per_ms
    loose, gains, in_time, gains_in_time, counts = [], [], [], [], []
    for i, generator in enumerate(np.random.default_rng(seed).spawn(stretches)):
        arrival_ms, size = problem.requests_of(arrivals, duration_ms, generator, generator)
        order = np.argsort(arrival_ms, kind="stable")
        stretch = _Stretch(problem, arrival_ms[order], size[order])
        counts.append(len(arrival_ms))
        loose.append(stretch.without_padding)
        in_time.append(stretch.in_time(0))
        if rounds and i < refined:
            gains.append(loose[-1] - stretch.bound(rounds))
            gains_in_time.append(in_time[-1] - stretch.in_time(rounds))
    value = _mean_of_requests(loose, counts)
    share = _mean_of_requests(in_time, counts)
    mean = float(np.mean(counts))
    tighter, tighter_share = (_mean_gain(series, mean) for series in (gains, gains_in_time))
    return SizedBound(value.mean - tighter.mean, float(np.hypot(value.width, tighter.width)),
                      share.mean - tighter_share.mean,
                      float(np.hypot(share.width, tighter_share.width)), value.mean, sum(counts),
                      stretches)


class _Estimate(NamedTuple):
    mean: float
    width: float  # half of the 95 % interval


def _mean_of_requests(totals: list[float], counts: list[int]) -> _Estimate:
    """Return the ratio of two means with its half-width, by linearisation."""
    ratio = sum(totals) / max(sum(counts), 1)
    residual = np.array(totals) - ratio * np.array(counts)
    return _Estimate(ratio, _half_width(residual) / max(float(np.mean(counts)), 1.0))


def _mean_gain(gains: list[float], requests: float) -> _Estimate:
    if not gains:
        return _Estimate(0.0, 0.0)
    return _Estimate(float(np.mean(gains)) / requests, _half_width(np.array(gains)) / requests)


def _half_width(values: FloatArray) -> float:
    n = len(values)
    return float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def _check(problem: SizedProblem, arrival_ms: FloatArray, size: IntArray) -> None:
    if arrival_ms.shape != size.shape or arrival_ms.ndim != 1:
        raise InvalidValueError("arrivals and sizes do not fit each other", where="size",
                                value=size.shape, allowed=f"{arrival_ms.shape}, one dimension")
    if len(size) and not 1 <= size.min() <= size.max() <= problem.max_size:
        raise InvalidValueError("a size beyond those of the profile", where="size",
                                value=int(size.max()), allowed=f"1 to {problem.max_size}")
    if (np.diff(arrival_ms) < 0).any():
        raise InvalidValueError("arrivals fall", where="arrival_ms", allowed="rising times")


class _Stretch:
    """Bounds of one stretch of requests, as Lagrangian duals over prices."""

    def __init__(self, problem: SizedProblem, arrival_ms: FloatArray, size: IntArray) -> None:
        from ramsis.sized import _bound_kernels as kernels

        self.problem = problem
        release = arrival_ms - SLACK_TOLERANCE_MS
        origin = release[0] if len(release) else 0.0
        deadline = arrival_ms + problem.slo_ms + SLACK_TOLERANCE_MS
        self.windows = kernels.Windows(release - origin, deadline - origin,
                                       np.ascontiguousarray(size, np.int64))
        weight = np.array(problem.weights)[problem.class_of(size)]
        self.worth = problem.accuracy[:, None] * weight[None, :]  # (M, n)
        self.works = list(self._works())
        self._without_padding: dict[bool, tuple[float, FloatArray]] = {}
        self._bounds: dict[tuple[int, bool], float] = {}

    @property
    def without_padding(self) -> float:
        """Bound on the stretch's total value if batches were not padded."""
        return self._tight(0, equal=False)

    def bound(self, rounds: int) -> float:
        """Return the bound on the stretch's total value by ``rounds`` steps of the prices."""
        return self._tight(rounds, equal=False)

    def in_time(self, rounds: int) -> float:
        """Return the bound on the number of requests in time."""
        worth = self.worth
        if worth.size and worth.min() == worth.max():
            return min(self.bound(rounds) / float(worth.min()), float(worth.shape[1]))
        return self._tight(rounds, equal=True)

    def _worth(self, *, equal: bool) -> FloatArray:
        return np.ones_like(self.worth) if equal else self.worth

    def _works(self) -> Iterator[FloatArray]:
        """Yield lower bounds on the ms of worker time that an answer takes, shape (M, n).

        One for each model and request, infinite where the answer would always be late. Without
        padding there are several such arrays, each from another linear bound on batches' times.
        """
        problem, size = self.problem, self.windows.size
        times = problem.times
        allowed_ms = problem.slo_ms + 3.0 * SLACK_TOLERANCE_MS  # windows are wider on both sides
        if not len(size):
            yield np.zeros_like(self.worth)
        elif times.padded:
            counts = np.arange(1, problem.max_batch + 1)[:, None]
            gathered = _shortest_windows(self.windows.release, problem.max_batch)
            works = []
            for table in times.time_ms:
                batch_ms = table[:, size]
                fits = batch_ms + gathered <= allowed_ms
                works.append(np.where(fits, batch_ms / counts, np.inf).min(axis=0))
            yield np.array(works)
        else:
            yield from self._packed_works(allowed_ms)

    def _packed_works(self, allowed_ms: float) -> Iterator[FloatArray]:
        """Yield least works of packed batches, one for each of several linear bounds on times."""
        problem, size = self.problem, self.windows.size
        times = problem.times
        measures = np.arange(int(size.max()) + 1)
        alone = np.array([problem.batch_ms(1, int(x)) for x in measures]).T  # (M, X)
        limits = (int(size.min()), int(size.max()))
        rising = np.sort(size)
        share = np.cumsum(rising) / rising.sum()
        for x in np.unique(rising[np.searchsorted(share, _LINES - 1e-9)]):
            lines = [_line_below(table, times.step, float(x), limits) for table in times.time_ms]
            work = np.array([base + slope * size for base, slope in lines])
            yield np.where(alone[:, size] > allowed_ms, np.inf, work)

    def _loose(self, *, equal: bool) -> tuple[float, FloatArray]:
        """Return the bound without padding, and its dual prices of requests, shape (n,)."""
        if equal not in self._without_padding:
            worth = self._worth(equal=equal)
            self._without_padding[equal] = min(
                (self._greedy(worth, work) for work in self.works), key=lambda pair: pair[0])
        return self._without_padding[equal]

    def _greedy(self, worth: FloatArray, work: FloatArray) -> tuple[float, FloatArray]:
        """Return the bound on total value by greedy filling, and dual prices of requests, (n,)."""
        from ramsis.sized import _bound_kernels as kernels

        request, step_ms, slope = _pieces(worth, work)
        workers = float(self.problem.workers)
        added, first, last = kernels.most_work(self.windows, request, step_ms, workers)
        price = kernels.least_prices(self.windows, slope, first, last)
        usable = np.where(np.isfinite(work), work, 0.0)
        earned = np.where(np.isfinite(work), worth - usable * price, 0.0)
        return float(slope @ added) * (1.0 + _ROUNDING), np.maximum(earned.max(axis=0), 0.0)

    def _tight(self, rounds: int, *, equal: bool) -> float:
        """Return the best bound: that without padding, or the one after steps of the prices."""
        if (rounds, equal) not in self._bounds:
            self._bounds[rounds, equal] = self._tighter(rounds, equal=equal)
        return self._bounds[rounds, equal]

    def _tighter(self, rounds: int, *, equal: bool) -> float:
        """Return the lower of the bound without padding and that of priced paths.

        Prices take ``rounds`` steps from the dual prices of the bound without padding, on a coarse
        grid of start times; the best are evaluated on a finer grid, too.
        """
        worth, problem = self._worth(equal=equal), self.problem
        total = float(worth.max(axis=0).sum())
        bound, price = self._loose(equal=equal)
        bound = min(bound, total)
        if not (rounds and problem.times.padded and len(price)):
            return bound
        if bound >= total * (1.0 - _ROUNDING) and len(price) > _FEW:
            return bound  # nearly all is answered: all prices are the highest
        grid = self._grid(1)
        if grid is None:
            return bound
        low, best_price = self._descend(worth, grid, price, rounds, total, most=False)
        if len(price) <= _FEW:
            low, best_price = min(
                (low, best_price), self._descend(worth, grid, price, rounds, total, most=True),
                key=lambda pair: pair[0])
        finer = self._grid(_FINER)
        if finer is not None:
            low = min(low, self._priced(worth, finer, best_price)[0])
        return min(bound, low * (1.0 + _ROUNDING))

    def _descend(
        self, worth: FloatArray, grid: Grid, price: FloatArray, rounds: int, total: float, *,
        most: bool,
    ) -> tuple[float, FloatArray]:
        """Step along subgradients; return the best bound and its prices.

        A request at its highest price is worth nothing to any batch. Such prices are lowered only
        if ``most``: otherwise many of these requests would join many batches at once, and the
        subgradient would say little.
        """
        highest = worth.max(axis=0)
        best, best_price = np.inf, price
        direction, waited = np.zeros_like(price), 0
        gap = (_WIDE_GAP if most else _FIRST_GAP) * total
        for _ in range(rounds):
            bound, used = self._priced(worth, grid, price)
            if bound < best:
                waited = 0 if bound < best - 0.05 * gap else waited
                best, best_price = bound, price
            else:
                waited += 1
            slope = 1.0 - self.problem.workers * used
            direction = _MEMORY * direction + (1.0 - _MEMORY) * slope if direction.any() else slope
            if waited >= _PATIENCE:
                gap, waited, price, direction = gap * _SHRINK, 0, best_price, np.zeros_like(price)
                if gap < _LAST_GAP * total:
                    break
                direction = slope
            # Polyak's step to the bound best − gap; prices stay within 0 … highest.
            stays = (price >= highest) & (direction < 0.0 if most else True)
            move = np.where((price <= 0.0) & (direction > 0.0) | stays, 0.0, direction)
            length = float(move @ move)
            if length == 0.0:
                break
            price = np.clip(price - (bound - best + gap) / length * move, 0.0, highest)
        return best, best_price

    def _priced(
        self, worth: FloatArray, grid: Grid, price: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the bound at prices of requests, and how often the best sequence serves each."""
        from ramsis.sized import _bound_kernels as kernels

        reduced = worth - price
        value, choices = kernels.best_path(self.windows, reduced, grid)
        used = kernels.members_of_path(self.windows, reduced, grid, choices)
        return float(price.sum() + self.problem.workers * value[0]), used

    def _grid(self, finer: int) -> Grid | None:
        """Return the grid of start times; None where a cell would be longer than a batch."""
        from ramsis.sized import _bound_kernels as kernels

        time_ms, slo_ms = self.problem.times.time_ms, self.problem.slo_ms
        shortest = float(time_ms[:, 0, int(self.windows.size.min())].min())
        horizon = float(self.windows.deadline[-1])
        width = max(min(slo_ms / _CELLS_IN_SLO, shortest / 4.0) / finer, horizon / _MOST_CELLS)
        if width > shortest:
            return None
        # Batches longer than an SLO have no members in time, so their steps may be cut.
        most = int(slo_ms / width) + 3
        steps = np.clip(np.floor(np.minimum(time_ms, 2.0 * slo_ms) / width), 1, most)
        return kernels.Grid(width, int(horizon / width) + 1, time_ms, steps.astype(np.int64))


def _pieces(worth: FloatArray, work: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return request, work and slope of all pieces of the requests' hulls, by falling slope."""
    n = worth.shape[1]
    at_work, at_worth = np.zeros(n), np.zeros(n)
    request, step, slope = [], [], []
    for _ in range(len(worth)):
        with np.errstate(invalid="ignore", divide="ignore"):
            rise = np.where((work > at_work) & np.isfinite(work),
                            (worth - at_worth) / (work - at_work), -np.inf)
        model = rise.argmax(axis=0)
        steepest = rise[model, np.arange(n)]
        more = np.flatnonzero(steepest > 0.0)
        if not len(more):
            break
        request.append(more)
        step.append(work[model[more], more] - at_work[more])
        slope.append(steepest[more])
        at_work[more], at_worth[more] = work[model[more], more], worth[model[more], more]
    if not request:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    slopes = np.concatenate(slope)
    order = np.argsort(-slopes, kind="stable")
    return np.concatenate(request)[order], np.concatenate(step)[order], slopes[order]


def _shortest_windows(release: FloatArray, most: int) -> FloatArray:
    """Return the shortest time in which b requests arrive, each request among them; (most, n)."""
    n = len(release)
    shortest = np.full((most, n), np.inf)
    for b in range(1, min(most, n) + 1):
        padded = np.full(n + b - 1, np.inf)
        padded[b - 1:n] = release[b - 1:] - release[:n - b + 1]
        shortest[b - 1] = sliding_window_view(padded, b).min(axis=1)
    return shortest


def _line_below(
    table: FloatArray, step: int, size: float, sizes: tuple[int, int]
) -> tuple[float, float]:
    """Return base and slope of the line below all points (X/b, T(b, X)/b) highest at ``size``.

    It is positive at the smallest of ``sizes``. With k(β) the point that is lowest from a line of
    slope β, raising β raises the line at ``size`` as long as k(β) is left of it.
    """
    counts = np.arange(1, len(table) + 1)[:, None]
    mean = step * np.arange(table.shape[1])[None, :] / counts
    # Points are linear between columns, so one beyond each end is enough.
    near = (mean > sizes[0] - step) & (mean < sizes[1] + step)
    mean, each = mean[near], (table / counts)[near]
    low, high = 0.0, float(each.max() / size)
    for _ in range(_BISECTIONS):
        slope = (low + high) / 2.0
        above = each - slope * mean
        lowest = int(above.argmin())
        if mean[lowest] < size and above[lowest] + slope * sizes[0] > _LEAST_WORK_MS:
            low = slope
        else:
            high = slope
    return float((each - low * mean).min()), low
