"""The decision problem of a central queue: one queue, K workers, one table.

Requests join one queue in the order of their arrival, a Poisson process of rate λ. At each arrival
and each end of a batch the table is asked, again and again until it says *wait*: with i idle
workers, n queued requests and slack s of the head it may start a batch of the first b on model m
(i >= 1), drop the head, or wait for the next event. A request in time earns its model's accuracy;
one answered late or dropped costs the *violation price* p. What is maximised is effective accuracy
less p times the violation rate.

**State.** (i, n). A decision sees the slack of the head, but the state does not keep it. The head
has waited for as long as the n requests took to arrive, so its age is drawn anew at each event
from the Erlang distribution of n gaps (n - 1 of them just after an arrival); that is exact if
earlier decisions did not depend on the age. Within one decision the age is kept: dropping d heads
of n multiplies it by (n - d)/n. The k-th request of n is taken to have the head's age times
1 - k/n. With up to 8 workers batches end so far apart that this is too rough: there the age is
also kept while the last idle worker runs a batch. After a batch of b, the age of the next head is
a random share of the old head's, with the distribution of the b-th of n - 1 random instants; if no
request was left, it is that of the oldest new request. So the model of a single worker is exact
but for the bins. If this would mean more than 2,000 likely states, or 5e6 outcomes of all batches
from them (at high loads), the age is drawn anew there, too.

**Service.** Two cases, and both keep the work that a batch of mean length L brings.

- *A worker is left idle* (i >= 2): the batch occupies its worker with probability L/SLO for an
  exponential time of mean SLO. Without queueing, the number of busy workers is then that of any
  service distribution of the same mean.
- *The last idle worker starts* (i = 1): the next worker is free after L/K, the mean spacing of K
  batches under way, and meanwhile the queue grows by the arrivals. Batches end one service time
  after their starts, and each start waited for b arrivals; with K such points placed at random the
  spacing has the squared coefficient of variation c² = (K-1)/((K+1)·b). So the number of arrivals
  is negative binomial; for K = 1 the spacing is the batch itself, and the number is Poisson. From
  200 workers on c² is multiplied by K/200, up to 1. Without that, many workers would hardly
  fluctuate in the model, and its best policy would react sharply to small changes. But the batches
  of such a policy end a service time later, so it oscillates: many workers start together, end
  together, and start together again.

**Levels.** The queue is counted exactly up to twice the largest batch B, then in steps of
n/B, up to what arrives within the SLO and six standard deviations more, where the head is
dropped; idle workers exactly up to 8, then in steps of i/8 but no more than sqrt(K)/4, until
8·sqrt(K), and i/8 above. A move between levels is made with the probability that keeps its mean,
which overstates fluctuations: coarse levels make the policy and its promise cautious. With fewer
than about 60 workers every count is a level.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammainc, gammaln, pdtrc, xlogy

from ramsis.arrays import FloatArray, IntArray
from ramsis.central._kernels import needed_bins
from ramsis.cluster.cluster import SloClass, below_every_latency
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import (
    InvalidValueError,
    check_not_negative,
    check_number_of,
    check_positive,
    whole,
)
from ramsis.reprs import dataclass

STEPS = 60
"""Number of slack bins where service times are drawn."""

_FINEST = 256  # distinct latencies as slack bins are no closer than SLO / this

MAX_WORKERS = 10_000
"""Most workers that a table is made for."""

FEW_WORKERS = 8
"""Up to so many workers the head's age is carried along from one end of a batch to the next."""

MANY_WORKERS = 200
"""With more workers the spacings of ends of batches fluctuate, by share, as with so many."""

PARTS = np.array([0.5, 0.3, 0.15, 0.05])
"""Parts of the distribution of the next head's age, where age is kept: finest at its oldest."""

_UNLIKELY = 1e-12  # probabilities below this are left out
_MOST_BETWEEN = 1 << 31  # arrivals until a worker is free, more than which none expects
_MOST_STATES = 2_000  # likely states with one worker idle, the head's age kept
_MOST_WORK = 5_000_000  # outcomes of all batches from these
_MOST_NUMBERS = 300_000_000  # of one array, and some are needed at once
_EACH_COUNT = 20  # passes over all queue lengths up to the longest take as long as so many numbers


@dataclass(frozen=True, eq=False)
class CentralProblem:
    """Semi-Markov decision problem of a central queue for one load."""

    times: ServiceTimes  # of all models, batches 1 … B
    slo_ms: float
    workers: int
    # requests per second, as the caller stated it; ``load`` is derived from it
    load_qps: float
    price: float  # cost of a request that is late or dropped, in units of accuracy, >= 0
    # action_model, action_batch: batches that may be started, fastest first, shape (A,)
    action_model: IntArray
    action_batch: IntArray
    # shape (J,): low edges of the slack bins, from 0; bin 0 is also for negative slack
    slack_ms: FloatArray
    # idle, queue: levels, from 0, shape (I,), (N,)
    idle: IntArray
    queue: IntArray
    # whether batches are taken to end at random instants, one independent of the other
    random_ends: bool = False
    # cost of a response time of the SLO or longer, in units of accuracy; in proportion for shorter
    # ones. A negative price rewards long response times.
    delay_price: float = 0.0

    _OF_THE_QUEUE: ClassVar[tuple[str, ...]] = (
        "slack_distribution", "mean_age_ms", "slack_in_queue_ms", "after_drop", "left_age")

    @classmethod
    def create(
        cls,
        times: ServiceTimes,
        *,
        slo_ms: float,
        workers: int,
        load_qps: float,
        price: float = 1.0,
        steps: int | None = None,
        delay_price: float = 0.0,
    ) -> CentralProblem:
        """Build a checked problem.

        Parameters
        ----------
        steps : int, optional
            Equal slack bins, >= 2; by default 60 where service times are drawn, else bins between
            the distinct latencies, made finer for few workers.
        """
        check_positive(slo_ms=slo_ms, load_qps=load_qps)
        check_not_negative("not a price", violation_price=price)
        check_number_of("workers", workers, most=MAX_WORKERS)
        if steps is not None:
            whole(2, 1000).required("grid", steps, "not a number of slack bins")
        largest = int((times.quantiles_ms[:, :, 0] <= slo_ms).any(axis=0).sum())
        # There are at least this many levels, so too large a problem is refused before it is
        # built.
        _check_size((2 * largest) ** 2 * (steps or STEPS), largest, load_qps)
        model, batch = worthwhile_batches(times, slo_ms)
        if not len(model):
            lowest = float(times.quantiles_ms[:, 0, 0].min())
            raise below_every_latency(slo_ms, lowest)
        if steps is None and times.quantiles_ms.shape[2] == 1:
            slack_ms = latency_grid(times.mean_ms[model, batch - 1], slo_ms)
            if workers <= FEW_WORKERS:
                slack_ms = refined_grid(slack_ms, slo_ms)
        else:
            slack_ms = slo_ms * np.arange(steps or STEPS) / (steps or STEPS)
        per_ms = load_qps / 1000.0
        queue = queue_levels(int(batch.max()), per_ms * slo_ms)
        arrivals = per_ms * float(times.mean_ms[model, batch - 1].max()) / workers
        _check_size(max(len(model) * arrivals, len(queue) ** 2 * len(slack_ms),
                        _EACH_COUNT * float(queue[-1])), largest, load_qps)
        return cls(times, float(slo_ms), workers, float(load_qps), float(price), model, batch,
                   slack_ms, idle_levels(workers), queue, delay_price=delay_price)

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """SLO classes: none here; :class:`~ramsis.central.classes.ClassesProblem` has several."""
        return ()

    @property
    def carries_age(self) -> bool:
        """Whether the head's age is kept when the last idle worker starts."""
        return self.workers <= FEW_WORKERS and self._is_small

    @cached_property
    def _is_small(self) -> bool:
        """Whether a policy is evaluated in well below a second if the head's age is kept."""
        lowest, highest = needed_bins(self.slack_distribution, self.after_drop)
        bins = np.maximum(highest - lowest + 1, 0)
        outcomes = (self.arrivals_between > 0).sum(axis=1)
        of_queue = (self.action_batch <= self.queue[:, None]) @ outcomes
        return bool(bins.sum() <= _MOST_STATES and bins @ of_queue <= _MOST_WORK)

    def varied(
        self, *, times: ServiceTimes | None = None, delay_price: float | None = None,
        random_ends: bool | None = None,
    ) -> Self:
        """Return a copy with other service times, delay price or ends; queue arrays are shared."""
        other = replace(self, times=times or self.times,
                        delay_price=self.delay_price if delay_price is None else delay_price,
                        random_ends=self.random_ends if random_ends is None else random_ends)
        other.__dict__.update({name: self.__dict__[name] for name in self._OF_THE_QUEUE
                               if name in self.__dict__})
        return other

    @property
    def load(self) -> float:
        """λ in requests per ms."""
        return self.load_qps / 1000.0

    @cached_property
    def mean_ms(self) -> FloatArray:
        """Mean service time of each action, shape (A,)."""
        return self.times.mean_ms[self.action_model, self.action_batch - 1]

    @cached_property
    def quantiles_ms(self) -> FloatArray:
        """Service quantiles of each action, shape (A, Q)."""
        return np.ascontiguousarray(
            self.times.quantiles_ms[self.action_model, self.action_batch - 1])

    @cached_property
    def accuracy(self) -> FloatArray:
        """Accuracy of each action, shape (A,)."""
        return self.times.accuracy[self.action_model]

    @cached_property
    def slack_distribution(self) -> FloatArray:
        """P(slack bin | n) just after an arrival and at an end of a batch, shape (2, N, J)."""
        edges = self.slo_ms - self.slack_ms  # a slack of at least T is an age of at most SLO - T
        result = np.zeros((2, len(self.queue), len(edges)))
        for after, gaps in enumerate((self.queue - 1, self.queue)):
            shape, scale_ms = np.maximum(gaps, 0)[:, None], 1 / self.load
            upto = np.where(shape > 0, gammainc(np.maximum(shape, 1), edges / scale_ms), 1.0)
            upto[:, 0] = 1.0
            probability = upto - np.append(upto[:, 1:], np.zeros((len(shape), 1)), axis=1)
            result[after] = np.where(probability < _UNLIKELY, 0.0, probability)
        result /= result.sum(axis=2, keepdims=True)
        return result

    @cached_property
    def mean_age_ms(self) -> FloatArray:
        """Mean age of the head in each bin and queue, shape (N, J)."""
        high = self.slo_ms - self.slack_ms
        low = np.append(high[1:], 0.0)
        high = np.where(self.slack_ms == 0, np.inf, high)
        n = np.maximum(self.queue, 1)[:, None]

        def between(shape: IntArray) -> FloatArray:
            scale_ms = 1 / self.load
            return np.asarray(gammainc(shape, high / scale_ms) - gammainc(shape, low / scale_ms))

        mass = between(n)
        centre = (low + np.minimum(high, self.slo_ms)) / 2
        mean = np.where(mass > _UNLIKELY,
                        between(n + 1) * n / self.load / np.where(mass > 0, mass, 1.0), centre)
        return np.clip(mean, low, high)

    @cached_property
    def slack_in_queue_ms(self) -> FloatArray:
        """Slack of the k-th request of the queue, from 0, by bin of the head, shape (N, J, B)."""
        age = self.mean_age_ms
        if self.quantiles_ms.shape[1] == 1:  # the head must be in time anywhere in its bin
            age = np.where(self.slack_ms > 0, self.slo_ms - self.slack_ms, age)
        behind = np.arange(int(self.action_batch.max()))
        younger = 1.0 - behind / np.maximum(self.queue, 1)[:, None]
        return self.slo_ms - age[:, :, None] * younger[:, None, :]

    @cached_property
    def after_drop(self) -> NDArray[np.int16]:
        """Bin of the head when the queue is dropped from a level to a lower one, (N, N, J)."""
        share = np.minimum(self.queue / np.maximum(self.queue, 1)[:, None], 1.0)
        return self.bins_after_drop(
            self.slo_ms - self.mean_age_ms[:, None, :] * share[:, :, None])

    def bins_after_drop(self, slack_ms: FloatArray) -> NDArray[np.int16]:
        """Return bins of slacks by level before a drop, level after it, and bin before it."""
        bins = np.maximum(np.searchsorted(self.slack_ms, slack_ms, side="right") - 1, 0)
        # Without a drop the bin stays, whatever slack its middle stands for.
        here = np.arange(len(self.queue))
        bins[here, here] = np.arange(len(self.slack_ms))
        return bins.astype(np.int16)

    @cached_property
    def left_age(self) -> FloatArray:
        """Age of the next head as a share of the head's when an action is started, (N, A, P).

        The n - 1 requests behind the head came at random times since it did, so the age of the
        b-th of them has a beta distribution. Each of P parts of it is represented by its median.
        """
        batch, of_action = np.unique(self.action_batch, return_inverse=True)
        n, which = np.nonzero(self.queue[:, None] > batch)
        behind, b = self.queue[n] - batch[which], batch[which]
        median = np.cumsum(PARTS) - PARTS / 2
        share = np.zeros((len(self.queue), len(batch), len(PARTS)))
        share[n, which] = betaincinv(behind[:, None], b[:, None], median)
        return share[:, of_action]

    @cached_property
    def spacing_ms(self) -> FloatArray:
        """Mean time until the next worker is free, given the arrivals meanwhile, (A, k)."""
        mean = self.mean_ms / self.workers
        arrivals = np.arange(self.arrivals_between.shape[1])
        if self.workers == 1:
            return np.repeat(mean[:, None], len(arrivals), axis=1)
        shape = self._spacing_shape
        return (shape[:, None] + arrivals) / (shape / mean + self.load)[:, None]

    @property
    def _spacing_shape(self) -> FloatArray:
        """Shape of the gamma distribution of the time to the next free worker, (A,), K >= 2."""
        if self.random_ends:
            return np.ones(len(self.action_batch))
        shape = self.action_batch * (self.workers + 1) / (self.workers - 1)
        shape = shape * min(1.0, MANY_WORKERS / self.workers)
        return np.asarray(np.maximum(shape, 1.0))

    @cached_property
    def arrivals_between(self) -> FloatArray:
        """Probability of each number of arrivals until the next worker is free, shape (A, k)."""
        mean = self.load * self.mean_ms / self.workers
        if self.workers == 1:  # a Poisson distribution
            count = np.arange(_most(lambda k: np.max(pdtrc(k, mean))) + 2)
            log_pf = xlogy(count, mean[:, None]) - gammaln(count + 1.0) - mean[:, None]
        else:
            # A gamma-distributed time gives a negative binomial number of arrivals. At each event
            # the probability of an arrival is p, of the end of a phase 1 − p. Logarithms, since
            # the probability of no arrival may underflow.
            shape, p = self._spacing_shape, mean / (self._spacing_shape + mean)
            count = np.arange(1, _most(lambda k: np.max(betainc(k + 1.0, shape, p))) + 2)
            ratio = (shape[:, None] + count - 1.0) / count * p[:, None]
            log_pf = np.cumsum(np.column_stack([shape * np.log1p(-p), np.log(ratio)]), axis=1)
        probability = np.exp(log_pf)
        probability = np.where(probability < _UNLIKELY, 0.0, probability)
        return np.asarray(probability / probability.sum(axis=1, keepdims=True))


def _most(beyond: Callable[[int], np.floating[Any]]) -> int:
    """Return the least number that a count exceeds with probability at most 1e-9."""
    return bisect_left(range(_MOST_BETWEEN), True, key=lambda k: bool(beyond(k) <= 1e-9))


def _check_size(numbers: float, largest_batch: int, load_qps: float) -> None:
    """Refuse a problem with an array that would fill the memory."""
    if numbers > _MOST_NUMBERS:
        raise InvalidValueError("the problem is too large", where="central queue",
                                value=f"batches up to {largest_batch}, {load_qps:g} queries/s",
                                allowed="a smaller max_queue, a lower load, a shorter SLO or more "
                                "workers")


def queue_levels(largest_batch: int, arrivals_within_slo: float) -> IntArray:
    """Return the queue lengths that the table distinguishes, from 0.

    >>> queue_levels(3, 20.0)[-4:].tolist()
    [22, 29, 38, 50]
    """
    top = max(2 * largest_batch, arrivals_within_slo + 6.0 * math.sqrt(arrivals_within_slo))
    levels = [0]
    while levels[-1] < top:
        last = levels[-1]
        levels.append(last + (1 if last < 2 * largest_batch else last // largest_batch))
    return np.array(levels)


def idle_levels(workers: int) -> IntArray:
    """Return the numbers of idle workers that the table distinguishes, from 0 to all.

    >>> idle_levels(4).tolist()
    [0, 1, 2, 3, 4]
    >>> len(idle_levels(10_000))
    86
    """
    root = math.sqrt(workers)
    levels = [0]
    while levels[-1] < workers:
        last = levels[-1]
        step = last / 8 if last > 8 * root else min(last / 8, root / 4)
        levels.append(min(last + max(1, int(step)), workers))
    return np.array(levels)


def worthwhile_batches(times: ServiceTimes, slo_ms: float) -> tuple[IntArray, IntArray]:
    """Return the models and sizes of undominated batches that can be in time, fastest first.

    A batch is dominated if a model that is no less accurate takes no longer at that size, or for
    as many requests in smaller batches, one after the other on the same worker.
    """
    model, column = np.nonzero(times.quantiles_ms[:, :, 0] <= slo_ms)
    order = np.lexsort((column, -times.accuracy[model], times.mean_ms[model, column]))
    candidates = np.stack([model[order], column[order]], axis=1)
    chosen, count = np.empty_like(candidates), 0
    for m, c in candidates.tolist():
        other, size = chosen[:count].T
        as_good = (size <= c) & (times.accuracy[other] >= times.accuracy[m])
        other, size = other[as_good], size[as_good]
        busy_ms = -(-(c + 1) // (size + 1))[:, None] * times.quantiles_ms[other, size]
        if not (busy_ms <= times.quantiles_ms[m, c]).all(axis=1).any():
            chosen[count] = m, c
            count += 1
    return chosen[:count, 0].copy(), chosen[:count, 1] + 1


def latency_grid(latency_ms: FloatArray, slo_ms: float) -> FloatArray:
    """Return 0 and the distinct latencies; merge those within SLO/256 into the largest."""
    grid: list[float] = []
    for value in np.unique(latency_ms)[::-1].tolist():
        if not grid or grid[-1] - value >= slo_ms / _FINEST:
            grid.append(value)
    return np.array([0.0, *grid[::-1]])


def refined_grid(grid: FloatArray, slo_ms: float) -> FloatArray:
    """Refine a grid with equal steps between its values, none wider than SLO/60."""
    edges = np.append(grid, slo_ms)
    parts = [np.linspace(low, high, max(1, math.ceil((high - low) * STEPS / slo_ms)) + 1)[:-1]
             for low, high in pairwise(edges.tolist())]
    return np.concatenate(parts)
