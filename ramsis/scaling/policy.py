"""A scaling policy: the scaling table as a rule that a fleet can play, and how it was chosen.

Prices turn the target into one reward: a violation costs ``violation`` worker-seconds, a unit of
accuracy that a request misses ``accuracy``. The prices are raised until the target is met on the
fitted part of the trace. That is first looked for by the promises of the decision tables alone,
interval by interval (:func:`expected_run`), and then played; by how much the played figures
differ from the expected ones, the target of the expected ones is shifted, and so on.

A part of a trace need not follow any dynamics. So numbers of workers in proportion to the load,
some of them with a floor or kept for longer, are tried as well, down to one number for all loads.
What costs least and meets the target on the fitted part is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError, describe
from ramsis.runtime.scaling_table import ScalingControl, ScalingTable
from ramsis.scaling.decision import WorkerDecisions, concave_gains, solve_workers, stages_of
from ramsis.scaling.fleet import DecisionTables, play
from ramsis.scaling.levels import LoadDynamics, fit_loads, interval_loads
from ramsis.scaling.rule import Observation
from ramsis.scaling.synthesis import FleetTables, reached

__all__ = [
    "Candidate",
    "Delivered",
    "Prices",
    "ScaledFleet",
    "ScalingPolicy",
    "choose_policy",
    "expected_run",
]

FloatArray = NDArray[np.float64]

_CORRECTIONS = 5  # times that the expected figures are corrected by played ones
_STEP = 1.02  # of prices and proportions
_NEAR = 4.0  # within which factor they change when the aim is corrected
_ONE_IS_ENOUGH = 0.5  # of the load that one worker carries within the target
_SWEEPS = 80  # while prices are looked for: the values at one price begin those at the next
_ROUGHLY, _FINALLY = 0.05, 1e-3  # tolerances of the averages, in costs of a worker
_SHAPES = ((0.01, 0.0), (0.05, 0.0), (0.01, 10.0))
"""What is tried where accuracy is a target: how far from it a unit of accuracy becomes worth less,
and the price of a violation per unit of accuracy."""
_FLOORS, _KEEPS = (0.0, 0.3, 0.6, 1.0), (1.0, 1.3)
_AS_GOOD = 2e-3
_CAUTION = 0.05
_BEND = 0.8
_CLOSE = 0.02  # of the violations allowed, or of what accuracy may be missed: near enough


class Prices(NamedTuple):
    """Worker-seconds that a violation costs, and a unit of accuracy that a request misses."""

    violation: float
    accuracy: float


class Delivered(NamedTuple):
    """What a run costs and delivers."""

    worker_s: float
    violation_rate: float
    effective_accuracy: float


@dataclass(frozen=True, slots=True)
class ScaledFleet:
    """How a fleet is scaled.

    Attributes
    ----------
    slo_ms, startup_s, interval_s : float
        Deadline after arrival, what a worker takes to start, and time between decisions.
    least, most : int
        Workers.
    """

    slo_ms: float
    startup_s: float
    interval_s: float
    least: int
    most: int


class ScalingPolicy:
    """A scaling table as a rule of scaling."""

    def __init__(self, table: ScalingTable) -> None:
        self.control = ScalingControl(table)

    def wanted(self, seen: Observation) -> int:
        """Workers that should be active or starting."""
        return self.control.wanted(seen.load_qps, seen.active, seen.starting)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A scaling table, what it was made with, and what it delivered on the fitted part.

    ``prices`` and ``decisions`` are those of the decision process, None where the numbers of
    workers are in proportion to the load.
    """

    table: ScalingTable
    prices: Prices | None
    dynamics: LoadDynamics
    decisions: WorkerDecisions | None
    delivered: Delivered


def expected_run(
    loads_qps: FloatArray, control: ScalingControl, tables: FleetTables, fleet: ScaledFleet,
    start: int,
) -> Delivered:
    """What a scaling table costs and delivers by the promises of the decision tables.

    Parameters
    ----------
    loads_qps : ndarray, shape (n,)
        Of successive intervals.
    control : ScalingControl
        Not asked before.
    tables : FleetTables
    fleet : ScaledFleet
    start : int
        Workers that are active at the beginning.
    """
    stages, partial = stages_of(fleet.startup_s, fleet.interval_s)
    active, ages = start, list[int]()
    whole, part = np.empty(len(loads_qps), int), np.empty(len(loads_qps), int)
    worker_s = 0.0
    for at in range(len(loads_qps)):
        if at:
            wanted = control.wanted(float(loads_qps[at - 1]), active, len(ages))
            wanted = min(max(wanted, fleet.least), fleet.most)
            more = wanted - active - len(ages)
            if more > 0:
                ages += [0] * more
            elif more < 0:
                dropped = min(len(ages), -more)
                del ages[len(ages) - dropped:]
                active += more + dropped
        worker_s += (active + len(ages)) * fleet.interval_s
        ages = [age + 1 for age in ages]
        ready = sum(age >= stages for age in ages)
        whole[at] = active + (ready if stages == 0 else 0)
        active, ages = active + ready, ages[ready:]
        part[at] = active
    weight, lost, answered = float(loads_qps.sum()), 0.0, 0.0
    for number, share in ((whole, 1.0 - partial), (part, partial)):
        for workers in np.unique(number) if share else ():
            met = loads_qps[number == workers]
            accuracy, violation = tables.delivered(met, int(workers))
            answered += share * float(accuracy @ met)
            lost += share * float(violation @ met)
    return Delivered(worker_s, lost / weight, answered / weight)


class _ByPrice:
    """The decision process at prices, by what workers are short of after each load state."""

    between = 1e-5, 1e3
    caution = 1.0

    def __init__(self, dynamics: LoadDynamics, tables: FleetTables, fleet: ScaledFleet, aim: float,
                 width: float, share: float) -> None:
        self.share = share
        self.dynamics, self.tables, self.fleet = dynamics, tables, fleet
        loads, likely = dynamics.next_loads()
        late, missed = (np.empty((len(loads), fleet.most + 1)) for _ in range(2))
        for workers in range(fleet.most + 1):
            accuracy, violation = tables.delivered(loads, workers)
            late[:, workers] = (violation * loads * likely).sum(axis=1)
            over = (accuracy - aim) / width
            worth = width * (over - _BEND * np.logaddexp(over, -over))
            missed[:, workers] = -(worth * loads * likely).sum(axis=1)
        self.late, self.missed = late, missed
        self.stages, self.partial = stages_of(fleet.startup_s, fleet.interval_s)
        self.values: FloatArray | None = None

    def solved(
        self, prices: Prices, tolerance: float, sweeps: int | None = None
    ) -> WorkerDecisions:
        """The best decisions at prices."""
        reward = -self.fleet.interval_s * (prices.violation * self.late
                                           + prices.accuracy * self.missed)
        found = solve_workers(concave_gains(reward), self.dynamics.transition,
                              cost=self.fleet.interval_s, stages=self.stages,
                              partial=self.partial, tolerance=tolerance, initial=self.values,
                              sweeps=sweeps)
        self.values = found.values
        return found

    def at(self, level: float) -> _Table:
        """At a price of accuracy, or of a violation where accuracy is no target."""
        prices = (Prices(level, 0.0) if math.isinf(self.share)
                  else Prices(level * self.share, level))
        decisions = self.solved(prices, _ROUGHLY, _SWEEPS + 2 * self.stages)
        return self._table(decisions), decisions, prices

    def finally_at(self, prices: Prices) -> _Table:
        """At prices, solved to the tolerance that the certificate states."""
        decisions = self.solved(prices, _FINALLY)
        return self._table(decisions), decisions, prices

    def _table(self, decisions: WorkerDecisions) -> ScalingTable:
        shape = (len(self.dynamics.levels_qps), len(self.dynamics.trends), self.stages + 1)
        return _table_of(decisions.thresholds.reshape(shape), self.dynamics, self.fleet)


class _InProportion:
    """Workers in proportion to the load, at least a share of those for the highest one.

    Active workers are kept until there are ``keep`` times as many as are wanted.
    """

    between = 0.05, 50.0
    caution: float
    """What follows the load less is taken only where it costs less by this factor."""

    def __init__(self, dynamics: LoadDynamics, tables: FleetTables, fleet: ScaledFleet,
                 highest_qps: float, floor: float, keep: float) -> None:
        self.dynamics, self.tables, self.fleet = dynamics, tables, fleet
        loads = np.maximum(dynamics.levels_qps, floor * highest_qps)
        self.needed, self.keep = loads / tables.largest_qps, keep
        self.caution = 1.0 + _CAUTION * floor
        self.stages = stages_of(fleet.startup_s, fleet.interval_s)[0]

    def at(self, level: float) -> _Table:
        """At a multiple of the workers that carry the load within the target."""
        start = np.minimum(np.ceil(level * self.needed - 1e-9), self.fleet.most)
        keep = np.minimum(np.ceil(self.keep * level * self.needed - 1e-9), self.fleet.most)
        limits = np.stack([start, *[keep] * self.stages], axis=1).astype(np.int64)[:, None, :]
        limits = np.repeat(limits, len(self.dynamics.trends), axis=1)
        return _table_of(limits, self.dynamics, self.fleet), None, None

    def finally_at(self, prices: Prices) -> _Table:
        """There are no prices."""
        raise NotImplementedError


_Table = tuple[ScalingTable, WorkerDecisions | None, Prices | None]
_Made = _ByPrice | _InProportion


def _table_of(
    thresholds: NDArray[np.int64], known: LoadDynamics, fleet: ScaledFleet
) -> ScalingTable:
    """The scaling table of thresholds, shape (L, B, d+1)."""
    return ScalingTable(
        known.levels_qps.tolist(), known.trends.tolist(), thresholds.tolist(),
        smoothing=known.smoothing, forecast_error=known.forecast_error(),
        interval_s=fleet.interval_s, startup_s=fleet.startup_s,
        workers=(fleet.least, fleet.most))


def _ways(
    times: FloatArray, loads: FloatArray, tables: FleetTables, target: Targets, fleet: ScaledFleet,
    duration_s: float,
) -> Iterator[_Made]:
    """All ways to make tables, each by one number that raises cost and quality."""
    aim = target.min_effective_accuracy
    for trends in (1, 5):
        dynamics = fit_loads(times, duration_s=duration_s, interval_s=fleet.interval_s,
                             trends=trends, least_qps=_ONE_IS_ENOUGH * tables.largest_qps)
        for width, share in _SHAPES if aim is not None else ((1.0, math.inf),):
            yield _ByPrice(dynamics, tables, fleet, aim or 0.0, width, share)
        if trends == 1:
            for floor, keep in product(_FLOORS, _KEEPS):
                yield _InProportion(dynamics, tables, fleet, float(loads.max()), floor, keep)


def choose_policy(
    arrival_ms: ArrayLike, tables: FleetTables, played: DecisionTables, target: Targets,
    fleet: ScaledFleet, *, duration_s: float, seed: int = 0,
    on_play: Callable[[], object] | None = None,
) -> Candidate:
    """The cheapest scaling table that meets a target on a part of a trace.

    Parameters
    ----------
    arrival_ms : array_like
        Sorted times of the part that is fitted.
    tables : FleetTables
    played : DecisionTables
        The same for each number of workers.
    target : Targets
    fleet : ScaledFleet
    duration_s : float
        Of that part.
    seed : int
        Of the runs that are played.
    on_play : callable, optional
        Called after each of them.

    Raises
    ------
    InfeasibleError
        None met the target; the message says what was nearest.
    InvalidValueError
        The part is too short.
    """
    times = np.asarray(arrival_ms, dtype=float)
    loads = interval_loads(times, fleet.interval_s, duration_s)
    mean_qps = float(loads.mean())

    def delivered(table: ScalingTable) -> Delivered:
        run = play(times, played, ScalingPolicy(table), slo_ms=fleet.slo_ms,
                   startup_s=fleet.startup_s, interval_s=fleet.interval_s, least=fleet.least,
                   most=fleet.most, start=table.wanted(mean_qps, 0, 0), duration_s=duration_s,
                   seed=seed)
        if on_play is not None:
            on_play()
        return Delivered(float(run.worker_s), float(run.violation_rate),
                         float(run.effective_accuracy))

    best: tuple[Candidate, _Made] | None = None
    nearest: Delivered | None = None
    least = math.inf
    for make in _ways(times, loads, tables, target, fleet, duration_s):
        search = _Search(make, target, loads)
        for expected, (table, decisions, prices) in search.rounds():
            real = delivered(table)
            if reached(target, real.violation_rate, real.effective_accuracy):
                cost = real.worker_s * make.caution
                if cost < least:
                    least = cost
                    best = Candidate(table, prices, make.dynamics, decisions, real), make
            elif nearest is None or _short(target, real) < _short(target, nearest):
                nearest = real
            search.learn(expected, real)
    if best is None:
        assert nearest is not None
        raise InfeasibleError(describe(
            f"not met by up to {fleet.most} workers on the part that is fitted; the best that can",
            where=f"target of at most {target.max_violation:g} violations and at least "
                  f"{target.min_effective_accuracy or 0:g} effective accuracy",
            value=f"{nearest.violation_rate:.4g} violations, effective accuracy "
                  f"{nearest.effective_accuracy:.4f}"))
    found, make = best
    if found.prices is None:
        return found
    # The values were made roughly; what they become is kept where it is as good.
    table, decisions, prices = make.finally_at(found.prices)
    real = found.delivered
    if table.thresholds != found.table.thresholds:
        real = delivered(table)
        if not reached(target, real.violation_rate, real.effective_accuracy) or (
                real.worker_s > (1 + _AS_GOOD) * found.delivered.worker_s):
            return found
    return Candidate(table, prices, make.dynamics, decisions, real)


class _Search:
    """The least prices at which the expected figures meet a target that is corrected by runs."""

    def __init__(self, make: _Made, target: Targets, loads: FloatArray) -> None:
        self.make, self.target, self.loads = make, target, loads
        self.aim, self.done, self.former = target, False, -1.0
        self.between = make.between
        self.tried: dict[bool, float] = {}  # expected accuracy of the last that met it, or not

    def rounds(self) -> Iterator[tuple[Delivered, _Table]]:
        """What is to be played; tell :meth:`learn` after each."""
        for _ in range(_CORRECTIONS):
            yield self._cheapest()
            if self.done:
                return

    def learn(self, expected: Delivered, real: Delivered) -> None:
        """Shift the aim by what the expected figures were off."""
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
        """By bisection of the level, whose logarithm is halved."""
        low, high = self.between
        found = self._at(high)
        while high > low * _STEP:
            middle = math.sqrt(low * high)
            tried = self._at(middle)
            if reached(self.aim, tried[0].violation_rate, tried[0].effective_accuracy):
                high, found = middle, tried
            else:
                low = middle
        lowest, highest = self.make.between
        self.between = max(high / _NEAR, lowest), min(high * _NEAR, highest)
        return found

    def _at(self, level: float) -> tuple[Delivered, _Table]:
        made = self.make.at(level)
        return expected_run(self.loads, ScalingControl(made[0]), self.make.tables,
                            self.make.fleet,
                            made[0].wanted(float(self.loads.mean()), 0, 0)), made


def _short(target: Targets, real: Delivered) -> float:
    """How far figures are from the target."""
    return (max(real.violation_rate - target.max_violation, 0.0)
            + max((target.min_effective_accuracy or 0.0) - real.effective_accuracy, 0.0))
