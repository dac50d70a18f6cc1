"""Check how a policy is said to recover from a burst.

The plain engine plays the policy's own load with bursts in between, and without them, with other
arrivals than those that the statement comes from. What a request loses is what it would earn
without bursts, on the mean where arrivals are Poisson, less what it earns with them. The statement
*within T* holds where the requests that arrive from 1.25 T + SLO/4 on lose less than 0.01 on
average, and those that arrive from 0.75 T − SLO/4 until T lose more. (Those before may lose
nothing: who drops what is late is done with a burst when its deadline passes, and short of time
for what arrived shortly before that.) That they lose more is not held of workers that answer late
requests: these are over most bursts at once, and fall into an overload by some, so that few bursts
may show none. A metastable policy still loses half of that from 128 to 256 SLOs after a burst.
Means are held to their standard errors, three of them, and those that are to be more than so much
also to what n requests may not show: a loss that one in n/6.6 has is not among them once in 740
times. Besides, the time is worked out again as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Arrivals
from ramsis.policy import Policy
from ramsis.sim import run_plan
from ramsis.synthesis.recovery import recovery
from ramsis.synthesis.simulated import prepared_policy
from ramsis.verify.checks import Check, close
from ramsis.worker.problem.actions import LateRule

_LOSS = 0.01
_SEED = 1 << 29
_SETTLES, _FEWEST, _MOST, _QUERIES = 10.0, 3, 40, 60_000
_APART = (4.0, 16.0, 128.0, 512.0)  # SLOs between the bursts of a claim
_METASTABLE = (128.0, 256.0)  # SLOs after a burst
_SPARE = 0.25  # of a time, and of an SLO
_ERRORS, _SURE = 3.0, 0.9987  # standard errors; the level of so many of a normal mean
_SAME = 1e-9  # of a time that is worked out again


@dataclass(frozen=True)
class _Bursts:
    """A workload: the load of a policy with bursts of so many requests at once."""

    policy: Policy
    duration_ms: float
    at_ms: tuple[float, ...]
    size: int
    own_arrivals: str | None

    @property
    def load_qps(self) -> float:
        """Return the load that the policy is told."""
        return self.policy.load_qps

    @property
    def varies(self) -> bool:
        """The load is constant but for the bursts."""
        return False

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """All requests, in order."""
        process = Arrivals.of(self.policy.arrivals, own=self.own_arrivals)
        own = process.drawn(self.policy.load_qps).sample(self.duration_ms, rng)
        return np.sort(np.append(own, np.repeat(self.at_ms, self.size)))


def recovery_checks(policy: Policy, own_arrivals: str | None = None) -> tuple[Check, ...]:
    """Whether a policy recovers as it says; none where it says nothing."""
    stated = policy.expectations.recovery
    if stated is None:
        return ()
    slo_ms, within_ms = policy.slo_ms, stated.within_ms
    if policy.expectations.unstable:
        # Held against how fast a long queue is served where the promise is checked.
        return (Check("unstable queues never recover", None, stated.within_ms,
                      stated.metastable),)
    again = recovery(policy, stated.burst, own_arrivals=own_arrivals)
    same = close("recovered after a burst: within (ms)", within_ms, again.within_ms,
                 _SAME * (again.within_ms or 0.0))
    if not same.holds:  # nor is that a time that is worth to be looked at, however long
        return (same,)
    if within_ms is None:
        first, last = (slos * slo_ms for slos in _METASTABLE)
        found = _lost(policy, stated.burst, last, own_arrivals)
        lost, error = found.between(first, last)
        spare = _ERRORS * error + found.unseen(first, last)
        return (same, Check("metastable after a burst: accuracy lost", _LOSS, lost,
                            lost > _LOSS / 2 - spare))
    early_ms = (1.0 - _SPARE) * within_ms - _SPARE * slo_ms
    late_ms = (1.0 + _SPARE) * within_ms + _SPARE * slo_ms
    until_ms = late_ms + max(slo_ms, within_ms)
    # As far apart as those that the claim is of, which so do not add up; or farther, as it may be
    # of bursts so far apart, where nearer ones were not over when the next one came.
    for slos in (one for one in _APART if within_ms <= one * slo_ms / 2.0):
        apart_ms = max(2.0 * until_ms, slos * slo_ms)
        found = _lost(policy, stated.burst, apart_ms, own_arrivals)
        lost, error = found.between(late_ms, until_ms)
        if lost <= _LOSS + _ERRORS * error:
            break
    checks = [same, Check("recovered after a burst: accuracy lost", _LOSS, lost,
                          lost <= _LOSS + _ERRORS * error)]
    if early_ms > 0.0 and policy.late == LateRule.DROP.value:
        lost, error = found.between(early_ms, within_ms)
        spare = _ERRORS * error + found.unseen(early_ms, within_ms)
        checks.append(Check("not sooner after a burst: accuracy lost", _LOSS, lost,
                            lost >= _LOSS - spare))
    return tuple(checks)


@dataclass(frozen=True)
class _Lost:
    """Accuracy that requests lose by a burst, and how long after which burst they arrive."""

    # since_ms, burst, lost: shape (n,)
    since_ms: FloatArray
    burst: IntArray
    lost: FloatArray
    error: float  # standard error of what requests have without bursts
    most: float  # that a request can lose

    def unseen(self, low_ms: float, high_ms: float) -> float:
        """What requests of an interval may lose on the mean by losses that none of them shows."""
        count = int(((self.since_ms > low_ms) & (self.since_ms <= high_ms)).sum())
        return -self.most * float(np.log(1.0 - _SURE)) / max(count, 1)

    def between(self, low_ms: float, high_ms: float) -> tuple[float, float]:
        """Mean over an interval and its standard error; nothing is lost where none arrive."""
        among = (self.since_ms > low_ms) & (self.since_ms <= high_ms)
        some, burst = self.lost[among], self.burst[among]
        if not len(some):
            return 0.0, np.inf
        spread = float(some.std()) / np.sqrt(len(some))
        bursts = len(np.unique(burst))
        if bursts > 1:  # requests behind one burst share its fate; of few bursts little is known
            off = np.bincount(burst, weights=some - some.mean())
            few = float(stdtrit(bursts - 1, _SURE)) / _ERRORS
            spread = max(spread, few * float(np.sqrt(off @ off)) / len(some))
        return float(some.mean()), float(np.hypot(spread, self.error))


def _lost(policy: Policy, burst: int, apart_ms: float, own_arrivals: str | None) -> _Lost:
    fleet, plan = prepared_policy(policy)
    most = _QUERIES / (policy.load_qps / 1000.0 * apart_ms + burst)
    bursts = 1 if apart_ms >= _METASTABLE[1] * policy.slo_ms else int(
        np.clip(most, _FEWEST, _MOST))
    first_ms = _SETTLES * policy.slo_ms
    end_ms = first_ms + bursts * apart_ms
    at_ms = tuple((first_ms + apart_ms * np.arange(bursts)).tolist())
    calm, rough = (
        run_plan(fleet, plan, _Bursts(policy, end_ms, times, burst, own_arrivals), seed=_SEED,
                 engine="plain") for times in ((), at_ms))
    own = ~np.isin(rough.arrival_ms, at_ms)  # the same requests as without bursts
    after = calm.arrival_ms >= first_ms
    usual, error = calm.reward, 0.0
    if policy.arrivals["process"] == "poisson":  # a mean also where the load alone is too much
        usual = np.full_like(calm.reward, calm.reward[after].mean())
        error = float(calm.reward[after].std()) / np.sqrt(max(int(after.sum()), 1))
    lost = (usual - rough.reward[own])[after]
    since_ms = calm.arrival_ms[after] - first_ms
    return _Lost(since_ms % apart_ms, (since_ms // apart_ms).astype(np.int64), lost, error,
                 float(usual.max(initial=0.0)))
