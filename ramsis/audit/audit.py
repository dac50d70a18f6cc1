"""Audit: the gap of a request log to the best policy and to a bound, with the causes.

1. *Achieved*: the outcomes of the requests. Answers in time have the accuracy that the profile
   states for their models, so that figures can be compared; the measured share of correct answers
   is separate.
2. *Best policy*: :mod:`ramsis.audit.hindsight`. 3. *Bound on all schedulers*:
   :mod:`ramsis.bounds.observed`. Two differences add up: bound − achieved =
   (bound − best policy) + (best policy − achieved).
4. *Workers*: the fewest with which the best policy achieves as much, and a lower bound for any
   scheduler.
5. *Losses*: the most accurate model's accuracy − effective accuracy = loss by violations + loss by
   less accurate models. *Causes* of violations: :mod:`ramsis.audit.batches`.

Service times are those of the profile, multiplied by a *service factor*: the ratio of the times of
the log's batches to the profile's means. It is above 1 if service has become slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.audit.batches import CAUSES, LoggedBatches, batches_of, causes_of
from ramsis.audit.hindsight import Day, Hindsight
from ramsis.audit.request_log import RequestLog
from ramsis.bounds import cascade_bound
from ramsis.bounds.observed import Observed, WaysToAnswer, observed_bound, observed_workers
from ramsis.bounds.targets import ROUNDING
from ramsis.cluster import ServiceTimes, SloClass, default_service
from ramsis.errors import (
    FRACTION,
    InputFileError,
    InvalidValueError,
    check_known,
    check_number_of,
)
from ramsis.profiles import ProfileSet
from ramsis.reprs import dataclass
from ramsis.runtime.routing import DISPATCH_NAMES
from ramsis.sim import ConstantLoad
from ramsis.sim.fleet import MAX_BATCH
from ramsis.synthesis.capacity import check_second_opinions
from ramsis.synthesis.schedulers import ComparedScheduler, fleet_scheduler

_MOST_CLASSES = 4  # of deadlines; each multiplies the variables of the bound's program
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class AuditSettings:
    """Settings of an audit of a request log."""

    workers: int  # workers of the log, >= 1
    # service times with which batches are compared; by default those of
    # :func:`ramsis.cluster.default_service`
    service: str | None = None
    # policies of which the best is taken, as for ``simulate``; may be none
    schedulers: tuple[str, ...] = ("central-queue",)
    # share of violations that the fewest workers may have even where there were fewer
    max_violation: float = 0.001
    seeds: int = 3  # simulations on the arrivals, >= 1
    model: str | None = None  # model that answered, whatever the log names
    # models of the profile for names of the log, as of a router or an ensemble
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number_of("workers", self.workers)
        check_number_of("seeds", self.seeds)
        FRACTION.check("not a share of violations", max_violation=self.max_violation)
        _ = self.policies

    @property
    def policies(self) -> dict[str, ComparedScheduler]:
        """Compared schedulers by their text; refuse those that make no policies."""
        schedulers = {text: fleet_scheduler(text) for text in self.schedulers}
        for text, scheduler in schedulers.items():
            if not scheduler.makes_policies:
                raise InvalidValueError("not policies", where="scheduler", value=text,
                                        allowed=f"{DISPATCH_NAMES}, with settings")
        return schedulers


@dataclass(frozen=True)
class Achieved:
    """Accuracy and violations that the scheduler of a log achieved."""

    # requests, served, late, dropped, failed: the last four add up to the first
    requests: int
    served: int
    late: int
    dropped: int
    failed: int
    # duration_s, load_qps: from the first arrival to the last
    duration_s: float
    load_qps: float
    slo_ms: float  # the longest deadline
    accuracy: float | None  # mean of the answers in time; None without any
    violation_rate: float
    effective_accuracy: float
    # share of the answers in time that were right, where the log states it
    right: float | None
    right_half_width: float | None  # of its 95 % interval
    # share of the workers' time that batches took; None where the log does not state it
    utilisation: float | None
    # times of batches over the profile's means; None where the log does not state them
    service_factor: float | None


@dataclass(frozen=True)
class Audit:
    """Results of an audit: a log's outcomes beside the best policy and the bound."""

    workers: int  # workers of the log
    service: str  # service times of the profile that the log was compared with
    achieved: Achieved
    best: Hindsight | None  # None where no policy could be generated
    # on the fewest workers; None where the best policy on all does not achieve as much
    fewest: Hindsight | None
    upper_bound: float  # of effective accuracy, for one model per request
    least_violation_rate: float  # share of violations that no scheduler could have gone below
    workers_bound: int  # fewest for as much, for one model per request
    # of effective accuracy, for one model or a cascade per request; None without a policy with
    # second opinions
    upper_bound_with_cascades: float | None = field(default=None, kw_only=True)
    # lost_to_violations, lost_to_models: with the effective accuracy they add up to
    # ``most_accurate``
    lost_to_violations: float
    lost_to_models: float
    most_accurate: float  # accuracy of the most accurate model
    causes: dict[str, int] = field(default_factory=dict)  # violations by cause; they add up
    notes: tuple[str, ...] = ()  # assumptions about the log

    @property
    def wasted_workers(self) -> int:
        """Workers beyond the fewest with which the best policy achieves as much."""
        return 0 if self.fewest is None else self.workers - self.fewest.workers

    def row(self) -> dict[str, Any]:
        """Return the results under the names that every command uses."""
        best, fewest = self.best, self.fewest
        return {
            "workers": self.workers, "service": self.service, **asdict(self.achieved),
            "upper_bound": self.upper_bound, "least_violation_rate": self.least_violation_rate,
            **({} if self.upper_bound_with_cascades is None else {
                "upper_bound_with_cascades": self.upper_bound_with_cascades}),
            "gap_to_bound": self.upper_bound - self.achieved.effective_accuracy,
            "best_policy": None if best is None else best.row(),
            "gap_to_policy": (None if best is None else
                              best.effective_accuracy - self.achieved.effective_accuracy),
            "fewest_workers": None if fewest is None else fewest.workers,
            "workers_bound": self.workers_bound, "wasted_workers": self.wasted_workers,
            "violations_by_cause": dict(self.causes),
            "lost_to_violations": self.lost_to_violations, "lost_to_models": self.lost_to_models,
            "most_accurate": self.most_accurate,
        }


def audit_log(
    log: RequestLog, profile: ProfileSet, settings: AuditSettings, *, where: str = "log"
) -> Audit:
    """Compare a request log with the best policy and the bound, and explain its violations.

    Parameters
    ----------
    profile : ProfileSet
        Profile of the models that answered.
    where : str
        Name of the log in messages.
    """
    case = _Case.of(log, profile, settings, where)
    log = case.log
    achieved, ways, seen = case.achieved(), case.ways(), case.seen()
    bound = observed_bound(seen, ways, settings.workers)
    day = Day(profile, case.service, case.factor or 1.0, 1000.0 * log.arrival_s,
              case.slo_classes(), settings.policies, range(settings.seeds))
    allowed = max(achieved.violation_rate, settings.max_violation)
    busy = observed_workers(seen, ways, effective_accuracy=achieved.effective_accuracy,
                            in_time=1.0 - achieved.violation_rate)
    # The log is a feasible point of the program, so only rounding could ask for more workers.
    workers_bound = min(max(1, math.ceil(busy - 1e-6)), settings.workers)

    def as_much(policy: Hindsight) -> bool:
        return (policy.effective_accuracy >= achieved.effective_accuracy - ROUNDING
                and policy.violation_rate <= allowed)

    cascades = any(policy.given.get("cascades") for policy in settings.policies.values())
    with_cascades = case.cascade_bound(profile) if cascades else None
    best = day.best(settings.workers, as_much)
    fewest = day.fewest(best, as_much, workers_bound)
    most = float(case.times.accuracy.max())
    cause = causes_of(log, case.batches, case.stated, settings.workers)
    return Audit(
        settings.workers, case.service, achieved, best, fewest,
        upper_bound=bound.effective_accuracy, least_violation_rate=1.0 - bound.in_time,
        workers_bound=workers_bound, lost_to_violations=most * achieved.violation_rate,
        lost_to_models=most * (1.0 - achieved.violation_rate) - achieved.effective_accuracy,
        most_accurate=most, causes={name: int((cause == name).sum()) for name in CAUSES},
        notes=case.log.notes, upper_bound_with_cascades=with_cascades)


@dataclass(frozen=True, eq=False)
class _Case:
    """A log of requests with the profile of the models that answered."""

    log: RequestLog
    settings: AuditSettings
    service: str
    # stated, times: the profile's, and these times the factor
    stated: ServiceTimes
    times: ServiceTimes
    model: IntArray  # model that answered each request; -1 for none, shape (n,)
    batches: LoggedBatches
    factor: float | None

    @classmethod
    def of(
        cls, log: RequestLog, profile: ProfileSet, settings: AuditSettings, where: str
    ) -> _Case:
        """Match a log to a profile, whose times are scaled to the log's measured batch times."""
        service = settings.service or default_service(profile)
        log = _named(log, profile, service, settings)
        largest = max(MAX_BATCH, int(log.batch.max()))
        stated = ServiceTimes.of_all(profile, service, largest)
        model = models_of(log, stated.models, where)
        batches = batches_of(log, model, settings.workers, where)
        if len(batches.size) and batches.size.max() > largest:
            stated = ServiceTimes.of_all(profile, service, int(batches.size.max()))
        expected = stated.mean_ms[batches.model, batches.size - 1].sum()
        factor = float(batches.busy_ms.sum() / expected) if expected > 0 else None
        times = stated if factor is None else stated.scaled(factor)
        return cls(log, settings, service, stated, times, model, batches, factor)

    def achieved(self) -> Achieved:
        """Compute what the log's scheduler achieved: accuracy and violations of the requests."""
        return achieved_of(self.log, self.model, self.times.accuracy, self.batches,
                           self.settings.workers, self.factor)

    def classes(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return shortest and longest deadline of each class, and the class of each request."""
        deadline = self.log.deadline_ms
        slos = np.unique(deadline)
        if len(slos) > _MOST_CLASSES:
            levels = (np.arange(_MOST_CLASSES) + 1.0) / _MOST_CLASSES
            slos = np.unique(np.quantile(deadline, levels, method="higher"))
        class_of = np.searchsorted(slos, deadline)
        shortest = np.array([deadline[class_of == c].min() for c in range(len(slos))])
        return shortest, slos, class_of

    def slo_classes(self) -> tuple[SloClass, ...]:
        """Return the classes with their shares of the requests, by their shortest deadlines."""
        shortest, _, class_of = self.classes()
        share = np.bincount(class_of) / len(class_of)
        return tuple(SloClass(float(slo), float(part))
                     for slo, part in zip(shortest, share, strict=True))

    def cascade_bound(self, profile: ProfileSet) -> float:
        """Return the bound for schedulers with cascades, at the log's mean load.

        The mean is taken from the first arrival to the last deadline, the time in which workers
        could serve.
        """
        span_ms = 1000.0 * float(self.log.arrival_s[-1] - self.log.arrival_s[0])
        # Any constant load does: the check refuses loads that vary.
        confidences, _ = check_second_opinions(
            [profile], ConstantLoad(1.0, 1.0), self.slo_classes())
        slo_ms = float(self.log.deadline_ms.max())
        return cascade_bound(
            self.times, confidences, slo_ms=slo_ms, workers=self.settings.workers,
            load_qps=1000.0 * len(self.log) / (span_ms + slo_ms)).upper_bound

    def ways(self) -> WaysToAnswer:
        """Return accuracies and mean times of the batches that can be in time, by class."""
        shortest, longest, _ = self.classes()
        return WaysToAnswer.of(self.times, longest, 1.0, shortest)

    def seen(self) -> Observed:
        """Return the logged requests with model, batch and worker time of their answers."""
        log, batches, in_time = self.log, self.batches, self.log.in_time
        has_batch = batches.of >= 0
        share = np.full(len(log), np.nan)
        share[has_batch] = (batches.busy_ms / batches.size)[batches.of[has_batch]]
        size = np.maximum(log.batch, 1)
        size[has_batch] = batches.size[batches.of[has_batch]]
        return Observed(1000.0 * log.arrival_s, self.classes()[2],
                        np.where(in_time, self.model, -1), np.where(in_time, size, 0), share)


def achieved_of(
    log: RequestLog, model: IntArray, accuracy: FloatArray, batches: LoggedBatches, workers: int,
    factor: float | None,
) -> Achieved:
    """Compute the outcomes of the requests of a log.

    ``model``, shape (n,), is the index of the model that answered each request, -1 for none, and
    ``accuracy`` that of each model. ``factor`` are the times of batches over the profile's; None
    where the log does not state them.
    """
    in_time = log.in_time
    worth = float(accuracy[model[in_time]].sum())
    span_s = float(log.arrival_s[-1] - log.arrival_s[0])
    counted = in_time & np.isfinite(log.correct)
    right = float(log.correct[counted].mean()) if counted.any() else None
    served, requests = int(in_time.sum()), len(log)
    late, dropped, failed = (int((log.outcome == name).sum())
                             for name in ("late", "dropped", "failed"))
    return Achieved(
        requests, served, late, dropped, failed, span_s,
        (requests - 1) / span_s if span_s > 0 else float(requests),
        float(log.deadline_ms.max()), worth / served if served else None,
        1.0 - served / requests, worth / requests, right,
        None if right is None else half_width_of(right, int(counted.sum())),
        _utilisation(log, batches, workers, span_s), factor)


def _utilisation(
    log: RequestLog, batches: LoggedBatches, workers: int, span_s: float
) -> float | None:
    """Return the busy share of the workers between first and last arrival; None if unknown."""
    if not len(batches.size) or span_s <= 0:
        return None
    first, last = float(log.arrival_s[0]), float(log.arrival_s[-1])
    length_s = np.maximum(batches.finish_s - batches.start_s, 1e-12)
    inside_s = np.clip(np.minimum(batches.finish_s, last)
                       - np.maximum(batches.start_s, first), 0.0, None)
    busy_s = float((batches.busy_ms / 1000.0 * inside_s / length_s).sum())
    return busy_s / (workers * span_s)


def half_width_of(share: float, count: int) -> float:
    """Return the half-width of the 95 % interval of a share (Agresti–Coull)."""
    adjusted = (share * count + 2.0) / (count + 4.0)
    return _NORMAL_95 * math.sqrt(adjusted * (1.0 - adjusted) / (count + 4.0))


def _named(
    log: RequestLog, profile: ProfileSet, service: str, settings: AuditSettings
) -> RequestLog:
    """Return a log with the models that answered.

    All answers are by the model of the settings, if one is set; otherwise by the models that the
    log names, translated by the names in the settings. If there are no such names, the most
    accurate model is assumed that could have answered as many requests in the time of all
    workers, so that the accuracy is an upper limit.
    """
    names = [model.name for model in profile.models]
    for where, models in (("map", settings.names.values()), ("model", [settings.model])):
        for model in filter(None, models):
            check_known("a model that the profile lacks", model, names, where)
    named = [*dict.fromkeys(log.model[log.answered & (log.model != "")].tolist())]
    for alias in settings.names:
        check_known("a name that the log lacks", alias, named, "map")
    name = settings.model
    if name is None and (named or not log.answered.any()):
        return replace(log, model=np.array(
            [settings.names.get(model, model) for model in log.model.tolist()], dtype=object))
    if name is None:
        stated = ServiceTimes.of_all(profile, service, MAX_BATCH)
        each_ms = (stated.mean_ms / np.arange(1, stated.mean_ms.shape[1] + 1)).min(axis=1)
        span_ms = 1000.0 * (log.arrival_s[-1] - log.arrival_s[0]) + float(log.deadline_ms.max())
        able = each_ms * log.answered.sum() <= settings.workers * span_ms
        able &= stated.mean_ms[:, 0] <= log.deadline_ms.max()
        best = int(np.argmax(np.where(able, stated.accuracy, -1.0))) if able.any() else int(
            np.argmin(each_ms))
        name = stated.models[best]
        if len(stated.models) > 1:
            log = replace(log, notes=(*log.notes, "the log does not say which model answered: "
                                      f"counted as {name}, the most accurate that could have, so "
                                      "accuracy is an upper end (--model NAME says which)"))
    return replace(log, model=np.where(log.answered, name, "").astype(object))


def models_of(log: RequestLog, models: tuple[str, ...], where: str) -> IntArray:
    """Return the index of the model of each request; -1 where none answered."""
    number = {name: i for i, name in enumerate(models)}
    for name in dict.fromkeys(log.model[log.answered].tolist()):
        if name not in number:
            raise InputFileError(
                "a model that the profile lacks", where=f"{where}: model", value=name,
                allowed=f"{', '.join(models)}; or --map {name}=MODEL, for the name of a router "
                "or an ensemble, or --model MODEL for all requests")
    return np.array([number.get(name, -1) if answered else -1
                     for name, answered in zip(log.model.tolist(), log.answered.tolist(),
                                               strict=True)], dtype=np.int64)
