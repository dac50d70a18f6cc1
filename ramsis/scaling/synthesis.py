"""Decision tables for all workers and loads of a scaled fleet, and when to have how many workers.

A worker's optimal policy depends on its own load far more than on the number of workers. So
policies are made for a few numbers of workers and a few loads per worker. n active workers use
those of the largest such number up to n, at the same load per worker. With round robin this is
conservative: arrivals at one of few workers are more irregular than at one of many.

The loads per worker are dense around the largest one that meets the target, and sparser down to
the least load and up to the capacity with the fastest model. If prices are given instead of a
target, they are dense around the load with the least cost per request.

*Numbers of workers.* Workers are numbered. To scale up, the next numbers start; to scale down, the
highest numbers leave, starting ones first. So worker k serves in an interval exactly if at least k
workers have been wanted since its start-up began, and the cost and gain of a fleet is the sum of
those of its workers. The problem of worker k has the states (load state s, age j): off (0),
started j intervals ago, or active (j = d = ⌈start-up / interval⌉). An interval in which it is on
costs c and gains φ_j u_k(s): u_k(s) is the marginal gain of the k-th worker under the loads that
follow s, and φ_j the share of the interval in which it serves: 1 if active, the remainder of the
interval after the end of its start-up at age d - 1, and 0 before.

As long as marginal gains do not increase with k, worker k + 1 is on only if worker k is (the
optimal decision is monotone in u_k and in age). The separate solutions then form one policy of the
fleet, and no joint policy is better. Where a marginal gain exceeds the one before it, for example
because too few workers answer nothing in time, the values are replaced by their least concave
majorant (:func:`concave_gains`).

Each problem is solved by relative value iteration for the average reward. The optimal average lies
within the span of the last change; iteration stops when the span is below a tolerance for every
worker. The decision at a load state is stored as thresholds by age: the highest worker that is
started, that is kept at age 1, ..., that is kept active.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError, NotConvergedError, check_positive
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.runtime.scaling_table import Steering
from ramsis.scaling.fleet import DecisionTables
from ramsis.scaling.prices import Prices, meets
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.settings import SynthesisSettings

_MOST_SWEEPS = 20_000  # sweeps after which the solution is refused as not converged
_DAMPING = 0.95  # step size below 1, so that the span falls in periodic chains, too

# Ratios of successive numbers of workers with a policy. With a central queue, more workers do
# better, which tables for fewer workers leave unused; with round robin less so.
_RATIO = {"round-robin": 1.34, "central-queue": 1.16}
_TRIAL_SIZE = 8  # number of workers in the search for the largest load per worker
_PRICES = (1.0, 4.0)  # of a violation, in accuracy; the second if it carries 3 % more load
_MOST_PRICE = 100.0  # of a violation, in accuracy: above it accuracy hardly counts
_NEARLY_ALL = 0.97  # highest utilisation with the fastest model: at 1 queues grow without bound
_OVERLOAD_POWER = 3.0  # exponent of the fall of on-time answers with the load, in overload
_PRECISION = 0.03  # relative precision of the largest load: one worker in 33


@dataclass(frozen=True, eq=False)
class FleetTables:
    """Policies by number of workers and load per worker, with their promises."""

    load_qps: FloatArray  # loads per worker, increasing, shape (J,)
    policies: Mapping[int, tuple[Policy, ...]]  # by number of workers, one for each load
    accuracy: float  # accuracy of the most accurate model
    capacity_qps: float  # capacity of one worker with the fastest model
    # largest load per worker that meets the target, or the cheapest one at prices
    largest_qps: float
    most: int  # largest number of workers of the fleet

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of workers with policies, in increasing order."""
        return tuple(sorted(self.policies))

    def size(self, workers: int) -> int:
        """Return the number of workers whose policies ``workers`` workers use.

        It is the largest of :attr:`sizes` up to ``workers``, else the smallest.
        """
        return max((size for size in self.sizes if size <= workers), default=self.sizes[0])

    def batch_rate_qps(self, slo_ms: float, target: Targets | Prices) -> float:
        """Return the throughput of a worker with full batches in the SLO at the target accuracy.

        It mixes models and ignores waiting, as sizing by a profile alone does. At prices it is
        the throughput of the model and batch with the least cost per request.
        """
        policy = self.policies[self.sizes[0]][0]
        kinds = np.array([(1000.0 * size / mean_ms, model.accuracy)
                          for model, times in zip(policy.models, policy.service_ms, strict=True)
                          for size, mean_ms in enumerate(np.mean(times, axis=1), 1)
                          if mean_ms <= slo_ms])
        if isinstance(target, Prices):
            cost = 1.0 / kinds[:, 0] + target.accuracy * (self.accuracy - kinds[:, 1])
            return float(kinds[np.argmin(cost), 0])
        rate = kinds[:, 0]
        over = rate * (kinds[:, 1] - (target.min_effective_accuracy or 0.0))
        good, bad = over >= 0, over < 0
        # An optimal mix has at most two kinds of batch: one above, one below the target.
        share = -over[bad] / (over[good, None] - over[bad])
        mixed = share * rate[good, None] + (1.0 - share) * rate[bad]
        return float(max(rate[good].max(initial=0.0), mixed.max(initial=0.0)))

    def known(self, slo_ms: float, target: Targets | Prices) -> dict[str, float]:
        """Return the parameters of scaling rules that a worker's capacity gives by default."""
        return {"rate_per_worker_qps": float(self.largest_qps),
                "batch_rate_qps": self.batch_rate_qps(slo_ms, target)}

    def for_fleet(self) -> DecisionTables:
        """Return the decision tables of each number of active workers."""
        return DecisionTables.of({workers: resized(self.policies[self.size(workers)], workers)
                                  for workers in range(1, self.most + 1)})

    def steering(self, accuracy: float, requests: float) -> Steering | None:
        """Return the steering to an accuracy, from the policies of the middle number of workers.

        Return None if their accuracy does not decrease with the load.
        """
        accuracies, loads = list[float](), list[float]()
        for policy, load in zip(self.policies[self.sizes[len(self.sizes) // 2]],
                                self.load_qps.tolist(), strict=True):
            delivered = policy.expectations.effective_accuracy
            if not accuracies or delivered < accuracies[-1]:
                accuracies.append(delivered)
                loads.append(load)
        return (Steering(accuracy, requests, tuple(loads), tuple(accuracies)) if len(loads) > 1
                else None)

    def delivered(self, load_qps: FloatArray, workers: int) -> tuple[FloatArray, FloatArray]:
        """Return expected effective accuracy and violation rate by load and workers.

        Above capacity the share of on-time answers falls with the third power of the load, since
        queued requests delay later ones.
        """
        if workers == 0:
            return np.zeros_like(load_qps), np.ones_like(load_qps)
        expectations = [policy.expectations for policy in self.policies[self.size(workers)]]
        per_worker_qps = load_qps / workers
        accuracy = np.interp(per_worker_qps, self.load_qps,
                             [item.effective_accuracy for item in expectations])
        violation = np.interp(per_worker_qps, self.load_qps,
                              [item.violation_rate for item in expectations])
        in_time = np.minimum(1.0, (self.load_qps[-1] / np.maximum(per_worker_qps, 1e-12))
                             ** _OVERLOAD_POWER)
        return accuracy * in_time, 1.0 - (1.0 - violation) * in_time


def resized(policies: Iterable[Policy], workers: int) -> list[Policy]:
    """Return the policies for another number of workers at an equal load per worker."""
    return [replace(policy, workers=workers, load_qps=policy.load_qps * workers / policy.workers)
            for policy in policies]


def sizes_up_to(most: int, dispatch: str) -> list[int]:
    """Return numbers of workers to generate policies for, in bounded geometric steps.

    >>> sizes_up_to(20, "round-robin")
    [1, 2, 3, 4, 5, 6, 8, 10, 13, 17]
    """
    sizes, ratio = [1], _RATIO[dispatch]
    while (following := max(sizes[-1] + 1, int(sizes[-1] * ratio))) <= most:
        sizes.append(following)
    return sizes


@dataclass(frozen=True)
class FleetLoads:
    """Loads and worker counts that a fleet's decision tables cover."""

    # lowest and highest load of the whole fleet, > 0
    least_qps: float
    peak_qps: float
    levels: int  # number of loads per worker, >= 4
    least: int = 1  # smallest number of workers, >= 1
    # largest number of workers; by default those that meet the target at ``peak_qps``
    most: int | None = None


def fleet_tables(
    profile: ProfileSet, settings: SynthesisSettings, target: Targets | Prices, loads: FleetLoads,
    *, on_policy: Callable[[], object] = lambda: None,
) -> FleetTables:
    """Make the decision tables of a fleet, dense around the loads that the target determines.

    Of the ``settings`` the number of workers and the price of violations are ignored.
    ``on_policy`` is called when a policy is finished.
    """
    most = loads.most
    trial = _TRIAL_SIZE if most is None else min(_TRIAL_SIZE, most)
    largest, price, capacity = 0.0, _PRICES[0], 0.0
    if isinstance(target, Prices):
        price = min(target.violation / max(target.accuracy, 1e-300), _MOST_PRICE)
        largest, capacity = _cheapest_load(profile, replace(
            settings, workers=trial, violation_price=price), target)
    else:
        # The price of violations whose policies meet the target at the largest load per worker.
        for trial_price in _PRICES:
            tried, capacity = _largest_load(profile, replace(
                settings, workers=trial, violation_price=trial_price), target)
            if tried > largest * (1.0 + _PRECISION):
                largest, price = tried, trial_price
    if most is None:
        most = max(math.ceil(loads.peak_qps / largest), loads.least)
    lowest = min(loads.least_qps / most, largest / 3.0)
    of_a_worker = _loads(lowest, largest, _NEARLY_ALL * capacity, loads.levels)
    policies: dict[int, tuple[Policy, ...]] = {}
    for size in sizes_up_to(most, settings.dispatch):
        terms = replace(settings, workers=size, violation_price=price)
        row = []
        for load in of_a_worker.tolist():
            row.append(generate_policy(profile, load * size, terms))
            on_policy()
        policies[size] = tuple(row)
    return FleetTables(of_a_worker, policies, float(max(row[0].accuracy)), capacity, largest, most)


def _capacity(profile: ProfileSet, settings: SynthesisSettings) -> float:
    """Return the capacity of a worker with the fastest model, in QPS."""
    return (generate_policy(profile, 1.0, settings).expectations.capacity_qps or 0.0
            ) / settings.workers


def _cheapest_load(
    profile: ProfileSet, settings: SynthesisSettings, prices: Prices
) -> tuple[float, float]:
    """Return the load per worker with the least cost per request, and the capacity."""
    from scipy.optimize import minimize_scalar  # which takes long to load

    capacity, best = _capacity(profile, settings), max(model.accuracy for model in profile.models)

    def cost(log_qps: float) -> float:
        load_qps = math.exp(log_qps)
        expectations = generate_policy(profile, load_qps * settings.workers, settings).expectations
        return 1.0 / load_qps + prices.of_request(expectations.violation_rate,
                                                  best - expectations.effective_accuracy)

    minimum = minimize_scalar(cost, method="bounded", options={"xatol": _PRECISION},
                              bounds=(math.log(capacity / 2048.0),
                                      math.log(_NEARLY_ALL * capacity)))
    return math.exp(float(minimum.x)), capacity


def _largest_load(
    profile: ProfileSet, settings: SynthesisSettings, target: Targets
) -> tuple[float, float]:
    """Return the largest load per worker within the target, and the fastest model's capacity."""

    def promised(load_qps: float) -> tuple[bool, Policy]:
        policy = generate_policy(profile, load_qps * settings.workers, settings)
        return meets(policy.expectations, target), policy

    capacity = _capacity(profile, settings)
    low, high = capacity / 2048.0, _NEARLY_ALL * capacity
    met, policy = promised(low)
    if not met:
        expectations = policy.expectations
        raise InfeasibleError(
            "not met however few requests there are for a worker",
            where=f"target of at most {target.max_violation:g} violations and at least "
            f"{target.min_effective_accuracy or 0:g} effective accuracy",
            value=f"{expectations.violation_rate:.4g} violations, effective accuracy "
            f"{expectations.effective_accuracy:.4f}")
    if promised(high)[0]:
        return high, capacity
    while high > low * (1.0 + _PRECISION):
        middle = math.sqrt(low * high)
        if promised(middle)[0]:
            low = middle
        else:
            high = middle
    return low, capacity


def _loads(lowest: float, largest: float, highest: float, levels: int) -> FloatArray:
    """Return ``levels`` loads per worker, half of them near ``largest``, the others spread out.

    ``largest`` is the largest load per worker that meets the target (the cheapest at prices).
    """
    near = max(levels // 2, 2)
    ends = [min(max(share * largest, lowest), highest) for share in (0.6, 1.5)]
    below = max((levels - near) // 2, 1)
    above = max(levels - near - below, 1)
    loads = np.concatenate([np.geomspace(lowest, ends[0], below, endpoint=False),
                            np.geomspace(ends[0], ends[1], near),
                            np.geomspace(ends[1], highest, above + 1)[1:]])
    rounded = np.array([float(f"{load:.4g}") for load in loads])
    return np.unique(rounded[rounded > 0])


@dataclass(frozen=True, eq=False)
class WorkerDecisions:
    """Optimal start and keep decisions of every worker in every load state."""

    # shape (S, d+1): in load state s workers up to number ``thresholds[s, 0]`` are started, and
    # workers of age j (active ones: j = d) are kept up to ``thresholds[s, j]``; non-decreasing in
    # j.
    thresholds: IntArray
    average: float  # optimal average reward per interval, net of costs
    span: float  # error bound: the exact average lies within half of it on either side
    sweeps: int
    # shape (N, d+1, S): relative values; 0 for (off, the first load state) of each worker
    values: FloatArray = field(repr=False)


def concave_gains(values: FloatArray) -> FloatArray:
    """Return the marginal gain of each worker under the least concave majorant of the values.

    ``values``, (S, N+1), are those of 0 to N workers; the gains, (S, N), do not increase with the
    worker.
    """
    gains = np.diff(values, axis=1)
    for row in gains:  # pool adjacent violators: neighbours that increase get their mean
        sums: list[float] = []
        sizes: list[int] = []
        for gain in row.tolist():
            sums.append(gain)
            sizes.append(1)
            while len(sums) > 1 and sums[-2] * sizes[-1] < sums[-1] * sizes[-2]:
                last, size = sums.pop(), sizes.pop()
                sums[-1] += last
                sizes[-1] += size
        row[:] = np.repeat(np.array(sums) / np.array(sizes), sizes)
    return gains


def solve_workers(
    gains: FloatArray, transition: FloatArray, *, cost: float, stages: int, partial: float,
    tolerance: float = 1e-4, initial: FloatArray | None = None,
    sweeps: int | None = None,
) -> WorkerDecisions:
    """Solve the problems of all workers by relative value iteration.

    Parameters
    ----------
    gains : ndarray, shape (S, N)
        Gain of the k-th worker in the interval after load state s, non-increasing in k.
    transition : ndarray, shape (S, S)
        Transition probabilities of the load state.
    cost : float
        Cost per interval of an active or starting worker, > 0.
    stages, partial : int, float
        Intervals d until a started worker is active, and the share of the last of them, in [0, 1),
        in which it already serves.
    tolerance : float
        Largest span of each worker's average, as a share of ``cost``, > 0.
    initial : ndarray, shape (N, d+1, S), optional
        Initial values (warm start), such as the solution of a similar problem.
    sweeps : int, optional
        Largest number of sweeps; ``span`` then bounds the error that is left.
    """
    check_positive(cost=cost, tolerance=tolerance)
    states, workers = gains.shape
    gain = np.ascontiguousarray(gains.T)[:, None, :]  # (N, 1, S)
    # φ of the module's text: the share of an interval in which a worker of each age serves.
    share = np.zeros(stages + 1)
    share[-1] = 1.0
    if stages:
        share[-2] = partial
    on = share[:, None] * gain - cost  # reward of an interval in which a worker is on, (N, d+1, S)
    follower = np.minimum(np.arange(1, stages + 2), stages)  # age in the next interval
    value = np.zeros((workers, stages + 1, states)) if initial is None else initial.copy()
    kept = np.zeros((workers, stages + 1, states), bool)
    low, high = np.full(workers, -np.inf), np.full(workers, np.inf)
    left = np.arange(workers)  # workers that have not converged; the others are left out
    for sweep in range(1, _MOST_SWEEPS + 1):
        values = value[left]
        expected = values @ transition.T
        # A worker stays on, or is off and may start in the next interval (age 0, reward 0).
        stay = on[left] + expected[:, follower]
        change = np.maximum(stay, expected[:, :1]) - values
        low[left], high[left] = change.min(axis=(1, 2)), change.max(axis=(1, 2))
        # The span cannot fall below the rounding errors of the values.
        rounding = 1e-13 * np.abs(expected).max(axis=(1, 2))
        small = high[left] - low[left] <= np.maximum(tolerance * cost, rounding)
        if sweep == sweeps:
            small[:] = True
        if small.any():
            kept[left[small]] = (stay > expected[:, :1])[small]
        values += _DAMPING * change
        value[left] = values - values[:, :1, :1]
        left = left[~small]
        if not len(left):
            thresholds = np.maximum.accumulate(kept.sum(axis=0).T, axis=1)
            return WorkerDecisions(thresholds.astype(np.int64), float((0.5 * (low + high)).sum()),
                                   float((high - low).sum()), sweep, value)
    raise NotConvergedError("the span of the values did not fall", where="scaling policy",
                            value=float((high - low).max()),
                            allowed=f"{tolerance * cost:g} for each worker")
