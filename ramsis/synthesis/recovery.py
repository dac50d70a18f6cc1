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
falls, the sum rises until its mean passes 0.01. Bursts of another size meet other arrivals, so
that T, which is one of the t_i, is that of no other size. Where the load alone makes the policy
collapse in the course of a run, which it cannot do where it drops what is late, what it has
without bursts is what it has when its workers are idle again each time that a burst would come.
That is replayed, too, and counts where it is better by 0.01 on the mean. Bursts are 4 SLOs apart.
Where their halves, or quarters of fewer than 40, tell times that differ by more than 10 % and a
tenth of an SLO, there are eight times as many. Where T is more than half of the time between
bursts they are set 16, 128 and 512 SLOs apart; a policy that has not recovered after 256 SLOs is
called metastable; so is one whose queues are unstable. ``ramsis verify`` checks the result by the
plain engine, with other arrivals, and by means over intervals (:mod:`ramsis.verify.recovery`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Arrivals
from ramsis.arrivals.process import Sampler
from ramsis.errors import InvalidValueError, check_number_of
from ramsis.policy import Policy
from ramsis.policy.records import Recovery
from ramsis.sim.compiled import DrawnRequests, replay
from ramsis.sim.fleet import Fleet
from ramsis.sim.stationary import earned
from ramsis.sim.tables import KERNELS, Compiled
from ramsis.synthesis.options import BURST, MOST_BURST
from ramsis.synthesis.simulated import prepared_policy
from ramsis.worker.problem.actions import LateRule

LOSS = 0.01
"""Effective accuracy that may still be lost when a policy has recovered."""

_APART = (4.0, 16.0, 128.0, 512.0)  # SLOs between bursts
_SHARE = 0.5  # of that, by which a policy has recovered
_SETTLES = 10.0  # SLOs before the first burst
_DRAINS = 10.0  # times the run, that queues are given to drain
_QUERIES, _FEWEST, _MOST = 100_000, 4, 100  # requests in all; bursts
_MOST_REQUESTS = 4_000_000  # of all bursts
_SEEN = 0.75  # of that: requests that wait when the next burst comes lose by that one
_STEPS = 1600  # that the time between bursts is divided into
_ROUNDING = 1e-6  # of sums over the requests of all bursts
_UNLIKE, _AGAIN = 0.1, 8  # parts of the bursts may differ so much; else so many times as many
_ENOUGH = 40  # bursts whose halves are held against each other; of fewer, quarters
_SEED = (1 << 21) - BURST  # of a burst of no requests


def with_recovery(
    policy: Policy, burst: int = BURST, *, own_arrivals: str | None = None
) -> Policy:
    """Return the policy with its recovery, where its arrivals can be drawn.

    Parameters are those of :func:`recovery`.
    """
    check_number_of("burst", burst, most=MOST_BURST)
    try:
        found = recovery(policy, burst, own_arrivals=own_arrivals)
    except InvalidValueError:  # no samples of a process of one's own, or no compiled loop
        return policy
    return replace(policy, expectations=replace(policy.expectations, recovery=found))


def recovery(
    policy: Policy, burst: int = BURST, *, seed: int = _SEED, own_arrivals: str | None = None
) -> Recovery:
    """Measure how long a policy takes to recover from a burst.

    Parameters
    ----------
    burst : int
        Requests that arrive at once, from 1 to :data:`ramsis.synthesis.options.MOST_BURST`.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.
    """
    check_number_of("burst", burst, most=MOST_BURST)
    if policy.expectations.unstable:
        return Recovery(burst, None, True)
    fleet, plan = prepared_policy(policy)
    if plan.compiled is None:
        raise InvalidValueError("no compiled simulation to replay bursts in", where="dispatch",
                                value=policy.dispatch, allowed=", ".join(sorted(KERNELS)))
    process = Arrivals.of(policy.arrivals, own=own_arrivals).drawn(policy.load_qps)
    replayed = _Replayed(policy, fleet, plan.compiled, process)
    for slos in _APART:
        apart_ms = slos * policy.slo_ms
        within_ms = _within(replayed, burst, apart_ms, seed)
        if within_ms <= _SHARE * apart_ms:
            return Recovery(burst, within_ms, False)
    return Recovery(burst, None, True)


def _within(replayed: _Replayed, burst: int, apart_ms: float, seed: int) -> float:
    """T; with more requests where parts of the bursts tell different times."""
    for times in (1, _AGAIN):
        losses = _losses(replayed, burst, apart_ms, seed, times)
        by_step = losses.by_step
        count = 2 if len(by_step) >= _ENOUGH else 4
        parts = [_recovered(by_step[i::count]) for i in range(count)]
        spare = _UNLIKE * max(parts) + _UNLIKE * replayed.policy.slo_ms / apart_ms
        if max(parts) - min(parts) <= spare:
            break
    return losses.recovered_ms()


class _Losses(NamedTuple):
    """d − 0.01 of requests."""

    # shape (bursts, steps): sums over the requests that follow a burst, by time since then
    by_step: FloatArray
    # step, since_ms, lost: shape (n,): of each request; the first two say how long after a burst
    # it arrives
    step: IntArray
    since_ms: FloatArray
    lost: FloatArray

    def recovered_ms(self) -> float:
        """T; looked for only in steps in which the sum can come to its greatest."""
        of_step = self.by_step.sum(axis=0)[: int(_SEEN * _STEPS)]
        upto = np.cumsum(of_step)
        positive = np.bincount(self.step, np.maximum(self.lost, 0.0), _STEPS)[: len(upto)]
        may_be = upto - of_step + positive >= max(upto.max(), 0.0) - _ROUNDING
        greatest, at_ms = 0.0, 0.0
        for step in np.flatnonzero(may_be).tolist():
            there = np.flatnonzero(self.step == step)
            there = there[np.argsort(self.since_ms[there], kind="stable")]
            total = np.cumsum(self.lost[there]) + (upto[step] - of_step[step])
            if total.max(initial=0.0) > greatest:
                greatest, at_ms = float(total.max()), float(self.since_ms[there[total.argmax()]])
        return at_ms


def _recovered(by_step: FloatArray) -> float:
    """T as a share of the time between bursts, to a step."""
    steps = by_step.shape[1]
    total = np.cumsum(by_step.sum(axis=0)[: int(_SEEN * steps)])
    last = int(total.argmax())
    return (last + 1) / steps if total[last] > 0.0 else 0.0


@dataclass(frozen=True)
class _Replayed:
    """A policy prepared for replays."""

    policy: Policy
    fleet: Fleet
    compiled: Compiled
    process: Sampler


def _losses(
    replayed: _Replayed, burst: int, apart_ms: float, seed: int, times: int
) -> _Losses:
    """Return the accuracy that requests of a replay lose by bursts."""
    policy, fleet, compiled = replayed.policy, replayed.fleet, replayed.compiled
    rng = np.random.default_rng(seed + burst)
    bursts = min(max(_MOST_REQUESTS // burst, _FEWEST), times * int(
        np.clip(_QUERIES / (policy.load_qps / 1000.0 * apart_ms), _FEWEST, _MOST)))
    first_ms = _SETTLES * policy.slo_ms
    end_ms = first_ms + bursts * apart_ms
    arrival_ms = replayed.process.sample(end_ms, rng)
    at_ms = np.asarray(first_ms + apart_ms * np.arange(bursts), dtype=np.float64)
    place = np.repeat(np.searchsorted(arrival_ms, at_ms), burst)
    calm = _given(policy, fleet, arrival_ms, end_ms, rng)
    extra = _given(policy, fleet, np.repeat(at_ms, burst), end_ms, rng)
    both = DrawnRequests(
        np.insert(arrival_ms, place, extra.arrival_ms), end_ms,
        np.insert(calm.uniform, place, extra.uniform) if fleet.draws else calm.uniform,
        np.insert(calm.coin, place, extra.coin) if len(calm.coin) else calm.coin,
        None if calm.slo_ms is None or extra.slo_ms is None
        else np.insert(calm.slo_ms, place, extra.slo_ms))
    own = np.ones(len(both.arrival_ms), dtype=bool)
    own[place + np.arange(len(place))] = False
    without, with_bursts = (earned(replay(fleet, compiled, given, policy.load_qps))
                            for given in (calm, both))
    step = np.floor((arrival_ms - first_ms) / (apart_ms / _STEPS)).astype(np.int64)
    after = (step >= 0) & (step < bursts * _STEPS)
    usual = _usual(replayed, calm, at_ms, without)[after]
    lost = usual - with_bursts[own][after] - LOSS
    step = step[after]
    by_step = np.bincount(step, weights=lost, minlength=bursts * _STEPS)
    return _Losses(np.asarray(by_step, dtype=float).reshape(bursts, _STEPS), step % _STEPS,
                   (arrival_ms[after] - first_ms) % apart_ms, lost)


def _usual(
    replayed: _Replayed, calm: DrawnRequests, at_ms: FloatArray, without: FloatArray
) -> FloatArray:
    """What requests have without bursts, by the workers' own past or as if idle at each burst.

    Parameters
    ----------
    calm : DrawnRequests
        The arrivals without bursts.
    at_ms : ndarray
        When bursts would come.
    without : ndarray, shape (n,)
        What each request earns then.
    """
    if not len(without) or replayed.policy.late == LateRule.DROP.value:
        return without
    pause_ms = _DRAINS * calm.duration_ms  # in which any queue is served
    pauses = np.searchsorted(at_ms, calm.arrival_ms, side="right")
    anew = replace(calm, arrival_ms=calm.arrival_ms + pause_ms * pauses,
                   duration_ms=calm.duration_ms + pause_ms * len(at_ms))
    idle = earned(replay(replayed.fleet, replayed.compiled, anew, replayed.policy.load_qps))
    return idle if float(idle.mean()) - float(without.mean()) > LOSS else without


def _given(
    policy: Policy, fleet: Fleet, arrival_ms: FloatArray, end_ms: float, rng: np.random.Generator
) -> DrawnRequests:
    """Arrivals with the numbers that a run takes."""
    slos = None
    if policy.slo_classes:
        slos = rng.choice([one.slo_ms for one in policy.slo_classes], size=len(arrival_ms),
                          p=[one.share for one in policy.slo_classes])
    return DrawnRequests.drawn(arrival_ms, end_ms, rng, slos, draws=fleet.draws,
                               by_chance=policy.randomised is not None)
