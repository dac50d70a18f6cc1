"""How long a policy takes to recover from a burst, or that it does not.

A burst of many requests at once comes on top of the load that a policy is for. The policy has
*recovered* when the requests that arrive from then on are on average answered within 0.01 of the
effective accuracy that they would have had without it. Some policies do not: the queue that a
burst leaves makes large and late batches, during which the next queue grows as long. They are
*metastable*.

**Method.** The same arrivals are replayed twice by the compiled simulator, once with bursts in
between, far apart. With d_i the effective accuracy that request i loses by the burst before it,
and t_i how long after the burst it arrives,

    T = the t at which  Σ_{t_i <= t} (d_i − 0.01)  is greatest

is the time after which less than 0.01 is lost. It needs no intervals to average over: where d_i
falls, the sum rises until its mean passes 0.01. Bursts are 16 SLOs apart. Where T is more than
half of that they are set 128 and then 512 SLOs apart; a policy that has not recovered after 256
SLOs is called metastable. ``ramsis verify`` checks the result by the plain engine, with other
arrivals, and by means over intervals (:mod:`ramsis.synthesis.verify_recovery`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import Arrivals
from ramsis.errors import InvalidValueError, check_number_of
from ramsis.policy import Policy
from ramsis.policy.records import Recovery
from ramsis.sim.compiled import Given, replay
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.synthesis.simulated import prepared_policy

__all__ = ["BURST", "LOSS", "MOST_BURST", "recovery", "with_recovery"]

FloatArray = NDArray[np.float64]

BURST = 1000
"""Requests of a burst, unless another number is given."""
MOST_BURST = 1_000_000
"""Largest burst."""
LOSS = 0.01
"""Effective accuracy that may still be lost when a policy has recovered."""

_APART = (16.0, 128.0, 512.0)  # SLOs between bursts
_SHARE = 0.5  # of that, by which a policy has recovered
_SETTLES = 10.0  # SLOs before the first burst
_QUERIES, _FEWEST, _MOST = 60_000, 3, 30  # requests in all; bursts
_SEED = 1 << 21


def with_recovery(policy: Policy, burst: int = BURST) -> Policy:
    """The policy with its recovery among its expectations."""
    found = recovery(policy, burst)
    return replace(policy, expectations=replace(policy.expectations, recovery=found))


def recovery(policy: Policy, burst: int = BURST, *, seed: int = _SEED) -> Recovery:
    """How long a policy takes to recover from a burst.

    Parameters
    ----------
    burst : int
        Requests that arrive at once, from 1 to :data:`MOST_BURST`.

    Raises
    ------
    InvalidValueError
        A burst out of range, or arrivals that cannot be drawn.
    """
    check_number_of("burst", burst, most=MOST_BURST)
    fleet, plan = prepared_policy(policy)
    for slos in _APART:
        apart_ms = slos * policy.slo_ms
        since_ms, lost = _losses(policy, fleet, plan, burst, apart_ms, seed)
        order = np.argsort(since_ms, kind="stable")
        total = np.cumsum(lost[order] - LOSS)
        if not len(total) or total.max() <= 0.0:
            return Recovery(burst, 0.0, False)
        within_ms = float(since_ms[order][total.argmax()])
        if within_ms <= _SHARE * apart_ms:
            return Recovery(burst, within_ms, False)
    return Recovery(burst, None, True)


def _losses(
    policy: Policy, fleet: Fleet, plan: Plan, burst: int, apart_ms: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """For each request after a burst the time since then, and the accuracy that it lost by it."""
    rng = np.random.default_rng(seed)
    bursts = int(np.clip(_QUERIES / (policy.load_qps / 1000.0 * apart_ms), _FEWEST, _MOST))
    first_ms = _SETTLES * policy.slo_ms
    end_ms = first_ms + bursts * apart_ms
    arrival_ms = Arrivals.of(policy.arrivals).drawn(policy.load_qps).sample(end_ms, rng)
    at_ms = first_ms + apart_ms * np.arange(bursts)
    place = np.repeat(np.searchsorted(arrival_ms, at_ms), burst)
    calm = _given(policy, fleet, arrival_ms, end_ms, rng)
    extra = _given(policy, fleet, np.repeat(at_ms, burst), end_ms, rng)
    both = Given(*(
        None if one is None else end_ms if name == "duration_ms"
        else np.insert(one, place, getattr(extra, name)) if len(one) else one
        for name, one in vars(calm).items()))
    own = np.ones(len(both.arrival_ms), dtype=bool)
    own[place + np.arange(len(place))] = False
    assert plan.compiled is not None
    without, with_bursts = (replay(fleet, plan.compiled, given, policy.load_qps).reward
                            for given in (calm, both))
    after = arrival_ms >= first_ms
    since_ms = (arrival_ms[after] - first_ms) % apart_ms
    return since_ms, (without - with_bursts[own])[after]


def _given(
    policy: Policy, fleet: Fleet, arrival_ms: FloatArray, end_ms: float, rng: np.random.Generator
) -> Given:
    """Arrivals with the numbers that a run takes."""
    slos = None
    if policy.slo_classes:
        slos = rng.choice([one.slo_ms for one in policy.slo_classes], size=len(arrival_ms),
                          p=[one.share for one in policy.slo_classes])
    return Given.drawn(arrival_ms, end_ms, rng, slos, draws=fleet.draws,
                       by_chance=policy.randomised is not None)
