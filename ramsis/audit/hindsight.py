"""What the best policy would have done on the arrivals of a log, and with how few workers.

*Hindsight*: policies are made for several loads, from the log's mean load up to its peak, and
simulated on the arrivals, each all the time; where there are several also by the load monitor
between them. The most effective is the best, to the four digits that are shown. Of several it is
the one that a policy set would take for the mean load: that of the lowest level from this load on,
or else that of the highest. Service times are the profile's, drawn where it has
their distribution, times what the log's batches took over the profile's means. Where requests have
several deadlines each draws one by their shares.

*Fewest workers*: the fewest, by bisection up to those that there were, with which the best policy
has at least the effective accuracy that was achieved, and at most its violations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InfeasibleError
from ramsis.profiles import ProfileSet
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.sim import Recorded, SimulationResult, SimulationSettings, simulate
from ramsis.synthesis.schedulers import ComparedScheduler

_HEADROOM = (1.0, 1.1, 1.25)  # levels, as multiples of the mean load
_VARIES = 1.25  # peak over the highest of these above which the load monitor is tried, too
_LEVELS_TO_PEAK = 6
_WINDOW_MS = 500.0


@dataclass(frozen=True)
class Hindsight:
    """Figures that the best policy would have achieved."""

    workers: int
    scheduler: str  # its dispatch, with the settings given
    level_qps: float | None  # the load that it was made for; None for several by the load monitor
    # accuracy, violation_rate, effective_accuracy: simulated on the arrivals, means over the
    # seeds
    accuracy: float
    violation_rate: float
    effective_accuracy: float


@dataclass(frozen=True, eq=False)
class Day:
    """The arrivals of a log, and what serves them."""

    profile: ProfileSet
    service: str
    factor: float  # of the profile's service times, > 0
    arrival_ms: FloatArray  # not falling, shape (n,)
    classes: tuple[SloClass, ...]
    schedulers: dict[str, ComparedScheduler]  # by the text that names it
    seeds: Sequence[int] = (0, 1, 2)

    def best(self, workers: int, achieved: Callable[[Hindsight], bool]) -> Hindsight | None:
        """Return the best policy for a number of workers; None where none can be made.

        Of equal ones it is one that has achieved what it should.
        """
        return self._best(workers, self.levels_qps(), achieved)

    def fewest(
        self, best: Hindsight | None, achieved: Callable[[Hindsight], bool], lowest: int = 1
    ) -> Hindsight | None:
        """The policy on the fewest workers that will do; None where the best one will not.

        For fewer workers than the best one's policies are made for its load alone.
        """
        if best is None or not achieved(best):
            return None
        loads = self.levels_qps() if best.level_qps is None else [best.level_qps]
        answer, low, high = best, min(lowest, best.workers), best.workers
        while low < high:
            middle = (low + high) // 2
            found = self._best(middle, loads, achieved)
            if found is not None and achieved(found):
                answer, high = found, middle
            else:
                low = middle + 1
        return answer

    def _best(
        self, workers: int, loads: Sequence[float], achieved: Callable[[Hindsight], bool]
    ) -> Hindsight | None:
        cluster = Cluster((WorkerType(ALL_WORKERS, self.profile, workers,
                                      speed=1.0 / self.factor),), self.classes)
        tried = [one for text, scheduler in self.schedulers.items()
                 for one in self._tried(cluster, text, scheduler, loads)]
        mean_qps = float(f"{Recorded(self.arrival_ms).load_qps:.6g}")  # as levels are

        def worth(found: Hindsight) -> tuple[float, bool, int, float]:
            level = found.level_qps
            place = ((0, 0.0) if level is None else
                     (2, -level) if level >= mean_qps else (1, level))
            return round(found.effective_accuracy, 4), achieved(found), *place

        return max(tried, key=worth, default=None)

    def _tried(
        self, cluster: Cluster, text: str, scheduler: ComparedScheduler, loads: Sequence[float]
    ) -> list[Hindsight]:
        workload = Recorded(self.arrival_ms)
        try:
            made = scheduler.ready(cluster, loads, service=self.service, source=text).spec
        except InfeasibleError:
            return []
        base = SimulationSettings(service=self.service, seeds=self.seeds, monitor=False)
        ways: list[tuple[float | None, SimulationSettings]] = [
            (load, replace(base, stated_load=load / workload.load_qps)) for load in loads]
        if len(loads) > len(_HEADROOM):
            ways.append((None, replace(base, monitor=True)))
        return [_outcome(cluster, text, level, simulate(cluster, made, workload, settings))
                for level, settings in ways]

    def levels_qps(self) -> list[float]:
        """Levels from the mean load to the peak of any half second."""
        workload = Recorded(self.arrival_ms)
        mean = workload.load_qps
        windows = max(1, int(workload.duration_ms / _WINDOW_MS))
        window_ms = workload.duration_ms / windows
        counts = np.histogram(workload.times_ms, windows, (0.0, workload.duration_ms))[0]
        peak = float(np.quantile(counts, 0.995)) * 1000.0 / window_ms
        loads = [mean * factor for factor in _HEADROOM]
        if peak > _VARIES * loads[-1]:
            low = max(float(counts.min()) * 1000.0 / window_ms, 0.1 * mean)
            loads += np.geomspace(low, peak, _LEVELS_TO_PEAK).tolist()
        return sorted({float(f"{load:.6g}") for load in loads})



def _outcome(
    cluster: Cluster, text: str, level: float | None, result: SimulationResult
) -> Hindsight:
    violations = result.estimate("violation_rate").mean or 0.0
    effective = result.estimate("effective_accuracy").mean or 0.0
    served = 1.0 - violations
    return Hindsight(cluster.workers, text, level, effective / served if served > 0 else 0.0,
                     violations, effective)
