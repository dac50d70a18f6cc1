"""What policies are made for, besides the profile and the load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.arrivals import Arrivals, Sampler
from ramsis.cluster.service_times import default_service
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.errors import InvalidValueError
from ramsis.files import fingerprint
from ramsis.policy import DISPATCHES, Inputs
from ramsis.profiles import ProfileSet
from ramsis.runtime.routing import DispatchRule
from ramsis.synthesis.options import check_options, defaults_of
from ramsis.worker.problem import Objective
from ramsis.worker.solve import SolverName

_OF_DISPATCH: Any = None


@dataclass(frozen=True)
class SynthesisSettings:
    """Settings shared by all load levels of a policy set.

    What is None becomes the default of the dispatch rule and the objective, by
    :func:`ramsis.synthesis.options.defaults_of`. What does not go together is refused; see
    :data:`ramsis.synthesis.options.LIMITS`.

    Attributes
    ----------
    slo_ms : float
        Deadline of a request after its arrival; of several the longest.
    workers : int
        Workers K that share the load.
    arrivals : str
        Arrival process that the policies promise under, as :meth:`ramsis.arrivals.Arrivals.parse`
        takes it.
    service : str, optional
        Service times: ``p95``, ``p99``, ``mean`` or ``distribution``; by default those of
        :func:`ramsis.cluster.default_service`.
    dispatch : str
        How requests reach the workers: ``round-robin``; ``shortest-queue``, where they go to the
        workers in turn but for those that have many more requests than another one; or
        ``central-queue``, one queue that all workers take from.
    objective : str
        ``per-query`` or ``per-decision``.
    grid : str, optional
        Slack grid: ``fixed:D`` or ``model``, the distinct latencies. With a central queue None
        is ``model`` for a statistic, ``fixed:60`` for the distribution.
    max_queue : int
        Longest queue N that a worker's table tells apart; of a central queue the largest batch.
    late : str
        What becomes of requests that nothing can answer in time: ``serve``, ``drop`` or ``free``.
    batching : str
        ``maximal`` or ``variable``.
    violation_price : float
        What a query that is late or dropped costs, in units of accuracy, >= 0. At 1 a violation
        takes away as much as a perfect answer brings, on top of the answer that is missing: where
        all queries can be answered, all are. At 0 effective accuracy alone counts, and in
        overload queries are given up so that the others get better answers.
    solver : str
        One of :data:`ramsis.worker.solve.SOLVERS`.
    max_violation : float, optional
        Budget of violations, in (0, 1]: the price is found at which the policy is the most
        accurate one whose violation rate stays within it; see :mod:`ramsis.synthesis.budget`.
    overhead_ms : float
        What every batch takes besides the model, as to dispatch it, >= 0: added to all service
        times.
    headroom : float, optional
        Share by which policies are planned for longer service times than profiled, in [0, 1); by
        default 0.1, 0.05 or 0, the largest that costs little effective accuracy
        (:mod:`ramsis.synthesis.headroom`), and 0 with the objective ``per-decision``.
    prefer : str, optional
        What decides between policies that are equally good: ``early`` answers or ``less-work``;
        see :mod:`ramsis.cluster.preference`. By default ``early``; with the objective
        ``per-decision`` nothing.
    confidence : float
        Of the intervals that follow from the number of samples, in (0, 1); a budget of
        violations is met at the upper end.
    slo_classes : tuple of SloClass
        Where queries have several SLOs: two or more by rising SLO, ``slo_ms`` the last one's,
        shares that sum to 1. Else none.
    slowness : float
        Batches are taken to take so many times as long as profiled, > 0.

    Raises
    ------
    InvalidValueError
        An unknown word, values that do not go together, or classes that do not fit. Other numbers
        are checked where they are used.
    """

    slo_ms: float
    workers: int
    arrivals: str = _OF_DISPATCH
    service: str | None = None
    dispatch: str = "round-robin"
    objective: str = _OF_DISPATCH
    grid: str | None = None
    max_queue: int = _OF_DISPATCH
    late: str = _OF_DISPATCH
    batching: str = _OF_DISPATCH
    violation_price: float = _OF_DISPATCH
    solver: SolverName = _OF_DISPATCH
    max_violation: float | None = None
    slo_classes: tuple[SloClass, ...] = ()
    overhead_ms: float = _OF_DISPATCH
    headroom: float | None = _OF_DISPATCH
    prefer: str | None = _OF_DISPATCH
    confidence: float = CONFIDENCE
    slowness: float = 1.0

    def __post_init__(self) -> None:
        for name in ("workers", "max_queue"):  # NumPy's whole numbers are as good
            if isinstance(getattr(self, name), np.integer):
                object.__setattr__(self, name, int(getattr(self, name)))
        for name, value in defaults_of(self.dispatch, self.objective).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_options({item.name: getattr(self, item.name) for item in fields(self)})
        object.__setattr__(self, "slowness", float(self.slowness))
        classes = self.slo_classes
        if classes and (len(classes) < 2 or classes[-1].slo_ms != self.slo_ms
                        or merged_classes(classes) != classes):
            raise InvalidValueError("not two or more rising SLOs up to slo_ms",
                                    where="slo_classes", value=classes)

    def when_slow(self, *slowness: float) -> tuple[SynthesisSettings, ...]:
        """Return these settings for each slowness.

        They are without headroom: service that takes longer has policies of its own.

        Raises
        ------
        InvalidValueError
            A slowness is not a finite number above 0.
        """
        return tuple(replace(self, slowness=one, headroom=0.0) for one in slowness)

    @property
    def rule(self) -> DispatchRule:
        """How requests reach the workers."""
        return DISPATCHES[self.dispatch]

    @property
    def largest_batch(self) -> int:
        """The largest batch that a policy may run."""
        return self.max_queue + 1 if self.rule.own_queues else self.max_queue

    def with_one_queue(self) -> SynthesisSettings:
        """Return these settings, with a central queue where a single worker has its own queue.

        Both are the same queue, but the table of a central queue takes batches of any size, may
        wait and tells more slacks apart. Settings stay as they are where the objective, grid, late
        rule, batching or solver are not the default of the dispatch rule, or the arrivals cannot
        be drawn.
        """
        usual = {**defaults_of(self.dispatch, None), "objective": Objective.PER_QUERY.value}
        names = ("objective", "grid", "late", "batching", "solver")
        if not isinstance(Arrivals.parse(self.arrivals)(1.0), Sampler):
            return self
        if self.workers > 1 or not self.rule.own_queues or any(
                getattr(self, name) != usual[name] for name in names):
            return self
        return replace(self, dispatch="central-queue", grid=None, batching=_OF_DISPATCH)

    def profile_for(self, profile: ProfileSet) -> ProfileSet:
        """Return a profile with slowness and overhead in its times."""
        return profile.slower(self.slowness).with_overhead(self.overhead_ms)

    def chosen_service(self, *profiles: ProfileSet) -> str:
        """The service times for workers with some profiles."""
        return default_service(*profiles) if self.service is None else self.service

    def as_dict(self) -> Mapping[str, Any]:
        """What the policies of one set share, as plain JSON values; the arrivals are not.

        It is the same for 100 and 100.0 ms. A set holds policies for several arrival processes.
        """
        shared = asdict(self)
        del shared["arrivals"]
        for name in ("max_violation", "slo_classes"):
            if not shared[name]:
                del shared[name]
        for name, usual in (("confidence", CONFIDENCE), ("slowness", 1.0)):
            if shared[name] == usual:
                del shared[name]
        return {
            **shared,
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "max_queue": int(self.max_queue),
            "violation_price": float(self.violation_price),
            "overhead_ms": float(self.overhead_ms),
            "headroom": None if self.headroom is None else float(self.headroom),
        }


def inputs_of(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    """The record of a profile and settings."""
    return with_settings(Inputs(profile.fingerprint, profile.name, ""), settings)


def with_settings(inputs: Inputs, settings: SynthesisSettings) -> Inputs:
    """The record of the same profile with other settings."""
    options = json.loads(json.dumps(settings.as_dict()))  # plain values, as files have them
    return Inputs(inputs.profile, inputs.profile_name, fingerprint(options), options)
