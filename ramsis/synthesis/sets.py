"""Policy sets: for each load the stations of a cluster, written to a folder.

*Levels by accuracy.* The problem: between a lowest and a highest load, choose as few levels as
possible such that the expected accuracies a of neighbours differ by at most a step. From each
level the next one is the farthest load with |a(level) − a(load)| <= step, found by bisection on a
lattice of loads. If a falls with the load, no set with fewer levels keeps the step. If a jumps by
more than the step between two loads of the lattice, both are levels. The last level is the highest
load.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ramsis import __version__
from ramsis.cluster import Cluster
from ramsis.errors import INNER, InvalidValueError, OutputError
from ramsis.policy import (
    MANIFEST_NAME,
    Level,
    Policy,
    PolicySet,
    SetFolder,
    read_set,
    replaced_set,
)
from ramsis.profiles import ProfileSet
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.synthesis.stations import ClusterProblem, set_header

_FINENESS = 1000  # least number of steps of the lattice of loads

_SMALLEST_STEP = 5e-4  # of accuracy between levels; a promise is not more precise
_HARDLY_ANY_IN_TIME = 0.999  # violation rate above which the accuracy of the rest says nothing


class Point(NamedTuple):
    """Load and settings, with the slowness, that a level is made for."""

    load_qps: float
    settings: SynthesisSettings


def generate_set(
    cluster: Cluster | ProfileSet,
    loads_qps: Sequence[float],
    settings: SynthesisSettings | Sequence[SynthesisSettings],
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_level: Callable[[Level[Policy]], object] | None = None,
    make: Callable[[Sequence[Point]], Iterable[Level[Policy]]] | None = None,
) -> PolicySet[Policy]:
    """Write the policies of a cluster's stations for some loads, and the manifest of the folder.

    A file is written before the manifest that names it, so an interruption leaves a valid set of
    the loads that are finished. If the load is divided among stations, all files are written at
    the end. A folder that holds a set made from the same cluster and settings is extended by other
    loads or another arrival process, also by several processes at a time; levels that it has
    already are replaced.

    Parameters
    ----------
    cluster : Cluster or ProfileSet
        A profile stands for identical workers and one SLO, those of the settings.
    loads_qps : sequence of float
        Loads of all requests together, > 0.
    settings : SynthesisSettings, or sequence of these
        Workers and SLOs are the cluster's. Of several that differ in their slowness alone, as
        :meth:`SynthesisSettings.when_slow` gives them, each has levels for all loads.
    folder : path
        Made when missing.
    overwrite : bool
        Replace the set that the folder holds, whatever it was made from, once the new one is
        whole.
    on_level : callable, optional
        Called with each finished level.
    make : callable, optional
        Makes the levels for these loads and settings in any order, such as by :func:`made_level`
        in several processes; by default they are made here in turn.

    Returns
    -------
    PolicySet
        The levels for these loads.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :class:`~ramsis.synthesis.stations.ClusterProblem` and its levels; a load out of range
        before anything is written.
    OutputError
        The folder cannot be written, or holds a set made from something else.
    """
    loads_qps = tuple(loads_qps)
    if not loads_qps:
        raise InvalidValueError("no loads", where="loads_qps", allowed="one or more")
    several = tuple(settings) if isinstance(settings, Sequence) else (settings,)
    if len({replace(settings, slowness=1.0) for settings in several}) != 1:
        raise InvalidValueError("not settings of one set", where="settings", value=several,
                                allowed="one or more that differ in slowness alone")
    problems = [ClusterProblem(_cluster(cluster, settings), settings) for settings in several]
    points = [Point(load_qps, problem.settings) for problem in problems for load_qps in loads_qps]
    # All inputs are checked before any file is touched.
    prepared = [problem.prepared(load_qps) for problem in problems for load_qps in loads_qps]
    levels = (generate() for generate in prepared) if make is None else make(points)
    problem = problems[0]
    if not isinstance(levels, Iterable):
        raise InvalidValueError("makes no levels", where="make", value=levels,
                                allowed="a function that gives the levels in turn")
    folder = Path(folder)
    if overwrite and os.path.exists(folder / MANIFEST_NAME):
        with replaced_set(folder) as new:
            written = _written(problem, levels, new, on_level)
    else:
        if os.path.exists(folder / MANIFEST_NAME):
            _check_same(problem, folder)
        written = _written(problem, levels, folder, on_level)
    by_point = {(level.load_qps, level.slowness): level for level in written.levels}
    return PolicySet([by_point[point.load_qps, point.settings.slowness] for point in points],
                     *set_header(problem.cluster))


def made_level(
    cluster: Cluster, load_qps: float, settings: SynthesisSettings
) -> Level[Policy]:
    """Generate the level for a load, as :func:`generate_set` writes it.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :func:`generate_set`.
    """
    return ClusterProblem(_cluster(cluster, settings), settings).level(load_qps)


def _written(
    problem: ClusterProblem, generated: Iterable[Level[Policy]], folder: Path,
    on_level: Callable[[Level[Policy]], object] | None,
) -> PolicySet[Policy]:
    """Add each level to the set of a folder as soon as it is generated; return these levels."""
    flat = problem.one_station
    if not flat:  # files are in a folder for each station, unless every level has a single one
        generated = list(generated)
        flat = all(len(level.stations) == 1 for level in generated)
    target = SetFolder(folder, *set_header(problem.cluster), f"ramsis {__version__}", flat=flat,
                       accepts=partial(_check_same, problem, folder))
    levels = []
    for level in generated:
        target.add(level)
        levels.append(level)
        if on_level is not None:
            on_level(level)
    return PolicySet(levels, *set_header(problem.cluster))


def choose_loads(
    cluster: Cluster | ProfileSet,
    lowest_qps: float,
    highest_qps: float,
    settings: SynthesisSettings,
    max_accuracy_step: float,
) -> tuple[float, ...]:
    """Choose the fewest load levels whose expected accuracies differ by at most a step.

    See :func:`ramsis.synthesis.sets.adaptive_levels`; policies are made for each load tried.
    The accuracy is that of the requests in time, so overload, where the fastest model does all
    work, takes few levels. If hardly any request is in time, the accuracy of that model counts.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`generate_set`, and for a range or a step out of range.
    """
    if not _SMALLEST_STEP <= max_accuracy_step < 1:
        raise InvalidValueError("not an accuracy step", where="max_accuracy_step",
                                value=max_accuracy_step,
                                allowed=f"a number from {_SMALLEST_STEP:g} to 1")
    problem = ClusterProblem(_cluster(cluster, settings), settings)

    def accuracy_at(load_qps: float) -> float:
        level = problem.level(load_qps)
        accuracy = level.expected["expected_accuracy"]
        if accuracy is None or level.expected["expected_violation_rate"] > _HARDLY_ANY_IN_TIME:
            return math.fsum(station.load_qps / load_qps * station.policy.models[0].accuracy
                             for station in level.stations)
        return float(accuracy)

    return adaptive_levels(accuracy_at, lowest_qps, highest_qps, max_accuracy_step)


def _cluster(cluster: Cluster | ProfileSet, settings: SynthesisSettings) -> Cluster:
    if isinstance(cluster, Cluster):
        return cluster
    return Cluster.of(cluster, workers=settings.workers, slo_ms=settings.slo_ms)


def _check_same(problem: ClusterProblem, folder: Path) -> None:
    """Refuse a folder with policies made from another cluster, profile or settings."""
    present = read_set(folder)
    same = (dict(present.worker_types), dict(present.slo_classes)) == set_header(problem.cluster)
    if not (same and all(station.policy.inputs == problem.inputs(station)
                         for level in present.levels for station in level.stations)):
        raise OutputError("the folder holds policies made from another profile or other settings",
                          where=str(folder),
                          value=present.levels[0].stations[0].policy.inputs.profile_name,
                          allowed="an empty folder, or --overwrite")


def adaptive_levels(
    accuracy_at: Callable[[float], float],
    lowest_qps: float,
    highest_qps: float,
    max_step: float,
) -> tuple[float, ...]:
    """Choose the fewest loads from ``lowest_qps`` to ``highest_qps``, both included.

    The accuracies of neighbours differ by at most ``max_step``, where the lattice allows it.

    Loads in between are ``lowest_qps`` plus multiples of a power of ten, the largest one that is
    at most a thousandth of the range. ``accuracy_at`` is called about ten times for each level.

    >>> adaptive_levels(lambda load_qps: 1 - load_qps / 1000, 100, 500, 0.125)
    (100.0, 225.0, 350.0, 475.0, 500.0)
    """
    INNER.check("not an accuracy step", max_accuracy_step=max_step)
    lattice = _lattice(lowest_qps, highest_qps)
    accuracy = cache(lambda place: accuracy_at(lattice[place]))
    chosen = [0]
    while chosen[-1] < len(lattice) - 1:
        here = chosen[-1]

        def within(place: int, here: int = here) -> bool:
            return abs(accuracy(here) - accuracy(place)) <= max_step

        chosen.append(max(_farthest(within, here, len(lattice) - 1), here + 1))
    return tuple(lattice[place] for place in chosen)


def _lattice(lowest_qps: float, highest_qps: float) -> list[float]:
    """Return the loads to choose from, at round differences, free of binary rounding."""
    low, high = Decimal(repr(float(lowest_qps))), Decimal(repr(float(highest_qps)))
    if not 0 < low < high:
        raise InvalidValueError(
            "not a range of loads", where="load", value=f"{lowest_qps:g}:{highest_qps:g}",
            allowed="a lowest and a higher load > 0 for levels chosen by accuracy")
    spacing = Decimal(10) ** ((high - low) / _FINENESS).adjusted()
    inner = [low + i * spacing for i in range(int((high - low) / spacing) + 1)]
    return [float(load) for load in (inner if inner[-1] == high else [*inner, high])]


def _farthest(within: Callable[[int], bool], here: int, last: int) -> int:
    """Return by bisection the farthest place up to ``last`` that is within the step."""
    if within(last):
        return last
    while last - here > 1:
        middle = (here + last) // 2
        here, last = (middle, last) if within(middle) else (here, middle)
    return here
