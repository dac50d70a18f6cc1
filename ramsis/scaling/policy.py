"""Synthesis of a scaling policy: search for the cheapest scaling table that meets a target.

Prices turn the target into one reward: a violation costs ``violation`` worker-seconds, a unit of
accuracy that a request misses ``accuracy``. The prices are raised until the target is met on the
fitted part of the trace. The search uses expected figures, computed interval by interval from the
decision tables (:func:`expected_run`). The result is then simulated; the target of the expected
figures is shifted by the difference, and the search repeated.

A trace need not follow any fitted dynamics. So tables with workers in proportion to the load are
candidates as well: with a floor, with a slower scale-down, by the mean load of several intervals,
down to a constant number. The cheapest candidate that meets the target on the fitted part wins.
It has to meet it with the margin of a one-sided 99 % interval, as the mean over finitely many
requests is random. If no candidate does, the margin is waived.

If prices are given instead of a target, the decision process is solved at these. Candidates in
proportion to the load use the multiple with the least expected cost. The candidate with the least
cost on the fitted part, at the given prices, wins.

With a forecast, a second set of thresholds, used while the forecast is trusted, is chosen in the
same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.arrays import FloatArray
from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError, NotConvergedError
from ramsis.runtime.scaling_table import ScalingControl, ScalingTable, stages_of
from ramsis.scaling.fleet import DecisionTables, FleetTerms, ScaledFleet, play
from ramsis.scaling.levels import Forecast, LoadDynamics, fit_loads, interval_loads
from ramsis.scaling.prices import Delivered, Prices, meets
from ramsis.scaling.rule import Observation
from ramsis.scaling.synthesis import FleetTables, WorkerDecisions, concave_gains, solve_workers

# The search for prices and proportions.
_CORRECTIONS = 5  # simulated corrections of the aim; bisection once one met and one missed it
_CLOSE = 0.02  # slack, as a share of the allowed violations or missed accuracy, that ends it
_STEP = 1.02  # bisection ends within this factor: 2 % of 50 workers is one
_NEAR = 4.0  # a corrected search spans this factor each way: 8 halvings, not 10 of all prices
_SWEEPS = 80  # limit per price during the search; each price starts from the last one's values
# Tolerances of the average cost, in costs of one worker: 0.25 % of 20 workers during the search,
# and the certificate's at the end. The final solution is kept unless it costs _AS_GOOD more than
# the rough one, a difference below the error of the rough one.
_ROUGHLY, _FINALLY, _AS_GOOD = 0.05, 1e-3, 2e-3
_QUANTILE = 2.326  # one-sided 99 % quantile of the normal distribution: margin of simulated means

# Utility of accuracy. With a target it has the slope 1 - _BEND * tanh((accuracy - target) /
# width): 1.8 below the target and 0.2 above, so that it always increases. Each pair holds a
# width, and the price of a violation per unit of accuracy.
_BEND = 0.8
_SHAPES = ((0.01, 0.0), (0.05, 0.0), (0.01, 10.0))
_LINEAR = ((math.inf, 0.0),)  # at given prices utility is linear in accuracy

# Workers in proportion to the load: (floor as a share of the workers for the highest load, ratio
# of the scale-down to the scale-up threshold, window of the mean load in intervals). Windows of 4
# and 12 are 1 and 3 min at 15 s. At prices: multiples from 1/4 to 4, 6 % apart.
_PROPORTIONS = (*((floor, keep, 1) for floor in (0.0, 0.3, 0.6, 1.0) for keep in (1.0, 1.3)),
                *((floor, 1.0, window) for window in (4, 12) for floor in (0.0, 0.6)))
_MULTIPLES = np.geomspace(0.25, 4.0, 49)

# Load levels start at half of one worker's capacity, where one is enough. They extend to four
# times the highest observed load, in steps of 5 % or more: with 1.3 times, a load step of 1.6
# times on the held-out half left a policy at 19 workers, and it missed its target.
_ONE_IS_ENOUGH = 0.5
_BEYOND, _BEYOND_STEP = 4.0, 1.05

# The held-out part of a trace may have another mean load, and other violations and accuracies at
# the same load. So candidates are ranked with surcharges: up to _CAUTION for a table that does not
# scale up in proportion to a load _RISE times as high, and _DRIFT for one without steering.
_CAUTION, _RISE, _DRIFT = 0.1, 1.3, 0.05

# Steering compensates missed accuracy within the requests of _STEERED mean intervals, 5 min at
# 15 s. Its set point is moved until the simulated accuracy is between the target and _ENOUGH above
# it; a third of _ENOUGH is aimed at.
_STEERED, _STEERED_TRIES, _ENOUGH = 20, 4, 3e-4


class TableRule:
    """Scaling rule that follows a scaling table."""

    def __init__(self, table: ScalingTable) -> None:
        self.control = ScalingControl(table)

    def wanted(self, seen: Observation) -> int:
        """Return the number of workers that should be active or starting."""
        return self.control.wanted(seen.load_qps, seen.active, seen.starting, seen.forecast_qps,
                                   seen.ahead_qps)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Scaling table with its origin and its simulated figures on the fitted part of a trace.

    ``prices`` and ``decisions`` are those of the decision process, None for a table in proportion
    to the load.
    """

    table: ScalingTable
    prices: Prices | None
    dynamics: LoadDynamics
    decisions: WorkerDecisions | None
    delivered: Delivered


def expected_run(
    loads_qps: FloatArray, control: ScalingControl, tables: FleetTables, fleet: ScaledFleet,
    start: int, forecast: Forecast | None = None,
) -> Delivered:
    """Estimate cost and quality of a scaling table from the expectations of the decision tables.

    ``loads_qps`` are those of successive intervals, of which ``forecast`` is a forecast.
    ``control`` is a new instance, as it keeps state; ``start`` workers are active at the
    beginning.
    """
    stages, partial = stages_of(fleet.startup_s, fleet.interval_s)
    active, ages = start, list[int]()
    whole, part = np.empty(len(loads_qps), int), np.empty(len(loads_qps), int)
    worker_s = 0.0
    # Workers by interval, as the fleet would have them: ``whole`` active throughout the interval,
    # ``part`` with those whose start-up ends within it (for the share ``partial`` of its time).
    for at in range(len(loads_qps)):
        if at:
            ahead = () if forecast is None else forecast.told(
                at * fleet.interval_s, fleet.startup_s + fleet.interval_s)
            wanted = control.wanted(float(loads_qps[at - 1]), active, len(ages), *ahead)
            wanted = min(max(wanted, fleet.least), fleet.most)
            more = wanted - active - len(ages)
            if more > 0:
                ages += [0] * more
            elif more < 0:  # cancel starting workers, the latest first, then remove active ones
                dropped = min(len(ages), -more)
                del ages[len(ages) - dropped:]
                active += more + dropped
        worker_s += (active + len(ages)) * fleet.interval_s
        ages = [age + 1 for age in ages]
        ready = sum(age >= stages for age in ages)
        whole[at] = active + (ready if stages == 0 else 0)
        active, ages = active + ready, ages[ready:]
        part[at] = active
    # Means over the requests, by looking up all intervals with the same number of workers at once.
    weight, lost, answered = float(loads_qps.sum()), 0.0, 0.0
    for number, share in ((whole, 1.0 - partial), (part, partial)):
        for workers in np.unique(number) if share else ():
            met = loads_qps[number == workers]
            accuracy, violation = tables.delivered(met, int(workers))
            answered += share * float(accuracy @ met)
            lost += share * float(violation @ met)
    return Delivered(worker_s, lost / weight, answered / weight, weight * fleet.interval_s)


class _ByPrice:
    """Maker of scaling tables: solves the scaling decision process at given prices.

    ``aim`` and ``width`` are the target accuracy and the width around it in which more accuracy
    loses its worth (infinite: never); ``share`` is the price of a violation in units of the price
    of accuracy.
    """

    between = 1e-5, 1e3  # range of ``level``

    def __init__(self, dynamics: LoadDynamics, tables: FleetTables, fleet: ScaledFleet, aim: float,
                 width: float, share: float) -> None:
        self.share = share
        self.dynamics, self.tables, self.fleet = dynamics, tables, fleet
        loads, likely = dynamics.next_loads()
        late, missed = (np.empty((len(loads), fleet.most + 1)) for _ in range(2))
        for workers in range(fleet.most + 1):
            accuracy, violation = tables.delivered(loads, workers)
            late[:, workers] = (violation * loads * likely).sum(axis=1)
            worth = accuracy
            if math.isfinite(width):  # the integral of the slope, see _BEND
                over = (accuracy - aim) / width
                worth = width * (over - _BEND * np.logaddexp(over, -over))
            missed[:, workers] = -(worth * loads * likely).sum(axis=1)
        self.late, self.missed = late, missed
        self.stages, self.partial = stages_of(fleet.startup_s, fleet.interval_s)
        self.values: FloatArray | None = None

    def solved(
        self, prices: Prices, tolerance: float, sweeps: int | None = None
    ) -> WorkerDecisions:
        """Solve the decision process of scaling at some prices."""
        reward = -self.fleet.interval_s * (prices.violation * self.late
                                           + prices.accuracy * self.missed)
        decisions = solve_workers(concave_gains(reward), self.dynamics.transition,
                                  cost=self.fleet.interval_s, stages=self.stages,
                                  partial=self.partial, tolerance=tolerance, initial=self.values,
                                  sweeps=sweeps)
        self.values = decisions.values
        return decisions

    def at(self, level: float) -> _Table:
        """Return the table at a price of accuracy, or of violations if accuracy is no target."""
        prices = (Prices(level, 0.0) if math.isinf(self.share)
                  else Prices(level * self.share, level))
        decisions = self.solved(prices, _ROUGHLY, _SWEEPS + 2 * self.stages)
        return self._table(decisions), decisions, prices

    def finally_at(self, prices: Prices) -> _Table:
        """Return the table at prices, solved to the certificate's tolerance."""
        decisions = self.solved(prices, _FINALLY)
        return self._table(decisions), decisions, prices

    def _table(self, decisions: WorkerDecisions) -> ScalingTable:
        """Build the scaling table of solved decisions, extended to loads beyond their grid."""
        loads_qps, levels = self.dynamics.levels_qps, _levels(self.dynamics, self.tables,
                                                              self.fleet)
        thresholds = decisions.thresholds.reshape(len(loads_qps), -1, self.stages + 1)
        # Beyond the loads of the dynamics, scale workers so that the load per worker stays equal.
        near = np.clip(np.searchsorted(loads_qps, levels), 0, len(loads_qps) - 1)
        share = (levels / loads_qps[near])[:, None, None]
        limits = np.minimum(np.ceil(share * thresholds[near] - 1e-9), self.fleet.most)
        return _table_of(levels, limits.astype(np.int64), self.dynamics, self.fleet)


class _InProportion:
    """Maker of scaling tables with workers in proportion to the mean load of a window.

    ``floor`` is the least number, as a share of the workers for the highest load. Active workers
    are kept up to ``keep`` times the number to which workers are started.
    """

    between = 0.05, 50.0

    def __init__(self, dynamics: LoadDynamics, tables: FleetTables, fleet: ScaledFleet,
                 highest_qps: float, floor: float, keep: float, window: int) -> None:
        self.dynamics, self.tables, self.fleet = dynamics, tables, fleet
        self.window = window
        self.levels = _levels(dynamics, tables, fleet)
        loads = np.maximum(self.levels, floor * highest_qps)
        self.needed, self.keep = loads / tables.largest_qps, keep
        self.stages = stages_of(fleet.startup_s, fleet.interval_s)[0]

    def at(self, level: float) -> _Table:
        """Return the table with ``level`` times the workers that just meet the target."""
        start = np.minimum(np.ceil(level * self.needed - 1e-9), self.fleet.most)
        keep = np.minimum(np.ceil(self.keep * level * self.needed - 1e-9), self.fleet.most)
        limits = np.stack([start, *[keep] * self.stages], axis=1).astype(np.int64)[:, None, :]
        limits = np.repeat(limits, len(self.dynamics.trends), axis=1)
        return _table_of(self.levels, limits, self.dynamics, self.fleet, self.window), None, None


_Table = tuple[ScalingTable, WorkerDecisions | None, Prices | None]
_Made = _ByPrice | _InProportion
_Ranked = tuple[tuple[bool, float], Candidate, _Made]
"""Candidate with its rank: whether the target is met without the margin only, then the cost."""


def _levels(dynamics: LoadDynamics, tables: FleetTables, fleet: ScaledFleet) -> FloatArray:
    """Return the load levels of the dynamics, extended to the loads that the limits can serve."""
    loads_qps = dynamics.levels_qps
    step = max(float(loads_qps[1] / loads_qps[0]), _BEYOND_STEP)
    most = math.floor(math.log(_BEYOND) / math.log(step))
    beyond = step ** np.arange(1, most + 1)
    below, above = loads_qps[0] / beyond[::-1], loads_qps[-1] * beyond
    return np.concatenate([below[below > _ONE_IS_ENOUGH * tables.largest_qps], loads_qps,
                           above[above < fleet.most * tables.largest_qps]])


def _table_of(
    levels: FloatArray, thresholds: NDArray[np.int64], dynamics: LoadDynamics, fleet: ScaledFleet,
    window: int = 1,
) -> ScalingTable:
    """Build a scaling table from thresholds, shape (L, B, d+1)."""
    return ScalingTable(
        interval_s=fleet.interval_s, startup_s=fleet.startup_s, least=fleet.least,
        most=fleet.most, levels_qps=tuple(levels.tolist()),
        trends=tuple(dynamics.trends.tolist()), smoothing=dynamics.smoothing,
        forecast_error=dynamics.forecast_error(), window=window,
        thresholds=tuple(tuple(map(tuple, row)) for row in thresholds.tolist()))


def _table_makers(
    times: FloatArray, loads: FloatArray, tables: FleetTables, target: Targets | Prices,
    fleet: ScaledFleet, duration_s: float,
) -> Iterator[_Made]:
    """Yield makers of scaling tables; their one parameter, ``level``, raises cost and quality."""
    # With a target of accuracy the price of accuracy is searched, for each shape of its utility;
    # with one of violations only theirs (the infinite share).
    aim: float | None = None
    shapes: tuple[tuple[float, float], ...] = _LINEAR
    if isinstance(target, Targets):
        aim = target.min_effective_accuracy
        shapes = ((1.0, math.inf),) if aim is None else _SHAPES
    for trends in (1, 5):
        dynamics = fit_loads(times, duration_s=duration_s, interval_s=fleet.interval_s,
                             trends=trends, least_qps=_ONE_IS_ENOUGH * tables.largest_qps)
        for width, share in shapes:
            yield _ByPrice(dynamics, tables, fleet, aim or 0.0, width, share)
        if trends == 1:  # these tables do not depend on the trend of the load
            for floor, keep, window in _PROPORTIONS:
                yield _InProportion(dynamics, tables, fleet, float(loads.max()), floor, keep,
                                    window)


def choose_policy(
    arrival_ms: ArrayLike, tables: FleetTables, target: Targets | Prices, fleet: ScaledFleet, *,
    duration_s: float, seed: int = 0, forecast: Forecast | None = None,
    on_play: Callable[[], object] | None = None,
) -> Candidate:
    """Choose the cheapest scaling table that meets a target on a trace, or the cheapest at prices.

    Refuse a target that no table meets. ``arrival_ms``, ``duration_s`` and ``forecast`` are of the
    fitted part of the trace; ``on_play`` is called after each simulated run.
    """
    times = np.asarray(arrival_ms, dtype=float)
    fitted = _Fitted(times, interval_loads(times, fleet.interval_s, duration_s), tables,
                     tables.for_fleet(), target, fleet, duration_s, seed, on_play)
    candidate = fitted.cheapest(_table_makers(times, fitted.loads, tables, target, fleet,
                                              duration_s))
    if forecast is None:
        return candidate
    # Choose the thresholds with the forecast on top of the table that needs no forecast.
    makers = [_InProportion(candidate.dynamics, tables, fleet, float(fitted.loads.max()), 0.0,
                            keep, 1)
              for keep in (1.0, 1.3)]
    try:
        knowing = replace(fitted, base=candidate.table, forecast=forecast).cheapest(makers)
    except InfeasibleError:
        return candidate
    return replace(candidate, table=knowing.table, delivered=knowing.delivered)


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Fitted part of a trace on which candidate tables are simulated and ranked.

    With a forecast, a candidate's thresholds apply while the forecast is trusted, else those of
    ``base``.
    """

    times: FloatArray
    loads: FloatArray
    tables: FleetTables
    played: DecisionTables
    target: Targets | Prices
    fleet: ScaledFleet
    duration_s: float
    seed: int
    on_play: Callable[[], object] | None = None
    base: ScalingTable | None = None
    forecast: Forecast | None = None

    def cheapest(self, makers: Iterable[_Made]) -> Candidate:
        """Return the cheapest candidate; refuse a target that none meets."""
        if isinstance(self.target, Prices):
            return self._cheapest_at(self.target, makers)
        return self._cheapest_that_meets(self.target, makers)

    def _cheapest_at(self, prices: Prices, makers: Iterable[_Made]) -> Candidate:
        """Solve or try the tables of all makers at prices; return the cheapest in simulation."""
        best_accuracy = float(self.played.accuracy.max())
        tried: list[tuple[float, Candidate]] = []
        for make in makers:
            try:
                table, decisions, solved_at = (
                    make.finally_at(prices) if isinstance(make, _ByPrice) else
                    min(map(make.at, _MULTIPLES.tolist()), key=lambda made: prices.total(
                        self.expected(made[0]), best_accuracy)))
            except NotConvergedError:  # a nearly constant load; the proportional tables remain
                continue
            real, _ = self.delivered(table)
            tried.append((prices.total(real, best_accuracy) * self.caution(table), Candidate(
                self.whole(table), solved_at, make.dynamics, decisions, real)))
        return min(tried, key=lambda priced: priced[0])[1]

    def _cheapest_that_meets(self, target: Targets, makers: Iterable[_Made]) -> Candidate:
        """Simulate the tables of all makers, and return the cheapest that meets the target."""
        best: _Ranked | None = None
        nearest: Delivered | None = None
        for make in makers:
            cheapest: _Ranked | None = None
            search = _Search(make, self, target)
            for expected, (table, decisions, prices) in search.rounds():
                real, cautious = self.delivered(table)
                if meets(real, target):
                    rank = not meets(cautious, target), real.worker_s * self.caution(table)
                    if cheapest is None or rank < cheapest[0]:
                        cheapest = rank, Candidate(self.whole(table), prices, make.dynamics,
                                                   decisions, real), make
                elif nearest is None or _short(target, real) < _short(target, nearest):
                    nearest = real
                search.learn(expected, cautious)
            if cheapest is not None:
                best = min((ranked for ranked in (best, cheapest, self.steered(target, cheapest))
                            if ranked is not None), key=lambda ranked: ranked[0])
        if best is None:
            assert nearest is not None
            raise InfeasibleError(
                f"not met by up to {self.fleet.most} workers on the part that is fitted; the best "
                "that can",
                where=f"target of at most {target.max_violation:g} violations and at least "
                f"{target.min_effective_accuracy or 0:g} effective accuracy",
                value=f"{nearest.violation_rate:.4g} violations, effective accuracy "
                f"{nearest.effective_accuracy:.4f}")
        rank, candidate, make = best
        if isinstance(make, _InProportion) or candidate.prices is None:
            return candidate
        # The search used a rough solution: replace it by the exact one unless that is worse.
        table, decisions, prices = make.finally_at(candidate.prices)
        if candidate.table.steering is not None:
            table = replace(table, steering=candidate.table.steering)
        real = candidate.delivered
        if table.thresholds != candidate.table.thresholds:
            real, cautious = self.delivered(table)
            if not meets(cautious if not rank[0] else real, target) or (
                    real.worker_s > (1 + _AS_GOOD) * candidate.delivered.worker_s):
                return candidate
        return Candidate(table, prices, make.dynamics, decisions, real)

    def steered(self, target: Targets, ranked: _Ranked) -> _Ranked | None:
        """Return the candidate with steering, set to the accuracy that just meets the target."""
        _, candidate, make = ranked
        aim = target.min_effective_accuracy
        # Workers that take more than half of the steering window to start come too late.
        late = make.stages > _STEERED / 2
        if aim is None or late or self.base is not None or candidate.table.window > 1:
            return None
        accuracy, best = aim, None
        for _ in range(_STEERED_TRIES):
            steering = self.tables.steering(min(max(accuracy, 0.0), 1.0),
                                            _STEERED * self.fleet.interval_s * self.loads.mean())
            if steering is None:
                return None
            table = replace(candidate.table, steering=steering)
            real, cautious = self.delivered(table)
            over = cautious.effective_accuracy - aim
            if meets(cautious, target):
                rank = False, real.worker_s * self.caution(table)
                if best is None or rank < best[0]:
                    best = rank, replace(candidate, table=table, delivered=real), make
                if over <= _ENOUGH:
                    break
            accuracy += _ENOUGH / 3.0 - over
        return best

    def caution(self, table: ScalingTable) -> float:
        """Return the cost factor of a table by how well it adapts, see _CAUTION and _DRIFT."""
        usual, more = (table.wanted(factor * float(self.loads.mean()), 0, 0)
                       for factor in (1.0, _RISE))
        followed = math.log(more / usual) / math.log(_RISE)
        surcharge = 1.0 + _CAUTION * (1.0 - min(max(followed, 0.0), 1.0))
        steers = table.steering is not None or self.base is not None
        return surcharge * (1.0 if steers else 1.0 + _DRIFT)

    def whole(self, table: ScalingTable) -> ScalingTable:
        """Return the table to simulate: itself, or as forecast thresholds on top of ``base``."""
        base, forecast = self.base, self.forecast
        if base is None or forecast is None:
            return table
        return replace(base, forecast_error=forecast.error,
                       forecast_thresholds=tuple(row[0] for row in table.thresholds))

    def delivered(self, table: ScalingTable) -> tuple[Delivered, Delivered]:
        """Simulate a table; return its figures and their pessimistic one-sided 99 % bounds."""
        table = self.whole(table)
        run = play(self.times, self.played, TableRule(table), FleetTerms(
            **asdict(self.fleet), start=self.start(table), duration_s=self.duration_s,
            seed=self.seed, forecast=self.forecast))
        if self.on_play is not None:
            self.on_play()
        worth = np.where(run.model >= 0, self.played.accuracy[np.maximum(run.model, 0)], 0.0)
        reach = _QUANTILE / math.sqrt(max(run.requests, 1))
        late, real = run.violation_rate, Delivered.of(run)
        return real, real._replace(
            violation_rate=late + reach * math.sqrt(late * (1.0 - late)),
            effective_accuracy=run.effective_accuracy - reach * float(worth.std()))

    def expected(self, table: ScalingTable) -> Delivered:
        """Return the figures that a scaling table is expected to reach on the fitted loads."""
        table = self.whole(table)
        return expected_run(self.loads, ScalingControl(table), self.tables, self.fleet,
                            self.start(table), self.forecast)

    def start(self, table: ScalingTable) -> int:
        """Return the initial number of workers, by the mean load."""
        return table.wanted(float(self.loads.mean()), 0, 0)


class _Search:
    """Search for the cheapest table of a maker whose simulated figures meet a target.

    It bisects on expected figures, whose aim is corrected by the error that simulations show.
    """

    def __init__(self, make: _Made, fitted: _Fitted, target: Targets) -> None:
        self.make, self.fitted, self.target = make, fitted, target
        self.aim, self.done, self.former = target, False, -1.0
        self.between = make.between
        self.tried: dict[bool, float] = {}  # last expected accuracy, by whether the target was met

    def rounds(self) -> Iterator[tuple[Delivered, _Table]]:
        """Yield the tables to simulate; pass the figures of each to :meth:`learn`."""
        for _ in range(_CORRECTIONS):
            yield self._cheapest()
            if self.done:
                return

    def learn(self, expected: Delivered, real: Delivered) -> None:
        """Correct the figures that the search aims at by the error of those expected before."""
        target, aim = self.target, self.aim
        ratio = max(real.violation_rate, 1e-9) / max(target.max_violation, 1e-9)
        least = target.min_effective_accuracy
        short = (least or 0.0) - real.effective_accuracy
        slack = min(1.0 - ratio, math.inf if least is None else -short / max(1.0 - least, 1e-9))
        self.done = 0 <= slack <= _CLOSE or expected.worker_s == self.former
        self.former = expected.worker_s
        violation = max(expected.violation_rate, 1e-9) / max(ratio, 0.05)
        self.tried[slack >= 0] = expected.effective_accuracy
        aimed = (sum(self.tried.values()) / 2 if len(self.tried) == 2
                 else expected.effective_accuracy + short)
        self.aim = replace(
            aim, max_violation=min(violation if ratio > 1 else max(violation, aim.max_violation),
                                   0.999),
            min_effective_accuracy=None if least is None else min(max(aimed, 1e-9), 1.0))

    def _cheapest(self) -> tuple[Delivered, _Table]:
        """Find the cheapest table that meets the aim, by bisection of the level's logarithm.

        Return the table of the highest level if none does.
        """
        low, high = self.between
        best = self._at(high)
        while high > low * _STEP:
            middle = math.sqrt(low * high)
            tried = self._at(middle)
            if meets(tried[0], self.aim):
                high, best = middle, tried
            else:
                low = middle
        # The corrected aim is met near this level, so the next search spans fewer levels.
        lowest, highest = self.make.between
        self.between = max(high / _NEAR, lowest), min(high * _NEAR, highest)
        return best

    def _at(self, level: float) -> tuple[Delivered, _Table]:
        candidate = self.make.at(level)
        return self.fitted.expected(candidate[0]), candidate


def _short(target: Targets, real: Delivered) -> float:
    """Return the shortfall of figures from the target, 0 if it is met."""
    return (max(real.violation_rate - target.max_violation, 0.0)
            + max((target.min_effective_accuracy or 0.0) - real.effective_accuracy, 0.0))
