"""Headroom: policies planned for longer service times than profiled.

A policy that is optimal for the service times as profiled keeps workers busy nearly all the time,
for the last 0.01 % of accuracy. If service takes a little longer, for example in slow spells or on
a machine with other work, its violations rise a hundredfold. With headroom a policy is planned as
if service took longer. The figures in the file are still measured at the times as profiled, and
once more with service times 10 % longer.

**Rule.** Plan for service times 10 % longer, unless that costs more than 0.003 of effective
accuracy compared with the policy planned as profiled, or the workers could not answer the load in
such times; then plan for 5 % longer on the same conditions; else plan as profiled. The losses are
measured at the times as profiled, on the same arrivals with the same draws of service times, so
that differences are known better than either figure. A policy that cannot be replayed is planned
as profiled.

*Capacity.* A policy planned for more than the workers can do gives up requests that they could
answer. At its own load that may cost less than 0.003. But in overload the policy of the highest
level decides at higher loads, too, where it costs several times as much.

*Bound.* No policy as profiled earns more than the bound for all schedulers. So if a policy with
headroom is within 0.003 of the bound, there is no need to solve the problem as profiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.policy import Policy
from ramsis.policy.records import HeadroomRecord, Simulated
from ramsis.synthesis.simulated import (
    Drawn,
    bursty_queries,
    can_be_replayed,
    one_worker,
    simulated,
)

HEADROOM = (0.1, 0.05)
"""Shares by which service times are planned to be longer; the first that is cheap enough."""
ALLOWED_LOSS = 0.003
"""Effective accuracy that headroom may cost at the service times as profiled."""
SLOWER = 1.1
"""Factor on the service times at which a policy with headroom states further figures."""

_QUERIES, _RUNS, _SEED = 100_000, 4, 1 << 28


class Replays:
    """Replays of policies for one load, on the same arrivals; each table is replayed once."""

    def __init__(self) -> None:
        self._drawn = Drawn()
        self._figures: dict[tuple[bytes, float], Simulated] = {}

    def at(self, policy: Policy, slower: float) -> Simulated | None:
        """Replay a policy with service times a factor longer; None where it cannot be replayed."""
        if not can_be_replayed(policy):
            return None
        table = b"".join(values.tobytes() for values in (
            policy.queue_levels, policy.slack_ms, policy.actions, policy.codes))
        key = table, slower
        if key not in self._figures:
            self._figures[key] = simulated(
                one_worker(policy) or policy, queries=max(_QUERIES, bursty_queries(policy, _RUNS)),
                runs=_RUNS, seed=_SEED, slower=slower, drawn=self._drawn)
        return self._figures[key]


class Limits(NamedTuple):
    """Capacity and upper bound at a load, at service times as profiled."""

    load_qps: float
    capacity_qps: float
    effective_accuracy: float  # upper bound

    def allow(self, share: float) -> bool:
        """Return whether the load is within the capacity at service times longer by a share."""
        return self.load_qps * (1.0 + share) <= self.capacity_qps


def with_headroom(
    planned: Callable[[float], Policy], headroom: float | None, replays: Replays, limits: Limits
) -> Policy:
    """Return the policy with headroom, by the rule of this module or as ``headroom`` says.

    ``planned`` gives the optimal policy for service times a factor longer than profiled.
    """
    if headroom == 0.0:
        return planned(1.0)
    if headroom is not None:
        return _planned_for(planned(1.0 + headroom), 1.0 + headroom)
    as_profiled: Policy | None = None
    for share in filter(limits.allow, HEADROOM):
        try:
            policy = planned(1.0 + share)
        except (InvalidValueError, InfeasibleError, NotConvergedError):
            continue  # the SLO may be below every latency
        figures = replays.at(policy, 1.0)
        if figures is None:
            break
        most = limits.effective_accuracy
        if most - figures.effective_accuracy > ALLOWED_LOSS:
            as_profiled = as_profiled or planned(1.0)
            best = replays.at(as_profiled, 1.0)
            assert best is not None  # as the policy with headroom, at the same load
            most = best.effective_accuracy
        if most - figures.effective_accuracy <= ALLOWED_LOSS:
            return _planned_for(policy, 1.0 + share)
    return _planned_for(as_profiled or planned(1.0), 1.0)


def with_slower_figures(policy: Policy, replays: Replays) -> Policy:
    """Return the policy with its figures at longer service times, if it has headroom."""
    figures = None if policy.headroom is None else replays.at(policy, SLOWER)
    if policy.headroom is None or figures is None:
        return policy
    return replace(policy, headroom=replace(
        policy.headroom, slower_effective_accuracy=figures.effective_accuracy,
        slower_violation_rate=figures.violation_rate))


def _planned_for(policy: Policy, factor: float) -> Policy:
    return replace(policy, headroom=HeadroomRecord(factor, None, None))
