"""Audit of a request log with sizes: the share in time by size class, a policy's, and a bound.

The policy is that of ``ramsis generate --sizes`` for the log's load and sizes, replayed on the
same arrivals and sizes; the bound is that on every scheduler (:mod:`ramsis.sized.bound`).
Times are those of the profile, multiplied by the *service factor*: the ratio of the times of the
log's batches to the profile's times at the same count and size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ramsis.arrays import IntArray
from ramsis.arrivals import SizeDistribution
from ramsis.audit.audit import Achieved, achieved_of, half_width_of, models_of
from ramsis.audit.batches import LoggedBatches, batches_of
from ramsis.audit.request_log import RequestLog
from ramsis.errors import InputFileError, check_number_of
from ramsis.profiles import ProfileSet
from ramsis.reprs import dataclass
from ramsis.sim.metrics import measure
from ramsis.sized import SizedProblem, SizedScheduler, path_bound
from ramsis.sized.policy import generate_sized
from ramsis.sized.simulate import SizedRun, serve_sized

MOST_BOUNDED = 200_000
"""Requests of a log with a bound; more would take minutes."""


@dataclass(frozen=True)
class SizedAudit:
    """Results of an audit of requests with a size."""

    workers: int
    service: str  # statistic of the profile that batches were compared with
    unit: str  # unit of sizes, such as tokens
    achieved: Achieved
    padding: float | None  # share of the computed size; None where batches are not known
    upper_bound: float | None  # of effective accuracy; None for more than :data:`MOST_BOUNDED`
    replayed: tuple[Mapping[str, Any], ...]  # figures of each scheduler on the same requests
    ranges: tuple[tuple[int, int], ...]  # smallest and largest size of each class
    share: tuple[float, ...]  # of the requests, by class
    in_time: tuple[float, ...]  # share answered in time, by class
    half_width: tuple[float, ...]  # of its 95 % interval, by class
    accuracy: tuple[float | None, ...]  # of those answered in time, by class; None without any

    @property
    def best(self) -> Mapping[str, Any]:
        """Audited scheduler with the highest effective accuracy on the log's requests."""
        return max(self.replayed, key=lambda figures: float(figures["effective_accuracy"]))

    def row(self) -> dict[str, Any]:
        """Return the results under the names that every command uses."""
        bound, effective = self.upper_bound, self.achieved.effective_accuracy
        return {
            "workers": self.workers, "service": self.service, **asdict(self.achieved),
            "padding": self.padding, "upper_bound": bound,
            "gap_to_bound": None if bound is None else bound - effective,
            "best_policy": dict(self.best),
            "gap_to_policy": self.best["effective_accuracy"] - effective, "unit": self.unit,
            "by_class": [
                {"sizes": list(sizes), "share": share, "in_time_rate": in_time,
                 "in_time_rate_half_width": half_width, "accuracy": accuracy}
                for sizes, share, in_time, half_width, accuracy in zip(
                    self.ranges, self.share, self.in_time, self.half_width, self.accuracy,
                    strict=True)],
        }


def audit_sized(
    log: RequestLog, profile: ProfileSet, workers: int, *, service: str,
    schedulers: Mapping[str, SizedScheduler | None], where: str = "log",
    on_progress: Callable[[], object] = lambda: None,
) -> SizedAudit:
    """Audit a log whose requests have a size.

    Batches are compared with the statistic ``service`` of the profile. ``schedulers`` are
    simulated on the same requests, by label, None for the policy of the log's load;
    ``on_progress`` is called after each. Messages call the log ``where``. Requests without a size
    or with several deadlines, and models or sizes that the profile lacks, are refused.
    """
    check_number_of("workers", workers)
    if not log.size.all():
        raise InputFileError("requests without a size", where=f"{where}: size",
                             value=int((log.size == 0).sum()), allowed="a size for each request")
    slo_ms = float(log.deadline_ms[0])
    if (log.deadline_ms != slo_ms).any():
        raise InputFileError("several deadlines: requests with a size have one",
                             where=f"{where}: deadline", value=np.unique(log.deadline_ms).tolist(),
                             allowed="one deadline")
    sizes = SizeDistribution.of_sizes(log.size)

    def problem_of(slowness: float) -> SizedProblem:
        return SizedProblem.of(profile.slower(slowness), sizes, slo_ms=slo_ms, workers=workers,
                               statistic=service, max_batch=max(64, int(log.batch.max())))

    # The service factor comes from the profile's times, and scales the problem to be solved.
    problem = problem_of(1.0)
    model = models_of(log, problem.models, where)
    batches = batches_of(log, model, workers, where)
    factor, padding = _beside_profile(problem, log.size, batches)
    problem = problem_of(factor or 1.0)
    achieved = achieved_of(log, model, problem.accuracy, batches, workers, factor)
    arrival_ms = 1000.0 * log.arrival_s
    replayed = []
    for label, scheduler in schedulers.items():
        served = serve_sized(
            problem, scheduler or generate_sized(problem, profile, achieved.load_qps).scheduler,
            arrival_ms, log.size, duration_ms=1000.0 * achieved.duration_s + slo_ms)
        replayed.append({"scheduler": label, **_figures(problem, served)})
        on_progress()
    size_class = problem.class_of(log.size)
    count = np.bincount(size_class, minlength=len(problem.edges))
    answered = np.bincount(size_class, log.in_time, len(problem.edges))
    worth = np.bincount(size_class, np.where(log.in_time, problem.accuracy[model], 0.0),
                        len(problem.edges))
    in_time = answered / np.maximum(count, 1)
    return SizedAudit(
        workers, service, problem.unit, achieved, padding,
        upper_bound=path_bound(problem, arrival_ms, log.size, rounds=0).upper_bound
        if len(log) <= MOST_BOUNDED else None,
        replayed=tuple(replayed), ranges=problem.ranges, share=tuple((count / len(log)).tolist()),
        in_time=tuple(in_time.tolist()), half_width=tuple(
            half_width_of(share, requests) for share, requests in zip(
                in_time.tolist(), count.tolist(), strict=True)), accuracy=tuple(
            earned / number if number else None for earned, number in zip(
                worth.tolist(), answered.tolist(), strict=True)))


def _figures(problem: SizedProblem, served: SizedRun) -> dict[str, Any]:
    """Return the figures of a replay, in all and by class."""
    metrics, size_class = measure(served.run), problem.class_of(served.size)
    classes = [measure(served.run, size_class == i) for i in range(len(problem.ranges))]
    return {
        "accuracy": metrics.accuracy, "violation_rate": metrics.violation_rate,
        "effective_accuracy": metrics.effective_accuracy, "padding": served.padding,
        "by_class": [{"sizes": list(sizes), "in_time_rate": 1.0 - of_class.violation_rate,
                      "accuracy": of_class.accuracy}
                     for sizes, of_class in zip(problem.ranges, classes, strict=True)]}


def _beside_profile(
    problem: SizedProblem, size: IntArray, batches: LoggedBatches
) -> tuple[float | None, float | None]:
    """Return measured over profiled batch time in a log, and the share of padding in batches."""
    if not len(batches.size):
        return None, None
    ran = batches.of >= 0
    longest, total = (np.zeros(len(batches.size), dtype=np.int64) for _ in range(2))
    np.maximum.at(longest, batches.of[ran], size[ran])
    np.add.at(total, batches.of[ran], size[ran])
    measure_of = longest if problem.times.padded else total
    expected_ms = sum(
        float(problem.batch_ms(int(count), int(x))[model]) for model, count, x in zip(
            batches.model.tolist(), batches.size.tolist(), measure_of.tolist(), strict=True))
    computed = float((longest * batches.size).sum())
    return (float(batches.busy_ms.sum()) / expected_ms,
            1.0 - float(total.sum()) / computed if problem.times.padded else 0.0)
