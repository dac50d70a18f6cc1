"""The stations of a cluster: its workers and its load divided, and a policy for each station.

A cluster is served by *stations*. A station has some workers of one type, a policy, and a share of
the requests of each SLO class. Each request goes to a station at random by these shares, so the
arrivals at a station are those of all requests, thinned (:mod:`ramsis.cluster.routing`). The
objective is the sum over the stations of load × (effective accuracy − violation price × violation
rate), as their policies promise. With a budget of violations the load is divided by the price, and
then each station gets the best policy within the budget, so that all together are within it.
Headroom (planning for longer service times than profiled, :mod:`ramsis.synthesis.headroom`) is
given to the final policies only; the load is divided by what policies promise that are planned
for the profiled times.

1. Worker types that are alike are merged, and so are classes with the same SLO. One type and one
   class are one station, and nothing is divided.
2. *Between types* each class's load is divided in 128ths. The search by exchanges
   (:mod:`ramsis.synthesis.type_load`) starts from the division of the fluid bound, from everything
   on one type, and from loads in proportion to speed. So the result is never worse than the best
   type alone.
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
from ramsis.cluster.cluster import check_reachable, numbered_alike
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Inputs, Level, Policy, Rates, Station, level_of, rates_of
from ramsis.runtime.table import arrivals_label
from ramsis.synthesis.generate import prepared
from ramsis.synthesis.settings import SynthesisSettings, inputs_of, with_settings
from ramsis.synthesis.type_load import Division, LikeWorkers, TypeLoads, best_division, rounded

UNITS = 128
"""Parts that a class's load is divided into between worker types."""

_LOAD_STEPS = (32, 16, 8, 4, 2, 1)
_LOAD_STEPS_WITH_CLASSES = (32, 16, 8)  # each valuation divides the workers, too


class ClusterProblem:
    """Checked cluster and settings; :meth:`level` makes the stations and policies for a load.

    Workers and SLOs are those of the cluster, all other settings those of ``settings``. The queue
    of a single worker is treated as a central one
    (:meth:`~ramsis.synthesis.settings.SynthesisSettings.with_one_queue`), and batches may take a
    part of the queue where no long batch can be in time
    (:meth:`~ramsis.synthesis.settings.SynthesisSettings.with_short_batches`).
    """

    def __init__(self, cluster: Cluster, settings: SynthesisSettings) -> None:
        self.cluster, self.classes = cluster, cluster.classes
        profiles = [worker_type.profile for worker_type in cluster.worker_types]
        alike = len({settings.chosen_service(profile) for profile in profiles}) == 1
        service = settings.service if alike else settings.chosen_service(*profiles)
        self.settings = replace(settings, slo_ms=cluster.slo_ms, workers=cluster.workers,
                                slo_classes=(), service=service)
        if not cluster.simple:
            check_reachable([kind.times for kind in self.kinds], self.classes)
        # With equal workers and one SLO nothing is divided.
        self.one_station = cluster.simple or len(self.kinds) == len(self.classes) == 1
        if self.one_station:
            self.settings = self.settings.with_one_queue().with_short_batches(profiles[0])
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
        types = [replace(worker_type, profile=settings.profile_for(worker_type.profile))
                 for worker_type in self.cluster.worker_types]
        times = [planned.service_times(settings.chosen_service(planned.profile),
                                       settings.max_queue) for planned in types]
        kind_of = numbered_alike(times)
        return tuple(
            LikeWorkers(tuple(types[i].name for i in members),
                        self.cluster.worker_types[members[0]].profile,
                        times[members[0]], sum(types[i].count or 0 for i in members))
            for kind in range(max(kind_of) + 1)
            for members in [[i for i, number in enumerate(kind_of) if number == kind]])

    def bound(self, load_qps: float) -> FluidBound:
        """Return the fluid bound (one model per request), with a row for each kind."""
        return fluid_bound([kind.times for kind in self.kinds], slo_ms=self.classes,
                           workers=[kind.workers for kind in self.kinds], load_qps=load_qps)

    def prepared(self, load_qps: float) -> Callable[[], Level[Policy]]:
        """Check the input for a load; return a function that makes the stations' policies."""
        if not self.one_station:
            return partial(self._divided, load_qps)
        types = self.cluster.worker_types
        make = prepared(types[0].profile, load_qps, self.settings)
        return lambda: level_of(make(), tuple(worker_type.name for worker_type in types))

    def level(self, load_qps: float) -> Level[Policy]:
        """Return the stations for a load with the best policies found."""
        return self.prepared(load_qps)()

    def inputs(self, station: Station[Policy]) -> Inputs:
        """Return the fingerprints of the inputs that a station's policy was made from."""
        policy = station.policy
        settings = replace(self.settings, slo_ms=policy.slo_ms, workers=policy.workers,
                           slo_classes=policy.slo_classes, slowness=policy.slowness)
        return with_settings(self._profiles[station.worker_types[0]], settings)

    @cached_property
    def _profiles(self) -> dict[str, Inputs]:
        """Fingerprints of each worker type's profile, with these settings."""
        return {worker_type.name: inputs_of(worker_type.profile, self.settings)
                for worker_type in self.cluster.worker_types}

    def _loads(self, load_qps: float) -> TypeLoads:
        return TypeLoads(self.kinds, self.classes, self.settings, load_qps)

    def _divided(self, load_qps: float) -> Level[Policy]:
        """Divide a load among stations, and return them with their policies."""
        bound, types = self.bound(load_qps), self._loads(load_qps)
        steps = _LOAD_STEPS if len(self.classes) == 1 else _LOAD_STEPS_WITH_CLASSES

        def at_most(division: Division) -> float:
            return sum(types.at_most(t, loads) for t, loads in _loads(division, self.classes))

        division = best_division(
            lambda d: sum(types.worth(t, loads) for t, loads in _loads(d, self.classes)), at_most,
            self._starts(bound), steps if len(self.kinds) > 1 else ())
        if at_most(division) < 0:
            raise InfeasibleError(
                "fewer workers of a type than SLO classes", where="workers",
                allowed="a worker for each class, or a central queue (--dispatch central-queue)")
        ways = [types.ways(t, loads) for t, loads in _loads(division, self.classes)]
        several = len(self.classes) > 1
        if several and self.settings.max_violation is None:  # the manifest states both ways
            ways = [types.both_finished(way) for way in ways]
        stations = [types.finished(station)
                    for way in ways for station in types.better_simulated(way)]
        shared, apart = (
            types.simulated([station for stations in by_type for station in stations or ()])
            if several and all(stations is not None for stations in by_type) else None
            for by_type in ([way.shared for way in ways], [way.apart for way in ways]))
        arrivals = Arrivals.parse(self.settings.arrivals)(load_qps)
        return Level(
            load_qps, arrivals_label(describe_process(arrivals)),
            tuple(_with_shares(station, self.classes) for station in stations),
            _expected(stations, load_qps, bound, shared, apart), self.settings.slowness)

    def _starts(self, bound: FluidBound) -> list[Division]:
        """Return divisions of the classes' loads between types to start the search from."""
        able = np.array([[float(kind.times.quantiles_ms[:, :, 0].min()) <= slo_class.slo_ms
                          for slo_class in self.classes] for kind in self.kinds])
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
    """Return the header of a policy set: workers by type, and shares of the requests by SLO."""
    return ({worker_type.name: int(worker_type.count or 0)
             for worker_type in cluster.worker_types},
            {float(slo_class.slo_ms): slo_class.share for slo_class in cluster.classes})


def _loads(
    division: Division, classes: Sequence[SloClass]
) -> list[tuple[int, tuple[float, ...]]]:
    """Return the types that get any load, with their loads by class as shares of all requests."""
    by_type = [tuple(slo_class.share * (row[t] / UNITS)
                     for slo_class, row in zip(classes, division, strict=True))
               for t in range(len(division[0]))]
    return [(t, loads) for t, loads in enumerate(by_type) if sum(loads) > 0]


def _expected(
    stations: Sequence[Station[Policy]], load_qps: float, bound: FluidBound,
    shared: Rates | None, apart: Rates | None,
) -> dict[str, Any]:
    """Return the promise of a level under the manifest's names.

    ``shared`` and ``apart`` are simulated rates of all requests, with workers that the classes
    share and with separate workers for each class.
    """
    promise = rates_of((station.policy.load_qps / load_qps, station.policy)
                       for station in stations)
    return {
        "expected_accuracy": promise.accuracy,
        "expected_violation_rate": promise.violation_rate,
        "expected_effective_accuracy": promise.effective_accuracy,
        "upper_bound": bound.effective_accuracy,
        "shared_effective_accuracy": shared and shared.effective_accuracy,
        "shared_violation_rate": shared and shared.violation_rate,
        "apart_effective_accuracy": apart and apart.effective_accuracy,
        "apart_violation_rate": apart and apart.violation_rate,
        "overloaded": any(station.policy.expectations.overloaded for station in stations),
    }


def _with_shares(
    station: Station[Policy], classes: Sequence[SloClass]
) -> Station[Policy]:
    """Return a station whose shares are of the requests of each class, not of all requests."""
    whole = {slo_class.slo_ms: slo_class.share for slo_class in classes}
    return station._replace(share={slo: load / whole[slo]
                                   for slo, load in station.share.items()})
