"""The most accurate policy whose violation rate stays within a budget.

**Problem.** Maximise effective accuracy E subject to a violation rate V of at most v. With a price
p for each violation the policies that maximise E − p·V trace, as p grows from 0, the upper concave
hull of all (V, E): V falls, and E falls with it. Where the edge of slope p of the hull passes v,
two policies A (V > v) and B (V <= v) are both optimal at that price. So is every policy that acts
in each state as A or as B. One can therefore go from B to A state by state, until a single further
state takes V past v. The table before that state is the most accurate one within the budget that
this path has. (The optimum of the constrained problem would draw between the two actions of that
state: one constraint, one randomised state. One state among thousands is worth less than the
simulation can resolve.)

**Promise.** The models are not exact enough for rates of 1e-4. So V is measured: every policy on
the path is replayed in simulation, always with the same seeds, and counts as within the budget if
the upper end of its 95 % interval is. Where service times are drawn, the upper end of the interval
by their samples (:mod:`ramsis.analysis.sampled`) must be within the budget, too. The file holds
measured figures.

**Steps.**

1. p = 0: if that policy is within the budget, no price is needed.
2. p = 1/4, 1, 4, … up to 1024, until a policy is within the budget; if none is, the budget is
   infeasible. Higher prices are tried, too, while their policies may be more accurate, which the
   model excludes, but simulation may show.
3. Bisection on the logarithm of p, between A and B, until (p_B − p_A)·(V_A − V_B), the largest
   gain that the model may have between them, is less than 3e-5.
4. Bisection on the number of states, by queue length, that act as A does.

Where policies have headroom (:mod:`ramsis.synthesis.headroom`), each has that of its own price,
and all are replayed at the service times as profiled, for which the budget holds. Step 4 needs
policies that were planned for the same service times.

It **stops** at any step if the unused budget, v less the upper end of the interval, is worth less
than 3e-5 of accuracy, at the price and at the measured slope from B to A, or if it is below the
resolution of the simulation, a quarter of the half-width. Of all policies tried within the budget,
the most accurate is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from ramsis.analysis.sampled import CONFIDENCE, Evidence, at_confidence, rate_interval
from ramsis.errors import ABOVE_ZERO, InfeasibleError
from ramsis.policy import BudgetRecord, Expectations, Policy, codes_among
from ramsis.synthesis.replayed import replayed
from ramsis.synthesis.simulated import Simulated, simulated

HIGHEST_PRICE = 1024.0
"""Price at which policies have nearly the fewest violations, in units of accuracy."""

SEED = 1 << 20
"""First seed of the runs, away from those that are used for checks."""
RUNS = 16
_FEWEST, _MOST, _LATE = 4_000_000, 20_000_000, 1000  # requests; late ones wanted at the budget
_WORTH = 3e-5  # effective accuracy below which the search is at its end
_PRICES = 40  # steps of bisection, at most
_MOST_TIMES, _STEP_OF_SAMPLES = 1e9, 1.02  # of the samples: largest multiple tried, and its steps
_FAR = 4.0  # times the budget: more than that is seen in a few runs


@dataclass(frozen=True)
class _Tried:
    """Policy with its price of violations and its simulated rates."""

    policy: Policy
    price: float  # at which it is optimal
    rates: Simulated


class _Search:
    """Search for the best policy within a budget of violations."""

    def __init__(self, make: Callable[[float], Policy], budget: float, confidence: float) -> None:
        self.make, self.budget, self.confidence = make, budget, confidence
        self.queries = int(min(max(_FEWEST, _LATE / budget), _MOST))
        self.fitting: list[_Tried] = []
        self.closest: _Tried | None = None

    def at(self, price: float) -> _Tried:
        """Generate and simulate the optimal policy at a price."""
        return self.tried(self.make(price), price)

    def tried(self, policy: Policy, price: float) -> _Tried:
        """Simulate a policy; keep it if it is within the budget or the closest so far."""
        tried = _Tried(policy, price, simulated(
            policy, queries=self.queries, runs=RUNS, seed=SEED,
            hopeless=_FAR * self.budget))
        if self.closest is None or self.upper(tried) < self.upper(self.closest):
            self.closest = tried
        if self.fits(tried):
            self.fitting.append(tried)
        return tried

    def fits(self, tried: _Tried) -> bool:
        """Return whether the upper end of a policy's violation rate is within the budget."""
        return self.upper(tried) <= self.budget

    def upper(self, tried: _Tried) -> float:
        """Return the upper end of a violation rate, by simulation and by service-time samples."""
        interval = tried.policy.expectations.interval
        if interval is None:
            return tried.rates.upper
        evidence = Evidence.behind(interval)
        _, high = rate_interval(tried.rates.violation_rate, evidence, self.confidence)
        return high + tried.rates.violation_half_width

    def settled(self, beyond: _Tried, within: _Tried) -> bool:
        """Return whether the unused budget is negligible or below the resolution."""
        left = self.budget - self.upper(within)
        worth = max(within.price, accuracy_per_violation(within.rates, beyond.rates)) * left
        return worth < _WORTH or left < within.rates.violation_half_width / 4


def policy_within(
    make: Callable[[float], Policy], max_violation: float, *, confidence: float = CONFIDENCE,
) -> Policy:
    """Return the most accurate policy whose violation rate stays within a budget.

    ``make`` gives the optimal policy at a violation price. The upper end of the interval by the
    number of samples, at ``confidence``, must be within the budget, too. The policy's ``budget``
    has the rates of the simulation that it was chosen by, its expectations those of another one.
    """
    ABOVE_ZERO.check("not a violation rate", optional=True, max_violation=max_violation)
    search = _Search(make, max_violation, confidence)
    first = make(0.0)
    _check_samples(search, first)
    free = search.tried(first, 0.0)
    if not search.fits(free):
        _improve(search, *_narrowed(search, *_bracket(search, free)))
    return _stated(search)


def _check_samples(search: _Search, first: Policy) -> None:
    """Refuse a budget that the samples could not support even if none of them were late."""
    policy, least = first, 1.0
    for price in (0.0, HIGHEST_PRICE):
        policy = first if price == 0.0 else search.make(price)
        interval = policy.expectations.interval
        if interval is None:
            return
        least = min(least, rate_interval(0.0, Evidence.behind(interval), search.confidence)[1])
        if least <= search.budget:
            return
    rate = policy.expectations.violation_rate
    wanted = _more_samples(search, policy, rate) or _more_samples(search, policy, 0.0)
    assert wanted is not None
    raise _too_few_samples(search, policy, wanted, least)


def _more_samples(search: _Search, policy: Policy, rate: float) -> float | None:
    """Return how many times the samples keep a rate's upper end within the budget, or None."""
    assert policy.expectations.interval is not None
    evidence = Evidence.behind(policy.expectations.interval)

    def fits(times: float) -> bool:
        return rate_interval(rate, evidence.of_more(times), search.confidence)[1] <= search.budget

    times = 1.0
    while not fits(times) and times < _MOST_TIMES:
        times *= _STEP_OF_SAMPLES
    return times if fits(times) else None


def _too_few_samples(
    search: _Search, policy: Policy, times: float, least: float
) -> InfeasibleError:
    """Return the error of too few samples, which names how many are needed.

    ``least`` is the lowest upper end of a violation rate that any policy reached.
    """
    fewest = int(policy.samples[policy.samples > 0].min())  # 0 is unknown
    wanted = math.ceil(times * fewest)
    return InfeasibleError(
        f"{fewest} samples of each batch cannot support this budget with a confidence of "
        f"{search.confidence:g}", where=f"max_violation at {policy.load_qps:g} QPS",
        value=search.budget, allowed=f"a profile of {wanted} samples or more (profile measure "
        f"--min-samples {wanted}), or at least {_rounded_up(least)}")


def _rounded_up(rate: float) -> str:
    """Format a rate with two digits, at least 2 % above it."""
    digits = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return f"{math.ceil(1.02 * rate / digits) * digits:.2g}"


def _bracket(search: _Search, free: _Tried) -> tuple[_Tried, _Tried]:
    """Find policies beyond and within the budget at neighbouring prices of a coarse grid."""
    beyond, price = free, 0.25
    while price <= HIGHEST_PRICE:
        tried = search.at(price)
        if search.fits(tried):
            _climb(search, tried)
            return beyond, tried
        beyond, price = tried, 4.0 * price
    assert search.closest is not None
    policy = search.closest.policy
    if policy.expectations.interval is not None and search.closest.rates.upper < search.budget:
        times = _more_samples(search, policy, search.closest.rates.upper)
        if times is not None:
            raise _too_few_samples(search, policy, times, search.upper(search.closest))
    raise _none_within(search, policy, search.upper(search.closest))


def _none_within(search: _Search, policy: Policy, least: float) -> InfeasibleError:
    """Return the error of an infeasible budget; ``least`` is the lowest rate that was reached."""
    return InfeasibleError("no policy keeps the violation rate within the budget",
                           where=f"max_violation at {policy.load_qps:g} QPS", value=search.budget,
                           allowed=f"at least {_rounded_up(least)}")


def _climb(search: _Search, within: _Tried) -> None:
    """Try higher prices while their policies may be more accurate, by the intervals."""
    best, price = within.rates, 4.0 * within.price
    while price <= HIGHEST_PRICE:
        dearer = search.at(price).rates
        if dearer.effective_accuracy + dearer.effective_half_width <= best.effective_accuracy:
            return
        best, price = max(best, dearer, key=lambda rates: rates.effective_accuracy), 4.0 * price


def _narrowed(search: _Search, beyond: _Tried, within: _Tried) -> tuple[_Tried, _Tried]:
    """Bisect prices until no policy between the two could gain anything."""
    for _ in range(_PRICES):
        late = [tried.policy.expectations.violation_rate for tried in (beyond, within)]
        hidden = (within.price - beyond.price) * (late[0] - late[1])
        if search.settled(beyond, within) or hidden < _WORTH:
            break
        tried = search.at(math.sqrt(max(beyond.price, within.price / 16.0) * within.price))
        beyond, within = (beyond, tried) if search.fits(tried) else (tried, within)
    return beyond, within


def _improve(search: _Search, beyond: _Tried, within: _Tried) -> None:
    """Bisect how many states, short queues first, may act as in the policy beyond the budget."""
    price, policy = within.price, within.policy
    if not _mixable(policy, beyond.policy):
        return
    ours = policy.codes
    actions, theirs = codes_among(policy.actions, beyond.policy.actions, beyond.policy.codes)
    differ = np.argwhere(ours != theirs)
    differ = differ[np.argsort(differ[:, 1], kind="stable")]  # by queue length

    def between(count: int) -> Policy:
        codes = ours.copy()
        places = tuple(differ[:count].T)
        codes[places] = theirs[places]
        return replace(policy, actions=actions, codes=codes)

    low, high = 0, len(differ)
    while not search.settled(beyond, within) and high - low > 1:
        middle = (low + high) // 2
        tried = search.tried(between(middle), price)
        if search.fits(tried):
            low, within = middle, tried
        else:
            high, beyond = middle, tried


def _mixable(policy: Policy, other: Policy) -> bool:
    """Return whether two tables distinguish the same states and were planned for equal times."""
    return (policy.planned_factor == other.planned_factor
            and np.array_equal(policy.slack_ms, other.slack_ms)
            and np.array_equal(policy.queue_levels, other.queue_levels))


def accuracy_per_violation(
    few: Expectations | Simulated, many: Expectations | Simulated
) -> float:
    """Return the accuracy gained per additional violation between two policies; 0 without any."""
    more = many.violation_rate - few.violation_rate
    return (many.effective_accuracy - few.effective_accuracy) / more if more > 0 else 0.0


def _stated(search: _Search) -> Policy:
    """Return the most accurate policy within the budget, its promise from another simulation.

    A policy that was chosen at the edge of the budget may be beyond it there; then the next one
    is taken, and after these the optimal policies at higher prices.
    """
    least = 1.0
    for tried in _by_accuracy(search):
        policy = replayed(tried.policy, queries=tried.rates.queries, runs=tried.rates.runs)
        expected = policy.expectations
        if expected.interval is None:
            upper = expected.violation_rate
        else:
            expected = at_confidence(expected, Evidence.behind(expected.interval),
                                     search.confidence)
            assert expected.interval is not None
            upper = expected.interval.violation_rate[1]
        if upper <= search.budget:
            return replace(policy, expectations=expected, budget=BudgetRecord(
                max_violation_rate=search.budget, **asdict(tried.rates)))
        least = min(least, upper)
    raise _none_within(search, policy, max(least, search.budget))


def _by_accuracy(search: _Search) -> Iterator[_Tried]:
    """Yield policies within the budget, most accurate first, then those at higher prices."""
    yield from sorted(search.fitting, key=lambda tried: -tried.rates.effective_accuracy)
    price = max(0.25, 4.0 * max(tried.price for tried in search.fitting))
    while price <= HIGHEST_PRICE:
        tried = search.at(price)
        if search.fits(tried):
            yield tried
        price *= 4.0
