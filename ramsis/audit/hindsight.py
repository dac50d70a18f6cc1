"""Hindsight: the best policy on the arrivals of a log, and the fewest workers for it.

*Best policy*: policies are generated for several loads, from the log's mean load up to its peak,
and each is simulated on all arrivals. The set of all levels, switched by the load monitor, is
simulated, too, unless policies have second opinions. The best policy has the highest effective
accuracy, rounded to the four digits that are shown. Of equal policies it is the one that a set
would select for the mean load: that of the lowest level at or above this load, or else that of the
highest level. Service times are those of the profile (drawn if it has their distribution),
multiplied by the service factor of the log. If requests have several deadlines, each request draws
one by their shares.

*Fewest workers*: found by bisection, up to the number of workers of the log. A number suffices if
its best policy reaches the achieved effective accuracy, with at most the achieved violations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InfeasibleError
from ramsis.profiles import ProfileSet
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.sim import Recorded, SimulationResult, SimulationSettings, simulate
from ramsis.synthesis.schedulers import ComparedScheduler

_HEADROOM = (1.0, 1.1, 1.25)  # levels, as multiples of the mean load
_VARIES = 1.25  # the load monitor is tried if the peak exceeds the highest level by this factor
_LEVELS_TO_PEAK = 6  # further levels for the load monitor
_WINDOW_MS = 500.0  # window in which a peak is counted, as in the load monitor


@dataclass(frozen=True)
class Hindsight:
    """Figures that the best policy would have achieved on the requests of a log."""

    workers: int
    scheduler: str  # dispatch rule of the policy, with settings
    level_qps: float | None  # load of the policy; None for several by the load monitor
    # accuracy, violation_rate, effective_accuracy: simulated on the arrivals, means over the
    # seeds
    accuracy: float
    violation_rate: float
    effective_accuracy: float
    second_opinions: float | None = None  # share of the requests; None without a cascade

    def row(self) -> dict[str, Any]:
        """Return the figures by name; ``second_opinions`` only with a cascade."""
        row = asdict(self)
        if self.second_opinions is None:
            del row["second_opinions"]
        return row


@dataclass(frozen=True, eq=False)
class Day:
    """Arrivals of a log, with the models and schedulers that serve them."""

    profile: ProfileSet
    service: str
    factor: float  # on the profile's service times, > 0
    arrival_ms: FloatArray  # non-decreasing, shape (n,)
    classes: tuple[SloClass, ...]
    schedulers: dict[str, ComparedScheduler]  # by their text on the command line
    seeds: Sequence[int] = (0, 1, 2)

    def best(self, workers: int, achieved: Callable[[Hindsight], bool]) -> Hindsight | None:
        """Return the best policy for a number of workers; None where none can be generated.

        Of equal ones, a policy for which ``achieved`` is true is preferred.
        """
        return self._best(workers, self.levels_qps(), achieved)

    def fewest(
        self, best: Hindsight | None, achieved: Callable[[Hindsight], bool], lowest: int = 1
    ) -> Hindsight | None:
        """Return the best policy on the fewest workers that suffice; None if ``best`` does not.

        For fewer workers than in ``best``, policies are generated only for the level of ``best``
        (or for all levels, if ``best`` uses the load monitor).
        """
        if best is None or not achieved(best):
            return None
        loads = self.levels_qps() if best.level_qps is None else [best.level_qps]
        answer, low, high = best, min(lowest, best.workers), best.workers
        while low < high:
            middle = (low + high) // 2
            policy = self._best(middle, loads, achieved)
            if policy is not None and achieved(policy):
                answer, high = policy, middle
            else:
                low = middle + 1
        return answer

    def _best(
        self, workers: int, loads: Sequence[float], achieved: Callable[[Hindsight], bool]
    ) -> Hindsight | None:
        """Return the policy of the largest effective accuracy over schedulers and ``loads``."""
        cluster = Cluster((WorkerType(ALL_WORKERS, self.profile, workers,
                                      speed=1.0 / self.factor),), self.classes)
        tried = [policy for text, scheduler in self.schedulers.items()
                 for policy in self._tried(cluster, text, scheduler, loads)]
        mean_qps = float(f"{Recorded(self.arrival_ms).load_qps:.6g}")  # rounded as levels are

        def worth(policy: Hindsight) -> tuple[float, bool, int, float]:
            level = policy.level_qps
            place = ((0, 0.0) if level is None else
                     (2, -level) if level >= mean_qps else (1, level))
            return round(policy.effective_accuracy, 4), achieved(policy), *place

        return max(tried, key=worth, default=None)

    def _tried(
        self, cluster: Cluster, text: str, scheduler: ComparedScheduler, loads: Sequence[float]
    ) -> list[Hindsight]:
        """Simulate a scheduler stated each of ``loads``, then with the load monitor.

        Returns the outcomes, none if no policies can be made.
        """
        workload = Recorded(self.arrival_ms)
        try:
            spec = scheduler.ready(cluster, loads, service=self.service, source=text).spec
        except InfeasibleError:
            return []
        base = SimulationSettings(service=self.service, seeds=self.seeds, monitor=False)
        by_level: list[tuple[float | None, SimulationSettings]] = [
            (load, replace(base, stated_load=load / workload.load_qps)) for load in loads]
        if len(loads) > len(_HEADROOM) and not scheduler.given.get("cascades"):
            by_level.append((None, replace(base, monitor=True)))
        return [_outcome(cluster, text, level, simulate(cluster, spec, workload, settings))
                for level, settings in by_level]

    def levels_qps(self) -> list[float]:
        """Return levels from the mean load to the peak of any half second."""
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
                     violations, effective, result.row().get("second_opinions"))
