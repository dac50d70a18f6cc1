"""Check how a policy is said to recover from a burst.

The plain engine plays the policy's own load with bursts in between, and without them, with other
arrivals than those that the statement comes from. Let E be the mean effective accuracy without
bursts. The statement *within T* holds where the requests that arrive from 1.25 T + SLO/4 on lose
less than 0.01 on average, and those that arrive shortly before 0.75 T − SLO/4 lose more. A
metastable policy still loses half of that from 128 to 256 SLOs after a burst. Means are held
to their standard errors, three of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import Arrivals
from ramsis.policy import Policy
from ramsis.sim import run_plan
from ramsis.synthesis.checks import Check
from ramsis.synthesis.simulated import prepared_policy

__all__ = ["recovery_checks"]

FloatArray = NDArray[np.float64]

_LOSS = 0.01
_SEED = 1 << 29
_SETTLES, _FEWEST, _MOST, _QUERIES = 10.0, 3, 40, 60_000
_METASTABLE = (128.0, 256.0)  # SLOs after a burst
_SPARE = 0.25  # of a time, and of an SLO


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
        """What the policy is told."""
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
    """Whether a policy recovers as it says; none where it says nothing.

    Raises
    ------
    InvalidValueError
        The arrival process cannot be drawn from.
    """
    stated = policy.expectations.recovery
    if stated is None:
        return ()
    slo_ms, within_ms = policy.slo_ms, stated.within_ms
    if within_ms is None:
        first, last = (slos * slo_ms for slos in _METASTABLE)
        lost, error = _lost(policy, stated.burst, last, own_arrivals).between(first, last)
        return (Check("metastable after a burst: accuracy lost", _LOSS, lost,
                      lost > _LOSS / 2 - 3 * error),)
    early_ms = (1.0 - _SPARE) * within_ms - _SPARE * slo_ms
    late_ms = (1.0 + _SPARE) * within_ms + _SPARE * slo_ms
    until_ms = late_ms + max(slo_ms, within_ms)
    found = _lost(policy, stated.burst, 2.0 * until_ms, own_arrivals)
    lost, error = found.between(late_ms, until_ms)
    checks = [Check("recovered after a burst: accuracy lost", _LOSS, lost,
                    lost <= _LOSS + 3 * error)]
    if early_ms > 0.0:
        lost, error = found.between(0.5 * early_ms, early_ms)
        checks.append(Check("not sooner after a burst: accuracy lost", _LOSS, lost,
                            lost >= _LOSS - 3 * error))
    return tuple(checks)


@dataclass(frozen=True)
class _Lost:
    """Accuracy that requests lose by a burst, and how long after it they arrive."""

    since_ms: FloatArray
    lost: FloatArray
    error: float

    def between(self, low_ms: float, high_ms: float) -> tuple[float, float]:
        """Mean over an interval and its standard error; nothing is lost where none arrive."""
        some = self.lost[(self.since_ms > low_ms) & (self.since_ms <= high_ms)]
        if not len(some):
            return 0.0, np.inf
        spread = float(some.std()) / np.sqrt(len(some))
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
    usual = calm.reward[calm.arrival_ms >= first_ms]
    own = (rough.arrival_ms >= first_ms) & ~np.isin(rough.arrival_ms, at_ms)
    since_ms = (rough.arrival_ms[own] - first_ms) % apart_ms
    return _Lost(since_ms, float(usual.mean()) - rough.reward[own],
                 float(usual.std()) / np.sqrt(max(len(usual), 1)))
