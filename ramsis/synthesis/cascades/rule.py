"""Index policy of second opinions: decisions by a price of worker time, with free parameters.

*Price.* Let λ be the price of a ms of worker time at which the fluid program with cascades uses up
the time of the workers (:func:`ramsis.bounds.cascade_bound`). The level is the worker time that
all waiting requests need, in steps; its price is λ times a factor that rises with the level.

*Fresh requests.* At price p a request that model m answers first is worth

    v(m) = accuracy(m) + max over j of Σ_{i<j} share_i · (increment_i - p · cost₂),

with the share and expected increment of each of its bins of confidence, lowest first, and cost₂
the worker time of a second opinion in the most efficient batch. The best j is the number of unsure
bins, whose requests get a second opinion.
An idle worker runs the batch with the most b · v(m) - p · T(m, b) among those that end within the
slack of the head; a small batch waits while its slack allows.

*Second opinions* gather to batches that are worth their time; see :mod:`ramsis.policy.cascade`.

:class:`Numbers` are the free parameters of the rule. :mod:`ramsis.synthesis.cascades.search`
chooses them by simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds import CascadeBound, cascade_bound
from ramsis.policy import Policy
from ramsis.policy.cascade import Cascade, CascadePromise
from ramsis.profiles.confidences import Confidences
from ramsis.runtime.table import DROP_CODE, SLACK_TOLERANCE_MS, WAIT_CODE
from ramsis.sim import Fleet
from ramsis.sim.tables import CascadeTables
from ramsis.synthesis.cascades import _kernels

LEVELS, BINS = 32, 96
_KNOTS = 5  # of the price
_RARE = 1e-4  # least share of a bin that others are divided by
_LOWEST_PRICE = 1e-6  # of a ms of worker time, in units of accuracy


@dataclass(frozen=True)
class Numbers:
    """Parameters of the index policy of second opinions, which the search varies."""

    # logarithm of the price at the lowest level relative to λ, and its rises up to the last level
    price: float = 0.0
    rises: tuple[float, ...] = (0.1, 0.1, 0.3, 1.0)
    work: float = 0.6  # queued work of the last level, in SLOs
    # worker time of an unsure request in the level, relative to that in the most efficient batch
    unsure_work: float = 1.0
    cost: float = 1.0  # the same of a second opinion, in the choice of unsure bins
    # smallest batch of fresh requests that does not wait, at the first and the last level,
    # relative to the largest; and the slack beyond the next batch without which none waits, in
    # SLOs
    fresh_least: tuple[float, float] = (0.0, 0.0)
    fresh_spare: float = 0.3
    # Their meaning is in :class:`~ramsis.policy.cascade.Cascade`. ``gather`` and ``least`` are at
    # the first and the last level, relative to the largest batch of second opinions.
    gather: tuple[float, float] = (1.0, 1.0)
    last_call: float = 0.1  # in SLOs
    least: tuple[float, float] = (0.3, 0.3)

    def to_array(self) -> FloatArray:
        """Return all numbers, shape (16,)."""
        return np.array([self.price, *self.rises, self.work, self.unsure_work, self.cost,
                         *self.fresh_least, self.fresh_spare, *self.gather, self.last_call,
                         *self.least])

    @classmethod
    def of_array(cls, x: FloatArray) -> Numbers:
        """Return valid numbers from an array of any real values, shape (16,)."""
        return cls(x[0], tuple(np.abs(x[1:5])), max(abs(x[5]), 0.02), abs(x[6]), abs(x[7]),
                   (x[8], x[9]), abs(x[10]), (x[11], x[12]), abs(x[13]), (x[14], x[15]))


STEPS = np.array([0.2, 0.1, 0.1, 0.3, 0.5, 0.1, 0.3, 0.3, 0.3, 0.2, 0.2, 0.3, 0.3, 0.1, 0.3, 0.3])
"""Initial standard deviation of the variations of each number."""


class FixedThreshold(NamedTuple):
    """Rule with one first model and one threshold of confidence at all times."""

    first: int
    bins: int  # lowest ones of the first model's confidence, in which the second is asked
    gather: int  # number of waiting second opinions that run before fresh requests
    accuracy: float  # expected, of answers in time
    work_ms: float  # worker time of a request in the most efficient batches


@dataclass(frozen=True, eq=False)
class CascadeProblem:
    """Queue that a cascade is made for: models, times, confidences and load."""

    fleet: Fleet  # the workers that take from the queue, with the models of the policy
    load_qps: float  # of the queue
    confidences: Confidences  # of the profile
    second: int  # index of the model of second opinions

    @cached_property
    def mean_ms(self) -> FloatArray:
        """Mean service times, shape (M, B)."""
        return np.ascontiguousarray(self.fleet.service_times.mean_ms)

    @cached_property
    def planned_ms(self) -> FloatArray:
        """Service times that must fit the slack, shape (M, B): of drawn times the p95."""
        times = self.fleet.service_times
        planned = times.quantile(0.95) if times.distributed else times.mean_ms
        return np.maximum.accumulate(planned, axis=1)

    @cached_property
    def shares(self) -> tuple[FloatArray, ...]:
        """Share of the requests in each confidence bin, by first model; empty for other models."""
        name = self.fleet.models[self.second]
        firsts = {pair.first for pair in self.confidences.pairs if pair.second == name}
        return tuple(np.array(self.confidences.model(model).share if model in firsts else ())
                     for model in self.fleet.models)

    @cached_property
    def expected(self) -> tuple[FloatArray, ...]:
        """Expected increment of accuracy in each bin of ``shares``, by first model."""
        name = self.fleet.models[self.second]
        return tuple(np.array(self.confidences.pair(model, name).expected_increment
                              if len(share) else ())
                     for model, share in zip(self.fleet.models, self.shares, strict=True))

    @cached_property
    def stated(self) -> tuple[FloatArray, ...]:
        """Increment that the profile states for each bin of confidence."""
        name = self.fleet.models[self.second]
        return tuple(self.confidences.increment(model, name) if len(share) else np.empty(0)
                     for model, share in zip(self.fleet.models, self.shares, strict=True))

    @cached_property
    def expected_increment(self) -> FloatArray:
        """Expected increment in each bin, padded by 0, shape (M, Q)."""
        return padded(self.expected, 0.0)

    @cached_property
    def cost_ms(self) -> FloatArray:
        """Worker time of a request in the most efficient batch within the SLO, shape (M,)."""
        batch = 1 + np.arange(self.mean_ms.shape[1])
        costs: FloatArray = np.where(self.planned_ms <= self.fleet.slo_ms,
                                     self.mean_ms / batch, np.inf).min(axis=1)
        return costs

    @cached_property
    def fluid(self) -> CascadeBound:
        """Bound of the fluid program in which only this model gives second opinions."""
        name, confidences = self.fleet.models[self.second], self.confidences
        pairs = tuple(pair for pair in confidences.pairs if pair.second == name)
        return cascade_bound(self.fleet.service_times, replace(confidences, pairs=pairs),
                             slo_ms=self.fleet.slo_ms, workers=self.fleet.workers,
                             load_qps=self.load_qps)

    def tables(self, numbers: Numbers) -> CascadeTables:
        """Return the rule with these numbers as the tables of a simulation."""
        fleet, slo_ms = self.fleet, self.fleet.slo_ms
        models, batches = self.mean_ms.shape
        along = np.linspace(0.0, 1.0, LEVELS)
        logs = numbers.price + np.cumsum([0.0, *numbers.rises])
        price = max(self.fluid.time_price, _LOWEST_PRICE) * np.exp(
            np.interp(along, np.linspace(0.0, 1.0, _KNOTS), logs))
        cost_ms = self.cost_ms[self.second]
        worth = np.tile(fleet.table.accuracy, (LEVELS, 1))
        unsure = np.zeros((LEVELS, models), dtype=np.int64)
        for m, (share, added) in enumerate(zip(self.shares, self.expected, strict=True)):
            if len(share):
                # Value of second opinions in the lowest j bins, by level and j.
                net = np.cumsum(share * (added - numbers.cost * cost_ms * price[:, None]), axis=1)
                most = net.max(axis=1)
                worth[:, m] += np.maximum(most, 0.0)
                unsure[:, m] = np.where(most > 0.0, net.argmax(axis=1) + 1, 0)
        model, batch = np.empty((2, LEVELS, batches, BINS + 1), dtype=np.int16)
        _kernels.fill(
            worth, price, self.mean_ms, self.planned_ms,
            _whole(numbers.fresh_least, along, batches, batches, lowest=0),
            (slo_ms / BINS, numbers.fresh_spare * slo_ms), model, batch)
        # A fresh request counts as the worker time that is available for each at this load.
        per_ms = LEVELS / (numbers.work * slo_ms * fleet.workers)
        largest = len(self.second_ms)
        return CascadeTables(
            model=model, batch=batch, unsure_bins=unsure, upto=self.upto,
            gather=_whole(numbers.gather, along, largest, largest),
            least=_whole(numbers.least, along, largest, largest + 1),
            second_ms=np.append(0.0, self.second_ms), second=self.second,
            levels_per_fresh=per_ms * 1000.0 * fleet.workers / self.load_qps,
            levels_per_unsure=per_ms * numbers.unsure_work * cost_ms, step_ms=slo_ms / BINS,
            last_call_ms=numbers.last_call * slo_ms)

    def fixed_thresholds(self) -> Iterator[FixedThreshold]:
        """Yield rules for each first model, threshold, and two sizes of second batches."""
        largest = len(self.second_ms)
        for m, (share, added) in enumerate(zip(self.shares, self.expected, strict=True)):
            if len(share) and self.planned_ms[m, 0] <= self.fleet.slo_ms:
                asked, gained = (np.append(0.0, np.cumsum(part))
                                 for part in (share, share * added))
                for bins in range(len(share) + 1):
                    accuracy = float(self.fleet.table.accuracy[m] + gained[bins])
                    work_ms = float(self.cost_ms[m] + asked[bins] * self.cost_ms[self.second])
                    for gather in sorted({max(1, largest // 2), largest}):
                        yield FixedThreshold(m, bins, gather, accuracy, work_ms)

    def fixed_tables(self, rule: FixedThreshold) -> CascadeTables:
        """Return a rule with a fixed threshold as the tables of a simulation.

        Fresh batches are as large as the slack of the head allows, and heads that no batch answers
        in time are dropped.
        """
        step_ms = self.fleet.slo_ms / BINS
        slack_ms = step_ms * np.arange(BINS + 1) + SLACK_TOLERANCE_MS
        fits = np.searchsorted(self.planned_ms[rule.first], slack_ms, side="right")
        queued = 1 + np.arange(self.mean_ms.shape[1])
        batch = np.minimum(queued[:, None], fits)[None].astype(np.int16)
        return CascadeTables(
            model=np.full_like(batch, rule.first), batch=batch,
            unsure_bins=np.eye(1, len(self.shares), rule.first, dtype=np.int64) * rule.bins,
            upto=self.upto, gather=np.array([rule.gather]), least=np.ones(1, dtype=np.int64),
            second_ms=np.append(0.0, self.second_ms), second=self.second, levels_per_fresh=0.0,
            levels_per_unsure=0.0, step_ms=step_ms, last_call_ms=0.0)

    def cascade(self, tables: CascadeTables, promise: CascadePromise) -> Cascade:
        """Return a rule with its promise in the form of policy files."""
        sizes, models = tables.batch.astype(np.int64), tables.model.astype(np.int64)
        scale = self.mean_ms.shape[1] + 1
        used, place = np.unique((models * scale + sizes)[sizes > 0], return_inverse=True)
        codes = np.where(sizes < 0, WAIT_CODE, DROP_CODE)
        codes[sizes > 0] = place
        return Cascade(
            second=self.second, levels_per_fresh=tables.levels_per_fresh,
            levels_per_unsure=tables.levels_per_unsure, step_ms=tables.step_ms,
            actions=np.stack([used // scale, used % scale], axis=1), codes=codes,
            unsure_bins=tables.unsure_bins, gather=tables.gather, least=tables.least,
            last_call_ms=tables.last_call_ms, second_ms=self.second_ms,
            thresholds=tuple(self.confidences.model(name).thresholds if len(share) else ()
                             for name, share in zip(self.fleet.models, self.shares, strict=True)),
            share=tuple(tuple(share.tolist()) for share in self.shares),
            increment=tuple(tuple(added.tolist()) for added in self.stated), promise=promise)

    @cached_property
    def second_ms(self) -> FloatArray:
        """Times planned for batches of second opinions that are within the SLO, shape (B',)."""
        times = self.planned_ms[self.second]
        within: FloatArray = times[times <= self.fleet.slo_ms]
        return within

    def by_all_samples(self, opinions: FloatArray) -> tuple[float, float]:
        """Return how a gain changes if all samples count, and its standard error.

        Stated increments are of samples other than those that chose the rule. The change is from
        the stated gain to that of all samples.

        A rule asks for second opinions in the lowest bins of a model, more or fewer of them by
        level. So its second opinions are a mixture of sets of lowest bins. The errors of the sets
        are known (:class:`~ramsis.profiles.Pair`), and that of the mixture is at most their mean.

        Parameters
        ----------
        opinions : ndarray, shape (M, Q)
            Share of all requests that get a second opinion, by first model and bin.
        """
        chosen = self.confidences.chosen_samples
        samples = chosen + self.confidences.stated_samples
        change = float((opinions * self._changes).sum())
        # Share of each bin that is asked about. It falls with the bin but for noise of the
        # simulation, which sorting removes; ``sets`` has the weights of the lowest 1, 2, … bins.
        asked = -np.sort(-opinions / self._bin_shares, axis=1)
        sets = asked - np.append(asked[:, 1:], np.zeros((len(asked), 1)), axis=1)
        return change * chosen / samples, float((sets * self._gain_errors).sum())

    @cached_property
    def _changes(self) -> FloatArray:
        """Expected less stated increment of each bin, shape (M, Q)."""
        return padded([expected - stated for expected, stated
                       in zip(self.expected, self.stated, strict=True)], 0.0)

    @cached_property
    def _bin_shares(self) -> FloatArray:
        """Share of the requests in each bin, shape (M, Q)."""
        return np.maximum(padded(self.shares, 1.0), _RARE)

    @cached_property
    def _gain_errors(self) -> FloatArray:
        """Standard error of the gain on the lowest 1, 2, … bins of each model, shape (M, Q)."""
        second = self.fleet.models[self.second]
        return padded([np.array(self.confidences.pair(name, second).gain_error) if len(share)
                       else share for name, share
                       in zip(self.fleet.models, self.shares, strict=True)], 0.0)

    @cached_property
    def upto(self) -> FloatArray:
        """Share of the requests up to each bin of each model, shape (M, Q)."""
        return padded([np.cumsum(share) for share in self.shares], 1.0)


def padded(rows: Sequence[FloatArray], filler: float) -> FloatArray:
    """Return rows of different lengths as one array, filled up with ``filler``."""
    result = np.full((len(rows), max(1, *map(len, rows))), filler)
    for into, row in zip(result, rows, strict=True):
        into[: len(row)] = row
    return result


def _whole(
    ends: tuple[float, float], along: FloatArray, scale: int, most: int, lowest: int = 1
) -> IntArray:
    """Interpolate between two shares of ``scale``; return whole numbers in lowest … most."""
    values = np.rint(scale * (ends[0] + (ends[1] - ends[0]) * along))
    whole: IntArray = np.clip(values, lowest, most).astype(np.int64)
    return whole


def problems_of(
    policy: Policy, fleet: Fleet, confidences: Confidences
) -> list[CascadeProblem]:
    """Return a problem for each model that can give second opinions, the most promising first.

    Where workers have queues of their own, it is that of one of them, with its share of the load,
    and with batches up to the longest queue of the policy's table. ``fleet`` are all workers.
    """
    rule = policy.rule
    queues = rule.queues(policy.workers)
    if rule.own_queues:
        fleet = replace(fleet, workers=1,
                        service_times=fleet.service_times.up_to(policy.max_queue))
    seconds = {pair.second for pair in confidences.pairs if pair.first in fleet.models}
    problems = [CascadeProblem(fleet, policy.load_qps / queues, confidences, m)
                for m, name in enumerate(fleet.models) if name in seconds]
    usable = [problem for problem in problems if len(problem.second_ms)]
    return sorted(usable, key=lambda problem: -problem.fluid.upper_bound)
