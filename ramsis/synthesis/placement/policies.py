"""Policies for the stations of a placement, each for the load that the placement sends to it.

A station gets a policy for one central queue. Where that promises clearly less than the fluid
bound, one for round robin, with batches of any size, is made too, and the policy that promises
more is taken: with small batches of fixed length round robin keeps workers as busy as a central
queue does. Both promises are measured (:mod:`ramsis.synthesis.replayed`): at 99 % of the capacity
the model of round robin is off by 0.003, that of a central queue for one worker by up to 0.035.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ramsis.policy import Policy
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers import Policies
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.placement.stations import PlacedStation
from ramsis.synthesis.replayed import replayed
from ramsis.synthesis.settings import SynthesisSettings

_CLEARLY = 0.005  # of effective accuracy
_GRID = "fixed:100"


def station_policies(
    stations: Sequence[PlacedStation], on_policy: Callable[[], object] | None = None
) -> tuple[Policy | None, ...]:
    """Generate a policy for each station with one use; ``None`` for a duty cycle.

    Like stations have the same policy.

    Parameters
    ----------
    on_policy : callable, optional
        Called after each station.
    """
    generated: dict[object, Policy] = {}
    policies: list[Policy | None] = []
    for station in stations:
        key = (station.profile.fingerprint, len(station.workers), station.load_qps)
        if len(station.uses) == 1 and key not in generated:
            generated[key] = _policy(station)
        policies.append(generated[key] if len(station.uses) == 1 else None)
        if on_policy is not None:
            on_policy()
    return tuple(policies)


def _policy(station: PlacedStation) -> Policy:
    """Generate a station's policy: central queue, or round robin where that promises more."""
    (use,) = station.uses
    settings = SynthesisSettings(use.family.slo_ms, len(station.workers), service="p95",
                                 dispatch="central-queue", max_queue=station.max_batch,
                                 headroom=0.0)
    central = generate_policy(station.profile, station.load_qps, settings)
    promised, bound = central.expectations.effective_accuracy, central.expectations.upper_bound
    if len(station.workers) == 1 or bound is None or bound - promised <= _CLEARLY:
        return central
    in_turn = SynthesisSettings(
        use.family.slo_ms, len(station.workers), service="p95", grid=_GRID, late="drop",
        batching="variable", violation_price=1.0, headroom=0.0)
    by_turns = replayed(generate_policy(station.profile, station.load_qps, in_turn))
    return by_turns if by_turns.expectations.effective_accuracy > promised else central


def station_fleet(station: PlacedStation, max_batch: int) -> Fleet:
    """Return a station's workers for simulation; the SLO is the longest of its families'."""
    slo_ms = max(use.family.slo_ms for use in station.uses)
    return Fleet.of(station.profile, workers=len(station.workers), slo_ms=slo_ms, service="p95",
                    max_batch=max_batch)


def station_plan(station: PlacedStation, policy: Policy) -> tuple[Fleet, Plan]:
    """Return a station's workers for simulation, and its policy ready to run on them."""
    policies = Policies((policy,), station.name)
    fleet = station_fleet(station, max(station.max_batch, policies.max_batch))
    return fleet, policies.prepare(fleet)
