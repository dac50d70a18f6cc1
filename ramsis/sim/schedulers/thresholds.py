"""Base of schedulers of cascades with a fixed threshold of confidence.

All requests get the same first model. If the confidence of its answer is below a threshold, the
same second model answers the request again. An idle worker takes as many waiting requests as end
within the slack of the head, and drops a head that even a batch of 1 answers late. Second opinions
run before fresh requests once a batch of them has gathered or the slack of their head runs out;
otherwise they run when no fresh request waits. If a second opinion cannot be in time, the first
answer is given. So no request is late because of its second model, unlike in the sources of these
schedulers.

The threshold is one of the profile's thresholds, which divide the requests by confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import InvalidValueError
from ramsis.profiles import Confidences
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.engine import WorkerGroup
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.plan import ClusterPlan, FleetScheduler, PerType
from ramsis.sim.tables import CascadeTables, Level, PlacedCascade, any_idle_level

_BINS = 96  # of slack


class Threshold(NamedTuple):
    """Cascade with a fixed threshold, its models by their place in a fleet."""

    first: int
    second: int
    # number of bins of the first model's confidence, from the lowest on, with a second opinion
    unsure_bins: int
    gather: int  # least number of second opinions that run before fresh requests
    least: int = 1  # least number of fresh requests that run as a batch, unless slack runs out


class OneQueue(PerType):
    """Base class of schedulers with second opinions, for workers of one type and one SLO."""

    name: ClassVar[str]

    def on_cluster(self: Any, fleets: Fleets) -> ClusterPlan:
        """Return the plan for the workers; refuse several worker types or SLO classes."""
        if len(fleets.fleets) > 1 or len(fleets.classes) > 1:
            raise InvalidValueError(
                "second opinions on workers of several types, or for several SLO classes",
                where=f"scheduler {self.name}", value=", ".join(fleets.worker_types),
                allowed="workers of one type and one SLO")
        scheduler: FleetScheduler = self
        return ClusterPlan.of_one(scheduler.prepare(fleets.fleets[0]), fleets)


def confidences_of(fleet: Fleet, name: str) -> Confidences:
    """Return the confidences of a fleet's profile, for a scheduler that needs them."""
    if fleet.confidences is None:
        raise InvalidValueError(
            "the profile has no confidences", where=f"scheduler {name}",
            allowed="a profile with confidences, see `ramsis profile import --confidences`")
    return fleet.confidences


def placed(fleet: Fleet, confidences: Confidences, cascade: Threshold) -> PlacedCascade:
    """Return the tables that simulate a cascade with a fixed threshold, for all loads alike."""
    first, second = (fleet.models[m] for m in (cascade.first, cascade.second))
    share, increment = confidences.model(first).share, confidences.increment(first, second)
    models, bins = len(fleet.models), len(share)
    upto, added = np.ones((models, bins)), np.zeros((models, bins))
    upto[cascade.first], added[cascade.first] = np.cumsum(share), increment
    batch = _batches(fleet, cascade.first, cascade.least)[None].astype(np.int16)
    second_ms = second_times(fleet, cascade.second)
    return PlacedCascade(CascadeTables(
        model=np.full_like(batch, cascade.first), batch=batch,
        unsure_bins=np.eye(1, models, cascade.first, dtype=np.int64) * cascade.unsure_bins,
        upto=upto, gather=np.array([cascade.gather]), least=np.ones(1, dtype=np.int64),
        second_ms=np.append(0.0, second_ms), second=cascade.second, levels_per_fresh=0.0,
        levels_per_unsure=0.0, step_ms=fleet.slo_ms / _BINS, last_call_ms=0.0), added)


def second_times(fleet: Fleet, model: int) -> FloatArray:
    """Return the times of a model's batches that end within the SLO, not falling, shape (B',)."""
    times = np.maximum.accumulate(fleet.table.latency_ms[model])
    within: FloatArray = times[times <= fleet.slo_ms]
    return within


def alone(fleet: Fleet, model: int, load_qps: float) -> Level:
    """Return the level of a model that answers all requests up to a load."""
    batch = _batches(fleet, model)
    return any_idle_level(load_qps, _slacks_ms(fleet), np.full_like(batch, model), batch)


def stated_load_only(name: str) -> Callable[[WorkerGroup], Any]:
    """Return a function that refuses to start a run on the plain engine."""

    def start(engine: WorkerGroup) -> Any:
        raise InvalidValueError("second opinions are simulated at a stated load, by the compiled "
                                "loop", where=f"scheduler {name}",
                                allowed="monitor off, one type of workers, without slow spells")

    return start


def _slacks_ms(fleet: Fleet) -> FloatArray:
    slacks: FloatArray = fleet.slo_ms / _BINS * np.arange(_BINS + 1.0)
    return slacks


def _batches(fleet: Fleet, model: int, least: int = 1) -> Any:
    """Return the batch by queue length and slack bin, 0 to drop the head, -1 to wait, (B, J)."""
    times = np.maximum.accumulate(fleet.table.latency_ms[model])
    slack_ms = _slacks_ms(fleet) + SLACK_TOLERANCE_MS
    queued = 1 + np.arange(fleet.max_batch)[:, None]
    fits = np.searchsorted(times, slack_ms, side="right")
    waits = (queued < least) & (slack_ms > times[: len(queued), None] + fleet.slo_ms / _BINS)
    return np.where(waits, -1, np.minimum(queued, fits[None, :]))
