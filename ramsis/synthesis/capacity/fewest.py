"""The fewest workers with which a scheduler reaches an accuracy and a violation rate.

The problem: find the smallest K such that the scheduler on K workers reaches the targets for
violations and accuracy (:class:`~ramsis.bounds.Targets`) under a workload, in simulation, by means
over the seeds. Three steps:

1. *Bound*: the fluid bound (:mod:`ramsis.bounds.workers`) gives a number of workers below which no
   scheduler reaches the targets, or states that no number is enough and which targets would be
   within reach.
2. *Search*: policies serve better on more workers. So their numbers of workers rise from the bound
   in steps that double until the targets are met, and the last step is bisected. For each number
   tried, policies are made and simulated. Other schedulers may meet the targets on K workers and
   miss them on K + 1, for instance if they change to a model that just does not carry the load. So
   for them every number from the bound on is tried; from 100 workers on first in strides of 1/50
   of the bound, then one by one within the last stride.
3. *Stop*: at a number that meets the targets if the one before misses them or is below the bound;
   at SPAN times the bound (of 10 workers at least), where the scheduler is taken to miss them on
   any number.

With several worker types the cheapest combination is searched for
(:mod:`ramsis.synthesis.capacity.cheapest`).

The same seeds give every scheduler and number of workers the same arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.bounds import (
    Targets,
    fewest_workers_bound,
    fewest_workers_bound_over_time,
    fewest_workers_bound_with_cascades,
    smallest,
)
from ramsis.bounds.search import SPAN
from ramsis.checks import check_arguments
from ramsis.cluster import Cluster, ServiceTimes, SloClass, WorkerType, default_service
from ramsis.cluster.cluster import classes_of
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import DISPATCHES
from ramsis.profiles import Confidences, ProfileSet
from ramsis.reprs import dataclass, figure_of
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.sim import RateTrace, Recorded, Workload
from ramsis.sim.fleet import MAX_BATCH
from ramsis.synthesis.capacity.cheapest import (
    MOST_WORKERS,
    CombinationSearch,
    Counts,
    fluid_mixes,
)
from ramsis.synthesis.capacity.trials import Trial, try_workers
from ramsis.synthesis.schedulers import fleet_scheduler
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPAN", "Capacity", "check_second_opinions", "fewest_by_bound", "fewest_workers",
           "offered_types", "whole_workers"]

AnyTrial = TypeVar("AnyTrial", bound=Trial)
_WINDOWS = 256
_SHORTEST_WINDOW = 10.0  # in units of the SLO


@dataclass(frozen=True, eq=False)
class Capacity:
    """Fewest workers of a scheduler that meet targets; of several types the cheapest.

    Attributes
    ----------
    scheduler : str
        As asked for.
    load_qps : float or None
        The workload's mean load.
    types : tuple of ramsis.cluster.WorkerType
    classes : tuple of SloClass
        By rising SLO, merged.
    service : str
    answer : Trial
        The workers that meet the targets, by :attr:`Trial.counts` of each type.
    fluid_cost : float
        Lower bound on the cost of any scheduler that meets the targets, with fractions of workers
        allowed. For one type of cost 1 it bounds the number of busy workers.
    counts_bound : tuple of int
        The cheapest whole numbers of workers that the bound allows: a lower bound on the cost.
    trials : tuple of Trial
        All that was tried: by number of workers, or in the order of the search.
    complete : bool
        Whether every cheaper combination is ruled out: by the bound, or by a trial with no fewer
        workers of any type that missed the targets.
    at_ticks : Trial or None
        For a recording by a coarse clock: trial of the same workers, with all requests of each
        tick at its beginning.
    """

    scheduler: str
    load_qps: float | None
    types: tuple[WorkerType, ...]
    classes: tuple[SloClass, ...]
    service: str
    answer: Trial
    fluid_cost: float
    counts_bound: Counts
    trials: tuple[Trial, ...]
    complete: bool = True
    at_ticks: Trial | None = None

    @property
    def slo_ms(self) -> float:
        """Longest SLO of the classes, in ms."""
        return self.classes[-1].slo_ms

    @property
    def counts(self) -> Counts:
        """Number of workers of each type in the answer."""
        return self.answer.counts

    @property
    def workers(self) -> int:
        """Fewest workers, of all types together."""
        return self.answer.workers

    @property
    def bound_workers(self) -> float:
        """Lower bound on the busy workers of the only type, for every scheduler."""
        return self.fluid_cost

    @property
    def workers_bound(self) -> int:
        """Lower bound on the whole number of workers of the only type, for every scheduler."""
        return sum(self.counts_bound)

    @property
    def bound_of(self) -> str:
        """How the schedulers that the bound holds for answer a request, in words."""
        return ("one model or a cascade per request"
                if fleet_scheduler(self.scheduler).given.get("cascades")
                else "one model per request")

    @property
    def cost(self) -> float:
        """Cost of the workers in the answer."""
        return self._cost(self.counts)

    @property
    def cost_bound(self) -> float:
        """Lower bound on the cost of whole workers, for every scheduler."""
        return self._cost(self.counts_bound)

    @property
    def clear(self) -> bool | None:
        """Whether these workers are certainly enough, and cheaper ones that were tried are not.

        False if the targets are missed at :attr:`at_ticks`, as a coarse clock may hide bursts.
        None if intervals are unknown, as with one seed.
        """
        if self.at_ticks is not None and not self.at_ticks.met:
            return False
        cheaper = [trial.clear for trial in self.trials
                   if not trial.met and self._cost(trial.counts) < self.cost]
        clear = [self.answer.clear, *cheaper]
        return None if None in clear else all(clear)

    def trial_rows(self) -> list[dict[str, Any]]:
        """Return a row for each trial: its workers, and the simulated and promised figures."""
        return [{"workers": trial.workers, "worker_types": self._named(trial.counts),
                 **(trial.figures() if trial.rates is not None else {})}
                for trial in self.trials]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of :meth:`trial_rows` as a frame."""
        import pandas as pd

        return pd.DataFrame(self.trial_rows())

    def plot(self) -> Any:
        """Plot the violations of all trials (:class:`matplotlib.figure.Figure`)."""
        return figure_of("capacity", self)

    def _repr_html_(self) -> str:
        """Return the trials as an HTML table, for notebooks."""
        return html_table((Column("workers", "workers", "d"),
                           Column("violation_rate", "violations", ".4%"),
                           Column("accuracy", "accuracy", ".4f"),
                           Column("effective_accuracy", "effective acc.", ".4f")),
                          self.trial_rows(), caption=f"{self.scheduler}: {self.workers} workers "
                          f"are enough, with {self.bound_of} no scheduler "
                          f"does with fewer than {self.workers_bound}")

    def row(self) -> dict[str, Any]:
        """Return the answer under the names that every command uses."""
        answer, targets, rates = self.answer, self.answer.targets, self.answer.rates
        assert rates is not None  # the answer meets the targets, so it was measured
        several = _are_named(self.types)
        return {
            "scheduler": self.scheduler, "load_qps": self.load_qps, "workers": self.workers,
            **(self._types_row() if several else {
                "workers_bound": self.workers_bound, "gap": self.workers - self.workers_bound,
                "bound_workers": self.bound_workers}),
            "slo_ms": self.slo_ms, **({} if len(self.classes) == 1 else {
                "slo_classes": [asdict(slo_class) for slo_class in self.classes]}),
            "service": self.service,
            "min_accuracy": targets.min_accuracy,
            "min_effective_accuracy": targets.min_effective_accuracy,
            "max_violation": targets.max_violation, **answer.figures(),
            **({} if several else {"queries": rates.requests}),
            "seeds": rates.runs, "clear": self.clear,
            **({} if self.at_ticks is None else {
                "violation_rate_at_ticks": self.at_ticks.violation_rate}),
            "tried": [self._named(trial.counts) if several else trial.workers
                      for trial in self.trials],
            "trials": self.trial_rows(),
            **({"complete": self.complete} if several else {}),
        }

    def _types_row(self) -> dict[str, Any]:
        return {
            "worker_types": self._named(self.counts), "cost": self.cost,
            "cost_bound": self.cost_bound, "gap": float(f"{self.cost - self.cost_bound:.9g}"),
            "worker_types_bound": self._named(self.counts_bound), "fluid_cost": self.fluid_cost,
        }

    def _cost(self, counts: Counts) -> float:
        total = sum(worker_type.cost * count
                    for worker_type, count in zip(self.types, counts, strict=True))
        return float(f"{total:.12g}")

    def _named(self, counts: Counts) -> dict[str, int]:
        return {worker_type.name: count
                for worker_type, count in zip(self.types, counts, strict=True)}


def fewest_by_bound(
    profile: ProfileSet, workload: Workload, targets: Targets, *,
    slo_ms: float | Sequence[SloClass],
    service: str | None = None, max_batch: int = MAX_BATCH, cascades: bool = False,
) -> float:
    """Bound from below the busy workers of every scheduler with batches up to ``max_batch``.

    At a constant load in the long run; on a trace of rates for their mean arrivals. Schedulers
    answer each request by one model; with ``cascades``, for which there must be one SLO and a
    constant load, also by a cascade of the profile's pairs. Other parameters are as of
    :func:`fewest_workers`.

    Raises
    ------
    InvalidValueError
        A number out of range, or no load.
    InfeasibleError
        No number of workers meets the targets; with the nearest that can be reached.
    """
    service = service or default_service(profile)
    if cascades:
        confidences, load_qps = check_second_opinions((profile,), workload, slo_ms)
        return fewest_workers_bound_with_cascades(
            ServiceTimes.of_all(profile, service, max_batch), confidences, targets,
            slo_ms=classes_of(slo_ms)[0].slo_ms, load_qps=load_qps)
    law = ServiceTimes.of(profile, service, max_batch)
    if isinstance(workload, RateTrace | Recorded) and workload.varies:
        classes = classes_of(slo_ms)
        counts, window_ms = _windows(workload, classes[-1].slo_ms)
        return fewest_workers_bound_over_time(law, targets, slo_ms=classes, counts=counts,
                                              window_ms=window_ms)
    if workload.load_qps is None:
        raise InvalidValueError("the load is not known beforehand", where="workload",
                                value=workload, allowed="a constant load, or a trace")
    return fewest_workers_bound(law, targets, slo_ms=slo_ms, load_qps=workload.load_qps)


def check_second_opinions(
    profiles: Sequence[ProfileSet], workload: Workload, slo_ms: float | Sequence[SloClass]
) -> tuple[Confidences, float]:
    """Return confidences and load of a search with cascades, or refuse it."""
    refused = partial(InvalidValueError, where="cascades")
    if len(profiles) > 1 or len(classes_of(slo_ms)) > 1:
        raise refused("second opinions on workers of several types, or for several SLO classes",
                      value=True, allowed="workers of one type and one SLO")
    if workload.varies or workload.load_qps is None:
        raise refused("second opinions need a stated load", value=True,
                      allowed="a constant load; for a trace, try the load of its peak")
    if profiles[0].confidences is None:
        raise refused("the profile has no confidences", value=profiles[0].name,
                      allowed="a profile with confidences, see `ramsis profile import "
                              "--confidences`")
    return profiles[0].confidences, workload.load_qps


def whole_workers(bound: float) -> int:
    """Return the least whole number of workers that a bound allows; refuse too many."""
    lowest = max(1, math.ceil(bound * (1.0 - 1e-9)))  # the bound is rounded, too
    if lowest > MOST_WORKERS:
        raise InfeasibleError("more workers than are searched for", where="workers",
                              value=float(f"{bound:.4g}"), allowed=f"at most {MOST_WORKERS}")
    return lowest


def fewest_workers(
    types: ProfileSet | Sequence[WorkerType],
    workload: Workload,
    targets: Targets,
    *,
    slo_ms: float | Sequence[SloClass],
    scheduler: str = "central-queue",
    service: str | None = None,
    seeds: Sequence[int] = range(5),
    on_trial: Callable[[Trial], object] | None = None,
    on_level: Callable[[int], object] | None = None,
) -> Capacity:
    """Find the fewest, or of several types the cheapest, workers that meet the targets.

    Parameters
    ----------
    types : ProfileSet, or sequence of ramsis.cluster.WorkerType
        A profile stands for workers of one type, as many as are wanted. Worker types have
        different names; ``count`` is how many there are.
    workload : Workload
        A constant load, or a trace, on which the load monitor tells schedulers the load. For
        worker types a constant load.
    targets : Targets
    slo_ms : float or sequence of SloClass
        Deadline after arrival, > 0; or classes whose shares sum to 1.
    scheduler : str
        ``central-queue``, ``round-robin`` or ``shortest-queue``: policies made for each number of
        workers, with settings as ``round-robin:objective=per-decision`` (``levels`` of them on a
        trace); else, where there is one type, a scheduler of :mod:`ramsis.sim`, as
        ``jellyfish-plus:headroom=1.05``.
    service : str, optional
        ``p95`` or another statistic, or ``distribution``; by default those of
        :func:`ramsis.cluster.default_service`.
    seeds : sequence of int
        Seeds of the simulations.
    on_trial : callable, optional
        Called with each trial as it is finished.
    on_level : callable, optional
        Called as each policy of a trial is finished, with the number of workers.

    Raises
    ------
    InvalidValueError
        A number or word out of range; a trace, or a scheduler that is no policies, for worker
        types.
    InfeasibleError
        No workers meet the targets, or the scheduler does not meet them with the workers that
        there are, or with :data:`SPAN` times the bound; the message has the nearest that can be
        reached.
    NotConvergedError
        A solver stopped before its rule was met.
    """
    offered = offered_types(types)
    classes = classes_of(slo_ms)
    if fleet_scheduler(scheduler).given.get("cascades"):
        check_second_opinions([worker_type.profile for worker_type in offered], workload, classes)
    chosen = service or default_service(*(worker_type.profile for worker_type in offered))

    def played(counts: Counts, workload: Workload) -> Trial:
        used = tuple(replace(worker_type, count=count)
                     for worker_type, count in zip(offered, counts, strict=True) if count)
        if len(used) == 1:
            used = (replace(used[0], name=ALL_WORKERS),)
        tried = Cluster(used, classes)
        trial = try_workers(
            tried, workload, targets, scheduler=scheduler, service=chosen, seeds=seeds,
            on_level=None if on_level is None else partial(on_level, tried.workers))
        return replace(trial, counts=counts)

    def try_counts(counts: Counts) -> Trial:
        trial = played(counts, workload)
        if on_trial is not None:
            on_trial(trial)
        return trial

    search = _of_several_types if _are_named(offered) else _of_one_type
    capacity = search(offered, cache(try_counts), workload, targets, classes=classes,
                   scheduler=scheduler, service=chosen)
    if not capacity.answer.met:
        not_reached(scheduler, workload, capacity.answer)
    # A coarse clock hides bursts: the answer is also tried on the largest that it may hide.
    if isinstance(workload, Recorded) and workload.at_ticks is not None:
        return replace(capacity, at_ticks=played(capacity.counts, workload.at_ticks))
    return capacity


def _of_one_type(
    types: tuple[WorkerType, ...], tried: Callable[[Counts], Trial], workload: Workload,
    targets: Targets, *, classes: tuple[SloClass, ...], scheduler: str, service: str,
) -> Capacity:
    """Search numbers of workers from the bound on; the last trial if none meets the targets."""
    spec = fleet_scheduler(scheduler)
    bound = fewest_by_bound(types[0].profile, workload, targets, slo_ms=classes, service=service,
                            max_batch=max(MAX_BATCH, spec.largest_batch),
                            cascades=bool(spec.given.get("cascades")))
    lowest = whole_workers(bound)
    answer, trials = search_workers(lambda workers: tried((workers,)), lowest,
                                    rising=spec.makes_policies)
    return Capacity(scheduler, workload.load_qps, types, classes, service, answer, bound,
                    (lowest,), trials)


def search_workers(
    tried: Callable[[int], AnyTrial], lowest: int, *, rising: bool
) -> tuple[AnyTrial, tuple[AnyTrial, ...]]:
    """Search numbers of workers from the bound on; return the answer, and all trials by number.

    The answer is the trial of the fewest workers that meet the targets; of the most if none do.
    """
    trials: dict[int, AnyTrial] = {}

    def met(workers: int) -> bool:
        trials[workers] = tried(workers)
        return trials[workers].met

    answer = smallest(met, lowest, SPAN * max(lowest, 10), rising=rising)
    return (trials[max(trials) if answer is None else answer],
            tuple(trials[k] for k in sorted(trials)))


def _of_several_types(
    types: tuple[WorkerType, ...], tried: Callable[[Counts], Trial], workload: Workload,
    targets: Targets, *, classes: tuple[SloClass, ...], scheduler: str, service: str,
) -> Capacity:
    """Search combinations of worker types; the largest trial if none meets the targets."""
    spec = fleet_scheduler(scheduler)
    if not spec.makes_policies:
        raise InvalidValueError(
            "not policies: others may serve worse on more workers, which the search rules out",
            where="scheduler", value=scheduler, allowed=", ".join(DISPATCHES))
    if workload.varies or workload.load_qps is None:
        raise InvalidValueError("the bound on combinations of worker types is for a constant load",
                                where="workload", value=type(workload).__name__,
                                allowed="a constant load")
    fluid = fluid_mixes(types, workload.load_qps, targets, slo_ms=classes, service=service,
                        max_batch=max(MAX_BATCH, spec.largest_batch))
    kinds = fluid.kinds

    def alike(merged: Counts) -> Trial:
        """Try merged counts; the first of equal types stands for all."""
        first = [kinds.index(kind) for kind in range(len(merged))]
        return tried(tuple(merged[first.index(t)] if t in first else 0
                           for t in range(len(types))))

    fluid_cost, _ = fluid.cheapest()
    _, bound = fluid.cheapest(whole=True)
    search = CombinationSearch(fluid, alike, tuple(round(k) for k in bound), SPAN)
    search.run()
    if search.answer is None:
        answer = max((trial for _, trial in search.trials), key=lambda trial: trial.workers)
    else:
        answer = replace(alike(fluid.merged(search.answer)), counts=search.answer)
    trials = tuple(replace(trial, counts=counts) for counts, trial in search.trials)
    return Capacity(scheduler, workload.load_qps, types, classes, service, answer, fluid_cost,
                    search.bound, trials, search.complete)


def offered_types(types: ProfileSet | Sequence[WorkerType]) -> tuple[WorkerType, ...]:
    """Return the worker types on offer; a profile stands for one of unlimited number."""
    return (WorkerType(ALL_WORKERS, types),) if isinstance(types, ProfileSet) else tuple(types)


def _are_named(types: Sequence[WorkerType]) -> bool:
    """Return whether worker types were named, so that the cheapest mix is wanted."""
    return [worker_type.name for worker_type in types] != [ALL_WORKERS]


def _windows(trace: RateTrace | Recorded, slo_ms: float) -> tuple[FloatArray, float]:
    """Return mean arrivals in equal windows, and the length of a window in ms."""
    longest = math.log2(max(1.0, trace.duration_ms / (_SHORTEST_WINDOW * slo_ms)))
    number = min(_WINDOWS, 2 ** int(longest))
    edges = np.linspace(0.0, trace.duration_ms, number + 1)
    if isinstance(trace, Recorded):
        before = np.searchsorted(trace.times_ms, edges).astype(float)
    else:
        steps = np.append(trace.start_ms, trace.end_ms)
        arrived = np.append(0.0, np.cumsum(trace.rate_qps / 1000.0 * np.diff(steps)))
        before = np.interp(edges, steps, arrived)
    return np.diff(before), trace.duration_ms / number


def not_reached(scheduler: str, workload: Workload, last: Trial) -> NoReturn:
    """Refuse a scheduler that misses the targets on every number of workers tried."""
    targets, late, windows = last.targets, last.violation_rate, last.windows
    where_at = f"{scheduler} at {workload.load_qps or 0.0:g} QPS"
    if last.rates is None:
        raise InfeasibleError(
            f"{where_at}: no policies on {last.workers} workers: {last.refusal}")
    for where, wanted, reached, allowed in (
        ("max_violation", targets.max_violation, late, f"at least {late:.6g}"),
        ("min_accuracy", targets.min_accuracy, last.accuracy, f"at most {last.accuracy:.6g}"),
        ("min_effective_accuracy", targets.min_effective_accuracy, last.effective_accuracy,
         f"at most {last.effective_accuracy:.6g}"),
    ):
        limit = wanted or 0.0
        missed = reached > limit if where == "max_violation" else reached < limit
        if missed:
            raise InfeasibleError(f"{where_at} does not reach this on {last.workers} workers",
                                  where=where, value=wanted, allowed=allowed)
    assert windows is not None  # without them, the last trial meets the targets
    raise InfeasibleError(
        f"{where_at} misses the target in {windows.missed} of {windows.count} windows on "
        f"{last.workers} workers", where="every_ms", value=windows.every_ms,
        allowed="longer windows, or a target that leaves some room")


check_arguments(globals(), ["fewest_workers"])
