"""The stations of a cluster: its workers and its load divided, and a policy for each station.

A cluster is served by *stations*: some workers of one type with a policy of their own, and for
each SLO class the share of its requests that comes to them. Each request goes to a station at
random by these shares, so that what arrives there is the process of all requests, thinned
(:mod:`ramsis.cluster.routing`). What is maximised is the sum over the stations of load × what the
station's policy promises: effective accuracy less violation price × violation rate. With a budget
of violations the price divides the load, and then each station gets the best policy within the
budget, so that the whole is within it. Headroom, too, is for the final policies: the load is
divided by what policies planned as profiled promise.

1. Worker types that are alike are merged, and so are classes of one SLO. One type and one class
   are one station, and nothing is divided.
2. *Between types* each class's load is divided in 128ths: from the fluid bound's division, from
   everything on one type, and from loads by capacity, the best of exchanges
   (:mod:`ramsis.synthesis.division`). So it is never worse than the best type alone.
3. *Within a type* classes share the workers or have workers of their own; see
   :mod:`ramsis.synthesis.type_load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ramsis.arrivals import Arrivals, describe_process
from ramsis.bounds import FluidBound, fluid_bound
from ramsis.cluster import Cluster, SloClass
from ramsis.cluster.checks import check_reachable, numbered_alike
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Inputs, Level, Policy, Rates, Station, level_of, rates_of
from ramsis.runtime.table import arrivals_label
from ramsis.synthesis.division import Division, best_division, rounded
from ramsis.synthesis.generate import prepared
from ramsis.synthesis.settings import SynthesisSettings, inputs_of, with_settings
from ramsis.synthesis.type_load import LikeWorkers, TypeLoads

UNITS = 128
"""Parts that a class's load is divided into between worker types."""

_LOAD_STEPS = (32, 16, 8, 4, 2, 1)
_LOAD_STEPS_WITH_CLASSES = (32, 16, 8)  # each valuation divides the workers, too


class ClusterProblem:
    """Cluster to make policies for, checked; :meth:`level` makes them for a load.

    Parameters
    ----------
    cluster : Cluster
        Its worker types and SLO classes; stations are what is looked for.
    settings : SynthesisSettings
        All but workers and SLOs, which are the cluster's. A single worker's queue is a central one
        (:meth:`~ramsis.synthesis.settings.SynthesisSettings.with_one_queue`).

    Attributes
    ----------
    one_station : bool
        Whether the cluster has like workers and one SLO, so that nothing is divided.
    """

    def __init__(self, cluster: Cluster, settings: SynthesisSettings) -> None:
        self.cluster, self.classes = cluster, cluster.classes
        profiles = [one.profile for one in cluster.worker_types]
        alike = len({settings.chosen_service(one) for one in profiles}) == 1
        service = settings.service if alike else settings.chosen_service(*profiles)
        self.settings = replace(settings, slo_ms=cluster.slo_ms, workers=cluster.workers,
                                slo_classes=(), service=service)
        if not cluster.simple:
            check_reachable([kind.times for kind in self.kinds], self.classes)
        self.one_station = cluster.simple or len(self.kinds) == len(self.classes) == 1
        if self.one_station:
            self.settings = self.settings.with_one_queue()
        elif settings.cascades:
            raise InvalidValueError("second opinions on workers of several types, or for several "
                                    "SLO classes", where="cascades", value=True,
                                    allowed="workers of one type and one SLO")
        else:
            self._loads(1.0).arrivals_at(0.5)  # refuses a process that cannot be split

    @cached_property
    def kinds(self) -> tuple[LikeWorkers, ...]:
        """Worker types, with types of equal service times merged."""
        settings = self.settings
        types = [replace(one, profile=settings.profile_for(one.profile))
                 for one in self.cluster.worker_types]
        times = [one.service_times(settings.chosen_service(one.profile), settings.max_queue)
                 for one in types]
        alike = numbered_alike(times)
        return tuple(
            LikeWorkers(tuple(types[i].name for i in members),
                        self.cluster.worker_types[members[0]].profile,
                        times[members[0]], sum(types[i].count or 0 for i in members))
            for kind in range(max(alike) + 1)
            for members in [[i for i, own in enumerate(alike) if own == kind]])

    def bound(self, load_qps: float) -> FluidBound:
        """Return the fluid bound (one model per request), with a row for each kind."""
        return fluid_bound([kind.times for kind in self.kinds], slo_ms=self.classes,
                           workers=[kind.workers for kind in self.kinds], load_qps=load_qps)

    def prepared(self, load_qps: float) -> Callable[[], Level[Policy]]:
        """Check the input for a load, and return a function that makes its level."""
        if not self.one_station:
            return partial(self._divided, load_qps)
        types = self.cluster.worker_types
        make = prepared(types[0].profile, load_qps, self.settings)
        return lambda: level_of(make(), tuple(one.name for one in types))

    def level(self, load_qps: float) -> Level[Policy]:
        """Make the level of a load, with the best policies found."""
        return self.prepared(load_qps)()

    def inputs(self, station: Station[Policy]) -> Inputs:
        """Return the fingerprints of the inputs of a policy for a station."""
        policy = station.policy
        settings = replace(self.settings, slo_ms=policy.slo_ms, workers=policy.workers,
                           slo_classes=policy.slo_classes, slowness=policy.slowness)
        known = self._profiles[station.worker_types[0]]
        return with_settings(known, settings)

    @cached_property
    def _profiles(self) -> dict[str, Inputs]:
        """Record of each type's profile, with these settings."""
        return {one.name: inputs_of(one.profile, self.settings)
                for one in self.cluster.worker_types}

    def _loads(self, load_qps: float) -> TypeLoads:
        return TypeLoads(self.kinds, self.classes, self.settings, load_qps)

    def _divided(self, load_qps: float) -> Level[Policy]:
        """Make the level of a load that is divided among stations."""
        bound, types = self.bound(load_qps), self._loads(load_qps)
        steps = _LOAD_STEPS if len(self.classes) == 1 else _LOAD_STEPS_WITH_CLASSES

        def loads(division: Division) -> list[tuple[int, tuple[float, ...]]]:
            return _loads(division, self.classes)

        def at_most(division: Division) -> float:
            return sum(types.at_most(t, own) for t, own in loads(division))

        division = best_division(
            lambda d: sum(types.worth(t, own) for t, own in loads(d)), at_most,
            self._starts(bound), steps if len(self.kinds) > 1 else ())
        if at_most(division) < 0:
            raise InfeasibleError(
                "fewer workers of a type than SLO classes", where="workers",
                allowed="a worker for each class, or a central queue (--dispatch central-queue)")
        ways = [types.ways(t, own) for t, own in loads(division)]
        several = len(self.classes) > 1
        if several and self.settings.max_violation is None:  # both are stated, as served
            ways = [types.both_finished(way) for way in ways]
        stations = [types.finished(one)
                    for way in ways for one in types.better_simulated(way)]
        shared, apart = (
            types.simulated([one for way in found for one in way or ()])
            if several and all(way is not None for way in found) else None
            for found in ([way.shared for way in ways], [way.apart for way in ways]))
        arrivals = Arrivals.parse(self.settings.arrivals)(load_qps)
        return Level(
            load_qps, arrivals_label(describe_process(arrivals)),
            tuple(_with_shares(one, self.classes) for one in stations),
            _expected(stations, load_qps, bound, shared, apart), self.settings.slowness)

    def _starts(self, bound: FluidBound) -> list[Division]:
        """Return divisions of the classes' loads between types to start the search from."""
        able = np.array([[float(kind.times.quantiles_ms[:, :, 0].min()) <= one.slo_ms
                          for one in self.classes] for kind in self.kinds])
        speed = np.array([kind.workers / float(kind.times.quantiles_ms[:, 0, 0].min())
                          for kind in self.kinds])
        by_speed = able * speed[:, None]
        fluid = np.where(bound.type_share.sum(axis=0) > 0, bound.type_share, by_speed)
        weights = [fluid, by_speed]
        for t in range(len(self.kinds)):
            alone = np.zeros(able.shape)
            alone[t] = able[t]
            weights.append(np.where(able[t], alone, by_speed))
        return [tuple(rounded(column.tolist(), UNITS) for column in weight.T)
                for weight in weights]


def set_header(cluster: Cluster) -> tuple[dict[str, int], dict[float, float]]:
    """Return the header of a set: workers by type, and shares of the requests by SLO."""
    return ({one.name: int(one.count or 0) for one in cluster.worker_types},
            {float(one.slo_ms): one.share for one in cluster.classes})


def _loads(
    division: Division, classes: Sequence[SloClass]
) -> list[tuple[int, tuple[float, ...]]]:
    """Return the types that get any load, with their loads by class as shares of all requests."""
    loads = [tuple(one.share * (row[t] / UNITS)
                   for one, row in zip(classes, division, strict=True))
             for t in range(len(division[0]))]
    return [(t, own) for t, own in enumerate(loads) if sum(own) > 0]


def _expected(
    stations: Sequence[Station[Policy]], load_qps: float, bound: FluidBound,
    shared: Rates | None, apart: Rates | None,
) -> dict[str, Any]:
    """Return the promise of a level under the manifest's names.

    ``shared`` and ``apart`` are what classes get in simulation from common workers and from
    workers of their own.
    """
    promise = rates_of((one.policy.load_qps / load_qps, one.policy) for one in stations)
    return {
        "expected_accuracy": promise.accuracy,
        "expected_violation_rate": promise.violation_rate,
        "expected_effective_accuracy": promise.effective_accuracy,
        "upper_bound": bound.effective_accuracy,
        "shared_effective_accuracy": shared and shared.effective_accuracy,
        "shared_violation_rate": shared and shared.violation_rate,
        "apart_effective_accuracy": apart and apart.effective_accuracy,
        "apart_violation_rate": apart and apart.violation_rate,
        "overloaded": any(one.policy.expectations.overloaded for one in stations),
    }


def _with_shares(
    station: Station[Policy], classes: Sequence[SloClass]
) -> Station[Policy]:
    """Return a station with shares of each class in place of shares of all requests."""
    whole = {one.slo_ms: one.share for one in classes}
    return station._replace(share={slo: load / whole[slo]
                                   for slo, load in station.share.items()})
