"""The decision rule for requests with a size, as seven numbers and as the tables that they give.

*Problem.* K workers serve requests of sizes l from one queue. An answer within the deadline is
worth a · w: the accuracy a of its model times the weight w of its size. The state is a multiset of
(size, slack), which has far too many values for a table of actions. The rule decides by an index
of each request instead, in the manner of a Lagrangian relaxation: a unit of worker time has a
price, and the value of a request no longer depends on the others.

*Value.* With work(l) = min over b of T(b, l) / b, the time that a request takes in a good batch,
as a multiple of its mean, a request that has slack s left is worth

    V(l, s) = max over models of max(0, a·w − μ · work(l)) · (1 − exp(−((s − T(1, l)) / τ)^h)),

if s > T(1, l), else 0; w is a multiple of the mean weight. This models a request that is answered
later with a probability that rises with its slack; the work of a mean request then costs μ. So an
answer now gains a·w − V(l, s).

*Backlog.* With x the work of all waiting requests, as a multiple of K · deadline,

    μ = exp(p0 + p1·x),  τ = deadline · exp(p2 + p3·x),  h = exp(p4),
    price of a worker's ms = exp(p5) · μ / (mean work),

and values are taken after a reference time r = deadline · min(1/2, exp(p6)), as batches take some
time: gains are a·w − V(l, s − r), and waiting costs (V(l, s) − V(l, s − r)) / r in each ms.

*Tables.* V is constant in cells of size class and slack; :mod:`ramsis.runtime.sized` decides by
them. :mod:`ramsis.sized.search` finds the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.reprs import dataclass
from ramsis.runtime.sized import (
    MAX_CELLS,
    SIZED_FORMAT,
    UNIT,
    SizedPlan,
    SizedTables,
    bin_us,
    orders,
    slopes,
)
from ramsis.sized.problem import SizedProblem
from ramsis.sized.schedulers import ReplannedDP

if TYPE_CHECKING:
    from ramsis.sized._rule_kernels import RuleArrays
    from ramsis.sized.schedulers import Serving

CLASSES = 16  # 12 lose .002 of the requests where the load is high, 8 lose .004
LEVELS, LARGEST_BACKLOG = 10, 2.0
_SIZES_RATIO = 1.04  # a batch is planned at most 4 % longer than it is
_LARGEST_EXPONENT = 30.0


class RuleNumbers(NamedTuple):
    """Parameters p0 … p6 of the decision rule for requests with a size.

    p0, p1 and p5 set the prices of worker time, p2 to p4 how fast the value of a waiting request
    rises with its slack, and p6 the time after which values are taken: see the module.
    """

    price: float = -2.2  # p0
    price_by_backlog: float = 1.0  # p1
    spread: float = -1.9  # p2
    spread_by_backlog: float = -0.2  # p3
    shape: float = 0.3  # p4
    worker_price: float = -0.5  # p5
    reference: float = -1.6  # p6


class _ClassFigures(NamedTuple):
    """Figures of the size classes, from which the values of requests are computed."""

    edges: IntArray  # shape (C,)
    mean_size: FloatArray  # shape (C,)
    weight: FloatArray  # shape (C,)
    work_ms: FloatArray  # of a request in a good batch, by model and class, shape (M, C)
    single_ms: FloatArray  # shape (M, C)
    mean_work_ms: float  # of a request on the model that has the least


@dataclass(frozen=True, eq=False)
class RuleSpace:
    """Maker of the tables of index rules for one problem, from the parameters of a rule."""

    problem: SizedProblem

    @cached_property
    def classes(self) -> _ClassFigures:
        """Size classes of the rule: those of the problem, divided into smaller ones."""
        problem = self.problem
        edges = class_edges(problem)
        sizes, probability = problem.sizes.values, problem.sizes.probability
        its_class = np.searchsorted(edges, sizes)
        share = np.bincount(its_class, probability, len(edges))
        single_ms, work_ms = _single_and_work(problem, sizes)
        empty = share <= 0.0
        divisor = np.where(empty, 1.0, share)

        def means(values: FloatArray, at_edges: FloatArray) -> FloatArray:
            sums = np.bincount(its_class, probability * values, len(edges))
            result: FloatArray = np.where(empty, at_edges, sums / divisor)
            return result

        edge_single, edge_work = _single_and_work(problem, np.minimum(edges, problem.max_size))
        models = range(len(problem.models))
        return _ClassFigures(
            edges=edges, mean_size=means(sizes.astype(float), edges.astype(float)),
            weight=np.asarray(problem.weights)[np.searchsorted(problem.edges, edges)],
            work_ms=np.array([means(work_ms[m], edge_work[m]) for m in models]),
            single_ms=np.array([means(single_ms[m], edge_single[m]) for m in models]),
            mean_work_ms=float(work_ms.min(axis=0) @ probability))

    @cached_property
    def _times(self) -> tuple[list[int], list[list[list[float]]]]:
        """Sizes at which batch times are known, and these times by model, size and count."""
        problem = self.problem
        padded, step, time_ms = problem.times
        if padded:
            largest = int(self.classes.edges[-1])
            sizes = np.unique(np.append(self.classes.edges, _spaced(1, largest, 1)))
            at = np.minimum(sizes, time_ms.shape[2] - 1)
        else:
            sizes = _spaced(step, (time_ms.shape[2] - 1) * step, step)
            at = sizes // step
        rounded = np.round(time_ms[:, :, at], 4).transpose(0, 2, 1)
        return sizes.tolist(), rounded.tolist()

    def tables(self, numbers: RuleNumbers) -> SizedTables:
        """Return the decision tables of the rule with these parameters."""
        problem, figures = self.problem, self.classes
        bins = MAX_CELLS // len(figures.edges)
        unit = 1.0 / UNIT
        level_ms = LARGEST_BACKLOG * problem.slo_ms * problem.workers / LEVELS
        backlog = LARGEST_BACKLOG * (np.arange(LEVELS) + 0.5) / LEVELS
        price = _exp(numbers.price + numbers.price_by_backlog * backlog)
        spread_ms = problem.slo_ms * _exp(numbers.spread + numbers.spread_by_backlog * backlog)
        shape = float(_exp(numbers.shape))
        reference_ms = problem.slo_ms * min(0.5, float(_exp(numbers.reference)))
        # Multiples of the mean weight, so that weights leave the price of work where it is.
        mean_weight = float(problem.shares @ np.asarray(problem.weights))
        reward = problem.accuracy[:, None] * figures.weight / mean_weight
        # Shapes (L, M, C) and (L, M, C, N).
        worth = np.maximum(
            0.0, reward - price[:, None, None] * figures.work_ms / figures.mean_work_ms)
        middle_ms = (np.arange(bins) + 0.5) * bin_us(problem.slo_ms, bins) / 1000.0
        slack_ms = middle_ms - figures.single_ms[..., None]

        def values(slack_ms: FloatArray) -> FloatArray:
            ratio = np.maximum(slack_ms, 0.0) / spread_ms[:, None, None, None]
            result: FloatArray = (worth[..., None] * -np.expm1(-(ratio ** shape))).max(axis=1)
            return result

        later = values(slack_ms - reference_ms)
        aging = (values(slack_ms) - later) * problem.slo_ms / reference_ms
        sizes, times_ms = self._times
        return SizedTables(
            models=list(problem.models), slo_ms=problem.slo_ms, workers=problem.workers,
            law="padded" if problem.times.padded else "packed", edges=figures.edges.tolist(),
            mean_size=np.round(figures.mean_size, 6).tolist(),
            work_us=np.rint(1000.0 * figures.work_ms.min(axis=0)).astype(int).tolist(),
            level_us=max(1, round(1000.0 * level_ms)), bins=bins,
            reward=np.rint(reward * unit).astype(int).tolist(),
            values=np.rint(later * unit).astype(int).tolist(),
            aging=np.rint(aging * unit).astype(int).tolist(),
            price=[float(f"{value:.9g}") for value in
                   price * float(_exp(numbers.worker_price)) / figures.mean_work_ms],
            sizes=sizes, times_ms=times_ms)

    def planned(self, tables: SizedTables, plan: SizedPlan) -> SizedTables:
        """Return tables by which a plan decides in place of the rule.

        They have the profile's times at every size. Sums of rounded times could tie where those
        of the profile differ, or differ where those tie.
        """
        padded, step, time_ms = self.problem.times
        at = np.arange(1, time_ms.shape[2] if not padded else int(self.classes.edges[-1]) + 1)
        times_ms = time_ms[:, :, np.minimum(at, time_ms.shape[2] - 1)]
        return tables._replace(plan=plan, sizes=(step * at).tolist(),
                               times_ms=times_ms.transpose(0, 2, 1).tolist())

    @cached_property
    def slope_ms(self) -> FloatArray:
        """Slopes of the batch times, which all tables of the problem share."""
        return slopes_of(self._times[1], self.problem.times.padded)


def slopes_of(times_ms: Sequence[Sequence[Sequence[float]]], padded: bool) -> FloatArray:
    """Return the slopes of each model and size, shape (M, G, B + 1)."""
    if not padded:
        return np.zeros((1, 1, 1))
    return np.array([[slopes(row) for row in model] for model in times_ms])


def arrays_of(tables: SizedTables, slope_ms: FloatArray) -> RuleArrays:
    """Return the tables of a rule as arrays that the compiled simulation reads."""
    from ramsis.sized._rule_kernels import RuleArrays

    edges, sizes = np.asarray(tables.edges), np.asarray(tables.sizes)
    every = np.arange(edges[-1] + 1)
    values = np.array(tables.values).reshape(len(tables.price), -1)
    reward = np.repeat(np.array(tables.reward), tables.bins, axis=1)
    return RuleArrays(
        padded=tables.law == "padded", class_of=np.searchsorted(edges, every).astype(np.int64),
        place_of=np.searchsorted(sizes, every).astype(np.int64), grid=sizes.astype(float),
        mean_size=np.array(tables.mean_size), work_us=np.array(tables.work_us, dtype=np.int64),
        level_us=int(tables.level_us), bin_us=bin_us(tables.slo_ms, tables.bins),
        order=np.array(orders(tables), dtype=np.int64),
        gain=reward[:, None, :].astype(np.int64) - values[None].astype(np.int64),
        aging=np.array(tables.aging, dtype=np.int64).reshape(values.shape),
        price=np.array(tables.price), time_ms=np.array(tables.times_ms), slope_ms=slope_ms)


@dataclass(frozen=True, eq=False)
class IndexRule:
    """Scheduler by the tables of a policy: their rule, or their plan."""

    tables: SizedTables
    name: str = "ramsis"

    @property
    def max_batch(self) -> int:
        """Largest number of requests in a batch."""
        return len(self.tables.times_ms[0][0])

    @cached_property
    def _arrays(self) -> RuleArrays:
        return arrays_of(self.tables, slopes_of(self.tables.times_ms, self.tables.law == "padded"))

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; a size beyond the tables is refused."""
        from ramsis.sized import _rule_kernels as kernels

        plan = self.tables.plan
        if plan is not None:
            return ReplannedDP(model=self.tables.models[plan.model], max_batch=self.max_batch,
                               keep=plan.keep).serve(serving)
        largest = int(serving.stream.size.max(initial=0))
        if largest > self.tables.edges[-1]:
            raise InvalidValueError("a size beyond those of the policy", where="sizes",
                                    value=largest, allowed=f"1 to {self.tables.edges[-1]} "
                                    f"{serving.problem.unit}")
        kernels.indexed(*serving.arguments, self._arrays)
        return {}


def class_edges(problem: SizedProblem) -> IntArray:
    """Return the largest sizes of the rule's classes, at most :data:`CLASSES`.

    They cut the problem's classes further, to equal ratios of sizes from 8 on: smaller requests
    take about as long as those of 8.
    """
    least = max(8, int(problem.sizes.values[0]))
    edges = np.asarray(problem.edges)
    if len(edges) >= CLASSES:
        return edges[:MAX_CELLS]
    chosen = set(edges.tolist())
    while len(chosen) < CLASSES:
        rising = sorted(chosen)
        low = [least - 1, *rising[:-1]]
        ratios = [high / max(below, least - 1) for below, high in zip(low, rising, strict=True)]
        cuts = [(ratio, round((max(below, least - 1) * high) ** 0.5))
                for ratio, below, high in zip(ratios, low, rising, strict=True)]
        cuts = [(ratio, cut) for ratio, cut in cuts if cut >= least and cut not in chosen]
        if not cuts:
            break
        chosen.add(max(cuts)[1])
    return np.array(sorted(chosen))


def _spaced(least: int, largest: int, step: int) -> IntArray:
    """Return multiples of a step in about equal ratios, the largest among them."""
    count = max(2, int(np.ceil(np.log(largest / least) / np.log(_SIZES_RATIO))) + 1)
    ratios = np.geomspace(least, largest, count)
    return np.unique(np.minimum(np.ceil(ratios / step - 1e-9) * step, largest).astype(int))


def _exp(value: float | FloatArray) -> FloatArray:
    result: FloatArray = np.exp(np.clip(value, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    return result


def _single_and_work(problem: SizedProblem, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return a request's time when run alone, and its least worker time; each (M, n).

    The worker time per request is the least over all batch sizes of requests of the same size.
    ``sizes`` has shape (n,).
    """
    padded, step, time_ms = problem.times
    counts = np.arange(1, problem.max_batch + 1)
    measures = sizes[None, :] if padded else counts[:, None] * sizes[None, :]
    measures = np.broadcast_to(measures, (len(counts), len(sizes)))
    at, part = np.divmod(measures, step)
    beyond = at + (part > 0) >= time_ms.shape[2]
    at = np.where(beyond, 0, at)
    rows = np.arange(len(counts))[:, None]
    before = time_ms[:, rows, at]
    after = time_ms[:, rows, np.minimum(at + 1, time_ms.shape[2] - 1)]
    all_ms = np.where(beyond, np.inf, before + (after - before) * (part / step))
    return all_ms[:, 0], (all_ms / counts[:, None]).min(axis=1)


__all__ = ["SIZED_FORMAT", "IndexRule", "RuleNumbers", "RuleSpace"]
