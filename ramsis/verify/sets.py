"""Checks of the levels of a policy set.

Each station's policy is checked by itself (:mod:`ramsis.verify.policy`). Reading a set checks its
records against each other, so a level with one station agrees with its policy. For a level with
several stations these claims remain:

- the shares of the SLO classes, and the loads of the stations that follow from them;
- the promise, the mean of the stations' promises weighted by their loads, and whether a station
  is overloaded;
- the bound, from the service times in the files, to 1e-6. If the files lack the service times of a
  worker type for the longest SLO, the bound is only checked to be no less than the promise;
- by simulation, whether the classes are better served by *shared* or by separate (*apart*)
  workers. Files contain the policies of the chosen way alone; the stated figures of the other way
  must not be better.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from ramsis.bounds import fluid_bound
from ramsis.cluster import ServiceTimes, SloClass
from ramsis.policy import Level, Policy, PolicySet, rates_of, validate_set
from ramsis.synthesis.certified import service_times_of
from ramsis.synthesis.simulated import simulated
from ramsis.synthesis.type_load import QUERIES, RUNS, SEED
from ramsis.verify.checks import Check, close

_ROUNDING = 1e-6


def verify_levels(folder: str | os.PathLike[str], tolerance: float) -> tuple[Check, ...]:
    """Check the claims of levels; of a single station, only claims that its policy file lacks.

    Parameters
    ----------
    folder : path
        Folder of the manifest.
    tolerance : float
        Largest difference between a stated and a derived figure, > 0.

    Raises
    ------
    InputFileError
        The folder holds no valid set.
    """
    policies = validate_set(folder)
    return tuple(check for level in policies.levels
                 for check in _checks(level, policies, tolerance))


def _checks(level: Level[Policy], policies: PolicySet[Policy], tolerance: float) -> list[Check]:
    """Check workers, loads, shares and the promise of a level, as far as its files lack them."""
    at, classes = f"at {level.words}", policies.slo_classes
    checks = _worker_checks(level, policies.worker_types, at)
    if len(level.stations) == 1:  # the rest is what its policy says
        return checks + _way_checks(level, at)
    checks += [close(f"share of the class of {slo_ms:g} ms {at}", 1.0, math.fsum(
        station.share.get(slo_ms, 0.0) for station in level.stations), _ROUNDING)
               for slo_ms in classes]
    checks += [close(f"load of {station.name} {at}", station.load_qps, level.load_qps * math.fsum(
        share * classes[slo_ms] for slo_ms, share in station.share.items()),
        _ROUNDING * level.load_qps) for station in level.stations]
    derived = rates_of((station.load_qps / level.load_qps, station.policy)
                       for station in level.stations)
    overloaded = any(station.policy.expectations.overloaded for station in level.stations)
    stated = level.expected
    return [
        *checks,
        *(close(f"{name.replace('_', ' ')} {at}", stated[f"expected_{name}"],
                getattr(derived, name), min(tolerance, _ROUNDING))
          for name in ("accuracy", "violation_rate", "effective_accuracy")),
        Check(f"overloaded {at}", float(stated["overloaded"]), float(overloaded),
              bool(stated["overloaded"]) == overloaded),
        _bound_check(level, policies, at),
        *_way_checks(level, at),
    ]


def _worker_checks(
    level: Level[Policy], worker_types: Mapping[str, int], at: str
) -> list[Check]:
    """Check that stations of the same worker types have all workers of these types together."""
    stations = [(station.worker_types, station.workers) for station in level.stations]
    return [close(f"workers of {'+'.join(types)} {at}", sum(worker_types[name] for name in types),
                  sum(workers for station_types, workers in stations if station_types == types),
                  0.0)
            for types in dict.fromkeys(types for types, _ in stations)]


def _bound_check(level: Level[Policy], policies: PolicySet[Policy], at: str) -> Check:
    """Check the fluid bound of all workers and classes against the policies' service times.

    If the files lack the service times of a worker type, check only that the bound is no less than
    the promise.
    """
    claim, stated = f"upper bound {at}", level.expected.get("upper_bound")
    longest_ms = max(policies.slo_classes)
    times: dict[tuple[str, ...], ServiceTimes] = {}
    for station in level.stations:
        if station.policy.slo_ms == longest_ms:
            times[station.worker_types] = service_times_of(station.policy)
    type_names = {name for types in times for name in types}
    if stated is None or type_names != set(policies.worker_types):
        promised = level.expected["expected_effective_accuracy"]
        return Check(claim, stated, promised, stated is None or stated >= promised - _ROUNDING)
    bound = fluid_bound(
        list(times.values()), load_qps=level.load_qps,
        slo_ms=[SloClass(slo_ms, share) for slo_ms, share in policies.slo_classes.items()],
        workers=[sum(policies.worker_types[name] for name in types) for types in times])
    return close(claim, stated, bound.effective_accuracy, _ROUNDING)


def _way_checks(level: Level[Policy], at: str) -> list[Check]:
    """Check by simulation whether classes are better served by shared or separate workers.

    Return no checks if the level states no choice, or if some worker types share and others do
    not. The figures of the chosen way are simulated again only for policies without a budget of
    violations.
    """
    stated = level.expected
    if stated.get("shared_effective_accuracy") is None:
        return []
    several = [station for station in level.stations if len(station.policy.classes) > 1]
    of_one = [station.worker_types
              for station in level.stations if len(station.policy.classes) == 1]
    divided = {types for types in of_one if of_one.count(types) > 1}
    if several and divided:  # some types are shared, others are divided by class
        return []
    chosen, other = ("shared", "apart") if several else ("apart", "shared")
    # With the same settings and seed as when the choice was made.
    replays = [(station.load_qps / level.load_qps,
                simulated(station.policy, queries=QUERIES, runs=RUNS, seed=SEED))
               for station in level.stations]
    derived = {
        "effective_accuracy": math.fsum(share * result.effective_accuracy
                                        for share, result in replays),
        "violation_rate": math.fsum(share * result.violation_rate for share, result in replays)}
    price = level.stations[0].policy.violation_price
    gains = {way: stated[f"{way}_effective_accuracy"] - price * stated[f"{way}_violation_rate"]
             for way in (chosen, other)}
    budget = any(station.policy.budget for station in level.stations)
    return [
        *([] if budget else [
            close(f"{chosen} {name.replace('_', ' ')} {at}", stated[f"{chosen}_{name}"], value,
                  _ROUNDING) for name, value in derived.items()]),
        Check(f"{chosen} no worse than {other} {at}", gains[chosen], gains[other],
              gains[chosen] >= gains[other] - _ROUNDING),
    ]
