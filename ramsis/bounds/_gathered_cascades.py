r"""The fluid program with cascades, with the time that batches take to fill.

Arrivals are Poisson, service times fixed, and there is one SLO. The shares y of first answers and
z of second opinions are those of :mod:`ramsis.bounds.cascades`. A batch that is in time for some
of its requests only counts as the smaller batch of these, so all requests of a batch are in time.
Let

    G(s; x) = 1 − (1 − P(Poisson(x) >= s − 1))^s,

which is at least the share of the requests of a Poisson stream that lie in some window with s of
them, if x are expected in a window (:mod:`ramsis.bounds.fluid`). Three families of rows hold for
every s and w. *First answers*: all requests of the batch arrived within SLO − l,

    Σ_{b >= s, SLO − l(m,b) <= w} y(m, b) <= G(s; λw),

whichever answers the batch mixes. *Second opinions*: the same, of the requests asked again,

    Σ_{b >= s, SLO − l(m,b) <= w} z(m, b) <= G(s; λw).

*Unsure requests*: Give each request an independent uniform number V, and let its bin under any
first model be the one in which V lies, lowest confidence first. This changes no scheduler: only
one bin of a request is ever seen, and whatever first model was chosen, it has the right
probability. So the requests with V <= σ are a Poisson stream of rate λσ that no choice of models
changes. Call a second opinion *low* where V <= σ for its whole bin and the first batch took L at
least. Low members of one second batch arrived before its start by L at least, and by
SLO − l(m₂, b) at most: within w = SLO − L − l(m₂, b). If there are s of them, each is among a
share σ·G(s; λσw) of all requests. If there are fewer, at least b − s + 1 of the batch are others:
first answers, or second opinions that are not low. That is at most (s − 1)/(b − s + 1) low ones
for each other one. Hence for all s, w, σ and L

    Σ_{b >= s, SLO − L − l(m,b) <= w} [ z_low(m, b) − (s − 1)/(b − s + 1)·(y + z_other)(m, b) ]
        <= σ·G(s; λσw).

The rows are found by separation, the columns by pricing: at dual prices the best way to answer is
known for each bin alone. What is stated comes from the dual prices: the largest amount by which a
column's worth exceeds its price is added. Two things make the search short. Columns are priced
between the prices of the program and the best ones so far, since the former swing [1]. And in the
rows for unsure requests the times of first batches, where there are more than fifty, are rounded
down to a fiftieth of the SLO, which makes windows no shorter, and rows stand for many batches.

[1] P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming",
International Transactions in Operational Research 4, 1997.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds.columns import solved

_ROUNDS = 60
_CUTS_A_ROUND = 16  # of each family
_BROKEN = 1e-7  # what a row may be off
_UNPAID = 1e-8  # what a column may be worth beyond the prices
_LITTLE, _PATIENCE = 1e-5, 8  # rounds that lower the bound by less than this end the search
_PRICES = np.array([0.8, 0.95, 1.0, 1.05, 1.25])  # over that without gathering, for first columns
_WIDE_PRICES = np.geomspace(0.002, 0.2, 4)  # over the accuracy for the shortest time
_MOST_SHARES, _MOST_TIMES = 6, 4  # σ and L tried in a round
_STEPS = 50  # of the SLO, to which more times of first batches than that are rounded down
_BEST_SO_FAR = 0.5  # weight of the best prices so far where columns are priced
_ROUNDING_MS, _ROUNDING = 1e-9, 1e-9


class Pair(NamedTuple):
    """First and second model, with the bins of the first's confidence, the lowest first."""

    first: int
    second: int
    share: FloatArray  # of the first answers in each bin, shape (Q,)
    increment: FloatArray  # accuracy that a second opinion adds in each bin, shape (Q,)


class GatheredProblem(NamedTuple):
    """Instance: M models and batches up to B at fixed service times."""

    accuracy: FloatArray  # shape (M,)
    busy_ms: FloatArray  # shape (M, B), not falling in b
    pairs: Sequence[Pair]
    slo_ms: float
    available_ms: float  # worker time per request
    load: float  # requests per ms
    violation_price: float


class _Cuts(NamedTuple):
    """Rows added as cuts: coefficients of answers by model and batch, and limits."""

    first: FloatArray  # first answers, shape (C, M, B)
    low: FloatArray  # second opinions that are low, shape (C, M, B)
    other: FloatArray  # other second opinions, shape (C, M, B)
    share: FloatArray  # σ: low are bins up to this share, shape (C,)
    least_ms: FloatArray  # L: after first batches that take this at least, shape (C,)
    limit: FloatArray  # shape (C,)

    def joined(self, more: _Cuts) -> _Cuts:
        """Return these cuts of the linear program, followed by further ones."""
        return _Cuts(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))

    def take(self, rows: IntArray) -> _Cuts:
        """Return the cuts of the linear program at the given indices."""
        return _Cuts(*(part[rows] for part in self))


class _Column(NamedTuple):
    """Answer to a request: first model and batch, and batches of the second model by bin."""

    model: int
    batch: int
    worth: float
    time_ms: float
    pair: int  # -1: no second opinion
    bins: IntArray
    batches: IntArray  # of these bins


def gathered_bound(problem: GatheredProblem, enough: float, price: float) -> float:
    """Return an upper bound on effective accuracy − price × violation rate.

    Parameters
    ----------
    enough : float
        The bound without gathering, which the result does not exceed.
    price : float
        Dual price of a ms of worker time without gathering, where the search begins.
    """
    program = _Program(problem, price)
    bounds = [enough + problem.violation_price]
    for _ in range(_ROUNDS):
        value, attained, more = program.step()
        bounds.append(min(bounds[-1], value))
        if not more or bounds[-1] - attained < _LITTLE or (
                len(bounds) > 2 * _PATIENCE
                and bounds[-1] > bounds[-1 - _PATIENCE] - _LITTLE):
            break
    return bounds[-1] - problem.violation_price


class _Asked(NamedTuple):
    """Second opinions of all columns, an entry for each column and bin; shape (n,)."""

    column: IntArray
    share: FloatArray  # of the column's requests
    model: IntArray
    batch: IntArray
    low_from: FloatArray  # least σ at which they are low
    began_ms: FloatArray  # time of the first batch, rounded down as for the rows

    def take(self, which: Any) -> _Asked:
        """Return the columns of second opinions at the given indices."""
        return _Asked(self.column[which], self.share[which], self.model[which],
                      self.batch[which], self.low_from[which], self.began_ms[which])


class _Program:
    """Linear program over the columns priced and the rows separated so far."""

    def __init__(self, problem: GatheredProblem, fluid_price: float) -> None:
        self.problem = problem
        models, longest = problem.busy_ms.shape
        self.batches = np.arange(1, longest + 1)
        self.time_ms = problem.busy_ms / self.batches
        self.window_ms = problem.slo_ms - problem.busy_ms
        step_ms = problem.slo_ms / _STEPS
        self.began_ms = problem.busy_ms
        if len(np.unique(problem.busy_ms)) > _STEPS:
            self.began_ms = np.floor(problem.busy_ms / step_ms) * step_ms
        self.low_up_to = [np.cumsum(pair.share) for pair in problem.pairs]
        # Of batches of b, how many low ones go with each other one where they are fewer than s.
        sizes = self.batches[:, None]
        self.fewer = np.where(self.batches >= sizes,
                              (sizes - 1.0) / np.maximum(self.batches - sizes + 1.0, 1.0), 0.0)
        self.cuts = _Cuts(*(np.zeros((0, models, longest)) for _ in range(3)),
                          *(np.zeros(0) for _ in range(3)))
        self.columns: list[_Column] = []
        whole, number = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._asked = _Asked(whole, number, whole, whole, number, number)
        self._seen: set[tuple[int, int, int, bytes, bytes]] = set()
        # Of each pair, whether a second batch ends in time after a first one, shape (B, B).
        self._fits = [problem.busy_ms[pair.first][:, None] + problem.busy_ms[pair.second]
                      <= problem.slo_ms + _ROUNDING_MS for pair in problem.pairs]
        self._matrix = np.zeros((0, 0))  # coefficients of the last program, (cuts, columns)
        self._best, self._best_prices = np.inf, np.zeros(0)
        cheapest = float(self.time_ms[self.window_ms >= 0.0].min())
        widest = problem.accuracy.max() / cheapest
        for price in (0.0, *_PRICES * fluid_price, *_WIDE_PRICES * widest):
            self._add([column for _, column in self._priced(float(price), self.cuts.limit)])

    def step(self) -> tuple[float, float, bool]:
        """Solve once; return the best bound, what no bound falls below, and whether to go on.

        The search goes on if columns or rows were added. The second result is −∞ if the solution
        violates rows that were missing, as its value then says nothing about the whole program.
        """
        # Rows: worker time, in units that keep the coefficients near 1; requests; the cuts.
        available_ms = self.problem.available_ms
        time_ms = np.array([column.time_ms for column in self.columns])
        unit = max(available_ms, float(time_ms.min()))
        matrix = np.vstack([time_ms / unit, np.ones(len(self.columns)), self._all_taken()])
        limits = np.array([available_ms / unit, 1.0, *self.cuts.limit])
        solution = solved("bound with gathering", A_ub=matrix, b_ub=limits,
                          c=-np.array([column.worth for column in self.columns]))
        prices = np.maximum(-solution.ineqlin.marginals, 0.0)
        best = np.zeros_like(prices)
        best[:len(self._best_prices)] = self._best_prices
        between = _BEST_SO_FAR * best + (1.0 - _BEST_SO_FAR) * prices
        cuts = self._broken(solution.x)
        columns = 0
        for tried in (between, prices) if np.isfinite(self._best) else (prices,):
            if not columns:
                columns = self._price(tried, limits, unit)
        self.cuts = self.cuts.joined(cuts)
        broken = len(cuts.limit) > 0
        return (self._best, -np.inf if broken else -float(solution.fun), columns > 0 or broken)

    def _price(self, prices: FloatArray, limits: FloatArray, unit: float) -> int:
        """Add columns of value above their prices, and record the bound that the prices prove."""
        # Each column has the coefficient 1 in the row of requests. Raising the price of this row
        # by the largest excess of a column makes the prices feasible.
        priced = self._priced(float(prices[0]) / unit, prices[2:], float(prices[1]))
        bound = float(prices @ limits) + max(max(left for left, _ in priced) - prices[1], 0.0)
        if bound < self._best:
            self._best, self._best_prices = bound, prices
        return self._add([column for left, column in priced if left - prices[1] > _UNPAID])

    def _add(self, columns: Sequence[_Column]) -> int:
        """Add the columns that the linear program lacks; return how many."""
        before, asked = len(self.columns), [self._asked]
        for column in columns:
            key = (column.model, column.batch, column.pair, column.bins.tobytes(),
                   column.batches.tobytes())
            if key in self._seen:
                continue
            self._seen.add(key)
            if column.pair >= 0:
                pair, number = self.problem.pairs[column.pair], len(column.bins)
                asked.append(_Asked(
                    np.full(number, len(self.columns)), pair.share[column.bins],
                    np.full(number, pair.second), column.batches,
                    self.low_up_to[column.pair][column.bins],
                    np.full(number, self.began_ms[column.model, column.batch - 1])))
            self.columns.append(column)
        self._asked = _Asked(*map(np.concatenate, zip(*asked, strict=True)))
        return len(self.columns) - before

    def _all_taken(self) -> FloatArray:
        """Return the coefficients of all columns in all cuts, shape (C, columns)."""
        rows, columns = self._matrix.shape
        right = self._taken(columns, self.cuts.take(np.arange(rows)))
        below = self._taken(0, self.cuts.take(np.arange(rows, len(self.cuts.limit))))
        self._matrix = np.vstack([np.hstack([self._matrix, right]), below])
        return self._matrix

    def _taken(self, since: int, cuts: _Cuts) -> FloatArray:
        """Return the coefficients of columns ``since`` and later in some cuts."""
        columns = self.columns[since:]
        taken = cuts.first[:, [column.model for column in columns],
                           [column.batch - 1 for column in columns]]
        asked = self._asked.take(slice(np.searchsorted(self._asked.column, since), None))
        low = (asked.low_from <= cuts.share[:, None] + _ROUNDING) & (
            asked.began_ms >= cuts.least_ms[:, None] - _ROUNDING_MS)
        place = slice(None), asked.model, asked.batch - 1
        again = asked.share * np.where(low, cuts.low[place], cuts.other[place])
        with_them, begin = np.unique(asked.column - since, return_index=True)
        if len(begin):
            taken[:, with_them] += np.add.reduceat(again, begin, axis=1)
        return np.asarray(taken)

    def _low(self, pair: int, cuts: _Cuts) -> NDArray[np.bool_]:
        """Return which confidence bins of a pair lie within each cut's share, (C, Q)."""
        return np.asarray(self.low_up_to[pair] <= cuts.share[:, None] + _ROUNDING)

    def _priced(
        self, price: float, duals: FloatArray, paid: float = -np.inf
    ) -> list[tuple[float, _Column]]:
        """Return the best column of each model and of each pair, with its value less prices.

        Pairs without a column worth more than ``paid`` are left out.
        """
        active = np.flatnonzero(duals)
        problem, cuts, duals = self.problem, self.cuts.take(active), duals[active]
        worth = problem.accuracy + problem.violation_price
        alone = worth[:, None] - price * self.time_ms - np.tensordot(duals, cuts.first, 1)
        alone = np.where(self.window_ms >= 0.0, alone, -np.inf)
        other = price * self.time_ms + np.tensordot(duals, cuts.other, 1)
        columns, none = [], np.zeros(0, dtype=np.int64)
        for m in np.flatnonzero(self.window_ms[:, 0] >= 0.0).tolist():
            b = int(alone[m].argmax())
            columns.append((float(alone[m, b]), _Column(
                m, b + 1, float(worth[m]), float(self.time_ms[m, b]), -1, none, none)))
        for p, pair in enumerate(problem.pairs):
            cost = np.where(self._fits[p], other[pair.second], np.inf)
            # A low second opinion costs no less than another one: this bound leaves few batches.
            most = alone[pair.first] + np.maximum(
                pair.increment - cost.min(axis=1)[:, None], 0.0) @ pair.share
            firsts = np.flatnonzero(most > paid)
            if not len(firsts):
                continue
            first_ms = self.began_ms[pair.first, firsts]
            # By first batch, bin and second batch; without rows it is the same for all bins.
            cost = cost[firsts, None, :]
            if len(active):
                is_low = (first_ms[:, None] >= cuts.least_ms - _ROUNDING_MS)[:, None, :] & (
                    self._low(p, cuts).T)
                more = duals[:, None] * (cuts.low - cuts.other)[:, pair.second]
                cost = cost + is_low.astype(float) @ more
            gain = pair.increment - cost.min(axis=2)
            value = alone[pair.first, firsts] + np.maximum(gain, 0.0) @ pair.share
            k = int(value.argmax())
            bins = np.flatnonzero(gain[k] > 0.0)
            if len(bins) and np.isfinite(value[k]):
                batch = np.broadcast_to(cost[k].argmin(axis=1), pair.share.shape)
                batches, share = batch[bins] + 1, pair.share[bins]
                columns.append((float(value[k]), _Column(
                    pair.first, int(firsts[k]) + 1,
                    float(worth[pair.first] + share @ pair.increment[bins]),
                    float(self.time_ms[pair.first, firsts[k]]
                          + share @ self.time_ms[pair.second, batches - 1]), p, bins, batches)))
        return columns

    def _broken(self, amount: FloatArray) -> _Cuts:
        """Return the rows of each family that the solution violates most."""
        nothing = np.zeros_like(self.time_ms)
        first = self._totals(np.array([column.model for column in self.columns]),
                             np.array([column.batch for column in self.columns]), amount.clip(0.0))
        share = amount[self._asked.column] * self._asked.share
        asked, share = self._asked.take(share > 0.0), share[share > 0.0]
        result = [_Cuts(row, nothing[None], nothing[None], *terms)
                  for _, row, _, *terms in self._worst(first, nothing, sigma=1.0, least_ms=0.0)]
        if len(share):
            second = self._totals(asked.model, asked.batch, share)
            result += [_Cuts(nothing[None], row, row, *terms)
                       for _, row, _, *terms in self._worst(second, nothing, sigma=1.0,
                                                            least_ms=0.0)]
            unsure = []
            for sigma in _spread(np.minimum(asked.low_from, 1.0), _MOST_SHARES):
                for least_ms in _spread(asked.began_ms, _MOST_TIMES):
                    is_low = (asked.low_from <= sigma + _ROUNDING) & (
                        asked.began_ms >= least_ms - _ROUNDING_MS)
                    low = self._totals(asked.model, asked.batch, share * is_low)
                    unsure += self._worst(low, first + second - low, sigma, least_ms)
            unsure.sort(key=lambda item: -item[0])
            result += [_Cuts(-other, row, -other, *terms)
                       for _, row, other, *terms in unsure[:_CUTS_A_ROUND]]
        return _Cuts(*map(np.concatenate, zip(*result, strict=True))) if result else (
            self.cuts.take(np.zeros(0, dtype=np.int64)))

    def _totals(self, model: IntArray, batch: IntArray, amount: FloatArray) -> FloatArray:
        """Return the amounts summed by model and batch, shape (M, B)."""
        models, longest = self.time_ms.shape
        totals = np.bincount(model * longest + batch - 1, amount, models * longest)
        return totals.reshape(models, longest).astype(float)

    def _worst(
        self, low: FloatArray, others: FloatArray, sigma: float, least_ms: float
    ) -> list[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]]:
        """Return violated rows, worst first, at most one for each width w.

        Each is the excess, the coefficients of ``low`` and of ``others`` (1, M, B), σ, L and the
        limit, of shape (1,).
        """
        window = self.window_ms - least_ms
        widths = np.unique(window[(low > 0.0) & (window > -_ROUNDING_MS)].clip(0.0))
        if not len(widths):
            return []
        # By width w and size s: the low ones in batches of s or more, less what others allow.
        sizes = self.batches
        inside = (window > -_ROUNDING_MS) & (window <= widths[:, None, None] + _ROUNDING_MS)
        by_size, other = ((inside * part).sum(axis=1) for part in (low, others))
        expected = self.problem.load * sigma * widths[:, None]
        limit = sigma * (1.0 - pdtr(sizes - 2.0, expected) ** sizes)
        excess = np.cumsum(by_size[:, ::-1], axis=1)[:, ::-1] - other @ self.fewer.T - limit
        size = excess[:, 1:].argmax(axis=1) + 1 if len(sizes) > 1 else np.zeros(0, dtype=int)
        result = []
        for w, s in enumerate(size.tolist()):
            if excess[w, s] > _BROKEN:
                row = (inside[w] & (sizes > s)).astype(float)[None]
                result.append((float(excess[w, s]), row, row * self.fewer[s], np.array([sigma]),
                               np.array([least_ms]), limit[w, s:s + 1]))
        return sorted(result, key=lambda item: -item[0])[:_CUTS_A_ROUND]


def _spread(values: FloatArray, most: int) -> list[float]:
    """Return the distinct values, rising; evenly spaced ``most`` of them if there are more."""
    distinct = np.unique(values)
    if len(distinct) > most:
        distinct = distinct[np.linspace(0, len(distinct) - 1, most).round().astype(int)]
    return [float(value) for value in distinct]
